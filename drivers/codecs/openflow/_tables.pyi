"""Tables of rules, to be recognised in flow statistics (native/tables.h)."""

from numpy import uint64
from numpy.typing import NDArray

def octets_by_subject(body: bytes, mask: int, totals: NDArray[uint64]) -> float:
    """Adds to ``totals``, and returns the age in s of the oldest entry.

    Raises ValueError if the entries' lengths do not add up.
    """

class Table:
    def __init__(self, flow_mods: bytes, cookie_mask: int) -> None:
        """Raises ValueError for anything else than flow-mods."""
    def __len__(self) -> int: ...
    def held_with(self, own: Table, body: bytes) -> bool: ...
