"""The demo cleans up, whenever it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mininet_scenarios.testbed import clean_up
from tests.waiting import wait_until

from .test_testbed_cleanup import Machine

pytestmark = [pytest.mark.takes(50), pytest.mark.ovs, pytest.mark.usefixtures("machine")]


def wait_until_it_runs(demo: subprocess.Popen[str], out: Path) -> None:
    """Time until the controller is up and the first ranks exchange data."""
    wait_until(lambda: list(out.glob("work/b/*alltoall*.out")) or demo.poll() is not None)
    assert demo.poll() is None, demo.communicate()[0]
    time.sleep(0.5)  # timed: the interruption comes somewhere in the exchange


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    clean_up()  # remains of a killed session do not fail the test
    before = Machine.now()
    command = [sys.executable, "-m", "mininet_scenarios.demo", "--quick", "--only", "b"]
    demo = subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until_it_runs(demo, tmp_path)
    demo.send_signal(signal.SIGTERM)
    printed = demo.communicate(timeout=60)[0]
    assert demo.returncode == 128 + signal.SIGTERM, printed
    assert "interrupted" in printed
    assert "Traceback" not in printed
    assert Machine.now() == before
    assert not (tmp_path / "result.json").exists()
