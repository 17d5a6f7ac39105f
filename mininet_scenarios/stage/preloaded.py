"""Controls a running process's time of day and disk speed, by a preloaded library."""

from __future__ import annotations

import mmap
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from mininet_scenarios.stage.controller_process import Launched, launch

_SOURCE: Final = Path(__file__).with_name("preloaded.c")
_COMPILER: Final = ("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror")
_WORD_BYTES: Final = 8


class Preloaded:
    """Time of day and disk speed of processes started with :attr:`environment`."""

    def __init__(self, directory: Path) -> None:
        """Compile the library into ``directory``, and put the library's input file there."""
        library, path = directory / "preloaded.so", directory / "preloaded"
        subprocess.run([*_COMPILER, "-o", str(library), str(_SOURCE)], check=True)
        path.write_bytes(bytes(2 * _WORD_BYTES))
        with path.open("r+b") as file:
            self._settings = mmap.mmap(file.fileno(), 2 * _WORD_BYTES)
        self.environment: Final[Mapping[str, str]] = {
            "LD_PRELOAD": str(library),
            "HYDRA_PRELOADED_FILE": str(path),
        }

    def launch(self, config: Path, log: BinaryIO) -> Launched:
        """Start a controller as :func:`~mininet_scenarios.stage.controller_process.launch` does."""
        return launch(config, log, self.environment)

    def set_clock_by(self, seconds: int) -> None:
        """Put the time of day so far off."""
        struct.pack_into("q", self._settings, 0, seconds)

    def slow_disk_by(self, seconds: float) -> None:
        """Lengthen each synchronous write by the given time."""
        struct.pack_into("q", self._settings, _WORD_BYTES, round(seconds * 1e6))
