"""A controller and a worker with different protocol versions: both report, and no switch is
accepted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
import zmq

from apps.workers import links as links_room
from apps.workers import roster as roster_room
from apps.workers import wire
from apps.workers.exchange import endpoint
from hydra import __version__
from mininet_scenarios.emulators.ports import free_port
from tests.integration.live import DEMO_CONFIG
from tests.unit.workers.test_links import LONG_S, SWITCH, Controller, Worker
from tests.waiting import wait_until

pytestmark = pytest.mark.takes(6)

OURS = wire.PROTOCOL
LATER = {"protocol": OURS + 1, "release": "9.9"}
EARLIER: dict[str, object] = {}
"""Messages had no version before version numbers existed."""


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def controller(stack, port):
    one = Controller(port)
    stack.callback(one.close)
    return one


class OtherWorker:
    """A worker of another release, which requests a lease."""

    def __init__(self, port, stack):
        context = stack.enter_context(zmq.Context())
        self._socket = stack.enter_context(context.socket(zmq.DEALER))
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(endpoint("127.0.0.1", port))

    def ask(self, said):
        """The first answer, in frames."""
        asked = {"name": "x", "renewal": 1, "session": 0, "told": 0, "release": "0.0", "cpu_s": 0.0}
        self._socket.send_multipart([wire.RENEW, wire.text({**asked, **said})])
        assert self._socket.poll(int(LONG_S * 1000))
        return self._socket.recv_multipart()


class OtherController:
    """A controller of another release: refuses, or, before version numbers, grants every lease."""

    def __init__(self, port, said):
        self.heard = []
        self._said = said
        self._over = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(endpoint("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while not self._over.is_set():
            if not self._socket.poll(20):
                continue
            identity, *frames = self._socket.recv_multipart()
            self.heard.append(frames[0])
            if frames[0] == wire.RENEW:
                self._answer(identity, json.loads(frames[1])["renewal"])

    def _answer(self, identity, renewal):
        said, answers = self._said, [[wire.REFUSED, wire.text(self._said)]]
        if said is EARLIER:
            granted = {
                "renewal": renewal,
                "session": 7,
                "incarnation": 1,
                "lease_s": 5,
                "orders": 0,
            }
            asked = {"session": 7}
            answers = [[wire.ANNOUNCE, wire.text(asked)], [wire.GRANTED, wire.text(granted)]]
        for frames in answers:
            self._socket.send_multipart([identity, *frames])

    def close(self):
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self._socket.close()
            self._context.term()


def other_controller(stack, port, said):
    one = OtherController(port, said)
    stack.callback(one.close)
    return one


def worker(stack, *ports):
    one = Worker("w", *ports)
    stack.callback(one.close)
    return one


@pytest.fixture
def ended(monkeypatch):
    """Errors that would end the worker's process."""
    errors = []
    monkeypatch.setattr(links_room, "give_up", errors.append)
    return errors


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            LATER,
            f"worker x, release 9.9, speaks version {OURS + 1} of the protocol of workers, and "
            f"this controller, release {__version__}, speaks version {OURS}: upgrade the "
            "controller to the worker's release",
        ),
        (
            EARLIER,
            "worker x, release 0.0, speaks version 0 of the protocol of workers, and this "
            f"controller, release {__version__}, speaks version {OURS}: upgrade the worker to the "
            "controller's release",
        ),
    ],
)
def test_a_worker_of_another_version_is_refused_and_that_is_told(
    stack, port, controller, caplog, monkeypatch, said, words
):
    monkeypatch.setattr(roster_room, "_REFUSED_S", 1.0)
    other = OtherWorker(port, stack)
    for _ in range(2):
        kind, answer = other.ask(said)
        assert (kind, json.loads(answer)) == (
            wire.REFUSED,
            {"protocol": OURS, "release": __version__},
        )
    wait_until(lambda: [(one.name, one.why) for one in controller.exchange.roster.refused()])
    (refused,) = controller.exchange.roster.refused()
    assert (refused.name, refused.why) == ("x", words)
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == [words]
    assert (controller.exchange.roster.seen(), controller.exchange.roster.known()) == ((), ())
    wait_until(lambda: not controller.exchange.roster.refused())


def test_one_that_was_upgraded_is_not_refused_any_more(stack, port, controller):
    other = OtherWorker(port, stack)
    other.ask(EARLIER)
    wait_until(controller.exchange.roster.refused)
    kind, _ = other.ask(wire.OWN._asdict())
    assert kind == wire.ANNOUNCE
    wait_until(lambda: not controller.exchange.roster.refused())
    wait_until(lambda: [one.name for one in controller.exchange.roster.seen()] == ["x"])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            LATER,
            f"release 9.9, speaks version {OURS + 1}: upgrade the worker to the controller's "
            "release",
        ),
        (
            EARLIER,
            "release unknown, speaks version 0: upgrade the controller to the worker's release",
        ),
    ],
)
def test_a_worker_ends_if_all_controllers_speak_another_version(stack, port, ended, said, words):
    a = other_controller(stack, port, said)
    w = worker(stack, port)
    w.connect()
    wait_until(lambda: ended)
    its = f"worker w, release {__version__}, speaks version {OURS} of the protocol of workers"
    assert str(ended[0]) == f"{its}, and the controller at 127.0.0.1:{port}, {words}"
    if said is EARLIER:
        wait_until(lambda: wire.BYE in a.heard)
    wait_until(lambda: a.heard.count(wire.RENEW) == 2)  # until another worker would come
    assert (len(ended), wire.TOLD in a.heard) == (1, False)


def test_a_worker_of_several_controllers_goes_on_by_those_of_its_version(
    stack, port, controller, ended, caplog
):
    """As in an upgrade, until the other workers have the controller's version."""
    upgraded = free_port()
    a = other_controller(stack, upgraded, LATER)
    w = worker(stack, upgraded, port)
    switch = w.connect()
    controller.connected()
    controller.send(b"on")
    wait_until(lambda: switch.sent == [b"on"])
    wait_until(lambda: a.heard.count(wire.RENEW) == 2)
    said = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert (len(said), "looking for another controller" in said[0], ended) == (1, True, [])
    a.close()
    b = Controller(upgraded, leads=lambda: 2)
    stack.callback(b.close)
    b.connected()
    b.send(b"of b")
    wait_until(lambda: switch.sent == [b"on", b"of b"])
    controller.close()
    other_controller(stack, port, LATER)
    wait_until(lambda: w.links._links[1].refused)
    b.send(b"still")
    wait_until(lambda: switch.sent[-1] == b"still")
    assert (ended, SWITCH in b.connections) == ([], True)


def test_a_workers_process_ends_with_one_error(tmp_path, port, stack):
    """`hydra worker`, as started by a service."""
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"]["workers"] = {"listen": f"127.0.0.1:{port}"}
    config = tmp_path / "fabric.yaml"
    config.write_text(yaml.safe_dump(document))
    other_controller(stack, port, LATER)
    command = [Path(sys.executable).with_name("hydra"), "worker", "--config", config]
    done = subprocess.run(
        [*command, "--name", "w", "--listen", f"127.0.0.1:{free_port()}"],
        capture_output=True,
        text=True,
        timeout=2 * LONG_S,
        check=False,
    )
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "speaks version" in line]
    assert lines == [
        wire.mismatch(
            "w", wire.OWN, f"the controller at 127.0.0.1:{port}", wire.Dialect(OURS + 1, "9.9")
        )
    ]
