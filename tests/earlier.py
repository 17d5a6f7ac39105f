"""Earlier releases of this program, to be run beside the present one.

``tests/releases`` has them as archives by the names of their commits, so that no test depends on
how much history a checkout has; ``scripts/keep_release.sh`` makes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from mininet_scenarios.stage.controller_process import Launched, launch

ROOT = Path(__file__).parents[1]
ARCHIVES = sorted((ROOT / "tests" / "releases").glob("*.tar.xz"))


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier release, in a folder of its own, with the packages of this environment."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which Python finds it before the present one."""
        return MappingProxyType({"PYTHONPATH": str(self.folder), "PYTHONUNBUFFERED": "1"})

    def launch(self, config: Path, log: BinaryIO) -> Launched:
        """As :func:`mininet_scenarios.stage.controller_process.launch`."""
        return launch(config, log, self.environment, self.folder / "apps" / "main.py")

    def start(self, command: str, *arguments: str, log: BinaryIO) -> subprocess.Popen[bytes]:
        """Run a program of this environment's, such as ``hydra``, with the earlier release."""
        return subprocess.Popen(
            [Path(sys.executable).with_name(command), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **self.environment},
        )


def unpacked(archive: Path, folder: Path) -> Earlier:
    """A release that is kept as an archive, ready to run."""
    with tarfile.open(archive) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Debian 12's Python
        file.extractall(folder)  # noqa: S202  (it is ours)
    release = folder / archive.name.removesuffix(".tar.xz")
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=release,
        check=True,
        capture_output=True,
    )
    return Earlier(release)
