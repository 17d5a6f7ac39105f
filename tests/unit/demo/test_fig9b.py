import pytest

from mininet_scenarios.experiments.hydra_paper import fig9b_fft, fig9b_scenario
from mininet_scenarios.experiments.hydra_paper.fig9b_scenario import throughput_of
from mininet_scenarios.workloads.alltoall import ProgressSample

from .results import fig9b_result


def rank(*samples: tuple[float, int]) -> tuple[ProgressSample, ...]:
    return tuple(ProgressSample(at_s, received) for at_s, received in samples)


def test_the_ranks_progress_adds_up_on_a_common_grid() -> None:
    progress = (
        rank((10.0, 0), (12.0, 500_000), (14.0, 500_000)),
        rank((10.1, 0), (13.9, 0), (14.0, 1_000_000)),
    )
    series = throughput_of(progress, 10.0, 14.0)
    assert [(one.start_s, one.end_s) for one in series] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [one.mbps for one in series] == pytest.approx([2.0, 2.0, 0.0, 8.0])


def test_a_sliver_at_the_end_joins_its_neighbour() -> None:
    progress = (rank((10.0, 0), (12.2, 2_200_000)),)
    series = throughput_of(progress, 10.0, 12.2)
    assert series[-1].end_s == pytest.approx(2.2)
    assert [one.mbps for one in series] == pytest.approx([8.0, 8.0])


def test_when_the_controller_acted_counts_from_the_runs_start() -> None:
    result = fig9b_result()
    assert result.helped.acted_at_s == 5.0
    assert result.alone.acted_at_s is None
    assert result.ratio(result.congested) == pytest.approx(2.2)


@pytest.mark.parametrize("times", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("plan", [fig9b_scenario.FULL, fig9b_scenario.QUICK, fig9b_scenario.SHORT])
def test_the_transform_moves_half_of_what_the_exchange_does(plan, times) -> None:
    plan = plan.at_rates(times)
    kernel = fig9b_fft.kernel_of(plan)
    ranks = len(fig9b_scenario.RANK_HOSTS)
    assert kernel.size % ranks == 0
    assert kernel.pause_s == plan.compute_s
    moved = kernel.rounds * kernel.bytes_between(ranks)
    assert moved == pytest.approx(plan.rounds * plan.bytes_per_pair / 2, rel=0.15)


def test_a_third_of_what_three_ranks_send_crosses_the_circuit_one_way():
    """Two ranks in r1 and one in r2: 2 of 6 ordered pairs."""
    assert pytest.approx(1 / 3) == fig9b_scenario.ONE_WAY
