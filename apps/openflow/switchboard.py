"""The connected switches, and their ports.

Events arrive in the loop and never block there; calls come from native threads. A single lock
guards the tables and is held for a few dictionary operations only.

A switch has one connection. A newcomer with a connected datapath id waits while the older
connection is asked for an echo: if the older connection answers, the newcomer is closed, else the
older connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from apps.openflow.interface import PortInfo, Post, SwitchConnection
from apps.openflow.refusals import Refusal, Refusals
from apps.openflow.requests import CatchUp, Requests, read_first
from apps.openflow.second_connections import SecondConnections
from apps.openflow.switch import ConnectedSwitch
from hydra.events import DeviceAlarm
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric
from hydra.roles import Alarm, Severity

LOG = logging.getLogger("hydra.switchboard")
_RIVAL = "second-connection"
_MOST_STRANGERS = 100
"""Largest number of switches outside the fabric that are logged."""
_ANEW_S = 60.0
"""Time between two alarms about the same switch for the same cause."""


class Switchboard(Requests):
    """Connected switches, and their ports."""

    def __init__(
        self,
        fabric: Fabric,
        post: Post,
        over: Callable[[], bool] = lambda: False,
        catch_up: CatchUp = read_first,
    ) -> None:
        """``over``: True while nothing may be sent to switches, since this controller does not
        lead; called in the hub's thread, just before sending.
        """
        self._substrate = substrate_of(fabric)
        self._owned = self._substrate.owned()
        super().__init__({**fabric.tor_names, **self._owned}, post, catch_up)
        self._over = over
        self._changed = threading.Condition(self._lock)
        self._switches: dict[DatapathId, ConnectedSwitch] = {}
        self._connected: frozenset[DatapathId] | None = frozenset()
        """Cached result of :meth:`connected`; None after a change."""
        self._listening_s: float | None = None
        """Time since which switches find this controller, by the monotonic clock; None: unknown."""
        self._gone_s: dict[DatapathId, float] = {}
        """Times at which switches were lost, or fell silent, by the monotonic clock."""
        self._last_numbers: dict[DatapathId, Mapping[str, int]] = {}
        """Numbers by which rules named the ports of a fabric's switch when the switch was lost."""
        self._newcomers = SecondConnections[ConnectedSwitch](self.report_second, self._remove)
        self._watchers: list[Callable[[DatapathId], None]] = []
        self._watchers_of_late: list[Callable[[DatapathId], None]] = []
        self._watchers_of_mute: list[Callable[[DatapathId], None]] = []
        self._port_watchers: list[Callable[[DatapathId, PortInfo], None]] = []
        self._watchers_of_numbers: list[Callable[[DatapathId, Mapping[str, int]], None]] = []
        self._report_rival: Callable[[DeviceAlarm], None] = lambda _alarm: None
        self._report_master: Callable[[DatapathId, int], None] = lambda *_master: None
        self._quiet_until_s: dict[tuple[DatapathId, str], float] = {}
        self._refusals = Refusals(lambda entry: self._names.get(DatapathId(entry)))
        self._strangers: set[DatapathId] = set()
        """Logged switches outside the fabric."""

    def watch(
        self,
        connected: Callable[[DatapathId], None],
        port_changed: Callable[[DatapathId, PortInfo], None],
        is_late: Callable[[DatapathId], None],
        answers_again: Callable[[DatapathId], None],
        renumbered: Callable[[DatapathId, Mapping[str, int]], None] = lambda _datapath, _old: None,
    ) -> None:
        """Register callbacks, called in the hub's thread.

        ``connected``: a switch has connected. ``port_changed``: a port has changed; a deleted port
        is reported as down. ``is_late``: a switch has given an overdue answer on the same
        connection; called before requests to the switch are possible again. ``answers_again``: the
        same restriction, once requests are possible.

        ``renumbered``, called in any thread: configured ports of a connected switch have new
        OpenFlow numbers. The argument holds the earlier numbers, by name; 0: none. Rules in the
        switch's tables use the earlier numbers, and later messages the new numbers.
        """
        self._watchers.append(connected)
        self._port_watchers.append(port_changed)
        self._watchers_of_late.append(is_late)
        self._watchers_of_mute.append(answers_again)
        self._watchers_of_numbers.append(renumbered)

    def watch_rivals(
        self,
        report: Callable[[DeviceAlarm], None],
        taken: Callable[[DatapathId, int], None] = lambda *_master: None,
    ) -> None:
        """Register callbacks, called in the hub's thread.

        ``report``: a second connection came with a known datapath id. ``taken``: another master has
        taken a switch, with the given generation.
        """
        self._report_rival, self._report_master = report, taken

    # -- events: the loop ------------------------------------------------------------------------

    def role_taken(self, datapath: int, connection: SwitchConnection, generation: int) -> None:
        if self._used(datapath, connection) is not None:
            self._report_master(DatapathId(datapath), generation)

    def knows(self, datapath: int) -> bool:
        """True for a switch of the fabric."""
        return DatapathId(datapath) in self._names

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None:
        identity = DatapathId(datapath)
        self._refusals.forget(datapath, connection.address)
        if identity not in self._names:
            self._report_stranger(identity, connection)
        switch = ConnectedSwitch(connection, {port.name: port for port in ports.values()})
        switch.renumber(self._substrate.ports(identity))
        self._enter(identity, switch)

    def switch_refused(self, datapath: int | None, address: str, why: str) -> None:
        self._refusals.note(datapath, address, why)

    def refused(self) -> list[Refusal]:
        """Switches kept out by a setting when they try to connect; for any thread."""
        return self._refusals.now()

    def _report_stranger(self, datapath: DatapathId, connection: SwitchConnection) -> None:
        """Log a datapath id outside the fabric once.

        A neighbour may name any number of ids: the number of log lines is limited.
        """
        if datapath in self._strangers or len(self._strangers) >= _MOST_STRANGERS:
            return
        self._strangers.add(datapath)
        LOG.warning(
            "a switch that is not in the configuration, with datapath id %#018x, connected from "
            "%s, and is left alone: if the switch belongs to the fabric, correct its datapath id, "
            "there or in the configuration%s",
            datapath,
            connection.address,
            "; further switches are not logged" if len(self._strangers) == _MOST_STRANGERS else "",
        )

    def _enter(self, datapath: DatapathId, newcomer: ConnectedSwitch) -> None:
        with self._changed:
            older = self._switches.get(datapath)
            if older is None:
                self._switches[datapath] = newcomer
                self._connected = None
                earlier = self._numbered_before(datapath, newcomer)
                self._changed.notify_all()
        if older is None:
            for watcher in self._watchers:
                watcher(datapath)
            self._report_numbers(datapath, earlier)
        else:
            in_use = older
            self._newcomers.wait(
                datapath, newcomer, older.connection, lambda: self._switch(datapath) is in_use
            )

    def _numbered_before(self, datapath: DatapathId, switch: ConnectedSwitch) -> dict[str, int]:
        """Ports whose earlier number, from before the switch was lost, must not stay in rules.

        Either the port has another number now, or another port has the number of a vanished port.
        Returns the earlier numbers by name; rules in the switch's tables may still use them.
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

    def report_second(self, datapath: int, cause: str, text: str) -> None:
        """Log a switch's second connection and raise an alarm; each cause once in a while.

        Call in the hub's thread, or in the exchange's thread if workers hold the connections.
        """
        datapath = DatapathId(datapath)
        now_s = time.monotonic()
        quiet = {
            cause_of: until for cause_of, until in self._quiet_until_s.items() if until > now_s
        }
        self._quiet_until_s = quiet
        if (datapath, cause) not in quiet:
            quiet[datapath, cause] = now_s + _ANEW_S
            LOG.warning("%s: %s", self._name(datapath), text)
            alarm = Alarm(Severity.MAJOR, None, _RIVAL, text)
            self._report_rival(DeviceAlarm(self._name(datapath), alarm))

    def switch_disconnected(self, datapath: int, connection: SwitchConnection) -> None:
        identity = DatapathId(datapath)
        with self._lock:
            switch = self._switches.get(identity)
            used = switch is not None and switch.connection is connection
            lost = [] if used else self._forgotten(connection)
        self._lose(lost)
        if used:
            self._remove(identity)
        else:
            self._newcomers.forget(identity, connection)

    def _remove(self, identity: int) -> None:
        """Drop the connection in use; a waiting newcomer takes over."""
        datapath = DatapathId(identity)
        with self._changed:
            switch = self._switches.pop(datapath)
            if datapath in self._names:
                self._last_numbers[datapath] = switch.numbers
            lost = self._forgotten(switch.connection)
            self._gone_s[datapath] = time.monotonic()
            self._connected = None
            newcomers = self._newcomers.take(datapath)
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
            known = [*self._newcomers.of(identity), *([] if used is None else [used])]
            switch = next(
                (
                    connected_switch
                    for connected_switch in known
                    if connected_switch.connection is connection
                ),
                None,
            )
            if switch is None:
                return
            if not deleted:
                switch.note(port)
            elif not switch.lose(port):
                return
            earlier = switch.renumber(self._substrate.ports(identity))
            self._changed.notify_all()
        if switch is used:
            self._report_numbers(identity, earlier)
            seen_port = replace(port, up=port.up and not deleted)
            for watcher in self._port_watchers:
                watcher(identity, seen_port)

    def _report_numbers(self, datapath: DatapathId, earlier: Mapping[str, int]) -> None:
        if earlier:
            for watcher in self._watchers_of_numbers:
                watcher(datapath, earlier)

    # -- calls: native threads ------------------------------------------------------------------

    def connected(self) -> frozenset[DatapathId]:
        """Present and answering switches; the same object, as long as the set stays the same."""
        with self._lock:
            return self._present()

    def own_connected(self) -> frozenset[DatapathId]:
        """The :meth:`connected` switches of the fabric, without strangers."""
        return self.connected() & self._names.keys()

    def _present(self) -> frozenset[DatapathId]:
        """Present and answering switches; call with the lock."""
        if self._connected is None:
            some = self._switches.items()
            self._connected = frozenset(datapath for datapath, switch in some if not switch.is_mute)
        return self._connected

    def mute(self) -> frozenset[DatapathId]:
        """Switches with a standing connection that do not answer."""
        with self._lock:
            return frozenset(
                datapath for datapath, switch in self._switches.items() if switch.is_mute
            )

    def note_listening(self) -> None:
        """Note that switches find this controller from now on, even before the controller leads."""
        self._listening_s = time.monotonic()

    @property
    def listening_s(self) -> float | None:
        """Time since which switches find this controller, by the monotonic clock; None: unknown."""
        return self._listening_s

    def expected(
        self, datapaths: Collection[DatapathId], timeout_s: float, began_s: float
    ) -> dict[DatapathId, float]:
        """Absent switches that may still connect: the deadline of each, by the monotonic clock.

        The deadline is ``timeout_s`` after the loss of the switch's connection, or, without an
        earlier connection, after the time from which switches find this controller; at the latest
        ``timeout_s`` after ``began_s``.
        """
        with self._lock:
            return self._expected(datapaths, timeout_s, began_s)

    def _expected(
        self, datapaths: Collection[DatapathId], timeout_s: float, began_s: float
    ) -> dict[DatapathId, float]:
        listening_s = began_s if self._listening_s is None else self._listening_s
        absent, now_s = frozenset(datapaths) - self._present(), time.monotonic()
        until_s = {
            datapath: max(self._gone_s.get(datapath, listening_s), listening_s) + timeout_s
            for datapath in absent
        }
        latest_s = began_s + timeout_s
        return {
            datapath: min(at, latest_s)
            for datapath, at in until_s.items()
            if now_s < min(at, latest_s)
        }

    def await_connected(self, datapaths: Collection[DatapathId], timeout_s: float) -> None:
        """Wait until all given switches are connected, or their time is up.

        A switch already absent for ``timeout_s``, while this controller listened, is not waited
        for.
        """
        began_s = time.monotonic()
        with self._changed:
            while expected := self._expected(datapaths, timeout_s, began_s):
                self._changed.wait(max(0.0, max(expected.values()) - time.monotonic()))

    def _switch(self, datapath: DatapathId) -> ConnectedSwitch | None:
        """None while the switch is not connected."""
        with self._lock:
            return self._switches.get(datapath)

    def _used(self, datapath: int, connection: SwitchConnection) -> ConnectedSwitch | None:
        """The switch of a connection; None if the connection is not in use."""
        switch = self._switch(DatapathId(datapath))
        return switch if switch is not None and switch.connection is connection else None

    def port(self, datapath: DatapathId, name: str) -> PortInfo | None:
        """A port of a switch; None while the switch is not connected. A missing port is down."""
        switch = self._switch(datapath)
        return None if switch is None else switch.names.get(name, PortInfo(0, name, up=False))

    def missing_ports(self, datapath: DatapathId) -> tuple[str, ...]:
        """Configured ports that a connected switch lacks."""
        wanted = self._substrate.ports(datapath).every
        with self._lock:
            switch = self._switches.get(datapath)
            return tuple(n for n in wanted if n not in switch.names) if switch else ()

    def port_number(self, datapath: DatapathId, port: int) -> int:
        """The number of a symbolic port; 0 if the switch is not connected or lacks the port."""
        switch = self._switch(datapath)
        return 0 if switch is None else switch.present.number(port)
