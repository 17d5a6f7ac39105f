"""Keeps switches and devices as recorded in the ledger, by courses of the core.

The steps and their order are in :mod:`hydra.reconfiguration.courses` and the courses listed there;
this room has the clock, and starts the courses when due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from apps.controller.between_jobs import BetweenJobs
from apps.controller.dead_circuits import DeadCircuits
from apps.controller.device_upkeep import DeviceUpkeep
from apps.controller.devices import Devices
from apps.controller.mastership import Mastership
from apps.controller.patch_panels import PatchPanels
from apps.controller.policing import Policing
from apps.controller.quarantine import Quarantine
from apps.controller.record.ledger import Ledger
from apps.controller.retries import Retries
from apps.controller.runner import Runner
from apps.openflow.fleet import Fleet
from hydra.errors import HeldElsewhere, HydraError
from hydra.failures import FailureKind
from hydra.faults.server_links import Dead
from hydra.forwarding.substrate import substrate_of
from hydra.history import HappeningKind
from hydra.model import DatapathId, Fabric
from hydra.reconfiguration.commands import Steps
from hydra.reconfiguration.courses import Courses
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import pair_of
from hydra.reconfiguration.readiness import RenumberedPort
from hydra.reconfiguration.recovery import CONNECT_S
from hydra.reconfiguration.scheduler import Job, carried_out
from hydra.reservations.reservation import Reservation

LOG = logging.getLogger("hydra.upkeep")
_AT_ONCE: Final = 256
"""Largest number of switches synchronised together; takes about a second in large fabrics."""
_PROMPT_S: Final = 1.0
"""How long the conductor waits for a switch to be synchronised; a healthy switch takes far less."""
_PROMPT_EACH_S: Final = 0.05
"""Additional wait for each further switch."""


class Upkeep:
    """Methods run in the conductor's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        fleet: Fleet,
        devices: Devices,
        ledger: Ledger,
        quarantine: Quarantine,
        panels: PatchPanels,
        policing: Policing,
        mastership: Mastership,
        runner: Runner,
        courses: Courses,
        give_up: Callable[[HydraError], None],
        put: Callable[[Job], None],
        synchronise_again: Callable[[], None],
    ) -> None:
        """``give_up`` ends the process if another controller is at work; ``put`` queues a job;
        ``synchronise_again`` queues :meth:`synchronise`, and work that waits for switches.
        """
        self._fabric, self._fleet, self._devices = fabric, fleet, devices
        self._quarantine, self._panels, self._policing = quarantine, panels, policing
        self._mastership, self._runner = mastership, runner
        self._courses = courses
        self._switches, self._care = courses.switches, courses.care
        self._recovery = courses.recovery
        self._give_up, self._put = give_up, put
        self._synchronise_again = synchronise_again
        self._network = ledger.network
        self._log = ledger.log
        self._bookings = ledger.bookings
        self._substrate = substrate_of(fabric)
        self._beside: list[BetweenJobs] = []
        """Courses that bring switches to the present state beside other jobs."""
        self.in_command = False
        """True once no other controller is at work: devices and switches may be touched."""
        self._spares_relays_until_s = 0.0
        self._retries = Retries()
        """By a switch's datapath."""
        self._meter_retries = Retries()
        self.dead = DeadCircuits(
            fabric=fabric,
            network=ledger.network,
            quarantine=quarantine,
            runner=runner,
            courses=courses,
        )
        self.devices = DeviceUpkeep(fabric=fabric, devices=devices, courses=courses, dead=self.dead)
        self.one_way_uplinks: Dead = {}
        """Dead directions of servers' uplinks, by lost probes."""
        self._missed: set[str] = set()
        """Servers of :attr:`one_way_uplinks` at the last :meth:`follow_uplinks`."""

    # -- the clock --------------------------------------------------------------------------------

    async def look_after(self) -> bool:
        """Recover once at the start; afterwards reopen lost devices, and tidy up.

        True if :meth:`synchronise` has more to do.
        """
        if not self.in_command:
            self._take_command()
        if not self.in_command:
            return False
        if not self._recovery.done:
            for beside in self._beside:
                beside.drop()  # the course's state is in doubt
            self._spares_relays_until_s = time.monotonic() + CONNECT_S
            await carried_out(self._recovery.run())
            self.devices.hold()
            return False
        await self.devices.release()
        await self.devices.mend()
        unmetered = self._meter_retries.due(self._policing.unanswered)
        self._switches.doubt(unmetered)
        more = await self.synchronise()
        self._meter_retries.note(unmetered, self._policing.unanswered)
        await self.devices.open_ports()
        if not self._awaits_switches():
            await self.tidy_relays()
        return more

    def _awaits_switches(self) -> bool:
        """True while a switch that relies on relays of an earlier state may be about to connect."""
        began_s = self._spares_relays_until_s - CONNECT_S
        if time.monotonic() >= self._spares_relays_until_s:
            return False
        owned, connected = self._switches.owned, self._fleet.connected()
        behind = not connected & owned.keys() <= self._switches.ready()
        return behind or bool(self._fleet.expected(owned, CONNECT_S, began_s))

    def _take_command(self) -> None:
        """Set :attr:`in_command` once no other controller commands the switches, without a change
        before.
        """
        if self._substrate.retags:
            self.in_command = True  # ensured by the claims on ToRs
            return
        self._fleet.await_connected(self._switches.owned, CONNECT_S)
        connected = self._fleet.connected() & self._switches.owned.keys()
        try:
            taken = self._mastership.take(connected, hurries=True)
        except HeldElsewhere as error:
            self._give_up(HydraError(f"a controller is at work on this fabric already: {error}"))
            return
        self.in_command = bool(taken)
        if self.in_command:
            self._mastership.start()

    # -- switches ---------------------------------------------------------------------------------

    async def synchronise(self) -> bool:
        """Bring newly connected switches, and switches due for a retry, to the present state.

        As many as possible go together; True if there are more. Switches without a prompt answer
        are brought beside other jobs; so are slow switches, and switches with a failed last
        attempt.
        """
        switches = self._switches
        if not switches.settled:
            return False  # the devices come first; every connected switch is synchronised after
        self._retries.forget(switches.ready() - switches.refused.keys())
        self._beside = [between_jobs for between_jobs in self._beside if not between_jobs.over]
        if refusing := self._retries.due(sorted(switches.refused.keys() & switches.ready())):
            await carried_out(self._recovery.bring(refusing))
            self._note_tried(refusing)
        slow, fresh = switches.slow(), switches.fresh()
        failing = frozenset(self._retries.failing(switches.late() - slow))
        others = switches.late() - fresh - failing - slow
        some = [*sorted(fresh - failing), *self._retries.due(sorted(others))]
        prompt = self._fitting(some)
        await self._bring_beside(prompt, _PROMPT_S + _PROMPT_EACH_S * len(prompt))
        # No job waits for a switch whose last attempt failed, however often the switch connects.
        for datapath in self._fitting(
            [*sorted(fresh & failing), *self._retries.due(sorted(failing - fresh))]
        ):
            await self._bring_beside([datapath], 0.0)
        waiting = switches.slow() - switches.being_brought
        await self._bring_beside(self._fitting(self._retries.due(sorted(waiting))), 0.0)
        return 0 < len(prompt) < len(some)

    def _fitting(self, some: Sequence[DatapathId]) -> Sequence[DatapathId]:
        """The first of ``some`` switches, within the limit of switches being brought at a time."""
        return some[: max(0, _AT_ONCE - len(self._switches.being_brought))]

    async def _bring_beside(self, some: Collection[DatapathId], alone_s: float) -> None:
        """Begin to bring switches to the present state, for ``alone_s`` before anything else."""
        if some:
            course = self._brought_beside(some)
            beside = BetweenJobs(course, self._runner.submit, self._put)
            self._beside.append(beside)
            await beside.begin(alone_s)

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

    async def refusal(self, reservation: Reservation) -> str:
        """The reason why a reservation's traffic can't take its circuits, in words: switches that
        refuse the rules, even in a second attempt; else empty.
        """
        names = reservation.src, reservation.dst
        steering = [
            switch.datapath
            for name, rack in zip(names, (reservation.src_rack, reservation.dst_rack), strict=True)
            for switch in self._substrate.steering(rack)
            if name == self._fabric.racks[rack].name or name in {s.name for s in switch.servers}
        ]
        refusing = [datapath for datapath in steering if datapath in self._switches.refused]
        if not refusing:
            return ""
        if late := self._switches.late().intersection(refusing) - self._switches.being_brought:
            await carried_out(self._recovery.bring(late))
        refused = self._switches.refused
        return "; ".join(str(refused[datapath]) for datapath in refusing if datapath in refused)

    async def follow_numbers(self) -> bool:
        """Update rules to new port numbers of switches; True if :meth:`synchronise` has to do
        so.
        """
        while renumbered := self._switches.renumbered_ports():
            await carried_out(self._courses.renumbering.follow())
            if self._switches.renumbered_ports() == renumbered:
                return True
        return False

    def follow_numbers_meanwhile(self) -> None:
        """As :meth:`follow_numbers`, while a change under way waits.

        Path rules of the change's moving pairs are left to :meth:`follow_numbers`.
        """
        self._runner.run_meanwhile(self._courses.renumbering.follow(self._network.under_way))

    def note_followed(self, ports: Iterable[RenumberedPort]) -> None:
        """Report renumbered ports whose new OpenFlow numbers all rules have."""
        for port in ports:
            names = self._fabric.racks
            pairs = {pair_of(path) for path in self._network.state.topology.paths}
            concerned = [(names[a].name, names[b].name) for a, b in pairs if port.rack in (a, b)]
            LOG.warning("%s: rules of the switch follow", port.what)
            self._log.note(
                HappeningKind.CONDITION, f"{port.what}: rules of the switch follow", concerned
            )

    async def follow_uplinks(self) -> frozenset[DatapathId]:
        """Go around servers with a dead uplink to the ToR, and back when the uplink returns.

        Rules of the servers' switches are restored, too: probes are lost without rules. Returns
        the switches that lacked rules.
        """
        await carried_out(self._courses.detours.follow_all())
        dead = set(self.one_way_uplinks)  # the prober's thread may replace the mapping at any time
        missed, self._missed = dead - self._missed, dead
        switches = {self._switches.switch_of[server] for server in missed}
        return await carried_out(self._recovery.restore_rules(switches))

    def note_one_way_uplinks(self, dead: Dead) -> None:
        """Note the dead directions of servers' uplinks, for :meth:`follow_uplinks`."""
        self.one_way_uplinks = dead
        self._switches.one_way_uplinks = frozenset(dead)

    def follow_uplinks_meanwhile(self) -> None:
        """As :meth:`follow_uplinks`, while a change under way waits.

        Rules change only on a substrate with detours, as no rule about paths is touched there. On
        other substrates, the change learns which servers can send onto circuits again: frames of
        such servers have to be drained, too.
        """
        if self._substrate.detours:
            self._note_closed()
            self._runner.run_meanwhile(self._courses.detours.follow_all())
        for change in self._network.under_way:
            change.set_dead_uplinks(
                self._switches.dead_uplinks
                if self._substrate.detours
                else self._switches.still_down(change.conditions.dead_uplinks)
            )

    def follow_closed_meanwhile(self, change: Execution) -> None:
        """Go around the servers closed by a change under way, between two steps of the change."""
        if not self._switches.dead_uplinks.issuperset(change.closed):
            self.follow_uplinks_meanwhile()

    async def tidy_relays(self) -> None:
        """Reduce the rules of relays to the rules needed by the present state."""
        await carried_out(self._courses.synchronisation.tidy_relays())

    def hold_reserved(self) -> None:
        """Set meters to the present bandwidth of reservations; mark switches that don't confirm."""
        ready = self._switches.ready()
        self._switches.doubt(
            self._policing.hold(
                self._network.state, self._bookings.active(), ready, self._switches.vacated
            )
        )

    def late_switches(self) -> frozenset[DatapathId]:
        """Connected switches yet to be brought to the present state."""
        return self._fleet.mute() | self._switches.late()

    # -- reconfigurations -------------------------------------------------------------------------

    def _note_closed(self) -> None:
        under_way = (change.closed for change in self._network.under_way)
        self._switches.closed_meanwhile = frozenset().union(*under_way)

    def start_over(self, execution: Execution) -> None:
        """Make recovery the next work, since a reconfiguration broke off."""
        self._recovery.begin_anew(execution)

    def take_over(self, execution: Execution) -> None:
        """Note the uncertain results of a reconfiguration, once its result is the present state."""
        self.dead.keep_to(self._network.state.topology.circuits)
        self._care.learn(execution)
        self._switches.learn(execution)
        self._note_closed()
        if self._switches.refused:
            self._synchronise_again()
        if execution.closed:
            self._put(lambda: carried_out(self._courses.detours.follow()))
        waiting, target = self._panels.waiting(execution), execution.plan.target
        failed = [
            (circuit.ends, str(failure))
            for circuit, failure in execution.failures.items()
            # No server could send a probe: the fibres may be good.
            if circuit not in waiting and failure.kind is not FailureKind.NOT_PROBED
        ]
        self._quarantine.put_each(failed, target.topology.paths)
        passed = {circuit for path in execution.result.topology.paths for circuit in path.circuits}
        self._quarantine.passed(
            [end for circuit in passed & execution.plan.connect for end in circuit.ends]
        )
