"""What switches were asked and have not answered yet, and how long that is waited for.

Replies arrive in the OpenFlow hub's thread and never block there; who waits for them is in a native
thread. What is asked on a connection is answered on that connection or not at all.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apps.openflow.lines import read_what_came
from apps.openflow.replies import Replies, Reply
from apps.openflow.seam import Post, Sums, SwitchConnection
from drivers.codecs.openflow.messages import MAX_MULTIPART_BYTES
from hydra.failures import Failure, FailureKind
from hydra.model import DatapathId

_FIRST_XID = 0x4000_0000
_XIDS = 0x4000_0000
_STEP = "openflow"
LOOKS = 20
"""Parts of a time-out: between two, the hub catches up."""
_PROBE_LOOKS = 4
"""The same for probes, of which many are waited for at once, each by itself."""
_HUB_S = 60.0
"""How long the hub is waited for at a time."""
Answer = bytes | Failure
"""The body of a reply, or what stood in its way."""
Counted = Answer | Sums
"""An answer to a request for counters, of which sums may be enough."""


@dataclass(slots=True)
class Pending:
    """A request under way: resolved by its barrier, its last statistics part or their refusal, or
    a lost switch.
    """

    datapath: DatapathId
    connection: SwitchConnection
    reply: Reply[Any]
    """Becomes an :data:`Answer`, or sums where they were asked for."""
    body: bytearray = field(default_factory=bytearray)
    failure: Failure | None = None
    ends_in_error: bool = False
    """True if an error is all of the answer: no barrier was sent behind the request."""


class Asked(NamedTuple):
    xid: int
    reply: Reply[Answer]


CatchUp = Callable[[Callable[[], None]], None]


def read_first(tell: Callable[[], None]) -> None:
    """Read what has come in from switches, then ``tell``."""
    read_what_came()
    tell()


class Requests:
    """Requests under way, by transaction id, and probes that are expected, by nonce."""

    def __init__(
        self, names: Mapping[DatapathId, str], post: Post, catch_up: CatchUp = read_first
    ) -> None:
        """``catch_up`` calls its argument once what has come in from switches has been read; called
        in the hub's thread.
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
            pending = self._asked_of(connection, xid)
            if pending is None:
                return
            if pending.failure is None:
                pending.failure = self._failure(pending.datapath, kind, error)
        if pending.ends_in_error:
            self._resolve(connection, xid)

    def role_replied(self, connection: SwitchConnection, xid: int, generation: int) -> None:
        with self._lock:
            pending = self._asked_of(connection, xid)
            if pending is not None:
                pending.body += generation.to_bytes(8, "big")
        self._resolve(connection, xid)

    def statistics_replied(
        self, connection: SwitchConnection, xid: int, body: bytes, *, more: bool
    ) -> None:
        with self._lock:
            pending = self._asked_of(connection, xid)
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

    def _asked_of(self, connection: SwitchConnection, xid: int) -> Pending | None:
        """None if nobody waits for this answer, or not on this connection; call with the lock."""
        pending = self._pending.get(xid)
        return pending if pending is not None and pending.connection is connection else None

    def _resolve(self, connection: SwitchConnection, xid: int, sums: Sums | None = None) -> None:
        with self._lock:
            pending = self._asked_of(connection, xid)
            if pending is None:
                return
            del self._pending[xid]
        pending.reply.set_result(pending.failure or sums or bytes(pending.body))

    def _forgotten(self, connection: SwitchConnection) -> list[Pending]:
        """What was asked on a connection that has ended, and is waited for no more; call with the
        lock.
        """
        xids = [xid for xid, one in self._pending.items() if one.connection is connection]
        return [self._pending.pop(xid) for xid in xids]

    def _lose(self, lost: Iterable[Pending]) -> None:
        for pending in lost:
            error = "disconnected before it answered: outcome unknown"
            failure = self._failure(pending.datapath, FailureKind.UNKNOWN, error)
            pending.reply.set_result(failure)

    # -- waiting: native threads ------------------------------------------------------------------

    def _answers(
        self, asked: Mapping[DatapathId, Asked | Failure], timeout_s: float
    ) -> dict[DatapathId, Answer]:
        """Wait for what switches answer; those that do not in time, never will."""
        self._await([one.reply for one in asked.values() if isinstance(one, Asked)], timeout_s)
        return {
            datapath: one if isinstance(one, Failure) else self._answer(datapath, one, timeout_s)
            for datapath, one in asked.items()
        }

    def _answer(
        self, datapath: DatapathId, one: Asked, timeout_s: float, *, is_late: bool = False
    ) -> Answer:
        """The answer, now that it is there, or waited for no more: since ``timeout_s`` have passed,
        or, if it ``is_late``, as others have answered long ago.
        """
        if one.reply.done():
            return one.reply.result()
        with self._lock:
            self._pending.pop(one.xid, None)
        if is_late:
            error = "no answer yet, long after those of others: outcome unknown"
            return self._failure(datapath, FailureKind.LATE, error)
        error = f"no answer within {timeout_s:g} s: outcome unknown"
        return self._failure(datapath, FailureKind.UNKNOWN, error)

    def _await(self, replies: Collection[Reply[Any]], timeout_s: float, looks: int = LOOKS) -> None:
        """Wait until all are answered, or the time is up: it counts while the hub sends and reads.

        Of many requests at once the hub may take longer to send the last than switches may take to
        answer, and an answer that it has not read is not late.
        """
        together = Replies(replies)
        for _ in range(looks):
            if together.wait(timeout_s / looks):
                return
            self._let_hub_catch_up()

    def _let_hub_catch_up(self) -> None:
        """Wait until the hub has done all that was posted to it, and read what has come in."""
        caught_up = threading.Event()
        self._post(lambda: self._catch_up(caught_up.set))
        caught_up.wait(_HUB_S)

    # -- probes ---------------------------------------------------------------------------------

    def watch_probes(self, heard: Callable[[int], None]) -> None:
        """Be told, in the hub's thread, the nonce of every probe that nobody else waits for."""
        self._probe_watcher = heard

    def _hear_probe(self, nonce: int) -> None:
        """Tell who expects it; in the hub's thread."""
        heard = self._probes.pop(nonce, None)
        if heard is not None:
            heard.set_result(None)
        elif self._probe_watcher is not None:
            self._probe_watcher(nonce)

    def expect_probe(self, nonce: int) -> Reply[None]:
        """A reply that is done when the probe with ``nonce`` comes in."""
        heard = self._probes[nonce] = Reply()
        return heard

    def await_probes(self, heard: Collection[Reply[None]], timeout_s: float) -> None:
        """Wait until all have come in, or the time is up, which counts while the hub works."""
        self._await(heard, timeout_s, _PROBE_LOOKS)

    def forget_probe(self, nonce: int) -> None:
        self._probes.pop(nonce, None)

    # -- words ----------------------------------------------------------------------------------

    def _next_xid(self) -> int:
        return _FIRST_XID + next(self._xids) % _XIDS

    def _name(self, datapath: DatapathId) -> str:
        return self._names.get(datapath, f"switch {datapath:#x}")

    def _failure(self, datapath: DatapathId, kind: FailureKind, error: str) -> Failure:
        return Failure(_STEP, self._name(datapath), kind, error)
