"""Optical ports that planning leaves out, because a circuit on them failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hydra.model import Fabric, PortId
from hydra.reconfiguration.plan import Pair
from hydra.reservations.admission import moment
from hydra.reservations.reservation import rack_pair

_CLOCK_STEP_S: Final = 5.0
"""A clock set back by more than this ends timed quarantines: their end can't be told from it."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A port out of use.

    Once its time is up it may be planned with again, on trial: a circuit that passes the gate
    there ends the quarantine, one that fails renews it.
    """

    port: PortId
    reason: str
    since_unix_s: float
    until_unix_s: float | None
    """End of the quarantine; None: when an operator clears it."""
    pairs: tuple[Pair, ...] = ()
    """Rack pairs that a circuit there carried, or was to carry, when it failed."""

    def blocks(self, now_unix_s: float) -> bool:
        """True if no plan may use the port."""
        if self.until_unix_s is None:
            return True
        return self.since_unix_s - _CLOCK_STEP_S <= now_unix_s < self.until_unix_s


def in_words(fabric: Fabric, entry: Quarantined, now_unix_s: float) -> str:
    """A sentence that says what is with a port, since when, and why."""
    port = fabric.ports[entry.port]
    if not entry.blocks(now_unix_s):
        out = "on trial"
    elif entry.until_unix_s is None:
        out = "left out of plans until it is cleared"
    else:
        out = f"left out of plans until {moment(entry.until_unix_s)}"
    name = f"{fabric.racks[port.rack].name}:{port.tor_port}"
    return f"{name} is {out}, since {moment(entry.since_unix_s)}: {entry.reason}"


def quarantine_record(fabric: Fabric, entry: Quarantined) -> dict[str, Any]:
    """``entry`` as a JSON-able record, by names rather than positions."""
    port = fabric.ports[entry.port]
    return {
        "rack": fabric.racks[port.rack].name,
        "port": port.tor_port,
        "reason": entry.reason,
        "since_unix_s": entry.since_unix_s,
        "until_unix_s": entry.until_unix_s,
        "pairs": [[fabric.racks[rack].name for rack in pair] for pair in entry.pairs],
    }


def read_quarantine(fabric: Fabric, record: Mapping[str, Any]) -> Quarantined | None:
    """The entry that :func:`quarantine_record` wrote; None if ``fabric`` lacks its port now."""
    port = fabric.port_by_name.get((record["rack"], record["port"]))
    if port is None:
        return None
    racks = fabric.rack_by_name
    pairs = (
        rack_pair(racks[a].id, racks[b].id)
        for a, b in record.get("pairs", ())
        if {a, b} <= racks.keys()
    )
    return Quarantined(
        port.id, record["reason"], record["since_unix_s"], record["until_unix_s"], tuple(pairs)
    )
