"""Reconfigurations as traces: the collector's data, and the behaviour without a collector."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from apps.controller.record.ledger import Ledger
from apps.process import tracing
from hydra.errors import HydraError
from hydra.lifecycle import ReconfigurationState as State
from hydra.service import StepTiming
from tests.collector import Collector, values
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import small_fabric
from tests.waiting import HANGS_S, PATIENCE_S

FABRIC = small_fabric(racks=3, planes=1, servers=2)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TIMELINE = (
    StepTiming("divert", None, 0.0, 4.0),
    StepTiming("vlans", "r1", 5.0, 9.0),
    StepTiming("mirrors", "p1", 6.0, 30.0, "no light at 3"),
    StepTiming("move", None, 5.0, 30.0),
    StepTiming("activate", None, 31.0, 35.5),
)


@pytest.fixture(autouse=True)
def ended():
    """Wait for the library's end: its threads log, which other tests would take for their own
    lines.
    """
    yield
    for thread in threading.enumerate():
        if thread.name == "traces-end":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


@pytest.fixture
def collector(monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        yield collector


def test_a_reconfiguration_is_a_trace_from_its_trigger_to_its_last_barrier(collector):
    traces = tracing.traces("demo")
    ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"), traces=traces)
    entry = ledger.log.enter("operator")
    started_s = entry.created_unix_s + 0.5
    ledger.log.update(entry.id, started_unix_s=started_s)
    for state in (State.DIVERTING, State.DRAINING, State.MOVING, State.GATING, State.ACTIVATING):
        ledger.log.update(entry.id, state=state)
    ledger.log.update(entry.id, state=State.DONE, timeline=TIMELINE, rules_pushed=8)
    traces.close()
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"reconfiguration", "wait and plan", *(step.step for step in TIMELINE)}
    root = spans["reconfiguration"]
    assert {span.trace_id for span in spans.values()} == {root.trace_id}
    assert values(root)["hydra.reconfiguration.id"] == entry.id
    assert (values(root)["hydra.reconfiguration.trigger"], root.status.code) == ("operator", 0)
    assert values(root)["hydra.rules_pushed"] == 8
    assert root.start_time_unix_nano == round(entry.created_unix_s * 1e9)
    assert {spans[name].parent_span_id for name in ("wait and plan", "divert", "move")} == {
        root.span_id
    }
    mirrors = spans["mirrors"]
    assert mirrors.parent_span_id == spans["vlans"].parent_span_id == spans["move"].span_id
    assert values(mirrors) == {"hydra.device": "p1", "hydra.note": "no light at 3"}
    took_ns = mirrors.end_time_unix_nano - mirrors.start_time_unix_nano
    assert took_ns == pytest.approx(24e6, abs=2)
    assert mirrors.start_time_unix_nano == pytest.approx((started_s + 0.006) * 1e9, abs=1000)
    (resource,) = collector.resources
    assert (resource["service.name"], resource["hydra.fabric"]) == ("hydra", "demo")


def test_what_is_refused_is_an_error_with_its_reason(collector):
    traces = tracing.traces("demo")
    ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"), traces=traces)
    ledger.log.refuse(ledger.log.enter("periodic"), "no planner")
    traces.close()
    (span,) = collector.spans
    assert (span.status.code, span.status.message) == (2, "no planner")


def test_a_collector_that_is_away_holds_up_nobody(monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    traces = tracing.traces("demo")
    ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"), traces=traces)
    ledger.log.refuse(ledger.log.enter("periodic"), "no planner")
    assert ledger.log.reconfigurations()[0].state is State.REFUSED
    traces.close()


def test_a_collector_that_is_silent_holds_up_the_end_for_seconds_only(monkeypatch):
    """The library's default is a wait of ten seconds, here far longer: meanwhile no controller
    would lead.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", f"{PATIENCE_S:g}")
        monkeypatch.setattr("apps.process.otlp._LAST_S", 0.2, raising=False)
        traces = tracing.traces("demo")
        ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"), traces=traces)
        ledger.log.refuse(ledger.log.enter("periodic"), "no planner")
        began_s = time.monotonic()
        traces.close()
        assert time.monotonic() - began_s < HANGS_S
        with closing(silent.accept()[0]) as waiting:  # the library's thread ends by this answer
            waiting.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def test_a_variable_of_opentelemetry_s_that_can_not_be_is_told(monkeypatch):
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    with pytest.raises(HydraError, match=r"OTEL_… \(max_export_batch_size must be"):
        tracing.traces("demo")


@pytest.mark.parametrize(
    "environment", [{}, {ENDPOINT: ""}, {ENDPOINT: "http://a:1", "OTEL_SDK_DISABLED": "true"}]
)
def test_nothing_is_made_where_no_collector_is_named(environment):
    assert isinstance(tracing.traces("demo", environment), tracing.NoTraces)


def test_a_controller_loads_neither_the_library_nor_the_command_of_httpx():
    """The command's dependencies include Pygments and rich."""
    program = "import apps.main, sys; print({'opentelemetry.sdk', 'pygments'} & set(sys.modules))"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout == "set()\n"


def test_an_endpoint_without_the_library_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "apps.process.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    with pytest.raises(HydraError, match=r"pip install 'hydra-hybrid-network\[tracing\]'"):
        tracing.traces("demo", {ENDPOINT: "http://collector:4318"})
