"""The parts of the shortest slot, and the duty cycle compared with its formula."""

from dataclasses import replace

import pytest

from hydra.model import NetworkState
from hydra.policy import DrainPolicy, Policy, SlotPolicy
from hydra.sharing.slots import DutyCycle, Night, Week, WeekSlot, too_short
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=3, planes=2)
POLICY = Policy(drain=DrainPolicy(reads=3, interval_ms=12.0), slots=SlotPolicy(0.3, 10.0))


def week_of(*lengths_s, night_s=0.1):
    """r1 with r2 and with r3 in turn."""
    states = [state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1 + i % 2)) for i in range(2)]
    slots = tuple(WeekSlot(states[i % 2], length_s) for i, length_s in enumerate(lengths_s))
    return Week(slots, (), night_s, 80.0, 10.0, 100.0, 90.0)


def test_a_night_is_mirrors_and_drain_and_what_was_measured_beyond():
    assert Night.of(FABRIC, POLICY) == Night("p1", 0.025, 0.024, 0.0)
    night = Night.of(FABRIC, POLICY, measured_s=0.15)
    assert night.rest_s == pytest.approx(0.101)
    assert night.total_s == pytest.approx(0.15)
    assert Night.of(FABRIC, POLICY, measured_s=0.01).total_s == pytest.approx(0.049)


def test_the_slowest_mirrors_count():
    slow = replace(FABRIC.planes[1], switching_ms=180.0)
    fabric = replace(FABRIC, planes=(FABRIC.planes[0], slow))
    assert Night.of(fabric, POLICY).mirrors_s == 0.18
    assert "180 ms for the mirrors of p2" in too_short(fabric, POLICY, 0.4)


@pytest.mark.parametrize(("slot_s", "fits"), [(0.05, True), (0.049, False), (0.01, False)])
def test_a_slot_is_longer_than_what_no_change_does_without(slot_s, fits):
    policy = replace(POLICY, slots=SlotPolicy(slot_s, 10.0))
    assert (too_short(FABRIC, policy) is None) == fits


def test_the_refusal_names_the_bound_and_its_parts():
    assert too_short(FABRIC, POLICY, measured_s=0.325) == (
        "a slot of 300 ms leaves no day after its night of 325 ms (25 ms for the mirrors of p1, "
        "24 ms to see circuits drained and 276 ms for all else, as measured): set "
        "policy.slots.slot_s above that"
    )


def test_the_duty_cycle_of_the_paper():
    """Table 2: t_setup = 10 µs, T = 1 ms, n = 5: D = 95 %; section 6.1: 94.5 of 106 µs."""
    assert week_of(*[200e-6] * 5, night_s=10e-6).duty_cycle == pytest.approx(0.95)
    assert week_of(106e-6, 106e-6, night_s=11.5e-6).duty_cycle == pytest.approx(0.8915, abs=1e-4)
    assert week_of(10.0).duty_cycle == 1.0


def test_weeks_that_differ_by_less_than_a_slot_are_alike():
    week = week_of(6.0, 4.0)
    assert week.light_s() == {(0, 1): 6.0, (0, 2): 4.0}
    assert week.much_like(week_of(5.8, 4.2), 0.3)
    assert not week.much_like(week_of(5.6, 4.4), 0.3)
    assert not week.much_like(week_of(10.0), 100.0), "another pair has light"


def test_the_measured_duty_cycle_is_that_of_the_last_slots():
    duty = DutyCycle()
    assert duty.measured is None
    duty.count(0.5, 1.0)
    assert duty.measured == 0.5
    duty.count(0.1, 3.0)
    assert duty.measured == pytest.approx(1 - 0.6 / 4)
    for _ in range(64):
        duty.count(0.1, 1.0)
    assert duty.measured == pytest.approx(0.9)
    duty.forget()
    assert duty.measured is None
