"""Full garbage collections that pass over objects which are there to stay.

A full collection looks at every object, and stops every thread meanwhile: OpenFlow's keep-alives,
too, for a tenth of a second or more where thousands of reservations are remembered.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_MANY: Final = 50_000
"""Objects that outlive a full collection, from which on they are passed over. A few among them
belong to requests under way, and are not collected if they end in a cycle: among so many, that does
not matter."""

_THRESHOLDS: Final = (5_000, 10, 5)
"""Full collections come after some 250,000 new objects, and take 20 ms at most: half a million,
as a large change leaves them, would take a tenth of a second at once. See :func:`gc.set_threshold`.
"""


@contextmanager
def uncollected() -> Iterator[None]:
    """A block that imports much, all of which is there to stay.

    Looking for garbage in it would take a quarter of the block's time, and as much again later.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def spare_what_stays(*, collect: bool = True) -> None:
    """Exempt the objects that are there now, and those that pile up later, from collections.

    Without ``collect``, what is garbage by now, and in a cycle, stays.
    """
    if collect:
        gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    if _spare_survivors not in gc.callbacks:
        gc.callbacks.append(_spare_survivors)


def _spare_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2 and _survivors() > _MANY:
        gc.freeze()


def _survivors() -> int:
    """The number of objects that have outlived a full collection.

    Counted in one call: other threads, which may be making tuples longer, must not have their turn
    while the list of all objects refers to these. (CPython then raises SystemError at them.)
    """
    return next(map(len, map(gc.get_objects, (2,))))
