"""The OpenFlow driver of optical switches, in cases without a switch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drivers.codecs.openflow import messages
from drivers.codecs.openflow.messages import PortDescription, PortPair
from drivers.optical.openflow_xc import OpenFlowOptions, OpenFlowXc
from hydra.errors import DeviceError, OutcomeUnknown
from hydra.model import CrossConnect


class Session:
    """A switch with these decoded rules; writes have no effect."""

    def __init__(self, *pairs: tuple[int, int]) -> None:
        self.pairs = pairs
        self.refuses_after_writing = False

    def query(self, kind: int, _body: bytes = b"") -> int:
        return kind

    def write(self, _messages) -> None:
        if self.refuses_after_writing:
            self.pairs = None


@pytest.fixture
def switch(monkeypatch):
    session = Session((1, 2), (3, 9), (3, 1), (8, 4), (8, 9))
    ports = tuple(PortDescription(n, f"p{n}", down=False, carrier=True) for n in range(1, 10))
    monkeypatch.setattr(messages, "decode_port_descriptions", lambda _body: ports)
    monkeypatch.setattr(messages, "decode_flow_entries", lambda _body: entries(session.pairs))
    driver = OpenFlowXc("p1", session, OpenFlowOptions(), 4)
    return driver, session


def entries(pairs):
    if pairs is None:
        return [SimpleNamespace(pair=None, drops=False, match=b"", table=0, priority=1)]
    return [SimpleNamespace(pair=PortPair(*pair)) for pair in pairs]


def test_rules_with_one_port_of_ours_take_it_and_no_reading_down(switch, caplog):
    driver, _ = switch
    for _ in range(2):
        assert driver.cross_connects() == {CrossConnect(1, 6)}
    (line,) = caplog.messages
    assert "a rule joining OpenFlow ports 3 and 9" in line
    assert "a rule joining OpenFlow ports 8 and 4" in line
    assert "8 and 9" not in line
    with pytest.raises(DeviceError, match="port 3 is in use by a rule joining OpenFlow ports 3"):
        driver.change([], [CrossConnect(3, 5)])
    with pytest.raises(DeviceError, match="port 8 is in use by a rule joining OpenFlow ports 8"):
        driver.change([], [CrossConnect(2, 8)])


def test_what_can_not_be_read_back_is_unknown(switch):
    driver, session = switch
    session.refuses_after_writing = True
    with pytest.raises(OutcomeUnknown, match="no cross-connect"):
        driver.change([], [CrossConnect(2, 5)])
