"""Switches' connections: a C thread reads and writes them (docs/decisions/0026)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apps.openflow import _lines
from apps.openflow.limits import (
    BURST,
    ECHO_EVERY_S,
    FLOODED_WORDS,
    IN_A_ROW,
    MESSAGES_PER_S,
    MOST_WAITING_BYTES,
    SILENT_WORDS,
    SOCKET_S,
    UNANSWERED_ECHOES,
)
from apps.openflow.refusals import ForeignProtocol

LOG = logging.getLogger("hydra.framework")
_LINES_IN_A_ROW: Final = 32
"""Switches read before the hub does something else."""
_MOST_READY_BYTES: Final = 1 << 17
"""Unread messages of a switch, beyond which further messages stay in the connection."""
_MOST_READY_IN_ALL_BYTES: Final = 1 << 26
_CUT_OFF: Final = {
    _lines.SILENT: SILENT_WORDS,
    _lines.STALLED: f"the switch read nothing for {SOCKET_S:g} s while more was sent",
    _lines.FLOODED: FLOODED_WORDS,
}
Ended = Callable[[BaseException | None], None]
"""Called once at a connection's end, with the exception raised by its messages, if any."""


@dataclass(slots=True)
class _Served:
    datapath: Any
    ended: Ended | None
    """None after the call."""


class Lines:
    """Connections of all switches; used in the loop only.

    The C thread answers and sends echo requests, even while the interpreter is busy. Other messages
    come in batches; each message is handled before the next is taken. Messages beyond a switch's
    turn, or beyond MESSAGES_PER_S, wait in the thread, and then in the switch's own buffers.

    ``read`` handles a message, and returns False once its connection is to be read no more.
    """

    def __init__(self, read: Callable[[Any, bytes], bool]) -> None:
        self._native = _lines.Lines(
            echo_s=ECHO_EVERY_S,
            unanswered=UNANSWERED_ECHOES,
            stalled_s=SOCKET_S,
            most_ready=_MOST_READY_BYTES,
            most_ready_in_all=_MOST_READY_IN_ALL_BYTES,
            most_waiting=MOST_WAITING_BYTES,
            messages_per_s=MESSAGES_PER_S,
            burst=BURST,
        )
        self._read = read
        self._served: dict[int, _Served] = {}
        _all[:] = [self]

    def fileno(self) -> int:
        """Descriptor that is readable while there are messages to take."""
        return self._native.fileno()

    def begin(self, datapath: Any, ended: Ended) -> None:
        """Greet the switch, and start handing on the switch's messages."""
        hello = datapath.ofproto_parser.OFPHello(datapath)
        datapath.set_xid(hello)
        hello.serialize()
        line = self._native.adopt(datapath.socket.fileno(), hello.buf)
        datapath.line = line
        self._served[line] = _Served(datapath, ended)

    def release(self, datapath: Any) -> None:
        """Forget a connection; afterwards the socket may be closed."""
        del self._served[datapath.line]
        self._native.release(datapath.line)
        datapath.is_active = False

    def ignore(self, datapath: Any) -> None:
        """Read nothing but echoes from a switch."""
        self._native.ignore(datapath.line)

    def send(self, line: int, message: bytes, last: bool) -> bool:
        """Send, after earlier messages; does not wait until the switch reads."""
        return self._native.send(line, message, last)

    def read(self) -> None:
        """Hand on the messages received until now, at most one turn of messages from each
        switch.
        """
        for _ in range(len(self._served) // _LINES_IN_A_ROW + 1):
            if not self.take():
                break

    def take(self) -> bool:
        """Hand on some of the received messages; False if there were none."""
        some = self._native.take(_LINES_IN_A_ROW, IN_A_ROW)
        for line, messages, end, error in some:
            if line in self._served:
                self._hand_on(self._served[line], messages, end, error)
        return bool(some)

    def _hand_on(self, served: _Served, messages: Sequence[bytes], end: int, error: int) -> None:
        if served.ended is None:
            return
        raised: Exception | None = None
        try:
            for message in messages:
                if not self._read(served.datapath, message):
                    break
        except Exception as caught:  # a parser may raise anything at bad bytes
            raised = caught
        if raised is None and end == _lines.OPEN:
            return
        if end == _lines.FOREIGN:
            raised = raised or ForeignProtocol(error)
        if end == _lines.MALFORMED:
            raised = raised or ValueError(f"a message of {error} bytes, its header included")
        if end in _CUT_OFF:
            address = served.datapath.address[0]
            LOG.warning("the switch at %s is cut off: %s", address, _CUT_OFF[end])
        ended, served.ended = served.ended, None
        ended(raised)


_all: list[Lines] = []


def read_waiting_messages() -> None:
    """Hand on the messages that switches have sent until now; in the loop only."""
    for lines in _all:
        lines.read()
