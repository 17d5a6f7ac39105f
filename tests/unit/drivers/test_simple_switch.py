"""The base class's handling of a device's answers, on a device in memory."""

from __future__ import annotations

import pytest

from drivers.optical.simple import SimpleSwitch
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import PortState

LOGIN = Login("admin", password_env="P1_PASSWORD")
A, B = CrossConnect(1, 6), CrossConnect(2, 5)


class Device:
    """A switch of 4 by 4 ports; ``fails``: errors by the number of the exchange, from 0."""

    def __init__(self) -> None:
        self.connected: list[tuple[object, object]] = []
        self.fails: dict[int, Exception] = {}
        self.asked: list[str] = []
        self.is_open = True

    def ask(self, what: str) -> None:
        number = len(self.asked)
        self.asked.append(what)
        if number in self.fails:
            raise self.fails[number]

    def close(self) -> None:
        self.is_open = False


class Switch(SimpleSwitch[Device]):
    device = Device()

    def _reach(self):
        return self.device

    def _listed(self):
        self.device.ask("list")
        return self.device.connected

    def _disconnect(self, old):
        self.device.ask(f"off {old.ingress}")
        self.device.connected.remove((old.ingress, old.egress))

    def _connect(self, new):
        self.device.ask(f"on {new.ingress}")
        self.device.connected.append((new.ingress, new.egress))


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(Switch, "device", device)
    return device


@pytest.fixture
def switch(device):
    switch = Switch(plane(), 1.0)
    switch.open()
    device.asked.clear()
    return switch


def plane(**more):
    given = {"address": "192.0.2.1:80", "login": LOGIN, **more}
    return Plane(PlaneId(0), "p1", "own", ports=4, switching_ms=5.0, rate_mbps=100.0, **given)


def test_down_before_up_and_read_back(device, switch):
    device.connected = [(1, 6)]
    switch.change([A], [B, CrossConnect(3, 6)])
    assert device.asked == ["list", "off 1", "on 2", "on 3", "list"]
    switch.change([A], [B])
    assert device.asked[5:] == ["list"], "nothing to move"


@pytest.mark.parametrize(
    ("exchange", "error", "found", "words"),
    [
        (1, DeviceUnavailable("p1", "away"), DeviceUnavailable, "^p1: away$"),
        (2, DeviceUnavailable("p1", "away"), OutcomeUnknown, "begun"),
        (1, OutcomeUnknown("p1", "lost"), OutcomeUnknown, "lost"),
        (1, ProtocolError("p1", "what?"), OutcomeUnknown, "begun"),
        (2, DeviceError("p1", "busy"), DeviceError, "p1: .*asked: busy; not connected: 2 to 5$"),
        (3, DeviceUnavailable("p1", "away"), OutcomeUnknown, "begun"),
        (3, DeviceError("p1", "no list"), OutcomeUnknown, "begun"),
    ],
)
def test_refusals_and_unknown_outcomes_are_told_apart(
    device, switch, exchange, error, found, words
):
    device.fails = {exchange: error}
    with pytest.raises(DeviceError, match=words) as caught:
        switch.change([], [A, B])
    assert type(caught.value) is found


def test_a_device_that_says_yes_and_does_nothing(device, switch, monkeypatch):
    monkeypatch.setattr(Switch, "_connect", lambda *_: None)
    with pytest.raises(DeviceError, match="reports no error; not connected: 1 to 6"):
        switch.change([], [A])


@pytest.mark.parametrize("listed", [[(1, 2, 3)], [("x", 5)], [7], None, [(None, 5)]])
def test_a_list_that_makes_no_sense(device, switch, listed):
    device.connected = listed
    with pytest.raises(ProtocolError, match="p1: cross-connects can't be read"):
        switch.cross_connects()


def test_what_it_says_of_itself(device, switch):
    assert (switch.name, switch.size()) == ("p1", (4, 4))
    assert switch.port_states([1, 8]) == dict.fromkeys([1, 8], PortState.UNKNOWN)
    with pytest.raises(DeviceError, match="no port 9"):
        switch.port_states([9])
    device.fails = {len(device.asked): DeviceUnavailable("p1", "away")}
    with pytest.raises(DeviceUnavailable):
        switch.identity()
    with switch:
        pass
    assert not device.is_open
    device.fails = {len(device.asked): DeviceUnavailable("p1", "away")}
    with pytest.raises(DeviceUnavailable):
        switch.size()


def test_a_class_stands_for_a_module_in_the_registry():
    assert list(Switch.check(plane())) == []
    bad = plane(address="nowhere", login=None, options={"speed": 9})
    paths = {problem.path for problem in Switch.check(bad)}
    assert paths == {"address", "login", "options.speed"}
    assert isinstance(Switch.build(plane(), 1.0), Switch)
