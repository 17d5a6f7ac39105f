"""The documents point at what exists, and their commands are ones that we have."""

from __future__ import annotations

import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from apps.cli import hydra

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def starting_with(program: str) -> list[str]:
    """Such lines of all code blocks, once each, comments taken off."""
    blocks = [block for path in DOCUMENTS for block in BLOCK.findall(path.read_text())]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    commands = {line.split(" #")[0].strip() for line in lines if line.startswith(program)}
    assert commands, f"no document shows {program}"
    return sorted(commands)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    targets = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    missing = [link for link in targets if not (document.parent / link.partition("#")[0]).exists()]
    assert missing == []


@pytest.mark.parametrize("line", starting_with("hydra "))
def test_commands_are_ours(line, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copy(ROOT / "configs" / "demo.yaml", tmp_path / "fabric.yaml")
    monkeypatch.chdir(tmp_path)
    words = shlex.split(re.split(r"\s(?:\||&&|>)\s", line)[0])[1:]
    command: click.Command = hydra
    context = click.Context(hydra)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    try:
        command.parse_args(context, words)
    except click.exceptions.Exit as leaving:  # --help
        assert leaving.exit_code == 0


@pytest.mark.parametrize("line", starting_with("python -m "))
def test_modules_exist(line):
    assert find_spec(line.split()[2]) is not None


@pytest.mark.parametrize("line", starting_with("make "))
def test_targets_exist(line):
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{re.escape(line.split()[1])}:", makefile, re.MULTILINE)
