"""deploy/container, checked by hadolint; docs/machines.md has the date of the last image build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[3] / "deploy" / "container" / "Containerfile"


def complaints(file: Path) -> str:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [hadolint, "--no-color", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode != 0) == bool(done.stdout), done.stderr
    return done.stdout


def test_the_linter_has_nothing_to_say():
    assert complaints(FILE) == ""


def test_the_linter_finds_who_is_root(tmp_path):
    """The checker finds a fault."""
    file = tmp_path / "Containerfile"
    file.write_text(FILE.read_text().replace("USER 6653", "USER root"))
    assert "DL3002" in complaints(file)


def test_the_container_is_nobody_s_root_and_tells_how_it_is():
    """The documented `podman run` has both restrictions: a read-only root, and no capabilities."""
    lines = FILE.read_text().splitlines()
    stage = lines[max(at for at, line in enumerate(lines) if line.startswith("FROM")) :]
    kinds = [line.split()[0] for line in stage if line and line[0].isalpha()]
    assert {"USER", "HEALTHCHECK", "VOLUME", "ENTRYPOINT"} <= set(kinds)
    assert "RUN" not in kinds[kinds.index("USER") :]
