"""Optical switches and ToRs after a failure: read again, and brought to the present state."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from hydra.forwarding.rules import Lane
from hydra.model import Circuit, Fabric, NetworkState, PlaneId, PortId, RackId, Server, VlanId
from hydra.reconfiguration.commands import (
    Announce,
    AwaitPortsUp,
    AwaitRounds,
    Batch,
    Course,
    MoveMirrors,
    Outcome,
    PassMarkers,
    Pause,
    ReadMirrors,
    ReadVlans,
    SetVlans,
    Steps,
    ask,
    ask_all,
)
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import MirrorMove, PortsToTag, paths_through
from hydra.reconfiguration.reconcile import (
    Actual,
    Held,
    stray_mirrors,
    wanted_vlans,
    wrong_vlans,
)
from hydra.reconfiguration.switches import Announced, Switches, reachable_on
from hydra.reconfiguration.uplink_detours import UplinkDetours
from hydra.roles import Mirrors, PortVlans

LOG: Final = logging.getLogger("hydra.device_care")
_BRIEF_S: Final = 0.01
"""Lower limit of the drain bound when marker attempts are counted, in seconds."""


def read_devices(
    planes: Iterable[PlaneId], ports: Mapping[RackId, Collection[str]]
) -> Course[Actual]:
    """Mirrors of ``planes`` and VLANs of ``ports``, from the devices that answer."""
    mirrors = tuple(map(ReadMirrors, planes))
    vlans = tuple(ReadVlans(rack, tuple(names)) for rack, names in ports.items())
    if not (mirrors or vlans):
        return Actual({}, {})
    outcomes = yield Batch("read", (*mirrors, *vlans))
    of_planes: Sequence[Outcome[Mirrors]] = outcomes[: len(mirrors)]
    of_racks: Sequence[Outcome[Mapping[str, PortVlans]]] = outcomes[len(mirrors) :]
    return Actual(
        {
            read.plane: outcome.value
            for read, outcome in zip(mirrors, of_planes, strict=True)
            if outcome.value is not None
        },
        {
            read.rack: outcome.value
            for read, outcome in zip(vlans, of_racks, strict=True)
            if outcome.value is not None
        },
    )


def _reachable_through(fabric: Fabric, state: NetworkState, ports: PortsToTag) -> Announced:
    """Servers at the ends of paths through retagged ``ports``, with the paths' VLANs: ToRs may have
    forgotten the servers' addresses.
    """
    named = fabric.port_by_name
    ends = {
        named[key].id
        for rack, names in ports.items()
        for name in names
        if (key := (fabric.racks[rack].name, name)) in named  # others are servers' ports
    }
    vlans: dict[RackId, set[VlanId]] = {}
    for path in paths_through(state, ends):
        for end in (path.src, path.dst):
            vlans.setdefault(end, set()).add(state.vlans[path])
    return tuple(
        (server, tuple(sorted(tags)))
        for rack, tags in sorted(vlans.items())
        for server in fabric.racks[rack].servers
    )


class DeviceCare:
    """Devices that may differ from the present state, and the courses that repair them."""

    def __init__(
        self, switches: Switches, detours: UplinkDetours, by_people: frozenset[PlaneId]
    ) -> None:
        """``by_people``: planes whose changes are tasks for people."""
        self._switches, self._detours, self._by_people = switches, detours, by_people
        self._fabric, self._policy = switches.fabric, switches.policy
        self._memory, self._substrate = switches.memory, switches.substrate
        self.uncertain_planes: set[PlaneId] = set()
        self.uncertain_racks: set[RackId] = set()
        self._silent_planes: set[PlaneId] = set()
        """Optical switches without an answer to their last read."""
        self._silent_racks: set[RackId] = set()
        self._impatient = False

    def learn(self, execution: Execution) -> None:
        """Take over the unconfirmed steps of a reconfiguration."""
        for name in sorted(execution.closed):
            LOG.error(
                "vswitch of %s is silent: the port is closed to circuits until the vswitch answers",
                name,
            )
        self._switches.closed |= execution.closed
        self.uncertain_planes |= execution.uncertain_planes
        self.uncertain_racks |= {
            rack.id for rack in self._fabric.racks if rack.name in execution.unconfirmed
        }

    def wanted_ports(self) -> PortsToTag:
        """VLAN membership of every ToR port in the configuration; none without VLANs."""
        if not self._substrate.retags:
            return {}
        return wanted_vlans(self._fabric, self._memory.state, *self.beside)

    @property
    def beside(self) -> tuple[frozenset[str], Held]:
        """Additions to the present state on devices: closed servers, and held paths."""
        return self._switches.closed, self._memory.held

    @property
    def held_racks(self) -> frozenset[RackId]:
        """Racks with held paths: plans leave out their ports."""
        return self._memory.held.racks(self._fabric)

    @property
    def releases(self) -> bool:
        """True if a held path is no longer needed: :meth:`mend` takes such paths down."""
        held = self._memory.held.lanes
        return bool(held) and (self._impatient or not all(map(self._switches.may_send, held)))

    def let_go(self) -> None:
        """Have :meth:`mend` take down all held paths, even if a switch still sends there."""
        self._impatient = True

    # -- courses ----------------------------------------------------------------------------------

    def read(self, *, everywhere: bool = True) -> Course[tuple[Actual, tuple[str, ...]]]:
        """Read the devices; return their state, and the names of silent devices, which become
        uncertain.

        Unless ``everywhere``, devices silent at the last read are not asked, since each attempt may
        take a time-out: :meth:`mend` asks these devices.
        """
        planes, racks = {plane.id for plane in self._fabric.planes}, self.wanted_ports()
        asked = planes if everywhere else planes - self._silent_planes
        passed = set() if everywhere else self._silent_racks
        actual = yield from self._read(
            sorted(asked), {rack: ports for rack, ports in racks.items() if rack not in passed}
        )
        unread = sorted(planes - actual.mirrors.keys())
        silent = [self._fabric.planes[plane].name for plane in unread]
        silent += [self._fabric.racks[rack].name for rack in racks if rack not in actual.vlans]
        return actual, tuple(silent)

    def _read(
        self, planes: Collection[PlaneId], ports: Mapping[RackId, Collection[str]]
    ) -> Course[Actual]:
        """:func:`read_devices`; devices without an answer become silent and uncertain."""
        actual = yield from read_devices(planes, ports)
        silent_planes = set(planes) - actual.mirrors.keys()
        silent_racks = ports.keys() - actual.vlans.keys()
        self._silent_planes = (self._silent_planes - actual.mirrors.keys()) | silent_planes
        self._silent_racks = (self._silent_racks - actual.vlans.keys()) | silent_racks
        self.uncertain_planes |= silent_planes
        self.uncertain_racks |= silent_racks
        return actual

    def drain(self) -> Steps:
        """Wait until frames sent by replaced rules are gone: a barrier confirms tables only.

        Switches first confirm that no flow cached earlier forwards frames. Frames sent until then
        have the drain bound to arrive.
        """
        yield from self._await_rounds()
        yield Batch("drain", (Pause(self._policy.now.drain.bound_ms / 1000),))

    def run_empty(self, standing: Sequence[Lane], *, sure: bool) -> Steps:
        """Drain after which only the ``standing`` paths may still pass frames; ends when they are
        empty.

        A lost marker is sent again for up to ``timeouts.tor_s``: a ToR that forwards nothing for a
        while holds back the marker and earlier frames. The drain bound is also waited for if a
        switch may still send, if a path stands with two VLAN-IDs, or if the list is not ``sure`` to
        be complete.
        """
        policy, paths = self._policy.now, dict(standing)
        bound_s = policy.drain.bound_ms / 1000
        rounds_confirmed = yield from self._await_rounds()
        sure = sure and rounds_confirmed and len(paths) == len(standing)
        beside = () if sure else (Pause(bound_s),)
        used = self._memory.state.topology.circuits
        own = {circuit for path in paths for circuit in path.circuits} - used
        hidden = [path for path in paths if own.isdisjoint(path.circuits)]
        draining = Draining(
            fabric=self._fabric,
            paths=paths,
            to_drain=(own, hidden),
            policy=policy.drain,
            cache_report=rounds_confirmed,
        )
        senders, receivers = self._ends_of(draining.ends)
        yield from draining.run(senders, receivers, beside)
        if beside and not paths:
            yield Batch("drain", beside)
        missing = draining.missing
        for _ in range(int(policy.timeouts.tor_s / max(bound_s, _BRIEF_S))):
            if not missing:
                return
            outcome = yield from ask("drain", PassMarkers(missing, bound_s))
            missing = outcome.value_or(missing)
        if missing:
            racks = sorted({self._fabric.racks[marker.src.rack].name for marker in missing})
            LOG.warning("packets sent by %s over ending circuits may be lost", ", ".join(racks))

    def _await_rounds(self) -> Course[bool]:
        """True if all switches have confirmed that no flow cached earlier forwards frames.

        Learning ToRs have no rules for such a confirmation.
        """
        owned = self._switches.owned.keys()
        ready = tuple(sorted(self._switches.ready() & owned))
        if not ready or not self._substrate.reports_rounds:
            return False
        timeout_s = self._policy.now.timeouts.vswitch_s
        outcome = yield from ask("drain", AwaitRounds(ready, timeout_s))
        late = outcome.value_or(())
        if late:
            LOG.warning(
                "%d vswitch(es) have not revalidated all their cached flows within %g s",
                len(late),
                timeout_s,
            )
        return outcome.confirmed and not late and len(ready) == len(owned)

    def _ends_of(
        self, racks: Collection[RackId]
    ) -> tuple[dict[RackId, list[Server]], dict[RackId, list[Server]]]:
        """Servers for markers, by rack: one per switch able to send, and all servers able to
        receive.
        """
        ready, dead = self._switches.ready(), self._switches.dead_uplinks | self._switches.closed
        senders: dict[RackId, list[Server]] = {}
        receivers: dict[RackId, list[Server]] = {}
        for rack in racks:
            for switch in self._substrate.steering(rack):
                able = [server for server in switch.servers if server.name not in dead]
                if switch.datapath in ready:
                    senders.setdefault(rack, []).extend(able[:1])
                    receivers.setdefault(rack, []).extend(able)
        return senders, receivers

    def dark_ports(
        self, racks: Collection[RackId], *, begun: bool = False
    ) -> Course[frozenset[PortId]]:
        """Ports of ``racks`` that should receive light but have none according to their ToRs. With
        ``begun``, includes ports of an interrupted change's new circuits.

        A ToR without an answer reports no ports.
        """
        circuits = set(self._memory.state.topology.circuits)
        if begun:
            circuits.update(
                circuit for path, _ in self._memory.unsettled.begun for circuit in path.circuits
            )
        ends = {
            (port.rack, port.tor_port): end
            for circuit in circuits
            for end in circuit.receivers
            if (port := self._fabric.ports[end]).rack in racks
        }
        names: dict[RackId, list[str]] = {}
        for rack, name in sorted(ends):
            names.setdefault(rack, []).append(name)
        commands = tuple(AwaitPortsUp(rack, tuple(some), 0.0) for rack, some in names.items())
        outcomes = yield from ask_all("carrier", commands)
        return frozenset(
            ends[command.rack, name]
            for command, outcome in zip(commands, outcomes, strict=True)
            for name in outcome.value_or(())
        )

    def mend(
        self, planes: Collection[PlaneId], racks: Collection[RackId]
    ) -> Course[frozenset[Circuit]]:
        """Bring devices to the present state: VLANs first, so that no VLAN in use leads into the
        dark.

        Returns the circuits of the present state that a plane denies; these circuits are to be
        withdrawn. A plane loses cross-connects on our ports that belong to no circuit, unless the
        ToR at an end is silent or uncertain: the ToR's VLANs may still lead there. Held paths go
        once no switch sends there. People are not asked to unplug harmless cross-connects. A ToR
        without VLANs has only rules, which synchronisation brings.
        """
        released = self._release()
        planes = {*planes, *(circuit.plane for circuit in released.circuits)}
        racks = {*racks, *released.racks(self._fabric)}
        wanted = {rack: ports for rack, ports in self.wanted_ports().items() if rack in racks}
        self.uncertain_planes -= self._by_people
        asked = sorted(planes - self._by_people)
        actual = yield from self._read(asked, wanted)
        self.uncertain_racks -= actual.vlans.keys() | (racks - wanted.keys())
        state = self._memory.state
        if released.lanes:
            yield from self.run_empty(sorted(released.lanes), sure=True)
        self.uncertain_planes -= actual.mirrors.keys()
        yield from self.clear_away(state, actual)
        self.uncertain_racks |= self.held_racks
        circuits = state.topology.circuits
        return frozenset(c for c in circuits if actual.passes(self._fabric, c) is False)

    def _release(self) -> Held:
        """The held paths no longer needed."""
        switches, held = self._switches, self._memory.held
        left = frozenset() if self._impatient else frozenset(filter(switches.may_send, held.lanes))
        self._impatient = False
        released = held.only(held.lanes - left)
        self._memory.hold(held.only(left))
        if released.lanes and not self._substrate.retags:
            switches.spares_relays = True  # tidies away relay rules of the released paths
        return Held(released.lanes, released.circuits - self._memory.held.circuits)

    def clear_away(self, state: NetworkState, actual: Actual) -> Steps:
        """Give ports the VLANs of ``state``, and take down cross-connects of no circuit."""
        closed, held = self.beside
        yield from self.retag(state, wrong_vlans(self._fabric, state, actual, closed, held))
        yield from self.take_down(stray_mirrors(self._fabric, state, actual.mirrors, held))

    def take_down(self, strays: Mapping[PlaneId, MirrorMove]) -> Steps:
        """Take down cross-connects of no circuit. If a cross-connect ends at a ToR that may still
        send there, the plane stays untouched and uncertain: a later attempt follows.
        """
        self.uncertain_planes |= (held := self._ends_uncertain(strays))
        yield from self.move({plane: move for plane, move in strays.items() if plane not in held})

    def _ends_uncertain(self, strays: Mapping[PlaneId, MirrorMove]) -> set[PlaneId]:
        """Planes on which a stray cross-connect ends at an uncertain ToR, or at a ToR with probes
        still to send.
        """
        mute = self._switches.mute() & self._switches.owned.keys()
        racks = self.uncertain_racks | {
            rack.id for rack in self._fabric.racks if rack.tor.datapath_id in mute
        }
        ends = {
            (port.plane, number)
            for port in self._fabric.ports
            if port.rack in racks
            for number in (port.ingress, port.egress)
        }
        return {
            plane
            for plane, move in strays.items()
            if any((plane, n) in ends for c in move.disconnect for n in (c.ingress, c.egress))
        }

    def retag(self, state: NetworkState, ports: PortsToTag) -> Steps:
        """Give ports their VLANs of ``state``, and announce the servers behind the ports; racks
        that do not confirm become uncertain.
        """
        commands = tuple(SetVlans(rack, ports[rack]) for rack in sorted(ports))
        outcomes = yield from ask_all("retag", commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            if not outcome.confirmed:
                self.uncertain_racks.add(command.rack)
        if servers := _reachable_through(self._fabric, state, ports):
            yield Batch("announce", (Announce(tuple(servers)),))

    def move(self, moves: Mapping[PlaneId, MirrorMove]) -> Steps:
        """Move mirrors, except on planes of people; planes that do not confirm become uncertain."""
        commands = tuple(
            MoveMirrors(plane, move)
            for plane, move in sorted(moves.items())
            if plane not in self._by_people  # a move that waits for a person may come yet
        )
        outcomes = yield from ask_all("move", commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            if not outcome.confirmed:
                self.uncertain_planes.add(command.plane)

    @property
    def closed_racks(self) -> frozenset[RackId]:
        """Racks with servers whose port is closed."""
        return frozenset(self._fabric.server_by_name[name].rack for name in self._switches.closed)

    def open_ports(self, racks: Collection[RackId]) -> Course[frozenset[RackId]]:
        """Admit servers to circuits again if their switch has the present state, and announce them.

        Returns the racks whose ToR did not confirm.
        """
        ready = self._switches.ready()
        servers: dict[RackId, list[Server]] = {}
        for server in map(self._fabric.server_by_name.__getitem__, sorted(self._switches.closed)):
            if self._switches.switch_of[server.name] in ready and server.rack in racks:
                servers.setdefault(server.rack, []).append(server)
        commands = tuple(
            SetVlans(
                rack,
                {s.tor_port: self._substrate.fixed_ports(rack)[s.tor_port] for s in some},
            )
            for rack, some in servers.items()
        )
        if not commands:
            return frozenset()
        failed, opened = set(), set[str]()
        yield from self.drain()  # a switch may still forward by the replaced rules
        outcomes = yield from ask_all("open", commands)
        for (rack, some), outcome in zip(servers.items(), outcomes, strict=True):
            names = ", ".join(server.name for server in some)
            if outcome.confirmed:
                LOG.info("the ToR accepts frames for circuits from %s again", names)
                opened.update(server.name for server in some)
                self._switches.closed -= opened
            else:  # the ToR may still open the port
                failed.add(rack)
                self.uncertain_racks.add(rack)
                LOG.error(
                    "the ToR accepts no frames for circuits from %s: %s", names, outcome.failure
                )
        yield from self._detours.follow()
        reachable = reachable_on(self._fabric, self._memory.state)
        announced = tuple(entry for entry in reachable if entry[0].name in opened)
        if announced:
            yield Batch("announce", (Announce(announced),))
        return frozenset(failed)
