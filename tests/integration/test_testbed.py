"""The emulated data plane alone: no controller, manual rules, real packets."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.registry import optical_switch
from hydra.model import Circuit, VlanId
from mininet_scenarios.testbed import Testbed, TestbedError, ovs
from mininet_scenarios.testbed.ovs import default_datapath
from mininet_scenarios.testbed.shell import run
from tests.waiting import PATIENCE_S, wait_until

from . import static_rules as rules

pytestmark = [pytest.mark.ovs, pytest.mark.takes(20)]
rates = pytest.mark.quiet("measures the rates of links")

CIRCUIT_VLAN = VlanId(100)


def carrier(interface: str) -> bool:
    return Path(f"/sys/class/net/{interface}/carrier").read_text().strip() == "1"


@pytest.fixture
def electrical(demo_testbed: Testbed) -> Testbed:
    rules.install(demo_testbed.fabric)
    return demo_testbed


@pytest.fixture
def circuit(demo_testbed: Testbed) -> Iterator[Testbed]:
    """Racks r1 and r2 joined on plane p1; all unicast goes there."""
    fabric = demo_testbed.fabric
    plane = fabric.plane_by_name["p1"]
    a, b = (
        next(p for p in fabric.ports_of(fabric.rack_by_name[rack].id) if p.plane == plane.id)
        for rack in ("r1", "r2")
    )
    light = fabric.cross_connects(Circuit(plane.id, a.id, b.id))
    switch = optical_switch(plane, timeout_s=PATIENCE_S)
    switch.open()
    try:
        switch.change((), light)
        rules.tag((a, b), CIRCUIT_VLAN)
        rules.install(fabric, CIRCUIT_VLAN)
        yield demo_testbed
        rules.install(fabric)
        rules.tag((a, b), fabric.parking_vlan)
        switch.change(light, ())
    finally:
        switch.close()


def test_freed_memory_of_open_vswitch_goes_to_who_asks_next(demo_testbed: Testbed) -> None:
    """Otherwise frames go astray during a retag of a ToR (decision 27)."""
    if ovs.is_ours():
        environment = Path(f"/proc/{ovs.PID_FILE.read_text().strip()}/environ").read_text()
        (tunables,) = [v for v in environment.split("\0") if v.startswith("GLIBC_TUNABLES=")]
        assert ovs.MALLOC_TUNABLE in tunables


def test_hosts_have_the_addresses_of_the_file(demo_testbed: Testbed) -> None:
    for server in demo_testbed.fabric.servers:
        host = demo_testbed.host(server.name)
        ip = (
            "ip -color=never -o"  # hosts have a terminal, for which newer versions colour addresses
        )
        shown = host.cmd(f"{ip} address show dev {server.name}-eth0; {ip} link")
        assert str(server.mac) in shown
        assert all(address.with_prefixlen in shown for address in server.addresses)
        assert "tentative" not in shown
        assert (host.IP(), host.MAC()) == (str(server.addresses[0].ip), server.mac)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("destination", ["h12", "h21", "h42"])
def test_the_electrical_network_joins_all_servers(
    electrical: Testbed, destination: str, version: int
) -> None:
    assert rules.reaches(electrical, "h11", destination, version)


@rates
def test_the_electrical_rate_is_a_tenth(electrical: Testbed) -> None:
    report = rules.iperf3(electrical, "h11", "h21", "-t", "3")
    assert 8.5e6 < report["sum_received"]["bits_per_second"] < 10e6


@rates
@pytest.mark.parametrize("version", [4, 6])
def test_a_circuit_carries_its_rate_and_no_more(circuit: Testbed, version: int) -> None:
    """The lower bound only distinguishes the circuit from the electrical network: a busy machine
    forwards less. The demo measures the actual rate.
    """
    assert rules.reaches(circuit, "h11", "h21", version)
    report = rules.iperf3(circuit, "h11", "h21", "-t", "3", version=version)
    assert 40e6 < report["sum_received"]["bits_per_second"] < 100e6


@rates
def test_every_frame_lost_to_congestion_is_counted_by_a_queue(circuit: Testbed) -> None:
    assert rules.reaches(circuit, "h11", "h21")
    dropped_before, unread_before = queue_drops(circuit), unread(circuit, "h21")
    report = rules.iperf3(circuit, "h11", "h21", "-u", "-l", "1400", "-b", "130M", "-t", "2")
    grown = queue_drops(circuit) - dropped_before
    # A ToR floods until its cached flows follow the learned addresses: copies lose no frame.
    dropped = Counter({port: grown[port] for port in ("hyo-h11", "hyt-r1-p1", "hys-h21")})
    lost_by_the_machine = unread(circuit, "h21") - unread_before
    lost = report["sum"]["lost_packets"]
    assert dropped["hyo-h11"] > 0
    # the drops may include iperf3's own last frames, which no report counts
    assert lost <= dropped.total() + lost_by_the_machine <= lost + 5, (lost, grown)


def queue_drops(testbed: Testbed) -> Counter[str]:
    return Counter({name: queue.dropped_frames for name, queue in testbed.queues().items()})


def unread(testbed: Testbed, server: str) -> int:
    """Frames and datagrams dropped by a full socket of a switch or the server.

    (RFC 4113, udpInErrors: a busy machine delays both.)
    """
    process = testbed.host(server).popen(["cat", "/proc/net/snmp"], stdout=subprocess.PIPE)
    text, _ = process.communicate(timeout=PATIENCE_S)
    names, values = (
        line.split()[1:] for line in text.decode().splitlines() if line.startswith("Udp:")
    )
    datagrams = int(dict(zip(names, values, strict=True))["RcvbufErrors"])
    return datagrams + testbed.unread_frames()


@rates
def test_a_circuit_that_is_not_overloaded_loses_nothing(circuit: Testbed) -> None:
    """Both loads wait for answers: on a busy machine, no pause becomes a burst beyond the rate."""
    assert rules.reaches(circuit, "h11", "h21")
    before = queue_drops(circuit)
    adaptive = ["ping", "-q", "-A", "-l", "4", "-c", "2000", "-s", "1200"]
    ping = circuit.host("h11").popen(
        [*adaptive, rules.address(circuit.fabric, "h21")], stdout=subprocess.PIPE
    )
    load = rules.iperf3(circuit, "h11", "h21", "-w", "16K", "-t", "3")
    answered, _ = ping.communicate(timeout=60)
    assert load["sum_received"]["bits_per_second"] > 12e6  # the electrical network carries 10
    assert b"2000 packets transmitted, 2000 received" in answered
    assert not queue_drops(circuit) - before


def test_a_dark_tor_port_has_no_carrier(circuit: Testbed) -> None:
    assert carrier("hyt-r1-p1")
    assert carrier("hyt-r2-p1")
    assert not carrier("hyt-r1-p2")


def test_frames_carry_the_tag_of_their_circuit(circuit: Testbed) -> None:
    assert rules.reaches(circuit, "h11", "h21")  # neighbours are known from here on
    with circuit.frames_at("h11", "optical", expression="vlan and icmp") as optical:
        assert rules.reaches(circuit, "h11", "h21")
    tags = {frame.data[12:16] for frame in optical.frames()}
    assert tags == {b"\x81\x00" + CIRCUIT_VLAN.to_bytes(2, "big")}
    assert len(optical.frames()) == 4  # two requests out, two replies in


@pytest.mark.parametrize("uplink", ["electrical", "optical"])
def test_plain_forwarding_takes_the_uplink_that_it_is_told(circuit: Testbed, uplink: str) -> None:
    assert rules.reaches(circuit, "h11", "h21")  # neighbours are known from here on
    vlan = CIRCUIT_VLAN if uplink == "optical" else None
    for server in ("h11", "h21"):
        circuit.forward_plainly(server, uplink, vlan)
    with (
        circuit.frames_at("h11", "optical", expression="vlan and icmp") as optical,
        circuit.frames_at("h11", "electrical", expression="icmp") as electrical,
    ):
        assert rules.reaches(circuit, "h11", "h21")
    taken, other = (optical, electrical) if vlan else (electrical, optical)
    assert len(taken.frames()) == 4  # two requests out, two replies in
    assert other.frames() == ()


def test_forwarding_takes_processor_time_that_is_known_in_user_space(circuit: Testbed) -> None:
    before_s = circuit.forwarding_cpu_s()
    assert rules.reaches(circuit, "h11", "h21")
    after_s = circuit.forwarding_cpu_s()
    if default_datapath() == "system":
        assert (before_s, after_s) == (None, None)
    else:
        assert before_s < after_s < before_s + 60


def test_a_capture_is_read_after_it_has_ended(electrical: Testbed) -> None:
    with (
        electrical.frames_at("h11") as capture,
        pytest.raises(TestbedError, match="has not ended"),
    ):
        capture.frames()


def test_a_dead_optical_uplink_is_seen_and_mended(demo_testbed: Testbed) -> None:
    demo_testbed.kill_uplink("h11")
    wait_until(lambda: not carrier("hyo-h11"))
    demo_testbed.restore_uplink("h11")
    wait_until(lambda: carrier("hyo-h11"))


def test_a_server_can_be_cut_off_the_electrical_network(electrical: Testbed) -> None:
    electrical.cut_electrical("h31")
    assert not rules.reaches(electrical, "h11", "h31")
    electrical.restore_electrical("h31")
    wait_until(lambda: rules.reaches(electrical, "h11", "h31"))


def test_queues_survive_what_a_controller_does(demo_testbed: Testbed) -> None:
    # Open vSwitch deletes qdiscs that it takes for its own.
    before = demo_testbed.queues().keys()
    rules.tag(demo_testbed.fabric.ports[:4], CIRCUIT_VLAN)
    rules.tag(demo_testbed.fabric.ports[:4], demo_testbed.fabric.parking_vlan)
    assert demo_testbed.queues().keys() == before
    fabric = demo_testbed.fabric
    assert len(before) == 4 * len(fabric.servers) + len(fabric.ports)


def test_no_bridge_runs_spanning_tree_or_forwards_without_rules(demo_testbed: Testbed) -> None:
    bridges = run(["ovs-vsctl", "-f", "csv", "--columns=name,fail_mode,stp_enable", "list", "br"])
    ours = [line for line in bridges.splitlines() if line.startswith("hy")]
    fabric = demo_testbed.fabric
    assert len(ours) == len(fabric.servers) + len(fabric.racks)
    assert all(line.endswith(",secure,false") for line in ours)


def test_unknown_names_are_refused_with_those_there_are(demo_testbed: Testbed) -> None:
    with pytest.raises(TestbedError, match="no server 'h99' here; there are h11, h12"):
        demo_testbed.host("h99")
    with pytest.raises(TestbedError, match="no plane 'p9' here; there are p1, p2"):
        demo_testbed.ocs("p9")
    with pytest.raises(TestbedError, match="no place to watch 'wireless'"):
        demo_testbed.frames_at("h11", "wireless")
    with pytest.raises(TestbedError, match="no uplink 'wireless' here; there are optical"):
        demo_testbed.forward_plainly("h11", "wireless")


def test_a_second_testbed_of_another_process_would_wait(demo_testbed: Testbed) -> None:
    held = subprocess.run(
        ["flock", "--nonblock", "/run/lock/hydra-testbed.lock", "true"], check=False
    )
    assert held.returncode == 1
