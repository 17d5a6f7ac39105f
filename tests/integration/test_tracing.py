"""A reconfiguration of a real network, as received by a trace collector."""

from __future__ import annotations

import pytest

from tests.collector import Collector, values

from .live import live

pytestmark = pytest.mark.ovs


def test_the_trace_of_a_change_is_its_timeline(demo_testbed, tmp_path, monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with live(demo_testbed, tmp_path) as network:
            record = network.change("r1", "r2", "p1")
        # Unsent spans are sent at the controller's end.
    names = [span.name for span in collector.spans]
    assert sorted(names) == sorted(
        ["reconfiguration", "wait and plan", *(step.step for step in record.timeline)]
    )
    assert {"divert", "mirrors", "probe", "activate"} <= set(names)
    assert len({span.trace_id for span in collector.spans}) == 1
    (root,) = (span for span in collector.spans if span.name == "reconfiguration")
    assert values(root)["hydra.reconfiguration.id"] == record.id
    assert all(
        root.start_time_unix_nano <= span.start_time_unix_nano
        and span.end_time_unix_nano <= root.end_time_unix_nano
        for span in collector.spans
    )
    assert {values(span).get("hydra.device") for span in collector.spans} >= {"p1", "r1", "r2"}
