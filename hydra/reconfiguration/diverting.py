"""Substep 3-1: affected pairs go electrical, and circuits drain before they move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

from hydra.failures import Failure, FailureKind
from hydra.forwarding.resteering import diverting, steering_of
from hydra.forwarding.substrate import Steering
from hydra.model import Circuit, DatapathId, Path, RackId, Server
from hydra.policy import OnSilence
from hydra.reconfiguration.commands import (
    ApplyRules,
    AwaitRounds,
    Batch,
    Command,
    Course,
    Outcome,
    SetVlans,
    StageRules,
    Steps,
    ask,
    ask_all,
)
from hydra.reconfiguration.draining import Draining
from hydra.reconfiguration.plan import pair_of
from hydra.reconfiguration.relaying import only
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import (
    able,
    held_by_rack,
    hold_for_silent,
    is_cut_off,
    is_off_circuits,
    rules_to_push,
)


def divert(run: Run) -> Steps:
    """Divert all traffic of affected pairs to the electrical network, at each end."""
    switches = steering_of(run.substrate, run.plan.affected)
    changes = diverting(run.substrate, switches, run.plan.target.epoch)
    taken = only(changes, run.conditions.connected)
    closes = run.policy.on_silent_vswitch is OnSilence.CLOSE
    hurries = run.hurries and run.substrate.retags and not closes
    diverted = yield from ask("divert", ApplyRules(taken, hurries))
    run.note("divert", [diverted])
    silent: dict[Steering, Failure] = {}
    for switch, racks in switches.items():
        failure = diverted.value_or({}).get(switch.datapath, away(switch))
        if failure is None:
            run.diverted[switch] = set(racks)
        else:
            run.stuck.add(switch.datapath)
            silent[switch] = failure
            if hurries and (
                failure.kind is FailureKind.LATE or switch.datapath in run.conditions.awaited
            ):
                run.late.add(switch.datapath)
    yield from _close(run, silent if closes else filter(partial(is_cut_off, run), silent))
    hold_for_silent(run, silent)


def _close(run: Run, silent: Iterable[Steering]) -> Steps:
    """Close ToR ports of silent vswitches that may still send on circuits."""
    out: dict[RackId, list[Server]] = {}
    held = held_by_rack(run)
    for switch in silent:
        if not is_off_circuits(run, switch) and held.get(switch.rack):
            out.setdefault(switch.rack, []).extend(switch.servers)
    ports = {
        rack: run.substrate.closed_ports(rack_ports) for rack, rack_ports in sorted(out.items())
    }
    commands = [SetVlans(rack, closed) for rack, closed in ports.items() if closed]
    if not commands:
        return
    outcomes = yield from ask_all("close", commands)
    run.note("close", outcomes)
    for command, outcome in zip(commands, outcomes, strict=True):
        rack = run.fabric.racks[command.rack].name
        run.device_step("close", rack, outcome)
        if outcome.failure is None:
            run.closed |= {server.name for server in out[command.rack]}
        else:
            run.missed("close", rack, outcome.failure)


def drain(run: Run) -> Steps:
    """Wait until no frame is under way on the paths that diverted pairs leave.

    First, the diverted switches confirm that no earlier cached flow forwards frames; then
    :class:`~hydra.reconfiguration.draining.Draining` drains the paths. Meanwhile, switches receive
    the rules of the next substep.
    """
    beside: tuple[Command, ...] = (StageRules(rules_to_push(run)),)
    seen: list[Outcome[Collection[DatapathId]]] = []
    leaving = _leaving(run)
    if leaving and run.substrate.reports_rounds:
        datapaths = tuple(switch.datapath for switch in leaving)
        await_rounds = AwaitRounds(datapaths, run.policy.timeouts.vswitch_s)
        seen += (yield Batch("drain", (await_rounds, *beside)))[:1]
        beside = ()
        late = seen[0].value_or(())
        hold_for_silent(
            run, {steering: unlooked(steering) for steering in leaving if steering.datapath in late}
        )
    draining = run.draining = Draining.of(
        run.fabric,
        run.plan,
        run.conditions.diverted,
        run.policy.drain,
        cache_report=run.substrate.reports_rounds,
    )
    busy, unproven = yield from drained(run, draining, leaving, seen, beside)
    if busy:
        run.replan((), busy)
    if unproven:
        run.replan({pair_of(path) for path in unproven}, ())


def drained(
    run: Run,
    draining: Draining,
    leaving: Iterable[Steering],
    seen: Sequence[Outcome[Any]],
    beside: tuple[Command, ...] = (),
) -> Course[tuple[Sequence[Circuit], Sequence[Path]]]:
    """Drain the paths that switches are ``leaving``, after the outcomes ``seen``.

    Returns (circuits still carrying frames, paths not proven empty), noted as obstacles to the
    plan.
    """
    senders: dict[RackId, list[Server]] = {}
    for switch in leaving:
        if switch.name not in run.conditions.dead_uplinks:
            senders.setdefault(switch.rack, []).extend(switch.servers[:1])
    receivers = {rack: able(run, rack) for rack in draining.ends}
    yield from draining.run(senders, receivers, beside)
    bound = "bound reached" if draining.bound_reached else ""
    run.note("drain", (*seen, *draining.outcomes), bound)
    busy = draining.busy()
    if busy:
        reason = f"{len(busy)} circuit(s) still carried frames after the drain bound"
        names = ", ".join(map(run.named, busy))
        run.obstacles.append(Failure("drain", names, FailureKind.BUSY, reason))
    unproven = [
        path
        for path in draining.unproven(probed=bool(run.policy.probe_interval_s))
        if pair_of(path) not in run.conditions.diverted and path not in run.conditions.vacated
    ]
    if unproven:
        reason = (
            f"{len(unproven)} path(s) are not proven empty: no marker arrived "
            "before the drain bound"
        )
        names = ", ".join(map(run.between, unproven))
        run.obstacles.append(Failure("drain", names, FailureKind.UNKNOWN, reason))
    return busy, unproven


def _leaving(run: Run) -> list[Steering]:
    """Diverted switches that may have sent onto circuits until now."""
    held = held_by_rack(run)
    return [
        switch
        for switch in run.diverted
        if held.get(switch.rack) and not is_off_circuits(run, switch)
    ]


def away(switch: Steering) -> Failure:
    """The failure of a switch that is not connected and so cannot divert."""
    return Failure("divert", switch.name, FailureKind.NOT_CONNECTED, "not connected")


def unlooked(switch: Steering) -> Failure:
    """The failure of a switch that may forward by earlier cached flows."""
    reason = "has not revalidated all its cached flows"
    return Failure("forget", switch.name, FailureKind.UNKNOWN, reason)
