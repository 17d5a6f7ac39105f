"""The mover's reports of a reconfiguration under way: on a simulated network."""

import logging
import random
import threading
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from apps.controller.mover import Mover
from apps.controller.record.ledger import Ledger
from apps.process.metrics import Metrics
from hydra.errors import PlanError
from hydra.failures import Failure, FailureKind
from hydra.journal import JournalError
from hydra.lifecycle import ReconfigurationState
from hydra.model import Fabric, NetworkState, PlaneId, RackId
from hydra.policy import CurrentPolicy, DrainPolicy, OnSilence, Policy
from hydra.reconfiguration.commands import AwaitPortsUp
from hydra.reconfiguration.plan import diff
from tests.journals import SqliteJournal
from tests.unit.controller.runners import at_once, awaited
from tests.unit.controller.ways import ways_of
from tests.unit.core.fabrics import (
    circuit_between,
    order_of,
    path_of,
    small_fabric,
    state_of,
)
from tests.unit.reconfiguration.simulation.faults import Faults
from tests.unit.reconfiguration.simulation.network import Network, conditions_of
from topology.marks import marks_of

FABRIC = small_fabric(racks=3, planes=1, servers=2)
POLICY = CurrentPolicy(Policy(drain=DrainPolicy(reads=3, interval_ms=12.0, bound_ms=100.0)))
EMPTY = NetworkState()


class NotingRunner:
    """Carries out batches, and records the ledger's state at each batch."""

    def __init__(
        self,
        ledger: Ledger,
        faults: Faults | None = None,
        state: NetworkState = EMPTY,
        fabric: Fabric = FABRIC,
    ) -> None:
        self.network = Network(fabric, state, random.Random(1))
        self.network.faults = faults or Faults()
        self.conditions = conditions_of(self.network, state)
        self._ledger = ledger
        self.seen = []
        self.steps = []
        self.rested_s = []

    def perform(self, batch):
        if batch.step == "rest":
            self.rested_s.append(batch.commands[0].seconds)
            time.sleep(batch.commands[0].seconds)
        else:
            self.steps.append(batch.step)
            (one,) = self._ledger.log.reconfigurations()
            self.seen.append((one.state.value, len(one.timeline)))
        return self.network.perform(batch, lambda _command: None)


TARGET = state_of(FABRIC, EMPTY, path_of(FABRIC, 0, 1))


def mover_of(ledger, runner, plan=None, policy=POLICY, fabric=FABRIC, **upkeeps):
    order, plan = order_of(fabric), plan or partial(diff, fabric)
    planning = SimpleNamespace(
        diff=lambda now, then: plan(now, then, order),
        order_of=order,
        toward=marks_of(fabric).state,
    )
    upkeep = SimpleNamespace(
        devices=SimpleNamespace(make_certain=awaited(lambda _plan: None)),
        tidy_relays=awaited(lambda: None),
        take_over=lambda _execution: None,
        start_over=lambda _execution: None,
        **upkeeps,
    )
    reach = SimpleNamespace(conditions=lambda: runner.conditions, blocked_ports=frozenset)
    announcer = SimpleNamespace(suspended=threading.Lock())
    mover = Mover(
        fabric=fabric,
        policy=policy,
        planning=planning,
        upkeep=upkeep,
        reach=reach,
        announcer=announcer,
        ledger=ledger,
        ways=ways_of(fabric, policy, planning, reach, ledger),
    )
    return at_once(mover, runner.perform)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def ledger(metrics):
    return Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"), metrics=metrics)


@pytest.fixture
def moved(caplog, ledger, metrics):
    """(Ledger, runner, metrics) after a reconfiguration."""
    caplog.set_level(logging.DEBUG, "hydra.mover")
    runner = NotingRunner(ledger)
    mover_of(ledger, runner).move(ledger.log.enter("operator"), TARGET)
    return ledger, runner, metrics


def test_a_plan_that_can_not_be_is_refused(ledger):
    def unsound(now, then, _order):
        raise PlanError(f"{len(then.topology.paths)} path of {len(now.topology.paths)} is unsound")

    entry = ledger.log.enter("operator")
    with pytest.raises(PlanError):
        mover_of(ledger, NotingRunner(ledger), unsound).move(entry, TARGET)
    (one,) = ledger.log.reconfigurations()
    assert one.state is ReconfigurationState.REFUSED
    assert one.reason == "1 path of 0 is unsound"


def test_who_is_closed_out_is_gone_around_from_the_next_step_on(metrics):
    """And at no earlier batch: frames sent there by others would be lost."""
    fabric_state = state_of(FABRIC, EMPTY, path_of(FABRIC, 0, 1))
    ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"), metrics=metrics)
    ledger.network.settle(fabric_state)
    runner = NotingRunner(ledger, state=fabric_state)
    silent = FABRIC.servers[0]
    runner.network.connected.discard(silent.vswitch.datapath_id)
    runner.conditions = conditions_of(runner.network, fabric_state)
    followed = []
    mover = mover_of(
        ledger,
        runner,
        policy=CurrentPolicy(replace(POLICY.now, on_silent_vswitch=OnSilence.CLOSE)),
        follow_closed_meanwhile=lambda change: followed.append(set(change.closed)),
    )
    mover.move(ledger.log.enter("operator"), state_of(FABRIC, fabric_state))
    assert followed[0] == {silent.name}
    closing = runner.steps.index("close")
    assert len(followed) == len(runner.steps[closing + 1 :])


def test_while_vlan_ids_rest_somebody_looks_around(ledger, monkeypatch):
    runner = NotingRunner(ledger)
    looks, rested_s = [], runner.rested_s
    monkeypatch.setattr(ledger.network, "rest_s", lambda *_: 0.6)
    mover = mover_of(ledger, runner)
    look = awaited(lambda: looks.append(ledger.log.reconfigurations()[0].state))
    mover.while_waiting(look)
    mover.move(ledger.log.enter("operator"), TARGET)
    assert looks == [ReconfigurationState.QUEUED] * len(rested_s)
    assert sum(rested_s) <= 0.6
    assert len(looks) >= 3
    assert ledger.log.reconfigurations()[0].state is ReconfigurationState.DONE


def test_one_that_broke_off_has_failed_and_was_not_refused(ledger):
    runner = NotingRunner(ledger)

    def full(_batch, _look):
        raise JournalError("disk full")

    runner.network.perform = full
    entry = ledger.log.enter("operator")
    with pytest.raises(JournalError, match="disk full"):
        mover_of(ledger, runner).move(entry, TARGET)
    ledger.log.refuse(entry, "somebody says so later")
    (one,) = ledger.log.reconfigurations()
    assert (one.state, one.reason) == (ReconfigurationState.FAILED, "disk full")


def test_a_search_without_result_is_not_taken_for_the_end_of_a_change(ledger, monkeypatch):
    update = ledger.log.update

    def search(identifier, **changes):
        if changes.get("state") is ReconfigurationState.GATING:
            next(iter(()))
        update(identifier, **changes)

    monkeypatch.setattr(ledger.log, "update", search)
    with pytest.raises(RuntimeError, match="StopIteration"):
        mover_of(ledger, NotingRunner(ledger)).move(ledger.log.enter("operator"), TARGET)
    (one,) = ledger.log.reconfigurations()
    assert one.state is ReconfigurationState.FAILED


PORT = "r1:" + FABRIC.ports_of(RackId(0))[0].tor_port


@pytest.mark.parametrize(
    ("faults", "failure"),
    [
        (
            Faults(no_carrier=1.0),
            Failure("carrier", PORT, FailureKind.NO_CARRIER, f"no carrier at {PORT} within 3 s"),
        ),
        (
            Faults(probe=1.0),
            Failure(
                "probe",
                "r1 - r2",
                FailureKind.PROBE_LOST,
                "no probe came through h11 to h21, h21 to h11",
            ),
        ),
    ],
    ids=["carrier", "probe"],
)
def test_what_does_not_pass_the_gate_is_told_and_counted(ledger, metrics, faults, failure):
    runner = NotingRunner(ledger, faults)
    mover_of(ledger, runner).move(ledger.log.enter("operator"), TARGET)
    (one,) = ledger.log.reconfigurations()
    assert one.state is ReconfigurationState.PARTIAL
    assert one.troubles == (failure,)
    assert [each.failure for each in one.failures] == [failure]
    assert one.reason == str(failure)
    labels = {"step": failure.step, "kind": failure.kind.value}
    assert metrics.registry.get_sample_value("hydra_gate_failures_total", labels) == 1
    samples = [s for family in metrics.registry.collect() for s in family.samples]
    counted = [s for s in samples if s.name == "hydra_gate_failures_total" and s.value]
    assert [s.labels for s in counted] == [labels]
    assert not any(s.value for s in samples if s.name == "hydra_step_failures_total")


def test_a_device_that_refuses_is_counted_by_its_step(ledger, metrics):
    runner = NotingRunner(ledger)
    refused = Failure("move", "p1", FailureKind.REFUSED, "p1: mirror stuck")

    def stuck(_command):
        return None, refused
        yield

    runner.network.move_mirrors = stuck
    mover_of(ledger, runner).move(ledger.log.enter("operator"), TARGET)
    (one,) = ledger.log.reconfigurations()
    assert one.troubles == (Failure("mirrors", "p1", FailureKind.REFUSED, "OCS p1: mirror stuck"),)
    assert one.unconfirmed == ("p1",)
    labels = {"step": "mirrors", "kind": "refused"}
    assert metrics.registry.get_sample_value("hydra_step_failures_total", labels) == 1


def test_the_timeline_grows_while_it_runs(moved):
    ledger, runner, _ = moved
    (one,) = ledger.log.reconfigurations()
    lengths = [length for _, length in runner.seen]
    assert lengths[0] == 0
    assert lengths == sorted(lengths)
    assert 0 < lengths[-1] <= len(one.timeline)
    assert one.state.value == "done"
    states = [state for state, _ in runner.seen]
    assert list(dict.fromkeys(states))[:3] == ["queued", "diverting", "moving"]


def test_it_is_counted_once_with_its_substeps(moved):
    ledger, _, metrics = moved
    (one,) = ledger.log.reconfigurations()
    value = metrics.registry.get_sample_value
    ended = {"trigger": "operator", "state": "done"}
    assert value("hydra_reconfigurations_total", ended) == 1
    for substep in {step.step for step in one.timeline if step.device is None}:
        count = "hydra_reconfiguration_substep_duration_seconds_count"
        assert value(count, {"substep": substep}) == sum(
            step.step == substep and step.device is None for step in one.timeline
        )


def test_the_log_tells_its_beginning_its_steps_and_its_end(moved, caplog):
    told = [r.getMessage() for r in caplog.get_records("setup") if r.name == "hydra.mover"]
    assert told[0] == "begins: 0 circuits down, 1 up, 1 pairs affected: r1 - r2"
    assert any(line.startswith("divert: ") for line in told)
    assert told[-1].startswith("ends done after ")


# -- several courses ------------------------------------------------------------------------------

WIDE = small_fabric(racks=4, planes=3, servers=1)


def swapped(metrics, *dark, urgent=False):
    """(Ledger, runner, target) after two pairs exchanged planes, with ``dark`` planes."""

    def on(plane, other):
        return path_of(WIDE, 0, other, circuit_between(WIDE, 0, other, plane))

    before = state_of(WIDE, EMPTY, on(0, 1), on(1, 2))
    target = state_of(WIDE, before, on(1, 1), on(0, 2))
    ledger = Ledger(fabric=WIDE, journal=SqliteJournal(":memory:"), metrics=metrics)
    ledger.network.settle(before)
    runner = NotingRunner(ledger, state=before, fabric=WIDE)
    runner.network.perform = without_light(runner.network.perform, dark)
    mover = mover_of(ledger, runner, fabric=WIDE)
    mover.move(ledger.log.enter("operator"), target, gives_way=not urgent)
    return ledger, runner, target


def without_light(perform, dark):
    """Batches as performed, except that ports on ``dark`` planes never come up."""

    def performed(batch, look):
        def of(command, outcome):
            if not isinstance(command, AwaitPortsUp):
                return outcome
            ports = (WIDE.port_by_name[WIDE.racks[command.rack].name, one] for one in command.ports)
            lost = tuple(port.tor_port for port in ports if port.plane in dark)
            return replace(outcome, value=lost)

        return [of(*both) for both in zip(batch.commands, perform(batch, look), strict=True)]

    return performed


def test_pairs_that_need_each_others_ports_never_leave_the_light(metrics):
    ledger, runner, target = swapped(metrics)
    assert ledger.network.state.topology == target.topology
    assert runner.steps.count("shift") == 3
    assert "divert" not in runner.steps
    (entry,) = ledger.log.reconfigurations()
    assert entry.state is ReconfigurationState.DONE


def test_what_somebody_waits_for_takes_one_course_where_ports_are_needed(metrics):
    """A change for a reservation, or a repair."""
    ledger, runner, target = swapped(metrics, urgent=True)
    assert ledger.network.state.topology == target.topology
    assert runner.steps.count("divert") == 1
    assert "shift" not in runner.steps


def test_a_pair_that_can_not_move_aside_is_diverted_with_the_others(metrics):
    ledger, runner, target = swapped(metrics, PlaneId(2))
    assert ledger.network.state.topology == target.topology
    assert "divert" in runner.steps
    (entry,) = ledger.log.reconfigurations()
    assert entry.state is ReconfigurationState.PARTIAL
    assert {one.circuit.plane for one in entry.failures} == {PlaneId(2)}


def test_a_circuit_that_failed_its_probes_does_not_come_up_without_its_path(metrics):
    """The pair stays on its old path; without a path, no probe would prove the circuit's light."""
    before = state_of(WIDE, EMPTY, path_of(WIDE, 0, 1, circuit_between(WIDE, 0, 1, 0)))
    target = state_of(WIDE, before, path_of(WIDE, 0, 1, circuit_between(WIDE, 0, 1, 1)))
    ledger = Ledger(fabric=WIDE, journal=SqliteJournal(":memory:"), metrics=metrics)
    ledger.network.settle(before)
    runner = NotingRunner(ledger, Faults(probe=1.0), before, WIDE)
    mover_of(ledger, runner, fabric=WIDE).move(ledger.log.enter("operator"), target)
    assert runner.steps.count("shift") == 0
    assert ledger.network.state.topology == before.topology
    (entry,) = ledger.log.reconfigurations()
    assert entry.state is ReconfigurationState.PARTIAL
    assert {one.circuit for one in entry.failures} == target.topology.circuits
