"""Experiments on the data plane in short form, as users start them; and their clean-up."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from apps.cli import hydra
from mininet_scenarios.experiments.hydra_paper import fig7, fig9b_scenario
from mininet_scenarios.experiments.hydra_paper.fig9b_scenario import Fig9bPlan
from mininet_scenarios.experiments.scaling import Rates, forwarded_mbps
from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.stage import building
from mininet_scenarios.testbed import clean_up
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

from .test_testbed_cleanup import Machine

pytestmark = [pytest.mark.takes(45), pytest.mark.ovs, pytest.mark.usefixtures("machine")]

HYDRA = Path(sys.executable).with_name("hydra")


@pytest.fixture
def narrator():
    with ConsoleNarrator(Console(), 20) as narrator:
        yield narrator


def started(name: str, results: Path) -> subprocess.Popen[str]:
    command = [HYDRA, "experiment", "run", name, "--scale", "1:1000", "--results", results]
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def running(names: str) -> str:
    found = subprocess.run(["pgrep", "-x", names], capture_output=True, text=True, check=False)
    return found.stdout


@pytest.fixture(scope="module")
def fig7_results(
    machine: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """Duration of the short form's exchange that fills all circuits; its other exchange takes as
    long again.
    """
    results = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fig7, "SHORT", replace(fig7.SHORT, kernels=(fig7.ALLTOALL,)))
        words = ["experiment", "run", "fig7", "--scale", "1:1000", "--results", str(results)]
        run = CliRunner().invoke(hydra, words)
    assert run.exit_code == 0, run.output
    return results, json.loads((results / "fig7" / "result.json").read_text())


@pytest.mark.quiet("the experiment compares how long programs ran", takes_s=75)
def test_mpi_is_faster_on_circuits_and_went_through_the_network(fig7_results):
    _, result = fig7_results
    assert [row["figure"] for row in result["rows"] if row["met"] is False] == []
    [carried] = [row["ours"] for row in result["rows"] if "servers' ports" in row["figure"]]
    assert 1 < float(carried) < 1.5  # headers, acknowledgements, and messages of the launch
    assert {row[2] for row in result["tables"][0]["rows"]} == {"0", "3", "4"}  # circuits


@pytest.mark.quiet("the experiment compares how long programs ran", takes_s=75)
def test_every_rank_is_a_host_of_its_own(fig7_results):
    results, _ = fig7_results
    raw = json.loads((results / "fig7" / "raw-1.json").read_text())
    for outcome in raw["outcomes"]:
        ranks = outcome["run"]["ranks"]
        hosts = sorted(rank["host"] for rank in ranks)
        assert hosts == [f"h{a}{b}" for a in range(1, 5) for b in (1, 2)]
        assert all(rank["verified"] for rank in ranks)


@pytest.mark.quiet("the experiment compares how long programs ran", takes_s=75)
def test_the_report_has_it(fig7_results, tmp_path):
    results, _ = fig7_results
    command = [HYDRA, "experiment", "report", "--results", results, "--to", tmp_path / "page.html"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    page = (tmp_path / "page.html").read_text()
    assert '<section id="fig7">' in page
    assert "data:image/png;base64," in page


def test_interrupted_among_ranks_it_leaves_nothing_behind(tmp_path):
    clean_up()  # remains of a killed session do not fail the test
    before = Machine.now()
    run = started("fig7", tmp_path)
    deadline = time.monotonic() + 60
    while not running("mpi_kernels"):
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < deadline, "no rank was started"
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    printed = run.communicate(timeout=60)[0]
    assert run.returncode != 0, printed
    assert "Traceback" not in printed
    assert Machine.now() == before
    assert not running("mpi_kernels|orted|mpirun.openmpi")
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_gives_rates_that_the_machine_can_carry(tmp_path, narrator):
    mbps = forwarded_mbps(tmp_path / "calibration", narrator)
    scale = Rates(forwarded_mbps=mbps).scale(10_000.0)
    assert scale.mbps(10_000.0) < mbps
    assert scale.divisor > 1  # otherwise this machine would have to forward 25 Gb/s in userspace


def test_changed_by_hand_as_published(tmp_path, narrator):
    plan = Fig9bPlan(250_000, 8, 0.1, 3.0, 3, 25.0, 0.78, 2.0)
    times = building.times_its_rates(25.0)
    with building.stage_of(DEFAULT_CONFIG, times, tmp_path / "stage", narrator) as stage:
        changed = fig9b_scenario.by_hand(stage, plan, 1.0, narrator)
    [action] = changed.actions
    assert action.trigger != fig9b_scenario.PERIODIC
    steps = {step.step for step in action.timeline}
    assert "mirrors" in steps
    assert "divert" in steps
    assert not steps & {"drain", "carrier", "probe"}
    assert all(rank.verified for rank in changed.ranks)
