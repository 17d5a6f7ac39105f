"""Commands and questions to OpenFlow switches, as blocking calls for worker threads."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from apps.openflow.asking import Sending
from apps.openflow.interface import PortInfo, Post, SumRequest, SwitchConnection
from apps.openflow.replies import Reply
from apps.openflow.requests import Answer, Asked, CatchUp, Counted, Pending, read_first
from apps.openflow.roles import Roles
from apps.openflow.tables import failures
from drivers.codecs.openflow.messages import (
    TABLE_ALL,
    OpenFlowError,
    decode_port_descriptions,
    encode_barrier,
    encode_flow_stats_request,
    encode_port_descriptions_request,
)
from drivers.codecs.openflow.meters import (
    MeterChange,
    MeterCounters,
    decode_meter_rates,
    decode_meter_stats,
    encode_meter_changes,
    encode_meter_config_request,
    encode_meter_stats_request,
)
from drivers.codecs.openflow.rules import (
    SwitchPorts,
    encode_port_stats_request,
)
from drivers.codecs.openflow.statistics import MalformedReplyError, PortPackets, decode_port_stats
from hydra.failures import Failure, FailureKind
from hydra.model import DatapathId, Fabric

LOG = logging.getLogger("hydra.fleet")
_MeterT = TypeVar("_MeterT")
_GAP_S = 0.5
"""Time without any answer, after which the missing tables are late."""


class Question(NamedTuple):
    """A question for counters: of the rules in a table of a switch, or of the switch's ports."""

    switch: DatapathId
    table: int | None
    """None for the ports."""


class Fleet(Roles):
    """Meters, counters and ports of connected switches, besides :class:`Roles` and
    :class:`~apps.openflow.tables.Tables`.
    """

    def __init__(
        self,
        fabric: Fabric,
        post: Post,
        over: Callable[[], bool] = lambda: False,
        catch_up: CatchUp = read_first,
    ) -> None:
        """For ``over`` and ``catch_up`` see :class:`~apps.openflow.switchboard.Switchboard`."""
        super().__init__(fabric, post, over, catch_up)
        self._owing: set[DatapathId] = set()
        """Switches with an overdue table that no caller waits for any longer."""
        self._slow_readers: set[DatapathId] = set()
        """Switches with a table that came late."""

    def change_meters(
        self, changes: Mapping[DatapathId, Sequence[MeterChange]], timeout_s: float
    ) -> dict[DatapathId, Failure | None]:
        """Change meters on many switches at once; returns failures as
        :meth:`~apps.openflow.tables.Tables.apply` does.

        If a switch refuses a change, earlier changes stay.
        """
        return failures(
            self._request(
                changes,
                lambda dp, _ports, xid: (
                    encode_meter_changes(changes[dp], xid) + encode_barrier(xid)
                ),
                timeout_s,
            )
        )

    def set_meters(self, changes: Mapping[DatapathId, Sequence[MeterChange]]) -> None:
        """Change meters as :meth:`change_meters` does, without waiting for an answer."""
        self.send_messages(
            {
                datapath: encode_meter_changes(some, self._next_xid())
                for datapath, some in changes.items()
            }
        )

    def ask_for_counters(
        self, questions: Collection[Question], subjects: tuple[int, int] | None = None
    ) -> dict[Question, Reply[Counted]]:
        """Ask switches for the counters of a table's rules, or of their ports; returns at once.

        ``subjects``, for rules: (mask of the cookie, number of subjects). Connections that can add
        up counters by subject may then answer with the sums.

        Each reply becomes a body for :func:`drivers.codecs.openflow.statistics.decode_flow_stats`
        or :meth:`ports_by_name`, or sums, or a failure. Switches that are not connected are left
        out. Call :meth:`give_up` for late replies.
        """
        asked: dict[Question, Reply[Counted]] = {}
        sending: dict[SwitchConnection, bytes] = {}
        summed: list[Sending] = []
        with self._lock:
            for question in questions:
                switch = self._switches.get(question.switch)
                if switch is None or switch.is_mute:
                    continue
                xid, reply = self._next_xid(), Reply[Counted]()
                self._pending[xid] = Pending(
                    question.switch, switch.connection, reply, ends_in_error=True
                )
                asked[question] = reply
                if question.table is None:
                    message = encode_port_stats_request(xid)
                else:
                    message = encode_flow_stats_request(question.table, 0, 0, xid)
                    if subjects is not None and getattr(switch.connection, "takes_sums", False):
                        request = SumRequest.of(message, xid, *subjects)
                        summed.append((switch.connection, request))
                        continue
                sending[switch.connection] = sending.get(switch.connection, b"") + message
        if sending or summed:
            self._post(lambda: self._deliver([*sending.items(), *summed]))
        return asked

    def give_up(self, replies: Collection[Reply[Counted]]) -> None:
        """Stop expecting the answers to ``replies``; a later answer is ignored."""
        given_up = set(replies)
        with self._lock:
            late = [xid for xid, pending in self._pending.items() if pending.reply in given_up]
            for xid in late:
                del self._pending[xid]

    def rule_tables(
        self, datapaths: Collection[DatapathId], timeout_s: float, *, hurries: bool = False
    ) -> Iterator[tuple[DatapathId, SwitchPorts, bytes]]:
        """Every rule of the given switches, with the switch's ports, as OFPMP_FLOW reply bodies.

        Yields each table on arrival, so that not all tables are in memory at a time. Switches
        without an answer are left out. With ``hurries``, once no switch has answered for half a
        second, the remaining switches are late. A late switch is not asked again before its answer;
        after the answer, the switch gets the whole ``timeout_s``, since reading its tables takes
        long.
        """
        some = (
            [datapath for datapath in datapaths if datapath not in self._owing]
            if hurries
            else datapaths
        )
        answers = self._in_turn(
            some,
            lambda _datapath, _ports, xid: encode_flow_stats_request(TABLE_ALL, 0, 0, xid),
            timeout_s,
            gap_s=_GAP_S if hurries else math.inf,
            slow=frozenset(self._slow_readers) if hurries else (),
            give_up=self._table_or_owed if hurries else None,
        )
        for datapath, answer in answers:
            switch = self._switch(datapath)
            if switch is not None and isinstance(answer, bytes):
                yield datapath, switch.ports, answer

    def _table_or_owed(
        self, datapath: DatapathId, asked: Asked, timeout_s: float, *, is_late: bool
    ) -> Answer:
        """The table of a switch. A late table stays expected, though no caller waits for the
        table.
        """
        if asked.reply.done():
            return asked.reply.result()
        if not is_late:
            self._slow_readers.discard(datapath)
            return self._answer(datapath, asked, timeout_s)

        def on_reply(reply: Reply[Answer]) -> None:
            self._owing.discard(datapath)
            if not isinstance(reply.result(), Failure):
                self._slow_readers.add(datapath)

        self._owing.add(datapath)
        asked.reply.add_done_callback(on_reply)
        return self._failure(datapath, FailureKind.LATE, "the flow table is late")

    def rule_counters(
        self, datapaths: Collection[DatapathId], cookie: int, mask: int, timeout_s: float
    ) -> dict[DatapathId, bytes | None]:
        """Counters of the rules whose cookies agree with ``cookie`` on ``mask``.

        Input for :func:`drivers.codecs.openflow.statistics.decode_flow_stats`; None for a switch
        without an answer.
        """
        results = self._request(
            datapaths,
            lambda _dp, _ports, xid: encode_flow_stats_request(TABLE_ALL, cookie, mask, xid),
            timeout_s,
        )
        return {
            datapath: result if isinstance(result, bytes) else None
            for datapath, result in results.items()
        }

    def meter_counters(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, dict[int, MeterCounters]]:
        """Counters of all meters, by number; switches without a proper answer are left out."""
        return self._meters(datapaths, encode_meter_stats_request, decode_meter_stats, timeout_s)

    def meter_rates(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, dict[int, int]]:
        """Rates of all meters, in kb/s, by number; switches without a proper answer are left
        out.
        """
        return self._meters(datapaths, encode_meter_config_request, decode_meter_rates, timeout_s)

    def _meters(
        self,
        datapaths: Collection[DatapathId],
        encode: Callable[[int], bytes],
        decode: Callable[[bytes], dict[int, _MeterT]],
        timeout_s: float,
    ) -> dict[DatapathId, dict[int, _MeterT]]:
        found: dict[DatapathId, dict[int, _MeterT]] = {}
        results = self._request(datapaths, lambda _dp, _ports, xid: encode(xid), timeout_s)
        for datapath, result in results.items():
            with suppress(MalformedReplyError):
                if isinstance(result, bytes):
                    found[datapath] = decode(result)
        return found

    def await_ports_up(
        self, datapath: DatapathId, names: Collection[str], timeout_s: float
    ) -> tuple[str, ...]:
        """Wait for carrier; returns the ports that are still down (or unknown) at the end.

        With a positive ``timeout_s``, a port counts as up only if the switch describes the port as
        up when asked: an earlier report may date from before mirrors moved, with the report of the
        lost carrier still on its way.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            remaining_s = until_s - time.monotonic()
            missing = self.await_catch_up(datapath, names, max(0.0, remaining_s))
            if missing or timeout_s <= 0:
                return missing
            now = self._described(datapath, max(0.0, remaining_s))
            if now is None:
                return tuple(names)
            missing = tuple(n for n in names if (port := now.get(n)) is None or not port.up)
            if not missing:
                return ()
            self.note_ports(datapath, now.values())

    def await_catch_up(
        self, datapath: DatapathId, names: Collection[str], timeout_s: float
    ) -> tuple[str, ...]:
        """Wait until a switch has reported carrier at the given ports.

        Returns the ports without such a report at the end, or with a later report of lost carrier.
        """

        def missing() -> tuple[str, ...]:
            switch = self._switches.get(datapath)
            if switch is None:
                return tuple(names)
            return tuple(
                name for name in names if (port := switch.names.get(name)) is None or not port.up
            )

        with self._changed:
            self._changed.wait_for(lambda: not missing(), timeout_s)
            return missing()

    def _described(self, datapath: DatapathId, timeout_s: float) -> dict[str, PortInfo] | None:
        """A switch's present ports by name; None without a proper answer.

        Open vSwitch reads link changes between the turns in which it reads commands: after the
        barrier, the answer to the question contains the link changes read since.
        """
        only = (datapath,)
        barrier = self._request(only, lambda _dp, _ports, xid: encode_barrier(xid), timeout_s)
        if isinstance(barrier[datapath], Failure):
            return None
        described = self._request(
            only, lambda _dp, _ports, xid: encode_port_descriptions_request(xid), timeout_s
        )
        answer = described[datapath]
        if isinstance(answer, Failure):
            return None
        try:
            ports = decode_port_descriptions(answer)
        except OpenFlowError:
            return None
        return {p.name: PortInfo(p.number, p.name, p.carrier and not p.down) for p in ports}

    def note_ports(self, datapath: DatapathId, ports: Iterable[PortInfo]) -> None:
        """Note the state of a switch's ports, ahead of earlier reports that are still unread."""
        with self._changed:
            switch = self._switches.get(datapath)
            if switch is None:
                return
            switch.names |= {port.name: port for port in ports if port.name in switch.names}
            earlier = switch.renumber(self._substrate.ports(datapath))
            self._changed.notify_all()
        self._report_numbers(datapath, earlier)

    def port_packets(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, dict[str, PortPackets] | None]:
        """Counters of the switches' ports by name; None for a switch without a proper answer."""
        results = self._request(
            datapaths, lambda _datapath, _ports, xid: encode_port_stats_request(xid), timeout_s
        )
        return {datapath: self._by_name(datapath, result) for datapath, result in results.items()}

    def _by_name(self, datapath: DatapathId, result: Answer) -> dict[str, PortPackets] | None:
        if not isinstance(result, bytes):
            return None
        try:
            return self.ports_by_name(datapath, result)
        except MalformedReplyError:
            return None

    def ports_by_name(self, datapath: DatapathId, body: bytes) -> dict[str, PortPackets]:
        """A switch's port counters from the reply's body. Raises MalformedReplyError."""
        by_number = decode_port_stats(body)
        with self._lock:
            switch = self._switches.get(datapath)
            names = {} if switch is None else dict(switch.names)
        return {
            name: by_number[port.number] for name, port in names.items() if port.number in by_number
        }
