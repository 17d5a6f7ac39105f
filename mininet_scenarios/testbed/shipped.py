"""Fabrics that come with the emulated data plane."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import mininet_scenarios

_FOLDERS: Final = (
    Path(mininet_scenarios.__file__).parents[1] / "configs",
    Path(sys.prefix) / "share" / "hydra" / "configs",
)
CONFIGS: Final = next(filter(Path.is_dir, _FOLDERS), _FOLDERS[0])
"""Folder of the shipped fabrics: in a clone, or in the environment of a wheel."""
DEFAULT_CONFIG: Final = CONFIGS / "demo.yaml"
