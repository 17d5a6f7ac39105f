"""OpenConfig interfaces in the formats of switches' answers, and the VLANs written by drivers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from drivers.codecs import openconfig
from drivers.codecs.yang_json import YangJsonError
from drivers.registry import TOR, tor_switch
from drivers.tor.openconfig import NATIVE, SONIC, Container, Dialect
from drivers.tor.openconfig_vlan import NetconfInterfaces
from hydra.errors import DeviceError
from hydra.model import Login, Rack, RackId, Tor, VlanId
from hydra.roles import PortVlans
from tests.waiting import PATIENCE_S

ROOT = [("openconfig-interfaces:interfaces", {})]
EVERY_VLAN = range(1, 4095)


def entry(port: str, *below: str) -> list[tuple[str, dict[str, str]]]:
    return [*ROOT, ("interface", {"name": port}), *((name, {}) for name in below)]


def trunk(*vlans: int, native: int | None = None) -> PortVlans:
    tagged = frozenset(VlanId(vlan) for vlan in vlans)
    return PortVlans(tagged, None if native is None else VlanId(native))


def read(dialect: Dialect, port: str, *updates: tuple[list, str]) -> PortVlans:
    interfaces: dict[str, object] = {}
    for path, text in updates:
        openconfig.place(interfaces, path, text.encode())
    assert list(interfaces) == [port]
    place = "aggregation" if openconfig.is_lag(interfaces[port]) else "ethernet"
    leaves = openconfig.leaves_at(interfaces[port], place, "switched-vlan", "config")
    return dialect.membership(leaves or {})


CONFIG = ("openconfig-if-ethernet:ethernet", "openconfig-vlan:switched-vlan", "config")


@pytest.mark.parametrize(
    ("dialect", "port", "updates", "vlans"),
    [
        pytest.param(  # clients of EOS: each member with its module's name
            NATIVE,
            "Ethernet4",
            [
                (
                    entry("Ethernet4", *CONFIG),
                    '{"openconfig-vlan:interface-mode": "TRUNK", "openconfig-vlan:native-vlan": 10,'
                    ' "openconfig-vlan:trunk-vlans": [10, "30..32"]}',
                )
            ],
            trunk(30, 31, 32, native=10),
            id="eos",
        ),
        pytest.param(  # sapcc/networking-ccloud: texts, and LAGs in aggregation
            NATIVE,
            "Port-Channel23",
            [
                (
                    entry("Port-Channel23"),
                    '{"openconfig-interfaces:name": "Port-Channel23", '
                    '"openconfig-interfaces:config": {"type": "iana-if-type:ieee8023adLag"}, '
                    '"openconfig-if-ethernet:ethernet": {"openconfig-vlan:switched-vlan": '
                    '{"config": {"interface-mode": "ACCESS", "access-vlan": 1}}}, '
                    '"openconfig-if-aggregate:aggregation": {"openconfig-vlan:switched-vlan": '
                    '{"config": {"interface-mode": "TRUNK", '
                    '"trunk-vlans": ["2002", "2005", "2323..2325"]}}}}',
                )
            ],
            trunk(2002, 2005, 2323, 2324, 2325),
            id="eos-lag",
        ),
        pytest.param(  # an idle access-vlan beside TRUNK
            NATIVE,
            "loopback1",
            [
                (
                    ROOT,
                    '{"openconfig-interfaces:interfaces": {"interface": [{"name": "loopback1", '
                    '"openconfig-if-ethernet:ethernet": {"openconfig-vlan:switched-vlan": '
                    '{"config": {"access-vlan": 77, "interface-mode": "TRUNK", '
                    '"trunk-vlans": [1, 100]}}}, "state": {"ifindex": 1}}]}}',
                )
            ],
            trunk(1, 100),
            id="idle-access-vlan",
        ),
        pytest.param(  # NX-OS: the native VLAN within a range; a list with one entry as that entry
            NATIVE,
            "eth1/1",
            [
                (
                    [("interfaces", {})],
                    '{"interface": {"name": "eth1/1", "ethernet": {"switched-vlan": {"config": '
                    '{"interface-mode": "TRUNK", "native-vlan": 10, "trunk-vlans": "1..10"}}}}}',
                )
            ],
            trunk(*range(1, 10), native=10),
            id="nxos",
        ),
        pytest.param(  # the port drops untagged frames
            NATIVE,
            "eth1/1",
            [
                (
                    entry("eth1/1", "ethernet", "switched-vlan", "config"),
                    '{"interface-mode": "TRUNK", "native-vlan": 10, "trunk-vlans": [300]}',
                )
            ],
            trunk(300),
            id="native-not-allowed",
        ),
        pytest.param(  # google/gnxi: a leaf an update
            NATIVE,
            "e1",
            [
                (entry("e1", *CONFIG, "interface-mode"), '"TRUNK"'),
                (entry("e1", *CONFIG, "trunk-vlans"), "[5]"),
                (entry("e1", "state", "oper-status"), '"UP"'),
            ],
            trunk(5),
            id="leafwise",
        ),
        pytest.param(  # SONiC's design: trunk and untagged, the node that was asked for around it
            SONIC,
            "Ethernet0",
            [
                (
                    entry("Ethernet0", *CONFIG[:2]),
                    '{"openconfig-vlan:switched-vlan":{"config":{"access-vlan":10,'
                    '"interface-mode":"TRUNK","trunk-vlans":[20,30]},"state":{"access-vlan":10,'
                    '"interface-mode":"TRUNK","trunk-vlans":[20,30]}}}',
                )
            ],
            trunk(20, 30, native=10),
            id="sonic",
        ),
        pytest.param(
            SONIC,
            "PortChannel100",
            [
                (
                    entry("PortChannel100", "openconfig-if-aggregate:aggregation", "switched-vlan"),
                    '{"openconfig-vlan:switched-vlan":{"config":{"access-vlan":10,'
                    '"interface-mode":"ACCESS"}}}',
                )
            ],
            trunk(native=10),
            id="sonic-lag",
        ),
        pytest.param(
            SONIC,
            "Ethernet0",
            [(entry("Ethernet0", *CONFIG), '{"openconfig-vlan:config":{}}')],
            trunk(),
            id="sonic-none",
        ),
        pytest.param(
            NATIVE,
            "e1",
            [(entry("e1", *CONFIG), '{"interface-mode": "TRUNK"}')],
            trunk(*EVERY_VLAN),
            id="no-list-is-all",
        ),
    ],
)
def test_vlans_in_the_shapes_of_switches(dialect, port, updates, vlans):
    assert read(dialect, port, *updates) == vlans


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        (ROOT, "{", "not JSON"),
        (ROOT, "[]", "not an object"),
        (ROOT, '{"interface": [7]}', "not an object: '7'"),
        (ROOT, '{"interface": [{"config": {}}]}', "an interface with the name 'None'"),
        (entry("e1"), '{"name": "e2"}', "an interface with the name 'e2'"),
        ([("vlans", {})], "{}", "an answer about 'vlans', not interfaces"),
        ([*ROOT, ("state", {})], "{}", "an answer about 'interfaces/state', not interfaces"),
        ([], "{}", "an answer about '', not interfaces"),
        (ROOT, '{"interface": ' + "[" * 64 + "]" * 64 + "}", "nested more than 64 levels"),
    ],
)
def test_other_answers_are_refused(path, text, told):
    with pytest.raises(YangJsonError, match=told):
        openconfig.place({}, path, text.encode())


@pytest.mark.parametrize("text", ["0", "4095", "7..5", "1..4095", "1-10", "x", "", "١", "5.."])
def test_what_is_no_vlan(text):
    for leaf in ("trunk-vlans", "native-vlan", "access-vlan"):
        with pytest.raises(YangJsonError, match="where VLANs are expected"):
            openconfig.parse_switched_vlan({leaf: [text]})


def test_interfaces_that_are_not_there_are_answered_by_nothing():
    interfaces: dict[str, object] = {}
    openconfig.place(interfaces, entry("e9"), b"{}")
    assert interfaces == {}


def test_what_is_written():
    vlans = trunk(300, 301, 302, 310, native=7)
    config = json.loads(openconfig.config_text(NATIVE.leaves(vlans), with_modules=True))
    assert config == {
        "openconfig-vlan:interface-mode": "TRUNK",
        "openconfig-vlan:native-vlan": 7,
        "openconfig-vlan:trunk-vlans": [7, "300..302", 310],
    }
    config = json.loads(openconfig.config_text(SONIC.leaves(vlans), with_modules=False))
    assert config == {
        "interface-mode": "TRUNK", "access-vlan": 7, "trunk-vlans": ["300..302", 310],
    }  # fmt: skip


_VLANS = st.integers(1, 4094).map(VlanId)


@pytest.mark.parametrize("dialect", [NATIVE, SONIC])
@given(st.frozensets(_VLANS, min_size=1), st.none() | _VLANS, st.booleans())
def test_what_is_written_reads_the_same(dialect, tagged, native, with_modules):
    vlans = PortVlans(tagged - {native}, native)
    if not vlans.tagged:
        return
    text = openconfig.config_text(dialect.leaves(vlans), with_modules=with_modules).decode()
    assert read(dialect, "e1", (entry("e1", *CONFIG), text)) == vlans


@pytest.mark.parametrize("container", ["config", "state"])
def test_a_lag_is_known_by_either_type(container):
    interface = {container: {"type": "iana-if-type:ieee8023adLag"}}
    assert openconfig.is_lag(interface)
    assert not openconfig.is_lag({container: {"type": "ethernetCsmacd"}})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["TRUNK", "ACCESS", "1..10", "iana-if-type:ieee8023adLag", "UP"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "name", "config", "state", "counters", "interface", "openconfig-if-ethernet:ethernet",
            "aggregation", "openconfig-vlan:switched-vlan", "type", "interface-mode",
            "trunk-vlans", "native-vlan", "in-octets", "openconfig-interfaces:interfaces",
        ]),
        inner, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ROOT, entry("e1"), entry("e1", *CONFIG), entry("e1", "state")]), _JSON
        ),
        max_size=3,
    )
)
def test_any_values_read_or_are_refused(updates):
    interfaces: dict[str, object] = {}
    try:
        for path, value in updates:
            openconfig.place(interfaces, path, json.dumps(value).encode())
        for interface in interfaces.values():
            place = "aggregation" if openconfig.is_lag(interface) else "ethernet"
            leaves = openconfig.leaves_at(interface, place, "switched-vlan", "config")
            openconfig.parse_switched_vlan(leaves or {})
            openconfig.parse_counters(openconfig.leaves_at(interface, "state", "counters") or {})
    except YangJsonError:
        return


RACK = Rack(
    RackId(0), "r1", (),
    Tor("openconfig-vlan-gnmi", "10.0.0.31:6030", "", None, VlanId(1), Login("a", "P"), {}), (),
)  # fmt: skip


def test_what_can_not_work_is_found_before_anything_connects(monkeypatch):
    check = TOR["openconfig-vlan-gnmi"].check
    assert list(check(RACK)) == []
    without = replace(RACK, tor=replace(RACK.tor, login=None, options={"host_key": "any"}))
    assert [problem.path for problem in check(without)] == ["login", "options.host_key"]
    with pytest.raises(DeviceError, match="r1: gNMI wants a login"):
        tor_switch(replace(RACK, tor=replace(RACK.tor, login=None)), PATIENCE_S)
    monkeypatch.setitem(sys.modules, "grpc", None)
    (told,) = check(RACK)
    assert told.path == "driver"
    assert "restconf" not in str(told)


# --- over NETCONF -------------------------------------------------------------------------------

INTERFACES = "http://openconfig.net/yang/interfaces"


class Answers:
    """A NETCONF session that announces these modules, and answers with what it is asked for."""

    def __init__(self, *modules: str) -> None:
        self.capabilities = frozenset(f"{module}?module=m" for module in modules)
        self.asked = ""

    def open(self) -> None: ...

    def get(self, root):
        self.asked = etree.tostring(root).decode()
        data = etree.Element("data")
        data.append(root)
        return data


@pytest.mark.parametrize(
    ("modules", "asked"),
    [
        ((INTERFACES, f"{INTERFACES}/aggregate"), True),
        ((INTERFACES, f"{INTERFACES}/ethernet"), False),  # the server might refuse unknown nodes
        (
            ("urn:ietf:params:xml:ns:yang:ietf-yang-library",),
            True,
        ),  # the server lists its modules there
    ],
)
def test_a_netconf_switch_is_asked_for_lags_if_it_may_have_them(modules, asked):
    session = Answers(*modules)
    found = NetconfInterfaces("r1", session).read(["Ethernet1"], Container.VLANS)
    assert ("aggregation" in session.asked) == asked
    assert session.asked.count("type") == 2
    assert found == {"Ethernet1": {}}
