"""Committed results of full runs: complete, with all missed targets."""

import json
import re
from dataclasses import asdict
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

from apps.cli import hydra
from mininet_scenarios.experiments import EXPERIMENTS, load, repetitions

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PAGE = (RESULTS / "README.md").read_text()
LINES = {
    match[1]: match[2]
    for match in re.finditer(r"^\| \[([\w-]+)\]\(\1/result\.json\) \| (.*) \|$", PAGE, re.M)
}


def test_each_has_a_line():
    assert LINES.keys() == {path.parent.name for path in RESULTS.glob("*/result.json")}
    assert set(EXPERIMENTS) >= LINES.keys()


@pytest.mark.parametrize("name", LINES)
def test_it_is_of_a_full_run_and_what_it_missed_is_told(name):
    result = json.loads((RESULTS / name / "result.json").read_text())
    assert result["name"] == name
    assert result["command"].startswith(f"hydra experiment run {name} --scale full")
    assert result["machine"]["cpus"]
    assert result["rows"]
    assert {path.name for path in (RESULTS / name).glob("*.png")} == set(result["plots"])
    for plot in result["plots"]:
        assert f"({name}/{plot})" in PAGE, "not shown on the page"
    for row in result["rows"]:
        assert bool(row["paper"]) == bool(row["claim"]), row["figure"]
        assert row["met"] is not False or row["why"], row["figure"]
    missed = [row["figure"] for row in result["rows"] if row["met"] is False]
    assert bool(missed) == ("missed" in LINES[name]), missed


@pytest.mark.parametrize("name", LINES)
def test_it_is_what_its_raw_data_say(name):
    """And in the words of this version: ``hydra experiment conclude`` updates the results."""
    result = json.loads((RESULTS / name / "result.json").read_text())
    kept = repetitions.read(RESULTS / name, load(name))
    assert kept.begun.full
    assert f"--repeat {len(kept.runs)}" in result["command"]
    findings = load(name).conclude(kept.runs)
    told = [asdict(row) | {"ratio": pytest.approx(row.ratio)} for row in findings.rows]
    assert result["rows"] == told
    assert result["tables"] == json.loads(json.dumps([asdict(one) for one in findings.tables]))


def test_the_report_is_made_from_what_is_committed(tmp_path):
    page = tmp_path / "report.html"
    options = ["--results", str(RESULTS), "--to", str(page), "--json"]
    done = CliRunner().invoke(hydra, ["experiment", "report", *options])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    for name in LINES:
        assert f'<section id="{name}">' in text
    document = json.loads(done.stdout)
    plain = unescape(text)
    for claim in document["claims"]:
        assert claim["claim"] in plain
    assert {count["rows"] > count["not_played"] for count in document["papers"].values()} == {True}
    missed = {line.partition(":")[0] for line in document["not_met"]}
    assert missed == {name for name, line in LINES.items() if "missed" in line}
