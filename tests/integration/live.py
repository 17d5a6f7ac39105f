"""A running network for a test: the testbed, a controller, and actions of a test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from apps.openflow.package import NAME, OS_KEN, RYU
from hydra.model import Fabric
from mininet_scenarios import plain_http
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.controller_process import (
    ControllerProcess,
    Launch,
    WithCycle,
    launch,
)
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import UdpResult
from mininet_scenarios.testbed import Testbed
from tests import waiting
from tests.waiting import PATIENCE_S

from .pings import all_answered, ping_command
from .warm import warm

CONFIGS = Path(__file__).parents[2] / "configs"
DEMO_CONFIG = CONFIGS / "demo.yaml"
PATIENT: Final = {"probe_interval_s": 20.0, "timeouts": {"probe_s": 5.0}}
"""A policy in which a path is dead after 15 s without probes, and a new path after 5 s: a busy
machine stops its switches for up to 3 s.
"""
on_both_packages = pytest.mark.parametrize("package", [RYU, OS_KEN], scope="module")
"""Runs tests with OpenFlow by either package; the network is ``live(…, package=package)``."""
on_each_substrate = pytest.mark.parametrize(
    "shipped", ["demo", "single-homed", "openflow-only"], indirect=True, scope="module"
)
"""Runs tests on the small shipped fabric of every substrate."""
on_one_substrate = pytest.mark.parametrize("shipped", ["demo"], indirect=True, scope="module")
"""For properties common to all substrates, in addition to tests on each substrate."""


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait as :func:`tests.waiting.wait_until`, with pauses between requests to a controller."""
    waiting.wait_until(condition, seconds, every_s=0.05)


@dataclass
class Live:
    testbed: Testbed
    process: ControllerProcess
    client: ControllerClient
    stage: Stage
    dropped_before: int
    """Frames dropped by queues of transmitters and sockets before the start."""

    @property
    def fabric(self) -> Fabric:
        return self.testbed.fabric

    def api(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        return plain_http.request(
            method, self.process.base_url + path, timeout=PATIENCE_S, **kwargs
        )

    def get(self, path: str) -> dict[str, Any]:
        answer = self.api("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def reserve(self, src: str, dst: str, mbps: float = 40, **more: Any) -> dict[str, Any]:
        """Ask, wait for the end of the activation, and return the reservation."""
        body = {"src": src, "dst": dst, "bandwidth_mbps": mbps, **more}
        answer = self.api("POST", "/v1/reservations", json=body, headers={"Prefer": "wait=60"})
        assert answer.status_code == 201, answer.text
        path = f"/v1/reservations/{answer.json()['id']}"
        wait_until(lambda: self.get(path)["state"] != "activating")
        return self.get(path)

    def change(self, a: str, b: str, *planes: str) -> Any:
        """Give two racks a circuit on one of these planes; returns the finished reconfiguration."""
        return self.client.reconfigure([PairDemand(a, b, 80)], use_planes=planes or None)

    def begin_change(self, a: str, b: str, plane: str) -> str:
        """Request a circuit between two racks on this plane, with other racks out of reach; returns
        its number.
        """
        return self.client.request([PairDemand(a, b, 80)], racks=(a, b), use_planes=(plane,))

    def state_of(self, change: str) -> str:
        return self.client.reconfiguration(change).state

    def devices_are_connected(self) -> bool:
        return all(device["connected"] for device in self.get("/v1/devices")["devices"])

    def everything_is_confirmed(self) -> bool:
        """True if all devices and switches have confirmed their state, for example after a lost
        reply.
        """
        conditions = self.get("/v1/conditions")["conditions"]
        return all(one["kind"] != "unconfirmed" for one in conditions)

    def conditions(self, kind: str) -> list[dict[str, Any]]:
        """Conditions of this kind, as reported by the controller; the newest last."""
        conditions = self.get("/v1/conditions")["conditions"]
        return [one for one in conditions if one["kind"] == kind]

    def give_everything_back(self) -> None:
        """Remove reservations, quarantine and circuits: for the next test with this controller."""
        wait_until(self.devices_are_connected)
        wait_until(self.everything_is_confirmed)  # the controller retries at least every 60 s
        for reservation in self.get("/v1/reservations?state=active")["reservations"]:
            answer = self.api("DELETE", f"/v1/reservations/{reservation['id']}")
            assert answer.is_success, answer.text
        for port in self.get("/v1/quarantine")["ports"]:
            self.api("DELETE", f"/v1/quarantine/{port['rack']}/{port['port']}")
        self.client.reconfigure([])
        assert self.get("/v1/topology")["circuits"] == []

    def planes_between(self, a: str, b: str) -> tuple[str, ...]:
        """The planes along two racks' path, in hop order; empty: electrical."""
        for path in self.get("/v1/topology")["paths"]:
            if {path["src"], path["dst"]} == {a, b}:
                return tuple(hop["plane"] for hop in path["hops"])
        return ()

    def path_of(self, reservation: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """State of a reservation, and the reported planes of its path."""
        found = self.get(f"/v1/reservations/{reservation['id']}")
        hops = (found["path"] or {"hops": ()})["hops"]
        return found["state"], tuple(hop["plane"] for hop in hops)

    def kept_path(self, reservation: Mapping[str, Any]) -> tuple[str, ...]:
        """The reported planes of an active reservation."""
        state, planes = self.path_of(reservation)
        assert state == "active"
        return planes

    def reaches(self, source: str, destination: str, *, count: int = 2) -> bool:
        """True if every ping comes back, IPv4 and IPv6."""
        server = self.fabric.server_by_name[destination]
        return all(
            self.ping(source, str(interface.ip), count=count) for interface in server.addresses
        )

    def ping(self, source: str, address: str, *, count: int = 2) -> bool:
        out, _, code = self.testbed.host(source).pexec(ping_command(address, count))
        return code == 0 and all_answered(out, count)

    def everyone_reaches_everyone(self) -> bool:
        firsts = [rack.servers[0].name for rack in self.fabric.racks]
        return all(self.reaches(a, b, count=1) for a in firsts for b in firsts if a != b)

    def dark_frames(self) -> int:
        return sum(self.testbed.ocs(plane.name).dark_frames() for plane in self.fabric.planes)

    def lost_but_in_queues(self, *results: UdpResult) -> int:
        """Datagrams of all streams so far, without drops by queues of transmitters and sockets.

        A switch that was stopped on a busy machine finds its sockets full, and then sends a burst
        that is too long for a slow port's queue. A test that allows no such drops needs a quiet
        machine (``quiet``).
        """
        dropped = dropped_frames(self.testbed) - self.dropped_before
        return max(0, sum(result.lost for result in results) - dropped)


@contextmanager
def silent(bridge: str) -> Iterator[None]:
    """A vswitch that keeps its rules, and can't reach its controller."""
    asked = ["ovs-vsctl", "get-controller", bridge]
    target = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run(["ovs-vsctl", "set-controller", bridge, "tcp:127.0.0.1:1"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ovs-vsctl", "set-controller", bridge, target], check=True)


def dropped_frames(testbed: Testbed) -> int:
    queues = sum(queue.dropped_frames for queue in testbed.queues().values())
    return queues + testbed.unread_frames()


@contextmanager
def live(
    testbed: Testbed,
    directory: Path,
    policy: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    cold: bool = False,
    package: str = NAME,
    rules: int = 0,
) -> Iterator[Live]:
    """A controller with an empty journal, these changes to the shipped file, and this policy
    (default: ``PATIENT``).

    ``cold``: start a fresh process instead of forking, for tests that depend on the environment.
    ``package``: the OpenFlow package; default: the choice of ``HYDRA_OPENFLOW`` for this process.
    ``rules``: number of rules in each push, after padding.
    """
    directory.mkdir(exist_ok=True)
    document = yaml.safe_load((CONFIGS / f"{testbed.fabric.name}.yaml").read_text())
    document |= changes or {}
    document["controller"]["journal"] = str(directory / "journal.db")
    document["policy"] = {**document["policy"], **PATIENT, **(policy or {})}
    config = directory / "fabric.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    stage = Stage(testbed, testbed.fabric, document, directory)
    start: Launch = launch if cold else warm(package).launch
    if rules:
        start = WithCycle(CycleName.HITLESS, rules)
    with (
        ControllerProcess(config, launch=start) as process,
        ControllerClient(process.base_url) as client,
    ):
        yield Live(testbed, process, client, stage, dropped_frames(testbed))
