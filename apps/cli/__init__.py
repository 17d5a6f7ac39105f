"""The ``hydra`` command.

Each sub-command is imported only when called: ``hydra --help`` must not wait for the planner.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import click

from apps.cli.command import write_section
from hydra import __version__
from hydra.plugins import Unusable, load_point, points_of

_COMMANDS: Final = {
    "check": ("check", "Check a configuration file and describe its contents."),
    "doctor": ("doctor", "Check configuration, devices, controller and machine, with remedies."),
    "init": ("init", "Ask a few questions, and write a configuration file."),
    "run": ("run", "Run the controller in the foreground."),
    "status": (
        "network",
        "Show whether the controller is ready and healthy, faults, and devices.",
    ),
    "whoami": ("whoami", "Show your name and role at the controller."),
    "devices": ("network", "List switches with connections and alarms."),
    "policy": ("network", "Show the policy in force, or change it."),
    "topology": ("network", "Show the present circuits and paths."),
    "demand": ("network", "Show the controller's rack-to-rack demand."),
    "load": ("load", "Show the load of the last hour, of circuits and rack pairs."),
    "explain": ("explain", "Explain why two racks are, or are not, joined by a circuit."),
    "reconfigurations": (
        "network",
        "List reconfigurations, or show the timeline of a reconfiguration.",
    ),
    "record": ("replay", "Record the measured demand to a file."),
    "replay": ("replay", "Replay a recorded demand with other algorithms and policies."),
    "top": ("top", "Show readiness, busiest circuits, demand and changes, live."),
    "history": ("history", "List events, and reconfigurations with their reasons."),
    "plan": ("planning", "Dry run: show the changes of a reconfiguration."),
    "apply": ("apply", "Show the changes to a wanted topology, ask, and carry out the changes."),
    "reconfigure": ("apply", "Change the topology to suit a demand."),
    "pause": ("apply", "Pause a large change after the stage under way."),
    "resume": ("apply", "Resume a paused large change."),
    "stop": ("apply", "Stop a large change after the stage under way."),
    "reserve": ("reservations", "Reserve bandwidth between two racks or two servers."),
    "commit": ("reservations", "Keep a held reservation."),
    "modify": ("reservations", "Change a reservation without an interruption."),
    "reservations": ("reservations", "List reservations."),
    "release": ("reservations", "Release the bandwidth of a reservation."),
    "shape": ("shapes", "Reserve bandwidth between racks in a pattern, under a common id."),
    "availability": ("availability", "Show the bandwidth that could be reserved, and when."),
    "quotas": ("quotas", "Show each tenant's quota and current use."),
    "reconcile": (
        "maintenance",
        "Find and repair foreign changes of mirrors, VLANs and rules.",
    ),
    "quarantine": ("maintenance", "List the ToR ports left out by planning."),
    "with-bandwidth": ("bandwidth", "Run a command with bandwidth, and release the bandwidth."),
    "mpirun": (
        "mpirun",
        "Run an mpirun with bandwidth for its communication, and release the bandwidth.",
    ),
    "slurm": ("slurm", "Reserve bandwidth for Slurm's jobs, and release the bandwidth."),
    "watch": (
        "watch",
        "Print events of circuits, reservations and reconfigurations as they happen.",
    ),
    "ranks": ("ranks", "Print an MPI job's hosts in an order for rings over circuits."),
    "price": (
        "price",
        "Show the cost of a network, beside its alternatives and the papers' figures.",
    ),
    "trace": ("trace", "Read traces of flows between racks, and plan for their windows."),
    "replicas": ("replicas", "List the controllers that share a store, and the leader."),
    "handover": ("replicas", "Hand leadership to another controller."),
    "worker": ("worker", "Hold switches' connections for a controller, in the foreground."),
    "workers": ("worker", "List the workers that hold switches, with racks."),
    "worker-keys": ("worker", "Make the keys of a controller and its workers."),
    "store": ("store", "Copy the controller's journal to another store."),
    "reload": ("care", "Reload the controller's configuration file."),
    "backup": ("care", "Back up the controller's journal and configuration to a file."),
    "restore": ("care", "Replace the journal by the journal of a backup."),
    "support": ("care", "Collect a file for a problem report, without secrets."),
    "completion": ("completion", "Print a shell script that completes hydra's commands."),
    "webhooks": ("webhooks", "List webhooks and their deliveries; add and remove webhooks."),
    "sharing": ("sharing", "Show or set the sharing of circuits among rack pairs and traffic."),
    "schedule": ("schedule", "Show the slots that share the circuits, and the current slot."),
    "agent": ("agent", "Report this server's waiting traffic to the controller."),
    "token": ("token", "Make, list and revoke tokens for the REST API."),
    "ca": ("ca", "Make a certificate authority for a lab, and certificates."),
    "device": ("device", "Work on optical switches and ToRs directly, without a controller."),
}
"""Name → (module in this package, short description)."""
_ALSO: Final = {"list": "reservations"}
"""Aliases of commands."""
_CONTRIBUTED: Final = "hydra.commands"
"""Entry point group for contributed commands, such as ``hydra experiment``: its package is a layer
above this one, which must not import the package.
"""
_EXIT_STATUS: Final = (
    "0  done",
    "1  refused, or something is wrong",
    "2  wrong usage",
    "3  no controller answers, or no device",
    "4  a change was sent to a device, with unknown outcome",
)
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_EXAMPLE: Final = ("hydra check fabric.yaml && hydra run --config fabric.yaml",)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [*_COMMANDS, *_ALSO, *sorted(_contributed())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        cmd_name = _ALSO.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return _load(cmd_name)
        module = import_module(f"{__name__}.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            known = self.list_commands(ctx)
            raise click.NoSuchCommand(args[0], possibilities=known, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in _COMMANDS.items()])
        added = [(name, _load(name)) for name in sorted(_contributed())]
        if added:
            with formatter.section("Contributed commands"):
                formatter.write_dl(
                    [(n, command.get_short_help_str(limit=100)) for n, command in added if command]
                )
        write_section("Exit status", _EXIT_STATUS, formatter)
        write_section("Example", _EXAMPLE, formatter)


def _contributed() -> dict[str, EntryPoint]:
    """Commands of other packages, by name; hydra's own commands can't be replaced."""
    found = points_of(_CONTRIBUTED)
    return {point.name: point for point in found if point.name not in {*_COMMANDS, *_ALSO}}


def _load(name: str) -> click.Command | None:
    """A contributed command; if the package can't be imported, a command that says why."""
    point = _contributed().get(name)
    if point is None:
        return None
    try:
        command = load_point("command", point)
    except Unusable as error:
        return _broken(name, str(error))
    if isinstance(command, click.Command):
        return command
    return _broken(name, f"command {name}: {point.value} is no click command")


def _broken(name: str, why: str) -> click.Command:
    def refuse() -> None:
        raise click.ClickException(why)

    return click.Command(name, callback=refuse, help=why)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="hydra")
def hydra() -> None:
    """HydRA: circuits between racks, where the traffic is."""


def main() -> None:
    """Entry point of the console script."""
    _prepare_streams()
    try:
        try:
            hydra(prog_name="hydra")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # Python would try to flush the rest of the buffer again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"Error: the output can't be written: {error.strerror}", err=True)
        sys.exit(1)


def _prepare_streams() -> None:
    """Replace closed streams (``>&-``) by the null device, and have other streams show ``?`` for
    characters missing in their encoding.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            # The null device takes the stream's descriptor, so no other file gets the descriptor.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
        elif mode == "w" and isinstance(stream, TextIOWrapper) and _refuses_letters(stream):
            stream.reconfigure(errors="replace")


def _refuses_letters(stream: TextIOWrapper) -> bool:
    """True if a character missing in the encoding is an error.

    In the locale C, the error handler is ``surrogateescape``. In UTF-8, ``surrogateescape`` lets
    undecodable file names through, so nothing is refused.
    """
    lets_names_through = stream.errors == "surrogateescape"
    return stream.errors == "strict" or (lets_names_through and stream.encoding.lower() != "utf-8")
