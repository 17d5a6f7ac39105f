"""Optical circuit switches that run SONiC, over gNMI or RESTCONF.

A SONiC switch accepts a configuration before the mirrors move; the state database alone shows the
result. The switch accepts a cross-connect on a busy port: a single new cross-connect stays dark,
and two or more replace the old cross-connects, but the database still lists the old cross-connects.
The switch skips a cross-connect whose key exists, in any state. Reported counts repeat the
request's counts. So a change is one request that deletes and adds, and the driver judges by the
state database. A failed cross-connect is deleted, and set up again once the state database has no
entry left. A configured cross-connect without a state is deleted in a request of its own, since
other deletions in the same request would fail (``orchagent`` of sonic-molex/sonic-swss,
``bulkRemoveObjects``).

Over gNMI the switch refuses to add a row to an empty table, and to delete a table's last row by its
key: SONiC's config updater refuses a patch that leaves a table empty. So the driver reads such a
table, then writes or deletes the whole table. The switch answers NOT_FOUND for an empty table and
for a missing database alike: if the metadata table, which is never empty, can be read, the database
exists.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from drivers.codecs import sonic_ocs
from drivers.codecs.yang_json import YangJsonError
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
    unconfirmed,
)
from drivers.skipped_rows import SkippedRows
from drivers.transports import gnmi_session
from drivers.transports.gnmi import GnmiDatabases
from drivers.transports.sonic_databases import SonicDatabases
from drivers.transports.sonic_restconf import RestconfDatabases
from drivers.transports.tls import TlsOptions
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, DeviceUnavailable, Problem, ProtocolError
from hydra.model import CrossConnect, Plane
from hydra.roles import (
    Alarm,
    DeviceIdentity,
    Mirrors,
    OpticalCapabilities,
    OpticalSwitch,
    PortState,
    Severity,
)

_log: Final = logging.getLogger(__name__)

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True, alarms=True)

_SLOWEST_POLL_S: Final = 0.5
_SHOWN: Final = 8
"""Most cross-connects whose trouble an error message spells out."""
_MOST_ENDED: Final = 1000
_PORT_STATES: Final = {
    "blocked": PortState.ENABLED,  # no cross-connect uses the port
    "tuning": PortState.ENABLED,
    "tuned": PortState.ENABLED,
    "connected": PortState.ENABLED,
    "force_blocked": PortState.DISABLED,
    "powered_off": PortState.DISABLED,
    "failed": PortState.FAILED,
}
_SEVERITIES: Final = {
    "CRITICAL": Severity.CRITICAL,
    "MAJOR": Severity.MAJOR,
    "MINOR": Severity.MINOR,
}


class Options(TlsOptions):
    """``options`` of a plane."""

    transport: Literal["gnmi", "restconf"] = "gnmi"
    loss_budget_db: float | None = Field(None, ge=0, le=60)
    """Largest loss of a cross-connect by the factory's measurements; None: losses are not read."""


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet. Raises DeviceError without a login."""
    if plane.login is None:
        raise DeviceError(plane.name, "SONiC wants a login")
    options = Options.model_validate(dict(plane.options))
    way = GnmiDatabases if options.transport == "gnmi" else RestconfDatabases
    databases = way(plane.name, plane.address, plane.login, options, timeout_s=timeout_s)
    return SonicOcs(
        plane.name,
        databases,
        timeout_s=timeout_s,
        loss_budget_db=options.loss_budget_db,
        ports=plane.ports,
    )


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options, and missing packages."""
    yield from endpoint_problems(plane.address)
    yield from login_problems(plane.login)
    yield from option_problems(Options, plane.options)
    if plane.options.get("transport", "gnmi") == "gnmi" and not gnmi_session.installed():
        remedy = "or set options.transport to restconf"
        yield Problem("driver", f"{gnmi_session.MISSING}, {remedy}")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cross-connect in the databases."""

    configured: bool
    state: sonic_ocs.CrossConnectState | None
    """None: not in the state database."""

    @property
    def lit(self) -> bool:
        return self.state is not None and self.state.lit

    @property
    def final(self) -> bool:
        return self.state is not None and self.state.final

    @property
    def trouble(self) -> str:
        return "is configured and not made" if self.state is None else f"is {self.state.words}"


class SonicOcs(BaseSwitch):
    """An :class:`~hydra.roles.OpticalSwitch` that reports dark cross-connects and alarms.

    Ingress n is the n-th port of side A by number, ``nA``, egress n the n-th of side B.
    ``timeout_s`` covers one exchange, and the settling time of the mirrors. ``ports`` is the number
    of ports of a side by the controller's configuration; if two tables list different ports, the
    table with ``ports`` ports is right.

    Other clients can write rows, too. An invalid row, or a row with an unlisted port, is logged and
    ignored; known ports in such a row count as in use until the row is gone.
    """

    CAPABILITIES = CAPABILITIES

    def __init__(
        self,
        name: str,
        databases: SonicDatabases,
        *,
        timeout_s: float,
        loss_budget_db: float | None = None,
        ports: int | None = None,
    ) -> None:
        super().__init__(name)
        self._expected = ports
        self._skipped_rows = SkippedRows(name)
        self._loss_budget_db = loss_budget_db
        self._beyond: dict[CrossConnect, float] | None = None
        """Loss in dB of cross-connects above the budget; None: not read since :meth:`open`."""
        self._databases = databases
        self._timeout_s = timeout_s
        self._ports: tuple[str, ...] = ()
        """Names by port number, from 1."""
        self._numbers: dict[str, int] = {}
        self._alarms: dict[str, tuple[Alarm, str]] = {}
        """Active alarms as last reported or read, each with its start time, by alarm number."""
        self._ended: deque[tuple[str, str]] = deque(maxlen=_MOST_ENDED)
        """Alarms that ended by a read of the table: the switch may report the same end later."""
        self._reports: list[Alarm] = []

    @exclusive
    def open(self) -> None:
        """Connect and subscribe to alarms; a second call on an open device does nothing.

        Warns of cross-connects with a loss above the budget.
        """
        self._databases.open()
        self._beyond_budget()

    def _drop(self) -> None:
        self._databases.close()
        self._beyond = None

    @exclusive
    def identity(self) -> DeviceIdentity:
        """Identity by the device's metadata. The metadata have no software version."""
        found = self._databases.read(sonic_ocs.METADATA).get("localhost", {})
        model = found.get("hwsku") or found.get("platform")
        if not model:
            raise ProtocolError(self._name, "the device tells neither hwsku nor platform")
        serial = found.get("chassis_serial_number") or found.get("mac") or "unknown"
        return DeviceIdentity("SONiC", model, serial, "unknown")

    def _read_size(self) -> tuple[int, int]:
        a_side, b_side = self._read_ports()
        self._ports = (*a_side, *b_side)
        self._numbers = {name: number for number, name in enumerate(self._ports, 1)}
        # Alarms active at the start are not reported.
        self._alarms.clear()
        self._begin_all(self._databases.read(sonic_ocs.ALARMS))
        self._reports.clear()
        return len(a_side), len(b_side)

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """All cross-connects that are configured or exist, lit or dark."""
        return self.mirrors().present

    @exclusive
    def mirrors(self) -> Mirrors:
        """Cross-connects, and the dark cross-connects by the state database."""
        entries = self._entries()
        dark = (cross_connect for cross_connect, entry in entries.items() if not entry.lit)
        return Mirrors(frozenset(entries), frozenset(dark))

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down and set up in one request; return once the state database shows the result.

        Wanted cross-connects that work stay unchanged. Wanted cross-connects that are listed but
        dark are deleted first.
        """
        check_ports(self._name, self.size(), {*disconnect, *connect})
        entries = self._entries()
        change = difference(self._name, entries.keys(), disconnect, connect)
        broken = {c for c in connect if c in entries and not entries[c].lit}
        if not (change or broken):
            return
        check_untaken(self._name, change.added | broken, self._taken)
        self._check_losses(change.added)
        removed, added = change.removed | broken, change.added | broken
        stale = {c for c in removed if not entries[c].configured}
        if stale:  # the databases delete only configured cross-connects
            self._write(set(), stale, begun=False)
        unmade = {c for c in removed if entries[c].configured and entries[c].state is None}
        first_deletes = unmade if unmade != removed else set[CrossConnect]()
        if first_deletes:
            # Molex's SONiC deletes nothing if a request names a cross-connect without a state.
            self._write(first_deletes, set(), begun=bool(stale))
        begun = bool(stale or first_deletes)
        if broken:
            self._write(removed - first_deletes, set(), begun=begun)
            gone = Difference(removed, frozenset(), frozenset())
            self._check_result(gone, self._settled(gone))
            self._write(set(), added, begun=True)
        else:
            self._write(removed - first_deletes, added, begun=begun)
        done = Difference(change.removed, added, change.wanted)
        self._check_result(done, self._settled(done))

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of the given ports; words unknown to this driver read as UNKNOWN."""
        states = self._databases.read(sonic_ocs.PORT_STATES)
        configured = self._databases.read(sonic_ocs.PORTS)
        names = {port: self._ports[port - 1] for port in ports}
        words = {
            port: sonic_ocs.port_word(configured.get(name, {}), states.get(name, {}))
            for port, name in names.items()
        }
        return {port: _PORT_STATES.get(word, PortState.UNKNOWN) for port, word in words.items()}

    @exclusive
    def alarms(self) -> tuple[Alarm, ...]:
        """Active alarms, oldest first; none on a SONiC without the alarm framework."""
        self.size()
        known = {*self._alarms}
        rows = self._databases.read(sonic_ocs.ALARMS)
        self._take_alarms()
        for key in sorted(known - rows.keys()):
            self._end(key)
        self._begin_all(rows)
        return tuple(alarm for alarm, _ in self._alarms.values())

    @exclusive
    def reports(self) -> tuple[Alarm, ...]:
        """Alarms that began or ended since the last call; over RESTCONF, as found by
        :meth:`alarms`.
        """
        self._take_alarms()
        reports, self._reports = tuple(self._reports), []
        return reports

    def _read_ports(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the ports of sides A and B, in order of number. Raises DeviceError for none."""
        states = {*self._databases.read(sonic_ocs.PORT_STATES)}
        listed = states | {*self._databases.read(sonic_ocs.PORTS)}
        odd = {name: f"{name!r} is no port such as 1A" for name in sorted(listed)}
        odd = {name: why for name, why in odd.items() if not sonic_ocs.is_port(name)}
        sides = sonic_ocs.ports_in_order(listed - odd.keys())
        if not all(sides):
            found = f", but lists {next(iter(odd))!r}" if odd else ""
            raise DeviceError(
                self._name, f"this SONiC lists no optical ports such as 1A and 1B{found}"
            )
        # After a start, the state database may lack ports; the configuration may always list ports
        # that do not exist. Egress ports count on from the ingress ports, so a port too many or too
        # few would shift every later port.
        made = sonic_ocs.ports_in_order(states - odd.keys())
        if self._expected != len(sides[0]) and self._expected == len(made[0]):
            surplus = {*sides[0], *sides[1]} - states
            odd |= {name: f"{name} is configured and not there" for name in sorted(surplus)}
            sides = made if made[1] else sides
        self._skipped_rows.note("ports", odd)
        return sides

    # --- cross-connects -------------------------------------------------------------------------

    def _entries(self) -> dict[CrossConnect, _Entry]:
        self.size()
        configured = self._databases.read(sonic_ocs.CROSS_CONNECTS)
        states = self._databases.read(sonic_ocs.CROSS_CONNECT_STATES)
        entries: dict[CrossConnect, _Entry] = {}
        taken: dict[int, str] = {}
        odd: dict[str, str] = {}
        for key in sorted(configured.keys() | states.keys()):
            fields = {**states.get(key, {}), **configured.get(key, {})}
            try:
                cross_connect = self._numbered(key, fields)
            except YangJsonError as error:
                odd[key] = str(error)
                named = sonic_ocs.ports_named(key, fields) & self._numbers.keys()
                why = f"in use by the invalid cross-connect {key}: delete {key} at the switch"
                taken |= {self._numbers[name]: why for name in named}
                continue
            state = sonic_ocs.parse_state(states[key]) if key in states else None
            entries[cross_connect] = _Entry(key in configured, state)
        self._taken = taken
        self._skipped_rows.note("cross-connects", odd)
        return entries

    def _numbered(self, key: str, fields: sonic_ocs.Fields) -> CrossConnect:
        ends = sonic_ocs.parse_cross_connect(key, fields)
        unknown = [name for name in ends if name not in self._numbers]
        if unknown:
            raise YangJsonError(f"cross-connect {key} uses {unknown[0]}, no port")
        return CrossConnect(self._numbers[ends[0]], self._numbers[ends[1]])

    def _sides(self, cross_connect: CrossConnect) -> tuple[str, str]:
        return self._ports[cross_connect.ingress - 1], self._ports[cross_connect.egress - 1]

    def _write(self, delete: Set[CrossConnect], add: Set[CrossConnect], *, begun: bool) -> None:
        keys = [sonic_ocs.cross_connect_key(*self._sides(c)) for c in sorted(delete)]
        rows = {
            sonic_ocs.cross_connect_key(*sides): sonic_ocs.fields_of_cross_connect(*sides)
            for sides in map(self._sides, sorted(add))
        }
        try:
            self._databases.write(keys, rows)
        except DeviceError as error:
            if begun:
                raise unconfirmed(self._name, error) from error
            raise

    def _settled(self, change: Difference) -> dict[CrossConnect, _Entry]:
        """All entries, once the change is complete or can't complete any more."""
        for _ in looks(self._timeout_s, _SLOWEST_POLL_S):
            try:
                entries = self._entries()
            except DeviceError as error:
                raise unconfirmed(self._name, error) from error
            added = [entry for c in change.added if (entry := entries.get(c)) and entry.configured]
            waiting = any(not (entry.lit or entry.final) for entry in added) or any(
                # An entry that is still configured was not deleted, and stays.
                not entry.configured
                for c in change.removed
                if (entry := entries.get(c))
            )
            if not waiting:
                break
        return entries

    def _check_result(self, change: Difference, entries: Mapping[CrossConnect, _Entry]) -> None:
        """Raise DeviceError with the switch's own words if an entry differs from the request."""
        problems = shortfall(change, entries.keys())
        dark = sorted(c for c in change.added if c in entries and not entries[c].lit)
        problems += [
            f"{c.ingress} to {c.egress} ({'-'.join(self._sides(c))}) {entries[c].trouble}"
            for c in dark[:_SHOWN]
        ]
        if len(dark) > _SHOWN:
            problems.append(f"and {len(dark) - _SHOWN} more without light")
        if problems:
            raise not_made(self._name, problems)

    # --- loss -----------------------------------------------------------------------------------

    def _check_losses(self, added: Collection[CrossConnect]) -> None:
        """Raise DeviceError, before any mirror moves, for a cross-connect above the budget."""
        beyond = self._beyond_budget()
        for new in sorted(beyond.keys() & added):
            raise DeviceError(
                self._name,
                f"{_lossy(new, self._sides(new), beyond)}, more than options.loss_budget_db "
                f"({self._loss_budget_db:g}) allows: nothing was moved; use other ports, or raise "
                "the budget",
            )

    def _beyond_budget(self) -> Mapping[CrossConnect, float]:
        """Loss in dB of possible cross-connects above the budget; read once until closed."""
        if self._loss_budget_db is None:
            return {}
        if self._beyond is None:
            losses = self._factory_losses()
            self._beyond = {c: db for c, db in losses.items() if db > self._loss_budget_db}
            if not losses:
                _log.warning("%s reports no factory losses: no loss budget is kept", self._name)
            if self._beyond:
                shown, more = sorted(self._beyond)[:_SHOWN], len(self._beyond) - _SHOWN
                _log.warning(
                    "%s: beyond options.loss_budget_db (%g), and not connected: %s%s",
                    self._name,
                    self._loss_budget_db,
                    "; ".join(_lossy(item, self._sides(item), self._beyond) for item in shown),
                    f"; and {more} more" if more > 0 else "",
                )
        return self._beyond

    def _factory_losses(self) -> dict[CrossConnect, float]:
        """Loss in dB by cross-connect; empty if the switch refuses the read, or has no table."""
        self.size()
        rows: dict[str, sonic_ocs.Fields] = {}
        odd: dict[str, str] = {}
        losses: dict[tuple[str, str], float] = {}
        try:
            for table in sonic_ocs.FACTORY_LOSSES:
                rows |= self._databases.read(table)
        except DeviceUnavailable:
            raise
        except DeviceError as error:
            _log.warning("%s does not report factory losses: %s", self._name, error)
        for key, fields in rows.items():
            try:
                sides, loss_db = sonic_ocs.parse_loss(key, fields)
            except YangJsonError as error:
                odd[key] = f"{key}: {error}"
            else:
                losses[sides] = max(loss_db, losses.get(sides, 0.0))
        self._skipped_rows.note("factory losses", odd)
        return {
            CrossConnect(self._numbers[a], self._numbers[b]): loss_db
            for (a, b), loss_db in losses.items()
            if {a, b} <= self._numbers.keys()
        }

    # --- alarms ---------------------------------------------------------------------------------

    def _take_alarms(self) -> None:
        """Take in alarms that the switch has reported, except alarms already found by a read."""
        for key, rows in self._databases.received_alarms():
            if rows is None:
                self._end(key)
            else:
                self._begin_all({key: rows[key]})

    def _begin_all(self, rows: sonic_ocs.Rows) -> None:
        """Take in active alarms, oldest first; invalid alarms are logged and ignored."""
        odd: dict[str, str] = {}
        for key in sorted(rows, key=lambda key: (len(key), key)):
            try:
                self._begin(key, sonic_ocs.parse_alarm(key, rows[key]))
            except YangJsonError as error:
                odd[key] = str(error)
        self._skipped_rows.note("alarms", odd)

    def _begin(self, key: str, row: sonic_ocs.AlarmRow) -> None:
        if key in self._alarms or (key, row.created) in self._ended:
            return
        port = None if row.port is None else self._numbers.get(row.port)
        severity = _SEVERITIES.get(row.severity, Severity.WARNING)
        alarm = Alarm(severity, port, row.code, row.text)
        self._alarms[key] = alarm, row.created
        self._reports.append(alarm)

    def _end(self, key: str) -> None:
        if key in self._alarms:
            alarm, created = self._alarms.pop(key)
            self._ended.append((key, created))
            self._reports.append(Alarm(Severity.CLEARED, alarm.port, alarm.code, alarm.text))


def _lossy(
    cross_connect: CrossConnect, sides: tuple[str, str], losses: Mapping[CrossConnect, float]
) -> str:
    ports = f"{cross_connect.ingress} to {cross_connect.egress}"
    return f"{ports} ({'-'.join(sides)}) loses {losses[cross_connect]:.2f} dB"
