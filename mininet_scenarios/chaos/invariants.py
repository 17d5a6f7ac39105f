"""Invariants under any fault: a table of checks of a network at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from hydra.model import Fabric
from mininet_scenarios.chaos import readers
from mininet_scenarios.chaos.readers import ReportedTopology
from mininet_scenarios.stage.controller_process import ALL_THERE

_AT_REST: Final = frozenset(
    {"held", "scheduled", "active", "released", "expired", "failed", "cancelled", "preempted"}
)
_ItemT = TypeVar("_ItemT")
_ENDED: Final = frozenset({"done", "partial", "refused", "failed"})


@dataclass(frozen=True, slots=True)
class Seen:
    """The sources for comparison."""

    fabric: Fabric
    journal: Path
    http: httpx.Client
    reported: ReportedTopology

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.get(path).raise_for_status().json()
        return answer


def ready(seen: Seen) -> Iterator[str]:
    answer = seen.http.get(ALL_THERE)
    if answer.status_code != httpx.codes.OK:
        yield f"not ready: {answer.text}"


def mirrors(seen: Seen) -> Iterator[str]:
    yield from _differences("mirrors lead", readers.redirections(seen.fabric), seen.reported.light)


def carriers(seen: Seen) -> Iterator[str]:
    wanted = {end for ends in seen.reported.circuits for end in ends}
    yield from _differences("carrier", readers.lit(seen.fabric), wanted)


def vlans(seen: Seen) -> Iterator[str]:
    """Trunks of optical ports; OpenFlow ToRs have none."""
    parking = seen.fabric.parking_vlan
    if any(rack.tor.driver == "openflow" for rack in seen.fabric.racks):
        return
    found = readers.trunks()
    for port in seen.fabric.ports:
        wanted = seen.reported.vlans_at(port.tor_port) or {parking}
        there = found.get(port.tor_port)
        if there != wanted:
            yield f"{port.tor_port} has VLANs {there and sorted(there)}, not {sorted(wanted)}"


def tables(seen: Seen) -> Iterator[str]:
    """Check each server's rules: frames take the circuits of the rack's paths, and nothing is
    diverted.
    """
    number = {rack.name: place for place, rack in enumerate(seen.fabric.racks, start=1)}
    for server in seen.fabric.servers:
        rack = seen.fabric.racks[server.rack]
        bridge = rack.tor.bridge if server.vswitch is None else server.vswitch.bridge
        wanted = {
            (number[to], path["vlan"])
            for path in seen.reported.paths
            for source, to in _directions(path)
            if source == rack.name
        }
        there = readers.steering(bridge)
        yield from _differences(f"{bridge} steers (rack, VLAN)", there.circuits, wanted)
        if there.diverts:
            yield f"{bridge} diverts {there.diverts} racks"


def journal(seen: Seen) -> Iterator[str]:
    there = readers.journal(seen.journal)
    yield from _differences("journal: circuit", there.circuits, seen.reported.circuits)
    yield from _differences(
        "journal: path", set(there.vlans.items()), set(seen.reported.vlans.items())
    )


def reservations(seen: Seen) -> Iterator[str]:
    """REST and the journal agree on each reservation; the path of an active reservation stands."""
    listed = {reservation["id"]: reservation for reservation in _reservations(seen)}
    states = {(name, reservation["state"]) for name, reservation in listed.items()}
    yield from _differences(
        "journal: reservation", set(readers.journal(seen.journal).reservations.items()), states
    )
    standing = {_hops(path) for path in seen.reported.paths}
    for name, reservation in listed.items():
        if reservation["state"] not in _AT_REST:
            yield f"reservation {name} is {reservation['state']} for good"
        if reservation["state"] == "active" and _hops(reservation["path"]) not in standing:
            yield f"reservation {name} is active without a standing path"


def alarms(seen: Seen) -> Iterator[str]:
    for device in seen.get("/v1/devices")["devices"]:
        if device["alarms"] or not device["connected"] or device["detail"]:
            state = "connected" if device["connected"] else "not connected"
            yield f"{device['name']} is {state}, {device['detail']!r}, alarms {device['alarms']}"
    for port in seen.get("/v1/quarantine")["ports"]:
        if not port["on_trial"]:
            yield f"{port['port']} is in quarantine: {port['reason']}"


def changes(seen: Seen) -> Iterator[str]:
    for change in seen.get("/v1/reconfigurations")["reconfigurations"]:
        if change["state"] not in _ENDED:
            yield f"reconfiguration {change['id']} is still {change['state']}"


AGREEMENT: Final[Mapping[str, Callable[[Seen], Iterator[str]]]] = {
    "ready": ready,
    "changes at rest": changes,
    "mirrors": mirrors,
    "carriers": carriers,
    "VLANs": vlans,
    "tables": tables,
    "journal": journal,
    "reservations": reservations,
    "alarms cleared": alarms,
}
"""Checks by name; each yields violations, in words."""


def disagreements(fabric: Fabric, journal_path: Path, base_url: str) -> list[str]:
    """Present disagreements; also for a network still moving."""
    with readers.rest(base_url) as http:
        try:
            reported = ReportedTopology.from_json(
                http.get("/v1/topology").raise_for_status().json()
            )
            seen = Seen(fabric, journal_path, http, reported)
            return [
                f"{name}: {problem}" for name, check in AGREEMENT.items() for problem in check(seen)
            ]
        except httpx.HTTPError as error:
            return [f"REST: {error!r}"]


def _reservations(seen: Seen) -> Iterator[Mapping[str, Any]]:
    """All reservations, from all pages."""
    after = ""
    while True:
        page = seen.get(f"/v1/reservations{after}")
        yield from page["reservations"]
        if page["next"] is None:
            return
        after = f"?after={page['next']}"


def _directions(path: Mapping[str, Any]) -> list[tuple[str, str]]:
    there = path["src"], path["dst"]
    return [there] if path["one_way"] else [there, there[::-1]]


def _hops(path: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(readers.ports_of(path))


def _differences(what: str, there: Set[_ItemT], wanted: Set[_ItemT]) -> Iterator[str]:
    for item in sorted(map(str, there - wanted)):
        yield f"{what}: {item} is there, and should not be"
    for item in sorted(map(str, wanted - there)):
        yield f"{what}: {item} is missing"
