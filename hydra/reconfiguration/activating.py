"""Substep 3-3: paths that passed the gate are activated; other paths stay electrical."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hydra.forwarding.resteering import Resteering
from hydra.forwarding.rules import Remove, RuleChange
from hydra.model import DatapathId, Pair, RackId
from hydra.reconfiguration.commands import (
    ApplyRules,
    Batch,
    Command,
    Course,
    SetVlans,
    Steps,
    ask,
)
from hydra.reconfiguration.plan import changed_pairs, retagging, without
from hydra.reconfiguration.relaying import abandoned, only
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import note_relays


def activate(run: Run) -> Steps:
    """Remove the divert rules of successful paths, and clean up after failed paths."""
    run.result = without(run.plan.target, run.failures, run.lost_paths)
    lost = changed_pairs(run.plan.target, run.result)
    steer = Resteering.between(run.substrate, run.plan.target, run.result)
    dead = run.conditions.diverted
    run.activated = run.moving - (dead - run.plan.affected)  # without dead pairs that are held
    lost_changes: dict[DatapathId, tuple[RuleChange, ...]] = {}
    ends: dict[DatapathId, tuple[RuleChange, ...]] = {}
    in_common: dict[tuple[RackId, tuple[RackId, ...]], Sequence[tuple[RuleChange, ...]]] = {}
    for switch, racks in run.diverted.items():
        if switch.datapath in run.stuck:
            continue
        key = switch.rack, tuple(sorted(racks))
        if key not in in_common:
            in_common[key] = _lost_changes(*key, steer, lost), _ends_of_diverts(run, *key)
        for changes, made in zip((lost_changes, ends), in_common[key], strict=True):
            if made:
                changes[switch.datapath] = made
    refused = frozenset[DatapathId]()
    if lost_changes:
        refused = yield from _applied(run, lost_changes)
    yield from _applied(run, {dp: changes for dp, changes in ends.items() if dp not in refused})
    yield from _tidy(run)


def _applied(
    run: Run, changes: Mapping[DatapathId, tuple[RuleChange, ...]]
) -> Course[frozenset[DatapathId]]:
    """Apply changes at steering switches; return the switches that failed."""
    activated = yield from ask("activate", ApplyRules(changes))
    run.note("activate", [activated])
    failures = activated.value_or({})
    for switch in run.diverted:
        if (failure := failures.get(switch.datapath)) is not None:
            run.missed("activate", switch.name, failure)
    return frozenset(dp for dp, failure in failures.items() if failure is not None)


def _lost_changes(
    rack: RackId, towards: Iterable[RackId], steer: Resteering, lost: Collection[Pair]
) -> tuple[RuleChange, ...]:
    """Changes for pairs that have lost some of their new paths.

    The changes come before the end of the diverts: a switch that refuses a rule may commit the
    rest of the bundle, and would send on the lost paths.
    """
    return tuple(
        change
        for to in towards
        if (min(rack, to), max(rack, to)) in lost
        for change in steer.changes(rack, to)
    )


def _ends_of_diverts(run: Run, rack: RackId, towards: Iterable[RackId]) -> tuple[RuleChange, ...]:
    epoch = run.plan.target.epoch
    return tuple(
        Remove(run.substrate.divert(to, epoch))
        for to in towards
        if (min(rack, to), max(rack, to)) in run.activated
    )


def _tidy(run: Run) -> Steps:
    """Untag failed circuits, and stop relaying frames there."""
    given_up = run.plan.target.topology.circuits - run.result.topology.circuits
    run.uncertain_planes |= {circuit.plane for circuit in given_up | run.failures.keys()}
    untag = retagging(run.fabric, run.plan.target, run.result)
    commands: list[Command] = [SetVlans(rack, ports) for rack, ports in sorted(untag.items())]
    changes = abandoned(run.substrate, run.plan.target, run.result)
    relays = changes.keys() & run.conditions.connected
    if taken := only(changes, run.conditions.connected):
        commands.append(ApplyRules(taken))
    if not commands:
        return
    run.relearning |= {
        run.fabric.port_by_name[run.fabric.racks[rack].name, name].id
        for rack, ports in untag.items()
        for name in ports
    }
    outcomes = yield Batch("tidy", tuple(commands))
    run.note("tidy", outcomes)
    for command, outcome in zip(commands, outcomes, strict=True):
        if isinstance(command, ApplyRules):
            note_relays(run, outcome, relays)
        elif isinstance(command, SetVlans) and outcome.failure is not None:
            run.missed("tidy", run.fabric.racks[command.rack].name, outcome.failure)
