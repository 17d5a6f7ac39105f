"""The configuration file with the drivers and algorithms that are built in."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from drivers.registry import plane_checks, rack_checks
from hydra.config import Loaded, load
from hydra.model import Fabric
from topology.algorithms import ENTRIES, objection
from topology.problem import FabricArrays


def _objection(name: str, fabric: Fabric) -> str | None:
    return objection(name, FabricArrays.of(fabric), one_way=fabric.one_way)


def load_configuration(path: Path) -> Loaded:
    """Read ``path``. Raises ConfigError with all of its problems."""
    return load(
        path,
        optical_drivers=plane_checks(),
        tor_drivers=rack_checks(),
        algorithms={name: partial(_objection, name) for name in ENTRIES},
        sparing={name for name, entry in ENTRIES.items() if entry.spares},
    )


_CHECKED: Final[list[tuple[Path, Loaded]]] = []


def check_configuration(path: Path) -> None:
    """Read ``path`` for the start that follows. Raises ConfigError with all of its problems."""
    _CHECKED[:] = [(path, load_configuration(path))]


def configuration_at_start(path: Path) -> Loaded:
    """The configuration as it was just checked, or else as it is. Raises ConfigError.

    A large one takes half a second to read.
    """
    while _CHECKED:
        checked, loaded = _CHECKED.pop()
        if checked == path:
            return loaded
    return load_configuration(path)
