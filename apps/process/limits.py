"""Limits of the process on its memory, checked before large imports."""

from __future__ import annotations

import resource
from typing import Final

from hydra.errors import HydraError

LEAST_BYTES: Final = 512 << 20
"""Address space of a controller of the smallest fabric; 10,240 vswitches take six times as much."""
_NAMES: Final = {
    resource.RLIMIT_AS: "address space (ulimit -v, systemd's LimitAS=)",
    resource.RLIMIT_DATA: "data (ulimit -d, systemd's LimitDATA=)",
}
_REMEDY: Final = "raise or remove the limit; to bound memory, use a cgroup, such as MemoryMax="


def check_memory() -> None:
    """Raises HydraError if the process may not have the memory for a controller's start."""
    for limit, name in _NAMES.items():
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY and most < LEAST_BYTES:
            raise HydraError(
                f"the process may have {most >> 20} MiB of {name}, and needs at least "
                f"{LEAST_BYTES >> 20} MiB: {_REMEDY}"
            )


def short_of_memory(error: BaseException) -> HydraError | None:
    """The sentence for an error caused by a limit, or by the machine; None for other errors."""
    words = str(error)
    if isinstance(error, MemoryError) or "can't start new thread" in words:
        limits = [
            f"{most >> 20} MiB of {name}"
            for limit, name in _NAMES.items()
            if (most := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY
        ]
        allowed = (
            f"the process may have {' and '.join(limits)}"
            if limits
            else "no limit of ulimit is set"
        )
        return HydraError(
            f"the process gets no more memory or threads ({words or type(error).__name__}; "
            f"{allowed}): {_REMEDY}, or TasksMax= for threads"
        )
    return None
