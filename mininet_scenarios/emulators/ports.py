"""Ports of the loopback interface for programs that have to be told one before they listen."""

from __future__ import annotations

import socket
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives to whoever asks for any (ip_local_port_range: from 32768)."""


def free_port() -> int:
    """A TCP port that nobody uses, and that no other caller gets as long as this process lives.

    An abstract Unix socket marks it as taken: its name exists once in a network namespace, as the
    port does, and ends with the process. Raises OSError if none is left.
    """
    for port in _PORTS:
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0hydra-port-{port}")
            with socket.create_server(("127.0.0.1", port)):
                mark.detach()  # it stays open until this process ends
                return port
        except OSError:
            mark.close()
    raise OSError(f"each port from {_PORTS.start} to {_PORTS.stop - 1} is in use")
