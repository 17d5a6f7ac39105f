"""Abu-Tair's direct link: the traffic, and the results of a repetition."""

from dataclasses import replace

import pytest

from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.abu_tair import experiment as abu_tair
from mininet_scenarios.experiments.abu_tair.published import TABLES
from mininet_scenarios.experiments.abu_tair.scenario import (
    ELEPHANT,
    MOUSE,
    PAPER_EPOCH_S,
    PAPER_MOVE_S,
    Regime,
    Run,
    Scale,
    paper_network,
    wishes,
)
from mininet_scenarios.stage.stage import ScenarioError
from mininet_scenarios.stage.transfers import Transferred
from tests.unit.experiments.judged import agreeing, differing, missed

pytestmark = pytest.mark.takes(15)

SCALE = Scale(rate=0.02, time=0.25)
SHARES = {
    Regime.NONE: (0.6, 0.6),
    Regime.UNDIFFERENTIATED: (0.5, 0.6),
    Regime.DIFFERENTIATED: (0.65, 0.7),
    Regime.ON_DEMAND: (0.9, 0.95),
}
"""Elephants' throughput on an uplink, undiverted and hitless."""


def comparison(shares=SHARES, dark_frames=0, loads=(24, 48)):
    return abu_tair.Comparison(
        SCALE, tuple(run_of(case, shares, dark_frames) for case in abu_tair.cases(loads)), None
    )


def run_of(case, shares, dark_frames):
    share = shares[case.regime][case.cycle is CycleName.HITLESS]
    done = []
    for wish in wishes(case.transfers, SCALE):
        mbps = 20 * (share if wish.kind == ELEPHANT else 0.1)
        seconds = wish.size_bytes * 8 / 1e6 / mbps
        done.append(
            Transferred(wish.source, wish.destination, wish.size_bytes, wish.kind, 0.0, seconds)
        )
    cycle = case.cycle.value
    return Run(case.regime.value, cycle, case.transfers, tuple(done), 3, dark_frames, 1000)


def test_each_pair_sends_an_elephant_with_every_seven_mice():
    wanted = wishes(48, SCALE)
    assert len(wanted) == 48
    sizes = {wish.kind: wish.size_bytes for wish in wanted}
    assert sizes[ELEPHANT] == pytest.approx(3 * 2**30 / 200)
    assert sizes[MOUSE] == pytest.approx(250 * 2**20 / 200)
    for source, destination in (("1", "4"), ("2", "5"), ("3", "6")):
        mine = [wish for wish in wanted if wish.source[1] == source]
        assert {wish.destination[1] for wish in mine} == {destination}
        assert [wish.kind for wish in mine].count(ELEPHANT) == 2
        assert len(mine) == 16
    with pytest.raises(ScenarioError, match="30 transfers"):
        wishes(30, SCALE)


def test_the_paper_s_transfers_fill_one_uplink():
    """Its Table 3 without a direct link: 41.8 s, at TCP's share of 1 Gb/s."""
    assert Scale(1, 1).one_uplink_s(24) == pytest.approx(41.8 * 0.956, rel=0.02)


def test_links_are_away_as_long_as_the_paper_s_figures_tell():
    paper = TABLES[ELEPHANT, "completion"]
    for ut, none in zip(paper["UT"], paper["no direct link"], strict=True):
        moves = 2 * ut[1] / (3 * PAPER_EPOCH_S)  # a rack of three gets the link, and loses it
        assert (ut[1] - none[1]) / moves == pytest.approx(2.0, rel=0.11)
    planes = paper_network(SCALE)["planes"]
    assert {plane["switching_ms"] for plane in planes} == {1000 * PAPER_MOVE_S * SCALE.time}
    assert {plane["rate_mbps"] for plane in planes} == {1000 * SCALE.rate}


def test_fast_mirrors_have_a_row_of_their_own():
    one = comparison()
    assert not any("mirrors of" in row.figure for row in abu_tair.EXPERIMENT.conclude([one]).rows)
    fast = replace(one, fast=run_of(abu_tair.FAST, SHARES, 9))
    rows = abu_tair.EXPERIMENT.conclude([fast, fast]).rows
    (row,) = (row for row in rows if "mirrors of 25 ms" in row.figure)
    assert (row.ours, row.met) == ("-16.7%", None)


def test_the_best_epoch_is_told_of_all_played(tmp_path):
    one = comparison()
    keys = {row.claim for row in abu_tair.EXPERIMENT.conclude([one]).rows}
    assert "abu-tair/epoch" not in keys
    assert len({case.epoch_s for case in abu_tair.EPOCHS}) == len(abu_tair.EPOCHS)

    def swept(best_s):
        return replace(
            one,
            epochs=tuple(
                replace(
                    run_of(case, SHARES | {case.regime: (share, share)}, 0), epoch_s=case.epoch_s
                )
                for case in abu_tair.EPOCHS
                for share in (0.5 if case.epoch_s == best_s else 0.4,)
            ),
        )

    for best_s, met in ((10.0, True), (40.0, False)):
        rows = abu_tair.EXPERIMENT.conclude([swept(best_s)] * 2).rows
        (row,) = (row for row in rows if row.claim == "abu-tair/epoch")
        assert row.met is met
        assert row.ours.startswith(f"{best_s:.1f} (2.5 s: ")


def test_on_demand_is_judged_at_the_paper_s_own_times():
    one = comparison(loads=(24,))
    slow = [run_of(case, SHARES, 0) for case in abu_tair.ON_DEMAND[:1]]
    (run,) = slow
    four_times = [replace(each, finished_s=4 * each.finished_s) for each in run.done]
    own = replace(one, on_demand=(replace(run, done=tuple(four_times)),))

    def seconds(measured):
        rows = abu_tair.EXPERIMENT.conclude([measured]).rows
        (row,) = (row for row in rows if row.claim == "abu-tair/completion elephant 24 on demand")
        return float(row.ours)

    # Times of a quarter, at the paper's scale; and the paper's own.
    assert seconds(one) == seconds(own) == pytest.approx(3 * 2**30 * 8e-9 / 0.9 * 1.0, rel=0.01)


def test_mice_are_told_beside_those_over_one_uplink():
    one = comparison(loads=(24,))
    even = [Transferred("h11", "h41", 1000, MOUSE, 0.0, 2.0)] * 2
    uneven = [*even[:1], Transferred("h11", "h41", 1000, MOUSE, 0.0, 6.0)]

    def why(done):
        rows = abu_tair.EXPERIMENT.conclude([replace(one, uplink=tuple(done))]).rows
        (row,) = (row for row in rows if row.claim == "abu-tair/throughput mouse 24 UT")
        return row.why

    assert "and 1.00 over one uplink" in why(even)
    assert "and 1.33 over one uplink" in why(uneven)
    assert "uplink" not in why(())


def test_without_a_direct_link_there_is_one_run_for_both_ways():
    found = abu_tair.cases((24,))
    assert len(found) == 7
    one = comparison()
    none = [one.run(Regime.NONE, cycle, 24) for cycle in CycleName]
    assert none[0] is none[1]


def test_the_full_form_fills_the_paper_s_tables_and_plots(tmp_path):
    wanted = abu_tair.full_cases()
    assert {case.transfers for case in wanted} == {24, 48, 72}
    for transfers in (24, 48, 72):
        assert {case.regime for case in wanted if case.transfers == transfers} == set(Regime)
    found = [comparison(loads=(24, 48, 72))] * 15
    findings = load("abu-tair").conclude(found)
    assert len(findings.tables) == 4
    for table in findings.tables:
        assert "15 repetitions" in table.title
        assert [head for head in table.columns if "paper" in head] == [
            f"{transfers}: paper" for transfers in (24, 48, 72)
        ]
        assert len(table.rows) == 7  # none, and the three other cases in both ways
    assert len(load("abu-tair").draw(found, tmp_path)) == 2  # throughput, completion


def test_claims_are_checked_and_everything_is_at_the_paper_s_scale(tmp_path):
    experiment = load("abu-tair")
    findings = experiment.conclude([comparison(), comparison()])
    assert missed(findings.rows) == []
    elephants = {f"abu-tair/throughput elephant 24 {regime.value}" for regime in Regime}
    assert elephants <= set(agreeing(findings.rows))
    on_demand = next(row for row in findings.rows if "on demand" in row.figure)
    assert (on_demand.paper, on_demand.ours) == ("+55%", "+50.0%")
    assert findings.tables[0].rows[0][2] == "600.0 / 600.0 / 600.0"
    seconds = 3 * 2**30 * 8 / 0.6e9
    assert findings.tables[2].rows[0][2].startswith(f"{seconds:.1f} / ")
    assert all(path.exists() for path in experiment.draw([comparison()], tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_claims_that_do_not_come_out_are_told():
    shares = SHARES | {Regime.UNDIFFERENTIATED: (0.7, 0.5), Regime.ON_DEMAND: (0.6, 0.95)}
    rows = abu_tair.EXPERIMENT.conclude([comparison(shares, dark_frames=4)]).rows
    gains = {f"abu-tair/gain 24 {regime}" for regime in ("on demand", "UT")}
    assert gains <= set(differing(rows))
    assert [figure for figure in missed(rows) if "48" not in figure] == [
        "hydra, 24 transfers: elephants against no direct link, UT",
        "hydra: frames at dark OCS ports",
    ]
