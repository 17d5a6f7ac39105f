"""Switches that renumber ports, also in the middle of a reconfiguration.

While a change waits, rules outside the change must follow, without disturbing the change; after the
change, all rules must follow.
"""

from __future__ import annotations

import random

import pytest

from hydra.forwarding.match_action import Port
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import ports_named, rack_metadata
from hydra.policy import DrainPolicy, Policy
from hydra.reconfiguration.executor import Execution
from tests.unit.core.fabrics import first_state, order_of, random_fabric, random_state
from tests.unit.reconfiguration.courses import first_course
from tests.unit.reconfiguration.seeds import chunks, hold, remembering
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.simulation.switches import PortNumbers
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep
from tests.unit.reconfiguration.watch import Violation, Watch

pytestmark = pytest.mark.takes(6)

_RUNS = 300
_POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))
_ABOUT_PATHS = (
    RuleKind.CIRCUIT,
    RuleKind.TOR_CIRCUIT,
    RuleKind.SPREAD,
    RuleKind.SPREAD_PATH,
    RuleKind.TOR_SPREAD_PATH,
)


class Renumbered:
    """A reconfiguration during which ports of some switches are renumbered."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        fabric = random_fabric(rng)
        before = first_state(fabric, rng)
        self.network = Network(fabric, before, rng)
        self.upkeep = SimulatedUpkeep.at_work(self.network, before)
        self.commands_left = rng.randrange(60)
        self.struck: set[int] = set()
        self.swapped = self.failed = self.meanwhile = False
        self._fresh = 1_000
        self.change: Execution

    def play(self) -> None:
        if self.rng.random() < 0.3:  # at rest
            self.renumber()
            self.follow()
        fabric, before = self.network.fabric, self.upkeep.memory.state
        order = order_of(fabric)
        target, conditions = random_state(fabric, before, self.rng), self.upkeep.conditions()
        self.change = first_course(fabric, _POLICY, before, target, conditions, order)
        perform = self.network.perform

        def interrupted(batch, look):
            def look_and_act(command):
                look(command)
                self.commands_left -= 1
                if self.commands_left == 0 and not batch.alone:
                    self.network.perform = perform
                    self.renumber()
                    self.follow_meanwhile()

            return perform(batch, look_and_act)

        self.network.perform = interrupted
        watch = Watch(self.network, self.change)
        watch.run()
        self.network.perform = perform
        self.upkeep.take_over(self.change)
        self.follow()
        self.nothing_differs()

    def renumber(self) -> None:
        """Some ports of a switch get new numbers, or two exchange their numbers."""
        network, switches = self.network, self.upkeep.switches
        datapath = self.rng.choice(sorted(network.names))
        names = network.substrate.ports(datapath)
        # Frames under way at a relay are lost with its port's number: this gap is unavoidable.
        relaying = {
            port
            for rule in network.tables[datapath].values()
            if rule.kind is RuleKind.TOR_RELAY
            for port in ports_named(rule)
        }
        every = [name for name in names.every if relaying.isdisjoint(names.symbols([name]))]
        some = self.rng.sample(every, self.rng.randint(1, len(every)))
        symbols = sorted(names.symbols(some))
        if len(some) == 2 and len(symbols) == 2 and self.rng.random() < 0.5:
            ports = network.renumbered.get(datapath, PortNumbers())
            one, other = (ports.of.get(symbol, -symbol) for symbol in symbols)
            numbers = dict(zip(symbols, (other, one), strict=True))
            self.swapped = True
        else:
            numbers = {}
            for symbol in symbols:
                self._fresh += 1
                numbers[symbol] = self._fresh
        old = network.renumber(datapath, numbers)
        earlier = {name: old[min(names.symbols([name]) - {Port.SERVERS})] for name in some}
        switches.renumbered(datapath, earlier)
        self.struck.add(datapath)
        if datapath in switches.ready():
            raise Violation(f"{datapath:#x} counts as ready, and its rules name old numbers")

    def follow(self) -> None:
        """As the conductor does between two jobs."""
        self.network.faults = Faults(vswitch=self.rng.choice((0.0, 0.5)))
        self.upkeep.run(self.upkeep.courses.renumbering.follow())
        self.network.faults = Faults()
        self.failed |= not self.upkeep.switches.ready().issuperset(self.struck)
        self.upkeep.reconnect()  # a switch that failed may have disconnected, too
        self.network.connected = set(self.network.names)
        self.upkeep.look_after()
        for datapath in self.struck:
            if misnamed := self.network.misnamed(datapath):
                raise Violation(f"{datapath:#x} has rules with old numbers: {misnamed}")
        if self.upkeep.switches.renumbered_ports():
            raise Violation("a port is told as renumbered whose rules have followed")

    def follow_meanwhile(self) -> None:
        self.meanwhile = True
        course = self.upkeep.courses.renumbering.follow([self.change])
        self.upkeep.run_meanwhile(course)
        moving = {rack_metadata(rack) for pair in self.change.moving for rack in pair}
        for datapath in self.struck:
            for rule in self.network.misnamed(datapath):
                of_change = rule.kind is RuleKind.TOR_RELAY or (
                    rule.kind in _ABOUT_PATHS and moving.intersection(rule.args)
                )
                if not of_change:
                    raise Violation(f"{rule} names {list(ports_named(rule))} as they were")

    def nothing_differs(self) -> None:
        upkeep = self.upkeep
        upkeep.look_after()
        audit = upkeep.audit
        if items := [
            item for item in upkeep.run(audit.look()).items if item.device in self.network.names
        ]:
            raise Violation(f"rules differ: {[str(item) for item in items]}")


@remembering(300)
def simulate(seed: int) -> Renumbered:
    renumbered = Renumbered(seed)
    renumbered.play()
    return renumbered


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_rules_follow_and_changes_go_on(seeds):
    hold(simulate, seeds)


def test_the_seeds_swap_fail_and_come_in_between_on_every_substrate():
    played = [simulate(seed) for seed in range(300)]
    between = [one for one in played if one.meanwhile]
    assert len({one.network.fabric.substrate for one in between}) == 3
    assert len({one.network.fabric.substrate for one in between if one.failed}) == 3
    swapped = {one.network.fabric.substrate for one in played if one.swapped}
    assert len(swapped) >= 2, "a single-homed vswitch has no two ports to swap"
