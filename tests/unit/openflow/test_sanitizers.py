"""The C modules, compiled with sanitizers, under the tests of each module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.takes(20)

ROOT = Path(__file__).parents[3]
MODULES = {
    "apps.openflow._lines": "apps/openflow/native",
    "drivers.codecs.openflow._tables": "drivers/codecs/openflow/native",
    "topology._native": "topology/native",
}
TESTS = [
    ROOT / "tests" / "unit" / name
    for name in (
        "openflow/test_lines.py",
        "openflow/test_rule_tables.py",
        "topology/test_native.py",
    )
]
RUN = """
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


def test_the_same_under_sanitizers(tmp_path):
    compiler = shutil.which("gcc")
    assert compiler, "no gcc here: apt-get install gcc libc6-dev"
    library = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    include = subprocess.run(
        ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    built = []
    for name, folder in MODULES.items():
        built += [name, tmp_path / f"{name}.abi3.so"]
        subprocess.run(
            [
                compiler, "-std=c11", "-O1", "-g", "-fPIC", "-shared", "-pthread", f"-I{include}",
                "-DPy_LIMITED_API=0x030B0000", "-fsanitize=address,undefined",
                "-fno-sanitize-recover=all", "-o", built[-1], *sorted((ROOT / folder).glob("*.c")),
            ],
            check=True,
        )  # fmt: skip
    # The interpreter keeps memory at its end: leak checks cover only the tests' own objects.
    options = "detect_leaks=0:abort_on_error=0:exitcode=99"
    run = subprocess.run(
        [sys.executable, "-c", RUN, *built, "--", *TESTS],
        env={**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": options},
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
