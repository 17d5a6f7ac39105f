"""Keeps switches and devices as the ledger says they should be."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from apps.controller.announcer import Announced, Announcer, reachable_on
from apps.controller.devices import Devices
from apps.controller.ledger import Ledger
from apps.controller.mastership import Mastership
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.quarantine import Quarantine
from apps.openflow.fleet import Fleet
from drivers.codecs.openflow.rules import TAKEN_OVER
from hydra.errors import DeviceError, DeviceUnavailable, HeldElsewhere, HydraError
from hydra.forwarding.rules import FlowRule, Install, RuleChange
from hydra.forwarding.substrate import substrate_of
from hydra.model import (
    Circuit,
    DatapathId,
    Fabric,
    NetworkState,
    PlaneId,
    PortId,
    RackId,
    Server,
)
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.executor import Conditions, Execution
from hydra.reconfiguration.plan import Pair, pair_of, unsettled_paths, without
from hydra.reconfiguration.reconcile import (
    Reconciled,
    reconcile,
    servers_closed,
    stray_mirrors,
    wanted_vlans,
)
from hydra.reconfiguration.relaying import relays_as_in, wipe
from hydra.service import DeviceStatus, PlanRequest

LOG = logging.getLogger("hydra.upkeep")
_IdT = TypeVar("_IdT", bound=int)
_LONGEST_WAIT_S: Final = 60.0
_CONNECT_S: Final = 5.0
"""For vswitches to connect after a start, where something has to be taken down."""


class _Retries:
    """Ever longer waits between attempts at a device that stays away.

    An attempt at one that swallows packets takes its whole time-out, and the conductor waits.
    """

    def __init__(self) -> None:
        self._waits: dict[str, tuple[float, float]] = {}

    def due(self, device: str) -> bool:
        return time.monotonic() >= self._waits.get(device, (0.0, 0.0))[0]

    def note(self, device: str, well: bool) -> None:
        """Remember how an attempt ended."""
        if well:
            self._waits.pop(device, None)
            return
        wait_s = min(2 * self._waits.get(device, (0.0, 1.0))[1], _LONGEST_WAIT_S)
        self._waits[device] = (time.monotonic() + wait_s, wait_s)


class Upkeep:
    """Synchronises vswitches, reconciles devices, routes around dead uplinks.

    Its methods run in the conductor's thread; what others read is guarded by a lock.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: CurrentPolicy,
        fleet: Fleet,
        devices: Devices,
        ledger: Ledger,
        quarantine: Quarantine,
        policing: Policing,
        give_up: Callable[[HydraError], None],
    ) -> None:
        """``give_up`` ends the controller: it is one too many."""
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._owned = self._substrate.owned()
        self._steering = {
            switch.datapath: switch
            for rack in fabric.racks
            for switch in self._substrate.steering(rack.id)
        }
        self._switch_of = {
            server.name: switch.datapath
            for switch in self._steering.values()
            for server in switch.servers
        }
        self._policy = policy
        self._fleet = fleet
        self._devices = devices
        self._ledger = ledger
        self._quarantine = quarantine
        self._policing = policing
        self._give_up = give_up
        self.in_command = False
        """No other controller is at work: devices and switches may be touched."""
        self.people = PatchPanels(fabric, devices)
        self._lock = threading.Lock()
        self._synchronised: set[DatapathId] = set()
        self.mastership = Mastership(
            fleet, self._owned, policy.now.timeouts.vswitch_s, counts=not self._substrate.retags
        )
        self._dead_uplinks: frozenset[str] = frozenset()
        self._closed: frozenset[str] = frozenset()
        self._uncertain_planes: set[PlaneId] = set()
        self._settled = False
        """The present state is known: vswitches may be brought to it."""
        self._reconciled = False
        self._spares_relays_until_s: float | None = None
        """Since a start, switches that have yet to be brought to the state may count on relays."""
        self._retries = _Retries()
        self.classified: Callable[[DatapathId], Iterable[FlowRule]] = lambda _datapath: ()
        """What a vswitch holds in its class table beside the rules that are always there."""
        self._moving: Callable[[], Collection[Pair]] = tuple
        self.announcer = Announcer(
            fleet, self._substrate, self._reachable, policy.now.fdb_age_s / 3
        )

    # -- announcements ----------------------------------------------------------------------------

    def leave_unannounced(self, pairs: Callable[[], Collection[Pair]]) -> None:
        """The paths of these pairs are being moved: what is sent there may end in the dark."""
        self._moving = pairs

    def _reachable(self) -> Announced:
        state, moving = self._ledger.state, self._moving()
        lost = [path for path in state.topology.paths if pair_of(path) in moving]
        return reachable_on(self._fabric, without(state, (), lost))

    def standing(self) -> tuple[NetworkState, Collection[Pair]]:
        """The present state, and the pairs whose paths are being moved."""
        moving = self._moving()
        return self._ledger.state, moving

    # -- vswitches --------------------------------------------------------------------------------

    def forget_switch(self, datapath: DatapathId) -> None:
        """It connected anew, with whatever rules it holds."""
        with self._lock:
            self._synchronised.discard(datapath)
        self.mastership.forget(datapath)

    def ready_switches(self) -> frozenset[DatapathId]:
        """Connected, and holding exactly the rules that they should."""
        with self._lock:
            return frozenset(self._synchronised) & self._fleet.connected()

    def why_not_ready(self, datapath: DatapathId) -> str:
        if datapath in self._fleet.connected():
            return (
                f"switch {self._owned[datapath]} is being brought to the present state: ask again"
            )
        return f"switch {self._owned[datapath]} is not connected: check its controller setting"

    def on_circuits(self) -> frozenset[DatapathId]:
        """Steering switches that can send and receive on circuits now."""
        dead = {
            datapath
            for datapath in map(self._switch_of.__getitem__, self._dead_uplinks)
            if all(s.name in self._dead_uplinks for s in self._steering[datapath].servers)
        }
        return self.ready_switches() - dead

    def conditions(self) -> Conditions:
        return Conditions(self.ready_switches(), self._dead_uplinks, self._closed)

    @property
    def closed(self) -> frozenset[str]:
        """Servers whose port at the ToR is closed to circuits, until their vswitch answers."""
        return self._closed

    def rules_for(self, datapath: DatapathId) -> list[FlowRule]:
        """All rules that an owned switch is to hold now."""
        rules = self._substrate.rules(datapath, self._ledger.state, self._dead_uplinks)
        return [*rules, *self.classified(datapath), *self._policing.rules_for(datapath)]

    def hold_reserved(self) -> None:
        """Have vswitches keep to what reservations hold now."""
        failed = self._policing.hold(
            self._ledger.state, self._ledger.active(), self.ready_switches()
        )
        with self._lock:
            self._synchronised -= failed

    def synchronise(self, datapaths: Collection[DatapathId]) -> None:
        """Bring whole vswitches to the intended state, in one atomic bundle each."""
        if not self._settled:
            return  # the devices come first; every connected switch is synchronised after
        known = [dp for dp in datapaths if self._is_ours(dp)]
        try:
            self.mastership.take(known)
        except HeldElsewhere as held:
            LOG.error("%s: it is left alone", held)
            for datapath in known:
                self._retries.note(f"switch {datapath:#x}", well=False)
            return
        self._policing.prepare([datapath for datapath in known if datapath in self._owned])
        changes = {datapath: self._all_rules(datapath) for datapath in known}
        errors = self._fleet.apply(changes, self._policy.now.timeouts.vswitch_s)
        with self._lock:
            for datapath, error in errors.items():
                if error is None:
                    self._synchronised.add(datapath)
                else:
                    LOG.error("switch %#x was not synchronised: %s", datapath, error)
                    if error == TAKEN_OVER:
                        self.mastership.forget(datapath)
                self._retries.note(f"switch {datapath:#x}", error is None)
        self.update_dead_uplinks()
        self._open_ports()
        self.announcer.announce(
            [
                entry
                for entry in reachable_on(self._fabric, self._ledger.state)
                if self._switch_of[entry[0].name] in changes
            ]
        )
        self._tidy_relays_if_due()

    def _open_ports(self) -> None:
        """Let vswitches onto circuits again that have been brought to the present state."""
        ready = self.ready_switches()
        for name in sorted(self._closed):
            server = self._fabric.server_by_name[name]
            if self._switch_of[name] not in ready or not self._retries.due(f"port of {name}"):
                continue
            port = {server.tor_port: self._substrate.fixed_ports(server.rack)[server.tor_port]}
            try:
                self._devices.set_vlans(server.rack, port)
            except DeviceError as error:
                LOG.error("the port of %s stays closed to circuits: %s", name, error)
                self._retries.note(f"port of {name}", well=False)
                continue
            LOG.info("the port of %s is open to circuits again", name)
            self._retries.note(f"port of {name}", well=True)
            self._closed -= {name}

    def _is_ours(self, datapath: DatapathId) -> bool:
        ours = datapath in self._owned or datapath in self._fabric.rack_by_tor_datapath
        if not ours:
            LOG.warning("switch %#x is not in the configuration; it is left alone", datapath)
        return ours

    def _all_rules(self, datapath: DatapathId) -> list[RuleChange]:
        if datapath not in self._owned:
            return [*map(Install, self._substrate.tor_rules())]
        missing = self._fleet.missing_ports(datapath)
        if missing:
            LOG.error(
                "switch %s has no port %s: check the names in the configuration",
                self._owned[datapath],
                ", ".join(missing),
            )
        spare = self._spares_relays_until_s is not None
        return [*wipe(spare_relays=spare), *map(Install, self.rules_for(datapath))]

    def _uplink_down(self, server: Server) -> bool:
        """Known to be down, at either end; a switch that is silent says nothing."""
        vswitch, tor = server.vswitch, self._fabric.racks[server.rack].tor.datapath_id
        here = None
        if vswitch is not None:
            here = self._fleet.port(vswitch.datapath_id, vswitch.optical_port)
        there = None if tor is None else self._fleet.port(tor, server.tor_port)
        return any(port is not None and not port.up for port in (here, there))

    def update_dead_uplinks(self) -> None:
        """Route around servers whose uplink to the ToR went down, and back when it returned."""
        dead = frozenset(s.name for s in self._fabric.servers if self._uplink_down(s))
        with self._lock:
            old, self._dead_uplinks = self._dead_uplinks, dead
            ready = self._synchronised & self._fleet.connected()
        if dead == old:
            return
        LOG.warning("uplinks to ToRs down: %s", ", ".join(sorted(dead)) or "none")
        if self._substrate.detours:
            self.synchronise([datapath for datapath in ready if datapath in self._owned])
        else:
            self.announcer.announce(self._reachable())

    # -- circuits that die ------------------------------------------------------------------------

    def _is_dark(self, end: PortId) -> bool:
        """Known to have no carrier; a ToR that is silent says nothing."""
        port = self._fabric.ports[end]
        tor = self._fabric.racks[port.rack].tor.datapath_id
        seen = None if tor is None else self._fleet.port(tor, port.tor_port)
        return seen is not None and not seen.up

    def dead_circuits(self) -> tuple[frozenset[Circuit], str]:
        """Circuits in use that have lost their light, and where; their ports are quarantined.

        Of a one-way circuit whose sender is dark, too, but not its ports: another one should light
        that.
        """
        circuits = self._ledger.state.topology.circuits
        dead = frozenset(one for one in circuits if any(map(self._is_dark, one.ends)))
        unlit = [one for one in dead if any(map(self._is_dark, one.receivers))]
        ends = {end for circuit in unlit for end in circuit.ends}
        places = [
            f"{self._fabric.racks[port.rack].name}:{port.tor_port}"
            for port in (self._fabric.ports[end] for end in sorted(ends))
            if self._is_dark(port.id)
        ]
        reason = f"carrier lost at {', '.join(places)}"
        self._quarantine.put(ends, reason)
        return dead, reason

    def distrust(self, circuits: Collection[Circuit], reason: str) -> None:
        """Put the ports of these circuits into quarantine."""
        ends = {end for circuit in circuits for end in circuit.ends}
        self._quarantine.put(ends, reason)

    # -- devices ----------------------------------------------------------------------------------

    def look_after(self) -> None:
        """Reconcile once at the start; afterwards open again what was lost, and tidy up."""
        if not self.in_command:
            self._take_command()
        if not self.in_command:
            return
        if not self._reconciled:
            self._reconcile()
            return
        for plane in self._fabric.planes:
            problem = self._devices.plane_problem(plane.id)
            if problem is not None:
                self._uncertain_planes.add(plane.id)
            if plane.id in self._uncertain_planes and self._retries.due(plane.name):
                self._tidy_plane(plane.id)
                self._retries.note(plane.name, plane.id not in self._uncertain_planes)
        for rack in self._fabric.racks:
            if self._devices.tor_problem(rack.id) is not None and self._retries.due(rack.name):
                self._restore_tor(rack.id)
                self._retries.note(rack.name, self._devices.tor_problem(rack.id) is None)
        known = self._fabric.server_by_datapath.keys() | self._fabric.rack_by_tor_datapath.keys()
        late = (self._fleet.connected() - self._synchronised) & known
        due = [datapath for datapath in late if self._retries.due(f"switch {datapath:#x}")]
        if due:
            self.synchronise(due)
        self._open_ports()
        self._tidy_relays_if_due()

    def _take_command(self) -> None:
        """Before anything is touched, a switch has to say that nobody else commands it."""
        if self._substrate.retags:
            self.in_command = True  # the claims on ToRs have seen to that
            return
        self._fleet.await_connected(self._owned, _CONNECT_S)
        connected = self._fleet.connected() & self._owned.keys()
        try:
            self.mastership.take(connected)
        except HeldElsewhere as error:
            self._give_up(HydraError(f"a controller is at work on this fabric already: {error}"))
            return
        self.in_command = bool(connected)
        if self.in_command:
            self.mastership.start()

    def _tidy_relays_if_due(self) -> None:
        """Once every switch is brought to the state, or has had its time."""
        until_s = self._spares_relays_until_s
        if until_s is None:
            return
        if self.ready_switches() >= self._owned.keys() or time.monotonic() >= until_s:
            self.tidy_relays()

    def tidy_relays(self) -> None:
        """Relay what the present state needs, and nothing that was before it.

        Before anything moves: what is left of another state could take a new path for its own.
        """
        if self._spares_relays_until_s is None or not self._settled:
            return
        self._spares_relays_until_s = None
        deaf = self._owned.keys() - self.ready_switches()
        changes = {
            datapath: relays_as_in(self.rules_for(datapath))
            for datapath in self._owned.keys() - deaf
        }
        time.sleep(self._policy.now.drain.bound_ms / 1000)  # a barrier confirms tables only
        errors = self._fleet.apply(changes, self._policy.now.timeouts.vswitch_s)
        with self._lock:
            self._synchronised -= {dp for dp, error in errors.items() if error is not None}

    def _reconcile(self) -> None:
        """Find out what the network is in, and mend what differs from it."""
        state = self._ledger.state
        actual, _ = self._devices.read(wanted_vlans(self._fabric, state))
        ready = self.ready_switches()
        self._closed = frozenset(
            name
            for name in servers_closed(self._fabric, actual)
            if self._switch_of[name] not in ready
        )
        found = reconcile(self._fabric, state, actual, self._ledger.unsettled, self._closed)
        self._settled = True
        if not self._substrate.retags:
            self._spares_relays_until_s = time.monotonic() + _CONNECT_S
        if found.dropped:
            LOG.warning("%d circuit(s) of the journal are not there any more", len(found.dropped))
        self._ledger.settle(found.state)
        self._stop_using_what_goes(found)
        for rack, ports in found.retag.items():
            self.attempt(partial(self._devices.set_vlans, rack, ports))
        for plane, move in found.mirrors.items():
            if self._devices.worked_by_people(plane):
                continue  # what waits for it may be brought up yet
            action = partial(self._devices.change_mirrors, plane, move.disconnect, move.connect)
            self.attempt(action)
        self._ledger.save("reconciled")
        self._reconciled = True
        self.synchronise(self._fleet.connected())

    def _stop_using_what_goes(self, found: Reconciled) -> None:
        """Vswitches may still send on circuits that are about to be taken down: they come first.

        One that does not connect in time can't be waited for; its pairs are cut off until it does.
        """
        if not (found.mirrors or found.retag):
            return
        self._fleet.await_connected(self._owned, _CONNECT_S)
        self.synchronise(self._fleet.connected())
        if found.mirrors:
            time.sleep(self._policy.now.drain.bound_ms / 1000)  # a barrier confirms tables only

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something to a device; where it fails, the log says why."""
        try:
            action()
        except DeviceError as error:
            LOG.error("%s", error)

    def _tidy_plane(self, plane: PlaneId) -> None:
        """Take down what stands on our ports of a plane and belongs to no circuit.

        People are not sent to unplug what is in nobody's way.
        """
        if self._devices.worked_by_people(plane):
            self._uncertain_planes.discard(plane)
            return
        try:
            present = self._devices.cross_connects(plane)
            stray = stray_mirrors(self._fabric, self._ledger.state, {plane: present})
            for move in stray.values():
                self._devices.change_mirrors(plane, move.disconnect, move.connect)
        except DeviceError as error:
            LOG.debug("%s", error)
            return
        self._uncertain_planes.discard(plane)

    def _restore_tor(self, rack: RackId) -> None:
        try:
            wanted = wanted_vlans(self._fabric, self._ledger.state, self._closed)[rack]
            actual = self._devices.vlans(rack, wanted)
            wrong = {name: vlans for name, vlans in wanted.items() if actual.get(name) != vlans}
            if wrong:
                self._devices.set_vlans(rack, wrong)
        except DeviceError as error:
            LOG.debug("%s", error)

    def start_over(self, execution: Execution) -> None:
        """A reconfiguration broke off: read the devices again before anything else."""
        self._ledger.unsettle(unsettled_paths(execution.plan.current, execution.plan.target))
        self._settled = self._reconciled = False

    def take_over(self, execution: Execution) -> None:
        """Learn from a reconfiguration what is uncertain now."""
        for name in sorted(execution.closed - self._closed):
            LOG.error(
                "the vswitch of %s is silent: its port is closed to circuits until it answers", name
            )
        with self._lock:
            self._closed |= execution.closed
            self._uncertain_planes |= execution.uncertain_planes
            self._synchronised -= {
                datapath
                for datapath, name in self._owned.items()
                if not execution.unconfirmed.isdisjoint((name, self._steering_name(datapath)))
            }
        waiting = self.people.waiting(execution)
        for circuit, reason in execution.failures.items():
            if circuit not in waiting:
                self._quarantine.put((circuit.a, circuit.b), reason)
        passed = {circuit for path in execution.result.topology.paths for circuit in path.circuits}
        self._quarantine.passed(
            [end for circuit in passed & execution.plan.connect for end in circuit.ends]
        )

    def _steering_name(self, datapath: DatapathId) -> str:
        switch = self._steering.get(datapath)
        return "" if switch is None else switch.name

    # -- what there is ----------------------------------------------------------------------------

    def blocked_ports(self) -> frozenset[PortId]:
        """Ports that no plan may use: quarantined, in people's hands, or on a device that can't be
        commanded.
        """
        planes, racks = self._out_of_reach()
        quarantined = self._quarantine.blocked() | self.people.ports()
        return frozenset(
            port.id
            for port in self._fabric.ports
            if port.id in quarantined or port.plane in planes or port.rack in racks
        )

    def _out_of_reach(self) -> tuple[frozenset[PlaneId], frozenset[RackId]]:
        """Planes and racks whose devices can't be commanded."""
        tors = {r.id: r.tor.datapath_id for r in self._fabric.racks}
        deaf = self._owned.keys() - self.ready_switches()
        return (
            frozenset(p.id for p in self._fabric.planes if self._devices.plane_problem(p.id)),
            frozenset(
                rack for rack, tor in tors.items() if self._devices.tor_problem(rack) or tor in deaf
            ),
        )

    def within_reach(self, request: PlanRequest) -> PlanRequest:
        """The request less what can't be commanded: circuits there stay as they are.

        Raises DeviceUnavailable if only such planes were asked for.
        """
        planes, racks = self._out_of_reach()
        if planes:
            asked = _all_unless(request.planes, (plane.id for plane in self._fabric.planes))
            if request.planes and request.planes <= planes:
                down = [self._fabric.planes[plane].name for plane in sorted(request.planes)]
                raise DeviceUnavailable(", ".join(down), "down: wait, or name other planes")
            request = replace(request, planes=asked - planes)
        if racks:
            asked_racks = _all_unless(request.racks, (rack.id for rack in self._fabric.racks))
            request = replace(request, racks=asked_racks - racks)
        return request

    def down_planes(self) -> list[str]:
        """Optical switches that can't be commanded, with the reason."""
        return [
            f"OCS {plane.name} is down ({problem})"
            for plane in self._fabric.planes
            if (problem := self._devices.plane_problem(plane.id))
        ]

    def devices(self) -> Sequence[DeviceStatus]:
        connected = self._fleet.connected()
        switches = [
            DeviceStatus(
                name, self._kind(dp), "openflow", dp in connected, self._dead_uplinks_of(dp)
            )
            for dp, name in self._owned.items()
        ]
        return [*map(self.people.described, self._devices.statuses()), *switches]

    def _kind(self, owned: DatapathId) -> str:
        return "tor" if owned in self._fabric.rack_by_tor_datapath else "vswitch"

    def _dead_uplinks_of(self, owned: DatapathId) -> str:
        """What is wrong with the uplinks of the switch's servers, in words."""
        servers = self._steering[owned].servers if owned in self._steering else ()
        if any(server.name in self._closed for server in servers):
            return "silent: its ToR port is closed to circuits"
        dead = [server.name for server in servers if server.name in self._dead_uplinks]
        if not dead:
            return ""
        what = self._substrate.dead_uplink
        return what if self._kind(owned) == "vswitch" else f"{', '.join(dead)}: {what}"

    def not_ready(self) -> Sequence[str]:
        """What is still missing before the controller can do its job; empty when ready."""
        missing = [] if self._reconciled else ["devices have not been read yet"]
        if self._spares_relays_until_s is not None:
            missing.append("relays of an earlier state are still there")
        with self._lock:
            ready = self._synchronised & self._fleet.connected()
        missing += [
            f"{self._kind(datapath)} {name} is not connected"
            for datapath, name in self._owned.items()
            if datapath not in ready
        ]
        return missing + [
            f"{status.kind} {status.name}: {status.detail}"
            for status in self._devices.statuses()
            if not status.connected
        ]


def _all_unless(chosen: frozenset[_IdT] | None, every: Iterable[_IdT]) -> frozenset[_IdT]:
    return frozenset(every) if chosen is None else chosen
