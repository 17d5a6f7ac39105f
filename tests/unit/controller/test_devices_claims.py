"""Claims on ToRs at a start: each ToR is connected once."""

from pathlib import Path
from typing import ClassVar

import pytest

from apps.controller.devices import Devices
from apps.process.configuration import load_configuration
from drivers.tor.ovs_ovsdb import OvsTor
from drivers.transports.permit import OVER, PermitOverError, remaining_s
from hydra.errors import DeviceError, DeviceUnavailable, HeldElsewhere, HydraError

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"


class Session:
    has_lock = True
    rows: ClassVar = {"Bridge": {}}

    def tend(self):
        pass

    def close(self):
        pass


@pytest.fixture
def asked(monkeypatch):
    """Names of the ToRs, once for each connection; r2 does not answer."""
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
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy)
    devices.claim()
    problems = {rack.name: devices.tor_problem(rack.id) for rack in loaded.fabric.racks}
    devices.close()
    assert sorted(asked) == sorted(problems)
    assert [name for name, problem in problems.items() if problem] == ["r2"]


class Term:
    """Of a leader, by its generation."""

    def __init__(self, generation, *, leads=True):
        self.generation = generation
        self.leads = leads
        self.left = 60.0

    def exceed(self, generation):
        if self.leads:
            self.generation = max(self.generation, generation + 100)
        return self.leads

    def over(self):
        return self.left <= 0

    def remaining_s(self):
        return self.left


class Tor:
    """A ToR that stores the highest generation, and may be silent."""

    def __init__(self, name):
        self.name = name
        self.known = 0
        self.away = False
        self._claimed = None
        self.written = []
        self.at_read = lambda: None

    def claim(self, generation=None):
        self._claimed = generation or 0
        self.open()

    def open(self):
        if self.away:
            raise DeviceUnavailable(self.name, "down")
        if self._claimed is not None:
            if self.known > self._claimed:
                raise HeldElsewhere(self.name, "another controller holds it", self.known)
            self.known = self._claimed

    def keep(self):
        pass

    def close(self):
        pass

    def set_vlans(self, wanted):
        remaining_s()
        self.at_read()
        try:
            remaining_s()
        except PermitOverError as error:
            raise DeviceUnavailable(self.name, str(error)) from error
        self.written.append(wanted)


@pytest.fixture
def loaded():
    return load_configuration(DEMO)


@pytest.fixture
def tors(monkeypatch, loaded):
    found = {rack.name: Tor(rack.name) for rack in loaded.fabric.racks}
    monkeypatch.setattr("apps.controller.devices.tor_switch", lambda rack, _s: found[rack.name])
    return found


def test_a_leader_of_a_new_store_goes_beyond_what_tors_know(loaded, tors):
    """ToRs that were silent at the start as well, once they answer."""
    for tor in tors.values():
        tor.known = 1000
    tors["r2"].away = True
    term = Term(7)
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy, term=term)
    devices.claim()
    assert {tor.known for name, tor in tors.items() if name != "r2"} == {1100}
    tors["r2"].away = False
    tors["r2"].known = 2000
    devices.set_vlans(loaded.fabric.racks[1].id, {})
    assert (tors["r2"].known, term.generation) == (2100, 2100)
    devices.close()


def test_a_leader_that_is_followed_takes_no_tor_back(loaded, tors):
    """For a ToR held before: another controller leads. For a ToR not held before: the store names
    the leader.
    """
    first, second = (rack.id for rack in loaded.fabric.racks[:2])
    tors["r2"].away = True
    term = Term(7)
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy, term=term)
    devices.claim()
    tors["r1"].known = tors["r2"].known = 9
    tors["r2"].away = False
    with pytest.raises(HeldElsewhere):
        devices.set_vlans(first, {})
    term.leads = False
    with pytest.raises(HeldElsewhere):
        devices.set_vlans(second, {})
    assert [tor.written for tor in tors.values()] == [[]] * len(tors)
    assert term.generation == 7
    devices.close()


def test_a_leader_goes_on_without_a_tor_that_knows_a_later_one(loaded, tors, caplog):
    tors["r1"].known = 9
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy, term=Term(7, leads=False))
    devices.claim()
    assert "r1: another controller holds it" in caplog.text
    assert devices.tor_problem(loaded.fabric.racks[0].id) is not None
    assert devices.tor_problem(loaded.fabric.racks[1].id) is None
    devices.close()


def test_without_a_store_a_tor_that_another_one_holds_ends_the_start(loaded, tors):
    tors["r1"].known = 9
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy)
    with pytest.raises(HydraError, match="a controller is at work on this fabric already: r1"):
        devices.claim()
    devices.close()


def test_what_a_device_was_being_told_when_the_lease_ended_goes_no_further(loaded, tors):
    term = Term(7)
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy, term=term)
    devices.claim()

    def end():
        term.left = 0.0

    tors["r1"].at_read = end
    with pytest.raises(DeviceError, match=OVER):
        devices.set_vlans(loaded.fabric.racks[0].id, {})
    assert tors["r1"].written == []
    devices.close()
