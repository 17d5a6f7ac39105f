"""A reconfiguration as a trace: its substeps and devices as spans, by OTLP over HTTP.

Spans are made after the end, from the timeline shown by REST: tracing costs nothing while the
network moves, and trace and REST agree.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from hydra import __version__
from hydra.lifecycle import ReconfigurationState
from hydra.service import Reconfiguration, StepTiming

_NS_PER_S: Final = 10**9
_NS_PER_MS: Final = 10**6
_LAST_S: Final = 3.0
"""Longest wait for a collector at the end: a silent collector would hold up the next start."""


class OtlpTraces:
    """Sends to the collector named by the environment, in a thread of the library."""

    def __init__(self, fabric: str) -> None:
        name = os.environ.get("OTEL_SERVICE_NAME", "hydra")
        attributes = {SERVICE_NAME: name, SERVICE_VERSION: __version__, "hydra.fabric": fabric}
        self._provider = TracerProvider(
            resource=Resource.create(attributes), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("hydra", __version__)

    def reconfigured(self, ended: Reconfiguration) -> None:
        root = self._tracer.start_span(
            "reconfiguration",
            Context(),
            start_time=round(ended.created_unix_s * _NS_PER_S),
            attributes={
                "hydra.reconfiguration.id": ended.id,
                "hydra.reconfiguration.trigger": ended.trigger,
                "hydra.reconfiguration.state": ended.state.value,
                "hydra.epoch": ended.epoch,
                "hydra.rules_pushed": ended.rules_pushed,
                "hydra.ports_retagged": ended.ports_retagged,
                "hydra.circuits_up": len(ended.connected),
                "hydra.circuits_down": len(ended.disconnected),
            },
        )
        if ended.state is not ReconfigurationState.DONE:
            root.set_status(Status(StatusCode.ERROR, ended.reason))
        if ended.started_unix_s is not None:
            self._substeps(root, ended, round(ended.started_unix_s * _NS_PER_S))
        root.end(time.time_ns())

    def _substeps(self, root: Span, ended: Reconfiguration, started_ns: int) -> None:
        waiting = self._tracer.start_span(
            "wait and plan",
            set_span_in_context(root),
            start_time=round(ended.created_unix_s * _NS_PER_S),
        )
        waiting.end(started_ns)
        spans: dict[StepTiming, Span] = {}
        # Outer steps come before inner steps, which need the parent's span.
        for step in sorted(
            ended.timeline, key=lambda step_timing: step_timing.started_ms - step_timing.finished_ms
        ):
            around = _around(step, ended.timeline)
            spans[step] = self._tracer.start_span(
                step.step,
                set_span_in_context(spans.get(around, root) if around else root),
                start_time=started_ns + round(step.started_ms * _NS_PER_MS),
                attributes={
                    key: value
                    for key, value in (("hydra.device", step.device), ("hydra.note", step.note))
                    if value
                },
            )
            spans[step].end(started_ns + round(step.finished_ms * _NS_PER_MS))

    def close(self) -> None:
        ending = threading.Thread(target=self._provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(_LAST_S)


def _around(step: StepTiming, timeline: tuple[StepTiming, ...]) -> StepTiming | None:
    """The shortest whole step around ``step``; None if there is none."""
    outer = [
        step_timing
        for step_timing in timeline
        if step_timing.device is None
        and step_timing.started_ms <= step.started_ms
        and step.finished_ms <= step_timing.finished_ms
        and step_timing.finished_ms - step_timing.started_ms > step.finished_ms - step.started_ms
    ]
    return min(
        outer,
        key=lambda step_timing: step_timing.finished_ms - step_timing.started_ms,
        default=None,
    )
