"""Commands whose help ends in examples, and whose errors are short messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from hydra.errors import HydraError


class Command(click.Command):
    """A command with ``examples``: complete command lines, each on a line of its own."""

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def invoke(self, ctx: click.Context) -> object:
        """HydRA's errors end the command with a message; with ``--json``, a refusal by the
        controller is printed as well.
        """
        _take_from_group(ctx)
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.params.get("as_json") and getattr(error, "document", None):
                click.echo(json.dumps(vars(error).pop("document"), indent=2))
            raise
        except _errors_in_words() as error:
            raise click.ClickException(str(error)) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        write_section("Examples", self.examples, formatter)


class Group(Command, click.Group):
    """A group of commands with ``examples``."""


def _errors_in_words() -> tuple[type[Exception], ...]:
    """Types of errors whose text is for the user. The client's errors are included once the client
    is loaded: help runs without the client.
    """
    client = sys.modules.get("hydra_hybrid_network_client.errors")
    return (HydraError,) if client is None else (HydraError, client.ClientError)


def _take_from_group(ctx: click.Context) -> None:
    """Apply options given before the command's name to the command, unless repeated behind the
    name.
    """
    group = ctx.parent
    if group is None or not isinstance(group.command, Group):
        return
    for name in group.params.keys() & ctx.params.keys():
        sources = group.get_parameter_source(name), ctx.get_parameter_source(name)
        if sources[0] is ParameterSource.COMMANDLINE is not sources[1]:
            ctx.params[name] = group.params[name]


def write_section(title: str, lines: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write lines without wrapping, so that users can copy them."""
    with formatter.section(title):
        for line in lines:
            formatter.write(f"{'':{formatter.current_indent}}{line}\n")
