"""deploy/systemd, checked by systemd's own checkers, and a controller's notifications."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.controller.test_responsiveness import Controller
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(10)

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "deploy" / "systemd"
INSTALLED = "/opt/hydra/bin/hydra"
WATCHDOG_S = 6.0
"""The notification comes at half of that interval; a busy machine delays it by up to 3 s."""
EXPOSED_AT_MOST = 1.5
"""Of 10, as counted by `systemd-analyze security`."""


@pytest.fixture(params=["hydra.service", "hydra-worker.service"])
def unit(tmp_path, request):
    """The unit, for the hydra of this environment."""
    text = (UNITS / request.param).read_text()
    assert INSTALLED in text
    path = tmp_path / request.param
    hydra = Path(sys.executable).with_name("hydra")
    path.write_text(text.replace(INSTALLED, f'"{hydra}"'))  # the clone's path may hold a space
    return path


def analyze(*arguments):
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_systemd_understands_all_of_the_unit(unit):
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_exposes_little(unit):
    done = analyze("security", "--offline=yes", unit)
    exposure = re.search(r"Overall exposure level for [\w.-]+: ([\d.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) <= EXPOSED_AT_MOST


def test_a_setting_that_is_none_is_found(unit):
    """The checker finds a fault."""
    unit.write_text(unit.read_text().replace("WatchdogSec=30", "WatchdogSec=often"))
    assert re.search("Failed to parse .*often", analyze("verify", "--man=no", unit).stderr)


@pytest.mark.parametrize("name", ["hydra-agent.service", "hydra-worker.service"])
def test_what_is_always_started_again_is_not_given_up(name):
    """For any life of the process: by default systemd starts a unit five times in ten seconds at
    most.
    """
    lines = (UNITS / name).read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    assert told["Restart"] == "always"
    interval_s = float(told.get("StartLimitIntervalSec", 10))
    burst = int(told.get("StartLimitBurst", 5))
    assert interval_s == 0 or burst * float(told["RestartSec"]) > interval_s


@pytest.fixture
def manager(tmp_path):
    """The socket of a service manager, named by the environment from now on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE_S)
        yield listening


@pytest.fixture
def supervised(manager, tmp_path, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", str(round(WATCHDOG_S * 1e6)))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    running = Controller(tmp_path)
    yield running
    running.close()


def test_a_controller_is_ready_lives_hangs_and_stops_in_the_eyes_of_systemd(manager, supervised):
    assert manager.recv(100) == b"READY=1"
    told_s = []
    for _ in range(4):
        assert manager.recv(100) == b"WATCHDOG=1"
        told_s.append(time.monotonic())
    assert max(b - a for a, b in pairwise(told_s)) < WATCHDOG_S
    os.kill(supervised.process.pid, signal.SIGSTOP)
    manager.settimeout(WATCHDOG_S)  # timed: systemd's wait
    with pytest.raises(TimeoutError):  # systemd would end the process now
        while True:
            manager.recv(100)
    os.kill(supervised.process.pid, signal.SIGCONT)
    supervised.process.terminate()
    assert supervised.process.wait(PATIENCE_S) == 0
    said = []
    with suppress(TimeoutError):
        while True:
            said.append(manager.recv(100))
    assert b"STOPPING=1" in said


def test_systemd_understands_the_agent_that_sees_containers(tmp_path):
    """The drop-in adds the requirements of setns, and nothing else."""
    name = "hydra-agent.service"
    text = (UNITS / name).read_text()
    (tmp_path / name).write_text(
        text.replace(INSTALLED, str(Path(sys.executable).with_name("hydra")))
    )
    shutil.copytree(UNITS / f"{name}.d", tmp_path / f"{name}.d")
    done = analyze("verify", "--man=no", tmp_path / name)
    assert (done.returncode, done.stderr) == (0, "")
    added = (UNITS / f"{name}.d" / "containers.conf").read_text()
    assert [line for line in added.splitlines() if "=" in line] == [
        "CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_PTRACE CAP_SYS_ADMIN",
        "RestrictNamespaces=net",
    ]
