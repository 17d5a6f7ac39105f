import pytest

from mininet_scenarios.fig9b import throughput_of
from mininet_scenarios.workloads.alltoall import ProgressSample, RankReport

from .results import fig9b_result


def rank(number: int, *samples: tuple[float, int]) -> RankReport:
    progress = tuple(ProgressSample(at_s, received) for at_s, received in samples)
    return RankReport(number, True, True, 10.0, 14.0, (), samples[-1][1], progress)


def test_the_ranks_progress_adds_up_on_a_common_grid() -> None:
    reports = (
        rank(0, (10.0, 0), (12.0, 500_000), (14.0, 500_000)),
        rank(1, (10.1, 0), (13.9, 0), (14.0, 1_000_000)),
    )
    series = throughput_of(reports, 10.0, 14.0)
    assert [(one.start_s, one.end_s) for one in series] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [one.mbps for one in series] == pytest.approx([2.0, 2.0, 0.0, 8.0])


def test_a_sliver_at_the_end_joins_its_neighbour() -> None:
    reports = (rank(0, (10.0, 0), (12.2, 2_200_000)),)
    series = throughput_of(reports, 10.0, 12.2)
    assert series[-1].end_s == pytest.approx(2.2)
    assert [one.mbps for one in series] == pytest.approx([8.0, 8.0])


def test_when_the_controller_acted_counts_from_the_runs_start() -> None:
    result = fig9b_result()
    assert result.helped.acted_at_s == 5.0
    assert result.alone.acted_at_s is None
    assert result.ratio(result.congested) == pytest.approx(2.2)
