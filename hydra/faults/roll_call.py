"""Loss of probes: distinguish a lost probe from a late switch, controller or machine.

A probe and an OpenFlow barrier take the same way through the controller and both switches. So
before a silent probe counts as lost, the controller sends a barrier request to the sending and the
receiving switch. A switch works in order: after both barrier replies, requested long after the
probe, the probe cannot arrive any more. Without a barrier reply, the outcome of the probe is
unknown, and is no loss. The rule is the same for a busy controller, a busy host and a hung switch.
A dead rack, plane or fabric is found as fast as a single dead link. No clock and no socket: times,
in seconds, are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hydra.model import DatapathId

_ASKED_AFTER: Final = 0.75
"""Share of a time-out after which barrier requests are sent, so that the replies arrive before the
end of the time-out.
"""
_LOOKS: Final = 10
"""Number of checks for barrier replies during a time-out."""
Ends = tuple[DatapathId, DatapathId]
"""Sending and receiving switch of a frame."""


class RollCall:
    """Barrier requests to send, and the time of the last answered request of each switch. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._wanted: set[DatapathId] = set()
        self._answered: dict[DatapathId, float] = {}

    def want(self, datapaths: Iterable[DatapathId]) -> None:
        """Queue a barrier request to each switch."""
        self._wanted.update(datapaths)

    def take(self) -> frozenset[DatapathId]:
        """Return and clear the switches that are to get a barrier request now."""
        wanted, self._wanted = frozenset(self._wanted), set()
        return wanted

    def answered(self, datapath: DatapathId, asked_s: float) -> None:
        """Note the reply to a barrier request sent at ``asked_s``."""
        self._answered[datapath] = asked_s

    def lacks(self, datapath: DatapathId, since_s: float) -> bool:
        """True unless the switch has replied to a barrier request sent at ``since_s`` or later."""
        return self._answered.get(datapath, float("-inf")) < since_s


class Fate(Enum):
    LOST = "lost"
    UNKNOWN = "unknown"
    OPEN = "open"
    """To be checked again."""


@dataclass(slots=True)
class Silence:
    """A probe under way without an answer."""

    sent_s: float
    ends: set[Ends]
    """Switch pairs of the frames."""
    asked_s: float | None = None
    """Time of the first barrier request to the switches at the ends."""

    def first_look_s(self, timeout_s: float) -> float:
        """Time of the first :meth:`look`."""
        return self.sent_s + _ASKED_AFTER * timeout_s

    def next_look_s(self, now_s: float, timeout_s: float) -> float:
        return max(self.sent_s + timeout_s, now_s + timeout_s / _LOOKS)

    def look(self, now_s: float, timeout_s: float, roll: RollCall) -> Fate:
        """Fate of the probe: lost, once both switches of a frame have replied; unknown, if a switch
        has not replied within a time-out.
        """
        if self.asked_s is None:
            self.asked_s = now_s
        since_s = self.asked_s
        lacking = [[end for end in ends if roll.lacks(end, since_s)] for ends in self.ends]
        if now_s >= self.sent_s + timeout_s and not all(lacking):
            return Fate.LOST
        if now_s >= self.asked_s + timeout_s:
            return Fate.UNKNOWN
        for some in lacking:
            roll.want(some)
        return Fate.OPEN

    def silent(self, roll: RollCall) -> frozenset[DatapathId]:
        """Switches at the ends that have not replied to a barrier request sent after the probe."""
        since_s = self.sent_s if self.asked_s is None else self.asked_s
        ends = {switch for ends in self.ends for switch in ends}
        return frozenset(end for end in ends if roll.lacks(end, since_s))
