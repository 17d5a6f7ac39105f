"""Bundles of rules on simulated switches (lost, late, refused in part), and readings of tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import (
    ROUND_RULES,
    Install,
    InstallAll,
    Modify,
    Remove,
    RemoveByPort,
    RuleChange,
    installed,
    match_key,
)
from hydra.model import DatapathId
from hydra.reconfiguration.commands import (
    ApplyRules,
    AwaitRounds,
    AwaitSwitches,
    CompareRules,
    ConfirmRules,
    HeldRules,
    TakeSwitches,
)
from hydra.reconfiguration.drift import Drift, DriftKind, RuleDrift
from hydra.reconfiguration.relaying import relay_rules
from tests.unit.reconfiguration.simulation.clock import Late
from tests.unit.reconfiguration.simulation.faults import (
    LONGEST_DELAY_S,
    LONGEST_LAG_S,
    LONGEST_STANDSTILL_S,
    Doing,
    failure_of,
)
from tests.unit.reconfiguration.simulation.switches import Switches
from tests.unit.reconfiguration.simulation.uplinks import Stale


class Bundles(Switches):
    """Carries out commands to switches."""

    def apply(self, datapath: DatapathId, changes: Sequence[RuleChange]) -> None:
        """One atomic bundle."""
        table = self.tables[datapath]
        self.rules_changed(datapath)
        cached_s = lag_s = self.rng.choice((0.0, 0.01, LONGEST_LAG_S))
        lags_s = self.lags_until_s.get(datapath, 0.0)
        self.lags_until_s[datapath] = max(lags_s, self.now_s + lag_s)
        rack = self.rack_of.get(datapath)
        if rack is not None and self.hit(self.faults.standstill):
            lag_s = self.rng.choice((0.5, LONGEST_STANDSTILL_S)) * self.rng.random()
            still_s = self.still_until_s.get(rack, 0.0)
            self.still_until_s[rack] = max(still_s, self.now_s + lag_s)
            (self.still_and_telling.add if self.hit(0.5) else self.still_and_telling.discard)(rack)
        if lag_s:
            stale = Stale(self.now_s + lag_s, self.now_s + cached_s, dict(table))
            self.stale.setdefault(datapath, []).append(stale)
        for change in changes:
            self._name_ports(datapath, change)
            if isinstance(change, Install | InstallAll):
                table.update((match_key(rule), rule) for rule in installed([change]))
            elif isinstance(change, Remove):
                table.pop(match_key(change.rule), None)
            elif isinstance(change, Modify):
                if match_key(change.rule) in table:
                    table[match_key(change.rule)] = change.rule
            elif isinstance(change, RemoveByPort):
                for key in self._about_port(datapath, change.number):
                    del table[key]
            else:
                gone = [k for k, r in table.items() if r.cookie & change.mask == change.cookie]
                for key in gone:
                    del table[key]

    def apply_rules(self, command: ApplyRules) -> Doing:
        failures: dict[DatapathId, Failure | None] = {}
        left = dict(command.changes)
        self.late.under_way.append(left)
        slow = self.late.slow
        if slow and not command.hurries:
            self.late.of_command[id(command)] = left
        asked = set(filter(self.hears, left))
        order = self.rng.sample(sorted(command.changes), len(command.changes))
        for datapath in sorted(order, key=slow.__contains__):
            kind = None
            del left[datapath]
            owes_more = datapath in self.late.mute and datapath in asked
            if not self.hears(datapath) and not owes_more:
                kind = FailureKind.NOT_CONNECTED
            elif command.hurries and datapath in self.late.slow:
                failures[datapath] = failure_of(command, FailureKind.LATE)
                self._be_late(datapath, command.changes[datapath])
                yield
                continue
            elif self.hit(self.faults.vswitch):
                kind = self.rng.choice((FailureKind.REFUSED, FailureKind.UNKNOWN))
            if kind is None or (kind is FailureKind.UNKNOWN and self.hit(0.5)):
                self.apply(datapath, command.changes[datapath])
            elif kind is FailureKind.REFUSED and self.hit(0.5):
                self.apply(datapath, self.without_members(command.changes[datapath]))
            elif kind is FailureKind.UNKNOWN:
                change = partial(self.apply, datapath, command.changes[datapath])
                self.postpone(self.name_of(datapath), [change], datapath)
            if kind is not None and self.hit(0.5):
                self.connected.discard(datapath)
            failures[datapath] = kind and failure_of(command, kind)
            yield
        self.late.of_command.pop(id(command), None)
        return failures, None

    def without_members(self, changes: Sequence[RuleChange]) -> list[RuleChange]:
        """A bundle that is committed without the rules that its switch refused when they were
        added: those of one kind.
        """
        rules = [one for one in changes if isinstance(one, Install | InstallAll)]
        kinds = sorted({rule.kind for rule in installed(rules)}, key=lambda kind: kind.value)
        unknown = self.rng.choice(kinds) if kinds else None
        return [
            InstallAll(tuple(rule for rule in installed([one]) if rule.kind is not unknown))
            if isinstance(one, Install | InstallAll)
            else one
            for one in changes
        ]

    def _be_late(self, datapath: DatapathId, changes: Sequence[RuleChange]) -> None:
        self.connected.discard(datapath)
        self.late.mute.add(datapath)
        self.come_late(datapath, changes)

    def come_late(self, datapath: DatapathId, changes: Sequence[RuleChange]) -> None:
        when_s = self.now_s + self.rng.uniform(0.0, LONGEST_DELAY_S)
        change = partial(self.apply, datapath, changes)
        self.late.changes.append(Late(when_s, change, datapath, self.late.term))

    def take_switches(self, command: TakeSwitches) -> Doing:
        heard = frozenset(filter(self.hears, command.datapaths))
        self.late.taken_in |= dict.fromkeys(heard, self.late.term)
        yield
        return heard, None

    def await_rounds(self, command: AwaitRounds) -> Doing:
        """Rounds end by themselves; where a ToR stands still, vswitches forward all the same."""
        until_s = max((self.lags_until_s.get(one, 0.0) for one in command.datapaths), default=0.0)
        self.now_s = max(self.now_s, until_s)
        yield
        return frozenset(), None

    def await_switches(self, command: AwaitSwitches) -> Doing:
        if not self.connected.issuperset(command.datapaths):
            self.now_s += command.timeout_s
        yield
        return frozenset(self.connected), None

    def compare_rules(self, command: CompareRules) -> Doing:
        """As tables are: silent switches say nothing."""
        found: dict[DatapathId, RuleDrift] = {}
        for datapath, installations in command.intended.items():
            if not self.hears(datapath) or self.hit(self.faults.read):
                continue
            wanted = {match_key(rule): rule.args for rule in installed(installations)}
            held = {key: rule.args for key, rule in self.tables[datapath].items()}
            keys = wanted.keys() | held.keys()
            differing = [key for key in keys if wanted.get(key) != held.get(key)]
            differing += [match_key(rule) for rule in self.misnamed(datapath)]
            foreign = [Remove(self.tables[datapath][key]) for key in held.keys() - wanted.keys()]
            name = self.name_of(datapath)
            items = [
                Drift(
                    kind=DriftKind.RULE,
                    device=name,
                    subject=str(key),
                    intended=str(wanted.get(key)),
                    actual=str(held.get(key)),
                )
                for key in sorted(differing, key=str)
            ]
            found[datapath] = RuleDrift(tuple(items), tuple(foreign))
        yield
        return found, None

    def confirm_rules(self, command: ConfirmRules) -> Doing:
        """As tables are: silent switches say nothing."""
        exact, rounds, relays = set(), {}, {}
        for datapath, installations in command.intended.items():
            if self.hears(datapath) and not self.hit(self.faults.read):
                wanted = {match_key(rule): rule.args for rule in installed(installations)}
                table = self.tables[datapath]
                held = {key: rule.args for key, rule in table.items()}
                if held == wanted and not self.misnamed(datapath):
                    exact.add(datapath)
                else:
                    cookies = {rule.cookie for rule in ROUND_RULES.rules}
                    rounds[datapath] = frozenset(
                        rule.cookie for rule in table.values() if rule.cookie in cookies
                    )
                    relays[datapath] = list(relay_rules(table.values()))
        yield
        return HeldRules(frozenset(exact), rounds, relays), None
