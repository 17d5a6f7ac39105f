"""Memory settings of the C library, made before threads begin.

glibc gives threads up to eight arenas a core, and never moves free memory between arenas. The
thread for a request is chosen by chance, so each arena grows to the largest need of any moment: the
controller's memory grew with every history full. One arena costs no processor time, since Python's
threads mostly hold the GIL when they allocate. ``MALLOC_ARENA_MAX`` in the systemd unit would miss
a start by hand; ``malloc_trim`` gave back 7 of 32 MB that were free in 16 arenas.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8
"""From glibc's ``malloc.h``; see mallopt(3)."""


def share_one_arena() -> None:
    """Let all future threads allocate from one arena, if the C library has several."""
    with suppress(AttributeError):  # musl has no mallopt
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
