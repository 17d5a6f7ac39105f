"""The optical switches and ToRs: drivers with a lock each, opened again after a failure."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar

from apps.process.metrics import Metrics
from apps.process.term import Alone, Term
from drivers.registry import optical_switch, tor_switch
from drivers.transports.permit import permitted
from hydra.errors import (
    AwaitsPeople,
    DeviceError,
    DeviceUnavailable,
    HeldElsewhere,
    HydraError,
    OutcomeUnknown,
    PortsMissing,
    UnknownName,
)
from hydra.events import DeviceAlarm
from hydra.failures import Failure, FailureKind
from hydra.faults.alarms import news
from hydra.forwarding.substrate import substrate_of
from hydra.model import CrossConnect, Fabric, PlaneId, RackId
from hydra.policy import Policy
from hydra.roles import (
    Alarm,
    AlarmSource,
    Askable,
    Claimable,
    CounterReader,
    LightTeller,
    Mirrors,
    OpticalSwitch,
    PortCounters,
    PortVlans,
    Severity,
    Task,
    TaskBoard,
    TaskState,
    TorSwitch,
)
from hydra.service import DeviceStatus

LOG = logging.getLogger("hydra.devices")
_READERS: Final = 128
_STEP: Final = "device"
_KEEP_S: Final = 2.0
_LOOK_S: Final = 5.0
"""Seconds between two looks at each device."""
_QUIET_S: Final = 10.0
"""Seconds of silence after which a device is asked a small question."""

_DeviceT = TypeVar("_DeviceT", OpticalSwitch, TorSwitch)
_ResultT = TypeVar("_ResultT")


@dataclass(slots=True, kw_only=True)
class _Slot(Generic[_DeviceT]):
    """A driver for use by a single thread at a time, with the condition of the device."""

    device: _DeviceT
    metrics: Metrics
    ending: threading.Event
    """Set once absent devices are not awaited any more."""
    term: Term
    ask: Callable[[_DeviceT], object]
    """Puts a small question; any answer shows that the device is there."""
    check: Callable[[_DeviceT], None] = lambda _device: None
    """Raises DeviceError if a just opened device differs from the configured device."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    claimed: bool = False
    """True once the device has been held against other controllers in this term."""
    problem: Failure | None = field(init=False)
    """The reason why the device can't be used now; None after a successful exchange."""
    alarms: tuple[Alarm, ...] = ()
    answered_s: float = 0.0
    """Time of the last answer, by the monotonic clock."""

    def __post_init__(self) -> None:
        name, kind = self.device.name, FailureKind.NOT_CONNECTED
        self.problem = Failure(_STEP, name, kind, "not contacted yet")

    def use(self, action: Callable[[_DeviceT], _ResultT]) -> _ResultT:
        """Open the device if need be, act, and note success or failure. Raises DeviceError."""

        def opened(device: _DeviceT) -> _ResultT:
            self._open()
            if self.problem is not None:
                self.check(device)
            return action(device)

        return self.use_unopened(opened)

    def use_unopened(self, action: Callable[[_DeviceT], _ResultT]) -> _ResultT:
        """As :meth:`use`, with an ``action`` that opens the device."""
        with self.lock:
            if self.term.over():
                raise DeviceUnavailable(
                    self.device.name, "left alone: this controller no longer leads"
                )
            if self.problem is not None and self.ending.is_set():
                raise DeviceUnavailable(self.device.name, "away, and the controller ends")
            with self._noted(), self.metrics.exchange(self.device.name):
                result = action(self.device)
            self.problem = None
            self.answered_s = time.monotonic()
            return result

    def claim(self) -> None:
        """Open the device, and hold the device against other controllers if possible."""
        self.use_unopened(lambda _device: self._open(first=True))

    def _open(self, *, first: bool = False) -> None:
        """Open the device; ``first``: claim the device first. Raises DeviceError.

        A new store, or a store restored from a snapshot, gives leaders lower generations than a
        device may know. A device not yet held in this term is therefore claimed by a generation
        beyond the known generation. The term grants such a generation only while this controller
        leads.
        """
        device = self.device
        claimable = device if isinstance(device, Claimable) else None
        try:
            if first and claimable is not None:
                claimable.claim(self.term.generation)
            else:
                device.open()
        except HeldElsewhere as error:
            known = error.generation
            barred = self.claimed or known is None or self.term.generation is None
            if claimable is None or barred or not self.term.exceed(known or 0):
                raise
            claimable.claim(self.term.generation)
        self.claimed = self.claimed or claimable is not None

    def _lost(self, error: DeviceError) -> None:
        """Close the device; log an absence once. The caller reports other errors."""
        known, self.problem = self.problem, error.failure(_STEP)
        if isinstance(error, DeviceUnavailable) and self.problem != known:
            LOG.warning("%s", error)
        self.alarms = ()
        self._drop()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Note errors. Raises DeviceError, also in place of errors that a driver may not raise.

        Otherwise a driver's defect would lose the other devices' results. Nothing is sent to the
        device once the term is over.
        """
        try:
            with permitted(self.term.remaining_s):
                yield
        except DeviceError as error:
            self._lost(error)
            raise
        except Exception as error:
            LOG.exception("%s: a defect of the device's driver", self.device.name)
            found = OutcomeUnknown(
                self.device.name,
                f"a defect of the device's driver ({type(error).__name__}): the outcome is "
                "unknown; see the log for the traceback",
            )
            self._lost(found)
            raise found from error

    def _drop(self) -> None:
        try:
            self.device.close()
        except Exception:
            LOG.exception(
                "%s: closing the device failed, by a defect of its driver", self.device.name
            )

    def look_in(self, report: Callable[[DeviceAlarm], None]) -> None:
        """Check whether a connected, unused device is still there; ``report`` changes of alarms.

        An open session notices its end, but not a device's loss of power. A device that has been
        quiet for long is therefore asked a question.
        """
        device = self.device
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self.problem is not None:
                return
            with self._noted():
                self._open()
                if isinstance(device, AlarmSource):
                    # Reports first: a report of an alarm that begins after this look belongs to the
                    # next look, which lists the alarm.
                    reports = device.reports()
                    before, self.alarms = self.alarms, device.alarms()
                    for alarm in news(before, reports, self.alarms):
                        _log_alarm(device.name, alarm)
                        report(DeviceAlarm(device.name, alarm))
                elif time.monotonic() >= self.answered_s + _QUIET_S:
                    self._probe()
        except DeviceError as error:
            if not isinstance(error, DeviceUnavailable):
                LOG.error("%s", error)
        finally:
            self.lock.release()

    def _probe(self) -> None:
        """Ask the device a question. Raises DeviceUnavailable; a refusal is an answer, too."""
        try:
            self.ask(self.device)
        except DeviceUnavailable:
            raise
        except DeviceError as error:
            LOG.debug("%s", error)
        self.answered_s = time.monotonic()

    def peek(self, action: Callable[[_DeviceT], _ResultT]) -> _ResultT | None:
        """Ask a device; None if the device is not connected, or in use. Raises DeviceError."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            if self.problem is not None:
                return None
            with self._noted():
                result = action(self.device)
            self.answered_s = time.monotonic()
            return result
        finally:
            self.lock.release()

    def keep(self) -> None:
        """Keep the session of a claimed device alive, unless the device is in use."""
        if not isinstance(self.device, Claimable) or not self.lock.acquire(blocking=False):
            return
        try:
            with suppress(DeviceError), self._noted():
                self.device.keep()
        finally:
            self.lock.release()

    def close(self) -> None:
        with self.lock:
            self._drop()
            kind = FailureKind.NOT_CONNECTED
            self.problem = Failure(_STEP, self.device.name, kind, "the controller has ended")


def _log_alarm(name: str, alarm: Alarm) -> None:
    level = logging.INFO if alarm.severity is Severity.CLEARED else logging.WARNING
    where = "" if alarm.port is None else f" at port {alarm.port}"
    severity = alarm.severity.value
    LOG.log(level, "%s: alarm %s (%s)%s: %s", name, alarm.code, severity, where, alarm.text)


def _identify(switch: OpticalSwitch) -> None:
    switch.identity()


def _check_size(ports: int, switch: OpticalSwitch) -> None:
    """Refuse a switch of another size: egress port numbers depend on the size."""
    ingress, _ = switch.size()
    if ingress != ports:
        raise DeviceError(
            switch.name,
            f"the device has {ingress} ports on the ingress side, and is configured with {ports}: "
            f"give the plane `ports: {ingress}`, or another address",
        )


def _look_at(ports: Collection[str], tor: TorSwitch) -> None:
    if isinstance(tor, Askable):
        tor.ask()
    else:
        tor.link_up(ports)


def _counters(tor: TorSwitch, ports: Collection[str]) -> Mapping[str, PortCounters] | None:
    return tor.counters(ports) if isinstance(tor, CounterReader) else None


def _in_the_way(panel: OpticalSwitch, connect: Collection[CrossConnect]) -> frozenset[CrossConnect]:
    """Cross-connects plugged at the ports of ``connect``, without the members of ``connect``."""
    ingress, egress = {c.ingress for c in connect}, {c.egress for c in connect}
    return frozenset(
        c
        for c in panel.cross_connects() - set(connect)
        if c.ingress in ingress or c.egress in egress
    )


class Devices:
    """All devices of a fabric; every method blocks and raises DeviceError."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        metrics: Metrics | None = None,
        report_alarm: Callable[[DeviceAlarm], None] = lambda _alarm: None,
        term: Term | None = None,
    ) -> None:
        """``report_alarm`` is called with each change of an alarm, in a reader's thread."""
        self._fabric = fabric
        self._missing: dict[RackId, frozenset[str]] = {}
        metrics = metrics or Metrics()
        metrics.begin_devices(plane.name for plane in fabric.planes)
        metrics.begin_devices(rack.name for rack in fabric.racks)
        term = self._term = term or Alone()
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        self._report_alarm = report_alarm
        self._closing = threading.Event()
        self._ending = threading.Event()
        self._keeper = threading.Thread(target=self._keep_claims, name="keeper", daemon=True)
        self._watchman = threading.Thread(target=self._watch, name="watchman", daemon=True)
        self._planes: dict[PlaneId, _Slot[OpticalSwitch]] = {
            plane.id: _Slot(
                device=optical_switch(plane, policy.timeouts.ocs_s),
                metrics=metrics,
                ending=self._ending,
                term=term,
                ask=_identify,
                check=partial(_check_size, plane.ports),
            )
            for plane in fabric.planes
        }
        self._tors: dict[RackId, _Slot[TorSwitch]] = {
            rack.id: _Slot(
                device=tor_switch(rack, policy.timeouts.tor_s),
                metrics=metrics,
                ending=self._ending,
                term=term,
                ask=partial(_look_at, [port.tor_port for port in fabric.ports_of(rack.id)][:1]),
            )
            for rack in fabric.racks
            if substrate_of(fabric).retags
        }

    def claim(self) -> None:
        """Hold every claimable ToR against other controllers, and start to keep the claims.

        Raises HydraError if another controller holds a ToR, and no store says that this controller
        leads. A leader takes ToRs from the last leader, which may be paused. A ToR that knows a
        later leader is left alone. A silent ToR is claimed at its first answer.
        """
        futures = [self._pool.submit(slot.claim) for slot in self._tors.values()]
        held = []
        try:
            for future in futures:
                try:
                    future.result()
                except HeldElsewhere as error:
                    if self._term.generation is None:
                        held.append(str(error))
                    else:
                        LOG.error("%s", error)
                except DeviceError as error:
                    if not isinstance(error, DeviceUnavailable):
                        LOG.warning("%s", error)
        finally:  # Ctrl-C waits for no device still queued
            for future in futures:
                future.cancel()
        if held:
            more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
            raise HydraError(f"a controller is at work on this fabric already: {held[0]}{more}")
        self._keeper.start()
        self._watchman.start()

    def _keep_claims(self) -> None:
        while not self._closing.wait(_KEEP_S):
            for slot in self._tors.values():
                slot.keep()

    def _watch(self) -> None:
        """Check the presence of devices, and read alarms of devices with alarms."""
        looks = [slot.look_in for slot in self._planes.values()]
        looks += [slot.look_in for slot in self._tors.values()]
        while not self._closing.wait(_LOOK_S):
            for look in looks:
                self._pool.submit(look, self._report_alarm)

    def mirrors(self, plane: PlaneId) -> Mirrors:
        """Cross-connects; only a device with light readings marks dark cross-connects."""
        return self._planes[plane].use(
            lambda device: (
                device.mirrors()
                if isinstance(device, LightTeller)
                else Mirrors(device.cross_connects())
            )
        )

    def change_mirrors(
        self,
        plane: PlaneId,
        disconnect: Collection[CrossConnect],
        connect: Collection[CrossConnect],
    ) -> None:
        """Change cross-connects. Raises AwaitsPeople at once if people plug the cross-connects."""
        slot = self._planes[plane]
        board = slot.device
        if not isinstance(board, TaskBoard):
            slot.use(lambda device: device.change(disconnect, connect))
            return
        task = slot.use(
            lambda panel: board.ask({*disconnect, *_in_the_way(panel, connect)}, connect)
        )
        if task is not None:
            raise AwaitsPeople(
                board.name, f"task {task.id} waits for a person: see `hydra device tasks`"
            )

    def vlans(self, rack: RackId, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """VLAN membership of the existing ports of ``ports``."""
        return self._of_those_there(rack, ports, lambda tor, there: tor.vlans(there))

    def set_vlans(self, rack: RackId, wanted: Mapping[str, PortVlans]) -> None:
        """Retag the existing ports of ``wanted``; missing ports carry no VLAN."""
        self._of_those_there(
            rack, wanted, lambda tor, there: tor.set_vlans({name: wanted[name] for name in there})
        )

    def link_up(self, rack: RackId, ports: Collection[str]) -> Mapping[str, bool]:
        """Carrier by port; a missing port has no carrier.

        Raises DeviceUnavailable, too, for a ToR that only speaks OpenFlow.
        """
        if rack not in self._tors:
            raise DeviceUnavailable(self._fabric.racks[rack].name, "not connected by OpenFlow")
        up = self._of_those_there(
            rack, ports, lambda tor, there: tor.link_up(there), knows_vlans=False
        )
        return {**dict.fromkeys(ports, False), **up}

    def missing_ports(self, rack: RackId) -> frozenset[str]:
        """Ports of a ToR found missing when VLANs were last read or set."""
        return self._missing.get(rack, frozenset())

    def all_missing_ports(self) -> Sequence[tuple[RackId, frozenset[str]]]:
        """:meth:`missing_ports` of all racks that have some."""
        return [(rack, ports) for rack, ports in tuple(self._missing.items()) if ports]

    def _of_those_there(
        self,
        rack: RackId,
        ports: Collection[str],
        action: Callable[[TorSwitch, Collection[str]], _ResultT],
        *,
        knows_vlans: bool = True,
    ) -> _ResultT:
        """The result of ``action`` for the ports of ``ports`` reported as existing by the ToR.

        Unless ``action`` ``knows_vlans`` afterwards, ports that are back still count as missing.
        """

        def act(tor: TorSwitch) -> _ResultT:
            before, missing = self.missing_ports(rack), frozenset[str]()
            while True:
                try:
                    result = action(tor, [name for name in ports if name not in missing])
                except PortsMissing as error:
                    if error.ports <= missing:
                        raise
                    missing |= error.ports
                    if not error.ports <= before:
                        LOG.warning("%s", error)
                else:
                    break
            known = set(ports) if knows_vlans else set()
            self._missing[rack] = before - known | missing
            return result

        return self._tors[rack].use(act)

    def counters_age_s(self, rack: RackId) -> float | None:
        """Greatest age of a ToR's port counters, in s; None if the driver has no counters."""
        slot = self._tors.get(rack)
        if slot is None or not slot.device.capabilities.counters:
            return None
        return slot.device.capabilities.counters_age_s

    def counters(self, rack: RackId) -> Mapping[str, PortCounters] | None:
        """Counters of a ToR's optical ports; None without counters, or if away or in use."""
        ports = [port.tor_port for port in self._fabric.ports_of(rack)]
        return self._tors[rack].peek(lambda tor: _counters(tor, ports))

    def tasks(self, plane: PlaneId) -> tuple[Task, ...]:
        """Tasks given to people; empty for a device that needs no people."""
        device = self._planes[plane].device
        return device.tasks() if isinstance(device, TaskBoard) else ()

    def settle_task(self, plane: PlaneId, task_id: int, state: TaskState, note: str) -> Task:
        """Settle a task of people. Raises UnknownName, LifecycleError."""
        device = self._planes[plane].device
        if not isinstance(device, TaskBoard):
            raise UnknownName(f"{device.name} has no tasks: the device works without people")
        return device.settle(task_id, state, note)

    def worked_by_people(self, plane: PlaneId) -> bool:
        """True if changes of a plane are tasks for people."""
        return isinstance(self._planes[plane].device, TaskBoard)

    def plane_problem(self, plane: PlaneId) -> Failure | None:
        """The failure that makes a plane unusable now; None after a successful exchange."""
        return self._planes[plane].problem

    def tor_problem(self, rack: RackId) -> Failure | None:
        """The failure that makes a ToR unusable now; None, too, if the ToR only speaks OpenFlow."""
        slot = self._tors.get(rack)
        return None if slot is None else slot.problem

    def out_of_command(self) -> tuple[frozenset[PlaneId], frozenset[RackId]]:
        """Planes and racks with a :meth:`plane_problem` or a :meth:`tor_problem`."""
        return (
            frozenset(plane for plane in self._planes if self.plane_problem(plane) is not None),
            frozenset(rack for rack in self._tors if self.tor_problem(rack) is not None),
        )

    def statuses(self) -> list[DeviceStatus]:
        planes = [
            DeviceStatus(
                plane.name,
                "optical-switch",
                plane.driver,
                slot.problem is None,
                str(slot.problem or ""),
                slot.alarms,
            )
            for plane in self._fabric.planes
            for slot in (self._planes[plane.id],)
        ]
        tors = [
            DeviceStatus(
                rack.name, "tor", rack.tor.driver, slot.problem is None, str(slot.problem or "")
            )
            for rack in self._fabric.racks
            if (slot := self._tors.get(rack.id)) is not None
        ]
        return planes + tors

    def end_soon(self) -> None:
        """Try absent devices no more; connected devices stay in use."""
        self._ending.set()

    def close(self) -> None:
        self._closing.set()
        for thread in (self._keeper, self._watchman):
            if thread.is_alive():
                thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)
        for plane in self._planes.values():
            plane.close()
        for tor in self._tors.values():
            tor.close()
