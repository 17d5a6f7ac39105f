"""``hydra slurm``: bandwidth for Slurm's jobs, from before they begin until after they end."""

from __future__ import annotations

import os
from pathlib import Path

import click

from apps.cli.client import url_option
from apps.cli.command import Command, Group
from apps.cli.job import check_active, connected, duration_option, entries_of
from apps.cli.output import CommandError
from apps.client import HydraClient
from apps.jobs.mpi import host_traffic, placement
from apps.jobs.slurm import Job
from apps.rest.models import MatrixEntry

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
@duration_option("the epilog never runs")
@_state_option
@url_option
def prolog(duration_s: float | None, directory: Path, url: str) -> None:
    """Reserve what the job of SLURM_JOB_ID asks for, all or nothing, and wait until it is there.

    Exit status 1 if it is not to be had: Slurm puts the job back into its queue.
    """
    job = Job.from_environment(os.environ)
    if job.wish is None:
        return
    places = placement(job.hosts, None)
    traffic = host_traffic(job.wish.pattern, places, job.wish.mbps)
    with connected(url) as client:
        if entries := entries_of(client, traffic):
            _reserve(client, entries, duration_s, directory / job.number)


def _reserve(
    client: HydraClient, entries: list[MatrixEntry], duration_s: float | None, note: Path
) -> None:
    """Reserve and wait. Raises CommandError if it fails; nothing stays reserved then."""
    group = client.reserve_matrix(entries, duration_s=duration_s, wait_s=_WAIT_S)
    try:
        check_active(group)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(group.id)
    except (CommandError, OSError) as error:
        client.release_group(group.id)
        raise CommandError(str(error)) from error


@slurm.command(cls=Command, examples=["hydra slurm epilog --state /srv/hydra/slurm"])
@_state_option
@url_option
def epilog(directory: Path, url: str) -> None:
    """Give back what the job of SLURM_JOB_ID has. Repeating it is harmless."""
    try:
        note = directory / Job.from_environment(os.environ).number
        if not note.exists():
            return
        with connected(url) as client:
            client.release_group(note.read_text())
        note.unlink()
    except OSError as error:
        raise CommandError(str(error)) from error
