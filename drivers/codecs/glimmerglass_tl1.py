"""Glimmerglass' TL1 (System 100/300/500, port 10033): commands, and the contents of their replies.

Source: captures of a System100 with software 6.0 (2016), pynt of UvA, clients of two laboratories,
QualiSystems and MonALISA. Inputs are numbered 10000 + n, outputs 20000 + n; numbers beyond the
matrix are multicast ports, inside the switch. A record is ``GGN:KEY=VALUE,…``; port names may hold
spaces and ``#``, and ``NA`` stands for no value. The device echoes, prompts with ``<``, and sends
terminal control sequences when a client connects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from drivers.codecs.tl1 import Command, Dialect, Tl1Error
from drivers.codecs.tl1_values import pair, parse_pairs, parse_power_dbm

DIALECT: Final = Dialect(prompts=("<",), line_end="\n", logged_out=frozenset({"PLNA"}))

INPUTS: Final = 10_000
OUTPUTS: Final = 20_000
_ID: Final = re.compile(r"0|[12][0-9]{4}", re.ASCII)
_MATRIX: Final = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", re.ASCII)

SYSTEM_QUERY: Final = Command("RTRV-SYSTEM-INFO")
PORTS_QUERY: Final = Command("RTRV-CFG-FIBER", "all")
CONNECTIONS_QUERY: Final = Command("RTRV-CRS-FIBER", "all")
POWERS_QUERY: Final = Command("RTRV-PORT-POWER", "all")


@dataclass(frozen=True, slots=True)
class Port:
    identifier: int | None
    """10000 + n for input n, 20000 + n for output n; None: the record names no port."""
    healthy: bool | None
    """None: the device does not say."""
    privileges: str
    """Rights of the session's user; ``0x0``: none, empty: software that does not report rights
    (6.0).
    """


@dataclass(frozen=True, slots=True)
class CrossConnectRow:
    """A row of ``RTRV-CRS-FIBER``; a side is None in rows of unconnected ports."""

    source: int | None
    target: int | None
    state: str
    """``single``: not connected; ``steady``; ``fault``."""
    cause: str
    lock: str = ""
    """User who has locked the connection against others, ``?`` if not named; empty: not locked."""


def enter(pairs: Sequence[tuple[int, int]]) -> Command:
    """Connect inputs to outputs, by their identifiers; answered before the mirrors have moved."""
    sources, targets = _listed(a for a, _ in pairs), _listed(b for _, b in pairs)
    return Command("ENT-CRS-FIBER", f"{sources},{targets}", ("", "", "opmode=async"))


def delete(sources: Iterable[int]) -> Command:
    """Disconnect the given inputs; answered once they are disconnected.

    ``opmode=sync`` is explicit: the default without ``opmode`` is not published, and the next
    connection must not meet a port still in use.
    """
    return Command("DLT-CRS-FIBER", _listed(sources), ("", "", "opmode=sync"))


def parse_system(records: Iterable[str]) -> Mapping[str, str]:
    """All ``KEY=VALUE`` of ``RTRV-SYSTEM-INFO``."""
    found: dict[str, str] = {}
    for record in records:
        found |= _fields(record)
    return found


def parse_matrix(system: Mapping[str, str]) -> tuple[int, int]:
    """``LicensedPortMatrix=64x64`` → (64, 64): numbers of inputs and outputs."""
    text = pair(system, "LicensedPortMatrix")
    match = _MATRIX.fullmatch(text)
    if match is None:
        raise Tl1Error(f"LicensedPortMatrix={text} is not NxM")
    return int(match[1]), int(match[2])


def parse_port(record: str) -> Port:
    """``GGN:PORTID=10064,PORTNAME=…,PORTDIR=input,PORTHEALTH=good,…``, mostly ``PORTPRIV=0x1``."""
    fields = _fields(record)
    health = pair(fields, "PORTHEALTH")
    return Port(
        _identifier(pair(fields, "PORTID")),
        health == "good" if health else None,
        fields.get("PORTPRIV", ""),
    )


def parse_connection(record: str) -> CrossConnectRow:
    """``GGN:IPORTID=10042,…,OPORTID=20058,…,CONNSTATE=steady,CONNCAUSE=none,…``."""
    fields = _fields(record)
    locked = fields.get("CONNLOCK", "") not in ("", "0")
    return CrossConnectRow(
        _identifier(pair(fields, "IPORTID")),
        _identifier(pair(fields, "OPORTID")),
        pair(fields, "CONNSTATE"),
        pair(fields, "CONNCAUSE"),
        (fields.get("CONNLOCKUSER") or "?") if locked else "",
    )


def parse_power(record: str) -> tuple[int | None, float | None]:
    """``GGN:PORTID=10003,PORTPOWER=-0.951`` → (10003, -0.951 dBm)."""
    fields = _fields(record)
    return _identifier(pair(fields, "PORTID")), parse_power_dbm(pair(fields, "PORTPOWER"))


def _fields(record: str) -> Mapping[str, str]:
    source, separator, rest = record.partition(":")
    if not separator or "=" in source:
        raise Tl1Error(f"not SOURCE:KEY=VALUE,…: {record[:80]!r}")
    return {key: "" if value == "NA" else value for key, value in parse_pairs(rest).items()}


def _identifier(text: str) -> int | None:
    """A port's identifier; None for 0 or no value, which stand for no port."""
    if text == "":
        return None
    if _ID.fullmatch(text) is None or text in (f"{INPUTS}", f"{OUTPUTS}"):
        raise Tl1Error(f"not a port's number: {text[:80]!r}")
    return int(text) or None


def _listed(identifiers: Iterable[int]) -> str:
    return "&".join(map(str, identifiers))
