"""One mistake at a time: the reported path, and the remedy."""

import copy
import math
import re

import pytest
import yaml

from drivers.registry import plane_checks, rack_checks
from hydra.config import load
from hydra.errors import ConfigError

from .conftest import CONFIGS

NAN, INF = math.nan, math.inf
DELETE = object()


def change(data, path, value):
    *parents, last = path
    for step in parents:
        data = data[step]
    if value is DELETE:
        del data[last]
    elif isinstance(data, list) and last == len(data):
        data.append(value)
    else:
        data[last] = value


R, S, T = ("racks", 0), ("racks", 0, "servers", 0), ("racks", 0, "tor")
V, P, W = (*S, "vswitch"), ("planes", 0), ("wiring", 0)

STORE, ETCD = ("controller", "store"), "controller.store.etcd"
WORKERS, LINK = ("controller", "workers"), {"listen": "127.0.0.1:6654"}


def etcd(**keys):
    return {"etcd": {"endpoints": ["http://e:2379"], **keys}}


TLS_WITHOUT_KEY = etcd(
    endpoints=["https://e:2379"], tls={"authority": "ca.pem", "certificate": "me.pem"}
)

CASES = [
    # --- the form of the file
    (("racks", 0, "nmaes"), "r[1-4]", "racks[0].nmaes", "unknown key; did you mean 'names'?"),
    ((*T, "adress"), "x:1", "racks[0].tor.adress", "unknown key; did you mean 'address'?"),
    (("policy", "drain"), {"read": 3}, "policy.drain.read", "unknown key; did you mean 'reads'?"),
    (("polcy",), {}, "polcy", "unknown key; did you mean 'policy'?"),
    (("parking",), 4000, "parking", "unknown key; 'parking' belongs under vlans"),
    (("bridge",), "b", "bridge", "unknown key; 'bridge' belongs under racks.tor or racks.servers."),
    (("mode",), "periodic", "mode", "unknown key; 'mode' belongs under policy"),
    ((*S, "address"), "x", "racks[0].servers[0].address", "did you mean 'addresses'?"),
    ((*T, "colour"), 1, "racks[0].tor.colour", "unknown key; known: driver, address"),
    (("planes",), DELETE, "planes", "this section is missing"),
    ((*S, "mac"), DELETE, "racks[0].servers[0].mac", "is missing"),
    (("racks",), [], "racks", "needs at least one entry"),
    (("planes",), [], "planes", "needs at least one entry"),
    (("wiring",), [], "wiring", "needs at least one entry"),
    (("subnets",), [], "subnets", "needs at least one entry"),
    ((*R, "servers"), [], "racks[0].servers", "needs at least one entry"),
    ((*R, "prefixes"), [], "racks[0].prefixes", "needs at least one entry"),
    ((*S, "addresses"), [], "racks[0].servers[0].addresses", "needs at least one entry"),
    (("racks",), {"names": "r1"}, "racks", "got {'names': 'r1'}: put a dash before the first key"),
    (("subnets",), "10.0.0.0/8", "subnets", "a list, got '10.0.0.0/8': write ['10.0.0.0/8']"),
    (("electrical",), 10, "electrical", "must be a section"),
    (("fabric",), 7, "fabric", "must be text, got 7: put the value in quotes"),
    (
        ("fabric",),
        ["demo"],
        "fabric",
        "must be one text, got a list (['demo']): write a single value",
    ),
    (("fabric",), {"a": 1}, "fabric", "must be one text, got a section ({'a': 1}): write a single"),
    ((*R, "names"), "r[1..4]", "racks[0].names", "[1..4] is no range: write [1-4]"),
    ((*R, "names"), "r[1:4]", "racks[0].names", "[1:4] is no range: write [1-4]"),
    ((*R, "names"), "r[1 to 4]", "racks[0].names", "[1 to 4] is no range: write [1-4]"),
    ((*R, "names"), "r[1 - 4]", "racks[0].names", "[1 - 4] is no range: write [1-4]"),
    ((*R, "names"), "r[1\u20134]", "racks[0].names", "is no range: write [1-4]"),
    ((*R, "names"), "r[1-]", "racks[0].names", "[1-] is no range: write two numbers with a hyphen"),
    ((*R, "names"), "r[a-d]", "racks[0].names", "letters have no ranges, list the letters"),
    (("fabric",), "", "fabric", "must not be empty"),
    (("fabric",), None, "fabric", "has no value"),
    (("server_rate_mbps",), None, "server_rate_mbps", "has no value"),
    *(
        (
            ("policy", "beyond_hours"),
            hours,
            "policy.beyond_hours",
            f"{said}: write two times of day",
        )
        for hours, said in (
            ("", "'' has not the form of 02:00-04:30"),
            ("5-6", "'5-6' has not the form of 02:00-04:30"),
            ("night hours", "'night hours' has not the form of 02:00-04:30"),
            ("22:00-24:00", "'22:00-24:00' has not the form of 02:00-04:30"),
            ("02:00-02:00", "02:00-02:00 has the same begin and end"),
        )
    ),
    ((*P, "ports"), "sixteen", "planes[0].ports", "must be a whole number, got 'sixteen'"),
    ((*T, "native_vlan"), [10], "racks[0].tor.native_vlan", "whole number or a template"),
    ((*T, "native_vlan"), True, "racks[0].tor.native_vlan", "whole number or a template"),
    # --- patterns and templates
    ((*R, "names"), "r[4-1]", "racks[0].names", "runs backwards"),
    ((*R, "names"), "r[1-4", "racks[0].names", "unbalanced"),
    ((*R, "names"), "r [1-4]", "racks[0].names", "only hold letters"),
    ((*S, "mac"), "{rak}", "racks[0].servers[0].mac", "unknown name 'rak'; did you mean 'rack'?"),
    ((*S, "mac"), "{rack", "racks[0].servers[0].mac", "not a template"),
    ((*P, "address"), "127.0.0.1:{rack}", "planes[0].address", "unknown name 'rack'"),
    ((*W, "ingress"), "{rack // (plane - plane)}", "wiring[0].ingress", "divides by zero"),
    ((*W, "ingress"), "{rack}x", "wiring[0].ingress", "whole number, got '1x'"),
    ((*W, "racks"), "r[1-5]", "wiring[0].racks", "no rack 'r5'; known: r1, r2"),
    ((*W, "planes"), ["p1", "q9"], "wiring[0].planes[1]", "no plane 'q9'; known: p1, p2"),
    # --- names of what is built in
    ((*P, "driver"), "polatis-scip", "planes[0].driver", "optical driver 'polatis-scip'; did you"),
    ((*T, "driver"), "ovs", "racks[0].tor.driver", "unknown ToR driver 'ovs'"),
    (("policy", "algorithm"), "hydra-dfs", "policy.algorithm", "did you mean 'hydra-bfs'?"),
    (
        ("substrate",),
        "openflow",
        "substrate",
        "unknown substrate 'openflow'; known: dual-homed-vlan",
    ),
    (("circuits",), "unidirectional", "circuits", "use substrate single-homed-openflow"),
    (("circuits",), "both", "circuits", "must be 'bidirectional' or 'unidirectional'"),
    # --- wiring
    ((*W, "tor_port"), "hyt-r{rack}", "wiring[0].tor_port", "wired twice: ToR port 'hyt-r1'"),
    (
        (*W, "tor_port"),
        "hys-h{rack}1",
        "wiring[0].tor_port",
        "already taken by rack r1, server h11",
    ),
    ((*S, "tor_port"), "hys-h{rack}", "racks[0].servers[0].tor_port", "wired twice"),
    ((*W, "ingress"), 3, "wiring[0].ingress", "wired twice: ingress port 3"),
    ((*W, "egress"), "{ports + 1}", "wiring[0].egress", "wired twice: egress port 17"),
    ((*W, "ingress"), "{ports + rack}", "wiring[0].ingress", "ingress ports are 1 to 16"),
    ((*W, "ingress"), 0, "wiring[0].ingress", "ingress port 0 does not exist"),
    ((*W, "egress"), "{rack}", "wiring[0].egress", "egress ports are 17 to 32"),
    ((*P, "ports"), 3, "wiring[0].ingress", "ingress port 4 does not exist: plane p1 has 3 ports"),
    # --- addresses
    ((*R, "prefixes", 0), "10.0.0.0/24", "racks[0].prefixes[0]", "overlaps 10.0.0.0/24 of rack r1"),
    ((*R, "prefixes", 1), "fd00:10::/64", "racks[0].prefixes[1]", "overlaps fd00:10::/64 of rack"),
    ((*R, "prefixes", 0), "10.0.{rack}.0/23", "racks[0].prefixes[0]", "write 10.0.0.0/23"),
    (("subnets", 0), "10.0.1.0/16", "subnets[0]", "10.0.1.0/16 has host bits set: write 10.0.0.0/"),
    ((*R, "prefixes", 0), "10.0.{300 + rack}.0/24", "racks[0].prefixes[0]", "not an IP prefix"),
    ((*R, "prefixes", 0), "11.0.{rack}.0/24", "racks[0].prefixes[0]", "outside all `subnets`"),
    (("subnets", 0), "10.0.0.0/99", "subnets[0]", "not an IP prefix"),
    (
        (*S, "addresses", 0),
        "10.0.{rack + 1}.{server}/16",
        "racks[0].servers[0].addresses[0]",
        "10.0.2.1 is outside the rack's prefixes (10.0.1.0/24, fd00:10:0:1::/64)",
    ),
    (("subnets", 0), "10.0.4.0/22", "racks[0].servers[0].addresses[0]", "outside all `subnets`"),
    (
        (*S, "addresses", 0),
        "10.0.{rack}.{server}",
        "racks[0].servers[0].addresses[0]",
        "no prefix length",
    ),
    (
        (*S, "addresses", 0),
        "10.0.{rack}.{server}/24",
        "racks[0].servers[0].addresses[0]",
        "racks with separate subnets are not supported",
    ),
    (
        (*S, "addresses", 1),
        "fd00:10:0:{rack}::{server}/64",
        "racks[0].servers[0].addresses[1]",
        "one subnet that spans all racks",
    ),
    (
        (*S, "addresses", 0),
        "10.0.{rack}.999/16",
        "racks[0].servers[0].addresses[0]",
        "not an interface address",
    ),
    (("subnets",), ["10.0.1.0/24"], "racks[0].prefixes[1]", "outside all `subnets`"),
    # --- what must be unique
    ((*S, "mac"), "02:00:00:00:00:01", "racks[0].servers[0].mac", "already taken by rack r1, ser"),
    (
        (*S, "addresses", 0),
        "10.0.{rack}.1/16",
        "racks[0].servers[0].addresses[0]",
        "10.0.1.1 is al",
    ),
    ((*S, "names"), "h[1-2]", "racks[0].servers[0].names", "name 'h1' is already taken by rack r1"),
    ((*S, "names"), "r{rack + 1}", "racks[0].servers[0].names", "name 'r2' is already taken"),
    ((*R, "names"), "r[1,2,3,2]", "racks[0].names", "name 'r2' is already taken"),
    ((*P, "names"), "p[1,1]", "planes[0].names", "plane name 'p1' is already taken"),
    ((*P, "address"), "127.0.0.1:5025", "planes[0].address", "already taken by plane p1"),
    ((*T, "bridge"), "hytor", "racks[0].tor.address", "hytor is already taken by rack r1"),
    (
        (*T, "datapath_id"),
        7,
        "racks[0].tor.datapath_id",
        "datapath id 0x7 is already taken by rack",
    ),
    (
        (*V, "datapath_id"),
        "{0x1000 + rack}",
        "racks[0].servers[0].vswitch.datapath_id",
        "0x1001 is already taken by rack r1",
    ),
    (
        (*V, "host_port"),
        "hyo-h{rack}{server}",
        "racks[0].servers[0].vswitch.optical_port",
        "'hyo-h11' is already the name of host_port",
    ),
    # --- the form of values
    ((*S, "mac"), "02:00:00:00:{rack}", "racks[0].servers[0].mac", "not a MAC address"),
    ((*S, "guests"), ["52:54"], "racks[0].servers[0].guests[0]", "not a MAC address"),
    ((*S, "guests"), ["ff:ff:ff:ff:ff:ff"], "racks[0].servers[0].guests[0]", "even first byte"),
    (
        (*S, "guests"),
        ["52:54:00:00:00:{rack:02x}"],
        "racks[0].servers[0].guests[0]",
        "MAC address 52:54:00:00:00:01 is already taken by rack r1, server h11",
    ),
    ((*S, "guests"), [], "racks[0].servers[0].guests", "is empty, and policy.source_check refuses"),
    (
        ("policy", "source_check"),
        "yes",
        "policy.source_check",
        "must be 'on', 'off' or 'addresses'",
    ),
    ((*S, "mac"), "03:00:00:00:{rack:02x}:01", "racks[0].servers[0].mac", "group (multicast)"),
    ((*S, "mac"), "00:00:00:00:00:00", "racks[0].servers[0].mac", "empty address"),
    (
        (*V, "datapath_id"),
        "0000aabbccddeeff",
        "racks[0].servers[0].vswitch.datapath_id",
        "hexadecimal form of switches: write 0x0000aabbccddeeff",
    ),
    (
        (*V, "datapath_id"),
        "00:00:aa:bb:cc:dd:ee:01",
        "racks[0].servers[0].vswitch.datapath_id",
        "hexadecimal form of switches: write 0x0000aabbccddee01",
    ),
    (
        (*T, "datapath_id"),
        "00000000000010{rack:02x}",
        "racks[0].tor.datapath_id",
        "'0000000000001001' is a datapath id in the hexadecimal form of switches: write 0x0000",
    ),
    ((*V, "datapath_id"), 0, "racks[0].servers[0].vswitch.datapath_id", "between 1 and 2^64"),
    ((*V, "datapath_id"), 1 << 64, "racks[0].servers[0].vswitch.datapath_id", "between 1 and"),
    (
        (*V, "optical_port"),
        "optical-{rack}-{server}-xxxx",
        "racks[0].servers[0].vswitch.optical_port",
        "'optical-1-1-xxxx' has 16 char",
    ),
    (
        (*V, "bridge"),
        "hy/{rack}{server}",
        "racks[0].servers[0].vswitch.bridge",
        "holds a blank, a slash or a colon",
    ),
    (
        (*W, "tor_port"),
        "hyt-rack{rack}-plane{plane}",
        "wiring[0].tor_port",
        "Linux takes at most 15",
    ),
    (
        (*S, "tor_port"),
        "hys-h{rack}{server}-01234567",
        "racks[0].servers[0].tor_port",
        "at most 15",
    ),
    ((*T, "bridge"), "a-very-long-bridge-{rack}", "racks[0].tor.bridge", "at most 15"),
    ((*T, "bridge"), DELETE, "racks[0].tor.bridge", "needs the name of the bridge"),
    ((*P, "address"), "ocs{plane}", "planes[0].address", "'ocs1' is not host:port"),
    ((*P, "address"), "ocs{plane}:99999", "planes[0].address", "is not host:port"),
    ((*P, "address"), "10.0.0..{plane}:5025", "planes[0].address", "the host has two do"),
    ((*P, "address"), "a" * 64 + ":5025", "planes[0].address", "host, between dots, has more than"),
    ((*P, "address"), "unix:/run/{plane}", "planes[0].address", "is not host:port"),
    ((*T, "address"), "unix:relative", "racks[0].tor.address", "is not a device address"),
    (("controller", "openflow"), "6653", "controller.openflow", "is not host:port"),
    (("controller", "rest"), "127.0.0.1:0", "controller.rest", "is not host:port"),
    (("controller", "rest"), "127.0.0.1:6653", "controller.rest", "taken by OpenFlow"),
    (("controller", "store"), {}, "controller.store.etcd", "is missing"),
    (STORE, etcd(endpoints=[]), f"{ETCD}.endpoints", "needs at least one entry"),
    (STORE, etcd(endpoints=["10.0.0.1:2379"]), f"{ETCD}.endpoints[0]", "is not the URL of a mem"),
    (STORE, etcd(endpoints=["https://e:2379"]), f"{ETCD}.endpoints[0]", "needs tls: write http"),
    (STORE, etcd(tls={"authority": "ca.pem"}), f"{ETCD}.endpoints[0]", "with tls: write https"),
    (STORE, etcd(endpoints=["http://e:1", "http://e:1"]), f"{ETCD}.endpoints[1]", "listed twice"),
    (STORE, etcd(prefix="hydra/"), f"{ETCD}.prefix", "does not begin with a slash"),
    (STORE, etcd(lease_s=0), f"{ETCD}.lease_s", "must be at least 1, got 0"),
    (STORE, etcd(user={"username": "u"}), f"{ETCD}.user", "exactly one of password_env or"),
    (STORE, TLS_WITHOUT_KEY, f"{ETCD}.tls", "certificate and key go together"),
    (("controller", "workers"), {}, "controller.workers.listen", "is missing"),
    (WORKERS, {"listen": "6654"}, "controller.workers.listen", "'6654' is not host:port"),
    (WORKERS, {"listen": "0.0.0.0:6654"}, "controller.workers.listen", "without keys any of"),
    (WORKERS, {**LINK, "key": "a.key_secret"}, "controller.workers", "key and known go together"),
    (WORKERS, {**LINK, "shards": 0}, "controller.workers.shards", "must be at least 1, got 0"),
    (WORKERS, {**LINK, "lease_s": 0.5}, "controller.workers.lease_s", "at least 1, got 0.5"),
    (("electrical", "rate_mbps"), 0, "electrical.rate_mbps", "at least 0.001, got 0"),
    (("electrical", "rate_mbps"), NAN, "electrical.rate_mbps", "finite number, got nan"),
    (("server_rate_mbps",), -5, "server_rate_mbps", "at least 0.001, got -5"),
    (("server_rate_mbps",), INF, "server_rate_mbps", "finite number, got inf"),
    (("server_rate_mbps",), "fast", "server_rate_mbps", "must be a number, got 'fast'"),
    ((*P, "rate_mbps"), 0, "planes[0].rate_mbps", "at least 0.001"),
    ((*P, "switching_ms"), -1, "planes[0].switching_ms", "at least 0, got -1"),
    ((*P, "ports"), 0, "planes[0].ports", "at least 1, got 0"),
    ((*W, "rate_mbps"), NAN, "wiring[0].rate_mbps", "finite"),
    # --- VLANs
    (("vlans", "circuits"), "100-104", "vlans.circuits", "5 VLAN-IDs are too few: rack r1 has 2"),
    (("vlans", "circuits"), "100-5000", "vlans.circuits", "lie within 1-4094"),
    (("vlans", "circuits"), "200-100", "vlans.circuits", "must rise"),
    (("vlans", "circuits"), "all", "vlans.circuits", "'all' is not a range of VLAN-IDs"),
    (("vlans", "circuits"), "0-99", "vlans.circuits", "lie within 1-4094"),
    (("vlans", "parking"), 150, "vlans.parking", "VLAN 150 is in the range for circuits (100-199)"),
    (("vlans", "parking"), 4095, "vlans.parking", "between 1 and 4094, got 4095"),
    ((*T, "native_vlan"), 100, "racks[0].tor.native_vlan", "VLAN 100 is in the range for circuits"),
    ((*T, "most_vlans"), 101, "racks[0].tor.most_vlans", "is 101: with 100 for circuits, 102"),
    ((*T, "most_vlans"), 0, "racks[0].tor.most_vlans", "must be at least 1, got 0"),
    ((*T, "native_vlan"), 4000, "racks[0].tor.native_vlan", "is the parking VLAN"),
    ((*T, "native_vlan"), 0, "racks[0].tor.native_vlan", "between 1 and 4094, got 0"),
    # --- policy
    (("policy", "mode"), "sometimes", "policy.mode", "'on-request' or 'periodic'"),
    (("policy", "max_hops"), 0, "policy.max_hops", "at least 1"),
    (("policy", "max_hops"), 2.5, "policy.max_hops", "must be a whole number"),
    (("policy", "epoch_s"), 0, "policy.epoch_s", "at least 0.001"),
    (("policy", "epoch_s"), 1e-9, "policy.epoch_s", "at least 0.001"),
    (("policy", "epoch_s"), 1e308, "policy.epoch_s", "at most 1e+09"),
    (("policy", "sharing"), "slotted", "policy.sharing", "set mode to periodic"),
    (("controller", "requests_per_s"), 1e-300, "controller.requests_per_s", "at least 0.001"),
    (("fabric",), "x" * 256, "fabric", "more than 255 characters"),
    (
        (*R, "prefixes", 0),
        "::ffff:10.0.1.0/120",
        "racks[0].prefixes[0]",
        "write the address as IPv4",
    ),
    ((*S, "addresses", 0), "::ffff:10.0.1.1/112", "racks[0].servers[0].addresses[0]", "as IPv4"),
    (("policy", "poll_interval_s"), -1, "policy.poll_interval_s", "at least 0"),
    (("policy", "elephant_mbps"), NAN, "policy.elephant_mbps", "finite"),
    (("policy", "fdb_age_s"), 0, "policy.fdb_age_s", "at least 0.001"),
    (("policy", "drain"), {"reads": 0}, "policy.drain.reads", "at least 1"),
    (("policy", "drain"), {"bound_ms": 20}, "policy.drain.bound_ms", "at least 36 is needed"),
    (("policy", "timeouts"), {"tor_s": 0}, "policy.timeouts.tor_s", "at least 0.001"),
]


@pytest.mark.parametrize(
    ("where", "value", "path", "words"), CASES, ids=[f"{c[2]}-{c[3][:24]}" for c in CASES]
)
def test_is_reported_at_its_path(demo, problems_of, where, value, path, words):
    change(demo, where, value)
    problems = problems_of(demo)
    assert words in " ".join(p.message for p in problems if p.path == path), problems
    assert all(problem.line for problem in problems)


@pytest.mark.parametrize(
    ("slots", "path", "words"),
    [
        ({"slot_s": 0.04}, "policy.slots.slot_s", "40 ms leaves no day after its night of 49 ms"),
        ({"slot_s": 3, "week_s": 2}, "policy.slots.week_s", "2 s holds no slot of 3 s"),
        ({"slot_s": 0}, "policy.slots.slot_s", "at least 0.001"),
    ],
)
def test_slots_that_can_not_be(demo, problems_of, load_data, slots, path, words):
    """A slot without a day is refused only if slots are requested: the length depends on the
    fabric.
    """
    demo["policy"]["slots"] = slots
    if slots["slot_s"] and "week_s" not in slots:
        load_data(demo)
        demo["policy"].update(sharing="slotted", mode="periodic")
    problem = next(one for one in problems_of(demo) if one.path == path)
    assert words in problem.message


def test_all_problems_come_at_once_in_the_order_of_the_file(demo, problems_of):
    for where, value in [
        (("policy", "max_hopps"), 3),
        (("electrical", "rate_mbps"), NAN),
        ((*W, "ingress"), 99),
        ((*T, "driver"), "nokia"),
        ((*R, "prefixes", 0), "10.0.0.0/24"),
        ((*S, "mac"), "xx"),
    ]:
        change(demo, where, value)
    problems = problems_of(demo)
    assert {p.path for p in problems} >= {
        "racks[0].prefixes[0]",
        "racks[0].tor.driver",
        "racks[0].servers[0].mac",
        "wiring[0].ingress",
        "electrical.rate_mbps",
        "policy.max_hopps",
    }
    assert [p.line for p in problems] == sorted(p.line for p in problems)


def test_a_broken_section_does_not_accuse_the_others(demo, problems_of):
    demo["vlans"] = {"circuits": 100, "parking": 4000}
    assert [p.path for p in problems_of(demo)] == ["vlans.circuits"]


def test_wiring_is_not_accused_of_racks_that_could_not_be_named(demo, problems_of):
    demo["racks"][0]["names"] = "r[1-"
    assert [p.path for p in problems_of(demo)] == ["racks[0].names"]


def test_an_unreadable_subnet_is_the_only_thing_wrong(demo, problems_of):
    demo["subnets"][0] = "10.0.0.0/40"
    assert [p.path for p in problems_of(demo)] == ["subnets[0]"]


def test_a_name_given_twice_shows_the_line_of_the_first(demo, problems_of):
    demo["planes"].append({**demo["planes"][0], "names": "p1", "address": "127.0.0.1:9"})
    (problem,) = (p for p in problems_of(demo) if p.path == "planes[1].names")
    first = int(re.search(r"by plane p1 on line ([0-9]+) \(", problem.message)[1])
    lines = yaml.safe_dump(demo, sort_keys=False).splitlines()
    assert lines[first - 1] == "- names: p[1-2]"
    assert first < problem.line


def test_the_instance_is_named_and_the_rest_counted(demo, problems_of):
    demo["wiring"][0]["ingress"] = 99
    (problem,) = problems_of(demo)
    assert "(for rack r1, plane p1 and 7 more of the same kind)" in problem.message


def test_the_same_prefix_in_two_entries_names_both_racks(demo, problems_of):
    other = copy.deepcopy(demo["racks"][0])
    other |= {"names": "r5", "prefixes": ["10.0.2.128/25"]}
    demo["racks"].append(other)
    problems = [p for p in problems_of(demo) if p.path == "racks[1].prefixes[0]"]
    assert "10.0.2.128/25 overlaps 10.0.2.0/24 of rack r2" in problems[0].message
    assert "for rack r5" in problems[0].message


def test_every_overlap_inside_a_wide_prefix_is_found(demo, problems_of):
    """The wide prefix sorts first; each disjoint narrow prefix behind it must be reported."""
    other = copy.deepcopy(demo["racks"][0])
    other |= {"names": "r5", "prefixes": ["10.0.0.0/21"]}
    demo["racks"].append(other)
    problems = [p for p in problems_of(demo) if p.path == "racks[0].prefixes[0]"]
    assert "10.0.1.0/24 overlaps 10.0.0.0/21 of rack r5" in problems[0].message
    assert "and 3 more of the same kind" in problems[0].message


def test_a_network_address_is_no_server_address(demo, problems_of):
    demo["racks"][0]["prefixes"][0] = "10.0.{rack - 1}.0/24"
    demo["racks"][0]["servers"][0]["addresses"][0] = "10.0.{rack - 1}.{server - 1}/16"
    (problem,) = problems_of(demo)
    assert problem.path == "racks[0].servers[0].addresses[0]"
    assert "10.0.0.0 is the network or broadcast address" in problem.message


def test_the_vlan_bound_is_exactly_three_per_port(demo, load_data, problems_of):
    demo["vlans"]["circuits"] = "100-105"
    assert len(load_data(demo).fabric.circuit_vlans) == 6
    demo["vlans"]["circuits"] = "100-104"
    assert "at least 6" in problems_of(demo)[0].message


def test_an_algorithm_that_can_not_plan_for_the_fabric_is_refused_with_its_line(tmp_path):
    path = tmp_path / "fabric.yaml"
    path.write_text((CONFIGS / "demo.yaml").read_text())
    asked = []

    def objection(fabric):
        asked.append(fabric.name)
        return "its planes differ"

    with pytest.raises(ConfigError) as raised:
        load(
            path,
            optical_drivers=plane_checks(),
            tor_drivers=rack_checks(),
            algorithms={"hydra-bfs": objection},
        )
    (problem,) = raised.value.problems
    assert problem.path == "policy.algorithm"
    assert problem.message == "hydra-bfs can't plan for this fabric: its planes differ"
    assert path.read_text().splitlines()[problem.line - 1].startswith("  algorithm: hydra-bfs")
    assert asked == ["demo"]
