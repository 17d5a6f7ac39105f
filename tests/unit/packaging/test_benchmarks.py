"""Every benchmark can be started, and `make bench` runs them all."""

import importlib
import pkgutil

import benchmarks
from benchmarks import __main__ as everything

NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]


def test_all_are_run_by_make_bench():
    public = {name for name in NAMES if not name.startswith("_")}
    apart = {
        "chaos",
        "both_networks",
        "demand_live",
        "fuzz_files",
        "fuzz_openflow",
        "screenshots",
        "reconfigurations",
        "replicas",
        "soak",
        "stability",
        "stages_live",
        "whole_fabric",
    }  # pictures; as long as they are told to; a machine of its own
    run = {module.__name__.removeprefix("benchmarks.") for module in everything.BENCHMARKS}
    assert run | apart == public
    for name in NAMES:
        assert importlib.import_module(f"benchmarks.{name}")
