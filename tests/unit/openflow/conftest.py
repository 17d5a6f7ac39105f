from __future__ import annotations

import pytest

from apps.openflow.fleet import Fleet
from apps.openflow.package import OS_KEN, RYU, VARIABLE

from .fleet_switches import FABRIC


@pytest.fixture(scope="module", params=[RYU, OS_KEN])
def package(request) -> str:
    """Processes that a test starts run OpenFlow by this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, request.param)
        yield request.param


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(FABRIC, post=lambda function: function())
