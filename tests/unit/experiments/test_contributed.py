"""Experiments contributed by other packages through entry points."""

import json
from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

from apps.cli import hydra
from hydra import plugins
from hydra.errors import HydraError
from mininet_scenarios.experiments import CONTRIBUTED, EXPERIMENTS, load


@pytest.fixture
def contributing(monkeypatch):
    """Contributes an experiment in addition to HydRA's."""

    def contribute(name, value):
        point = EntryPoint(name, value, CONTRIBUTED)
        monkeypatch.setattr(plugins, "points_of", lambda group: [point] if group else [])
        vars(EXPERIMENTS).pop("_points", None)
        monkeypatch.setattr(EXPERIMENTS, "_made", {})

    yield contribute
    vars(EXPERIMENTS).pop("_points", None)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        (
            "mine",
            "a_missing_module:EXPERIMENT",
            "experiment mine can't be loaded from a_missing_module:EXPERIMENT "
            "(ModuleNotFoundError: No module named 'a_missing_module'): mend or uninstall that "
            "package, or choose another experiment",
        ),
        (
            "mine",
            "os:getcwd",
            "experiment mine can't be loaded from os:getcwd (the object is a "
            "builtin_function_or_method, not a mininet_scenarios.experiments.frame.Experiment): "
            "mend or uninstall that package, or choose another experiment",
        ),
        (
            "mine",
            "mininet_scenarios.experiments.prices:EXPERIMENT",
            "experiment mine can't be loaded from mininet_scenarios.experiments.prices:EXPERIMENT "
            "(the experiment's own name is prices: results are found by one name): mend or "
            "uninstall that package, or choose another experiment",
        ),
        (
            "prices",
            "mininet_scenarios.experiments.prices:EXPERIMENT",
            "experiment prices can't be used: mininet_scenarios.experiments.prices:EXPERIMENT has "
            "the name of one of HydRA's own; rename the entry point in hydra.experiments, or "
            "uninstall the package",
        ),
    ],
)
def test_one_that_can_t_be_used_says_why_and_stops_no_other(contributing, name, value, why):
    contributing(name, value)
    with pytest.raises(HydraError) as refused:
        load(name).measure(None, None)
    assert str(refused.value) == why
    done = CliRunner().invoke(hydra, ["experiment", "list", "--json"])
    assert done.exit_code == 0, done.output
    listed = {one["name"]: one for one in json.loads(done.stdout)}
    assert listed[name]["source"] == why
    assert listed["tournament"]["title"] == "Every algorithm and policy on every workload"
