"""Fig. 10 of c-Through: the transform, and results from times."""

import pytest

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.cthrough import fig10, fig10_scenario
from mininet_scenarios.experiments.cthrough.cases import Repetition
from mininet_scenarios.experiments.cthrough.scenario import Completion, Scale
from mininet_scenarios.stage.mpi import Kernel, MpiRun, RankReport, ServerBytes
from tests.unit.experiments.judged import differing, missed


@pytest.mark.parametrize("ranks", [8, 15])
def test_the_cube_is_the_paper_s_and_shared_evenly(ranks):
    kernel = fig10_scenario.kernel_of(ranks, Scale(1 / 20, 1.0))
    assert kernel.size % ranks == 0
    assert kernel.size**3 == pytest.approx(2**28 / 20, rel=0.2)
    smaller = fig10_scenario.kernel_of(ranks, Scale(1 / 40, 1.0))
    assert smaller.size < kernel.size
    assert smaller.pause_s == kernel.pause_s  # processors are the paper's, networks are not
    assert fig10_scenario.kernel_of(ranks, Scale(1 / 20, 0.5)).pause_s == kernel.pause_s / 2


def transform(case, seconds, wire=1100):
    rank = RankReport(0, "h11", 0.0, seconds, seconds, 1000, True)
    return Completion(
        electrical_mbps=case.electrical_mbps,
        buffer_mb=case.buffer_mb,
        way=case.way,
        interval_s=case.interval_s,
        seconds=seconds,
        done=MpiRun(Kernel("fft", 8, 1), (rank,), {"h11": ServerBytes(1000, wire, 0)}),
        changes=9,
        dark_frames=int(case.way == CycleName.AS_PUBLISHED.value),
    )


def like_the_paper(case):
    if case.circuits is None:
        return max(10.0, 80.0 * 100 / case.electrical_mbps)
    return 20.0 * case.circuits.interval_s**0.3 / 0.3**0.3


def transforms(form, seconds, wire=1100):
    runs = tuple(transform(case, seconds(case), wire) for case in form.cases)
    return [Repetition(Scale(1 / 80, form.part), runs)]


@pytest.mark.parametrize("form", [fig10.FULL, fig10.SHORT])
def test_times_like_the_paper_s_meet_every_claim(form, tmp_path):
    found = transforms(form, like_the_paper)
    experiment = load("cthrough-fig10")
    rows = {row.figure: row for row in experiment.conclude(found).rows}
    assert (missed(rows.values()), differing(rows.values())) == ([], [])
    assert any("over one of 0.3 s" in name for name in rows)
    over = rows.get("as published: 40:1, an interval of 0.3 s, over full bisection")
    assert (over is not None) == (form is fig10.FULL)
    if over is not None:
        assert (over.ours, over.ratio) == ("2.00", pytest.approx(1))
    assert all(path.exists() for path in experiment.draw(found, tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_what_contradicts_the_paper_is_told():
    def slow(case):
        return 300.0 if case.buffer_mb < 1 else 90.0

    found = transforms(fig10.FULL, slow, wire=900)
    rows = load("cthrough-fig10").conclude(found).rows
    told = missed(rows)
    assert "as published: 40:1, an interval of 0.3 s" not in told  # 90 s for everybody
    assert {"c-through/fft interval", "c-through/fft buffers"} <= set(differing(rows))
    assert "bytes at servers' ports / sent by their ranks, least of all runs" in told
