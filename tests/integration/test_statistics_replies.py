"""The replies played by the benchmarks equal Open vSwitch's replies."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from apps.process.configuration import load_configuration
from benchmarks._replies import PORTS, account_rules, flow_entry, flow_reply
from drivers.codecs.openflow.messages import encode_flow_stats_request
from drivers.codecs.openflow.rules import encode_changes
from hydra.forwarding.match_action import Table
from hydra.forwarding.rules import Install
from tests.integration.bare_switch import bare_switch

pytestmark = pytest.mark.ovs
REFERENCE = Path(__file__).parents[2] / "configs" / "reference.yaml"
XID = 7
_AGE = slice(4, 12)


def entries_of(messages: list[bytes]) -> list[bytes]:
    entries = []
    for message in messages:
        offset = 16
        while offset < len(message):
            (length,) = struct.unpack_from("!H", message, offset)
            entries.append(message[offset : offset + length])
            offset += length
    return entries


def ageless(entry: bytes) -> bytes:
    """The reply without the durations, which depend on the switch's clock."""
    return entry[: _AGE.start] + bytes(_AGE.stop - _AGE.start) + entry[_AGE.stop :]


def test_the_account_table_of_the_reference_fabric(switches: None) -> None:
    fabric = load_configuration(REFERENCE).fabric
    rules = account_rules(fabric, fabric.servers[0])
    with bare_switch("hyT0") as switch:
        changes = encode_changes(map(Install, rules), PORTS, 1, 1)
        assert switch.confirm(changes, 1) == []
        messages = switch.statistics(encode_flow_stats_request(Table.ACCOUNT, 0, 0, XID))
    found = entries_of(messages)
    assert sorted(map(ageless, found)) == sorted(flow_entry(rule, 0, 0, 0) for rule in rules)
    assert flow_reply(found, XID) == b"".join(messages)
