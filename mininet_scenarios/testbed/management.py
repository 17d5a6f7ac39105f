"""A management network, by which processes on the emulated servers reach the controller.

The network is apart from the networks under test, as in a data centre: the controller's REST server
listens on one end, and agents on servers connect from the other ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mininet_scenarios.testbed.build import Testbed
from mininet_scenarios.testbed.servers import run_in
from mininet_scenarios.testbed.shell import ip_batch

CONTROLLER_ADDRESS: Final = "10.254.0.1"
_PREFIX_LENGTH: Final = 16
_BRIDGE: Final = "hymgmt"
_INTERFACE: Final = "mgmt0"


@contextmanager
def management_network(testbed: Testbed, servers: Sequence[str]) -> Iterator[None]:
    """Join the servers and the controller's host, for the length of a block."""
    lines = [
        f"link add {_BRIDGE} type bridge",
        f"link set dev {_BRIDGE} addrgenmode none",
        f"address add {CONTROLLER_ADDRESS}/{_PREFIX_LENGTH} dev {_BRIDGE}",
        f"link set dev {_BRIDGE} up",
    ]
    ends = [f"hym-{name}" for name in servers]
    for end, name in zip(ends, servers, strict=True):
        pid = testbed.host(name).pid
        lines += [
            f"link add {end} type veth peer name {_INTERFACE} netns {pid}",
            f"link set dev {end} master {_BRIDGE}",
            f"link set dev {end} up",
        ]
    ip_batch(lines)
    try:
        for number, name in enumerate(servers, start=2):
            address = f"10.254.{number >> 8}.{number & 255}/{_PREFIX_LENGTH}"
            own = f"address add {address} dev {_INTERFACE}\nlink set dev {_INTERFACE} up\n"
            run_in(testbed.host(name), "ip", "-batch", "-", stdin=own)
        yield
    finally:
        ip_batch(f"link delete dev {name}" for name in (*ends, _BRIDGE))
