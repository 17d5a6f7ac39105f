"""The vswitches and OpenFlow ToRs that are connected, as blocking calls for worker threads.

Events arrive in the OpenFlow hub's thread and never block there; calls come from native threads,
hand bytes to the hub and wait on futures. One lock guards the tables and is held for a few
dictionary operations only.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.framework import Connection, PortInfo, Post
from apps.meters import (
    MeterChange,
    MeterCounters,
    decode_meter_stats,
    encode_meter_changes,
    encode_meter_stats_request,
)
from apps.openflow import (
    NO_BUNDLES,
    ROLE_MASTER,
    ROLE_NO_CHANGE,
    SwitchPorts,
    encode_changes,
    encode_open_bundle,
    encode_packet_out,
    encode_port_stats_request,
    encode_role_request,
)
from apps.openflow_statistics import (
    MalformedReplyError,
    PortPackets,
    decode_port_stats,
)
from apps.rule_tables import RuleTable, decode_rules
from drivers.codecs.openflow import (
    BUNDLE_COMMIT,
    BUNDLE_DISCARD,
    MAX_MULTIPART_BYTES,
    TABLE_ALL,
    encode_barrier,
    encode_bundle_control,
    encode_flow_stats_request,
)
from hydra.frames import parse_probe
from hydra.model import DatapathId, Fabric
from hydra.rules import RuleChange
from hydra.substrate import substrate_of

LOG = logging.getLogger("hydra.fleet")
_FIRST_XID = 0x4000_0000
_XIDS = 0x4000_0000
_BUNDLE, _STAGED_BUNDLE = 1, 2
"""A connection has one bundle at a time that is sent from open to commit in one piece, and one that
waits: all of a kind may have the same id, and are encoded by what was compiled for it."""


@dataclass(frozen=True, slots=True)
class _Staged:
    """A bundle that waits for its commit."""

    changes: Sequence[RuleChange]
    ports: SwitchPorts
    xid: int
    future: Future[bytes]


@dataclass(slots=True)
class _Switch:
    connection: Connection
    ports: SwitchPorts
    names: dict[str, PortInfo]
    staged: _Staged | None = None
    takes_bundles: bool = True


@dataclass(slots=True)
class _Pending:
    """A request under way: resolved by its barrier, its last statistics part, or a lost switch."""

    datapath: DatapathId
    future: Future[bytes]
    body: bytearray = field(default_factory=bytearray)
    error: str | None = None


class _Asked(NamedTuple):
    xid: int
    future: Future[bytes]


_Encode = Callable[[DatapathId, SwitchPorts, int], bytes]


class Question(NamedTuple):
    """Whose counters, and of what."""

    switch: DatapathId
    table: int | None
    """None: those of its ports."""


class SwitchGoneError(Exception):
    """The connection ended before the switch answered: the outcome is unknown."""


class SwitchRefusedError(Exception):
    """The switch answered with an OpenFlow error."""


class Fleet:
    """Every switch that speaks OpenFlow to this controller."""

    def __init__(self, fabric: Fabric, post: Post) -> None:
        self._substrate = substrate_of(fabric)
        self._post = post
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._switches: dict[DatapathId, _Switch] = {}
        self._pending: dict[int, _Pending] = {}
        self._probes: dict[int, Future[None]] = {}
        self._xids = itertools.count()
        self._watchers: list[Callable[[DatapathId], None]] = []
        self._probe_watcher: Callable[[int], None] | None = None
        self._port_watchers: list[Callable[[DatapathId, PortInfo], None]] = []

    def watch(
        self,
        connected: Callable[[DatapathId], None],
        port_changed: Callable[[DatapathId, PortInfo], None],
    ) -> None:
        """Be told, in the hub's thread, of switches that connect and ports that change."""
        self._watchers.append(connected)
        self._port_watchers.append(port_changed)

    def watch_probes(self, heard: Callable[[int], None]) -> None:
        """Be told, in the hub's thread, the nonce of every probe that nobody else waits for."""
        self._probe_watcher = heard

    # -- events: the hub's thread ---------------------------------------------------------------

    def switch_connected(
        self, datapath: int, connection: Connection, ports: Mapping[int, PortInfo]
    ) -> None:
        identity = DatapathId(datapath)
        names = {port.name: port for port in ports.values()}
        with self._changed:
            lost = self._forget(identity)
            self._switches[identity] = _Switch(connection, self._numbers(identity, names), names)
            self._changed.notify_all()
        _fail(lost)
        for watcher in self._watchers:
            watcher(identity)

    def _numbers(self, datapath: DatapathId, names: Mapping[str, PortInfo]) -> SwitchPorts:
        def number(name: str) -> int:
            port = names.get(name)
            return port.number if port is not None else 0

        ports = self._substrate.ports(datapath)
        return SwitchPorts(
            number(ports.host),
            number(ports.optical),
            number(ports.electrical),
            tuple(map(number, ports.servers)),
            tuple(map(number, ports.wired)),
        )

    def switch_disconnected(self, datapath: int, connection: Connection) -> None:
        identity = DatapathId(datapath)
        with self._changed:
            switch = self._switches.get(identity)
            if switch is None or switch.connection is not connection:
                return  # an old connection, already replaced
            del self._switches[identity]
            lost = self._forget(identity)
            self._changed.notify_all()
        _fail(lost)

    def _forget(self, datapath: DatapathId) -> list[_Pending]:
        xids = [xid for xid, pending in self._pending.items() if pending.datapath == datapath]
        return [self._pending.pop(xid) for xid in xids]

    def port_changed(self, datapath: int, port: PortInfo, *, deleted: bool) -> None:
        identity = DatapathId(datapath)
        with self._changed:
            switch = self._switches.get(identity)
            if switch is None:
                return
            if deleted:
                switch.names.pop(port.name, None)
            else:
                switch.names[port.name] = port
            switch.ports = self._numbers(identity, switch.names)
            self._changed.notify_all()
        for watcher in self._port_watchers:
            watcher(identity, port)

    def barrier_replied(self, datapath: int, xid: int) -> None:
        self._resolve(datapath, xid)

    def error_replied(self, datapath: int, xid: int, error: str) -> None:
        with self._lock:
            pending = self._pending.get(xid)
            if pending is not None and pending.datapath == datapath and pending.error is None:
                pending.error = error

    def role_replied(self, datapath: int, xid: int, generation: int) -> None:
        with self._lock:
            pending = self._pending.get(xid)
            if pending is not None and pending.datapath == datapath:
                pending.body += generation.to_bytes(8, "big")
        self._resolve(datapath, xid)

    def statistics_replied(self, datapath: int, xid: int, body: bytes, *, more: bool) -> None:
        with self._lock:
            pending = self._pending.get(xid)
            if pending is not None and pending.datapath == datapath:
                if len(pending.body) + len(body) > MAX_MULTIPART_BYTES:
                    pending.error = f"statistics of more than {MAX_MULTIPART_BYTES >> 20} MiB"
                else:
                    pending.body += body
        if not more:
            self._resolve(datapath, xid)

    def _resolve(self, datapath: int, xid: int) -> None:
        with self._lock:
            pending = self._pending.get(xid)
            if pending is None or pending.datapath != datapath:
                return
            del self._pending[xid]
        if pending.future.cancelled():
            return
        if pending.error is not None:
            pending.future.set_exception(SwitchRefusedError(pending.error))
        else:
            pending.future.set_result(bytes(pending.body))

    def packet_received(self, _datapath: int, frame: bytes) -> None:
        probe = parse_probe(frame)
        if probe is None:
            return
        with self._lock:
            future = self._probes.pop(probe.nonce, None)
        if future is not None:
            future.set_result(None)
        elif self._probe_watcher is not None:
            self._probe_watcher(probe.nonce)

    # -- calls: native threads ------------------------------------------------------------------

    def connected(self) -> frozenset[DatapathId]:
        with self._lock:
            return frozenset(self._switches)

    def await_connected(self, datapaths: Collection[DatapathId], timeout_s: float) -> None:
        """Wait until all of these switches are connected, or the time is up."""
        wanted = frozenset(datapaths)
        with self._changed:
            self._changed.wait_for(lambda: wanted <= self._switches.keys(), timeout_s)

    def port(self, datapath: DatapathId, name: str) -> PortInfo | None:
        """None while the switch is not connected, or has no such port."""
        with self._lock:
            switch = self._switches.get(datapath)
            return None if switch is None else switch.names.get(name)

    def missing_ports(self, datapath: DatapathId) -> tuple[str, ...]:
        """Configured ports that a connected switch does not have."""
        wanted = self._substrate.ports(datapath).every
        with self._lock:
            switch = self._switches.get(datapath)
            return tuple(n for n in wanted if n not in switch.names) if switch else ()

    def apply(
        self, changes: Mapping[DatapathId, Sequence[RuleChange]], timeout_s: float
    ) -> dict[DatapathId, str | None]:
        """Change tables on many switches at once, one atomic bundle each.

        Of what was staged (:meth:`stage`), only the commit is sent. A switch that knows no bundles
        changes rule by rule. Returns, per switch, None once an error-free barrier confirmed the
        change, else what stood in the way.
        """

        def encode(datapath: DatapathId, ports: SwitchPorts, xid: int) -> bytes:
            number = _BUNDLE if self._takes_bundles(datapath) else None
            return encode_changes(changes[datapath], ports, xid, number) + encode_barrier(xid)

        committed = self._commit_staged(changes)
        others = [datapath for datapath in changes if datapath not in committed]
        results = self._answers({**committed, **self._ask(others, encode)}, timeout_s)
        # A bundle that was refused has changed nothing. It may have waited too long.
        refused = [datapath for datapath, asked in committed.items() if _was_refused(asked)]
        results |= self._answers(self._ask(refused, encode), timeout_s)
        without = [datapath for datapath, result in results.items() if result == NO_BUNDLES]
        self._remember_without_bundles(without)
        results |= self._answers(self._ask(without, encode), timeout_s)
        return {
            datapath: None if isinstance(result, bytes) else result
            for datapath, result in results.items()
        }

    def stage(self, changes: Mapping[DatapathId, Sequence[RuleChange]]) -> None:
        """Send what :meth:`apply` is to change when it is given the same sequences.

        Tables stay as they are. Returns at once; what is staged already is thrown away.
        """
        for datapath, some in changes.items():
            with self._lock:
                switch = self._switches.get(datapath)
            if switch is None or not switch.takes_bundles:
                continue
            self._discard_staged(switch)
            staged = _Staged(some, switch.ports, self._next_xid(), Future())
            bundle = encode_open_bundle(some, staged.ports, staged.xid, _STAGED_BUNDLE)
            with self._lock:
                if self._switches.get(datapath) is not switch:
                    continue
                switch.staged = staged
                self._pending[staged.xid] = _Pending(datapath, staged.future)
            self._send(switch.connection, bundle)

    def _takes_bundles(self, datapath: DatapathId) -> bool:
        with self._lock:
            switch = self._switches.get(datapath)
            return switch is None or switch.takes_bundles

    def _remember_without_bundles(self, datapaths: Iterable[DatapathId]) -> None:
        """Until they connect again: they may come back with other software."""
        for datapath in datapaths:
            with self._lock:
                switch = self._switches.get(datapath)
                if switch is not None:
                    switch.takes_bundles = False
            LOG.warning(
                "%s: a change takes effect rule by rule there, not at once: %s",
                self._substrate.owned().get(datapath, f"switch {datapath:#x}"),
                NO_BUNDLES,
            )

    def _discard_staged(self, switch: _Switch) -> None:
        staged, switch.staged = switch.staged, None
        if staged is not None:
            with self._lock:
                self._pending.pop(staged.xid, None)
            discard = encode_bundle_control(_STAGED_BUNDLE, BUNDLE_DISCARD, self._next_xid())
            self._send(switch.connection, discard)

    def _commit_staged(
        self, changes: Mapping[DatapathId, Sequence[RuleChange]]
    ) -> dict[DatapathId, _Asked]:
        """Commit those of these changes that were staged."""
        committed: dict[DatapathId, _Asked] = {}
        for datapath, some in changes.items():
            with self._lock:
                switch = self._switches.get(datapath)
                staged = None if switch is None else switch.staged
                if switch is None or staged is None or staged.changes is not some:
                    continue
                if staged.ports != switch.ports:
                    continue  # its rules name ports by numbers that are others by now
                switch.staged = None
            xid = staged.xid
            commit = encode_bundle_control(_STAGED_BUNDLE, BUNDLE_COMMIT, xid)
            self._send(switch.connection, commit + encode_barrier(xid))
            committed[datapath] = _Asked(xid, staged.future)
        return committed

    def change_meters(
        self, changes: Mapping[DatapathId, Sequence[MeterChange]], timeout_s: float
    ) -> dict[DatapathId, str | None]:
        """Change meters on many switches at once; returns what stood in the way, as :meth:`apply`.

        What comes before a change that a switch refuses stays.
        """
        results = self._request(
            changes,
            lambda dp, _ports, xid: encode_meter_changes(changes[dp], xid) + encode_barrier(xid),
            timeout_s,
        )
        return {
            datapath: None if isinstance(result, bytes) else result
            for datapath, result in results.items()
        }

    def set_meters(self, changes: Mapping[DatapathId, Sequence[MeterChange]]) -> None:
        """The same, without waiting for an answer."""
        self.send_messages(
            {
                datapath: encode_meter_changes(some, self._next_xid())
                for datapath, some in changes.items()
            }
        )

    def generations(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, int | str]:
        """The generation that each switch knows (OpenFlow 1.3.5, section 6.3.6), or what stood in
        the way of an answer.
        """
        answers = self._request(
            datapaths,
            lambda _datapath, _ports, xid: encode_role_request(ROLE_NO_CHANGE, 0, xid),
            timeout_s,
        )
        return {
            datapath: int.from_bytes(answer, "big") if isinstance(answer, bytes) else answer
            for datapath, answer in answers.items()
        }

    def become_master(
        self, generations: Mapping[DatapathId, int], timeout_s: float
    ) -> dict[DatapathId, str | None]:
        """Fence off a controller that had these switches before, by a generation beyond its own.

        Whoever was a switch's master can't change its rules any more. Returns what stood in the
        way, as :meth:`apply`.
        """
        told = self._request(
            generations,
            lambda datapath, _ports, xid: encode_role_request(
                ROLE_MASTER, generations[datapath], xid
            ),
            timeout_s,
        )
        return {
            datapath: None if isinstance(result, bytes) else result
            for datapath, result in told.items()
        }

    def ask_for_counters(self, questions: Collection[Question]) -> dict[Question, Future[bytes]]:
        """Ask switches for the counters of a table's rules, or of their ports.

        Returns at once. Each future becomes the body of the reply, for
        :func:`apps.openflow.decode_flow_stats` or :meth:`ports_by_name`; or raises what stood in
        the way. Switches that are not connected are left out. :meth:`give_up` one that is late.
        """
        asked: dict[Question, Future[bytes]] = {}
        sending: list[tuple[Connection, bytes]] = []
        with self._lock:
            for question in questions:
                switch = self._switches.get(question.switch)
                if switch is None:
                    continue
                xid, future = self._next_xid(), Future[bytes]()
                self._pending[xid] = _Pending(question.switch, future)
                asked[question] = future
                if question.table is None:
                    message = encode_port_stats_request(xid)
                else:
                    message = encode_flow_stats_request(question.table, 0, 0, xid)
                sending.append((switch.connection, message))
        if sending:
            self._post(lambda: _send_all(sending))
        return asked

    def give_up(self, futures: Collection[Future[bytes]]) -> None:
        """Expect no answer any more; one that comes nevertheless is passed over."""
        given_up = set(futures)
        with self._lock:
            late = [xid for xid, one in self._pending.items() if one.future in given_up]
            for xid in late:
                del self._pending[xid]

    def rule_tables(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, tuple[SwitchPorts, RuleTable] | None]:
        """Every rule of these switches, with their ports; None for one that did not answer."""
        results = self._request(
            datapaths,
            lambda _datapath, _ports, xid: encode_flow_stats_request(TABLE_ALL, 0, 0, xid),
            timeout_s,
        )
        return {
            datapath: self._rule_table(datapath, result) for datapath, result in results.items()
        }

    def _rule_table(
        self, datapath: DatapathId, result: bytes | str
    ) -> tuple[SwitchPorts, RuleTable] | None:
        with self._lock:
            switch = self._switches.get(datapath)
        if switch is None or not isinstance(result, bytes):
            return None
        try:
            return switch.ports, decode_rules(result)
        except MalformedReplyError:
            return None

    def rule_counters(
        self, datapaths: Collection[DatapathId], cookie: int, mask: int, timeout_s: float
    ) -> dict[DatapathId, bytes | None]:
        """Counters of the rules whose cookies agree with ``cookie`` on ``mask``.

        As :func:`apps.openflow.decode_flow_stats` takes them; None for one that did not answer.
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
        """Of all meters, by number; switches that do not answer properly are left out."""
        results = self._request(
            datapaths, lambda _dp, _ports, xid: encode_meter_stats_request(xid), timeout_s
        )
        counters: dict[DatapathId, dict[int, MeterCounters]] = {}
        for datapath, result in results.items():
            with suppress(MalformedReplyError):
                if isinstance(result, bytes):
                    counters[datapath] = decode_meter_stats(result)
        return counters

    def port_packets(
        self, datapaths: Collection[DatapathId], timeout_s: float
    ) -> dict[DatapathId, dict[str, PortPackets] | None]:
        """Counters of the switches' ports by name; None for one that did not answer properly."""
        results = self._request(
            datapaths, lambda _datapath, _ports, xid: encode_port_stats_request(xid), timeout_s
        )
        return {datapath: self._by_name(datapath, result) for datapath, result in results.items()}

    def _by_name(self, datapath: DatapathId, result: bytes | str) -> dict[str, PortPackets] | None:
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

    def await_ports_up(
        self, datapath: DatapathId, names: Collection[str], timeout_s: float
    ) -> tuple[str, ...]:
        """Wait for carrier; returns the ports that are still down (or unknown) at the end."""

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

    def send_frames(self, frames: Mapping[DatapathId, Iterable[tuple[int, bytes]]]) -> None:
        """Packet-out; switches that are not connected are passed over."""
        for datapath, items in frames.items():
            with self._lock:
                switch = self._switches.get(datapath)
            if switch is None:
                continue
            message = b"".join(
                encode_packet_out(frame, switch.ports.number(port), self._next_xid())
                for port, frame in items
                if switch.ports.number(port)
            )
            if message:
                self._send(switch.connection, message)

    def port_number(self, datapath: DatapathId, port: int) -> int:
        """The number of a symbolic port; 0 while the switch is not connected or has none such."""
        with self._lock:
            switch = self._switches.get(datapath)
            return 0 if switch is None else switch.ports.number(port)

    def send_messages(self, messages: Mapping[DatapathId, bytes | bytearray]) -> None:
        """OpenFlow messages that nobody answers, all in one visit to the hub."""
        with self._lock:
            known = {datapath: self._switches.get(datapath) for datapath in messages}
        sending = [
            (switch.connection, bytes(messages[datapath]))
            for datapath, switch in known.items()
            if switch is not None
        ]
        self._post(lambda: _send_all(sending))

    @property
    def post(self) -> Post:
        """Run a function in the hub's thread, after what was handed to it before."""
        return self._post

    def expect_probe(self, nonce: int) -> Future[None]:
        """A future that resolves when the probe with ``nonce`` comes in."""
        future: Future[None] = Future()
        with self._lock:
            self._probes[nonce] = future
        return future

    def forget_probe(self, nonce: int) -> None:
        with self._lock:
            self._probes.pop(nonce, None)

    # -- plumbing -------------------------------------------------------------------------------

    def _next_xid(self) -> int:
        return _FIRST_XID + next(self._xids) % _XIDS

    def _send(self, connection: Connection, message: bytes) -> None:
        self._post(lambda: connection.send(message))

    def _request(
        self, datapaths: Iterable[DatapathId], encode: _Encode, timeout_s: float
    ) -> dict[DatapathId, bytes | str]:
        """Ask all switches at once; a reply body each, or what stood in the way."""
        return self._answers(self._ask(datapaths, encode), timeout_s)

    def _ask(
        self, datapaths: Iterable[DatapathId], encode: _Encode
    ) -> dict[DatapathId, _Asked | str]:
        """Send each switch a request; or say what stands in the way."""
        asked: dict[DatapathId, _Asked | str] = {}
        for datapath in datapaths:
            with self._lock:
                switch = self._switches.get(datapath)
            if switch is None:
                asked[datapath] = "not connected"
                continue
            xid = self._next_xid()
            message = encode(datapath, switch.ports, xid)
            future: Future[bytes] = Future()
            with self._lock:
                if self._switches.get(datapath) is not switch:
                    asked[datapath] = "disconnected"
                    continue
                self._pending[xid] = _Pending(datapath, future)
            asked[datapath] = _Asked(xid, future)
            self._send(switch.connection, message)
        return asked

    def _answers(
        self, asked: Mapping[DatapathId, _Asked | str], timeout_s: float
    ) -> dict[DatapathId, bytes | str]:
        """Wait for what switches answer; those that do not in time, never will."""
        wait([one.future for one in asked.values() if isinstance(one, _Asked)], timeout_s)
        results: dict[DatapathId, bytes | str] = {}
        for datapath, one in asked.items():
            if isinstance(one, str):
                results[datapath] = one
            elif one.future.done():
                error = one.future.exception()
                results[datapath] = one.future.result() if error is None else str(error)
            else:
                with self._lock:
                    self._pending.pop(one.xid, None)
                results[datapath] = f"no answer within {timeout_s:g} s: outcome unknown"
        return results


def _was_refused(asked: _Asked) -> bool:
    return asked.future.done() and isinstance(asked.future.exception(), SwitchRefusedError)


def _fail(lost: Iterable[_Pending]) -> None:
    for pending in lost:
        pending.future.set_exception(
            SwitchGoneError("disconnected before it answered: outcome unknown")
        )


def _send_all(messages: Iterable[tuple[Connection, bytes]]) -> None:
    for connection, message in messages:
        connection.send(message)
