"""Signs of life, on a socket such as systemd's."""

import socket
import time

import pytest

from apps.process.supervision import Heart, notify, watchdog_s
from tests.waiting import PATIENCE_S


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """(socket, environment)"""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name if request.param == "path" else f"\0{name}")
        listening.settimeout(PATIENCE_S)
        address = name if request.param == "path" else f"@{name}"
        yield listening, {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "150000"}


def test_a_message_arrives(manager):
    listening, environment = manager
    assert notify("READY=1", environment)
    assert listening.recv(100) == b"READY=1"


def test_without_a_manager_nothing_is_sent(tmp_path):
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "nobody")})


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "often"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdog_s_interval(environment, seconds):
    assert watchdog_s(environment) == seconds


def test_it_beats_while_the_hub_answers(manager):
    listening, environment = manager
    heart = Heart(lambda function: function(), lambda: True, environment)
    heart.start()
    assert [listening.recv(100) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
    heart.stop()
    while (last := listening.recv(100)) == b"WATCHDOG=1":
        pass
    assert last == b"STOPPING=1"


@pytest.mark.parametrize(
    ("post", "alive"),
    [(lambda _function: None, True), (lambda function: function(), False)],
    ids=["the hub hangs", "the conductor has ended"],
)
def test_it_does_not_beat_for_the_dead(manager, post, alive):
    listening, environment = manager
    heart = Heart(post, lambda: alive, environment)
    heart.start()
    assert listening.recv(100) == b"READY=1"
    time.sleep(0.3)  # timed: a live heart would have sent a sign
    heart.stop()
    assert listening.recv(100) == b"STOPPING=1"
