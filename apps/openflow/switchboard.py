"""The switches that are connected, and asking them.

Events arrive in the OpenFlow hub's thread and never block there; calls come from native threads,
hand bytes to the hub and wait for replies. One lock guards the tables and is held for a few
dictionary operations only.

A switch has one connection. A newcomer with a datapath id that is connected waits while the older
connection is asked for an echo: if that answers, the newcomer is closed, else the older one.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Protocol

from apps.openflow.refusals import Refusal, Refusals, refused_second, replaced_by_second
from apps.openflow.replies import Replies, Reply
from apps.openflow.requests import LOOKS, Answer, Asked, CatchUp, Pending, Requests, read_first
from apps.openflow.seam import MOST_PORTS, PortInfo, Post, SwitchConnection
from drivers.codecs.openflow.messages import TYPE_MULTIPART_REQUEST, encode_barrier
from drivers.codecs.openflow.rules import (
    SwitchPorts,
    encode_end_of_round,
    encode_packet_out,
    encode_round_again,
)
from hydra.events import DeviceAlarm
from hydra.failures import Failure, FailureKind
from hydra.forwarding.frames import parse_probe
from hydra.forwarding.rules import ROUND_RULES, RuleChange, round_number, round_rule
from hydra.forwarding.substrate import PortNames, substrate_of
from hydra.model import DatapathId, Fabric
from hydra.roles import Alarm, Severity

LOG = logging.getLogger("hydra.switchboard")
_RIVAL = "second-connection"
_UNDER_WAY = 256
"""Requests under way at a time, where switches are asked in turn. A whole table takes 0.1 MB where
racks are many."""
_ALMOST_ALL = 0.95
"""Part of the switches whose answers tell how long an answer takes, for who hurries."""
_LEAST_PATIENCE_S = 0.5
_ABOUT_TO_S = 1.0
"""Time between an answer's coming and its being told, at most."""
_SENT_TOGETHER = 16
"""Messages that the hub is handed at a time: with each, it may have to wait for the interpreter."""
_STATISTICS = bytes([TYPE_MULTIPART_REQUEST])
_MOST_STRANGERS = 100
"""Switches that are not the fabric's of which the log tells."""
_ANEW_S = 60.0
"""Between two alarms about the same switch for the same cause."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A bundle that waits for its commit."""

    changes: Sequence[RuleChange]
    ports: SwitchPorts
    xid: int
    reply: Reply[Answer]


@dataclass(slots=True)
class Rounds:
    """Looks of a switch at all its cached flows, as rules tell that end at the end of each."""

    number: int = 0
    """Number of the rule that ends, or ended, last."""
    left: int = 0
    """Looks that are waited for."""
    reply: Reply[None] = field(default_factory=Reply)


@dataclass(slots=True)
class ConnectedSwitch:
    connection: SwitchConnection
    names: dict[str, PortInfo]
    """The ports that it has, by name."""
    ports: SwitchPorts = field(default_factory=SwitchPorts)
    """Numbers by which rules name ports. A port that is gone keeps its number, as rules that are
    there name it, until another port has that number.
    """
    present: SwitchPorts = field(default_factory=SwitchPorts)
    """Numbers of the ports that are there: 0 for those that are gone."""
    numbers: dict[str, int] = field(default_factory=dict)
    """The number in :attr:`ports` of each configured port, by name."""
    staged: Staged | None = None
    takes_bundles: bool = True
    rounds: Rounds = field(default_factory=Rounds)
    is_mute: bool = False
    """True while it owes an answer whose time is up: it is asked nothing until it gives one."""


class GiveUp(Protocol):
    def __call__(
        self, datapath: DatapathId, one: Asked, timeout_s: float, *, is_late: bool
    ) -> Answer: ...


Encode = Callable[[DatapathId, SwitchPorts, int], bytes]
Sending = tuple[SwitchConnection, bytes]
"""A message, and where it goes."""


class Switchboard(Requests):
    """Switches that are connected, their ports, and the requests to them."""

    def __init__(
        self,
        fabric: Fabric,
        post: Post,
        over: Callable[[], bool] = lambda: False,
        catch_up: CatchUp = read_first,
    ) -> None:
        """``over``: true while switches are to be sent nothing, since this controller does not
        lead; asked in the hub's thread, when it is about to send.
        """
        self._substrate = substrate_of(fabric)
        self._owned = self._substrate.owned()
        super().__init__({**fabric.tor_names, **self._owned}, post, catch_up)
        self._over = over
        self._changed = threading.Condition(self._lock)
        self._switches: dict[DatapathId, ConnectedSwitch] = {}
        self._connected: frozenset[DatapathId] | None = frozenset()
        """Those, while nobody has come or gone since they were last asked for."""
        self._listening_s: float | None = None
        """Since when switches find this controller, by the monotonic clock; None: not known."""
        self._gone_s: dict[DatapathId, float] = {}
        """When switches were lost last, or fell silent, by the monotonic clock."""
        self._last_numbers: dict[DatapathId, Mapping[str, int]] = {}
        """Numbers by which rules named the ports of a switch of the fabric, when it was lost."""
        self._newcomers: dict[DatapathId, list[ConnectedSwitch]] = {}
        """Connections that wait until the one in use has answered an echo, or has not."""
        self._watchers: list[Callable[[DatapathId], None]] = []
        self._watchers_of_late: list[Callable[[DatapathId], None]] = []
        self._watchers_of_mute: list[Callable[[DatapathId], None]] = []
        self._port_watchers: list[Callable[[DatapathId, PortInfo], None]] = []
        self._watchers_of_numbers: list[Callable[[DatapathId, Mapping[str, int]], None]] = []
        self._tell_of_rival: Callable[[DeviceAlarm], None] = lambda _alarm: None
        self._tell_of_master: Callable[[DatapathId, int], None] = lambda *_master: None
        self._quiet_until_s: dict[tuple[DatapathId, str], float] = {}
        self._refusals = Refusals(lambda one: self._names.get(DatapathId(one)))
        self._strangers: set[DatapathId] = set()
        """Those that were logged."""

    def watch(
        self,
        connected: Callable[[DatapathId], None],
        port_changed: Callable[[DatapathId, PortInfo], None],
        is_late: Callable[[DatapathId], None],
        answers_again: Callable[[DatapathId], None],
        renumbered: Callable[[DatapathId, Mapping[str, int]], None] = lambda _datapath, _old: None,
    ) -> None:
        """Be told, in the hub's thread, of switches that connect, of ports that change, and of
        switches that owed an answer, and give one, on the connection that they had: before anybody
        can ask these again, and once they can be asked. A port that is deleted is told as down.

        ``renumbered``, in whatever thread: configured ports of a connected switch have other
        OpenFlow numbers from now on; the number that each had before, by name; 0: none. Rules in
        the switch's tables name the ports by these, and what is sent from now on by the new ones.
        """
        self._watchers.append(connected)
        self._port_watchers.append(port_changed)
        self._watchers_of_late.append(is_late)
        self._watchers_of_mute.append(answers_again)
        self._watchers_of_numbers.append(renumbered)

    def watch_rivals(
        self,
        tell: Callable[[DeviceAlarm], None],
        taken: Callable[[DatapathId, int], None] = lambda *_master: None,
    ) -> None:
        """Be told, in the hub's thread, where a second connection had a known datapath id; and of
        switches that were ``taken`` by another master, with that one's generation.
        """
        self._tell_of_rival, self._tell_of_master = tell, taken

    # -- events: the hub's thread ---------------------------------------------------------------

    def role_taken(self, datapath: int, connection: SwitchConnection, generation: int) -> None:
        with self._lock:
            switch = self._switches.get(DatapathId(datapath))
        if switch is not None and switch.connection is connection:
            self._tell_of_master(DatapathId(datapath), generation)

    def knows(self, datapath: int) -> bool:
        """True for a switch of the fabric."""
        return DatapathId(datapath) in self._names

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None:
        identity = DatapathId(datapath)
        self._refusals.forget(datapath, connection.address)
        if identity not in self._names:
            self._tell_of_stranger(identity, connection)
        switch = ConnectedSwitch(connection, {port.name: port for port in ports.values()})
        self._number_anew(identity, switch)
        self._enter(identity, switch)

    def switch_refused(self, datapath: int | None, address: str, why: str) -> None:
        self._refusals.note(datapath, address, why)

    def refused(self) -> list[Refusal]:
        """Switches that try to connect and are kept out by a setting; for any thread."""
        return self._refusals.now()

    def _tell_of_stranger(self, datapath: DatapathId, connection: SwitchConnection) -> None:
        """Log a datapath id that is none of the fabric's, once: any neighbour may name as many as
        it likes, so that further ones are not told.
        """
        if datapath in self._strangers or len(self._strangers) >= _MOST_STRANGERS:
            return
        self._strangers.add(datapath)
        LOG.warning(
            "a switch that the configuration does not have, with datapath id %#018x, connected "
            "from %s, and is left alone: if it should be one of the fabric, correct its datapath "
            "id, there or in the configuration%s",
            datapath,
            connection.address,
            "; further ones are not told" if len(self._strangers) == _MOST_STRANGERS else "",
        )

    def _enter(self, datapath: DatapathId, newcomer: ConnectedSwitch) -> None:
        with self._changed:
            older = self._switches.get(datapath)
            if older is None:
                self._switches[datapath] = newcomer
                self._connected = None
                earlier = self._numbered_before(datapath, newcomer)
                self._changed.notify_all()
            else:
                waiting = self._newcomers.setdefault(datapath, [])
                waiting.append(newcomer)
        if older is None:
            for watcher in self._watchers:
                watcher(datapath)
            self._tell_of_numbers(datapath, earlier)
        elif len(waiting) == 1:
            older.connection.ask(lambda alive: self._settle(datapath, older, alive))

    def _numbered_before(self, datapath: DatapathId, switch: ConnectedSwitch) -> dict[str, int]:
        """Ports that have other numbers than before the switch was lost, or whose number another
        port has, with these earlier numbers: rules in its tables may name them still.
        """
        last, taken = (
            self._last_numbers.pop(datapath, {}),
            {p.number for p in switch.names.values()},
        )
        return {
            name: before
            for name, before in last.items()
            if before
            and (now := switch.numbers.get(name, 0)) != before
            and (now or before in taken)
        }

    def _settle(self, datapath: DatapathId, older: ConnectedSwitch, alive: bool) -> None:
        """End the wait of the newcomers for the older connection's answer."""
        with self._lock:
            if self._switches.get(datapath) is not older:
                return  # it has ended meanwhile, and they were let in
            newcomers = self._newcomers.get(datapath)
            if alive or not newcomers:
                self._newcomers.pop(datapath, None)
        if not newcomers:
            return
        of, by = older.connection.address, newcomers[0].connection.address
        if alive:
            self.tell_of_second(datapath, "refused", refused_second(by, of))
            for newcomer in newcomers:
                newcomer.connection.close()
        else:
            self.tell_of_second(datapath, "replaced", replaced_by_second(by, of))
            self._remove(datapath)
            older.connection.close()

    def tell_of_second(self, datapath: int, cause: str, text: str) -> None:
        """Log a switch's second connection and have an alarm of it; each cause once in a while.

        Call it in the hub's thread, or in the exchange's where workers hold the connections.
        """
        datapath = DatapathId(datapath)
        now_s = time.monotonic()
        quiet = {one: until for one, until in self._quiet_until_s.items() if until > now_s}
        self._quiet_until_s = quiet
        if (datapath, cause) not in quiet:
            quiet[datapath, cause] = now_s + _ANEW_S
            LOG.warning("%s: %s", self._name(datapath), text)
            alarm = Alarm(Severity.MAJOR, None, _RIVAL, text)
            self._tell_of_rival(DeviceAlarm(self._name(datapath), alarm))

    def _number_anew(self, datapath: DatapathId, switch: ConnectedSwitch) -> dict[str, int]:
        """Work out the numbers of a switch's ports from what it has told of them; returns the
        earlier numbers of the ports that have another one now, by name.
        """
        names = self._substrate.ports(datapath)
        taken = {port.number for port in switch.names.values()}
        present = {n: port.number for n in names.every if (port := switch.names.get(n)) is not None}
        earlier: dict[str, int] = {}
        for name in names.every:
            before = switch.numbers.get(name, 0)
            now = present.get(name, 0 if before in taken else before)
            if now != before:
                earlier[name] = before
                switch.numbers[name] = now
        switch.present = _numbered(names, present)
        if earlier:
            switch.ports = _numbered(names, switch.numbers)
        return earlier

    def switch_disconnected(self, datapath: int, connection: SwitchConnection) -> None:
        identity = DatapathId(datapath)
        with self._lock:
            switch = self._switches.get(identity)
            used = switch is not None and switch.connection is connection
            if not used and identity in self._newcomers:
                waiting = self._newcomers[identity]
                waiting[:] = [one for one in waiting if one.connection is not connection]
            lost = [] if used else self._forgotten(connection)
        self._lose(lost)
        if used:
            self._remove(identity)

    def _remove(self, datapath: DatapathId) -> None:
        """Drop the connection in use; a newcomer that waits for its end takes its place."""
        with self._changed:
            switch = self._switches.pop(datapath)
            if datapath in self._names:
                self._last_numbers[datapath] = switch.numbers
            lost = self._forgotten(switch.connection)
            self._gone_s[datapath] = time.monotonic()
            self._connected = None
            newcomers = self._newcomers.pop(datapath, ())
            self._changed.notify_all()
        self._lose(lost)
        for newcomer in newcomers:
            self._enter(datapath, newcomer)

    def port_changed(
        self, datapath: int, connection: SwitchConnection, port: PortInfo, *, deleted: bool
    ) -> None:
        identity = DatapathId(datapath)
        with self._changed:
            used = self._switches.get(identity)
            known = [*self._newcomers.get(identity, ()), *([] if used is None else [used])]
            switch = next((one for one in known if one.connection is connection), None)
            if switch is None:
                return
            if not deleted:
                _note(switch.names, port)
            elif (one := switch.names.get(port.name)) is not None and one.number == port.number:
                del switch.names[port.name]
            else:
                return  # it is there by another number
            earlier = self._number_anew(identity, switch)
            self._changed.notify_all()
        if switch is used:
            self._tell_of_numbers(identity, earlier)
            told = replace(port, up=port.up and not deleted)
            for watcher in self._port_watchers:
                watcher(identity, told)

    def _tell_of_numbers(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        if earlier:
            for watcher in self._watchers_of_numbers:
                watcher(datapath, earlier)

    def packet_received(self, datapath: int, connection: SwitchConnection, frame: bytes) -> None:
        probe = parse_probe(frame)
        if probe is None:
            return
        with self._lock:
            switch = self._switches.get(DatapathId(datapath))
            if switch is None or switch.connection is not connection:
                return
        self._hear_probe(probe.nonce)

    def rule_ended(self, datapath: int, connection: SwitchConnection, cookie: int) -> None:
        """Put the rule back; if it was waited for, go on to the next look. Rules of others that end
        are left alone.
        """
        number = round_number(cookie)
        if number is None or datapath not in self._owned:
            return
        with self._lock:
            switch = self._switches.get(DatapathId(datapath))
            if switch is None or switch.connection is not connection:
                return
            rounds = switch.rounds
            waited_for = rounds.left > 0 and cookie == round_rule(rounds.number).cookie
            if waited_for:
                rounds.left -= 1
            goes_on = waited_for and rounds.left > 0
            message = self._next_round(switch) if goes_on else self._round_again(number)
        self._deliver([(connection, message)])
        if waited_for and not goes_on:
            rounds.reply.set_result(None)

    def _round_again(self, number: int) -> bytes:
        return encode_round_again(number, self._next_xid())

    def _next_round(self, switch: ConnectedSwitch) -> bytes:
        """Messages that have a switch look at all its flows (any change does), and tell the end."""
        rounds = switch.rounds
        again = self._round_again(rounds.number)
        rounds.number = (rounds.number + 1) % len(ROUND_RULES.rules)
        return again + encode_end_of_round(rounds.number, self._next_xid())

    # -- calls: native threads ------------------------------------------------------------------

    def connected(self) -> frozenset[DatapathId]:
        """Switches that are there, and answer; the same object, as long as they stay the same."""
        with self._lock:
            return self._present()

    def own_connected(self) -> frozenset[DatapathId]:
        """Of :meth:`connected`, those that are the fabric's; strangers are not."""
        return self.connected() & self._names.keys()

    def _present(self) -> frozenset[DatapathId]:
        """Switches that are there, and answer; call with the lock."""
        if self._connected is None:
            some = self._switches.items()
            self._connected = frozenset(datapath for datapath, one in some if not one.is_mute)
        return self._connected

    def mute(self) -> frozenset[DatapathId]:
        """Switches whose connection stands, and that do not answer."""
        with self._lock:
            return frozenset(datapath for datapath, one in self._switches.items() if one.is_mute)

    def note_listening(self) -> None:
        """Note that switches find this controller from now on, before it leads, too."""
        self._listening_s = time.monotonic()

    @property
    def listening_s(self) -> float | None:
        """Since when switches find this controller, by the monotonic clock; None: not known."""
        return self._listening_s

    def expected(
        self, datapaths: Collection[DatapathId], timeout_s: float, began_s: float
    ) -> dict[DatapathId, float]:
        """Those of these switches that are not there, and may be about to connect: the moment, by
        the monotonic clock, until which they may.

        Each has ``timeout_s``, from when its connection was lost, or, if it had none, from when
        switches find this controller, at the latest from ``began_s`` on.
        """
        with self._lock:
            return self._expected(datapaths, timeout_s, began_s)

    def _expected(
        self, datapaths: Collection[DatapathId], timeout_s: float, began_s: float
    ) -> dict[DatapathId, float]:
        listening_s = began_s if self._listening_s is None else self._listening_s
        absent, now_s = frozenset(datapaths) - self._present(), time.monotonic()
        until_s = {
            one: max(self._gone_s.get(one, listening_s), listening_s) + timeout_s for one in absent
        }
        latest_s = began_s + timeout_s
        return {one: min(at, latest_s) for one, at in until_s.items() if now_s < min(at, latest_s)}

    def await_connected(self, datapaths: Collection[DatapathId], timeout_s: float) -> None:
        """Wait until all of these switches are connected, or have had their time to be.

        A switch that was away for ``timeout_s`` before, while this controller listened, is not
        waited for.
        """
        began_s = time.monotonic()
        with self._changed:
            while expected := self._expected(datapaths, timeout_s, began_s):
                self._changed.wait(max(0.0, max(expected.values()) - time.monotonic()))

    def port(self, datapath: DatapathId, name: str) -> PortInfo | None:
        """None while the switch is not connected. A port that it has not is down."""
        with self._lock:
            switch = self._switches.get(datapath)
            return None if switch is None else switch.names.get(name, PortInfo(0, name, up=False))

    def missing_ports(self, datapath: DatapathId) -> tuple[str, ...]:
        """Configured ports that a connected switch does not have."""
        wanted = self._substrate.ports(datapath).every
        with self._lock:
            switch = self._switches.get(datapath)
            return tuple(n for n in wanted if n not in switch.names) if switch else ()

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

    def note_ports(self, datapath: DatapathId, ports: Iterable[PortInfo]) -> None:
        """Note how ports of a switch are, ahead of what it told before and is yet to be read."""
        with self._changed:
            switch = self._switches.get(datapath)
            if switch is None:
                return
            switch.names |= {port.name: port for port in ports if port.name in switch.names}
            earlier = self._number_anew(datapath, switch)
            self._changed.notify_all()
        self._tell_of_numbers(datapath, earlier)

    def send_frames(self, frames: Mapping[DatapathId, Iterable[tuple[int, bytes]]]) -> None:
        """Packet-out; switches that are not connected are passed over."""
        self._send_all(self._packets_out(frames))

    def _packets_out(
        self, frames: Mapping[DatapathId, Iterable[tuple[int, bytes]]]
    ) -> Iterator[Sending]:
        for datapath, items in frames.items():
            with self._lock:
                switch = self._switches.get(datapath)
            if switch is None:
                continue
            message = b"".join(
                encode_packet_out(frame, number, self._next_xid())
                for port, frame in items
                if (number := switch.present.number(port))
            )
            if message:
                yield switch.connection, message

    def ask_barriers(self, datapaths: Collection[DatapathId]) -> dict[DatapathId, Reply[Answer]]:
        """Ask switches for a barrier, without waiting; replies of those that are connected. Each
        comes with the switch's answer, or as a failure when its connection ends.
        """
        asked = self._ask(datapaths, lambda _datapath, _ports, xid: encode_barrier(xid))
        return {
            datapath: one.reply for datapath, one in asked.items() if not isinstance(one, Failure)
        }

    def silent(
        self, datapaths: Iterable[DatapathId], timeout_s: float
    ) -> dict[DatapathId, Failure]:
        """Switches that do not answer a barrier. What others heard before has come in by then."""
        answers = self._request(datapaths, lambda _dp, _ports, xid: encode_barrier(xid), timeout_s)
        return {dp: answer for dp, answer in answers.items() if isinstance(answer, Failure)}

    def port_number(self, datapath: DatapathId, port: int) -> int:
        """The number of a symbolic port; 0 while the switch is not connected or has none such."""
        with self._lock:
            switch = self._switches.get(datapath)
            return 0 if switch is None else switch.present.number(port)

    def send_messages(self, messages: Mapping[DatapathId, bytes | bytearray]) -> None:
        """OpenFlow messages that nobody answers, all in one visit to the hub."""
        with self._lock:
            known = {datapath: self._switches.get(datapath) for datapath in messages}
        sending = [
            (switch.connection, bytes(messages[datapath]))
            for datapath, switch in known.items()
            if switch is not None
        ]
        self._post(lambda: self._deliver(sending))

    @property
    def post(self) -> Post:
        """Run a function in the hub's thread, after what was handed to it before."""
        return self._post

    # -- plumbing -------------------------------------------------------------------------------

    def _send_all(self, messages: Iterable[Sending]) -> None:
        """Have the hub send messages while others are made, a few at a time."""
        each = iter(messages)
        while some := tuple(islice(each, _SENT_TOGETHER)):
            self._post(partial(self._deliver, some))

    def _deliver(self, messages: Iterable[Sending]) -> None:
        """Send, in the hub's thread, unless this controller does not lead: what waited there while
        the process was stopped is not sent after its lease. Then nobody answers.
        """
        if not self._over():
            for connection, message in messages:
                connection.send(message)

    def _request(
        self, datapaths: Iterable[DatapathId], encode: Encode, timeout_s: float
    ) -> dict[DatapathId, Answer]:
        """Ask all switches at once; a reply body each, or what stood in the way."""
        return self._answers(self._ask(datapaths, encode), timeout_s)

    def _in_turn(
        self,
        datapaths: Iterable[DatapathId],
        encode: Encode,
        timeout_s: float,
        *,
        hurries: bool = False,
        gap_s: float = math.inf,
        slow: Collection[DatapathId] = (),
        give_up: GiveUp | None = None,
    ) -> Iterator[tuple[DatapathId, Answer]]:
        """Ask switches as :meth:`_request` does, with a limited number of requests under way.

        So neither all requests nor all answers are in memory at a time. Each switch has
        ``timeout_s`` from when it is asked, which count while the hub sends and reads; others do
        not wait for it. With ``hurries``, once almost all have answered, the rest have as long
        again as those took, and no less than half a second. Once no switch has answered for
        ``gap_s``, the rest are late, but for the ``slow`` ones, which are asked last. ``give_up``
        is called for each request that is over, and returns the answer, or what stands for it.
        """
        give_up = give_up or self._answer
        now_s, heard_s, cut_s = 0.0, 0.0, math.inf
        asked_n = answered_n = 0
        window, caught_up_s = _UNDER_WAY, 0.0
        waiting = iter(sorted(datapaths, key=slow.__contains__) if slow else datapaths)
        done: SimpleQueue[Reply[Answer]] = SimpleQueue()
        under_way: dict[Reply[Answer], tuple[DatapathId, Asked, float]] = {}
        while True:
            while len(under_way) <= window - _SENT_TOGETHER:
                some = self._ask(islice(waiting, window - len(under_way)), encode)
                asked_n += len(some)
                for datapath, one in some.items():
                    if isinstance(one, Failure):
                        answered_n += 1
                        yield datapath, one
                        continue
                    under_way[one.reply] = datapath, one, now_s + timeout_s
                    one.reply.add_done_callback(done.put)
                if not some:
                    if hurries and answered_n >= _ALMOST_ALL * asked_n:
                        cut_s = min(cut_s, now_s + max(now_s, _LEAST_PATIENCE_S))
                    break
            if not under_way:
                return
            # They were asked in this order, and have the same time each: the first is due first.
            reply, (datapath, _, due_s) = next(iter(under_way.items()))
            gap_ends_s = max(heard_s, due_s - timeout_s) + gap_s
            silent_s = math.inf if datapath in slow else gap_ends_s
            due_s = min(due_s, cut_s, silent_s)
            look_s, began_s = min(timeout_s / LOOKS, due_s - now_s), time.monotonic()
            try:
                reply = done.get(timeout=look_s)
                now_s += min(look_s, time.monotonic() - began_s)
            except Empty:
                now_s += look_s
                if now_s > caught_up_s:
                    caught_up_s = now_s
                    self._let_hub_catch_up()
                    # Those who are late are not to keep others from being asked.
                    window += _UNDER_WAY if hurries else 0
                if now_s < due_s and not reply.done():
                    continue
            if reply in under_way:  # else it was answered when its time was just up
                datapath, one, _ = under_way.pop(reply)
                answered_n += 1
                if one.reply.done():
                    heard_s = now_s
                late = now_s >= min(cut_s, silent_s)
                yield datapath, give_up(datapath, one, timeout_s, is_late=late)

    def _ask(
        self, datapaths: Iterable[DatapathId], encode: Encode
    ) -> dict[DatapathId, Asked | Failure]:
        """Send each switch a request; or say what stands in the way."""
        asked: dict[DatapathId, Asked | Failure] = {}
        self._send_all(self._asking(datapaths, encode, asked))
        return asked

    def _asking(
        self,
        datapaths: Iterable[DatapathId],
        encode: Encode,
        asked: dict[DatapathId, Asked | Failure],
    ) -> Iterator[Sending]:
        """Requests to be sent, each noted in ``asked`` before."""
        away = FailureKind.NOT_CONNECTED
        for datapath in datapaths:
            with self._lock:
                switch = self._switches.get(datapath)
            if switch is None:
                asked[datapath] = self._failure(datapath, away, "not connected")
                continue
            if switch.is_mute:
                asked[datapath] = self._failure(datapath, FailureKind.LATE, "does not answer")
                continue
            xid = self._next_xid()
            message = encode(datapath, switch.ports, xid)
            reply: Reply[Answer] = Reply()
            with self._lock:
                if self._switches.get(datapath) is not switch:
                    asked[datapath] = self._failure(datapath, away, "disconnected")
                    continue
                self._pending[xid] = Pending(
                    datapath,
                    switch.connection,
                    reply,
                    ends_in_error=message[1:2] == _STATISTICS,
                )
            asked[datapath] = Asked(xid, reply)
            yield switch.connection, message

    def _answer_or_set_aside(
        self, datapath: DatapathId, one: Asked, timeout_s: float, *, is_late: bool = False
    ) -> Answer:
        """The same; a switch that has not answered is asked nothing more until it does."""
        if not one.reply.done():
            with self._lock:
                pending = self._pending.pop(one.xid, None)
            if pending is not None:
                self._set_aside(pending)
            else:  # it is just about to be told
                Replies([one.reply]).wait(_ABOUT_TO_S)
        return self._answer(datapath, one, timeout_s, is_late=is_late)

    def _set_aside(self, unanswered: Pending) -> None:
        """Ask a switch nothing more until it has answered a barrier."""
        datapath, heard = unanswered.datapath, Reply[Answer]()
        with self._lock:
            switch = self._switches.get(datapath)
            if switch is None or switch.connection is not unanswered.connection or switch.is_mute:
                return
            switch.is_mute, self._connected = True, None
            self._gone_s[datapath] = time.monotonic()
            xid = self._next_xid()
            self._pending[xid] = Pending(datapath, switch.connection, heard)
        LOG.warning("%s does not answer in time: left alone until it does", self._name(datapath))
        heard.add_done_callback(lambda _answered: self._hear_again(datapath, switch))
        self._post(partial(self._deliver, [(switch.connection, encode_barrier(xid))]))

    def _hear_again(self, datapath: DatapathId, switch: ConnectedSwitch) -> None:
        """Ask a switch again from now on, as it answers: in the hub's thread, where connections are
        taken and end, too.
        """
        with self._lock:
            if self._switches.get(datapath) is not switch:
                return  # its connection has ended
        for watcher in self._watchers_of_late:
            watcher(datapath)
        with self._changed:
            switch.is_mute, self._connected = False, None
            self._changed.notify_all()
        LOG.info("%s answers again", self._name(datapath))
        for watcher in self._watchers_of_mute:
            watcher(datapath)


def _numbered(names: PortNames, numbers: Mapping[str, int]) -> SwitchPorts:
    """The ports of a switch by purpose, with these numbers by name."""

    def number(name: str) -> int:
        return numbers.get(name, 0)

    return SwitchPorts(
        number(names.host),
        number(names.optical),
        number(names.electrical),
        tuple(map(number, names.servers)),
        tuple(map(number, names.wired)),
    )


def _note(names: dict[str, PortInfo], port: PortInfo) -> None:
    """Note what a switch told of a port, by its name: a name that it had before goes, and no more
    than :data:`MOST_PORTS` are kept.
    """
    for name in [name for name, one in names.items() if one.number == port.number]:
        if name != port.name:
            del names[name]
    if port.name in names or len(names) < MOST_PORTS:
        names[port.name] = port
