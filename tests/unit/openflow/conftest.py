from __future__ import annotations

from collections.abc import Iterator

import pytest

from apps.openflow.fleet import Fleet
from apps.openflow.package import OS_KEN, RYU, VARIABLE

from .fleet_switches import FABRIC


@pytest.fixture(scope="module", params=[RYU, OS_KEN])
def package(request) -> str:
    """Processes started by a test use this OpenFlow package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param


@pytest.fixture(scope="module")
def ryu() -> Iterator[None]:
    """Processes started by a test use Ryu, for tests that do not depend on the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, RYU)
        yield


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(FABRIC, post=lambda function: function())
