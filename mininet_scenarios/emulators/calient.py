"""An emulated Calient switch on TL1: ``python -m mininet_scenarios.emulators.calient``.

Options and common behaviour: :mod:`mininet_scenarios.emulators.process`. The user is ``admin``, the
password ``root``. Entered connections stay reserved until activated; the COMPLD of an activation
comes before the mirrors have moved. States on the way to light are inferred, and so is the form of
the reply to ``RTRV-SAVERECALL``.

``--firmware plain`` numbers the ports, ``1`` to ``N``.

``--firmware shared`` is a plain switch with foreign users. A foreign user has connected the last
two ports. Whenever a session logs in while the switch rests, a foreign user has the switch save its
connections: a save takes a moment and fails every other time. Bulk commands are carried out one
after another, each a moment after its turn has come; until then ``RTRV-SAVERECALL`` reports the
previous command. Connections made by bulk commands or foreign users have no name. All of this is
inferred.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from mininet_scenarios.emulators import tl1_language as language
from mininet_scenarios.emulators.faults import OF_BAD_LINES, OF_SWITCHES, OF_TL1, FaultKind
from mininet_scenarios.emulators.ocs import CommandError, EmulatedOcs, StandingAlarm
from mininet_scenarios.emulators.process import Product, run
from mininet_scenarios.emulators.tl1_language import Denied, Tl1Command
from mininet_scenarios.emulators.tl1_server import Handler, Records, Tl1Client, Tl1Server

_PORTS_A_FIBRE: Final = 8
_FIBRES_A_SEGMENT: Final = 8
_GRAVITY: Final = ("CL", "MN", "MJ", "CR")
_OTHERS: Final = "SYSTEM"
"""Group of connections made by bulk commands or foreign users."""


@dataclass(frozen=True, slots=True)
class _Circuit:
    """A connection; ports count from 1."""

    source: int
    target: int
    group: str
    name: str
    """Names of the ends, e.g. ``1.1.1>1.2.1``."""
    two_way: bool = False

    def pairs(self, size: int) -> list[tuple[int, int]]:
        """(ingress, egress) of each direction, by the switch's numbers."""
        forth = (self.source, size + self.target)
        back = (self.target, size + self.source)
        return [forth, back] if self.two_way else [forth]


class CalientServer(Tl1Server):
    """The commands of the S160 and S320 used by a controller."""

    PROMPT = "agent>"
    USERS: ClassVar[Mapping[str, str]] = {"admin": "root"}
    MOVING = frozenset(
        {"ENT-CRS", "ACT-CRS", "CANC-CRS", "DLT-CRS", "DLT-CRS-ALL", "ENT-CRS-BULK", "DLT-CRS-BULK"}
    )

    def __init__(self, ocs: EmulatedOcs, name: str) -> None:
        super().__init__(ocs, name)
        self._entered: dict[str, _Circuit] = {}
        self._bulk: asyncio.Task[None] | None = None

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "RTRV-NE": self._element,
            "RTRV-PORT": self._ports,
            "RTRV-PORT-SUM": self._port_summary,
            "ENT-CRS": self._enter,
            "ACT-CRS": self._activate,
            "CANC-CRS": self._cancel,
            "DLT-CRS": self._delete,
            "DLT-CRS-ALL": self._delete_all,
            "ENT-CRS-BULK": self._enter_in_bulk,
            "DLT-CRS-BULK": self._delete_in_bulk,
            "RTRV-SAVERECALL": self._progress,
            "RTRV-CRS": self._connections,
        }

    def alarm_record(self, alarm: StandingAlarm) -> str:
        circuit = next((c for c in self._circuits() if self._touches(c, alarm.port)), None)
        number = (alarm.port - 1) % self.ocs.size + 1
        aid = circuit.name if circuit is not None else self.port_name(number)
        return f'{aid}:{alarm.severity},{alarm.code},SA,,,,:\\"{alarm.text}\\"'

    async def _element(self, _client: Tl1Client, _command: Tl1Command) -> Records:
        return [
            f"{self.name}:SERIALNUMBER={self.name},SWPACKAGE=6.0-3,STATUS=OK,CHASSISTYPE=S320,"
            "PLATFORM=VERSION2"
        ]

    async def _ports(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if command.aid != "0":
            raise Denied("IIAC", f"Invalid AID {command.aid}")
        return [self._port_record(number) for number in range(1, self.ocs.size + 1)]

    def _port_record(self, number: int) -> str:
        present = self.ocs.cross_connects
        used_in, used_out = number in present, self.ocs.size + number in present.values()
        sides = [
            f"{side}AS={'IS' if used else 'OOS-NP'},{side}OS={'IS' if used else 'OOS'},"
            f"{side}OC=OK,{side}RS=NPR"
            for side, used in (("IN", used_in), ("OUT", used_out))
        ]
        return f"{self.port_name(number)}:WX,NONE,NONE:{','.join(sides)}"

    async def _port_summary(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if command.aid == "0":
            return [self._summary(number) for number in range(1, self.ocs.size + 1)]
        return [self._summary(self._number(command.aid))]

    def _summary(self, number: int) -> str:
        powers = (self.ocs.power_dbm(number), self.ocs.power_dbm(self.ocs.size + number))
        entering, leaving = ("NONE" if dbm is None else f"{dbm:.2f}" for dbm in powers)
        name = self.port_name(number)
        return f"{name}:ALIAS=NONE,INPWR={entering},OUTPWR={leaving},CONNNAME1=NONE"

    async def _enter(self, _client: Tl1Client, command: Tl1Command) -> Records:
        ends, words = language.items(command.aid), language.items(command.block(1))
        if len(ends) != 2 or len(words) != 2 or words[1].upper() not in ("1WAY", "2WAY"):
            raise Denied("IIAC", "Invalid parameters")
        two_way = words[1].upper() == "2WAY"
        circuit = self._circuit(self._number(ends[0]), self._number(ends[1]), words[0], two_way)
        self._check_free([circuit])
        if self.ocs.obeyed(circuit.pairs(self.ocs.size)):
            self._entered[circuit.name] = circuit
        return []

    def _check_free(self, circuits: Sequence[_Circuit]) -> None:
        steals = self.ocs.faults.active(FaultKind.STEAL)
        taken = {port for c in self._circuits() for pair in c.pairs(self.ocs.size) for port in pair}
        wanted = {port for c in circuits for pair in c.pairs(self.ocs.size) for port in pair}
        if not steals and not taken.isdisjoint(wanted):
            raise Denied("SROF", "Invalid Connection")

    async def _enter_in_bulk(self, _client: Tl1Client, command: Tl1Command) -> Records:
        circuits = self._listed_in_bulk(command)
        self._check_free(circuits)
        self._take_bulk(circuits, self._make)
        return []

    async def _delete_in_bulk(self, _client: Tl1Client, command: Tl1Command) -> Records:
        present = {circuit.name: circuit for circuit in self._circuits()}
        circuits = [present.get(circuit.name) for circuit in self._listed_in_bulk(command)]
        if None in circuits:
            raise Denied("SROF", "Invalid Connection")
        self._take_bulk([c for c in circuits if c is not None], self._unmake)
        return []

    def _take_bulk(
        self, circuits: Sequence[_Circuit], work: Callable[[Sequence[_Circuit]], None]
    ) -> None:
        """Begin ``work`` on the connections; raises CommandError for a refusal."""
        work(circuits)
        self._bulk = asyncio.create_task(self.ocs.settled())

    def _make(self, circuits: Sequence[_Circuit]) -> None:
        before = set(self.ocs.cross_connects)
        self.ocs.connect(self._pairs(circuits))
        made = set(self.ocs.cross_connects) - before
        self._entered |= {c.name: c for c in circuits if c.pairs(self.ocs.size)[0][0] in made}

    def _unmake(self, circuits: Sequence[_Circuit]) -> None:
        self.ocs.disconnect(self._pairs(circuits))
        for circuit in circuits:
            if not self._active(circuit):
                self._entered.pop(circuit.name, None)

    def _pairs(self, circuits: Sequence[_Circuit]) -> list[tuple[int, int]]:
        return [pair for circuit in circuits for pair in circuit.pairs(self.ocs.size)]

    async def _progress(self, _client: Tl1Client, _command: Tl1Command) -> Records:
        return [f"SAVERECALL:STATUS={self._bulk_status()}"]

    def _bulk_status(self) -> str:
        """How far the last bulk command is."""
        under_way = self._bulk is not None and not self._bulk.done()
        return "In progress" if under_way else "Completed"

    def _listed_in_bulk(self, command: Tl1Command) -> list[_Circuit]:
        circuits = []
        for title in command.aid.split("&"):
            sign = "-" if "-" in title else ">"
            source, _, target = title.partition(sign)
            ends = self._number(source), self._number(target)
            circuits.append(self._circuit(*ends, _OTHERS, sign == "-"))
        return circuits

    async def _activate(self, _client: Tl1Client, command: Tl1Command) -> Records:
        faults = self.ocs.faults
        circuit = self._named(language.items(command.block(1))[0])
        if circuit is not None and not faults.strikes(FaultKind.RESERVED):
            self.ocs.connect(circuit.pairs(self.ocs.size))
        return []

    async def _cancel(self, _client: Tl1Client, command: Tl1Command) -> Records:
        circuit = self._named(command.block(1))
        if circuit is not None:
            self._entered[circuit.name] = circuit
            self.ocs.disconnect(circuit.pairs(self.ocs.size))
            await self.ocs.settled()
        return []

    async def _delete(self, _client: Tl1Client, command: Tl1Command) -> Records:
        circuit = self._named(command.block(1))
        if circuit is not None and self.ocs.obeyed(circuit.pairs(self.ocs.size)):
            if self._active(circuit):
                raise Denied("SROF", "Invalid Connection")
            del self._entered[circuit.name]
        return []

    async def _delete_all(self, _client: Tl1Client, _command: Tl1Command) -> Records:
        self._entered.clear()
        self.ocs.disconnect(list(self.ocs.cross_connects.items()))
        return []

    async def _connections(self, _client: Tl1Client, command: Tl1Command) -> Records:
        if command.block(1) != "ALL":
            raise Denied("IIAC", "Invalid parameters")
        return [self._record(circuit) for circuit in self._circuits()]

    def _record(self, circuit: _Circuit) -> str:
        administrative, operational, capability = self._states(circuit)
        gravity = [
            _GRAVITY.index(a.severity) for a in self.ocs.alarms if self._touches(circuit, a.port)
        ]
        fields = (
            ("SRCPORT", self.port_name(circuit.source)),
            ("DSTPORT", self.port_name(circuit.target)),
            ("GRPNAME", circuit.group),
            ("CONNNAME", self._given_name(circuit)),
            ("CONNTYPE", "2WAY" if circuit.two_way else "1WAY"),
            ("AS", administrative),
            ("OS", operational),
            ("OC", capability),
            ("PS", "UPR"),
            ("AL", _GRAVITY[max(gravity, default=0)]),
            ("MATRIXUSED", 1),
        )
        return f"{circuit.name}:{language.pairs(fields)}"

    def _given_name(self, circuit: _Circuit) -> str:
        return circuit.name

    def _states(self, circuit: _Circuit) -> tuple[str, str, str]:
        if not self._active(circuit):
            return "UMA", "RDY", "OK"
        ingress = [a for a, _ in circuit.pairs(self.ocs.size)]
        if any(map(self.ocs.in_fault, ingress)):
            return "IS", "OOS", "FAIL"
        return "IS", "IS" if all(map(self.ocs.aimed, ingress)) else "OOS", "OK"

    def _active(self, circuit: _Circuit) -> bool:
        present = self.ocs.cross_connects
        return all(present.get(a) == b for a, b in circuit.pairs(self.ocs.size))

    def _touches(self, circuit: _Circuit, port: int) -> bool:
        return any(port in pair for pair in circuit.pairs(self.ocs.size))

    def _circuits(self) -> Iterator[_Circuit]:
        """Entered connections, then foreign cross-connects of the mirrors."""
        seen: set[tuple[int, int]] = set()
        for circuit in self._entered.values():
            seen.update(circuit.pairs(self.ocs.size))
            yield circuit
        for ingress, egress in sorted(self.ocs.cross_connects.items()):
            if (ingress, egress) not in seen:
                yield self._circuit(ingress, egress - self.ocs.size, _OTHERS, False)

    def _circuit(self, source: int, target: int, group: str, two_way: bool) -> _Circuit:
        name = f"{self.port_name(source)}{'-' if two_way else '>'}{self.port_name(target)}"
        return _Circuit(source, target, group, name, two_way)

    def _named(self, name: str) -> _Circuit | None:
        """The connection with the given name; None if a fault swallows the command."""
        found = next((c for c in self._circuits() if c.name == name), None)
        if found is None and not self.ocs.faults.active(FaultKind.SILENT):
            raise Denied("SROF", "Invalid Connection")
        return found

    def _number(self, name: str) -> int:
        for number in range(1, self.ocs.size + 1):
            if self.port_name(number) == name:
                return number
        raise Denied("IIAC", f"Invalid port {name}")

    def port_name(self, number: int) -> str:
        """Name of a port; ports count from 1."""
        fibres, port = divmod(number - 1, _PORTS_A_FIBRE)
        segment, fibre = divmod(fibres, _FIBRES_A_SEGMENT)
        return f"{segment + 1}.{fibre + 1}.{port + 1}"


class PlainServer(CalientServer):
    """A switch with numbered ports."""

    def port_name(self, number: int) -> str:
        return f"{number}"


class SharedServer(PlainServer):
    """A switch with numbered ports and foreign users, and with a late start of bulk commands."""

    BEGINS_AFTER_S = 0.01
    SAVES_FOR_S = 0.03

    def __init__(self, ocs: EmulatedOcs, name: str) -> None:
        super().__init__(ocs, name)
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._state = "Completed"
        self._saves = itertools.cycle(("Failed", "Completed"))
        self._is_new = True

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        if self._is_new:
            size, present = self.ocs.size, self.ocs.cross_connects
            taken = {*present, *present.values()}
            last = [(n, size + n) for n in range(max(1, size - 1), size + 1)]
            self.ocs.connect(pair for pair in last if taken.isdisjoint(pair))
            self._is_new = False
        return await super().listen(host, port)

    async def _log_in(self, client: Tl1Client, command: Tl1Command) -> Records:
        records = await super()._log_in(client, command)
        if not self._tasks:
            self._state = "In progress"
            self._queue(self._save())
        return records

    async def _save(self) -> None:
        async with self._turn:
            await asyncio.sleep(self.SAVES_FOR_S)
            self._state = next(self._saves)

    def _take_bulk(
        self, circuits: Sequence[_Circuit], work: Callable[[Sequence[_Circuit]], None]
    ) -> None:
        allowed = self.ocs.obeyed(self._pairs(circuits))
        if allowed is not None:
            obeyed = [c for c in circuits if c.pairs(self.ocs.size)[0] in allowed]
            self._queue(self._work(obeyed, work))

    async def _work(
        self, circuits: Sequence[_Circuit], work: Callable[[Sequence[_Circuit]], None]
    ) -> None:
        async with self._turn:
            await asyncio.sleep(self.BEGINS_AFTER_S)
            self._state = "In progress"
            try:
                work(circuits)
                await self.ocs.settled()
                self._state = "Completed"
            except CommandError:
                self._state = "Failed"

    def _queue(self, command: Coroutine[None, None, None]) -> None:
        """Queue a command; queued commands run in order."""
        task = asyncio.create_task(command)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _bulk_status(self) -> str:
        return self._state

    def _given_name(self, circuit: _Circuit) -> str:
        return "" if circuit.group == _OTHERS else circuit.name


PRODUCT: Final = Product(
    "calient",
    __doc__,
    "tl1",
    3083,
    CalientServer,
    OF_SWITCHES | OF_BAD_LINES | OF_TL1 | {FaultKind.RESERVED},
    {"plain": PlainServer, "shared": SharedServer},
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
