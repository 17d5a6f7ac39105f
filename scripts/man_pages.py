"""``python scripts/man_pages.py FOLDER``: hydra(1) and a page for each command, by click-man."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

from apps.cli import hydra
from hydra import __version__


def main(folder: Path) -> None:
    """Write the pages; sub-commands are loaded before, since click-man does not load them."""
    folder.mkdir(parents=True, exist_ok=True)
    context = click.Context(hydra)
    commands = {
        name: command
        for name in hydra.list_commands(context)
        if (command := hydra.get_command(context, name)) is not None
    }
    whole = click.Group("hydra", commands=commands, help=hydra.help)
    write_man_pages("hydra", whole, version=__version__, target_dir=str(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
