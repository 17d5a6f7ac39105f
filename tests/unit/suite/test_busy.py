"""`scripts/busy.sh`, a load for tests that look for dependences on the machine."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, wait_until

SCRIPT = Path(__file__).parents[3] / "scripts" / "busy.sh"


def begin(folder, *arguments):
    return subprocess.Popen(
        [SCRIPT, *arguments, folder], stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def at_work(session: int) -> list[str]:
    """Names of the running processes of a session, each once."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, _, _, its_session = rest.split()[:4]
        if int(its_session) == session and state != "Z":
            found.add(name)
    return sorted(found)


def test_it_computes_and_writes_and_ends_by_itself(tmp_path):
    running = begin(tmp_path, "2")
    wait_until(lambda: {"bash", "dd"} <= set(at_work(running.pid)))
    assert running.wait(PATIENCE_S) == 0
    wait_until(lambda: at_work(running.pid) == [])
    assert list(tmp_path.iterdir()) == []
    running.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_who_ends_it_leaves_no_file_and_no_process(tmp_path, number):
    running = begin(tmp_path, "5" if number == signal.SIGKILL else "600")
    wait_until(lambda: "dd" in at_work(running.pid))
    os.kill(running.pid, number)
    status = running.wait(PATIENCE_S)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: at_work(running.pid) == [])
    assert list(tmp_path.iterdir()) == []
    running.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "SECONDS is ''"),
        (["0"], "SECONDS is '0'"),
        (["7201"], "SECONDS is '7201'"),
        (["1h"], "SECONDS is '1h'"),
        (["1", "/nonexistent"], "FOLDER '/nonexistent' is not a folder"),
    ],
)
def test_what_it_is_not_told_rightly(arguments, why):
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert why in done.stderr
    assert "usage: busy.sh SECONDS [FOLDER]" in done.stderr
