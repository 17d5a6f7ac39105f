"""Tables of SONiC optical circuit switches, as gNMI and RESTCONF carry them in JSON.

Switches use two vocabularies, and the codec reads both: that of SONiC's OCS working group
(``sonic-ocs-states``, revision 2024-11-21; sonic-net/SONiC pull requests 2269 and 2349), where each
side of a cross-connect is ``blocked``, ``tuning``, ``tuned`` or ``failed``; and Molex'
(``sonic-ocs``, revision 2024-11-21, sonic-molex/sonic-mgmt-common), where a cross-connect is
``disabled``, ``enabled`` or ``invalid``, and the rpc ``bulk-update`` deletes and adds. Ports are
``1A`` to ``64B``, a cross-connect is ``1A-2B`` and one-way. Alarms follow SONiC's event and alarm
framework (``sonic-alarm``).

A Molex status is empty until it is read from the hardware for the first time
(sonic-molex/sonic-swss, the flex counter's script).

Inferred are: a Molex cross-connect may still be ``disabled`` while its mirrors move; ``blocked``
may follow a new cross-connect for a moment; alarms name a port by its name alone, or at the end of
a path; gNMI paths and keys are as of other tables; an empty table is ``{}`` over RESTCONF.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drivers.codecs.yang_json import (
    Json,
    YangJsonError,
    as_array,
    as_object,
    member,
    parse,
    shown,
)

_PORT: Final = re.compile(r"([1-9][0-9]{0,4})([AB])")
_CROSS_CONNECT: Final = re.compile(r"([1-9][0-9]{0,4}A)-([1-9][0-9]{0,4}B)")
_PORT_IN_TEXT: Final = re.compile(r"(?<![0-9A-Za-z])[1-9][0-9]{0,4}[AB](?![0-9A-Za-z])")
_DECIBELS: Final = re.compile(r"-?[0-9]{1,3}(?:\.[0-9]{1,18})?", re.ASCII)
_PORT_AT_END: Final = re.compile(r"(?:^|[^0-9A-Za-z])([1-9][0-9]{0,4}[AB])$")
_MODULE: Final = "sonic-ocs"

Fields = Mapping[str, str]
Rows = Mapping[str, Fields]
"""Fields of each key."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a database, and its place in the YANG modules."""

    database: str
    name: str
    module: str
    list_name: str
    key: str
    """Leaf of the list's key; several leaves are joined by |."""
    optional: bool = False
    """True if a switch may know no such table."""

    @property
    def resource(self) -> str:
        """The table's path below RESTCONF's ``data``."""
        return f"{self.module}:{self.module}/{self.name}"


CROSS_CONNECTS: Final = Table(
    "CONFIG_DB", "OCS_CROSS_CONNECT", _MODULE, "OCS_CROSS_CONNECT_LIST", "cross_connect_id"
)
CROSS_CONNECT_STATES: Final = Table(
    "STATE_DB", "OCS_CROSS_CONNECT_TABLE", _MODULE, "OCS_CROSS_CONNECT_LIST", "cross_connect_id"
)
PORTS: Final = Table("CONFIG_DB", "OCS_PORT", _MODULE, "OCS_PORT_LIST", "simplex_port_id")
PORT_STATES: Final = Table(
    "STATE_DB", "OCS_PORT_TABLE", _MODULE, "OCS_PORT_LIST", "simplex_port_id"
)
METADATA: Final = Table(
    "CONFIG_DB", "DEVICE_METADATA", "sonic-device-metadata", "DEVICE_METADATA_LIST", "name"
)
ALARMS: Final = Table("EVENT_DB", "ALARM", "sonic-alarm", "ALARM_LIST", "id", optional=True)
FACTORY_LOSSES: Final = tuple(
    Table(
        "STATE_DB", name, _MODULE, "OCS_FACTORY_INSERTION_LOSS_LIST",
        "cross_connect_id|frequency_THz|temperature_C", optional=True,
    )
    for name in ("OCS_FACTORY_INSERTION_LOSS", "OCS_FACTORY_INSERTION_LOSS_TABLE")
)  # fmt: skip
"""By the working group's name, and by Molex'."""
BULK_UPDATE: Final = "sonic-ocs:bulk-update"


@dataclass(frozen=True, slots=True)
class CrossConnectState:
    """State of a listed cross-connect, as reported by the switch."""

    lit: bool
    words: str
    """The states as the switch spells them."""
    final: bool
    """True if only a further command can change the state."""


@dataclass(frozen=True, slots=True)
class AlarmRow:
    id: int
    severity: str
    """``CRITICAL``, ``MAJOR``, ``MINOR``, ``WARNING`` or ``INFORMATIONAL``."""
    port: str | None
    code: str
    text: str
    created: str
    """Time of the alarm's begin by the switch: alarm numbers start again at a restart of the
    switch.
    """


# --- names --------------------------------------------------------------------------------------


def is_port(name: str) -> bool:
    """True for the name of a port, such as 1A."""
    return _PORT.fullmatch(name) is not None


def ports_in_order(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the ports of sides A and B, in order of number."""
    sides: dict[str, list[tuple[int, str]]] = {"A": [], "B": []}
    for name in names:
        match = _PORT.fullmatch(name)
        if match is None:
            raise YangJsonError(f"not a port such as 1A: {shown(name)}")
        sides[match[2]].append((int(match[1]), name))
    a, b = (tuple(name for _, name in sorted(side)) for side in sides.values())
    return a, b


def ports_named(key: str, fields: Fields) -> frozenset[str]:
    """Ports named by the key of a cross-connect or its sides, in any text."""
    texts = (key, fields.get("a_side", ""), fields.get("b_side", ""))
    return frozenset(name for text in texts for name in _PORT_IN_TEXT.findall(text))


def cross_connect_key(a_side: str, b_side: str) -> str:
    """``1A`` and ``2B`` → ``1A-2B``."""
    return f"{a_side}-{b_side}"


def parse_cross_connect(key: str, fields: Fields) -> tuple[str, str]:
    """Ports of sides A and B, by the key, which the fields must not contradict."""
    match = _CROSS_CONNECT.fullmatch(key)
    if match is None:
        raise YangJsonError(f"not a cross-connect such as 1A-2B: {shown(key)}")
    named_sides = fields.get("a_side") or match[1], fields.get("b_side") or match[2]
    if named_sides != (match[1], match[2]):
        raise YangJsonError(
            f"cross-connect {key} has the sides {shown(named_sides[0])}, {shown(named_sides[1])}"
        )
    return named_sides


# --- states -------------------------------------------------------------------------------------


def parse_state(fields: Fields) -> CrossConnectState:
    """State of a cross-connect in the state database, in either set of words."""
    status = fields.get("status")
    if status is not None:
        settles = status in ("enabled", "disabled", "")
        return CrossConnectState(status == "enabled", status or "nothing", final=not settles)
    sides = [fields.get(f"{side}_side_status") for side in ("a", "b")]
    known = [word for word in sides if word]
    words = "/".join(word or "nothing" for word in sides)
    settles = {"blocked", "tuning", "tuned"}.issuperset(known)
    return CrossConnectState(known == ["tuned", "tuned"], words, final=not settles)


def port_word(configured: Fields, state: Fields) -> str:
    """The word for a port's state: an override by the configuration, or else the switch's word."""
    override = configured.get("config_status") or configured.get("state")
    if override in ("force_blocked", "powered_off"):
        return override
    return state.get("status") or state.get("oper_status") or ""


def parse_loss(key: str, fields: Fields) -> tuple[tuple[str, str], float]:
    """Sides of a possible cross-connect, and its loss in dB by one measurement.

    The inaccuracy of the measurement counts as loss.
    """
    sides = parse_cross_connect(key.partition("|")[0], {})
    return sides, sum(_decibels(fields.get(name)) for name in ("loss_dB", "accuracy_dB"))


def _decibels(text: str | None) -> float:
    if not text:
        return 0.0
    if _DECIBELS.fullmatch(text) is None:
        raise YangJsonError(f"not a loss in dB: {shown(text)}")
    return float(text)


def parse_alarm(key: str, fields: Fields) -> AlarmRow:
    if not (key.isascii() and key.isdigit() and len(key) <= 20):
        raise YangJsonError(f"not the number of an alarm: {shown(key)}")
    match = _PORT_AT_END.search(fields.get("resource", ""))
    return AlarmRow(
        int(key),
        fields.get("severity", "").upper(),
        None if match is None else match[1],
        fields.get("type-id") or "unknown",
        fields.get("text", ""),
        fields.get("time-created", ""),
    )


# --- JSON ---------------------------------------------------------------------------------------


def place(rows: dict[str, dict[str, str]], path: Sequence[str], text: bytes) -> None:
    """Put the value of a gNMI update among the rows of a table.

    ``path`` comes after the table's name: nothing, a key, or a key and a field.
    """
    value = parse(text)
    if len(path) > 2:
        raise YangJsonError(f"more than a key and a field: {shown('/'.join(path))}")
    for part in reversed(path):
        value = {part: value}
    for key, fields in as_object(value).items():
        rows.setdefault(key, {}).update(_fields(fields))


def parse_resource(table: Table, text: bytes) -> Rows:
    """Rows of a table read over RESTCONF: its container with a list, or nothing."""
    document = as_object(parse(text))
    if not document:
        return {}
    container = as_object(member(document, table.module, table.name))
    if not container:
        return {}
    rows: dict[str, Fields] = {}
    for entry in as_array(member(container, table.module, table.list_name)):
        fields = _fields(entry)
        key = [fields.get(leaf) for leaf in table.key.split("|")]
        if not all(key):
            raise YangJsonError(f"an entry of {table.list_name} has no {table.key}")
        rows["|".join(filter(None, key))] = fields
    return rows


def fields_of_cross_connect(a_side: str, b_side: str) -> dict[str, str]:
    return {"a_side": a_side, "b_side": b_side}


def value_text(value: Fields | Rows) -> bytes:
    """The value of a gNMI update that writes a row, or a table."""
    return json.dumps(value).encode()


def bulk_update_text(delete: Collection[str], add: Rows) -> bytes:
    """Input of the rpc ``bulk-update``: keys to delete, and rows to add."""
    rows = [{CROSS_CONNECTS.key: key, **fields} for key, fields in add.items()]
    return json.dumps({f"{_MODULE}:input": {"delete": list(delete), "add": rows}}).encode()


def parse_bulk_result(text: bytes) -> tuple[str, ...]:
    """Keys that failed, by the rpc's output. Its counts are not read: they count the requests."""
    document = as_object(parse(text))
    if not document:
        return ()
    output = as_object(member(document, _MODULE, "output"))
    failed = as_array(output.get("failed_keys", []))
    return tuple(_word(key) for key in failed)


def _fields(value: Json) -> dict[str, str]:
    return {name: _word(field) for name, field in as_object(value).items()}


def _word(value: Json) -> str:
    """A field as the databases hold it: text. Lists are joined by commas, as SONiC does."""
    if isinstance(value, list):
        return ",".join(_word(item) for item in value if not isinstance(item, list | dict))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return ""
    raise YangJsonError(f"not a field's value: {shown(str(value))}")
