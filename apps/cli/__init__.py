"""The ``hydra`` command.

Sub-commands are imported when they are called: ``hydra --help`` must not wait for the planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from apps.cli.command import write_section
from hydra import __version__

_COMMANDS: Final = {
    "check": ("check", "Check a configuration file and say what it describes."),
    "run": ("run", "Run the controller in the foreground."),
    "status": ("network", "Show whether the controller is ready, and its devices."),
    "topology": ("network", "Show the circuits and paths that stand now."),
    "demand": ("network", "Show the rack-to-rack demand as the controller sees it."),
    "reconfigurations": ("network", "List reconfigurations, or show the timeline of one."),
    "plan": ("planning", "Dry run: show what a reconfiguration would change."),
    "reconfigure": ("planning", "Change the topology to suit a demand."),
    "reserve": ("planning", "Reserve bandwidth between two racks or two servers."),
    "commit": ("planning", "Make a reservation that is only held one that stays."),
    "reservations": ("planning", "List reservations."),
    "release": ("planning", "Give the bandwidth of a reservation back."),
    "quotas": ("quotas", "Show what tenants may have at a time, and what they have."),
    "reconcile": ("maintenance", "Mend what was changed behind the controller's back."),
    "quarantine": ("maintenance", "List the ToR ports that planning leaves out."),
    "with-bandwidth": ("bandwidth", "Run a command with bandwidth, and give it back."),
    "mpirun": ("mpirun", "Run an mpirun with bandwidth for its communication, and give it back."),
    "watch": ("watch", "Print what happens to circuits and reservations, as it happens."),
    "webhooks": ("webhooks", "List the addresses that events are posted to, and how that goes."),
    "token": ("token", "Make, list and revoke tokens for the REST API."),
    "ca": ("ca", "Make a certificate authority for a lab, and certificates."),
    "device": ("device", "Work on optical switches and ToRs directly, without a controller."),
}
"""Name → (module in this package, what it does in a line)."""
_EXIT_STATUS: Final = (
    "0  done",
    "1  refused, or something is wrong",
    "2  wrong usage",
    "3  no controller answers, or no device",
    "4  a change was sent to a device, and its outcome is not known",
)
_EXAMPLE: Final = ("hydra check fabric.yaml && hydra run --config fabric.yaml",)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"{__name__}.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, short) for name, (_, short) in _COMMANDS.items()])
        write_section("Exit status", _EXIT_STATUS, formatter)
        write_section("Example", _EXAMPLE, formatter)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="hydra")
def hydra() -> None:
    """HydRA: circuits between racks, where the traffic is."""


def main() -> None:
    """Entry point of the console script."""
    hydra(prog_name="hydra")
