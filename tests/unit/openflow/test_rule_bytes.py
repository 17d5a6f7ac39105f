import struct
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.openflow.package import ofproto_v1_3, ofproto_v1_3_parser
from drivers.codecs.openflow.messages import (
    BUNDLE_COMMIT,
    BUNDLE_OPEN,
    encode_barrier,
    encode_bundle_control,
    encode_bundled,
    encode_flow_stats_request,
)
from drivers.codecs.openflow.rules import (
    SwitchPorts,
    encode_changes,
    encode_packet_out,
    encode_port_stats_request,
)
from drivers.codecs.openflow.statistics import (
    MalformedReplyError,
    PortPackets,
    decode_flow_stats,
    decode_port_stats,
    octets_by_subject,
)
from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import COOKIE_TAG, COOKIE_TAG_MASK, RuleKind
from hydra.forwarding.rules import (
    FlowRule,
    Install,
    InstallAll,
    Modify,
    Remove,
    RemoveByCookie,
    RemoveByPort,
)
from hydra.model import RackId, VlanId
from tests.unit.core.fabrics import small_fabric
from tests.unit.forwarding.sample_rules import circuit_rule, every_rule
from tests.unit.openflow.ryu_reference import DATAPATH, flow_mod, normal, parse, serialised, split

RULES = list(every_rule(small_fabric(racks=3)))
PORTS = SwitchPorts(
    host=1, optical=2, electrical=3, servers=(11, 12), wired=(21, 22), protected=True
)
XID = 0x4000_1234
BUNDLE_ID = 77
LONG = 40
"""Rules of a kind that is encoded column by column."""


@pytest.mark.takes(6)
@pytest.mark.parametrize("kind", RuleKind)
def test_ryu_reads_a_rule_as_it_would_have_written_it(kind):
    for rule in (rule for rule in RULES if rule.kind is kind):
        ours = encode_changes([Install(rule)], PORTS, XID, None)
        theirs = serialised(flow_mod(rule, PORTS, ofproto_v1_3.OFPFC_ADD), XID)
        assert normal(parse(ours)) == normal(parse(theirs))
        assert len(ours) == len(theirs)


@pytest.mark.takes(4)
@pytest.mark.parametrize("kind", RuleKind)
def test_ryu_reads_a_removal_as_it_would_have_written_it(kind):
    for rule in (rule for rule in RULES if rule.kind is kind):
        ours = encode_changes([Remove(rule)], PORTS, XID, None)
        theirs = serialised(flow_mod(rule, PORTS, ofproto_v1_3.OFPFC_DELETE_STRICT), XID)
        assert normal(parse(ours)) == normal(parse(theirs))


@pytest.mark.parametrize("bundle_id", [None, BUNDLE_ID])
@pytest.mark.parametrize("change", [Install, Remove])
@pytest.mark.parametrize("kind", RuleKind)
def test_a_long_run_of_rules_is_the_bytes_of_each(kind, change, bundle_id):
    some = [rule for rule in RULES if rule.kind is kind]
    many = (some * LONG)[:LONG]
    each = [encode_changes([change(rule)], PORTS, XID, None) for rule in many]
    if bundle_id is not None:
        each = [encode_bundled(message, bundle_id, XID) for message in each]
        each.insert(0, encode_bundle_control(bundle_id, BUNDLE_OPEN, XID))
        each.append(encode_bundle_control(bundle_id, BUNDLE_COMMIT, XID))
    assert encode_changes(map(change, many), PORTS, XID, bundle_id) == b"".join(each)


@given(st.lists(st.sampled_from(RULES).flatmap(lambda rule: st.integers(1, LONG).map(
    lambda count: [rule] * count)), max_size=5))  # fmt: skip
def test_runs_of_rules_keep_their_order(runs):
    rules = [rule for run in runs for rule in run]
    each = b"".join(encode_changes([Install(rule)], PORTS, XID, None) for rule in rules)
    assert encode_changes(map(Install, rules), PORTS, XID, None) == each


@pytest.mark.parametrize("bundle_id", [None, BUNDLE_ID])
def test_what_switches_have_in_common_is_the_bytes_of_each_rule_with_their_own_xid(bundle_id):
    common = InstallAll(tuple(RULES))
    other_ports = SwitchPorts(host=9, optical=8, electrical=7, servers=(1, 2), wired=(3, 4))
    for ports in (PORTS, other_ports, PORTS):
        for xid in (0, 1, XID, 0xFFFF_FFFF):
            each = encode_changes(map(Install, RULES), ports, xid, bundle_id)
            assert encode_changes([common], ports, xid, bundle_id) == each
    assert encode_changes([InstallAll(())], PORTS, XID, None) == b""


@pytest.mark.parametrize("vlan", [2**16 - 0x1000, -0x1001])
@pytest.mark.parametrize("count", [1, LONG])
def test_what_a_place_does_not_hold_is_refused(vlan, count):
    rules = [circuit_rule(RackId(1), VlanId(4), 1)] * (count - 1)
    wrong = circuit_rule(RackId(1), VlanId(vlan), 1)
    with pytest.raises((struct.error, OverflowError)):
        encode_changes(map(Install, [*rules, wrong]), PORTS, XID, None)


@given(st.integers(0, 319), st.integers(1, 4094), st.integers(0, 2**16), st.integers(0, 2**32 - 1))
def test_holes_are_filled_with_what_the_rule_says(rack, vlan, epoch, xid):
    rule = circuit_rule(RackId(rack), VlanId(vlan), epoch)
    message = parse(encode_changes([Install(rule)], PORTS, xid, None))
    assert message.xid == xid
    assert message.cookie == rule.cookie
    assert message.match["metadata"] == rack + 1
    _push, set_field, output = message.instructions[0].actions
    assert (set_field.key, set_field.value) == ("vlan_vid", vlan | 0x1000)
    assert output.port == PORTS.optical


@given(st.integers(1, 2**31), st.integers(1, 2**31), st.integers(1, 2**31))
def test_each_switchs_own_port_numbers_are_used(host, optical, electrical):
    ports = SwitchPorts(host, optical, electrical)
    rule = FlowRule(RuleKind.UPLINK_UNTAGGED, (0x02_00_00_00_01_01,))
    message = parse(encode_changes([Install(rule)], ports, XID, None))
    assert message.match["in_port"] == optical
    assert message.instructions[0].actions[0].port == host


def test_removal_by_cookie_reaches_every_table():
    change = RemoveByCookie(COOKIE_TAG, COOKIE_TAG_MASK)
    message = parse(encode_changes([change], PORTS, XID, None))
    assert message.command == ofproto_v1_3.OFPFC_DELETE
    assert message.table_id == ofproto_v1_3.OFPTT_ALL
    assert (message.cookie, message.cookie_mask) == (COOKIE_TAG, COOKIE_TAG_MASK)
    assert list(message.match.items()) == []
    assert (message.out_port, message.out_group) == (0xFFFFFFFF, 0xFFFFFFFF)


def test_removal_by_port_reaches_every_table_and_rules_of_ours_alone():
    message = parse(encode_changes([RemoveByPort(41)], PORTS, XID, None))
    assert message.command == ofproto_v1_3.OFPFC_DELETE
    assert message.table_id == ofproto_v1_3.OFPTT_ALL
    assert (message.cookie, message.cookie_mask) == (COOKIE_TAG, COOKIE_TAG_MASK)
    assert list(message.match.items()) == [("in_port", 41)]
    assert (message.out_port, message.out_group) == (0xFFFFFFFF, 0xFFFFFFFF)


@pytest.mark.parametrize("rule", RULES[:8], ids=lambda rule: rule.kind.name)
def test_a_modification_is_an_installation_but_for_its_command_and_cookie(rule):
    changed = parse(encode_changes([Modify(rule)], PORTS, XID, None))
    added = parse(encode_changes([Install(rule)], PORTS, XID, None))
    assert changed.command == ofproto_v1_3.OFPFC_MODIFY_STRICT
    assert (changed.cookie, changed.cookie_mask) == (0, 0)
    for field in ("table_id", "priority"):
        assert getattr(changed, field) == getattr(added, field)
    assert list(changed.match.items()) == list(added.match.items())
    assert list(map(str, changed.instructions)) == list(map(str, added.instructions))


def test_a_bundle_wraps_every_change_between_open_and_commit():
    changes = [
        RemoveByCookie(COOKIE_TAG, COOKIE_TAG_MASK),
        RemoveByPort(41),
        *map(Install, RULES),
        *map(Modify, RULES),
        *map(Remove, RULES),
    ]
    messages = list(split(encode_changes(changes, PORTS, XID, BUNDLE_ID)))
    plain = list(split(encode_changes(changes, PORTS, XID, None)))
    parsed = [parse(message) for message in messages]
    assert {message.xid for message in parsed} == {XID}
    assert {message.experimenter for message in parsed} == {0x4F4E4600}
    assert [m.exp_type for m in parsed] == [2300, *(2301 for _ in changes), 2300]
    heads = [struct.unpack_from("!IHH", message, 16) for message in messages]
    assert heads[0] == (BUNDLE_ID, 0, 3)
    assert heads[-1] == (BUNDLE_ID, 4, 3)
    assert set(heads[1:-1]) == {(BUNDLE_ID, 0, 3)}
    assert [message[24:] for message in messages[1:-1]] == plain


def test_requests_are_the_bytes_that_ryu_sends():
    parser, proto = ofproto_v1_3_parser, ofproto_v1_3
    assert encode_barrier(XID) == serialised(parser.OFPBarrierRequest(DATAPATH), XID)
    flows = parser.OFPFlowStatsRequest(
        DATAPATH, 0, 1, proto.OFPP_ANY, proto.OFPG_ANY, 5, 7, parser.OFPMatch()
    )
    assert encode_flow_stats_request(1, 5, 7, XID) == serialised(flows, XID)
    ports = parser.OFPPortStatsRequest(DATAPATH, 0, proto.OFPP_ANY)
    assert encode_port_stats_request(XID) == serialised(ports, XID)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 2**31))
def test_a_packet_out_is_the_bytes_that_ryu_sends(frame, port):
    parser, proto = ofproto_v1_3_parser, ofproto_v1_3
    actions = [parser.OFPActionOutput(port, 0)]
    message = parser.OFPPacketOut(
        DATAPATH, proto.OFP_NO_BUFFER, proto.OFPP_CONTROLLER, actions, frame
    )
    assert encode_packet_out(frame, port, XID) == serialised(message, XID)


def test_a_real_port_number_stays():
    assert PORTS.number(17) == 17
    assert PORTS.number(Port.NORMAL) == ofproto_v1_3.OFPP_NORMAL


# -- replies ----------------------------------------------------------------------------------

COUNTS = st.integers(0, 2**64 - 1)
AVAILABLE = st.integers(0, 2**64 - 2)


@cache
def flow_entry(cookie: int, packets: int, octets: int, rule: FlowRule) -> bytes:
    """An entry of a reply, with match and instructions written by Ryu."""
    mod = flow_mod(rule, PORTS, ofproto_v1_3.OFPFC_ADD)
    tail = bytearray()
    tail_at = mod.match.serialize(tail, 0)
    for instruction in mod.instructions:
        instruction.serialize(tail, tail_at)
        tail_at += instruction.len
    head = struct.pack("!HBxIIHHHHxxxxQQQ", 48 + len(tail), 0, 1, 2, 3, 0, 0, 0, *(
        (cookie, packets, octets)
    ))  # fmt: skip
    return head + bytes(tail)


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, st.sampled_from(RULES)), max_size=20))
def test_flow_counters_are_what_ryu_reads(entries):
    body = b"".join(flow_entry(*entry) for entry in entries)
    found = decode_flow_stats(body)
    expected, offset = [], 0
    while offset < len(body):
        entry = ofproto_v1_3_parser.OFPFlowStats.parser(body, offset)
        expected.append((entry.cookie, entry.packet_count, entry.byte_count))
        offset += entry.length
    assert [
        tuple(map(int, row)) for row in zip(found.cookie, found.packets, found.bytes, strict=True)
    ] == expected
    assert expected == [entry[:3] for entry in entries]
    assert found.cookie.dtype == np.uint64
    assert found.age_s.tolist() == pytest.approx([1 + 2e-9] * len(entries))


@given(
    st.lists(st.tuples(COUNTS, COUNTS, AVAILABLE, st.sampled_from(RULES)), max_size=20),
    st.sampled_from([0, 7, 255, 2**64 - 1]),
    st.integers(0, 9),
)
def test_octets_are_those_of_each_subject(entries, mask, count):
    body = b"".join(flow_entry(*entry) for entry in entries)
    columns = decode_flow_stats(body)
    expected = np.zeros(count, dtype=np.uint64)
    for cookie, octets in zip(columns.cookie.tolist(), columns.bytes, strict=True):
        if 1 <= cookie & mask <= count:
            with np.errstate(over="ignore"):  # counters are modulo 2^64
                expected[(cookie & mask) - 1] += octets
    found, oldest_s = octets_by_subject(body, mask, count)
    assert found.tolist() == expected.tolist()
    assert oldest_s == columns.age_s.max(initial=0.0)


@pytest.mark.parametrize("which", range(3))
def test_octets_of_a_subject_are_not_available_if_those_of_one_rule_are_not(which):
    """OpenFlow 1.3.5, section 5.8."""
    octets = [2**64 - 1 if at == which else 5 for at in range(3)]
    body = b"".join(flow_entry(1, 1, one, RULES[0]) for one in octets)
    body += flow_entry(2, 1, 7, RULES[0])
    found, _ = octets_by_subject(body, 7, 2)
    assert found.tolist() == [2**64 - 1, 7]


@given(st.lists(st.tuples(st.integers(1, 700), st.sampled_from(RULES)), max_size=6))
def test_runs_of_equally_long_entries_are_read_whatever_their_lengths(runs):
    counted = [rule for number, rule in runs for _ in range(number)]
    found = decode_flow_stats(b"".join(flow_entry(rule.cookie, 1, 2, rule) for rule in counted))
    assert found.cookie.tolist() == [rule.cookie for rule in counted]


@given(st.lists(st.tuples(*(AVAILABLE for _ in range(12))), max_size=8))
def test_port_counters_are_what_ryu_reads(entries):
    body = b"".join(
        struct.pack("!Ixxxx12QII", number, *counts, 1, 2) for number, counts in enumerate(entries)
    )
    found = decode_port_stats(body)
    assert list(found) == list(range(len(entries)))
    for number in found:
        entry = ofproto_v1_3_parser.OFPPortStats.parser(body, 112 * number)
        assert found[number] == PortPackets(
            entry.rx_packets, entry.tx_packets, entry.rx_bytes, entry.tx_bytes, entry.tx_dropped
        )


@pytest.mark.parametrize("which", range(4))
def test_a_port_whose_counters_are_not_available_is_left_out(which):
    """OpenFlow 1.3.5, section 5.8. Drops are not used for rates."""
    counts = [1, 2, 3, 4, 2**64 - 1, 2**64 - 1]
    partly = [2**64 - 1 if at == which else count for at, count in enumerate(counts)]
    body = b"".join(
        struct.pack("!Ixxxx6Q56x", number, *some) for number, some in enumerate((counts, partly))
    )
    assert decode_port_stats(body) == {0: PortPackets(1, 2, 3, 4, 2**64 - 1)}


@given(st.binary(max_size=400))
def test_any_bytes_are_counters_or_malformed(body):
    for decode in (
        decode_flow_stats,
        decode_port_stats,
        partial(octets_by_subject, mask=7, count=3),
    ):
        try:
            decode(body)
        except MalformedReplyError as error:
            assert "statistics" in str(error)


@given(st.integers(0, 3), st.integers(0, 2**16 - 1), st.integers(0, 400))
def test_a_reply_with_a_wrong_length_or_cut_short(which, length, cut):
    body = bytearray(b"".join(flow_entry(1, 2, 3, RULES[0]) for _ in range(4)))
    whole = len(body)
    entry = whole // 4
    struct.pack_into("!H", body, which * entry, length)
    body = body[: whole - cut]
    try:
        found = decode_flow_stats(bytes(body))
    except MalformedReplyError:
        assert length != entry or cut % entry
        with pytest.raises(MalformedReplyError):
            octets_by_subject(bytes(body), 1, 1)
    else:
        assert len(found.cookie) == len(found.packets) == len(found.bytes)
        assert octets_by_subject(bytes(body), 1, 1)[0].sum() == found.bytes.sum()


def test_malformed_replies_say_where():
    entry = flow_entry(1, 2, 3, RULES[0])
    with pytest.raises(MalformedReplyError, match=f"end inside an entry at byte {len(entry)}"):
        decode_flow_stats(entry + entry[:20])
    with pytest.raises(MalformedReplyError, match="at byte 0 has length 0"):
        decode_flow_stats(bytes(56))
    with pytest.raises(MalformedReplyError, match="of 111 bytes are not whole entries"):
        decode_port_stats(bytes(111))


def test_ryu_speaks_the_version_that_is_encoded():
    assert encode_barrier(1)[0] == DATAPATH.ofproto.OFP_VERSION
