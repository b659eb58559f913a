"""The service's own numbers, for Prometheus. (The job's numbers are *metrics*, and are in the store.)"""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from diagnose import __version__
from service.traces import Traces

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Telemetry:
    """One registry per service, so that tests can have many."""

    def __init__(self, traces: Traces | None = None) -> None:
        self.traces = traces or Traces()
        self.registry = r = CollectorRegistry()
        ProcessCollector(registry=r)
        self.build = Gauge("diagnose_build_info", "Always 1", ["version", "python"], registry=r)
        self.build.labels(__version__, platform.python_version()).set(1)
        self.accepted_bytes = Counter("diagnose_accepted_bytes", "Log bytes that were made durable", registry=r)
        self.batches = Counter("diagnose_batches", "Batches by what became of them", ["result"], registry=r)
        self.lost_bytes = Counter(
            "diagnose_lost_bytes", "Accepted bytes that the disk damaged before they were read", registry=r
        )
        self.damaged_bytes = Counter(
            "diagnose_damaged_bytes", "Bytes of the journal that the disk damaged while the service still had them", registry=r
        )
        self.project_bytes = Counter(
            "diagnose_project_accepted_bytes", "Log bytes that were made durable, by project", ["project"], registry=r
        )
        self.project_refused = Counter(
            "diagnose_project_refused", "What the quotas of a project refused", ["project", "quota"], registry=r
        )
        self.project_jobs = Gauge("diagnose_project_jobs", "Attempts of a project that run", ["project"], registry=r)
        self.project_stored_bytes = Gauge(
            "diagnose_project_stored_bytes",
            "What a project has stored; its raw logs are measured if some project has a quota for storage",
            ["project"],
            registry=r,
        )
        self.project_model_tokens = Counter(
            "diagnose_project_model_tokens", "Tokens that questions about the jobs of a project cost", ["project"], registry=r
        )
        self.append_s = Histogram("diagnose_journal_append_seconds", "From a batch to its sync", buckets=_FAST, registry=r)
        self.read_bytes = Counter("diagnose_read_bytes", "Log bytes that were scanned", registry=r)
        self.read_lines = Counter("diagnose_read_lines", "Lines that were scanned", registry=r)
        self.kept_lines = Counter("diagnose_kept_lines", "Lines that were kept", registry=r)
        self.flushes = Counter("diagnose_flushes", "Transactions of live jobs", ["result"], registry=r)
        self.flush_s = Histogram("diagnose_flush_seconds", "How long such a transaction takes", buckets=_FAST, registry=r)
        self.deliveries = Counter("diagnose_webhook_deliveries", "Tries of deliveries to webhooks", ["result"], registry=r)
        self.orders = Counter("diagnose_orders", "Orders that were carried out, or not", ["executor", "result"], registry=r)
        self.reports = Counter("diagnose_reports", "Diagnoses made", ["outcome"], registry=r)
        self.report_s = Histogram("diagnose_report_seconds", "How long a diagnosis takes", buckets=_FAST, registry=r)
        self.to_diagnosis_s = Histogram(
            "diagnose_to_diagnosis_seconds", "From the last byte to the stored diagnosis", buckets=_FAST, registry=r
        )
        self.requests = Counter("diagnose_requests", "Requests", ["route", "status"], registry=r)
        self.request_s = Histogram("diagnose_request_seconds", "How long a request takes", ["route"], buckets=_FAST, registry=r)
        self.sign_ins_failed = Counter(
            "diagnose_sign_ins_failed",
            "Requests refused for a wrong token, or none",
            ["token"],
            registry=r,
        )
        self.connections_refused = Counter(
            "diagnose_connections_refused", "Connections closed before anybody knew whose they are", ["why"], registry=r
        )
        self.socket_lines = Counter(
            "diagnose_socket_lines", "Lines over syslog, forward and gRPC", ["protocol", "result"], registry=r
        )
        self.socket_connections = Gauge(
            "diagnose_socket_connections", "Open connections of syslog and forward", ["protocol"], registry=r
        )
        self.strangers = Gauge("diagnose_strangers", "Connections that have shown no token yet", registry=r)
        self.live_jobs = Gauge("diagnose_live_jobs", "Attempts in memory", registry=r)
        self.queued_bytes = Gauge("diagnose_queued_bytes", "Accepted and not yet scanned", registry=r)
        self.unstored_bytes = Gauge("diagnose_unstored_bytes", "Kept and not yet in the database", registry=r)
        self.journal_bytes = Gauge("diagnose_journal_bytes", "Size of the journal", registry=r)
        self.database_up = Gauge("diagnose_database_up", "Whether the database answered last time", registry=r)
        self.disk_up = Gauge("diagnose_disk_up", "Whether the journal's folder could be written last time", registry=r)
        self.scanners_standing = Gauge("diagnose_scanners_standing", "Scanner threads without progress", registry=r)
        self.unread_age = Gauge("diagnose_unread_age_seconds", "Age of the oldest byte that is not scanned", registry=r)
        self.unstored_age = Gauge("diagnose_unstored_age_seconds", "Lag of the database behind what was accepted", registry=r)
        self.clock_jumps = Counter("diagnose_clock_jumps", "Times that the clock was set while the service ran", registry=r)
        self.learning_lines = Counter(
            "diagnose_learning_lines",
            "Kept lines for the learner: fed, or missed because its queue was full",
            ["result"],
            registry=r,
        )
        self.proposals = Counter("diagnose_rule_proposals", "Rules proposed, and of those refused", ["result"], registry=r)
        self.questions = Counter("diagnose_agent_questions", "Failures that the agent was asked about", ["result"], registry=r)
        self.model_calls = Counter("diagnose_model_calls", "Requests to the model's endpoint", ["result"], registry=r)
        self.model_tokens = Counter(
            "diagnose_model_tokens",
            "Tokens read (reused: of them, from its cache) and written by the model",
            ["direction"],
            registry=r,
        )
        self.agent_restarts = Counter("diagnose_agent_restarts", "Times that the agent's process ended", registry=r)
        self.raw_up = Gauge("diagnose_raw_logs_up", "Whether raw logs can be written, where they are kept", registry=r)
        self.raw_bytes = Counter("diagnose_raw_bytes", "Log bytes that were put into raw logs", registry=r)
        self.raw_stored_bytes = Counter("diagnose_raw_stored_bytes", "What they took on disk", registry=r)
        self.raw_lost_bytes = Counter("diagnose_raw_lost_bytes", "Log bytes that no raw log has: the disk was full", registry=r)
        self.raw_deleted_bytes = Counter(
            "diagnose_raw_deleted_bytes", "Bytes of raw logs deleted from disk, by why", ["why"], registry=r
        )
        self.raw_disk_bytes = Gauge("diagnose_raw_disk_bytes", "What raw logs take on disk, if that is bounded", registry=r)
        self.deleted = Counter(
            "diagnose_deleted", "Jobs, attempts' raw logs, kept lines that were deleted", ["what"], registry=r
        )
        self.swept_at = Gauge("diagnose_retention_swept_at_seconds", "When what is too old was last looked for", registry=r)
        self.streams = Gauge("diagnose_event_streams", "Clients that listen to events", registry=r)

    def text(self, projects: Collection[str] | None = None) -> bytes:
        """For Prometheus. ``projects``: only what is told of these."""
        if projects is None:
            return generate_latest(self.registry)
        return generate_latest(_Of(self.registry, projects))


class _Of(Collector):
    """The metrics of some projects."""

    def __init__(self, registry: CollectorRegistry, projects: Collection[str]) -> None:
        self._registry, self._projects = registry, projects

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            mine = [sample for sample in metric.samples if sample.labels.get("project") in self._projects]
            if mine:
                found = Metric(metric.name, metric.documentation, metric.type)
                found.samples = mine
                yield found
