"""``hydra run``"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click

from apps.cli.command import Command
from apps.cli.output import CommandError
from hydra.errors import HydraError


@click.command(cls=Command, examples=["hydra run --config configs/demo.yaml"])
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    required=True,
    envvar="HYDRA_CONFIG",
    show_envvar=True,
    help="Configuration file; see `hydra check`.",
)
@click.pass_context
def run(ctx: click.Context, config: Path) -> None:
    """Run the controller in the foreground.

    Ctrl-C and SIGTERM end it; the switches go on forwarding as they were told last. The same as
    HYDRA_CONFIG=FILE ryu-manager apps/main.py.
    """
    # Not at the top: it changes Ryu's hub before anything else may import Ryu.
    launcher = import_module("apps.launcher")
    try:
        ctx.exit(launcher.main([str(config)]))
    except HydraError as error:
        raise CommandError(str(error)) from error
