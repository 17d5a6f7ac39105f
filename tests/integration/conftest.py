"""The emulated fabric for integration tests: one at a time on a machine, one per test module."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import yaml

from apps.process.configuration import load_configuration
from hydra.config import Loaded
from mininet_scenarios.stage.controller_process import ControllerProcess
from mininet_scenarios.testbed import Testbed, ocs, open_vswitch, testbed_lock

from .live import Live, live
from .warm import cool, spawn_emulator

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs"
DEMO_CONFIG = CONFIGS / "demo.yaml"
_AFTER_A_FAILURE = ("/v1/conditions", "/v1/reservations", "/v1/quarantine", "/v1/topology")
_LOG_LINES = 80


def pytest_sessionfinish() -> None:
    cool()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a failed test ends with its controllers' last log lines, conditions and
    reservations.
    """
    report = yield
    if report.failed:
        values = item.funcargs.values()
        processes = [value.process if isinstance(value, Live) else value for value in values]
        controllers = [one for one in processes if isinstance(one, ControllerProcess)]
        for controller in dict.fromkeys(controllers):
            report.sections.append(
                (f"log of {controller.config.name}", controller.log_tail(_LOG_LINES))
            )
            if controller.running:
                report.sections += [
                    (path, controller.answer_to(path)[1]) for path in _AFTER_A_FAILURE
                ]
    return report


@pytest.fixture(scope="session")
def machine() -> Iterator[None]:
    """This session has exclusive use of the machine's Open vSwitch, and forks its emulators."""
    with testbed_lock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocs, "_spawn", spawn_emulator)
        yield


@pytest.fixture(scope="module")
def switches(machine: None) -> Iterator[None]:
    """Open vSwitch runs, for a module with its own bridges."""
    with open_vswitch():
        yield


@pytest.fixture(scope="session")
def demo() -> Loaded:
    return load_configuration(DEMO_CONFIG)


@pytest.fixture(scope="module")
def shipped(request: pytest.FixtureRequest, demo: Loaded) -> Loaded:
    """The demo's fabric; with ``live.on_each_substrate``, a fabric of another substrate."""
    name: str | None = getattr(request, "param", None)
    return demo if name is None else load_configuration(CONFIGS / f"{name}.yaml")


@pytest.fixture(scope="module")
def demo_testbed(machine: None, shipped: Loaded) -> Iterator[Testbed]:
    """The data plane of the shipped fabric, built once for the tests of a module."""
    with Testbed(shipped.fabric, shipped.controller, fdb_age_s=shipped.policy.fdb_age_s) as testbed:
        yield testbed


@pytest.fixture(scope="module")
def without_audit(
    demo_testbed: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Live]:
    """A controller whose audits do not repair the tests' changes of devices."""
    with live(demo_testbed, tmp_path_factory.mktemp("live"), {"audit_interval_s": 0}) as network:
        yield network


@pytest.fixture
def network(without_audit: Live) -> Iterator[Live]:
    """One controller for the whole module; each test restores its state."""
    yield without_audit
    for plane in without_audit.fabric.planes:
        without_audit.testbed.ocs(plane.name).admin.clear()
    without_audit.give_everything_back()


@pytest.fixture
def controller(demo_testbed: Testbed, tmp_path: Path) -> Iterator[ControllerProcess]:
    """A controller of the demo fabric, ready, with a separate journal."""
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"]["journal"] = str(tmp_path / "journal.db")
    config = tmp_path / "demo.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    with ControllerProcess(config) as process:
        yield process
