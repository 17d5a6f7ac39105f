"""Lines over a stream, for devices that answer each query with a line.

Blocking calls in native threads: a slow device stalls its own driver and nothing else. Time-outs
cover a whole exchange, not a single read, so a device that drips bytes can't hold a caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from drivers.transports.stream import ConnectionLostError, Deadline, Stream
from hydra.errors import DeviceUnavailable, OutcomeUnknown, ProtocolError


class LineDecoder(Protocol):
    """A codec's decoder: bytes in, lines out."""

    def receive(self, data: bytes) -> None: ...

    def next_line(self) -> str | None: ...


class LineTransport:
    """A connection to a device, opened on first use and again after every failure.

    ``decoder`` makes a fresh line decoder per connection; ``decode_error`` is the decoder's error
    for bytes outside its grammar. ``opening`` makes the lines that open a new connection: the first
    is sent after the device's greeting, each later line after the answer to the previous line. Used
    by one thread at a time.
    """

    def __init__(
        self,
        device: str,
        stream: Stream,
        *,
        decoder: Callable[[], LineDecoder],
        decode_error: type[Exception],
        timeout_s: float,
        opening: Callable[[], Sequence[bytes]] | None = None,
    ) -> None:
        self._device = device
        self._stream = stream
        self._new_decoder = decoder
        self._decode_error = decode_error
        self._timeout_s = timeout_s
        self._opening = opening
        self._decoder = decoder()

    @property
    def connected(self) -> bool:
        return self._stream.connected

    def open(self) -> None:
        """Connect, unless connected. Raises DeviceUnavailable."""
        self._connect(Deadline(self._timeout_s))

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        self._stream.close()

    def query(
        self,
        line: bytes,
        *,
        follows: bool = False,
        is_part: Callable[[str], bool] = lambda _: False,
        is_reply: Callable[[str], bool] = lambda _: True,
    ) -> str:
        """Send a line that changes nothing and return its reply.

        ``follows`` means that another exchange has just ended, so no check for unasked input is
        needed. If a line asks several things, some devices answer in several lines: as long as
        ``is_part`` says that more must come, another line is read, and joined by ``;``. Text for
        which ``is_reply`` is False was printed unasked, and is dropped.

        Raises DeviceUnavailable if the device can't be reached or does not answer in time, and
        ProtocolError for an answer outside the grammar.
        """
        try:
            return self._exchange(line, follows=follows, is_part=is_part, is_reply=is_reply)
        except ConnectionLostError as error:
            raise DeviceUnavailable(self._device, f"{error} ({self._stream.address})") from error

    def write(
        self,
        line: bytes,
        *,
        follows: bool = False,
        is_reply: Callable[[str], bool] = lambda _: True,
    ) -> str:
        """Send a line that changes the device and return its reply; the rest as in :meth:`query`.

        Raises DeviceUnavailable if nothing was sent, OutcomeUnknown if the reply got lost.
        """
        try:
            return self._exchange(line, follows=follows, is_reply=is_reply)
        except (ConnectionLostError, ProtocolError) as error:
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and the reply lost: {error} ({self._stream.address}); "
                "read the device back",
            ) from error

    def _exchange(
        self,
        line: bytes,
        *,
        follows: bool,
        is_reply: Callable[[str], bool],
        is_part: Callable[[str], bool] = lambda _: False,
    ) -> str:
        deadline = Deadline(self._timeout_s)
        if not (follows and self._stream.connected):
            self._connect(deadline)
        self._stream.send(line, deadline)
        try:
            while not is_reply(reply := self._read(deadline)):
                pass
            while is_part(reply):
                reply = f"{reply};{self._read(deadline)}"
        except self._decode_error as error:
            self.close()
            raise ProtocolError(self._device, str(error)) from error
        return reply

    def _read(self, deadline: Deadline) -> str:
        while (reply := self._decoder.next_line()) is None:
            self._decoder.receive(self._stream.receive(deadline))
        return reply

    def _connect(self, deadline: Deadline) -> None:
        if self._stream.connected and self._is_stale():
            self.close()
        if not self._stream.connected:
            lines = None if self._opening is None else self._opening()
            self._stream.connect(deadline)
            self._decoder = self._new_decoder()
            if lines is not None:
                self._begin(lines, deadline)

    def _begin(self, lines: Sequence[bytes], deadline: Deadline) -> None:
        """Hold the opening dialogue of a new connection. Raises DeviceUnavailable."""
        try:
            self._read(deadline)
            for line in lines:
                self._stream.send(line, deadline)
                self._read(deadline)
        except (ConnectionLostError, self._decode_error) as error:
            self.close()
            raise DeviceUnavailable(
                self._device, f"no session with {self._stream.address}: {error}"
            ) from error

    def _is_stale(self) -> bool:
        """True if the peer has gone, or left bytes that would be taken for the next reply."""
        try:
            if self._decoder.next_line() is not None:
                return True
            # A reply that ends with CR LF may leave the LF behind.
            return self._stream.waiting() not in (b"", b"\n")
        except (ConnectionLostError, self._decode_error):
            return True
