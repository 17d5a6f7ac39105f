"""Free ports of the loopback interface, for programs with a port option."""

from __future__ import annotations

import socket
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below Linux's ephemeral ports (ip_local_port_range: from 32768)."""


def free_port() -> int:
    """A free TCP port, given to no other caller during the life of this process.

    An abstract Unix socket marks the port as taken: like the port, the socket's name is unique in a
    network namespace, and is freed at the end of the process. Raises OSError without a free port.
    """
    for port in _PORTS:
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0hydra-port-{port}")
            with socket.create_server(("127.0.0.1", port)):
                mark.detach()  # the mark stays open until this process ends
                return port
        except OSError:
            mark.close()
    raise OSError(f"each port from {_PORTS.start} to {_PORTS.stop - 1} is in use")
