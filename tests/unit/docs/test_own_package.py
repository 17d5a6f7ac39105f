"""examples/own_package, installed by pip into a separate folder, and used from there."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from hydra.errors import DeviceError, DeviceUnavailable
from hydra.model import CrossConnect
from mininet_scenarios.emulators.catalogue import EMULATORS
from tests.conformance.devices import emulated
from tests.own_package import installed
from tests.waiting import PATIENCE_S

from .blocks import ROOT

pytestmark = pytest.mark.takes(45)

BY_PLACE = "hydra_example.algorithm:BUSIEST_FIRST"
PLANNED_THERE = """
import sys
import numpy as np
from apps.offline.study import plain_fabric
from apps.planning.planner import Planner
from hydra.model import NetworkState
from hydra.policy import Policy
from hydra.service import PlanRequest

demand = np.zeros((4, 4))
demand[0, 1] = 80.0
planner = Planner(plain_fabric(4, 2, 100.0), Policy(algorithm=sys.argv[1]))
planner.start()
try:
    change = planner.propose(NetworkState(), PlanRequest(), demand, (), (), urgent=True)
    assert "hydra_example" not in sys.modules
finally:
    planner.close()
print([(path.src, path.dst) for path in change.target.topology.paths])
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory) -> Path:
    return installed(tmp_path_factory.mktemp("own"))


@pytest.fixture
def run(there, tmp_path):
    """Runs Python with the package in addition to HydRA, in an empty folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": f"{there}{os.pathsep}{ROOT}",
                "P1_PASSWORD": EMULATORS["polatis-restconf"].password,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    return run


@pytest.fixture
def configuration(tmp_path):
    """Writes the demo's configuration with changes of policy and first plane."""

    def write(policy: dict[str, object], plane: dict[str, object]) -> Path:
        document = yaml.safe_load((ROOT / "configs" / "demo.yaml").read_text())
        document["policy"] = document.get("policy", {}) | policy
        document["planes"][0] |= {"names": "p1"} | plane
        document["wiring"][0]["planes"] = "p1"
        path = tmp_path / "fabric.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


def test_its_algorithm_plans_on_the_command_line(run):
    fabric = ("--fabric", "8x2@10000", "--demand", "gravity")
    asked = (*fabric, "--algorithm", "busiest-first", "--check", "--json")
    done = run("-m", "apps.cli", "plan", *asked)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["algorithm"] == "busiest-first"
    assert plan["circuits"]


def test_its_algorithm_plans_in_the_planning_process(run):
    done = run("-c", PLANNED_THERE, BY_PLACE)
    assert (done.returncode, done.stdout) == (0, "[(0, 1)]\n"), done.stderr


def test_its_algorithm_and_driver_stand_in_a_configuration(run, configuration):
    login = {"username": "admin", "password_env": "P1_PASSWORD"}
    plane = {"driver": "http-mirrors", "address": "10.0.0.7:8080", "login": login}
    file = str(configuration({"algorithm": BY_PLACE}, plane))
    done = run("-m", "apps.cli", "check", "--json", file)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["algorithm"] == BY_PLACE
    file = str(configuration({"algorithm": "busiest-first"}, plane | {"options": {"speed": 3}}))
    done = run("-m", "apps.cli", "check", "--json", file)
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["path"] == "planes[0].options.speed"


def test_its_experiment_runs_and_is_reported(run, tmp_path):
    listed = run("-m", "apps.cli", "experiment", "list", "--json")
    names = {experiment["name"] for experiment in json.loads(listed.stdout)}
    assert {"one-hop-gravity", "skewed-transfers"} <= names
    done = run("-m", "apps.cli", "experiment", "run", "one-hop-gravity", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["figure"] for row in result["rows"]] == ["busiest-first", "edmonds", "hydra-bfs"]
    assert all(row["met"] for row in result["rows"])
    plot = tmp_path / "results" / "one-hop-gravity" / "shares.png"
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert run("-m", "apps.cli", "experiment", "report").returncode == 0
    assert "one-hop-gravity" in (tmp_path / "results" / "report.html").read_text()


def test_its_driver_moves_mirrors_and_says_what_became_of_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "own_package")
    from hydra_example.driver import HttpSwitch

    with emulated("polatis-restconf")() as bench:
        switch = HttpSwitch(bench.plane, 10)
        switch.open()
        assert switch.cross_connects() == set()
        switch.change([], [CrossConnect(1, 18)])
        assert switch.cross_connects() == {CrossConnect(1, 18)}
        switch.change([CrossConnect(1, 18)], [])
        assert switch.cross_connects() == set()
        with closing(bench.driver()) as other:  # the test protects the working directory
            other.change([], [CrossConnect(1, 18)])
        with pytest.raises(DeviceError, match="port 18 is connected to 1"):
            switch.change([], [CrossConnect(2, 18)])
    with pytest.raises(DeviceUnavailable):
        switch.change([], [CrossConnect(2, 17)])
    switch.close()


def test_its_driver_is_found_by_its_name(run, configuration):
    with emulated("polatis-restconf")() as bench:
        login = {"username": bench.plane.login.username, "password_env": "P1_PASSWORD"}
        plane = {"driver": "http-mirrors", "address": bench.plane.address, "login": login}
        file = str(configuration({}, plane))
        with closing(bench.driver()) as other:
            other.change([], [CrossConnect(1, 18)])
        done = run("-m", "apps.cli", "device", "show", "p1", "--config", file, "--json")
    assert done.returncode == 0, done.stderr
    assert "18" in done.stdout
