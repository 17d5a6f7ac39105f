"""Usable files, and the loaded objects."""

import copy
from ipaddress import IPv4Interface

import pytest
import yaml

from apps.process.configuration import load_configuration
from hydra.errors import ConfigError
from hydra.policy import (
    DrainPolicy,
    Mode,
    OnDrift,
    OnSilence,
    Policy,
    Sharing,
    SlotPolicy,
    Timeouts,
    Transition,
)
from hydra.settings import ControllerSettings

from .conftest import CONFIGS, load_file


def test_the_demo_fabric():
    loaded = load_file(CONFIGS / "demo.yaml")
    fabric = loaded.fabric
    assert fabric.name == "demo"
    assert [rack.name for rack in fabric.racks] == ["r1", "r2", "r3", "r4"]
    assert [plane.address for plane in fabric.planes] == ["127.0.0.1:5025", "127.0.0.1:5026"]
    server = fabric.server_by_name["h32"]
    assert server.rack == 2
    assert server.mac == "02:00:00:00:03:02"
    assert server.addresses[0] == IPv4Interface("10.0.3.2/16")
    assert server.vswitch.datapath_id == 0x2000 + 3 * 256 + 2
    assert server.vswitch.optical_port == server.tor_port.replace("hys", "hyo")
    assert fabric.racks[3].tor.datapath_id == 0x1004
    assert loaded.policy == Policy(algorithm="hydra-bfs")
    assert loaded.warnings == ()
    assert loaded.source.endswith("demo.yaml")


def test_ports_are_numbered_by_rack_then_plane():
    ports = load_file(CONFIGS / "demo.yaml").fabric.ports
    assert [port.id for port in ports] == list(range(8))
    assert [(port.rack, port.plane) for port in ports] == [
        (rack, plane) for rack in range(4) for plane in range(2)
    ]
    assert (ports[5].tor_port, ports[5].ingress, ports[5].egress) == ("hyt-r3-p2", 3, 19)


def test_the_reference_fabric_has_the_size_of_the_paper():
    loaded = load_file(CONFIGS / "reference.yaml")
    fabric = loaded.fabric
    assert (len(fabric.racks), len(fabric.servers)) == (320, 10_240)
    assert (len(fabric.planes), len(fabric.ports)) == (32, 10_240)
    assert {len(fabric.ports_of(rack.id)) for rack in fabric.racks} == {32}
    assert fabric.server_by_name["r256-h32"].addresses[0] == IPv4Interface("10.1.0.32/8")
    assert loaded.warnings == ()
    assert (CONFIGS / "reference.yaml").read_text().count("\n") <= 66  # a page


def test_every_setting_arrives(demo, load_data):
    secured = {
        "tokens": "/tokens.json",
        "tls_certificate": "/cert.pem",
        "tls_key": "/key.pem",
        "openflow_certificate": "/of.pem",
        "openflow_key": "/of.key",
        "openflow_authority": "/ca.pem",
        "requests_per_s": 7.0,
        "audit_log": "/audit.jsonl",
        "connections": 900,
        "connections_per_address": 90,
    }
    listening = {"openflow": "[::]:6700", "rest": "ctl.example:80", "journal": "/j.db"}
    demo["controller"] = {**listening, **secured}
    demo["policy"] = {
        "mode": "periodic",
        "algorithm": "static",
        "max_hops": 2,
        "epoch_s": 11.0,
        "poll_interval_s": 0.5,
        "demand_window_s": 4.0,
        "elephant_mbps": 2.0,
        "elephant_release": 0.5,
        "gain_horizon_s": 12.0,
        "gain_factor": 3.0,
        "minimum_gain_mbps": 6.0,
        "minimum_circuit_life_s": 7.0,
        "fdb_age_s": 20.0,
        "probe_interval_s": 0.5,
        "audit_interval_s": 90.0,
        "on_drift": "report",
        "on_silent_vswitch": "close",
        "quarantine_s": None,
        "transition": "divert-first",
        "drain": {"reads": 4, "interval_ms": 5.0, "bound_ms": 200.0},
        "timeouts": {"vswitch_s": 1, "tor_s": 2, "ocs_s": 3, "port_up_s": 4, "probe_s": 6},
        "sharing": "slotted",
        "slots": {"slot_s": 0.5, "week_s": 5},
    }
    loaded = load_data(demo)
    assert loaded.controller == ControllerSettings(
        "::", 6700, "ctl.example", 80, "/j.db", **secured
    )
    assert loaded.policy == Policy(
        mode=Mode.PERIODIC,
        algorithm="static",
        max_hops=2,
        epoch_s=11.0,
        poll_interval_s=0.5,
        demand_window_s=4.0,
        elephant_mbps=2.0,
        elephant_release=0.5,
        gain_horizon_s=12.0,
        gain_factor=3.0,
        minimum_gain_mbps=6.0,
        minimum_circuit_life_s=7.0,
        fdb_age_s=20.0,
        probe_interval_s=0.5,
        audit_interval_s=90.0,
        on_drift=OnDrift.REPORT,
        on_silent_vswitch=OnSilence.CLOSE,
        quarantine_s=None,
        transition=Transition.DIVERT_FIRST,
        drain=DrainPolicy(4, 5.0, 200.0),
        timeouts=Timeouts(1.0, 2.0, 3.0, 4.0, 6.0),
        sharing=Sharing.SLOTTED,
        slots=SlotPolicy(0.5, 5.0),
    )


def test_optional_sections_have_the_defaults_of_the_core(demo, load_data):
    del demo["controller"], demo["policy"]
    loaded = load_data(demo)
    assert loaded.policy == Policy()
    assert loaded.controller == ControllerSettings()


def test_defaults_can_be_spelled_out(demo, load_data):
    spelled = load_data(demo | {"substrate": "dual-homed-vlan", "circuits": "bidirectional"})
    assert spelled.fabric == load_data(demo).fabric


def test_several_ports_per_plane_and_uneven_wiring(demo, load_data):
    """Z = 2 on the first plane for two racks, at another rate; r4 has a port on p2 only."""
    demo["wiring"] = [
        {
            "racks": "r[1-3]",
            "planes": "p1",
            "tor_port": "a{rack}",
            "ingress": "{rack}",
            "egress": "{ports + rack}",
        },
        {
            "racks": ["r1", "r2"],
            "planes": "p1",
            "tor_port": "b{rack}",
            "ingress": "{4 + rack}",
            "egress": "{ports + 4 + rack}",
            "rate_mbps": 40,
        },
        {
            "racks": "r[1-4]",
            "planes": ["p2"],
            "tor_port": "c{rack}",
            "ingress": "{rack}",
            "egress": "{ports + rack}",
        },
    ]
    fabric = load_data(demo).fabric
    assert [p.tor_port for p in fabric.ports_of(0)] == ["a1", "b1", "c1"]
    assert [p.rate_mbps for p in fabric.ports_of(0)] == [100, 40, 100]
    assert [p.tor_port for p in fabric.ports_of(3)] == ["c4"]


def test_racks_and_servers_count_on_across_entries(demo, load_data):
    entry = demo["racks"][0]
    tail = copy.deepcopy(entry) | {"names": "r[3-4]"}
    tail["servers"][0]["names"] = "h{rack}1"
    tail["servers"].append(copy.deepcopy(tail["servers"][0]) | {"names": "h{rack}2"})
    demo["racks"] = [entry | {"names": "r[1-2]"}, tail]
    fabric = load_data(demo).fabric
    assert [rack.id for rack in fabric.racks] == [0, 1, 2, 3]
    assert fabric == load_file(CONFIGS / "demo.yaml").fabric


def test_tors_of_their_own_may_share_port_names_and_need_no_bridge(demo, load_data):
    tor = demo["racks"][0]["tor"]
    tor |= {"driver": "any", "address": "10.9.0.{rack}:22"}
    del tor["bridge"], tor["datapath_id"]
    demo["wiring"][0]["tor_port"] = "Ethernet1/1/49/{plane}"
    demo["racks"][0]["servers"][0]["tor_port"] = "Ethernet1/1/{server}"
    fabric = load_data(demo).fabric
    assert fabric.racks[1].tor.datapath_id is None
    assert fabric.ports_of(0)[0].tor_port == fabric.ports_of(1)[0].tor_port


def test_servers_of_their_own_may_share_interface_names(demo, load_data):
    demo["racks"][0]["servers"][0]["vswitch"] |= {
        "bridge": "br0",
        "host_port": "host",
        "optical_port": "eth1",
        "electrical_port": "eth0",
    }
    assert load_data(demo).fabric.servers[7].vswitch.bridge == "br0"


def test_racks_may_have_native_vlans_of_their_own(demo, load_data):
    demo["racks"][0]["tor"]["native_vlan"] = "{10 + rack}"
    assert [r.tor.native_vlan for r in load_data(demo).fabric.racks] == [11, 12, 13, 14]


@pytest.mark.parametrize("address", ["tcp:10.0.0.9:6640", "ssl:[fd00::1]:6640", "ovsdb-1:6640"])
def test_remote_ovsdb_addresses(demo, load_data, address):
    demo["racks"][0]["tor"]["address"] = address
    assert load_data(demo).fabric.racks[0].tor.address == address


# --- warnings: what works, but may be a slip -------------------------------------------------


def test_unwired_racks_and_planes_are_mentioned(demo, load_data):
    demo["wiring"][0] |= {"racks": "r[1-3]", "planes": "p1"}
    warnings = load_data(demo).warnings
    assert [(w.path, w.message) for w in warnings] == [
        ("racks[0]", "not wired to any plane: the rack's traffic stays electrical (for rack r4)"),
        ("planes[0]", "not wired to any rack: the plane carries no traffic (for plane p2)"),
    ]


def test_a_server_without_its_racks_second_family_is_mentioned(demo, load_data):
    del demo["racks"][0]["servers"][0]["addresses"][1]
    (warning,) = load_data(demo).warnings
    assert warning.path == "racks[0].servers[0].addresses"
    assert "no IPv6 address although the rack has an IPv6 prefix" in warning.message
    assert "rack r1, server h11 and 7 more" in warning.message


def test_racks_without_a_family_in_common_are_mentioned(demo, load_data):
    (racks,) = demo["racks"]
    four, six = (copy.deepcopy(racks) for _ in range(2))
    four |= {"names": "r[1-3]"}
    six |= {"names": "r4"}
    for rack, keep in ((four, 0), (six, 1)):
        rack["prefixes"] = [rack["prefixes"][keep]]
        for servers in rack["servers"]:
            servers["addresses"] = [servers["addresses"][keep]]
    demo["racks"] = [four, six]
    (warning,) = load_data(demo).warnings
    assert warning.path == "racks[1]"
    assert warning.message == (
        "the servers have IPv6 addresses only, and the servers of rack r1 and 2 more IPv4 only: "
        "no traffic passes between the two, and reservations between the two are refused (for "
        "rack r4)"
    )
    six["servers"][0]["addresses"] = racks["servers"][0]["addresses"]
    six["prefixes"] = racks["prefixes"]
    assert not any("only" in one.message for one in load_data(demo).warnings)


def test_periodic_mode_without_polling_is_mentioned(demo, load_data):
    demo["policy"] = {"mode": "periodic", "poll_interval_s": 0}
    (warning,) = load_data(demo).warnings
    assert warning.path == "policy.poll_interval_s"


def test_a_disturbance_cost_that_the_algorithm_does_not_heed_is_mentioned(demo, tmp_path):
    path = tmp_path / "fabric.yaml"
    said = {}
    for algorithm in ("hydra-bfs", "hydra-bfs+", "edmonds"):
        demo["policy"] = {"algorithm": algorithm, "disturbance_mbps": 20}
        path.write_text(yaml.safe_dump(demo))
        said[algorithm] = [warning.message for warning in load_configuration(path).warnings]
    assert said.pop("hydra-bfs") == [
        "has no effect: hydra-bfs gives up circuits without regard to the demand on them; choose "
        "anytime, edmonds, edmonds-perfect, hydra-bfs+, static"
    ]
    assert not any(said.values())


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "127.9.9.9"])
def test_on_loopback_no_tokens_are_needed(demo, load_data, host):
    demo["controller"]["rest"] = f"{host}:8080"
    assert not load_data(demo).warnings


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "controller.example"])
def test_beyond_loopback_tokens_are_needed_and_tls_is_advised(demo, load_data, host):
    demo["controller"]["rest"] = f"{host}:8080"
    with pytest.raises(ConfigError, match=r"without tokens everybody may do everything"):
        load_data(demo)
    demo["controller"]["tokens"] = "tokens.json"
    (warning,) = load_data(demo).warnings
    assert "tokens travel unencrypted" in warning.message
    demo["controller"] |= {"tls_certificate": "c.pem", "tls_key": "k.pem"}
    assert not load_data(demo).warnings


@pytest.mark.parametrize("key", ["tls_certificate", "openflow_key", "openflow_authority"])
def test_a_certificate_needs_its_key(demo, load_data, key):
    demo["controller"][key] = "c.pem"
    with pytest.raises(ConfigError, match="go together"):
        load_data(demo)


def test_names_and_networks_of_the_controller(demo, load_data, problems_of):
    demo["controller"] |= {"hosts": ["hydra.example"], "webhook_networks": ["10.0.0.0/8"]}
    loaded = load_data(demo)
    assert loaded.controller.hosts == ("hydra.example",)
    assert loaded.controller.webhook_networks == ("10.0.0.0/8",)
    demo["controller"]["webhook_networks"] = ["inside"]
    (problem,) = problems_of(demo)
    assert problem.path == "controller.webhook_networks[0]"


@pytest.mark.parametrize("url", ["10.0.0.1:8443", "ftp://host", "https://", "http://host:none"])
def test_where_the_others_find_a_controller(demo, load_data, problems_of, url):
    demo["controller"] |= {"url": "https://10.0.0.1:8443", "authority": "ca.pem"}
    loaded = load_data(demo).controller
    assert (loaded.url, loaded.authority) == ("https://10.0.0.1:8443", "ca.pem")
    demo["controller"]["url"] = url
    (problem,) = problems_of(demo)
    assert problem.path == "controller.url"


def test_guests_are_their_servers(demo, load_data):
    (servers,) = demo["racks"][0]["servers"]
    servers["guests"] = [f"52:54:00:{{rack:02x}}:{{server:02x}}:{number:02x}" for number in (1, 2)]
    h11, h12, *_ = load_data(demo).fabric.servers
    assert h11.macs == (h11.mac, "52:54:00:01:01:01", "52:54:00:01:01:02")
    assert h12.guests == ("52:54:00:01:02:01", "52:54:00:01:02:02")


def test_guests_that_are_not_named_send_at_most_where_sources_are_not_checked(
    demo, load_data, problems_of
):
    demo["racks"][0]["servers"][0]["guests"] = []
    (problem,) = problems_of(demo)
    assert "source_check: off" not in problem.message, "nothing would reach them then"
    demo["policy"]["source_check"] = "off"
    loaded = load_data(demo)
    assert not any(server.guests for server in loaded.fabric.servers)
    guests, tags = loaded.warnings
    assert guests.path == "racks[0].servers[0].guests"
    assert tags.path == "policy.source_check"
    assert "no unicast reaches unlisted guests" in guests.message


@pytest.mark.parametrize(
    ("shipped", "warned"), [("demo", True), ("single-homed", True), ("openflow-only", False)]
)
def test_tags_of_servers_that_pass_are_warned_of(shipped, warned, load_data):
    """OpenFlow ToRs drop such frames with any policy."""
    document = yaml.safe_load((CONFIGS / f"{shipped}.yaml").read_text())
    assert not load_data(document).warnings
    document["policy"]["source_check"] = "off"
    told = [str(one) for one in load_data(document).warnings]
    assert ["vlan-limit=2" in one for one in told] == [True] * warned
