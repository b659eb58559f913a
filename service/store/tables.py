"""The tables. Times are seconds since 1970 (UTC) as doubles. Names of people, jobs and nodes are data and never part of a path.

Indexes are for the queries of pages: newest first, by state, by category and reason, by group, by node, by user. The tables of
learned rules are in ``diagnose.learning.rule_store``.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    true,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
Big = BigInteger().with_variant(Integer, "sqlite")
"""an INTEGER key in SQLite, which counts up by itself and has 64 bits there

If people or programs remember a key (an action to approve, an attempt to read), the table has ``sqlite_autoincrement``. Without
it, SQLite gives the key of a deleted row to the next one.
"""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Big, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("project", Text, nullable=False, server_default="default"),
    Column("cluster", Text),
    Column("user", Text),
    Column("framework", Text),
    Column("gpus", Integer),
    Column("labels", JSON, nullable=False),
    Column("attempt", Integer, nullable=False),  # the latest
    Column("state", Text, nullable=False),  # running, ended
    Column("outcome", Text, nullable=False),  # running, failed, healthy
    Column("category", Text),
    Column("reason", Text),
    Column("group_id", Big),
    Column("first_seen", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Index(None, "last_seen"),
    Index(None, "state", "last_seen"),
    Index(None, "outcome", "last_seen"),
    Index(None, "category", "last_seen"),
    Index(None, "reason", "last_seen"),
    Index(None, "user", "last_seen"),
    Index(None, "cluster", "last_seen"),
    Index(None, "project", "last_seen"),
    sqlite_autoincrement=True,
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Big, primary_key=True),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", Text, nullable=False),  # running, ended
    Column("outcome", Text, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("ended_at", Double),
    Column("ended_by", Text),  # exit, scheduler, silence, superseded
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("end_state", Text),  # Slurm's last state of the job
    # how far the journal was stored, and the state at that point
    Column("lsn", BigInteger, nullable=False),
    Column("snapshot", LargeBinary),
    Column("lines_in", BigInteger, nullable=False, default=0),
    Column("bytes_in", BigInteger, nullable=False, default=0),
    Column("lines_kept", BigInteger, nullable=False, default=0),
    Column("bytes_kept", BigInteger, nullable=False, default=0),
    Column("dropped", JSON),  # kind -> lines
    Column("hits", JSON),  # filter -> lines
    Column("phase", Text),
    Column("step", Double),
    Column("loss", Double),
    Column("training_at", Double),  # when its first step was seen
    Column("progress_at", Double),  # when the step last moved
    Column("workload", Text),  # the kind of job, as learned rules see it
    Column("lines_deleted", Double),  # when the kept lines were deleted because of their age
    Column("raw_deleted", Double),  # likewise the raw logs
    UniqueConstraint("job_id", "number"),
    Index(None, "state", "last_seen"),
    Index("ix_attempts_read", "last_seen", "bytes_in", "bytes_kept", "job_id"),  # what was read in a time, without the rows
    Index(None, "ended_at"),
    Index(None, "lsn"),
    sqlite_autoincrement=True,
)

sources = Table(
    "sources",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("rank", Integer),
    Column("node", Text),
    Column("received", BigInteger, nullable=False),
    Column("head", LargeBinary),  # length and CRC of the first bytes, to notice another file under the same name
    Column("keys", LargeBinary),  # recent keys, to recognise duplicates
    Column("last_seen", Double, nullable=False),
    Column("missing", JSON),  # [from, to] of bytes that were accepted and then damaged on disk
    Column("step", Double),  # the last step that it tells of
    UniqueConstraint("attempt_id", "name"),
    Index(None, "node"),
)

speakers = Table(  # on whose behalf somebody sent something of an attempt; this limits what may be done because of it
    "speakers",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("binding", JSON, nullable=False),  # as in tokens
    sqlite_with_rowid=False,
)

confirmations = Table(  # what the scheduler said of an attempt when it was last decided about
    "confirmations",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("confirmed", Boolean, nullable=False),
    Column("why", Text, nullable=False),  # why it was not confirmed
    Column("owner", Text),
    Column("subject", Text),  # the job, in the scheduler's words
    Column("nodes", JSON, nullable=False),  # nodes that it ran on
    Column("accused", JSON, nullable=False),  # nodes that its diagnosis accuses and may accuse
)

kept_lines = Table(
    "kept_lines",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("ord", BigInteger, primary_key=True, autoincrement=False),
    Column("source", Integer, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("raw", LargeBinary),  # if the text is not UTF-8
    Column("rule", Text),  # null: no rule knows it; "notable": a number that stands out
    Column("cut", BigInteger, nullable=False, default=0),
    Column("rank", Integer),
    Column("node", Text),
    sqlite_with_rowid=False,
)

series = Table(
    "series",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("last", Double),
    Column("at_step", Double),
    Column("least", Double),
    Column("most", Double),
    Column("points", LargeBinary, nullable=False),  # zstd of JSON: [step, mean, least, most] per point
    sqlite_with_rowid=False,
)

diagnoses = Table(
    "diagnoses",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("made_at", Double, nullable=False),
    Column("final", Boolean, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("by", Text, nullable=False),
    Column("rule", Text),
    Column("summary", Text, nullable=False),
    Column("group_id", ForeignKey("groups.id")),
    Column("report", LargeBinary, nullable=False),  # zstd of the JSON of the report
    Index(None, "group_id"),
    Index(None, "category", "made_at"),
    Index(None, "rule"),
)

groups = Table(
    "groups",
    metadata,
    Column("id", Big, primary_key=True),
    Column("project", Text, nullable=False, server_default="default"),
    Column("fingerprint", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("rule", Text),
    Column("root_text", Text),
    Column("mitigation", Text),
    Column("first_seen", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("gpu_seconds_lost", Double, nullable=False, default=0.0),
    Column("state", Text, nullable=False),  # open, resolved, ignored
    Column("regressed", Boolean, nullable=False, default=False),
    Column("state_changed", Double),
    Column("note", Text),
    Column("assignee", Text),
    UniqueConstraint("project", "fingerprint"),
    Index(None, "last_seen"),
    Index(None, "state", "last_seen"),
    Index(None, "category", "last_seen"),
    Index(None, "reason", "last_seen"),
    Index(None, "count"),
)

comments = Table(  # what people said of a failure group
    "comments",
    metadata,
    Column("id", Big, primary_key=True),
    Column("group_id", ForeignKey("groups.id", ondelete="CASCADE"), nullable=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "group_id", "at"),
)

occurrences = Table(
    "occurrences",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("group_id", ForeignKey("groups.id", ondelete="CASCADE"), nullable=False),
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("at", Double, nullable=False),
    Column("category", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("user", Text),
    Column("cluster", Text),
    Column("gpu_seconds", Double, nullable=False, default=0.0),  # lost: diagnose/decision/lost.py
    Column("still", Double, nullable=False, server_default="0"),  # of these, standing still
    Column("back", Double, nullable=False, server_default="0"),  # and the way back
    Column("whole", Boolean, nullable=False, server_default=true()),  # no checkpoint is known
    Index(None, "group_id", "at"),
    Index("ix_occurrences_group_id_job_id", "group_id", "job_id"),
    Index("ix_occurrences_group_id_user", "group_id", "user"),
    # Sums over a time read this alone, and not the rows.
    Index("ix_occurrences_at", "at", "category", "reason", "user", "cluster", "gpu_seconds", "whole", "job_id"),
    Index(None, "job_id"),
)

occurrence_nodes = Table(
    "occurrence_nodes",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("node", Text, primary_key=True),
    Column("group_id", ForeignKey("groups.id", ondelete="CASCADE"), nullable=False),
    Column("at", Double, nullable=False),
    Column("culprit", Boolean, nullable=False, server_default=false()),  # a machine's fault names it itself
    Index(None, "node", "at"),
    Index("ix_occurrence_nodes_group_id_node", "group_id", "node", "at"),
    sqlite_with_rowid=False,
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),  # ok, suspect, isolated
    Column("why", Text),
    Column("first_seen", Double, nullable=False),
    Column("last_seen", Double, nullable=False),
    Column("last_failure", Double),
    Column("failures", BigInteger, nullable=False, default=0),
    Column("changed", Double),
    Index(None, "state"),
    Index(None, "last_failure"),
)

node_checks = Table(  # what node checks said of each node
    "node_checks",
    metadata,
    Column("node", Text, primary_key=True),
    Column("at", Double, primary_key=True),
    Column("result", Text, nullable=False),  # good, slow, suspect, faulty
    Column("why", Text),
    Column("who", Text, nullable=False),
    Column("tested", Integer, nullable=False),  # nodes in that check
    Column("rounds", Integer, nullable=False),
    Index(None, "at"),
    sqlite_with_rowid=False,
)

node_findings = Table(  # what others found of each node: alerts, conditions
    "node_findings",
    metadata,
    Column("node", Text, primary_key=True),
    Column("source", Text, primary_key=True),  # alertmanager, kubernetes
    Column("name", Text, primary_key=True),
    Column("at", Double, primary_key=True),  # since when
    Column("said", Text),
    Column("who", Text, nullable=False),
    Column("ended", Double),  # null: it is not over
    Index(None, "at"),
    sqlite_with_rowid=False,
)

actions = Table(
    "actions",
    metadata,
    Column("id", Big, primary_key=True),
    Column("key", Text, nullable=False, unique=True),  # one attempt, one diagnosis, one action
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE")),
    Column("group_id", ForeignKey("groups.id")),
    Column("kind", Text, nullable=False),
    Column("nodes", JSON, nullable=False),
    Column("restart_from", JSON),
    Column("skip_batches", JSON),
    Column("why", Text, nullable=False),
    Column("state", Text, nullable=False),  # proposed, approved, dispatched, running, succeeded, failed, expired, rejected
    Column("mode", Text),  # observe, approve, auto
    Column("decided_by", Text),
    Column("executor", Text),
    Column("claimed_by", Text),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("lease_until", Double),
    Column("result", JSON),
    Column("created", Double, nullable=False),
    Column("changed", Double, nullable=False),
    Column("expires", Double),
    Column("not_before", Double, nullable=False, server_default="0"),
    Column("claims", Integer, nullable=False, server_default="0"),
    Column("late", Boolean, nullable=False, server_default=false()),
    Column("notes", JSON),
    Column("reason", Text),
    Column("incident", Text),
    Column("avoid", JSON),  # nodes that the restart leaves out
    Column("owner", Text),  # project and owner, by the scheduler: whose budget it is
    Column("subject", Text),  # the job, in the scheduler's words
    Column("basis", JSON),  # the decision and its evidence, as they were when it was made
    Column("replaced_by", Big),  # the action that a later decision put in its place
    Column("unconfirmed", Text),  # why a person must approve it: the scheduler did not confirm it
    Index(None, "state", "created"),
    Index(None, "state", "id"),
    Index(None, "attempt_id"),
    Index(None, "created"),
    Index(None, "changed"),
    sqlite_autoincrement=True,
)

decisions = Table(  # the latest about each attempt; the audit trail has the earlier ones
    "decisions",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("about", Double, nullable=False),  # when the diagnosis was made that it is about
    Column("made_at", Double, nullable=False),
    Column("decision", JSON, nullable=False),
)

isolations = Table(
    "isolations",
    metadata,
    Column("id", Big, primary_key=True),
    Column("node", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("by", Text, nullable=False),  # who decided it
    Column("key", Text),  # of the action
    Column("released", Double),
    Index(None, "node", "at"),
    Index(None, "released"),
)

checkpoints = Table(  # reported by training scripts
    "checkpoints",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("healthy", Boolean),  # null: nobody said
    Column("at", Double, nullable=False),
    Column("why", Text),  # it is healthy, or not
    Column("cost_s", Double),  # time that the training lost by it
    sqlite_with_rowid=False,
)

scores = Table(  # of checkpoints, reported by whoever evaluates them
    "scores",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("data_set", Text, primary_key=True),
    Column("metric", Text, primary_key=True),
    Column("value", Double, nullable=False),
    Column("noise", Double),
    Column("higher", Boolean, nullable=False),  # more is better
    Column("at", Double, nullable=False),
    sqlite_with_rowid=False,
)

alarms = Table(  # what went wrong while an attempt went on
    "alarms",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),  # hang, hardware, score
    Column("name", Text, primary_key=True),  # what tells it from others of its kind
    Column("at", Double, primary_key=True),
    Column("step", BigInteger, nullable=False),  # that the training had reached; score: of the checkpoint
    Column("said", Text, nullable=False),
    Column("path", Text),  # score: of the checkpoint
    sqlite_with_rowid=False,
)

evaluations = Table(  # of checkpoints on all data sets: what they took
    "evaluations",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("data_sets", Integer, nullable=False),
    Column("missing", Integer, nullable=False),
    Column("took_s", Double, nullable=False),
    Column("expected_s", Double),
    Column("loading_s", Double, nullable=False),
    Column("inference_s", Double, nullable=False),
    Column("metric_s", Double, nullable=False),
    Column("failed_s", Double, nullable=False),
    Column("waiting_s", Double, nullable=False),
    Column("at", Double, nullable=False),
    sqlite_with_rowid=False,
)

progress = Table(  # also reported by training scripts: the latest
    "progress",
    metadata,
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("step", BigInteger, nullable=False),
    Column("loss", Double),
    Column("loss_is", Text),  # nan, inf, -inf
    Column("at", Double, nullable=False),
)

tasks = Table(  # what the agent is to do; written in the transaction of its cause, so that no crash forgets it
    "tasks",
    metadata,
    Column("id", Big, primary_key=True),
    Column("kind", Text, nullable=False),  # ask, watch, confirm
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), nullable=False),
    Column("ref", Text, nullable=False, default=""),  # its cause: correction/7, action/9
    Column("detail", JSON, nullable=False),
    Column("worth", Double, nullable=False, default=0.0),  # ask: the chance that the answer is wrong times what the job cost
    Column("state", Text, nullable=False),  # waiting, running, done, failed
    Column("tries", Integer, nullable=False, default=0),
    Column("created", Double, nullable=False),
    Column("changed", Double, nullable=False),
    Column("result", JSON),
    Column("before", LargeBinary),  # ask: the report of the rules, before it was improved
    UniqueConstraint("kind", "attempt_id", "ref"),
    Index(None, "state", "id"),
    Index(None, "attempt_id"),
    Index(None, "ref"),
)

witnesses = Table(  # how often a model was right, by the kind of the rules' answer
    "witnesses",
    metadata,
    Column("model", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("right", Double, nullable=False),
    Column("wrong", Double, nullable=False),
)

incidents = Table(  # failures whose cause is known: the store of diagnose.agent.incidents
    "incidents",
    metadata,
    Column("number", Big, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("fields", JSON, nullable=False),
    Column("embedder", Text),
    Column("vector", LargeBinary),
    Column("remembered", Double, nullable=False),
    Index(None, "embedder"),
)

incident_words = Table(  # words by which incidents are found
    "incident_words",
    metadata,
    Column("word", Text, primary_key=True),
    Column("number", ForeignKey("incidents.number", ondelete="CASCADE"), primary_key=True),
    Index(None, "number"),
    sqlite_with_rowid=False,
)

deletions = Table(  # deleted jobs, for as long as the journal may still have something of them
    "deletions",
    metadata,
    Column("job", Text, primary_key=True),
    Column("lsn", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("done", Boolean, nullable=False),
    Index(None, "lsn"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Big, primary_key=True),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index(None, "subject", "at"),
    Index(None, "at"),
)

corrections = Table(
    "corrections",
    metadata,
    Column("id", Big, primary_key=True),
    Column("attempt_id", ForeignKey("attempts.id", ondelete="CASCADE"), nullable=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("category", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("source", Text),
    Column("line", BigInteger),
    Column("note", Text),
    Column("was", JSON, nullable=False),  # category, reason, root line before
    Index(None, "attempt_id", "at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Big, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),  # ingest, read, operate, admin
    Column("quota", BigInteger),  # bytes per second; null: the service's own
    Column("binding", JSON),  # projects, and what it may name; null: the default project, and no names
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
)

quotas = Table(  # what each project may use; a null is no bound, and the project * stands for those without a row
    "quotas",
    metadata,
    Column("project", Text, primary_key=True),
    Column("rate", BigInteger),  # log bytes per second
    Column("jobs", BigInteger),  # that run at a time
    Column("sources", BigInteger),  # of those jobs
    Column("storage", BigInteger),  # bytes of kept lines and raw logs
    Column("tokens", BigInteger),  # of the model, per hour
    sqlite_with_rowid=False,
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Big, primary_key=True),
    Column("url", Text, nullable=False),
    Column("format", Text, nullable=False),  # cloudevents, slack, alertmanager
    Column("secret", Text),
    Column("events", JSON, nullable=False),
    Column("projects", JSON),  # whose events; null: everybody's
    Column("active", Boolean, nullable=False),
    Column("created", Double, nullable=False),
    Column("cursor", BigInteger, nullable=False, server_default="0"),  # how far it has read the audit trail
    Column("off_because", Text),
    sqlite_autoincrement=True,
)

lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: there is one service
    Column("holder", Text, nullable=False),  # one process of it
    Column("home", Text, nullable=False),  # its data folder, by which it is recognised after a crash
    Column("told", Text, nullable=False),  # where it runs, for people
    Column("beat", Double, nullable=False),  # by the database's clock; 0: given back
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Big, primary_key=True),
    Column("webhook_id", ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Text, nullable=False),
    Column("body", JSON, nullable=False),
    Column("state", Text, nullable=False),  # waiting, delivered, given_up
    Column("tries", Integer, nullable=False, default=0),
    Column("next_at", Double, nullable=False),
    Column("last_status", Text),
    Column("created", Double, nullable=False),
    Index(None, "state", "next_at"),
    Index("ix_deliveries_webhook_id_state", "webhook_id", "state", "id"),
)
