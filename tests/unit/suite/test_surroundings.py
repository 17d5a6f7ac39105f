"""A test run has the same surroundings for any way of starting it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import surroundings

ROOT = Path(__file__).parents[3]
TEST = """
import json, os, pathlib, signal, subprocess

def test_what_there_is():
    mask = os.umask(0)
    os.umask(mask)
    status = subprocess.check_output(["cat", "/proc/self/status"], text=True)
    told = dict(line.split(":", 1) for line in status.splitlines())
    # The C library keeps two signals for itself, which nobody can set.
    ours = sum(1 << number - 1 for number in signal.valid_signals())
    pathlib.Path(OUT).write_text(json.dumps({
        "ignored": ours & int(told["SigIgn"], 16), "blocked": ours & int(told["SigBlk"], 16),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "umask": mask, "environment": dict(os.environ),
        "home": os.access(os.environ["HOME"], os.W_OK),
    }))
"""
START = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
os.umask(0o077)
os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])
"""
ODD = {
    "HOME": "/proc/none",
    "TZ": "Pacific/Chatham",
    "LANG": "C",
    "LC_ALL": "C",
    "LANGUAGE": "de",
    "TERM": "dumb",
    "COLUMNS": "40",
    "NO_COLOR": "1",
    "http_proxy": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "HYDRA_URL": "http://127.0.0.1:9",
    "HYDRA_CONFIG": "/nonexistent",
    "SLURM_JOB_ID": "7",
    "OMPI_COMM_WORLD_RANK": "1",
    "NOTIFY_SOCKET": "/nonexistent",
    "XDG_RUNTIME_DIR": "/nonexistent",
    "MPLCONFIGDIR": "/nonexistent",
    "PYTHONHASHSEED": "1",
    "PYTHONWARNINGS": "error::ImportWarning",
    "MAKEFLAGS": "-j",
    "GIT_DIR": "/nonexistent",
    "SSH_AUTH_SOCK": "/nonexistent",
}


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "in a worker"])
def test_what_a_run_inherits_does_not_reach_its_tests(tmp_path, workers):
    test, out = tmp_path / "test_inner.py", tmp_path / "out.json"
    test.write_text(TEST.replace("OUT", repr(str(out))))
    started = subprocess.run(
        [
            *(sys.executable, "-c", START, "-p", "no:cacheprovider", "-q", *workers),
            *("--confcutdir", ROOT, "--rootdir", ROOT, "-p", "tests.conftest", test),
        ],
        env={**ODD, "PATH": "/usr/bin:/bin:.", "TMPDIR": "/nonexistent"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stdout + started.stderr
    found = json.loads(out.read_text())
    assert (found["ignored"], found["blocked"], found["umask"]) == (0, 0, 0o022)
    assert found["interrupt"]
    assert found["home"]
    inner = found["environment"]
    assert {name: inner.get(name) for name in ("TZ", "LANG", "TERM")} == {
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "TERM": "xterm",
    }
    assert [name for name in ODD if inner.get(name) == ODD[name]] == []
    folders = inner["PATH"].split(":")
    assert folders[:2] == ["/usr/bin", "/bin"]
    assert "." not in folders
    assert "/usr/sbin" in folders
    assert "TMPDIR" not in inner


def test_this_run_has_them():
    mask = os.umask(0o022)
    os.umask(mask)
    assert mask == 0o022
    assert os.environ["TZ"] == "UTC"
    assert signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_what_tests_are_asked_for_is_kept():
    kept = surroundings.environment(
        {"HYDRA_SIMULATION_SEED": "7", "OF_THE_SWITCH": "x", "HYDRA_TOKEN": "y"},
        keep=["OF_THE_SWITCH"],
    )
    assert kept["HYDRA_SIMULATION_SEED"] == "7"
    assert kept["OF_THE_SWITCH"] == "x"
    assert "HYDRA_TOKEN" not in kept
