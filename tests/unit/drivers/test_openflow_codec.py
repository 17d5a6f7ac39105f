"""OpenFlow messages: framing for any split, and cross-connects equal after encode and decode."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.codecs.openflow import messages
from drivers.codecs.openflow.messages import MessageDecoder, OpenFlowError, PortPair, RuleAddress
from tests.unit.openflow.ryu_reference import parse

PORT = st.integers(1, messages.PORT_MAX - 1)
WHERE = RuleAddress(table=3, priority=77, cookie=0xABCDEF)
XID = 0x01020304


def decoded(pieces):
    """(messages, error)"""
    decoder, found = MessageDecoder(), []
    for piece in pieces:
        decoder.receive(piece)
    try:
        while (message := decoder.next_message()) is not None:
            found.append(message)
    except OpenFlowError as error:
        return found, str(error)
    return found, None


MESSAGES = st.builds(
    messages.encode, st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=40)
)
STREAM = st.lists(MESSAGES | st.binary(max_size=12)).map(b"".join)


@given(STREAM)
def test_splitting_does_not_matter(data):
    assert decoded([data]) == decoded([data[i : i + 1] for i in range(len(data))])


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.binary(max_size=40))))
def test_what_is_encoded_is_decoded(wanted):
    found, error = decoded([b"".join(messages.encode(*one) for one in wanted)])
    assert error is None
    assert [(m.type, m.xid, m.body) for m in found] == wanted


@pytest.mark.parametrize("header", [b"\x01\x0e\x00\x08", b"\x04\x0e\x00\x07"])
def test_another_version_and_impossible_lengths(header):
    data = messages.encode_barrier(1) + header + bytes(4)
    found, error = decoded([data])
    assert len(found) == 1
    assert error.startswith("no OpenFlow 1.3 message: version")


def test_a_greeting_may_name_a_later_version():
    assert decoded([b"\x06\x00\x00\x08" + bytes(4)])[1] is None


@given(st.binary(max_size=200))
@pytest.mark.parametrize(
    "decode",
    [
        messages.split_multipart,
        messages.decode_description,
        messages.decode_port_descriptions,
        messages.decode_flow_entries,
        messages.describe_error,
    ],
)
def test_arbitrary_bodies_give_a_value_or_the_codecs_error(decode, data):
    try:
        result = decode(data)
    except OpenFlowError:
        return
    if decode is messages.decode_flow_entries:
        assert all(entry.pair is None or entry.pair.in_port >= 0 for entry in result)


@given(PORT, PORT)
def test_ryu_reads_a_cross_connect_as_meant(in_port, out_port):
    flow = parse(messages.encode_connect(PortPair(in_port, out_port), WHERE, XID))
    assert flow.match.items() == [("in_port", in_port)]
    (instruction,) = flow.instructions
    (output,) = instruction.actions
    assert output.port == (messages.PORT_IN_PORT if in_port == out_port else out_port)
    assert (flow.table_id, flow.priority, flow.cookie) == (3, 77, 0xABCDEF)
    assert flow.command == messages.FLOW_ADD


def flow_entry(match: bytes, instructions: bytes) -> bytes:
    fields = (3, 0, 0, 77, 0, 0, 0, 0xABCDEF, 5, 6)
    length = 48 + len(match) + len(instructions)
    return struct.pack("!HBxIIHHHHxxxxQQQ", length, *fields) + match + instructions


@given(st.lists(st.tuples(PORT, PORT)))
def test_what_is_written_reads_back(pairs):
    body = b""
    for in_port, out_port in pairs:
        message = messages.encode_connect(PortPair(in_port, out_port), WHERE, XID)
        body += flow_entry(message[48:64], message[64:])
    entries = messages.decode_flow_entries(body)
    assert [entry.pair for entry in entries] == [PortPair(*pair) for pair in pairs]
    assert all(
        (entry.table, entry.priority, entry.cookie) == (3, 77, 0xABCDEF) for entry in entries
    )


def test_rules_of_other_kinds_are_no_cross_connects():
    in_port = messages.encode_connect(PortPair(1, 2), WHERE, XID)[48:64]
    anything = struct.pack("!HHxxxx", 1, 4)
    to_2, to_normal = (
        struct.pack("!HHxxxxHHIHxxxxxx", 4, 24, 0, 16, port, 0)
        for port in (2, messages.PORT_NORMAL)
    )
    two_outputs = struct.pack("!HHxxxx", 4, 40) + 2 * struct.pack("!HHIHxxxxxx", 0, 16, 2, 0)
    body = flow_entry(anything, to_2) + flow_entry(in_port, to_normal)
    body += flow_entry(in_port, two_outputs) + flow_entry(anything, b"") + flow_entry(in_port, b"")
    entries = messages.decode_flow_entries(body)
    assert [entry.pair for entry in entries] == [None] * 5
    assert [entry.drops for entry in entries] == [False, False, False, True, True]
    assert [bool(entry.match) for entry in entries] == [False, True, True, False, True]
