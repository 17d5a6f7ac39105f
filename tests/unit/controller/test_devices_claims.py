"""Claims on ToRs at a start: each is connected to once."""

from pathlib import Path

import pytest

from apps.controller.devices import Devices
from apps.process.configuration import load_configuration
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.errors import DeviceUnavailable

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"


@pytest.fixture
def asked(monkeypatch):
    """Names of the ToRs that are connected to, once for each time; r2 does not answer."""
    names = []

    def connect(self, _call):
        names.append(self.name)
        self._idl = None if self.name == "r2" else object()
        if self.name == "r2":
            raise DeviceUnavailable(self.name, "down")

    monkeypatch.setattr(OvsTor, "_connect", connect)
    monkeypatch.setattr(OvsTor, "_bridge_row", lambda _self: None)
    monkeypatch.setattr(OvsTor, "_barrier", lambda _self, _call: None)
    monkeypatch.setattr(OvsTor, "close", lambda self: setattr(self, "_idl", None))
    monkeypatch.setattr(OvsTor, "keep", lambda _self: None)
    return names


def test_a_tor_is_connected_to_once_and_claimed(asked):
    loaded = load_configuration(DEMO)
    devices = Devices(loaded.fabric, loaded.policy)
    devices.claim()
    problems = {rack.name: devices.tor_problem(rack.id) for rack in loaded.fabric.racks}
    devices.close()
    assert sorted(asked) == sorted(problems)
    assert [name for name, problem in problems.items() if problem] == ["r2"]
