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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 1))
        with pytest.raises(OSError, match=f"each port from {port} to {port} is in use"):
            ports.free_port()
