"""Ports that return with another OpenFlow number: rules follow, for any policy on drift."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, contextmanager
from itertools import permutations

import pytest

from apps.process.configuration import load_configuration
from mininet_scenarios.testbed.capture import Capture

from .live import CONFIGS, live, wait_until
from .test_one_way import THERE, around

pytestmark = [pytest.mark.ovs, pytest.mark.takes(130)]

FRESH = 41
KINDS = {
    "demo": ("hyo-h11", "hye-h11", "hyh-h11"),
    "single-homed": ("hyo-h11", "hyh-h11"),
    "openflow-only": ("hyt-r1-p1", "hys-h11", "hyl-r1"),
    "one-way": ("hyt-r1-p1", "hys-h11", "hyl-r1"),
}
LEARNING = {
    "demo": ("hyo-", "hye-"),
    "single-homed": ("hyo-",),
    "openflow-only": ("hyl-",),
    "one-way": ("hyl-",),
}
"""Name prefixes of ports that lead to a learning switch."""


@pytest.fixture(scope="module", params=KINDS)
def shipped(request):
    return load_configuration(CONFIGS / f"{request.param}.yaml")


@pytest.fixture(scope="module")
def network(demo_testbed, tmp_path_factory):
    """No audit repairs rules, and no probe finds a fault."""
    policy = {"on_drift": "report", "audit_interval_s": 0, "probe_interval_s": 0}
    with live(demo_testbed, tmp_path_factory.mktemp("renumbered"), policy) as network:
        if network.fabric.one_way:
            network.client.reconfigure(around(THERE), racks=THERE, use_planes=["p1"])
        else:
            assert network.reserve("r1", "r2")["state"] == "active"
        yield network


def bridge_of(port):
    return subprocess.run(
        ["ovs-vsctl", "iface-to-br", port], check=True, capture_output=True, text=True
    ).stdout.strip()


def number_of(port):
    asked = ["ovs-vsctl", "get", "Interface", port, "ofport"]
    return int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)


def request(**numbers):
    command = ["ovs-vsctl"]
    for port, number in numbers.items():
        command += ["--", "set", "Interface", port, f"ofport_request={number}"]
    subprocess.run(command, check=True)


def differs(network):
    """Unintended rules, found by a read of all switches."""
    return network.get("/v1/drift")["items"]


def renumbered(network):
    found = network.get("/v1/conditions")["conditions"]
    return [one for one in found if one["kind"] == "port-renumbered"]


def told(network, port):
    """True if the history names the present number of the port."""
    lines = network.get("/v1/history")["happenings"]
    now = f"has OpenFlow number {number_of(port)}, was "
    return any(f"port {port} of switch" in one["text"] and now in one["text"] for one in lines)


def follows(network, *ports):
    """Rules name the present port numbers, and servers reach each other both ways."""
    wait_until(lambda: all(told(network, port) for port in ports), 60)
    wait_until(lambda: not renumbered(network), 60)
    assert not differs(network)
    assert network.reaches("h11", "h21")
    assert network.reaches("h31", "h11")


def test_each_kind_of_port(network):
    ports = KINDS[network.fabric.name]
    for number, port in enumerate(ports, start=FRESH):
        request(**{port: number})
        assert number_of(port) == number
        follows(network, port)


def test_two_that_swap_their_numbers(network):
    one, other = KINDS[network.fabric.name][:2]
    numbers = {one: number_of(other), other: number_of(one)}
    request(**numbers)
    assert {port: number_of(port) for port in numbers} == numbers
    follows(network, one, other)


def test_one_that_is_deleted_and_added(network):
    """As by a restarted network manager, which adds ports with their settings."""
    port = KINDS[network.fabric.name][0]
    bridge = bridge_of(port)
    get = ["ovs-vsctl", "get", "Port", port, "protected"]
    protected = subprocess.run(get, check=True, capture_output=True, text=True).stdout.strip()
    anew = ["del-port", bridge, port, "--", "add-port", bridge, port, f"protected={protected}"]
    number = ["set", "Interface", port, f"ofport_request={FRESH + 10}"]
    subprocess.run(["ovs-vsctl", *anew, "--", *number], check=True)
    assert number_of(port) == FRESH + 10
    follows(network, port)


def test_one_whose_switch_is_away_meanwhile(network):
    """The table of the returned vswitch names the old number."""
    port = KINDS[network.fabric.name][0]
    bridge = bridge_of(port)
    get = ["ovs-vsctl", "get-controller", bridge]
    controllers = subprocess.run(get, check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["ovs-vsctl", "del-controller", bridge], check=True)
    request(**{port: FRESH + 20})
    subprocess.run(["ovs-vsctl", "set-controller", bridge, *controllers], check=True)
    follows(network, port)


@contextmanager
def no_foreign_sources(servers, *ports):
    """During the block, no frame with a MAC address of these servers leaves by these ports."""
    sources = " or ".join(f"ether src {server.mac}" for server in servers)
    captures = [Capture(port, expression=sources, direction="out") for port in ports]
    with ExitStack() as stack:
        for capture in captures:
            stack.enter_context(capture)
        yield
    assert [len(capture.frames()) for capture in captures] == [0] * len(captures)


def send(network, source, destination):
    """Send pings, answered or not."""
    address = str(network.fabric.server_by_name[destination].addresses[0].ip)
    # timed: the frames leave at once, and the answers don't matter
    network.testbed.host(source).pexec(["ping", "-c", "3", "-l", "3", "-w", "1", address])


def test_any_that_change_places_while_no_controller_runs(network):
    """Frames from other racks never leave towards a learning switch, which would learn their
    senders there.
    """
    ports = KINDS[network.fabric.name]
    to_learning = [port for port in ports if port.startswith(LEARNING[network.fabric.name])]
    elsewhere = [server for server in network.fabric.servers if server.name[:2] != "h1"]
    numbers = {port: number_of(port) for port in ports}
    network.process.kill()
    try:
        for places in permutations(numbers.values()):
            request(**dict(zip(ports, places, strict=True)))
            assert tuple(map(number_of, ports)) == places
            with no_foreign_sources(elsewhere, *to_learning):
                for sender in ("h12", "h21", "h31"):
                    send(network, sender, "h11")
            assert network.reaches("h31", "h21")
            assert network.reaches("h41", "h22")
    finally:
        request(**numbers)
        network.process.start()
    follows(network)
