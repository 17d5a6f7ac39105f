"""Failures of the tools that build the testbed."""

from __future__ import annotations

import pytest

from mininet_scenarios.testbed import TestbedError
from mininet_scenarios.testbed.shell import run

SLOW = """\
2026-11-26T01:28:03Z|00002|timeval|WARN|Unreasonably long 2100ms poll interval (1ms user)
2026-11-26T01:28:03Z|00003|timeval|WARN|faults: 204 minor, 0 major
"""
BROKEN = "ovs-vsctl: Error detected while setting up 'hyv-h11'.  See ovs-vswitchd log.\n"
SAYS = ["sh", "-c", 'printf %s "$0" >&2; echo done']


def test_that_the_machine_is_slow_is_no_failure_of_a_tool() -> None:
    assert run([*SAYS, SLOW], complaint_is_failure=True) == "done\n"


@pytest.mark.parametrize("complaint", [BROKEN, SLOW + BROKEN, BROKEN + SLOW])
def test_what_else_it_complains_of_is_one(complaint: str) -> None:
    with pytest.raises(TestbedError, match="Error detected while setting up"):
        run([*SAYS, complaint], complaint_is_failure=True)
