"""The configuration file with the drivers and algorithms that are built in."""

from __future__ import annotations

from pathlib import Path

from drivers.registry import OPTICAL_DRIVERS, TOR_DRIVERS
from hydra.config import Loaded, load
from topology.algorithms import ENTRIES


def load_configuration(path: Path) -> Loaded:
    """Read ``path``. Raises ConfigError with all of its problems."""
    return load(path, optical_drivers=OPTICAL_DRIVERS, tor_drivers=TOR_DRIVERS, algorithms=ENTRIES)
