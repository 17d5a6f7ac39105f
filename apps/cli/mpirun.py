"""``hydra mpirun``: reserve an MPI job's bandwidth, run the job, release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from apps.cli.client import url_option
from apps.cli.command import Command
from apps.cli.job import connected, duration_option, entries_of, run_with
from apps.cli.output import CommandError
from apps.cli.parameters import FiniteRange
from apps.jobs.mpi import PATTERNS, HostPair, host_traffic, placement, read_hosts
from apps.offline.demand_files import read_flows
from apps.process.files import is_there


@click.command(
    cls=Command,
    examples=[
        "hydra mpirun --hosts hosts --pattern all-to-all --mbps 5 -- mpirun --hostfile hosts ./fft",
        "hydra mpirun --hosts hosts --pattern stencil --mbps 40 --ranks 16 -- "
        "mpirun -n 16 --hostfile hosts ./heat",
        "hydra mpirun --hosts hosts --pattern traffic.csv -- mpirun --hostfile hosts ./app",
    ],
)
@click.argument("command", metavar="-- COMMAND…", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--hosts",
    "host_file",
    type=click.Path(path_type=Path),
    required=True,
    help=(
        "The job's host file, in the format of Open MPI (NAME slots=N) or MPICH (NAME:N); hosts "
        "have their servers' names."
    ),
)
@click.option(
    "--pattern",
    metavar=f"{'|'.join(PATTERNS)}|FILE",
    required=True,
    help=(
        "Pattern of the ranks' communication; or a CSV, JSON or NPZ file of Mb/s from host to host."
    ),
)
@click.option(
    "--mbps",
    "rate",
    type=FiniteRange(min=0, min_open=True),
    metavar="RATE",
    help="Bandwidth between two communicating ranks, in each direction. Not with a FILE.",
)
@click.option(
    "--ranks", type=click.IntRange(1), help="Number of ranks, if below the number of slots."
)
@duration_option("this command is killed")
@url_option
def mpirun(
    command: Sequence[str],
    host_file: Path,
    pattern: str,
    rate: float | None,
    ranks: int | None,
    duration_s: float | None,
    url: str,
) -> None:
    """Run COMMAND, an mpirun, with bandwidth for its communication.

    Reserves all bandwidth between the job's ranks in different racks, or none; waits until the
    circuits are up, runs COMMAND, and releases: also when COMMAND fails, and on Ctrl-C, SIGTERM,
    SIGHUP, SIGUSR1 and the like, which are passed on to COMMAND. Ranks fill one host after the
    other. Exits as COMMAND does, and with 1 if the bandwidth is not available.
    """
    if (pattern in PATTERNS) != (rate is not None):
        named = ", ".join(PATTERNS)
        raise click.UsageError(
            f"--mbps is for the patterns {named}: leave out --mbps, or name a pattern"
        )
    if rate is None and not is_there(pattern):
        raise click.BadParameter(
            f"{pattern!r} is neither a file nor a pattern: give a file, or a pattern of "
            f"{', '.join(PATTERNS)}",
            param_hint="--pattern",
        )
    try:
        hosts = read_hosts(host_file.read_text("utf-8-sig"), str(host_file))
        places = (
            [host.name for host in hosts]
            if rate is None and ranks is None
            else placement(hosts, ranks)
        )
        traffic = _traffic(pattern, places, rate)
        with connected(url) as client:
            entries = entries_of(client, traffic)
            reserve = partial(client.reserve_matrix, entries, duration_s=duration_s)
            status = run_with(client, reserve if entries else None, command)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--hosts {host_file} can't be read: {error}") from error
    click.get_current_context().exit(status)


def _traffic(pattern: str, places: Sequence[str], rate: float | None) -> Mapping[HostPair, float]:
    if rate is not None:
        return host_traffic(pattern, places, rate)
    flows = read_flows(Path(pattern), list(dict.fromkeys(places)))
    return {(flow["src"], flow["dst"]): flow["mbps"] for flow in flows}
