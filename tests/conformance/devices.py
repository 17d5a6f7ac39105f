"""The devices that every optical driver is held against. A new driver adds one entry here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hydra.model import Login, Plane, PlaneId
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.netconfd import Netconfd
from tests.conformance.candidate import Bench, Candidate

REPOSITORY = Path(__file__).parents[2]
PORTS = 16
SWITCHING_MS = 5.0
COMMON_FAULTS = frozenset(
    {
        FaultKind.REFUSE,
        FaultKind.SILENT,
        FaultKind.PARTIAL,
        FaultKind.STEAL,
        FaultKind.LOSE_REPLY,
        FaultKind.SLOW,
        FaultKind.MUTE,
        FaultKind.DEAD,
    }
)


def emulated(
    driver: str,
    module: str,
    *arguments: str,
    login: Login | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[[], AbstractContextManager[Bench]]:
    """An emulator of ours, as a process of its own on a real socket."""

    @contextmanager
    def start() -> Iterator[Bench]:
        command = [sys.executable, "-m", f"mininet_scenarios.emulators.{module}"]
        command += ["--name", "000042", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        command += ["--ports", f"{PORTS}", "--switching-ms", f"{SWITCHING_MS:g}", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as server:
            try:
                _, _, address, _, admin = server.stdout.readline().split()
                host, _, port = admin.rpartition(":")
                plane = Plane(
                    PlaneId(0), "p1", driver, address, PORTS, SWITCHING_MS, 100.0, login,
                    options or {},
                )  # fmt: skip
                control = AdminClient(host, int(port))
                yield Bench(plane, 2.0, control)
            finally:
                server.terminate()
            assert server.wait(10) == 0

    return start


def netconfd(datastore: str) -> Callable[[], AbstractContextManager[Bench]]:
    """A real NETCONF server on our modules, written through this datastore."""

    @contextmanager
    def start() -> Iterator[Bench]:
        with TemporaryDirectory() as directory, Netconfd(Path(directory), datastore) as server:
            server.become_polatis(PORTS)
            options = {"host_key": server.host_key, "stream": "NETCONF"}
            plane = Plane(
                PlaneId(0), "p1", "polatis-netconf", server.address, PORTS, 0.0, 100.0,
                server.login, options,
            )  # fmt: skip
            yield Bench(plane, 3.0)

    return start


CANDIDATES = [
    Candidate("polatis-netconf", netconfd("candidate"), variant="netconfd"),
    Candidate("polatis-scpi", emulated("polatis-scpi", "polatis"), faults=COMMON_FAULTS),
]
