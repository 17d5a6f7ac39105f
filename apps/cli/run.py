"""``hydra run``"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import click

from apps.cli.command import Command
from apps.cli.parameters import config_option, log_options


@click.command(
    cls=Command,
    examples=[
        "hydra run --config configs/demo.yaml",
        "hydra run --config fabric.yaml --log-format json --log-level debug",
    ],
)
@config_option()
@log_options
@click.pass_context
def run(ctx: click.Context, config: Path, log_format: str, log_level: str) -> None:
    """Run the controller in the foreground.

    Ctrl-C and SIGTERM end the controller; the switches go on forwarding by the last rules.
    HYDRA_CONFIG=FILE ryu-manager apps.main does the same.
    """
    os.environ.update(HYDRA_LOG_FORMAT=log_format, HYDRA_LOG_LEVEL=log_level)
    # Not at the top: the launcher changes Ryu's hub before anything else may import Ryu.
    launcher = import_module("apps.launcher")
    ctx.exit(launcher.main([str(config)]))
