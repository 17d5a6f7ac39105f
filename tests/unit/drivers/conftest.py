"""Devices on real sockets: an emulated Polatis switch in a separate process; scripted devices."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from drivers.optical.polatis_scpi import PolatisScpi
from drivers.registry import optical_switch
from hydra.model import Login, Plane, PlaneId
from mininet_scenarios.emulators.admin import AdminClient
from tests.unit.drivers.scripted import VARIABLE, Scripted
from tests.waiting import PATIENCE_S

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
        assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def emulator(emulator_process):
    yield emulator_process
    emulator_process.admin.clear()
    emulator_process.admin.unblock()
    with_driver = PolatisScpi("reset", emulator_process.address, timeout_s=PATIENCE_S)
    with_driver.change(with_driver.cross_connects(), [])
    with_driver.close()


@pytest.fixture
def switch(emulator):
    driver = PolatisScpi("p1", emulator.address, timeout_s=PATIENCE_S)
    yield driver
    driver.close()


@pytest.fixture
def play(monkeypatch):
    """``play(driver, exchanges, …)`` → a driver whose device expects exactly these exchanges."""
    monkeypatch.setenv(VARIABLE, "root")
    devices, drivers = [], []

    def start(driver, exchanges, *, user="", options=None, greeting=b"", timeout_s=PATIENCE_S):
        device = Scripted(exchanges, greeting)
        login = Login(user, password_env=VARIABLE) if user else None
        plane = Plane(
            PlaneId(0), "p1", driver, device.address, 16, 5.0, 100.0, login, options or {}
        )
        switch = optical_switch(plane, timeout_s)
        devices.append(device)
        drivers.append(switch)
        return switch

    yield start
    for switch in drivers:
        switch.close()
    for device in devices:
        device.finish()
