"""Commands whose help ends in examples, and whose errors are told in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from hydra.errors import HydraError


class Command(click.Command):
    """A command with ``examples``: complete command lines, shown one to a line."""

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def invoke(self, ctx: click.Context) -> object:
        """An error of ours ends the command in words."""
        try:
            return super().invoke(ctx)
        except HydraError as error:
            raise click.ClickException(str(error)) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_section("Examples", self.examples, formatter)


class Group(Command, click.Group):
    """A group of commands with ``examples``."""


def write_section(title: str, lines: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Lines that are not wrapped, so that they can be copied."""
    with formatter.section(title):
        for line in lines:
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")
