"""A controller that dies at any moment of a reconfiguration, and the next one: thousands of seeds.

The next controller does what :mod:`apps.controller.upkeep` does at a start: it reads the devices,
keeps of the journal what they confirm, brings the vswitches to that, and then takes down the rest.
Replay as in :mod:`tests.unit.reconfiguration.seeds`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import suppress

import pytest

from hydra.forwarding.rules import FlowRule, Install
from hydra.model import DatapathId, NetworkState, Path
from hydra.policy import DrainPolicy, Policy
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.plan import diff, unsettled_paths
from hydra.reconfiguration.reconcile import Actual, Reconciled, reconcile, wanted_vlans
from hydra.reconfiguration.relaying import relays_as_in, wipe
from tests.unit.core.fabrics import first_state, order_of, random_fabric, random_state
from tests.unit.reconfiguration.seeds import chunks, hold
from tests.unit.reconfiguration.simulation import (
    LONGEST_DELAY_S,
    LONGEST_LAG_S,
    Network,
    conditions_of,
    shake,
)
from tests.unit.reconfiguration.watch import Violation, Watch

_RUNS = 300
_POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0))


class CrashError(Exception):
    """The controller's process is gone."""


class Doomed(Watch):
    """Dies before, during or after the batch with this number."""

    def __init__(self, network: Network, execution: Execution, batch: int) -> None:
        super().__init__(network, execution)
        self._left = batch

    def before(self, batch):
        super().before(batch)
        if self._left == 0 and self.network.rng.random() < 0.5:
            raise CrashError

    def look(self, command):
        super().look(command)
        if self._left == 0 and self.network.rng.random() < 0.2:
            raise CrashError

    def learn(self, batch, outcomes):
        super().learn(batch, outcomes)
        if self._left == 0:
            raise CrashError
        self._left -= 1


def read(network: Network) -> Actual:
    fabric = network.fabric
    mirrors = {plane: frozenset(lit) for plane, lit in network.mirrors.items()}
    vlans = {
        rack: dict(ports) for rack, ports in wanted_vlans(fabric, NetworkState()).items()
    }  # ports of servers are never touched
    for end, tags in network.vlans.items():
        port = fabric.ports[end]
        vlans[port.rack][port.tor_port] = tags
    return Actual(mirrors, vlans)


def recover(
    network: Network, remembered: NetworkState, watch: Watch, unsettled: Collection[Path] = ()
) -> Reconciled:
    """Every single change is looked at; returns what was found."""
    network.connected = set(network.names)
    found = reconcile(network.fabric, remembered, read(network), unsettled)

    def rules(datapath: DatapathId) -> Iterator[FlowRule]:
        return network.substrate.path_rules(datapath, found.state)

    for datapath in network.rng.sample(sorted(network.names), len(network.names)):
        install = map(Install, rules(datapath))
        network.apply(datapath, [*wipe(spare_relays=True), *install])
        watch.look(None)
    network.now_s += LONGEST_LAG_S
    for datapath in network.rng.sample(sorted(network.names), len(network.names)):
        network.apply(datapath, relays_as_in(rules(datapath)))
        watch.look(None)
    network.now_s += LONGEST_LAG_S
    for rack, ports in found.retag.items():
        for name, vlans in ports.items():
            network.vlans[network.port_named[rack, name].id] = vlans
            watch.look(None)
    for plane, move in found.mirrors.items():
        for cross in network.rng.sample(sorted(move.disconnect), len(move.disconnect)):
            network.mirrors[plane].discard(cross)
            watch.look(None)
    return found


def simulate(seed: int) -> str:
    """A crash in a reconfiguration, and two recoveries; returns the step that it happened in."""
    rng = random.Random(seed)
    fabric = random_fabric(rng)
    order = order_of(fabric)
    state = first_state(fabric, rng)
    network = Network(fabric, state, rng)
    shake(network, rng)
    plan = diff(fabric, state, random_state(fabric, state, rng), order)
    execution = Execution(fabric, _POLICY, plan, conditions_of(network, state), order)
    network.unsettle(sorted(plan.disconnect))
    watch = Doomed(network, execution, rng.randint(0, 14))
    with suppress(CrashError):
        watch.run()
    after = Watch(network, execution)
    after.steps = [*watch.steps, "recovery"]
    network.now_s += LONGEST_DELAY_S
    network.catch_up()  # what the dead one had sent
    after.look(None)
    network.faults = type(network.faults)(tor=1.0)  # in-use VLANs may be on dark ports meanwhile
    unsettled = unsettled_paths(state, plan.target) if network.journal else ()
    found = recover(network, state, after, unsettled)
    again = recover(network, found.state, after)
    unchanged = again.state == found.state and not (again.mirrors or again.retag or again.dropped)
    if not unchanged:
        raise Violation(f"after {after.steps}: a second recovery changes {again}")
    return watch.steps[-1] if watch.steps else ""


@pytest.mark.parametrize("seeds", chunks(_RUNS), ids=str)
def test_whenever_it_dies_the_next_one_recovers_and_nobody_is_cut_off(seeds):
    hold(simulate, seeds)


def test_it_dies_in_every_step():
    steps = {simulate(seed) for seed in range(200)}
    assert {"intent", "divert", "drain", "move", "carrier", "probe", "activate", "outcome"} <= steps
