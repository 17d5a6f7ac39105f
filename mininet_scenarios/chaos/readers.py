"""The network as shown by the kernel, Open vSwitch, the journal's file and REST.

Nothing here is the controller's code: each reader parses the output of a tool or the kernel. The
names of ports and servers are the fabric's.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from hydra.model import Fabric
from mininet_scenarios import plain_http
from mininet_scenarios.testbed.layout import ocs_interface
from mininet_scenarios.testbed.ocs import OcsProcess
from mininet_scenarios.testbed.shell import run

_TIMEOUT_S: Final = 5.0
_SAMPLE_S: Final = 0.25
_CIRCUIT_RULE: Final = re.compile(
    r"table=[56], .*\bmetadata=(0x[0-9a-f]+) .*set_field:(\d+)->vlan_vid"
)
_DIVERT_RULE: Final = re.compile(r"table=2, priority=(?!0 )\d+,")
_PRESENT: Final = 0x1000

Ends = tuple[str, str]
"""Two ToR ports: light from the first reaches the second."""


# -- the kernel --------------------------------------------------------------------------------


def redirections(fabric: Fabric) -> frozenset[Ends]:
    """Where the mirrors lead now, between ToR ports."""
    ports = {ocs_interface(fabric.planes[port.plane], port): port.tor_port for port in fabric.ports}
    found = set()
    for interface, source in ports.items():
        shown = run(["tc", "-j", "filter", "show", "dev", interface, "ingress"])
        for rule in json.loads(shown or "[]"):
            for action in rule.get("options", {}).get("actions", ()):
                found.add((source, ports[action["to_dev"]]))
    return frozenset(found)


def lit(fabric: Fabric) -> frozenset[str]:
    """ToR ports with carrier."""
    state = Path("/sys/class/net")
    return frozenset(
        port.tor_port
        for port in fabric.ports
        if (state / port.tor_port / "operstate").read_text().strip() == "up"
    )


# -- Open vSwitch ------------------------------------------------------------------------------


def trunks() -> dict[str, frozenset[int]]:
    """VLANs of all ports, from OVSDB."""
    shown = run(["ovs-vsctl", "--timeout=5", "-f", "json", "--columns=name,trunks", "list", "Port"])
    return {name: frozenset(_set(some)) for name, some in json.loads(shown)["data"]}


def _set(value: int | tuple[str, Sequence[int]]) -> Sequence[int]:
    """A set in OVSDB's notation: one member by itself, several after a word."""
    return [value] if isinstance(value, int) else value[1]


def lonely_bridges(port: int) -> int:
    """Number of bridges with a controller but without a connection to ``port``, the controller's
    port.

    Counted from the kernel's sockets: ``is_connected`` of Open vSwitch's database is seconds late.
    """
    command = ["ovs-vsctl", "--timeout=5", "--bare", "--columns=_uuid", "list", "Controller"]
    named = len(run(command).split())
    sockets = run(["ss", "-Htnp", "state", "established", "dport", "=", f":{port}"])
    return named - sum('"ovs-vswitchd"' in line for line in sockets.splitlines())


@dataclass(frozen=True, slots=True)
class Steering:
    """Rules of a bridge: (number of the rack from 1, VLAN-ID) of each circuit rule."""

    circuits: frozenset[tuple[int, int]]
    diverts: int


def steering(bridge: str) -> Steering:
    return steering_in(run(["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", bridge]))


def steering_in(shown: str) -> Steering:
    """Parse the rules in the output of ``ovs-ofctl dump-flows``."""
    rules = _CIRCUIT_RULE.findall(shown)
    return Steering(
        frozenset((int(rack, 16), int(vlan) & ~_PRESENT) for rack, vlan in rules),
        len(_DIVERT_RULE.findall(shown)),
    )


# -- the journal -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Journal:
    circuits: frozenset[frozenset[str]]
    """Ends of each circuit, as ToR ports."""
    vlans: Mapping[frozenset[str], frozenset[int]]
    """VLAN-IDs of each rack pair's paths."""
    reservations: Mapping[str, str]
    """States by identifier."""


def journal(path: Path) -> Journal:
    """The present contents of the journal's file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_TIMEOUT_S)) as database:
        rows = database.execute(
            "SELECT kind, record FROM records WHERE kind IN ('state', 'reservation')"
        ).fetchall()
    records = [(kind, json.loads(record)) for kind, record in rows]
    circuits: set[frozenset[str]] = set()
    vlans: dict[frozenset[str], frozenset[int]] = {}
    for kind, record in records:
        if kind == "state":
            circuits = {frozenset(p for _, p in ends) for ends in record["state"]["circuits"]}
            vlans = _vlans(record["state"]["paths"])
    states = {record["id"]: record["state"] for kind, record in records if kind == "reservation"}
    return Journal(frozenset(circuits), vlans, states)


def _vlans(paths: Sequence[Mapping[str, Any]]) -> dict[frozenset[str], frozenset[int]]:
    found: dict[frozenset[str], frozenset[int]] = {}
    for path in paths:
        pair = frozenset((path["src"], path["dst"]))
        found[pair] = found.get(pair, frozenset()) | {path["vlan"]}
    return found


# -- REST --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportedTopology:
    """The controller's report about the network."""

    circuits: frozenset[frozenset[str]]
    light: frozenset[Ends]
    vlans: Mapping[frozenset[str], frozenset[int]]
    paths: Sequence[Mapping[str, Any]]

    @classmethod
    def from_json(cls, topology: Mapping[str, Any]) -> ReportedTopology:
        light: set[Ends] = set()
        for circuit in topology["circuits"]:
            a, b = circuit["a"]["port"], circuit["b"]["port"]
            light |= {(a, b)} if circuit["one_way"] else {(a, b), (b, a)}
        circuits, paths = frozenset(map(frozenset, light)), topology["paths"]
        return cls(circuits, frozenset(light), _vlans(paths), paths)

    def vlans_at(self, port: str) -> frozenset[int]:
        """VLAN-IDs of the paths through a ToR port."""
        return frozenset(path["vlan"] for path in self.paths if port in ports_of(path))


def ports_of(path: Mapping[str, Any]) -> set[str]:
    """ToR ports of a path in REST's notation."""
    return {hop[end] for hop in path["hops"] for end in ("from_port", "to_port")}


@contextmanager
def rest(base_url: str) -> Iterator[httpx.Client]:
    with plain_http.client(base_url=base_url, timeout=_TIMEOUT_S) as client:
        yield client


class Watch:
    """Samples ``/v1/topology`` in a thread, and remembers the paths over time.

    Also samples whenever a reconfiguration enters a substep or ends: a path may stand for less than
    the time between two samples. Without an answer, the last sample stays valid.
    """

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._samples: list[tuple[float, ReportedTopology]] = []
        self._stop = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        self._listener.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._news.set()
        self._thread.join()  # the listener ends with the next line, or the time-out

    def through(self, port: str, from_s: float, to_s: float) -> frozenset[frozenset[str]]:
        """Rack pairs with a path through a ToR port at some moment of a time."""
        last = [sample for sample in self._samples if sample[0] < from_s][-1:]
        during = [sample for sample in self._samples if from_s <= sample[0] <= to_s]
        return frozenset(
            frozenset((path["src"], path["dst"]))
            for _, reported in (*last, *during)
            for path in reported.paths
            if port in ports_of(path)
        )

    def ports_in_use(self) -> Sequence[str]:
        """ToR ports of present paths."""
        paths = self._samples[-1][1].paths if self._samples else ()
        return sorted({port for path in paths for port in ports_of(path)})

    def _look(self) -> None:
        with rest(self._base_url) as client:
            while not self._stop.is_set():
                self._news.wait(_SAMPLE_S)
                self._news.clear()
                try:
                    answer = client.get("/v1/topology").raise_for_status()
                except httpx.HTTPError:
                    continue
                self._samples.append((time.monotonic(), ReportedTopology.from_json(answer.json())))

    def _listen(self) -> None:
        """Take a sample at each event; the controller may be away, or be stopped."""
        with rest(self._base_url) as client:
            while not self._stop.is_set():
                try:
                    with client.stream("GET", "/v1/events?kind=reconfiguration") as answer:
                        for _ in answer.iter_lines():
                            self._news.set()
                            if self._stop.is_set():
                                return
                except httpx.HTTPError:  # no event for a while, or no controller
                    self._stop.wait(_SAMPLE_S)


# -- frames in the dark ------------------------------------------------------------------------


class Dark:
    """Frames at dark or unconnected ports, by ToR port; emulators continue their counts after a
    restart.
    """

    def __init__(self, fabric: Fabric, planes: Mapping[str, OcsProcess]) -> None:
        self._names = {
            (fabric.planes[port.plane].name, port.ingress): port.tor_port for port in fabric.ports
        }
        self._planes = planes

    def frames(self) -> dict[str, int]:
        """Frames since the start; every emulator has to be alive."""
        return {
            self._names[name, port.ingress]: port.dark_frames
            for name, plane in self._planes.items()
            for port in plane.admin.counters().ports
        }
