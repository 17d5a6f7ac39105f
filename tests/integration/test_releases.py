"""An earlier release beside the present one, really run: what an upgrade goes through.

Controllers of both share a store, hand over to each other, and find what the other one has written;
workers and controllers that speak different versions of their protocol refuse each other.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from apps.workers import wire
from hydra import __version__
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.replicas import replicas
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import paced_stream
from tests.earlier import ARCHIVES, unpacked
from tests.unit.workers.test_links import Controller
from tests.waiting import PATIENCE_S

from .live import DEMO_CONFIG, dropped_frames, wait_until
from .test_replicas import LEASE_S, Follower, Promise, dark_frames
from .warm import warm

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]
OTHERS = ("r3", "r4")


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda one: one.name.partition(".")[0])
def earlier(request, tmp_path_factory):
    return unpacked(request.param, tmp_path_factory.mktemp("earlier"))


def test_two_releases_hand_over_to_each_other_and_nothing_is_lost(demo_testbed, tmp_path, earlier):
    """`a` is of the present release, `b` of the earlier one."""
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    stage = Stage(demo_testbed, demo_testbed.fabric, document, tmp_path)
    launches = {"a": warm().launch, "b": earlier.launch}
    with (
        EtcdMembers(tmp_path / "etcd") as etcd,
        replicas(stage, etcd, {}, {}, lease_s=LEASE_S, launches=launches) as these,
    ):
        urls = {name: one.base_url for name, one in these.processes.items()}
        assert program_of(these.processes["b"]).startswith(str(earlier.folder))
        follower = Follower([urls["b"], urls["a"]])
        promise = Promise(these.http, urls)  # asked of `b`, which carries it to `a`
        dark, dropped = dark_frames(demo_testbed), dropped_frames(demo_testbed)
        with paced_stream(stage, "h11", "h21", pps=200, payload_bytes=200) as stream:
            hand_over(these, "a", "b")
            promise.stands("b")
            assert promise.asked_again("b") == promise.id
            later = reserve(these.http, urls["b"])
            these.start("a")
            these.standing_by(1)
            read_by_a_standby(these.http, urls["a"], promise.id, later["id"])
            standing = [
                reservation(these.http, urls["b"], one) for one in (promise.id, later["id"])
            ]
            hand_over(these, "b", "a")
            assert standing == [
                reservation(these.http, urls["a"], one) for one in (promise.id, later["id"])
            ]
            result = stream.stop()
        assert [one["state"] for one in standing] == ["active", "active"]
        happened = these.http.get(f"{urls['a']}/v1/history").json()["happenings"]
        assert any(later["id"] in one["text"] for one in happened), "as the earlier one wrote"
        assert these.http.delete(urls["a"] + promise.path).is_success
        numbers = follower.await_end()
        assert (numbers, follower.gaps) == ([*range(numbers[0], numbers[-1] + 1)], 0)
        assert dark_frames(demo_testbed) == dark
        assert max(0, result.lost - (dropped_frames(demo_testbed) - dropped)) == 0


def program_of(process):
    """The application that a controller's process runs."""
    return Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[2]


def hand_over(these, one, other):
    these.http.post(f"{these.processes[one].base_url}/v1/handover", json={}).raise_for_status()
    assert these.leader(one) == other
    assert these.await_end(one) == 1


def reserve(http, url):
    src, dst = OTHERS
    body = {"src": src, "dst": dst, "bandwidth_mbps": 20}
    made = http.post(
        f"{url}/v1/reservations", json=body, headers={"Prefer": "wait=20"}, timeout=PATIENCE_S
    )
    assert (made.status_code, made.json()["state"]) == (201, "active"), made.text
    return made.json()


def reservation(http, url, name):
    return http.get(f"{url}/v1/reservations/{name}").raise_for_status().json()


def read_by_a_standby(http, url, *names):
    """The present release has a copy of what the earlier one writes."""

    def answered():
        seen = http.get(f"{url}/v1/reservations")
        assert "HydRA-As-Of" in seen.headers
        return {one["id"] for one in seen.json()["reservations"]} >= set(names)

    wait_until(answered)


@pytest.fixture
def link():
    return free_port()


@pytest.fixture
def config(tmp_path, link):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"]["workers"] = {"listen": f"127.0.0.1:{link}"}
    file = tmp_path / "fabric.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def worker_options(config):
    switches = f"127.0.0.1:{free_port()}"
    return ["worker", "--config", str(config), "--name", "w1", "--listen", switches]


def test_a_worker_of_an_earlier_protocol_is_refused(earlier, config, link, tmp_path):
    controller = Controller(link)
    with (tmp_path / "worker.log").open("wb") as log:
        worker = earlier.start("hydra", *worker_options(config), log=log)
    try:
        wait_until(controller.exchange.refused)
        (refused,) = controller.exchange.refused()
        assert (refused.name, controller.exchange.known()) == ("w1", ())
        assert "speaks version 0 of the protocol" in refused.why
        assert f"this controller, release {__version__}, speaks version {wire.PROTOCOL}" in (
            refused.why
        )
    finally:
        worker.kill()
        worker.wait()
        controller.close()


EXCHANGE = """
import sys
from pathlib import Path
from apps.process.configuration import load_configuration
from apps.workers.exchange import Exchange
loaded = load_configuration(Path(sys.argv[1]))
class Told:
    def __getattr__(self, name):
        return lambda *given, **more: print("told", name, flush=True)
exchange = Exchange(loaded.controller.workers, loaded.fabric, lambda: 1)
exchange.start(Told(), lambda job: None)
print("listens", flush=True)
sys.stdin.read()
print("seen", exchange.seen(), flush=True)
exchange.stop()
"""


def test_a_worker_refuses_a_controller_of_an_earlier_protocol(earlier, config, link):
    with subprocess.Popen(
        [sys.executable, "-c", EXCHANGE, config],
        env={**earlier.environment},
        cwd=earlier.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as controller:
        assert controller.stdout.readline() == "listens\n"
        done = subprocess.run(
            [Path(sys.executable).with_name("hydra"), *worker_options(config)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said, _ = controller.communicate("", 60)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "speaks version" in line] == [
        f"worker w1, release {__version__}, speaks version {wire.PROTOCOL} of the protocol of "
        f"workers, and the controller at 127.0.0.1:{link}, release unknown, speaks version 0: "
        "upgrade the controller to the worker's release"
    ]
    assert said == "seen ()\n", "it said that it ends, and told of no switch"
