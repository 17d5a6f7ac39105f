"""Commands that run other commands with bandwidth, as processes, and a network for them."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from hydra.errors import LifecycleError
from hydra.lifecycle import ReservationState as State
from hydra.reservations.reservation import FINAL_STATES
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture
def network(service):
    """Brings up reservations, unless ``network.fails``."""
    stop = threading.Event()
    network = type("Network", (), {"fails": False, "idle": False})()

    def work():
        while not stop.wait(0.02):
            for one in service.reservations():
                try:
                    if one.state is State.ACTIVATING and not network.idle:
                        end = State.FAILED if network.fails else State.ACTIVE
                        service.settle(one.id, end, "no light" if network.fails else "")
                    elif one.state is State.RELEASING:
                        service.settle(one.id, State.RELEASED)
                except LifecycleError:
                    pass  # the command was quicker

    thread = threading.Thread(target=work)
    thread.start()
    yield network
    stop.set()
    thread.join()


@pytest.fixture
def start(rest, service):
    """start(ARGUMENT…): ``hydra ARGUMENT…``, the running process."""
    running = []

    def begin(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "apps.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HYDRA_URL": rest.url},
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def away(rest):
    """Inside ``with away():`` the controller does not answer; afterwards it answers at the same
    port.
    """

    @contextmanager
    def stopped():
        rest.stop()
        try:
            yield
        finally:
            rest.start()

    return stopped


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def states(service):
    return [one.state for one in service.reservations()]


def all_over(service):
    wait_until(lambda: all(state in FINAL_STATES for state in states(service)))
    return True
