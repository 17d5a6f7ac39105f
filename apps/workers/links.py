"""A worker's side of its links to controllers: leases, and the choice of valid orders.

A controller's orders are valid during its granted lease, unless a message of a controller with a
later incarnation has arrived. The lease is measured by a clock that goes on while the process or
the machine sleeps. Invalid orders are thrown away.

A controller with another version of the protocol gets no reports. Unless all controllers have
another version, the worker asks such a controller again from time to time, as the leader may change
during an upgrade. If all have another version, the worker ends.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import zmq

from apps.openflow.interface import Post, unread
from apps.process.shutdown import give_up
from apps.process.worker_list import SessionEnd
from apps.workers import wire
from apps.workers.exchange import certificate, endpoint
from apps.workers.holder import Holder
from apps.workers.settings import WorkerOptions
from apps.workers.wire import Record, boot_s, lease_end_s
from hydra.errors import HydraError

LOG = logging.getLogger("hydra.workers")
_UNLEASED_RENEWAL_S: Final = 0.3
"""Seconds between two requests for a lease."""
_REFUSED_RENEWAL_S: Final = 2.0
"""Seconds between two requests to a controller with another version."""
_KEPT_RENEWALS: Final = 1000
_BYE_S: Final = 0.2
"""Time for the last words."""


class _Link:
    """The link to a controller. ``reports`` and ``session`` are guarded by ``lock``."""

    def __init__(self, place: tuple[str, int], socket: zmq.Socket[bytes]) -> None:
        self.name = endpoint(*place).removeprefix("tcp://")
        self.socket = socket
        self.lock = threading.Lock()
        self.reports: list[Record] = []
        self.reported_session = 0
        """Session of the reports; 0: no reports until the controller asks."""
        self.named_session = 0
        """Session named in renewals; below 0: no session after a loss. Each loss has a number of
        its own, so that a loss is not taken for an earlier loss.
        """
        self._losses = 0
        self.sent = 0
        """Messages sent in this session."""
        self.received = 0
        """Orders received in this session."""
        self.until_s = 0.0
        """When the lease ends, by :func:`~apps.workers.wire.boot_s`."""
        self.renewals: dict[int, float] = {}
        """Times of renewals not granted yet."""
        self.renew_at_s = 0.0
        self.lease_s: float | None = None
        self.refused = ""
        """Reason why the protocols don't fit; empty if they fit, or without an answer so far."""
        self.lost: SessionEnd | None = None
        """The reason of the last session's end, if ended by this worker."""

    def report(self, record: Record) -> None:
        with self.lock:
            if self.reported_session:
                self.reports.append(record)

    def begin(self, session: int, everything: Sequence[Record]) -> None:
        with self.lock:
            self.reported_session, self.reports = session, list(everything)

    def lose(self, lost: SessionEnd | None = None) -> None:
        """Start a new session: a message was lost, by default a command from the controller."""
        late = SessionEnd.ORDERS_LATE if boot_s() >= self.until_s else SessionEnd.ORDERS_LOST
        self.lost = lost or late
        self.begin(0, ())
        if self.named_session >= 0:
            self._losses += 1
            self.named_session = -self._losses
        self.renew_at_s = 0.0

    def taken(self) -> tuple[int, list[Record]]:
        with self.lock:
            reports, self.reports = self.reports, []
            return self.reported_session, reports


class Links:
    """Links to all controllers, in a separate thread."""

    def __init__(
        self,
        options: WorkerOptions,
        post: Post,
        known: Callable[[int], bool] = lambda _datapath: True,
    ) -> None:
        """``known``: true for datapath ids of the fabric. Raises HydraError if the keys can't be
        used.
        """
        self._options = options
        self._post = post
        self._id = uuid.uuid4().hex
        self.holder = Holder(self._report_to_all, self._report_to_leader, known)
        self._leader: _Link | None = None
        self._incarnation = 0
        """The latest incarnation in a received message."""
        self._renewal = 0
        self._context = zmq.Context()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self._closing = False
        self._links = [
            _Link(place, self._connected(number, *place))
            for number, place in enumerate(options.controllers)
        ]
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Announce the worker's end, so that its switches move elsewhere at once; repeatable."""
        self._closing = True
        self._awake()
        if self._thread.is_alive():
            self._thread.join()
        for link in self._links:  # a closed link stays closed
            link.socket.close(int(_BYE_S * 1000))
        self._context.term()

    def _connected(self, number: int, host: str, port: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.DEALER)
        # An identity for each link, so that two links to the same controller don't replace each
        # other.
        socket.setsockopt(zmq.IDENTITY, f"{self._id}-{number}".encode())
        socket.setsockopt(zmq.LINGER, 0)
        for option in (zmq.SNDHWM, zmq.RCVHWM):
            socket.setsockopt(option, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)  # no message waits for an absent controller
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, wire.HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 4 * wire.HEARTBEAT_MS)
        socket.setsockopt(zmq.IPV6, int(":" in host))
        if self._options.key is not None and self._options.controller_key is not None:
            socket.curve_publickey, socket.curve_secretkey = certificate(self._options.key)
            socket.curve_serverkey, _ = certificate(self._options.controller_key, secret=False)
        socket.connect(endpoint(host, port))
        return socket

    # -- the hub's thread -------------------------------------------------------------------------

    def _report_to_all(self, record: Record) -> None:
        for link in self._links:
            link.report(record)
        self._awake()

    def _report_to_leader(self, record: Record) -> None:
        if self._leader is not None:
            self._leader.report(record)
            self._awake()

    def _announce(self, link: _Link, session: int) -> None:
        link.begin(session, list(self.holder.everything()))
        self._awake()

    def _obey(self, link: _Link, frames: list[bytes]) -> None:
        incarnation, orders = wire.unpacked(frames)
        if boot_s() >= link.until_s or incarnation < self._incarnation:
            is_latest = incarnation >= self._incarnation
            why = "the lease is over" if is_latest else "a later controller leads"
            LOG.warning("orders of the controller at %s are thrown away: %s", link.name, why)
            if is_latest:
                link.lose()  # the next renewal reports the loss; a new session begins
                self._awake()
            return
        self._incarnation, self._leader = incarnation, link
        for order in orders:
            self.holder.obey(order)

    def _awake(self) -> None:
        if not self._woken:
            self._woken = True
            os.eventfd_write(self._wake, 1)

    # -- the links' thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            give_up(HydraError(unread(error)))
            raise

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake, zmq.POLLIN)
        for link in self._links:
            poller.register(link.socket, zmq.POLLIN)
        while not self._closing:
            now_s = boot_s()
            for link in self._links:
                if now_s >= link.renew_at_s:
                    self._renew(link)
            remaining_s = max(0.0, min(link.renew_at_s for link in self._links) - boot_s())
            ready = dict(poller.poll(int(remaining_s * 1000) + 1))
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
            self._woken = False  # before the check: a later report wakes the thread again
            for link in self._links:
                self._say(link)
                if link.socket in ready:
                    self._read(link)
        for link in self._links:
            self._say(link)
            self._send(link, [wire.BYE])

    def _say(self, link: _Link) -> None:
        session, reports = link.taken()
        if reports and session == link.named_session:
            link.sent += 1
            if not self._send(link, wire.packed(wire.TOLD, session, reports)):
                link.lose(SessionEnd.LOSSES_REPORTED)

    def _send(self, link: _Link, frames: list[bytes]) -> bool:
        try:
            link.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def _renew(self, link: _Link) -> None:
        self._renewal += 1
        now_s = boot_s()
        link.renew_at_s = now_s + (
            _UNLEASED_RENEWAL_S if link.lease_s is None else link.lease_s / wire.RENEWALS
        )
        message = {
            "name": self._options.name,
            "renewal": self._renewal,
            "session": link.named_session,
            "lost": link.lost,
            "told": link.sent,
            "cpu_s": time.process_time(),
            **wire.OWN._asdict(),
        }
        link.renewals[self._renewal] = now_s
        while len(link.renewals) > _KEPT_RENEWALS:
            del link.renewals[next(iter(link.renewals))]
        self._send(link, [wire.RENEW, wire.text(message)])

    def _read(self, link: _Link) -> None:
        while True:
            try:
                frames = link.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._receive(link, frames)
            except Exception:  # of a single controller: go on receiving
                LOG.exception("the controller at %s sent an unreadable message", link.name)

    def _receive(self, link: _Link, frames: list[bytes]) -> None:
        kind = frames[0]
        if kind == wire.ORDERS:
            link.received += 1
            self._post(lambda: self._obey(link, frames))
        elif kind in {wire.GRANTED, wire.ANNOUNCE, wire.REFUSED}:
            message = json.loads(frames[1])
            if (controllers := wire.dialect(message)).protocol != wire.OWN.protocol:
                self._note_refusal(link, controllers, known=kind == wire.REFUSED)
            elif kind == wire.GRANTED:
                self._note_grant(link, message)
            elif kind == wire.ANNOUNCE:
                self._note_asked(link, int(message["session"]))
        elif kind == wire.RENEW_NOW:
            link.renew_at_s = 0.0

    def _note_asked(self, link: _Link, session: int) -> None:
        link.named_session = session
        link.sent = link.received = 0
        link.refused = ""
        LOG.info("the controller at %s asks for all switches", link.name)
        self._post(lambda: self._announce(link, session))

    def _note_refusal(self, link: _Link, controllers: wire.Dialect, *, known: bool) -> None:
        """``known``: the controller knows of the mismatch."""
        if not known:  # version 0, without a check of versions
            self._send(link, [wire.BYE])
        link.renew_at_s = boot_s() + _REFUSED_RENEWAL_S
        peer = f"the controller at {link.name}"
        why = wire.mismatch(self._options.name, wire.OWN, peer, controllers)
        if why == link.refused:
            return
        link.refused = why
        if all(link.refused for link in self._links):
            give_up(HydraError(why))
        else:
            LOG.error("%s; looking for another controller", why)

    def _note_grant(self, link: _Link, granted: dict[str, Any]) -> None:
        asked_s = link.renewals.pop(int(granted["renewal"]), None)
        link.lease_s = float(granted["lease_s"])
        if granted["session"] == link.named_session and granted["orders"] != link.received:
            link.lose()
            return
        if asked_s is not None and granted["incarnation"] is not None:
            link.until_s = max(link.until_s, lease_end_s(asked_s, link.lease_s))
