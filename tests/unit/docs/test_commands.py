"""Every command in the documents is run: here, or by a test named here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from apps.cli import hydra
from apps.journal.sqlite import SqliteJournal

from .blocks import ROOT, all_commands, starting_with

pytestmark = pytest.mark.takes(15)

OWN_PACKAGE = "tests/unit/docs/test_own_package.py"
ELSEWHERE = {
    "hydra run": "tests/integration/test_launch.py",
    "hydra agent": "tests/integration/test_agent.py",
    "hydra doctor": "tests/unit/cli/test_cli_doctor.py",
    "hydra init": "tests/unit/cli/test_cli_init.py",
    "hydra device": "tests/unit/cli/test_cli_device.py",
    "hydra device tasks": "tests/unit/cli/test_cli_people.py",
    "hydra device confirm": "tests/unit/cli/test_cli_people.py",
    "hydra experiment": "tests/unit/experiments/test_experiments.py",
    "hydra apply": "tests/unit/cli/test_cli_apply.py",
    "hydra mpirun": "tests/unit/cli/test_mpirun.py",
    "hydra plan --fabric 16x4@10000 --demand gravity --algorithm": OWN_PACKAGE,
    "pip install examples/own_package": OWN_PACKAGE,
    "pip install ./hydra_hybrid_network_client": "tests/unit/packaging/test_client_package.py",
    "make demo": "tests/integration/test_demo.py",
    "curl": "tests/unit/rest/test_docs.py",
    "ryu-manager": "tests/integration/test_launch.py",
    "python -m mininet_scenarios.testbed up": "tests/integration/test_tutorial.py",
    "python examples/ring_of_five.py": "tests/integration/test_tutorial.py",
    ". .venv/bin/activate": "tests/integration/test_tutorial.py",
    "curl -s localhost:8080/v1/demand": "tests/integration/test_tutorial.py",
    "mnexec": "tests/integration/test_tutorial.py",
    "ovs-vsctl set Port": "tests/unit/testbed/test_layout.py",
    "ovs-vsctl set-ssl": "tests/integration/test_openflow_tls.py",
    "ovs-vsctl set-controller": "tests/integration/test_openflow_tls.py",
    "hydra with-bandwidth": "tests/unit/cli/test_with_bandwidth.py",
    "hydra worker": "tests/integration/test_workers.py",
    "hydra store migrate": "tests/unit/cli/test_cli_store.py",
    "hydra handover": "tests/unit/cli/test_cli_replicas.py",
    "hydra slurm": "tests/unit/cli/test_slurm.py",
    "hydra slurm topology": "tests/unit/cli/test_slurm_topology.py",
    "hydra ranks": "tests/unit/cli/test_ranks.py",
    "sbatch": "tests/unit/cli/test_slurm.py",
    "make man": "tests/unit/cli/test_cli_look.py",
    "make image": "tests/integration/test_container_image.py",
    "make site": "tests/unit/docs/test_site.py",
}
"""Beginning of a command: the test that runs the command, with the necessary surroundings."""
OF_THE_MACHINE = {
    "apt-get install",
    "pip install .",
    "pip install '.[os-ken]'",
    "export",
    "tc",
    "python3 -m venv /opt/hydra",
    "install",
    "ln",
    "scripts/on_debian.sh",
    "systemctl",
    "journalctl",
}
"""Commands that change or query the reader's machine: no test may run them."""
LIMITS = {"hydra top": "--count 1", "hydra watch": "--count 1", "hydra record": "--duration 0.5"}
"""Options that end endless commands; of a repeated option, the last value counts."""
BEFORE = {
    "hydra ca issue": ["hydra ca create --dir ca"],
    "hydra ca issue rest --renew": [
        "hydra ca create --dir ca",
        "hydra ca issue rest --host 10.0.0.5 --dir ca",
    ],
    "hydra token quota": ["hydra token create spark --role tenant --file tokens.json"],
    "hydra restore": ["hydra backup --config fabric.yaml hydra-backup.tar.gz"],
    "hydra plan --fabric 16x4 --demand gravity --seed 2 --current": [
        "hydra plan --fabric 16x4 --demand gravity --json > monday.json"
    ],
    "hydra replay busy-hour.trace": ["hydra record busy-hour.trace --duration 0.5"],
    "hydra trace": ["hydra trace sample coflows.txt --racks 8"],
    "hydra release": ["hydra reserve r1 r2 --mbps 1"],
    "hydra status": [
        "hydra quarantine clear r1 hyt-r1-p1",
        "hydra quarantine clear r2 hyt-r2-p2",
    ],
}
"""Earlier commands of a reader."""


def matches(start: str, command: str) -> bool:
    return f"{command} ".startswith(f"{start} ")


def longest_match(table: dict[str, object], command: str):
    return max((start for start in table if matches(start, command)), key=len, default=None)


def is_run_here(command: str) -> bool:
    return longest_match(ELSEWHERE, command) is None


@pytest.fixture
def desk(tmp_path, monkeypatch, rest, service, network):
    """A folder with a reader's files, and a controller that answers."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    document = yaml.safe_load((ROOT / "configs" / "demo.yaml").read_text())
    document["controller"]["journal"] = str(tmp_path / "journal.db")
    (tmp_path / "fabric.yaml").write_text(yaml.safe_dump(document))
    SqliteJournal(document["controller"]["journal"]).close()
    for name in ("w1.key_secret", "controller.key"):
        (tmp_path / name).write_text("a key\n")
    (tmp_path / "circuits.yaml").write_text("circuits: {p1: [[r1, r2]]}\n")
    (tmp_path / "flows.csv").write_text("src,dst,bytes,start\nr1,r2,1000000,0\n")
    (tmp_path / "slots.yaml").write_text("slots: [{length_s: 2, circuits: {p1: [[r1, r2]]}}]\n")
    (tmp_path / "hydra.log").write_text("2026-01-01 INFO    hydra: started\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_URL", rest.url)
    return tmp_path


def type_in(command: str, service):
    """Split as in a shell: the target of ``>`` gets the output; the rest of a pipe is ignored."""
    words, _, target = re.split(r"\s(?:\||&&)\s", command)[0].partition(" > ")
    limit = LIMITS.get(longest_match(LIMITS, command), "")
    identifier = next((one.id for one in service.reservations()), "none")
    arguments = shlex.split(f"{words} {limit}".replace(" ID ", f" {identifier} "))[1:]
    result = CliRunner().invoke(hydra, arguments, prog_name="hydra", input="y\n")
    if target and not target.startswith("/"):
        Path(target.strip()).write_text(result.stdout)
    return result


@pytest.mark.parametrize("command", [one for one in starting_with("hydra ") if is_run_here(one)])
def test_it_runs(command, desk, service):
    for before in BEFORE.get(longest_match(BEFORE, command), []):
        assert type_in(before, service).exit_code == 0
    result = type_in(command, service)
    assert result.exit_code == 0, result.output
    assert result.output


@pytest.mark.parametrize(
    "command", [one for one in starting_with("hydra ") if not is_run_here(one)]
)
def test_its_options_are_ours(command, desk, monkeypatch, tmp_path_factory):
    """For commands that another test runs with other arguments; no questions are asked."""
    if command.startswith("hydra init"):  # refuses a file that is there
        monkeypatch.chdir(tmp_path_factory.mktemp("new"))
    monkeypatch.setattr(click.Option, "prompt_for_value", click.Option.get_default)
    monkeypatch.setattr(click, "prompt", lambda _text, default, **_options: default)
    words = shlex.split(re.split(r"\s(?:\||&&|>)\s", command)[0])[1:]
    chosen: click.Command = hydra
    context = click.Context(hydra)
    while isinstance(chosen, click.Group):
        name, chosen, words = chosen.resolve_command(context, words)
        assert chosen is not None
        context = click.Context(chosen, info_name=name, parent=context)
    chosen.parse_args(context, words)


HELP = """
import json, runpy, sys
from contextlib import redirect_stdout
from io import StringIO
told = {}
for module in sys.argv[1:]:
    sys.argv = [module, "--help"]
    with redirect_stdout(StringIO()) as output:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise
    told[module] = output.getvalue()
json.dump(told, sys.stdout)
"""
"""Docstrings of these modules; most of their imports are the same."""


def module_of(command: str) -> str:
    return shlex.split(command)[2]


@cache
def helps() -> dict[str, str]:
    """By module, all commands in documents."""
    told = subprocess.run(
        [sys.executable, "-c", HELP, *sorted({*map(module_of, starting_with("python -m "))})],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(told.stdout)


@pytest.mark.parametrize("command", starting_with("python -m "))
def test_a_module_takes_its_options(command):
    options = set(re.findall(r"--[\w-]+", helps()[module_of(command)]))
    assert {word for word in shlex.split(command)[3:] if word.startswith("--")} <= options


@pytest.mark.parametrize("command", [one for one in all_commands() if " pytest" in one])
def test_pytest_has_what_it_is_told_to_run(command):
    words = shlex.split(command)
    assert words[:3] == [".venv/bin/python", "-m", "pytest"]
    for word in words[3:]:
        if word.startswith("--"):
            assert f'"{word.partition("=")[0]}"' in (ROOT / "tests" / "conftest.py").read_text()
        elif word.startswith("tests"):
            assert (ROOT / word).exists()


@pytest.mark.parametrize("command", starting_with("make "))
def test_make_has_the_target(command):
    told = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def test_nothing_is_shown_that_no_test_runs():
    seen_to = {"hydra", "make", "python -m", ".venv/bin/python -m pytest", *OF_THE_MACHINE}
    known = dict.fromkeys(seen_to) | ELSEWHERE
    assert [one for one in all_commands() if longest_match(known, one) is None] == []


@pytest.mark.parametrize("start, test", ELSEWHERE.items())
def test_what_is_run_elsewhere_is_shown(start, test):
    assert any(matches(start, command) for command in all_commands())
    assert (ROOT / test).exists()
