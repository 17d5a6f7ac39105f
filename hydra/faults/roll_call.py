"""Whether a silent probe is lost, or a switch, the controller or their machine is only late.

A probe and an OpenFlow barrier take the same way through the controller and both switches. So
before a silent probe counts as lost, the controller asks the sending and the hearing switch for a
barrier. A switch handles and answers in order: after both barriers, which left long after the
probe, the probe can't come any more. If a barrier is not answered either, the probe's outcome is
unknown, and no loss. The rule is the same for a busy controller, a busy host and a hung switch. A
dead rack, plane or fabric is found as fast as a single dead link. No clock and no socket: times, in
seconds, are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hydra.model import DatapathId

_ASKED_AFTER: Final = 0.75
"""Part of a time-out after which the switches are asked, so that they have answered at its end."""
_LOOKS: Final = 10
"""Looks in a time-out at whether the switches have answered."""
Ends = tuple[DatapathId, DatapathId]
"""Switches that send and should hear a frame."""


class RollCall:
    """Questions that switches are to be asked, and when each one was asked that they have answered.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._wanted: set[DatapathId] = set()
        self._answered: dict[DatapathId, float] = {}

    def want(self, datapaths: Iterable[DatapathId]) -> None:
        """Have these switches asked."""
        self._wanted.update(datapaths)

    def take(self) -> frozenset[DatapathId]:
        """Switches to ask now."""
        wanted, self._wanted = frozenset(self._wanted), set()
        return wanted

    def answered(self, datapath: DatapathId, asked_s: float) -> None:
        """Note that a switch has answered a question that was asked at ``asked_s``."""
        self._answered[datapath] = asked_s

    def lacks(self, datapath: DatapathId, since_s: float) -> bool:
        """True unless the switch has answered a question that was asked at ``since_s`` or later."""
        return self._answered.get(datapath, float("-inf")) < since_s


class Fate(Enum):
    LOST = "lost"
    UNKNOWN = "unknown"
    OPEN = "open"
    """It is to be looked at again."""


@dataclass(slots=True)
class Silence:
    """A probe under way, of which nothing has been heard yet."""

    sent_s: float
    ends: set[Ends]
    """Of its frames."""
    asked_s: float | None = None
    """Time since which the switches at its ends are asked."""

    def first_look_s(self, timeout_s: float) -> float:
        """Time of the first :meth:`look`."""
        return self.sent_s + _ASKED_AFTER * timeout_s

    def next_look_s(self, now_s: float, timeout_s: float) -> float:
        return max(self.sent_s + timeout_s, now_s + timeout_s / _LOOKS)

    def look(self, now_s: float, timeout_s: float, roll: RollCall) -> Fate:
        """What became of the probe: lost, once both switches of one of its frames have answered;
        unknown, if they have not within a time-out.
        """
        if self.asked_s is None:
            self.asked_s = now_s
        since_s = self.asked_s
        lacking = [[one for one in ends if roll.lacks(one, since_s)] for ends in self.ends]
        if now_s >= self.sent_s + timeout_s and not all(lacking):
            return Fate.LOST
        if now_s >= self.asked_s + timeout_s:
            return Fate.UNKNOWN
        for some in lacking:
            roll.want(some)
        return Fate.OPEN

    def silent(self, roll: RollCall) -> frozenset[DatapathId]:
        """Switches at the probe's ends that have not answered what they were asked about it."""
        since_s = self.sent_s if self.asked_s is None else self.asked_s
        ends = {switch for ends in self.ends for switch in ends}
        return frozenset(one for one in ends if roll.lacks(one, since_s))
