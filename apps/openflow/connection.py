"""A switch's connection: as seen by the package's handshake, and as seen by the controller."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from apps.openflow import interface
from apps.openflow.interface import Peer
from apps.openflow.limits import ECHO_LOOKS, ECHO_S
from apps.openflow.lines import Lines
from apps.openflow.package import controller, handler, ofproto_v1_3_parser


class _NoSocket:
    """Stand-in for a socket: the package sets options on the stand-in, and the real socket's
    stay.
    """

    def setsockopt(self, *_option: int) -> None:
        pass

    def settimeout(self, _seconds: float) -> None:
        pass


class Datapath(controller.Datapath):
    """A switch as seen by the package's handshake and parsers; has no thread of its own."""

    def __init__(
        self,
        connection: socket.socket,
        peer: Peer,
        lines: Lines,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.line = 0
        """Number of the connection in ``lines``, once the switch was greeted."""
        self.connection = Connection(self, loop)
        self.is_auxiliary = False
        self.is_stranger = False
        """True if the switch is not part of the fabric: only its echoes are read."""
        self.refused_for: str | None = None
        """Reason for the refusal, while the switch is asked for its datapath id."""
        super().__init__(_NoSocket(), peer)
        self.socket = connection
        self._lines = lines

    def send(self, buf: bytes, close_socket: bool = False) -> bool:
        """Replaces the package's ``send``; does not wait until the switch reads."""
        return self._lines.send(self.line, buf, close_socket)


class Connection:
    """A :class:`~apps.openflow.interface.SwitchConnection`."""

    __slots__ = ("_datapath", "_loop", "_unanswered")

    def __init__(self, datapath: Datapath, loop: asyncio.AbstractEventLoop) -> None:
        self._datapath = datapath
        self._loop = loop
        self._unanswered: set[int] = set()

    @property
    def address(self) -> str:
        return interface.address_in_words(self._datapath.address)

    def send(self, message: bytes) -> None:
        self._datapath.send(message)

    def ask(self, report: Callable[[bool], None]) -> None:
        request = ofproto_v1_3_parser.OFPEchoRequest(self._datapath)
        xid = self._datapath.set_xid(request)
        self._unanswered.add(xid)
        self._datapath.send_msg(request)
        self._look(xid, report, ECHO_LOOKS)

    def _look(self, xid: int, report: Callable[[bool], None], looks: int) -> None:
        """Wait in many short steps: the loop reads between steps, so a pause of the loop counts
        once.
        """
        if xid in self._unanswered and looks:
            self._loop.call_later(ECHO_S / ECHO_LOOKS, self._look, xid, report, looks - 1)
            return
        answered = xid not in self._unanswered
        self._unanswered.discard(xid)
        report(answered)

    def answered(self, xid: int) -> None:
        """Note the answer to an echo request."""
        self._unanswered.discard(xid)

    def close(self) -> None:
        self._datapath.set_state(handler.DEAD_DISPATCHER)
        with contextlib.suppress(OSError):
            self._datapath.socket.shutdown(socket.SHUT_RDWR)
