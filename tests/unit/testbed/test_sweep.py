"""What a testbed leaves behind is found, also where it shows itself late."""

from __future__ import annotations

import signal
import subprocess

import pytest

from mininet_scenarios.testbed import sweep


def test_a_process_that_did_not_look_like_a_member_at_first_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one does that is just being executed."""
    child = subprocess.Popen(["sleep", "1000"])
    looks = iter([[], [child.pid], [], []])
    monkeypatch.setattr(sweep, "members", lambda: next(looks))
    try:
        sweep._kill_members()
        assert child.wait(5) == -signal.SIGKILL
    finally:
        child.kill()
