"""Modules of C compiled anew, with options of a test's own, and tests run on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "apps.openflow._lines": "apps/openflow/native",
    "drivers.codecs.openflow._tables": "drivers/codecs/openflow/native",
    "topology._native": "topology/native",
}
_RUN = """
import importlib, importlib.util, sys
import pytest
while sys.argv[1] != "--":
    name, built = sys.argv[1:3]
    del sys.argv[1:3]
    importlib.import_module(name.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, built)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def compiler() -> str:
    found = shutil.which("gcc")
    assert found, "no gcc here: apt-get install gcc libc6-dev"
    return found


def recompiled(folder: Path, modules: Iterable[str], *options: str) -> dict[str, Path]:
    """The modules, by name, compiled into ``folder``."""
    include = subprocess.run(
        ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    built = {name: folder / f"{name}.abi3.so" for name in modules}
    for name, target in built.items():
        subprocess.run(
            [
                compiler(), "-std=c11", "-fPIC", "-shared", "-pthread", f"-I{include}",
                "-DPy_LIMITED_API=0x030B0000", *options, "-o", target,
                *sorted((ROOT / FOLDERS[name]).glob("*.c")),
            ],
            check=True,
        )  # fmt: skip
    return built


def hold(modules: Mapping[str, Path], tests: Iterable[str], **environment: str) -> None:
    """Run files of tests on the modules, in a process of its own."""
    files = [ROOT / "tests" / "unit" / name for name in tests]
    built = [part for module in modules.items() for part in module]
    run = subprocess.run(
        [sys.executable, "-c", _RUN, *built, "--", *files],
        env={**os.environ, **environment},
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
