from importlib.metadata import EntryPoint

import pytest

import apps.cli
from apps.cli import _CONTRIBUTED


@pytest.fixture
def contributing(monkeypatch):
    def contribute(name, value):
        points = [EntryPoint(name, value, _CONTRIBUTED)]
        monkeypatch.setattr(apps.cli, "points_of", lambda group: points)

    return contribute


def test_the_installation_contributes_the_experiments(run):
    text = run("--help").stdout
    assert "Contributed commands:\n  experiment" in text
    assert run("experiment", "--help").exit_code == 0


def test_one_that_can_t_be_loaded_stops_only_itself(run, contributing):
    contributing("broken", "apps.no_such_module:command")
    assert run("--help").exit_code == 0
    assert run("price", "--help").exit_code == 0
    result = run("broken")
    assert result.exit_code == 1
    assert "apps.no_such_module" in result.stderr


def test_what_is_no_command_says_so(run, contributing):
    contributing("odd", "os:getcwd")
    assert run("--help").exit_code == 0
    result = run("odd")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: command odd: os:getcwd is no click command\n",
    )


def test_ours_can_t_be_replaced(run, contributing):
    contributing("check", "apps.cli.run:run")
    assert "Contributed" not in run("--help").stdout
    assert "hydra check" in run("check", "--help").stdout
