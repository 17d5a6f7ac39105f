"""Common part of the drivers of optical switches with TL1: log-in, changes, alarms."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from drivers.codecs import tl1, tl1_values
from drivers.credentials import secret
from drivers.exclusive import exclusive
from drivers.looks import looks
from drivers.optical.base import BaseSwitch
from drivers.optical.changes import (
    Difference,
    check_ports,
    check_untaken,
    difference,
    not_made,
    shortfall,
    shown,
    unconfirmed,
)
from drivers.optical.input_power import check_input_power
from drivers.transports.stream import Stream
from drivers.transports.tl1_session import Ask, Tl1Session
from hydra.errors import DeviceError, ProtocolError
from hydra.model import CrossConnect, Login
from hydra.roles import (
    Alarm,
    Mirrors,
    Severity,
)

_log: Final = logging.getLogger(__name__)

_SLOWEST_POLL_S: Final = 1.0
_SHOWN: Final = 4
"""Largest number of refusals in an error message."""
_FAILURES: Final = {
    tl1.Completion.DENIED: "refused",
    tl1.Completion.PARTIAL: "carried out in part",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CrossConnectState:
    """State of an existing cross-connect, by the device's word."""

    works: bool
    trouble: str = ""
    """The trouble, in the device's own words."""
    may_settle: bool = False
    """True if the cross-connect may still come to work unaided."""
    locked_by: str = ""
    """User whose lock keeps other users from tearing down; empty: not locked."""


WORKS: Final = CrossConnectState(works=True)
CrossConnectStates = Mapping[CrossConnect, CrossConnectState]


class Tl1Switch(BaseSwitch):
    """An :class:`~hydra.roles.OpticalSwitch` without the parts that differ between vendors.

    A change tears down and sets up, then reads back until the device says that everything wanted
    works, at most for ``timeout_s``: light may come only after a command was COMPLD. An existing
    cross-connect that does not work is made anew when asked for again.
    """

    DIALECT: ClassVar[tl1.Dialect]
    LATE: ClassVar[bool] = False
    """True if cross-connects may appear only after their command was COMPLD."""

    def __init__(
        self,
        name: str,
        stream: Stream,
        login: Login | None,
        *,
        timeout_s: float,
        max_input_dbm: float | None = None,
    ) -> None:
        super().__init__(name)
        self._max_input_dbm = max_input_dbm
        self._login = login
        self._timeout_s = timeout_s
        self._late = self.LATE
        self._begun = False
        self._session = Tl1Session(
            name, stream, self.DIALECT, log_in=self._log_in, timeout_s=timeout_s
        )

    @exclusive
    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing."""
        self._session.open()

    def _drop(self) -> None:
        """Log out, and drop the connection."""
        log_out = None
        if self._login is not None:
            with suppress(tl1.Tl1Error):  # a username invalid in TL1 never logged in
                log_out = tl1.logout(self._login.username)
        self._session.leave(log_out)

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """All existing cross-connects, lit or dark; read from the device."""
        return self.mirrors().present

    @exclusive
    def mirrors(self) -> Mirrors:
        """Existing cross-connects, and the dark cross-connects; read from the device."""
        standings = self._standings()
        dark = (cross for cross, standing in standings.items() if not standing.works)
        return Mirrors(frozenset(standings), frozenset(dark))

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down, then set up; return once the device says that everything wanted works."""
        check_ports(self._name, self.size(), {*disconnect, *connect})
        standings = self._standings()
        change = difference(self._name, standings.keys(), disconnect, connect)
        broken = {c for c in connect if c in standings and not standings[c].works}
        change = Difference(change.removed | broken, change.added | broken, change.wanted)
        check_untaken(self._name, change.added, self._taken)
        self._check_locks({c: standings[c].locked_by for c in change.removed})
        if change:
            self._check_light(change.added)
            self._check_result(change, self._carry_out(change))

    @abstractmethod
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]: ...

    # --- vendors' parts -------------------------------------------------------------------------

    @abstractmethod
    def _standings(self) -> CrossConnectStates:
        """Every existing cross-connect."""

    @abstractmethod
    def _remove(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        """Tear down; return the device's refusals, with their reasons."""

    @abstractmethod
    def _add(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        """Set up; return the device's refusals, with their reasons."""

    # --- changes --------------------------------------------------------------------------------

    def _check_light(self, added: Collection[CrossConnect]) -> None:
        check_input_power(self._name, self._max_input_dbm, added, self.power_dbm)

    def _check_locks(self, holders: Mapping[CrossConnect, str]) -> None:
        """Raises DeviceError for a cross-connect locked by another user."""
        ours = "" if self._login is None else self._login.username
        for cross_connect, user in sorted(holders.items()):
            if user not in ("", ours):
                raise DeviceError(
                    self._name,
                    f"can't disconnect {shown([cross_connect])}: locked by user {user}; have the "
                    "connection unlocked",
                )

    def _carry_out(self, change: Difference) -> list[str]:
        self._begun = False
        # A driver refuses impossible removals before anything moves.
        refused = self._remove(sorted(change.removed)) if change.removed else []
        return refused + (self._add(sorted(change.added)) if change.added else [])

    def _check_result(self, change: Difference, refused: Sequence[str]) -> None:
        try:
            standings = self._settled(change, patient=not refused)
        except DeviceError as error:  # if the device refuses the read, too, the outcome is unknown
            raise unconfirmed(self._name, error) from error
        ailing = {c: s for c in change.added if (s := standings.get(c)) and not s.works}
        troubles = [
            f"{c.ingress} to {c.egress} {standing.trouble}"
            for c, standing in sorted(ailing.items())
        ]
        problems = [
            *_spelt_out(refused),
            *shortfall(change, standings.keys()),
            *_spelt_out(troubles),
        ]
        if problems:
            raise not_made(self._name, problems)

    def _settled(self, change: Difference, *, patient: bool) -> CrossConnectStates:
        for _ in looks(self._timeout_s, _SLOWEST_POLL_S):
            standings = self._standings()
            if not (patient and any(self._may_settle(standings.get(c)) for c in change.added)):
                break
        return standings

    def _may_settle(self, standing: CrossConnectState | None) -> bool:
        if standing is None:
            return self._late
        return not standing.works and standing.may_settle

    # --- talking to the device ------------------------------------------------------------------

    def _log_in(self, ask: Ask) -> None:
        if self._login is not None:
            try:
                command = tl1.login(self._login.username, secret(self._name, self._login))
            except tl1.Tl1Error as error:
                raise DeviceError(self._name, f"the login can't be sent: {error}") from None
            reply = ask(command)
            if not tl1.is_logged_in(reply):
                # The device's text may repeat the command, password included.
                remedy = (
                    "no session is free: log out another client"
                    if tl1.has_no_session_free(reply)
                    else "check login.username and the password"
                )
                raise DeviceError(
                    self._name,
                    f"refuses to log in {self._login.username} ({reply.code or 'without a code'}); "
                    f"{remedy}",
                )
        for command in self.DIALECT.reports_on:
            if (reply := ask(command)).completion is not tl1.Completion.DENIED:
                return
            refused = f"{command.name} is refused: {reply.reason}"
        if self.DIALECT.reports_on:
            _log.warning(
                "%s sends this session no alarms (%s): alarms that begin and end between two polls "
                "are missed",
                self._name,
                refused,
            )

    def _ask(self, command: tl1.Command) -> tl1.Reply:
        """The reply to a command that changes nothing; raises DeviceError for a refusal."""
        reply = self._session.query(command)
        if reply.completion is tl1.Completion.DENIED:
            raise DeviceError(self._name, f"refuses {command.name}: {self._why(reply)}")
        return reply

    def _why(self, reply: tl1.Reply) -> str:
        """The device's reason for a refusal, in words."""
        if reply.code not in self.DIALECT.no_right:
            return reply.reason
        user = "this user" if self._login is None else f"user {self._login.username}"
        return (
            f"{reply.reason}; {user} may lack the right: add the user to the group of "
            "administrators"
        )

    def _records(
        self, command: tl1.Command, parse: Callable[[str], _T], *, whole: bool = False
    ) -> list[_T]:
        """The records of a reply; with ``whole``, raises ProtocolError for a partial reply."""
        reply = self._ask(command)
        if whole and reply.completion is tl1.Completion.PARTIAL:
            raise ProtocolError(self._name, f"{command.name} is answered in part: {reply.reason}")
        return self._parsed(command, reply.records, parse)

    def _record(self, command: tl1.Command, parse: Callable[[str], _T]) -> _T:
        """The single record of a reply."""
        found = self._records(command, parse)
        if len(found) != 1:
            raise ProtocolError(self._name, f"{command.name}: {len(found)} records, expected 1")
        return found[0]

    def _parsed(
        self, command: tl1.Command, records: Iterable[str], parse: Callable[[str], _T]
    ) -> list[_T]:
        try:
            return [parse(record) for record in records]
        except tl1.Tl1Error as error:
            raise ProtocolError(self._name, f"{command.name}: {error}") from error

    def _command(
        self, commands: Mapping[str, tl1.Command], *, window: int = 1
    ) -> tuple[list[str], list[str]]:
        """Send commands that change the device; each key names the subject of its command.

        Returns (keys of the commands carried out, refusals with their reasons).
        """
        if not commands:
            return [], []
        try:
            replies = self._session.write_all(list(commands.values()), window=window)
        except DeviceError as error:
            if self._begun:
                raise unconfirmed(self._name, error) from error
            raise
        self._begun = True
        done: list[str] = []
        refused: list[str] = []
        for (what, command), reply in zip(commands.items(), replies, strict=True):
            how = _FAILURES.get(reply.completion)
            if how is None:
                done.append(what)
            else:
                refused.append(f"{what}: {command.name} is {how}: {self._why(reply)}")
        return done, refused

    def _reported(self, port_of: Callable[[str], int | None]) -> tuple[Alarm, ...]:
        """Alarms among the autonomous messages received so far."""
        return tuple(
            _alarm(message, record, port_of)
            for message in self._session.reports()
            if message.verb.startswith("REPT ALM")
            for record in message.records
        )


def standing_alarm(record: str, port_of: Callable[[str], int | None]) -> Alarm:
    """The alarm in a record of ``RTRV-ALM-ALL``; an unreadable record becomes the alarm's text."""
    try:
        found = tl1_values.parse_alarm(record)
    except tl1.Tl1Error:
        return Alarm(Severity.MINOR, None, "unreadable", record)
    return Alarm(found.severity, port_of(found.aid), found.condition, found.text)


_BY_CODE: Final = {"*C": Severity.CRITICAL, "**": Severity.MAJOR, "A": Severity.CLEARED}


def _alarm(message: tl1.Autonomous, record: str, port_of: Callable[[str], int | None]) -> Alarm:
    try:
        found = tl1_values.parse_alarm(record)
    except tl1.Tl1Error:  # better shown raw than not at all
        severity = _BY_CODE.get(message.alarm_code, Severity.MINOR)
        return Alarm(severity, None, message.verb, record)
    return Alarm(found.severity, port_of(found.aid), found.condition, found.text)


def _spelt_out(reasons: Sequence[str]) -> list[str]:
    more = [f"and {len(reasons) - _SHOWN} more of the same kind"] if len(reasons) > _SHOWN else []
    return [*reasons[:_SHOWN], *more]
