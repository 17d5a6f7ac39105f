"""Inputs of all codecs for fuzzing: kept inputs, and properties of every input."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivers.codecs import (
    calient_tl1,
    glimmerglass_tl1,
    iscli,
    openconfig,
    polatis_restconf,
    polatis_tl1,
    scpi,
    sonic_ocs,
    sonic_vlans,
    terminal,
    tl1,
    tl1_values,
    yang_json,
)
from drivers.codecs.openflow import messages
from tests.unit.drivers import device_side

CORPUS = Path(__file__).parent / "corpus"
PROMPTS = ("agent>", ">")
TERMINAL_PROMPT = "OXC> "


@dataclass(frozen=True)
class Outcome:
    events: tuple[object, ...]
    error: str | None


@dataclass(frozen=True)
class Codec:
    name: str
    decode: Callable[[Sequence[bytes]], Outcome]
    """Feeds these chunks; any error except the codec's own escapes."""
    encode: Callable[[object], bytes]
    parse: tuple[Callable[[str], object], ...]
    parse_error: type[Exception]

    def check(self, data: bytes) -> Outcome:
        """Raises AssertionError, or the escaped error, for an input that a codec handles
        wrongly.
        """
        whole = self.decode([data])
        singly = self.decode([data[n : n + 1] for n in range(len(data))])
        assert whole == singly, "split differently, read differently"
        again = self.decode([b"".join(map(self.encode, whole.events))])
        assert again == Outcome(whole.events, None), "what it accepts it does not reproduce"
        text = data.decode("latin-1")
        values = {text, *(line.strip(' "') for line in text.splitlines())}
        for parse in self.parse:
            for value in values:
                with suppress(self.parse_error):
                    parse(value)
        return whole

    def kept(self) -> list[Path]:
        return sorted((CORPUS / self.name).glob("*.bin"))


def _fed(decoder: Any, take: str, error: type[Exception]) -> Callable[[Sequence[bytes]], Outcome]:
    """Feeds a new decoder, made by ``decoder``, and takes the available messages after each
    chunk.
    """

    def decode(chunks: Sequence[bytes]) -> Outcome:
        fed, found = decoder(), []
        try:
            for chunk in chunks:
                fed.receive(chunk)
                while (event := getattr(fed, take)()) is not None:
                    found.append(event)
        except error as told:
            return Outcome(tuple(found), str(told))
        return Outcome(tuple(found), None)

    return decode


ISCLI_NAME = "RS G8264"
ISCLI_LOG_IN = f"{ISCLI_NAME}#{iscli.MARK}\r\n{ISCLI_NAME}#".encode()


def _iscli_terminal() -> iscli.Terminal:
    terminal = iscli.Terminal()
    terminal.receive(ISCLI_LOG_IN)
    terminal.next_event()  # the prompt
    return terminal


def _craft_terminal() -> terminal.TerminalDecoder:
    return terminal.TerminalDecoder((), terminal.End(prompt=TERMINAL_PROMPT))


def _decode_sonic(chunks: Sequence[bytes]) -> Outcome:
    """Each line is the value of an update: rows of a table."""
    found = []
    try:
        for line in b"".join(chunks).split(b"\n"):
            if line:
                rows: dict[str, dict[str, str]] = {}
                sonic_ocs.place(rows, (), line)
                found.append(rows)
    except yang_json.YangJsonError as error:
        return Outcome(tuple(found), str(error))
    return Outcome(tuple(found), None)


def _read_members(body: bytes) -> None:
    """The rows of a table of members; each row is a port in a VLAN."""
    rows: dict[str, dict[str, str]] = {}
    sonic_ocs.place(rows, (), body)
    for key, fields in rows.items():
        member = sonic_vlans.parse_member(key)
        assert sonic_vlans.member_key(member) == key
        sonic_vlans.is_untagged(key, fields)


OPENCONFIG_PATH: Any = [
    ("interfaces", {}), ("interface", {"name": "Ethernet1"}), ("ethernet", {}),
    ("openconfig-vlan:switched-vlan", {}), ("config", {}),
]  # fmt: skip
OPENCONFIG_CONTAINERS = (
    ("config",),
    ("state",),
    ("state", "counters"),
    ("ethernet", "switched-vlan", "config"),
    ("aggregation", "switched-vlan", "config"),
)


def _decode_openconfig(chunks: Sequence[bytes]) -> Outcome:
    """Each line is the value of an update about all interfaces: leaves by interface and place."""
    found: list[object] = []
    try:
        for line in b"".join(chunks).split(b"\n"):
            if line:
                interfaces: dict[str, Any] = {}
                openconfig.place(interfaces, [("openconfig-interfaces:interfaces", {})], line)
                found.append(dict(zip(interfaces, map(_leaves, interfaces.values()), strict=True)))
    except yang_json.YangJsonError as error:
        return Outcome(tuple(found), str(error))
    return Outcome(tuple(found), None)


def _leaves(interface: object) -> dict[tuple[str, ...], openconfig.Leaves]:
    openconfig.is_lag(interface)
    read = {place: openconfig.leaves_at(interface, *place) for place in OPENCONFIG_CONTAINERS}
    return {place: leaves for place, leaves in read.items() if leaves is not None}


def _encode_openconfig(interfaces: Any) -> bytes:
    entries = []
    for name, places in interfaces.items():
        entry: dict[str, Any] = {"name": name}
        for place, leaves in places.items():
            node = entry
            for step in place:
                node = node.setdefault(step, {})
            node.update(leaves)
        entries.append(entry)
    return json.dumps({"openconfig-interfaces:interface": entries}).encode() + b"\n"


def _decode_polatis_restconf(chunks: Sequence[bytes]) -> Outcome:
    """Each line is a list of cross-connects."""
    found: list[object] = []
    try:
        lists = map(polatis_restconf.parse_pairs, b"".join(chunks).split(b"\n"))
        found.extend(pairs for pairs in lists if pairs)
    except yang_json.YangJsonError as error:
        return Outcome(tuple(found), str(error))
    return Outcome(tuple(found), None)


def _of_body(parse: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: parse(text.encode("latin-1"))


def _encode_terminal(reply: str) -> bytes:
    lines = f"{reply}\n".replace("\n", "\r\n") if reply else ""
    return f"{lines}{TERMINAL_PROMPT}".encode()


CODECS = [
    Codec(
        "iscli",
        _fed(_iscli_terminal, "next_event", iscli.IscliError),
        lambda event: device_side.iscli_event(event, ISCLI_NAME),
        (
            lambda text: iscli.parse_memberships(text.splitlines()),
            lambda text: iscli.parse_links(text.splitlines()),
            iscli.parse_numbers,
            iscli.encode_line,
        ),
        iscli.IscliError,
    ),
    Codec(
        "openflow",
        _fed(messages.MessageDecoder, "next_message", messages.OpenFlowError),
        lambda message: messages.encode(message.type, message.xid, message.body),
        (
            _of_body(messages.decode_description),
            _of_body(messages.decode_flow_entries),
            _of_body(lambda body: messages.decode_flow_entries(body[16:])),
            _of_body(messages.decode_port_descriptions),
            _of_body(messages.describe_error),
            _of_body(messages.split_multipart),
        ),
        messages.OpenFlowError,
    ),
    Codec(
        "tl1",
        _fed(lambda: tl1.Decoder(PROMPTS), "next_event", tl1.Tl1Error),
        device_side.tl1_event,
        (
            tl1_values.parse_alarm,
            tl1_values.parse_pairs,
            tl1_values.parse_power_dbm,
            polatis_tl1.parse_attenuator,
            polatis_tl1.parse_attenuator_modes,
            polatis_tl1.parse_patch,
            polatis_tl1.parse_power,
            polatis_tl1.parse_serial,
            polatis_tl1.parse_shutter,
            polatis_tl1.parse_size,
            polatis_tl1.parse_thresholds,
            polatis_tl1.parse_type,
            calient_tl1.parse_connection,
            calient_tl1.parse_element,
            calient_tl1.parse_port,
            calient_tl1.parse_power,
            calient_tl1.parse_progress,
            calient_tl1.ports_of,
            glimmerglass_tl1.parse_connection,
            glimmerglass_tl1.parse_port,
            glimmerglass_tl1.parse_power,
        ),
        tl1.Tl1Error,
    ),
    Codec(
        "openconfig",
        _decode_openconfig,
        _encode_openconfig,
        (
            _of_body(lambda body: openconfig.place({}, OPENCONFIG_PATH, body)),
            _of_body(lambda body: openconfig.place({}, OPENCONFIG_PATH[:2], body)),
            lambda text: openconfig.place({}, [(text, {"name": text})], b"{}"),
            lambda text: openconfig.parse_switched_vlan({"trunk-vlans": [text]}),
            lambda text: openconfig.parse_switched_vlan({"native-vlan": [text]}),
            lambda text: openconfig.parse_counters({"in-octets": [text]}),
        ),
        yang_json.YangJsonError,
    ),
    Codec(
        "polatis-restconf",
        _decode_polatis_restconf,
        lambda pairs: polatis_restconf.pairs_text(pairs) + b"\n",
        (
            _of_body(polatis_restconf.parse_attenuators),
            _of_body(polatis_restconf.parse_port_states),
            _of_body(polatis_restconf.parse_powers),
            _of_body(polatis_restconf.parse_product),
            _of_body(polatis_restconf.parse_start),
            _of_body(polatis_restconf.parse_thresholds),
            _of_body(yang_json.parse_refusal),
        ),
        yang_json.YangJsonError,
    ),
    Codec(
        "scpi",
        _fed(scpi.ReplyDecoder, "next_line", scpi.ScpiError),
        lambda line: f"{line}\r".encode(),
        (
            scpi.parse_connections,
            scpi.parse_faults,
            scpi.parse_identity,
            scpi.parse_port_states,
            scpi.parse_powers,
            scpi.parse_powers_if_any,
            scpi.parse_result,
            scpi.parse_size,
            scpi.is_part_of_powers,
            scpi.is_part_of_result,
            scpi.is_part_of_start,
            scpi.starts_dark,
        ),
        scpi.ScpiError,
    ),
    Codec(
        "sonic-ocs",
        _decode_sonic,
        lambda rows: json.dumps(rows).encode() + b"\n",
        (
            _of_body(lambda body: sonic_ocs.parse_resource(sonic_ocs.CROSS_CONNECT_STATES, body)),
            _of_body(sonic_ocs.parse_bulk_result),
            _of_body(yang_json.parse_refusal),
            lambda text: sonic_ocs.ports_in_order([text]),
            lambda text: sonic_ocs.parse_cross_connect(text, {"a_side": text}),
            lambda text: sonic_ocs.parse_alarm(text, {"resource": text, "severity": text}),
            lambda text: sonic_ocs.parse_loss(text, {}),
            lambda text: sonic_ocs.parse_loss("1A-2B|1|2", {"loss_dB": text}),
            lambda text: sonic_ocs.parse_state({"status": text}),
            lambda text: sonic_ocs.parse_state({"a_side_status": text}),
        ),
        yang_json.YangJsonError,
    ),
    Codec(
        "sonic-vlan",
        _decode_sonic,
        lambda rows: json.dumps(rows).encode() + b"\n",
        (
            _of_body(_read_members),
            sonic_vlans.parse_member,
            lambda text: sonic_vlans.is_untagged(text, {"tagging_mode": text}),
            sonic_vlans.port_number,
        ),
        yang_json.YangJsonError,
    ),
    Codec(
        "terminal",
        _fed(_craft_terminal, "next_line", terminal.TerminalError),
        _encode_terminal,
        (),
        terminal.TerminalError,
    ),
]
