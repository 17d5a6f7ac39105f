"""Contents and requirements of the distribution, as setup.py gives them to setuptools."""

import re
import runpy
import subprocess
import sys
import tomllib
import warnings
from importlib import import_module
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
RULES_TEST = Path("prometheus/hydra.rules.test.yml")
TOPS = (
    *("hydra", "topology", "drivers", "apps", "mininet_scenarios"),
    "hydra_hybrid_network_client",
)


@pytest.fixture
def metadata(monkeypatch) -> dict:
    handed_over = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ryu may have imported distutils before
        setuptools = import_module("setuptools")
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
        for top in TOPS
        for init in (ROOT / top).rglob("__init__.py")
        if "build" not in init.parts  # left by `pip install ./hydra_hybrid_network_client`
    }
    assert set(metadata["packages"]) == packages


def test_every_module_is_in_a_package():
    """A directory without __init__.py would silently be left out of the wheel."""
    for top in TOPS:
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


def test_run_time_requirements_are_pinned_and_hold_no_test_tools(metadata):
    required = metadata["install_requires"]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", one) for one in required), required
    names = {one.split("==")[0] for one in required}
    assert {"eventlet", "ovs", "numpy", "pydantic", "click", "fastapi"} <= names
    assert not names & {"pytest", "hypothesis", "ruff", "mypy", "matplotlib"}


def test_ryu_comes_in_the_wheel_and_all_that_it_needs_is_asked_for(metadata):
    """Its last release can't be built as a requirement: pip takes today's setuptools."""
    names = {canonicalize_name(one.split("==")[0]) for one in metadata["install_requires"]}
    assert "ryu" not in names
    needs = {canonicalize_name(Requirement(one).name) for one in requires("ryu")}
    assert needs <= names
    assert metadata["cmdclass"]["build_py"].__name__ == "BuildWithRyu"
    built_with = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {"setuptools>=66.1,<67", "wheel<0.46"} <= set(built_with)


def test_units_rules_configurations_and_the_dashboard_come_in_the_wheel(metadata):
    files = {(folder, Path(file)) for folder, names in metadata["data_files"] for file in names}
    assert all((ROOT / file).is_file() for _, file in files)
    below = "lib/systemd/system"
    units = {str(folder) + "/" + file.name for folder, file in files if folder.startswith(below)}
    systemd = ROOT / "deploy" / "systemd"
    kept = [path.relative_to(systemd) for path in systemd.rglob("*") if path.is_file()]
    assert units == {f"{below}/{path}" for path in kept}
    installed = {file.relative_to("deploy") for _, file in files if file.is_relative_to("deploy")}
    deploy = ROOT / "deploy"
    kept = {path.relative_to(deploy) for path in deploy.rglob("*") if path.is_file()}
    assert kept - installed == {Path("container/Containerfile"), RULES_TEST}, "of the clone alone"
    configs = {file.name for folder, file in files if folder == "share/hydra/configs"}
    assert configs == {file.name for file in (ROOT / "configs").iterdir()}
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert set(re.findall(r"\(\.\./configs/([\w.-]+)\)", page)) >= configs
    guide = (ROOT / "docs" / "install.md").read_text()
    assert "/opt/hydra/lib/systemd/system/hydra.service" in guide


def test_the_demo_is_installed_without_what_only_tests_need():
    demo, tests = (ROOT / "constraints.txt").read_text().split("# What tests")
    (run_time, emulation, *rest) = (ROOT / "requirements.txt").read_text().split("\n\n")
    pinned = re.compile(r"^[a-zA-Z0-9-]+==[0-9.]+", re.MULTILINE)

    def named(text):
        return {canonicalize_name(one.split("==")[0]) for one in pinned.findall(text)}

    assert named(run_time + emulation) <= named(demo)
    assert named("\n".join(rest)) <= named(tests)


@pytest.mark.parametrize("command", ["hydra", "ryu-manager"])
def test_console_scripts_lead_to_a_function(metadata, command):
    scripts = dict(
        line.replace(" ", "").split("=") for line in metadata["entry_points"]["console_scripts"]
    )
    assert scripts.keys() == {"hydra", "ryu-manager"}
    module, function = scripts[command].split(":")
    # In a separate process: the launcher loads Ryu, with its deprecation warnings.
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
