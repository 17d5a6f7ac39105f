"""What the stage reads of the kernel's tables."""

import socket
from pathlib import Path

from mininet_scenarios.stage.stage import listens


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
