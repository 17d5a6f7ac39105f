"""Make before break: pairs go from circuit to circuit, and no traffic goes electrical.

1. **Make** the new paths beside the old paths, while the old paths carry the traffic: mirrors,
   VLANs and relays, and the gate.
2. **Shift** the pairs whose new paths all passed. Each switch shifts in one bundle, and each
   direction on its own, since both paths stand. A pair with a failed path stays on its old paths.
3. **Empty** the old paths: markers behind the last frames, counters that stand still.
4. **Break** the old paths. If a switch did not confirm the shift, or an old path is not proven
   empty, the pair keeps both old and new paths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from hydra.failures import Failure, FailureKind
from hydra.forwarding.resteering import Resteering, steering_of
from hydra.forwarding.rules import Remove, RuleChange
from hydra.forwarding.substrate import Steering
from hydra.lifecycle import ReconfigurationState
from hydra.model import Circuit, DatapathId, NetworkState, Pair, RackId
from hydra.reconfiguration.commands import (
    ApplyRules,
    AwaitRounds,
    Outcome,
    Steps,
    ask,
)
from hydra.reconfiguration.diverting import drained, unlooked
from hydra.reconfiguration.draining import Draining, circuits_to_drain
from hydra.reconfiguration.gate import announce, gate
from hydra.reconfiguration.moving import move
from hydra.reconfiguration.plan import (
    changed_pairs,
    hold,
    mirror_moves,
    pair_of,
    paths_by_pair,
    under_traffic,
    without,
)
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.shifting import beside, in_use
from hydra.reconfiguration.steering import is_off_circuits, takes_rules


def make_before_break(run: Run) -> Steps:
    """Carry out a plan that :func:`~hydra.reconfiguration.shifting.in_light` allows."""
    run.enter(ReconfigurationState.MAKING)
    yield from _make(run)
    run.enter(ReconfigurationState.SHIFTING)
    dead = run.conditions.diverted  # pairs whose paths die later are diverted by this change
    yield from _shift(run)
    run.enter(ReconfigurationState.EMPTYING)
    yield from _empty(run, dead)
    run.enter(ReconfigurationState.BREAKING)
    yield from _break(run)


# -- make -----------------------------------------------------------------------------------------


def _make(run: Run) -> Steps:
    plan = run.plan
    both = beside(plan.current, plan.target)
    # Pairs that only lose paths are affected, too.
    run.plan = replace(under_traffic(run.fabric, plan.current, both), affected=plan.affected)
    run.diverted = steering_of(run.substrate, plan.affected)
    yield from move(run, "make")
    run.result = run.plan.current  # paths not in this state carry no traffic
    yield from gate(run)


# -- shift ----------------------------------------------------------------------------------------


def _shift(run: Run) -> Steps:
    """Shift the pairs whose new paths all passed. A pair with a failed path stays in place; a pair
    without old paths takes the new paths that passed.
    """
    both, goal = run.plan.target, _reached(run)
    run.moving = changed_pairs(run.plan.current, goal)
    changes = _resteering(run, run.plan.current, goal, run.moving, run.conditions.diverted)
    # From here on, results of changes beside this change are merged into the new plan.
    run.plan = under_traffic(run.fabric, both, goal)
    if not run.moving:
        return
    run.rules_pushed += sum(map(len, changes.values()))
    hurries = run.hurries and run.substrate.retags
    shifted = yield from ask("shift", ApplyRules(changes, hurries))
    run.note("shift", [shifted])
    failures = shifted.value_or({})
    yield from _keep_both(
        run, _unsure(run, {steering: failures.get(steering.datapath) for steering in run.diverted})
    )


def _unsure(run: Run, switches: Mapping[Steering, Failure | None]) -> set[Pair]:
    """Pairs that may not have shifted, since ``switches`` did not confirm."""
    unsure = set[Pair]()
    for switch, failure in switches.items():
        if failure is None:
            continue
        run.stuck.add(switch.datapath)
        if failure.kind is FailureKind.LATE:
            run.late.add(switch.datapath)
        words = f"{switch.name} did not confirm the new path ({failure})"
        run.obstacles.append(run.missed("shift", switch.name, failure, words))
        unsure |= _pairs(switch, run.diverted[switch]) & run.moving
    return unsure


def _reached(run: Run) -> NetworkState:
    """The state with pairs on new paths if all passed, and with other pairs in place."""
    current, wanted = run.plan.current, run.wanted
    standing = frozenset(without(run.plan.target, run.failures, run.lost_paths).topology.paths)
    failed = {pair_of(path) for path in wanted.topology.paths if path not in standing}
    without_rules = {
        pair
        for switch, racks in run.diverted.items()
        if not takes_rules(run, switch.datapath)
        for pair in _pairs(switch, racks)
    }
    stay = (failed | without_rules) & run.plan.affected & paths_by_pair(current).keys()
    goal = without(hold(current, wanted, stay, ()), run.failures, run.lost_paths)
    planned, used = in_use(wanted), in_use(goal)
    return without(goal, (planned - used) & goal.topology.circuits - current.topology.circuits)


def _resteering(
    run: Run,
    before: NetworkState,
    after: NetworkState,
    pairs: Collection[Pair],
    dead: Collection[Pair] = (),
) -> dict[DatapathId, tuple[RuleChange, ...]]:
    """Changes of rules that make switches steer ``pairs`` as in ``after``. ``dead`` pairs lost
    their old paths and are diverted: their divert rules are removed, too.
    """
    steer = Resteering.between(run.substrate, before, after)

    def changes(rack: RackId, towards: Iterable[RackId]) -> Iterator[RuleChange]:
        for to in towards:
            yield from steer.changes(rack, to)
            if _pair(rack, to) in dead:
                yield Remove(run.substrate.divert(to, after.epoch))

    found: dict[DatapathId, tuple[RuleChange, ...]] = {}
    in_common: dict[tuple[RackId, tuple[RackId, ...]], tuple[RuleChange, ...]] = {}
    for switch, racks in run.diverted.items():
        towards = tuple(sorted(to for to in racks if _pair(switch.rack, to) in pairs))
        if not towards or not takes_rules(run, switch.datapath):
            continue
        key = switch.rack, towards
        if key not in in_common:
            in_common[key] = tuple(changes(*key))
        found[switch.datapath] = in_common[key]
    return found


def _keep_both(run: Run, pairs: Collection[Pair], circuits: Collection[Circuit] = ()) -> Steps:
    """Keep the old paths of ``pairs`` beside the new paths, and keep ``circuits`` up."""
    if not (pairs or circuits):
        return
    both, goal = run.plan.current, run.plan.target
    old = {path: vlan for path, vlan in run.began.vlans.items() if pair_of(path) in pairs}
    standing = {circuit for path in old for circuit in path.circuits}.union(circuits)
    kept = goal.joined(goal.topology.circuits | standing, {**goal.vlans, **old})
    changes = _resteering(run, goal, kept, pairs)
    run.plan = under_traffic(run.fabric, both, kept)
    if not changes:
        return
    kept_rules = yield from ask("keep", ApplyRules(changes))
    for switch in run.diverted:
        failure = kept_rules.value_or({}).get(switch.datapath)
        if failure is not None:
            run.stuck.add(switch.datapath)
            run.missed("shift", switch.name, failure)


def _pair(rack: RackId, to: RackId) -> Pair:
    return min(rack, to), max(rack, to)


def _pairs(switch: Steering, racks: Iterable[RackId]) -> set[Pair]:
    return {_pair(switch.rack, to) for to in racks}


# -- empty ----------------------------------------------------------------------------------------


def _empty(run: Run, dead: Collection[Pair]) -> Steps:
    """Wait until no frame is under way on the old paths. Old paths of ``dead`` pairs, which were
    diverted before the shift, are not waited for.
    """
    both, goal = run.plan.current, run.plan.target
    gone = [path for path in both.topology.paths if path not in goal.vlans]
    old = {
        path: both.vlans[path]
        for path in gone
        if path in run.began.vlans
        and pair_of(path) not in dead
        and path not in run.conditions.vacated
    }
    to_drain, hidden = circuits_to_drain(both, gone, run.plan.disconnect)
    to_drain &= run.began.topology.circuits  # failed new circuits have carried nothing
    pairs = {pair_of(path) for path in gone if path in run.began.vlans}  # including dead pairs
    if not (pairs or to_drain):
        return
    leaving = [
        switch
        for switch, racks in run.diverted.items()
        if not (is_off_circuits(run, switch) or pairs.isdisjoint(_pairs(switch, racks)))
    ]
    seen: list[Outcome[Collection[DatapathId]]] = []
    if leaving and run.substrate.reports_rounds:
        datapaths = tuple(switch.datapath for switch in leaving)
        timeout_s = run.policy.timeouts.vswitch_s
        seen.append((yield from ask("drain", AwaitRounds(datapaths, timeout_s))))
    late = seen[0].value_or(()) if seen else ()
    draining = Draining(
        fabric=run.fabric,
        paths=old,
        to_drain=(to_drain, hidden & old.keys()),
        policy=run.policy.drain,
        cache_report=run.substrate.reports_rounds,
    )
    busy, unproven = yield from drained(run, draining, leaving, seen)
    unsure = _unsure(
        run, {vswitch: unlooked(vswitch) for vswitch in leaving if vswitch.datapath in late}
    )
    unsure |= {pair_of(path) for path in unproven}
    unsure |= {pair_of(path) for path in old if not frozenset(busy).isdisjoint(path.circuits)}
    yield from _keep_both(run, unsure, busy)


# -- break ----------------------------------------------------------------------------------------


def _break(run: Run) -> Steps:
    """Take down the old paths, and the new paths that no pair uses."""
    gone = run.plan.disconnect - run.failures.keys()  # failures: left to device care
    run.plan = replace(run.plan, disconnect=gone, mirrors=mirror_moves(run.fabric, gone, ()))
    yield from move(run, "break")
    run.uncertain_planes |= {circuit.plane for circuit in run.failures}
    run.result = without(run.plan.target, run.failures, run.lost_paths)
    run.activated = run.moving
    yield from announce(run, "relearn", run.result)
    run.plan = under_traffic(run.fabric, run.began, run.wanted)
