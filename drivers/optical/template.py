"""Optical switches that speak lines of text, in a language described by the configuration.

For devices without a driver of their own: ``options`` hold the commands to send and the replies to
expect, as described in :mod:`drivers.optical.template_options`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from pydantic import ValidationError

from drivers.codecs.terminal import End, TerminalDecoder, TerminalError, encode_line
from drivers.credentials import secret
from drivers.exclusive import exclusive
from drivers.optical.changes import Difference
from drivers.optical.simple import Step, SteppedSwitch
from drivers.optical.template_language import Language, LanguageError, matches, short
from drivers.optical.template_options import TemplateOptions, placeholders
from drivers.transports.lines import LineTransport
from drivers.transports.tcp import TcpStream
from hydra.config.devices import (
    endpoint_problems,
    login_problems,
    no_login_problems,
    option_problems,
)
from hydra.errors import DeviceError, Problem, ProtocolError
from hydra.model import CrossConnect, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch, PortState

CAPABILITIES: Final = OpticalCapabilities(unidirectional=True)
"""Capabilities of every device; options may add bulk changes and power readings."""

_T = TypeVar("_T")


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet. Raises DeviceError if its options are wrong."""
    try:
        options = TemplateOptions.model_validate(dict(plane.options))
    except ValidationError as error:
        raise DeviceError(plane.name, f"options of the template driver: {error}") from error
    kind = TemplateSwitch if options.power is None else MeteringTemplateSwitch
    return kind(plane, options, timeout_s)


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, options and login."""
    yield from endpoint_problems(plane.address)
    problems = list(option_problems(TemplateOptions, plane.options))
    yield from problems
    if problems:
        return
    steps = TemplateOptions.model_validate(dict(plane.options)).login
    if any(placeholders(step.send) for step in steps):
        yield from login_problems(plane.login)
    else:
        yield from no_login_problems(plane.login)


class TemplateSwitch(SteppedSwitch[LineTransport]):
    """An :class:`~hydra.roles.OpticalSwitch`.

    Ports have the usual numbers, ingress 1..N and egress N+1..N+M; ``output`` in a template or
    pattern is an egress port counted from 1. A change tears down first, then sets up, with as many
    commands as the language needs. Reading back shows failures that the device does not report.

    ``timeout_s`` covers one command, and the log-in before the command.
    """

    def __init__(self, plane: Plane, options: TemplateOptions, timeout_s: float) -> None:
        self._options = options
        self._language = Language(options)
        super().__init__(plane, timeout_s)

    @property
    def capabilities(self) -> OpticalCapabilities:
        return OpticalCapabilities(
            bulk=self._options.bulk,
            unidirectional=CAPABILITIES.unidirectional,
            power_readings=self._options.power is not None,
        )

    @exclusive
    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing."""
        self._session.open()

    def _reach(self) -> LineTransport:
        return LineTransport(
            self._name,
            TcpStream(self._name, self._plane.address),
            decoder=self._decoder,
            decode_error=TerminalError,
            timeout_s=self._timeout_s,
            opening=None if self._options.prompt is None else self._opening,
        )

    def _read_identity(self) -> DeviceIdentity:
        command = self._options.identity.command
        return self._ask(command, self._language.identity)

    def _read_size(self) -> tuple[int, int]:
        table = self._options.size
        if table is None:
            return self._plane.ports, self._plane.ports
        return self._ask(table.command, partial(self._language.size, table.row))

    def _listed(self) -> frozenset[CrossConnect]:
        parse = partial(self._language.cross_connects, size=self.size())
        return self._ask(self._options.cross_connects.command, parse)

    def _steps(self, change: Difference) -> Iterator[Step]:
        for command in self._language.moves(change.removed, change.added, self.size()):
            yield partial(self._command, command)

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        size, table = self.size(), self._options.port_states
        states: dict[int, PortState] = {}
        if table is not None:
            for command in self._language.port_queries(table, ports):
                parse = partial(self._language.port_states, table, size=size)
                states |= self._ask(command, parse)
        return states

    # --- the conversation -----------------------------------------------------------------------

    def _command(self, command: str) -> None:
        is_reply = partial(self._language.is_reply, command)
        reply = self._session.write(self._encoded(command), is_reply=is_reply)
        refusal = self._language.refusal(self._language.lines(command, reply))
        if refusal is not None:
            raise DeviceError(self._name, f"the device refuses {short(command)!r}: {refusal}")

    def _ask(self, command: str | None, parse: Callable[[list[str]], _T]) -> _T:
        """The parsed reply to a query; ``parse`` is given no lines if there is no ``command``."""
        if command is None:
            return parse([])
        is_reply = partial(self._language.is_reply, command)
        reply = self._session.query(self._encoded(command), is_reply=is_reply)
        lines = self._language.lines(command, reply)
        complaint = self._language.complaint(lines)
        if complaint is not None:
            raise DeviceError(self._name, f"the device refuses {short(command)!r}: {complaint}")
        try:
            return parse(lines)
        except LanguageError as error:
            # The reply may belong to another command: no later reply can be trusted.
            self._session.close()
            raise ProtocolError(self._name, f"in reply to {short(command)!r}: {error}") from error

    def _encoded(self, command: str) -> bytes:
        return encode_line(command, self._options.line_end)

    def _decoder(self) -> TerminalDecoder:
        options = self._options
        if options.prompt is None:
            return TerminalDecoder((), End(is_last=self._language.ends_reply))
        refuses = partial(matches, options.login_refused)
        opening = [End(question=step.expect, refuses=refuses) for step in options.login]
        opening.append(End(prompt=options.prompt, refuses=refuses))
        return TerminalDecoder(opening, End(prompt=options.prompt))

    def _opening(self) -> list[bytes]:
        """Lines that open a session; the password is fetched for this session alone."""
        login, known = self._plane.login, dict[str, str]()
        if login is not None:
            known = {"username": login.username, "password": secret(self._name, login)}
        lines = [step.send.format(**known) for step in self._options.login]
        try:
            return [self._encoded(line) for line in (*lines, *self._options.setup)]
        except TerminalError:
            # Not chained: the text that can't be sent may be a password.
            raise DeviceError(
                self._name, "the username or password has characters that can't be sent as a line"
            ) from None


class MeteringTemplateSwitch(TemplateSwitch):
    """A :class:`TemplateSwitch` and :class:`~hydra.roles.PowerMeter`."""

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at the given ports, in dBm; None where the device has no reading."""
        asked = self._asked(ports)
        size, table = self.size(), self._options.power
        readings: dict[int, float | None] = {}
        if table is not None and asked:
            for command in self._language.port_queries(table, asked):
                parse = partial(self._language.power_dbm, table, size=size)
                readings |= self._ask(command, parse)
        return {port: readings.get(port) for port in asked}
