"""``hydra completion``: makes the shell know the commands."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from apps.cli.command import Command

_SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    cls=Command,
    examples=[
        "hydra completion bash > /etc/bash_completion.d/hydra",
        "hydra completion fish > ~/.config/fish/completions/hydra.fish",
    ],
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands and options of hydra."""
    found = get_completion_class(shell)
    assert found is not None, f"click knows no {shell}"  # noqa: S101 - a defect, not an error
    click.echo(found(ctx.find_root().command, {}, "hydra", "_HYDRA_COMPLETE").source())
