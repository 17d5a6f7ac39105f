"""Optical ports excluded from planning, because a circuit there failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hydra.model import Fabric, Pair, PortId
from hydra.reservations.admission import moment
from hydra.reservations.reservation import rack_pair

_CLOCK_STEP_S: Final = 5.0
"""If a clock is set back by more than this time, timed quarantines end, since the end is
unknown.
"""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A quarantined port.

    After the quarantine time, plans may use the port on trial: a circuit that passes the gate ends
    the quarantine, a failed circuit renews the quarantine.
    """

    port: PortId
    reason: str
    since_unix_s: float
    until_unix_s: float | None
    """End of the quarantine; None: cleared by an operator only."""
    pairs: tuple[Pair, ...] = ()
    """Rack pairs that a circuit at the port carried, or was to carry, at the failure."""

    def blocks(self, now_unix_s: float) -> bool:
        """True if no plan may use the port."""
        if self.until_unix_s is None:
            return True
        return self.since_unix_s - _CLOCK_STEP_S <= now_unix_s < self.until_unix_s


def in_words(fabric: Fabric, entry: Quarantined, now_unix_s: float) -> str:
    """A sentence with the status of a port, the start, and the reason."""
    port = fabric.ports[entry.port]
    if not entry.blocks(now_unix_s):
        out = "on trial"
    elif entry.until_unix_s is None:
        out = "left out of plans until cleared"
    else:
        out = f"left out of plans until {moment(entry.until_unix_s)}"
    name = f"{fabric.racks[port.rack].name}:{port.tor_port}"
    return f"{name} is {out}, since {moment(entry.since_unix_s)}: {entry.reason}"


def quarantine_record(fabric: Fabric, entry: Quarantined) -> dict[str, Any]:
    """``entry`` as a JSON-able record, with names instead of positions."""
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
    """Read a record of :func:`quarantine_record`; None if ``fabric`` lacks the port."""
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
