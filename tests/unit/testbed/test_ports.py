import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mininet_scenarios.emulators import ports

ROOT = Path(__file__).parents[3]
PRINT_ONE = "from mininet_scenarios.emulators.ports import free_port; print(free_port())"


def test_nobody_gets_one_twice_and_each_can_be_used() -> None:
    ours = [ports.free_port() for _ in range(5)]
    done = subprocess.run(
        [sys.executable, "-c", PRINT_ONE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert len({*ours, int(done.stdout)}) == 6
    for port in ours:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_one_that_somebody_listens_at_is_passed_over(monkeypatch) -> None:
    monkeypatch.setattr(ports, "_PORTS", range(32_500, 32_501))
    with (
        socket.create_server(("127.0.0.1", 32_500)),
        pytest.raises(OSError, match="each port from 32500 to 32500 is in use"),
    ):
        ports.free_port()
    assert ports.free_port() == 32_500
