"""An emulated Glimmerglass switch on TL1: ``python -m mininet_scenarios.emulators.glimmerglass``.

Options and common behaviour: :mod:`mininet_scenarios.emulators.process`. There is no login.
Connections are listed once the mirrors have settled (inferred); without light, their state is
``fault``.

``--firmware 6.0`` speaks as a System100 of 2016: rights are not listed, ``NA`` stands for no value,
and two multicast ports follow the matrix. At the start, the last input is connected to the first
multicast port.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Final

from mininet_scenarios.emulators import tl1_language as language
from mininet_scenarios.emulators.faults import OF_BAD_LINES, OF_SWITCHES, OF_TL1
from mininet_scenarios.emulators.ocs import StandingAlarm
from mininet_scenarios.emulators.process import Product, run
from mininet_scenarios.emulators.tl1_language import Denied, Tl1Command
from mininet_scenarios.emulators.tl1_server import Handler, Records, Tl1Client, Tl1Server

_INPUTS: Final = 10_000
_OUTPUTS: Final = 20_000
_DARK_DBM: Final = -49.0
"""Reading of a monitor without light."""
_TERMINAL: Final = b'\x1b[62;1"p\x1b>\x1b[?4l\x1b[?7h\x1b[1;50r'
"""Terminal control sequences that a real switch sends on connecting, from captured sessions."""


class GlimmerglassServer(Tl1Server):
    """The commands of the System 100, 300 and 500 used by a controller."""

    PROMPT = "<"
    ECHOES = True
    MOVING = frozenset({"ENT-CRS-FIBER", "DLT-CRS-FIBER"})

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_TERMINAL)
        await super().converse(reader, writer)

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "RTRV-SYSTEM-INFO": self._system,
            "RTRV-CFG-FIBER": self._ports,
            "RTRV-CRS-FIBER": self._connections,
            "RTRV-PORT-POWER": self._powers,
            "ENT-CRS-FIBER": self._enter,
            "DLT-CRS-FIBER": self._delete,
        }

    def alarm_record(self, alarm: StandingAlarm) -> str:
        aid = self._identifier(alarm.port)
        return f'{aid}:{alarm.severity},{alarm.code},SA,,,,:\\"{alarm.text}\\"'

    async def _system(self, _client: Tl1Client, _command: Tl1Command) -> Records:
        size = self.ocs.size
        return [
            f"GGN:SerialNumber={self.name}",
            "GGN:SystemType=System500",
            "GGN:ChassisType=3U",
            f"GGN:LicensedPortMatrix={size}x{size}",
            "GGN:SoftwareActiveVersion=5.0.1",
        ]

    async def _ports(self, _client: Tl1Client, command: Tl1Command) -> Records:
        return [
            f"GGN:PORTID={self._identifier(port)},PORTNAME={self._label(port)},"
            f"PORTDIR={'input' if port <= self.ocs.size else 'output'},"
            f"PORTHEALTH=good,PORTCAT=nor{self._rights(port)}"
            for port in self._numbers(command.aid)
        ]

    def _rights(self, port: int) -> str:
        return f",PORTPRIV={'0x0' if self.ocs.disabled(port) else '0x1'}"

    async def _powers(self, _client: Tl1Client, command: Tl1Command) -> Records:
        return [
            f"GGN:PORTID={self._identifier(port)},PORTPOWER={self._reading(port)}"
            for port in self._numbers(command.aid)
        ]

    async def _connections(self, _client: Tl1Client, command: Tl1Command) -> Records:
        asked = set(self._numbers(command.aid))
        present = {a: b for a, b in self.ocs.cross_connects.items() if self._listed(a)}
        targets = set(present.values())
        rows = [(a, present.get(a)) for a in range(1, self.ocs.size + 1) if a in asked]
        outputs = range(self.ocs.size + 1, 2 * self.ocs.size + 1)
        unconnected = [b for b in outputs if b in asked and b not in targets]
        return [self._row(a, b) for a, b in rows] + [self._row(None, b) for b in unconnected]

    def _listed(self, ingress: int) -> bool:
        return self.ocs.aimed(ingress) or self.ocs.in_fault(ingress)

    def _row(self, ingress: int | None, egress: int | None) -> str:
        state, cause = "single", "none"
        if ingress is not None and egress is not None:
            faulty = self.ocs.in_fault(ingress)
            state = "fault" if faulty else "steady"
            cause = "initial_connection_timer_expired" if faulty else "none"
        entering = 0.0 if ingress is None else self._power(ingress)
        leaving = 0.0 if egress is None else self._power(egress)
        fields = (
            ("IPORTID", 0 if ingress is None else self._identifier(ingress)),
            ("IPORTNAME", "" if ingress is None else self._label(ingress)),
            ("OPORTID", 0 if egress is None else self._identifier(egress)),
            ("OPORTNAME", "" if egress is None else self._label(egress)),
            ("CONNID", 0),
            ("CONNSTATE", state),
            ("CONNCAUSE", cause),
            ("INPWR", f"{entering:.3f}"),
            ("OUTPWR", f"{leaving:.3f}"),
            ("PWRLOSS", f"{entering - leaving if ingress and egress else 0.0:.3f}"),
            ("CONNLOCK", 0),
            ("CONNLOCKUSER", ""),
        )
        return f"GGN:{language.pairs(fields)}"

    async def _enter(self, _client: Tl1Client, command: Tl1Command) -> Records:
        sides = language.items(command.aid)
        if len(sides) != 2:
            raise Denied("IIAC", "input and output ports are wanted")
        sources, targets = self._numbers(sides[0]), self._numbers(sides[1])
        if len(sources) != len(targets):
            raise Denied("IIAC", "as many inputs as outputs are wanted")
        self.ocs.connect(zip(sources, targets, strict=True))
        if command.block(2).lower() != "opmode=async":
            await self.ocs.settled()
        return []

    async def _delete(self, _client: Tl1Client, command: Tl1Command) -> Records:
        self.ocs.disconnect_ingress([p for p in self._numbers(command.aid) if p <= self.ocs.size])
        if command.block(2).lower() != "opmode=async":
            await self.ocs.settled()
        return []

    def _label(self, port: int) -> str:
        way = "from" if port <= self.ocs.size else "to"
        return f"{way} rack #{(port - 1) % self.ocs.size + 1}"

    def _reading(self, port: int) -> str:
        return f"{self._power(port):.3f}"

    def _power(self, port: int) -> float:
        dbm = self.ocs.power_dbm(port)
        return _DARK_DBM if dbm is None else dbm

    def _identifier(self, port: int) -> int:
        size = self.ocs.size
        return _INPUTS + port if port <= size else _OUTPUTS + port - size

    def _numbers(self, aid: str) -> list[int]:
        """Port numbers in ``all`` or ``10001&20003``, as counted by the switch."""
        by_identifier = {str(self._identifier(p)): p for p in range(1, 2 * self.ocs.size + 1)}
        if aid.lower() == "all":
            return list(by_identifier.values())
        unknown = [part for part in aid.split("&") if part not in by_identifier]
        if unknown:
            raise Denied("IIAC", f"no port {unknown[0]}")
        return [by_identifier[part] for part in aid.split("&")]


class System100Server(GlimmerglassServer):
    """A System100 with software 6.0."""

    MULTICAST = 2

    async def _system(self, client: Tl1Client, command: Tl1Command) -> Records:
        records = await super()._system(client, command)
        replacements = {
            "SystemType=System500": "SystemType=System100",
            "=5.0.1": "=6.0",
            "=3U": "=NA",
        }
        for before, after in replacements.items():
            records = [record.replace(before, after) for record in records]
        return records

    async def _ports(self, client: Tl1Client, command: Tl1Command) -> Records:
        size, multicast = self.ocs.size, range(1, self.MULTICAST + 1)
        return await super()._ports(client, command) + [
            f"GGN:PORTID={base + size + n},PORTNAME=MC-{n},PORTDIR={way},PORTHEALTH=good,"
            "PORTCAT=ref"
            for base, way in ((_INPUTS, "input"), (_OUTPUTS, "output"))
            for n in multicast
        ]

    def _rights(self, port: int) -> str:
        del port
        return ""

    def _reading(self, port: int) -> str:
        return "NA" if self.ocs.power_dbm(port) is None else super()._reading(port)

    def _row(self, ingress: int | None, egress: int | None) -> str:
        """The row; without another connection, the last input feeds ``MC-1``."""
        row = super()._row(ingress, egress)
        if ingress != self.ocs.size or egress is not None:
            return row
        row = row.replace("CONNSTATE=single", "CONNSTATE=steady")
        return row.replace(
            "OPORTID=0,OPORTNAME=", f"OPORTID={_OUTPUTS + self.ocs.size + 1},OPORTNAME=MC-1"
        )


PRODUCT: Final = Product(
    "glimmerglass",
    __doc__,
    "tl1",
    10033,
    GlimmerglassServer,
    OF_SWITCHES | OF_BAD_LINES | OF_TL1,
    {"6.0": System100Server},
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
