"""Connections to the framework itself, on plain sockets and on TLS."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from apps.openflow import package as framework_package
from apps.openflow.limits import ECHO_S
from apps.openflow.package import OS_KEN, RYU, VARIABLE
from hydra.errors import HydraError
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.emulators.stranger import Stranger
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.takes(15)

APP = """
import threading
from pathlib import Path
from apps.openflow import framework, interface
from apps.openflow.fleet import Fleet
from tests.unit.core.fabrics import small_fabric

class Held(Fleet):
    def port_changed(self, *_port, deleted):
        while not Path("GO ON").exists():
            threading.Event().wait(0.01)

class Application:
    openflow_address = ("127.0.0.1", PORT)
    openflow_tls = TLS
    openflow_connections = 100

    def __init__(self, post):
        self.events = Held(small_fabric(racks=2, planes=1, servers=1), post)

    def start(self):
        pass

    def stop(self):
        pass

class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application(post)
"""
MAILBOX = """
import asyncio, threading
from apps.openflow.mailbox import Mailbox

loop, done, turns, woken = asyncio.new_event_loop(), [], [], []
mailbox = Mailbox(loop)
wake = loop.call_soon_threadsafe
loop.call_soon_threadsafe = lambda function: woken.append(function) or wake(function)

async def other():
    while len(done) < 1000:
        turns.append(len(done))
        await asyncio.sleep(0)

def post():
    for number in range(1000):
        mailbox.post(lambda number=number: done.append(number))

async def until(count):
    async with asyncio.timeout(20):
        while len(done) < count:
            await asyncio.sleep(0.001)

thread = threading.Thread(target=post)
thread.start()
thread.join()
mailbox.run()
loop.run_until_complete(asyncio.wait_for(other(), 20))
assert done == list(range(1000)), "in another order"
assert not woken, "nobody was asleep"
assert len(turns) > 10, "others do not have their turn"
loop.run_until_complete(asyncio.sleep(0))
def fail():
    done.append("failed")
    raise ValueError("of one")
mailbox.post(fail)
thread = threading.Thread(target=post)
thread.start()
thread.join()
assert len(woken) == 1, f"woken {len(woken)} times before it could look"
threads = [threading.Thread(target=post) for _ in range(3)]
for thread in threads:
    thread.start()
loop.run_until_complete(until(5001))
"""
BESIDE = """
import asyncio
from apps.openflow.package import HOST, App

beside, heard = App(), []
beside.get_handlers = lambda _event, _state: [heard.append]
beside.start()

async def tell():
    for number in range(1000):
        beside._send_event(number, None)
        if number % 300 == 0:
            await asyncio.sleep(0)
    while len(heard) < 1000:
        await asyncio.sleep(0.001)

HOST.wait_for(asyncio.wait_for(tell(), 100))
assert heard == list(range(1000)), heard
"""
DATAPATH = 77
ROOT = Path(__file__).parents[3]
"""The application above imports from `tests`."""


@pytest.fixture(scope="module")
def authorities(tmp_path_factory) -> tuple[Path, Path]:
    """Two folders, each with the files of :func:`make_authority`."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("renewed")
    for folder in folders:
        make_authority(folder)
    return folders


def make_authority(folder: Path) -> None:
    """Write an authority, a controller's certificate and a switch's certificate."""
    hydra = Path(sys.executable).with_name("hydra")
    for arguments in (
        ["create"],
        ["issue", "controller", "--host", "127.0.0.1"],
        ["issue", "switches", "--use", "client"],
    ):
        command = [hydra, "ca", *arguments, "--dir", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(params=["plain", "TLS"])
def trust(request, authorities, tmp_path) -> ssl.SSLContext | None:
    """A switch's side, with its own certificate; the controller's files are in tmp_path."""
    return None if request.param == "plain" else issued(authorities[0], tmp_path)


def issued(authority: Path, folder: Path) -> ssl.SSLContext:
    """Copy an authority's files into the folder; a context with the switch's certificate."""
    shutil.copytree(authority, folder, dirs_exist_ok=True)
    return switch_context(folder)


def switch_context(folder: Path) -> ssl.SSLContext:
    """A context with the switch's certificate of :func:`make_authority`."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "switches.pem", folder / "switches.key")
    return context


@pytest.fixture
def connect(trust, tmp_path, package):
    """Connects once more with the same datapath id to a running framework."""
    address = "127.0.0.1", free_port()
    files = [str(tmp_path / name) for name in ("controller.pem", "controller.key", "ca.pem")]
    tls = "None" if trust is None else f"interface.OpenFlowTls(*{files})"
    app = tmp_path / "app.py"
    text = APP.replace("PORT", str(address[1])).replace("TLS\n", f"{tls}\n")
    app.write_text(text.replace("GO ON", str(tmp_path / "go on")))
    log = tmp_path / "log"
    made = []

    def one_more(trust: ssl.SSLContext | None = trust) -> Stranger:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                made.append(Stranger(address, DATAPATH, trust=trust))
            except ConnectionRefusedError:
                assert time.monotonic() < end_s
                time.sleep(0.05)
            else:
                assert made[-1].is_switch.wait(PATIENCE_S)
                return made[-1]

    manager = Path(sys.executable).with_name("ryu-manager")
    with (
        log.open("w") as output,
        subprocess.Popen(
            [manager, app], stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT)}
        ) as process,
    ):
        try:
            yield one_more
        finally:
            for one in made:
                one.leave()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
    assert "Traceback" not in log.read_text()
    assert "Error in the datapath" not in log.read_text()


def test_modules_of_the_system_stay_its_own(package):
    """A green copy in another library's native thread ends in greenlets without an owner thread."""
    program = "import http.server as own; import apps.openflow.framework; import http; "
    program += "assert http.server is own"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_posts_wake_the_loop_once_and_leave_others_their_turn():
    subprocess.run([sys.executable, "-c", MAILBOX], check=True, cwd=ROOT)


def test_os_ken_runs_without_eventlet(package):
    program = "import sys, apps.openflow.framework; print('eventlet' in sys.modules)"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert found.stdout == f"{package == RYU}\n"


def test_messages_may_come_in_any_pieces(connect):
    switch = connect()
    echoes = [struct.pack("!BBHI", 4, 2, 8 + size, size) + bytes(size) for size in (0, 1, 900)]
    for octet in b"".join(echoes):
        switch.send(bytes([octet]))
    switch.send(b"".join(echoes * 100))
    wait_until(lambda: len(switch.echoed) >= 303)
    assert switch.echoed == [0, 1, 900] * 101


def test_echoes_are_answered_while_what_a_switch_said_is_being_handled(connect, tmp_path):
    switch = connect()
    switch.send(struct.pack("!BBHIB7xI60x", 4, 12, 80, 4, 2, 1))  # a port has changed
    switch.send(struct.pack("!BBHI", 4, 2, 8, 7))
    wait_until(lambda: switch.echoed)
    (tmp_path / "go on").touch()
    assert switch.echoed == [7]


def test_with_ryu_an_application_beside_ours_hears_more_events_than_its_queue_holds(monkeypatch):
    monkeypatch.setenv(VARIABLE, RYU)
    subprocess.run([sys.executable, "-c", BESIDE], check=True, cwd=ROOT)


def test_one_that_answers_stays_and_the_newcomer_is_closed(connect):
    switch = connect()
    newcomer = connect()
    assert newcomer.ended.wait(PATIENCE_S)
    assert not switch.ended.is_set()


def test_one_that_answers_no_more_is_closed_in_time_and_the_newcomer_stays(connect):
    switch = connect()
    switch.answers_echoes = False
    began_s = time.monotonic()
    newcomer = connect()
    assert switch.ended.wait(PATIENCE_S)
    assert time.monotonic() - began_s >= ECHO_S
    assert not newcomer.ended.is_set()
    third = connect()
    assert third.ended.wait(PATIENCE_S)
    assert not newcomer.ended.is_set()


@pytest.mark.parametrize("trust", ["TLS"], indirect=True)
def test_switches_that_connect_meet_the_certificates_and_the_authority_as_they_are_by_then(
    connect, trust, authorities, tmp_path
):
    switch = connect()
    renewed = issued(authorities[1], tmp_path / "renewed")
    (tmp_path / "controller.key").write_bytes((tmp_path / "renewed/controller.key").read_bytes())
    assert connect().ended.wait(PATIENCE_S), "a key that does not match is not used"
    for name in ("ca.pem", "controller.pem"):
        (tmp_path / "renewed" / name).replace(tmp_path / name)
    assert connect(renewed).ended.wait(PATIENCE_S)
    with pytest.raises(ssl.SSLError):
        connect(trust)
    assert not switch.ended.is_set()
    switch.send(struct.pack("!BBHI", 4, 2, 8, 7))
    wait_until(lambda: switch.echoed)
    assert switch.echoed == [7]


@pytest.mark.parametrize(
    "command", [["ryu-manager"], ["hydra", "run", "--config", ROOT / "configs" / "demo.yaml"]]
)
def test_another_name_is_refused(monkeypatch, command):
    monkeypatch.setenv(VARIABLE, "pox")
    name, *rest = command
    ended = subprocess.run(
        [Path(sys.executable).with_name(name), *rest], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    words = "set the variable to ryu or os-ken, or unset the variable for ryu"
    assert ended.stderr == f"HYDRA_OPENFLOW is 'pox': {words}\n"


def test_what_is_not_installed_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(framework_package, "find_spec", lambda _name: None)
    monkeypatch.setenv(VARIABLE, OS_KEN)
    with pytest.raises(HydraError, match=r"os-ken, which is not installed.*\[os-ken\]"):
        framework_package.chosen()


def test_ryu_is_the_default_and_os_ken_where_it_is_missing(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert framework_package.chosen() == RYU
    there = framework_package.find_spec
    monkeypatch.setattr(
        framework_package, "find_spec", lambda name: None if name == "ryu" else there(name)
    )
    assert framework_package.chosen() == OS_KEN
