"""A client of the controller's REST API, with the requests of the scenarios."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import httpx

from hydra.errors import HydraError
from hydra.lifecycle import RECONFIGURATION_TRANSITIONS, ReconfigurationState
from hydra.policy import Rotation
from hydra_hybrid_network_client.errors import ClientError, document_of
from hydra_hybrid_network_client.synchronous.connection import Connection
from mininet_scenarios.patience import PATIENCE_S

_FINAL_STATES: Final = frozenset(
    state.value for state in ReconfigurationState if not RECONFIGURATION_TRANSITIONS[state]
)
_POLL_S: Final = 0.05


class ControllerError(HydraError):
    """The controller failed to carry out a request."""


@dataclass(frozen=True, slots=True)
class PairDemand:
    """Traffic wanted between two racks, in both directions."""

    a: str
    b: str
    mbps: float

    def entries(self) -> list[dict[str, Any]]:
        return [
            {"src": self.a, "dst": self.b, "mbps": self.mbps},
            {"src": self.b, "dst": self.a, "mbps": self.mbps},
        ]


@dataclass(frozen=True, slots=True)
class OneWayDemand:
    """Traffic wanted from one rack to another."""

    src: str
    dst: str
    mbps: float

    def entries(self) -> list[dict[str, Any]]:
        return [{"src": self.src, "dst": self.dst, "mbps": self.mbps}]


@dataclass(frozen=True, slots=True)
class ListedSlot:
    """A slot of a schedule."""

    length_s: float
    """Night and day together."""
    circuits: Mapping[str, Sequence[tuple[str, str]]]
    """Pairs of racks by plane."""
    paths: Sequence[Sequence[str]] = ()
    """Racks along each path of several hops."""


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A step of a reconfiguration, in ms from the start; ``device`` is None for a step as a
    whole.
    """

    step: str
    device: str | None
    started_ms: float
    finished_ms: float
    note: str


@dataclass(frozen=True, slots=True)
class ReconfigurationRecord:
    """A reconfiguration as described by the controller."""

    id: str
    state: str
    trigger: str
    created_unix_s: float
    timeline: tuple[TimelineStep, ...]
    rules_pushed: int
    ports_retagged: int
    reason: str
    started_unix_s: float | None = None
    """Start of the timeline."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            id=str(data["id"]),
            state=str(data["state"]),
            trigger=str(data["trigger"]),
            created_unix_s=float(data["created_unix_s"]),
            timeline=tuple(
                TimelineStep(
                    str(step["step"]),
                    step.get("device"),
                    float(step["started_ms"]),
                    float(step["finished_ms"]),
                    str(step.get("note", "")),
                )
                for step in data["timeline"]
            ),
            rules_pushed=int(data["rules_pushed"]),
            ports_retagged=int(data["ports_retagged"]),
            reason=str(data.get("reason", "")),
            started_unix_s=data.get("started_unix_s"),
        )

    @property
    def finished(self) -> bool:
        return self.state in _FINAL_STATES


@dataclass(frozen=True, slots=True)
class Route:
    """A path as far as a scenario cares, in hop order; without planes, the electrical network."""

    planes: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    """Racks on the way, without the path's ends."""
    vlan: int | None = field(default=None, compare=False)
    """The VLAN-ID of the path's frames; None for untagged frames."""

    def __str__(self) -> str:
        if not self.planes:
            return "the electrical network"
        via = f" via {', '.join(self.relays)}" if self.relays else ""
        return f"{', '.join(self.planes)}{via}"


def _topology(
    circuits: Mapping[str, Sequence[tuple[str, str]]], paths: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """A topology in the form of a request."""
    wanted = [
        {"plane": plane, "a": a, "b": b} for plane, pairs in circuits.items() for a, b in pairs
    ]
    return {"circuits": wanted, "paths": [list(path) for path in paths]}


class ControllerClient:
    """A connection to one controller; a context manager.

    Methods raise ControllerError if the controller refuses or does not answer.
    """

    def __init__(self, base_url: str, token: str | None = None) -> None:
        """``token`` is needed where the controller knows people by tokens."""
        self._connection = Connection(base_url, token, timeout_s=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def path_between(self, a: str, b: str) -> Route:
        """The path between two racks, in either order."""
        for path in self._json("GET", "/v1/topology")["paths"]:
            if {path["src"], path["dst"]} == {a, b}:
                hops = path["hops"]
                planes = tuple(str(hop["plane"]) for hop in hops)
                relays = tuple(str(hop["to_rack"]) for hop in hops[:-1])
                return Route(planes, relays, path["vlan"])
        return Route()

    def reconfigurations(self) -> Sequence[ReconfigurationRecord]:
        """The controller's list of reconfigurations, newest first."""
        items = self._json("GET", "/v1/reconfigurations")["reconfigurations"]
        return [ReconfigurationRecord.from_json(item) for item in items]

    def reconfigure(
        self,
        demand: Sequence[PairDemand | OneWayDemand],
        *,
        racks: Collection[str] | None = None,
        use_planes: Collection[str] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> ReconfigurationRecord:
        """Ask for a topology and wait for the end of the change.

        Raises ControllerError unless the reconfiguration is *done* with nothing left out.
        """
        return self._done(self.request(demand, racks=racks, use_planes=use_planes), timeout_s)

    def _done(self, reconfiguration_id: str, timeout_s: float) -> ReconfigurationRecord:
        record = self._await_end(reconfiguration_id, timeout_s)
        if record.state != ReconfigurationState.DONE.value:
            raise ControllerError(
                f"reconfiguration {record.id} ended {record.state}: {record.reason or 'no reason'}"
            )
        return record

    def apply(
        self,
        circuits: Mapping[str, Sequence[tuple[str, str]]],
        paths: Sequence[Sequence[str]] = (),
        timeout_s: float = PATIENCE_S,
    ) -> ReconfigurationRecord:
        """Set up circuits, given as pairs of racks by plane, and wait for the end of the change.

        ``paths``: racks along each path of several hops. Raises ControllerError unless the
        reconfiguration is *done*.
        """
        body = {"topology": _topology(circuits, paths)}
        started = self._json("POST", "/v1/reconfigurations", body=body)
        return self._done(str(started["id"]), timeout_s)

    def follow(
        self, schedule: Rotation | Sequence[ListedSlot], slot_s: float | None = None
    ) -> None:
        """Follow a schedule until :meth:`end_schedule`: by name, or its slots in order.

        ``slot_s`` is the length of a named schedule's slots, None for the policy's. Raises
        ControllerError, and nothing changes, if a slot can't be set up.
        """
        if isinstance(schedule, Rotation):
            self._json("PUT", "/v1/schedule", body={"name": schedule.value, "slot_s": slot_s})
            return
        slots = [
            {"length_s": slot.length_s, "topology": _topology(slot.circuits, slot.paths)}
            for slot in schedule
        ]
        self._json("PUT", "/v1/schedule", body={"slots": slots, "slot_s": slot_s})

    def end_schedule(self) -> None:
        """Go back to the policy; circuits of the last slot stay until something moves them."""
        self._json("DELETE", "/v1/schedule")

    def request(
        self,
        demand: Sequence[PairDemand | OneWayDemand],
        *,
        racks: Collection[str] | None = None,
        use_planes: Collection[str] | None = None,
    ) -> str:
        """Ask for a topology; returns the identifier of the reconfiguration at once."""
        body = {
            "demand": [entry for pair in demand for entry in pair.entries()],
            "racks": None if racks is None else sorted(racks),
            "use_planes": None if use_planes is None else sorted(use_planes),
        }
        return str(self._json("POST", "/v1/reconfigurations", body=body)["id"])

    def reconfiguration(self, reconfiguration_id: str) -> ReconfigurationRecord:
        path = f"/v1/reconfigurations/{reconfiguration_id}"
        return ReconfigurationRecord.from_json(self._json("GET", path))

    def set_aside(self, rack: str, port: str, reason: str) -> None:
        """Leave an optical port out of planning, until the controller ends."""
        self._json("PUT", f"/v1/quarantine/{rack}/{port}", body={"reason": reason})

    def clear(self, rack: str, port: str) -> None:
        """Use a port again after :meth:`set_aside`."""
        self._json("DELETE", f"/v1/quarantine/{rack}/{port}")

    def set_aside_ports(self) -> Sequence[tuple[str, str]]:
        """All ports left out of planning, by rack and name."""
        ports = self._json("GET", "/v1/quarantine")["ports"]
        return [(str(port["rack"]), str(port["port"])) for port in ports]

    def reload(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Reload the configuration file; returns the keys that wait for the next start.

        ``dry_run`` changes nothing.
        """
        done = self._json("POST", "/v1/reload", body={"dry_run": dry_run})
        return tuple(str(change["key"]) for change in done["waiting"])

    def amend(self, changes: Mapping[str, Any]) -> None:
        """Change values of the policy, until the next reload."""
        self._json("PATCH", "/v1/policy", body=changes)

    def most_measured_mbps(self) -> float:
        """Measured rate of the rack pair that sends most, in Mbps; 0 if none sends."""
        entries = self._json("GET", "/v1/demand")["entries"]
        return max((float(entry["rate_mbps"]) for entry in entries), default=0.0)

    def electrical_share(self, src: str, dst: str) -> float:
        """Electrical share of a pair's flows while its circuit is full; 0 without a spill."""
        entries = self._json("GET", "/v1/demand")["entries"]
        found = [entry for entry in entries if (entry["src"], entry["dst"]) == (src, dst)]
        return float(found[0]["electrical_share"]) if found else 0.0

    def schedule(self) -> Mapping[str, Any]:
        """Slots of ``sharing: slotted``, or of a given schedule, as carried out."""
        return self._json("GET", "/v1/schedule")

    def metrics(self) -> str:
        """The metrics in Prometheus' format."""
        return self._request("GET", "/metrics").text

    def changes_done(self) -> frozenset[str]:
        """Identifiers of the reconfigurations in the state *done*."""
        done = ReconfigurationState.DONE.value
        return frozenset(change.id for change in self.reconfigurations() if change.state == done)

    def circuits_per_plane(self) -> Counter[str]:
        """Number of circuits up by the controller's report, by plane."""
        return Counter(
            str(circuit["plane"]) for circuit in self._json("GET", "/v1/topology")["circuits"]
        )

    def _json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        return document_of(self._request(method, path, **more))

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return self._connection.request(method, path, **more)
        except ClientError as error:
            raise ControllerError(str(error)) from error

    def _await_end(self, reconfiguration_id: str, timeout_s: float) -> ReconfigurationRecord:
        deadline_s = time.monotonic() + timeout_s
        while True:
            record = self.reconfiguration(reconfiguration_id)
            if record.finished:
                return record
            if time.monotonic() > deadline_s:
                raise ControllerError(
                    f"reconfiguration {record.id} is still {record.state} after {timeout_s:.0f} s"
                )
            time.sleep(_POLL_S)
