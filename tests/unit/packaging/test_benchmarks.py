"""Every benchmark can be started, and `make bench` runs them all."""

import importlib
import pkgutil
from functools import partial

import pytest

import benchmarks
from apps.process.configuration import load_configuration
from benchmarks import __main__ as everything
from benchmarks import policing, whole_tables
from benchmarks.dashboard import CONFIGS
from benchmarks.screenshots import TroubledService

NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]


def test_all_are_run_by_make_bench():
    public = {name for name in NAMES if not name.startswith("_")}
    apart = {
        "chaos",
        "both_networks",
        "demand_live",
        "fuzz_files",
        "fuzz_openflow",
        "page",
        "screenshots",
        "replicas",
        "soak",
        "stability",
        "stages_live",
        "whole_fabric",
        "workers",
    }  # pictures, the page of figures; endless benchmarks; benchmarks of a whole machine
    run = {module.__name__.removeprefix("benchmarks.") for module in everything.BENCHMARKS}
    assert run | apart == public
    for name in NAMES:
        assert importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("measure", [whole_tables.measure, partial(policing.measure, number=1)])
def test_what_only_computes_is_played_on_a_small_fabric(monkeypatch, measure):
    monkeypatch.setattr(whole_tables, "RUNS", 1)
    rows = measure(load_configuration(CONFIGS / "demo.yaml").fabric)
    assert rows
    assert all(row.ours > 0 for row in rows)


def test_a_picture_tells_of_each_thing_that_is_wrong_wherever_it_is_shown():
    service = TroubledService(load_configuration(CONFIGS / "demo.yaml").fabric)
    fabric = service.fabric
    wrong = {name for one in service.conditions() for name in one.subjects}
    shown = {one.name for one in service.devices() if one.alarms or not one.connected}
    for one in service.quarantine():
        port = fabric.ports[one.entry.port]
        shown.add(f"{fabric.racks[port.rack].name}:{port.tor_port}")
        assert not any(port.id in circuit.ends for circuit in service.state().topology.circuits)
    assert wrong == shown
    assert len(wrong) == 3
    told = " ".join(line.text for line in service.history(0.0, float("inf"), (), 9))
    assert all(name in told for name in wrong)
