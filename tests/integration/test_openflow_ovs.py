"""Open vSwitch's reading of HydRA's OpenFlow messages, compared with ovs-ofctl's."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address

import pytest

from apps.openflow.package import ofproto_v1_3_parser
from apps.process.configuration import load_configuration
from drivers.codecs.openflow.messages import (
    BUNDLE_COMMIT,
    BUNDLE_DISCARD,
    encode_bundle_control,
    encode_flow_stats_request,
)
from drivers.codecs.openflow.meters import (
    AddMeter,
    RemoveEveryMeter,
    RemoveMeter,
    SetMeter,
    decode_meter_stats,
    encode_meter_changes,
    encode_meter_stats_request,
)
from drivers.codecs.openflow.rule_tables import decode_rules, intended_table, is_exact
from drivers.codecs.openflow.rules import (
    SwitchPorts,
    encode_changes,
    encode_open_bundle,
    encode_port_stats_request,
)
from drivers.codecs.openflow.statistics import decode_flow_stats, decode_port_stats
from hydra.config import Loaded
from hydra.forwarding.match_action import (
    Action,
    Arg,
    EndOnFin,
    Output,
    PassProtected,
    PickPath,
    PopVlan,
    Port,
    PushVlan,
    SetDscp,
    SetPath,
    Table,
    ToController,
    server_port,
    wired_port,
)
from hydra.forwarding.pipeline import SHAPES, RuleKind, cookie
from hydra.forwarding.rules import (
    BY_PORT,
    BY_UPLINK,
    ROUND_RULES,
    FlowRule,
    Install,
    InstallAll,
    Remove,
    RemoveByCookie,
    circuit_rules,
    constant,
    divert_rule,
    mac_as_int,
    match_key,
)
from hydra.forwarding.substrate import DualHomedVlan, SingleHomedOpenFlow, SingleHomedVlan
from hydra.model import Fabric, NetworkState, RackId, VlanId
from hydra.policy import SourceCheck
from hydra.reconfiguration.relaying import WIPE, relay_rules
from mininet_scenarios.cycles.orders import emulated_rules
from tests.integration.bare_switch import BareSwitch, bare_switch
from tests.integration.conftest import CONFIGS
from tests.unit.core.fabrics import circuit_between, path_of, state_of
from tests.unit.forwarding.sample_rules import circuit_rule, reservation_rules, sharing_rules

pytestmark = pytest.mark.ovs
METER = 5
PORTS = SwitchPorts(
    host=1, optical=2, electrical=3, servers=(11, 12), wired=(21, 22), protected=True
)
NAMES = {
    Port.HOST: "1",
    Port.OPTICAL: "2",
    Port.ELECTRICAL: "3",
    Port.NORMAL: "NORMAL",
    Port.SERVERS: "11,output:12",
    **{server_port(place): f"{11 + place}" for place in range(2)},
    **{wired_port(place): f"{21 + place}" for place in range(2)},
}

IN_OVS_WORDS = {"ipv4_src": "ip_src", "ipv4_dst": "ip_dst", "ipv6_nd_target": "nd_target"}


@pytest.fixture(scope="module")
def switch(switches: None) -> Iterator[BareSwitch]:
    with bare_switch("hyT0") as bridge:
        yield bridge


@pytest.fixture
def empty(switch: BareSwitch) -> BareSwitch:
    everything = encode_changes([RemoveByCookie(0, 0)], PORTS, 1, None)
    meters = encode_meter_changes([RemoveEveryMeter(), AddMeter(METER, 40.0)], 1)
    assert switch.confirm(everything + meters, 1) == []
    assert switch.flows() == []
    return switch


def rules_of_a_vswitch(fabric: Fabric) -> list[FlowRule]:
    """A vswitch of the demo with rules of every kind of vswitches, with distinct matches."""
    server = fabric.servers[0]
    assert server.vswitch is not None
    datapath = server.vswitch.datapath_id
    rules = [
        *DualHomedVlan(fabric).rules(datapath, NetworkState(), {"h12", "h21"}),
        *DualHomedVlan(fabric).rules(datapath, NetworkState(), {server.name}),
        *SingleHomedVlan(fabric).rules(datapath, NetworkState(), ()),
        *(
            rule
            for source_check in SourceCheck
            for rule in SingleHomedVlan(fabric).rules(datapath, NetworkState(), (), source_check)
        ),
        constant(RuleKind.OWN_RACK_GUEST, mac_as_int("02:00:00:00:01:01")),
        constant(RuleKind.DIVERT_GUEST, mac_as_int("02:00:00:00:01:02")),
        *(divert_rule(RackId(rack), 3) for rack in (1, 2)),
        *(circuit_rule(RackId(rack), VlanId(100 + rack), 3) for rack in (1, 2, 3)),
        *circuit_rules(BY_UPLINK, RackId(4), [(104,), (204,), (304,)], 3),
        *emulated_rules(20, VlanId(4094), 3),
        *DualHomedVlan(fabric).tor_rules(),
        *reservation_rules(fabric, server, METER),
        *sharing_rules(),
    ]
    return list({match_key(rule): rule for rule in rules}.values())


def rules_of_a_tor() -> list[FlowRule]:
    """A ToR that steers, relays for r2 and r3, and diverts."""
    fabric = load_configuration(CONFIGS / "openflow-only.yaml").fabric
    one, other = circuit_between(fabric, 0, 1, 0), circuit_between(fabric, 0, 2, 1)
    paths = path_of(fabric, 0, 1, one), path_of(fabric, 1, 2, one, other)
    state = state_of(fabric, NetworkState(), *paths)
    datapath = fabric.racks[0].tor.datapath_id
    assert datapath is not None
    tor = SingleHomedOpenFlow(fabric)
    several = circuit_rules(BY_PORT, RackId(3), [(103, wired_port(0)), (203, wired_port(1))], 3)
    first = fabric.servers[0]
    reserved = [tor.for_server(rule, first) for rule in reservation_rules(fabric, first, METER)]
    return [*tor.rules(datapath, state, ()), tor.divert(RackId(2), 3), *several, *reserved]


@pytest.fixture(params=["vswitch", "tor"])
def rules(request: pytest.FixtureRequest, demo: Loaded) -> list[FlowRule]:
    return rules_of_a_tor() if request.param == "tor" else rules_of_a_vswitch(demo.fabric)


def test_between_them_they_have_rules_of_every_kind(demo: Loaded) -> None:
    every = [*rules_of_a_tor(), *rules_of_a_vswitch(demo.fabric)]
    assert {rule.kind for rule in every} == set(RuleKind)


def human(name: str, value: int) -> str:
    if name in {"eth_dst", "eth_src"}:
        return value.to_bytes(6, "big").hex(":")
    if name in {"ipv4_src", "ipv4_dst", "arp_spa"}:
        return str(IPv4Address(value))
    if name in {"ipv6_src", "ipv6_dst", "ipv6_nd_target"}:
        return str(IPv6Address(value))
    if name in {"tcp_src", "tcp_dst"}:
        return str(value)
    return hex(value)


FIXED_ACTIONS = {
    PopVlan: "pop_vlan",
    EndOnFin: "fin_timeout(hard_timeout=1)",
    PassProtected: "set_field:CONTROLLER->in_port",
}


def action_in_words(action: Action, number: Callable[[int | Arg], int]) -> str:
    if isinstance(action, Output):
        return f"output:{NAMES[number(action.port)]}"
    if isinstance(action, ToController):
        return "CONTROLLER:65535"
    if isinstance(action, SetDscp | SetPath):
        dscp = isinstance(action, SetDscp)
        field, value = ("ip_dscp", action.codepoint) if dscp else ("reg0", number(action.number))
        return f"set_field:{value}->{field}"
    if isinstance(action, PushVlan):
        tag = number(action.vlan) | 0x1000
        return f"push_vlan:0x8100,set_field:{tag}->vlan_vid"
    if isinstance(action, PickPath):
        links = number(action.last) + 1
        return f"multipath(symmetric_l3l4,{action.basis},hrw,{links},0,NXM_NX_REG0[])"
    return FIXED_ACTIONS[type(action)]


def in_words(rule: FlowRule) -> str:
    """The rule in the syntax of ovs-ofctl, derived from its shape only."""
    shape = SHAPES[rule.kind]

    def number(value: int | Arg) -> int:
        return rule.args[value.index] if isinstance(value, Arg) else value

    words = [f"cookie={rule.cookie:#x}", f"table={shape.table}", f"priority={shape.priority}"]
    for field in shape.match:
        value = number(field.value)
        if field.name == "in_port":
            words.append(f"in_port={NAMES[value]}")
        elif field.name == "vlan_vid":
            mask = 0x1FFF if field.mask is None else number(field.mask)
            words.append(f"vlan_tci={value:#x}/{mask:#x}")
        else:
            mask = None if field.mask is None else number(field.mask)
            tail = "" if mask is None else "/" + human(field.name, mask)
            name = IN_OVS_WORDS.get(field.name, field.name)
            words.append(f"{name}={human(field.name, value)}{tail}")
    words += ["send_flow_rem"] if shape.reports_end else []
    actions = [] if shape.meter is None else [f"meter:{number(shape.meter)}"]
    actions += [action_in_words(action, number) for action in shape.actions]
    if shape.write_metadata is not None:
        actions.append(f"write_metadata:{number(shape.write_metadata):#x}")
    if shape.goto is not None:
        actions.append(f"goto_table:{shape.goto}")
    return f"{','.join(words)},actions={','.join(actions) or 'drop'}"


def add_by_hand(bridge: str, lines: list[str]) -> None:
    subprocess.run(
        ["ovs-ofctl", "-O", "OpenFlow13", "add-flows", bridge, "-"],
        input="\n".join(lines),
        text=True,
        check=True,
    )


@pytest.mark.parametrize("bundle_id", [None, 5])
def test_every_rule_is_in_the_switch_as_meant(
    empty: BareSwitch, rules: list[FlowRule], bundle_id: int | None
) -> None:
    add_by_hand(empty.bridge, [in_words(rule) for rule in rules])
    expected = empty.flows()
    assert len(expected) == len(rules)
    assert empty.confirm(encode_changes([RemoveByCookie(0, 0)], PORTS, 2, None), 2) == []
    ours = encode_changes(map(Install, rules), PORTS, 3, bundle_id)
    assert empty.confirm(ours, 3) == []
    assert empty.flows() == expected


def test_every_rule_can_be_removed_alone(empty: BareSwitch, rules: list[FlowRule]) -> None:
    assert empty.confirm(encode_changes(map(Install, rules), PORTS, 1, 1), 1) == []
    whole = empty.flows()
    for number, rule in enumerate(rules[::7], start=1):
        assert empty.confirm(encode_changes([Remove(rule)], PORTS, 2, 2), 2) == []
        assert len(empty.flows()) == len(whole) - number
    rest = encode_changes(map(Remove, rules), PORTS, 3, 3)
    assert empty.confirm(rest, 3) == []
    assert empty.flows() == []


def test_what_comes_before_a_whole_table_spares_relays_rounds_and_what_is_not_ours(
    empty: BareSwitch, rules: list[FlowRule]
) -> None:
    foreign = "cookie=0x1234,table=0,priority=7,actions=drop"
    add_by_hand(empty.bridge, [foreign])
    changes = [WIPE, *map(Install, rules), ROUND_RULES]
    assert empty.confirm(encode_changes(changes, PORTS, 1, 1), 1) == []
    assert len(empty.flows()) > 1
    assert empty.confirm(encode_changes([WIPE], PORTS, 2, 2), 2) == []
    left = empty.flows()
    relays = list(relay_rules(rules))
    assert empty.confirm(encode_changes([RemoveByCookie(0, 0)], PORTS, 3, 3), 3) == []
    spared = encode_changes([*map(Install, relays), ROUND_RULES], PORTS, 4, 4)
    add_by_hand(empty.bridge, [foreign])
    assert empty.confirm(spared, 4) == []
    assert empty.flows() == left


def limit_circuits(bridge: str, rules: int | None) -> None:
    """Limit the number of circuit rules of the switch; None: no limit."""
    clear = ["ovs-vsctl", "clear", "Bridge", bridge, "flow_tables"]
    limit = ["--", "--id=@t", "create", "Flow_Table", f"flow_limit={rules}"]
    use = ["--", "set", "Bridge", bridge, f"flow_tables:{int(Table.CIRCUITS)}=@t"]
    subprocess.run(clear if rules is None else [*clear, *limit, *use], check=True)


def test_rules_wait_for_their_commit(empty: BareSwitch) -> None:
    rules = [divert_rule(RackId(rack), 1) for rack in range(1, 4)]
    assert empty.confirm(encode_open_bundle(map(Install, rules), PORTS, 3, 2), 4) == []
    other = encode_changes([Install(divert_rule(RackId(9), 1))], PORTS, 5, 1)
    assert empty.confirm(other, 6) == [], "a second bundle while the first one waits"
    assert len(empty.flows()) == 1
    assert empty.confirm(encode_bundle_control(2, BUNDLE_COMMIT, 7), 8) == []
    assert len(empty.flows()) == 4
    assert empty.confirm(encode_open_bundle([Remove(rules[0])], PORTS, 9, 2), 10) == []
    assert empty.confirm(encode_bundle_control(2, BUNDLE_DISCARD, 11), 12) == []
    assert len(empty.flows()) == 4


def test_a_bundle_that_waits_too_long_is_refused_and_changes_nothing(empty: BareSwitch) -> None:
    key = "other_config:bundle-idle-timeout"
    subprocess.run(["ovs-vsctl", "set", "Open_vSwitch", ".", f"{key}=1"], check=True)
    try:
        rule = Install(divert_rule(RackId(1), 1))
        assert empty.confirm(encode_open_bundle([rule], PORTS, 3, 2), 4) == []
        time.sleep(3)  # timed: longer than Open vSwitch's own time-out
        assert empty.confirm(encode_bundle_control(2, BUNDLE_COMMIT, 5), 6) != []
        assert empty.flows() == []
        assert empty.confirm(encode_changes([rule], PORTS, 7, 1), 8) == []
    finally:
        subprocess.run(["ovs-vsctl", "remove", "Open_vSwitch", ".", *key.split(":")], check=True)


def test_a_bundle_for_which_there_is_no_room_changes_nothing(empty: BareSwitch) -> None:
    rules = [circuit_rule(RackId(rack), VlanId(100), 1) for rack in range(5)]
    first, more = encode_changes([Install(rules[0])], PORTS, 1, 1), map(Install, rules)
    limit_circuits(empty.bridge, 3)
    try:
        assert empty.confirm(first, 1) == []
        alone = empty.flows()
        assert empty.confirm(encode_changes(more, PORTS, 2, 2), 2) != []
        assert empty.flows() == alone
    finally:
        limit_circuits(empty.bridge, None)


def test_a_rule_that_makes_no_sense_is_refused(empty: BareSwitch) -> None:
    bad = FlowRule(RuleKind.CIRCUIT, (3, 0x2FFF), cookie(RuleKind.CIRCUIT))  # no such VLAN
    assert empty.confirm(encode_changes([Install(bad)], PORTS, 1, 1), 1) != []
    assert empty.flows() == []


def test_the_counters_of_a_real_reply_are_what_ryu_reads(empty: BareSwitch) -> None:
    rules = emulated_rules(3000, VlanId(100), 1)
    assert empty.confirm(encode_changes(map(Install, rules), PORTS, 1, 1), 1) == []
    replies = empty.statistics(encode_flow_stats_request(Table.CIRCUITS, 0, 0, 2))
    assert len(replies) > 1  # too long for a single message
    body = b"".join(reply[16:] for reply in replies)
    found = decode_flow_stats(body)
    expected, offset = [], 0
    while offset < len(body):
        entry = ofproto_v1_3_parser.OFPFlowStats.parser(body, offset)
        expected.append((entry.cookie, entry.packet_count, entry.byte_count))
        offset += entry.length
    columns = (found.cookie, found.packets, found.bytes)
    assert [tuple(map(int, row)) for row in zip(*columns, strict=True)] == expected
    assert {row[0] for row in expected} == {rule.cookie for rule in rules}


def test_a_request_for_one_cookie_brings_that_alone(empty: BareSwitch) -> None:
    rules = [circuit_rule(RackId(rack), VlanId(100), 1) for rack in range(5)]
    assert empty.confirm(encode_changes(map(Install, rules), PORTS, 1, 1), 1) == []
    wanted = rules[3].cookie
    (reply,) = empty.statistics(encode_flow_stats_request(Table.CIRCUITS, wanted, 2**64 - 1, 2))
    assert decode_flow_stats(reply[16:]).cookie.tolist() == [wanted]


def test_port_counters_of_a_real_reply_are_what_ryu_reads(switch: BareSwitch) -> None:
    replies = switch.statistics(encode_port_stats_request(3))
    body = b"".join(reply[16:] for reply in replies)
    found = decode_port_stats(body)
    entries = [ofproto_v1_3_parser.OFPPortStats.parser(body, at) for at in range(0, len(body), 112)]
    assert {entry.port_no for entry in entries} == set(found) == {0xFFFFFFFE}  # the local port
    for entry in entries:
        assert found[entry.port_no].rx_packets == entry.rx_packets
        assert found[entry.port_no].tx_packets == entry.tx_packets
        assert found[entry.port_no].tx_bytes == entry.tx_bytes


def test_rules_read_back_are_the_rules_that_were_sent(
    empty: BareSwitch, rules: list[FlowRule]
) -> None:
    """Otherwise the controller would see drift without cause."""
    sent = encode_changes([Install(rule) for rule in rules], PORTS, 7, 7)
    assert empty.confirm(sent, 7) == []
    replies = empty.statistics(encode_flow_stats_request(0xFF, 0, 0, 8))
    body = b"".join(reply[16:] for reply in replies)
    assert decode_rules(body) == intended_table(map(Install, rules), PORTS)
    assert is_exact((InstallAll(tuple(rules[3:])), *map(Install, rules[:3])), PORTS, body)
    assert not is_exact(tuple(map(Install, rules[1:])), PORTS, body)


def meters_of(bridge: str) -> str:
    command = ["ovs-ofctl", "-O", "OpenFlow13", "dump-meters", bridge]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_meters_are_in_the_switch_as_meant(empty: BareSwitch) -> None:
    added = [AddMeter(7, 40.0), AddMeter(8, 1.0), SetMeter(8, 57.5), RemoveMeter(METER)]
    assert empty.confirm(encode_meter_changes(added, 2), 2) == []
    shown = meters_of(empty.bridge)
    assert "meter=7 kbps burst bands=\ntype=drop rate=40000 " in shown
    assert "meter=8 kbps burst bands=\ntype=drop rate=57500 " in shown
    assert f"meter={METER} " not in shown
    (reply,) = empty.statistics(encode_meter_stats_request(3))
    assert decode_meter_stats(reply[16:]).keys() == {7, 8}
    unlimited = encode_meter_changes([AddMeter(9, float("inf"))], 4)
    assert empty.confirm(unlimited, 4) == []
    assert empty.confirm(encode_meter_changes([AddMeter(9, 1.0)], 5), 5) != [], "there is one"
    assert empty.confirm(encode_meter_changes([SetMeter(10, 1.0)], 6), 6) != [], "there is none"


def test_a_meter_takes_its_rules_along(empty: BareSwitch, demo: Loaded) -> None:
    rules = list(reservation_rules(demo.fabric, demo.fabric.servers[0], METER))
    assert empty.confirm(encode_changes(map(Install, rules), PORTS, 1, 1), 1) == []
    whole = empty.flows()
    assert empty.confirm(encode_meter_changes([RemoveMeter(METER)], 2), 2) == []
    assert empty.flows() == [line for line in whole if "meter:" not in line]
    assert len(empty.flows()) < len(whole)
