"""``hydra slurm``: bandwidth for Slurm's jobs, from before the start until after the end."""

from __future__ import annotations

import os
import uuid
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import click
from pydantic import BaseModel, Field, ValidationError

from apps.cli.client import url_option
from apps.cli.command import Command, Group
from apps.cli.job import await_active, connected, duration_option, entries_of, patiently, racks_of
from apps.cli.output import CommandError
from apps.cli.slurm_topology import topology
from apps.jobs.mpi import host_traffic, placement
from apps.jobs.slurm import Job, job_number
from apps.process.files import replacing
from hydra_hybrid_network_client.documents import CreatedGroup, MatrixEntry, Shape
from hydra_hybrid_network_client.errors import ClientError, Refused
from hydra_hybrid_network_client.synchronous.client import HydraClient

_WAIT_S = 60
_PATIENCE_S = 60.0
"""How long a controller may be away: Slurm ends a program after PrologEpilogTimeout."""
_state_option = click.option(
    "--state",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/hydra/slurm"),
    show_default=True,
    help="Directory with the reservations of each job.",
)


@click.group(
    cls=Group,
    examples=[
        "sbatch --comment hydra:all-to-all=5 --nodes 4 fft.sh",
        "hydra slurm prolog --url http://10.1.0.5:8080 --duration 86400",
        "hydra slurm epilog --url http://10.1.0.5:8080",
        "hydra slurm topology --file /etc/slurm/topology.yaml --watch -- scontrol reconfigure",
    ],
)
def slurm() -> None:
    """Reserve and release bandwidth of Slurm's jobs; tell Slurm which racks are near.

    prolog and epilog are for PrologSlurmctld and EpilogSlurmctld in slurm.conf: write two
    programs that run prolog and epilog. A job asks for bandwidth by a comment,
    hydra:PATTERN=MBPS, with the patterns and rates of `hydra mpirun`, or
    hydra:shape:PATTERN=MBPS (or =most), with the patterns of `hydra shape reserve` among the
    job's racks in the order of its nodes. Nodes have the names of servers, with a rank for each
    of a job's processors.
    """


@slurm.command(cls=Command, examples=["hydra slurm prolog --duration 86400"])
@duration_option("the epilog never runs")
@_state_option
@url_option
def prolog(duration_s: float | None, directory: Path, url: str) -> None:
    """Reserve the bandwidth of job SLURM_JOB_ID, all or nothing, and wait until the circuits are
    up.

    Bandwidth from an earlier start of the job is given back first. Exit status 1 if the bandwidth
    is not available: Slurm then puts the job back into the queue.
    """
    note = directory / job_number(os.environ)
    try:
        with connected(url) as client:
            _give_back(client, note, wait_s=_WAIT_S)
            job = Job.from_environment(os.environ)
            if job.wish is None:
                return
            ask = _Note(duration_s=duration_s)
            if job.wish.of_racks:
                ask.pattern, ask.mbps = job.wish.pattern, job.wish.mbps
                ask.racks = racks_of(client, [host.name for host in job.hosts])
            elif job.wish.mbps is not None:
                places = placement(job.hosts, None)
                traffic = host_traffic(job.wish.pattern, places, job.wish.mbps)
                ask.entries = entries_of(client, traffic)
            if ask.entries or len(ask.racks) > 1:
                note.parent.mkdir(parents=True, exist_ok=True)
                _reserve(client, ask, note)
    except OSError as error:
        raise CommandError(str(error)) from error


class _Note(BaseModel):
    """A job's request, written before the request is sent; then the granted group."""

    key: str = Field(default_factory=lambda: uuid.uuid4().hex)
    entries: list[MatrixEntry] = []
    duration_s: float | None
    group: str | None = None
    pattern: str | None = None
    """Pattern of a shape of ``racks``; None: ``entries``."""
    racks: list[str] = []
    mbps: float | None = None
    """Rate of each pair of the shape; None: the most."""

    def ask(self, client: HydraClient) -> CreatedGroup | Shape:
        """The group of the note; reserves the group unless already reserved."""
        if self.pattern is not None:
            rate: float | Literal["most"] = "most" if self.mbps is None else self.mbps
            return client.reserve_shape(
                self.pattern, self.racks, rate, duration_s=self.duration_s, key=self.key
            )
        return client.reserve_matrix(self.entries, duration_s=self.duration_s, key=self.key)

    def write(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(self.model_dump_json())


def _reserve(client: HydraClient, note: _Note, path: Path) -> None:
    """Reserve and wait. Nothing stays reserved after a failure; after a kill, :func:`_give_back`
    releases the group later.
    """
    note.write(path)
    try:
        group = note.ask(client)
        note.group = group.id
        note.write(path)
        await_active(client, group, _PATIENCE_S)
    except (ClientError, CommandError, OSError):
        _give_back(client, path)
        raise


def _give_back(client: HydraClient, path: Path, wait_s: int = 0) -> None:
    """Release the noted group, and wait at most ``wait_s`` seconds until the bandwidth is free for
    other users.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return
    try:
        note = _Note.model_validate_json(text)
    except ValidationError as error:
        raise CommandError(
            f"{path} is damaged ({error.error_count()} errors): find the job's reservations with "
            "`hydra reservations`, release them with `hydra release`, and delete the file"
        ) from error
    try:
        group_id = note.group or patiently(lambda: note.ask(client).id, "release", _PATIENCE_S)
        patiently(lambda: client.release_group(group_id, wait_s), "release", _PATIENCE_S)
    except Refused as refused:
        if refused.problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise
        # The group was not admitted, or is forgotten.
    path.unlink(missing_ok=True)


@slurm.command(cls=Command, examples=["hydra slurm epilog --state /srv/hydra/slurm"])
@_state_option
@url_option
def epilog(directory: Path, url: str) -> None:
    """Give back the bandwidth of job SLURM_JOB_ID. A repetition is harmless."""
    note = directory / job_number(os.environ)
    try:
        if note.exists():
            with connected(url) as client:
                _give_back(client, note)
    except OSError as error:
        raise CommandError(str(error)) from error


slurm.add_command(topology)
