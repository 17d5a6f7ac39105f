"""The program runs without Mininet; experiments with a data plane say how to install Mininet.

``test_experiments`` runs all experiments without a data plane as if Mininet were missing.
"""

import json
import runpy
import subprocess
import sys

import pytest

import mininet_scenarios
from mininet_scenarios.experiments import EXPERIMENTS
from mininet_scenarios.testbed import TestbedError, shipped
from mininet_scenarios.testbed.servers import server_host_class
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.takes(20)

WITHOUT = """
import sys
sys.modules["mininet"] = None
from apps.cli import main
main()
"""


def run_without(*arguments):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, "experiment", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_they_are_listed():
    done = run_without("list", "--json")
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)] == [*EXPERIMENTS]


def test_one_without_a_data_plane_runs(tmp_path):
    done = run_without("run", "prices", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "prices" / "result.json").exists()


def test_a_testbed_says_how_a_virtual_environment_sees_the_system_s(monkeypatch):
    monkeypatch.setitem(sys.modules, "mininet", None)
    monkeypatch.delitem(sys.modules, "mininet_scenarios.testbed.mininet_host", raising=False)
    with pytest.raises(TestbedError) as refused:
        server_host_class()
    for words in (
        f"{sys.executable} has no Mininet",
        "apt-get install mininet openvswitch-switch",
        "ln -s /usr/lib/python3/dist-packages/mininet ",
        "/site-packages/mininet",
    ):
        assert words in str(refused.value)


def test_another_missing_package_is_not_taken_for_mininet(monkeypatch):
    monkeypatch.delitem(sys.modules, "mininet_scenarios.testbed.mininet_host", raising=False)
    monkeypatch.setitem(sys.modules, "mininet_scenarios.testbed.shell", None)
    with pytest.raises(ModuleNotFoundError, match="shell"):
        server_host_class()


def test_a_wheel_s_fabrics_are_found_in_its_environment(tmp_path, monkeypatch):
    """A wheel has no `configs` beside its packages."""
    configs = tmp_path / "share" / "hydra" / "configs"
    configs.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(mininet_scenarios, "__file__", str(tmp_path / "lib" / "__init__.py"))
    there = runpy.run_path(shipped.__file__)
    assert there["DEFAULT_CONFIG"] == configs / "demo.yaml"
    assert shipped.DEFAULT_CONFIG.is_file()
