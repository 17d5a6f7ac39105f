"""Ports missing on a ToR: down, without VLANs, and without effect on other ports."""

from pathlib import Path

import pytest

from apps.controller.devices import Devices
from apps.process.configuration import load_configuration
from drivers.tor.ovs_ovsdb import CAPABILITIES, OvsTor
from hydra.errors import PortsMissing
from hydra.model import RackId
from hydra.roles import PortVlans
from tests.waiting import PATIENCE_S

DEMO = Path(__file__).parents[3] / "configs" / "demo.yaml"
R1 = RackId(0)
NOTHING, CIRCUIT = PortVlans(frozenset()), PortVlans(frozenset({100}))


class Tor:
    name, capabilities = "r1", CAPABILITIES

    def __init__(self):
        self.has = {"p1": CIRCUIT, "p2": CIRCUIT}
        self.opened = self.closed = 0

    def open(self):
        self.opened += 1

    def close(self):
        self.closed += 1

    def _check(self, ports):
        if missing := set(ports) - self.has.keys():
            raise PortsMissing(self.name, "no such port", missing)

    def vlans(self, ports):
        self._check(ports)
        return {port: self.has[port] for port in ports}

    def set_vlans(self, wanted):
        self._check(wanted)
        self.has |= wanted

    def link_up(self, ports):
        self._check(ports)
        return dict.fromkeys(ports, True)


@pytest.fixture
def devices():
    loaded = load_configuration(DEMO)
    devices = Devices(fabric=loaded.fabric, policy=loaded.policy)
    devices._tors[R1].device = Tor()
    yield devices
    devices.close()


def test_what_is_asked_of_a_missing_port_is_done_of_the_others(devices):
    tor = devices._tors[R1].device
    assert devices.link_up(R1, ["p1", "p2"]) == {"p1": True, "p2": True}
    del tor.has["p1"]
    devices.set_vlans(R1, {"p1": NOTHING, "p2": NOTHING})
    assert tor.has == {"p2": NOTHING}
    assert devices.link_up(R1, ["p1", "p2"]) == {"p1": False, "p2": True}
    assert devices.vlans(R1, ["p1", "p2"]) == {"p2": NOTHING}
    assert devices.tor_problem(R1) is None
    assert tor.closed == 0


def test_a_missing_port_is_known_until_it_is_asked_for_again(devices):
    tor = devices._tors[R1].device
    del tor.has["p1"]
    devices.vlans(R1, ["p1", "p2"])
    assert devices.missing_ports(R1) == {"p1"}
    assert devices.missing_ports(RackId(1)) == frozenset()
    tor.has["p1"] = CIRCUIT
    devices.vlans(R1, ["p2"])
    assert devices.missing_ports(R1) == {"p1"}
    devices.vlans(R1, ["p1"])
    assert devices.missing_ports(R1) == frozenset()


def test_a_port_that_is_back_is_missing_until_its_vlans_are_known(devices):
    """The port came back between the command that skipped it and the check of its light."""
    tor = devices._tors[R1].device
    del tor.has["p1"]
    devices.set_vlans(R1, {"p1": CIRCUIT, "p2": CIRCUIT})
    tor.has["p1"] = NOTHING
    assert devices.link_up(R1, ["p1", "p2"]) == {"p1": True, "p2": True}
    assert devices.missing_ports(R1) == {"p1"}
    devices.set_vlans(R1, {"p1": CIRCUIT})
    assert devices.missing_ports(R1) == frozenset()


def test_ports_may_vanish_one_after_the_other(devices):
    tor = devices._tors[R1].device
    del tor.has["p1"]

    def check(ports, before=tor._check):
        try:
            before(ports)
        except PortsMissing:
            tor.has.pop("p2", None)
            raise

    tor._check = check
    assert devices.vlans(R1, ["p1", "p2"]) == {}
    assert devices.missing_ports(R1) == {"p1", "p2"}


def test_an_ovsdb_tor_names_the_ports_that_are_missing(monkeypatch):
    tor = OvsTor("r1", "unix:/nowhere", "br1", timeout_s=PATIENCE_S)
    monkeypatch.setattr(OvsTor, "_ports", lambda _self, _session: {"p2": None})
    with pytest.raises(PortsMissing, match="r1: bridge br1 has no port p1, p3") as caught:
        tor._some_ports(None, ["p1", "p2", "p3"])
    assert caught.value.ports == {"p1", "p3"}
