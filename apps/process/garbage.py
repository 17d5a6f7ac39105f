"""Full garbage collections that skip permanent objects.

A full collection looks at every object, and stops every thread meanwhile: OpenFlow's keep-alives,
too, for a tenth of a second or more with thousands of remembered reservations.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_MANY: Final = 50_000
"""Number of survivors of a full collection, above which survivors are skipped from then on. A few
of them belong to requests under way, and are not collected if they end in a cycle: too few to
matter.
"""

_THRESHOLDS: Final = (5_000, 10, 5)
"""Full collections come after some 250,000 new objects, and take 20 ms at most: half a million, as
after a large change, would take a tenth of a second at once. See :func:`gc.set_threshold`.
"""


@contextmanager
def uncollected() -> Iterator[None]:
    """A block with large imports, all permanent.

    Looking for garbage there would take a quarter of the block's time, and as much again later.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def exempt_present_objects(*, collect: bool = True) -> None:
    """Exempt present objects, and objects that pile up later, from collections.

    Without ``collect``, present garbage in cycles stays.
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

    Counted in a single call. Other threads, which may be making tuples longer, must not run while
    the list of all objects refers to these tuples. (CPython then raises SystemError at the tuples.)
    """
    return next(map(len, map(gc.get_objects, (2,))))
