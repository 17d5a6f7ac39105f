"""TL1 from the device's side: commands in, messages out; for any vendor.

Written independently of the controller's codec, so that misreadings there show up here. After
Telcordia GR-831-CORE and GR-833-CORE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MAX_COMMAND_BYTES: Final = 65536


class Denied(Exception):
    """A command with DENY as answer."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Tl1Command:
    """A command: ``verb`` in upper case, and the ``blocks`` behind the ctag."""

    verb: str
    aid: str
    ctag: str
    blocks: tuple[str, ...]
    text: str

    def block(self, number: int) -> str:
        """A block by number; empty if the command has fewer."""
        return self.blocks[number] if number < len(self.blocks) else ""


def take_commands(buffer: bytearray) -> Iterator[str]:
    """Take complete commands, without semicolons, out of ``buffer``."""
    start, in_quote, escaped = 0, False, False
    for position, byte in enumerate(bytes(buffer)):
        if escaped:
            escaped = False
        elif byte == ord("\\"):
            escaped = in_quote
        elif byte == ord('"'):
            in_quote = not in_quote
        elif byte == ord(";") and not in_quote:
            yield buffer[start:position].decode("ascii", errors="replace").strip()
            start = position + 1
    del buffer[:start]


def parse(text: str) -> Tl1Command:
    """``VERB:TID:AID:CTAG:block:…`` of the text before a semicolon."""
    fields = _split(text, ":")
    fields += [""] * (4 - len(fields))
    return Tl1Command(fields[0].upper(), fields[2], fields[3], tuple(fields[4:]), text)


def items(block: str) -> list[str]:
    """The items ``a,b,c`` of a block."""
    return _split(block, ",")


def unquote(text: str) -> str:
    """A parameter's value without quotes."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return text


def port_numbers(aid: str, last: int) -> list[str]:
    """``1&2&5&&7`` → ``1, 2, 5, 6, 7``; a range ends at ``last``. Non-numeric text stays."""
    numbers: list[str] = []
    for part in aid.replace("&&", "-").split("&"):
        first, is_range, end = part.partition("-")
        if is_range and first.isdigit() and end.isdigit():
            numbers += map(str, range(int(first), min(int(end), last) + 1))
        else:
            numbers.append(part)
    return numbers


def message(source: str, clock: str, head: str, lines: Sequence[str], end: str = ";") -> bytes:
    """A message, or a block of a message."""
    body = "".join(f"   {line}\r\n" for line in lines)
    return f"\r\n\n   {source} {clock}\r\n{head}\r\n{body}{end}".encode("latin-1")


def reply(
    source: str, clock: str, ctag: str, records: Sequence[str], *, block_records: int | None = None
) -> bytes:
    """A successful reply, in blocks of ``block_records`` records."""
    lines = [f'"{record}"' for record in records]
    size = block_records or max(1, len(lines))
    blocks = [lines[n : n + size] for n in range(0, len(lines), size)] or [[]]
    head = f"M  {ctag} COMPLD"
    parts = [message(source, clock, head, block, ">\r\n") for block in blocks[:-1]]
    return b"".join([*parts, message(source, clock, head, blocks[-1])])


def denial(source: str, clock: str, ctag: str, error: Denied) -> bytes:
    """A refusal with code and reason."""
    return message(source, clock, f"M  {ctag} DENY", [error.code, f"/* {error} */"])


def _split(text: str, separator: str) -> list[str]:
    fields, in_quote, escaped = [""], False, False
    for sign in text:
        if sign == separator and not in_quote:
            fields.append("")
            continue
        fields[-1] += sign
        if escaped:
            escaped = False
        elif sign == "\\":
            escaped = in_quote
        elif sign == '"':
            in_quote = not in_quote
    return fields


def pairs(fields: Iterable[tuple[str, object]]) -> str:
    """``A=1,B=2``."""
    return ",".join(f"{key}={value}" for key, value in fields)
