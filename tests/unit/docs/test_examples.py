"""examples/ are few, short, and all run: here or on the tutorial's network."""

import os
import subprocess
import sys
from pathlib import Path

from .blocks import ROOT

EXAMPLES = ROOT / "examples"
ON_A_NETWORK = (ROOT / "tests" / "integration" / "test_tutorial.py").read_text()


def test_each_is_listed_and_run_by_a_test():
    listed = (ROOT / "docs" / "examples.md").read_text()
    own = Path(__file__).read_text()
    programs = [path for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh"}]
    assert len(programs) >= 5
    for path in programs:
        assert f"| `examples/{path.name}` |" in listed, path
        assert path.name in ON_A_NETWORK or path.name in own, f"no test runs {path.name}"


def test_algorithms_are_compared_without_a_controller():
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [EXAMPLES / "plan_offline.sh"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hydra-bfs+" in done.stdout
    assert "edmonds" in done.stdout
