"""Sending and asking: native threads hand bytes to the loop, and wait for replies."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Protocol

from apps.openflow.interface import Post, SwitchConnection
from apps.openflow.replies import Replies, Reply
from apps.openflow.requests import LOOKS, Answer, Asked, Pending
from apps.openflow.switch import ConnectedSwitch
from apps.openflow.switchboard import Switchboard
from drivers.codecs.openflow.messages import TYPE_MULTIPART_REQUEST, encode_barrier
from drivers.codecs.openflow.rules import SwitchPorts, encode_packet_out
from hydra.failures import Failure, FailureKind
from hydra.forwarding.frames import parse_probe
from hydra.model import DatapathId

LOG = logging.getLogger("hydra.switchboard")
_UNDER_WAY = 256
"""Requests under way at a time, if switches are asked in turn. A whole table takes 0.1 MB in a
fabric with many racks.
"""
_ALMOST_ALL = 0.95
"""Share of switches that must have answered before the slowest answer sets the deadline for the
rest, if the caller hurries.
"""
_LEAST_PATIENCE_S = 0.5
_ABOUT_TO_S = 1.0
"""Longest time from the arrival of an answer to the wake-up of the thread that waits for it."""
_SENT_TOGETHER = 16
"""Messages handed to the hub at a time: each handover may have to wait for the interpreter."""
_STATISTICS = bytes([TYPE_MULTIPART_REQUEST])
Encode = Callable[[DatapathId, SwitchPorts, int], bytes]
Sending = tuple[SwitchConnection, bytes]
"""A connection, and the message for the connection."""


class GiveUp(Protocol):
    def __call__(
        self, datapath: DatapathId, asked: Asked, timeout_s: float, *, is_late: bool
    ) -> Answer: ...


class Asking(Switchboard):
    """Messages and requests to connected switches, and the wait for answers."""

    def packet_received(self, datapath: int, connection: SwitchConnection, frame: bytes) -> None:
        probe = parse_probe(frame)
        if probe is None:
            return
        if self._used(datapath, connection) is not None:
            self._probe_arrived(probe.nonce)

    def send_frames(self, frames: Mapping[DatapathId, Iterable[tuple[int, bytes]]]) -> None:
        """Send frames as packet-outs; skip switches that are not connected."""
        self._send_all(self._packets_out(frames))

    def _packets_out(
        self, frames: Mapping[DatapathId, Iterable[tuple[int, bytes]]]
    ) -> Iterator[Sending]:
        for datapath, items in frames.items():
            switch = self._switch(datapath)
            if switch is None:
                continue
            message = b"".join(
                encode_packet_out(frame, number, self._next_xid())
                for port, frame in items
                if (number := switch.present.number(port))
            )
            if message:
                yield switch.connection, message

    def ask_barriers(self, datapaths: Collection[DatapathId]) -> dict[DatapathId, Reply[Answer]]:
        """Send a barrier to each switch without waiting; returns the replies of connected switches.

        A reply becomes the switch's answer, or a failure when the connection ends.
        """
        asked = self._ask(datapaths, lambda _datapath, _ports, xid: encode_barrier(xid))
        return {
            datapath: answer.reply
            for datapath, answer in asked.items()
            if not isinstance(answer, Failure)
        }

    def silent(
        self, datapaths: Iterable[DatapathId], timeout_s: float
    ) -> dict[DatapathId, Failure]:
        """Switches that do not answer a barrier. Frames received earlier by the answering switches
        have been read when this method returns.
        """
        answers = self._request(datapaths, lambda _dp, _ports, xid: encode_barrier(xid), timeout_s)
        return {dp: answer for dp, answer in answers.items() if isinstance(answer, Failure)}

    def send_messages(self, messages: Mapping[DatapathId, bytes | bytearray]) -> None:
        """Send OpenFlow messages that need no answer, all in a single visit to the hub."""
        with self._lock:
            known = {datapath: self._switches.get(datapath) for datapath in messages}
        sending = [
            (switch.connection, bytes(messages[datapath]))
            for datapath, switch in known.items()
            if switch is not None
        ]
        self._post(lambda: self._deliver(sending))

    @property
    def post(self) -> Post:
        """Run a function in the hub's thread, after the functions posted earlier."""
        return self._post

    def _send_all(self, messages: Iterable[Sending]) -> None:
        """Hand messages to the hub a few at a time, while further messages are made."""
        each = iter(messages)
        while some := tuple(islice(each, _SENT_TOGETHER)):
            self._post(partial(self._deliver, some))

    def _deliver(self, messages: Iterable[Sending]) -> None:
        """Send in the hub's thread, if this controller leads; else drop the messages.

        Messages that waited in the hub while the process was stopped are thus not sent after the
        lease has ended. Dropped requests get no answer.
        """
        if not self._over():
            for connection, message in messages:
                connection.send(message)

    def _request(
        self, datapaths: Iterable[DatapathId], encode: Encode, timeout_s: float
    ) -> dict[DatapathId, Answer]:
        """Ask all switches at once; returns a reply body or a failure for each."""
        return self._answers(self._ask(datapaths, encode), timeout_s)

    def _in_turn(
        self,
        datapaths: Iterable[DatapathId],
        encode: Encode,
        timeout_s: float,
        *,
        hurries: bool = False,
        most: float = _ALMOST_ALL,
        gap_s: float = math.inf,
        slow: Collection[DatapathId] = (),
        give_up: GiveUp | None = None,
    ) -> Iterator[tuple[DatapathId, Answer]]:
        """Ask switches as :meth:`_request` does, with a limited number of requests under way.

        The limit keeps memory small: neither all requests nor all answers exist at a time. Each
        switch has ``timeout_s`` from its request, not counting the time in which the hub works
        through received messages; a slow switch does not delay the requests to other switches.

        With ``hurries``, once the share ``most`` of all switches has answered, the rest have as
        much time again, at least half a second. Once no switch has answered for ``gap_s``, the rest
        are late, except for the ``slow`` switches, whose requests come last. ``give_up`` is called
        for each finished request, and returns the answer or a substitute.
        """
        give_up = give_up or self._answer
        now_s, arrived_s, cut_s = 0.0, 0.0, math.inf
        asked_n = answered_n = 0
        window, caught_up_s = _UNDER_WAY, 0.0
        waiting = iter(sorted(datapaths, key=slow.__contains__) if slow else datapaths)
        done: SimpleQueue[Reply[Answer]] = SimpleQueue()
        under_way: dict[Reply[Answer], tuple[DatapathId, Asked, float]] = {}
        while True:
            while len(under_way) <= window - _SENT_TOGETHER:
                some = self._ask(islice(waiting, window - len(under_way)), encode)
                asked_n += len(some)
                for datapath, request in some.items():
                    if isinstance(request, Failure):
                        answered_n += 1
                        yield datapath, request
                        continue
                    under_way[request.reply] = datapath, request, now_s + timeout_s
                    request.reply.add_done_callback(done.put)
                if not some:
                    if hurries and answered_n >= most * asked_n:
                        cut_s = min(cut_s, now_s + max(now_s, _LEAST_PATIENCE_S))
                    break
            if not under_way:
                return
            # Requests are in order of sending, with equal time-outs: the first request is due
            # first.
            reply, (datapath, _, due_s) = next(iter(under_way.items()))
            gap_ends_s = max(arrived_s, due_s - timeout_s) + gap_s
            silent_s = math.inf if datapath in slow else gap_ends_s
            due_s = min(due_s, cut_s, silent_s)
            look_s, began_s = min(timeout_s / LOOKS, due_s - now_s), time.monotonic()
            try:
                reply = done.get(timeout=look_s)
                now_s += min(look_s, time.monotonic() - began_s)
            except Empty:
                now_s += look_s
                if now_s > caught_up_s:
                    caught_up_s = now_s
                    self._let_hub_catch_up()
                    # Late switches must not keep further switches from being asked.
                    window += _UNDER_WAY if hurries else 0
                if now_s < due_s and not reply.done():
                    continue
            if reply in under_way:  # else answered just as the time was up
                datapath, request, _ = under_way.pop(reply)
                answered_n += 1
                if request.reply.done():
                    arrived_s = now_s
                late = now_s >= min(cut_s, silent_s)
                yield datapath, give_up(datapath, request, timeout_s, is_late=late)

    def _ask(
        self, datapaths: Iterable[DatapathId], encode: Encode
    ) -> dict[DatapathId, Asked | Failure]:
        """Send each switch a request; a failure for a switch that can't be asked."""
        asked: dict[DatapathId, Asked | Failure] = {}
        self._send_all(self._asking(datapaths, encode, asked))
        return asked

    def _asking(
        self,
        datapaths: Iterable[DatapathId],
        encode: Encode,
        asked: dict[DatapathId, Asked | Failure],
    ) -> Iterator[Sending]:
        """Requests to be sent; each is entered in ``asked`` first."""
        away = FailureKind.NOT_CONNECTED
        for datapath in datapaths:
            switch = self._switch(datapath)
            if switch is None:
                asked[datapath] = self._failure(datapath, away, "not connected")
                continue
            if switch.is_mute:
                asked[datapath] = self._failure(datapath, FailureKind.LATE, "does not answer")
                continue
            xid = self._next_xid()
            message = encode(datapath, switch.ports, xid)
            reply: Reply[Answer] = Reply()
            with self._lock:
                if self._switches.get(datapath) is not switch:
                    asked[datapath] = self._failure(datapath, away, "disconnected")
                    continue
                self._pending[xid] = Pending(
                    datapath,
                    switch.connection,
                    reply,
                    ends_in_error=message[1:2] == _STATISTICS,
                )
            asked[datapath] = Asked(xid, reply)
            yield switch.connection, message

    def _answer_or_set_aside(
        self, datapath: DatapathId, asked: Asked, timeout_s: float, *, is_late: bool = False
    ) -> Answer:
        """The answer, as from :meth:`_answer`; if there is no answer yet, the switch counts as
        mute, and gets no further requests until it answers a barrier.
        """
        if not asked.reply.done():
            with self._lock:
                pending = self._pending.pop(asked.xid, None)
            if pending is not None:
                self._set_aside(pending)
            else:  # the answer is just arriving
                Replies([asked.reply]).wait(_ABOUT_TO_S)
        return self._answer(datapath, asked, timeout_s, is_late=is_late)

    def _set_aside(self, unanswered: Pending) -> None:
        """Send a switch no further requests until the switch has answered a barrier."""
        datapath, answered = unanswered.datapath, Reply[Answer]()
        with self._lock:
            switch = self._switches.get(datapath)
            if switch is None or switch.connection is not unanswered.connection or switch.is_mute:
                return
            switch.is_mute, self._connected = True, None
            self._gone_s[datapath] = time.monotonic()
            xid = self._next_xid()
            self._pending[xid] = Pending(datapath, switch.connection, answered)
        LOG.warning(
            "%s does not answer in time: no requests until it answers", self._name(datapath)
        )
        answered.add_done_callback(lambda _reply: self._late_answer(datapath, switch))
        self._post(partial(self._deliver, [(switch.connection, encode_barrier(xid))]))

    def _late_answer(self, datapath: DatapathId, switch: ConnectedSwitch) -> None:
        """Resume requests to a switch, since the switch answers again.

        Runs in the hub's thread, like the start and end of connections.
        """
        with self._lock:
            if self._switches.get(datapath) is not switch:
                return  # the connection has ended
        for watcher in self._watchers_of_late:
            watcher(datapath)
        with self._changed:
            switch.is_mute, self._connected = False, None
            self._changed.notify_all()
        LOG.info("%s answers again", self._name(datapath))
        for watcher in self._watchers_of_mute:
            watcher(datapath)
