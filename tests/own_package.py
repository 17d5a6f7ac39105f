"""Installs examples/own_package."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_S

OWN_PACKAGE = Path(__file__).parents[1] / "examples" / "own_package"


def installed(folder: Path) -> Path:
    """A directory below ``folder`` with the package, installed by pip."""
    source, target = folder / "source", folder / "target"
    shutil.copytree(OWN_PACKAGE, source)  # a build leaves files
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", target, source], check=True, timeout=PATIENCE_S
    )
    return target
