"""``hydra slurm topology``: racks and present circuits as Slurm's topology file."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import CommandError, warn
from apps.cli.parameters import Duration
from apps.cli.patience import until_ctrl_c
from apps.jobs.rack_paths import paths_reported
from apps.process.files import replacing


@click.command(
    cls=Command,
    examples=[
        "hydra slurm topology --file /etc/slurm/topology.yaml",
        "hydra slurm topology --plugin block --format conf > topology.conf",
        "hydra slurm topology --file /etc/slurm/topology.yaml --watch -- scontrol reconfigure",
    ],
)
@click.argument("command", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--plugin",
    type=click.Choice(["tree", "block"]),
    default="tree",
    show_default=True,
    help="Slurm's plugin: nested switches, or aligned blocks of racks.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["yaml", "conf"]),
    default="yaml",
    show_default=True,
    help="topology.yaml (Slurm 25.05 and later), or topology.conf.",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Replace FILE atomically, unless FILE has the same text already.",
)
@click.option("--watch", is_flag=True, help="Renew FILE when circuits change, until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    type=Duration(min=0, min_open=True),
    default=10,
    show_default=True,
    help="How often --watch asks the controller (seconds, or 90s, 5m).",
)
@url_option
def topology(
    command: Sequence[str],
    plugin: str,
    form: str,
    file: Path | None,
    watch: bool,
    every_s: float,
    url: str,
) -> None:
    """Write Slurm's topology file from the racks and the circuits that stand now.

    Racks are leaf switches (or base blocks) and servers are nodes. Racks joined by circuits are
    near each other. COMMAND runs after each change of FILE, such as `scontrol reconfigure`.
    """
    if file is None and (watch or command):
        raise click.UsageError("--watch and COMMAND need a file to renew: give --file FILE")
    # Loaded late: prologs and epilogs of all jobs load this module, and need no planner.
    shapes = import_module("apps.jobs.slurm_topology")
    shape_of = shapes.tree_of if plugin == "tree" else shapes.blocks_of

    def text() -> str:
        with ControllerClient(url) as client:
            rack_of = {
                server["name"]: server["rack"] for server in client.get("/v1/servers")["servers"]
            }
            shape = shape_of(rack_of, paths_reported(client.get("/v1/topology")))
        return f"# Written by `hydra slurm topology`.\n{getattr(shape, form)()}"

    if file is None:
        click.echo(text(), nl=False)
        return
    renew = _Renewal(file, text, command)
    renew()
    with until_ctrl_c():
        while watch:
            time.sleep(every_s)
            renew.patiently()


class _Renewal:
    """Renews a file, and runs COMMAND after each change."""

    def __init__(self, file: Path, text: Callable[[], str], command: Sequence[str]) -> None:
        self._file = file
        self._text = text
        self._command = command
        self._must_run = False
        self._trouble = ""

    def patiently(self) -> None:
        """Warn of an error, once while the error lasts: the next renewal tries again."""
        try:
            self()
            self._trouble = ""
        except CommandError as error:
            if error.message != self._trouble:
                warn(f"{error.message}; trying again")
            self._trouble = error.message

    def __call__(self) -> None:
        """Raises CommandError; a COMMAND that failed runs again in the next renewal."""
        text = self._text()
        try:
            if not self._file.is_file() or self._file.read_bytes() != text.encode():
                with replacing(self._file) as new:
                    new.write(text)
                self._must_run = bool(self._command)
        except OSError as error:
            raise CommandError(f"{self._file} can't be written: {error.strerror}") from error
        if self._must_run:
            self._run()
            self._must_run = False

    def _run(self) -> None:
        try:
            status = subprocess.run(self._command, check=False).returncode
        except OSError as error:
            raise CommandError(f"{self._command[0]} can't be run: {error.strerror}") from error
        if status:
            raise CommandError(f"`{shlex.join(self._command)}` failed: exit status {status}")
