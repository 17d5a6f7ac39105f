"""A testbed restores the machine's state, however the testbed ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hydra.config import Loaded
from mininet_scenarios.testbed import Testbed, TestbedError, clean_up, ovs, sysctl
from mininet_scenarios.testbed.shell import member_environment, run
from mininet_scenarios.testbed.sweep import members
from tests.waiting import PATIENCE_S

from .conftest import DEMO_CONFIG, REPOSITORY

pytestmark = [pytest.mark.takes(90), pytest.mark.ovs, pytest.mark.usefixtures("machine")]

UP = [sys.executable, "-m", "mininet_scenarios.testbed", "up", str(DEMO_CONFIG)]
CLEAN = [sys.executable, "-m", "mininet_scenarios.testbed", "clean"]


def bridges() -> list[str]:
    return ovs.bridges() if ovs.is_running() else []


@dataclass(frozen=True)
class Machine:
    """The parts of the machine that a testbed changes."""

    interfaces: frozenset[str]
    open_vswitch: bool
    bridges: frozenset[str]
    members: tuple[int, ...]
    host_shells: str
    namespaces: int
    buffers: tuple[str, ...]
    state: bool

    @classmethod
    def now(cls) -> Machine:
        links = json.loads(run(["ip", "-j", "link", "show"]))
        shells = subprocess.run(
            ["pgrep", "-f", "mininet:h"], stdout=subprocess.PIPE, text=True, check=False
        )
        sizes = (f"/proc/sys/net/core/{name}" for name in ("rmem_default", "wmem_max"))
        return cls(
            interfaces=frozenset(link["ifname"] for link in links) - {"ovs-netdev"},
            open_vswitch=ovs.is_running(),
            bridges=frozenset(bridges()),
            members=tuple(members()),
            host_shells=shells.stdout,
            namespaces=len(json.loads(run(["lsns", "-J", "-t", "net"]))["namespaces"]),
            buffers=tuple(Path(size).read_text() for size in sizes),
            state=sysctl.STATE_DIR.exists(),
        )


@pytest.fixture
def before(machine: None) -> Machine:
    clean_up()  # remains of a killed session do not fail the test
    return Machine.now()


def some_interface() -> bool:
    return any(path.name.startswith("hy") for path in Path("/sys/class/net").iterdir())


def some_bridge() -> bool:
    return any(name.startswith("hy") for name in bridges())


def some_emulator() -> bool:
    return any(sysctl.STATE_DIR.glob("ocs-*.log"))


def wait_until(condition: Callable[[], bool], child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def start_building() -> subprocess.Popen[str]:
    """Build the demo's data plane in another process, in a process group as made by a shell."""
    return subprocess.Popen(
        UP,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_nothing_is_left_after_the_block(before: Machine, demo: Loaded) -> None:
    with Testbed(demo.fabric, demo.controller) as testbed:
        during = Machine.now()
        sleeper = testbed.host("h11").popen(["sleep", "1000"])
    sleeper.wait(PATIENCE_S)
    assert Machine.now() == before
    assert len(during.interfaces) > 60
    assert len(during.bridges) == 8 + 4
    assert during.namespaces == before.namespaces + len(demo.fabric.servers)


def test_nothing_is_left_after_an_exception(before: Machine, demo: Loaded) -> None:
    with pytest.raises(ZeroDivisionError), Testbed(demo.fabric, demo.controller):
        1 / 0  # noqa: B018  what a scenario may do
    assert Machine.now() == before


def test_nothing_is_left_after_a_build_that_failed(before: Machine, demo: Loaded) -> None:
    with (
        pytest.raises(TestbedError, match="Error detected while setting up"),
        Testbed(demo.fabric, demo.controller, datapath="no-such-type"),
    ):
        pytest.fail("Open vSwitch has no such datapath")
    assert Machine.now() == before


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        (some_interface, signal.SIGINT),
        (some_bridge, signal.SIGTERM),
        (some_emulator, signal.SIGTERM),
    ],
)
def test_nothing_is_left_after_an_interrupted_build(
    before: Machine, moment: Callable[[], bool], number: signal.Signals
) -> None:
    child = start_building()
    wait_until(moment, child)
    os.killpg(child.pid, number)
    child.communicate(timeout=60)
    assert child.returncode != 0 or number == signal.SIGINT
    assert Machine.now() == before


def test_a_second_signal_does_not_stop_the_clean_up(before: Machine) -> None:
    child = start_building()
    wait_until(some_emulator, child)
    for _ in range(20):
        os.killpg(child.pid, signal.SIGINT)
        time.sleep(0.02)  # timed: a person who presses again
    child.communicate(timeout=60)
    assert Machine.now() == before


@pytest.mark.parametrize("repair", ["clean", "build"])
def test_what_a_killed_run_left_is_found(before: Machine, demo: Loaded, repair: str) -> None:
    child = start_building()
    assert child.stdout is not None
    assert child.stdout.readline() == (
        f"demo is up. Start a controller with `hydra run --config {DEMO_CONFIG}`.\n"
    )
    child.kill()
    child.communicate(timeout=60)
    assert Machine.now() != before
    if repair == "clean":
        subprocess.run(CLEAN, cwd=REPOSITORY, check=True)
    else:
        with Testbed(demo.fabric, demo.controller) as testbed:
            assert len(testbed.queues()) == 40
    assert Machine.now() == before


def test_bridges_do_not_come_back_with_open_vswitch(before: Machine, demo: Loaded) -> None:
    """As after a power cut: every process is gone, and the database on disk still has the
    bridges.
    """
    if ovs.is_running():
        pytest.skip("Open vSwitch was running before: it is somebody else's, and not ours to kill")
    child = start_building()
    wait_until(some_emulator, child)
    child.kill()
    child.communicate(timeout=60)
    run(["pkill", "-KILL", "-x", "ovs-vswitchd|ovsdb-server"])
    with Testbed(demo.fabric, demo.controller) as testbed:
        assert len(testbed.queues()) == 40
    assert Machine.now() == before


def test_what_is_not_ours_stays(before: Machine, demo: Loaded) -> None:
    run(["ip", "link", "add", "notours0", "type", "bridge"])
    try:
        with Testbed(demo.fabric, demo.controller):
            pass
        assert "notours0" in Machine.now().interfaces
    finally:
        run(["ip", "link", "delete", "notours0"])
    assert Machine.now() == before


def test_members_in_a_pid_namespace_of_their_own_belong_to_somebody_else():
    """Networks as by tests/own_network.sh, whose testbeds run at the same time."""
    inner = "echo; exec sleep 600"
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", inner],
        env=member_environment(),
        stdout=subprocess.PIPE,
    ) as outer:
        outer.stdout.readline()
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        found = members()
        outer.kill()
    assert outer.pid in found
    assert len(children) == 1
    assert int(children[0]) not in found
