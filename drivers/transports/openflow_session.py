"""An OpenFlow 1.3 connection to a listening switch, one request at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from drivers.codecs.openflow.messages import (
    TYPE_BARRIER_REPLY,
    TYPE_ECHO_REPLY,
    TYPE_ECHO_REQUEST,
    TYPE_ERROR,
    TYPE_HELLO,
    TYPE_MULTIPART_REPLY,
    Message,
    MessageDecoder,
    OpenFlowError,
    describe_error,
    encode,
    encode_barrier,
    encode_multipart_request,
    joined,
    split_multipart,
)
from drivers.transports.stream import ConnectionLostError, Deadline, Stream
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError

_XIDS: Final = 0x7FFF_FFFF


class _RefusedError(Exception):
    """The switch answered with an OpenFlow error."""


class OpenFlowSession:
    """A session, opened on first use and again after every failure; one thread at a time."""

    def __init__(self, device: str, stream: Stream, *, timeout_s: float) -> None:
        self._device = device
        self._stream = stream
        self._timeout_s = timeout_s
        self._decoder = MessageDecoder()
        self._xids = itertools.count(1)

    def open(self) -> None:
        """Connect and greet, unless done already. Raises DeviceUnavailable."""
        self._connect(Deadline(self._timeout_s))

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        self._stream.close()

    def query(self, kind: int, body: bytes = b"") -> bytes:
        """The body of a multipart reply, its parts joined.

        Raises DeviceUnavailable, ProtocolError, and DeviceError if the switch refuses.
        """
        deadline = Deadline(self._timeout_s)
        self._connect(deadline)
        try:
            return self._multipart(kind, body, deadline)
        except ConnectionLostError as error:
            raise DeviceUnavailable(self._device, f"{error} ({self._stream.address})") from error
        except OpenFlowError as error:
            self.close()
            raise ProtocolError(self._device, str(error)) from error
        except _RefusedError as error:
            raise DeviceError(self._device, f"the switch refuses a query: {error}") from error

    def write(self, messages: Callable[[int], bytes]) -> None:
        """Send ``messages(transaction id)``; return once a barrier confirmed them.

        Raises DeviceUnavailable if nothing was sent, DeviceError if the switch refused anything,
        OutcomeUnknown if the switch did not answer.
        """
        deadline = Deadline(self._timeout_s)
        self._connect(deadline)
        xid, barrier = self._next_xid(), self._next_xid()
        try:
            self._stream.send(messages(xid) + encode_barrier(barrier), deadline)
            self._await(TYPE_BARRIER_REPLY, barrier, deadline, errors_of=xid)
        except (ConnectionLostError, OpenFlowError) as error:
            self.close()
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and not confirmed: {error} ({self._stream.address}); "
                "read the device back",
            ) from error
        except _RefusedError as error:
            raise DeviceError(self._device, f"the switch refuses a change: {error}") from error

    def _multipart(self, kind: int, body: bytes, deadline: Deadline) -> bytes:
        xid = self._next_xid()
        self._stream.send(encode_multipart_request(kind, xid, body), deadline)
        parts: list[bytes] = []
        more = True
        while more:
            reply = self._await(TYPE_MULTIPART_REPLY, xid, deadline, errors_of=xid)
            replied, more, part = split_multipart(reply.body)
            if replied != kind:
                raise OpenFlowError(f"a multipart reply of kind {replied} to a request of {kind}")
            parts.append(part)
        return joined(parts)

    def _await(self, kind: int, xid: int, deadline: Deadline, *, errors_of: int) -> Message:
        """The message of this type and id; matching errors raise, other messages are dropped."""
        refusal: str | None = None
        while True:
            message = self._receive(deadline)
            if message.type == TYPE_ERROR and message.xid in (errors_of, xid):
                refusal = refusal or describe_error(message.body)
                # A barrier is answered even after an error; a failed query is not.
                if kind != TYPE_BARRIER_REPLY:
                    raise _RefusedError(refusal)
            elif message.type == kind and message.xid == xid:
                if refusal is not None:
                    raise _RefusedError(refusal)
                return message

    def _receive(self, deadline: Deadline) -> Message:
        """The next message that is no echo request; echo requests are answered."""
        while True:
            while (message := self._decoder.next_message()) is None:
                self._decoder.receive(self._stream.receive(deadline))
            if message.type != TYPE_ECHO_REQUEST:
                return message
            self._stream.send(encode(TYPE_ECHO_REPLY, message.xid, message.body), deadline)

    def _connect(self, deadline: Deadline) -> None:
        if self._stream.connected:
            self._catch_up(deadline)
        if self._stream.connected:
            return
        self._stream.connect(deadline)
        self._decoder = MessageDecoder()
        try:
            self._stream.send(encode(TYPE_HELLO, self._next_xid()), deadline)
            while (message := self._receive(deadline)).type != TYPE_HELLO:
                if message.type == TYPE_ERROR:
                    raise OpenFlowError(describe_error(message.body))
        except (ConnectionLostError, OpenFlowError) as error:
            self.close()
            raise DeviceUnavailable(
                self._device, f"no OpenFlow 1.3 session with {self._stream.address}: {error}"
            ) from error

    def _catch_up(self, deadline: Deadline) -> None:
        """Answer echo requests and drop late replies; close a dead connection."""
        try:
            self._decoder.receive(self._stream.waiting())
            while (message := self._decoder.next_message()) is not None:
                if message.type == TYPE_ECHO_REQUEST:
                    reply = encode(TYPE_ECHO_REPLY, message.xid, message.body)
                    self._stream.send(reply, deadline)
        except (ConnectionLostError, OpenFlowError):
            self.close()

    def _next_xid(self) -> int:
        return next(self._xids) % _XIDS
