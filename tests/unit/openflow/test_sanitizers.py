"""The C modules, compiled with sanitizers, under the tests of each module."""

from __future__ import annotations

import subprocess

import pytest

from tests.recompiled import FOLDERS, compiler, hold, recompiled

pytestmark = pytest.mark.takes(20)

TESTS = ("openflow/test_lines.py", "openflow/test_rule_tables.py", "topology/test_native.py")


def test_the_same_under_sanitizers(tmp_path):
    library = subprocess.run(
        [compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    built = recompiled(tmp_path, FOLDERS, *options)
    # The interpreter keeps memory at its end: leak checks cover only the tests' own objects.
    kept = "detect_leaks=0:abort_on_error=0:exitcode=99"
    hold(built, TESTS, LD_PRELOAD=library, ASAN_OPTIONS=kept)
