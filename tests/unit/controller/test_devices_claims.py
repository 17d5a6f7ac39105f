"""Claims on ToRs at a start: each is connected to once."""

from pathlib import Path

import pytest

from apps.controller.devices import Devices
from apps.process.configuration import load_configuration
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.errors import DeviceUnavailable

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"


class Session:
    has_lock = True

    def tend(self):
        pass

    def close(self):
        pass


@pytest.fixture
def asked(monkeypatch):
    """Names of the ToRs that are connected to, once for each time; r2 does not answer."""
    names = []

    def connect(self, _call):
        names.append(self.name)
        if self.name == "r2":
            raise DeviceUnavailable(self.name, "down")
        self._session = Session()

    monkeypatch.setattr(OvsTor, "_connected", connect)
    monkeypatch.setattr(OvsTor, "_ports", lambda _self, _session: {})
    return names


def test_a_tor_is_connected_to_once_and_claimed(asked):
    loaded = load_configuration(DEMO)
    devices = Devices(loaded.fabric, loaded.policy)
    devices.claim()
    problems = {rack.name: devices.tor_problem(rack.id) for rack in loaded.fabric.racks}
    devices.close()
    assert sorted(asked) == sorted(problems)
    assert [name for name, problem in problems.items() if problem] == ["r2"]
