"""The OpenFlow cross-connect driver on a real ovs-vswitchd, for cases beyond the conformance
suite.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from drivers.registry import optical_switch
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.model import CrossConnect, Plane, PlaneId
from hydra.roles import PortState
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S

pytestmark = pytest.mark.ovs

BRIDGE = "hyXtest"
PORTS = 4
ADDRESS = f"unix:/var/run/openvswitch/{BRIDGE}.mgmt"
CIRCUIT = [CrossConnect(1, 6), CrossConnect(2, 5)]


def ofctl(*arguments: str) -> str:
    command = ["ovs-ofctl", "-O", "OpenFlow13", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def bridge(switches):
    command = ["ovs-vsctl", "--timeout=120", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE]
    command += ["datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13"]
    for port in range(1, PORTS + 1):
        command += ["--", "add-port", BRIDGE, f"hyXt{port}", "--", "set", "interface"]
        command += [f"hyXt{port}", "type=internal", f"ofport_request={port + 10}"]
    subprocess.run(command, check=True)
    yield BRIDGE
    subprocess.run(["ovs-vsctl", "--timeout=120", "del-br", BRIDGE], check=True)


NAMES = {"ingress_ports": [f"hyXt{port}" for port in range(1, PORTS + 1)]}


def driver(address: str = ADDRESS, timeout_s: float = PATIENCE_S, **options: object):
    plane = Plane(
        PlaneId(0), "p1", "openflow-xc", address, PORTS, 0.0, 1.0, None, {**NAMES, **options}
    )
    return optical_switch(plane, timeout_s)


@pytest.fixture
def switch(bridge):
    opened = driver()
    yield opened
    opened.close()
    ofctl("del-flows", BRIDGE)


def rules() -> set[str]:
    shown = ofctl("--no-stats", "--no-names", "dump-flows", BRIDGE).splitlines()
    return {line.strip() for line in shown}


def test_each_direction_is_a_rule_of_its_own(switch):
    switch.change([], [*CIRCUIT, CrossConnect(3, 7)])
    cookie = "cookie=0x68796472612d7863, "
    assert rules() == {
        f"{cookie}priority=100,in_port=11 actions=output:12",
        f"{cookie}priority=100,in_port=12 actions=output:11",
        f"{cookie}priority=100,in_port=13 actions=IN_PORT",
    }
    switch.change([CrossConnect(1, 6)], [])
    assert switch.cross_connects() == {CrossConnect(2, 5), CrossConnect(3, 7)}
    assert switch.identity().vendor == "Nicira, Inc."


def test_rule_by_rule_for_switches_without_bundles(bridge, switch):
    plain = driver(bundles=False)
    plain.change([], CIRCUIT)
    plain.change(CIRCUIT, [CrossConnect(1, 7), CrossConnect(3, 5)])
    assert switch.cross_connects() == {CrossConnect(1, 7), CrossConnect(3, 5)}
    plain.close()


def test_separate_ports_for_both_sides(switch):
    sides = driver(ingress_ports=["hyXt1", "hyXt2", 13, 14], egress_ports=[14, 13, "hyXt2", 11])
    sides.change([], [CrossConnect(1, 5)])
    assert switch.cross_connects() == {CrossConnect(1, 8)}
    sides.close()


def test_somebody_elses_cross_connects_are_seen(switch):
    ofctl("add-flow", BRIDGE, "priority=5,in_port=13,actions=output:14")
    assert switch.cross_connects() == {CrossConnect(3, 8)}
    with pytest.raises(DeviceError, match="port 8 is connected to 3"):
        switch.change([], [CrossConnect(1, 8)])
    with pytest.raises(DeviceError, match="still connected: 3 to 8"):
        switch.change([CrossConnect(3, 8)], [])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("priority=0,actions=NORMAL", "rule of priority 0, no cross-connect"),
        ("in_port=11,ip,actions=output:12", ", no cross-connect"),
        ("in_port=11,actions=output:12,output:13", ", no cross-connect"),
    ],
)
def test_rules_that_would_carry_light_elsewhere_are_refused(switch, rule, words):
    ofctl("add-flow", BRIDGE, rule)
    with pytest.raises(DeviceError, match=words):
        switch.cross_connects()


def test_a_rule_that_leads_to_a_port_of_nobodys_takes_its_other_port_alone(switch):
    switch.change([], CIRCUIT)
    ofctl("add-flow", BRIDGE, "priority=200,in_port=11,actions=output:77")
    others = {cross for cross in CIRCUIT if cross.ingress != 1}
    assert switch.cross_connects() == others
    with pytest.raises(DeviceError, match="a rule joining OpenFlow ports 11 and 77: list both"):
        switch.change([], CIRCUIT)


def test_a_rule_that_drops_the_rest_is_no_concern(switch):
    ofctl("add-flow", BRIDGE, "priority=0,actions=drop")
    switch.change([], CIRCUIT)
    assert switch.cross_connects() == set(CIRCUIT)


def test_ports_that_the_bridge_does_not_have(bridge):
    stranger = driver(ingress_ports=["hyXt1", "hyXt2", "hyXt3", "nope"])
    with pytest.raises(DeviceError, match="no OpenFlow port nope"):
        stranger.open()
    stranger.close()


def test_a_port_that_is_switched_off(switch):
    ofctl("mod-port", BRIDGE, "hyXt1", "up")
    ofctl("mod-port", BRIDGE, "hyXt2", "down")
    states = switch.port_states([1, 2, 6])
    assert states == {1: PortState.ENABLED, 2: PortState.DISABLED, 6: PortState.DISABLED}


# --- a connection that fails -----------------------------------------------------------------


class Proxy:
    """A TCP relay to the bridge's local socket, which can drop the bridge's messages."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.deaf = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            switch = socket.socket(socket.AF_UNIX)
            switch.connect(ADDRESS.removeprefix("unix:"))
            for source, sink, lossy in ((client, switch, False), (switch, client, True)):
                arguments = (source, sink, lossy)
                threading.Thread(target=self._carry, args=arguments, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, lossy: bool) -> None:
        try:
            while data := source.recv(65536):
                if not (lossy and self.deaf.is_set()):
                    sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()


@contextmanager
def proxied():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}", Proxy(listener)
        listener.shutdown(socket.SHUT_RDWR)


def test_over_tcp_and_a_reply_that_is_lost(switch):
    with proxied() as (address, proxy):
        remote = driver(address, timeout_s=SHORT_S)
        remote.change([], [CIRCUIT[0]])
        original = remote._session.write

        def unheard(messages):
            proxy.deaf.set()
            original(messages)

        remote._session.write = unheard
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown, match="not confirmed: no answer within 2 s"):
            remote.change([], [CIRCUIT[1]])
        assert time.monotonic() - started < HANGS_S
        assert switch.cross_connects() == set(CIRCUIT)  # the change took effect all the same
        with pytest.raises(DeviceUnavailable):
            remote.cross_connects()
        proxy.deaf.clear()
        remote._session.write = original
        remote.change([], CIRCUIT)  # a repetition settles the outcome
        remote.close()


def test_a_bundle_is_all_or_nothing(switch):
    """A table without room for the rules refuses the whole change."""
    table = ["--", "--id=@table", "create", "Flow_Table", "flow_limit=1", "overflow_policy=refuse"]
    subprocess.run(
        [
            "ovs-vsctl",
            "--timeout=120",
            *table,
            "--",
            "set",
            "bridge",
            BRIDGE,
            "flow_tables:0=@table",
        ],
        check=True,
    )
    try:
        with pytest.raises(DeviceError, match="the switch refuses a change: OpenFlow error type"):
            switch.change([], CIRCUIT)
        assert rules() == set()
    finally:
        subprocess.run(["ovs-vsctl", "clear", "bridge", BRIDGE, "flow_tables"], check=True)
