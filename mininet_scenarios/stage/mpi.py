"""MPI programs on the stage: real ranks, one on each server, over TCP and the emulated network.

Each rank has separate namespaces (:mod:`mininet_scenarios.workloads.mpi_agent`), and Open MPI may
only use TCP; counters at the servers' ports show that the ranks' bytes went through the network.
"""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mininet_scenarios.workloads
from mininet_scenarios.stage import stage as stages
from mininet_scenarios.stage.stage import ScenarioError, Stage, wait_for_file
from mininet_scenarios.testbed.layout import server_interface, uplink_interfaces
from mininet_scenarios.testbed.shell import TestbedError
from mininet_scenarios.testbed.shell import run as run_tool
from mininet_scenarios.workloads.mpi_agent import in_own_namespaces, write_places
from mininet_scenarios.workloads.reports import WorkloadError, read_report

START_S: Final = 3.0
"""Rough time until ranks have met, without the time per rank."""
START_S_EACH: Final = 0.3

_AT_ONCE: Final = 3
"""Number of simultaneous receivers of a rank of ``alltoall``. With all ranks at once, a queue
shared by many connections loses so much that the connections wait for TCP's timeouts.
"""
_WINDOW_BYTES_AT_10G: Final = 16e6
_LEAST_WINDOW_BYTES: Final = 8192

_SOURCE: Final = Path(mininet_scenarios.workloads.__file__).with_name("mpi_kernels.c")
# Names with the implementation: Debian may have a second MPI.
_COMPILER: Final = "mpicc.openmpi"
_LAUNCHER: Final = "mpirun.openmpi"
_STARTERS: Final = ("rsh", "ssh")
"""Parameters for the program that starts programs on other hosts: Open MPI's name until version 4,
and the name from 5 on. Each version ignores the other version's parameter.
"""
_AGENT: Final = "mininet_scenarios.workloads.mpi_agent"


@dataclass(frozen=True, slots=True)
class Kernel:
    """Common work of all ranks."""

    name: str
    """``fft``: a cube of complex numbers, transformed there and back; ``alltoall``: bytes from each
    to each, several at a time; ``allreduce``: numbers summed over all ranks, in a ring;
    ``multigrid`` and ``sweeps``: faces exchanged with six neighbours in a grid of ranks.
    """
    size: int
    """The side of the cube, a multiple of the number of ranks; or bytes from each to each; or
    bytes of the numbers of a rank; or bytes of a face.
    """
    rounds: int
    pause_s: float = 0.0
    """Pause after each round, instead of computing."""

    def bytes_between(self, ranks: int) -> float:
        """Bytes sent in a round by one rank to one other rank."""
        if self.name == "fft":
            return 2 * 16 * self.size**3 / ranks**2
        return self.size

    def bytes_out(self, ranks: int) -> int:
        """Bytes sent in a round by one rank to all others."""
        if self.name == "multigrid":
            levels = range(self.size.bit_length())
            return 2 * _dimensions(ranks) * sum(self.size >> 2 * level for level in levels)
        if self.name == "sweeps":
            solved = (math.isqrt(ranks) - 1) * (self.size // 3 + self.size // 6)
            return _dimensions(ranks) * (2 * self.size + solved)
        return round((ranks - 1) * self.bytes_between(ranks))


def _dimensions(ranks: int) -> int:
    """Dimensions of a grid of ranks, at most three, in which a rank has neighbours."""
    prime_factors, divisor = 0, 2
    while ranks > 1:
        while ranks % divisor == 0:
            ranks //= divisor
            prime_factors += 1
        divisor += 1
    return min(3, prime_factors)


@dataclass(frozen=True, slots=True)
class RankReport:
    """Report of ``mpi_kernels`` on one rank."""

    rank: int
    host: str
    began_s: float
    """Time by ``CLOCK_MONOTONIC`` at which all ranks had met."""
    ended_s: float
    inside_s: float
    """Time in MPI calls that move data."""
    sent_bytes: int
    """Bytes to other ranks."""
    verified: bool
    """True if the received data were right."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RankReport:
        """Raises WorkloadError if a field is missing."""
        try:
            return cls(**data)
        except TypeError as error:
            raise WorkloadError(f"an MPI rank's report is not understood: {error}") from error


@dataclass(frozen=True, slots=True)
class ServerBytes:
    """Bytes sent by a server during a run, by the rank's count and by the ports' count."""

    sent: int
    optical: int
    """Bytes at the optical uplink, with headers and the messages of MPI and TCP."""
    electrical: int
    """Bytes at the electrical uplink; 0 if a single uplink carries both."""

    @property
    def wire(self) -> int:
        return self.optical + self.electrical


@dataclass(frozen=True, slots=True)
class MpiRun:
    """A completed run of a kernel."""

    kernel: Kernel
    ranks: tuple[RankReport, ...]
    servers: Mapping[str, ServerBytes]

    @property
    def seconds(self) -> float:
        """Time from the moment at which all ranks had met to the end of the last rank."""
        return max(rank.ended_s for rank in self.ranks) - min(rank.began_s for rank in self.ranks)

    @property
    def inside_share(self) -> float:
        """Share of the time that the ranks spent in MPI, on average."""
        return sum(rank.inside_s for rank in self.ranks) / len(self.ranks) / self.seconds

    @property
    def least_on_wire(self) -> float:
        """Least ratio of the bytes sent by a server's ports to the bytes sent by its rank."""
        return min(server.wire / server.sent for server in self.servers.values())

    @property
    def optical_share(self) -> float:
        """Share of the servers' bytes on optical uplinks."""
        everything = sum(server.wire for server in self.servers.values())
        return sum(server.optical for server in self.servers.values()) / everything


def compile_kernels(directory: Path) -> Path:
    """Compile ``mpi_kernels``; return the program's path. Raises TestbedError."""
    program = directory / "mpi_kernels"
    libraries = ["-lfftw3_mpi", "-lfftw3", "-lm"]
    # Dynamic: libraries must find the program's own sched_yield and counting MPI calls.
    options = ["-O2", "-Wall", "-Wextra", "-rdynamic"]
    run_tool([_COMPILER, *options, "-o", str(program), str(_SOURCE), *libraries])
    return program


def check_installed(directory: Path) -> None:
    """Raise TestbedError, naming the missing tools, unless the kernels can be compiled and
    started.
    """
    for tool in (_COMPILER, _LAUNCHER):
        if shutil.which(tool) is None:
            raise TestbedError(
                f"{tool} is not installed: run `make bootstrap`, which installs Open MPI and FFTW"
            )
    try:
        compile_kernels(directory)
    except TestbedError as error:
        raise TestbedError(
            "MPI programs don't compile: run `make bootstrap`, which installs Open MPI and FFTW; "
            f"{error}"
        ) from error


@dataclass(frozen=True, slots=True)
class Job:
    """Places of a kernel's ranks, and their connections."""

    program: Path
    servers: Sequence[str]
    """Servers of the ranks, one each, in rank order."""
    window_bytes: int | None
    """Window of each TCP connection; None: the server's default."""


def window_bytes(circuit_mbps: float) -> int:
    """Window of a TCP connection: scaled as the rates are, but some frames at least."""
    return max(_LEAST_WINDOW_BYTES, round(_WINDOW_BYTES_AT_10G * circuit_mbps / 10_000))


@dataclass(frozen=True, slots=True)
class Running:
    """A kernel under way."""

    stage: Stage
    job: Job
    kernel: Kernel
    reports: Path
    mpirun: stages.Job
    before: Mapping[str, tuple[int, int]]

    def wait_until_begun(self, timeout_s: float) -> None:
        """Wait until all ranks have met. Raises ScenarioError after the timeout."""
        wait_for_file(self.reports / "begun", self.mpirun, timeout_s)

    def finish(self, timeout_s: float) -> MpiRun:
        """Wait for the end of the run.

        Raises ScenarioError if the run fails, takes longer than ``timeout_s`` or brings wrong
        bytes, or if the servers' ports sent less than their ranks.
        """
        self.mpirun.finish(timeout_s)
        after = sent_by_uplinks(self.stage)
        ranks = tuple(
            RankReport.from_json(read_report(self.reports / f"rank-{number}.json"))
            for number in range(len(self.job.servers))
        )
        run = MpiRun(
            self.kernel, ranks, {rank.host: self._carried(rank, after[rank.host]) for rank in ranks}
        )
        check(run, self.job.servers)
        return run

    def _carried(self, rank: RankReport, after: tuple[int, int]) -> ServerBytes:
        optical, electrical = self.before[rank.host]
        return ServerBytes(rank.sent_bytes, after[0] - optical, after[1] - electrical)


@contextmanager
def running(stage: Stage, job: Job, kernel: Kernel) -> Iterator[Running]:
    """Start a kernel; ended with the block."""
    reports = stage.file("ranks", "")
    reports.mkdir()
    work = [kernel.name, str(kernel.size), str(kernel.rounds), f"{kernel.pause_s * 1e3:.3f}"]
    launcher = _launcher(stage, job, kernel, reports / "servers.json")
    launch = shlex.join([*launcher, str(job.program), str(reports), *work])
    first = job.servers[0]
    stage.introduce(job.servers)
    before = sent_by_uplinks(stage)
    with stage.job(first, "mpirun", in_own_namespaces(first, launch)) as mpirun:
        yield Running(stage, job, kernel, reports, mpirun, before)


def run_kernel(stage: Stage, job: Job, kernel: Kernel, timeout_s: float) -> MpiRun:
    """Run a kernel to the end. Raises ScenarioError as :meth:`Running.finish`."""
    with running(stage, job, kernel) as started:
        return started.finish(timeout_s)


def _launcher(stage: Stage, job: Job, kernel: Kernel, places: Path) -> list[str]:
    write_places(places, {name: stage.testbed.host(name).pid for name in job.servers})
    first = stage.fabric.server_by_name[job.servers[0]].addresses
    subnet = str(next(address.network for address in first if address.version == 4))
    starter = {
        "agent": f"{sys.executable} -m {_AGENT} {places}",
        "no_tree_spawn": "1",  # servers can't start programs on each other
        "num_concurrent": str(len(job.servers)),
    }
    parameters = {
        "plm": "^slurm",
        **{f"plm_{name}_{key}": value for name in _STARTERS for key, value in starter.items()},
        "btl_tcp_if_include": subnet,
        "btl_tcp_sndbuf": str(job.window_bytes or 0),
        "btl_tcp_rcvbuf": str(job.window_bytes or 0),
        "pml": "ob1",
        "btl": "tcp,self",
        "mpi_yield_when_idle": "1",
    }
    if kernel.name == "alltoall":  # the default sends large messages to one rank after the other
        parameters |= {
            "coll_tuned_use_dynamic_rules": "1",
            "coll_tuned_alltoall_algorithm": "linear_sync",
            "coll_tuned_alltoall_algorithm_max_requests": str(_AT_ONCE),
        }
    if kernel.name == "allreduce":
        parameters |= {
            "coll_tuned_use_dynamic_rules": "1",
            "coll_tuned_allreduce_algorithm": "ring",
        }
    return [
        *(_LAUNCHER, "--allow-run-as-root", "--bind-to", "none"),
        "--leave-session-attached",  # a daemon would outlive the first process of its namespaces
        *(
            "-np",
            str(len(job.servers)),
            "--host",
            ",".join(f"{server}:1" for server in job.servers),
        ),
        *(word for key, value in parameters.items() for word in ("--mca", key, value)),
    ]


def sent_by_uplinks(stage: Stage) -> dict[str, tuple[int, int]]:
    """Bytes sent by each server so far, over the optical and the electrical uplink.

    A plain server has a single uplink, its own interface.
    """
    queues = stage.testbed.queues()
    sent = {}
    for server in stage.fabric.servers:
        optical, electrical = uplink_interfaces(stage.fabric, server)
        if server.vswitch is None:
            optical = electrical = server_interface(server)
        separate = electrical != optical and electrical in queues
        sent[server.name] = (
            queues[optical].sent_bytes,
            queues[electrical].sent_bytes if separate else 0,
        )
    return sent


def check(run: MpiRun, servers: Sequence[str]) -> None:
    """Raise ScenarioError for a run that can't be counted; expects one rank on each of
    ``servers``.
    """
    hosts = [rank.host for rank in run.ranks]
    if hosts != list(servers):
        raise ScenarioError(f"ranks ran on {', '.join(hosts)}, not on {', '.join(servers)}")
    for rank in run.ranks:
        if not rank.verified:
            raise ScenarioError(f"rank {rank.rank} on {rank.host}: wrong data arrived")
        if (wire := run.servers[rank.host].wire) < rank.sent_bytes:
            raise ScenarioError(
                f"the ports of {rank.host} sent {wire} B of the {rank.sent_bytes} B that its rank "
                "sent: the rest went past the network"
            )
