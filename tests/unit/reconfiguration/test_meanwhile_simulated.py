"""Failover off dead circuits, and around uplinks, in the middle of a reconfiguration.

At a random moment of each change, a staying circuit loses its light, or an uplink dies: the
reaction must neither disturb the change nor be undone by the change. Audits, spills of full
circuits, and reconnecting switches come in between, and must not undo the reaction.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from apps.controller.classifier import Classifier
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import rack_metadata
from hydra.policy import CurrentPolicy, DrainPolicy, Policy
from hydra.reconfiguration.commands import ApplyRules, Batch
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff, pair_of, without
from tests.unit.core.fabrics import first_state, order_of, random_fabric, random_state
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.faults import LONGEST_LAG_S, Faults
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation, Watch

pytestmark = pytest.mark.takes(12)

_RUNS = 150
_POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))


class Unlucky:
    """A reconfiguration with a fault in the middle, and the reaction to the fault."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        fabric = random_fabric(rng)
        self.order = order_of(fabric)
        self.before = first_state(fabric, rng)
        self.network = Network(fabric, self.before, rng)
        self.upkeep = SimulatedUpkeep.at_work(self.network, self.before)
        target = random_state(fabric, self.before, rng)
        conditions = self.upkeep.conditions()
        self.change = first_course(fabric, _POLICY, self.before, target, conditions, self.order)
        plan = self.change.plan
        self.watch = Watch(self.network, self.change)
        staying = plan.current.topology.circuits & plan.target.topology.circuits
        self.cut = rng.choice(sorted(staying)) if staying else None
        self.dead = rng.choice(fabric.servers).name if rng.random() < 0.5 else None
        self.changes_left = rng.randrange(60)
        self.diverted = frozenset()
        self.withdrawals = []
        self.spilled = {}
        """By (from, to): number of parts of the flows, one of which is electrical."""
        self.classifier = Classifier(
            fabric=fabric,
            fleet=SimpleNamespace(apply=self.classed),
            elephants=lambda _server: (),
            policy=CurrentPolicy(_POLICY),
            spills=lambda: self.spilled,
        )
        for datapath in self.classifier.switches:  # the present state of the switches
            assert not self.classifier.rules_for(datapath)
        self.upkeep.switches.added_rules = self.classifier.rules_for
        self.held = False
        """True if the first attempt to withdraw the circuit failed."""

    def execution(self, plan):
        fabric = self.network.fabric
        return Execution(
            fabric=fabric,
            policy=_POLICY,
            plan=plan,
            conditions=self.upkeep.conditions(),
            order_of=self.order,
        )

    def play(self) -> None:
        self.spill()
        self.reconnect()
        perform = self.network.perform

        def interrupted(batch, look):
            def look_and_act(command):
                look(command)
                self.changes_left -= 1
                if self.changes_left == 0 and not batch.alone:
                    self.network.perform = perform
                    self.act()

            return perform(batch, look_and_act)

        self.network.perform = interrupted
        self.watch._devices_are_as_the_result_says = lambda: None  # diverted pairs wait
        self.watch.run()
        self.network.perform = perform
        self.stay_diverted()
        self.upkeep.take_over(self.change)
        self.audit()
        for held in (True, False):
            self.withdraw(held=held)
            self.spill()
            self.reconnect()
            self.audit()
        self.nobody_diverts()

    def act(self) -> None:
        if self.cut is not None:
            course = self.upkeep.courses.failover.divert({self.cut}, (), [self.change])
            self.diverted = self.upkeep.run(course)
            self.network.now_s += LONGEST_LAG_S
            self.stay_diverted()
        if self.dead is not None and self.network.substrate.detours:
            self.network.dead_uplinks.add(self.dead)
            self.upkeep.follow_uplinks_meanwhile(self.change)

    def stay_diverted(self) -> None:
        """No switch sends on a dead circuit, except within the change itself."""
        for path in self.before.topology.paths:
            done = [self.change, *self.withdrawals] if self.withdrawals else []
            affected = [one.plan.affected for one in done] or [self.change.moving]
            moved = frozenset().union(*affected)
            if pair_of(path) in moved or self.diverted.isdisjoint(path.circuits):
                continue
            for here, there in path.directions:
                for server in self.network.fabric.racks[here].servers:
                    if self.network.sends_on(server, there):
                        raise Violation(f"{server.name} sends on the dead circuit of {path}")

    def withdraw(self, *, held: bool) -> None:
        """As after the change: with the ordinary course, which leaves nothing behind.

        A ``held`` withdrawal meets circuits that carry frames, and silent vswitches.
        """
        fabric, state = self.network.fabric, self.upkeep.memory.state
        lost = self.diverted & state.topology.circuits
        self.upkeep.run(self.upkeep.courses.failover.divert(lost))
        self.network.now_s += LONGEST_LAG_S
        withdrawal = self.execution(diff(fabric, state, without(state, lost), self.order))
        self.withdrawals.append(withdrawal)
        watch = Watch(self.network, withdrawal, self.upkeep.uncertain)
        watch._devices_are_as_the_result_says = lambda: None  # held pairs stay diverted
        look = watch.look
        watch.look = lambda command: (look(command), self.stay_diverted())
        self.network.faults = Faults(vswitch=0.3, busy_circuit=0.3) if held else Faults()
        self.network.unsettle(sorted(withdrawal.plan.disconnect))
        self.upkeep.take_over(watch.run())
        self.network.faults = Faults()
        self.held |= not lost.isdisjoint(self.upkeep.memory.state.topology.circuits)
        self.stay_diverted()

    def spill(self) -> None:
        """Spills of full circuits begin and end, between two changes.

        Some switches do not confirm.
        """
        rng, state = self.network.rng, self.upkeep.memory.state
        ways = sorted(way for path in state.topology.paths for way in path.directions)
        self.spilled = {way: rng.randint(2, 8) for way in ways if rng.random() < 0.3}
        self.network.faults = Faults(vswitch=0.2)
        doubted = self.classifier.bring(self.classifier.switches, self.upkeep.switches.ready())
        self.upkeep.switches.doubt(doubted)
        self.network.faults = Faults()
        self.stay_diverted()

    def classed(self, changes, _timeout_s):
        (outcome,) = self.network.perform(
            Batch("classify", (ApplyRules(changes),)), lambda _command: None
        )
        return outcome.value

    def spill_as_decided(self) -> None:
        """Parts of the flows are electrical on every reachable switch, and no other parts."""
        for server in self.network.fabric.servers:
            datapath = self.network.switch_of[server.name].datapath
            if datapath not in self.upkeep.switches.ready():
                continue
            table = self.network.tables[datapath].values()
            held = {rule.args for rule in table if rule.kind is RuleKind.SPILL}
            wanted = {
                (rack_metadata(to), parts - 1)
                for (rack, to), parts in self.spilled.items()
                if rack == server.rack
            }
            if held != wanted:
                raise Violation(f"{server.name} spills {held} instead of {wanted}")

    def reconnect(self) -> None:
        """Missing switches come back, one of them without any rule."""
        back = self.network.rng.choice(sorted(self.network.names))
        self.network.tables[back].clear()
        self.network.rules_changed(back)
        self.network.connected.discard(back)
        self.upkeep.reconnect()
        self.network.connected = set(self.network.names)
        self.upkeep.look_after()
        self.stay_diverted()

    def audit(self) -> None:
        """Only touched parts differ, and their repair leaves diverts alone."""
        upkeep = self.upkeep
        upkeep.look_after()
        audit = upkeep.audit
        if items := upkeep.run(audit.look()).items:
            raise Violation(f"nobody touched {[str(item) for item in items]}")
        self.spill_as_decided()
        touched = self.network.rng.choice(sorted(self.network.names))
        table = self.network.tables[touched]
        if table:
            table.pop(self.network.rng.choice(sorted(table, key=str)))
            self.network.rules_changed(touched)
        upkeep.run(audit.mend_rules(upkeep.run(audit.look())))
        self.network.now_s += LONGEST_LAG_S
        self.stay_diverted()

    def nobody_diverts(self) -> None:
        """Pairs are diverted until the withdrawal, and no longer."""
        for datapath, table in self.network.tables.items():
            if any(rule.kind is RuleKind.DIVERT for rule in table.values()):
                raise Violation(f"{datapath:#x} diverts for good")


@remembering(150)
def simulate(seed: int) -> Unlucky:
    unlucky = Unlucky(seed)
    unlucky.play()
    return unlucky


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_a_change_under_way_and_what_is_done_meanwhile_leave_each_other_alone(seeds):
    hold(simulate, seeds)


def test_the_seeds_divert_on_every_substrate():
    played = [simulate(seed) for seed in range(150)]
    helped = [one for one in played if one.diverted]
    assert len({one.network.fabric.substrate for one in helped}) == 3
    assert len({one.network.fabric.substrate for one in helped if one.held}) == 3
    assert any(one.cut is not None and not one.diverted for one in played), "nobody was on it"
    assert len({one.network.fabric.substrate for one in played if one.spilled}) == 3
    assert any(one.dead in one.change.conditions.dead_uplinks for one in played)
