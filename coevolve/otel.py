"""Graph runs as OpenTelemetry traces, one trace a graph run, sent by OTLP over HTTP. Needs the extra `otel`."""

from __future__ import annotations

from typing import Any

from store.errors import CoevolveError, UsageError

NS = 1_000_000_000
"""Nanoseconds of a second."""


def send(data: dict[str, Any], endpoint: str) -> int:
    """Send the graph runs of a trace (coevolve/trace.py) to an OTLP endpoint such as http://127.0.0.1:4318/v1/traces;
    how many spans. UsageError without the packages, CoevolveError where the endpoint does not take them."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from opentelemetry.trace import set_span_in_context
    except ImportError as error:
        raise UsageError("--otlp: OpenTelemetry is not installed; pip install 'coevolve[otel]'") from error
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "coevolve"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("coevolve")
    for thread in data["threads"]:
        about = {"coevolve.run": data["run"], "coevolve.thread": thread["thread"], "coevolve.end": thread["end"]}
        whole = tracer.start_span(thread["graph"], start_time=int(thread["begin"] * NS), attributes=about)
        for span in thread["spans"]:
            one = tracer.start_span(
                span.node,
                context=set_span_in_context(whole),
                start_time=int(span.started_at * NS),
                attributes={
                    "gen_ai.usage.input_tokens": span.prompt_tokens,
                    "gen_ai.usage.output_tokens": span.completion_tokens,
                    "coevolve.cost_usd": span.cost,
                    **({"error.message": span.error} if span.error else {}),
                },
            )
            one.end(int((span.started_at + span.seconds) * NS))
        whole.end(int((thread["begin"] + thread["seconds"]) * NS))
    spans = kept.get_finished_spans()
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=10)
    if exporter.export(spans) is not SpanExportResult.SUCCESS:
        raise CoevolveError(f"--otlp: {endpoint} did not take the spans; check the address (it ends in /v1/traces)")
    return len(spans)
