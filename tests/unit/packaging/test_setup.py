"""What the distribution holds and asks for, as setup.py hands it to setuptools."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).parents[3]


@pytest.fixture
def metadata(monkeypatch) -> dict:
    handed_over = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: handed_over.update(keywords))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py", run_name="__main__")
    return handed_over


def test_the_name_clashes_with_nothing(metadata):
    assert metadata["name"] == "hydra-hybrid-network"
    assert re.fullmatch(r"\d+\.\d+\.\d+", metadata["version"])


def test_every_package_is_in_and_no_test(metadata):
    packages = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for top in ("hydra", "topology", "drivers", "apps", "mininet_scenarios")
        for init in (ROOT / top).rglob("__init__.py")
    }
    assert set(metadata["packages"]) == packages


def test_every_module_is_in_a_package():
    """A directory without __init__.py would be left out of the wheel without a word."""
    for top in ("hydra", "topology", "drivers", "apps", "mininet_scenarios"):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_run_time_requirements_are_pinned_and_hold_no_test_tools(metadata):
    required = metadata["install_requires"]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", one) for one in required), required
    names = {one.split("==")[0] for one in required}
    assert {"ryu", "eventlet", "ovs", "numpy", "pydantic", "click", "fastapi"} <= names
    assert not names & {"pytest", "hypothesis", "ruff", "mypy", "matplotlib"}


@pytest.mark.parametrize("command", ["hydra", "ryu-manager"])
def test_console_scripts_lead_to_a_function(metadata, command):
    scripts = dict(
        line.replace(" ", "").split("=") for line in metadata["entry_points"]["console_scripts"]
    )
    assert scripts.keys() == {"hydra", "ryu-manager"}
    module, function = scripts[command].split(":")
    # In a process of its own: the launcher loads Ryu, with all that it deprecates.
    code = f"from {module} import {function}; print(callable({function}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\n"
