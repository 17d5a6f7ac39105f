"""MPI kernels, run on this machine; and conclusions from their reports."""

import json
import os
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from mininet_scenarios.stage import mpi
from mininet_scenarios.stage.mpi import Kernel, MpiRun, RankReport, ServerBytes
from mininet_scenarios.stage.stage import ScenarioError
from mininet_scenarios.workloads import mpi_agent
from mininet_scenarios.workloads.reports import WorkloadError

RANKS = 4


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return mpi.compile_kernels(tmp_path_factory.mktemp("kernels"))


def run_here(program: Path, reports: Path, *work: str) -> subprocess.CompletedProcess[str]:
    launcher = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    settings = {"btl": "tcp,self", "btl_tcp_if_include": "lo", "mpi_yield_when_idle": "1"}
    options = ["-np", str(RANKS), *chain(*(("--mca", *one) for one in settings.items()))]
    return subprocess.run(
        [*launcher, *options, str(program), str(reports), *work],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(reports)},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "kernel",
    [
        Kernel("fft", 16, 3),
        Kernel("alltoall", 1000, 4, 0.05),
        Kernel("multigrid", 4000, 3),
        Kernel("sweeps", 4000, 2),
    ],
)
def test_ranks_count_what_they_send_and_check_what_arrives(program, tmp_path, kernel):
    work = [kernel.name, str(kernel.size), str(kernel.rounds), f"{kernel.pause_s * 1e3:g}"]
    done = run_here(program, tmp_path, *work)
    assert done.returncode == 0, done.stderr
    for number in range(RANKS):
        report = RankReport.from_json(json.loads((tmp_path / f"rank-{number}.json").read_text()))
        assert report.rank == number
        assert report.host == os.uname().nodename
        assert report.verified
        assert report.sent_bytes == kernel.rounds * kernel.bytes_out(RANKS)
        assert 0 < report.inside_s < report.ended_s - report.began_s
        assert report.ended_s - report.began_s >= kernel.rounds * kernel.pause_s


@pytest.mark.parametrize("work", [("sort", "1", "1", "0"), ("fft", "0", "1", "0"), ("fft", "8")])
def test_what_is_no_kernel_is_refused(program, tmp_path, work):
    command = [program, tmp_path, *work]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "usage" in refused.stderr


def test_the_agent_knows_the_servers_by_name(tmp_path):
    path = tmp_path / "servers.json"
    mpi_agent.write_places(path, {"h11": 4711})
    assert mpi_agent.place_of(path, "h11") == 4711
    with pytest.raises(WorkloadError, match=r"h99.*h11"):
        mpi_agent.place_of(path, "h99")


def rank(number: int, host: str, sent: int, *, verified: bool = True) -> RankReport:
    return RankReport(number, host, 10.0 + number, 20.0 + number, 5.5, sent, verified)


def run_of(*ranks: RankReport, wire: int = 1100) -> MpiRun:
    servers = {one.host: ServerBytes(one.sent_bytes, wire - 100, 100) for one in ranks}
    return MpiRun(Kernel("fft", 8, 1), ranks, servers)


def test_figures_of_a_run_by_hand():
    run = run_of(rank(0, "h11", 1000), rank(1, "h12", 500))
    assert run.seconds == 11
    assert run.inside_share == pytest.approx(0.5)
    assert run.least_on_wire == pytest.approx(1.1)
    assert run.optical_share == pytest.approx(1000 / 1100)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (run_of(rank(0, "h11", 1101)), "past the network"),
        (run_of(rank(0, "h12", 1000)), "not on h11"),
        (run_of(rank(0, "h11", 1000, verified=False)), "wrong"),
    ],
)
def test_a_run_that_can_t_be_counted_says_why(run, words):
    with pytest.raises(ScenarioError, match=words):
        mpi.check(run, ["h11"])
    mpi.check(run_of(rank(0, "h11", 1000)), ["h11"])


def test_a_report_that_lacks_a_field_is_refused():
    with pytest.raises(WorkloadError, match="rank"):
        RankReport.from_json({"rank": 0})
