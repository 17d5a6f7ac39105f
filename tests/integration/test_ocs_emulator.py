"""The emulated OCS between real interfaces: light, darkness, and an account of every frame."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drivers.registry import optical_switch
from hydra.model import CrossConnect, Login, Plane, PlaneId
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.testbed import light_check
from mininet_scenarios.testbed.links import Cable, lay, limit_rates
from tests.waiting import PATIENCE_S, remains

from .live import wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(45)]

REPOSITORY = Path(__file__).parents[2]
PORTS = (1, 2, 3, 4)
SIZE = 8
SWITCHING_MS = 25
FEW = 75
"""Number of frames that fit into a queue even if a busy machine forwards all of them at once."""
FRAME = bytes.fromhex("0200000000020200000000018888") + bytes(486)
DRIVERS = ("calient-tl1", "glimmerglass-tl1", "polatis-restconf", "polatis-scpi", "polatis-tl1")
"""Faults without options."""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def circuit(a: int, b: int) -> frozenset[CrossConnect]:
    return frozenset({CrossConnect(a, SIZE + b), CrossConnect(b, SIZE + a)})


class Ocs:
    """An emulator process with its cables; ToR ends are ``hyTt1`` … ``hyTt4``."""

    def __init__(self, *options: str, driver: str = "polatis-scpi") -> None:
        self._options = options
        self._driver = driver
        self.start()

    def start(self) -> None:
        emulator = EMULATORS[self._driver]
        user = emulator.user
        login = None if user is None else Login(user, password_env="HYDRA_TEST_SECRET")
        command = [sys.executable, "-m", emulator.path, "--name", "p1"]
        command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ports", f"{SIZE}"]
        command += ["--backend", "kernel", "--switching-ms", f"{SWITCHING_MS}"]
        for port in PORTS:
            command += ["--port", f"{port}:{SIZE + port}:hyTo{port}:hyTt{port}"]
        command += self._options
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        words = self.process.stdout.readline().split()
        device = Plane(PlaneId(0), "p1", self._driver, words[2], SIZE, SWITCHING_MS, 100.0, login)
        self.switch = optical_switch(device, timeout_s=PATIENCE_S)
        host, _, port = words[4].rpartition(":")
        self.admin = AdminClient(host, int(port))

    def stop(self) -> int:
        self.switch.close()
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return status

    def port_counters(self, port: int):
        return next(p for p in self.admin.counters().ports if p.ingress == port)


@pytest.fixture(scope="module")
def cables(switches):
    made = [Cable(f"hyTt{port}", f"hyTo{port}", 100.0) for port in PORTS]
    try:
        lay(made)
        limit_rates(made)
        yield
    finally:
        for cable in made:
            run("ip", "link", "del", cable.a)


@contextmanager
def running(driver: str = "polatis-scpi") -> Iterator[Ocs]:
    """Leaves no light for the next user of the same cables."""
    plane = Ocs(driver=driver)
    try:
        yield plane
    finally:
        plane.admin.clear()
        plane.switch.change(plane.switch.cross_connects(), [])
        status = plane.stop()
    assert status == 0


@pytest.fixture
def plane(cables):
    with running() as plane:
        yield plane


def carrier(port: int) -> bool:
    return Path(f"/sys/class/net/hyTt{port}/carrier").read_text().strip() == "1"


def statistic(interface: str, name: str) -> int:
    return int(Path(f"/sys/class/net/{interface}/statistics/{name}").read_text())


def shaper_drops(port: int) -> int:
    shown = subprocess.run(
        ["tc", "-s", "qdisc", "show", "dev", f"hyTt{port}", "root"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return int(shown.split("(dropped ")[1].split(",")[0])


class Sender:
    """Sends raw frames out of a ToR end."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((f"hyTt{port}", 0))

    def send(self, frames: int, pause_s: float = 0.0) -> None:
        for _ in range(frames):
            self.sent += 1
            try:
                self._socket.send(FRAME)
            except OSError:
                continue  # dropped on the way, which the test counts
            finally:
                time.sleep(pause_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


def test_unconnected_ports_are_dark(plane):
    assert not any(carrier(port) for port in PORTS)
    assert plane.switch.cross_connects() == frozenset()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_circuit_gives_light_at_both_ends_and_nowhere_else(cables, monkeypatch, driver):
    monkeypatch.setenv("HYDRA_TEST_SECRET", EMULATORS[driver].password)
    with running(driver) as plane:
        plane.switch.change([], circuit(1, 2))
        assert [carrier(port) for port in PORTS] == [True, True, False, False]
        plane.switch.change(circuit(1, 2), circuit(1, 3))
        assert [carrier(port) for port in PORTS] == [True, False, True, False]
        plane.switch.change(circuit(1, 3), [])
        assert not any(carrier(port) for port in PORTS)


def test_frames_cross_both_ways_and_none_goes_astray(plane):
    plane.switch.change([], circuit(1, 2) | circuit(3, 4))
    before = {port: statistic(f"hyTt{port}", "rx_packets") for port in PORTS}
    with Sender(1) as one, Sender(2) as two:
        one.send(FEW, 0.0002)
        two.send(FEW - 10, 0.0002)
    expected = {1: FEW - 10, 2: FEW, 3: 0, 4: 0}

    def got() -> dict[int, int]:
        return {port: statistic(f"hyTt{port}", "rx_packets") - before[port] for port in PORTS}

    wait_until(lambda: sum(got().values()) >= sum(expected.values()))
    assert got() == expected
    counters = plane.admin.counters()
    assert (counters.dark_frames, counters.lost_inside) == (0, 0)


def test_moved_ports_are_dark_for_the_switching_time_and_others_are_not(plane):
    plane.switch.change([], circuit(1, 2) | circuit(3, 4))
    steady_before = statistic("hyTt4", "rx_packets")
    changes = {port: carrier_changes(port) for port in PORTS}
    with Sender(3) as sender:
        thread = threading.Thread(target=sender.send, args=(FEW, 0.001))
        thread.start()
        plane.switch.change(circuit(1, 2), [])
        dark_at = time.monotonic()
        plane.switch.change([], circuit(1, 2))
        assert time.monotonic() - dark_at >= SWITCHING_MS / 1000
        thread.join()
    wait_until(lambda: statistic("hyTt4", "rx_packets") - steady_before >= FEW)
    assert statistic("hyTt4", "rx_packets") - steady_before == FEW
    moved = {port: carrier_changes(port) - changes[port] for port in PORTS}
    assert moved == {1: 2, 2: 2, 3: 0, 4: 0}
    assert plane.admin.counters().dark_frames == 0


def carrier_changes(port: int) -> int:
    return int(Path(f"/sys/class/net/hyTt{port}/carrier_changes").read_text())


def test_frames_sent_into_the_dark_are_counted_exactly(plane):
    with Sender(1) as sender:
        sender.send(250)
        assert plane.port_counters(1).dark_frames == 250
        plane.switch.change([], circuit(1, 2))
        sender.send(100, 0.0002)
        time.sleep(0.1)  # timed: no frame may be counted meanwhile
        assert plane.port_counters(1).dark_frames == 250
        plane.switch.change(circuit(1, 2), [])
        sender.send(50)
        assert plane.port_counters(1).dark_frames == 300
    assert [plane.port_counters(port).dark_frames for port in (2, 3, 4)] == [0, 0, 0]


def test_frames_in_the_dark_are_counted_across_restarts(cables, tmp_path):
    """Includes frames that arrive while no process runs."""
    plane = Ocs("--counts", str(tmp_path / "p1.counts"))
    with Sender(1) as sender:
        sender.send(40)
        plane.switch.change([], circuit(1, 2))
        sender.send(10, 0.001)
        plane.switch.change(circuit(1, 2), [])
        sender.send(3)
        expected = 43
        assert plane.port_counters(1).dark_frames == expected
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            plane.switch.close()
            plane.process.send_signal(number)
            plane.process.wait(PATIENCE_S)
            plane.process.stdout.close()
            sender.send(20)
            plane.start()
            sender.send(5)
            expected += 25
            assert plane.port_counters(1).dark_frames == expected
    assert plane.admin.counters().lost_inside == 0
    plane.stop()


def test_under_load_every_frame_of_twenty_moves_is_accounted_for(plane):
    """Sent = received + dark + lost in flight + dropped by the ToR's own shaper, exactly."""
    received = {port: statistic(f"hyTt{port}", "rx_packets") for port in PORTS}
    shaped = shaper_drops(1)
    plane.switch.change([], circuit(1, 2))
    with Sender(1) as sender:
        stop = threading.Event()

        def flood() -> None:
            while not stop.is_set():
                sender.send(20)
                time.sleep(0.001)

        thread = threading.Thread(target=flood)
        thread.start()
        for _ in range(10):
            plane.switch.change(circuit(1, 2), circuit(1, 3))
            plane.switch.change(circuit(1, 3), circuit(1, 2))
        stop.set()
        thread.join()

        def arrived() -> int:
            return sum(statistic(f"hyTt{p}", "rx_packets") - received[p] for p in PORTS)

        def accounted_for() -> int:
            counters = plane.admin.counters()
            dropped = shaper_drops(1) - shaped
            return arrived() + counters.dark_frames + counters.lost_inside + dropped

        wait_until(lambda: accounted_for() >= sender.sent)
        assert remains(lambda: accounted_for() == sender.sent)
        assert arrived() > 100
        assert plane.admin.counters().dark_frames > 100


def test_the_self_test_finds_this_kernel_exact(machine):
    steps = light_check.run()
    assert [step.name for step in steps] == ["lit", "dark", "light goes and comes"]
    assert all(step.exact for step in steps), steps
    assert [step.lost_in_the_dark > 0 for step in steps] == [False, True, True]


def test_coming_up_makes_no_noise(plane):
    before = {port: statistic(f"hyTo{port}", "rx_packets") for port in PORTS}
    plane.switch.change([], circuit(1, 2) | circuit(3, 4))
    time.sleep(1.5)  # timed: router solicitations and multicast reports come within a second
    assert {port: statistic(f"hyTo{port}", "rx_packets") for port in PORTS} == before


def test_a_connection_without_light(plane):
    plane.admin.fault(FaultKind.NO_LIGHT, times=1)
    plane.switch.change([], circuit(1, 2))
    assert plane.switch.cross_connects() == circuit(1, 2)
    assert not carrier(1) and not carrier(2)


def test_a_closed_shutter_cuts_the_light_of_a_standing_circuit(plane):
    plane.switch.change([], circuit(1, 2) | circuit(3, 4))
    plane.admin.shutter(1, closed=True)
    assert not carrier(2) and carrier(1)  # the other direction has light
    assert carrier(3) and carrier(4)
    plane.admin.shutter(1, closed=False)
    assert carrier(1) and carrier(2)


def test_the_mirrors_outlive_the_process(plane):
    plane.switch.change([], circuit(1, 2))
    changes = carrier_changes(1)
    for number in (signal.SIGKILL, signal.SIGTERM):
        plane.switch.close()
        plane.process.send_signal(number)
        plane.process.wait(PATIENCE_S)
        plane.process.stdout.close()
        assert carrier(1) and carrier(2)
        plane.start()
        assert plane.switch.cross_connects() == circuit(1, 2)
    assert carrier_changes(1) == changes


def test_debounce(cables):
    plane = Ocs("--debounce-ms", "1500")
    began_s = time.monotonic()
    plane.switch.change([], circuit(1, 2))
    assert plane.switch.cross_connects() == circuit(1, 2)
    wait_until(lambda: carrier(1) and carrier(2))
    assert time.monotonic() - began_s >= 1.5
    plane.switch.change(circuit(1, 2), [])
    assert plane.stop() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "5:13:hyTnone:hyTt1"], "there is no interface hyTnone"),
        (["--port", "5:13:hyTo1:hyTnone"], "there is no interface hyTnone"),
        (["--port", "5:6:hyTo1:hyTt1"], "egress ports 9..16"),
        (["--port", "nonsense"], "is not INGRESS:EGRESS"),
    ],
)
def test_a_bad_command_line_is_explained(cables, options, message):
    command = [sys.executable, "-m", "mininet_scenarios.emulators.polatis", "--backend", "kernel"]
    command += ["--listen", "127.0.0.1:0", "--ports", f"{SIZE}", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
