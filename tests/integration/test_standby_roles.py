"""Roles of leading, standby and ended controllers, as reported by Open vSwitch.

Two processes hold a bridge's connections, by Ryu, or by os-ken over TLS. Neither process refrains
from writing while it does not lead: only the switch refuses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from apps.openflow.package import OS_KEN, RYU, VARIABLE
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.testbed import ovs
from tests.unit.core.fabrics import small_fabric

from .bare_switch import bare_switch
from .certificates import authority, use_certificates, vsctl
from .live import wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(30)]
BRIDGE = "hyT0"
V1 = small_fabric(racks=2, planes=1, servers=1).servers[0].vswitch.datapath_id
REFUSED = "another controller has taken this switch over: stop one of the two"
APP = """
import os
import sys
import threading
from apps.openflow import framework
from apps.openflow.fleet import Fleet
from apps.openflow.interface import OpenFlowTls
from drivers.codecs.openflow.rules import encode_changes
from drivers.codecs.openflow.messages import encode_barrier
from hydra.forwarding.rules import Install, divert_rule
from hydra.model import RackId
from tests.unit.core.fabrics import small_fabric

FABRIC = small_fabric(racks=2, planes=1, servers=1)
V1 = FABRIC.servers[0].vswitch.datapath_id
CHANGES = {V1: (Install(divert_rule(RackId(1), 1)),)}
over = True


class Unfenced(Fleet):
    def _deliver(self, messages):
        for connection, message in messages:
            connection.send(message)


class Application:
    openflow_address = ("127.0.0.1", int(os.environ["PORT"]))
    openflow_tls = None
    openflow_connections = 10

    def __init__(self, post):
        if "LAB" in os.environ:
            lab = os.environ["LAB"]
            self.openflow_tls = OpenFlowTls(
                f"{lab}/controller.pem", f"{lab}/controller.key", f"{lab}/ca.pem"
            )
        self.fleet = self.events = Unfenced(FABRIC, post, lambda: over)

    def start(self):
        threading.Thread(target=self._obey, daemon=True).start()
        print("started", flush=True)

    def stop(self):
        pass

    def _obey(self):
        global over
        for line in sys.stdin:
            what, _, number = line.strip().partition(" ")
            self.fleet.await_connected([V1], 10)
            if what == "lead":
                over = False
                print(self.fleet.become_master({V1: int(number)}, 10)[V1], flush=True)
            elif what == "end":
                over = True
                self.fleet.stand_aside()
                print("ended", flush=True)
            elif what == "write":
                print(self.fleet.apply(CHANGES, 10)[V1], flush=True)


class App(framework.OpenFlowApp):
    def compose(self, post):
        return Application(post)
"""


class Controller:
    """A process with the bridge's connections, controlled by the test."""

    def __init__(self, app: Path, scheme: str, environment: dict[str, str], stack: ExitStack):
        port = free_port()
        self.target = f"{scheme}:127.0.0.1:{port}"
        self._process = stack.enter_context(
            subprocess.Popen(
                [Path(sys.executable).with_name("ryu-manager"), app],
                env={**environment, "PORT": str(port)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.kill)
        assert self._said() == "started"

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def does(self, what: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._said()

    @property
    def role(self) -> str:
        """Roles reported by Open vSwitch, every 5 s: ``other`` is an equal."""
        shown = ["--bare", "--columns=role", "find", "controller", f'target="{self.target}"']
        return vsctl(*shown).strip()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("ca") / "lab")


@pytest.fixture(params=[("tcp", RYU), ("ssl", OS_KEN)], ids="-".join)
def pair(request, switches, lab, tmp_path, monkeypatch):
    """Two controllers without a switch yet; the bridge is the fabric's first vswitch."""
    scheme, package = request.param
    monkeypatch.setenv(VARIABLE, package)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    app = tmp_path / "app.py"
    app.write_text(APP)
    with ExitStack() as stack:
        if scheme == "ssl":
            environment["LAB"] = str(lab)
            use_certificates(lab)
            stack.callback(vsctl, "del-ssl")
        stack.enter_context(bare_switch(BRIDGE))
        vsctl("set", "bridge", BRIDGE, f"other-config:datapath-id={V1:016x}")
        yield [Controller(app, scheme, environment, stack) for _ in range(2)]


def test_standbys_are_slaves_on_every_connection(pair):
    """The leader is the master. A former leader becomes a slave when it ends, or when another
    leader follows, and its writes on a new connection are refused.
    """
    a, b = pair

    def roles():
        return a.role, b.role

    def connect(*some):
        ovs.set_controllers([BRIDGE], [one.target for one in some])

    connect(a)
    wait_until(lambda: a.does("write") == REFUSED)  # by a switch that never had a master
    connect(a, b)
    assert a.does("lead 7") == "None"
    wait_until(lambda: roles() == ("master", "slave"))
    assert (a.does("write"), b.does("write")) == ("None", REFUSED)
    assert a.does("end") == "ended"
    wait_until(lambda: a.does("write") == REFUSED)
    assert b.does("lead 9") == "None"
    connect(b)
    connect(b, a)
    assert b.does("lead 9") == "None"
    wait_until(lambda: roles() == ("slave", "master"))
    assert a.does("write") == REFUSED
    assert a.does("lead 7") == REFUSED
