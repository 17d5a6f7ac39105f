"""Refusals of switches, in words."""

import struct

import pytest

from drivers.codecs.openflow import meters
from drivers.codecs.openflow.refusals import describe_refusal
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import FlowRule, Install

RULE = Install(FlowRule(RuleKind.CIRCUIT, (3, 104, Port.OPTICAL)))
ALONE = encode_changes([RULE], SwitchPorts(1, 2, 3), 7, None)
OPEN_BYTES = 24
MEMBER = encode_changes([RULE], SwitchPorts(1, 2, 3), 7, 1)[OPEN_BYTES:]
METER = meters.encode_meter_changes([meters.AddMeter(5, 10.0)], 7)
FULL = "no room for a further rule, table 5 (circuits), OpenFlow error type 5, code 1"


@pytest.mark.parametrize("refused", [ALONE, ALONE[:64], MEMBER, MEMBER[:64]])
def test_a_full_table_is_named(refused):
    assert describe_refusal(5, 1, refused) == FULL


@pytest.mark.parametrize(
    ("of_type", "code", "refused", "words"),
    [
        (2, 9, MEMBER, "action to an unknown group, table 5 (circuits)"),
        (2, 4, MEMBER, "action to an unknown port, table 5 (circuits)"),
        (12, 10, METER, "no room for a further meter, meter 5"),
        (5, 1, b"", "no room for a further rule"),
        (77, 3, MEMBER, "refused, table 5 (circuits)"),
    ],
)
def test_other_refusals_are_named_as_far_as_they_are_known(of_type, code, refused, words):
    numbers = f"OpenFlow error type {of_type}, code {code}"
    assert describe_refusal(of_type, code, refused) == f"{words}, {numbers}"


def test_an_error_about_anything_is_put_into_words():
    table = bytearray(ALONE)
    table[24] = 200
    assert describe_refusal(5, 1, bytes(table)).startswith("no room for a further rule, table 200,")
    for length in range(len(MEMBER)):
        assert describe_refusal(5, 1, MEMBER[:length]).startswith("no room for a further rule")
    assert struct.unpack_from("!B", MEMBER, 1) == (4,), "an experimenter's message"
