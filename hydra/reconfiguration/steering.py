"""The switches that steer the traffic of a change: able to take rules, silent, or cut off."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import RuleChange
from hydra.forwarding.substrate import Steering
from hydra.model import DatapathId, Pair, RackId, Server
from hydra.reconfiguration.commands import Outcome, SwitchFailures
from hydra.reconfiguration.plan import paths_by_pair
from hydra.reconfiguration.pushing import rules_of
from hydra.reconfiguration.run import Push, Run


def able(run: Run, rack: RackId) -> list[Server]:
    """Servers of a rack able to send and receive on circuits."""
    off = run.conditions.dead_uplinks | run.conditions.closed | run.closed
    return [
        server
        for switch in run.substrate.steering(rack)
        if takes_rules(run, switch.datapath)
        for server in switch.servers
        if server.name not in off
    ]


def takes_rules(run: Run, datapath: DatapathId) -> bool:
    """True if a switch takes rules, as far as known."""
    return datapath in run.conditions.connected and datapath not in run.stuck


def is_off_circuits(run: Run, switch: Steering) -> bool:
    """True if no frame of the switch gets onto a circuit, even if uplinks return."""
    return switch.name in run.conditions.closed or switch.name in run.closed


def held_by_rack(run: Run) -> dict[RackId, set[Pair]]:
    """Affected pairs with present paths, by rack; each pair under both racks."""
    held: dict[RackId, set[Pair]] = {}
    for pair in run.plan.affected & paths_by_pair(run.plan.current).keys():
        for rack in pair:
            held.setdefault(rack, set()).add(pair)
    return held


def hold_for_silent(run: Run, silent: Mapping[Steering, Failure]) -> None:
    """Keep the paths of switches without a confirmed divert, as the switches may still send."""
    held: set[Pair] = set()
    of_rack = held_by_rack(run)
    for switch, cause in silent.items():
        words = f"{switch.name} did not confirm its divert ({cause})"
        failure = run.missed("divert", switch.name, cause, words)
        switch_pairs = of_rack.get(switch.rack, set())
        if is_off_circuits(run, switch) or (is_cut_off(run, switch) and not switch_pairs):
            continue
        held |= switch_pairs
        run.obstacles.append(failure)
    if held:
        run.replan(held, ())


def is_cut_off(run: Run, silent: Steering) -> bool:
    """True if a dead uplink keeps the switch from sending until the uplink returns.

    False for a late switch, which may answer earlier.
    """
    return silent.name in run.conditions.dead_uplinks and silent.datapath not in run.late


def rules_to_push(run: Run) -> Mapping[DatapathId, tuple[RuleChange, ...]]:
    """Circuit rules of the affected pairs and of their relays, for every switch that has confirmed
    so far. Calls for the same plan return the same tuples.
    """
    if run.pushed is None or run.pushed.plan is not run.plan:
        run.pushed = Push(
            run.plan,
            rules_of(
                run.fabric,
                run.plan,
                run.conditions.connected,
                steers=not run.in_light,
            ),
        )
    changes = run.pushed.changes
    return {dp: rules for dp, rules in changes.items() if takes_rules(run, dp)}


def note_relays(run: Run, outcome: Outcome[SwitchFailures], relays: Collection[DatapathId]) -> None:
    """Note the relays with failed changes; a later course synchronises the relays."""
    for datapath in relays:
        failure = deaf(run, outcome, datapath)
        if failure is not None:
            run.stuck.add(datapath)
            run.silent.append(failure)


def deaf(run: Run, outcome: Outcome[SwitchFailures], relay: DatapathId) -> Failure | None:
    """The failure of a relay to take its rules, or None."""
    name = run.substrate.owned()[relay]
    away = Failure("relay", name, FailureKind.NOT_READY, "not ready for rules")
    failure = outcome.value_or({}).get(relay, away)
    return failure and replace(failure, step="relay", subject=name)
