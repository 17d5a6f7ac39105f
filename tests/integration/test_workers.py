"""A controller whose switches are held by workers, on real Open vSwitch."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import yaml

from apps.openflow.package import VARIABLE
from mininet_scenarios import plain_http
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.controller_process import ControllerProcess
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream
from mininet_scenarios.testbed import ovs
from mininet_scenarios.workers import WorkerProcess, await_workers, workers
from tests.waiting import PATIENCE_S

from .certificates import authority, connected, of_openflow, use_certificates, vsctl
from .live import DEMO_CONFIG, PATIENT, dropped_frames, on_both_packages, wait_until
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(120)]
SWITCHES = 8
"""Vswitches of the demo."""
MOVING_S = 3.0
"""Time limit for the controller to notice a lost worker."""
LEASE_S = 7
"""Longer than the defaults, of leaders and of workers: other tests keep the machine busy."""
ENDED = {"done", "partial", "refused", "failed"}


@pytest.fixture
def stage(demo_testbed, tmp_path):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    return Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)


def bridges_of(stage):
    vswitches = [one.vswitch.bridge for one in stage.fabric.servers]
    return [*vswitches, *(one.tor.bridge for one in stage.fabric.racks)]


def seen_by(process):
    return lambda: plain_http.get(f"{process.base_url}/v1/workers", timeout=PATIENCE_S).json()[
        "workers"
    ]


def dark_frames(testbed):
    return sum(testbed.ocs(plane.name).dark_frames() for plane in testbed.fabric.planes)


def on(package):
    """Controller and workers with this OpenFlow package."""
    return {"launch": warm(package).launch, "environment": {VARIABLE: package}}


@on_both_packages
def test_a_reconfiguration_goes_through_a_worker(stage, package):
    with (
        workers(stage, PATIENT, ("w1",), lease_s=LEASE_S, **on(package)) as (process, _),
        ControllerClient(process.base_url) as client,
    ):
        # The controller counts them from time to time.
        (worker,) = await_workers(
            seen_by(process),
            lambda one: (
                [each["switches"] for each in one] == [len(bridges_of(stage))]
                and one[0]["serves"] >= SWITCHES
            ),
        )
        assert (worker["name"], worker["shards"]) == ("w1", [0, 1, 2, 3])
        assert worker["serves"] <= worker["switches"]
        dropped = dropped_frames(stage.testbed)
        with paced_stream(stage, "h11", "h21", pps=100, payload_bytes=200) as stream:
            done = client.reconfigure([PairDemand("r1", "r2", 80)])
            assert (done.state, done.rules_pushed > 0) == ("done", True)
            result = stream.stop()
        assert max(0, result.lost - (dropped_frames(stage.testbed) - dropped)) == 0


@pytest.mark.parametrize("package", ["ryu"])
def test_a_worker_is_killed_in_a_change_and_nothing_is_lost(stage, package):
    """The worker's switches move to the other worker, and a resumed worker sends nothing."""
    with (
        workers(stage, PATIENT, ("w1", "w2"), lease_s=LEASE_S, **on(package)) as (process, these),
        ControllerClient(process.base_url) as client,
    ):
        seen = seen_by(process)
        everywhere = [len(bridges_of(stage))] * 2
        both = await_workers(seen, lambda two: [one["switches"] for one in two] == everywhere)
        both = await_workers(seen, lambda two: all(one["serves"] for one in two))
        assert sorted(both[0]["shards"] + both[1]["shards"]) == [0, 1, 2, 3]
        dark, dropped = dark_frames(stage.testbed), dropped_frames(stage.testbed)
        with paced_stream(stage, "h11", "h21", pps=100, payload_bytes=200) as stream:
            for plane in stage.fabric.planes:
                stage.testbed.ocs(plane.name).admin.fault(FaultKind.SLOW, delay_s=MOVING_S)
            before = cross_connects(stage.testbed)
            number = client.request([PairDemand("r1", "r2", 80)])
            wait_until(lambda: cross_connects(stage.testbed) > before)  # the reply is yet to come
            owner, other = sorted(both, key=lambda one: 0 not in one["shards"])
            these[owner["name"]].kill()
            await_workers(seen, lambda one: [w["name"] for w in one] == [other["name"]])
            assert client.reconfiguration(number).state not in ENDED, "it was over before"
            wait_until(lambda: client.reconfiguration(number).state in ENDED)
            ended = client.reconfiguration(number)
            await_workers(seen, lambda one: one[0]["serves"] == both[0]["switches"])
            for plane in stage.fabric.planes:
                stage.testbed.ocs(plane.name).admin.clear()
            all_there(process)
            shown = plain_http.get(f"{process.base_url}/metrics", timeout=PATIENCE_S).text
            name = owner["name"]
            assert f'hydra_worker_connected{{worker="{name}"}} 0.0' in shown
            gone = f'hydra_worker_sessions_ended_total{{cause="disconnected",worker="{name}"}}'
            assert f"{gone} 1.0" in shown
            these[owner["name"]].start()
            await_workers(seen, lambda two: len(two) == 2 and all(one["serves"] for one in two))
            all_there(process)
            these["w2"].freeze()
            await_workers(seen, lambda one: [w["name"] for w in one] == ["w1"])
            all_there(process)
            these["w2"].thaw()
            await_workers(seen, lambda two: len(two) == 2 and all(one["serves"] for one in two))
            all_there(process)
            result = stream.stop()
        assert dark_frames(stage.testbed) == dark
        assert max(0, result.lost - (dropped_frames(stage.testbed) - dropped)) == 0
        assert ended.state in {"done", "partial"}, ended
        again = client.reconfigure([PairDemand("r1", "r2", 80)])
        assert again.state == "done"


@pytest.fixture
def lab(tmp_path):
    """An authority whose certificates Open vSwitch uses."""
    lab = authority(tmp_path / "lab")
    use_certificates(lab)
    yield lab
    vsctl("del-ssl")


@pytest.mark.parametrize("package", ["os-ken"])
def test_switches_are_held_over_tls_and_those_of_another_authority_are_not(
    stage, lab, tmp_path, package
):
    stage.config["controller"] |= of_openflow(lab)
    with (
        workers(stage, PATIENT, ("w1",), lease_s=LEASE_S, **on(package)) as (process, these),
        ControllerClient(process.base_url) as client,
    ):
        all_there(process)
        wait_until(lambda: connected() == {these["w1"].target})  # its report comes late
        assert these["w1"].target.startswith("ssl:")
        assert client.reconfigure([PairDemand("r1", "r2", 80)]).state == "done"
        use_certificates(authority(tmp_path / "other"))
        bridge, target = bridges_of(stage)[0], these["w1"].target
        vsctl("del-controller", bridge)  # otherwise the worker keeps the connection
        ovs.set_controllers([bridge], [target])
        wait_until(lambda: "is not let in as a switch" in process.log_tail())
        wait_until(lambda: seen_by(process)()[0]["switches"] == len(bridges_of(stage)) - 1)
        use_certificates(lab)
        all_there(process)


def cross_connects(testbed):
    return sum(testbed.ocs(one.name).counters().cross_connects for one in testbed.fabric.planes)


def all_there(process):
    wait_until(
        lambda: (
            plain_http.get(
                f"{process.base_url}/readyz?complete=true", timeout=PATIENCE_S
            ).status_code
            == 200
        ),
        PATIENCE_S,
    )


def test_the_next_leader_goes_on_by_the_same_workers(stage, tmp_path):
    """One of two controllers is killed; the worker obeys the other controller as soon as it
    leads.
    """
    bridges = bridges_of(stage)
    before = f"tcp:{stage.config['controller']['openflow']}"
    links = {name: free_port() for name in "ab"}
    with EtcdMembers(tmp_path / "etcd") as etcd, ExitStack() as stack:
        store = {"etcd": {"endpoints": list(etcd.endpoints), "lease_s": LEASE_S}}
        controllers = {}
        for name, link in links.items():
            own = {"store": store, "rest": f"127.0.0.1:{free_port()}"}
            own["workers"] = {"listen": f"127.0.0.1:{link}", "shards": 4, "lease_s": LEASE_S}
            controllers[name] = ControllerProcess(
                stage.written(PATIENT, own), launch=warm().launch, ready_timeout_s=60
            )
            stack.callback(controllers[name].kill)
        worker = WorkerProcess(
            "w1", controllers["a"].config, free_port(), tmp_path / "w1.log", tuple(links.values())
        )
        stack.callback(worker.kill)
        worker.start()
        stack.callback(ovs.set_controllers, bridges, [before])
        ovs.set_controllers(bridges, [worker.target])
        a, b = controllers["a"], controllers["b"]
        a.start()
        b.start(ready=False)
        wait_until(lambda: standing_by(a) == [len(bridges)])
        dropped = dropped_frames(stage.testbed)
        with paced_stream(stage, "h11", "h21", pps=100, payload_bytes=200) as stream:
            a.kill()
            wait_until(
                lambda: (
                    plain_http.get(f"{b.base_url}/readyz", timeout=PATIENCE_S).status_code == 200
                ),
                60,
            )
            all_there(b)
            (one,) = seen_by(b)()
            assert (one["serves"], one["shards"]) == (len(bridges), [0, 1, 2, 3])
            with ControllerClient(b.base_url) as client:
                assert client.reconfigure([PairDemand("r1", "r2", 80)]).state == "done"
            result = stream.stop()
        assert max(0, result.lost - (dropped_frames(stage.testbed) - dropped)) == 0


def standing_by(process):
    """Numbers of switches that the standbys have found."""
    found = plain_http.get(f"{process.base_url}/v1/replicas", timeout=PATIENCE_S).json()[
        "standing_by"
    ]
    return [one["switches"] for one in found]
