"""tests/own_network.sh: simultaneous testbeds and controllers of the same shipped fabric."""

import os
import subprocess
from pathlib import Path

import pytest

from apps.process.configuration import load_configuration
from mininet_scenarios.testbed.shipped import DEFAULT_CONFIG

pytestmark = [pytest.mark.ovs, pytest.mark.takes(3)]

OWN_NETWORK = Path(__file__).parents[1] / "own_network.sh"


def test_a_journal_of_another_network_is_not_there(tmp_path: Path) -> None:
    journal = load_configuration(DEFAULT_CONFIG).controller.journal
    there = Path(journal).parent / f"{tmp_path.name}-{os.getpid()}"
    program = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(exist_ok=False)"
    for _ in range(2):
        subprocess.run([OWN_NETWORK, "-c", program, there], check=True)
    assert not there.exists()
