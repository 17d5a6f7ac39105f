import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from mininet_scenarios import demo
from mininet_scenarios.demo import Options, Results
from mininet_scenarios.experiments.directories import held
from mininet_scenarios.experiments.hydra_paper import fig9a_scenario, fig9b_scenario
from mininet_scenarios.reporting import narrator as narrating
from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.reporting.table import table
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG
from tests.waiting import PATIENCE_S

from .results import fig9a_result, fig9b_result


def options(tmp_path: Path, *, quick: bool = True, only: str | None = None) -> Options:
    return Options(quick, only, tmp_path / "out", DEFAULT_CONFIG)


def test_everything_measured_is_written_beside_the_plots(tmp_path: Path) -> None:
    results = Results(fig9a_result(), fig9b_result(), fig9a_result(mbps=95.0))
    written = demo.save(results, options(tmp_path), 90.0)
    assert [path.name for path in written] == ["result.json", "fig9a.png", "delay.png", "fig9b.png"]
    data = json.loads(written[0].read_text())
    assert data["fig9a"]["static"]["throughput"]["samples"][0]["mbps"] == 95.0
    assert data["fig9a"]["mean_delays"]["5000"]["delay_ms"] == 51.0
    assert data["fig9b"]["ratios"]["congested"] == pytest.approx(2.2)
    assert data["paper"]["fig9b_alone_s"] == 28.7
    assert [line["figure"] for line in data["table"]] == [row.figure for row in results.rows()]


def test_a_setting_that_could_not_be_raised_stands_in_the_table(tmp_path: Path) -> None:
    lacking = {"net.core.rmem_max": (212_992, 8_388_608)}
    *_, row = Results(None, fig9b_result(), lacking=lacking).rows()
    assert row.figure == "this machine: net.core.rmem_max"
    assert (row.ours, row.target, row.met) == ("212,992", "≥ 8,388,608", False)
    assert "targets above may be missed" in row.why
    console = Console(file=io.StringIO(), width=200)
    console.print(table([row], "demo"))
    assert "net.core.rmem_max" in console.file.getvalue()


def test_processor_time_that_the_host_withheld_stands_in_the_table() -> None:
    *_, row = Results(None, fig9b_result(), withheld=0.22).rows()
    assert row.figure == "this machine: processor time withheld by its host"
    assert (row.ours, row.target, row.met) == ("22%", "≤ 5%", False)
    without = Results(None, fig9b_result(), withheld=0.04).rows()
    assert without == Results(None, fig9b_result()).rows()


def test_only_one_experiment_writes_only_its_own(tmp_path: Path) -> None:
    written = demo.save(Results(None, fig9b_result()), options(tmp_path, only="b"), 40.0)
    assert [path.name for path in written] == ["result.json", "fig9b.png"]
    assert json.loads(written[0].read_text())["fig9a"] is None


def test_the_options_choose_the_plans_and_the_estimate(tmp_path: Path) -> None:
    full, quick = options(tmp_path, quick=False), options(tmp_path)
    assert (full.fig9a, full.fig9b) == (fig9a_scenario.FULL, fig9b_scenario.FULL)
    assert options(tmp_path, only="a").fig9b is None
    assert options(tmp_path, only="b").fig9a is None
    assert 60 < quick.expected_s < 150
    assert 180 < full.expected_s < 360


def test_enough_datagrams_are_planned_in_all_lengths() -> None:
    plans = (fig9a_scenario.SHORT, fig9a_scenario.QUICK, fig9a_scenario.FULL)
    assert min(plan.udp_datagrams for plan in plans) >= 10_000


def test_a_configuration_that_is_not_there_is_an_error_and_builds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = demo.main(["--config", str(tmp_path / "no.yaml"), "--out", str(tmp_path / "out")])
    assert status == 1
    printed = capsys.readouterr().out
    assert "not counted" in printed
    assert "no.yaml" in printed


def test_a_second_demo_leaves_the_first_one_s_directory_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "work" / "a" / "fabric-1-controller.log"
    log.parent.mkdir(parents=True)
    log.touch()
    with held(tmp_path):
        assert demo.main(["--config", str(tmp_path / "no.yaml"), "--out", str(tmp_path)]) == 1
    assert f"another run writes into {tmp_path}: wait for its end" in capsys.readouterr().out
    assert log.exists()


def test_without_a_terminal_each_phase_is_a_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(narrating.time, "monotonic", lambda: now_s[0])
    sink = io.StringIO()
    console = Console(file=sink, width=100, force_terminal=False)
    with ConsoleNarrator(console, total_s=100.0) as narrator:
        with narrator.phase("first", 60.0):
            narrator.say("half [way] there")
            now_s[0] += 60.0
        with narrator.phase("second", 40.0):
            pass
    lines = sink.getvalue().splitlines()
    assert "first (about 60 s, 1 min 40 s left)" in lines[0]
    assert "half" in lines[1]
    assert "second (about 40 s, 0 min 40 s left)" in lines[2]
    assert len(lines) == 3


def test_on_a_terminal_there_is_a_bar_with_the_time_left() -> None:
    sink = io.StringIO()
    console = Console(file=sink, width=100, force_terminal=True, color_system=None)
    with ConsoleNarrator(console, total_s=100.0) as narrator, narrator.phase("working", 60.0):
        narrator.say("a line that stays")
        assert narrator.refreshed.wait(PATIENCE_S)
    text = sink.getvalue()
    assert "working" in text
    assert "1 min 40 s left" in text
    assert "a line that stays" in text


def test_the_time_left_follows_what_past_phases_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(narrating.time, "monotonic", lambda: now_s[0])
    sink = io.StringIO()
    with ConsoleNarrator(Console(file=sink, width=200), total_s=100.0) as narrator:
        with narrator.phase("the first half", 50.0):
            now_s[0] += 200.0
        with narrator.phase("the second half", 50.0):
            pass
    lines = sink.getvalue().splitlines()
    assert "1 min 40 s left" in lines[0]
    # 200 s for an expected 50 s, with 5 s of weight for the expectation
    assert "3 min 06 s left" in lines[1]
