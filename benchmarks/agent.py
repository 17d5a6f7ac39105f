"""Cost of an agent to its server: CPU, memory, and bytes on the wire.

``python -m benchmarks.agent``. The controller is the REST server of the reference fabric, the
sockets are real sockets on loopback, the agent is ``hydra agent`` in a separate process; a relay in
between counts bytes, HTTP's included. Reading sockets is compared with pyroute2 on the same kernel,
reports with the worst case of c-Through (section 7): every second 4 bytes for each rack, which is 4
KB for 1000 racks.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from pyroute2 import DiagSocket

from apps.agent.loop import Agent
from apps.agent.sockets import SocketReader
from apps.cli.client import ControllerClient
from apps.cli.output import CommandError, UnreachableError
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from hydra.demand.backlog import Waiting
from tests.unit.rest.fake_service import FakeService

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
SERVER: Final = "r1-h1"
SOCKETS: Final = (100, 1000, 4000)
RUNS: Final = 15
SECONDS: Final = 15.0
BYTES_PER_RACK: Final = 4.0
MB: Final = 1_000_000
TARGET_CPU_PERCENT: Final = 2.0
TARGET_BYTES_PER_S: Final = 4096.0


@contextmanager
def connections(count: int) -> Iterator[None]:
    """``count`` sockets of TCP connections on loopback, some with waiting bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * count + 256), hard))
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        for _ in range(count // 2):  # both ends of a connection are in this process
            client = stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0])
            client.sendall(bytes(1000))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def reading(count: int) -> Result:
    with connections(count), SocketReader() as reader, DiagSocket() as reference:
        reference.bind()

        def by_pyroute2(_run: int) -> int:
            families = (socket.AF_INET, socket.AF_INET6)
            return sum(
                message["idiag_wqueue"]
                for family in families
                for message in reference.get_sock_stats(family=family)
            )

        taken = median_ms(
            {"ours": lambda _run: reader.waiting(), "pyroute2": by_pyroute2},
            RUNS,
            time.process_time,
        )
    metric = f"CPU of a look at them, median of {RUNS}"
    return Result(
        f"{count} sockets", metric, "ms", "lower", taken["ours"], taken["pyroute2"], "pyroute2"
    )


class Relay:
    """Passes bytes on from one side to the other, and counts the bytes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.sent = 0
        self.answered = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._port))
            for pair in ((client, upstream, "sent"), (upstream, client, "answered")):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counter: str) -> None:
        try:
            while data := source.recv(65536):
                setattr(self, counter, getattr(self, counter) + len(data))
                sink.sendall(data)
        except OSError:
            pass  # one end has gone: close the other end
        finally:
            sink.close()


@contextmanager
def controller() -> Iterator[Relay]:
    fabric = load_configuration(CONFIG).fabric
    rest = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0)
    rest.start()
    relay = Relay(rest.port)
    try:
        yield relay
    finally:
        relay.close()
        rest.stop()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / MB


def process(relay: Relay) -> list[Result]:
    """Results of the whole agent with 1000 sockets and nothing to report."""
    command = [str(Path(sys.executable).with_name("hydra")), "agent", SERVER, "--url", relay.url]
    with connections(1000):
        agent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(3)
            before_s, sent, began_s = cpu_s(agent.pid), relay.sent, time.monotonic()
            time.sleep(SECONDS)
            elapsed_s = time.monotonic() - began_s  # on a busy machine more than SECONDS
            percent = (cpu_s(agent.pid) - before_s) / elapsed_s * 100
            rate, memory_mb = (relay.sent - sent) / elapsed_s, resident_mb(agent.pid)
        finally:
            agent.terminate()
            agent.wait()
    case = "1000 sockets, nothing to tell"
    worst = BYTES_PER_RACK * 1000
    return [
        Result(case, "share of a core", "%", "lower", percent, 100.0, "a core", TARGET_CPU_PERCENT),
        Result(case, "memory", "MB", "lower", memory_mb),
        Result(
            case, "sent", "B/s", "lower", rate, worst, "c-Through's worst case", TARGET_BYTES_PER_S
        ),
    ]


class Busy:
    """Sockets to every rack, with backlogs that change by more than the threshold at every read."""

    def __init__(self, racks: int) -> None:
        fabric = load_configuration(CONFIG).fabric
        prefixes = [rack.prefixes[0] for rack in fabric.racks if rack.prefixes][1 : racks + 1]
        self._addresses = [(ip_network(prefix).network_address + 1).packed for prefix in prefixes]
        self._looks = 0

    def waiting(self) -> Mapping[bytes, Waiting]:
        self._looks += 1
        octets = (10 + 5 * (self._looks % 2)) * MB + self._looks * MB // 10
        return dict.fromkeys(self._addresses, Waiting(octets, self._looks % 10 + 1))


def worst_case(relay: Relay, racks: int) -> Result:
    """Result of an agent with a change to report for every rack at every read."""
    with ControllerClient(relay.url) as client:
        path = f"/v1/agents/{SERVER}"
        agent = Agent(path, client, Busy(racks), (UnreachableError, CommandError))
        thread = threading.Thread(target=agent.run)
        thread.start()
        time.sleep(2)
        before, began_s = relay.sent, time.monotonic()
        time.sleep(SECONDS)
        rate = (relay.sent - before) / (time.monotonic() - began_s)
        agent.stop()
        thread.join()
    case = f"{racks} racks, each changing all the time"
    name = "c-Through's worst case"
    return Result(case, "sent", "B/s", "lower", rate, BYTES_PER_RACK * racks, name, 4096.0)


def main() -> int:
    results = [reading(count) for count in SOCKETS]
    with controller() as relay:
        results += process(relay)
        results += [worst_case(relay, racks) for racks in (10, 319)]
    return report("agent", results)


if __name__ == "__main__":
    run_benchmark(main)
