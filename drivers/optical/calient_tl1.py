"""Calient S160 and S320 optical circuit switches over TL1 (TCP port 3083)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from pydantic import ConfigDict, Field

from drivers.codecs import calient_tl1, tl1, tl1_values
from drivers.codecs.calient_tl1 import CrossConnectRow, PortSide, Progress
from drivers.exclusive import exclusive
from drivers.looks import looks
from drivers.optical.changes import shown, unconfirmed
from drivers.optical.input_power import InputPowerOptions
from drivers.optical.tl1_switch import WORKS, CrossConnectState, CrossConnectStates, Tl1Switch
from drivers.skipped_rows import SkippedRows
from drivers.transports.stream import Stream
from drivers.transports.tcp import TcpStream
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem
from hydra.model import CrossConnect, Login, Plane
from hydra.roles import (
    Alarm,
    DeviceIdentity,
    OpticalCapabilities,
    OpticalSwitch,
    PortState,
    Severity,
)

CAPABILITIES: Final = OpticalCapabilities(
    bulk=False, unidirectional=True, power_readings=True, alarms=True
)


_SLOWEST_POLL_S: Final = 0.5


class Options(InputPowerOptions):
    """``options`` of a plane."""

    model_config = ConfigDict(extra="forbid", strict=True)

    group: str = Field("HydRA", pattern=r"^[A-Za-z0-9_-]{1,32}$")
    """Connection group of new cross-connects."""
    window: int = Field(8, ge=1, le=64)
    """Most commands under way at once."""
    bulk: bool = False
    """True to make and remove any number of cross-connects by a single command each."""


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet."""
    options = Options.model_validate(dict(plane.options))
    stream = TcpStream(plane.name, plane.address)
    return CalientTl1(
        plane.name,
        stream,
        plane.login,
        timeout_s=timeout_s,
        group=options.group,
        window=options.window,
        bulk=options.bulk,
        max_input_dbm=options.max_input_dbm,
    )


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    yield from endpoint_problems(plane.address)
    yield from login_problems(plane.login)
    yield from option_problems(Options, plane.options)


class CalientTl1(Tl1Switch):
    """An :class:`~hydra.roles.OpticalSwitch` that reads power and reports alarms.

    The switch names its ports; the driver counts ports in the order of their names. Port ``n`` is
    ingress ``n`` with its input and egress ``N + n`` with its output. A command moves one
    cross-connect, and up to ``window`` commands are under way at once; with ``bulk``, one command
    moves all. The progress reported by the switch may belong to another client's bulk command, so
    the switch's connections decide.

    A connection of an unknown kind, or with a port that the switch does not list, is no
    cross-connect: its ports are in use, and the log names the connection.
    """

    DIALECT = calient_tl1.DIALECT
    CAPABILITIES = CAPABILITIES

    def __init__(
        self,
        name: str,
        stream: Stream,
        login: Login | None,
        *,
        timeout_s: float,
        group: str,
        window: int,
        bulk: bool = False,
        max_input_dbm: float | None = None,
    ) -> None:
        super().__init__(name, stream, login, timeout_s=timeout_s, max_input_dbm=max_input_dbm)
        self._group = group
        self._window = window
        self._bulk = bulk
        self._late = bulk
        self._names: tuple[str, ...] = ()
        self._numbers: dict[str, int] = {}
        self._connections: dict[CrossConnect, CrossConnectRow] = {}
        self._called: Counter[str] = Counter()
        """How many of the switch's connections go by each name."""
        self._skipped_rows = SkippedRows(name)

    @property
    def capabilities(self) -> OpticalCapabilities:
        return dataclasses.replace(CAPABILITIES, bulk=self._bulk)

    @exclusive
    def identity(self) -> DeviceIdentity:
        found = self._record(calient_tl1.ELEMENT_QUERY, calient_tl1.parse_element)
        return DeviceIdentity("Calient", found.chassis, found.serial, found.software)

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of the hardware, as reported by the switch; an unused port is ENABLED."""
        found = self._records(calient_tl1.PORTS_QUERY, calient_tl1.parse_port)
        by_name = {port.name: port for port in found}
        states: dict[int, PortState] = {}
        for port in ports:
            shown_port = by_name.get(self._name_of(port))
            if shown_port is not None:
                is_ingress = port <= len(self._names)
                states[port] = _state(shown_port.input if is_ingress else shown_port.output)
        return states

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        """Optical power at the given ports, in dBm; None where the switch has no reading."""
        asked = self._asked(ports)
        names = {self._name_of(port) for port in asked}
        if not names:
            return {}
        single = len(names) == 1
        query = calient_tl1.power_query(names.pop()) if single else calient_tl1.POWERS_QUERY
        readings = {power.name: power for power in self._records(query, calient_tl1.parse_power)}
        found: dict[int, float | None] = {}
        for port in asked:
            power = readings.get(self._name_of(port))
            is_ingress = port <= len(self._names)
            if power is None:
                found[port] = None
            else:
                found[port] = power.input_dbm if is_ingress else power.output_dbm
        return found

    @exclusive
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms against existing connections; all other alarms are only reported by the switch."""
        self._standings()
        return tuple(
            Alarm(severity, cross_connect.ingress, "CRS", f"{found.name}: {found.state}")
            for cross_connect, found in self._connections.items()
            if (severity := tl1_values.severity(found.alarm)) is not Severity.CLEARED
        )

    @exclusive
    def reports(self) -> tuple[Alarm, ...]:
        """Alarms reported since the last call; none from times without a session.

        The port of an alarm about a connection is the connection's ingress port.
        """
        return self._reported(self._reported_port)

    def _reported_port(self, aid: str) -> int | None:
        names = calient_tl1.ports_of(aid)
        return self._numbers.get(names[0]) if names else None

    def _read_size(self) -> tuple[int, int]:
        found = self._records(calient_tl1.PORTS_QUERY, calient_tl1.parse_port, whole=True)
        self._names = tuple(sorted((port.name for port in found), key=calient_tl1.port_order))
        self._numbers = {name: number for number, name in enumerate(self._names, 1)}
        return len(self._names), len(self._names)

    def _drop(self) -> None:
        super()._drop()
        self._connections = {}

    def _name_of(self, port: int) -> str:
        return self._names[(port - 1) % len(self._names)]

    def _standings(self) -> CrossConnectStates:
        size, _ = self.size()
        standings: dict[CrossConnect, CrossConnectState] = {}
        taken: dict[int, str] = {}
        odd: dict[str, str] = {}
        rows = self._records(
            calient_tl1.CONNECTIONS_QUERY, calient_tl1.parse_connection, whole=True
        )
        self._connections = {}
        self._called = Counter(row.called for row in rows)
        for found in rows:
            source, target = self._numbers.get(found.source), self._numbers.get(found.target)
            if source is None or target is None or found.two_way is None:
                odd[found.ends], ports = self._why_odd(found, source, target)
                why = (
                    f"in use by connection {found.called}: delete the connection at the switch to "
                    "free the port"
                )
                taken |= dict.fromkeys(ports, why)
                continue
            ways = [(source, target), (target, source)] if found.two_way else [(source, target)]
            for ingress, egress in ways:
                cross_connect = CrossConnect(ingress, size + egress)
                self._connections[cross_connect] = found
                standings[cross_connect] = _standing(found)
        self._taken = taken
        self._skipped_rows.note("cross-connects", odd)
        return standings

    def _why_odd(
        self, found: CrossConnectRow, source: int | None, target: int | None
    ) -> tuple[str, list[int]]:
        """Why a connection is no cross-connect, and the ports that the connection may use."""
        size, _ = self.size()
        if found.two_way is None:
            why = f"connection {found.called} is neither one-way nor two-way"
        else:
            unlisted = found.source if source is None else found.target
            why = f"connection {found.called} uses port {unlisted}, missing in the list of ports"
        one_way = found.two_way is False
        inputs = [source] if one_way else [source, target]
        outputs = [target] if one_way else [source, target]
        ports = [port for port in inputs if port is not None]
        return why, ports + [size + port for port in outputs if port is not None]

    def _check_halves(self, removed: Collection[CrossConnect]) -> None:
        """Raises DeviceError for one half of a two-way connection."""
        for cross_connect in removed:
            found = self._connections[cross_connect]
            halves = {c for c, other in self._connections.items() if other is found}
            if not halves.issubset(removed):
                raise DeviceError(
                    self._name,
                    f"can't disconnect {shown([cross_connect])} alone: {found.called} is one "
                    f"two-way connection; disconnect {shown(sorted(halves))} in one change",
                )

    def _check_names(self, removed: Collection[CrossConnect]) -> None:
        """Raises DeviceError for a connection that shares its name with further connections.

        A deletion by name would take down all of them.
        """
        for cross_connect in removed:
            name = self._connections[cross_connect].called
            if self._called[name] > 1:
                raise DeviceError(
                    self._name,
                    f"can't disconnect {shown([cross_connect])}: {self._called[name]} connections "
                    f"of the switch have the name {name}; rename the connections there, or set "
                    "options.bulk, so that commands name ports",
                )

    def _remove(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        self._check_halves(cross_connects)
        found = {row.ends: row for row in (self._connections[c] for c in cross_connects)}
        if self._bulk:
            return self._in_bulk(
                "tearing down",
                calient_tl1.delete_in_bulk(found.values()),
                lambda standings: standings.keys().isdisjoint(cross_connects),
                waits=True,
            )
        self._check_names(cross_connects)
        names = [row.called for row in found.values()]
        active = {
            row.called: calient_tl1.cancel(row.called) for row in found.values() if row.active
        }
        _, refused = self._command(active, window=self._window)
        deleted = {name: calient_tl1.delete(name) for name in names}
        # A connection that was not cancelled can't be deleted: the device refuses the deletion,
        # too.
        return refused + self._command(deleted, window=self._window)[1]

    def _add(self, cross_connects: Sequence[CrossConnect]) -> list[str]:
        ends = {
            shown([c]): (self._name_of(c.ingress), self._name_of(c.egress)) for c in cross_connects
        }
        if self._bulk:
            return self._in_bulk(
                "setting up",
                calient_tl1.enter_in_bulk(ends.values()),
                lambda standings: all(
                    c in standings and standings[c].works for c in cross_connects
                ),
                waits=False,
            )
        entered = {
            what: calient_tl1.enter(source, target, self._group)
            for what, (source, target) in ends.items()
        }
        done, refused = self._command(entered, window=self._window)
        activated = {what: calient_tl1.activate(*ends[what], self._group) for what in done}
        return refused + self._command(activated, window=self._window)[1]

    def _in_bulk(
        self,
        what: str,
        command: tl1.Command,
        made: Callable[[CrossConnectStates], bool],
        *,
        waits: bool,
    ) -> list[str]:
        """Carry out a bulk command, and wait for its end; return refusals.

        ``made`` checks that the connections are as asked. With ``waits``, the connections count
        only once the switch has stopped work: before, the switch takes no other command.
        """
        try:
            before = self._at_rest()
        except DeviceError as error:
            if self._begun:
                raise unconfirmed(self._name, error) from error
            raise
        refused = self._command({what: command})[1]
        try:
            if refused:
                return self._still_refused(refused, made)
            return self._ended(f"{what}: {command.name}", before, made, waits=waits)
        except DeviceError as error:
            raise unconfirmed(self._name, error) from error

    def _at_rest(self) -> str:
        """Return the switch's text about the last bulk command, once the command has ended.

        Raises DeviceError if the command does not end in time.
        """
        for last in self._polls():
            status, progress = self._progress()
            if progress is not Progress.UNDER_WAY:
                return status
            if last:
                break
        raise DeviceError(
            self._name,
            f"a different bulk command is under way ({status}), so no command was sent: try again "
            "at its end",
        )

    def _ended(
        self, what: str, before: str, made: Callable[[CrossConnectStates], bool], *, waits: bool
    ) -> list[str]:
        """Refusals of the bulk command sent after the switch had said ``before``.

        If the switch reports an end and the connections are not as asked, the end may belong to an
        earlier command of another client. Raises DeviceError if the command does not end in time.
        """
        is_ours = False
        for last in self._polls():
            status, progress = self._progress()
            under_way = progress is Progress.UNDER_WAY
            is_ours = is_ours or under_way or status != before
            if is_ours and progress is Progress.COMPLETED and not waits:
                return []  # the driver waits for light in any case
            if (last or not (waits and under_way)) and made(self._standings()):
                return []
        if under_way:
            raise DeviceError(self._name, f"{what}: {status}, after {self._timeout_s:g} s")
        if is_ours and progress is Progress.FAILED:
            return [f"{what}: {status}"]
        return [
            f"{what} is not confirmed: {status}"
            + ("" if is_ours else ", as before the command was sent")
        ]

    def _still_refused(
        self, refused: list[str], made: Callable[[CrossConnectStates], bool]
    ) -> list[str]:
        """Refusals of a bulk command, unless an earlier command makes the same change meanwhile.

        A repeated command is refused if its predecessor was sent and the answer got lost.
        """
        for _ in self._polls():
            _, progress = self._progress()
            if made(self._standings()):
                return []
            if progress is not Progress.UNDER_WAY:
                break
        return refused

    def _progress(self) -> tuple[str, Progress]:
        """The switch's text about a bulk command, and the meaning; UNKNOWN if the switch knows of
        none.
        """
        reply = self._session.query(calient_tl1.PROGRESS_QUERY)
        if reply.completion is tl1.Completion.DENIED:
            return reply.reason, Progress.UNKNOWN
        return reply.reason, calient_tl1.parse_progress(reply.reason)

    def _polls(self) -> Iterator[bool]:
        """Looks for as long as a command may take; True: the last."""
        return looks(self._timeout_s, _SLOWEST_POLL_S)


def _standing(found: CrossConnectRow) -> CrossConnectState:
    if found.has_light:
        return WORKS
    trouble = "is active without light" if found.active else "is reserved and not active"
    return CrossConnectState(works=False, trouble=f"{trouble} ({found.state})", may_settle=True)


def _state(side: PortSide) -> PortState:
    if side.capability != "OK":
        return PortState.FAILED
    if side.administrative in ("IS", "OOS-NP"):
        return PortState.ENABLED
    return PortState.DISABLED if side.administrative.startswith("OOS") else PortState.UNKNOWN
