"""Results of full runs that are committed: complete, and honest about what they missed."""

import json
import re
from pathlib import Path

import pytest

from mininet_scenarios.experiments import NAMES

RESULTS = Path(__file__).parents[3] / "docs" / "results"
LINES = {
    match[1]: match[2]
    for match in re.finditer(
        r"^\| \[([\w-]+)\]\(\1\.json\) \| (.*) \|$", (RESULTS / "README.md").read_text(), re.M
    )
}


def test_each_has_a_line():
    assert LINES.keys() == {path.stem for path in RESULTS.glob("*.json")}
    assert set(NAMES) >= LINES.keys()


@pytest.mark.parametrize("name", LINES)
def test_it_is_of_a_full_run_and_what_it_missed_is_told(name):
    result = json.loads((RESULTS / f"{name}.json").read_text())
    assert result["name"] == name
    assert result["command"].startswith(f"hydra experiment run {name} --scale full")
    assert result["machine"]["cpus"]
    assert result["rows"]
    missed = [row["figure"] for row in result["rows"] if row["met"] is False]
    assert bool(missed) == ("missed" in LINES[name]), missed
