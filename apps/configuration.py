"""The configuration file with the drivers and algorithms that are built in."""

from __future__ import annotations

from pathlib import Path

from drivers.registry import plane_checks, rack_checks
from hydra.config import Loaded, load
from topology.algorithms import ENTRIES


def load_configuration(path: Path) -> Loaded:
    """Read ``path``. Raises ConfigError with all of its problems."""
    return load(path, optical_drivers=plane_checks(), tor_drivers=rack_checks(), algorithms=ENTRIES)
