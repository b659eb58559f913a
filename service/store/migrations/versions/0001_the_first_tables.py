"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_audit_at"), ["at"], unique=False)
        batch_op.create_index(batch_op.f("ix_audit_subject_at"), ["subject", "at"], unique=False)

    op.create_table(
        "deletions",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("lsn", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_deletions")),
    )
    with op.batch_alter_table("deletions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_deletions_lsn"), ["lsn"], unique=False)

    op.create_table(
        "groups",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("root_text", sa.Text(), nullable=True),
        sa.Column("mitigation", sa.Text(), nullable=True),
        sa.Column("first_seen", sa.Double(), nullable=False),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("gpu_seconds_lost", sa.Double(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("regressed", sa.Boolean(), nullable=False),
        sa.Column("state_changed", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_groups_fingerprint")),
    )
    with op.batch_alter_table("groups", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_groups_category_last_seen"), ["category", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_groups_count"), ["count"], unique=False)
        batch_op.create_index(batch_op.f("ix_groups_last_seen"), ["last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_groups_reason_last_seen"), ["reason", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_groups_state_last_seen"), ["state", "last_seen"], unique=False)

    op.create_table(
        "incidents",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=True),
        sa.Column("vector", sa.LargeBinary(), nullable=True),
        sa.Column("remembered", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_incidents")),
        sa.UniqueConstraint("id", name=op.f("uq_incidents_id")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_embedder"), ["embedder"], unique=False)

    op.create_table(
        "isolations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("released", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_isolations")),
    )
    with op.batch_alter_table("isolations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_isolations_node_at"), ["node", "at"], unique=False)
        batch_op.create_index(batch_op.f("ix_isolations_released"), ["released"], unique=False)

    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster", sa.Text(), nullable=True),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("framework", sa.Text(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("first_seen", sa.Double(), nullable=False),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("name", name=op.f("uq_jobs_name")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_jobs_category_last_seen"), ["category", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_cluster_last_seen"), ["cluster", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_last_seen"), ["last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_outcome_last_seen"), ["outcome", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_reason_last_seen"), ["reason", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_state_last_seen"), ["state", "last_seen"], unique=False)
        batch_op.create_index(batch_op.f("ix_jobs_user_last_seen"), ["user", "last_seen"], unique=False)

    op.create_table(
        "node_checks",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("tested", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("node", "at", name=op.f("pk_node_checks")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("node_checks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_node_checks_at"), ["at"], unique=False)

    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("first_seen", sa.Double(), nullable=False),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.Column("last_failure", sa.Double(), nullable=True),
        sa.Column("failures", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
    )
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_nodes_last_failure"), ["last_failure"], unique=False)
        batch_op.create_index(batch_op.f("ix_nodes_state"), ["state"], unique=False)

    op.create_table(
        "rules",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("provenance", sa.JSON(), nullable=False),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("lines", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("changed", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rules")),
        sa.UniqueConstraint("family", "pattern", name=op.f("uq_rules_family_pattern")),
    )
    with op.batch_alter_table("rules", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rules_state_created"), ["state", "created"], unique=False)

    op.create_table(
        "tokens",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("quota", sa.BigInteger(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=True),
        sa.Column("revoked", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
        sa.UniqueConstraint("name", name=op.f("uq_tokens_name")),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("off_because", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "workloads",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("sketch", sa.JSON(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workloads")),
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("lsn", sa.BigInteger(), nullable=False),
        sa.Column("snapshot", sa.LargeBinary(), nullable=True),
        sa.Column("lines_in", sa.BigInteger(), nullable=False),
        sa.Column("bytes_in", sa.BigInteger(), nullable=False),
        sa.Column("lines_kept", sa.BigInteger(), nullable=False),
        sa.Column("bytes_kept", sa.BigInteger(), nullable=False),
        sa.Column("dropped", sa.JSON(), nullable=True),
        sa.Column("hits", sa.JSON(), nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("step", sa.Double(), nullable=True),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("training_at", sa.Double(), nullable=True),
        sa.Column("progress_at", sa.Double(), nullable=True),
        sa.Column("workload", sa.Text(), nullable=True),
        sa.Column("lines_deleted", sa.Double(), nullable=True),
        sa.Column("raw_deleted", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempts_job_id_number")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_attempts_ended_at"), ["ended_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_attempts_lsn"), ["lsn"], unique=False)
        batch_op.create_index(batch_op.f("ix_attempts_state_last_seen"), ["state", "last_seen"], unique=False)

    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("webhook_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=False),
        sa.Column("last_status", sa.Text(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id_webhooks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_deliveries_state_next_at"), ["state", "next_at"], unique=False)
        batch_op.create_index("ix_deliveries_webhook_id_state", ["webhook_id", "state", "id"], unique=False)

    op.create_table(
        "incident_words",
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["number"], ["incidents.number"], name=op.f("fk_incident_words_number_incidents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("word", "number", name=op.f("pk_incident_words")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("incident_words", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incident_words_number"), ["number"], unique=False)

    op.create_table(
        "rule_counts",
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("matched", sa.BigInteger(), nullable=False),
        sa.Column("dirty", sa.BigInteger(), nullable=False),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["rule"], ["rules.id"], name=op.f("fk_rule_counts_rule_rules"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("rule", "workload", name=op.f("pk_rule_counts")),
    )
    op.create_table(
        "actions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("restart_from", sa.JSON(), nullable=True),
        sa.Column("skip_batches", sa.JSON(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("executor", sa.Text(), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("changed", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=True),
        sa.Column("not_before", sa.Double(), server_default="0", nullable=False),
        sa.Column("claims", sa.Integer(), server_default="0", nullable=False),
        sa.Column("late", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("incident", sa.Text(), nullable=True),
        sa.Column("avoid", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_actions_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_actions_group_id_groups")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
        sa.UniqueConstraint("key", name=op.f("uq_actions_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_actions_attempt_id"), ["attempt_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_actions_created"), ["created"], unique=False)
        batch_op.create_index(batch_op.f("ix_actions_state_created"), ["state", "created"], unique=False)

    op.create_table(
        "checkpoints",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("healthy", sa.Boolean(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_checkpoints_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "step", name=op.f("pk_checkpoints")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "corrections",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("line", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("was", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_corrections_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corrections")),
    )
    with op.batch_alter_table("corrections", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_corrections_attempt_id_at"), ["attempt_id", "at"], unique=False)

    op.create_table(
        "decisions",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("about", sa.Double(), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("decision", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_decisions_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_decisions")),
    )
    op.create_table(
        "diagnoses",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("report", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_diagnoses_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_diagnoses_group_id_groups")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_diagnoses")),
    )
    with op.batch_alter_table("diagnoses", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_diagnoses_category_made_at"), ["category", "made_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_diagnoses_group_id"), ["group_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_diagnoses_rule"), ["rule"], unique=False)

    op.create_table(
        "kept_lines",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ord", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Integer(), nullable=False),
        sa.Column("line", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("raw", sa.LargeBinary(), nullable=True),
        sa.Column("rule", sa.Text(), nullable=True),
        sa.Column("cut", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_kept_lines_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "ord", name=op.f("pk_kept_lines")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "occurrence_nodes",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_occurrence_nodes_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["group_id"], ["groups.id"], name=op.f("fk_occurrence_nodes_group_id_groups"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "node", name=op.f("pk_occurrence_nodes")),
        sqlite_with_rowid=False,
    )
    with op.batch_alter_table("occurrence_nodes", schema=None) as batch_op:
        batch_op.create_index("ix_occurrence_nodes_group_id_node", ["group_id", "node", "at"], unique=False)
        batch_op.create_index(batch_op.f("ix_occurrence_nodes_node_at"), ["node", "at"], unique=False)

    op.create_table(
        "occurrences",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("group_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=True),
        sa.Column("cluster", sa.Text(), nullable=True),
        sa.Column("gpu_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_occurrences_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["group_id"], ["groups.id"], name=op.f("fk_occurrences_group_id_groups"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_occurrences_job_id_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_occurrences")),
    )
    with op.batch_alter_table("occurrences", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_occurrences_at"), ["at"], unique=False)
        batch_op.create_index(batch_op.f("ix_occurrences_group_id_at"), ["group_id", "at"], unique=False)
        batch_op.create_index("ix_occurrences_group_id_job_id", ["group_id", "job_id"], unique=False)
        batch_op.create_index("ix_occurrences_group_id_user", ["group_id", "user"], unique=False)
        batch_op.create_index(batch_op.f("ix_occurrences_job_id"), ["job_id"], unique=False)

    op.create_table(
        "progress",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("loss_is", sa.Text(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_progress_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_progress")),
    )
    op.create_table(
        "series",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.Double(), nullable=True),
        sa.Column("at_step", sa.Double(), nullable=True),
        sa.Column("least", sa.Double(), nullable=True),
        sa.Column("most", sa.Double(), nullable=True),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_series_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "name", name=op.f("pk_series")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sources",
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=True),
        sa.Column("keys", sa.LargeBinary(), nullable=True),
        sa.Column("last_seen", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempts.id"], name=op.f("fk_sources_attempt_id_attempts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", "number", name=op.f("pk_sources")),
        sa.UniqueConstraint("attempt_id", "name", name=op.f("uq_sources_attempt_id_name")),
    )
    with op.batch_alter_table("sources", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sources_node"), ["node"], unique=False)

    op.create_table(
        "tasks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("changed", sa.Double(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("before", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name=op.f("fk_tasks_attempt_id_attempts"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("kind", "attempt_id", "ref", name=op.f("uq_tasks_kind_attempt_id_ref")),
    )
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tasks_attempt_id"), ["attempt_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_ref"), ["ref"], unique=False)
        batch_op.create_index(batch_op.f("ix_tasks_state_id"), ["state", "id"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("tasks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_tasks_state_id"))
        batch_op.drop_index(batch_op.f("ix_tasks_ref"))
        batch_op.drop_index(batch_op.f("ix_tasks_attempt_id"))

    op.drop_table("tasks")
    with op.batch_alter_table("sources", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sources_node"))

    op.drop_table("sources")
    op.drop_table("series")
    op.drop_table("progress")
    with op.batch_alter_table("occurrences", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_occurrences_job_id"))
        batch_op.drop_index("ix_occurrences_group_id_user")
        batch_op.drop_index("ix_occurrences_group_id_job_id")
        batch_op.drop_index(batch_op.f("ix_occurrences_group_id_at"))
        batch_op.drop_index(batch_op.f("ix_occurrences_at"))

    op.drop_table("occurrences")
    with op.batch_alter_table("occurrence_nodes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_occurrence_nodes_node_at"))
        batch_op.drop_index("ix_occurrence_nodes_group_id_node")

    op.drop_table("occurrence_nodes")
    op.drop_table("kept_lines")
    with op.batch_alter_table("diagnoses", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_diagnoses_rule"))
        batch_op.drop_index(batch_op.f("ix_diagnoses_group_id"))
        batch_op.drop_index(batch_op.f("ix_diagnoses_category_made_at"))

    op.drop_table("diagnoses")
    op.drop_table("decisions")
    with op.batch_alter_table("corrections", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_corrections_attempt_id_at"))

    op.drop_table("corrections")
    op.drop_table("checkpoints")
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_actions_state_created"))
        batch_op.drop_index(batch_op.f("ix_actions_created"))
        batch_op.drop_index(batch_op.f("ix_actions_attempt_id"))

    op.drop_table("actions")
    op.drop_table("rule_counts")
    with op.batch_alter_table("incident_words", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_incident_words_number"))

    op.drop_table("incident_words")
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.drop_index("ix_deliveries_webhook_id_state")
        batch_op.drop_index(batch_op.f("ix_deliveries_state_next_at"))

    op.drop_table("deliveries")
    with op.batch_alter_table("attempts", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_attempts_state_last_seen"))
        batch_op.drop_index(batch_op.f("ix_attempts_lsn"))
        batch_op.drop_index(batch_op.f("ix_attempts_ended_at"))

    op.drop_table("attempts")
    op.drop_table("workloads")
    op.drop_table("webhooks")
    op.drop_table("tokens")
    with op.batch_alter_table("rules", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rules_state_created"))

    op.drop_table("rules")
    with op.batch_alter_table("nodes", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_nodes_state"))
        batch_op.drop_index(batch_op.f("ix_nodes_last_failure"))

    op.drop_table("nodes")
    with op.batch_alter_table("node_checks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_node_checks_at"))

    op.drop_table("node_checks")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_jobs_user_last_seen"))
        batch_op.drop_index(batch_op.f("ix_jobs_state_last_seen"))
        batch_op.drop_index(batch_op.f("ix_jobs_reason_last_seen"))
        batch_op.drop_index(batch_op.f("ix_jobs_outcome_last_seen"))
        batch_op.drop_index(batch_op.f("ix_jobs_last_seen"))
        batch_op.drop_index(batch_op.f("ix_jobs_cluster_last_seen"))
        batch_op.drop_index(batch_op.f("ix_jobs_category_last_seen"))

    op.drop_table("jobs")
    with op.batch_alter_table("isolations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_isolations_released"))
        batch_op.drop_index(batch_op.f("ix_isolations_node_at"))

    op.drop_table("isolations")
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_incidents_embedder"))

    op.drop_table("incidents")
    with op.batch_alter_table("groups", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_groups_state_last_seen"))
        batch_op.drop_index(batch_op.f("ix_groups_reason_last_seen"))
        batch_op.drop_index(batch_op.f("ix_groups_last_seen"))
        batch_op.drop_index(batch_op.f("ix_groups_count"))
        batch_op.drop_index(batch_op.f("ix_groups_category_last_seen"))

    op.drop_table("groups")
    with op.batch_alter_table("deletions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_deletions_lsn"))

    op.drop_table("deletions")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_subject_at"))
        batch_op.drop_index(batch_op.f("ix_audit_at"))

    op.drop_table("audit")
