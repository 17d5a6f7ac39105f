"""Open vSwitch bridges as top-of-rack switches, retagged through OVSDB (the ``ovs`` Python IDL).

Columns and their meaning follow ovs-vswitchd.conf.db(5), the protocol RFC 7047. Three traps shape
this driver: the IDL drops values outside a column's range without a word, so VLANs are checked
first and read back after; an empty ``trunks`` means all VLANs, so an empty set is refused; and a
committed transaction says nothing about the data path, so each change waits until ``cur_cfg`` has
reached the ``next_cfg`` that the same transaction set.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

from drivers.codecs.json_stream import JsonStream
from drivers.exclusive import exclusive
from drivers.tor import membership, ovsdb_vlans
from hydra.config.devices import (
    NoOptions,
    no_login_problems,
    option_problems,
    parse_endpoint,
)
from hydra.errors import DeviceError, DeviceUnavailable, HeldElsewhere, OutcomeUnknown, Problem
from hydra.model import Rack, VlanId
from hydra.roles import PortCounters, PortVlans, TorCapabilities, TorSwitch

with warnings.catch_warnings():
    # ovs.poller asks if eventlet is in use, and eventlet announces on import that it is in
    # maintenance: nothing that the user of `hydra check` could act on.
    warnings.simplefilter("ignore")
    import ovs.db.idl
    import ovs.json
    import ovs.jsonrpc
    import ovs.stream

LOG = logging.getLogger("hydra.devices")
SLOW_PARSER: Final = ovs.json.Parser
if ovs.json.PARSER == ovs.json.PARSER_PY:  # built without the C parser, as from a package index
    ovs.json.Parser = JsonStream
ovsdb_vlans.install()

STATISTICS_INTERVAL_S: Final = 5.0
"""Interval at which ovs-vswitchd writes counters into the database, or longer if told so."""

CAPABILITIES: Final = TorCapabilities(
    bulk=True, counters=True, counters_age_s=STATISTICS_INTERVAL_S, claims=True
)

_SCHEMES: Final = ("unix:", "tcp:", "ssl:")
_DATABASE: Final = "Open_vSwitch"
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "Open_vSwitch": ("next_cfg", "cur_cfg"),
    "Bridge": ("name", "ports"),
    "Port": ("name", "interfaces", "vlan_mode", "tag", "trunks"),
    "Interface": ("name", "link_state", "statistics"),
}
_NOT_REPLICATED: Final[Mapping[str, tuple[str, ...]]] = {"Interface": ("link_state", "statistics")}
"""Columns fetched when asked for: replicated, statistics would fill an idle session every five
seconds, and every change of carrier in the whole database would have to be read in the middle of a
retagging."""

_RETRY: Final = (errno.EAGAIN, errno.EINPROGRESS)
_TURNS: Final = threading.BoundedSemaphore(2)
"""Calls that compute at a time, while others wait for their servers. Threads take turns at the
interpreter: among hundreds of ToRs, OpenFlow's would hardly come to its own."""
_Txn = ovs.db.idl.Transaction


class _InterfaceRow(Protocol):
    link_state: list[str]
    statistics: dict[str, int]

    def fetch(self, column: str) -> None: ...


class _PortRow(Protocol):
    name: str
    interfaces: list[_InterfaceRow]
    vlan_mode: list[str]
    tag: list[int]
    trunks: frozenset[VlanId]


class _BridgeRow(Protocol):
    name: str
    ports: list[_PortRow]


class _RootRow(Protocol):
    next_cfg: int
    cur_cfg: int

    def fetch(self, column: str) -> None: ...

    def increment(self, column: str) -> None: ...


class _Transaction(Protocol):
    def commit(self) -> str: ...

    def get_error(self) -> object: ...

    def get_increment_new_value(self) -> int: ...


class _SessionLostError(Exception):
    """The session broke or did not answer in time; nothing was written."""


class _Call:
    """A call on a server, with its deadline; ``with`` has it wait for its turn.

    Time in which other calls have theirs does not count.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def __enter__(self) -> _Call:
        _TURNS.acquire()
        self._due_s = time.monotonic() + self._timeout_s
        return self

    def __exit__(self, *_error: object) -> None:
        _TURNS.release()

    def wait(self, poll: select.poll, limit_ms: float | None) -> None:
        """Wait for the server, for ``limit_ms`` at most, while others have their turn.

        Raises _SessionLostError when the deadline has passed.
        """
        remaining_ms = (self._due_s - time.monotonic()) * 1000
        if remaining_ms <= 0:
            raise _SessionLostError("no answer in time")
        _TURNS.release()
        try:
            poll.poll(max(0.0, remaining_ms if limit_ms is None else min(limit_ms, remaining_ms)))
        finally:
            began_s = time.monotonic()
            _TURNS.acquire()
            self._due_s += time.monotonic() - began_s


@dataclass(frozen=True, slots=True)
class _Columns:
    """VLAN columns of a Port row, as they should be written."""

    vlan_mode: str
    tag: tuple[int, ...]
    trunks: frozenset[VlanId]


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet."""
    address = rack.tor.address
    if not address.startswith(_SCHEMES):
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

    ``address`` is ``unix:PATH`` or ``tcp:HOST:PORT``. ``timeout_s`` covers one call, less the time
    in which calls on other ToRs have their turn. Between calls the session lies idle: changes are
    read when the next call starts, and a session that the server dropped is reopened.
    """

    def __init__(self, name: str, address: str, bridge: str, *, timeout_s: float) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._address = address
        self._bridge = bridge
        self._timeout_s = timeout_s
        self._idl: Any = None
        self._lock_name: str | None = None
        self._steals = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> TorCapabilities:
        return CAPABILITIES

    @exclusive
    def open(self) -> None:
        """Connect and check that the bridge exists. Raises DeviceUnavailable or DeviceError.

        An open session is asked nothing, but one that has ended is noticed, and opened again.
        """
        with _Call(self._timeout_s) as call:
            if self._idl is None or self._has_ended():
                self._synchronise(call)
                self._bridge_row()

    @exclusive
    def close(self) -> None:
        """Drop the session; safe to repeat. The next use connects again."""
        if self._idl is not None:
            self._idl.close()
            self._idl = None

    @exclusive
    def claim(self, *, steal: bool = False) -> None:
        """Hold the bridge by a lock of the database (RFC 7047, section 4.1.8).

        The server frees it when the session ends, and refuses transactions of sessions without it.
        With ``steal``, the first session that connects takes it from another one (4.1.9).
        """
        self.close()
        self._steals = steal
        # Lock names are identifiers, which bridge names need not be.
        self._lock_name = f"hydra_{self._bridge.encode().hex()}"
        self.open()

    def keep(self) -> None:
        """Answer the server's inactivity probes: it drops a silent session after some seconds."""
        if self._lock.acquire(blocking=False):  # a session in use is alive
            try:
                if self._idl is not None:
                    self._idl.run()
            finally:
                self._lock.release()

    @exclusive
    def ask(self) -> None:
        """One round trip. Raises DeviceUnavailable."""
        with _Call(self._timeout_s) as call:
            self._synchronise(call)

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """Sorted names of all ports but the bridge's own."""
        with _Call(self._timeout_s) as call:
            self._synchronise(call)
            bridge = self._bridge_row()
            return tuple(sorted(row.name for row in bridge.ports if row.name != self._bridge))

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as the database has it now; a trunk without a list carries all VLANs."""
        with _Call(self._timeout_s) as call:
            self._synchronise(call)
            return {name: self._membership(row) for name, row in self._rows(ports).items()}

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of these ports in one transaction.

        Returns when ovs-vswitchd has applied it. Raises DeviceError (nothing written) for a bad
        VLAN or a port that is not on this bridge.
        """
        membership.check_memberships(self._name, wanted)
        columns = {port: _columns(vlans) for port, vlans in wanted.items()}
        with _Call(self._timeout_s) as call:
            self._synchronise(call)
            rows = self._rows(columns)
            target = self._commit(rows, columns, call)
            self._await_applied(target, call)
            present = {port: self._membership(row) for port, row in self._rows(wanted).items()}
            membership.check_result(self._name, wanted, present)

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True by port that has carrier; a bond has it if any member has."""
        rows = self._fetched(ports, "link_state")
        return {
            name: any(interface.link_state == ["up"] for interface in row.interfaces)
            for name, row in rows.items()
        }

    @exclusive
    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        """Counters as ovs-vswitchd last wrote them into the database: up to five seconds old.

        That is its shortest interval (``other_config:stats-update-interval``). Counters that have
        to be fresh, as for draining, come over OpenFlow.
        """
        return {name: _counters(row) for name, row in self._fetched(ports, "statistics").items()}

    # --- what to write, and what was read -----------------------------------------------------

    def _membership(self, row: _PortRow) -> PortVlans:
        mode = row.vlan_mode[0] if row.vlan_mode else ("access" if row.tag else "trunk")
        tag = VlanId(row.tag[0]) if row.tag else None
        member = _membership(mode, tag, row.trunks or membership.ALL_VLANS)
        if member is None:
            raise DeviceError(
                self._name,
                f"port {row.name} has vlan_mode {mode}, which this driver can't describe",
            )
        return member

    def _bridge_row(self) -> _BridgeRow:
        rows: Iterable[_BridgeRow] = self._idl.tables["Bridge"].rows.values()
        for row in rows:
            if row.name == self._bridge:
                return row
        raise DeviceError(self._name, f"there is no bridge {self._bridge} at {self._address}")

    def _rows(self, ports: Collection[str]) -> dict[str, _PortRow]:
        wanted = set(ports)
        found = {name: row for row in self._bridge_row().ports if (name := row.name) in wanted}
        missing = sorted(wanted - found.keys())
        if missing:
            raise DeviceError(self._name, f"bridge {self._bridge} has no port {', '.join(missing)}")
        return {port: found[port] for port in ports}

    def _fetched(self, ports: Collection[str], column: str) -> dict[str, _PortRow]:
        """Rows of these ports, with a column of their interfaces that is not replicated.

        Reading it is a round trip, which brings the replica up to now by itself: only where that
        fails, or finds other interfaces than before, the session is looked at first.
        """
        with _Call(self._timeout_s) as call:
            if self._idl is not None:
                try:
                    self._idl.run()
                    rows = self._rows(ports)
                    before = {name: list(row.interfaces) for name, row in rows.items()}
                    self._fetch(rows, column, call)
                    if all(list(row.interfaces) == before[name] for name, row in rows.items()):
                        return rows
                except _SessionLostError:
                    self.close()
                except DeviceError as error:
                    LOG.debug("%s", error)
            self._synchronise(call)
            try:
                rows = self._rows(ports)
                self._fetch(rows, column, call)
            except _SessionLostError as error:
                self.close()
                raise DeviceUnavailable(
                    self._name, f"no OVSDB session with {self._address}: {error}"
                ) from error
            return rows

    def _fetch(self, rows: Mapping[str, _PortRow], column: str, call: _Call) -> None:
        """Raises _SessionLostError; DeviceError if the database refuses."""
        txn = self._transaction()
        for row in rows.values():
            for interface in row.interfaces:
                interface.fetch(column)
        status = self._finish(txn, call)
        if status not in (_Txn.SUCCESS, _Txn.UNCHANGED):
            raise DeviceError(self._name, f"the database does not tell {column}: {status}")

    # --- the session ----------------------------------------------------------------------------

    def _synchronise(self, call: _Call) -> None:
        """Bring the replica up to now, on a new session if the old one is gone."""
        try:
            if self._idl is not None:
                try:
                    self._barrier(call)
                except _SessionLostError:
                    self.close()
                else:
                    return
            self._connect(call)
        except _SessionLostError as error:
            self.close()
            raise DeviceUnavailable(
                self._name, f"no OVSDB session with {self._address}: {error}"
            ) from error

    def _connect(self, call: _Call) -> None:
        helper = ovs.db.idl.SchemaHelper(schema_json=_fetch_schema(self._address, call))
        for table, columns in _COLUMNS.items():
            helper.register_columns(table, list(columns), list(_NOT_REPLICATED.get(table, ())))
        # No probes: nobody reads the session between calls, and each call has its own deadline.
        self._idl = ovs.db.idl.Idl(self._address, helper, probe_interval=0, leader_only=False)
        self._run_until(self._idl.has_ever_connected, call)
        if self._lock_name is not None:
            idl = self._idl
            idl.set_lock(self._lock_name)
            self._run_until(lambda: idl.has_lock or idl.is_lock_contended, call)
            if not idl.has_lock and self._steals:
                self._steal(call)
            if not idl.has_lock:
                self.close()
                raise self._held_elsewhere()
            self._steals = False  # from now on, who has it has come later

    def _steal(self, call: _Call) -> None:
        """Take the lock from who has it, whose transactions are refused from now on.

        The library reads the reply as one to its own request, and has no name for this one.
        """
        idl = self._idl
        idl.set_lock(None)  # a session that waits for the lock may not steal it
        idl.lock_name = self._lock_name
        idl._lock_request_id = idl._Idl__do_send_lock_request("steal")
        self._run_until(lambda: idl.has_lock or idl.is_lock_contended, call)

    def _has_ended(self) -> bool:
        """True if the server has closed the session; never waits."""
        self._idl.run()  # meets the end
        self._idl.run()  # acts on it
        return not self._idl._session.is_connected()

    def _barrier(self, call: _Call) -> None:
        """A round trip. The server sends all earlier updates before it answers (RFC 7047 4.1.3).

        A transaction that only fetches is the one request the IDL sends without writing.
        """
        self._idl.run()
        txn = self._transaction()
        self._root().fetch("next_cfg")
        if self._finish(txn, call) != _Txn.SUCCESS:
            raise _SessionLostError(f"a read failed: {txn.get_error()}")

    def _root(self) -> _RootRow:
        rows: Iterable[_RootRow] = self._idl.tables["Open_vSwitch"].rows.values()
        for row in rows:
            return row
        raise _SessionLostError("the database has no Open_vSwitch row; run ovs-vsctl init")

    def _commit(
        self, rows: Mapping[str, _PortRow], columns: Mapping[str, _Columns], call: _Call
    ) -> int:
        """Write VLANs, and return the configuration number to wait for."""

        def change() -> None:
            for port, row in rows.items():
                row.vlan_mode = [columns[port].vlan_mode]
                row.tag = list(columns[port].tag)
                row.trunks = columns[port].trunks

        return self._write(change, call)

    def _write(self, change: Callable[[], None], call: _Call) -> int:
        """Commit the values that ``change`` sets; return the configuration number to wait for."""
        txn = self._transaction()
        change()
        self._root().increment("next_cfg")
        sent = txn.commit() == _Txn.INCOMPLETE
        try:
            status = self._finish(txn, call)
        except _SessionLostError as error:
            raise self._unconfirmed(str(error)) from error
        if status == _Txn.SUCCESS:
            return int(txn.get_increment_new_value())
        if status == _Txn.UNCHANGED:
            return self._root().next_cfg
        if status == _Txn.TRY_AGAIN:
            self.close()
            if sent:
                raise self._unconfirmed("the session broke")
            raise DeviceUnavailable(self._name, f"the session with {self._address} broke")
        if status == _Txn.NOT_LOCKED:
            self.close()
            raise self._held_elsewhere()
        raise DeviceError(self._name, f"the database refused the change: {txn.get_error()}")

    def _await_applied(self, target: int, call: _Call) -> None:
        try:
            self._run_until(lambda: self._root().cur_cfg >= target, call)
        except _SessionLostError as error:
            raise self._unconfirmed(f"ovs-vswitchd has not applied it: {error}") from error

    def _held_elsewhere(self) -> HeldElsewhere:
        return HeldElsewhere(
            self._name,
            f"another controller holds bridge {self._bridge} (lock {self._lock_name} at "
            f"{self._address}): stop one of the two",
        )

    def _unconfirmed(self, reason: str) -> OutcomeUnknown:
        self.close()
        return OutcomeUnknown(
            self._name, f"a change was written to {self._address} and not confirmed: {reason}"
        )

    def _transaction(self) -> _Transaction:
        """A transaction that inserts no rows, as all of ours: nothing in it is named by its place.

        The library would look for such names in every number of every set.
        """
        txn = _Txn(self._idl)
        txn._substitute_uuids = lambda json: json
        made: _Transaction = txn
        return made

    def _finish(self, txn: _Transaction, call: _Call) -> str:
        status = txn.commit()
        while status == _Txn.INCOMPLETE:
            self._idl.run()
            status = txn.commit()
            if status == _Txn.INCOMPLETE:
                self._wait(call)
        return status

    def _run_until(self, done: Callable[[], bool], call: _Call) -> None:
        while True:
            self._idl.run()
            if done():
                return
            self._wait(call)

    def _wait(self, call: _Call) -> None:
        waiter = _Waiter(call)
        self._idl.wait(waiter)
        waiter.block()


def _fetch_schema(address: str, call: _Call) -> Mapping[str, object]:
    """The server's own schema, so that a remote switch of another version is understood."""
    error, stream = ovs.stream.Stream.open(address)
    while not error and (error := stream.connect()) in _RETRY:
        waiter = _Waiter(call)
        stream.connect_wait(waiter)
        waiter.block()
    if error:
        raise _SessionLostError(os.strerror(error))
    connection = ovs.jsonrpc.Connection(stream)
    try:
        request = ovs.jsonrpc.Message.create_request("get_schema", [_DATABASE])
        connection.send(request)
        while True:
            connection.run()
            error, reply = connection.recv()
            if error in _RETRY:
                waiter = _Waiter(call)
                connection.wait(waiter)
                connection.recv_wait(waiter)
                waiter.block()
            elif error:
                raise _SessionLostError("the connection was closed")
            elif reply.id == request.id:
                break
    finally:
        connection.close()
    if reply.type != ovs.jsonrpc.Message.T_REPLY:
        raise _SessionLostError(f"no database {_DATABASE} there: {reply.error}")
    schema: Mapping[str, object] = reply.result
    return schema


class _Waiter:
    """Blocks until the IDL's sockets or timers have work; replaces ``ovs.poller.Poller``.

    That class uses ``select``, which fails beyond 1024 file descriptors, and knows no deadline.
    """

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._poll = select.poll()
        self._events: dict[int, int] = {}
        self._limit_ms: float | None = None

    def fd_wait(self, fd: int | socket.socket, events: int) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        self._events[number] = self._events.get(number, 0) | events  # room to send, and replies
        self._poll.register(number, self._events[number])

    def timer_wait(self, msec: float) -> None:
        self._limit_ms = msec if self._limit_ms is None else min(self._limit_ms, msec)

    def immediate_wake(self) -> None:
        self.timer_wait(0)

    def block(self) -> None:
        """Raises _SessionLostError when the deadline has passed."""
        self._call.wait(self._poll, self._limit_ms)


def _counters(port: _PortRow) -> PortCounters:
    """Counters of all members of a bond together; 0 for those that ovs-vswitchd lacks yet."""

    def total(name: str) -> int:
        return sum(interface.statistics.get(name, 0) for interface in port.interfaces)

    return PortCounters(
        rx_frames=total("rx_packets"),
        tx_frames=total("tx_packets"),
        rx_octets=total("rx_bytes"),
        tx_octets=total("tx_bytes"),
        rx_dropped=total("rx_dropped"),
        tx_dropped=total("tx_dropped"),
    )


@lru_cache(maxsize=64)  # most ports have what others have
def _membership(mode: str, tag: VlanId | None, trunks: frozenset[VlanId]) -> PortVlans | None:
    """The membership that columns of a Port row say; None for a mode that is not known."""
    match mode:
        case "access":
            return PortVlans(frozenset(), tag)
        case "trunk":
            return PortVlans(trunks)
        case "native-untagged":
            return PortVlans(trunks - {tag}, tag)
        case "native-tagged":
            return PortVlans(trunks | frozenset(() if tag is None else (tag,)))
    return None


def _columns(vlans: PortVlans) -> _Columns:
    mode = "trunk" if vlans.native is None else "native-untagged"
    tag = () if vlans.native is None else (vlans.native,)
    return _Columns(mode, tag, vlans.tagged)
