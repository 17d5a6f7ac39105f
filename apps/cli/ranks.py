"""``hydra ranks``: the order of an MPI job's hosts for rings over circuits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import CommandError, json_option, print_json
from apps.jobs.mpi import Host, read_hosts
from apps.jobs.rack_paths import paths_planned, paths_reported
from apps.jobs.ring import FORMATS, Ring, order_ring
from apps.offline.topology_files import read_state
from apps.process.configuration import load_configuration


@click.command(
    cls=Command,
    examples=[
        "hydra ranks --hosts hosts > ring && mpirun --hostfile ring ./train",
        "hydra ranks --hosts hosts --format slurm > ring && "
        "SLURM_HOSTFILE=ring srun --distribution=arbitrary ./train",
        "hydra ranks --config fabric.yaml --topology monday.json --format rankfile",
    ],
)
@click.option(
    "--hosts",
    "host_file",
    type=click.Path(path_type=Path),
    help="The job's host file, as Open MPI (NAME slots=N) or MPICH (NAME:N) has it; hosts go by "
    "their servers' names.  [default: all servers]",
)
@click.option(
    "--slots", type=click.IntRange(1), help="Ranks of each host without a number of its own."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="hostfile",
    show_default=True,
    help="Open MPI's host file or rank file, or Slurm's SLURM_HOSTFILE.",
)
@click.option(
    "--topology",
    "file",
    type=click.Path(path_type=Path),
    help="Paths as `hydra topology --json` or `hydra plan --json` prints them, instead of the "
    "present paths; with --config.",
)
@click.option(
    "--config", type=click.Path(path_type=Path), help="Configuration file with the servers' racks."
)
@url_option
@json_option
def ranks(
    host_file: Path | None,
    slots: int | None,
    form: str,
    file: Path | None,
    config: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Print an MPI job's hosts in an order for rings over circuits.

    As few neighbours as possible are joined by the electrical network alone; then the ring takes as
    few circuits as possible. The last rank and the first are neighbours, too. Exact for up to 24
    racks. The order is never worse than the given order, and rank 0 stays on the first host. A line
    to stderr counts the electrical neighbours before and after.
    """
    if (file is None) != (config is None):
        raise click.UsageError("--topology and --config go together: give both or neither")
    hosts = None if host_file is None else _read(host_file)
    if file is None or config is None:
        with ControllerClient(url) as client:
            rack_of = {
                server["name"]: server["rack"] for server in client.get("/v1/servers")["servers"]
            }
            paths = list(paths_reported(client.get("/v1/topology")))
    else:
        fabric = load_configuration(config).fabric
        name = {rack.id: rack.name for rack in fabric.racks}
        rack_of = {server.name: name[server.rack] for server in fabric.servers}
        paths = list(paths_planned(read_state(file, fabric).topology, fabric))
    given = [Host(server, None) for server in rack_of] if hosts is None else hosts
    if slots is not None:
        given = [host if host.slots else replace(host, slots=slots) for host in given]
    ring = order_ring(given, rack_of, paths)
    if as_json:
        print_json(_document(ring, rack_of))
        return
    for line in FORMATS[form](ring.hosts):
        click.echo(line)
    click.echo(_summary(ring), err=True)


def _read(file: Path) -> list[Host]:
    try:
        return read_hosts(file.read_text("utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--hosts {file} can't be read: {error}") from error


def _document(ring: Ring, rack_of: dict[str, str]) -> dict[str, object]:
    return {
        "hosts": [
            {"name": host.name, "rack": rack_of[host.name], "slots": host.slots}
            for host in ring.hosts
        ],
        "electrical": ring.cost.electrical,
        "electrical_given": ring.given.electrical,
        "electrical_at_least": ring.fewest,
        "proven": ring.is_proven,
    }


def _summary(ring: Ring) -> str:
    proof = (
        "the fewest possible (proven)"
        if ring.is_proven
        else f"found by a heuristic; at least {ring.fewest} in any order"
    )
    return (
        f"electrical neighbours: {ring.cost.electrical} of {len(ring.hosts)}, "
        f"{ring.given.electrical} in the given order; {proof}"
    )
