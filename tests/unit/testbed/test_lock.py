"""One testbed per machine: waiting, the name of the holder, and children of the holder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mininet_scenarios.testbed import TestbedError
from mininet_scenarios.testbed import __main__ as command
from mininet_scenarios.testbed.lock import testbed_lock as lock
from tests.waiting import PATIENCE_S, once

PROGRAM = """
import pathlib, sys
from mininet_scenarios.testbed.lock import testbed_lock
with testbed_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_a_stranger_waits_and_says_for_whom(path: Path) -> None:
    with holder(path) as first:
        assert first.stdout.readline() == "held\n"
        with holder(path) as second:
            said = second.stderr.readline()
            assert said.startswith("waiting for the testbed: ")
            assert f"is held by process {first.pid} ({sys.executable}" in said
            assert second.poll() is None
            first.stdin.close()  # ends the first
            assert second.stdout.readline() == "held\n"
            second.stdin.close()


def test_a_clean_up_does_not_wait_and_says_how_to_end_the_holder(path: Path) -> None:
    with holder(path) as first:
        assert first.stdout.readline() == "held\n"
        told = rf"(?s)a testbed is in use: .*process {first.pid} \(.*\); `kill {first.pid}` ends it"
        with pytest.raises(TestbedError, match=told), lock(path, wait=False):
            pytest.fail("two hold the lock")
        first.stdin.close()
    with lock(path, wait=False):
        pass


def test_ctrl_c_while_waiting_ends_the_command_without_a_traceback(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(_fabric: Path) -> None:
        with lock(path):
            pytest.fail("two hold the lock")

    monkeypatch.setattr(command, "_up", wait)
    with holder(path) as first:
        assert first.stdout.readline() == "held\n"
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        with once(waits, lambda: signal.pthread_kill(main_thread, signal.SIGINT)):
            assert command.main(["up"]) == 130
        first.stdin.close()


def waits() -> bool:
    """True if this process waits for a lock, by the kernel's list."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in fields and str(os.getpid()) in fields for fields in waiting)


def test_a_killed_holder_holds_nothing(path: Path) -> None:
    with holder(path) as first:
        assert first.stdout.readline() == "held\n"
        first.kill()
    with holder(path) as second:
        assert second.stdout.readline() == "held\n"
        second.stdin.close()


def test_a_child_of_the_holder_has_it_already(path: Path) -> None:
    with lock(path), holder(path) as child:
        assert child.stdout.readline() == "held\n"
        child.stdin.close()
        assert child.stderr.read() == ""


def test_what_runs_under_flock_has_it_already(path: Path) -> None:
    done = subprocess.run(
        ["flock", path, sys.executable, "-c", PROGRAM, path],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    assert (done.stdout, done.stderr) == ("held\n", "")


def test_a_second_call_in_one_process_goes_on(path: Path) -> None:
    with lock(path):
        with lock(path):
            pass
        # and leaving it does not release the first call's lock
        stranger = subprocess.run(["flock", "--nonblock", path, "true"], check=False)
        assert stranger.returncode == 1
    assert subprocess.run(["flock", "--nonblock", path, "true"], check=False).returncode == 0
