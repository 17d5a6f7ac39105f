"""The controller as a process: start, stop, crash, restart, and failures with a message."""

from __future__ import annotations

import http.client
import socket

import pytest

from mininet_scenarios.stage.controller_process import (
    ControllerProcess,
    ControllerProcessError,
    members_of,
)
from tests.waiting import PATIENCE_S

from .live import wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(50)]


def answers(controller: ControllerProcess) -> bool:
    settings = controller.settings
    connection = http.client.HTTPConnection(
        settings.rest_host, settings.rest_port, timeout=PATIENCE_S
    )
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_it_is_ready_ends_by_sigterm_and_starts_again(controller: ControllerProcess) -> None:
    assert controller.running
    assert answers(controller)
    assert controller.stop() == 0
    assert not controller.running
    assert not answers(controller)
    controller.start()
    assert answers(controller)


def test_it_starts_again_after_a_crash(controller: ControllerProcess) -> None:
    controller.kill()
    assert not controller.running
    assert not answers(controller)
    controller.start()
    assert answers(controller)


def test_a_second_start_is_refused(controller: ControllerProcess) -> None:
    with pytest.raises(ControllerProcessError, match="runs already"):
        controller.start()
    assert answers(controller)


def test_a_controller_that_cannot_start_is_quoted(controller: ControllerProcess) -> None:
    controller.stop()
    address = controller.settings.rest_host, controller.settings.rest_port
    with socket.create_server(address) as taken:
        taken.listen()
        with pytest.raises(ControllerProcessError) as caught:
            controller.start()
    assert "log ends:" in str(caught.value)
    assert "8080" in str(caught.value)
    assert not controller.running


def test_nothing_of_its_process_group_survives(controller: ControllerProcess) -> None:
    group = controller.pid
    assert group in members_of(group)
    controller.kill()
    wait_until(lambda: not members_of(group))
