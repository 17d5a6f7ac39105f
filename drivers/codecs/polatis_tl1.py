"""Polatis' TL1 (port 3082): commands, and the contents of their replies.

Source: public test suites and control scripts for the Polatis Series 6000/7000, which show the
commands and the records of their replies. ``RTRV-ALM-ALL`` is answered as in GR-833-CORE.

Attenuators and alarm thresholds follow public clients in Python and shell; the spelling of the
record with the attenuators' modes is inferred, and read by the text after its last ``=``.

Ports are numbers: ingress 1..N, egress N+1..N+M. ``&`` joins single ports, ``&&`` is a range. On an
any-to-any switch (size ``NxCC``) each of the ports 1..N may be connected to each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from drivers.codecs.tl1 import Command, Dialect, Tl1Error
from drivers.codecs.tl1_values import parse_power_dbm

REPORTS_ON: Final = (
    Command("RLS-ARC-EQPT", "REPMGR", ("",)),
    Command("RLS-ARC-EQPT", "REPMGR", ("", "IND")),
)
"""Subscribe this session to the device's autonomous messages; the maker's tests use the first
command.
"""

DIALECT: Final = Dialect(
    prompts=(">",),
    line_end="\n",
    # PICC: permission denied, also the answer to a session without a login.
    logged_out=frozenset({"PICC", "PLNA"}),
    no_right=frozenset({"PICC"}),
    reports_on=REPORTS_ON,
)

_PORT: Final = r"([1-9][0-9]{0,5})"
_PATCH: Final = re.compile(rf"{_PORT},{_PORT}", re.ASCII)
_OF_PORT: Final = re.compile(rf"{_PORT}:(\S*)", re.ASCII)
_SIZE: Final = re.compile(rf"SYSTEM:SIZE={_PORT}x(?:{_PORT}|CC)", re.ASCII)
_SERIAL: Final = re.compile(r"(?:.*[:,])?SN=([^,]+)(?:,.*)?", re.ASCII)
_TYPE: Final = re.compile(r"([^,]*),([^,]*),([^,]*),([^,]*)", re.ASCII)
_ATTENUATOR_MODES: Final = re.compile(r"ATTEN:[^=]*=([A-Z]+)", re.ASCII)
_ATTENUATOR: Final = re.compile(rf"{_PORT}:([A-Z]{{2,12}}),([^,]*),([^,]*)", re.ASCII)
_THRESHOLDS: Final = re.compile(rf"{_PORT}:([A-Z]+),([A-Z]+),([^,]*),([^,]*)", re.ASCII)
_AID_PORT: Final = re.compile(rf"(?:[A-Za-z]+-?)?{_PORT}", re.ASCII)


@dataclass(frozen=True, slots=True)
class NetworkElement:
    """Reply to ``RTRV-NETYPE``."""

    vendor: str
    model: str
    kind: str
    firmware: str


@dataclass(frozen=True, slots=True)
class AttenuatorRow:
    """A record of ``RTRV-PORT-ATTEN``."""

    port: int
    mode: str
    """``NONE``, ``FIX``, ``MAX``, ``ABS``, ``CONV`` or ``REL``."""
    level: float | None


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """A record of ``RTRV-TH-PMON``."""

    port: int
    on: bool
    low_dbm: float | None
    """None: the alarm is not for too little light."""
    high_dbm: float | None


SIZE_QUERY: Final = Command("RTRV-EQPT", "SYSTEM", ("", "", "PARAMETER=SIZE"))
TYPE_QUERY: Final = Command("RTRV-NETYPE", "", ("",))
INVENTORY_QUERY: Final = Command("RTRV-INV", "OCS", ("",))
PATCHES_QUERY: Final = Command("RTRV-PATCH", "", ("",))
ALARMS_QUERY: Final = Command("RTRV-ALM-ALL", "ALL", ("",))
ATTENUATORS_QUERY: Final = Command("RTRV-EQPT", "ATTEN", ("", "", "PARAMETER=CONFIG"))
"""Ask for the modes of the switch's attenuators; ``NONE``: no attenuators."""
THRESHOLDS_QUERY: Final = Command("RTRV-TH-PMON", "", ("",))
"""Ask for the thresholds of the loss-of-signal alarms at all ports with a monitor."""


def enter_patches(pairs: Sequence[tuple[int, int]]) -> Command:
    """Add cross-connects, (ingress, egress) each."""
    ingress, egress = _listed(a for a, _ in pairs), _listed(b for _, b in pairs)
    return Command("ENT-PATCH", f"{ingress},{egress}", ("",))


def delete_patches(ingress: Collection[int]) -> Command:
    """Remove the cross-connects of the given ingress ports."""
    return Command("DLT-PATCH", _listed(sorted(ingress)), ("",))


def shutter_query(ports: Sequence[int]) -> Command:
    """Ask if light can pass the given ports."""
    return Command("RTRV-PORT-SHUTTER", _listed(ports), ("",))


def power_query(ports: Sequence[int]) -> Command:
    """Ask for the optical power at the given ports."""
    return Command("RTRV-PORT-POWER", _listed(ports), ("",))


def attenuator_query(ports: Sequence[int]) -> Command:
    """Ask how the given egress ports attenuate."""
    return Command("RTRV-PORT-ATTEN", _listed(ports), ("",))


def parse_patch(record: str) -> tuple[int, int]:
    """``1,17`` → (1, 17), a record of ``RTRV-PATCH``."""
    match = _PATCH.fullmatch(record)
    if match is None:
        raise Tl1Error(f"not a cross-connect: {record[:80]!r}")
    return int(match[1]), int(match[2])


def parse_shutter(record: str) -> tuple[int, str]:
    """``1:OPEN`` → (1, ``OPEN``)."""
    return _of_port(record)


def parse_power(record: str) -> tuple[int, float | None]:
    """``1:-23.4`` → (1, -23.4 dBm)."""
    port, text = _of_port(record)
    return port, parse_power_dbm(text)


def parse_attenuator_modes(record: str) -> str:
    """``ATTEN::CONFIG=ABSOLUTE`` → ``ABSOLUTE``."""
    match = _ATTENUATOR_MODES.fullmatch(record)
    if match is None:
        raise Tl1Error(f"not the modes of attenuators: {record[:80]!r}")
    return match[1]


def parse_attenuator(record: str) -> AttenuatorRow:
    """``33:ABS,-10.0,`` → port 33, ``ABS``, -10.0."""
    match = _ATTENUATOR.fullmatch(record)
    if match is None:
        raise Tl1Error(f"not PORT:MODE,LEVEL,REFERENCE: {record[:80]!r}")
    return AttenuatorRow(int(match[1]), match[2], parse_power_dbm(match[3]))


def parse_thresholds(record: str) -> ThresholdRow:
    """``17:CONT,LOW,25.0,-28.0`` → port 17, on, below -28 dBm."""
    match = _THRESHOLDS.fullmatch(record.upper())
    if match is None:
        raise Tl1Error(f"not PORT:MODE,EDGE,HIGH,LOW: {record[:80]!r}")
    high_dbm, low_dbm = parse_power_dbm(match[4]), parse_power_dbm(match[5])
    edge = match[3]
    return ThresholdRow(
        int(match[1]),
        match[2] != "OFF",
        low_dbm=None if edge == "HIGH" else low_dbm,
        high_dbm=None if edge == "LOW" else high_dbm,
    )


def parse_size(record: str) -> tuple[int, int | None]:
    """``SYSTEM:SIZE=48x48`` → (48, 48): numbers of ingress and egress ports.

    ``114xCC`` → (114, None): an any-to-any switch and the number of its ports.
    """
    match = _SIZE.fullmatch(record)
    if match is None:
        raise Tl1Error(f"not a switch size: {record[:80]!r}")
    return int(match[1]), None if match[2] is None else int(match[2])


def parse_type(record: str) -> NetworkElement:
    """``vendor,model,type,firmware``."""
    match = _TYPE.fullmatch(record)
    if match is None:
        raise Tl1Error(f"not vendor,model,type,firmware: {record[:80]!r}")
    return NetworkElement(match[1], match[2], match[3], match[4])


def parse_serial(record: str) -> str:
    """``SN=`` among the fields of ``RTRV-INV``."""
    match = _SERIAL.fullmatch(record)
    if match is None:
        raise Tl1Error(f"no serial number in {record[:80]!r}")
    return match[1]


def port_of(aid: str) -> int | None:
    """The port in an alarm's access identifier: ``17`` or ``PORT-17``; otherwise None."""
    match = _AID_PORT.fullmatch(aid)
    return None if match is None else int(match[1])


def _of_port(record: str) -> tuple[int, str]:
    match = _OF_PORT.fullmatch(record)
    if match is None:
        raise Tl1Error(f"not PORT:VALUE: {record[:80]!r}")
    return int(match[1]), match[2]


def _listed(ports: Iterable[int]) -> str:
    return "&".join(map(str, ports))
