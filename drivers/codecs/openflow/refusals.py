"""OpenFlow error messages in words: the refused message, its table, and the reason.

An error carries the first bytes of the refused message (OpenFlow Switch Specification 1.3.5,
section 7.4.4: at least 64). For a bundle, these are the refused member's, with the header of the
bundle's message (ONF extension 230) or without the header.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from drivers.codecs.openflow.messages import (
    BUNDLE_ADD,
    HEADER,
    ONF_EXPERIMENTER,
    TYPE_EXPERIMENTER,
    TYPE_FLOW_MOD,
)
from drivers.codecs.openflow.meters import TYPE_METER_MOD
from hydra.forwarding.match_action import Table

_REASONS: Final[Mapping[tuple[int, int], str]] = {
    (1, 1): "unknown kind of message",
    (1, 5): "no permission",
    (1, 6): "message of a bad length",
    (2, 0): "unknown action",
    (2, 1): "action of a bad length",
    (2, 4): "action to an unknown port",
    (2, 5): "action with a bad argument",
    (2, 9): "action to an unknown group",
    (2, 11): "actions in conflict with the match",
    (3, 0): "unknown instruction",
    (3, 2): "instruction to an unknown table",
    (4, 6): "match on an unknown field",
    (4, 7): "match on a bad value",
    (4, 9): "match without a required field",
    (5, 1): "no room for a further rule",
    (5, 2): "unknown table",
    (5, 3): "rule overlaps an existing rule",
    (5, 4): "no permission for a rule",
    (6, 3): "no room for a further group",
    (6, 8): "unknown group",
    (12, 1): "meter exists already",
    (12, 2): "bad number of a meter",
    (12, 3): "unknown meter",
    (12, 6): "bad rate of a meter",
    (12, 7): "bad burst of a meter",
    (12, 10): "no room for a further meter",
    (12, 11): "no room for a further band of a meter",
}
"""By type and code (section 7.4.4)."""
_BUNDLE_HEAD: Final = struct.Struct("!II8x")
_TABLE_AT: Final = HEADER.size + 16
"""The place of the table in a flow-mod: behind cookie and mask."""
_METER: Final = struct.Struct("!HHI")


def describe_refusal(of_type: int, code: int, refused: bytes = b"") -> str:
    """An error in words; ``refused``: the first bytes of the refused message."""
    reason = _REASONS.get((of_type, code), "refused")
    parts = [reason, _subject(_unbundled(refused)), f"OpenFlow error type {of_type}, code {code}"]
    return ", ".join(filter(None, parts))


def _unbundled(message: bytes) -> bytes:
    """The member of a bundle; any other message unchanged."""
    inner = HEADER.size + _BUNDLE_HEAD.size
    if len(message) < inner or message[1] != TYPE_EXPERIMENTER:
        return message
    is_member = _BUNDLE_HEAD.unpack_from(message, HEADER.size) == (ONF_EXPERIMENTER, BUNDLE_ADD)
    return message[inner:] if is_member else message


def _subject(message: bytes) -> str:
    """The table of a rule, or the number of a meter; empty for other messages."""
    kind = message[1] if len(message) >= HEADER.size else None
    if kind == TYPE_FLOW_MOD and len(message) > _TABLE_AT:
        number = message[_TABLE_AT]
        known = number in Table.__members__.values()
        return f"table {number}" + (f" ({Table(number).name.lower()})" if known else "")
    if kind == TYPE_METER_MOD and len(message) >= HEADER.size + _METER.size:
        return f"meter {_METER.unpack_from(message, HEADER.size)[2]}"
    return ""
