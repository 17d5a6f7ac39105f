"""Open vSwitch bridges as top-of-rack switches, retagged through OVSDB.

Columns and their meaning follow ovs-vswitchd.conf.db(5), the protocol RFC 7047. Two traps shape
this driver: an empty ``trunks`` means all VLANs, so an empty set is refused; and a committed
transaction says nothing about the data path, so each change waits until ``cur_cfg`` has reached the
``next_cfg`` set in the same transaction.

The server pushes the list of ports to each session. VLANs, carrier and counters are read on demand:
pushed updates would fill an idle session, and have to be read in the middle of a retagging.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from drivers.exclusive import exclusive
from drivers.tor import membership
from drivers.tor.ovsdb_hold import Hold, bridge_row
from drivers.tor.ovsdb_rows import (
    CARRIER,
    COUNTERS,
    VLANS,
    PortRows,
    Reading,
    ReadT,
    VlanColumns,
    columns_of,
    members_of,
    membership_of,
    ports_of,
    select_rows,
    shared,
    update_of,
)
from drivers.transports.ovsdb_session import (
    SCHEMES,
    Call,
    NotOwnerError,
    OutdatedError,
    OvsdbSession,
    RefusedError,
    Row,
    SessionLostError,
)
from hydra.config.devices import (
    NoOptions,
    no_login_problems,
    option_problems,
    parse_endpoint,
)
from hydra.errors import (
    DeviceError,
    DeviceUnavailable,
    OutcomeUnknown,
    PortsMissing,
    Problem,
)
from hydra.model import Rack, VlanId
from hydra.roles import PortCounters, PortVlans, TorCapabilities, TorSwitch

LOG = logging.getLogger("hydra.devices")
STATISTICS_INTERVAL_S: Final = 5.0
"""Interval at which ovs-vswitchd writes counters into the database: the default, and the least."""
_INTERVAL_MS: Final = "stats-update-interval"
"""Key in ``other_config`` of the database's root: a longer interval."""

CAPABILITIES: Final = TorCapabilities(
    bulk=True, counters=True, counters_age_s=STATISTICS_INTERVAL_S, claims=True
)

_WATCHED: Final[Mapping[str, tuple[str, ...]]] = {
    "Open_vSwitch": ("next_cfg", "cur_cfg", "other_config"),
    "Bridge": ("name", "ports", "external_ids"),
    "Port": ("name", "interfaces"),
}
_COUNT_UP: Final = (
    b'{"op":"mutate","table":"Open_vSwitch","where":[],"mutations":[["next_cfg","+=",1]]}'
)
_COUNT: Final = b'{"op":"select","table":"Open_vSwitch","where":[],"columns":["next_cfg"]}'


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet."""
    address = rack.tor.address
    if not address.startswith(SCHEMES):
        address = f"tcp:{address}"
    return OvsTor(rack.name, address, rack.tor.bridge, timeout_s=timeout_s)


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR."""
    tor = rack.tor
    if tor.address and not tor.address.startswith("unix:/"):
        remote = tor.address.removeprefix("tcp:").removeprefix("ssl:")
        if parse_endpoint(remote) is None:
            yield Problem(
                "address",
                f"{tor.address!r} is not a device address: "
                "write host:port, or unix:/path for a local OVSDB",
            )
    yield from no_login_problems(tor.login)
    yield from option_problems(NoOptions, tor.options)


class OvsTor:
    """A :class:`~hydra.roles.TorSwitch`: one bridge of one ovsdb-server.

    ``address`` is ``unix:PATH`` or ``tcp:HOST:PORT``. ``timeout_s`` covers one call, without the
    turns of calls on other ToRs. Between calls the session lies idle: changes are read when the
    next call starts, and a session dropped by the server is reopened.
    """

    def __init__(self, name: str, address: str, bridge: str, *, timeout_s: float) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._address = address
        self._bridge = bridge
        self._timeout_s = timeout_s
        self._session: OvsdbSession | None = None
        self._hold: Hold | None = None
        self._capabilities = CAPABILITIES

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> TorCapabilities:
        """:data:`CAPABILITIES`; counters may be older if the database said so when last read."""
        return self._capabilities

    @exclusive
    def open(self) -> None:
        """Connect and check that the bridge exists. Raises DeviceUnavailable or DeviceError.

        An open session stays unchanged; an ended session is opened again.
        """
        if self._tended() is None:
            with Call(self._timeout_s) as call:
                self._ports(self._connected(call))

    @exclusive
    def close(self) -> None:
        """Drop the session; safe to repeat. The next use connects again."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @exclusive
    def claim(self, generation: int | None = None) -> None:
        """Write this controller's name into the bridge, as its holder, as every write requires."""
        self.close()
        self._hold = Hold(self._name, self._address, self._bridge, generation or 0)
        self.open()

    def keep(self) -> None:
        """Answer the server's inactivity probes: the server drops a session silent for seconds."""
        if self._lock.acquire(blocking=False):  # a session in use is alive
            try:
                self._tended()
            finally:
                self._lock.release()

    @exclusive
    def ask(self) -> None:
        """Make one round trip. Raises DeviceUnavailable."""
        with Call(self._timeout_s) as call:
            self._synchronise(call)

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """Sorted names of all ports but the bridge's own."""
        with Call(self._timeout_s) as call:
            ports = self._ports(self._synchronise(call))
            return tuple(sorted(name for name in ports if name != self._bridge))

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as the database has it now; a trunk without a list carries all VLANs."""
        with Call(self._timeout_s) as call:
            _, columns = self._read(ports, VLANS, call)
            return {name: self._membership(name, column) for name, column in columns.items()}

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of the given ports in one transaction.

        Returns when ovs-vswitchd has applied the change. Raises DeviceError (nothing written) for a
        bad VLAN or a port missing on the bridge.
        """
        membership.check_memberships(self._name, wanted)
        wanted = {port: shared(vlans) for port, vlans in wanted.items()}
        columns = {port: columns_of(vlans) for port, vlans in wanted.items()}
        with Call(self._timeout_s) as call:
            session, present = self._read(columns, VLANS, call)
            changed = {port: column for port, column in columns.items() if column != present[port]}
            target = self._write(session, changed, call) if changed else self._next_cfg(session)
            self._await_applied(session, target, call)
            if changed:
                present = self._read_back(session, wanted, call)
            found = {port: self._membership(port, column) for port, column in present.items()}
            membership.check_result(self._name, wanted, found)

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True for each port with carrier; a bond has carrier if any member has."""
        with Call(self._timeout_s) as call:
            _, found = self._read(ports, CARRIER, call)
            return found

    @exclusive
    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        """Counters as last written into the database by ovs-vswitchd: up to five seconds old, or as
        old as ``other_config:stats-update-interval`` allows.

        Fresh counters, needed for draining, come over OpenFlow.
        """
        with Call(self._timeout_s) as call:
            session, found = self._read(ports, COUNTERS, call)
            interval_s = _statistics_interval_s(session)
            self._capabilities = replace(CAPABILITIES, counters_age_s=interval_s)
            return found

    # --- ports and VLANs ------------------------------------------------------------------------

    def _membership(self, port: str, columns: VlanColumns) -> PortVlans:
        mode = columns.vlan_mode or ("trunk" if columns.tag is None else "access")
        tag = None if columns.tag is None else VlanId(columns.tag)
        member = membership_of(mode, tag, columns.trunks or membership.ALL_VLANS)
        if member is None:
            raise DeviceError(
                self._name,
                f"port {port} has vlan_mode {mode}, which this driver can't describe",
            )
        return member

    def _ports(self, session: OvsdbSession) -> dict[str, PortRows]:
        """The bridge's ports by name. Raises DeviceError if there is no bridge."""
        bridge = bridge_row(session, self._bridge)
        if bridge is None:
            raise DeviceError(self._name, f"there is no bridge {self._bridge} at {self._address}")
        try:
            return ports_of(bridge, session.rows["Port"])
        except SessionLostError as error:
            raise DeviceError(self._name, str(error)) from error

    def _some_ports(self, session: OvsdbSession, names: Collection[str]) -> dict[str, PortRows]:
        """Rows of the named ports. Raises DeviceError if a port is missing."""
        found = self._ports(session)
        missing = sorted(set(names) - found.keys())
        if missing:
            text = f"bridge {self._bridge} has no port {', '.join(missing)}"
            raise PortsMissing(self._name, text, missing)
        return {name: found[name] for name in names}

    def _read(
        self, names: Collection[str], reading: Reading[ReadT], call: Call
    ) -> tuple[OvsdbSession, dict[str, ReadT]]:
        """Read columns of the named ports, by a single round trip if the session is good.

        The session knows the ports already. If a port turns out missing, or its rows have changed
        by the end of the round trip, the ports are read anew first. Raises DeviceError.
        """
        if self._session is not None:
            try:
                ports = self._some_ports(self._session, names)
                found = select_rows(self._session, ports, reading, call)
                if self._some_ports(self._session, names) == ports:
                    return self._session, found
            except SessionLostError:
                self.close()
            except (DeviceError, RefusedError) as error:
                LOG.debug("%s", error)
        session = self._synchronise(call)
        ports = self._some_ports(session, names)
        try:
            return session, select_rows(session, ports, reading, call)
        except SessionLostError as error:
            raise self._unavailable(error) from error
        except RefusedError as error:
            raise DeviceError(self._name, f"the database does not answer: {error}") from error

    def _write(self, session: OvsdbSession, columns: Mapping[str, VlanColumns], call: Call) -> int:
        """Write VLANs, and return the configuration number to wait for."""
        if self._hold is not None and self._hold.is_robbed(session):
            raise self._bridge_lost(self._hold, session)
        ports = self._some_ports(session, columns)
        operations = [] if self._hold is None else [*self._hold.fence()]
        operations += [update_of(ports[name].uuid, column) for name, column in columns.items()]
        operations += (_COUNT_UP, _COUNT)
        try:
            results = session.transact(operations, call)
            return int(results[-1]["rows"][0]["next_cfg"])
        except SessionLostError as error:
            raise self._unconfirmed(str(error)) from error
        except (LookupError, TypeError, ValueError) as error:
            raise self._unconfirmed(f"the answer is malformed: {error}") from error
        except RefusedError as error:
            if self._hold is not None and isinstance(error, NotOwnerError | OutdatedError):
                raise self._bridge_lost(self._hold, session) from error
            raise DeviceError(self._name, f"the database refused the change: {error}") from error

    def _await_applied(self, session: OvsdbSession, target: int, call: Call) -> None:
        try:
            session.wait_until(lambda: _root(session)["cur_cfg"] >= target, call)
        except SessionLostError as error:
            raise self._unconfirmed(f"ovs-vswitchd has not applied the change: {error}") from error

    def _read_back(
        self, session: OvsdbSession, names: Collection[str], call: Call
    ) -> dict[str, VlanColumns]:
        try:
            return select_rows(session, self._some_ports(session, names), VLANS, call)
        except SessionLostError as error:
            raise self._unconfirmed(f"the change was not read back: {error}") from error
        except (RefusedError, DeviceError) as error:
            raise self._unconfirmed(f"the change can't be read back: {error}") from error

    def _next_cfg(self, session: OvsdbSession) -> int:
        try:
            return int(_root(session)["next_cfg"])
        except SessionLostError as error:
            raise self._unavailable(error) from error

    # --- the session ----------------------------------------------------------------------------

    def _tended(self) -> OvsdbSession | None:
        """The session, after reading all waiting messages; None if ended. Never waits."""
        if self._session is not None:
            try:
                self._session.tend()
            except SessionLostError as error:
                LOG.debug("%s: %s", self._name, error)
                self.close()
        self._leave_if_robbed()
        return self._session

    def _leave_if_robbed(self) -> None:
        """End the session if another controller has taken the bridge; the next session names it."""
        if self._session and self._hold and self._hold.is_robbed(self._session):
            self.close()

    def _synchronise(self, call: Call) -> OvsdbSession:
        """A session with up-to-date rows: a new session if the old one is gone."""
        if self._session is not None:
            try:
                self._session.echo(call)
            except SessionLostError:
                self.close()
        self._leave_if_robbed()
        return self._session or self._connected(call)

    def _connected(self, call: Call) -> OvsdbSession:
        """A new session, with the lock if this driver has a claim."""
        session = self._session = OvsdbSession(self._address, _WATCHED)
        try:
            if self._hold is None:
                session.connect(call)
            else:
                self._hold.connect(session, call)
            _root(session)
            if self._hold is not None:
                self._hold.take(session, call)
        except SessionLostError as error:
            raise self._unavailable(error) from error
        except DeviceError:
            self.close()
            raise
        return session

    def _bridge_lost(self, hold: Hold, session: OvsdbSession) -> DeviceError:
        """End a session whose bridge belongs to another controller; return the error."""
        self.close()
        return hold.lost(session)

    def _unavailable(self, error: SessionLostError) -> DeviceUnavailable:
        self.close()
        return DeviceUnavailable(self._name, f"no OVSDB session with {self._address}: {error}")

    def _unconfirmed(self, reason: str) -> OutcomeUnknown:
        self.close()
        return OutcomeUnknown(
            self._name, f"a change was written to {self._address} and not confirmed: {reason}"
        )


def _root(session: OvsdbSession) -> Row:
    for row in session.rows["Open_vSwitch"].values():
        return row
    raise SessionLostError("the database has no Open_vSwitch row; run ovs-vsctl init")


def _statistics_interval_s(session: OvsdbSession) -> float:
    """Interval of statistics in the database. ovs-vswitchd replaces other values by the default."""
    rows = session.rows["Open_vSwitch"].values()
    intervals_ms = [dict(members_of(row["other_config"])).get(_INTERVAL_MS, "") for row in rows]
    return max(
        [
            STATISTICS_INTERVAL_S,
            *(int(interval_ms) / 1000 for interval_ms in intervals_ms if interval_ms.isdecimal()),
        ]
    )
