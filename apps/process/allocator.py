"""Memory settings of the C library, made before threads begin.

glibc gives threads up to eight arenas a core, and never moves free memory from one to another.
Which thread answers which request is chance, so each arena grows to the most that any moment asked
of it. See docs/decisions/0019.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8
"""From glibc's ``malloc.h``; see mallopt(3)."""


def share_one_arena() -> None:
    """Have all threads to come allocate from one arena, where the C library has several."""
    with suppress(AttributeError):  # it has no mallopt: musl
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
