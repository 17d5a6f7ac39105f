"""What the C library is told about memory before threads begin.

glibc gives threads up to eight arenas a core, and never moves free memory from one to another.
Which thread answers which request is chance, so each arena grows to the most that any moment asked
of it. See docs/decisions/0017.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
"""From glibc's ``malloc.h``; see mallopt(3)."""


def share_one_arena() -> bool:
    """Have all threads to come allocate from one arena.

    False where the C library has no arenas to limit.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return False
    return bool(mallopt(_M_ARENA_MAX, 1))
