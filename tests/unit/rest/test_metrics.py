"""/metrics: the content of a scrape, read by the client library's parser and by promtool."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from apps.process.metrics import Metrics
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra import __version__
from hydra.errors import DeviceUnavailable
from hydra.lifecycle import ReconfigurationState
from hydra.model import Circuit, DatapathId, NetworkState, PlaneId, PortId, Topology, VlanId
from hydra.reconfiguration.commands import ApplyRules, Outcome, Pause
from hydra.service import Reconfiguration, StepTiming
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S

from .fake_service import SILENT, relay_path, ring_state
from .fake_workers import FakeWorkers

PROMTOOL = Path(sys.executable).with_name("promtool")
ENDED = Reconfiguration(
    "c1",
    ReconfigurationState.DONE,
    "reservation v17",
    1,
    0.0,
    timeline=(StepTiming("divert", None, 0.0, 4.0), StepTiming("divert", "h11", 0.0, 4.0)),
    rules_pushed=8,
    ports_retagged=4,
)


@pytest.fixture
def metrics():
    """Metrics after a few actions of each kind."""
    metrics = Metrics()
    metrics.count_connections(lambda: 8)
    metrics.reconfigured(ENDED)
    metrics.command(Pause(0.1), Outcome(None, SILENT, started_s=1.0, finished_s=1.2))
    changes = dict.fromkeys(map(DatapathId, (1, 2, 3)), ())
    answers = dict(zip(changes, (SILENT, None, replace(SILENT, subject="h13")), strict=True))
    metrics.command(ApplyRules(changes), Outcome(answers))
    metrics.planned(80.0, 20.0, 60.0)
    metrics.probes(sent=3, received=2, lost_paths=1)
    metrics.lost(2)
    metrics.job_failed()
    with metrics.stage("plan"):
        pass
    with pytest.raises(DeviceUnavailable), metrics.exchange("p1"):
        raise DeviceUnavailable("p1", "silent")
    return metrics


@pytest.fixture
def workers():
    return FakeWorkers()


@pytest.fixture
def url(service, metrics, workers):
    path = relay_path()
    service.network = NetworkState(
        3, Topology(frozenset(path.circuits), (path,)), {path: VlanId(7)}
    )
    app = create_app(service, registry=metrics.registry, held_by=workers)
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    yield f"{server.url}/metrics"
    server.stop()


def samples(text):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_network_s_state(url):
    shown = samples(plain_http.get(url).text)
    assert shown["hydra_ready",] == 1
    assert shown["hydra_topology_epoch",] == 3
    assert shown["hydra_circuits", "p1", "carrying"] == 1
    assert shown["hydra_circuits", "p1", "idle"] == 0
    # Port 0 of r1 is used and on trial; ports 3, 4 and 5 are used, of which 3 is in quarantine.
    assert shown["hydra_optical_ports", "on_trial"] == 1
    assert shown["hydra_optical_ports", "quarantined"] == 1
    assert shown["hydra_optical_ports", "used"] == 2
    assert shown["hydra_optical_ports", "free"] == 4
    assert shown["hydra_optical_bytes_per_second", "p1"] == 12.5e6 / 8
    # 12.5 Mb/s of r1 to r2, which have a path, and 3 Mb/s of r3 to r4, which have none.
    assert shown["hydra_demand_bytes_per_second", "optical"] == 12.5e6 / 8
    assert shown["hydra_demand_bytes_per_second", "electrical"] == 3e6 / 8
    assert shown["hydra_device_connected", "p1", "optical-switch"] == 1
    assert shown["hydra_vswitches", "no"] == 1
    assert shown["hydra_reservations", "active"] == 0
    assert shown["hydra_conditions", "port-quarantined"] == 1
    assert shown["hydra_conditions", "reservation-failed"] == 0


def test_threads_are_counted_by_what_they_are_for(url):
    done = Event()
    with ThreadPoolExecutor(2, thread_name_prefix="looking") as pool:
        held = [pool.submit(done.wait), pool.submit(done.wait)]
        shown = samples(plain_http.get(url).text)
        done.set()
    assert all(one.result() for one in held)
    assert shown["hydra_threads", "looking"] == 2


def test_the_traffic_of_two_paths_is_counted_once(url, service):
    circuits = [Circuit(PlaneId(plane), PortId(plane), PortId(2 + plane)) for plane in (0, 1)]
    paths = tuple(replace(relay_path(), circuits=(circuit,)) for circuit in circuits)
    vlans = dict(zip(paths, (VlanId(7), VlanId(8)), strict=True))
    service.network = NetworkState(4, Topology(frozenset(circuits), paths), vlans)
    shown = samples(plain_http.get(url).text)
    assert shown["hydra_demand_bytes_per_second", "optical"] == 12.5e6 / 8
    assert shown["hydra_demand_bytes_per_second", "electrical"] == 3e6 / 8


def test_traffic_against_a_one_way_circuit_is_electrical(url, service):
    service.network = ring_state(backwards=True)
    shown = samples(plain_http.get(url).text)
    assert shown["hydra_circuits", "p1", "carrying"] == 3
    assert shown["hydra_demand_bytes_per_second", "optical"] == 0
    assert shown["hydra_demand_bytes_per_second", "electrical"] == 15.5e6 / 8


def test_what_the_controller_did(url):
    shown = samples(plain_http.get(url).text)
    assert shown["hydra_reconfigurations_total", "done", "reservation"] == 1
    assert shown["hydra_reconfiguration_substep_duration_seconds_count", "divert"] == 1
    assert shown["hydra_reconfiguration_substep_duration_seconds_sum", "divert"] == 0.004
    assert shown["hydra_rules_pushed_total",] == 8
    assert shown["hydra_command_failures_total", "Pause", "unknown"] == 1
    assert shown["hydra_command_failures_total", "ApplyRules", "unknown"] == 2
    assert shown["hydra_device_errors_total", "p1"] == 1
    assert shown["hydra_device_duration_seconds_count", "p1"] == 1
    assert shown["hydra_demand_planned_bytes_per_second", "then"] == 60e6 / 8
    assert shown["hydra_probes_total", "sent"] == 3
    assert shown["hydra_circuits_lost_total",] == 2
    assert shown["hydra_openflow_connections",] == 8
    assert shown["hydra_loop_stage_duration_seconds_count", "plan"] == 1


def test_workers_one_by_one_and_those_that_are_gone(url, workers):
    shown = samples(plain_http.get(url).text)
    assert (shown["hydra_worker_connected", "w1"], shown["hydra_worker_connected", "w2"]) == (1, 0)
    assert shown["hydra_worker_renewal_age_seconds", "w1"] == 0.25
    assert shown["hydra_worker_renewal_age_seconds", "w2"] == 70
    assert shown["hydra_worker_switches", "w1"] == 12
    assert shown["hydra_worker_switches_served", "w1"] == 6
    assert shown["hydra_worker_shards", "w1"] == 2
    assert shown["hydra_worker_cpu_seconds_total", "w1"] == 3.25
    assert shown["hydra_worker_build_info", "1.2", "w1"] == 1
    assert shown["hydra_build_info", __version__] == 1
    assert shown["hydra_worker_sessions_ended_total", "silent", "w1"] == 2
    assert shown["hydra_worker_sessions_ended_total", "orders-late", "w2"] == 3
    assert shown["hydra_worker_sessions_ended_total", "told-lost", "w2"] == 0
    assert ("hydra_worker_switches", "w2") not in shown
    assert (shown["hydra_shards", "yes"], shown["hydra_shards", "no"]) == (2, 2)
    workers.here = ()
    shown = samples(plain_http.get(url).text)
    assert (shown["hydra_shards", "yes"], shown["hydra_shards", "no"]) == (0, 4)


def test_where_there_are_no_workers_nothing_is_said_of_them(service):
    server = RestServer(create_app(service, registry=Metrics().registry), "127.0.0.1", 0)
    server.start()
    text = plain_http.get(f"{server.url}/metrics").text
    server.stop()
    said = [name in text for name in ("hydra_ready", "hydra_worker", "shards")]
    assert said == [True, False, False]


def test_openmetrics_is_spoken_to_those_who_ask(url):
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = plain_http.get(url, headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert "hydra_reconfigurations" in {one.name for one in open_families(answer.text)}


def test_promtool_has_nothing_to_say(url):
    """Syntax, names and units, checked by Prometheus' own linter."""
    text = plain_http.get(url).content
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=text,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_controller_in_trouble_is_not_a_scrape_that_lies(url, service):
    service.fails_with = DeviceUnavailable("controller", "busy")
    assert plain_http.get(url).status_code == 503
