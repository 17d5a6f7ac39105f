"""Fig. 7 and 8 of c-Through: the sorts, and results from times."""

from collections import Counter

import pytest

from apps.process.configuration import load_configuration
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.experiments import load
from mininet_scenarios.experiments.cthrough import fig8, fig8_scenario, scenario
from mininet_scenarios.experiments.cthrough.cases import Repetition
from mininet_scenarios.experiments.cthrough.fig8_scenario import COPY, OUTPUT, READ, SHUFFLE
from mininet_scenarios.experiments.cthrough.scenario import Completion, Scale
from mininet_scenarios.stage.transfers import Transferred
from tests.unit.experiments.judged import differing, missed

FABRIC = load_configuration(scenario.CONFIG).fabric
SCALE = Scale(rate=0.01, part=0.5)
STEPS = {READ: fig8_scenario.reads, SHUFFLE: fig8_scenario.shuffle, OUTPUT: fig8_scenario.output}


def wishes(step):
    return list(STEPS[step](FABRIC, SCALE))


def total_bytes(some):
    return sum(wish.size_bytes for wish in some)


def apart(wish):
    return wish.source[1] != wish.destination[1]


def test_everybody_shuffles_with_everybody_and_keeps_its_own():
    some = wishes(SHUFFLE)
    assert len({(wish.source, wish.destination) for wish in some}) == 16 * 15
    assert total_bytes(some) == pytest.approx(10e9 * SCALE.rate * SCALE.part * 15 / 16, rel=1e-3)
    assert sum(map(apart, some)) / len(some) == pytest.approx(12 / 15)


def test_each_copy_is_the_whole_output_and_one_is_in_another_rack():
    some = wishes(OUTPUT)
    for kind, other_rack in ((OUTPUT, True), (COPY, False)):
        copies = [wish for wish in some if wish.kind == kind]
        assert total_bytes(copies) == pytest.approx(10e9 * SCALE.rate * SCALE.part, rel=1e-3)
        assert {apart(wish) for wish in copies} == {other_rack}
        assert all(wish.source != wish.destination for wish in copies)
        blocks = {wish.unit_bytes for wish in copies}
        assert list(blocks) == [pytest.approx(64e6 * SCALE.rate * SCALE.part, rel=1e-3)]
        assert (
            len({(wish.source, wish.disk) for wish in copies}) == 16
        )  # a single task for all of a server's data
        for end in ("source", "destination"):  # evenly
            assert set(Counter(getattr(wish, end) for wish in copies).values()) == {3}


def test_a_tenth_of_the_blocks_come_from_other_racks():
    some = wishes(READ)
    assert all(map(apart, some))
    assert total_bytes(some) == pytest.approx(1e9 * SCALE.rate * SCALE.part, rel=1e-3)
    assert {wish.made_mbps for wish in some} == {None}


@pytest.mark.parametrize(
    ("step", "paper_s"),
    [(SHUFFLE, fig8_scenario.PAPER_MAP_S), (OUTPUT, fig8_scenario.PAPER_WRITE_S)],
)
def test_disks_take_their_time_whatever_the_scale(step, paper_s):
    made_s = [wish.size_bytes * 8e-6 / wish.made_mbps / SCALE.part for wish in wishes(step)]
    assert made_s == pytest.approx([paper_s] * len(made_s), rel=1e-3)


def sort_of(case, seconds, part):
    ends = {READ: seconds / 3, SHUFFLE: seconds / 2, OUTPUT: seconds, COPY: seconds}
    return Completion(
        electrical_mbps=case.electrical_mbps,
        buffer_mb=case.buffer_mb,
        way=case.way,
        interval_s=case.interval_s,
        seconds=seconds,
        done=tuple(
            Transferred("h11", "h21", 1000, kind, 0.0, end_s * part) for kind, end_s in ends.items()
        ),
        changes=9,
        dark_frames=int(case.way == CycleName.AS_PUBLISHED.value),
    )


def like_the_paper(case):
    if case.circuits is None:
        return max(70.0, 370.0 * 100 / case.electrical_mbps)
    return 78.0 + 2 * case.circuits.interval_s + (40.0 if case.buffer_mb < 1 else 0.0)


def sorts(cases, seconds, part=1.0):
    runs = tuple(sort_of(case, seconds(case), part) for case in cases)
    return [Repetition(Scale(0.02, part), runs)]


@pytest.mark.parametrize(
    ("cases", "part"),
    [(fig8.full_cases(), 1.0), (fig8.short_cases(), 1 / 16)],
)
def test_times_like_the_paper_s_meet_every_claim(cases, part, tmp_path):
    found = sorts(cases, like_the_paper, part)
    experiment = load("cthrough-fig8")
    rows = {row.figure: row for row in experiment.conclude(found).rows}
    assert (missed(rows.values()), differing(rows.values())) == ([], [])
    (shuffle,) = (name for name in rows if name.startswith("as published: 40:1, the shuffle over"))
    assert (rows[shuffle].claim == "c-through/sort shuffle") == (part == 1)
    assert any("over full bisection" in name for name in rows) == (part == 1)
    assert all(path.exists() for path in experiment.draw(found, tmp_path))
    assert experiment.expected_s(True) > experiment.expected_s(False) > 10


def test_what_contradicts_the_paper_is_told():
    def slow(case):
        return 400.0 if case.circuits else like_the_paper(case)

    rows = load("cthrough-fig8").conclude(sorts(fig8.full_cases(), slow)).rows
    told = missed(rows)
    assert "as published: 40:1, buffers of 100 MB, an interval of 1 s" in told
    assert "hydra: 40:1, against the electrical network alone" in told
    assert set(differing(rows)) >= {
        f"c-through/sort {what}" for what in ("near", "read", "shuffle", "output")
    }
