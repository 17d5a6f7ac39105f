"""Commands and questions to OpenFlow switches, as blocking calls for worker threads."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from apps.openflow.asking import Sending
from apps.openflow.replies import Reply
from apps.openflow.requests import Answer, Asked, CatchUp, Counted, Pending, read_first
from apps.openflow.roles import Roles
from apps.openflow.seam import PortInfo, Post, SumRequest, SwitchConnection
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
_GAP_S = 0.5
"""Time without a switch's table, after which those that have not come are late."""


class Question(NamedTuple):
    """A question for counters: of the rules in a table of a switch, or of its ports."""

    switch: DatapathId
    table: int | None
    """None for its ports."""


class Fleet(Roles):
    """Meters, counters and ports of the switches that are connected, and all that :class:`Roles`
    and :class:`~apps.openflow.tables.Tables` offer.
    """

    def __init__(
        self,
        fabric: Fabric,
        post: Post,
        over: Callable[[], bool] = lambda: False,
        catch_up: CatchUp = read_first,
    ) -> None:
        """``over`` and ``catch_up``: as of :class:`~apps.openflow.switchboard.Switchboard`."""
        super().__init__(fabric, post, over, catch_up)
        self._owing: set[DatapathId] = set()
        """Switches whose table somebody has asked for who no longer waits."""
        self._slow_readers: set[DatapathId] = set()
        """Switches whose table has come in late."""

    def change_meters(
        self, changes: Mapping[DatapathId, Sequence[MeterChange]], timeout_s: float
    ) -> dict[DatapathId, Failure | None]:
        """Change meters on many switches at once; returns failures as
        :meth:`~apps.openflow.tables.Tables.apply` does.

        Changes before one that a switch refuses stay made.
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
        """Ask switches for the counters of a table's rules, or of their ports.

        ``subjects``: of rules, sums by so many subjects (mask of the cookie, number) are enough,
        where others can make them.

        Returns at once. Each reply becomes its body, for
        :func:`drivers.codecs.openflow.statistics.decode_flow_stats` or :meth:`ports_by_name`; or
        the failure. Switches that are not connected are left out. :meth:`give_up` a reply that
        is late.
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
        """Expect no answer any more; one that comes nevertheless is passed over."""
        given_up = set(replies)
        with self._lock:
            late = [xid for xid, one in self._pending.items() if one.reply in given_up]
            for xid in late:
                del self._pending[xid]

    def rule_tables(
        self, datapaths: Collection[DatapathId], timeout_s: float, *, hurries: bool = False
    ) -> Iterator[tuple[DatapathId, SwitchPorts, bytes]]:
        """Every rule of these switches, with their ports, as OFPMP_FLOW reply bodies.

        Each as it comes in, so that not all are in memory at a time; none of a switch that does
        not answer. With ``hurries``, once no switch has answered for half a second, the others are
        late. A late switch is not asked again before it has answered; once it has, ``timeout_s``
        are waited for it: reading its tables takes long.
        """
        some = [one for one in datapaths if one not in self._owing] if hurries else datapaths
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
        self, datapath: DatapathId, one: Asked, timeout_s: float, *, is_late: bool
    ) -> Answer:
        """The table of a switch; a late one goes on being expected, with nobody who waits."""
        if one.reply.done():
            return one.reply.result()
        if not is_late:
            self._slow_readers.discard(datapath)
            return self._answer(datapath, one, timeout_s)

        def heard(reply: Reply[Answer]) -> None:
            self._owing.discard(datapath)
            if not isinstance(reply.result(), Failure):
                self._slow_readers.add(datapath)

        self._owing.add(datapath)
        one.reply.add_done_callback(heard)
        return self._failure(datapath, FailureKind.LATE, "its table is late")

    def rule_counters(
        self, datapaths: Collection[DatapathId], cookie: int, mask: int, timeout_s: float
    ) -> dict[DatapathId, bytes | None]:
        """Counters of the rules whose cookies agree with ``cookie`` on ``mask``.

        As :func:`drivers.codecs.openflow.statistics.decode_flow_stats` takes them; None for a
        switch that did not answer.
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
        """Counters of all meters, by number; switches that do not answer properly are left out."""
        results = self._request(
            datapaths, lambda _dp, _ports, xid: encode_meter_stats_request(xid), timeout_s
        )
        counters: dict[DatapathId, dict[int, MeterCounters]] = {}
        for datapath, result in results.items():
            with suppress(MalformedReplyError):
                if isinstance(result, bytes):
                    counters[datapath] = decode_meter_stats(result)
        return counters

    def meter_rates(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, dict[int, int]]:
        """Rates of all meters, in kb/s, by number; switches that do not answer properly are left
        out.
        """
        results = self._request(
            datapaths, lambda _dp, _ports, xid: encode_meter_config_request(xid), timeout_s
        )
        rates: dict[DatapathId, dict[int, int]] = {}
        for datapath, result in results.items():
            with suppress(MalformedReplyError):
                if isinstance(result, bytes):
                    rates[datapath] = decode_meter_rates(result)
        return rates

    def await_ports_up(
        self, datapath: DatapathId, names: Collection[str], timeout_s: float
    ) -> tuple[str, ...]:
        """Wait for carrier; returns the ports that are still down (or unknown) at the end.

        With time to wait, a port is up if the switch describes it so when it is asked: what it told
        before may be from before mirrors moved, and the message that it went down on its way still.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            left_s = until_s - time.monotonic()
            missing = self.await_told_up(datapath, names, max(0.0, left_s))
            if missing or timeout_s <= 0:
                return missing
            now = self._described(datapath, max(0.0, left_s))
            if now is None:
                return tuple(names)
            missing = tuple(n for n in names if (port := now.get(n)) is None or not port.up)
            if not missing:
                return ()
            self.note_ports(datapath, now.values())

    def await_told_up(
        self, datapath: DatapathId, names: Collection[str], timeout_s: float
    ) -> tuple[str, ...]:
        """Wait until a switch has told of carrier at these ports; returns those of which it has not
        by the end, or has told otherwise since.
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
        """A switch's ports by name, as they are now; None: it does not answer properly.

        Open vSwitch reads of links between the turns in which it reads of commands: a question is
        answered by what was read after the barrier before it.
        """
        one = (datapath,)
        barrier = self._request(one, lambda _dp, _ports, xid: encode_barrier(xid), timeout_s)
        if isinstance(barrier[datapath], Failure):
            return None
        described = self._request(
            one, lambda _dp, _ports, xid: encode_port_descriptions_request(xid), timeout_s
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
        """Note how ports of a switch are, ahead of what it told before and is yet to be read."""
        with self._changed:
            switch = self._switches.get(datapath)
            if switch is None:
                return
            switch.names |= {port.name: port for port in ports if port.name in switch.names}
            earlier = switch.number_anew(self._substrate.ports(datapath))
            self._changed.notify_all()
        self._tell_of_numbers(datapath, earlier)

    def port_packets(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, dict[str, PortPackets] | None]:
        """Counters of the switches' ports by name; None for one that did not answer properly."""
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
        """A switch's port counters from its reply. Raises MalformedReplyError."""
        by_number = decode_port_stats(body)
        with self._lock:
            switch = self._switches.get(datapath)
            names = {} if switch is None else dict(switch.names)
        return {
            name: by_number[port.number] for name, port in names.items() if port.number in by_number
        }
