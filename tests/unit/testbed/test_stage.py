"""The stage's files, its jobs' failures, and its reading of the kernel's tables."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from hydra.model import Fabric
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage.building import stage_with
from mininet_scenarios.stage.stage import Job, ScenarioError, Stage, listens, wait_for_file
from mininet_scenarios.testbed import Testbed


def test_who_listens_is_read_of_the_kernel_s_table() -> None:
    table = Path("/proc/net/tcp")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert not listens(table.read_text(), port)
        one.listen()
        assert listens(table.read_text(), port)
        with socket.create_connection(("127.0.0.1", port)) as other:
            assert not listens(table.read_text(), other.getsockname()[1])
    assert not listens(table.read_text(), port)


def job_that(program: str, output: Path) -> Job:
    with output.open("wb") as sink:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=sink, stderr=sink)
    process.wait()
    return Job("transfers on h31", process, output, 0.0)


def test_files_of_a_stage_have_absolute_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs in hosts have another working directory than the program that starts them."""
    monkeypatch.chdir(tmp_path)
    stage = Stage(cast(Testbed, None), cast(Fabric, None), {}, Path("results/stage"))
    assert stage.file("ready", "") == tmp_path / "results" / "stage" / "001-ready"


def test_a_stage_has_a_new_directory(tmp_path: Path) -> None:
    building = stage_with({}, tmp_path, cast(Narrator, None))
    with pytest.raises(ScenarioError, match=f"{tmp_path} exists: name a new directory"):
        building.__enter__()


def test_a_failure_has_whole_lines_and_the_place_of_the_output(tmp_path: Path) -> None:
    output = tmp_path / "003-transfers-h31.out"
    job = job_that(
        "for n in range(40): print(n, 'x' * 90, flush=True)\nraise FileNotFoundError('ready')",
        output,
    )
    for what, failing in (
        ("did not get ready", lambda: wait_for_file(tmp_path / "ready", job)),
        ("failed with 1", lambda: job.finish(1.0)),  # timed: has ended
    ):
        with pytest.raises(ScenarioError) as failed:
            failing()
        first, *lines = str(failed.value).splitlines()
        assert first == f"transfers on h31 {what}; the output ({output}) ends:"
        assert lines == output.read_text().splitlines()[-10:]
        assert lines[-1] == "FileNotFoundError: ready"


def test_a_failure_without_a_word_says_so(tmp_path: Path) -> None:
    job = job_that("raise SystemExit(3)", tmp_path / "out")
    with pytest.raises(ScenarioError, match=r"failed with 3; the output \(.*/out\) is empty"):
        job.finish(1.0)  # timed: has ended
