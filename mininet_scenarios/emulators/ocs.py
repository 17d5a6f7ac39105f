"""An emulated optical circuit switch, independent of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeVar

from mininet_scenarios.emulators.faults import LIES, FaultKind, Faults
from mininet_scenarios.emulators.mirrors import NO_COPIES, MirrorCounters, Mirrors

_log: Final = logging.getLogger(__name__)
_LASER_DBM: Final = -2.0
"""Default power from a ToR's transmitter into an ingress port."""
_INSERTION_LOSS_DB: Final = 1.2
ATTENUATOR_MODES: Final = ("NONE", "FIX", "MAX", "ABS", "CONV", "REL")

_T = TypeVar("_T")
Pairs = Iterable[tuple[int, int]]


class CommandError(Exception):
    """A command that the switch does not carry out; nothing has moved."""


class NoSuchPortError(CommandError):
    """A port number missing on the given side of the switch."""


class BusyPortError(CommandError):
    """A port in use by a different cross-connect."""


class RefusedError(CommandError):
    """A fault makes the switch refuse."""


@dataclass(frozen=True, slots=True)
class Timing:
    switching_s: float
    """Time from the command until light leaves the new way; moved ports are dark meanwhile."""
    debounce_s: float = 0.0
    """Further time until the ToR port sees carrier; the switch itself is done by then."""


@dataclass(frozen=True, slots=True)
class StandingAlarm:
    """Alarm ordered by an experimenter."""

    port: int
    severity: str
    """``CR``, ``MJ`` or ``MN``; ``CL`` after the end of the alarm."""
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Attenuation:
    """Setting of the attenuator behind an egress port."""

    mode: str
    """A mode in :data:`ATTENUATOR_MODES`."""
    level: float | None = None
    """For ``REL``: attenuation in dB; for ``ABS`` and ``CONV``: power behind the attenuator, in
    dBm.
    """


@dataclass(frozen=True, slots=True)
class PowerAlarm:
    """When a port's monitor is to raise an alarm; the defaults are a new switch's."""

    on: bool = False
    low_dbm: float = -60.0
    high_dbm: float = 25.0


class EmulatedOcs:
    """Ingress ports 1..N, egress ports N+1..2N; cross-connects are one-way.

    Commands return at once and mirrors move later, as in the emulated devices; :meth:`settled`
    waits. A command is checked as a whole: one bad port, and nothing moves.
    """

    def __init__(self, size: int, mirrors: Mirrors, timing: Timing) -> None:
        self.size = size
        self.faults = Faults()
        self.moves = 0
        self._mirrors = mirrors
        self._timing = timing
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="mirrors")
        self._cross_connects: dict[int, int] = {}
        self._foreign: dict[int, int] = {}
        self._disabled: set[int] = set()
        self._generation: dict[int, int] = {}
        self._unsettled: set[asyncio.Task[None]] = set()
        self._unlit: set[asyncio.Task[None]] = set()
        self._broken: set[int] = set()
        self._aimed: set[int] = set()
        self._spread: set[int] = set()
        """Ingress ports whose light also comes out at a second port."""
        self._input_dbm: dict[int, float | None] = {}
        self._attenuations: dict[int, Attenuation] = {}
        self._power_alarms: dict[int, PowerAlarm] = {}
        self._alarms: dict[tuple[int, str], StandingAlarm] = {}
        self._alarm_listeners: list[Callable[[StandingAlarm], None]] = []

    async def start(self) -> None:
        self._cross_connects = dict(await self._in_worker(self._mirrors.start))
        self._aimed = set(self._cross_connects)

    async def close(self) -> None:
        """Finish moves under way and let go; the mirrors stay unchanged."""
        await self.settled()
        await asyncio.gather(*self._unlit)
        await self._in_worker(self._mirrors.close)
        self._worker.shutdown()

    @property
    def cross_connects(self) -> Mapping[int, int]:
        """Egress by ingress, as commanded; :meth:`settled` says whether mirrors have followed."""
        return self._cross_connects

    def disabled(self, port: int) -> bool:
        self.check_port(port)
        return port in self._disabled

    @property
    def closed(self) -> frozenset[int]:
        """Ports whose shutters are closed."""
        return frozenset(self._disabled)

    def set_enabled(self, ports: Collection[int], *, enabled: bool) -> None:
        """Open or close shutters: no light comes in or goes out at a closed port."""
        for port in ports:
            self.check_port(port)
        before = self._dark
        if enabled:
            self._disabled -= set(ports)
        else:
            self._disabled |= set(ports)
        self._follow_dark(before)

    def check_port(self, port: int) -> None:
        if not 1 <= port <= 2 * self.size:
            raise NoSuchPortError(f"port {port} is outside 1..{2 * self.size}")

    def connect(self, pairs: Pairs) -> None:
        """Add cross-connects; existing cross-connects stay unchanged."""
        wanted = self._checked(pairs)
        if (allowed := self.obeyed(wanted)) is None:
            return
        self._check_distinct(allowed)
        new = [(a, b) for a, b in allowed if self._cross_connects.get(a) != b]
        in_the_way = self._holders(new)
        if in_the_way and not self.faults.strikes(FaultKind.STEAL):
            raise BusyPortError(f"port {in_the_way[0][0]} is connected to {in_the_way[0][1]}")
        self._start_move(in_the_way, new)

    def connect_only(self, pairs: Pairs) -> None:
        """Replace all cross-connects."""
        wanted = self._checked(pairs)
        if (allowed := self.obeyed(wanted)) is None:
            return
        self._check_distinct(allowed)
        old = set(self._cross_connects.items())
        self._start_move(sorted(old - set(allowed)), sorted(set(allowed) - old))

    def disconnect(self, pairs: Pairs) -> None:
        """Remove cross-connects; absent cross-connects are ignored."""
        wanted = self._checked(pairs)
        if (allowed := self.obeyed(wanted)) is None:
            return
        self._start_move([(a, b) for a, b in allowed if self._cross_connects.get(a) == b], [])

    def disconnect_ingress(self, ingress: Collection[int]) -> None:
        """Remove the cross-connects of the ingress ports."""
        self._check_side(ingress, 1, "ingress")
        present = self._cross_connects
        self.disconnect([(port, present[port]) for port in ingress if port in present])

    def block(self, port: int) -> tuple[int, int]:
        """Connect a port in another client's name, to the highest free port of the other side."""
        self.check_port(port)
        if port in {*self._cross_connects, *self._cross_connects.values()}:
            raise BusyPortError(f"port {port} is connected already")
        taken_egress = set(self._cross_connects.values())
        if port <= self.size:
            free = [e for e in range(self.size + 1, 2 * self.size + 1) if e not in taken_egress]
        else:
            free = [i for i in range(1, self.size + 1) if i not in self._cross_connects]
        if not free:
            raise BusyPortError("all ports of the other side are connected already")
        pair = (port, free[-1]) if port <= self.size else (free[-1], port)
        self._foreign[pair[0]] = pair[1]
        self._start_move([], [pair])
        return pair

    def unblock(self) -> None:
        """Remove the cross-connects made by :meth:`block` and not replaced since."""
        gone = [(a, b) for a, b in self._foreign.items() if self._cross_connects.get(a) == b]
        self._foreign.clear()
        self._start_move(gone, [])

    # --- power and alarms -----------------------------------------------------------------------

    def in_fault(self, ingress: int) -> bool:
        """True if the port's cross-connect exists and carries no light."""
        return ingress in self._broken

    def aimed(self, ingress: int) -> bool:
        """True if the mirrors of the port's cross-connect have settled."""
        return ingress in self._aimed

    def set_input_power(self, ingress: int, dbm: float | None) -> None:
        """Set the power at an ingress port; None: no light."""
        self._check_side([ingress], 1, "ingress")
        before = self._dark
        self._input_dbm[ingress] = dbm
        self._follow_dark(before)

    def power_dbm(self, port: int) -> float | None:
        """Optical power into an ingress port, or out of an egress port; None: no light."""
        self.check_port(port)
        if port <= self.size:
            return self._input_dbm.get(port, _LASER_DBM)
        for ingress, egress in self._cross_connects.items():
            if egress == port:
                return self._passed_on(ingress, egress) if ingress in self._aimed else None
        return None

    def _passed_on(self, ingress: int, egress: int) -> float | None:
        """Power out of ``egress`` once the mirrors lead there from ``ingress``; None: no light."""
        power = self._input_dbm.get(ingress, _LASER_DBM)
        closed = not self._disabled.isdisjoint((ingress, egress))
        if closed or power is None or ingress in self._broken:
            return None
        return self._attenuated(egress, power)

    @property
    def _dark(self) -> frozenset[int]:
        """Egress ports of cross-connects that pass no light on."""
        pairs = self._cross_connects.items()
        return frozenset(b for a, b in pairs if self._passed_on(a, b) is None)

    def _follow_dark(self, before: frozenset[int]) -> None:
        """Move the mirrors after a change of :attr:`_dark`; ``before``: the earlier value."""
        self._track(self._unsettled, asyncio.create_task(self._darken_and_light(before)))

    async def _darken_and_light(self, before: frozenset[int]) -> None:
        aimed = {self._cross_connects[ingress] for ingress in self._aimed}
        darkened, lit = self._dark - before, (before - self._dark) & aimed

        def follow() -> None:
            self._mirrors.darken((), darkened)
            self._mirrors.light(lit)

        await self._in_worker(follow)

    def attenuation(self, egress: int) -> Attenuation:
        self._check_side([egress], self.size + 1, "egress")
        return self._attenuations.get(egress, Attenuation("NONE"))

    def attenuate(self, egress: int, attenuation: Attenuation) -> None:
        """Set the attenuator behind an egress port."""
        self._check_side([egress], self.size + 1, "egress")
        has_level = attenuation.mode in ("ABS", "CONV", "REL")
        if attenuation.mode not in ATTENUATOR_MODES or has_level != (attenuation.level is not None):
            raise CommandError(f"no attenuation {attenuation.mode} with level {attenuation.level}")
        before = self._dark
        self._attenuations[egress] = attenuation
        self._follow_dark(before)

    def _attenuated(self, egress: int, dbm: float) -> float | None:
        attenuation, behind = self.attenuation(egress), dbm - _INSERTION_LOSS_DB
        if attenuation.mode == "MAX":
            return None
        if attenuation.level is None:
            return behind
        taken_off = attenuation.mode == "REL"
        return behind - attenuation.level if taken_off else min(behind, attenuation.level)

    def power_alarm(self, port: int) -> PowerAlarm:
        self.check_port(port)
        return self._power_alarms.get(port, PowerAlarm())

    def set_power_alarm(self, port: int, alarm: PowerAlarm) -> None:
        """Set a port's thresholds; alarms are raised only by experimenters."""
        self.check_port(port)
        self._power_alarms[port] = alarm

    @property
    def alarms(self) -> tuple[StandingAlarm, ...]:
        """Standing alarms."""
        return tuple(self._alarms.values())

    def on_alarm(self, listener: Callable[[StandingAlarm], None]) -> None:
        """Call ``listener`` at the beginning and end of each alarm."""
        self._alarm_listeners.append(listener)

    def raise_alarm(self, alarm: StandingAlarm) -> None:
        """Raise an alarm of a port; severity ``CL`` ends the alarm of the same code."""
        self.check_port(alarm.port)
        if alarm.severity == "CL":
            self._alarms.pop((alarm.port, alarm.code), None)
        else:
            self._alarms[alarm.port, alarm.code] = alarm
        for listener in self._alarm_listeners:
            listener(alarm)

    # --- waiting --------------------------------------------------------------------------------

    async def settled(self) -> None:
        """Return once all mirrors commanded so far have settled."""
        while self._unsettled:
            await asyncio.wait(self._unsettled)

    async def lit(self) -> frozenset[int]:
        return await self._in_worker(self._mirrors.lit)

    async def counters(self) -> MirrorCounters:
        return await self._in_worker(self._mirrors.counters)

    # --- checks ---------------------------------------------------------------------------------

    def _checked(self, pairs: Pairs) -> list[tuple[int, int]]:
        checked = list(pairs)
        self._check_side([ingress for ingress, _ in checked], 1, "ingress")
        self._check_side([egress for _, egress in checked], self.size + 1, "egress")
        return checked

    def _check_side(self, ports: Collection[int], first: int, side: str) -> None:
        outside = set(ports).difference(range(first, first + self.size))
        if outside:
            raise NoSuchPortError(f"there is no {side} port {min(outside)}")

    def _check_distinct(self, pairs: list[tuple[int, int]]) -> None:
        if len({a for a, _ in pairs}) < len(pairs) or len({b for _, b in pairs}) < len(pairs):
            raise BusyPortError("a port is named twice")

    def obeyed(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]] | None:
        """The part of a command that faults let through; None if a fault swallows the command. Uses
        faults up.

        Raises RefusedError.
        """
        if self.faults.strikes(FaultKind.REFUSE):
            raise RefusedError("the switch refuses")
        if self.faults.strikes(FaultKind.SILENT):
            return None
        if self.faults.strikes(FaultKind.PARTIAL):
            return pairs[: len(pairs) // 2]
        return pairs

    def _holders(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        by_egress = {b: a for a, b in self._cross_connects.items()}
        holders: dict[int, int] = {}
        for ingress, egress in pairs:
            if ingress in self._cross_connects:
                holders[ingress] = self._cross_connects[ingress]
            if egress in by_egress:
                holders[by_egress[egress]] = egress
        return sorted(holders.items())

    # --- movement -------------------------------------------------------------------------------

    def _start_move(self, removed: list[tuple[int, int]], added: list[tuple[int, int]]) -> None:
        if not removed and not added:
            return
        self.moves += 1
        for ingress, _ in removed:
            del self._cross_connects[ingress]
        self._cross_connects.update(added)
        moved = {ingress for ingress, _ in (*removed, *added)}
        self._broken -= moved
        self._aimed -= moved
        self._generation.update(dict.fromkeys(chain(*removed, *added), self.moves))
        if added and self.faults.strikes(FaultKind.NO_LIGHT):
            self._broken |= {ingress for ingress, _ in added}
        lie = next((kind for kind in LIES if added and self.faults.active(kind)), None)
        late_s = 0.0 if lie is None else self.faults.delay_of(lie)
        if lie is not None:
            self.faults.strikes(lie)
        move = self._move(removed, added, self.moves, lie=lie, late_s=late_s)
        self._track(self._unsettled, asyncio.create_task(move))

    async def _move(
        self,
        removed: list[tuple[int, int]],
        added: list[tuple[int, int]],
        generation: int,
        *,
        lie: FaultKind | None = None,
        late_s: float = 0.0,
    ) -> None:
        loop = asyncio.get_running_loop()
        settled_at = loop.time() + self._timing.switching_s
        touched = (*removed, *added)
        ingress, egress = {a for a, _ in touched}, {b for _, b in touched}
        await self._in_worker(lambda: self._mirrors.darken(ingress, egress))
        if not added:
            return
        await asyncio.sleep(settled_at - loop.time())
        # A later command may have moved some of the ports again; skip these ports.
        aimed = self._not_moved_again(added, generation)
        if lie is FaultKind.LATE:
            self._aimed |= aimed.keys()
            self._track(self._unlit, asyncio.create_task(self._aim_late(aimed, generation, late_s)))
            return
        truly = self._lied_about(aimed, lie)
        copies = self._copied(aimed) if lie is FaultKind.BROADCAST else NO_COPIES
        self._spread |= copies.keys()
        await self._in_worker(lambda: self._mirrors.aim(truly, copies))
        if self._timing.debounce_s == 0:
            await self._light(aimed, generation)
        self._aimed |= self._not_moved_again(aimed.items(), generation).keys()
        if self._timing.debounce_s > 0:
            self._track(self._unlit, asyncio.create_task(self._debounce(aimed, generation)))

    def _lied_about(self, aimed: Mapping[int, int], lie: FaultKind | None) -> Mapping[int, int]:
        """Actual cross-connects of light under the fault ``lie``, for the commanded cross-connects
        ``aimed``.
        """
        ingress, egress = list(aimed), list(aimed.values())
        if lie is FaultKind.LOOP:
            return {port: port + self.size for port in ingress}
        if lie is FaultKind.SWAP:
            return dict(zip(ingress, egress[1:] + egress[:1], strict=True))
        if lie is FaultKind.ONE_WAY:
            return dict(list(aimed.items())[::2])
        return aimed

    def _copied(self, aimed: Mapping[int, int]) -> Mapping[int, int]:
        """Copies of light: for each ingress port a second egress port, in use by other
        cross-connects.
        """
        used = [b for a, b in self._cross_connects.items() if a not in aimed]
        copies = {}
        for number, ingress in enumerate(aimed):
            # Not at the ingress port's own fibre: a loop.
            if others := [port for port in used if port != ingress + self.size]:
                copies[ingress] = others[number % len(others)]
        return copies

    async def clear_faults(self) -> None:
        """End all faults; copied light then comes out at the commanded ports only."""
        self.faults.clear()
        spread = {a: b for a, b in self._cross_connects.items() if a in self._spread & self._aimed}
        self._spread.clear()
        if spread:
            await self._in_worker(lambda: self._mirrors.aim(spread))

    async def _aim_late(self, aimed: Mapping[int, int], generation: int, late_s: float) -> None:
        await asyncio.sleep(late_s)
        still = self._not_moved_again(aimed.items(), generation)
        await self._in_worker(lambda: self._mirrors.aim(still))
        await self._light(still, generation)

    async def _debounce(self, aimed: Mapping[int, int], generation: int) -> None:
        await asyncio.sleep(self._timing.debounce_s)
        await self._light(aimed, generation)

    async def _light(self, aimed: Mapping[int, int], generation: int) -> None:
        lit = set(self._not_moved_again(aimed.items(), generation).values()) - self._dark
        await self._in_worker(lambda: self._mirrors.light(lit))

    def _not_moved_again(self, pairs: Pairs, generation: int) -> dict[int, int]:
        """Pairs whose ports no later command has touched."""
        present, latest = self._cross_connects, self._generation
        return {
            a: b
            for a, b in pairs
            if present.get(a) == b and latest[a] == generation and latest[b] == generation
        }

    def _track(self, tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(_log_failure)

    async def _in_worker(self, call: Callable[[], _T]) -> _T:
        """Run calls in one thread, in the order of the commands.

        Non-blocking calls are made at once, in the same order.
        """
        if not self._mirrors.blocking:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a move failed: %s", error, exc_info=error)
