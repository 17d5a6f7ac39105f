"""The page of figures agrees with the committed figures, and each benchmark has figures."""

import ast
import json
import math
import pkgutil
from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from pathlib import Path

import pytest

import benchmarks
from benchmarks import page
from benchmarks._chart import chart
from benchmarks._report import Machine, Result, Run, play, read, report, write

SHOWN = [name for names in page.SECTIONS.values() for name in names]
PUBLIC = {one.name for one in pkgutil.iter_modules(benchmarks.__path__) if one.name[0] != "_"}
MACHINE = Machine("a model", 2, "a system")
SLOW = Result("a case", "time", "ms", "lower", 8.0, 16.0, "the old way", 4.0)
MORE = Result("a case", "rate", "Mb/s", "higher", 30.0, 20.0, "the old way", 25.0)


def test_each_benchmark_has_figures_or_a_reason_for_none():
    assert len(SHOWN) == len(set(SHOWN))
    assert not page.WITHOUT_FIGURES.keys() & set(SHOWN)
    without_module = {name for name in SHOWN if read(page.DATA / f"{name}.json").about}
    named = page.WITHOUT_FIGURES.keys() | (set(SHOWN) - without_module)
    assert named == PUBLIC, "name it in benchmarks/page.py"


@pytest.mark.parametrize("name", sorted(PUBLIC - page.WITHOUT_FIGURES.keys()))
def test_a_benchmark_reports_under_its_name_and_takes_the_common_option(name):
    tree = ast.parse((Path(page.__file__).parent / f"{name}.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name)]
    reported = [ast.literal_eval(call.args[0]) for call in named if call.func.id == "report"]
    assert set(reported) == {name}
    assert "run_benchmark" in {call.func.id for call in named}


def test_the_page_and_its_pictures_are_made_from_the_figures():
    advice = "run python -m benchmarks.page"
    assert page.PAGE.read_text() == page.page(page.DATA), advice
    pictures = dict(page.pictures(page.DATA))
    for path, picture in pictures.items():
        assert path.read_text() == picture, advice
    data = {page.DATA / f"{name}.json" for name in SHOWN}
    assert set(page.DATA.iterdir()) == pictures.keys() | data


@pytest.mark.parametrize("name", SHOWN)
def test_figures_have_the_schema(name, tmp_path):
    figures = read(page.DATA / f"{name}.json")
    write(tmp_path / "again.json", figures.runs, figures.about)
    assert (tmp_path / "again.json").read_text() == (page.DATA / f"{name}.json").read_text()
    commands = [run.command for run in figures.runs]
    assert len(commands) == len(set(commands)) > 0
    for run in figures.runs:
        assert figures.about or run.command.split()[:3] == ["python", "-m", f"benchmarks.{name}"]
        assert date.fromisoformat(run.date) <= date.today()
        assert run.machine.cores > 0
        assert run.machine.model
        assert run.rows
        for row in run.rows:
            assert row.case
            assert row.metric
            assert row.better in {"lower", "higher"}
            assert bool(row.baseline_name) == (row.baseline is not None), row


def test_a_row_says_how_it_compares_and_whether_its_target_is_met(tmp_path):
    made = _reported(tmp_path, [SLOW, MORE, Result("a case", "size", "", "lower", 0.0, 3.0, "x")])
    slow, more, small = made["rows"]
    assert (slow["ratio"], slow["met"]) == (2.0, False)
    assert (more["ratio"], more["met"]) == (1.5, True)
    assert (small["ratio"], small["met"]) == (None, None)
    assert slow.keys() == {one.name for one in fields(Result)} | {"ratio", "met"}
    assert made.keys() == {one.name for one in fields(Run)}
    assert made["machine"].keys() == {one.name for one in fields(Machine)}


def test_figures_that_are_read_are_written_as_they_were(tmp_path):
    path = tmp_path / "retag.json"
    times = [
        Result("a case", "time", "ms", "lower", 1 / n, n / 7, "x", n / 3) for n in range(3, 99)
    ]
    _reported(tmp_path, times)
    before = path.read_text()
    write(path, read(path).runs)
    assert path.read_text() == before


def test_nothing_measured_is_no_number_and_misses_its_target(tmp_path):
    made = _reported(tmp_path, [Result("a case", "time", "ms", "lower", math.nan, None, "", 4.0)])
    (row,) = made["rows"]
    assert (row["ours"], row["met"]) == (None, False)
    ((again,),) = [run.rows for run in read(tmp_path / "retag.json").runs]
    assert math.isnan(again.ours)


def test_the_exit_status_tells_of_a_missed_target(tmp_path):
    assert play(lambda: report("retag", [MORE]), (), tmp_path) == 0
    assert play(lambda: report("retag", [MORE, SLOW]), (), tmp_path) == 1


def test_a_command_replaces_its_own_figures_alone(tmp_path):
    def main(_: Sequence[str] = ()) -> int:
        return report("retag", [results.pop()])

    results = [SLOW, MORE, SLOW]
    for arguments in ((), ("--long", "a b"), ()):
        play(main, arguments, tmp_path)
    runs = {run.command: run.rows for run in read(tmp_path / "retag.json").runs}
    named = "python -m benchmarks.retag --long 'a b'"
    assert runs == {named: (MORE,), "python -m benchmarks.retag": (SLOW,)}


def test_an_option_that_a_benchmark_does_not_have_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="--fast: this benchmark takes no option but --results"):
        play(lambda: report("retag", [MORE]), ("--fast",), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_page_without_all_figures_is_not_written(tmp_path, capsys):
    with pytest.raises(SystemExit):
        page.main(["--results", str(tmp_path / "one" / "two")])
    assert "no figures of demo," in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_summary_shows_what_is_farthest_beyond_its_target(tmp_path):
    for name in SHOWN:
        run = Run(f"python -m benchmarks.{name}", "2026-11-30", True, MACHINE, (MORE, SLOW))
        write(tmp_path / f"{name}.json", [run], "About it.")
    line = "| [retag](#retag) | a case: time | 8 ms | 16: the old way | 2× | ≤ 4, missed | 1/2 |\n"
    assert line in page.page(tmp_path)


def test_a_picture_has_each_figure_to_scale():
    run = Run("python -m benchmarks.retag", "2026-11-30", True, MACHINE, (SLOW, MORE))
    picture = chart("retag", [run])
    assert "30 November 2026, busy, 2 cores, a model" in picture
    assert '<rect class="missed" x="380" y="78" width="95.0" height="8"/>' in picture
    assert "8 ms; 16: the old way; target ≤ 4, missed" in picture
    assert "30 Mb/s; 20: the old way; target ≥ 25<" in picture


def _reported(folder: Path, results: Sequence[Result]) -> dict:
    play(lambda: report("retag", results), (), folder)
    (made,) = json.loads((folder / "retag.json").read_text())["runs"]
    return made
