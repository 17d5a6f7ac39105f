"""Carries out commands: all commands of a batch at once, each device in a separate thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from drivers.codecs.openflow.rule_tables import (
    cookies_among,
    held_relays,
    is_exact,
    table_drift,
)
from drivers.codecs.openflow.statistics import MalformedReplyError
from hydra.errors import DeviceError
from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import ROUND_RULES, FlowRule
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
    TakeSwitches,
)
from hydra.reconfiguration.drift import RuleDrift
from hydra.reconfiguration.scheduler import drive
from hydra.roles import Mirrors, PortVlans

LOG = logging.getLogger("hydra.runner")
_ResultT = TypeVar("_ResultT")
_ROUND_COOKIES = tuple(rule.cookie for rule in ROUND_RULES.rules)


class Runner:
    """Carries out commands with real devices, switches and the journal."""

    def __init__(
        self,
        *,
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
    ) -> None:
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._policy = policy
        self._fleet = fleet
        self._devices = devices
        self._announcer = announcer
        self._metrics = metrics
        self._mastership = mastership
        self._policing = policing
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

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run_meanwhile(self, course: Course[_ResultT]) -> _ResultT:
        """Carry out a course of single commands at once, while another course waits."""
        return drive(
            course, lambda batch: [self._timed(batch.step, command) for command in batch.commands]
        )

    def submit(self, batch: Batch) -> Sequence[Future[Outcome[Any]]]:
        """Begin all commands of a batch; outcomes in the same order."""
        timed = partial(self._timed, batch.step)
        return [
            self._pool.submit(copy_context().run, timed, command)  # the log names the change
            for command in batch.commands
        ]

    def _timed(self, step: str, command: Command) -> Outcome[Any]:
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
            reason = f"{device}: a defect ({type(error).__name__}): the outcome is not known"
            failure = Failure(step, device, FailureKind.UNKNOWN, reason)
        outcome = Outcome(value, failure, started_s=started, finished_s=time.monotonic())
        self._metrics.command(command, outcome)
        self._log(command, outcome)
        return outcome

    def _log(self, command: Command, outcome: Outcome[Any]) -> None:
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
        timeout_s = self._policy.now.timeouts.vswitch_s
        failures = self._fleet.apply(command.changes, timeout_s, hurries=command.hurries)
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
        taken = self._mastership.take(command.datapaths, hurries=command.hurries)
        owned = self._substrate.owned()
        taken_over = [
            datapath for datapath in command.datapaths if datapath in taken and datapath in owned
        ]
        for datapath in taken_over:
            if missing := self._fleet.missing_ports(datapath):
                LOG.error(
                    "switch %s has no port %s: check the names in the configuration",
                    owned[datapath],
                    ", ".join(missing),
                )
        self._policing.prepare(taken_over)
        return taken

    def _compare_rules(self, command: CompareRules) -> dict[DatapathId, RuleDrift]:
        owned, intended = self._substrate.owned(), command.intended
        names = {**self._fabric.tor_names, **owned}
        timeout_s = self._policy.now.timeouts.vswitch_s
        found: dict[DatapathId, RuleDrift] = {}
        for datapath, ports, body in self._fleet.rule_tables(intended, timeout_s, hurries=True):
            alone = datapath in owned  # a learning ToR has other rules that are not ours
            with suppress(MalformedReplyError):
                found[datapath] = table_drift(
                    names[datapath], intended[datapath], ports, body, alone=alone
                )
        return found

    def _confirm_rules(self, command: ConfirmRules) -> HeldRules:
        intended, timeout_s = command.intended, self._policy.now.timeouts.vswitch_s
        exact, rounds = set[DatapathId](), dict[DatapathId, frozenset[int]]()
        relays: dict[DatapathId, Collection[FlowRule]] = {}
        for datapath, ports, body in self._fleet.rule_tables(intended, timeout_s):
            if is_exact(intended[datapath], ports, body):
                exact.add(datapath)
                continue
            rounds[datapath] = frozenset(cookies_among(_ROUND_COOKIES, body))
            with suppress(MalformedReplyError):
                relays[datapath] = held_relays(ports, body)
        return HeldRules(frozenset(exact), rounds, relays)

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
        switches = self._announcer.announce(command.servers)
        if command.sent:
            self._fleet.silent(switches, self._policy.now.timeouts.vswitch_s)

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
