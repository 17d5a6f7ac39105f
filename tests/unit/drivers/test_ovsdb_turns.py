"""Calls on ToRs' databases compute in turn; only the server's time counts against a deadline."""

import select
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from drivers.transports import ovsdb_session
from drivers.transports.ovsdb_session import _TURNS, Call, SessionLostError
from tests.waiting import PATIENCE_S, remains

TURNS = _TURNS._initial_value


def test_time_in_which_others_have_their_turn_does_not_count(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(ovsdb_session, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    began, over = threading.Event(), threading.Event()
    lost = []

    def call():
        with Call(PATIENCE_S) as late:
            began.set()
            try:
                late.wait(select.poll(), 10)
            except SessionLostError as error:
                lost.append(error)
        over.set()

    with ExitStack() as others:
        for _ in range(TURNS):
            others.enter_context(Call(PATIENCE_S))
        threading.Thread(target=call).start()
        assert remains(lambda: not began.is_set())
        now_s[0] += 2 * PATIENCE_S
    assert over.wait(PATIENCE_S)
    assert not lost


def test_who_waits_for_a_server_leaves_the_turn_to_others():
    waiting = threading.Barrier(TURNS + 1)

    def call():
        with Call(PATIENCE_S) as one:
            one.wait(Server(waiting), None)

    threads = [threading.Thread(target=call) for _ in range(TURNS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not waiting.broken
    assert not any(thread.is_alive() for thread in threads)


class Server:
    """A poll that returns once all calls have sent their request."""

    def __init__(self, waiting: threading.Barrier) -> None:
        self._waiting = waiting

    def poll(self, _timeout_ms: float) -> None:
        self._waiting.wait(PATIENCE_S)


def test_a_server_that_is_silent_is_not_waited_for():
    with Call(0.05) as call, pytest.raises(SessionLostError):  # timed: no server answers
        while True:
            call.wait(select.poll(), None)
