"""The switches played by benchmarks/_fabric.c treat messages as Open vSwitch does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks._fabric import Server, Size, Switches
from drivers.codecs.openflow.messages import TABLE_ALL, encode_flow_stats_request
from drivers.codecs.openflow.meters import AddMeter, RemoveMeter, encode_meter_changes
from drivers.codecs.openflow.rules import (
    ROLE_MASTER,
    SwitchPorts,
    encode_changes,
    encode_end_of_round,
    encode_role_request,
)
from hydra.config import Loaded
from hydra.forwarding.match_action import Table
from hydra.forwarding.pipeline import COOKIE_KIND_MASK, RuleKind, cookie
from hydra.forwarding.rules import (
    ROUND_RULES,
    FlowRule,
    Install,
    Remove,
    RemoveByCookie,
    match_key,
    round_rule,
)
from hydra.model import RackId, VlanId
from tests.integration.bare_switch import BareSwitch, bare_switch
from tests.unit.forwarding.sample_rules import circuit_rule, every_rule

pytestmark = pytest.mark.ovs
PORTS = SwitchPorts(host=1, optical=2, electrical=3, servers=(11, 12), wired=(21, 22))
METER = 5
XID = 9
_COMMAND_AT = 25
_MODIFY, _MODIFY_STRICT = 1, 2
_FLOW_REMOVED, _BY_TIME = 11, 1


@pytest.fixture
def real(switches: None) -> Iterator[BareSwitch]:
    with bare_switch("hyT0") as switch:
        yield switch


@contextmanager
def simulated(directory: Path) -> Iterator[BareSwitch]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fabric = Switches(Size(1, 1, 1), f"127.0.0.1:{listener.getsockname()[1]}", directory)
        try:
            fabric.say("start")
            found = {}
            for _ in range(2):
                switch = BareSwitch("simulated", listener.accept()[0])
                switch._socket.sendall(struct.pack("!BBHI", 4, 5, 8, XID))
                found[struct.unpack_from("!Q", switch._receive(), 8)[0]] = switch
            yield found[Server(0, 0).datapath]
            for switch in found.values():
                switch.close()
        finally:
            fabric.close()


@pytest.fixture
def played(tmp_path: Path) -> Iterator[BareSwitch]:
    with simulated(tmp_path) as switch:
        yield switch


def table(switch: BareSwitch, number: int = TABLE_ALL, its_cookie: int = 0, mask: int = 0) -> list:
    """The entries reported by a switch, in order, without the rules' ages."""
    replies = switch.statistics(encode_flow_stats_request(number, its_cookie, mask, XID))
    body = b"".join(reply[16:] for reply in replies)
    entries = []
    while body:
        (length,) = struct.unpack_from("!H", body)
        entries.append((body[:4] + body[12:length]).hex())
        body = body[length:]
    return sorted(entries)


def rules(demo: Loaded) -> list[FlowRule]:
    """Rules of every kind, with distinct matches; rules with a meter have METER."""
    every = {match_key(rule): rule for rule in every_rule(demo.fabric)}
    return list(every.values())


def with_command(message: bytes, command: int) -> bytes:
    return message[:_COMMAND_AT] + bytes([command]) + message[_COMMAND_AT + 1 :]


def steps(demo: Loaded) -> Iterator[bytes]:
    some = rules(demo)
    other = circuit_rule(RackId(1), VlanId(77), 9)
    meter = encode_meter_changes([AddMeter(METER, 100.0)], 1)
    yield encode_changes(map(Install, some), PORTS, 1, 1)  # refused: there is no such meter
    yield meter
    yield meter  # refused: there is one already
    yield encode_changes(map(Install, some), PORTS, 1, 1)
    yield encode_changes([Install(other)], PORTS, 1, None)
    yield encode_changes(map(Remove, some[::5]), PORTS, 1, 2)
    yield encode_changes([Remove(some[0])], PORTS, 1, None)  # gone already
    kind = cookie(RuleKind.HOST_ND)
    yield encode_changes([RemoveByCookie(kind, COOKIE_KIND_MASK)], PORTS, 1, 2)
    changed = encode_changes([Install(circuit_rule(RackId(1), VlanId(78), 9))], PORTS, 1, None)
    yield with_command(changed, _MODIFY_STRICT)
    yield with_command(changed, _MODIFY)
    yield encode_meter_changes([RemoveMeter(METER)], 1)  # takes its rules along
    yield encode_role_request(ROLE_MASTER, 7, 1)
    yield encode_role_request(ROLE_MASTER, 6, 1)  # refused: the generation is stale
    yield encode_changes([RemoveByCookie(0, 0)], PORTS, 1, 2)


def test_the_same_messages_have_the_same_effect(
    real: BareSwitch, played: BareSwitch, demo: Loaded
) -> None:
    sizes = []
    for number, step in enumerate(steps(demo)):
        assert played.confirm(step, 1)[:1] == real.confirm(step, 1)[:1], number
        assert table(played) == table(real), number
        sizes.append(len(table(real)))
    assert max(sizes) > len(rules(demo)) / 2  # some kinds match alike at vswitches and at ToRs
    assert sizes[-1] == 0


def test_a_fin_ends_one_rule_which_is_told(played: BareSwitch) -> None:
    """As on a real switch in tests/integration/test_cached_flows.py."""
    assert played.confirm(encode_changes([ROUND_RULES], PORTS, 1, None), 1) == []
    told = played.await_message(encode_end_of_round(3, XID), _FLOW_REMOVED)
    assert struct.unpack_from("!8xQ2xB", told) == (round_rule(3).cookie, _BY_TIME)
    assert len(table(played)) == len(ROUND_RULES.rules) - 1
    assert table(played, TABLE_ALL, round_rule(3).cookie, 2**64 - 1) == []


def test_parts_of_tables_are_told_alike(real: BareSwitch, played: BareSwitch, demo: Loaded) -> None:
    for switch in (real, played):
        switch.confirm(encode_meter_changes([AddMeter(METER, 100.0)], 1), 1)
        assert switch.confirm(encode_changes(map(Install, rules(demo)), PORTS, 1, 1), 1) == []
    for number in Table:
        assert table(played, number) == table(real, number)
    drops = cookie(RuleKind.HOST_ND)
    found = table(real, TABLE_ALL, drops, COOKIE_KIND_MASK)
    assert len(found) > 1
    assert table(played, TABLE_ALL, drops, COOKIE_KIND_MASK) == found
