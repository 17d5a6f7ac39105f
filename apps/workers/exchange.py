"""A controller's side of the link to its workers.

To the controller a switch at a worker is like one of its own: the exchange tells of it by the same
events, and gives it a connection with the same few methods. A switch may be connected to several
workers. The controller is told of one of these connections at a time, that of the worker which owns
the switch's shard if there is one; if it ends, the next is told of, as if the switch had connected
anew.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from apps.openflow.seam import (
    IN_A_ROW,
    PortInfo,
    SumRequest,
    Sums,
    SwitchConnection,
    SwitchEvents,
    give_up,
    unread,
)
from apps.process.doors import Sparing
from apps.process.worker_list import WorkerSeen
from apps.workers import wire
from apps.workers.ownership import assigned, shard_of_switches
from apps.workers.wire import Order, Record, Said, boot_s
from hydra.errors import HydraError
from hydra.failures import FailureKind
from hydra.model import DatapathId, Fabric
from hydra.policy import WorkerSettings

LOG = logging.getLogger("hydra.workers")
LOG.addFilter(Sparing(lambda record: "is called" in str(record.msg)))
_PING_S: Final = 0.1
"""Between two looks whether a worker is there: ZeroMQ refuses messages for one whose process has
ended."""
_GATHER_S: Final = 1.0
"""Time from the start in which no switch is told of: workers find the controller one by one."""
_OWNER_S: Final = 1.0
"""How long a switch that connects to another worker is waited for at its owner."""
_MESSAGES_IN_A_ROW: Final = 64
_KINDS: Final = tuple(FailureKind)


def kind_number(kind: FailureKind) -> int:
    """The number by which a kind of failure is told."""
    return _KINDS.index(kind)


class ExchangeEvents(SwitchEvents, Protocol):
    """Receiver of what workers tell."""

    def sums_replied(self, connection: SwitchConnection, xid: int, sums: Sums) -> None: ...


@dataclass(slots=True)
class _Worker:
    """A worker whose lease runs."""

    name: str
    identity: bytes
    session: int
    before: int
    """Session that it names until it hears of this one."""
    release: str
    since_unix_s: float
    began_s: float
    heard_s: float
    cpu_s: float = 0.0
    told: int = 0
    """Messages of this session that have come."""
    ordered: int = 0
    granted_by: int | None = None
    """Incarnation of this controller at its last grant."""
    orders: list[Record] = field(default_factory=list)
    connections: dict[int, _Connection] = field(default_factory=dict)
    serves: int = 0
    """Number of these by way of which the controller speaks to their switches."""

    def is_named(self, session: int, now_s: float, patience_s: float) -> bool:
        """True if a worker that names this session has heard of its own, or may yet hear of it."""
        return session == self.session or (
            session == self.before and now_s - self.began_s < patience_s
        )


class _Connection:
    """Connection of a switch to a worker, as a :class:`~apps.openflow.seam.SwitchConnection`."""

    __slots__ = ("address", "datapath", "number", "ports", "worker")

    def __init__(
        self, worker: _Worker, number: int, datapath: int, address: str, ports: dict[int, PortInfo]
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

    def ask(self, tell: Callable[[bool], None]) -> None:
        """Nobody has to ask: workers let in no second connection that claims to be a switch, and
        the exchange tells of one at a time.
        """
        tell(True)

    def close(self) -> None:
        self.worker.orders.append(Record(Order.CLOSE, self.number))


class Exchange:
    """:meth:`post` and :meth:`seen` are for any thread; all else happens in its own, which takes
    the place of the OpenFlow hub's.
    """

    def __init__(
        self, settings: WorkerSettings, fabric: Fabric, incarnation: Callable[[], int | None]
    ) -> None:
        """``incarnation``: a number beyond those of all who led before; None: this one does not.

        Raises HydraError if the link can't be used.
        """
        self._settings = settings
        self._incarnation = incarnation
        self._shard_of = shard_of_switches(fabric, settings.shards)
        self._events: ExchangeEvents
        self._between_changes: Callable[[Callable[[], None]], None]
        self._on_owners: Callable[[Mapping[str, tuple[int, ...]]], None] = lambda _owners: None
        self._workers: dict[bytes, _Worker] = {}
        self._owners: dict[int, str] = {}
        self._seats: dict[int, dict[str, _Connection]] = {}
        """By datapath, the connections of a switch by the names of their workers."""
        self._active: dict[int, _Connection] = {}
        """By datapath, the connection that the controller is told of."""
        self._due_s: dict[int, float] = {}
        """When a switch is told of that its owner does not have yet."""
        self._misplaced = False
        """True if a switch is spoken to by way of another worker than its owner, which has it."""
        self._led: int | None = None
        """The last incarnation that workers were told."""
        self._sessions = int(time.time())
        self._catching: dict[int, tuple[set[bytes], Callable[[], None]]] = {}
        self._tokens = 0
        self._seen: tuple[WorkerSeen, ...] = ()
        self._posted: deque[Callable[[], None]] = deque()
        self._woken = True
        """Until the thread looks: nobody has to wake it."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._context = zmq.Context()
        self._authenticator: ThreadAuthenticator | None = None
        self._socket = self._context.socket(zmq.ROUTER)
        try:
            self._bind()
        except HydraError:
            self._end()
            raise
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)

    # -- any thread -------------------------------------------------------------------------------

    def start(
        self, events: ExchangeEvents, between_changes: Callable[[Callable[[], None]], None]
    ) -> None:
        """``events`` are told, in the exchange's thread. ``between_changes`` has a job done while
        no change is under way: then switches move to workers that have joined.
        """
        self._events = events
        self._between_changes = between_changes
        self._gathers_until_s = boot_s() + _GATHER_S
        self._thread.start()

    def remember_owners(
        self,
        owners: Mapping[int, str],
        tell: Callable[[Mapping[str, tuple[int, ...]]], None],
    ) -> None:
        """Have ``owners`` be those until now, and ``tell`` of who owns what from now on.

        Call it in the exchange's thread.
        """
        if owners:
            self._owners = dict(owners)
            self._misplaced = True
        self._on_owners = tell
        tell(shards_of(self._owners))
        self._share_out()

    def post(self, function: Callable[[], None]) -> None:
        """Run a function in the exchange's thread, soon."""
        self._posted.append(function)
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._wake, 1)

    def seen(self) -> tuple[WorkerSeen, ...]:
        return self._seen

    def stop(self) -> None:
        """Carry out what has been posted, and end; repeatable."""
        if self._closing:
            return
        self.post(self._close)
        if self._thread.is_alive():
            self._thread.join()
        self._end()

    def _end(self) -> None:
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()
        self._context.term()

    def _close(self) -> None:
        self._closing = True

    # -- the exchange's thread --------------------------------------------------------------------

    def catch_up(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once all that workers have heard of switches until now has been read."""
        waiting = {one.identity for one in self._workers.values() if self._listens(one)}
        if not waiting:
            tell()
            return
        self._tokens += 1
        self._catching[self._tokens] = waiting, tell
        for identity in waiting:
            self._workers[identity].orders.append(Record(Order.CATCH_UP, 0, self._tokens))

    def _caught_up(self, token: int, identity: bytes) -> None:
        waiting, tell = self._catching.get(token, (set(), None))
        waiting.discard(identity)
        if tell is not None and not waiting:
            del self._catching[token]
            tell()

    def _bind(self) -> None:
        """Raises HydraError."""
        settings, socket = self._settings, self._socket
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # A worker may be back on a new connection before its broken one is known to be gone.
        # Without this, nothing that comes on the new one is ever read.
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        for option in (zmq.SNDHWM, zmq.RCVHWM):
            socket.setsockopt(option, 0)  # a worker that is silent for its lease is dropped
        socket.setsockopt(zmq.HEARTBEAT_IVL, wire.HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(settings.lease_s * 1000))
        socket.setsockopt(zmq.IPV6, int(":" in settings.host))
        if settings.key is not None and settings.known is not None:
            public, secret = certificate(settings.key)
            check_known(settings.known)
            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve(domain="*", location=settings.known)
            socket.curve_publickey, socket.curve_secretkey = public, secret
            socket.curve_server = True
        try:
            socket.bind(endpoint(settings.host, settings.port))
        except zmq.ZMQError as error:
            raise HydraError(
                f"controller.workers: can't listen at {settings.host} port {settings.port}: "
                f"{error.strerror}"
            ) from error

    def _run(self) -> None:
        try:
            self._exchange()
        except Exception as error:
            give_up(HydraError(unread(error)))
            raise

    def _exchange(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        looked_s = 0.0
        while not self._closing:
            self._do_posted()
            if boot_s() - looked_s >= _PING_S or self._incarnation() != self._led:
                looked_s = boot_s()
                self._look()
            self._give_orders()
            left_s = 0.0 if self._posted else max(0.0, looked_s + _PING_S - boot_s())
            ready = dict(poller.poll(int(left_s * 1000) + bool(left_s)))
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            if self._socket in ready:
                self._read()

    def _do_posted(self) -> None:
        self._woken = False  # before it looks: what is posted from here on wakes it again
        for _ in range(IN_A_ROW):
            if not self._posted:
                return
            self._safely(self._posted.popleft())
        self._woken = bool(self._posted)

    def _safely(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:  # of whoever posted it: others' are carried out
            LOG.exception("what was posted has failed")

    def _read(self) -> None:
        for _ in range(_MESSAGES_IN_A_ROW):
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._hear(identity, frames)
            except Exception:  # of one peer: others are heard
                LOG.exception("a worker says what no worker of this release does")
                if (worker := self._workers.get(identity)) is not None:
                    self._drop(worker, "it says what can't be read")

    # -- workers come, stay and go ----------------------------------------------------------------

    def _hear(self, identity: bytes, frames: list[bytes]) -> None:
        worker = self._workers.get(identity)
        if frames[0] == wire.RENEW:
            self._renew(identity, worker, json.loads(frames[1]))
        elif worker is None:
            return  # it is told so when it renews its lease next
        elif frames[0] == wire.TOLD:
            session, records = wire.unpacked(frames)
            if session == worker.session:
                worker.told += 1
                for record in records:
                    self._tell(worker, record)
        elif frames[0] == wire.BYE:
            self._drop(worker, "it ends")

    def _renew(self, identity: bytes, worker: _Worker | None, said: Mapping[str, Any]) -> None:
        now_s, name = boot_s(), str(said["name"])
        if worker is None or not worker.is_named(said["session"], now_s, self._settings.lease_s):
            namesake = next((w for w in self._workers.values() if w.name == name), None)
            if namesake is not None and namesake.identity != identity:
                # If it has been started again, the older one's lease ends soon.
                LOG.warning("another worker is called %s: one of the two has to wait", name)
                return
            if worker is not None:
                self._drop(worker, "it begins anew")
            worker = self._begin(identity, name, said, now_s)
        if said["session"] == worker.session and said["told"] != worker.told:
            self._drop(worker, "what it told was lost on the way")
            return
        worker.heard_s = now_s
        worker.cpu_s = float(said["cpu_s"])
        incarnation = self._incarnation()
        granted = {
            "renewal": said["renewal"],
            "session": worker.session,
            "incarnation": incarnation,
            "lease_s": self._settings.lease_s,
            "orders": worker.ordered,
        }
        if self._send(worker, [wire.GRANTED, wire.text(granted)]):
            worker.granted_by = incarnation

    def _begin(self, identity: bytes, name: str, said: Mapping[str, Any], now_s: float) -> _Worker:
        self._sessions += 1
        worker = _Worker(
            name,
            identity,
            self._sessions,
            int(said["session"]),
            str(said["release"]),
            time.time(),
            now_s,
            now_s,
        )
        self._workers[identity] = worker
        LOG.info("worker %s has come", name)
        self._share_out()
        self._send(worker, [wire.ANNOUNCE, wire.text({"session": worker.session})])
        return worker

    def _look(self) -> None:
        """See who is gone, and whether this controller leads now."""
        now_s, incarnation = boot_s(), self._incarnation()
        begins = incarnation is not None and incarnation != self._led
        self._led = incarnation
        for worker in tuple(self._workers.values()):
            if now_s - worker.heard_s > self._settings.lease_s:
                silent_s = now_s - worker.heard_s
                self._drop(worker, f"it has not renewed its lease for {silent_s:.1f} s")
            else:
                self._send(worker, [wire.RENEW_NOW if begins else wire.PING])
        if begins:
            for connection in self._active.values():
                self._use(connection)
        if self._gathering and now_s >= self._gathers_until_s:
            self._gathers_until_s = 0.0
            self._share_out()
            for datapath in tuple(self._seats):
                self._fill(datapath)
        for datapath in [one for one, due_s in self._due_s.items() if now_s >= due_s]:
            del self._due_s[datapath]
            self._fill(datapath)
        if self._misplaced and self._led is not None:
            self._misplaced = False
            self._between_changes(self._move)
        self._count()

    def _count(self) -> None:
        shards = shards_of(self._owners)
        self._seen = tuple(
            WorkerSeen(
                one.name,
                one.release,
                one.since_unix_s,
                len(one.connections),
                one.serves,
                shards.get(one.name, ()),
                one.cpu_s,
            )
            for one in sorted(self._workers.values(), key=lambda one: one.name)
        )

    @property
    def _gathering(self) -> bool:
        return self._gathers_until_s > 0

    def _drop(self, worker: _Worker, why: str) -> None:
        if self._workers.pop(worker.identity, None) is None:
            return
        LOG.warning("worker %s is gone, and %s switches with it: %s", worker.name,
                    len(worker.connections), why)  # fmt: skip
        self._share_out()
        for connection in tuple(worker.connections.values()):
            self._disconnected(worker, connection.number)
        for token in tuple(self._catching):
            self._caught_up(token, worker.identity)

    def _share_out(self) -> None:
        names = [one.name for one in self._workers.values()]
        if not names:
            return  # the owners are remembered: they may come back
        if self._gathering:
            return
        before = self._owners
        self._owners = assigned(self._settings.shards, before, names)
        if self._owners == before:
            return
        self._on_owners(shards_of(self._owners))
        self._misplaced = True

    def _move(self) -> None:
        """Have each switch spoken to by way of its owner, if it is connected to that.

        Returns when it is done.
        """
        done = threading.Event()

        def move() -> None:
            for datapath, active in tuple(self._active.items()):
                owned = self._seats.get(datapath, {}).get(self._owner(datapath))
                if owned is not None and owned is not active:
                    active.worker.serves -= 1
                    self._events.switch_disconnected(datapath, active)
                    self._activate(datapath, owned)
            done.set()

        self.post(move)
        done.wait(self._settings.lease_s)

    # -- what switches say ------------------------------------------------------------------------

    def _tell(self, worker: _Worker, record: Record) -> None:
        kind, number = record.kind, record.number
        connection = worker.connections.get(number)
        if kind == Said.CONNECTED:
            self._connected(worker, number, json.loads(record.body))
        elif kind == Said.CAUGHT_UP:
            self._caught_up(record.xid, worker.identity)
        elif kind == Said.DISCONNECTED:
            self._disconnected(worker, number)
        elif connection is None:
            return  # the controller has let go of it
        elif kind == Said.PORT:
            self._port_changed(connection, record)
        else:
            self._answer(connection, record)

    def _port_changed(self, connection: _Connection, record: Record) -> None:
        port, deleted = PortInfo(*json.loads(record.body)), bool(record.value)
        if deleted:
            connection.ports.pop(port.number, None)
        else:
            connection.ports[port.number] = port
        if self._active.get(connection.datapath) is connection:
            self._events.port_changed(connection.datapath, connection, port, deleted=deleted)

    def _answer(self, connection: _Connection, record: Record) -> None:
        """Tell of what a switch has answered; the switchboard knows whether it was asked."""
        events, (kind, _, xid, value, body) = self._events, record
        if kind == Said.BARRIER:
            events.barrier_replied(connection, xid)
        elif kind == Said.STATISTICS:
            events.statistics_replied(connection, xid, body, more=bool(value))
        elif kind == Said.SUMS:
            events.sums_replied(connection, xid, wire.unpacked_sums(body))
        elif kind == Said.ERROR:
            events.error_replied(connection, xid, _KINDS[value], body.decode())
        elif kind == Said.ROLE:
            events.role_replied(connection, xid, value)
        elif kind == Said.RULE_ENDED:
            events.rule_ended(connection.datapath, connection, value)
        elif kind == Said.PACKET:
            events.packet_received(connection.datapath, connection, body)
        else:
            raise ValueError(f"a record of kind {kind}")

    def _connected(self, worker: _Worker, number: int, said: Mapping[str, Any]) -> None:
        datapath = int(said["datapath"])
        ports = {port[0]: PortInfo(*port) for port in said["ports"]}
        connection = _Connection(worker, number, datapath, str(said["address"]), ports)
        worker.connections[number] = connection
        self._seats.setdefault(datapath, {})[worker.name] = connection
        if self._gathering:
            return
        active, owner = self._active.get(datapath), self._owner(datapath)
        if active is not None:
            self._misplaced |= worker.name == owner
        elif worker.name == owner or owner not in {one.name for one in self._workers.values()}:
            self._activate(datapath, connection)
        else:
            self._due_s.setdefault(datapath, boot_s() + _OWNER_S)

    def _disconnected(self, worker: _Worker, number: int) -> None:
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
            self._events.switch_disconnected(datapath, connection)
            self._fill(datapath)
        if not seat:
            self._seats.pop(datapath, None)

    def _fill(self, datapath: int) -> None:
        """Tell of the best connection of a switch that has none in use."""
        best = self._best(datapath)
        if best is not None and datapath not in self._active:
            self._activate(datapath, best)

    def _best(self, datapath: int) -> _Connection | None:
        """Connection of a switch by way of its owner, or of the worker that has fewest."""
        seat = self._seats.get(datapath)
        if not seat:
            return None
        owned = seat.get(self._owner(datapath))
        return owned or min(seat.values(), key=lambda one: len(one.worker.connections))

    def _owner(self, datapath: int) -> str:
        """Name of the worker that owns a switch's shard; empty if none does."""
        shard = self._shard_of.get(DatapathId(datapath), datapath % self._settings.shards)
        return self._owners.get(shard, "")

    def _activate(self, datapath: int, connection: _Connection) -> None:
        self._active[datapath] = connection
        connection.worker.serves += 1
        self._due_s.pop(datapath, None)
        self._use(connection)
        self._events.switch_connected(datapath, connection, connection.ports)

    def _use(self, connection: _Connection) -> None:
        connection.worker.orders.append(Record(Order.USE, connection.number))

    # -- orders -----------------------------------------------------------------------------------

    def _listens(self, worker: _Worker) -> bool:
        """True if the worker has been told that this controller leads, and so takes its orders."""
        return self._led is not None and worker.granted_by == self._led

    def _give_orders(self) -> None:
        for worker in tuple(self._workers.values()):
            if self._led is None:
                worker.orders.clear()  # whoever does not lead gives none
            elif worker.orders and self._listens(worker):
                orders, worker.orders = worker.orders, []
                worker.ordered += 1
                self._send(worker, wire.packed(wire.ORDERS, self._led, orders))

    def _send(self, worker: _Worker, frames: list[bytes]) -> bool:
        try:
            self._socket.send_multipart([worker.identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._drop(worker, f"its connection has ended ({error.strerror})")
            return False
        return True


def shards_of(owners: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Shards of each worker that owns any."""
    found: dict[str, list[int]] = {}
    for shard in sorted(owners):
        found.setdefault(owners[shard], []).append(shard)
    return {name: tuple(some) for name, some in found.items()}


def endpoint(host: str, port: int) -> str:
    """An address as ZeroMQ writes it, which knows no names to listen at."""
    host = "127.0.0.1" if host == "localhost" else host
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def certificate(path: str, *, secret: bool = True) -> tuple[bytes, bytes | None]:
    """Public and secret key from a file of ``hydra worker-keys``. Raises HydraError."""
    try:
        public, key = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise HydraError(
            f"{path} can't be read as a key of a worker or its controller ({error}): "
            "`hydra worker-keys` makes them"
        ) from error
    if public is None or (secret and key is None):
        what = "secret" if secret else "public"
        raise HydraError(f"{path} has no {what} key: `hydra worker-keys` makes them")
    return public, key


def check_known(folder: str) -> None:
    """Raise HydraError unless the folder has public keys of workers."""
    if not any(Path(folder).glob("*.key")):
        raise HydraError(
            f"controller.workers.known: {folder} has no public key of a worker: put NAME.key of "
            "`hydra worker-keys` there for each"
        )
