"""The client as a separate distribution: generated files, requirements, and other packages."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hydra
import hydra_hybrid_network_client
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import FakeService

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "hydra_hybrid_network_client"
RESERVE = """
import asyncio
from hydra_hybrid_network_client import AsyncHydraClient, HydraClient

with HydraClient() as hydra:
    print(hydra.reserve("r1", "r2", 20).state)

async def ask():
    async with AsyncHydraClient() as hydra:
        print((await hydra.reserve("r3", "r4", 20)).state)

asyncio.run(ask())
"""
BESIDE = """
import django
from django.conf import settings
from hydra import compose, initialize_config_dir

settings.configure()
django.setup()
with initialize_config_dir(CONFIGS, version_base=None):
    print(compose("job").rate)
"""
START = "import sys; sys.path.append({root!r}); from apps.start import hydra; hydra()"


def test_generated_files_are_current():
    check = [sys.executable, str(ROOT / "scripts" / "client_package.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_it_has_the_controllers_version_and_each_package():
    assert hydra_hybrid_network_client.__version__ == hydra.__version__
    settings = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    packages = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in PACKAGE.rglob("__init__.py")
        if "build" not in init.parts  # left by `pip install ./hydra_hybrid_network_client`
    }
    assert set(settings["tool"]["setuptools"]["packages"]) == packages
    assert {Requirement(one).name for one in settings["project"]["dependencies"]} == {
        "httpx",
        "pydantic",
    }


@pytest.fixture
def url():
    server = RestServer(create_app(FakeService(load_configuration(DEMO).fabric)), "127.0.0.1", 0)
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def wheel(tmp_path):
    """The client's wheel, built from a copy: setuptools builds in the sources' directory."""
    sources = tmp_path / "sources"
    shutil.copytree(PACKAGE, sources, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, sources)
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


@pytest.fixture
def python(tmp_path):
    """The interpreter of an empty environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv" / "bin" / "python"


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def output(python, code, **variables):
    environment = {"PATH": os.environ["PATH"], **variables}
    command = [python, "-c", code]
    done = subprocess.run(
        command, env=environment, cwd=python.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def needed(*names):
    """Names of the distributions required by ``names``, by their metadata, with ``names``."""
    found = {}
    left = [canonicalize_name(name) for name in names]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = distribution(name)
            wanted = map(Requirement, found[name].requires or ())
            here = {"extra": ""}
            left += [
                canonicalize_name(one.name)
                for one in wanted
                if one.marker is None or one.marker.evaluate(here)
            ]
    return found


def test_it_works_where_only_what_it_asks_for_is_installed(wheel, python, url):
    """Its requirements come from this environment, without the package index."""
    (folder,) = (python.parents[1] / "lib").glob("python*/site-packages")
    there = needed("httpx", "pydantic")
    for one in there.values():
        for file in one.files:
            if ".." not in file.parts:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(one.locate_file(file), folder / file)
    pip("--python", python, "install", "--no-index", wheel)  # fails if a requirement is missing
    assert output(python, RESERVE, HYDRA_URL=url) == ["activating", "activating"]
    with pytest.raises(AssertionError, match="No module named 'hydra'"):
        output(python, "import hydra")
    page = (ROOT / "docs" / "client.md").read_text()
    (said,) = re.findall(r"installs (\d+) packages", page)
    assert int(said) == len(there) + 1


@pytest.mark.takes(60)
def test_it_works_beside_hydra_core_and_django(wheel, python, url, tmp_path):
    """Both come from the index, so only FULL=1 runs this test."""
    pip("--python", python, "install", "--no-compile", wheel, "hydra-core==1.3.8", "django==5.2.19")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "job.yaml").write_text("rate: 20\n")
    code = BESIDE.replace("CONFIGS", repr(str(tmp_path / "configs"))) + RESERVE
    assert output(python, code, HYDRA_URL=url) == ["20", "activating", "activating"]
    with pytest.raises(AssertionError, match=r"hydra-core 1\.3\.8 has a package `hydra`"):
        output(python, START.format(root=str(ROOT)))


def test_the_controller_does_not_start_where_others_have_a_package_of_ours(tmp_path):
    """The installation would overwrite the server's ``hydra``, or be overwritten."""
    for name, file in (("hydra_core", "hydra/__init__.py"), ("other", "hydra_plugins/__init__.py")):
        folder = tmp_path / f"{name}-1.3.8.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.3.8\n")
        (folder / "RECORD").write_text(f"{file},sha256=x,1\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", START.format(root=str(ROOT)), "--version"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("hydra_core 1.3.8 has a package `hydra`, and so has hydra-hybrid")
    assert "an environment of its own" in done.stderr
