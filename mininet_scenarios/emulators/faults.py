"""Faults that an emulated optical switch simulates on request."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class FaultKind(Enum):
    REFUSE = "refuse"
    """Commands that move mirrors add an entry to the error queue, and do nothing."""
    SILENT = "silent"
    """Commands that move mirrors do nothing and report no error."""
    PARTIAL = "partial"
    """Only the first half of a command's cross-connects is made; no error is reported."""
    NO_LIGHT = "no-light"
    """New cross-connects exist, but their egress ports stay dark: a fibre or mirror is broken.
    Standing cross-connects keep their light.
    """
    LOOP = "loop"
    """The light of each port connected by a command is led back to the same port; cross-connects
    are listed as commanded.
    """
    SWAP = "swap"
    """The light of each port connected by a command comes out of the next port's egress port."""
    ONE_WAY = "one-way"
    """Of the cross-connects of a command, each second leads nowhere, and gives light."""
    BROADCAST = "broadcast"
    """The light of each port connected by a command comes out at the listed port, and at a second
    port in use.
    """
    LATE = "late"
    """The switch reports the end of a move ``delay_s`` before the mirrors move."""
    STEAL = "steal"
    """A busy port is torn from its cross-connect instead of being refused."""
    LOSE_REPLY = "lose-reply"
    """A command takes effect, and the connection closes without a reply."""
    SLOW = "slow"
    """Every reply comes late, by ``delay_s``."""
    MUTE = "mute"
    """Connections are accepted and never answered; commands have no effect."""
    DEAD = "dead"
    """Connections are closed and new connections refused; the mirrors stay unchanged."""
    KILL = "kill"
    """A command that moves mirrors makes the first half of the cross-connects, then the connection
    closes.
    """
    RESERVED = "reserved"
    """Cross-connects are entered and never become active (Calient)."""
    AUTONOMOUS = "autonomous"
    """An autonomous message stands between a command and its reply (TL1)."""
    BLOCKS = "blocks"
    """Replies come in blocks of one record each (TL1)."""
    WRONG_CTAG = "wrong-ctag"
    """A command is carried out, and the reply bears a foreign ctag (TL1)."""
    ECHO = "echo"
    """Commands are echoed before the answer (TL1)."""
    IDLE_LOGOUT = "idle-logout"
    """The session is logged out before the command, as after a long silence (TL1)."""
    PAGER = "pager"
    """Output stops every few lines until a key is pressed, even if the pager is off (CLI)."""
    WRAP = "wrap"
    """Lists of VLANs are continued on further lines (command line)."""
    GARBLED = "garbled"
    """Every third byte of a reply is replaced: a bad serial line."""
    HALF_A_LINE = "half-a-line"
    """Replies break off in the middle, and the connection stays."""
    MERGE = "merge"
    """VLANs are added to a port's VLANs, instead of replacing them (ToR switches)."""


LIES: Final = (
    FaultKind.LOOP,
    FaultKind.SWAP,
    FaultKind.ONE_WAY,
    FaultKind.BROADCAST,
    FaultKind.LATE,
)
"""Faults by which light differs from the switch's report."""

OF_SESSIONS: Final = frozenset(
    {
        FaultKind.KILL,
        FaultKind.LOSE_REPLY,
        FaultKind.SLOW,
        FaultKind.MUTE,
        FaultKind.DEAD,
    }
)
"""Faults of replies and connections, played by every emulator."""
OF_SWITCHES: Final = OF_SESSIONS | {
    FaultKind.REFUSE,
    FaultKind.SILENT,
    FaultKind.PARTIAL,
    FaultKind.NO_LIGHT,
    FaultKind.STEAL,
    *LIES,
}
"""Faults played by every emulated optical switch."""
OF_BAD_LINES: Final = frozenset({FaultKind.GARBLED, FaultKind.HALF_A_LINE})
OF_TL1: Final = frozenset(
    {
        FaultKind.AUTONOMOUS,
        FaultKind.BLOCKS,
        FaultKind.WRONG_CTAG,
        FaultKind.ECHO,
        FaultKind.IDLE_LOGOUT,
    }
)
OF_TORS: Final = OF_SESSIONS | {FaultKind.REFUSE, FaultKind.SILENT, FaultKind.MERGE}
"""Faults played by every emulated ToR switch."""


@dataclass(slots=True)
class _Armed:
    remaining: int | None
    delay_s: float


@dataclass(slots=True)
class Faults:
    """Armed faults, each for a number of commands (None: until cleared)."""

    _armed: dict[FaultKind, _Armed] = field(default_factory=dict)

    def arm(self, kind: FaultKind, times: int | None, delay_s: float) -> None:
        self._armed[kind] = _Armed(times, delay_s)

    def clear(self) -> None:
        self._armed.clear()

    def active(self, kind: FaultKind) -> bool:
        """True if a fault is armed; does not use the fault up."""
        return kind in self._armed

    def strikes(self, kind: FaultKind) -> bool:
        """True if a fault hits the present command; uses up one strike."""
        armed = self._armed.get(kind)
        if armed is None:
            return False
        if armed.remaining is not None:
            armed.remaining -= 1
            if armed.remaining <= 0:
                del self._armed[kind]
        return True

    def distorted(self, reply: bytes) -> bytes:
        """A reply as received by the client."""
        if self.strikes(FaultKind.GARBLED):
            return bytes(0x7E if place % 3 == 2 else byte for place, byte in enumerate(reply))
        if self.strikes(FaultKind.HALF_A_LINE):
            return reply[: len(reply) // 2]
        return reply

    @property
    def delay_s(self) -> float:
        return self.delay_of(FaultKind.SLOW)

    def delay_of(self, kind: FaultKind) -> float:
        armed = self._armed.get(kind)
        return 0.0 if armed is None else armed.delay_s
