"""Names of ports follow their OpenFlow numbers, as reported by switches."""

import pytest

from apps.openflow.interface import PortInfo
from hydra.forwarding.match_action import Port

from .fleet_switches import CHANGES, TOR1, V1, VSWITCH_PORTS, Switch, agrees, port_table

HOST, OPTICAL, ELECTRICAL = (port.number for port in VSWITCH_PORTS.values())
NEW = 41


@pytest.fixture
def told(fleet):
    """(Datapath, earlier numbers), as reported."""
    told = []

    def pass_over(*_told):
        pass

    fleet.watch(
        pass_over,
        pass_over,
        pass_over,
        pass_over,
        lambda datapath, earlier: told.append((datapath, dict(earlier))),
    )
    return told


@pytest.fixture
def switch(fleet):
    return Switch(fleet, V1, agrees)


def leave(switch, name, number):
    port = PortInfo(number, name, True)
    switch.fleet.port_changed(switch.datapath, switch, port, deleted=True)


def come(switch, name, number):
    port = PortInfo(number, name, True)
    switch.fleet.port_changed(switch.datapath, switch, port, deleted=False)


def numbers(fleet):
    """Numbers in encoded rules: host, optical, electrical."""
    (ports,) = (one.ports for one in fleet._switches.values())
    return ports.host, ports.optical, ports.electrical


def test_a_port_that_comes_back_by_another_number_is_told(fleet, told, switch):
    leave(switch, "optical", OPTICAL)
    assert not told
    come(switch, "optical", NEW)
    assert told == [(V1, {"optical": OPTICAL})]
    assert numbers(fleet) == (HOST, NEW, ELECTRICAL)
    assert fleet.port_number(V1, Port.OPTICAL) == NEW


@pytest.mark.parametrize("deleted_last", [False, True])
def test_in_whatever_order_a_switch_tells(fleet, told, switch, deleted_last):
    if not deleted_last:
        leave(switch, "optical", OPTICAL)
    come(switch, "optical", NEW)
    if deleted_last:
        leave(switch, "optical", OPTICAL)
    assert told == [(V1, {"optical": OPTICAL})]
    assert fleet.port(V1, "optical").up
    assert numbers(fleet) == (HOST, NEW, ELECTRICAL)


def test_a_port_that_is_gone_keeps_its_number_in_rules_but_nothing_is_sent_there(
    fleet, told, switch
):
    """The port mostly returns with the same number, and its rules are there already."""
    leave(switch, "optical", OPTICAL)
    assert numbers(fleet) == (HOST, OPTICAL, ELECTRICAL)
    assert fleet.port_number(V1, Port.OPTICAL) == 0
    fleet.send_frames({V1: [(Port.OPTICAL, b"frame")]})
    assert not switch.sent
    come(switch, "optical", OPTICAL)
    assert not told
    assert fleet.port_number(V1, Port.OPTICAL) == OPTICAL


def test_a_number_that_another_port_takes_is_not_kept(fleet, told, switch):
    leave(switch, "optical", OPTICAL)
    come(switch, "somebody else's", OPTICAL)
    assert told == [(V1, {"optical": OPTICAL})]
    assert numbers(fleet) == (HOST, 0, ELECTRICAL)


def test_two_ports_that_swap_their_numbers(fleet, told, switch):
    leave(switch, "optical", OPTICAL)
    leave(switch, "electrical", ELECTRICAL)
    come(switch, "optical", ELECTRICAL)
    come(switch, "electrical", OPTICAL)
    assert numbers(fleet) == (HOST, ELECTRICAL, OPTICAL)
    assert told[0] == (V1, {"optical": OPTICAL, "electrical": ELECTRICAL})
    assert told[1:] == [(V1, {"electrical": 0})]


def test_a_port_that_has_another_name_by_the_same_number(fleet, told, switch):
    come(switch, "renamed", OPTICAL)
    assert told == [(V1, {"optical": OPTICAL})]
    assert fleet.missing_ports(V1) == ("optical",)


def test_a_port_that_was_missing_when_its_switch_connected_is_told(fleet, told):
    switch = Switch(fleet, V1, ports=port_table("host"))
    come(switch, "optical", NEW)
    assert told == [(V1, {"optical": 0})]


def test_a_switch_that_describes_its_ports_tells_their_numbers_too(fleet, told, switch):
    fleet.note_ports(V1, [PortInfo(NEW, "optical", True)])
    assert told == [(V1, {"optical": OPTICAL})]
    assert numbers(fleet) == (HOST, NEW, ELECTRICAL)


def test_ports_that_no_rule_names_are_not_told(fleet, told, switch):
    come(switch, "somebody else's", NEW)
    leave(switch, "somebody else's", NEW)
    come(switch, "somebody else's", NEW + 1)
    tor = Switch(fleet, TOR1, ports=port_table("o1", "s1"))
    come(tor, "o1", NEW)
    assert not told


def test_what_a_connection_that_is_not_used_tells_is_kept_for_when_it_is(fleet, told, switch):
    newcomer = Switch.__new__(Switch)
    newcomer.fleet, newcomer.datapath, newcomer.answer, newcomer.sent = fleet, V1, agrees, []
    settle = []
    switch.ask = settle.append
    fleet.switch_connected(V1, newcomer, VSWITCH_PORTS)
    come(newcomer, "optical", NEW)
    assert not told
    (tell,) = settle
    tell(False)
    assert fleet.port_number(V1, Port.OPTICAL) == NEW


def test_a_change_that_is_sent_after_that_names_the_new_number(fleet, told, switch):
    come(switch, "electrical", NEW)
    assert fleet.apply({V1: CHANGES}, 1.0) == {V1: None}
    sent = b"".join(switch.sent)
    assert NEW.to_bytes(4, "big") in sent
    assert told


def again(fleet, **ports):
    """The same switch, connected again with these port numbers."""
    return Switch(fleet, V1, agrees, {n: PortInfo(n, name, True) for name, n in ports.items()})


def test_numbers_that_have_changed_while_a_switch_was_away_are_told_after_its_connection(
    fleet, told, switch
):
    """Its rules name the old numbers until it is synchronised: a restart of Open vSwitch may keep
    the rules.
    """
    connected = []
    fleet.watch(connected.append, *(lambda *_told: None for _ in range(4)))
    switch.disconnect()
    assert not told
    new = again(fleet, host=HOST, optical=NEW, electrical=ELECTRICAL)
    assert (connected, told) == ([V1], [(V1, {"optical": OPTICAL})])
    new.disconnect()
    new = again(fleet, host=HOST, optical=NEW, electrical=ELECTRICAL)
    new.disconnect()
    again(fleet, host=HOST, electrical=ELECTRICAL)
    assert len(told) == 1, "a port that is gone has no other number"


def test_a_port_whose_number_another_has_when_its_switch_connects_is_told(fleet, told, switch):
    switch.disconnect()
    again(fleet, host=HOST, electrical=OPTICAL)
    assert told == [(V1, {"optical": OPTICAL, "electrical": ELECTRICAL})]


def test_of_strangers_no_numbers_are_kept(fleet, told):
    Switch(fleet, 0x7777, agrees).disconnect()
    assert not fleet._last_numbers
