"""An emulated Polatis switch as a process of its own, on a real socket."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from drivers.optical.polatis_scpi import PolatisScpi
from mininet_scenarios.emulators.admin import AdminClient

REPOSITORY = Path(__file__).parents[3]
SWITCHING_MS = 5


@dataclass(frozen=True)
class Emulator:
    address: str
    admin: AdminClient


@pytest.fixture(scope="module")
def emulator_process():
    command = [sys.executable, "-m", "mininet_scenarios.emulators.polatis", "--name", "000042"]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ports", "16"]
    command += ["--switching-ms", f"{SWITCHING_MS}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        words = process.stdout.readline().split()
        assert words[:2] == ["listening", "scpi"]
        host, _, port = words[4].rpartition(":")
        yield Emulator(words[2], AdminClient(host, int(port)))
        process.terminate()
        assert process.wait(10) == 0


@pytest.fixture
def emulator(emulator_process):
    yield emulator_process
    emulator_process.admin.clear()
    emulator_process.admin.unblock()
    with_driver = PolatisScpi("reset", emulator_process.address, timeout_s=5)
    with_driver.change(with_driver.cross_connects(), [])
    with_driver.close()


@pytest.fixture
def switch(emulator):
    driver = PolatisScpi("p1", emulator.address, timeout_s=2)
    yield driver
    driver.close()
