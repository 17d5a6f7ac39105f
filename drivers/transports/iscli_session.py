"""A command-line session with an IBM or Lenovo switch, over any stream: log-in to log-out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from drivers.codecs import iscli
from drivers.codecs.iscli import IscliError, Pager, PasswordWanted, Reply, UserWanted
from drivers.credentials import secret
from drivers.transports.stream import ConnectionLostError, Deadline, Stream
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Login

_QUIET: Final = ("terminal-length 0", "no prompting")
"""Commands that turn off pager and questions; if firmware refuses, the session pages through."""
_WAKE: Final = b"\r"
"""Key that makes a console show its prompt."""
_ANSWERS: Final = 2
"""Questions for user and password; a third question means that the log-in was refused."""
_MOMENT_S: Final = 0.2
"""Silence after which a line that looks like a prompt counts as a prompt."""

_T = TypeVar("_T")


class IscliSession:
    """A session, opened on first use and again after every failure; one thread at a time.

    ``timeout_s`` covers one call with all its commands. ``console`` is the login for a stream
    without a login of its own, such as a serial line.
    """

    def __init__(
        self, device: str, stream: Stream, *, timeout_s: float, console: Login | None = None
    ) -> None:
        self._device = device
        self._stream = stream
        self._console = console
        self._timeout_s = timeout_s
        self._terminal = iscli.Terminal()

    @property
    def connected(self) -> bool:
        return self._stream.connected

    def open(self) -> None:
        """Log in, unless logged in already. Raises DeviceUnavailable or DeviceError."""
        self._reading(self._ensure, Deadline(self._timeout_s))

    def close(self) -> None:
        """Drop the connection; safe to repeat."""
        self._stream.close()

    def show(self, command: str, timeout_s: float | None = None) -> tuple[str, ...]:
        """The output of a command that changes nothing, within ``timeout_s`` if given.

        Raises DeviceUnavailable, ProtocolError, or DeviceError if the switch refuses the command.
        """

        def ask(deadline: Deadline) -> tuple[str, ...]:
            self._ensure(deadline)
            reply = self._run(command, deadline)
            if reply.error is not None:
                raise DeviceError(self._device, f"{command}: {reply.error}")
            return reply.lines

        return self._reading(ask, Deadline(self._timeout_s if timeout_s is None else timeout_s))

    def configure(self, commands: Iterable[str]) -> None:
        """Carry out commands of the configuration mode, in order.

        Raises DeviceUnavailable or DeviceError if nothing was changed, and OutcomeUnknown if the
        switch refused a later command or was lost on the way: earlier commands stand.
        """
        deadline = Deadline(self._timeout_s)
        self._reading(self._ensure, deadline)
        self._reading(self._enter_configuration, deadline)
        done: list[str] = []
        try:
            for command in commands:
                reply = self._run(command, deadline)
                if reply.error is not None:
                    self._run("end", deadline)
                    raise self._refused(command, reply.error, done)
                done.append(command)
            self._run("end", deadline)
        except (ConnectionLostError, ProtocolError) as error:
            self.close()
            raise OutcomeUnknown(
                self._device,
                f"commands were sent and not confirmed: {error} ({self._stream.address}); "
                "read the device back",
            ) from error

    def _refused(self, command: str, error: str, done: list[str]) -> DeviceError:
        # The first command only chooses ports.
        if len(done) <= 1:
            return DeviceError(self._device, f"{command}: {error}; nothing was changed")
        return OutcomeUnknown(
            self._device,
            f"{command}: {error}; the {len(done)} commands before were carried out: "
            "read the device back",
        )

    def _enter_configuration(self, deadline: Deadline) -> None:
        reply = self._run("configure terminal", deadline)
        if reply.error is not None or not reply.mode.startswith("("):
            raise DeviceError(
                self._device,
                f"configure terminal: {reply.error or 'the prompt stays ' + reply.mode}; "
                "log in as a user who may configure the switch",
            )

    # --- the terminal ---------------------------------------------------------------------------

    def _reading(self, call: Callable[[Deadline], _T], deadline: Deadline) -> _T:
        try:
            return call(deadline)
        except ConnectionLostError as error:
            raise DeviceUnavailable(self._device, f"{error} ({self._stream.address})") from error

    def _ensure(self, deadline: Deadline) -> None:
        if self._stream.connected and self._is_stale():
            self.close()
        if not self._stream.connected:
            self._stream.connect(deadline)
            self._log_in(deadline)

    def _is_stale(self) -> bool:
        """True if the switch has gone, or asks for a login; other text sent unasked is dropped."""
        try:
            self._terminal.receive(self._stream.waiting())
            while (event := self._terminal.next_event()) is not None:
                if isinstance(event, PasswordWanted):
                    return True
        except (ConnectionLostError, IscliError):
            return True
        return self._terminal.asks_for_user

    def _log_in(self, deadline: Deadline) -> None:
        self._terminal = iscli.Terminal()
        if self._console is not None:
            self._stream.send(_WAKE, deadline)
        reply = self._reach_prompt(deadline)
        if reply.mode == ">":
            reply = self._run("enable", deadline)
        if not reply.mode.endswith("#"):
            self.close()
            raise DeviceError(
                self._device,
                f"enable: {reply.error or 'no privileges'}; log in as an administrator",
            )
        if reply.mode != "#":  # the console was left in the configuration mode
            self._run("end", deadline)
        for command in _QUIET:
            self._run(command, deadline)

    def _reach_prompt(self, deadline: Deadline) -> Reply:
        """Read the greeting, and log in if a console asks; return the reply to the mark."""
        answers, marked = 0, False
        while True:
            event = self._event()
            if event is None:
                if marked or not self._terminal.may_be_prompt:
                    self._terminal.receive(self._stream.receive(deadline))
                elif self._nothing_follows():
                    self._stream.send(iscli.encode_line(iscli.MARK), deadline)
                    marked = True
            elif isinstance(event, Pager):
                # An earlier user left the console in the middle of an output.
                self._stream.send(iscli.PAGER_KEY, deadline)
            elif isinstance(event, Reply):
                if event.echo == iscli.MARK:
                    return event
            elif self._console is None or answers == _ANSWERS:
                self.close()
                raise DeviceError(self._device, "the switch refuses the login; check login")
            elif not marked:
                self._answer(event, self._console, deadline)
                answers += 1
            elif isinstance(event, PasswordWanted):
                # The supposed prompt was a question for a user, and the mark was taken for the
                # user's name.
                self._stream.send(_WAKE, deadline)
                marked = False

    def _nothing_follows(self) -> bool:
        """True if the switch has sent nothing for a moment: the switch waits for a command."""
        time.sleep(_MOMENT_S)
        data = self._stream.waiting()
        self._terminal.receive(data)
        return not data

    def _answer(
        self, event: UserWanted | PasswordWanted, console: Login, deadline: Deadline
    ) -> None:
        asked = isinstance(event, PasswordWanted)
        answer = secret(self._device, console) if asked else console.username
        try:
            line = iscli.encode_line(answer)
        except IscliError:  # not chained: the error shows the secret
            self.close()
            raise DeviceError(
                self._device,
                f"the {'password' if asked else 'username'} can't be typed at a console, which "
                "takes printable ASCII only; give the switch another one",
            ) from None
        self._stream.send(line, deadline)

    def _run(self, command: str, deadline: Deadline) -> Reply:
        """The reply to a command. Raises ConnectionLostError, ProtocolError or DeviceError."""
        self._terminal.expect(command)
        self._stream.send(iscli.encode_line(command), deadline)
        while True:
            event = self._next_event(deadline)
            if isinstance(event, Pager):
                self._stream.send(iscli.PAGER_KEY, deadline)
            elif isinstance(event, PasswordWanted | UserWanted):
                self.close()
                raise DeviceError(
                    self._device,
                    f"{command}: the switch asks for another password; log in as an administrator",
                )
            elif event.echo:
                return event

    def _next_event(self, deadline: Deadline) -> iscli.Event:
        while (event := self._event()) is None:
            self._terminal.receive(self._stream.receive(deadline))
        return event

    def _event(self) -> iscli.Event | None:
        try:
            return self._terminal.next_event()
        except IscliError as error:
            self.close()
            raise ProtocolError(self._device, str(error)) from error
