"""What the service did and how long it took, as OpenTelemetry spans over OTLP/HTTP. Off unless an address is set.

- Each request is a span. It belongs to the trace that its ``traceparent`` header names, or begins one.
- What is done about an attempt afterwards is one trace for each attempt: the diagnosis, the questions to a model, the orders.
  Its number is made from the job and the attempt (``trace_of``), so that nothing has to be carried from thread to thread.
- How much is sent, and with which headers, say the variables of OpenTelemetry: OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

from diagnose import __version__
from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

Value = str | int | float | bool


class Missing(DiagnoseError):
    """OpenTelemetry is not installed."""


def trace_of(job: str, attempt: int) -> int:
    """The number of the trace of an attempt."""
    return int.from_bytes(hashlib.blake2b(f"{attempt} {job}".encode(), digest_size=16).digest(), "big")


class Traces:
    """Sends spans from a thread of its own; what it cannot send is dropped."""

    def __init__(self, address: str | None = None) -> None:
        self._tracer: Tracer | None = None
        if address is None:
            return
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise Missing(
                f"traces need a package that is not installed: {error.name}", remedy="pip install 'diagnose-train[traces]'"
            ) from None
        resource = Resource.create({"service.name": "diagnose", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
        self._tracer = self._provider.get_tracer("diagnose")

    @property
    def on(self) -> bool:
        """Whether spans are sent. What costs time to find out need not be found out otherwise."""
        return self._tracer is not None

    def add(
        self,
        name: str,
        began: float,
        ended: float,
        *,
        kind: Literal["server", "client", "internal"] = "internal",
        parent: str | None = None,
        attempt: tuple[str, int] | None = None,
        failed: str | None = None,
        **attributes: Value | None,
    ) -> None:
        """Something that is over, in seconds since 1970.

        ``parent`` is a ``traceparent``; ``attempt`` is whose trace it belongs to.
        """
        if self._tracer is None:
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode

        given = {f"diagnose.{key}": value for key, value in attributes.items() if value is not None}
        if attempt is not None:
            given |= {"diagnose.job": attempt[0], "diagnose.attempt": attempt[1]}
        span = self._tracer.start_span(
            name, _context(parent, attempt), SpanKind[kind.upper()], given, start_time=int(began * 1e9)
        )
        if failed is not None:
            span.set_status(Status(StatusCode.ERROR, failed))
        span.end(int(max(began, ended) * 1e9))

    def close(self) -> None:
        """Send what is left."""
        if self._tracer is not None:
            self._provider.shutdown()
            self._tracer = None


def _context(parent: str | None, attempt: tuple[str, int] | None) -> Context:
    """What a span belongs to."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if attempt is not None:
        trace = trace_of(*attempt)
        root = SpanContext(trace, trace >> 64 or 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
        return set_span_in_context(NonRecordingSpan(root), Context())
    if parent is not None:
        return TraceContextTextMapPropagator().extract({"traceparent": parent}, Context())
    return Context()
