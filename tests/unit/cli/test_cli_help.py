import subprocess
import sys

import click
import pytest

from apps.cli import _COMMANDS, hydra

from . import CONFIGS


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help_with_an_example(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert "Examples:\n" in result.stdout
    assert f"  hydra {name} " in result.stdout or f"  hydra {name}\n" in result.stdout


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(run, name):
    command = hydra.get_command(None, name)
    assert command.name == name
    first = " ".join(command.help.split("\n\n")[0].split())
    words = _COMMANDS[name][1].rstrip(".").split()
    assert words[0] == first.split()[0]
    assert name in run("--help").stdout


def commands() -> dict[str, click.Command]:
    """Every command by its full name, including commands of groups."""
    found = {name: hydra.get_command(None, name) for name in _COMMANDS}
    groups = {name: one for name, one in found.items() if isinstance(one, click.Group)}
    inner = {f"{name} {sub}": one for name in groups for sub, one in groups[name].commands.items()}
    return {name: one for name, one in found.items() if name not in groups} | inner


def test_every_fabric_is_explained():
    """Without the text of another option or of a field of the REST API."""
    found = {
        name: parameter.help
        for name, command in commands().items()
        for parameter in command.params
        if "--fabric" in parameter.opts and "RxP" in (parameter.metavar or "")
    }
    assert {"plan", "trace plan", "trace convert"} <= found.keys()
    for name, words in found.items():
        assert "R racks on P planes" in words, name


RUN_BY_PROGRAMS = {"slurm prolog", "slurm epilog"}
WRITE_FILES_OF_OTHERS = {"slurm topology"}
RUN_OTHERS = {"run", "agent", "worker", "with-bandwidth", "mpirun", "completion"}


@pytest.mark.parametrize(
    "name", sorted(commands().keys() - RUN_OTHERS - RUN_BY_PROGRAMS - WRITE_FILES_OF_OTHERS)
)
def test_every_command_speaks_json(name):
    assert "as_json" in {parameter.name for parameter in commands()[name].params}


FRACTIONS = sorted(
    {
        (name, parameter.opts[-1])
        for name, command in commands().items()
        for parameter in command.params
        if isinstance(parameter.type, click.FloatRange | type(click.FLOAT))
    }
)


@pytest.mark.parametrize("value", ["inf", "nan"])
@pytest.mark.parametrize(("name", "option"), FRACTIONS)
def test_numbers_are_finite(name, option, value):
    """click itself accepts both as numbers in any range."""
    (parameter,) = (one for one in commands()[name].params if option in one.opts)
    with pytest.raises(click.BadParameter):
        parameter.type.convert(value, parameter, None)


@pytest.mark.parametrize("name", sorted(name for name in commands() if " " in name))
def test_commands_in_groups_have_examples_too(run, name):
    result = run(*name.split(), "--help")
    assert result.exit_code == 0
    assert f"  hydra {name} " in result.stdout.split("Examples:\n")[1]


def test_help_names_the_exit_codes(run):
    text = run("--help").stdout
    assert "2  wrong usage" in text
    assert "3  no controller answers, or no device" in text
    assert "4  a change was sent to a device, with unknown outcome" in text


def loaded(code, modules):
    """The modules among these that a process has imported after running the code."""
    told = f"import sys; {code}; print(sorted({modules!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", told],
        cwd=CONFIGS.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def test_help_loads_nothing_heavy():
    code = "import apps.cli; apps.cli.hydra(['--help'], standalone_mode=False)"
    heavy = {"numpy", "pydantic", "yaml", "httpx", "rich", "scipy", "fastapi"}
    assert loaded(code, heavy) == "[]"


def test_a_command_with_bandwidth_loads_neither_planner_nor_configuration():
    """Batch systems start the command two or three times for every job."""
    code = "import apps.cli.bandwidth, apps.cli.slurm"
    heavy = {"numpy", "yaml", "fastapi", "hydra.config", "hydra.service"}
    assert loaded(code, heavy) == "[]"


def test_version(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("hydra, version ")
