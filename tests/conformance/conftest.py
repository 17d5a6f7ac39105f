"""Every test here runs once per candidate, on unused ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from drivers.registry import OPTICAL
from hydra.model import Login, Plane, PlaneId
from hydra.roles import OpticalSwitch
from mininet_scenarios.emulators.admin import AdminClient
from tests.conformance.candidate import Bench, Candidate, Deviation, Slots
from tests.conformance.devices import CANDIDATES
from tests.waiting import SHORT_S

SLOTS = 4
HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With a device from the command line, only the suite of its role runs."""
    driver = config.getoption("--device-driver")
    if driver is None:
        return None
    others = HERE / ("tor" if driver in OPTICAL else "test_optical_switch.py")
    general = HERE / "test_every_driver.py", HERE / "test_journal.py"
    return True if collection_path in (others, *general) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "candidate" in metafunc.fixturenames:
        candidates = _candidates(metafunc.config)
        values = [pytest.param(c, id=c.id, marks=c.marks) for c in candidates]
        metafunc.parametrize("candidate", values, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need abilities which a candidate's device lacks."""
    left_out = [item for item in items if _is_beyond(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_beyond(item: pytest.Item) -> bool:
    fault, ability = (item.get_closest_marker(f"needs_{what}") for what in ("fault", "emulated"))
    if fault is None and ability is None:
        return False
    candidate: Candidate = item.callspec.params["candidate"]
    capabilities = OPTICAL[candidate.driver].CAPABILITIES
    return (
        not candidate.faults
        or (fault is not None and fault.args[0] not in candidate.faults)
        or (ability is not None and not getattr(capabilities, ability.args[0]))
    )


def _candidates(config: pytest.Config) -> list[Candidate]:
    driver, address = config.getoption("--device-driver"), config.getoption("--device-address")
    if driver is None and address is None:
        return CANDIDATES
    if driver is None or address is None:
        raise pytest.UsageError("--device-driver and --device-address go together")
    username = config.getoption("--device-username")
    login = username and Login(username, config.getoption("--device-password-env"))
    options = dict(option.partition("=")[::2] for option in config.getoption("--device-option"))
    plane = Plane(
        PlaneId(0), "device", driver, address, config.getoption("--device-ports"), 0.0, 1.0,
        login, {key: yaml.safe_load(value) for key, value in options.items()},
    )  # fmt: skip
    bench = Bench(plane, config.getoption("--device-timeout"))
    names = config.getoption("--device-deviation")
    names += ["NO_SECOND_SESSION"] if address.startswith("serial:") else []
    deviations = {Deviation[name]: "as said on the command line" for name in names}
    return [
        Candidate(driver, lambda: nullcontext(bench), variant="hardware", deviations=deviations)
    ]


@pytest.fixture(scope="module")
def running(candidate: Candidate) -> Iterator[Bench]:
    """The device, started once per module."""
    with candidate.start() as bench:
        yield bench


@pytest.fixture
def deviations(candidate: Candidate) -> Mapping[Deviation, str]:
    return candidate.deviations


@pytest.fixture(scope="module")
def reader(running: Bench) -> Iterator[OpticalSwitch]:
    """A driver for the suite: closed if the driver would be in the way, or else kept connected."""
    driver = running.driver(name="reader")
    yield driver
    driver.close()


@pytest.fixture
def bench(
    running: Bench, reader: OpticalSwitch, deviations: Mapping[Deviation, str]
) -> Iterator[Bench]:
    """The device without faults; its state is restored afterwards."""
    before = reader.cross_connects()
    if Deviation.NO_SECOND_SESSION in deviations:
        reader.close()
    yield running
    if running.admin is not None:
        running.admin.clear()
        running.admin.unblock()
    reader.change(reader.cross_connects() - before, [])
    assert reader.cross_connects() == before
    if Deviation.NO_SECOND_SESSION in deviations:
        reader.close()


@pytest.fixture
def switch(bench: Bench) -> Iterator[OpticalSwitch]:
    """A driver of the device, closed afterwards."""
    driver = bench.driver()
    yield driver
    driver.close()


@pytest.fixture
def hasty(bench: Bench) -> Iterator[OpticalSwitch]:
    """As ``switch``, for tests that wait for a time-out: the time-outs are shorter."""
    driver = bench.driver(timeout_s=SHORT_S)
    yield driver
    driver.close()


@pytest.fixture
def slots(bench: Bench, reader: OpticalSwitch, deviations: Mapping[Deviation, str]) -> Slots:
    """Free ports: all of an emulator's, or the ports of a shared device that are not in use."""
    ingress, egress = reader.size()
    present = reader.cross_connects()
    if Deviation.NO_SECOND_SESSION in deviations:
        reader.close()
    free_in = sorted(set(range(1, ingress + 1)) - {c.ingress for c in present})
    free_out = sorted(set(range(ingress + 1, ingress + egress + 1)) - {c.egress for c in present})
    if min(len(free_in), len(free_out)) < SLOTS:
        pytest.fail(f"the suite needs {SLOTS} free ports on each side of {bench.plane.address}")
    return Slots(tuple(free_in[:SLOTS]), tuple(free_out[:SLOTS]))


@pytest.fixture
def admin(bench: Bench) -> AdminClient:
    """The admin client of an emulator."""
    assert bench.admin is not None, "only emulators fail on request: mark the test needs_fault"
    return bench.admin
