"""Cycles that experiments inject in place of the controller's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hydra.forwarding.pipeline import COOKIE_KIND_EPOCH_MASK, RuleKind, cookie
from hydra.forwarding.resteering import steering_of
from hydra.forwarding.rules import FlowRule, Install, RemoveByCookie, RuleChange
from hydra.lifecycle import ReconfigurationState
from hydra.model import DatapathId, VlanId
from hydra.reconfiguration.activating import activate
from hydra.reconfiguration.commands import (
    ApplyRules,
    Batch,
    Command,
    Pause,
    StageRules,
    Steps,
    next_batch,
)
from hydra.reconfiguration.diverting import away, divert
from hydra.reconfiguration.gate import gate, tag_last
from hydra.reconfiguration.moving import move
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import rules_to_push, takes_rules
from hydra.reconfiguration.substeps import Cycle

_EMULATED_RACKS: Final = 0x1_0000
"""First metadata value of emulated racks, which do not exist; real racks stay below."""
TAGGING_S: Final = 1.2
RULE_S: Final = 2.2 / 5000
_PUSHES: Final = frozenset({"move", "make"})
"""Steps in which new circuit rules are pushed."""

Changes = Mapping[DatapathId, tuple[RuleChange, ...]]


class AsPublished(Cycle):
    """Divert, move, activate: no circuit is drained, and no new path is probed.

    HydRA's substeps 3-1 to 3-3, Helios' NOTIFY DOWN, CHANGE TOPOLOGY and NOTIFY UP (section 4.3.4),
    c-Through's order (section 5.1), and Mordia's ToRs, which send nothing while mirrors move.
    """

    others_beside = False

    def diverted(self, run: Run) -> Steps:
        rules_to_push(run)
        run.enter(ReconfigurationState.DIVERTING)
        yield from divert(run)
        run.enter(ReconfigurationState.DRAINING)
        run.enter(ReconfigurationState.MOVING)
        yield from move(run)
        yield from self._rest_of_move(run)
        run.enter(ReconfigurationState.GATING)
        yield from tag_last(run)  # also dark ports, which other cycles do not tag
        run.enter(ReconfigurationState.ACTIVATING)
        yield from activate(run)

    def _rest_of_move(self, _run: Run) -> Steps:
        """Further steps of a slower network in substep 3-2."""
        yield from ()


class Prototype(AsPublished):
    """As published, as slowly as HydRA's prototype (section V.B).

    Tagging the ports of a G8264 takes 1.2 s. Rules are pushed one after the other, at the rate of
    the paper's 5000 rules in 2.2 s, while ports are tagged.
    """

    def _rest_of_move(self, run: Run) -> Steps:
        yield Batch("move", (Pause(max(TAGGING_S, run.rules_pushed * RULE_S)),))


class Undiverted(Cycle):
    """Move mirrors under the traffic, as Abu-Tair et al. move their links.

    New rules take effect while mirrors move. New paths are probed afterwards.
    """

    others_beside = False

    def diverted(self, run: Run) -> Steps:
        rules_to_push(run)
        run.enter(ReconfigurationState.DIVERTING)
        _divert_nothing(run)
        run.enter(ReconfigurationState.DRAINING)
        run.enter(ReconfigurationState.MOVING)
        yield from move(run)
        run.enter(ReconfigurationState.GATING)
        yield from gate(run)
        run.enter(ReconfigurationState.ACTIVATING)
        yield from activate(run)


def _divert_nothing(run: Run) -> None:
    for switch, racks in steering_of(run.substrate, run.plan.affected).items():
        if switch.datapath in run.conditions.connected:
            run.diverted[switch] = set(racks)
        else:
            run.stuck.add(switch.datapath)
            run.silent.append(away(switch))


class Padded(Cycle):
    """A cycle whose pushes are filled up to a number of rules, as in HydRA's section V.B.

    The additional rules are for racks that do not exist. Additional rules of the previous change
    are removed at the end.
    """

    others_beside = False

    def __init__(self, *, cycle: Cycle, rules: int) -> None:
        self.cycle = cycle
        self._rules = rules

    def in_light(self, run: Run) -> Steps:
        yield from self._play(run, self.cycle.in_light(run))

    def diverted(self, run: Run) -> Steps:
        yield from self._play(run, self.cycle.diverted(run))

    def _play(self, run: Run, course: Steps) -> Steps:
        padding = _Padding(run, self._rules)
        batch = next_batch(course)
        while batch is not None:
            commands = tuple(padding.of(batch.step, command) for command in batch.commands)
            batch = next_batch(course, (yield replace(batch, commands=commands)))
        yield from _forget_earlier(run)


class _Padding:
    """Additional rules of one change.

    The same change always gets the same tuple objects: switches compare staged rules by identity.
    """

    def __init__(self, run: Run, rules: int) -> None:
        self._run = run
        self._rules = rules
        self._padded: tuple[Changes, Changes] | None = None

    def of(self, step: str, command: Command) -> Command:
        if isinstance(command, StageRules):
            return replace(command, changes=self._pad(command.changes))
        if isinstance(command, ApplyRules) and step in _PUSHES:
            padded = self._pad(command.changes)
            self._run.rules_pushed += _count(padded) - _count(command.changes)
            return replace(command, changes=padded)
        return command

    def _pad(self, changes: Changes) -> Changes:
        if self._padded is None or self._padded[0] != changes:
            self._padded = changes, self._filled_up(changes)
        return self._padded[1]

    def _filled_up(self, changes: Changes) -> Changes:
        """Spread the missing rules evenly over the switches that steer the pairs of the change."""
        run = self._run
        steering = (switch.datapath for switch in run.diverted)
        datapaths = {*changes, *(switch for switch in steering if takes_rules(run, switch))}
        missing = self._rules - _count(changes)
        if missing <= 0 or not datapaths:
            return changes
        share, rest = divmod(missing, len(datapaths))
        vlan, epoch = run.fabric.circuit_vlans.first, run.wanted.epoch
        padded = {}
        for index, datapath in enumerate(sorted(datapaths)):
            rules = emulated_rules(share + (index < rest), vlan, epoch)
            padded[datapath] = (*changes.get(datapath, ()), *map(Install, rules))
        return padded


def _count(changes: Changes) -> int:
    return sum(map(len, changes.values()))


def _forget_earlier(run: Run) -> Steps:
    epoch = cookie(RuleKind.EMULATED_CIRCUIT, run.began.epoch)
    stale = RemoveByCookie(epoch, COOKIE_KIND_EPOCH_MASK)
    taken = [switch.datapath for switch in run.diverted if takes_rules(run, switch.datapath)]
    if taken:
        outcomes = yield Batch("tidy", (ApplyRules(dict.fromkeys(taken, (stale,))),))
        run.note("tidy", outcomes)


def emulated_rules(count: int, vlan: VlanId, epoch: int) -> Sequence[FlowRule]:
    """``count`` circuit rules for racks that do not exist.

    So a small testbed has the costs of a large testbed's rules (HydRA section V.B). Successive
    epochs use different racks, so that every rule is new, as in the paper.
    """
    first = _EMULATED_RACKS + (epoch % 2) * 0x1_0000
    kind = RuleKind.EMULATED_CIRCUIT
    return [
        FlowRule(kind, (first + index, vlan), cookie(kind, epoch, first + index))
        for index in range(count)
    ]
