"""Values over time in one line of text, for the terminal while the rest is still running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BLOCKS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """A block for each value; the highest block is the greatest value."""
    top = max(values) or 1.0
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in values)
