"""Calient's TL1 (S160 and S320, port 3083): commands, and the contents of their replies.

Source: a laboratory's test scripts, COSMOS' testbed, QualiSystems' shell and the quick start guide
of the S Series. A port has a name like ``1.2.3``, on some switches only a number, an input and an
output; a one-way connection ``a>b`` leads from the input of ``a`` to the output of ``b``, a two-way
connection ``a-b`` both ways. A connection is entered (``AS=UMA,OS=RDY``: reserved) and then
activated (``AS=IS,OS=IS,OC=OK``: light); it is cancelled and then deleted. The bulk commands do
both at once, for any number of connections, and go on after COMPLD: ``RTRV-SAVERECALL`` reports the
progress, but not the command. Inferred: ``&`` joins connections in bulk commands, as in
GR-831-CORE; a connection without a name goes by its ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from drivers.codecs.tl1 import Command, Dialect, Tl1Error
from drivers.codecs.tl1_values import pair, parse_pairs, parse_power_dbm

DIALECT: Final = Dialect(
    prompts=("agent>",),
    line_end="",
    logged_out=frozenset({"PLNA"}),
)

_NAME: Final = r"([0-9]{1,3})\.([0-9]{1,3})([a-z]?)\.([0-9]{1,3})"
_PORT: Final = re.compile(rf"{_NAME}|([0-9]{{1,4}})", re.ASCII)
_IN_TEXT: Final = re.compile(_NAME, re.ASCII)
_CONNECTION: Final = re.compile(r"([0-9]{1,4})(?:[>-]([0-9]{1,4}))?", re.ASCII)
_WAYS: Final = {"1WAY": False, "2WAY": True}
_NAMELESS: Final = ("", "NONE")

ELEMENT_QUERY: Final = Command("RTRV-NE")
PORTS_QUERY: Final = Command("RTRV-PORT", "0")
CONNECTIONS_QUERY: Final = Command("RTRV-CRS", "", ("", "ALL"))
POWERS_QUERY: Final = Command("RTRV-PORT-SUM", "0")
"""Ask for the power at all ports."""
PROGRESS_QUERY: Final = Command("RTRV-SAVERECALL")
"""Ask how far the last bulk command is."""


@dataclass(frozen=True, slots=True)
class NetworkElement:
    """Reply to ``RTRV-NE``."""

    serial: str
    software: str
    chassis: str


@dataclass(frozen=True, slots=True)
class PortSide:
    """The input or the output of a port."""

    administrative: str
    """``IS``: in service; ``OOS-NP``: nothing is provisioned on the port."""
    capability: str
    """``OK`` or ``FAIL``."""


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    input: PortSide
    output: PortSide


@dataclass(frozen=True, slots=True)
class PortPower:
    name: str
    input_dbm: float | None
    output_dbm: float | None


@dataclass(frozen=True, slots=True)
class CrossConnectRow:
    name: str
    """The given name; empty: none."""
    source: str
    target: str
    two_way: bool | None
    """None: of an unknown kind."""
    administrative: str
    operational: str
    capability: str
    alarm: str
    """``CL``, or the severity of the connection's alarm."""

    @property
    def ends(self) -> str:
        """Name made of the connection's ends, as used by bulk commands."""
        return connection_name(self.source, self.target, two_way=bool(self.two_way))

    @property
    def called(self) -> str:
        """Name for commands on a single connection."""
        return self.name or self.ends

    @property
    def active(self) -> bool:
        """True if the connection has been activated; light may still be missing."""
        return self.administrative == "IS"

    @property
    def has_light(self) -> bool:
        states = (self.administrative, self.operational, self.capability)
        return states == ("IS", "IS", "OK")

    @property
    def state(self) -> str:
        """Administrative and operational state and capability, in the device's words."""
        return f"AS={self.administrative}, OS={self.operational}, OC={self.capability}"


class Progress(Enum):
    """State of a bulk command."""

    UNDER_WAY = "progress"
    COMPLETED = "completed"
    FAILED = "failed"
    """The command failed as a whole or for some of its connections."""
    UNKNOWN = ""


def connection_name(source: str, target: str, *, two_way: bool = False) -> str:
    """The device's name of a connection without a given name."""
    return f"{source}{'-' if two_way else '>'}{target}"


def enter(source: str, target: str, group: str) -> Command:
    """Reserve a one-way connection."""
    return Command("ENT-CRS", f"{source},{target}", ("", f"{group},1WAY"))


def activate(source: str, target: str, group: str) -> Command:
    """Let light pass over a one-way connection after :func:`enter`."""
    name = connection_name(source, target)
    return Command("ACT-CRS", f"{source},{target}", ("", f"{name},{group}"))


def cancel(name: str) -> Command:
    """Take a connection out of service, but keep it reserved."""
    return Command("CANC-CRS", "", ("", name))


def delete(name: str) -> Command:
    """Remove an inactive connection."""
    return Command("DLT-CRS", "", ("", name))


def enter_in_bulk(pairs: Iterable[tuple[str, str]]) -> Command:
    """Make the given one-way connections."""
    return Command("ENT-CRS-BULK", "&".join(connection_name(a, b) for a, b in pairs))


def delete_in_bulk(rows: Iterable[CrossConnectRow]) -> Command:
    """Remove the given connections, also active connections."""
    return Command("DLT-CRS-BULK", "&".join(row.ends for row in rows))


def parse_progress(text: str) -> Progress:
    """Progress, by known words of a reply to ``RTRV-SAVERECALL``.

    A text with ``progress`` and a second known word is UNKNOWN: ``PROGRESS=100,STATUS=Completed``
    has ended, and a client that took the command for still under way would wait for ever.
    """
    lower = text.lower()
    ended = (Progress.FAILED, Progress.COMPLETED)
    end = next((found for found in ended if found.value in lower), None)
    if Progress.UNDER_WAY.value in lower:
        return Progress.UNDER_WAY if end is None else Progress.UNKNOWN
    return end or Progress.UNKNOWN


def power_query(port: str) -> Command:
    return Command("RTRV-PORT-SUM", port)


def port_order(name: str) -> tuple[int, int, str, int]:
    """Key that sorts port names by number: ``1.1.2`` before ``1.1.10``, ``9`` before ``10``."""
    match = _PORT.fullmatch(name)
    if match is None:
        raise Tl1Error(f"not a port's name: {name[:80]!r}")
    if match[5] is not None:
        return 0, 0, "", int(match[5])
    return int(match[1]), int(match[2]), match[3], int(match[4])


def ports_of(aid: str) -> tuple[str, ...]:
    """Ports named by an alarm's access identifier, as a connection or as a single port."""
    if (numbers := _CONNECTION.fullmatch(aid)) is not None:
        return tuple(filter(None, numbers.groups()))
    return tuple(match[0] for match in _IN_TEXT.finditer(aid))


def parse_element(record: str) -> NetworkElement:
    """``NAME:SERIALNUMBER=…,SWPACKAGE=…,…,CHASSISTYPE=…``."""
    pairs = parse_pairs(record.partition(":")[2])
    return NetworkElement(
        pair(pairs, "SERIALNUMBER"), pair(pairs, "SWPACKAGE"), pair(pairs, "CHASSISTYPE")
    )


def parse_port(record: str) -> Port:
    """``1.1.1:WX,NONE,NONE:INAS=…,INOS=…,INOC=…,…,OUTAS=…,OUTOC=…``."""
    fields = record.split(":", 2)
    if len(fields) != 3:
        raise Tl1Error(f"not a port: {record[:80]!r}")
    port_order(fields[0])
    pairs = parse_pairs(fields[2])
    return Port(
        fields[0],
        PortSide(pair(pairs, "INAS"), pair(pairs, "INOC")),
        PortSide(pair(pairs, "OUTAS"), pair(pairs, "OUTOC")),
    )


def parse_power(record: str) -> PortPower:
    """``1.1.1:ALIAS=…,INPWR=-2.1,OUTPWR=NONE,…``."""
    name, _, rest = record.partition(":")
    port_order(name)
    pairs = parse_pairs(rest)
    return PortPower(
        name,
        input_dbm=parse_power_dbm(pair(pairs, "INPWR")),
        output_dbm=parse_power_dbm(pair(pairs, "OUTPWR")),
    )


def parse_connection(record: str) -> CrossConnectRow:
    """``…:SRCPORT=1.1.1,DSTPORT=1.2.1,…,CONNNAME=…,CONNTYPE=1WAY,AS=IS,OS=IS,OC=OK,…,AL=CL``."""
    pairs = parse_pairs(record.partition(":")[2].rstrip(","))
    way = pair(pairs, "CONNTYPE")
    name = pair(pairs, "CONNNAME")
    source, target = pair(pairs, "SRCPORT"), pair(pairs, "DSTPORT")
    port_order(source)
    port_order(target)
    return CrossConnectRow(
        "" if name in _NAMELESS else name,
        source,
        target,
        _WAYS.get(way),
        pair(pairs, "AS"),
        pair(pairs, "OS"),
        pair(pairs, "OC"),
        pairs.get("AL", "CL"),
    )
