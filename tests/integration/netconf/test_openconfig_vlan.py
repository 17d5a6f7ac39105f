"""The OpenConfig VLAN driver against netconfd on modules of the same nodes."""

from __future__ import annotations

import pytest

from drivers.registry import tor_switch
from hydra.errors import DeviceError, ProtocolError
from hydra.model import Rack, RackId, Tor, VlanId
from hydra.roles import CounterReader, PortCounters, PortVlans
from tests.integration.netconf.conftest import LAG, PORTS
from tests.waiting import PATIENCE_S

INTERFACES = "http://openconfig.net/yang/interfaces"
ETHERNET = "http://openconfig.net/yang/interfaces/ethernet"
AGGREGATE = "http://openconfig.net/yang/interfaces/aggregate"
VLAN = "http://openconfig.net/yang/vlan"


@pytest.fixture(scope="module")
def tor(server):
    options = {"host_key": server.host_key}
    tor = Tor("openconfig-vlan", server.address, "", None, VlanId(10), server.login, options)
    driver = tor_switch(Rack(RackId(0), "r1", (), tor, ()), timeout_s=PATIENCE_S)
    yield driver
    driver.close()


def trunk(*vlans: int, native: int | None = None) -> PortVlans:
    tagged = frozenset(VlanId(vlan) for vlan in vlans)
    return PortVlans(tagged, None if native is None else VlanId(native))


def configured(stranger, port: str) -> dict[str, list[str]]:
    """The port's VLAN leaves, as read by another client."""
    path = (
        f'<interfaces xmlns="{INTERFACES}"><interface><name>{port}</name></interface></interfaces>'
    )
    data = stranger.session.get_config("running", filter=("subtree", path)).data_ele
    found: dict[str, list[str]] = {}
    for leaf in data.iter(f"{{{VLAN}}}*"):
        if leaf.text and leaf.text.strip():
            found.setdefault(leaf.tag.rpartition("}")[2], []).append(leaf.text)
    return found


def test_64_ports_in_one_edit(tor):
    for first in (100, 1100):
        wanted = {
            port: trunk(*range(first + number, first + number + 200, 3), 4000, native=10)
            for number, port in enumerate(PORTS)
        }
        tor.set_vlans(wanted)
        assert tor.vlans(PORTS) == wanted


def test_what_is_written(tor, stranger):
    port = PORTS[0]
    tor.set_vlans({port: trunk(300, 301, 302, 310, 4000, native=7)})
    assert configured(stranger, port) == {
        "interface-mode": ["TRUNK"],
        "native-vlan": ["7"],
        "trunk-vlans": ["300..302", "310", "4000", "7"],
    }
    tor.set_vlans({port: trunk(12)})  # replaced, not united
    assert configured(stranger, port) == {"interface-mode": ["TRUNK"], "trunk-vlans": ["12"]}


def test_the_vlans_of_a_lag_are_those_of_its_aggregation(tor, stranger, server):
    wanted = {LAG: trunk(40, 41, native=7), PORTS[1]: trunk(40)}
    tor.set_vlans(wanted)
    assert tor.vlans([*wanted]) == wanted
    assert configured(stranger, LAG)["trunk-vlans"] == ["40..41", "7"]
    path = f'<interfaces xmlns="{INTERFACES}"/>'
    data = stranger.session.get_config("running", filter=("subtree", path)).data_ele
    for port, place in ((LAG, AGGREGATE), (PORTS[1], ETHERNET)):
        (entry,) = (one for one in data.iter(f"{{{INTERFACES}}}interface") if one[0].text == port)
        (switched,) = entry.iter(f"{{{VLAN}}}switched-vlan")
        assert switched.getparent().tag.startswith(f"{{{place}}}")
    assert tor.link_up([LAG]) == {LAG: True}


def test_the_same_again_writes_nothing(tor, stranger):
    wanted = {port: trunk(700) for port in PORTS[:4]}
    tor.set_vlans(wanted)
    for datastore in ("running", "candidate"):
        stranger.session.lock(datastore)  # no edit gets past this
    tor.set_vlans(wanted)
    for datastore in ("running", "candidate"):
        stranger.session.unlock(datastore)


def test_a_native_vlan_that_is_not_allowed_becomes_so(tor, stranger, server):
    port = PORTS[0]
    tor.set_vlans({port: trunk(12)})
    server.write(
        f'<interfaces xmlns="{INTERFACES}"><interface><name>{port}</name>'
        f'<ethernet xmlns="{ETHERNET}"><switched-vlan xmlns="{VLAN}"><config>'
        "<native-vlan>10</native-vlan></config></switched-vlan></ethernet></interface></interfaces>"
    )
    tor.set_vlans({port: trunk(12, native=10)})
    assert configured(stranger, port)["trunk-vlans"] == ["10", "12"]


@pytest.mark.parametrize(
    ("leaves", "membership"),
    [
        ("<interface-mode>ACCESS</interface-mode><access-vlan>9</access-vlan>", trunk(native=9)),
        ("<interface-mode>TRUNK</interface-mode>", trunk(*range(1, 4095))),
        (
            "<interface-mode>TRUNK</interface-mode><native-vlan>5</native-vlan>",
            trunk(*(vlan for vlan in range(1, 4095) if vlan != 5), native=5),
        ),
        (  # in the form of an NX-OS switch
            "<interface-mode>TRUNK</interface-mode><native-vlan>10</native-vlan>"
            "<trunk-vlans>1..10</trunk-vlans>",
            trunk(*range(1, 10), native=10),
        ),
        (  # EOS, NX-OS and IOS-XE drop untagged frames here
            "<interface-mode>TRUNK</interface-mode><native-vlan>10</native-vlan>"
            "<trunk-vlans>300</trunk-vlans>",
            trunk(300),
        ),
        (
            "<interface-mode>TRUNK</interface-mode><trunk-vlans>5..7</trunk-vlans>"
            "<trunk-vlans>6</trunk-vlans>",
            trunk(5, 6, 7),
        ),
    ],
)
def test_what_others_wrote(tor, server, leaves, membership):
    tor.set_vlans({PORTS[5]: trunk(1)})
    server.write(_config(PORTS[5], leaves))
    assert tor.vlans([PORTS[5]]) == {PORTS[5]: membership}


def _config(port: str, leaves: str) -> str:
    return (
        f'<interfaces xmlns="{INTERFACES}"><interface><name>{port}</name>'
        f'<ethernet xmlns="{ETHERNET}"><switched-vlan xmlns="{VLAN}">'
        f'<config xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0" nc:operation="replace">'
        f"{leaves}</config></switched-vlan></ethernet></interface></interfaces>"
    )


def test_a_range_that_is_none_is_a_protocol_error(tor, server):
    server.write(
        _config(
            PORTS[5],
            "<interface-mode>TRUNK</interface-mode><trunk-vlans>7..5</trunk-vlans>",
        )
    )
    with pytest.raises(ProtocolError, match=r"Ethernet6 has '7\.\.5' where VLANs are expected"):
        tor.vlans([PORTS[5]])
    server.write(_config(PORTS[5], ""))


@pytest.mark.parametrize("vlan", [0, 4095, 5000])
def test_a_vlan_out_of_range_is_refused_and_nothing_is_written(tor, vlan):
    before = tor.vlans(PORTS[:2])
    with pytest.raises(DeviceError, match=rf"port {PORTS[1]}: VLAN {vlan} is outside 1\.\.4094"):
        tor.set_vlans({PORTS[0]: trunk(100), PORTS[1]: trunk(100, vlan)})
    assert tor.vlans(PORTS[:2]) == before


def test_interfaces_that_do_not_exist_are_named(tor):
    before = tor.vlans(PORTS[:1])
    with pytest.raises(DeviceError, match="r1: the switch has no interface Nope1, Nope2"):
        tor.set_vlans({PORTS[0]: trunk(99), "Nope2": trunk(99), "Nope1": trunk(99)})
    assert tor.vlans(PORTS[:1]) == before
    assert tor.vlans([]) == {}


def test_links_and_counters(tor, server):
    assert isinstance(tor, CounterReader)
    counters = (
        "<in-octets>6400</in-octets><in-unicast-pkts>90</in-unicast-pkts>"
        "<in-broadcast-pkts>8</in-broadcast-pkts><in-multicast-pkts>2</in-multicast-pkts>"
        "<in-discards>1</in-discards><out-octets>128</out-octets><out-pkts>2</out-pkts>"
    )
    server.write(
        f'<interfaces xmlns="{INTERFACES}"><interface><name>{PORTS[8]}</name><state>'
        f"<oper-status>LOWER_LAYER_DOWN</oper-status><counters>{counters}</counters></state>"
        f"</interface></interfaces>"
    )
    assert tor.link_up(PORTS[7:9]) == {PORTS[7]: True, PORTS[8]: False}
    assert tor.counters([PORTS[8]]) == {PORTS[8]: PortCounters(100, 2, 6400, 128, 1, 0)}
    with pytest.raises(DeviceError, match=f"has no counters of port {PORTS[7]}"):
        tor.counters([PORTS[7]])


def test_the_registry_builds_it_from_a_rack(server):
    tor = Tor(
        "openconfig-vlan", server.address, "", None, VlanId(10), server.login,
        {"host_key": server.host_key},
    )  # fmt: skip
    driver = tor_switch(Rack(RackId(0), "r7", (), tor, ()), timeout_s=PATIENCE_S)
    assert driver.name == "r7"
    assert driver.link_up(PORTS[:1]) == {PORTS[0]: True}
    driver.close()
