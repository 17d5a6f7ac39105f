"""An emulated Polatis switch on TL1: ``python -m mininet_scenarios.emulators.polatis_tl1``.

Options and common behaviour: :mod:`mininet_scenarios.emulators.process`. The user is ``admin``, the
password ``root``. A busy port is refused with ``SROF``, unconfirmed by any public source for this
device.

``--firmware any`` is a more difficult switch, with connections between any two ports. The switch
greets with a banner that looks like the head of a message, takes few sessions and counts sessions
without a log-out, sends messages in the middle of its replies, has a different code for not logged
in, takes no parameter with ``RLS-ARC-EQPT``, and has no attenuators.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import ClassVar, Final

from mininet_scenarios.emulators import tl1_language as language
from mininet_scenarios.emulators.faults import OF_BAD_LINES, OF_SWITCHES, OF_TL1
from mininet_scenarios.emulators.ocs import (
    Attenuation,
    CommandError,
    NoSuchPortError,
    StandingAlarm,
)
from mininet_scenarios.emulators.process import Product, run
from mininet_scenarios.emulators.tl1_language import Denied, Tl1Command
from mininet_scenarios.emulators.tl1_server import Handler, Records, Tl1Client, Tl1Server

_FIRMWARE: Final = "6.5.2.18"
_DARK_DBM: Final = -50.0
"""Reading of a monitor without light."""
_LONGEST_TIMEOUT_MIN: Final = 60


class PolatisTl1Server(Tl1Server):
    """The commands of the Series 6000 and 7000 used by a controller."""

    REPORTS_TO_ALL = False
    USERS: ClassVar[Mapping[str, str]] = {"admin": "root"}
    NOT_LOGGED_IN = "PICC"
    MOVING = frozenset({"ENT-PATCH", "DLT-PATCH"})
    ATTENUATES: ClassVar[bool] = True
    REPORT_KINDS: ClassVar[frozenset[str]] = frozenset({"IND"})
    """Accepted kinds of messages in ``RLS-ARC-EQPT`` and ``OPR-ARC-EQPT``."""

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "RLS-ARC-EQPT": self._reports_on,
            "OPR-ARC-EQPT": self._reports_off,
            "RTRV-EQPT": self._equipment,
            "ED-EQPT": self._edit_equipment,
            "RTRV-NETYPE": self._type,
            "RTRV-INV": self._inventory,
            "ENT-PATCH": self._enter,
            "DLT-PATCH": self._delete,
            "RTRV-PATCH": self._patches,
            "RTRV-PORT-SHUTTER": self._shutters,
            "OPR-PORT-SHUTTER": self._close_shutters,
            "RLS-PORT-SHUTTER": self._open_shutters,
            "RTRV-PORT-POWER": self._power,
            "RTRV-ALM-ALL": self._alarms,
            "RTRV-PORT-ATTEN": self._attenuations,
            "SET-PORT-ATTEN": self._attenuate,
            "RTRV-TH-PMON": self._thresholds,
            "SET-TH-PMON": self._set_thresholds,
        }

    @property
    def source(self) -> str:
        return "( nil )"

    def denial(self, error: CommandError) -> Denied:
        if isinstance(error, NoSuchPortError):
            return Denied("IDNV", f"Invalid OXC port; {error}")
        return super().denial(error)

    def alarm_record(self, alarm: StandingAlarm) -> str:
        return f'{alarm.port}:{alarm.severity},{alarm.code},NSA,,,,:\\"{alarm.text}\\"'

    async def _reports_on(self, client: Tl1Client, command: Tl1Command) -> Records:
        client.receives_reports = self._is_report_manager(command)
        return []

    async def _reports_off(self, client: Tl1Client, command: Tl1Command) -> Records:
        client.receives_reports = not self._is_report_manager(command)
        return []

    def _is_report_manager(self, command: Tl1Command) -> bool:
        if command.aid != "REPMGR" or command.block(1) not in self.REPORT_KINDS:
            raise Denied("IPNV", "Parameter not valid")
        return True

    async def _equipment(self, _client: Tl1Client, command: Tl1Command) -> Records:
        settings = {
            ("SYSTEM", "PARAMETER=SIZE"): f"SYSTEM:SIZE={self.size()}",
            (
                "ATTEN",
                "PARAMETER=CONFIG",
            ): f"ATTEN::CONFIG={'ABSOLUTE' if self.ATTENUATES else 'NONE'}",
        }
        if (command.aid, command.block(2)) not in settings:
            raise Denied("IPNV", "Parameter not valid")
        return [settings[command.aid, command.block(2)]]

    def size(self) -> str:
        """Number of ports on each side."""
        return f"{self.ocs.size}x{self.ocs.size}"

    async def _edit_equipment(self, _client: Tl1Client, command: Tl1Command) -> Records:
        minutes = command.block(2).removeprefix("ADMIN=")
        if command.aid != "TIMEOUT" or not minutes.isdigit():
            raise Denied("IPNV", "Parameter not valid")
        if int(minutes) > _LONGEST_TIMEOUT_MIN:
            raise Denied("IPNV", "Parameter not valid")
        return []

    async def _type(self, _client: Tl1Client, _command: Tl1Command) -> Records:
        size = self.ocs.size
        return [f"Polatis,N-VST-{size}x{size}-LU1-DMHNV,OCS,{_FIRMWARE}"]

    async def _inventory(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if command.aid != "OCS":
            raise Denied("IIAC", f"unknown {command.aid}")
        return [f"OCS:SN={self.name}"]

    async def _enter(self, _client: Tl1Client, command: Tl1Command) -> Records:
        sides = command.aid.split(",")
        if not all(sides):
            raise Denied("IIAC", "Empty parameters")
        if len(sides) != 2:
            raise Denied("IIAC", f"Too few parameters ({len(sides)}/2)")
        ingress, egress = self._ports(sides[0]), self._ports(sides[1])
        if len(ingress) != len(egress):
            raise Denied("IIAC", "as many ingress as egress ports are wanted")
        self.ocs.connect(map(self.ordered, zip(ingress, egress, strict=True)))
        await self.ocs.settled()
        return []

    def ordered(self, pair: tuple[int, int]) -> tuple[int, int]:
        """A patch as (ingress, egress) of the mirrors."""
        return pair

    async def _delete(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if not command.aid:
            raise Denied("IIAC", "Too few parameters (0/1)")
        if command.aid == "ALL":
            self.ocs.disconnect(list(self.ocs.cross_connects.items()))
        else:
            ports = set(self._ports(command.aid))
            present = self.ocs.cross_connects.items()
            self.ocs.disconnect([pair for pair in present if not ports.isdisjoint(pair)])
        await self.ocs.settled()
        return []

    async def _patches(self, _client: Tl1Client, command: Tl1Command) -> Records:
        present = sorted(self.ocs.cross_connects.items())
        asked = set(self._ports(command.aid)) if command.aid else None
        found = [pair for pair in present if asked is None or not asked.isdisjoint(pair)]
        return ["{},{}".format(*self.shown(pair)) for pair in found]

    def shown(self, pair: tuple[int, int]) -> tuple[int, int]:
        """A patch in the listed order."""
        return pair

    async def _shutters(self, _client: Tl1Client, command: Tl1Command) -> Records:
        ports = self._ports(command.aid)
        return [f"{port}:{'CLOSED' if self.ocs.disabled(port) else 'OPEN'}" for port in ports]

    async def _close_shutters(self, _client: Tl1Client, command: Tl1Command) -> Records:
        self.ocs.set_enabled(self._ports(command.aid), enabled=False)
        return []

    async def _open_shutters(self, _client: Tl1Client, command: Tl1Command) -> Records:
        self.ocs.set_enabled(self._ports(command.aid), enabled=True)
        return []

    async def _power(self, _client: Tl1Client, command: Tl1Command) -> Records:
        readings = {port: self.ocs.power_dbm(port) for port in self._ports(command.aid)}
        found = {port: _DARK_DBM if dbm is None else dbm for port, dbm in readings.items()}
        return [f"{port}:{self.power(dbm)}" for port, dbm in found.items()]

    def power(self, dbm: float) -> str:
        """A reading in the listed form."""
        return f"{dbm:.1f}"

    async def _alarms(self, _client: Tl1Client, _command: Tl1Command) -> Records:
        return [self.alarm_record(alarm) for alarm in self.ocs.alarms]

    async def _attenuations(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if not self.ATTENUATES:
            raise Denied("SROF", "no attenuators")
        found = {port: self.ocs.attenuation(port) for port in self._ports(command.aid)}
        return [
            f"{port}:{setting.mode},{'' if setting.level is None else f'{setting.level:.1f}'},"
            for port, setting in found.items()
        ]

    async def _attenuate(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if not self.ATTENUATES:
            raise Denied("SROF", "no attenuators")
        values = _values(command.block(2))
        level = _number(values["LEVEL"]) if "LEVEL" in values else None
        for port in self._ports(command.aid):
            self.ocs.attenuate(port, Attenuation(values.get("MODE", ""), level))
        return []

    async def _thresholds(self, _client: Tl1Client, command: Tl1Command) -> Records:
        """Of the loss-of-signal alarms; monitors are at egress ports."""
        size = self.ocs.size
        ports = self._ports(command.aid) if command.aid else range(size + 1, 2 * size + 1)
        alarms = {port: self.ocs.power_alarm(port) for port in ports}
        return [
            f"{port}:{'CONT' if alarm.on else 'OFF'},LOW,{alarm.high_dbm:.1f},{alarm.low_dbm:.1f}"
            for port, alarm in alarms.items()
        ]

    async def _set_thresholds(self, _client: Tl1Client, command: Tl1Command) -> Records:
        values = _values(command.block(2))
        for port in self._ports(command.aid):
            alarm = self.ocs.power_alarm(port)
            if "MODE" in values:
                alarm = dataclasses.replace(alarm, on=values["MODE"] != "OFF")
            if "LOW" in values:
                alarm = dataclasses.replace(alarm, low_dbm=_number(values["LOW"]))
            if "HIGH" in values:
                alarm = dataclasses.replace(alarm, high_dbm=_number(values["HIGH"]))
            self.ocs.set_power_alarm(port, alarm)
        return []

    def _ports(self, aid: str) -> list[int]:
        numbers = language.port_numbers(aid, 2 * self.ocs.size)
        for number in numbers:
            if not number.isdigit() or not 1 <= int(number) <= 2 * self.ocs.size:
                raise Denied("IDNV", f"Invalid OXC port: {number}")
        return [int(number) for number in numbers]


class AnyToAnyServer(PolatisTl1Server):
    """A switch whose ports are ingress and egress at once, with peculiarities of its own."""

    GREETING = "\r\nFor authorised users.\r\nLast login: 26-11-07 11:20:14\r\nfrom 10.0.0.7\r\n"
    SESSIONS = 12
    REPORTS_IN_MID_REPLY = True
    NOT_LOGGED_IN = "PIUI"
    ATTENUATES = False
    REPORT_KINDS = frozenset({""})

    def size(self) -> str:
        return f"{2 * self.ocs.size}xCC"

    def ordered(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Accept both orders; two ports of the same half are refused, a limit of this emulator."""
        return min(pair), max(pair)

    def shown(self, pair: tuple[int, int]) -> tuple[int, int]:
        return (pair[1], pair[0]) if pair[0] % 2 else pair

    def power(self, dbm: float) -> str:
        return f"{dbm:+.2f}"


def _values(block: str) -> dict[str, str]:
    """``MODE=ABS,LEVEL=(-10.0)`` by name."""
    pairs = (item.upper().partition("=") for item in language.items(block) if item)
    return {name: value for name, _, value in pairs}


def _number(text: str) -> float:
    """``5`` or ``(-10.0)``: negative numbers are in brackets."""
    try:
        return float(text.strip("()"))
    except ValueError:
        raise Denied("IPNV", f"not a number: {text}") from None


PRODUCT: Final = Product(
    "polatis-tl1",
    __doc__,
    "tl1",
    3082,
    PolatisTl1Server,
    OF_SWITCHES | OF_BAD_LINES | OF_TL1,
    {"any": AnyToAnyServer},
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
