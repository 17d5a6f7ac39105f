"""Substep 3-2: ToR ports are retagged, rules pushed and mirrors moved, in parallel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from hydra.failures import Failure, FailureKind
from hydra.model import Circuit, NetworkState, Path
from hydra.reconfiguration.commands import (
    ApplyRules,
    Batch,
    Command,
    MoveMirrors,
    Outcome,
    ReadMirrors,
    SetVlans,
    Steps,
    SwitchFailures,
    ask,
    ask_all,
)
from hydra.reconfiguration.plan import (
    PortsToTag,
    diff,
    merged,
    mirror_moves,
    pair_named,
    port_trunks,
    without,
)
from hydra.reconfiguration.relaying import leaving, only, unrelayed
from hydra.reconfiguration.retagging import retag_alone, retagged, through
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import deaf, note_relays, rules_to_push, takes_rules


def move(run: Run, step: str = "move") -> Steps:
    """Retag, push and move mirrors; then read devices that did not confirm. ``step``: name for
    notes.
    """
    yield from retag_alone(run, "untag", run.plan.untag_first)
    yield from _unrelay(run)
    yield from _disconnect_first(run)
    retags = [SetVlans(rack, ports) for rack, ports in sorted(run.plan.retag.items())]
    mirrors = [MoveMirrors(plane, move) for plane, move in sorted(run.plan.mirrors.items())]
    push = ApplyRules(rules_to_push(run))
    run.rules_pushed += sum(len(changes) for changes in push.changes.values())
    run.ports_retagged += run.plan.retagged_ports
    # Commands quickest to send come first: their devices work meanwhile.
    commands: tuple[Command, ...] = (*mirrors, push, *retags)
    outcomes = yield Batch(step, commands)
    for command, outcome in zip(commands, outcomes, strict=True):
        if isinstance(command, SetVlans):
            retagged(run, "retag", command, outcome)
        elif isinstance(command, MoveMirrors):
            _moved(run, command, outcome)
        else:
            _pushed(run, outcome)
    run.note(step, outcomes)
    if run.retag_failed or run.uncertain_planes:
        reason = "not set up: a device needed before the mirrors move did not confirm"
        for circuit in run.plan.connect_last:
            name = run.named(circuit)
            run.fail(circuit, Failure("move", name, FailureKind.HELD_UP, reason))
    else:
        yield from _move_alone(run, (), run.plan.connect_last)
    yield from _settle_mirrors(run)
    run.result = run.plan.target


def _unrelay(run: Run) -> Steps:
    """Stop relaying along given-up paths: a late frame ends at a relay."""
    relays = leaving(run.substrate, run.plan)
    changes = only(relays, set(filter(partial(takes_rules, run), relays)))
    if not changes:
        return
    outcome = yield from ask("unrelay", ApplyRules(changes))
    run.note("unrelay", [outcome])
    note_relays(run, outcome, changes)


def _disconnect_first(run: Run) -> Steps:
    """Tear down circuits that would close a loop in retagging; if a circuit may stand, retag no
    port.

    The plan then shrinks to giving the circuits up: removing tags closes no loop.
    """
    first = run.plan.disconnect_first
    if not first:
        return
    yield from _move_alone(run, first, ())
    if run.uncertain_planes:
        current = replace(run.plan.current, epoch=run.plan.target.epoch)
        target = without(current, first, _maybe_untagged(run))
        plan = diff(run.fabric, run.plan.current, target, run.order_of)
        back = _memberships_in(run, target, run.plan.untag_first)
        run.plan = replace(plan, retag=merged(back, plan.untag_first, plan.retag))
        reason = "nothing else moves: a circuit that had to go first may still be up"
        names = ", ".join(map(run.named, sorted(first)))
        run.obstacles.append(Failure("move", names, FailureKind.HELD_UP, reason))


def _maybe_untagged(run: Run) -> list[Path]:
    """Paths that a ToR may still untag: the ToR got the command, and has not answered."""
    return through(run.plan.current, run.untagging)


def _memberships_in(run: Run, state: NetworkState, ports: PortsToTag) -> PortsToTag:
    """VLANs in ``state`` for ``ports``, which were retagged already."""
    trunks = port_trunks(run.fabric, state)
    return {
        rack: {
            name: trunks[run.fabric.port_by_name[run.fabric.racks[rack].name, name].id]
            for name in names
        }
        for rack, names in ports.items()
    }


def _move_alone(run: Run, disconnect: Collection[Circuit], connect: Collection[Circuit]) -> Steps:
    """Move mirrors that may not move while ports are being retagged."""
    moves = mirror_moves(run.fabric, disconnect, connect)
    if not moves:
        return
    commands = tuple(MoveMirrors(plane, move) for plane, move in sorted(moves.items()))
    outcomes = yield from ask_all("move", commands)
    for command, outcome in zip(commands, outcomes, strict=True):
        _moved(run, command, outcome)


def _pushed(run: Run, outcome: Outcome[SwitchFailures]) -> None:
    errors = outcome.value_or({})
    if errors:
        run.device_step("push", None, outcome)
    for switch, racks in run.diverted.items():
        cause = errors.get(switch.datapath)
        if cause is not None:
            run.stuck.add(switch.datapath)
            pairs = sorted({(min(switch.rack, to), max(switch.rack, to)) for to in racks})
            named = ", ".join(pair_named(run.fabric, pair) for pair in pairs)
            verb = "refuses" if cause.kind is FailureKind.REFUSED else "did not take"
            words = f"{switch.name} {verb} the rules of {named} ({cause})"
            run.obstacles.append(run.missed("push", switch.name, cause, words))
    note_relays(run, outcome, errors.keys() - {switch.datapath for switch in run.diverted})
    for path, lost in unrelayed(run.substrate, run.plan, lambda relay: deaf(run, outcome, relay)):
        run.lose(path, lost)


def _moved(run: Run, command: MoveMirrors, outcome: Outcome[Any]) -> None:
    plane = run.fabric.planes[command.plane]
    run.device_step("mirrors", plane.name, outcome)
    if outcome.failure is not None:
        words = f"OCS {outcome.failure}"
        failure = run.missed("mirrors", plane.name, outcome.failure, words)
        run.uncertain_planes.add(plane.id)
        if failure.kind is FailureKind.AWAITS_PEOPLE:
            run.asked_planes.add(plane.id)
        for circuit in run.plan.connect:
            if circuit.plane == plane.id:
                run.fail(circuit, failure)


def _settle_mirrors(run: Run) -> Steps:
    """Read planes whose move was refused or unanswered, since mirrors may have moved."""
    planes = sorted(run.uncertain_planes & {circuit.plane for circuit in run.plan.connect})
    outcomes = yield from ask_all("settle", [ReadMirrors(plane) for plane in planes])
    for plane, outcome in zip(planes, outcomes, strict=True):
        if outcome.value is None:
            continue
        present = outcome.value.present  # the gate checks for light
        for circuit in run.plan.connect:
            if circuit.plane == plane and present.issuperset(run.fabric.cross_connects(circuit)):
                run.failures.pop(circuit, None)
