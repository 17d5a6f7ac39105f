"""``hydra slurm``: bandwidth for Slurm's jobs, from before they begin until after they end."""

from __future__ import annotations

import os
from pathlib import Path

import click

from apps.cli.client import bearer_token, trusted, url_option
from apps.cli.command import Command, Group
from apps.cli.output import CommandError
from apps.client import ClientError, HydraClient
from apps.jobs.mpi import between_racks, host_traffic, placement
from apps.jobs.slurm import Job
from apps.rest.models import CreatedGroup, MatrixEntry
from hydra.errors import HydraError
from hydra.lifecycle import ReservationState

_WAIT_S = 60
_state_option = click.option(
    "--state",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/hydra/slurm"),
    show_default=True,
    help="Where it is kept which reservations a job has.",
)


@click.group(
    cls=Group,
    examples=[
        "sbatch --comment hydra:all-to-all=5 --nodes 4 fft.sh",
        "hydra slurm prolog --url http://10.1.0.5:8080 --duration 86400",
        "hydra slurm epilog --url http://10.1.0.5:8080",
    ],
)
def slurm() -> None:
    """Reserve what Slurm's jobs need, and give it back.

    For PrologSlurmctld and EpilogSlurmctld in slurm.conf, as two programs that run these. A job
    asks for bandwidth by a comment, hydra:PATTERN=MBPS; patterns and rates are those of
    `hydra mpirun`. Nodes go by the names of servers, with a rank for each of a job's processors.
    """


@slurm.command(cls=Command, examples=["hydra slurm prolog --duration 86400"])
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Have it released after this long in any case, even if the epilog never runs.",
)
@_state_option
@url_option
def prolog(duration_s: float | None, directory: Path, url: str) -> None:
    """Reserve what the job of SLURM_JOB_ID asks for, all or nothing, and wait until it is there.

    Exit status 1 if it is not to be had: Slurm puts the job back into its queue.
    """
    try:
        job = Job.from_environment(os.environ)
        if job.wish is None:
            return
        places = placement(job.hosts, None)
        traffic = host_traffic(job.wish.pattern, places, job.wish.mbps)
        with HydraClient(url, bearer_token(), trusted()) as client:
            rack_of = {server.name: server.rack for server in client.servers().servers}
            wanted = between_racks(traffic, rack_of)
            entries = [
                MatrixEntry(src=src, dst=dst, bandwidth_mbps=mbps)
                for (src, dst), mbps in wanted.items()
            ]
            if entries:
                _reserve(client, entries, duration_s, directory / job.number)
    except (ClientError, HydraError) as error:
        raise CommandError(str(error)) from error


def _reserve(
    client: HydraClient, entries: list[MatrixEntry], duration_s: float | None, note: Path
) -> None:
    """Reserve and wait. Raises CommandError if it fails; nothing stays reserved then."""
    group = client.reserve_matrix(entries, duration_s=duration_s, wait_s=_WAIT_S)
    try:
        _check_active(group)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(group.id)
    except (CommandError, OSError) as error:
        client.release_group(group.id)
        raise CommandError(str(error)) from error


def _check_active(group: CreatedGroup) -> None:
    bad = [one for one in group.reservations if one.state is not ReservationState.ACTIVE]
    if bad:
        reasons = (f"{one.src} to {one.dst} is {one.state.value}: {one.reason}" for one in bad)
        raise CommandError("; ".join(reasons))


@slurm.command(cls=Command, examples=["hydra slurm epilog --state /srv/hydra/slurm"])
@_state_option
@url_option
def epilog(directory: Path, url: str) -> None:
    """Give back what the job of SLURM_JOB_ID has. Repeating it is harmless."""
    try:
        note = directory / Job.from_environment(os.environ).number
        if not note.exists():
            return
        with HydraClient(url, bearer_token(), trusted()) as client:
            client.release_group(note.read_text())
        note.unlink()
    except (ClientError, HydraError, OSError) as error:
        raise CommandError(str(error)) from error
