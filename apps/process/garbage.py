"""Full garbage collections that pass over what is there to stay.

One looks at every object there is, and stops every thread meanwhile: OpenFlow's keep-alives, too,
for a tenth of a second or more where thousands of reservations are remembered.
"""

from __future__ import annotations

import gc
from typing import Any, Final

_MANY: Final = 50_000
"""Objects that outlived a full collection. A few among them belong to requests under way, and would
not be collected if they ended in a cycle: so many to one, that does not matter."""


def spare_what_stays() -> None:
    """What is there now, and later what piles up, is not looked at again."""
    gc.collect()
    gc.freeze()
    if _spare_survivors not in gc.callbacks:
        gc.callbacks.append(_spare_survivors)


def _spare_survivors(phase: str, info: dict[str, Any]) -> None:
    is_full = phase == "stop" and info["generation"] == 2
    if is_full and len(gc.get_objects(generation=2)) > _MANY:
        gc.freeze()
