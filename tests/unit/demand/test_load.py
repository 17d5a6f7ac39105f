"""The load of the last hour: kept samples, unknown samples, and dropped columns."""

import math
import threading
import time

import numpy as np
import pytest

from apps.demand.load_recorder import LoadRecorder
from apps.process.configuration import load_configuration
from hydra.demand.load import LOAD_S, LoadLog
from hydra.model import Circuit, OneWayCircuit, Path, PlaneId, PortId, RackId, Topology
from hydra.policy import Policy
from tests.unit.cli import CONFIGS
from tests.waiting import remains, wait_until

FABRIC = load_configuration(CONFIGS / "demo.yaml").fabric
P1, P2 = PlaneId(0), PlaneId(1)
ONE, OTHER = Circuit(P1, PortId(0), PortId(2)), Circuit(P2, PortId(1), PortId(3))
"""Both from r1 to r2."""
QUIET = np.zeros((4, 4))
STEP_S = 10.0


def pairs(**mbps):
    """``pairs(r1_r2=5)``; the others are 0."""
    found = np.zeros((4, 4))
    for name, rate in mbps.items():
        src, dst = (int(rack[1:]) - 1 for rack in name.split("_"))
        found[src, dst] = rate
    return found


def take(log, at_s, circuits, ports_mbps, pairs_mbps):
    log.take(at_s, Topology(frozenset(circuits)), ports_mbps, pairs_mbps, 0)


def told(log, now_s, circuits=(ONE,), racks=(), most=10):
    return log.load(now_s, 1000.0 + now_s, circuits, racks, most)


def known(series):
    return [None if math.isnan(one) else float(one) for one in series]


def test_each_end_of_a_circuit_has_its_own_rates():
    log = LoadLog(FABRIC, STEP_S)
    for step in range(3):
        take(log, step * STEP_S, {ONE}, {PortId(0): 10.0 * step, PortId(2): 0.0}, QUIET)
    found = told(log, 25.0)
    assert found.interval_s == STEP_S
    assert found.unix_s.tolist() == [1000.0, 1010.0, 1020.0]
    (circuit,) = found.circuits
    assert circuit.circuit == ONE
    assert known(circuit.a_to_b_mbps) == [0.0, 10.0, 20.0]
    assert known(circuit.b_to_a_mbps) == [0.0, 0.0, 0.0], "nothing was sent, and that is known"


def test_totals_tell_what_all_pairs_carry_and_pairs_with_circuits():
    log = LoadLog(FABRIC, STEP_S)
    path = Path(RackId(0), RackId(1), (ONE,))
    standing = Topology(frozenset({ONE}), (path,))
    unknown = np.full((4, 4), np.nan)
    log.take(0.0, Topology(), {}, pairs(r1_r2=5, r3_r4=1), 0)
    log.take(10.0, standing, {}, pairs(r1_r2=5, r2_r1=2, r3_r4=1), 1)
    log.take(20.0, standing, {}, unknown, 1)
    log.take(50.0, standing, {}, np.where(pairs(r1_r2=1), 5.0, np.nan), 2)
    totals = told(log, 50.0).totals
    assert known(totals.carried_mbps) == [6.0, 8.0, None, None, 5.0]
    assert known(totals.with_circuits_mbps) == [0.0, 7.0, None, None, 5.0]
    assert known(totals.circuits) == [0.0, 1.0, 1.0, None, 1.0]
    assert known(totals.reservations) == [0.0, 1.0, 1.0, None, 2.0]


def test_pairs_of_a_one_way_path_have_circuits_in_its_direction_alone():
    log = LoadLog(FABRIC, STEP_S)
    circuit = OneWayCircuit(P1, PortId(0), PortId(2))
    topology = Topology(frozenset({circuit}), (Path(RackId(0), RackId(1), (circuit,)),))
    log.take(0.0, topology, {}, pairs(r1_r2=5, r2_r1=2), 0)
    assert known(told(log, 0.0).totals.with_circuits_mbps) == [5.0]


def test_a_poll_that_fails_leaves_a_gap():
    log = LoadLog(FABRIC, STEP_S)
    take(log, 0.0, {ONE}, {PortId(0): 5.0, PortId(2): 1.0}, pairs(r1_r2=5))
    take(log, 10.0, {ONE}, {PortId(2): 1.0}, np.where(QUIET, 0, np.nan))
    take(log, 20.0, {ONE}, {PortId(0): 7.0, PortId(2): 1.0}, pairs(r1_r2=7))
    found = told(log, 20.0, racks=[RackId(0), RackId(1)])
    assert known(found.circuits[0].a_to_b_mbps) == [5.0, None, 7.0]
    assert known(found.circuits[0].b_to_a_mbps) == [1.0, 1.0, 1.0]
    assert [known(one.mbps) for one in found.pairs] == [[5.0, None, 7.0], [0.0, None, 0.0]]


def test_samples_that_were_not_taken_are_unknown():
    log = LoadLog(FABRIC, STEP_S)
    for at_s in (0.0, 10.0, 300.0):
        take(log, at_s, {ONE}, {PortId(0): 5.0, PortId(2): 5.0}, QUIET)
    found = told(log, 300.0)
    assert found.unix_s.tolist() == [1000.0, 1010.0, 1020.0, 1300.0]
    assert known(found.circuits[0].a_to_b_mbps) == [5.0, 5.0, None, 5.0]


def test_a_circuit_that_is_gone_leaves_and_one_that_comes_back_starts_anew():
    log = LoadLog(FABRIC, STEP_S)
    rates = {PortId(port): 30.0 for port in range(4)}
    take(log, 0.0, {ONE, OTHER}, rates, QUIET)
    take(log, 10.0, {OTHER}, rates, QUIET)
    assert [one.circuit for one in told(log, 15.0, {OTHER}).circuits] == [OTHER]
    take(log, 20.0, {ONE, OTHER}, rates, QUIET)
    by_circuit = {one.circuit: one for one in told(log, 20.0, {ONE, OTHER}).circuits}
    assert known(by_circuit[ONE].a_to_b_mbps) == [None, None, 30.0]
    assert known(by_circuit[OTHER].a_to_b_mbps) == [30.0, 30.0, 30.0]


def test_another_circuit_of_a_port_is_not_told_its_past():
    log = LoadLog(FABRIC, STEP_S)
    elsewhere = Circuit(P1, PortId(0), PortId(4))
    take(log, 0.0, {ONE}, {PortId(0): 30.0}, QUIET)
    (circuit,) = told(log, 5.0, {elsewhere}).circuits
    assert known(circuit.a_to_b_mbps) == [None], "before the first sample of it, too"
    take(log, 10.0, {elsewhere}, {PortId(0): 8.0}, QUIET)
    assert known(told(log, 10.0, {elsewhere}).circuits[0].a_to_b_mbps) == [None, 8.0]


def test_a_one_way_circuit_has_one_direction():
    log = LoadLog(FABRIC, STEP_S)
    ring = [OneWayCircuit(P1, PortId(a), PortId(b)) for a, b in ((0, 2), (2, 4), (4, 0))]
    take(log, 0.0, ring, {PortId(0): 1.0, PortId(2): 2.0, PortId(4): 3.0}, QUIET)
    found = told(log, 0.0, ring).circuits
    assert [(one.circuit, known(one.a_to_b_mbps), one.b_to_a_mbps) for one in found] == [
        (ring[2], [3.0], None),
        (ring[1], [2.0], None),
        (ring[0], [1.0], None),
    ]


def test_an_hour_is_told_and_no_more():
    log = LoadLog(FABRIC, STEP_S)
    steps = 1000
    for step in range(steps):
        take(log, step * STEP_S, {ONE}, {PortId(0): float(step), PortId(2): 0.0}, QUIET)
    found = told(log, (steps - 1) * STEP_S)
    assert len(found.unix_s) == LOAD_S / STEP_S
    assert known(found.circuits[0].a_to_b_mbps) == [float(step) for step in range(640, steps)]
    late = told(log, (steps - 1) * STEP_S + LOAD_S - STEP_S)
    assert len(late.unix_s) == 2, "what is older than an hour is not told, though it is there"


def test_pairs_that_carry_most_are_kept_and_the_highest_rate_comes_first():
    log = LoadLog(FABRIC, STEP_S, most_pairs=2)
    take(log, 0.0, (), {}, pairs(r1_r2=50, r1_r3=40, r3_r4=1))
    take(log, 10.0, (), {}, pairs(r1_r2=2, r3_r4=45))
    found = told(log, 10.0).pairs
    assert [(int(one.src), int(one.dst), known(one.mbps)) for one in found] == [
        (0, 1, [50.0, 2.0]),  # the busiest in the hour
        (2, 3, [None, 45.0]),  # in place of r1 to r3, whose earlier samples are dropped
    ]
    asked = told(log, 10.0, racks=[RackId(2), RackId(0)]).pairs
    assert [known(one.mbps) for one in asked] == [[None, None]] * 2, "unknown, never 0"


def test_circuits_and_pairs_are_found_by_their_racks():
    log = LoadLog(FABRIC, STEP_S)
    far = Circuit(P1, PortId(4), PortId(6))
    take(log, 0.0, {ONE, far}, {PortId(0): 1.0, PortId(4): 9.0}, pairs(r1_r2=1, r3_r4=9))
    assert [one.circuit for one in told(log, 0.0, {ONE, far}).circuits] == [far, ONE]
    at_r1 = told(log, 0.0, {ONE, far}, [RackId(0)])
    assert [one.circuit for one in at_r1.circuits] == [ONE]
    assert [(one.src, one.dst) for one in at_r1.pairs] == [(0, 1)]
    assert len(told(log, 0.0, {ONE, far}, most=1).circuits) == 1


def test_memory_is_bounded_by_the_fabric():
    fabric = load_configuration(CONFIGS / "reference.yaml").fabric
    assert (len(fabric.racks), len(fabric.planes)) == (320, 32)
    log = LoadLog(fabric, STEP_S)
    size_bytes = log.size_bytes
    assert size_bytes == 14_745_600 + 1_474_560 + 16_832  # as documented in the module
    rng = np.random.default_rng(1)
    for step in range(5):
        take(log, step * STEP_S, (), {}, rng.random((320, 320)))
    assert log.size_bytes == size_bytes
    assert len(told(log, 4 * STEP_S, (), most=100).pairs) == 100


class Poller:
    """Counters of all ports, all read and at 0, where anything is polled."""

    def __init__(self, enabled):
        self.enabled = enabled

    def known_mbps(self):
        return QUIET


def recorder(poll_interval_s, clock=lambda: 0.0):
    policy = Policy(poll_interval_s=poll_interval_s)
    poller = Poller(poll_interval_s > 0)
    return LoadRecorder(
        fabric=FABRIC,
        policy=policy,
        poller=poller,
        port_rates_mbps=lambda: {PortId(0): 4.0},
        topology=lambda: Topology(frozenset({ONE})),
        reservations=lambda: 2,
        clock=clock,
    )


def test_nothing_is_recorded_where_nothing_is_polled():
    idle = recorder(0.0)
    idle.start()
    idle.sample()
    found = idle.load((), 10)
    idle.stop()
    assert (found.interval_s, len(found.unix_s), found.circuits, found.pairs) == (None, 0, (), ())
    assert "load-recorder" not in {thread.name for thread in threading.enumerate()}


def test_samples_are_taken_until_the_end(monkeypatch):
    monkeypatch.setattr("apps.demand.load_recorder.LOAD_INTERVAL_S", 0.01)
    running = recorder(0.01, time.monotonic)
    running.start()
    wait_until(lambda: len(running.load((), 10).unix_s) >= 3)
    running.stop()
    many = len(running.load((), 10).unix_s)
    assert known(running.load((), 10).circuits[0].a_to_b_mbps)[0] == 4.0
    assert remains(lambda: len(running.load((), 10).unix_s) == many)


def test_a_sample_that_fails_is_logged_and_the_next_one_is_taken(monkeypatch, caplog):
    monkeypatch.setattr("apps.demand.load_recorder.LOAD_INTERVAL_S", 0.01)
    running = recorder(0.01, time.monotonic)
    fails = iter([True])
    take = running.sample

    def sample():
        if next(fails, False):
            raise KeyError("a port that is gone")
        take()

    monkeypatch.setattr(running, "sample", sample)
    running.start()
    wait_until(lambda: len(running.load((), 10).unix_s) >= 1)
    running.stop()
    assert "a sample of the load failed; the next one follows" in caplog.messages


@pytest.mark.parametrize(("poll_s", "interval_s"), [(0.5, 10.0), (60.0, 60.0)])
def test_polls_are_thinned_to_one_in_ten_seconds(poll_s, interval_s):
    running = recorder(poll_s)
    running.sample()
    found = running.load((), 10)
    assert found.interval_s == interval_s
    assert known(found.circuits[0].a_to_b_mbps) == [4.0]
    assert known(found.circuits[0].b_to_a_mbps) == [None]
