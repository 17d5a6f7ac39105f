"""A device's language as configured: templates make commands, patterns find values in replies.

No sockets: :mod:`drivers.optical.template` holds the conversation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from drivers.codecs.unasked import is_echo, is_log_line
from drivers.optical.template_options import (
    LISTED,
    CrossConnectTable,
    Match,
    PowerTable,
    StateTable,
    TemplateOptions,
    compiled,
    placeholders,
)
from hydra.model import CrossConnect
from hydra.roles import DeviceIdentity, PortState

Size = tuple[int, int]
"""Numbers of (ingress, egress) ports."""

_SHOWN_CHARACTERS: Final = 200
_LARGEST_DBM: Final = 100.0

_compiled = lru_cache(maxsize=1024)(compiled)


class LanguageError(Exception):
    """A device's text that does not fit its language as configured."""


def _search(pattern: str, line: str) -> Match | None:
    return _compiled(pattern).search(line)


def matches(pattern: str | None, line: str) -> bool:
    """True if the pattern is found in the line; None is found nowhere."""
    return pattern is not None and _search(pattern, line) is not None


class Language:
    """Commands to a device, and the meaning of its replies."""

    def __init__(self, options: TemplateOptions) -> None:
        self._options = options

    # --- commands -------------------------------------------------------------------------------

    def moves(
        self, removed: Collection[CrossConnect], added: Collection[CrossConnect], size: Size
    ) -> list[str]:
        """Commands that tear down and set up, in the order of sending."""
        options = self._options
        down = self._moves(options.disconnect, sorted(removed), size)
        return [*down, *self._moves(options.connect, sorted(added), size)]

    def _moves(self, template: str, pairs: Sequence[CrossConnect], size: Size) -> Iterator[str]:
        in_one = self._options.at_most if placeholders(template) & LISTED else 1
        for at in range(0, len(pairs), in_one):
            yield self._move(template, [_ends(pair, size) for pair in pairs[at : at + in_one]])

    def _move(self, template: str, ends: Sequence[Mapping[str, int]]) -> str:
        join = self._options.separator.join
        return template.format(
            **ends[0],
            ingresses=join(str(end["ingress"]) for end in ends),
            egresses=join(str(end["egress"]) for end in ends),
            outputs=join(str(end["output"]) for end in ends),
            pairs=join(self._options.pair.format(**end) for end in ends),
        )

    def port_queries(self, table: PowerTable | StateTable, ports: Iterable[int]) -> list[str]:
        """Commands that ask for the given ports; a single command if its reply shows all ports."""
        if not placeholders(table.command):
            return [table.command]
        wanted, in_one = sorted(ports), self._options.at_most
        join = self._options.separator.join
        return [
            table.command.format(ports=join(map(str, wanted[at : at + in_one])))
            for at in range(0, len(wanted), in_one)
        ]

    # --- answers --------------------------------------------------------------------------------

    def is_reply(self, command: str, reply: str) -> bool:
        """False for text that the device printed unasked, followed by a prompt.

        Such text has no echo. On a device without echo, all text counts as a reply.
        """
        return not self._options.echo or self._echo_at(command, reply.split("\n")) is not None

    def lines(self, command: str, reply: str) -> list[str]:
        """The reply's lines after the echo of its command, if any, without blank lines."""
        lines = [line.strip() for line in reply.split("\n")]
        at = self._echo_at(command, lines) if self._options.echo else None
        return [line for line in lines[0 if at is None else at + 1 :] if line]

    def _echo_at(self, command: str, lines: Sequence[str]) -> int | None:
        numbered = enumerate(lines)
        return next((n for n, line in numbered if is_echo(line.strip(), command.strip())), None)

    def _is_logged(self, line: str) -> bool:
        """True for a log line, on devices with unmistakable replies.

        Without echo, a reply that ends with a prompt may be nothing but a log line: such a line is
        text that does not fit.
        """
        return (self._options.echo or self._options.prompt is None) and is_log_line(line)

    def complaint(self, lines: Iterable[str]) -> str | None:
        """The device's complaint about a command; None if there is none."""
        if self._options.error is None:
            return None
        for line in lines:
            if not self._is_logged(line) and (match := _search(self._options.error, line)):
                return short(match.groupdict().get("reason") or line)
        return None

    def refusal(self, lines: Sequence[str]) -> str | None:
        """Why a changing command was not carried out; None if the command was carried out."""
        complaint, success = self.complaint(lines), self._options.success
        if complaint is not None or success is None:
            return complaint
        if any(matches(success, line) for line in lines if not self._is_logged(line)):
            return None
        return short(" / ".join(lines)) or "no word of success"

    def ends_reply(self, line: str) -> bool:
        """True if a line is the last of a reply, for devices without a prompt."""
        if self._is_logged(line):
            return False
        return matches(self._options.success, line) or matches(self._options.error, line)

    def identity(self, lines: Sequence[str]) -> DeviceIdentity:
        options = self._options.identity
        found = {"vendor": options.vendor, "model": options.model, "serial": "", "firmware": ""}
        if options.row is not None:
            groups = self._first(options.row, lines).groupdict()
            found |= {name: text for name, text in groups.items() if text}
        return DeviceIdentity(**found)

    def size(self, row: str, lines: Sequence[str]) -> Size:
        match = self._first(row, lines)
        return _number(match["inputs"] or ""), _number(match["outputs"] or "")

    def cross_connects(self, lines: Iterable[str], size: Size) -> frozenset[CrossConnect]:
        rows = self._rows(self._options.cross_connects, lines)
        return frozenset(
            CrossConnect(_number(row.get("ingress", "")), _egress(row, size)) for row in rows
        )

    def power_dbm(
        self, table: PowerTable, lines: Iterable[str], size: Size
    ) -> dict[int, float | None]:
        rows = self._rows(table, lines)
        return {
            _any_port(row, size): None if text in (*table.no_reading, "") else _dbm(text)
            for row in rows
            for text in (row.get("dbm", ""),)
        }

    def port_states(
        self, table: StateTable, lines: Iterable[str], size: Size
    ) -> dict[int, PortState]:
        words = dict.fromkeys(table.enabled, PortState.ENABLED)
        words |= dict.fromkeys(table.disabled, PortState.DISABLED)
        words |= dict.fromkeys(table.failed, PortState.FAILED)
        return {
            _any_port(row, size): words.get(row.get("state", ""), PortState.UNKNOWN)
            for row in self._rows(table, lines)
        }

    def _first(self, pattern: str, lines: Sequence[str]) -> Match:
        for line in lines:
            if match := _search(pattern, line):
                return match
        raise LanguageError(f"no line of {short(' / '.join(lines))!r} has the requested value")

    def _rows(
        self, table: CrossConnectTable | PowerTable | StateTable, lines: Iterable[str]
    ) -> list[dict[str, str]]:
        rows = []
        for line in lines:
            if match := _search(table.row, line):
                rows.append({name: text for name, text in match.groupdict().items() if text})
            elif not self._is_logged(line) and not any(
                matches(p, line) for p in (*table.ignore, self._options.success)
            ):
                raise LanguageError(
                    f"{short(line)!r} is neither a row nor among the lines to ignore"
                )
        return rows


def _ends(pair: CrossConnect, size: Size) -> dict[str, int]:
    return {"ingress": pair.ingress, "egress": pair.egress, "output": pair.egress - size[0]}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise LanguageError(f"{short(text)!r} is no port number")
    return int(text)


def _egress(row: Mapping[str, str], size: Size) -> int:
    return _number(row["output"]) + size[0] if "output" in row else _number(row.get("egress", ""))


def _any_port(row: Mapping[str, str], size: Size) -> int:
    for name in ("port", "ingress"):
        if name in row:
            return _number(row[name])
    return _egress(row, size)


def _dbm(text: str) -> float:
    try:
        dbm = float(text)
    except ValueError:
        dbm = _LARGEST_DBM
    if not -_LARGEST_DBM < dbm < _LARGEST_DBM:
        raise LanguageError(f"{short(text)!r} is no power in dBm")
    return dbm


def short(text: str) -> str:
    """A device's words, cut to fit an error message."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
