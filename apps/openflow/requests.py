"""Unanswered requests to switches, and the wait for answers.

Replies arrive in the OpenFlow hub's thread and never block there; the waiting callers are native
threads. The answer to a request comes on the request's connection or not at all.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apps.openflow.interface import Post, Sums, SwitchConnection
from apps.openflow.lines import read_waiting_messages
from apps.openflow.replies import Replies, Reply
from drivers.codecs.openflow.messages import MAX_MULTIPART_BYTES
from hydra.failures import Failure, FailureKind
from hydra.model import DatapathId

_FIRST_XID = 0x4000_0000
_XIDS = 0x4000_0000
_STEP = "openflow"
LOOKS = 20
"""Number of parts of a time-out; the hub catches up between two parts."""
_PROBE_LOOKS = 4
"""As :data:`LOOKS`, for probes: each probe has a wait of its own, and many probes are under way at
once.
"""
_HUB_S = 60.0
"""Longest wait for the hub at a time."""
Answer = bytes | Failure
"""The body of a reply, or the failure."""
Counted = Answer | Sums
"""An answer to a request for counters, perhaps only their sums."""


@dataclass(slots=True)
class Pending:
    """A request under way, resolved by its barrier, the last part of its statistics, a refusal, or
    the loss of the switch.
    """

    datapath: DatapathId
    connection: SwitchConnection
    reply: Reply[Any]
    """Becomes an :data:`Answer`, or sums if the request asked for sums."""
    body: bytearray = field(default_factory=bytearray)
    failure: Failure | None = None
    ends_in_error: bool = False
    """True if an error is the whole answer: no barrier follows the request."""


class Asked(NamedTuple):
    xid: int
    reply: Reply[Answer]


CatchUp = Callable[[Callable[[], None]], None]


def read_first(report: Callable[[], None]) -> None:
    """Read the messages received from switches, then call ``report``."""
    read_waiting_messages()
    report()


class Requests:
    """Requests under way, by transaction id, and expected probes, by nonce."""

    def __init__(
        self, names: Mapping[DatapathId, str], post: Post, catch_up: CatchUp = read_first
    ) -> None:
        """``catch_up`` calls its argument once all messages received from switches have been read;
        called in the hub's thread.
        """
        self._names = names
        self._post = post
        self._catch_up = catch_up
        self._lock = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._xids = itertools.count()
        self._probes: dict[int, Reply[None]] = {}
        self._probe_watcher: Callable[[int], None] | None = None

    # -- events: the hub's thread ---------------------------------------------------------------

    def barrier_replied(self, connection: SwitchConnection, xid: int) -> None:
        self._resolve(connection, xid)

    def error_replied(
        self, connection: SwitchConnection, xid: int, kind: FailureKind, error: str
    ) -> None:
        with self._lock:
            pending = self._pending_of(connection, xid)
            if pending is None:
                return
            if pending.failure is None:
                pending.failure = self._failure(pending.datapath, kind, error)
        if pending.ends_in_error:
            self._resolve(connection, xid)

    def role_replied(self, connection: SwitchConnection, xid: int, generation: int) -> None:
        with self._lock:
            pending = self._pending_of(connection, xid)
            if pending is not None:
                pending.body += generation.to_bytes(8, "big")
        self._resolve(connection, xid)

    def statistics_replied(
        self, connection: SwitchConnection, xid: int, body: bytes, *, more: bool
    ) -> None:
        with self._lock:
            pending = self._pending_of(connection, xid)
            if pending is not None:
                if len(pending.body) + len(body) > MAX_MULTIPART_BYTES:
                    error = f"statistics of more than {MAX_MULTIPART_BYTES >> 20} MiB"
                    pending.failure = self._failure(pending.datapath, FailureKind.MALFORMED, error)
                else:
                    pending.body += body
        if not more:
            self._resolve(connection, xid)

    def sums_replied(self, connection: SwitchConnection, xid: int, sums: Sums) -> None:
        self._resolve(connection, xid, sums)

    def _pending_of(self, connection: SwitchConnection, xid: int) -> Pending | None:
        """None if no request on this connection waits for the answer; call with the lock."""
        pending = self._pending.get(xid)
        return pending if pending is not None and pending.connection is connection else None

    def _resolve(self, connection: SwitchConnection, xid: int, sums: Sums | None = None) -> None:
        with self._lock:
            pending = self._pending_of(connection, xid)
            if pending is None:
                return
            del self._pending[xid]
        pending.reply.set_result(pending.failure or sums or bytes(pending.body))

    def _forgotten(self, connection: SwitchConnection) -> list[Pending]:
        """Remove and return the requests on an ended connection; call with the lock."""
        xids = [xid for xid, pending in self._pending.items() if pending.connection is connection]
        return [self._pending.pop(xid) for xid in xids]

    def _lose(self, lost: Iterable[Pending]) -> None:
        for pending in lost:
            error = "disconnected before answering: outcome unknown"
            failure = self._failure(pending.datapath, FailureKind.UNKNOWN, error)
            pending.reply.set_result(failure)

    # -- waiting: native threads ------------------------------------------------------------------

    def _answers(
        self, asked: Mapping[DatapathId, Asked | Failure], timeout_s: float
    ) -> dict[DatapathId, Answer]:
        """Wait for the answers of switches; a switch without an answer in time counts as failed."""
        self._await(
            [answer.reply for answer in asked.values() if isinstance(answer, Asked)], timeout_s
        )
        return {
            datapath: answer
            if isinstance(answer, Failure)
            else self._answer(datapath, answer, timeout_s)
            for datapath, answer in asked.items()
        }

    def _answer(
        self, datapath: DatapathId, asked: Asked, timeout_s: float, *, is_late: bool = False
    ) -> Answer:
        """The answer; a failure if the answer is still missing, and forget the request.

        The wait was over after ``timeout_s``, or, if ``is_late``, long after the answers of other
        switches.
        """
        if asked.reply.done():
            return asked.reply.result()
        with self._lock:
            self._pending.pop(asked.xid, None)
        if is_late:
            error = "no answer yet, long after the other switches: outcome unknown"
            return self._failure(datapath, FailureKind.LATE, error)
        error = f"no answer within {timeout_s:g} s: outcome unknown"
        return self._failure(datapath, FailureKind.UNKNOWN, error)

    def _await(self, replies: Collection[Reply[Any]], timeout_s: float, looks: int = LOOKS) -> None:
        """Wait until all are answered, or the time is up, without the hub's time to catch up.

        With many requests at once, the hub may take longer to send the last request than switches
        take to answer, and an answer that the hub has not read is not late.
        """
        together = Replies(replies)
        for _ in range(looks):
            if together.wait(timeout_s / looks):
                return
            self._let_hub_catch_up()

    def _let_hub_catch_up(self) -> None:
        """Wait until the hub has run all posted functions, and read all received messages."""
        caught_up = threading.Event()
        self._post(lambda: self._catch_up(caught_up.set))
        caught_up.wait(_HUB_S)

    # -- probes ---------------------------------------------------------------------------------

    def watch_probes(self, watcher: Callable[[int], None]) -> None:
        """Call ``watcher``, in the hub's thread, with the nonce of every unexpected probe."""
        self._probe_watcher = watcher

    def _probe_arrived(self, nonce: int) -> None:
        """Resolve the reply that expects ``nonce``, else call the watcher; in the hub's thread."""
        reply = self._probes.pop(nonce, None)
        if reply is not None:
            reply.set_result(None)
        elif self._probe_watcher is not None:
            self._probe_watcher(nonce)

    def expect_probe(self, nonce: int) -> Reply[None]:
        """A reply that is done when the probe with ``nonce`` comes in."""
        reply = self._probes[nonce] = Reply()
        return reply

    def await_probes(self, replies: Collection[Reply[None]], timeout_s: float) -> None:
        """Wait until all have come in, or the time is up, without the hub's time to catch up."""
        self._await(replies, timeout_s, _PROBE_LOOKS)

    def forget_probe(self, nonce: int) -> None:
        self._probes.pop(nonce, None)

    # -- words ----------------------------------------------------------------------------------

    def _next_xid(self) -> int:
        return _FIRST_XID + next(self._xids) % _XIDS

    def _name(self, datapath: DatapathId) -> str:
        return self._names.get(datapath, f"switch {datapath:#x}")

    def _failure(self, datapath: DatapathId, kind: FailureKind, error: str) -> Failure:
        return Failure(_STEP, self._name(datapath), kind, error)
