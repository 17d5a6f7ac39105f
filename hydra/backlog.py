"""What waits in a server's sockets, and when that is worth a report (c-Through, section 4.1).

Everything here is for the agent, which is to be small: no arrays, and nothing of the fabric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

BYTES_PER_MB: Final = 1_000_000
_DECIMALS: Final = 1
"""A tenth of the changes that are reported: the rest would be bytes on the wire only."""


@dataclass(frozen=True, slots=True)
class ReportRule:
    """Backlogs are reported above one threshold, and again when they change by another."""

    above_mb: float
    change_mb: float

    def worth_telling(self, backlog_bytes: Mapping[str, int]) -> dict[str, float]:
        """What a report says, in MB by destination; what is not above the threshold counts as 0."""
        waiting = {name: octets / BYTES_PER_MB for name, octets in backlog_bytes.items()}
        return {name: round(mb, _DECIMALS) for name, mb in waiting.items() if mb > self.above_mb}

    def has_changed(self, told_mb: Mapping[str, float], now_mb: Mapping[str, float]) -> bool:
        """Whether what was told last is no longer true enough."""
        return any(
            abs(now_mb.get(name, 0.0) - told_mb.get(name, 0.0)) > self.change_mb
            for name in told_mb.keys() | now_mb.keys()
        )
