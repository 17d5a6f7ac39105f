"""Servers that send with foreign addresses, or tag frames themselves, harm no other server.

The same frames do harm as soon as ``policy.source_check`` is off.
"""

from __future__ import annotations

import re
import signal
import struct
import sys
import time
from ipaddress import ip_address

import pytest
import yaml

from mininet_scenarios.testbed.layout import server_interface
from tests.waiting import PATIENCE_S

from .live import live, wait_until
from .pings import ping_command
from .test_drift import drift

pytestmark = [
    pytest.mark.takes(70),
    pytest.mark.ovs,
    # Vswitches of single-homed servers check as those of dual-homed servers do.
    pytest.mark.parametrize("shipped", ["demo", "openflow-only"], indirect=True, scope="module"),
]

EVERYBODY = "ff:ff:ff:ff:ff:ff"
LONG = 12_000
"""Frames of an attack, for a minute; the test ends the attack after its observation."""
BURSTS, BURST = 5, 8
"""Pings of a server whose address another server uses meanwhile."""
FORGED = 0x88B7
"""The ethertype of forged frames, unused otherwise (IEEE 802 OUI extended)."""
SENDER = """
import socket, sys, time
interface, count, gap_s, *frames = sys.argv[1:]
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.bind((interface, 0))
    for _ in range(int(count)):
        for frame in frames:
            sender.send(bytes.fromhex(frame))
        time.sleep(float(gap_s))
"""


def mac(address):
    return bytes.fromhex(address.replace(":", ""))


def frame(dst, src, ethertype, payload=b"", vlan=None):
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    head = mac(dst) + mac(src) + tag + struct.pack("!H", ethertype)
    return (head + payload).ljust(60, b"\0")


def arp_claim(src, address):
    """A gratuitous ARP request (RFC 5227, section 3): ``address`` is at ``src``."""
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac(src) + address.packed
    return frame(EVERYBODY, src, 0x0806, body + bytes(6) + address.packed)


def nd_claim(src, address):
    """An unsolicited neighbour advertisement that overrides (RFC 4861, section 7.2.6)."""
    ends = ip_address("fe80::bad").packed + ip_address("ff02::1").packed
    body = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + address.packed + b"\2\1" + mac(src)
    body = body[:2] + checksum(ends + struct.pack("!II", len(body), 58) + body) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), 58, 255)
    return frame("33:33:00:00:00:01", src, 0x86DD, head + ends + body)


def checksum(data):
    """Of the Internet (RFC 1071)."""
    total = sum(word for (word,) in struct.iter_unpack("!H", data))
    return struct.pack("!H", 0xFFFF - (total % 0xFFFF or 0xFFFF))


def datagram(src, dst, sport, dport):
    """An IPv4 packet with an empty UDP datagram, without a checksum."""
    addresses = ip_address(src).packed + ip_address(dst).packed
    head = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    head = head[:10] + checksum(head + addresses) + addresses
    return head + struct.pack("!HHHH", sport, dport, 8, 0)


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path, {"audit_interval_s": 0}) as network:
        yield network


def sends(network, name, *frames, times):
    """Have a server's kernel send these frames ``times`` times, 5 ms apart."""
    host, interface = network.testbed.host(name), server_interface(server(network, name))
    words = [interface, str(times), "0.005", *(one.hex() for one in frames)]
    return host.popen([sys.executable, "-c", SENDER, *words])


def server(network, name):
    return network.fabric.server_by_name[name]


def check_sources(network, tmp_path, value):
    path = tmp_path / "fabric.yaml"
    document = yaml.safe_load(path.read_text())
    document["policy"]["source_check"] = value
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    answer = network.api("POST", "/v1/reload", json={})
    assert [change["key"] for change in answer.json()["applied"]] == ["policy.source_check"]


def spoofed(network):
    """h31 takes the address of h41, which h11 pings: (pings lost, forged frames seen by h11)."""
    intruder = server(network, "h31")
    victim = server(network, "h41")
    forged = [frame(EVERYBODY, victim.mac, FORGED), arp_claim(victim.mac, victim.addresses[0].ip)]
    forged.append(frame(server(network, "h11").mac, victim.mac, FORGED))
    assert network.reaches("h11", "h41")
    with network.testbed.frames_at("h11", expression=f"ether proto {FORGED}") as seen:
        attack = sends(network, intruder.name, *forged, times=LONG)
        command = ping_command(str(victim.addresses[0].ip), BURST)
        lost = 0
        for _ in range(BURSTS):
            out, _, _ = network.testbed.host("h11").pexec(command)
            answered = re.search(rf"{BURST} packets transmitted, (\d+) received", out)
            assert answered is not None, out
            lost += BURST - int(answered[1])
            time.sleep(0.5)  # timed: a pause between bursts
            if lost:
                break
        assert attack.poll() is None, "the attack was over before the last ping"
        attack.kill()
        attack.wait()
    return lost, len(seen.frames())


def tagged(network, vlan):
    """h31 tags frames for h11 with their racks' circuit's VLAN: how many arrive there."""
    sender, target = server(network, "h31"), server(network, "h11")
    neighbour = server(network, "h32").addresses[0].ip
    packet = datagram(sender.addresses[0].ip, neighbour, 9, 9)
    forged = frame(target.mac, sender.mac, 0x0800, packet, vlan)
    with network.testbed.frames_at("h11", expression="udp dst port 9") as seen:
        assert sends(network, "h31", forged, times=50).wait(PATIENCE_S) == 0
        assert network.reaches("h31", "h11")
    return len(seen.frames())


def named(network):
    """Whether a look at the rules has h31 named as one that sends what is not its own."""
    assert drift(network) == []
    conditions = network.get("/v1/conditions")["conditions"]
    subjects = [one["subjects"] for one in conditions if one["kind"] == "foreign-frames"]
    return subjects == [["h31"]]


def test_a_server_with_anothers_address_cuts_nobody_off(network, tmp_path):
    assert drift(network) == []
    assert spoofed(network) == (0, 0)
    wait_until(lambda: named(network))
    check_sources(network, tmp_path, "off")
    lost, seen = spoofed(network)
    assert lost > 0
    assert seen > 0
    check_sources(network, tmp_path, "on")
    # Switches that learn have to hear it where it is first.
    wait_until(lambda: network.reaches("h41", "h11"))
    assert spoofed(network) == (0, 0)
    assert drift(network) == []


def taken_over(network, expected=frozenset()):
    """h31 claims the addresses of h41 from its own MAC address: those that h11 believes it of.

    It goes on until h11 believes it of all that are ``expected``.
    """
    intruder, victim = server(network, "h31"), server(network, "h41")
    addresses = [interface.ip for interface in victim.addresses]
    claims = [
        (arp_claim if address.version == 4 else nd_claim)(intruder.mac, address)
        for address in addresses
    ]
    assert network.reaches("h11", "h41")
    attack, taken = sends(network, "h31", *claims, times=LONG if expected else 300), set()
    while attack.poll() is None and not (expected and taken >= expected):
        for address in addresses:
            shown, _, _ = network.testbed.host("h11").pexec(["ip", "neigh", "show", str(address)])
            if f"lladdr {intruder.mac} " in shown:
                taken.add(address)
        time.sleep(0.05)
    attack.kill()
    assert attack.wait() in (0, -signal.SIGKILL)
    forget_neighbours(network)
    return taken


def forget_neighbours(network):
    """Have all servers resolve each other anew: a claim that was believed is in many caches."""
    for one in network.fabric.servers:
        for family in ("-4", "-6"):
            network.testbed.host(one.name).pexec(["ip", family, "neigh", "flush", "all"])


def test_by_address_a_server_claims_its_own_alone(network, tmp_path):
    check_sources(network, tmp_path, "addresses")
    assert taken_over(network) == set()
    assert network.everyone_reaches_everyone()
    check_sources(network, tmp_path, "on")
    addresses = {one.ip for one in server(network, "h41").addresses}
    assert taken_over(network, addresses) == addresses


def test_a_server_that_tags_gets_onto_no_circuit(network, tmp_path):
    vlan = network.reserve("r1", "r3")["path"]["vlan"]
    assert drift(network) == []
    assert tagged(network, vlan) == 0
    wait_until(lambda: named(network))
    check_sources(network, tmp_path, "off")
    # OpenFlow ToRs never take tags from servers.
    assert (tagged(network, vlan) > 0) == (network.fabric.name != "openflow-only")


@pytest.mark.parametrize("value", ["on", "addresses"])
def test_what_servers_have_to_send_passes(network, tmp_path, value):
    """Address resolution, broadcast as a DHCP client's, multicast, circuit and electrical."""
    if value != "on":
        check_sources(network, tmp_path, value)
    forget_neighbours(network)
    assert network.everyone_reaches_everyone()
    network.reserve("r1", "r3")
    assert network.reaches("h11", "h31")
    client = server(network, "h11")
    discover = datagram("0.0.0.0", "255.255.255.255", 68, 67)
    report = datagram(client.addresses[0].ip, "224.0.0.251", 5353, 67)
    frames = [
        frame(EVERYBODY, client.mac, 0x0800, discover),
        frame("01:00:5e:00:00:fb", client.mac, 0x0800, report),
    ]
    with (
        network.testbed.frames_at("h12", expression="udp dst port 67") as here,
        network.testbed.frames_at("h41", expression="udp dst port 67") as there,
    ):
        assert sends(network, "h11", *frames, times=10).wait(PATIENCE_S) == 0
        assert network.reaches("h11", "h41")
    assert (len(here.frames()), len(there.frames())) == (20, 20)
