"""Runs the commands of courses: all of a batch at once, each device in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from apps.controller.announcer import Announcer
from apps.controller.devices import Devices
from apps.controller.mastership import Mastership
from apps.controller.policing import Policing
from apps.controller.probes import Probes
from apps.controller.record.journal_writer import JournalWriter
from apps.controller.record.reservations import Reservations
from apps.openflow.fleet import Fleet
from apps.process.metrics import Metrics
from drivers.codecs.openflow.rule_tables import cookies_among, is_exact, table_drift
from drivers.codecs.openflow.statistics import MalformedReplyError
from hydra.errors import DeviceError
from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import ROUND_RULES
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, RackId
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.commands import (
    Announce,
    ApplyRules,
    AwaitPortsUp,
    AwaitRounds,
    AwaitSwitches,
    Batch,
    Command,
    CompareRules,
    ConfirmRules,
    Course,
    HeldRules,
    MoveMirrors,
    Outcome,
    PassMarkers,
    Pause,
    ProbePath,
    ReadMirrors,
    ReadPortPackets,
    ReadVlans,
    Record,
    SaveState,
    SetVlans,
    StageRules,
    Steps,
    TakeSwitches,
)
from hydra.reconfiguration.drift import RuleDrift
from hydra.roles import Mirrors, PortVlans

LOG = logging.getLogger("hydra.runner")
_ResultT = TypeVar("_ResultT")
_ROUND_COOKIES = tuple(rule.cookie for rule in ROUND_RULES.rules)
_WAITING = (AwaitPortsUp, AwaitRounds, PassMarkers, Pause, ReadPortPackets)
"""Commands that change nothing, and mostly wait. Probes of new paths are none of them: what they
find is to be acted upon at once.
"""


class Runner:
    """Drives courses with real devices, switches and the journal."""

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        fleet: Fleet,
        devices: Devices,
        writer: JournalWriter,
        reservations: Reservations,
        announcer: Announcer,
        metrics: Metrics,
        mastership: Mastership,
        policing: Policing,
        wait_for: Callable[[Collection[Future[Any]]], object] = wait,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """``wait_for`` returns once these are done; what can't wait is done meanwhile. ``wake`` is
        called, in any thread, when :attr:`only_waits` may have become true.
        """
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._policy = policy
        self._fleet = fleet
        self._devices = devices
        self._announcer = announcer
        self._metrics = metrics
        self._mastership = mastership
        self._policing = policing
        self._wait_for = wait_for
        self._wake = wake
        self._only_slow: dict[int, threading.Event] = {}
        """Commands under way, by ``id``: set once they wait for nobody but slow switches."""
        workers = min(128, len(fabric.racks) + len(fabric.planes) + 8)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="device")
        probes = Probes(fabric, policy, fleet)
        self._handlers: dict[type[Command], Callable[[Any], Any]] = {
            ApplyRules: self._apply_rules,
            StageRules: self._stage_rules,
            ReadPortPackets: self._port_packets,
            SetVlans: self._set_vlans,
            MoveMirrors: self._move_mirrors,
            ReadMirrors: self._read_mirrors,
            AwaitPortsUp: self._await_ports_up,
            Announce: self._announce,
            ProbePath: probes.of_path,
            PassMarkers: probes.markers,
            Pause: self._pause,
            Record: lambda command: writer.record(command.what, command.details),
            SaveState: lambda command: reservations.save(command.what),
            ReadVlans: self._read_vlans,
            AwaitRounds: self._await_rounds,
            AwaitSwitches: self._await_switches,
            TakeSwitches: self._take_switches,
            CompareRules: self._compare_rules,
            ConfirmRules: self._confirm_rules,
        }
        self._in_flight: tuple[tuple[Command, Future[Outcome]], ...] = ()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(
        self, course: Course[_ResultT], on_batch: Callable[[Batch], None] = lambda _batch: None
    ) -> _ResultT:
        """Carry out the batches that ``course`` yields; returns the course's result."""

        def perform(batch: Batch) -> list[Outcome]:
            on_batch(batch)
            return self.perform(batch)

        return _drive(course, perform)

    def run_beside(
        self,
        course: Steps,
        put: Callable[[Callable[[], None]], None],
        alone_s: float = 0.0,
    ) -> BesideOthers:
        """Carry out a course for ``alone_s`` with nothing in between; after that time, the rest of
        the course by jobs that are ``put``.
        """
        beside = BesideOthers(course, self._submit, self.perform, put)
        if alone_s:
            beside.wait(alone_s)
        return beside

    def run_meanwhile(self, course: Course[_ResultT]) -> _ResultT:
        """Carry out a course of single commands while another waits; nothing comes in between."""
        return _drive(
            course, lambda batch: [self._timed(batch.step, one) for one in batch.commands]
        )

    def perform(self, batch: Batch) -> list[Outcome]:
        """Run commands in parallel; outcomes in the same order."""
        before = self._in_flight
        futures = self._submit(batch)
        if batch.alone:
            wait(futures)
        else:
            self._in_flight = tuple(zip(batch.commands, futures, strict=True))
            try:
                self._wait_for(futures)
            finally:
                self._in_flight = before
        return [future.result() for future in futures]

    def _submit(self, batch: Batch) -> list[Future[Outcome]]:
        timed = partial(self._timed, batch.step)
        return [
            self._pool.submit(copy_context().run, timed, command)  # the log says what it is about
            for command in batch.commands
        ]

    @property
    def only_waits(self) -> bool:
        """True if all that is in flight changes nothing, or is for slow switches to do, everything
        else being confirmed: for the thread that performs it.
        """
        some = self._in_flight
        if any(map(self._waits_for_slow, (command for command, _ in some))):
            return all(
                future.result().confirmed if future.done() else self._waits_for_slow(command)
                for command, future in some
            )
        return bool(some) and all(
            isinstance(command, _WAITING) or (isinstance(command, StageRules) and future.done())
            for command, future in some
        )

    def _waits_for_slow(self, command: Command) -> bool:
        """True if only slow switches owe a command their answers."""
        only_slow = self._only_slow.get(id(command))
        return only_slow is not None and only_slow.is_set()

    @property
    def over_since_s(self) -> float | None:
        """When all that is in flight was done, on the monotonic clock; None: it is not yet."""
        some = [future for _, future in self._in_flight]
        if not all(future.done() for future in some):
            return None
        return max((future.result().finished_s for future in some), default=0.0)

    def _timed(self, step: str, command: Command) -> Outcome:
        started = time.monotonic()
        value, failure = None, None
        try:
            value = self._handlers[type(command)](command)
        except DeviceError as error:
            failure = error.failure(step)
        except Exception as error:
            device = self._device(command)
            if device is None:
                raise
            LOG.exception("%s: %s ends in a defect", device, type(command).__name__)
            reason = f"{device}: a defect ({type(error).__name__}): what was done is not known"
            failure = Failure(step, device, FailureKind.UNKNOWN, reason)
        outcome = Outcome(value, failure, started, time.monotonic())
        self._metrics.command(command, outcome)
        self._log(command, outcome)
        return outcome

    def _log(self, command: Command, outcome: Outcome) -> None:
        failure, name = outcome.failure, type(command).__name__
        known = isinstance(command, ReadMirrors | ReadVlans) and (
            failure is not None and failure.kind is FailureKind.NOT_CONNECTED
        )  # the devices' log has said so, once
        LOG.log(
            logging.WARNING if failure and not known else logging.DEBUG,
            "%s: %s",
            name,
            f"{failure.kind.value}, {failure}" if failure else "confirmed",
            extra={
                "command": name,
                "device": self._device(command),
                "ms": round((outcome.finished_s - outcome.started_s) * 1000, 1),
            },
        )

    def _device(self, command: Command) -> str | None:
        match command:
            case MoveMirrors(plane) | ReadMirrors(plane):
                return self._fabric.planes[plane].name
            case SetVlans(rack) | ReadVlans(rack) | ReadPortPackets(rack) | AwaitPortsUp(rack):
                return self._fabric.racks[rack].name
            case _:
                return None

    def _apply_rules(self, command: ApplyRules) -> dict[DatapathId, Failure | None]:
        timeout_s, name = self._policy.now.timeouts.vswitch_s, id(command)

        only_slow = self._only_slow[name] = threading.Event()

        def only_slow_left() -> None:  # the last prompt one may answer once this is over
            only_slow.set()
            self._wake()

        try:
            failures = self._fleet.apply(
                command.changes,
                timeout_s,
                hurries=command.hurries,
                slow=command.slow,
                only_slow_left=only_slow_left,
            )
        finally:
            del self._only_slow[name]
        for datapath, failure in failures.items():
            if failure is not None and failure.kind is FailureKind.TAKEN_OVER:
                self._mastership.forget(datapath)
        return failures

    def _await_switches(self, command: AwaitSwitches) -> frozenset[DatapathId]:
        self._fleet.await_connected(command.datapaths, command.timeout_s)
        return self._fleet.connected()

    def _await_rounds(self, command: AwaitRounds) -> frozenset[DatapathId]:
        return self._fleet.await_rounds(command.datapaths, command.timeout_s)

    def _take_switches(self, command: TakeSwitches) -> frozenset[DatapathId]:
        taken = self._mastership.take(command.datapaths)
        owned = self._substrate.owned()
        mine = [one for one in command.datapaths if one in taken and one in owned]
        for datapath in mine:
            if missing := self._fleet.missing_ports(datapath):
                LOG.error(
                    "switch %s has no port %s: check the names in the configuration",
                    owned[datapath],
                    ", ".join(missing),
                )
        self._policing.prepare(mine)
        return taken

    def _compare_rules(self, command: CompareRules) -> dict[DatapathId, RuleDrift]:
        owned, intended = self._substrate.owned(), command.intended
        names = {**self._fabric.tor_names, **owned}
        timeout_s = self._policy.now.timeouts.vswitch_s
        found: dict[DatapathId, RuleDrift] = {}
        for datapath, ports, body in self._fleet.rule_tables(intended, timeout_s, hurries=True):
            alone = datapath in owned  # the other rules of a learning ToR are not ours to judge
            with suppress(MalformedReplyError):
                found[datapath] = table_drift(
                    names[datapath], intended[datapath], ports, body, alone=alone
                )
        return found

    def _confirm_rules(self, command: ConfirmRules) -> HeldRules:
        intended, timeout_s = command.intended, self._policy.now.timeouts.vswitch_s
        exact, rounds = set[DatapathId](), dict[DatapathId, frozenset[int]]()
        for datapath, ports, body in self._fleet.rule_tables(intended, timeout_s):
            if is_exact(intended[datapath], ports, body):
                exact.add(datapath)
            else:
                rounds[datapath] = frozenset(cookies_among(_ROUND_COOKIES, body))
        return HeldRules(frozenset(exact), rounds)

    def _stage_rules(self, command: StageRules) -> None:
        self._fleet.stage(command.changes)

    def _set_vlans(self, command: SetVlans) -> None:
        self._devices.set_vlans(command.rack, command.ports)

    def _read_vlans(self, command: ReadVlans) -> Mapping[str, PortVlans]:
        return self._devices.vlans(command.rack, command.ports)

    def _move_mirrors(self, command: MoveMirrors) -> None:
        move = command.move
        self._devices.change_mirrors(command.plane, move.disconnect, move.connect)

    def _read_mirrors(self, command: ReadMirrors) -> Mirrors:
        return self._devices.mirrors(command.plane)

    def _announce(self, command: Announce) -> None:
        self._announcer.announce(command.servers)

    def _pause(self, command: Pause) -> None:
        time.sleep(command.seconds)

    def _tor_datapath(self, rack: RackId) -> DatapathId | None:
        datapath = self._fabric.racks[rack].tor.datapath_id
        return datapath if datapath in self._fleet.connected() else None

    def _port_packets(self, command: ReadPortPackets) -> dict[str, int]:
        """Frames in + out per port; a port without readable counters is left out."""
        datapath = self._tor_datapath(command.rack)
        counters = (
            None
            if datapath is None
            else self._fleet.port_packets((datapath,), self._policy.now.timeouts.tor_s)[datapath]
        )
        return {
            name: counters[name].rx_packets + counters[name].tx_packets
            for name in command.ports
            if counters is not None and name in counters
        }

    def _await_ports_up(self, command: AwaitPortsUp) -> tuple[str, ...]:
        """Ports without carrier when time is up, by the ToR's OpenFlow connection or driver."""
        rack, ports, timeout_s = command.rack, command.ports, command.timeout_s
        datapath = self._tor_datapath(rack)
        if datapath is not None:
            return self._fleet.await_ports_up(datapath, ports, timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            up = self._devices.link_up(rack, ports)
            missing = tuple(name for name in ports if not up.get(name))
            if not missing or time.monotonic() >= deadline:
                return missing
            time.sleep(0.05)


class BesideOthers:
    """A course that lets other jobs in while its batches that may be beside them are carried out.

    For the thread that does jobs; what such a batch came to is a job of its own.
    """

    def __init__(
        self,
        course: Steps,
        submit: Callable[[Batch], Sequence[Future[Outcome]]],
        perform: Callable[[Batch], Sequence[Outcome]],
        put: Callable[[Callable[[], None]], None],
    ) -> None:
        self._course = course
        self._submit = submit
        self._perform = perform
        self._put = put
        self._in_flight: Sequence[Future[Outcome]] = ()
        self.over = False
        """True once it has ended, in whatever way."""
        self._go_on()

    def drop(self) -> None:
        """End it here, once nothing of it is under way any more."""
        self._course.close()
        self.over = True
        wait(self._in_flight)

    def wait(self, seconds: float) -> None:
        """Wait for the end of the course, at most ``seconds``."""
        until_s = time.monotonic() + seconds
        while not self.over:
            if wait(self._in_flight, max(0.0, until_s - time.monotonic())).not_done:
                return
            self._go_on()

    def _go_on(self) -> None:
        """Carry out what follows, up to a batch that others may come beside."""
        if self.over or not all(future.done() for future in self._in_flight):
            return
        try:
            outcomes = [future.result() for future in self._in_flight]
            batch = self._course.send(outcomes) if outcomes else next(self._course)
            while not batch.beside:
                batch = self._course.send(self._perform(batch))
            self._in_flight = self._submit(batch)
        except StopIteration:
            self.over = True
        except Exception:
            self._course.close()
            self.over = True
            raise
        else:
            for future in self._in_flight:
                future.add_done_callback(lambda _future: self._put(self._go_on))


def _drive(course: Course[_ResultT], perform: Callable[[Batch], Sequence[Outcome]]) -> _ResultT:
    """Have the batches performed that a course yields; its result."""
    try:
        batch = next(course)
        while True:
            batch = course.send(perform(batch))
    except StopIteration as end:
        result: _ResultT = end.value
        return result
