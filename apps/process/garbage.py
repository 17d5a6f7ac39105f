"""Full garbage collections that pass over objects which are there to stay.

A full collection looks at every object, and stops every thread meanwhile: OpenFlow's keep-alives,
too, for a tenth of a second or more where thousands of reservations are remembered.
"""

from __future__ import annotations

import gc
from typing import Any, Final

_MANY: Final = 50_000
"""Objects that outlive a full collection, from which on they are passed over. A few among them
belong to requests under way, and are not collected if they end in a cycle: among so many, that does
not matter."""


def spare_what_stays() -> None:
    """Exempt the objects that are there now, and those that pile up later, from collections."""
    gc.collect()
    gc.freeze()
    if _spare_survivors not in gc.callbacks:
        gc.callbacks.append(_spare_survivors)


def _spare_survivors(phase: str, info: dict[str, Any]) -> None:
    is_full = phase == "stop" and info["generation"] == 2
    if is_full and len(gc.get_objects(generation=2)) > _MANY:
        gc.freeze()
