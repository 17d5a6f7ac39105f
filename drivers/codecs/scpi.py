"""SCPI as spoken by Polatis optical switches: bytes in, events out; no socket and no clock.

A command is one line ended by CR LF; an answer is a line ended by CR, by LF or by both. Several
queries in a line are answered in a single line, joined by ``;``, or each in its own line. Set
commands have no answer, so a client appends ``;*opc?`` and waits for its ``1``; errors are reported
only by ``:syst:err:all?``.

Source: the public command descriptions of the Polatis Series 6000/7000 user interface; for
``:pmon:pow?`` a public driver that uses it, at most 256 ports at a time; for ``:oxc:boot:mode?``
public drivers of the Series 3000. The shape of ``:syst:err:all?`` replies follows SCPI-99 volume 1
section 21.8 and is inferred for this device, as is the empty string for an unconnected port in
reply to ``conn:port?``.

Every ``parse_*`` accepts exactly the output of the ``format_*`` beside it, so this module can write
all texts that it reads. Any other text raises :class:`ScpiError`, and nothing else raises
ScpiError.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

MAX_LINE_BYTES: Final = 64 * 1024
"""Longest line taken or sent: a full 1000 x 1000 cross-connect list fits several times over."""

MAX_POWER_PORTS: Final = 256
"""Power readings in a reply."""

_LF: Final = 0x0A
_LINE_END: Final = re.compile(rb"[\r\n]")
_TEXT: Final = re.compile(r"[\x20-\x7e]*", re.ASCII)
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_MAX_NUMBER: Final = 999_999
_NUMBER: Final = r"(?:0|[1-9][0-9]{0,5})"
_PORTS: Final = re.compile(rf"\(@({_NUMBER}(?:,{_NUMBER})*)?\)", re.ASCII)
_SIZE: Final = re.compile(rf"({_NUMBER}),({_NUMBER})", re.ASCII)
_STATES: Final = re.compile(r"\(([A-Z](?:,[A-Z])*)?\)", re.ASCII)
_POWER: Final = r"[+-]?[0-9]{1,4}(?:\.[0-9]{1,6})?(?:[eE][+-]?[0-9]{1,2})?"
_POWERS: Final = re.compile(rf"\(({_POWER}(?:,{_POWER})*)?\)", re.ASCII)
_NOT_A_NUMBER: Final = 9e37
"""SCPI-99 volume 1 section 7.2.1.5: 9.91E37 stands for a missing reading."""
_FAULT: Final = re.compile(r'(0|-?[1-9][0-9]{0,5}),"((?:[ !#-~]|"")*)"', re.ASCII)


class ScpiError(Exception):
    """Bytes or text outside the grammar."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Reply to ``*idn?``."""

    vendor: str
    model: str
    serial: str
    firmware: str


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """An entry of the device's error queue."""

    code: int
    message: str


# --- framing ------------------------------------------------------------------------------------


class ReplyDecoder:
    """Cuts a byte stream into reply lines, however the bytes were split on their way.

    A line holds printable ASCII and ends in CR or LF; an LF right after a CR is ignored. At most
    :data:`MAX_LINE_BYTES` of an unfinished line are kept.
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._after_cr = False
        self._lines: deque[str] = deque()
        self._error: ScpiError | None = None

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the device; bytes after the first bad byte are ignored."""
        start = 0
        while start < len(data) and self._error is None:
            if self._after_cr and data[start] == _LF:
                start += 1
            self._after_cr = False
            end = _LINE_END.search(data, start)
            self._extend(data[start:] if end is None else data[start : end.start()])
            if end is None:
                return
            if self._error is None:
                self._lines.append(self._partial.decode("ascii"))
                self._partial.clear()
                self._after_cr = end[0] == b"\r"
            start = end.end()

    def next_line(self) -> str | None:
        """The next complete line without its terminator, or None when more bytes are needed.

        Raises :class:`ScpiError` once all lines before the bad byte are taken; a decoder that has
        raised never recovers, since nothing says where the next line starts.
        """
        if self._lines:
            return self._lines.popleft()
        if self._error is not None:
            raise self._error
        return None

    def _extend(self, chunk: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._partial)
        bad = chunk[:room].translate(None, _PRINTABLE)
        if bad:
            where = len(self._partial) + chunk.index(bad[:1])
            self._fail(f"byte 0x{bad[0]:02x} at position {where} of a reply")
        elif len(chunk) > room:
            self._fail(f"a reply of more than {MAX_LINE_BYTES} bytes without a line end")
        else:
            self._partial += chunk

    def _fail(self, reason: str) -> None:
        self._error = ScpiError(reason)
        self._partial.clear()


def encode_line(text: str) -> bytes:
    """A command line as sent. Raises ScpiError if it is too long or not printable ASCII."""
    if len(text) > MAX_LINE_BYTES:
        raise ScpiError(f"a command of {len(text)} characters (at most {MAX_LINE_BYTES})")
    if _TEXT.fullmatch(text) is None:
        raise ScpiError(f"a command may hold printable ASCII only: {text!r}")
    return text.encode("ascii") + b"\r\n"


# --- commands -----------------------------------------------------------------------------------

IDENTITY_QUERY: Final = "*idn?"
CLEAR: Final = "*cls"
COMPLETE_QUERY: Final = "*opc?"
ERRORS_QUERY: Final = ":syst:err:all?"
SIZE_QUERY: Final = ":oxc:swit:size?"
CONNECTIONS_QUERY: Final = ":oxc:swit:conn:stat?"
START_QUERY: Final = f":oxc:boot:mode?;{COMPLETE_QUERY}"
"""Ask for the start-up mode; a device without this query only says ``1``."""
CLEARED_CONNECTIONS_QUERY: Final = f"{CLEAR};{CONNECTIONS_QUERY}"
"""Empty the error queue, and ask for the cross-connects, in one exchange."""
RESULT_QUERY: Final = f"{ERRORS_QUERY};{CONNECTIONS_QUERY}"
"""Ask for the errors and the cross-connects, in one exchange."""

_Pairs = Collection[tuple[int, int]]


def connect_command(pairs: _Pairs) -> str:
    """Add cross-connects, (ingress, egress) each, to the existing cross-connects."""
    return f":oxc:swit:conn:add {format_connections(pairs)}"


def disconnect_command(pairs: _Pairs) -> str:
    """Remove the given cross-connects."""
    return f":oxc:swit:conn:sub {format_connections(pairs)}"


def change_command(disconnect: _Pairs, connect: _Pairs) -> str:
    """Remove and add cross-connects, in one line, answered when all is done."""
    removal = [disconnect_command(disconnect)] if disconnect else []
    addition = [connect_command(connect)] if connect else []
    return synchronised(";".join(removal + addition))


def port_state_query(ports: Collection[int]) -> str:
    """Ask for the states of the given ports, answered in the order given."""
    return f":oxc:swit:port:stat? {format_ports(ports)}"


def power_query(ports: Collection[int]) -> str:
    """Ask for optical power at at most :data:`MAX_POWER_PORTS` ports, in the order given."""
    return f":pmon:pow? {format_ports(ports)}"


def synchronised(command: str) -> str:
    """The command, followed by a query that is answered when the device has carried it out."""
    return f"{command};{COMPLETE_QUERY}"


# --- values -------------------------------------------------------------------------------------


def _format_numbers(numbers: Collection[int]) -> str:
    for number in (min(numbers, default=0), max(numbers, default=0)):
        if not 0 <= number <= _MAX_NUMBER:
            raise ScpiError(f"{number} is no port number (0..{_MAX_NUMBER})")
    return ",".join(map(str, numbers))


def format_ports(ports: Collection[int]) -> str:
    """``(1, 2, 3)`` → ``(@1,2,3)``; no ports → ``(@)``."""
    return f"(@{_format_numbers(ports)})"


def parse_ports(text: str) -> tuple[int, ...]:
    """``(@1,2,3)`` → ``(1, 2, 3)``."""
    match = _PORTS.fullmatch(text)
    if match is None:
        raise ScpiError(f"not a port list: {_shown(text)}")
    return tuple(map(int, match[1].split(","))) if match[1] else ()


def format_connections(pairs: _Pairs) -> str:
    """``[(1, 17), (2, 18)]`` → ``(@1,2),(@17,18)``."""
    ingress, egress = zip(*pairs, strict=True) if pairs else ((), ())
    return f"{format_ports(ingress)},{format_ports(egress)}"


def parse_connections(text: str) -> tuple[tuple[int, int], ...]:
    """``(@1,2),(@17,18)`` → ``((1, 17), (2, 18))``."""
    ingress_text, separator, egress_text = text.partition("),")
    if not separator:
        raise ScpiError(f"not two port lists: {_shown(text)}")
    ingress, egress = parse_ports(ingress_text + ")"), parse_ports(egress_text)
    if len(ingress) != len(egress):
        raise ScpiError(f"{len(ingress)} ingress but {len(egress)} egress ports: {_shown(text)}")
    return tuple(zip(ingress, egress, strict=True))


def parse_size(text: str) -> tuple[int, int]:
    """``16,16`` → ``(16, 16)``: numbers of ingress and egress ports."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ScpiError(f"not a switch size: {_shown(text)}")
    return int(match[1]), int(match[2])


def parse_port_states(text: str) -> tuple[str, ...]:
    """``(D,E,F)`` → ``("D", "E", "F")``: disabled, enabled, failed."""
    match = _STATES.fullmatch(text)
    if match is None:
        raise ScpiError(f"not port states: {_shown(text)}")
    return tuple(match[1].split(",")) if match[1] else ()


def parse_powers(text: str) -> tuple[float | None, ...]:
    """``(-2.1,-23.45)`` → ``(-2.1, -23.45)`` dBm; None for missing readings."""
    match = _POWERS.fullmatch(text)
    if match is None:
        raise ScpiError(f"not power readings: {_shown(text)}")
    values = map(float, match[1].split(",")) if match[1] else ()
    return tuple(None if abs(value) >= _NOT_A_NUMBER else value for value in values)


def parse_powers_if_any(text: str) -> tuple[float | None, ...] | None:
    """Reply to :func:`power_query`, synchronised: None where the device only says ``1``.

    A device without monitors leaves the query unanswered.
    """
    readings, separator, complete = text.rpartition(";")
    parse_complete(complete)
    return parse_powers(readings) if separator else None


def is_part_of_powers(text: str) -> bool:
    """True for readings that a ``1`` in a further line has to follow."""
    return _POWERS.fullmatch(text) is not None


def starts_dark(text: str) -> bool:
    """True if the reply to :data:`START_QUERY` reports a start without cross-connects."""
    return text.strip('"').upper().startswith("DARK")


def is_part_of_start(text: str) -> bool:
    """True for a mode that a ``1`` in a further line has to follow."""
    return text != "1" and not text.endswith(";1")


def parse_identity(text: str) -> Identity:
    """``vendor,model,serial,firmware``."""
    fields = text.split(",")
    if len(fields) != 4 or _TEXT.fullmatch(text) is None:
        raise ScpiError(f"not vendor,model,serial,firmware: {_shown(text)}")
    return Identity(*fields)


def parse_faults(text: str) -> tuple[DeviceFault, ...]:
    """The error queue, oldest first; an empty queue reads as a single entry ``0,"No error"``."""
    faults: list[DeviceFault] = []
    position = 0
    while (match := _FAULT.match(text, position)) is not None:
        faults.append(DeviceFault(int(match[1]), match[2].replace('""', '"')))
        position = match.end()
        if position == len(text):
            return tuple(faults)
        position += 1 if text[position] == "," else len(text)
    raise ScpiError(f"not an error queue: {_shown(text)}")


def parse_result(text: str) -> tuple[tuple[DeviceFault, ...], str]:
    """(error queue, text of the cross-connects for :func:`parse_connections`)."""
    # The text of an error may hold a semicolon, port lists never do.
    faults, _, connections = text.rpartition(";")
    return parse_faults(faults), connections


def is_part_of_result(text: str) -> bool:
    """True for an error queue with the cross-connects still to follow, in a further line."""
    try:
        parse_faults(text)
    except ScpiError:
        return False
    return True


def parse_complete(text: str) -> None:
    """The reply to ``*opc?``: always ``1``."""
    if text != "1":
        raise ScpiError(f"expected 1 in reply to {COMPLETE_QUERY}: {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
