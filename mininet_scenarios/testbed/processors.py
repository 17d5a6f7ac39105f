"""Processor time withheld by the host of a virtual machine (``steal`` in proc_stat(5))."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_STAT: Final = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Sums over all processors since the machine's start, in clock ticks."""

    run: int
    """Ticks in which a processor of this machine worked."""
    withheld: int
    """Ticks in which a processor had work, and the host ran other machines."""

    @classmethod
    def now(cls) -> Self:
        return cls.read(_STAT.read_text(encoding="ascii"))

    @classmethod
    def read(cls, stat: str) -> Self:
        """Sums in the text of ``/proc/stat``, whose first line is of all processors."""
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.split()[1:9])
        return cls(user + nice + system + irq + softirq, steal)

    def withheld_share(self, later: ProcessorTime) -> float:
        """Part (0 to 1) of the processor time wanted until ``later`` that the host withheld."""
        withheld = later.withheld - self.withheld
        wanted = later.run - self.run + withheld
        return withheld / wanted if wanted else 0.0
