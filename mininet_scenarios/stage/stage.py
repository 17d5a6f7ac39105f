"""The place of a scenario: a testbed, controllers, and jobs in the testbed's hosts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

import mininet_scenarios
from apps.process.configuration import load_configuration
from hydra.errors import HydraError
from hydra.model import Fabric
from hydra.policy import Mode, Sharing
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.emulators.admin import AdminError
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.stage.controller_client import ControllerClient
from mininet_scenarios.stage.controller_process import (
    READY_TIMEOUT_S,
    ControllerProcess,
    Launch,
    launch,
    launch_with,
)
from mininet_scenarios.testbed import Testbed
from mininet_scenarios.testbed.layout import server_interface
from mininet_scenarios.testbed.servers import run_in
from mininet_scenarios.workloads import iperf3
from mininet_scenarios.workloads.iperf3 import ThroughputRun

CALM_SHARE: Final = 0.01
"""Share of a server's rate that the counters may still show when a case begins."""
_POLL_S: Final = 0.02
_LISTENING: Final = "0A"
"""TCP_LISTEN in the kernel's table of sockets."""
CONGESTION: Final = "cubic"
"""Congestion control: the default of Linux and of the papers' time, regardless of this machine's
default.
"""
_LAST_LINES: Final = 10
"""Lines of a job's output in an error."""
_REPOSITORY: Final = Path(mininet_scenarios.__file__).parents[1]


class ScenarioError(HydraError):
    """A run that can't be counted: a condition of the scenario was not met."""


@dataclass(slots=True)
class Job:
    """A process in a host, with output in a file."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    started_s: float
    """Time by ``CLOCK_MONOTONIC``."""

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Ask the job to finish its report and end; kill the job after a while."""
        if self.running:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)
        self.kill()

    def kill(self) -> None:
        """End the job now; unwritten output is lost."""
        if self.running:
            self.process.kill()
            self.process.wait()

    def finish(self, timeout_s: float) -> str:
        """Wait for the end; return the output. Raises ScenarioError if the job fails or hangs."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ScenarioError(f"{self.name} did not end within {timeout_s:.0f} s") from error
        if code != 0:
            raise self.failure(f"failed with {code}")
        return self.text()

    def failure(self, what: str) -> ScenarioError:
        """An error with the last lines of the output, and the place of all output."""
        lines = self.text().strip().splitlines()
        said = "is empty" if not lines else "ends:\n" + "\n".join(lines[-_LAST_LINES:])
        return ScenarioError(f"{self.name} {what}; the output ({self.output}) {said}")

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")


@dataclass(slots=True)
class Stage:
    """A testbed, the testbed's configuration, and a directory for files."""

    testbed: Testbed
    fabric: Fabric
    config: Mapping[str, Any]
    """The configuration file as parsed YAML; the policy is varied from run to run."""
    work_dir: Path
    _jobs: int = field(default=0, init=False)
    _kept: _Kept | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.work_dir = self.work_dir.resolve()  # programs in hosts have another working directory

    # -- controllers ---------------------------------------------------------------------------

    @contextmanager
    def one_controller(self, *, calm: bool = True) -> Iterator[None]:
        """Within the block, all :meth:`process` calls use the same running controller.

        The controller reloads its configuration file, and is replaced if a reload is not enough or
        the kind of launch differs. In between, the mode is ``on-request``. Before the mode is
        ``periodic`` again, the controller's counters calm down, unless all blocks send the same and
        ``calm`` is False.
        """
        self._kept = _Kept(CALM_SHARE * self.fabric.server_rate_mbps if calm else None)
        try:
            yield
        finally:
            self._kept.stop()
            self._kept = None

    @contextmanager
    def controller(
        self, policy: Mapping[str, Any], cycle: CycleName = CycleName.HITLESS, rules: int = 0
    ) -> Iterator[ControllerClient]:
        """A client of a controller with changes to the policy; both end with the block.

        The controller plays ``cycle``, with each push filled up to ``rules`` rules.
        """
        with (
            self.process({**policy, **cycle.policy}, launch=launch_with(cycle, rules)) as process,
            ControllerClient(process.base_url) as client,
        ):
            yield client

    def written(self, policy: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
        """A new configuration file, with changes to the policy and the controller's section."""
        self._jobs += 1
        path = self.work_dir / f"fabric-{self._jobs}.yaml"
        own = {**self.config.get("controller", {}), **settings}
        document = {
            **self.config,
            "controller": {**own, "journal": str(self.work_dir / "journal.db")},
            "policy": {**self.config.get("policy", {}), **policy},
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return path

    @contextmanager
    def process(
        self,
        policy: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        launch: Launch = launch,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> Iterator[ControllerProcess]:
        """A controller, ready to work, with changes to the policy and the controller's section.

        The controller ends with the block, or with the block of :meth:`one_controller`. The data
        plane stays unchanged when a controller ends, and the next controller takes over.
        """
        path = self.written(policy, settings or {})
        if self._kept is not None:
            with self._kept.serve(path, launch) as process:
                yield process
            return
        with ControllerProcess(path, launch=launch, ready_timeout_s=ready_timeout_s) as process:
            yield process

    # -- jobs in hosts -------------------------------------------------------------------------

    def address(self, server: str) -> str:
        """The first IPv4 address of a server."""
        addresses = self.fabric.server_by_name[server].addresses
        return str(next(address.ip for address in addresses if address.version == 4))

    def introduce(self, servers: Sequence[str]) -> None:
        """Give all servers each other's MAC: with queues full, three lost requests end a
        connection.
        """
        known = self.fabric.server_by_name
        for here in servers:
            device = server_interface(known[here])
            lines = [
                f"neighbour replace {self.address(name)} lladdr {known[name].mac} dev {device} "
                "nud permanent"
                for name in servers
                if name != here
            ]
            run_in(self.testbed.host(here), "ip", "-batch", "-", stdin="\n".join(lines))

    def file(self, stem: str, suffix: str) -> Path:
        """A new file name in the work directory."""
        self._jobs += 1
        return self.work_dir / f"{self._jobs:03d}-{stem}{suffix}"

    @contextmanager
    def job(self, server: str, name: str, command: Sequence[str]) -> Iterator[Job]:
        """Run ``command`` in a server's namespace; a job left at the end of the block is killed."""
        output = self.file(f"{name}-{server}", ".out")
        with output.open("wb") as sink:
            process = self.testbed.host(server).popen(
                list(command), stdout=sink, stderr=subprocess.STDOUT, cwd=_REPOSITORY
            )
        job = Job(f"{name} on {server}", process, output, time.monotonic())
        try:
            yield job
        finally:
            job.kill()

    @contextmanager
    def workload(self, server: str, module: str, arguments: Sequence[str]) -> Iterator[Job]:
        """Run a module of :mod:`mininet_scenarios.workloads` in a server's namespace."""
        command = [sys.executable, "-m", f"mininet_scenarios.workloads.{module}", *arguments]
        with self.job(server, module, command) as job:
            yield job

    # -- counters ------------------------------------------------------------------------------

    def losses(self) -> Losses:
        """Frames lost since the testbed was built, by place; takes up to half a second a plane."""
        dark: dict[str, int] = {}
        for plane in self.fabric.planes:
            try:
                counters = self.testbed.ocs(plane.name).counters()
            except AdminError as error:
                raise ScenarioError(f"plane {plane.name} can't be asked: {error}") from error
            for port in counters.ports:
                dark[f"{plane.name}: at the ToR on port {port.egress}"] = port.at_tor
            at_tors = sum(port.at_tor for port in counters.ports)
            dark[f"{plane.name}: in the switch"] = counters.dark_frames - at_tors
        queues = {name: queue.dropped_frames for name, queue in self.testbed.queues().items()}
        return Losses(dark, queues)


def sent_bytes(interfaces: Iterable[str]) -> int:
    """Total bytes sent by interfaces of the host, headers included."""
    counters = (Path(f"/sys/class/net/{name}/statistics/tx_bytes") for name in interfaces)
    return sum(int(counter.read_text()) for counter in counters)


@dataclass(slots=True)
class _Kept:
    """A controller kept running as long as a reload of its file is enough for the next block."""

    calm_mbps: float | None
    """Highest measured rate of a rack pair at which the controller goes on; None: any."""
    _process: ControllerProcess | None = None

    @contextmanager
    def serve(self, path: Path, launch: Launch) -> Iterator[ControllerProcess]:
        """The controller with the configuration at ``path``, for the length of the block."""
        if (
            self._process is None
            or self._process.launch != launch
            or not self._reloads(self._process, path)
        ):
            self.stop()
            self._process = ControllerProcess(path, launch=launch)
            self._process.start()
        process = self._process
        yield process
        with ControllerClient(process.base_url) as client:
            # Slotted sharing has no schedule in this mode.
            idle = {"mode": Mode.ON_REQUEST.value, "sharing": Sharing.BY_DEMAND.value}
            client.amend(idle)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _reloads(self, process: ControllerProcess, path: Path) -> bool:
        """Load the file at ``path`` into the controller; False, with nothing done, if
        impossible.
        """
        process.config.write_bytes(path.read_bytes())
        with ControllerClient(process.base_url) as client:
            if client.reload(dry_run=True):
                return False
            periodic = load_configuration(path).policy.mode is Mode.PERIODIC
            if periodic and self.calm_mbps is not None:
                calm_down(client, self.calm_mbps)
            client.reload()
        return True


def calm_down(client: ControllerClient, calm_mbps: float) -> None:
    """Wait until no pair of racks is measured above ``calm_mbps``. Raises ScenarioError after a
    while.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while (mbps := client.most_measured_mbps()) > calm_mbps:
        if time.monotonic() > deadline_s:
            raise ScenarioError(
                f"the counters still say {mbps:.2f} Mb/s after {PATIENCE_S:.0f} s in which "
                "nobody should have sent"
            )
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Losses:
    """Frames lost, by place; places are of two kinds."""

    dark: Mapping[str, int]
    """Frames at dark or unconnected OCS ports."""
    queues: Mapping[str, int]
    """Frames in the queues of transmitters, by interface."""

    @property
    def dark_frames(self) -> int:
        return sum(self.dark.values())

    def since(self, before: Losses) -> Losses:
        """Losses since ``before`` was taken; places without loss are left out."""
        return Losses(_growth(before.dark, self.dark), _growth(before.queues, self.queues))


def _growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    grown = {place: count - before.get(place, 0) for place, count in sorted(after.items())}
    return {place: count for place, count in grown.items() if count}


def wait_for_file(path: Path, job: Job, timeout_s: float = PATIENCE_S) -> None:
    """Wait until ``job`` has made ``path``. Raises ScenarioError if the job ends or takes too
    long.
    """
    deadline_s = time.monotonic() + timeout_s
    while not path.exists():
        if not job.running or time.monotonic() > deadline_s:
            raise job.failure("did not get ready")
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Transfer:
    """An iperf3 transfer under way, with both ends."""

    server: Job
    client: Job

    def finish(self, timeout_s: float) -> tuple[ThroughputRun, ThroughputRun]:
        """Results of the receiving and the sending end."""
        self.client.finish(timeout_s)
        received = self.server.finish(timeout_s)
        return iperf3.parse(received), iperf3.parse(self.client.text())


@contextmanager
def tcp_transfer(
    stage: Stage,
    source: str,
    destination: str,
    port: int,
    seconds: float,
    *,
    streams: int = 1,
    rate_mbps: float | None = None,
    average_mbps: float | None = None,
    congestion: str | None = None,
) -> Iterator[Transfer]:
    """TCP by iperf3 from one server to another, ended with the block."""
    command = iperf3.client_command(
        stage.address(destination),
        port,
        seconds,
        streams=streams,
        rate_mbps=rate_mbps,
        average_mbps=average_mbps,
        congestion=congestion,
    )
    with _transfer(stage, source, destination, port, command) as transfer:
        yield transfer


@contextmanager
def udp_transfer(
    stage: Stage,
    source: str,
    destination: str,
    port: int,
    seconds: float,
    *,
    average_mbps: float,
    datagram_bytes: int,
) -> Iterator[Transfer]:
    """UDP by iperf3 from one server to another, ended with the block; rate and bytes are payload.

    The sender learns nothing about the capacity of links: the excess is lost.
    """
    command = iperf3.client_command(
        stage.address(destination),
        port,
        seconds,
        average_mbps=average_mbps,
        datagram_bytes=datagram_bytes,
    )
    with _transfer(stage, source, destination, port, command) as transfer:
        yield transfer


@contextmanager
def _transfer(
    stage: Stage, source: str, destination: str, port: int, command: Sequence[str]
) -> Iterator[Transfer]:
    listening = iperf3.server_command(stage.address(destination), port)
    with stage.job(destination, "iperf3-server", listening) as server:
        _wait_for_listener(stage.testbed.host(destination).pid, port, server)
        with stage.job(source, "iperf3-client", command) as client:
            yield Transfer(server, client)


def _wait_for_listener(
    namespace_pid: int, port: int, job: Job, timeout_s: float = PATIENCE_S
) -> None:
    """Wait until a job listens at a TCP port. Raises ScenarioError if the job ends or takes too
    long.
    """
    tables = [Path(f"/proc/{namespace_pid}/net/{name}") for name in ("tcp", "tcp6")]
    deadline_s = time.monotonic() + timeout_s
    while not any(listens(table.read_text(), port) for table in tables):
        if not job.running or time.monotonic() > deadline_s:
            raise job.failure("did not get ready")
        time.sleep(_POLL_S)


def listens(table: str, port: int) -> bool:
    """True if a table of sockets, as in proc(5), has a socket listening at ``port``."""
    sockets = (line.split() for line in table.splitlines()[1:])
    return any(words[1].endswith(f":{port:04X}") and words[3] == _LISTENING for words in sockets)
