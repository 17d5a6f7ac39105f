"""The driver of SONiC ToRs with an emulated switch, and another client's view."""

from __future__ import annotations

import pytest
import redis
from pygnmi.client import gNMIclient

from drivers.codecs import sonic_vlans
from drivers.codecs.yang_json import YangJsonError
from hydra.errors import DeviceError, OutcomeUnknown, ProtocolError
from hydra.model import VlanId
from hydra.roles import PortVlans
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.sonic_databases import NUMBERS, SOCKET
from tests.conformance.tor.devices import SONIC, sonic
from tests.waiting import PATIENCE_S, SHORT_S

MEMBERS = "sonic-db:CONFIG_DB/localhost/VLAN_MEMBER"


def trunk(*vlans: int, native: int | None = None) -> PortVlans:
    tagged = frozenset(VlanId(vlan) for vlan in vlans)
    return PortVlans(tagged, None if native is None else VlanId(native))


@pytest.fixture(scope="module")
def bench():
    with sonic() as bench:
        yield bench


@pytest.fixture
def tor(bench):
    driver = bench.driver(timeout_s=PATIENCE_S)
    yield driver
    bench.admin.clear()
    driver.close()


@pytest.fixture
def database(bench):
    """The configuration, as seen at the switch's console."""
    folder = bench.rack.tor.options["ca_file"].rpartition("/")[0]
    path, number = f"{folder}/{SOCKET}", NUMBERS["CONFIG_DB"]
    with redis.Redis(unix_socket_path=path, db=number, decode_responses=True) as client:
        yield client


def test_a_client_of_others_sees_what_was_set(bench, tor, monkeypatch):
    tor.set_vlans({"Ethernet0": trunk(100, 200, native=10)})
    host, _, port = bench.rack.tor.address.rpartition(":")
    trusted = bench.rack.tor.options["ca_file"]
    with gNMIclient((host, port), SONIC.user, SONIC.password, path_cert=trusted) as client:
        answer = client.get(path=[MEMBERS], encoding="json_ietf")
    (update,) = answer["notification"][0]["update"]
    mine = {key: row for key, row in update["val"].items() if key.endswith("|Ethernet0")}
    assert mine == {
        "Vlan10|Ethernet0": {"tagging_mode": "untagged"},
        "Vlan100|Ethernet0": {"tagging_mode": "tagged"},
        "Vlan200|Ethernet0": {"tagging_mode": "tagged"},
    }


def test_vlans_are_made_and_those_of_others_stay(tor, database):
    database.hset("VLAN|Vlan77", mapping={"vlanid": "77", "description": "theirs"})
    database.hset("VLAN_MEMBER|Vlan77|Ethernet16", mapping={"tagging_mode": "tagged"})
    tor.set_vlans({"Ethernet4": trunk(77, 78)})
    tor.set_vlans({"Ethernet4": trunk(79)})
    assert database.hgetall("VLAN|Vlan77") == {"vlanid": "77", "description": "theirs"}
    assert database.hgetall("VLAN|Vlan78") == {"vlanid": "78"}
    assert tor.vlans(["Ethernet16"]) == {"Ethernet16": trunk(77)}
    assert not database.exists("VLAN_MEMBER|Vlan77|Ethernet4")


def test_what_is_configured_and_not_carried_out_is_found_out(bench):
    driver = bench.driver(timeout_s=SHORT_S)
    driver.set_vlans({"Ethernet8": trunk(300)})
    bench.admin.fault(FaultKind.RESERVED)
    with pytest.raises(DeviceError, match="Ethernet8 is configured as asked, and the") as caught:
        driver.set_vlans({"Ethernet8": trunk(301)})
    assert not isinstance(caught.value, OutcomeUnknown)
    bench.admin.clear()
    driver.set_vlans({"Ethernet8": trunk(302)})
    driver.close()


def test_links_are_those_of_the_state_database(bench, tor):
    assert tor.link_up(["Ethernet0", "Ethernet12"]) == {"Ethernet0": True, "Ethernet12": True}
    bench.admin.link("Ethernet12", up=False)
    assert tor.link_up(["Ethernet0", "Ethernet12"]) == {"Ethernet0": True, "Ethernet12": False}


def test_ports_go_by_their_numbers(tor):
    assert tor.ports()[:4] == ("Ethernet0", "Ethernet4", "Ethernet8", "Ethernet12")


def test_a_port_that_is_untagged_in_two_vlans_is_not_understood(tor, database):
    for vlan in (501, 502):
        database.hset(f"VLAN_MEMBER|Vlan{vlan}|Ethernet20", mapping={"tagging_mode": "untagged"})
    with pytest.raises(ProtocolError, match="Ethernet20 is untagged in two VLANs"):
        tor.vlans(["Ethernet20"])
    database.delete("VLAN_MEMBER|Vlan501|Ethernet20", "VLAN_MEMBER|Vlan502|Ethernet20")


@pytest.mark.parametrize("key", ["Vlan0|Ethernet0", "Vlan4095|Ethernet0", "Vlan1", "100|Ethernet0"])
def test_what_is_no_member(key):
    with pytest.raises(YangJsonError, match="not a port in a VLAN"):
        sonic_vlans.parse_member(key)


def test_a_mode_that_is_not_known():
    with pytest.raises(YangJsonError, match="tagging_mode 'dot1q'"):
        sonic_vlans.is_untagged("Vlan1|Ethernet0", {"tagging_mode": "dot1q"})
