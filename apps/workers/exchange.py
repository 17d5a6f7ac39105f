"""A controller's side of the link to its workers.

Workers come, stay as long as they renew their lease, and go. Messages to and from the workers'
switches pass through here. :mod:`apps.workers.switches` chooses a connection for each switch.
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
from pathlib import Path
from typing import Any, Final

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from apps.openflow.interface import unread
from apps.openflow.limits import IN_A_ROW
from apps.process.admitted_connections import Sparing
from apps.process.shutdown import give_up
from apps.process.worker_list import SessionEnd
from apps.workers import wire
from apps.workers.roster import Leased, Roster
from apps.workers.switches import REPORT_FAILED, ExchangeEvents, WorkersSwitches
from apps.workers.wire import ConnectionReports, Order, Record, boot_s
from hydra.errors import HydraError
from hydra.model import Fabric
from hydra.settings import WorkerSettings

LOG = logging.getLogger("hydra.workers")
_OFTEN: Final = ("is called", REPORT_FAILED)
LOG.addFilter(Sparing(lambda record: any(some in str(record.msg) for some in _OFTEN)))
_PING_S: Final = 0.1
"""Seconds between checks of a worker's presence: ZeroMQ refuses messages for an ended process."""
_MESSAGES_IN_A_ROW: Final = 64
_LOST_WORDS: Final = {
    SessionEnd.LOSSES_REPORTED: "messages of the worker were lost on the way",
    SessionEnd.ORDERS_LOST: "messages to the worker were lost on the way",
    SessionEnd.ORDERS_LATE: "messages to the worker came after the end of the lease",
}


class Exchange:
    """:meth:`post` and the methods of :attr:`roster` are for any thread. All other work is done in
    the exchange's thread, which takes the place of the OpenFlow hub's.
    """

    def __init__(
        self, settings: WorkerSettings, fabric: Fabric, incarnation: Callable[[], int | None]
    ) -> None:
        """``incarnation``: a number beyond all earlier leaders' numbers; None: this controller does
        not lead. Raises HydraError if the link can't be used.
        """
        self._settings = settings
        self._incarnation = incarnation
        self._switches = WorkersSwitches(settings, fabric, self.post)
        self._workers: dict[bytes, Leased] = {}
        self.roster = Roster(settings.shards)
        self._led: int | None = None
        """The last incarnation sent to workers."""
        self._sessions = int(time.time())
        self._catching: dict[int, tuple[set[bytes], Callable[[], None]]] = {}
        self._tokens = 0
        self._posted: deque[Callable[[], None]] = deque()
        self._woken = True
        """True until the thread checks for posted work: no wake-up is needed meanwhile."""
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
        """``events`` are called in the exchange's thread. ``between_changes`` runs a job while no
        change is under way, in another thread: then switches move to newly joined workers.
        """
        self._switches.start(events, between_changes)
        self._thread.start()

    def remember_owners(
        self,
        owners: Mapping[int, str],
        report: Callable[[Mapping[str, tuple[int, ...]]], None],
    ) -> None:
        """Set ``owners`` as the owners until now; ``report`` is called with the owners from now on.

        Only for the exchange's thread.
        """
        for name in owners.values():
            self.roster.past(name, boot_s())
        self._switches.remember_owners(owners, report)

    def post(self, function: Callable[[], None]) -> None:
        """Run a function in the exchange's thread, soon."""
        self._posted.append(function)
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """Run all posted functions, and end; repeatable."""
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

    def catch_up(self, report: Callable[[], None]) -> None:
        """Call ``report`` once all messages received by workers so far have been read."""
        waiting = {worker.identity for worker in self._workers.values() if self._listens(worker)}
        if not waiting:
            report()
            return
        self._tokens += 1
        self._catching[self._tokens] = waiting, report
        for identity in waiting:
            self._workers[identity].orders.append(Record(Order.CATCH_UP, 0, self._tokens))

    def _caught_up(self, token: int, identity: bytes) -> None:
        waiting, report = self._catching.get(token, (set(), None))
        waiting.discard(identity)
        if report is not None and not waiting:
            del self._catching[token]
            report()

    def _bind(self) -> None:
        """Raises HydraError."""
        settings, socket = self._settings, self._socket
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # A worker may be back on a new connection before its broken connection is known to be gone.
        # The new connection would never be read without the handover.
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        for option in (zmq.SNDHWM, zmq.RCVHWM):
            socket.setsockopt(option, 0)  # a worker silent for its lease is dropped
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
            remaining_s = 0.0 if self._posted else max(0.0, looked_s + _PING_S - boot_s())
            ready = dict(poller.poll(int(remaining_s * 1000) + bool(remaining_s)))
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            if self._socket in ready:
                self._read()

    def _do_posted(self) -> None:
        self._woken = False  # before the check: a later post wakes the thread again
        for _ in range(IN_A_ROW):
            if not self._posted:
                return
            self._safely(self._posted.popleft())
        self._woken = bool(self._posted)

    def _safely(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception:  # of a single poster: run the rest
            LOG.exception("callback failed in the exchange with workers")

    def _read(self) -> None:
        for _ in range(_MESSAGES_IN_A_ROW):
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._receive(identity, frames)
            except Exception:  # of a single peer: go on receiving
                LOG.exception("a worker sent a message unknown to this release")
                if (worker := self._workers.get(identity)) is not None:
                    self._drop(
                        worker, SessionEnd.UNREADABLE, "the worker sent an unreadable message"
                    )

    # -- workers come, stay and go ----------------------------------------------------------------

    def _receive(self, identity: bytes, frames: list[bytes]) -> None:
        worker = self._workers.get(identity)
        if frames[0] == wire.RENEW:
            self._renew(identity, worker, json.loads(frames[1]))
        elif worker is None:
            return  # the worker learns of it by its next renewal
        elif frames[0] == wire.TOLD:
            session, records = wire.unpacked(frames)
            if session == worker.session:
                worker.received += 1
                for record in records:
                    if record.kind == ConnectionReports.CAUGHT_UP:
                        self._caught_up(record.xid, identity)
                    else:
                        self._switches.handle_report(worker, record)
        elif frames[0] == wire.BYE:
            self._drop(worker, SessionEnd.ENDED, "the worker ends")

    def _renew(self, identity: bytes, worker: Leased | None, message: Mapping[str, Any]) -> None:
        now_s, name = boot_s(), str(message["name"])
        if (dialect := wire.dialect(message)).protocol != wire.OWN.protocol:
            self._refuse(identity, name, dialect, now_s)
            return
        if worker is None or not worker.is_named(message["session"], now_s, self._settings.lease_s):
            namesake = next((w for w in self._workers.values() if w.name == name), None)
            if namesake is not None and namesake.identity != identity:
                # If the worker was restarted, the older process's lease ends soon.
                LOG.warning(
                    "two workers are called %s: the second has to wait; give each worker its own "
                    "name",
                    name,
                )
                return
            if worker is not None:
                lost = message.get("lost") if message["session"] < 0 else None
                end = SessionEnd(lost or SessionEnd.ORDERS_LOST)
                self._drop(worker, end, f"the worker begins anew, since {_LOST_WORDS[end]}")
            worker = self._begin(identity, name, message, now_s)
        if message["session"] == worker.session and message["told"] != worker.received:
            end = SessionEnd.LOSSES_REPORTED
            self._drop(worker, end, _LOST_WORDS[end])
            return
        worker.past.renewed_s = now_s
        worker.cpu_s = float(message["cpu_s"])
        incarnation = self._incarnation()
        granted = {
            "renewal": message["renewal"],
            "session": worker.session,
            "incarnation": incarnation,
            "lease_s": self._settings.lease_s,
            "orders": worker.ordered,
            **wire.OWN._asdict(),
        }
        if self._send(worker, [wire.GRANTED, wire.text(granted)]):
            worker.granted_by = incarnation

    def _refuse(
        self, identity: bytes, name: str, worker_dialect: wire.Dialect, now_s: float
    ) -> None:
        """Refuse a worker with another version of the protocol; its switches stay out."""
        why = wire.mismatch(name, worker_dialect, "this controller", wire.OWN)
        if self.roster.refuse(name, why, now_s):
            LOG.error("%s", why)
        with suppress(zmq.ZMQError):  # the worker is gone
            frames = [identity, wire.REFUSED, wire.text(wire.OWN._asdict())]
            self._socket.send_multipart(frames, zmq.NOBLOCK)

    def _begin(
        self, identity: bytes, name: str, message: Mapping[str, Any], now_s: float
    ) -> Leased:
        self._sessions += 1
        past = self.roster.past(name, now_s)
        past.renewed_s = now_s
        worker = Leased(
            name,
            past=past,
            identity=identity,
            session=self._sessions,
            before=int(message["session"]),
            release=str(message["release"]),
            since_unix_s=time.time(),
            began_s=now_s,
        )
        self._workers[identity] = worker
        self.roster.admit(name)
        LOG.info("worker %s has come", name)
        self._switches.add_worker(worker)
        asked = {"session": worker.session, **wire.OWN._asdict()}
        self._send(worker, [wire.ANNOUNCE, wire.text(asked)])
        return worker

    def _look(self) -> None:
        """Drop silent workers, and check whether this controller leads now."""
        now_s, incarnation = boot_s(), self._incarnation()
        begins = incarnation is not None and incarnation != self._led
        self._led = incarnation
        for worker in tuple(self._workers.values()):
            silent_s = now_s - worker.past.renewed_s
            if silent_s > self._settings.lease_s:
                why = f"the worker has not renewed the lease for {silent_s:.1f} s"
                self._drop(worker, SessionEnd.SILENT, why)
            else:
                self._send(worker, [wire.RENEW_NOW if begins else wire.PING])
        if begins:
            self._switches.use_all()
        self._switches.look(now_s, leads=incarnation is not None)
        self.roster.count(self._workers.values(), self._switches.shards(), now_s)

    def _drop(self, worker: Leased, end: SessionEnd, why: str) -> None:
        if self._workers.pop(worker.identity, None) is None:
            return
        worker.past.ended[end] += 1
        LOG.warning("worker %s is gone, and %s switches with it: %s", worker.name,
                    len(worker.connections), why)  # fmt: skip
        self._switches.remove_worker(worker)
        for token in tuple(self._catching):
            self._caught_up(token, worker.identity)

    # -- orders -----------------------------------------------------------------------------------

    def _listens(self, worker: Leased) -> bool:
        """True if the worker knows that this controller leads, and so takes orders."""
        return self._led is not None and worker.granted_by == self._led

    def _give_orders(self) -> None:
        for worker in tuple(self._workers.values()):
            if self._led is None:
                worker.orders.clear()  # only a leader gives orders
            elif worker.orders and self._listens(worker):
                orders, worker.orders = worker.orders, []
                worker.ordered += 1
                self._send(worker, wire.packed(wire.ORDERS, self._led, orders))

    def _send(self, worker: Leased, frames: list[bytes]) -> bool:
        try:
            self._socket.send_multipart([worker.identity, *frames], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            why = f"the connection has ended ({error.strerror})"
            self._drop(worker, SessionEnd.DISCONNECTED, why)
            return False
        return True


def endpoint(host: str, port: int) -> str:
    """An address in ZeroMQ's notation, without names to listen at."""
    host = "127.0.0.1" if host == "localhost" else host
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def certificate(path: str, *, secret: bool = True) -> tuple[bytes, bytes | None]:
    """Public and secret key from a file of ``hydra worker-keys``. Raises HydraError."""
    try:
        public, key = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise HydraError(
            f"{path} can't be read as a key of a worker or its controller ({error}): make keys "
            "with `hydra worker-keys`"
        ) from error
    if public is None or (secret and key is None):
        key_kind = "secret" if secret else "public"
        raise HydraError(f"{path} has no {key_kind} key: make keys with `hydra worker-keys`")
    return public, key


def check_known(folder: str) -> None:
    """Raise HydraError unless the folder has public keys of workers."""
    if not any(Path(folder).glob("*.key")):
        raise HydraError(
            f"controller.workers.known: {folder} has no public key of a worker: put NAME.key of "
            "`hydra worker-keys` there for each"
        )
