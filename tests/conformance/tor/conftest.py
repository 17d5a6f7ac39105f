"""Every test here runs once per candidate, on unused ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import yaml

from drivers.registry import TOR
from hydra.model import Login
from hydra.roles import TorSwitch
from mininet_scenarios.emulators.admin import AdminClient
from tests.conformance.tor.candidate import TorBench, TorCandidate, TorDeviation
from tests.conformance.tor.devices import CANDIDATES, LABELS_NOT_VLANS, SERIAL, rack


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tor_candidate" in metafunc.fixturenames:
        values = [pytest.param(c, id=c.id, marks=c.marks) for c in _candidates(metafunc.config)]
        metafunc.parametrize("tor_candidate", values, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need abilities which a candidate's device lacks."""
    left_out = [item for item in items if _is_beyond(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_beyond(item: pytest.Item) -> bool:
    asked = {what: item.get_closest_marker(f"tor_{what}") for what in _ASKED}
    if not any(asked.values()):
        return False
    candidate: TorCandidate = item.callspec.params["tor_candidate"]
    return not all(
        _ASKED[what](candidate, mark.args[0]) for what, mark in asked.items() if mark is not None
    )


_ASKED: dict[str, Callable[[TorCandidate, Any], bool]] = {
    "fault": lambda candidate, kind: kind in candidate.faults,
    "ability": lambda candidate, name: getattr(TOR[candidate.driver].CAPABILITIES, name),
    "deviates": lambda candidate, deviation: deviation in candidate.deviations,
    "conforms": lambda candidate, deviation: deviation not in candidate.deviations,
}
"""By marker ``tor_…``: True if a candidate has the ability."""


def _candidates(config: pytest.Config) -> list[TorCandidate]:
    driver, address = config.getoption("--device-driver"), config.getoption("--device-address")
    ports = config.getoption("--device-tor-port")
    if driver is None or address is None or not ports:
        return CANDIDATES
    username = config.getoption("--device-username")
    login = username and Login(username, config.getoption("--device-password-env"))
    options = dict(option.partition("=")[::2] for option in config.getoption("--device-option"))
    loaded = {key: yaml.safe_load(value) for key, value in options.items()}
    wanted = rack(driver, address, login=login, options=loaded)
    bench = TorBench(wanted, tuple(ports), config.getoption("--device-timeout"))
    deviations = LABELS_NOT_VLANS if TOR[driver].CAPABILITIES.labels else {}
    deviations |= SERIAL if address.startswith("serial:") else {}
    return [TorCandidate(driver, lambda: nullcontext(bench), deviations=deviations)]


@pytest.fixture(scope="module")
def running(tor_candidate: TorCandidate) -> Iterator[TorBench]:
    """The switch, started once per module."""
    with tor_candidate.start() as bench:
        yield bench


@pytest.fixture
def deviations(tor_candidate: TorCandidate) -> Mapping[TorDeviation, str]:
    return tor_candidate.deviations


@pytest.fixture
def bench(running: TorBench) -> Iterator[TorBench]:
    """The switch without faults; its trunks are restored afterwards."""
    driver = running.driver()
    before = driver.vlans(running.ports)
    driver.close()
    yield running
    if running.admin is not None:
        running.admin.clear()
    driver.set_vlans({port: vlans for port, vlans in before.items() if vlans.tagged})
    driver.close()


@pytest.fixture
def tor(bench: TorBench) -> Iterator[TorSwitch]:
    """A driver of the switch, closed afterwards."""
    driver = bench.driver()
    yield driver
    driver.close()


@pytest.fixture
def admin(bench: TorBench) -> AdminClient:
    """The admin client of an emulator."""
    assert bench.admin is not None, "only emulators fail on request: mark the test tor_fault"
    return bench.admin
