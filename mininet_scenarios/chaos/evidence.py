"""Evidence of an incident: sightings of each lost datagram, and counters of losses.

All frames at the switches' ports are captured while an incident lasts, and counters of kernel and
Open vSwitch are read before and after the incident. Evidence is written only if something was
violated.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self

import httpx

from mininet_scenarios.chaos.pairs import Outage, clock
from mininet_scenarios.chaos.readers import rest
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed.capture import Capture, Frame
from mininet_scenarios.testbed.ovs import bridges
from mininet_scenarios.testbed.shell import TestbedError, run
from mininet_scenarios.workloads.pair_probes import HEADER, MAGIC

FOLDER_FILES: Final = ("evidence.txt", "frames.pcap.gz", "changes.json", "flows.txt")
_COOKED: Final = struct.Struct("!HxxIHBB8x")
"""LINKTYPE_LINUX_SLL2, written by tcpdump for all interfaces at once: protocol, interface, kind of
hardware, packet type, length of the address.
"""
_OUTGOING: Final = 4
_UDP_BYTES: Final = 8
_SNAP_BYTES: Final = 192
_SHOWN: Final = 20
"""Most datagrams per outage whose trails are written, including a datagram before and a datagram
after the lost datagrams.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """A datagram of the pairs' probes at an interface."""

    source: int
    """Number of the sending server."""
    destination: str
    """IP address."""
    number: int
    sent_s: float
    """``CLOCK_MONOTONIC``."""
    time_s: float
    """Wall clock."""
    place: str
    """Interface and direction from the kernel's side: ``in`` is received there."""


def seen_in(frames: Collection[Frame], interfaces: Mapping[int, str]) -> Iterator[Seen]:
    """Datagrams of the pairs' probes among cooked frames; ``interfaces``: names by number."""
    for frame in frames:
        at = frame.data.find(MAGIC, _COOKED.size)
        if at < 0 or len(frame.data) < at + HEADER.size:
            continue
        _, source, version, number, sent_s = HEADER.unpack_from(frame.data, at)
        end = at - _UDP_BYTES
        destination = ip_address(frame.data[end - (4 if version == 4 else 16) : end])
        _, interface, _, kind, _ = _COOKED.unpack_from(frame.data)
        way = "out" if kind == _OUTGOING else "in"
        place = f"{interfaces.get(interface, str(interface))} {way}"
        yield Seen(source, str(destination), number, sent_s, frame.time_s, place)


def trails(
    outages: Sequence[Outage],
    seen: Collection[Seen],
    servers: Sequence[str],
    addresses: Mapping[tuple[str, int], str],
) -> Iterator[str]:
    """Lines with the sightings of each outage's datagrams, and of their neighbours.

    ``servers`` are in the order of the probes' numbers, ``addresses`` by server and IP version.
    """
    flows: dict[tuple[int, str], dict[int, list[Seen]]] = {}
    for sighting in seen:
        flow = flows.setdefault((sighting.source, sighting.destination), {})
        flow.setdefault(sighting.number, []).append(sighting)
    for outage in outages:
        yield f"{outage}"
        key = servers.index(outage.source), addresses[outage.destination, outage.version]
        flow = flows.get(key, {})
        near = [
            n
            for n, sightings in flow.items()
            if outage.from_s <= sightings[0].sent_s <= outage.to_s
        ]
        if not near:
            yield "  none of its datagrams was seen at any switch"
        for number in sorted(near)[:_SHOWN]:
            sightings = sorted(flow[number], key=lambda entry: entry.time_s)
            yield f"  datagram {number}, sent {clock(sightings[0].sent_s)}:"
            yield from (
                f"    {_of_day(sighting.time_s)} {sighting.place}" for sighting in sightings
            )
        missing = sorted(set(range(min(near, default=0), max(near, default=0))) - set(near))
        if missing:
            yield f"  seen at no switch: datagrams {', '.join(map(str, missing[:_SHOWN]))}"


def _of_day(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s):%H:%M:%S.%f}"


class Evidence:
    """Collects evidence of an incident in a ``with`` block."""

    def __init__(self, stage: Stage, base_url: str, directory: Path) -> None:
        """``directory`` is where :meth:`write` puts :data:`FOLDER_FILES`."""
        self._stage = stage
        self._base_url = base_url
        self._directory = directory
        self._capture = Capture("any", snap_bytes=_SNAP_BYTES)
        self._before: Counter[str] = Counter()
        self._notes: list[str] = []

    def __enter__(self) -> Self:
        self._before = self._counters()
        self._notes = []
        self._capture.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self._capture.__exit__()
        except TestbedError as error:
            self._notes.append(str(error))

    def write(self, violations: Sequence[str], outages: Sequence[Outage]) -> None:
        """Write the evidence about the violations, after the block."""
        after = self._counters()
        grown = {name: count - self._before[name] for name, count in sorted(after.items())}
        fabric = self._stage.fabric
        addresses: dict[tuple[str, int], str] = {
            (server.name, address.version): str(address.ip)
            for server in fabric.servers
            for address in reversed(server.addresses)
        }
        names = [server.name for server in fabric.servers]
        seen = list(seen_in(self._capture.frames(), _interfaces()))
        lines = [
            *violations,
            *self._notes,
            "",
            "Datagrams that were lost, where they were seen:",
            *trails(outages, seen, names, addresses),
            "",
            "Counters that grew:",
            *(f"{count:12} {name}" for name, count in grown.items() if count),
        ]
        text, frames, changes, flows = (self._directory / name for name in FOLDER_FILES)
        text.write_text("\n".join(lines) + "\n")
        frames.write_bytes(gzip.compress(self._capture.pcap(), 3))
        flows.write_text("\n\n".join(_flows()))
        changes.write_text(json.dumps(self._changes(), indent=1))

    def _changes(self) -> object:
        try:
            with rest(self._base_url) as client:
                return client.get("/v1/reconfigurations").json()
        except (httpx.HTTPError, ValueError) as error:
            return str(error)

    def _counters(self) -> Counter[str]:
        """Counters of dropped frames, by name; a fault may hide some."""
        found: Counter[str] = Counter()
        with suppress(TestbedError):
            found.update(_coverage(run(["ovs-appctl", "--timeout=5", "coverage/show"])))
        with suppress(TestbedError):
            shown = run(["ovs-appctl", "--timeout=5", "dpctl/show"])
            (lookups,) = [line.strip() for line in shown.splitlines() if "lookups" in line]
            found.update(_named("datapath", lookups.split()[1:]))
        softnet = Path("/proc/net/softnet_stat").read_text().splitlines()
        for cpu, line in enumerate(softnet):
            found[f"processor {cpu}: backlog full"] = int(line.split()[1], 16)
        found.update(_links("", run(["ip", "-s", "-s", "-j", "link"])))
        for server in self._stage.fabric.servers:
            enter = ["mnexec", "-a", str(self._stage.testbed.host(server.name).pid)]
            found.update(_links(server.name, run([*enter, "ip", "-s", "-s", "-j", "link"])))
            totals: Mapping[str, Mapping[str, int]] = json.loads(
                run([*enter, "nstat", "--json", "--ignore", "--noupdate", "--zeros"])
            )
            for name, count in totals["kernel"].items():
                if any(word in name for word in ("Err", "Discard", "NoPort", "NoRoute", "Drop")):
                    found[f"{server.name} {name}"] = int(count)
        return found


def _flows() -> Iterator[str]:
    """The cached flows of Open vSwitch, and each bridge's rules."""
    commands = [["ovs-appctl", "--timeout=5", "dpctl/dump-flows", "-m"]]
    with suppress(TestbedError):
        commands += [["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", name] for name in bridges()]
    for command in commands:
        with suppress(TestbedError):
            yield f"$ {' '.join(command)}\n{run(command)}"


def _interfaces() -> dict[int, str]:
    return {link["ifindex"]: link["ifname"] for link in json.loads(run(["ip", "-j", "link"]))}


def _coverage(shown: str) -> dict[str, int]:
    """Totals of Open vSwitch's events: the last word of each line of ``coverage/show``."""
    found = {}
    for line in shown.splitlines():
        words = line.split()
        if len(words) > 2 and words[-2] == "total:":
            found[f"ovs-vswitchd {words[0]}"] = int(words[-1])
    return found


def _named(what: str, pairs: Sequence[str]) -> dict[str, int]:
    """Counters shown as ``name:number``."""
    split = (pair.partition(":") for pair in pairs)
    return {f"{what} {name}": int(number) for name, _, number in split}


def _links(server: str, shown: str) -> dict[str, int]:
    """All counters of drops and errors of ``ip -s -s -j link``."""
    found = {}
    for link in json.loads(shown):
        for way, counts in link.get("stats64", {}).items():
            for name, count in counts.items():
                if name not in ("bytes", "packets", "multicast", "otherhost"):
                    found[f"{server} {link['ifname']} {way} {name}".strip()] = count
    return found
