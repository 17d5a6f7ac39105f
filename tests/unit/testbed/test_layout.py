"""The parts that the testbed creates for a fabric file."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.process.configuration import load_configuration
from hydra.model import Fabric
from mininet_scenarios.testbed.layout import Layout, access_interface, layout

CONFIGS = Path(__file__).parents[3] / "configs"
CONTROLLER = "tcp:127.0.0.1:6653"


@pytest.fixture(scope="module")
def demo(fabric: Fabric) -> Layout:
    return layout(fabric, CONTROLLER, fdb_age_s=12.4)


def at_mirrors(fabric: Fabric) -> set[str]:
    return {f"hyc-{fabric.planes[port.plane].name}-{port.ingress}" for port in fabric.ports}


def test_every_port_of_a_bridge_is_the_end_of_one_cable(fabric: Fabric, demo: Layout) -> None:
    ports = [port.name for bridge in demo.bridges for port in bridge.ports]
    ends = [name for cable in demo.fabric_cables for name in (cable.a, cable.b)]
    ends += [server.vswitch.host_port for server in fabric.servers]
    assert len(ports) == len(set(ports))
    assert len(ends) == len(set(ends))
    assert set(ports) <= set(ends)
    in_no_switch = {f"hyx-{server.name}" for server in fabric.servers} | at_mirrors(fabric)
    assert set(ends) - set(ports) == in_no_switch


def test_switches_know_the_controller_and_mirrors_are_none(demo: Layout) -> None:
    controllers = {bridge.name: bridge.controller for bridge in demo.bridges}
    assert controllers["hyv-h11"] == controllers["hytor-r1"] == CONTROLLER
    assert len(controllers) == 8 + 4


def test_a_tor_starts_with_its_circuits_parked(fabric: Fabric, demo: Layout) -> None:
    tor = next(bridge for bridge in demo.bridges if bridge.name == "hytor-r3")
    by_name = {port.name: port for port in tor.ports}
    assert set(by_name["hyt-r3-p2"].trunks) == {fabric.parking_vlan}
    assert by_name["hyt-r3-p2"].native is None
    assert set(by_name["hys-h31"].trunks) == set(range(100, 200))
    assert by_name["hys-h31"].native == 10
    assert tor.other_config["mac-aging-time"] == "12"


@pytest.mark.parametrize(
    ("name", "bridge", "protected"),
    [
        ("demo", "hyv-h11", {"hyo-h11", "hye-h11"}),
        ("demo", "hytor-r1", set()),
        ("single-homed", "hyv-h11", set()),
        ("openflow-only", "hytor-r1", {"hyl-r1", "hyt-r1-p1", "hyt-r1-p2"}),
    ],
)
def test_uplinks_are_protected_from_each_other(name: str, bridge: str, protected: set[str]) -> None:
    fabric = load_configuration(CONFIGS / f"{name}.yaml").fabric
    found = {one.name: one for one in layout(fabric, CONTROLLER, fdb_age_s=12.4).bridges}[bridge]
    assert {port.name for port in found.ports if port.protected} == protected


def test_each_transmitter_has_the_rate_of_the_file(demo: Layout) -> None:
    rates = {c.a: c.a_rate_mbps for c in demo.fabric_cables}
    rates |= {c.b: c.b_rate_mbps for c in demo.fabric_cables}
    assert rates["hyo-h11"] == rates["hys-h11"] == 100
    assert rates["hye-h11"] == rates["hyx-h11"] == 10
    assert rates["hyt-r1-p1"] == 100
    assert rates["hyc-p1-1"] is None  # mirrors have no queue


def test_single_homed_racks_share_a_cable_to_the_electrical_network() -> None:
    fabric = load_configuration(CONFIGS / "single-homed.yaml").fabric
    single = layout(fabric, CONTROLLER, fdb_age_s=300)
    bridges = {bridge.name: bridge for bridge in single.bridges}
    assert [port.name for port in bridges["hyv-h11"].ports] == ["hyh-h11", "hyo-h11"]
    up = next(port for port in bridges["hytor-r1"].ports if port.name == "hyl-r1")
    assert (set(up.trunks), up.native) == ({10}, None)
    cables = {cable.a: cable for cable in single.fabric_cables}
    assert (cables["hyl-r1"].b, cables["hyl-r1"].a_rate_mbps) == ("hyx-r1", 10)
    assert cables["hyo-h11"].a_rate_mbps == 100
    ports = [port.name for bridge in single.bridges for port in bridge.ports]
    ends = [name for cable in single.fabric_cables for name in (cable.a, cable.b)]
    ends += [server.vswitch.host_port for server in fabric.servers]
    assert len(ends) == len(set(ends))
    in_no_switch = {f"hyx-{rack.name}" for rack in fabric.racks} | at_mirrors(fabric)
    assert set(ends) - set(ports) == in_no_switch


def test_plain_servers_are_plugged_into_their_tor() -> None:
    fabric = load_configuration(CONFIGS / "openflow-only.yaml").fabric
    plain = layout(fabric, CONTROLLER, fdb_age_s=300)
    bridges = {bridge.name: bridge for bridge in plain.bridges}
    assert set(bridges) == {"hytor-r1", "hytor-r2", "hytor-r3", "hytor-r4"}
    tor = bridges["hytor-r1"]
    assert [port.name for port in tor.ports] == [
        "hys-h11",
        "hys-h12",
        "hyl-r1",
        "hyt-r1-p1",
        "hyt-r1-p2",
    ]
    assert all((port.trunks, port.native) == ((), None) for port in tor.ports)
    assert plain.learning == ()
    ends = [name for cable in plain.fabric_cables for name in (cable.a, cable.b)]
    assert [name for name in ends if name.startswith("hys-")] == []
    assert access_interface(fabric.servers[0]) == "hys-h11"


def test_learning_tors_forward_without_a_controller(demo: Layout) -> None:
    assert demo.learning == ("hytor-r1", "hytor-r2", "hytor-r3", "hytor-r4")
