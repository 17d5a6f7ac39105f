"""Devices of the conformance suite that are made on this machine, without an emulator."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from drivers.optical.manual import ManualOptions, ManualPanel
from hydra.model import Plane, PlaneId
from hydra.roles import TaskState
from mininet_scenarios.testbed import open_vswitch, testbed_lock
from tests.conformance.candidate import Bench
from tests.waiting import PATIENCE_S

PORTS = 16


@contextmanager
def panel() -> Iterator[Bench]:
    """A patch panel, with a person who does each task at once."""

    def work() -> None:
        while not home.wait(0.01):
            for task in panel.tasks():
                if task.state is TaskState.PENDING:
                    panel.settle(task.id, TaskState.DONE, "")

    with tempfile.TemporaryDirectory() as directory:
        options = {"state": f"{directory}/panel.db", "timeout_s": PATIENCE_S}
        plane = Plane(PlaneId(0), "p1", "manual", "panel: here", PORTS, 0.0, 100.0, None, options)
        panel = ManualPanel("person", PORTS, ManualOptions.model_validate(options))
        home = threading.Event()
        person = threading.Thread(target=work)
        person.start()
        try:
            yield Bench(plane)
        finally:
            home.set()
            person.join()


@contextmanager
def openflow_bridge() -> Iterator[Bench]:
    """A bridge of the machine's Open vSwitch, with unconnected ports."""
    bridge = "hyXoc"
    with testbed_lock(), open_vswitch():
        command = ["ovs-vsctl", "--timeout=120", "--if-exists", "del-br", bridge]
        command += ["--", "add-br", bridge, "--", "set", "bridge", bridge]
        command += ["datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13"]
        for port in range(1, PORTS + 1):
            command += ["--", "add-port", bridge, f"hyX{port}", "--", "set", "interface"]
            command += [f"hyX{port}", "type=internal", f"ofport_request={port}"]
        subprocess.run(command, check=True)
        try:
            address = f"unix:/var/run/openvswitch/{bridge}.mgmt"
            yield Bench(Plane(PlaneId(0), "p1", "openflow-xc", address, PORTS, 0.0, 100.0))
        finally:
            subprocess.run(["ovs-vsctl", "--timeout=120", "del-br", bridge], check=True)
