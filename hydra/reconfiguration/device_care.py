"""Optical switches and ToRs after a failure: read again, and brought to the present state.

Its courses yield commands and are sent outcomes, as the executor does.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hydra.forwarding.rules import Lane
from hydra.forwarding.substrate import substrate_of
from hydra.model import Circuit, Fabric, PlaneId, PortId, RackId, Server
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.commands import (
    Announce,
    AwaitPortsUp,
    AwaitRounds,
    Batch,
    Course,
    MoveMirrors,
    PassMarkers,
    Pause,
    ReadMirrors,
    ReadVlans,
    SetVlans,
    Steps,
)
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import MirrorMove, PortsToTag
from hydra.reconfiguration.reconcile import Actual, stray_mirrors, wanted_vlans, wrong_vlans
from hydra.reconfiguration.switches import Switches, reachable_on
from hydra.reconfiguration.whole_tables import Memory

LOG: Final = logging.getLogger("hydra.device_care")
_BRIEF_S: Final = 0.01
"""Drain bounds below this are taken for it, where attempts are counted."""


def read_devices(
    planes: Iterable[PlaneId], ports: Mapping[RackId, Collection[str]]
) -> Course[Actual]:
    """Mirrors of these planes and VLANs of these ports, of the devices that answer."""
    mirrors = tuple(map(ReadMirrors, planes))
    vlans = tuple(ReadVlans(rack, tuple(names)) for rack, names in ports.items())
    if not (mirrors or vlans):
        return Actual({}, {})
    outcomes = yield Batch("read", (*mirrors, *vlans))
    answers = {
        command: outcome.value
        for command, outcome in zip((*mirrors, *vlans), outcomes, strict=True)
        if outcome.confirmed
    }
    return Actual(
        {read.plane: answers[read] for read in mirrors if read in answers},
        {read.rack: answers[read] for read in vlans if read in answers},
    )


@dataclass(eq=False, repr=False)
class DeviceCare:
    """Devices that may differ from the present state, and the courses that mend them."""

    _fabric: Fabric
    _policy: CurrentPolicy
    _memory: Memory
    _switches: Switches
    _by_people: frozenset[PlaneId] = frozenset()
    """Planes whose changes are tasks for people."""
    uncertain_planes: set[PlaneId] = field(default_factory=set, init=False)
    uncertain_racks: set[RackId] = field(default_factory=set, init=False)
    _silent_planes: set[PlaneId] = field(default_factory=set, init=False)
    """Optical switches that did not answer when they were last read."""
    _silent_racks: set[RackId] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._substrate = substrate_of(self._fabric)

    def learn(self, execution: Execution) -> None:
        """Take over what a reconfiguration could not confirm."""
        for name in sorted(execution.closed):
            LOG.error(
                "the vswitch of %s is silent: its port is closed to circuits until it answers", name
            )
        self._switches.closed |= execution.closed
        self.uncertain_planes |= execution.uncertain_planes
        self.uncertain_racks |= {
            rack.id for rack in self._fabric.racks if rack.name in execution.unconfirmed
        }

    def wanted_ports(self) -> PortsToTag:
        """VLAN membership of every ToR port that the configuration names; none without VLANs."""
        if not self._substrate.retags:
            return {}
        return wanted_vlans(self._fabric, self._memory.state, self._switches.closed)

    # -- courses ----------------------------------------------------------------------------------

    def read(self, *, everywhere: bool = True) -> Course[tuple[Actual, tuple[str, ...]]]:
        """The state of devices, as read; names of the silent ones, which are uncertain.

        Unless ``everywhere``, devices that did not answer when they were last read are not asked,
        since each attempt may take a time-out: :meth:`mend` asks them.
        """
        planes, racks = {plane.id for plane in self._fabric.planes}, self.wanted_ports()
        asked = planes if everywhere else planes - self._silent_planes
        passed = set() if everywhere else self._silent_racks
        actual = yield from self._read(
            sorted(asked), {rack: ports for rack, ports in racks.items() if rack not in passed}
        )
        silent = [self._fabric.planes[one].name for one in sorted(planes - actual.mirrors.keys())]
        silent += [self._fabric.racks[one].name for one in racks if one not in actual.vlans]
        return actual, tuple(silent)

    def _read(
        self, planes: Collection[PlaneId], ports: Mapping[RackId, Collection[str]]
    ) -> Course[Actual]:
        """Mirrors of these planes and VLANs of these ports; devices that do not answer are silent,
        and uncertain.
        """
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

        Switches first tell that they forward by no flow that they cached earlier. What they sent
        until then is given the drain's bound.
        """
        yield from self._await_rounds()
        yield Batch("drain", (Pause(self._policy.now.drain.bound_ms / 1000),))

    def run_empty(self, standing: Sequence[Lane], *, sure: bool) -> Steps:
        """The same where all that frames can still come through are the paths that are
        ``standing``: once these are empty, nobody waits.

        A marker that does not come out is sent again: a ToR that passes on nothing for a while
        keeps it, and frames before it. It is waited for, up to ``timeouts.tor_s``. Where a switch
        may still send, a path is there with two VLAN-IDs, or it is not ``sure`` what stands, the
        drain's bound is waited for as well.
        """
        policy, paths = self._policy.now, dict(standing)
        bound_s = policy.drain.bound_ms / 1000
        told = yield from self._await_rounds()
        sure = sure and told and len(paths) == len(standing)
        beside = () if sure else (Pause(bound_s),)
        used = self._memory.state.topology.circuits
        own = {one for path in paths for one in path.circuits} - used
        hidden = [path for path in paths if own.isdisjoint(path.circuits)]
        draining = Draining(self._fabric, paths, (own, hidden), policy.drain, cache_told=told)
        senders, receivers = self._ends_of(draining.ends)
        yield from draining.run(senders, receivers, beside)
        if beside and not paths:
            yield Batch("drain", beside)
        missing = draining.missing
        for _ in range(int(policy.timeouts.tor_s / max(bound_s, _BRIEF_S))):
            if not missing:
                return
            (outcome,) = yield Batch("drain", (PassMarkers(missing, bound_s),))
            missing = outcome.value if outcome.confirmed else missing
        if missing:
            racks = sorted({self._fabric.racks[one.src.rack].name for one in missing})
            LOG.warning("what %s sent over circuits that end may be lost", ", ".join(racks))

    def _await_rounds(self) -> Course[bool]:
        """True if all switches have told that they forward by no flow that they cached earlier.

        Learning ToRs have no rules that could tell.
        """
        owned = self._switches.owned.keys()
        ready = tuple(sorted(self._switches.ready() & owned))
        if not ready or not self._substrate.tells_rounds:
            return False
        timeout_s = self._policy.now.timeouts.vswitch_s
        (outcome,) = yield Batch("drain", (AwaitRounds(ready, timeout_s),))
        late = outcome.value or ()
        if late:
            LOG.warning(
                "%d vswitch(es) have not looked at all their cached flows within %g s",
                len(late),
                timeout_s,
            )
        return outcome.confirmed and not late and len(ready) == len(owned)

    def _ends_of(
        self, racks: Collection[RackId]
    ) -> tuple[dict[RackId, list[Server]], dict[RackId, list[Server]]]:
        """Servers of these racks for markers: one of each switch that can send, and those that can
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
        """Ports of these racks that are to receive light and, as their ToRs say, have none; with
        ``begun``, those among them that a change was about to give light which broke off.

        A ToR that does not answer says nothing.
        """
        circuits = set(self._memory.state.topology.circuits)
        if begun:
            circuits.update(
                one for path, _ in self._memory.unsettled.begun for one in path.circuits
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
        outcomes = (yield Batch("carrier", commands)) if commands else ()
        return frozenset(
            ends[command.rack, name]
            for command, outcome in zip(commands, outcomes, strict=True)
            if outcome.confirmed
            for name in outcome.value
        )

    def mend(
        self, planes: Collection[PlaneId], racks: Collection[RackId]
    ) -> Course[frozenset[Circuit]]:
        """Bring these devices to the present state: VLANs first, lest one in use is in the dark.

        Returns the circuits of the present state that a plane denies; they are to be withdrawn.
        A plane loses cross-connects on our ports that belong to no circuit, unless the ToR at their
        end is uncertain, whose VLANs may still lead there, or does not answer. People are not sent
        to unplug what is in nobody's way. A ToR without VLANs has rules alone: :class:`Switches`
        sees to those.
        """
        wanted = {rack: ports for rack, ports in self.wanted_ports().items() if rack in racks}
        self.uncertain_planes -= self._by_people
        asked = sorted(set(planes) - self._by_people)
        actual = yield from self._read(asked, wanted)
        self.uncertain_racks -= actual.vlans.keys() | (set(racks) - wanted.keys())
        state = self._memory.state
        yield from self.retag(wrong_vlans(self._fabric, state, actual, self._switches.closed))
        self.uncertain_planes -= actual.mirrors.keys()
        yield from self.take_down(stray_mirrors(self._fabric, state, actual.mirrors))
        circuits = state.topology.circuits
        return frozenset(one for one in circuits if actual.passes(self._fabric, one) is False)

    def take_down(self, strays: Mapping[PlaneId, MirrorMove]) -> Steps:
        """Take down cross-connects that belong to no circuit, but on planes where one ends at a ToR
        that may yet send there: those are uncertain, and tried again.
        """
        self.uncertain_planes |= (held := self._ends_uncertain(strays))
        yield from self.move({plane: move for plane, move in strays.items() if plane not in held})

    def _ends_uncertain(self, strays: Mapping[PlaneId, MirrorMove]) -> set[PlaneId]:
        """Planes on which a cross-connect to go ends at a ToR that is uncertain, or may yet send
        probes there that it was given.
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
            if any((plane, n) in ends for one in move.disconnect for n in (one.ingress, one.egress))
        }

    def retag(self, ports: PortsToTag) -> Steps:
        """Retag ports; racks that do not confirm it are uncertain."""
        commands = tuple(SetVlans(rack, ports[rack]) for rack in sorted(ports))
        outcomes = (yield Batch("retag", commands)) if commands else ()
        for command, outcome in zip(commands, outcomes, strict=True):
            if not outcome.confirmed:
                self.uncertain_racks.add(command.rack)

    def move(self, moves: Mapping[PlaneId, MirrorMove]) -> Steps:
        """Move mirrors that no person works; planes that do not confirm it are uncertain."""
        commands = tuple(
            MoveMirrors(plane, move)
            for plane, move in sorted(moves.items())
            if plane not in self._by_people  # a move that waits for a person may come yet
        )
        outcomes = (yield Batch("move", commands)) if commands else ()
        for command, outcome in zip(commands, outcomes, strict=True):
            if not outcome.confirmed:
                self.uncertain_planes.add(command.plane)

    @property
    def closed_racks(self) -> frozenset[RackId]:
        """Racks with servers whose port is closed."""
        return frozenset(self._fabric.server_by_name[name].rack for name in self._switches.closed)

    def open_ports(self, racks: Collection[RackId]) -> Course[frozenset[RackId]]:
        """Let servers onto circuits again if their switch has been brought to the present state,
        and announce them there.

        Returns the racks whose ToR did not confirm it.
        """
        ready = self._switches.ready()
        servers: dict[RackId, list[Server]] = {}
        for server in map(self._fabric.server_by_name.__getitem__, sorted(self._switches.closed)):
            if self._switches.switch_of[server.name] in ready and server.rack in racks:
                servers.setdefault(server.rack, []).append(server)
        commands = tuple(
            SetVlans(
                rack,
                {one.tor_port: self._substrate.fixed_ports(rack)[one.tor_port] for one in some},
            )
            for rack, some in servers.items()
        )
        if not commands:
            return frozenset()
        failed, opened = set(), set[str]()
        yield from self.drain()  # a switch may still forward by the rules that were replaced
        outcomes = yield Batch("open", commands)
        for (rack, some), outcome in zip(servers.items(), outcomes, strict=True):
            names = ", ".join(server.name for server in some)
            if outcome.confirmed:
                LOG.info("the ToR takes from %s for circuits again", names)
                opened.update(server.name for server in some)
                self._switches.closed -= opened
            else:  # or it does, soon
                failed.add(rack)
                self.uncertain_racks.add(rack)
                LOG.error("the ToR takes nothing from %s for circuits: %s", names, outcome.failure)
        yield from self._switches.follow_closed()
        reachable = reachable_on(self._fabric, self._memory.state)
        announced = tuple(one for one in reachable if one[0].name in opened)
        if announced:
            yield Batch("announce", (Announce(announced),))
        return frozenset(failed)
