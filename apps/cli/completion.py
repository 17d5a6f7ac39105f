"""``hydra completion``: makes the shell know the commands."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from apps.cli.command import Command

_SHELLS: Final = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command(
    cls=Command,
    examples=[
        "hydra completion bash > /etc/bash_completion.d/hydra",
        "hydra completion fish > ~/.config/fish/completions/hydra.fish",
    ],
)
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that has your shell complete hydra's commands and options."""
    complete = _SHELLS[shell](ctx.find_root().command, {}, "hydra", "_HYDRA_COMPLETE")
    click.echo(complete.source())
