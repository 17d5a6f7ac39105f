"""The experiment on packets of examples/own_package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_package import installed
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]

ROOT = Path(__file__).parents[2]


def test_its_experiment_runs_on_packets(tmp_path: Path) -> None:
    places = f"{installed(tmp_path)}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "apps.cli"),
            *("experiment", "run", "skewed-transfers", "--scale", "1:5", "--json"),
        ],
        env={**os.environ, "PYTHONPATH": places},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["figure"] for row in rows] == ["busiest-first", "anytime"]
    plot = tmp_path / "results" / "skewed-transfers" / "ends.png"
    assert plot.read_bytes().startswith(b"\x89PNG")
