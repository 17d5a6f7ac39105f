"""A TL1 session over a stream: replies find their commands by ctag, reports wait to be fetched.

Several commands may be under way at once. If the device has logged the session out, the session
logs in again and repeats the commands refused for lack of a login: a refused command has done
nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from drivers.codecs import tl1
from drivers.transports.stream import ConnectionLostError, Deadline, Stream
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError

_log: Final = logging.getLogger(__name__)
_MAX_REPORTS: Final = 1000
_CTAGS: Final = 999_999
_READS: Final = 8
_FAREWELL_S: Final = 1.0
"""Longest wait for the answer to a log-out."""

Ask = Callable[[tl1.Command], tl1.Reply]


class Tl1Session:
    """A session that logs in on first use and again after every failure. One thread at a time.

    ``log_in`` gets a function that sends a command and returns its reply; ``log_in`` may raise
    DeviceError. ``timeout_s`` limits each command, from its sending to the end of its reply.
    """

    def __init__(
        self,
        device: str,
        stream: Stream,
        dialect: tl1.Dialect,
        *,
        log_in: Callable[[Ask], None],
        timeout_s: float,
    ) -> None:
        self._device = device
        self._stream = stream
        self._dialect = dialect
        self._log_in = log_in
        self._timeout_s = timeout_s
        self._decoder = tl1.Decoder(dialect.prompts)
        self._ctags = itertools.count()
        self._reports: deque[tl1.Autonomous] = deque(maxlen=_MAX_REPORTS)

    @property
    def connected(self) -> bool:
        return self._stream.connected

    def open(self) -> None:
        """Connect and log in, unless done already. Raises DeviceUnavailable, DeviceError."""
        if self._stream.connected:
            self._take_waiting()
        if not self._stream.connected:
            self._stream.connect(Deadline(self._timeout_s))
            self._decoder = tl1.Decoder(self._dialect.prompts)
            self._authenticate()

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        self._stream.close()

    def leave(self, log_out: tl1.Command | None) -> None:
        """Log out, if ``log_out`` is given, and drop the connection; safe to repeat.

        Without a log-out, the device counts the session until its time-out, and on a serial line
        the next user would be taken for the present user.
        """
        if log_out is not None and self._stream.connected:
            with contextlib.suppress(ConnectionLostError, DeviceError):
                self._send_and_collect([log_out], 1, min(self._timeout_s, _FAREWELL_S))
        self.close()

    def query(self, command: tl1.Command) -> tl1.Reply:
        """The reply, perhaps a refusal, to a command that changes nothing.

        Raises DeviceUnavailable if the device can't be reached or does not answer in time, and
        ProtocolError for an answer outside the grammar.
        """
        self.open()
        try:
            return self._exchange([command], 1)[0]
        except ConnectionLostError as error:
            raise DeviceUnavailable(self._device, f"{error} ({self._stream.address})") from error

    def write_all(self, commands: Sequence[tl1.Command], *, window: int = 1) -> list[tl1.Reply]:
        """Replies, perhaps refusals, to commands that change the device, up to ``window`` at once.

        Raises DeviceUnavailable if nothing was sent, OutcomeUnknown if a reply got lost: then any
        of the commands may have taken effect. DeviceError: the login is refused, and nothing was
        changed.
        """
        self.open()
        try:
            return self._exchange(commands, window, changes=True)
        except (ConnectionLostError, DeviceUnavailable, ProtocolError) as error:
            raise OutcomeUnknown(
                self._device,
                f"a change was sent and its reply lost: {error} ({self._stream.address}); "
                "read the device back",
            ) from error

    def reports(self) -> tuple[tl1.Autonomous, ...]:
        """Messages that the device sent unasked since the last call; never waits."""
        if self._stream.connected:
            self._take_waiting()
        taken = tuple(self._reports)
        self._reports.clear()
        return taken

    def _authenticate(self) -> None:
        """Raises DeviceUnavailable or DeviceError, and has then dropped the connection."""
        try:
            self._log_in(lambda command: self._send_and_collect([command], 1)[0])
        except ConnectionLostError as error:
            raise DeviceUnavailable(
                self._device, f"while logging in: {error} ({self._stream.address})"
            ) from error
        except DeviceError:
            self.close()
            raise

    def _exchange(
        self, commands: Sequence[tl1.Command], window: int, *, changes: bool = False
    ) -> list[tl1.Reply]:
        replies = self._send_and_collect(commands, window)
        refused = [n for n, reply in enumerate(replies) if self._dialect.is_logged_out(reply)]
        if refused:
            _log.info("%s: the session was logged out; logging in again", self._device)
            try:
                self._authenticate()
            except DeviceError as error:
                done = sum(reply.completion is not tl1.Completion.DENIED for reply in replies)
                if not changes or not done:
                    raise
                raise OutcomeUnknown(
                    self._device,
                    f"the session was logged out after {done} of {len(commands)} commands were "
                    f"carried out: {error}; read the device back",
                ) from error
            again = self._send_and_collect([commands[n] for n in refused], window)
            for number, reply in zip(refused, again, strict=True):
                replies[number] = reply
        return replies

    def _send_and_collect(
        self, commands: Sequence[tl1.Command], window: int, timeout_s: float | None = None
    ) -> list[tl1.Reply]:
        """Replies in the order of the commands, for any order of arrival."""
        replies: dict[int, tl1.Reply] = {}
        under_way: dict[str, int] = {}
        ctags = [f"{next(self._ctags) % _CTAGS + 1}" for _ in commands]
        # All encoded before the first is sent: an invalid command leaves none under way.
        encoded = [
            self._encoded(command, ctag) for command, ctag in zip(commands, ctags, strict=True)
        ]
        to_send = deque(enumerate(encoded))
        while len(replies) < len(commands):
            deadline = Deadline(self._timeout_s if timeout_s is None else timeout_s)
            while to_send and len(under_way) < window:
                number, data = to_send.popleft()
                self._stream.send(data, deadline)
                under_way[ctags[number]] = number
            reply = self._next_reply(under_way, deadline)
            replies[under_way.pop(reply.ctag)] = reply
        return [replies[number] for number in range(len(commands))]

    def _encoded(self, command: tl1.Command, ctag: str) -> bytes:
        try:
            return (tl1.encode_command(command, ctag) + self._dialect.line_end).encode("ascii")
        except tl1.Tl1Error as error:
            raise DeviceError(self._device, str(error)) from error

    def _next_reply(self, under_way: dict[str, int], deadline: Deadline) -> tl1.Reply:
        while True:
            event = self._next_event()
            if event is None:
                self._decoder.receive(self._stream.receive(deadline))
            elif isinstance(event, tl1.Reply) and event.ctag in under_way:
                return event
            else:
                self._set_aside(event)

    def _next_event(self) -> tl1.Event | None:
        try:
            return self._decoder.next_event()
        except tl1.Tl1Error as error:
            self.close()
            raise ProtocolError(self._device, str(error)) from error

    def _set_aside(self, event: tl1.Event) -> None:
        match event:
            case tl1.Autonomous():
                self._reports.append(event)
            case tl1.Reply():  # to a command that was given up, or to none
                _log.warning("%s: dropped a reply with ctag %s", self._device, event.ctag)
            case tl1.Acknowledgement() | tl1.Echo():
                pass  # the reply follows; an echo may hold a password and is never logged

    def _take_waiting(self) -> None:
        try:
            for _ in range(_READS):  # a device that never stops talking must not hold a caller
                self._decoder.receive(data := self._stream.waiting())
                while (event := self._next_event()) is not None:
                    self._set_aside(event)
                if not data:
                    break
        except (ConnectionLostError, ProtocolError) as error:
            _log.info("%s: %s", self._device, error)
            self.close()
