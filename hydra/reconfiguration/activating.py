"""Substep 3-3: paths that passed the gate are activated; other paths stay electrical."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from hydra.forwarding.resteering import Resteering
from hydra.forwarding.rules import Remove, RuleChange
from hydra.model import DatapathId, Pair, RackId
from hydra.reconfiguration.commands import ApplyRules, Batch, Command, SetVlans, Steps, ask
from hydra.reconfiguration.gate import announce
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
    frozen: dict[DatapathId, tuple[RuleChange, ...]] = {}
    in_common: dict[tuple[RackId, tuple[RackId, ...]], tuple[RuleChange, ...]] = {}
    for switch, racks in run.diverted.items():
        if switch.datapath in run.stuck:
            continue
        key = switch.rack, tuple(sorted(racks))
        if key not in in_common:
            in_common[key] = tuple(_activating(run, *key, steer, lost))
        if in_common[key]:
            frozen[switch.datapath] = in_common[key]
    activated = yield from ask("activate", ApplyRules(frozen))
    run.note("activate", [activated])
    for switch in run.diverted:
        failure = activated.value_or({}).get(switch.datapath)
        if failure is not None:
            run.missed("activate", switch.name, failure)
    yield from _tidy(run)
    yield from announce(run, "relearn", run.result)


def _activating(
    run: Run, rack: RackId, towards: Iterable[RackId], steer: Resteering, lost: Collection[Pair]
) -> Iterator[RuleChange]:
    """Changes to end the divert of a rack's traffic; ``lost`` pairs lose circuits."""
    epoch = run.plan.target.epoch
    for to in towards:
        pair = (min(rack, to), max(rack, to))
        if pair in lost:
            yield from steer.changes(rack, to)
        if pair in run.activated:
            yield Remove(run.substrate.divert(to, epoch))


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
