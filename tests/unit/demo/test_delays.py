import dataclasses

import pytest

from mininet_scenarios.stage.controller_client import ControllerError, TimelineStep
from mininet_scenarios.stage.delays import mean, split

from .results import TIMELINE


def test_without_a_divert_the_delay_begins_with_the_first_change():
    undiverted = [step for step in TIMELINE if step.step not in ("divert", "drain")]
    delay = split(undiverted, switching_ms=25.0)
    assert (delay.total_ms, delay.delay_ms, delay.divert_ms) == (49.0, 49.0, 0.0)


def test_a_timeline_is_taken_apart_by_substep() -> None:
    delay = split(TIMELINE, switching_ms=25.0)
    assert delay.total_ms == 91.0
    assert delay.drain_ms == 40.0
    assert delay.delay_ms == 51.0
    # Over all devices of the step, from the first start to the last end.
    assert delay.retag_ms == 12.0
    assert delay.mirrors_ms == 44.0
    assert delay.gate_ms == 3.0
    # Without their 25 ms, the mirrors would still have finished last, at 63.
    assert delay.delay_without_mirrors_ms == pytest.approx(26.0)


def test_mirrors_that_nobody_waited_for_take_nothing_off() -> None:
    slow_push = tuple(
        dataclasses.replace(step, finished_ms=95.0) if step.step == "push" else step
        for step in TIMELINE
    )
    delay = split(slow_push, switching_ms=25.0)
    assert delay.delay_without_mirrors_ms == delay.delay_ms


def test_mirrors_that_cost_less_than_their_time_take_off_what_they_cost() -> None:
    timeline = tuple(
        dataclasses.replace(step, finished_ms=80.0) if step.step == "push" else step
        for step in TIMELINE
    )
    delay = split(timeline, switching_ms=25.0)
    assert delay.delay_ms - delay.delay_without_mirrors_ms == pytest.approx(8.0)


def test_a_change_without_circuits_to_move_has_no_mirrors() -> None:
    kept = tuple(step for step in TIMELINE if step.step in {"divert", "push", "activate"})
    delay = split(kept, switching_ms=25.0)
    assert delay.mirrors_ms == delay.drain_ms == delay.gate_ms == 0.0
    assert delay.delay_without_mirrors_ms == delay.delay_ms


def test_a_timeline_that_never_diverted_is_an_error() -> None:
    with pytest.raises(ControllerError, match="lacks activate among push"):
        split((TimelineStep("push", None, 0.0, 1.0, ""),), switching_ms=25.0)


def test_the_mean_is_taken_part_by_part() -> None:
    one = split(TIMELINE, switching_ms=25.0)
    other = dataclasses.replace(one, drain_ms=60.0, delay_ms=71.0)
    both = mean([one, other])
    assert (both.drain_ms, both.delay_ms, both.push_ms) == (50.0, 61.0, one.push_ms)
    with pytest.raises(ControllerError, match="no reconfiguration"):
        mean([])
