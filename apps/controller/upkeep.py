"""Keeps switches and devices as the ledger says, by courses of the core that it starts when due.

The steps and their order are in :mod:`hydra.reconfiguration.recovery`, `switches` and
`device_care` there; this room has the clock, and has the courses carried out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from typing import Final, TypeVar

from apps.controller.devices import Devices
from apps.controller.mastership import Mastership
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.quarantine import Quarantine
from apps.controller.record.ledger import Ledger
from apps.controller.runner import BesideOthers, Runner
from apps.openflow.fleet import Fleet
from hydra.errors import DeviceUnavailable, HeldElsewhere, HydraError
from hydra.failures import FailureKind
from hydra.faults.server_links import Dead
from hydra.forwarding.substrate import substrate_of
from hydra.history import HappeningKind
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, Path, PlaneId, PortId, RackId
from hydra.reconfiguration.commands import Steps
from hydra.reconfiguration.device_care import DeviceCare
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import Plan, pair_of
from hydra.reconfiguration.readiness import MovedPort
from hydra.reconfiguration.recovery import CONNECT_S, Recovery
from hydra.reconfiguration.switches import Switches
from hydra.reservations.reservation import Reservation

LOG = logging.getLogger("hydra.upkeep")
_KeyT = TypeVar("_KeyT")
_Dark = tuple[Circuit, PortId]
"""A circuit, and one of its ports, which has no carrier."""
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_GAP_S: Final = 5.0
"""The longest wait between looks for ports that a ToR lacks: it answers at once, unlike others."""
_AT_ONCE: Final = 256
"""Switches that are synchronised together, which takes about a second where racks are many."""
_PROMPT_S: Final = 1.0
"""How long the conductor waits for a switch to be synchronised; healthy ones take far less."""
_PROMPT_EACH_S: Final = 0.05
"""Additional wait for each further switch."""


class Retries:
    """Ever longer waits between attempts at devices and switches that stay away.

    An attempt at a device that swallows packets takes its whole time-out, and the conductor waits.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, longest_s: float = _LONGEST_WAIT_S
    ) -> None:
        """``longest_s``: the longest wait."""
        self._clock = clock
        self._longest_s = longest_s
        self._waits: dict[object, tuple[float, float]] = {}

    def failing(self, some: Iterable[_KeyT]) -> list[_KeyT]:
        """Items whose last attempt has failed."""
        return [one for one in some if one in self._waits]

    def due(self, some: Iterable[_KeyT]) -> list[_KeyT]:
        """Items that may be tried now."""
        now_s = self._clock()
        return [one for one in some if now_s >= self._waits.get(one, (0.0, 0.0))[0]]

    def forget(self, well: AbstractSet[object]) -> None:
        """Note that these want no attempt, whoever has seen to it: the next one that they want is
        followed by a short wait again.
        """
        for one in self._waits.keys() & well:
            del self._waits[one]

    def note(self, tried: Iterable[object], failed: Collection[object]) -> None:
        """Remember how attempts ended."""
        for one in tried:
            if one not in failed:
                self._waits.pop(one, None)
                continue
            wait_s = min(2 * self._waits.get(one, (0.0, 1.0))[1], self._longest_s)
            self._waits[one] = (self._clock() + wait_s, wait_s)


@dataclass(eq=False, repr=False)
class Upkeep:
    """Methods run in the conductor's thread."""

    _fabric: Fabric
    _fleet: Fleet
    _devices: Devices
    ledger: InitVar[Ledger]
    _quarantine: Quarantine
    _panels: PatchPanels
    _policing: Policing
    _mastership: Mastership
    _runner: Runner
    _switches: Switches
    _care: DeviceCare
    _recovery: Recovery
    _give_up: Callable[[HydraError], None]
    """Ends the process, where another controller is at work."""
    _put: Callable[[Callable[[], None]], None]
    """Queues a job."""
    _synchronise_again: Callable[[], None]
    """Queues :meth:`synchronise`, and what waits for switches."""
    _beside: list[BesideOthers] = field(default_factory=list, init=False)
    """Courses that bring switches to the present state while others go on."""
    in_command: bool = field(default=False, init=False)
    """True once no other controller is at work: devices and switches may be touched."""
    _spares_relays_until_s: float = field(default=0.0, init=False)
    _retries: Retries = field(default_factory=Retries, init=False)
    """By the name of a device, or a switch's datapath."""
    _gap_retries: Retries = field(
        default_factory=lambda: Retries(longest_s=_LONGEST_GAP_S), init=False
    )
    _port_retries: Retries = field(default_factory=Retries, init=False)
    _meter_retries: Retries = field(default_factory=Retries, init=False)
    dark: frozenset[_Dark] = field(default=frozenset(), init=False)
    """Circuits that lost their light while a ToR was away, or while a change was under way."""
    denied: frozenset[Circuit] = field(default=frozenset(), init=False)
    """Circuits in use that an optical switch did not have when it answered again."""
    one_way_uplinks: Dead = field(default_factory=dict, init=False)
    """Directions of servers' uplinks that are dead, by lost probes."""

    def __post_init__(self, ledger: Ledger) -> None:
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._substrate = substrate_of(self._fabric)
        names = [one.name for one in self._fabric.planes]
        self._device_names = frozenset([*names, *(one.name for one in self._fabric.racks)])

    # -- the clock --------------------------------------------------------------------------------

    def look_after(self) -> bool:
        """Recover once at the start; afterwards reopen devices that were lost, and tidy up.

        True if :meth:`synchronise` has more to do.
        """
        if not self.in_command:
            self._take_command()
        if not self.in_command:
            return False
        if not self._recovery.done:
            for beside in self._beside:
                beside.drop()  # the state that it goes by is in doubt
            self._spares_relays_until_s = time.monotonic() + CONNECT_S
            self._runner.run(self._recovery.run())
            return False
        self._mend_devices()
        unmetered = self._meter_retries.due(self._policing.unanswered)
        self._switches.doubt(unmetered)
        more = self.synchronise()
        self._meter_retries.note(unmetered, self._policing.unanswered)
        self._open_ports()
        if not self._awaits_switches():
            self.tidy_relays()
        return more

    def _awaits_switches(self) -> bool:
        """True while a switch that may count on relays of an earlier state may be about to come."""
        began_s = self._spares_relays_until_s - CONNECT_S
        if time.monotonic() >= self._spares_relays_until_s:
            return False
        owned, connected = self._switches.owned, self._fleet.connected()
        behind = not connected & owned.keys() <= self._switches.ready()
        return behind or bool(self._fleet.expected(owned, CONNECT_S, began_s))

    def _open_ports(self) -> None:
        racks = self._port_retries.due(self._care.closed_racks)
        self._port_retries.note(racks, self._runner.run(self._care.open_ports(racks)))

    def _mend_devices(self) -> None:
        care, devices, fabric = self._care, self._devices, self._fabric
        planes = {one.id for one in fabric.planes if devices.plane_problem(one.id) is not None}
        racks = {one.id for one in fabric.racks if devices.tor_problem(one.id) is not None}
        care.uncertain_planes |= planes
        care.uncertain_racks |= racks
        names = [fabric.planes[one].name for one in sorted(care.uncertain_planes)]
        names += [fabric.racks[one].name for one in sorted(care.uncertain_racks)]
        self._retries.forget(self._device_names.difference(names))
        due = self._retries.due(names)
        lacking = self._gap_retries.due(self._lacking() - care.uncertain_racks)
        self._mend(
            [one for one in care.uncertain_planes if fabric.planes[one].name in due],
            [*lacking, *(one for one in care.uncertain_racks if fabric.racks[one].name in due)],
        )
        failed = {fabric.planes[one].name for one in care.uncertain_planes}
        self._retries.note(due, failed | {fabric.racks[one].name for one in care.uncertain_racks})
        self._gap_retries.note(lacking, self._lacking())

    def _lacking(self) -> set[RackId]:
        """Racks whose ToR lacks ports: one that comes back has VLANs that nobody gave it."""
        return {one.id for one in self._fabric.racks if self._devices.missing_ports(one.id)}

    def _mend(self, planes: Collection[PlaneId], racks: Collection[RackId]) -> None:
        if planes or racks:
            self.denied |= self._runner.run(self._care.mend(planes, racks))
            back = set(racks) - self._care.uncertain_racks
            ends = self._runner.run(self._care.dark_ports(back))
            self.dark |= self._at(ends)  # which may have become more meanwhile

    def read_uncertain(self) -> None:
        """Mend now, without a pause after earlier attempts, what is uncertain on devices that can
        be commanded: until then plans leave out the ports of such racks.
        """
        care, devices = self._care, self._devices
        self._mend(
            [one for one in care.uncertain_planes if devices.plane_problem(one) is None],
            [one for one in care.uncertain_racks if devices.tor_problem(one) is None],
        )

    def make_certain(self, plan: Plan) -> None:
        """Mend what an earlier change left uncertain, before circuits are set up there.

        Circuits that only go wait for nobody. Raises DeviceUnavailable if the state of a device
        can't be read.
        """
        if not plan.connect:
            return
        self.read_uncertain()
        care, fabric = self._care, self._fabric
        planes = {circuit.plane for circuit in plan.connect} & care.uncertain_planes
        racks = {fabric.ports[end].rack for circuit in plan.connect for end in circuit.ends}
        names = [fabric.planes[one].name for one in sorted(planes)]
        names += [fabric.racks[one].name for one in sorted(racks & care.uncertain_racks)]
        if names:
            raise DeviceUnavailable(", ".join(names), "what it has is not known yet: ask again")

    def _take_command(self) -> None:
        """Set :attr:`in_command` once nobody else commands the switches; touch nothing before."""
        if self._substrate.retags:
            self.in_command = True  # the claims on ToRs have seen to that
            return
        self._fleet.await_connected(self._switches.owned, CONNECT_S)
        connected = self._fleet.connected() & self._switches.owned.keys()
        try:
            taken = self._mastership.take(connected)
        except HeldElsewhere as error:
            self._give_up(HydraError(f"a controller is at work on this fabric already: {error}"))
            return
        self.in_command = bool(taken)
        if self.in_command:
            self._mastership.start()

    # -- switches ---------------------------------------------------------------------------------

    def synchronise(self) -> bool:
        """Bring switches to the present state that connected anew, or may be tried again.

        As many as go together; True if there are more. Those that do not answer promptly are
        brought while others go on, and so are slow ones, and those whose last attempt has failed.
        """
        switches = self._switches
        if not switches.settled:
            return False  # the devices come first; every connected switch is synchronised after
        self._retries.forget(switches.ready() - switches.refused.keys())
        self._beside = [one for one in self._beside if not one.over]
        if refusing := self._retries.due(sorted(switches.refused.keys() & switches.ready())):
            self._runner.run(self._recovery.bring(refusing))
            self._note_tried(refusing)
        slow, fresh = switches.slow(), switches.fresh()
        failing = frozenset(self._retries.failing(switches.late() - slow))
        others = switches.late() - fresh - failing - slow
        some = [*sorted(fresh - failing), *self._retries.due(sorted(others))]
        prompt = self._fitting(some)
        self._bring_beside(prompt, _PROMPT_S + _PROMPT_EACH_S * len(prompt))
        # Nobody waits for a switch whose last attempt failed, however often the switch connects.
        for one in self._fitting(
            [*sorted(fresh & failing), *self._retries.due(sorted(failing - fresh))]
        ):
            self._bring_beside([one], 0.0)
        waiting = switches.slow() - switches.being_brought
        self._bring_beside(self._fitting(self._retries.due(sorted(waiting))), 0.0)
        return 0 < len(prompt) < len(some)

    def _fitting(self, some: Sequence[DatapathId]) -> Sequence[DatapathId]:
        """As many of some switches as may be brought beside those that are being brought."""
        return some[: max(0, _AT_ONCE - len(self._switches.being_brought))]

    def _bring_beside(self, some: Collection[DatapathId], alone_s: float) -> None:
        """Begin to bring switches to the present state, for ``alone_s`` before anything else."""
        if some:
            course = self._brought_beside(some)
            self._beside.append(self._runner.run_beside(course, self._put, alone_s))

    def _brought_beside(self, some: Collection[DatapathId]) -> Steps:
        yield from self._recovery.bring_beside(some)
        self._note_tried(some)
        self._synchronise_again()

    def _note_tried(self, some: Collection[DatapathId]) -> None:
        ready = self._switches.ready() - self._switches.refused.keys()
        self._retries.note(some, set(some) - ready)

    @property
    def refuses(self) -> bool:
        """True if a switch refuses rules of circuits."""
        return bool(self._switches.refused)

    def refusal(self, reservation: Reservation) -> str:
        """Why traffic of a reservation can't take its circuits, in words: switches that refuse its
        rules, even when they are told again; else empty.
        """
        names = reservation.src, reservation.dst
        steering = [
            switch.datapath
            for name, rack in zip(names, (reservation.src_rack, reservation.dst_rack), strict=True)
            for switch in self._substrate.steering(rack)
            if name == self._fabric.racks[rack].name or name in {s.name for s in switch.servers}
        ]
        refusing = [one for one in steering if one in self._switches.refused]
        if late := self._switches.late().intersection(refusing) - self._switches.being_brought:
            self._runner.run(self._recovery.bring(late))
        refused = self._switches.refused
        return "; ".join(str(refused[one]) for one in refusing if one in refused)

    def follow_numbers(self) -> bool:
        """Have rules name the ports by their new numbers that switches have given other ones; True
        if :meth:`synchronise` has to.
        """
        while moved := self._switches.moved_ports():
            self._runner.run(self._switches.follow_numbers())
            if self._switches.moved_ports() == moved:
                return True
        return False

    def follow_numbers_meanwhile(self) -> None:
        """Do so while a change under way waits; :meth:`follow_numbers` sees to what it moves."""
        self._runner.run_meanwhile(self._switches.follow_numbers(self._network.under_way))

    def note_followed(self, ports: Iterable[MovedPort]) -> None:
        """Tell of renumbered ports whose new OpenFlow numbers all rules have."""
        for one in ports:
            names = self._fabric.racks
            pairs = {pair_of(path) for path in self._network.state.topology.paths}
            concerned = [(names[a].name, names[b].name) for a, b in pairs if one.rack in (a, b)]
            LOG.warning("%s: its rules follow", one.what)
            self._log.note(HappeningKind.CONDITION, f"{one.what}: its rules follow", concerned)

    def follow_uplinks(self) -> None:
        """Go around servers whose uplink to the ToR went down, and back where it returned."""
        self._runner.run(self._switches.follow_uplinks())

    def note_one_way_uplinks(self, dead: Dead) -> None:
        """Note which directions of servers' uplinks are dead; :meth:`follow_uplinks` then."""
        self.one_way_uplinks = dead
        self._switches.one_way_uplinks = frozenset(dead)

    def follow_uplinks_meanwhile(self) -> None:
        """Do so while a change under way waits, where that touches nothing that it rests on."""
        if self._substrate.detours:
            self._note_closed()
            self._runner.run_meanwhile(self._switches.follow_uplinks())
            for change in self._network.under_way:
                change.hear_of_uplinks(self._switches.dead_uplinks)

    def follow_closed_meanwhile(self, change: Execution) -> None:
        """Go around the servers that a change under way has closed, between two of its steps."""
        if not self._switches.dead_uplinks.issuperset(change.closed):
            self.follow_uplinks_meanwhile()

    def tidy_relays(self) -> None:
        """Leave relays with the rules that the present state needs, and none of an earlier one."""
        self._runner.run(self._switches.tidy_relays())

    def hold_reserved(self) -> None:
        """Have switches keep to the bandwidth that reservations hold now."""
        ready = self._switches.ready()
        self._switches.doubt(
            self._policing.hold(self._network.state, self._bookings.active(), ready)
        )

    # -- circuits that fail -----------------------------------------------------------------------

    def late_switches(self) -> frozenset[DatapathId]:
        """Switches that are connected, and yet to be brought to the present state."""
        return self._fleet.mute() | self._switches.late()

    def dead_circuits(self) -> tuple[frozenset[Circuit], str]:
        """Circuits in use that have lost their light, or that an optical switch does not have, and
        the reason in words. The dark ports are quarantined.

        The ports of a one-way circuit of which the sender alone is dark are not: another circuit
        should light that.
        """
        if not self._recovery.done:
            return frozenset(), "the devices have not been read yet"
        state = self._network.state
        told, self.dark = self.dark, frozenset()
        denied, self.denied = self.denied & state.topology.circuits, frozenset()
        seen = self._dark_now() | told
        dark = {end for circuit, end in seen if circuit in state.topology.circuits}
        dead = frozenset(circuit for circuit, _ in seen) & state.topology.circuits
        unlit = [one for one in dead if not dark.isdisjoint(one.receivers)]
        ends = {end for one in unlit for end in one.ends} & dark
        reasons = [self._put_out(unlit, ends, state)] if dead or not denied else []
        reasons += [
            f"{self._fabric.planes[one.plane].name} does not have {self._fabric.circuit_name(one)}"
            for one in sorted(denied - dead)
        ]
        return dead | denied, "; ".join(reasons)

    def _dark_now(self) -> frozenset[_Dark]:
        """Ports of circuits in use that are known to have no carrier."""
        circuits = self._network.state.topology.circuits
        ends = {end for one in circuits for end in one.ends}
        return self._at(set(filter(self._switches.is_dark, ends)))

    def _at(self, ends: Collection[PortId]) -> frozenset[_Dark]:
        """Circuits in use that have one of these ports."""
        circuits = self._network.state.topology.circuits
        return frozenset((one, end) for one in circuits for end in one.ends if end in ends)

    def divert_meanwhile(
        self, circuits: Collection[Circuit] = (), paths: Collection[Path] = ()
    ) -> None:
        """While a change under way waits, divert pairs that it leaves alone off what has died:
        these circuits and paths, and circuits that have lost their light.

        :meth:`dead_circuits` has the latter afterwards, whatever becomes of their light.
        """
        if not self._recovery.done:
            return
        dark = self._dark_now()
        dead = {circuit for circuit, _ in dark}.union(circuits)
        course = self._switches.divert(dead, paths, self._network.under_way)
        diverted = self._runner.run_meanwhile(course)
        self.dark |= {one for one in dark if one[0] in diverted}

    def divert(self, circuits: Collection[Circuit], paths: Collection[Path]) -> None:
        """Divert the pairs on what has died, while no change is under way."""
        self._runner.run(self._switches.divert(circuits, paths))

    def given_up(self, before: NetworkState) -> tuple[frozenset[Circuit], str]:
        """Circuits of ``before`` that the recovery gave up, as a ToR has no light, and where.

        Their ports are quarantined.
        """
        unlit = self._recovery.unlit
        return frozenset(unlit), self._put_out(unlit.keys(), set().union(*unlit.values()), before)

    def _put_out(
        self, unlit: Iterable[Circuit], dark: Collection[PortId], before: NetworkState
    ) -> str:
        """Quarantine the ports of circuits; the reason, which names the dark ones among these."""
        places = [
            f"{self._fabric.racks[port.rack].name}:{port.tor_port}"
            for port in (self._fabric.ports[end] for end in sorted(dark))
        ]
        reason = f"carrier lost at {', '.join(places)}"
        ends = {end for circuit in unlit for end in circuit.ends}
        self._quarantine.put(ends, reason, before.topology.paths)
        return reason

    # -- reconfigurations -------------------------------------------------------------------------

    def _note_closed(self) -> None:
        under_way = (change.closed for change in self._network.under_way)
        self._switches.closed_meanwhile = frozenset().union(*under_way)

    def _follow_closed(self) -> None:
        self._runner.run(self._switches.follow_closed())

    def start_over(self, execution: Execution) -> None:
        """Have the devices read again before anything else, since a reconfiguration broke off."""
        self._recovery.begin_anew(execution)

    def take_over(self, execution: Execution) -> None:
        """Note what a reconfiguration left uncertain, once its result is the present state."""
        standing = self._network.state.topology.circuits
        # Others it took down itself: if they are set up again, their light is looked at anew.
        self.dark = frozenset(one for one in self.dark if one[0] in standing)
        self.denied &= standing
        self._care.learn(execution)
        self._switches.learn(execution)
        self._note_closed()
        if self._switches.refused:
            self._synchronise_again()
        if execution.closed:
            self._put(self._follow_closed)
        waiting, target = self._panels.waiting(execution), execution.plan.target
        failed = [
            (circuit.ends, str(failure))
            for circuit, failure in execution.failures.items()
            # Untried for want of servers: the fibres may be good.
            if circuit not in waiting and failure.kind is not FailureKind.NOT_PROBED
        ]
        self._quarantine.put_each(failed, target.topology.paths)
        passed = {circuit for path in execution.result.topology.paths for circuit in path.circuits}
        self._quarantine.passed(
            [end for circuit in passed & execution.plan.connect for end in circuit.ends]
        )
