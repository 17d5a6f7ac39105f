"""The keys of each substrate."""

import pytest

from hydra.forwarding.substrate import substrate_of
from hydra.model import SubstrateKind

from .conftest import CONFIGS, load_file


@pytest.fixture
def single(demo):
    """The demo, single-homed."""
    demo["substrate"] = "single-homed-vlan"
    tor, vswitch = parts(demo)
    tor["electrical_port"] = "up{rack}"
    del vswitch["electrical_port"]
    vswitch["uplink_port"] = vswitch.pop("optical_port")
    return demo


@pytest.fixture
def openflow(demo):
    """The demo, with plain servers and OpenFlow ToRs."""
    demo["substrate"] = "single-homed-openflow"
    tor, _ = parts(demo)
    tor["electrical_port"] = "up{rack}"
    tor["driver"] = "openflow"
    del tor["native_vlan"], demo["vlans"]["parking"]
    del demo["racks"][0]["servers"][0]["vswitch"]
    return demo


def parts(document):
    rack = document["racks"][0]
    return rack["tor"], rack["servers"][0].get("vswitch")


def found(problems):
    return {(problem.path, problem.message.partition(" (")[0]) for problem in problems}


@pytest.mark.parametrize("substrate", ["dual-homed-vlan", "single-homed-vlan"])
def test_no_key_that_is_absent_is_accused_of_its_value(single, problems_of, substrate):
    if substrate == "single-homed-vlan":
        _, vswitch = parts(single)
        vswitch["optical_port"] = vswitch.pop("uplink_port")
        vswitch["electrical_port"] = "e{rack}{server}"
    single["substrate"] = substrate
    _, vswitch = parts(single)
    absent = {"uplink_port", "optical_port", "electrical_port"} - vswitch.keys()
    where = "racks[0].servers[0].vswitch."
    told = [p for p in problems_of(single) if p.path.removeprefix(where) in absent]
    assert told
    assert all(problem.message.startswith("is missing") for problem in told)


def test_only_a_port_with_vlans_can_be_closed(openflow, problems_of):
    openflow["policy"]["on_silent_vswitch"] = "close"
    told = {problem.path: problem.message for problem in problems_of(openflow)}
    assert told["policy.on_silent_vswitch"].startswith("`close` does not belong on substrate")


def test_a_single_uplink_is_both(single, load_data):
    fabric = load_data(single).fabric
    vswitch = fabric.servers[0].vswitch
    assert fabric.substrate is SubstrateKind.SINGLE_HOMED_VLAN
    assert vswitch.optical_port == vswitch.electrical_port == "hyo-h11"
    assert vswitch.ports == ("hyh-h11", "hyo-h11")
    assert [rack.tor.electrical_port for rack in fabric.racks] == ["up1", "up2", "up3", "up4"]


def test_the_shipped_fabric_differs_from_the_demo_in_its_attachment_only():
    demo, single = (load_file(CONFIGS / f"{name}.yaml") for name in ("demo", "single-homed"))
    assert single.policy == demo.policy
    assert single.fabric.ports == demo.fabric.ports
    assert single.fabric.planes == demo.fabric.planes
    assert "hyl-r3" in substrate_of(single.fabric).fixed_ports(single.fabric.racks[2].id)


def test_openflow_tors_and_plain_servers(openflow, load_data):
    fabric = load_data(openflow).fabric
    assert fabric.substrate is SubstrateKind.SINGLE_HOMED_OPENFLOW
    assert {server.vswitch for server in fabric.servers} == {None}
    substrate = substrate_of(fabric)
    assert set(substrate.owned().values()) == {"r1", "r2", "r3", "r4"}
    ports = substrate.ports(fabric.racks[0].tor.datapath_id)
    assert (ports.electrical, ports.servers) == ("up1", ("hys-h11", "hys-h12"))
    assert ports.wired == ("hyt-r1-p1", "hyt-r1-p2")


def test_the_shipped_openflow_fabric_is_wired_like_the_demo():
    demo, plain = (load_file(CONFIGS / f"{name}.yaml") for name in ("demo", "openflow-only"))
    assert plain.policy == demo.policy
    assert plain.fabric.ports == demo.fabric.ports
    assert plain.fabric.planes == demo.fabric.planes
    for fabric in (demo.fabric, plain.fabric):
        assert {server.addresses for server in fabric.servers} == {
            server.addresses for server in demo.fabric.servers
        }


def test_an_openflow_fabric_with_the_keys_of_others(demo, problems_of):
    demo["substrate"] = "single-homed-openflow"
    why = (
        "does not belong on substrate single-homed-openflow, where ToRs have no VLANs on ports, "
        "and servers have no vswitches"
    )
    where = "racks[0].servers[0].vswitch"
    assert found(problems_of(demo)) == {
        (where, why),
        ("racks[0].tor.native_vlan", why),
        ("vlans.parking", why),
        (
            "racks[0].tor.electrical_port",
            "is missing: on substrate single-homed-openflow servers reach the electrical network "
            "through the ToR",
        ),
        (
            "racks[0].tor.driver",
            "'ovs-ovsdb' can't drive the ToRs of substrate single-homed-openflow: the driver there "
            "is `openflow`",
        ),
    }


def test_a_dual_homed_fabric_with_the_keys_of_openflow(openflow, problems_of):
    openflow["substrate"] = "dual-homed-vlan"
    assert found(problems_of(openflow)) >= {
        ("racks[0].servers[0].vswitch", "is missing: substrate dual-homed-vlan needs the key"),
        ("racks[0].tor.native_vlan", "is missing: substrate dual-homed-vlan needs the key"),
        ("vlans.parking", "is missing: substrate dual-homed-vlan needs the key"),
        (
            "racks[0].tor.driver",
            "'openflow' can't drive the ToRs of substrate dual-homed-vlan: ports there have VLANs, "
            "and OpenFlow does not set VLANs of ports",
        ),
    }


@pytest.mark.parametrize(
    ("key", "value", "path", "words"),
    [
        (
            "datapath_id",
            None,
            "datapath_id",
            "is missing: the controller identifies the ToR by the datapath id",
        ),
        ("address", "somewhere", "address", "'somewhere' is not host:port"),
        (
            "login",
            {"username": "x"},
            "login",
            "this driver's protocol has no users: remove `login`",
        ),
        ("options", {"x": 1}, "options.x", "is not an option of this driver; none is known"),
    ],
)
def test_what_an_openflow_tor_needs(openflow, problems_of, key, value, path, words):
    parts_of = openflow["racks"][0]["tor"]
    parts_of[key] = value
    if value is None:
        del parts_of[key]
    found_there = {(p.path, p.message.partition(" (")[0]) for p in problems_of(openflow)}
    assert (f"racks[0].tor.{path}", words) in found_there


def test_labels_need_no_room_for_loops(openflow, load_data):
    openflow["vlans"]["circuits"] = "100-102"
    assert len(load_data(openflow).fabric.circuit_vlans) == 3


def test_a_dual_homed_fabric_with_the_keys_of_the_other(demo, problems_of):
    tor, vswitch = parts(demo)
    tor["electrical_port"] = "up"
    tor["protected_ports"] = True
    vswitch["uplink_port"] = "x"
    del vswitch["electrical_port"]
    where = "racks[0].servers[0].vswitch"
    assert found(problems_of(demo)) >= {
        (f"{where}.electrical_port", "is missing: substrate dual-homed-vlan needs the key"),
        (
            f"{where}.uplink_port",
            "does not belong on substrate dual-homed-vlan, where a vswitch has `optical_port` and "
            "`electrical_port`",
        ),
        (
            "racks[0].tor.electrical_port",
            "does not belong here: on substrate dual-homed-vlan each server has a separate uplink",
        ),
        (
            "racks[0].tor.protected_ports",
            "does not belong on substrate dual-homed-vlan, where a ToR forwards by VLANs of its "
            "ports",
        ),
    }


def test_a_single_homed_fabric_with_the_keys_of_the_other(single, problems_of):
    tor, vswitch = parts(single)
    del tor["electrical_port"]
    vswitch["optical_port"] = vswitch.pop("uplink_port")
    where = "racks[0].servers[0].vswitch"
    assert found(problems_of(single)) == {
        (f"{where}.uplink_port", "is missing: substrate single-homed-vlan needs the key"),
        (
            f"{where}.optical_port",
            "does not belong on substrate single-homed-vlan, where a vswitch has `uplink_port`",
        ),
        (
            "racks[0].tor.electrical_port",
            "is missing: on substrate single-homed-vlan servers reach the electrical network "
            "through the ToR",
        ),
    }


@pytest.mark.parametrize("taken", ["hys-h{rack}2", "hyt-r{rack}-p1"])
def test_the_electrical_port_is_nothing_else(single, problems_of, taken):
    parts(single)[0]["electrical_port"] = taken
    assert any("wired twice: ToR port" in problem.message for problem in problems_of(single))


def test_single_homed_racks_meet_in_one_vlan(single, problems_of):
    parts(single)[0]["native_vlan"] = "{10 + rack}"
    (problem,) = problems_of(single)
    assert problem.path == "racks[0].tor.native_vlan"
    assert "VLAN 12 is not the 11 of r1" in problem.message
    assert "give all racks the same VLAN" in problem.message


def test_the_electrical_vlan_is_no_circuit(single, problems_of):
    parts(single)[0]["native_vlan"] = 150
    (problem,) = problems_of(single)
    assert "VLAN 150 is in the range for circuits (100-199)" in problem.message


def test_a_spine_has_no_electrical_port(single, problems_of):
    spine = {"names": "s1", "kind": "spine", "tor": dict(parts(single)[0])}
    spine["tor"] |= {"bridge": "hytor-s1", "datapath_id": 0x9999, "electrical_port": "up"}
    single["racks"].append(spine)
    assert (
        "racks[1].tor.electrical_port",
        "does not belong here: a spine only joins circuits",
    ) in (found(problems_of(single)))


@pytest.mark.parametrize("wrong", [0, 17, "two", 1.5, True])
def test_how_many_paths_there_may_be(single, problems_of, wrong):
    single.setdefault("policy", {})["paths_per_pair"] = wrong
    (problem,) = problems_of(single)
    assert problem.path == "policy.paths_per_pair"
    assert "must be 'auto' or a whole number" in problem.message


@pytest.mark.parametrize("right", [1, 16, "auto"])
def test_paths_may_be_a_number_or_auto(single, load_data, right):
    single.setdefault("policy", {})["paths_per_pair"] = right
    assert load_data(single).policy.paths_per_pair == right
