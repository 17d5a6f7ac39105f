"""Fig. 6 of c-Through: the migrations, and results from times."""

from types import SimpleNamespace

import pytest

from apps.process.configuration import load_configuration
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.cthrough import fig6, scenario
from mininet_scenarios.experiments.cthrough.cases import Repetition
from mininet_scenarios.experiments.cthrough.fig6_scenario import wishes
from mininet_scenarios.experiments.cthrough.scenario import Completion, Scale
from tests.unit.experiments.judged import differing, missed

STAGE = SimpleNamespace(fabric=load_configuration(scenario.CONFIG).fabric)


def test_machines_are_dealt_out_evenly_and_made_in_the_paper_s_time():
    scale = Scale(rate=0.02, part=0.125)
    wanted = wishes(STAGE, scale)
    assert len(wanted) == 32
    assert {wish.source for wish in wanted} == {"h11", "h12", "h13", "h14"}
    racks = [wish.destination[1] for wish in wanted]
    assert sorted(racks.count(rack) for rack in "234") == [10, 11, 11]
    for server in ("h11", "h14"):
        reached = {wish.destination[1] for wish in wanted if wish.source == server}
        assert reached == set("234")
    assert sum(wish.size_bytes for wish in wanted) == pytest.approx(3.5e9 * 0.02 / 8, rel=1e-3)
    made_s = {wish.size_bytes * 8 / 1e6 / wish.made_mbps for wish in wanted}
    assert max(made_s) == pytest.approx(52 / 8, rel=1e-3)


def migrations(cases, seconds, part=1.0):
    """A case takes ``seconds(case)``."""
    return Repetition(
        Scale(0.02, part),
        tuple(
            Completion(
                electrical_mbps=case.electrical_mbps,
                buffer_mb=case.buffer_mb,
                way=case.way,
                interval_s=None if case.circuits is None else case.circuits.interval_s,
                seconds=seconds(case),
                done=(),
                changes=9,
                dark_frames=int(case.way == CycleName.AS_PUBLISHED.value),
            )
            for case in cases
        ),
    )


def like_the_paper(case):
    if case.circuits is None:
        return max(52.0, 280.0 * 100 / case.electrical_mbps)
    return 120.0 if case.buffer_mb < 1 and case.electrical_mbps == 100 else 60.0


def test_times_like_the_paper_s_meet_every_claim(tmp_path):
    found = [migrations(fig6.full_cases(), like_the_paper)]
    findings = load("cthrough-fig6").conclude(found)
    assert (missed(findings.rows), differing(findings.rows)) == ([], [])
    assert any(row.figure.startswith("as published: electrical alone") for row in findings.rows)
    assert findings.tables[0].columns[3:] == ("full bisection", "40:1", "10:1", "4:1")
    assert all(path.exists() for path in fig6.EXPERIMENT.draw(found, tmp_path))


def test_buffers_that_do_not_help_are_told():
    def seconds(case):
        return 130.0 if case.buffer_mb == 300 else like_the_paper(case)

    found = [migrations(fig6.full_cases(), seconds)]
    rows = load("cthrough-fig6").conclude(found).rows
    assert {"c-through/migration 300 MB", "c-through/migration near"} <= set(differing(rows))
    assert "hydra: 40:1, buffers of 300 MB" in missed(rows)


def test_the_short_form_makes_do_with_what_was_run(tmp_path):
    found = [migrations(fig6.short_cases(), like_the_paper, 1 / 8)]
    experiment = load("cthrough-fig6")
    rows = experiment.conclude(found).rows
    assert (missed(rows), differing(rows)) == ([], [])
    assert not any("10:1" in row.figure for row in rows)
    assert all(path.exists() for path in experiment.draw(found, tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10
