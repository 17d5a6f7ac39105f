import numpy as np
import pytest

from hydra.policy import Policy
from hydra.service import DemandReport, DemandSource
from hydra.worth import doubting, judge, keep
from tests.unit.core.fabrics import small_fabric

POLICY = Policy(
    gain_horizon_s=10.0, gain_factor=2.0, minimum_gain_mbps=5.0, minimum_circuit_life_s=5.0
)


def verdict(**changes):
    case = {
        "served_now_mbps": 20.0,
        "served_then_mbps": 100.0,
        "disturbed_mbps": 100.0,
        "outage_s": 0.5,
    }
    return judge(POLICY, **{**case, **changes})


def test_a_change_that_pays():
    found = verdict()
    assert found.pays
    assert found.reason == "gains 800.0 Mbit for a cost of 50.0 Mbit"
    assert (found.gain_mbps, found.gain_mbit, found.cost_mbit) == (80.0, 800.0, 50.0)


def test_too_small_a_gain():
    found = verdict(served_then_mbps=24.9)
    assert not found.pays
    assert found.reason == "gains 4.9 Mb/s, less than 5 Mb/s"


def test_a_loss_is_not_a_gain():
    assert not verdict(served_then_mbps=0.0, disturbed_mbps=0.0).pays


def test_too_dear():
    found = verdict(served_then_mbps=30.0, disturbed_mbps=100.0, outage_s=0.6)
    assert not found.pays
    assert found.reason == ("gains 100.0 Mbit in 10 s, less than 2 times its cost of 60.0 Mbit")


@pytest.mark.parametrize(
    ("young", "told"),
    [(1, "1 circuit younger than 5 s"), (1200, "1,200 circuits younger than 5 s")],
)
def test_circuits_that_were_left_alone_are_counted(young, told):
    found = verdict(young_circuits=young)
    assert found.pays
    assert found.reason == f"gains 800.0 Mbit for a cost of 50.0 Mbit; {told} left alone"


@pytest.mark.parametrize(
    "on_the_edge",
    [
        {"served_then_mbps": 25.0, "disturbed_mbps": 0.0},
        {"served_then_mbps": 30.0, "disturbed_mbps": 100.0, "outage_s": 0.5},
    ],
)
def test_a_limit_that_is_just_met_is_met(on_the_edge):
    assert verdict(**on_the_edge).pays


@pytest.mark.parametrize(
    ("racks", "named"),
    [
        ([], ""),
        ([1, 3], "; readings of r2, r4 are late or too few: "),
        (range(8), "; readings of r1, r2, r3, r4, r5 and 3 other racks are late or too few: "),
    ],
)
def test_a_decision_names_what_it_could_not_rest_on(racks, named):
    unsure = np.zeros((8, 8), dtype=bool)
    for rack in racks:
        unsure[rack, (rack + 1) % 8] = True
    nothing = np.zeros((8, 8))
    seen = DemandReport(DemandSource.MEASURED, nothing, nothing, 0.5, (), unsure=unsure)
    decision = keep("no pair wants a circuit", frozenset(), (), "periodic", 0.0)
    told = doubting(decision, small_fabric(racks=8), seen).reason
    more = "the pairs keep their paths, without further paths" if named else ""
    assert told == "no pair wants a circuit" + named + more
