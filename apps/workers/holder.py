"""A worker's switches: reports of their messages, and execution of orders.

Runs in the hub's thread. A switch has a single connection here: a second connection with the same
datapath id waits until the first has answered an echo, or has failed to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from apps.openflow.interface import PortInfo, SumRequest, Sums, SwitchConnection
from apps.openflow.limits import MOST_PORTS
from apps.openflow.lines import read_waiting_messages
from apps.openflow.second_connections import SecondConnections
from apps.workers import wire
from apps.workers.switches import kind_number
from apps.workers.wire import ConnectionReports, Order, Record
from drivers.codecs.openflow.messages import MAX_MULTIPART_BYTES
from drivers.codecs.openflow.statistics import MalformedReplyError, octets_by_subject
from hydra.failures import FailureKind
from hydra.forwarding.frames import parse_probe

_MOST_SUMS = 16
"""Requests of a switch for sums under way."""
_MOST_JOINED_BYTES = 1 << 20
"""Largest size of statistics parts joined into one report."""


@dataclass(slots=True)
class _Held:
    """A reported connection."""

    number: int
    datapath: int
    connection: SwitchConnection
    ports: dict[int, PortInfo]
    used: bool = False
    parts: dict[int, bytearray] = field(default_factory=dict)
    """Incomplete statistics, by xid."""
    sums: dict[int, SumRequest] = field(default_factory=dict)
    """Requests with answers reported as sums, by xid."""


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A second connection, and the switch's ports."""

    connection: SwitchConnection
    ports: dict[int, PortInfo]


class Holder:
    """Receives the events of :class:`~apps.openflow.interface.SwitchEvents`."""

    def __init__(
        self,
        to_all: Callable[[Record], None],
        to_leader: Callable[[Record], None],
        known: Callable[[int], bool] = lambda _datapath: True,
    ) -> None:
        """``to_all``: send to every controller; ``to_leader``: send to the controller whose orders
        count; ``known``: true for datapath ids of the fabric.
        """
        self.knows = known
        self._to_all = to_all
        self._to_leader = to_leader
        self._numbers = itertools.count(1)
        self._held: dict[int, _Held] = {}
        """By number."""
        self._number_of: dict[SwitchConnection, int] = {}
        self._by_datapath: dict[int, _Held] = {}
        self._newcomers = SecondConnections[_Newcomer](self._report_second, self._replace)

    def everything(self) -> Iterator[Record]:
        """The first reports for a controller that knows nothing yet."""
        for held in self._held.values():
            yield _connected(held)

    # -- orders -----------------------------------------------------------------------------------

    def obey(self, order: Record) -> None:
        if order.kind == Order.CATCH_UP:
            read_waiting_messages()
            self._to_leader(Record(ConnectionReports.CAUGHT_UP, 0, order.xid))
            return
        held = self._held.get(order.number)
        if held is None:
            return  # the connection has ended, and the report is under way
        if order.kind == Order.SEND:
            held.connection.send(order.body)
        elif order.kind == Order.SUM:
            while len(held.sums) >= _MOST_SUMS:
                del held.sums[next(iter(held.sums))]  # the request has no answer
            request = held.sums[order.xid] = wire.unpacked_sum_request(order)
            held.connection.send(request)
        elif order.kind == Order.USE:
            held.used = True
        elif order.kind == Order.CLOSE:
            held.connection.close()
        else:
            raise ValueError(f"an order of kind {order.kind}")

    # -- events -----------------------------------------------------------------------------------

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None:
        older = self._by_datapath.get(datapath)
        if older is None:
            self._hold(datapath, connection, dict(ports))
            return
        newcomer, in_use = _Newcomer(connection, dict(ports)), older
        self._newcomers.wait(
            datapath, newcomer, older.connection, lambda: self._by_datapath.get(datapath) is in_use
        )

    def switch_refused(self, datapath: int | None, address: str, why: str) -> None:
        """Report to all controllers: each has a log line and a condition for the switch."""
        self._to_all(Record(ConnectionReports.REFUSED, 0, body=wire.text([datapath, address, why])))

    def _report_second(self, datapath: int, cause: str, text: str) -> None:
        held = self._by_datapath[datapath]
        self._answered(held.connection, ConnectionReports.SECOND, 0, body=wire.text([cause, text]))

    def _replace(self, datapath: int) -> None:
        self._let_go(self._by_datapath[datapath])

    def _hold(
        self, datapath: int, connection: SwitchConnection, ports: dict[int, PortInfo]
    ) -> None:
        held = _Held(next(self._numbers), datapath, connection, ports)
        self._held[held.number] = self._by_datapath[datapath] = held
        self._number_of[connection] = held.number
        self._to_all(_connected(held))

    def _let_go(self, held: _Held) -> None:
        del self._held[held.number], self._by_datapath[held.datapath]
        del self._number_of[held.connection]
        self._to_all(Record(ConnectionReports.DISCONNECTED, held.number))
        for newcomer in self._newcomers.take(held.datapath):
            self.switch_connected(held.datapath, newcomer.connection, newcomer.ports)

    def switch_disconnected(self, datapath: int, connection: SwitchConnection) -> None:
        held = self._of(connection)
        if held is not None:
            self._let_go(held)
        else:
            self._newcomers.forget(datapath, connection)

    def _of(self, connection: SwitchConnection) -> _Held | None:
        number = self._number_of.get(connection)
        return None if number is None else self._held[number]

    def port_changed(
        self, datapath: int, connection: SwitchConnection, port: PortInfo, *, deleted: bool
    ) -> None:
        held = self._of(connection)
        waiting = self._newcomers.of(datapath)
        new = (newcomer.ports for newcomer in waiting if newcomer.connection is connection)
        known = held.ports if held else next(new, None)
        if known is None:
            return
        if deleted:
            known.pop(port.number, None)
        elif port.number in known or len(known) < MOST_PORTS:
            known[port.number] = port
        else:
            return
        if held is not None:
            body = wire.text([port.number, port.name, port.up])
            self._to_all(Record(ConnectionReports.PORT, held.number, value=int(deleted), body=body))

    def _answered(
        self,
        connection: SwitchConnection,
        kind: ConnectionReports,
        xid: int,
        value: int = 0,
        body: bytes = b"",
    ) -> None:
        number = self._number_of.get(connection)
        if number is not None:
            self._to_leader(Record(kind, number, xid, value, body))

    def barrier_replied(self, connection: SwitchConnection, xid: int) -> None:
        self._answered(connection, ConnectionReports.BARRIER, xid)

    def error_replied(
        self, connection: SwitchConnection, xid: int, kind: FailureKind, error: str
    ) -> None:
        self._answered(connection, ConnectionReports.ERROR, xid, kind_number(kind), error.encode())

    def role_replied(self, connection: SwitchConnection, xid: int, generation: int) -> None:
        self._answered(connection, ConnectionReports.ROLE, xid, generation)

    def role_taken(self, datapath: int, connection: SwitchConnection, generation: int) -> None:  # noqa: ARG002
        """Reported as a role with an xid used by no request."""
        self._answered(connection, ConnectionReports.ROLE, wire.UNASKED, generation)

    def statistics_replied(
        self, connection: SwitchConnection, xid: int, body: bytes, *, more: bool
    ) -> None:
        held = self._of(connection)
        if held is None:
            return
        before = held.parts.pop(xid, None)
        most = MAX_MULTIPART_BYTES if xid in held.sums else _MOST_JOINED_BYTES
        if more and len(before or b"") + len(body) <= most:
            while before is None and len(held.parts) >= _MOST_SUMS:  # drop parts nobody asked for
                old = next(iter(held.parts))
                self._answered(
                    connection, ConnectionReports.STATISTICS, old, 1, bytes(held.parts.pop(old))
                )
            parts = held.parts[xid] = before if before is not None else bytearray()
            parts += body
            return
        joined = body if before is None else bytes(before) + body
        request = held.sums.pop(xid, None)
        if request is not None and not more:
            with suppress(MalformedReplyError):  # else the controller gets the unreadable reply
                sums = Sums(*octets_by_subject(joined, request.mask, request.subjects))
                self._answered(connection, ConnectionReports.SUMS, xid, 0, wire.packed_sums(sums))
                return
        self._answered(connection, ConnectionReports.STATISTICS, xid, int(more), joined)

    def rule_ended(self, datapath: int, connection: SwitchConnection, cookie: int) -> None:  # noqa: ARG002
        held = self._of(connection)
        if held is not None and held.used:
            self._answered(connection, ConnectionReports.RULE_ENDED, 0, cookie)

    def packet_received(self, datapath: int, connection: SwitchConnection, frame: bytes) -> None:  # noqa: ARG002
        held = self._of(connection)
        if held is not None and held.used and parse_probe(frame) is not None:
            self._answered(connection, ConnectionReports.PACKET, 0, 0, frame)


def _connected(held: _Held) -> Record:
    document = {
        "datapath": held.datapath,
        "address": held.connection.address,
        "ports": [[port.number, port.name, port.up] for port in held.ports.values()],
    }
    return Record(ConnectionReports.CONNECTED, held.number, body=wire.text(document))
