"""A wall clock that tests can advance."""

import time
from collections.abc import Callable

import pytest


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``pass_time(SECONDS)`` advances ``time.time()`` of this process."""
    clock, ahead_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: clock() + ahead_s[0])

    def put_forward(seconds: float) -> None:
        ahead_s[0] += seconds

    return put_forward
