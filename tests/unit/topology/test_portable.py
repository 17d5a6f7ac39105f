"""The code for processors without SSE2, compiled here too, under the same tests."""

from __future__ import annotations

import platform
import subprocess

import pytest

from tests.recompiled import ROOT, compiler, hold, recompiled

pytestmark = pytest.mark.takes(10)

PORTABLE = "-U__SSE2__"
VLAN = ROOT / "topology" / "native" / "vlan.c"


def uses_sse2(*options):
    code = subprocess.run(
        [compiler(), "-E", *options, VLAN], capture_output=True, text=True, check=True
    ).stdout
    return "_mm_movemask_epi8" in code


def test_vlans_are_the_same_without_sse2(tmp_path):
    assert not uses_sse2(PORTABLE)
    assert uses_sse2() == (platform.machine() == "x86_64")
    built = recompiled(tmp_path, ["topology._native"], "-O3", "-ffp-contract=off", PORTABLE)
    hold(built, ["topology/test_vlan_allocation.py"])
