"""Switches connected to workers, and the choice of a connection for each switch.

A switch at a worker looks to the controller like a directly connected switch: same events, and a
connection with the same few methods. A switch may be connected to several workers. The controller
knows of one connection at a time, preferably the connection to the owner of the switch's shard. At
its end, the next connection is reported, as if the switch had connected anew.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from apps.openflow.interface import (
    PortInfo,
    Post,
    SumRequest,
    Sums,
    SwitchConnection,
    SwitchEvents,
)
from apps.workers import wire
from apps.workers.ownership import assigned, shard_of_switches
from apps.workers.wire import ConnectionReports, Order, Record, boot_s
from hydra.failures import FailureKind
from hydra.model import DatapathId, Fabric
from hydra.settings import WorkerSettings

LOG = logging.getLogger("hydra.workers")
REPORT_FAILED: Final = "a worker's message about a switch is not handled"
_GATHER_S: Final = 1.0
"""Time from the start without reports of switches: workers find the controller gradually."""
_OWNER_S: Final = 1.0
"""Time to wait for a switch at its owner, after a connection at another worker."""
_KINDS: Final = tuple(FailureKind)


def kind_number(kind: FailureKind) -> int:
    """The number for a kind of failure in messages."""
    return _KINDS.index(kind)


class ExchangeEvents(SwitchEvents, Protocol):
    """Receiver of workers' reports."""

    def sums_replied(self, connection: SwitchConnection, xid: int, sums: Sums) -> None: ...

    def report_second(self, datapath: int, cause: str, text: str) -> None: ...


@dataclass(slots=True)
class Worker:
    """A worker's connections to switches, and orders to the worker."""

    name: str
    orders: list[Record] = field(default_factory=list)
    connections: dict[int, Connection] = field(default_factory=dict)
    serves: int = 0
    """Number of connections in use by the controller."""


class Connection:
    """A switch's connection to a worker (:class:`~apps.openflow.interface.SwitchConnection`)."""

    __slots__ = ("address", "datapath", "number", "ports", "worker")

    def __init__(
        self, worker: Worker, number: int, datapath: int, address: str, ports: dict[int, PortInfo]
    ) -> None:
        self.worker = worker
        self.number = number
        self.datapath = datapath
        self.address = address
        self.ports = ports

    takes_sums = True

    def send(self, message: bytes) -> None:
        if isinstance(message, SumRequest):
            body = wire.packed_sum_request(message)
            self.worker.orders.append(
                Record(Order.SUM, self.number, message.xid, message.mask, body)
            )
            return
        self.worker.orders.append(Record(Order.SEND, self.number, body=bytes(message)))

    def ask(self, report: Callable[[bool], None]) -> None:
        """Answer at once: workers refuse second connections of a switch, and the exchange reports
        one connection at a time.
        """
        report(True)

    def close(self) -> None:
        self.worker.orders.append(Record(Order.CLOSE, self.number))


class WorkersSwitches:
    """Used in the exchange's thread only."""

    def __init__(self, settings: WorkerSettings, fabric: Fabric, post: Post) -> None:
        """``post``: run a function in the exchange's thread, soon."""
        self._settings = settings
        self._shard_of = shard_of_switches(fabric, settings.shards)
        self._post = post
        self._events: ExchangeEvents
        self._between_changes: Callable[[Callable[[], None]], None]
        self._on_owners: Callable[[Mapping[str, tuple[int, ...]]], None] = lambda _owners: None
        self._workers: dict[str, Worker] = {}
        """Workers with a running lease, by name."""
        self._owners: dict[int, str] = {}
        self._seats: dict[int, dict[str, Connection]] = {}
        """Connections of a switch, by datapath and by name of the worker."""
        self._active: dict[int, Connection] = {}
        """The connection reported to the controller, by datapath."""
        self._due_s: dict[int, float] = {}
        """Time at which a switch missing at its owner is reported, by datapath."""
        self._misplaced = False
        """True if a switch is in use at another worker than its connected owner."""

    def start(
        self, events: ExchangeEvents, between_changes: Callable[[Callable[[], None]], None]
    ) -> None:
        """As :meth:`~apps.workers.exchange.Exchange.start`; only before the thread runs."""
        self._events = events
        self._between_changes = between_changes
        self._gathers_until_s = boot_s() + _GATHER_S

    def remember_owners(
        self,
        owners: Mapping[int, str],
        report: Callable[[Mapping[str, tuple[int, ...]]], None],
    ) -> None:
        """Continue with the ``owners`` of an earlier leader; ``report`` is called with each change
        of owners.
        """
        if owners:
            self._owners = dict(owners)
            self._misplaced = True
        self._on_owners = report
        report(self.shards())
        self._share_out()

    def shards(self) -> dict[str, tuple[int, ...]]:
        """Shards of each owner."""
        found: dict[str, list[int]] = {}
        for shard in sorted(self._owners):
            found.setdefault(self._owners[shard], []).append(shard)
        return {name: tuple(some) for name, some in found.items()}

    def add_worker(self, worker: Worker) -> None:
        """Add a worker, and give it shards."""
        self._workers[worker.name] = worker
        self._share_out()

    def remove_worker(self, worker: Worker) -> None:
        """Give the worker's shards to other workers, and use its switches' other connections."""
        del self._workers[worker.name]
        self._share_out()
        for connection in tuple(worker.connections.values()):
            self._disconnected(worker, connection.number)

    def use_all(self) -> None:
        """Repeat the order ``USE`` for each connection in use."""
        for connection in self._active.values():
            self._use(connection)

    def look(self, now_s: float, *, leads: bool) -> None:
        """Report switches whose owner did not connect in time; move switches to their owners."""
        if self._gathering and now_s >= self._gathers_until_s:
            self._gathers_until_s = 0.0
            self._share_out()
            for datapath in tuple(self._seats):
                self._fill(datapath)
        for datapath in [due for due, due_s in self._due_s.items() if now_s >= due_s]:
            del self._due_s[datapath]
            self._fill(datapath)
        if self._misplaced and leads:
            self._misplaced = False
            self._between_changes(self._move)

    @property
    def _gathering(self) -> bool:
        return self._gathers_until_s > 0

    def _share_out(self) -> None:
        if not self._workers:
            return  # the owners are remembered, as they may come back
        if self._gathering:
            return
        before = self._owners
        self._owners = assigned(self._settings.shards, before, self._workers)
        if self._owners == before:
            return
        self._on_owners(self.shards())
        self._misplaced = True

    def _move(self) -> None:
        """Move each switch to the connection at its owner, if connected there.

        Returns after the move.
        """
        done = threading.Event()

        def move() -> None:
            for datapath, active in tuple(self._active.items()):
                owned = self._seats.get(datapath, {}).get(self._owner(datapath))
                if owned is not None and owned is not active:
                    active.worker.serves -= 1
                    self._notify(self._events.switch_disconnected, datapath, active)
                    self._activate(datapath, owned)
            done.set()

        self._post(move)
        done.wait(self._settings.lease_s)

    # -- switches' messages ------------------------------------------------------------------------

    def handle_report(self, worker: Worker, record: Record) -> None:
        kind, number = record.kind, record.number
        connection = worker.connections.get(number)
        if kind == ConnectionReports.CONNECTED:
            self._connected(worker, number, json.loads(record.body))
        elif kind == ConnectionReports.DISCONNECTED:
            self._disconnected(worker, number)
        elif kind == ConnectionReports.REFUSED:
            self._notify(self._events.switch_refused, *json.loads(record.body))
        elif connection is None:
            return  # the controller has let go of the connection
        elif kind == ConnectionReports.PORT:
            self._port_changed(connection, record)
        else:
            self._answer(connection, record)

    def _port_changed(self, connection: Connection, record: Record) -> None:
        port, deleted = PortInfo(*json.loads(record.body)), bool(record.value)
        if deleted:
            connection.ports.pop(port.number, None)
        else:
            connection.ports[port.number] = port
        if self._active.get(connection.datapath) is connection:
            self._notify(
                self._events.port_changed, connection.datapath, connection, port, deleted=deleted
            )

    def _answer(self, connection: Connection, record: Record) -> None:
        """Report a switch's answer; the switchboard knows its requests."""
        notify, events, (kind, _, xid, value, body) = self._notify, self._events, record
        if kind == ConnectionReports.BARRIER:
            notify(events.barrier_replied, connection, xid)
        elif kind == ConnectionReports.STATISTICS:
            notify(events.statistics_replied, connection, xid, body, more=bool(value))
        elif kind == ConnectionReports.SUMS:
            notify(events.sums_replied, connection, xid, wire.unpacked_sums(body))
        elif kind == ConnectionReports.ERROR:
            notify(events.error_replied, connection, xid, _KINDS[value], body.decode())
        elif kind == ConnectionReports.ROLE and xid == wire.UNASKED:
            notify(events.role_taken, connection.datapath, connection, value)
        elif kind == ConnectionReports.ROLE:
            notify(events.role_replied, connection, xid, value)
        elif kind == ConnectionReports.RULE_ENDED:
            notify(events.rule_ended, connection.datapath, connection, value)
        elif kind == ConnectionReports.SECOND:
            notify(events.report_second, connection.datapath, *json.loads(body))
        elif kind == ConnectionReports.PACKET:
            notify(events.packet_received, connection.datapath, connection, body)
        else:
            raise ValueError(f"a record of kind {kind}")

    def _notify(self, event: Callable[..., None], *arguments: Any, **named: Any) -> None:
        """Report an event. An error in the receiver is not the worker's fault."""
        try:
            event(*arguments, **named)
        except Exception:
            LOG.exception(REPORT_FAILED)

    def _connected(self, worker: Worker, number: int, payload: Mapping[str, Any]) -> None:
        datapath = int(payload["datapath"])
        ports = {port[0]: PortInfo(*port) for port in payload["ports"]}
        connection = Connection(worker, number, datapath, str(payload["address"]), ports)
        worker.connections[number] = connection
        self._seats.setdefault(datapath, {})[worker.name] = connection
        if self._gathering:
            return
        active, owner = self._active.get(datapath), self._owner(datapath)
        if active is not None:
            self._misplaced |= worker.name == owner
        elif worker.name == owner or owner not in self._workers:
            self._activate(datapath, connection)
        else:
            self._due_s.setdefault(datapath, boot_s() + _OWNER_S)

    def _disconnected(self, worker: Worker, number: int) -> None:
        connection = worker.connections.pop(number, None)
        if connection is None:
            return
        datapath = connection.datapath
        seat = self._seats[datapath]
        if seat.get(worker.name) is connection:
            del seat[worker.name]
        if self._active.get(datapath) is connection:
            del self._active[datapath]
            worker.serves -= 1
            self._notify(self._events.switch_disconnected, datapath, connection)
            self._fill(datapath)
        if not seat:
            self._seats.pop(datapath, None)

    def _fill(self, datapath: int) -> None:
        """Report the best connection of a switch without a connection in use."""
        best = self._best(datapath)
        if best is not None and datapath not in self._active:
            self._activate(datapath, best)

    def _best(self, datapath: int) -> Connection | None:
        """Connection of a switch at its owner, or at the worker with fewest connections."""
        seat = self._seats.get(datapath)
        if not seat:
            return None
        owned = seat.get(self._owner(datapath))
        return owned or min(
            seat.values(), key=lambda connection: len(connection.worker.connections)
        )

    def _owner(self, datapath: int) -> str:
        """Name of the owner of a switch's shard; empty if there is none."""
        shard = self._shard_of.get(DatapathId(datapath), datapath % self._settings.shards)
        return self._owners.get(shard, "")

    def _activate(self, datapath: int, connection: Connection) -> None:
        self._active[datapath] = connection
        connection.worker.serves += 1
        self._due_s.pop(datapath, None)
        self._use(connection)
        self._notify(self._events.switch_connected, datapath, connection, connection.ports)

    def _use(self, connection: Connection) -> None:
        connection.worker.orders.append(Record(Order.USE, connection.number))
