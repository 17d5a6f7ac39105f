"""Lost circuits: withdrawn until they are gone from the state, too."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from apps.controller.auditor import Auditor
from hydra.model import DatapathId, NetworkState
from hydra.policy import CurrentPolicy, OnDrift, Policy
from hydra.reconfiguration.audit import Seen
from hydra.reconfiguration.drift import Drift, DriftKind, RuleDrift
from hydra.reconfiguration.plan import without
from tests.unit.controller.runners import at_once, awaited, course_of
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=2, planes=1, servers=1)
STATE = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))
CIRCUITS = STATE.topology.circuits
GONE = Seen(
    on_devices=(
        Drift(
            kind=DriftKind.CROSS_CONNECT,
            device="p1",
            subject="1 to 2",
            intended="connected",
            actual="nothing",
        ),
    ),
    broken=CIRCUITS,
    rules={},
    silent=(),
)
WHOLE = Seen(on_devices=(), broken=frozenset(), rules={}, silent=())


class Bench:
    """An auditor with given findings, and withdrawals that succeed on demand."""

    def __init__(self, *looks: Seen, **policy) -> None:
        self.state = STATE
        self.withdraws = False
        self.asked: list[frozenset] = []
        looks = iter(looks)
        self.mended: list[Seen] = []
        audit = SimpleNamespace(
            look=course_of(lambda everywhere: next(looks)),
            mend_rules=course_of(self.mended.append),
            clear_away=course_of(lambda: None),
        )
        ignored = SimpleNamespace(note_loss=lambda *_: None, keep_standing=lambda: None)
        self.network = self  # its state
        ledger = SimpleNamespace(network=self, log=ignored, reservations=ignored)
        planning = SimpleNamespace(without_circuits=self._without, restored=lambda state, *_: state)
        auditor = Auditor(
            policy=CurrentPolicy(Policy(**policy)),
            ledger=ledger,
            reach=SimpleNamespace(blocked_ports=frozenset),
            mover=SimpleNamespace(go=awaited(self._go)),
            planning=planning,
            audit=audit,
        )
        self.auditor = at_once(auditor)

    def _without(self, state, circuits):
        self.asked.append(frozenset(circuits))
        return without(state, circuits)

    def _go(self, target, *_):
        if self.withdraws:
            self.state = target
        return SimpleNamespace(id="x")


def test_a_withdrawal_that_was_held_up_is_tried_again_whatever_is_there_by_then():
    """Their pairs are diverted, and would stay electrical for good."""
    bench = Bench(GONE, GONE, WHOLE, WHOLE, WHOLE, WHOLE)
    bench.auditor.audit()
    bench.withdraws = True
    bench.auditor.audit()
    assert bench.asked == [CIRCUITS, CIRCUITS]
    assert not bench.state.topology.circuits


def test_what_is_withdrawn_is_not_asked_for_again():
    bench = Bench(GONE, GONE, WHOLE, WHOLE)
    bench.withdraws = True
    bench.auditor.audit()
    bench.auditor.audit()
    assert bench.asked == [CIRCUITS]


STRANGE = Seen(
    on_devices=GONE.on_devices,
    broken=CIRCUITS,
    rules={
        DatapathId(1): RuleDrift(
            (
                Drift(
                    kind=DriftKind.RULE,
                    device="v1",
                    subject="a rule",
                    intended="nothing",
                    actual="installed",
                ),
            ),
            (),
        )
    },
    silent=(),
)


def test_while_a_change_waits_rules_alone_are_mended_and_circuits_after_it():
    bench = Bench(STRANGE, WHOLE, WHOLE, WHOLE)
    bench.withdraws = True
    bench.auditor.audit_rules()
    assert (bench.mended, bench.asked) == ([STRANGE], [])
    bench.auditor.audit()  # they are back by now, and their pairs diverted
    assert bench.asked == [CIRCUITS]


def test_while_a_change_waits_nothing_is_mended_that_is_to_be_reported_or_is_no_rule():
    for looked, policy in ((GONE, {}), (STRANGE, {"on_drift": OnDrift.REPORT})):
        bench = Bench(looked, **policy)
        bench.auditor.audit_rules()
        assert bench.mended == []


def refusing(**counts):
    return replace(WHOLE, refused=counts)


def test_servers_whose_frames_are_dropped_are_named_while_that_goes_on():
    bench = Bench(
        refusing(h11=7, h12=0), refusing(h11=7, h12=3), refusing(h11=9), refusing(h11=9, h12=3)
    )
    named = []
    for _ in range(4):
        bench.auditor.look()
        named.append(sorted(bench.auditor.sending_foreign))
    assert named == [[], ["h12"], ["h11", "h12"], []], "h12's switch said nothing at the third"


def test_the_count_of_a_rule_that_was_made_anew_begins_at_0():
    bench = Bench(refusing(h11=7), refusing(h11=0), refusing(h11=2))
    named = []
    for _ in range(3):
        bench.auditor.look()
        named.append(sorted(bench.auditor.sending_foreign))
    assert named == [[], [], ["h11"]]
