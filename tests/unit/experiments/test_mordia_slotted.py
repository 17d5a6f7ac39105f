"""Slots on the data plane: results of runs."""

import pytest

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.mordia import slotted as mordia_slotted
from mininet_scenarios.experiments.mordia.slotted_scenario import USUAL, Length, Shared, Worth
from mininet_scenarios.experiments.scaling import Scale
from tests.unit.experiments.judged import differing, missed


def run_of(slot_s, cycle, mbps, dark_frames):
    duty = 1 - 0.1 / slot_s
    return Shared(slot_s, cycle.value, mbps, duty, duty - 0.02, 900, dark_frames)


def slotted(hitless_mbps=(12.0, 16.0), dark_frames=0):
    published = [
        run_of(slot_s, CycleName.AS_PUBLISHED, mbps, 90)
        for slot_s, mbps in ((1.0, 9.0), (2.0, 14.0))
    ]
    hitless = [
        run_of(slot_s, CycleName.HITLESS, mbps, dark_frames)
        for slot_s, mbps in zip((1.0, 2.0), hitless_mbps, strict=True)
    ]
    worth = Worth(electrical=4.0, one_on_circuit=20.0)
    return mordia_slotted.Slotted(Scale(500, 250.0), worth, (*published, *hitless))


def test_what_a_duty_cycle_is_worth():
    assert Worth(electrical=4.0, one_on_circuit=20.0).of(0.75) == pytest.approx(16.0)


def test_a_run_is_as_long_as_its_weeks_want():
    assert USUAL.seconds(0.5) == 18
    assert USUAL.seconds(4.0) == 54
    assert Length(least_s=4, periods=2).seconds(2.0) == 14


def test_longer_slots_that_bring_more_meet_every_claim(tmp_path):
    experiment = load("mordia-slotted")
    found = [slotted(), slotted()]
    findings = experiment.conclude(found)
    assert missed(findings.rows) == []
    assert differing(findings.rows) == ["mordia/TCP 300"]  # 70 %
    claims = [row.claim for row in findings.rows if row.claim]
    assert "mordia/TCP 61" not in claims, "no slots have its duty cycle"
    (table,) = findings.tables
    assert table.rows[0] == (
        *("as published", "1 s", "0.900", "0.880", "9.0", "18.4", "900"),
        "180",
    )
    assert all(path.exists() for path in experiment.draw(found, tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_slots_that_bring_less_than_packets_are_told():
    rows = load("mordia-slotted").conclude([slotted((3.0, 2.5), dark_frames=1)]).rows
    assert missed(rows) == [
        "hydra: throughput from 1 to 2 s",
        "hydra: slots of 1 s, against the electrical network alone",
        "hydra: slots of 2 s, against the electrical network alone",
        "hydra: frames at dark OCS ports",
    ]
