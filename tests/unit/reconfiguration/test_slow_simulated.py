"""Slow switches synchronised while other changes come and go.

A change skips slow switches. Once the switches have answered, they are read and written, while
other changes are planned and carried out, uplinks and circuits die, switches come and go, and a
change may break off. No pair is ever cut off, and ready switches hold exactly the intended rules.
Replay as in :mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from apps.controller.between_jobs import BetweenJobs
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import installed, match_key
from hydra.lifecycle import ReconfigurationState
from hydra.model import DatapathId
from hydra.policy import DrainPolicy, Policy
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import without
from tests.unit.core.fabrics import first_state, order_of, random_fabric, random_state
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.faults import LONGEST_DELAY_S, LONGEST_LAG_S, Faults
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation, Watch

pytestmark = pytest.mark.takes(30)

_RUNS = 150
CHANGES = 4
_TURNS = 6
"""Largest number of turns of upkeep before a change, until devices are known."""
_POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))


class Slow:
    """Changes of a network in which some switches are slow."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        fabric = self.fabric = random_fabric(rng)
        self.order = order_of(fabric)
        state = first_state(fabric, rng)
        network = self.network = Network(fabric, state, rng)
        self.upkeep = SimulatedUpkeep.at_work(network, state)
        network.late.slow = {dp for dp in network.names if rng.random() < 0.3}
        self.course: BetweenJobs | None = None
        """The course that synchronises slow switches."""
        self.patience = rng.choice((0.02, 0.1, 0.5))
        """Speed of that course: chance of a step after each step of a change."""
        self.seen = Counter[str]()

    def play(self) -> None:
        for _ in range(CHANGES):
            faults = Faults.draw(self.rng) if self.rng.random() < 0.5 else Faults()
            if self.seen[
                "circuit"
            ]:  # frames queued at a ToR for a dead path are lost with the path
                faults = replace(faults, standstill=0.0)
            self.network.faults = faults
            self.know_devices()
            self.answer()
            self.change()
            self.ready_ones_are_as_they_should()
            self.do_jobs()
        self.settle_down()

    def know_devices(self) -> None:
        """As the upkeep does: devices, and switches that are not slow."""
        upkeep = self.upkeep
        for _ in range(_TURNS):
            if not upkeep.uncertain:
                break
            upkeep.run(upkeep.care.mend(upkeep.care.uncertain_planes, upkeep.care.uncertain_racks))
        others = upkeep.switches.late() - upkeep.switches.slow()
        self.time_passes()  # earlier commands have taken effect, or never will
        upkeep.run(upkeep.recovery.bring(others))

    def time_passes(self) -> None:
        network = self.network
        network.now_s += LONGEST_DELAY_S
        network.catch_up()
        network.now_s += LONGEST_LAG_S

    def answer(self) -> None:
        """Slow switches have carried out their commands, and are synchronised."""
        network, switches = self.network, self.upkeep.switches
        self.hear_late_ones()
        for datapath in sorted(network.names.keys() - network.connected):
            network.connected.add(datapath)
            switches.renewed(datapath)
        if not self.fabric_hurries and self.rng.random() < 0.5:
            # A switch that took its whole time in vain: here, no switch is skipped earlier.
            switches.answers_again(self.rng.choice(sorted(network.names)))
        slow = switches.slow()
        if slow and (self.course is None or self.course.over):
            self.course = self.upkeep.run_beside(self.upkeep.recovery.bring_beside(slow))
            self.seen["brought beside"] += 1

    def hear_late_ones(self) -> None:
        """A switch that answers has carried out its earlier commands."""
        if self.network.late.mute:
            self.time_passes()
        for datapath in sorted(self.network.late.mute):
            self.network.connected.add(datapath)
            self.upkeep.switches.answers_again(datapath)
        self.network.late.mute.clear()

    @property
    def fabric_hurries(self) -> bool:
        return self.network.substrate.retags

    def do_jobs(self) -> None:
        """The result of a course beside others, if finished."""
        for _ in range(self.rng.choice((0, 0, 5, 20))):
            self.upkeep.go_on_beside()
            self.upkeep.do_jobs()

    def change(self) -> None:
        """Carry out a change; the course beside it continues meanwhile."""
        upkeep, network, rng = self.upkeep, self.network, self.rng
        upkeep.run(upkeep.courses.synchronisation.tidy_relays())
        if upkeep.care.held_racks:
            return  # plans leave out their ports
        state = upkeep.memory.state
        lost = self.lost() & state.topology.circuits
        goal = without(state, lost) if lost else random_state(self.fabric, state, rng)
        conditions, hurries = upkeep.conditions(), rng.random() < 0.7
        execution = first_course(
            self.fabric, _POLICY, state, goal, conditions, self.order, hurries=hurries
        )
        plan = execution.plan
        network.unsettle(sorted(plan.disconnect))
        watch = Watch(network, execution, upkeep.uncertain)
        watch._devices_are_as_the_result_says = lambda: None  # diverted pairs wait
        upkeep.look = watch.look
        perform, step_of_death = network.perform, rng.randrange(120)
        under_way = self.course is not None and not self.course.over

        def beside(batch, look):
            def look_and_go_on(command):
                nonlocal step_of_death
                look(command)
                if rng.random() < self.patience:
                    upkeep.go_on_beside()
                    look(None)
                step_of_death -= 1
                if not step_of_death and not batch.alone:
                    network.perform = perform
                    self.something_dies(execution)
                    network.perform = beside
                    look(None)

            return perform(batch, look_and_go_on)

        network.perform = beside
        try:
            watch.run()
        finally:
            network.perform = perform
        upkeep.take_over(execution)
        self.seen["beside a change"] += under_way
        self.seen["left out"] += bool(execution.late)
        moved = execution.state is not ReconfigurationState.QUEUED and not plan.empty
        if moved and rng.random() < 0.1:
            self.break_off(execution)

    def lost(self) -> frozenset:
        """Circuits that pairs were diverted off."""
        diverted = self.upkeep.switches.diverted
        paths = self.upkeep.memory.state.topology.paths
        return frozenset(c for p in paths if (p.src, p.dst) in diverted for c in p.circuits)

    def something_dies(self, change: Execution) -> None:
        """A fault of an uplink or a circuit: the reaction does not wait for slow switches."""
        upkeep, network, rng = self.upkeep, self.network, self.rng
        if rng.random() < 0.5 and network.substrate.detours:
            network.dead_uplinks.add(rng.choice(self.fabric.servers).name)
            upkeep.follow_uplinks_meanwhile(change)
            self.seen["uplink"] += 1
            return
        staying = change.plan.current.topology.circuits & change.plan.target.topology.circuits
        stands_still = any(map(network.stands_still, range(len(self.fabric.racks))))
        if staying and not (network.faults.standstill or stands_still):
            dead = {rng.choice(sorted(staying))}
            upkeep.run_meanwhile(upkeep.courses.failover.divert(dead, (), [change]))
            self.seen["circuit"] += 1

    def break_off(self, execution: Execution) -> None:
        """The devices are read again; no change may be under way then."""
        self.network.faults = Faults()
        self.upkeep.recovery.begin_anew(execution)
        if self.course is not None and not self.course.over:
            self.seen["broken off beside it"] += 1
            self.upkeep.finish_beside()
            self.course.drop()
        self.time_passes()
        self.hear_late_ones()  # switches that stay silent for longer are cut off, as usual
        self.upkeep.start()

    def ready_ones_are_as_they_should(self) -> None:
        """For any switches synchronised in between: no unready switch counts as ready."""
        switches, network = self.upkeep.switches, self.network
        for datapath, table in switches.tables(sorted(switches.ready() & network.names.keys())):
            if network.name_of(datapath) in network.unreliable:
                continue
            self._holds(datapath, {match_key(r): r.args for r in installed(table)})

    def _holds(self, datapath: DatapathId, wanted: dict) -> None:
        spares = self.upkeep.switches.spares_relays
        held = {
            key: rule.args
            for key, rule in self.network.tables[datapath].items()
            if key in wanted or not (spares and rule.kind is RuleKind.TOR_RELAY)
        }
        if held != wanted:
            differing = {k for k in held.keys() | wanted.keys() if held.get(k) != wanted.get(k)}
            name = self.network.name_of(datapath)
            raise Violation(f"{name} counts as ready, and differs in {sorted(differing, key=str)}")

    def settle_down(self) -> None:
        """Without faults and slow switches, all switches are synchronised."""
        upkeep, network = self.upkeep, self.network
        network.faults = Faults()
        network.late.slow.clear()
        self.know_devices()
        for _ in range(3):
            self.answer()
            upkeep.finish_beside()
            self.ready_ones_are_as_they_should()
        self.know_devices()
        if left := network.names.keys() - upkeep.switches.ready():
            raise Violation(f"never brought to the present state: {left}")
        self.ready_ones_are_as_they_should()


@remembering(150)
def simulate(seed: int) -> Slow:
    slow = Slow(seed)
    slow.play()
    return slow


def test_relays_of_what_is_left_standing_are_given_what_a_change_took_from_them():
    hold(simulate.__wrapped__, (3300288,))


def test_a_switch_answers_behind_what_it_was_told_late():
    hold(simulate.__wrapped__, (8000996,))


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_changes_beside_slow_switches_cut_nobody_off(seeds):
    hold(simulate, seeds)


def test_the_seeds_reach_every_corner():
    played = [simulate(seed) for seed in range(150)]
    seen = sum((one.seen for one in played), Counter())
    assert min(seen[what] for what in ("beside a change", "left out", "uplink", "circuit")) > 10
    assert seen["broken off beside it"]
    beside = [one for one in played if one.seen["beside a change"]]
    assert len({one.network.fabric.substrate for one in beside}) == 3
