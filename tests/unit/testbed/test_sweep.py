"""Remains of a testbed are found, even remains that appear late."""

from __future__ import annotations

import os
import signal
import subprocess
from itertools import chain, repeat

import pytest

from mininet_scenarios.testbed import sweep
from tests.waiting import PATIENCE_S

NOTHING: list[int] = []


def test_a_process_that_did_not_look_like_a_member_at_first_ends_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is just being executed."""
    child = subprocess.Popen(["sleep", "1000"])
    looks = chain([NOTHING, [child.pid]], repeat(NOTHING))
    monkeypatch.setattr(sweep, "members", lambda: next(looks))
    try:
        sweep._kill_members()
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        child.kill()


def stat(*, state: str = "R", flags: int = 0, environment_end: int = 0) -> list[str]:
    """The fields of this process, with these values among them."""
    fields = list(sweep._stats()[os.getpid()])
    fields[sweep._STATE], fields[sweep._FLAGS] = state, str(flags)
    fields[sweep._ENVIRONMENT_END] = str(environment_end)
    return fields


def test_a_member_that_is_being_executed_for_long_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    here, stats = os.getpid(), sweep._stats
    pictures = chain(repeat({here: stat()}, 5), iter(stats, None))
    looks = chain(repeat(NOTHING, 5), [[child.pid]], repeat(NOTHING))
    monkeypatch.setattr(sweep, "_stats", lambda: next(pictures))
    monkeypatch.setattr(sweep, "members", lambda: next(looks))
    try:
        sweep._kill_members()
        assert child.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (stat(), True),
        (stat(environment_end=4096), False),
        (stat(state="Z"), False),
        (stat(flags=sweep._EXITS), False),
        (stat(flags=sweep._IN_KERNEL), False),
    ],
)
def test_who_is_being_executed(fields: list[str], expected: bool) -> None:
    assert sweep._being_executed({os.getpid(): fields}) == expected


def test_whoever_was_killed_has_ended_when_all_are_said_to_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that no longer looks like a member may still hold interfaces and namespaces."""
    here = os.getpid()
    pictures = chain(repeat({here: stat(environment_end=4096)}, 5), repeat({}))
    seen = []

    def look() -> sweep._Stats:
        seen.append(next(pictures))
        return seen[-1]

    looks = chain([[here]], repeat(NOTHING))
    monkeypatch.setattr(sweep, "_stats", look)
    monkeypatch.setattr(sweep, "members", lambda: next(looks))
    monkeypatch.setattr(os, "kill", lambda *_: None)
    sweep._kill_members()
    assert len(seen) == 5 + 2
