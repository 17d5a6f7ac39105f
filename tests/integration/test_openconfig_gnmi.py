"""The OpenConfig VLAN driver over gNMI with emulated vendors, and another client's view."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pygnmi.client import gNMIclient, gNMIException

from apps.tools.authority import create_authority
from drivers.codecs import openconfig as codec
from drivers.tor.openconfig import NATIVE, SONIC
from drivers.transports.gnmi_session import GnmiSession
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.model import Login, VlanId
from hydra.roles import PortVlans
from mininet_scenarios.emulators.certificate import CA
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.netconfd import YANG
from mininet_scenarios.emulators.openconfig_tor import DEVICE, MAKES
from tests.conformance.tor.devices import openconfig
from tests.waiting import PATIENCE_S, SHORT_S

PLACES = {
    "ethernet": "openconfig-if-ethernet:ethernet",
    "aggregation": "openconfig-if-aggregate:aggregation",
}


def trunk(*vlans: int, native: int | None = None) -> PortVlans:
    tagged = frozenset(VlanId(vlan) for vlan in vlans)
    return PortVlans(tagged, None if native is None else VlanId(native))


@pytest.fixture(scope="module", params=MAKES)
def make(request):
    return request.param


@pytest.fixture(scope="module")
def bench(make):
    with openconfig(make) as bench:
        yield bench


@pytest.fixture
def tor(bench):
    driver = bench.driver()
    yield driver
    bench.admin.clear()
    driver.close()


@pytest.fixture
def stranger(bench):
    """A gNMI client of another project."""
    host, _, port = bench.rack.tor.address.rpartition(":")
    trusted = bench.rack.tor.options["ca_file"]
    with gNMIclient((host, port), DEVICE.user, DEVICE.password, path_cert=trusted) as client:
        yield client


def encoding(make: str) -> str:
    return "json_ietf" if "JSON_IETF" in MAKES[make].encodings else "json"


def vlans_path(port: str, place: str) -> str:
    names = f"{PLACES[place]}/openconfig-vlan:switched-vlan/config"
    return f"/openconfig-interfaces:interfaces/interface[name={port}]/{names}"


def leaves(value: dict) -> dict:
    value = value.get("openconfig-vlan:config", value)  # wrapped, as by SONiC
    return {name.rpartition(":")[2]: found for name, found in value.items()}


def told(stranger: gNMIclient, make: str, path: str) -> dict:
    answer = stranger.get(path=[path], encoding=encoding(make))
    (update,) = answer["notification"][0]["update"]
    return update["val"]


@pytest.mark.parametrize("place", PLACES)
def test_a_client_of_others_sees_what_was_set(bench, make, tor, stranger, place):
    port = bench.ports[0] if place == "ethernet" else bench.ports[-1]
    tor.set_vlans({port: trunk(100, 101, 200, native=10)})
    expected = {"interface-mode": "TRUNK", "native-vlan": 10, "trunk-vlans": [10, "100..101", 200]}
    if make == "sonic":
        expected = {
            "interface-mode": "TRUNK", "access-vlan": 10, "trunk-vlans": ["100..101", 200],
        }  # fmt: skip
    assert leaves(told(stranger, make, vlans_path(port, place))) == expected


def test_what_a_client_of_others_wrote_is_read(bench, make, tor, stranger):
    port, lag = bench.ports[0], bench.ports[-1]
    access = {"interface-mode": "ACCESS", "access-vlan": 9}
    listed = {"interface-mode": "TRUNK", "trunk-vlans": ["5..7", 6]}
    stranger.set(
        replace=[(vlans_path(port, "ethernet"), access), (vlans_path(lag, "aggregation"), listed)],
        encoding=encoding(make),
    )
    assert tor.vlans([port, lag]) == {port: trunk(native=9), lag: trunk(5, 6, 7)}


def test_ports_and_lags_go_in_one_set(bench, tor):
    before = bench.changes()
    wanted = {port: trunk(*range(7, 900, 3), native=4) for port in tor.ports()}
    tor.set_vlans(wanted)
    assert bench.changes() == before + 1
    assert tor.vlans(wanted) == wanted


def test_a_set_that_is_refused_in_one_place_changes_nothing(bench, make, tor, stranger):
    port, other = bench.ports[:2]
    tor.set_vlans({port: trunk(40), other: trunk(40)})
    paths = [vlans_path(port, "ethernet"), vlans_path(other, "aggregation")]
    config = {"interface-mode": "TRUNK", "trunk-vlans": [41]}
    with pytest.raises(gNMIException, match="not written here"):
        stranger.set(replace=[(path, config) for path in paths], encoding=encoding(make))
    assert tor.vlans([port, other]) == {port: trunk(40), other: trunk(40)}


def test_links_and_counters(bench, tor):
    port, other = bench.ports[:2]
    bench.admin.link(other, up=False)
    assert tor.link_up([port, other]) == {port: True, other: False}
    bench.admin.link(other, up=True)
    counted = tor.counters([port])[port]
    assert counted.rx_frames > 0
    assert counted.rx_octets == 100 * counted.rx_frames


def test_a_switch_that_falls_silent_after_a_set_leaves_the_outcome_unknown(bench, monkeypatch):
    """The answer came, and the standing VLANs could not be read."""
    driver, carried_out = bench.driver(timeout_s=SHORT_S), GnmiSession.set
    driver.set_vlans({bench.ports[0]: trunk(50)})

    def set_and_fall_silent(session, request):
        carried_out(session, request)
        bench.admin.fault(FaultKind.MUTE)

    monkeypatch.setattr(GnmiSession, "set", set_and_fall_silent)
    with pytest.raises(
        OutcomeUnknown, match=r"written and not confirmed: .*; read the device back"
    ):
        driver.set_vlans({bench.ports[0]: trunk(51)})
    bench.admin.clear()
    assert driver.vlans(bench.ports[:1]) == {bench.ports[0]: trunk(51)}
    driver.close()


def test_a_password_that_is_wrong_is_named_and_not_shown(bench, monkeypatch):
    monkeypatch.setenv("WRONG", "opensesame")
    wrong = replace(bench, rack=bench.with_tor(login=Login("admin", password_env="WRONG")))
    driver = wrong.driver(timeout_s=PATIENCE_S)
    with pytest.raises(DeviceError, match="does not let admin in; check login") as caught:
        driver.ports()
    assert "opensesame" not in str(caught.value)
    assert not isinstance(caught.value, DeviceUnavailable)
    driver.close()


def test_without_a_file_the_systems_authorities_are_trusted(bench, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(bench.rack.tor.options["ca_file"]))
    driver = replace(bench, rack=bench.with_tor(options={})).driver()
    assert driver.ports()
    driver.close()


def test_another_authority_is_not_trusted(bench, monkeypatch, tmp_path):
    create_authority(tmp_path, "another", 7, datetime.now(UTC))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / CA))
    driver = replace(bench, rack=bench.with_tor(options={})).driver(timeout_s=SHORT_S)
    with pytest.raises(DeviceUnavailable, match=r"certificate with options\.ca_file"):
        driver.ports()
    driver.close()


def _validate(folder: Path, interfaces: object) -> None:
    """Validated by libyang, with HydRA's modules."""
    file = folder / "document.json"
    file.write_text(json.dumps({"openconfig-interfaces:interfaces": interfaces}))
    modules = [str(YANG / f"openconfig-{name}.yang") for name in ("if-aggregate", "vlan")]
    command = ["yanglint", "-p", str(YANG), "-f", "json", "-t", "data", *modules, str(file)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize("make", ["eos", "sonic"], indirect=True, scope="module")
def test_what_is_answered_is_of_the_modules(bench, make, tor, stranger, tmp_path):
    tor.set_vlans({port: trunk(100, 101, native=10) for port in bench.ports})
    answer = told(stranger, make, "/openconfig-interfaces:interfaces")
    interfaces = answer.get("openconfig-interfaces:interfaces", answer)
    listed = interfaces.get("interface") or interfaces["openconfig-interfaces:interface"]
    assert len(listed) == len(tor.ports())
    _validate(tmp_path, {"interface": listed})
    listed[0]["state"]["oper-status"] = "MAYBE"
    with pytest.raises(subprocess.CalledProcessError):
        _validate(tmp_path, {"interface": listed})


@pytest.mark.parametrize("dialect", [NATIVE, SONIC])
@pytest.mark.parametrize("place", PLACES)
def test_what_the_driver_sends_is_of_the_modules(dialect, place, tmp_path):
    sent = codec.config_text(dialect.leaves(trunk(7, 300, 301, native=4094)), with_modules=True)
    switched = {"openconfig-vlan:switched-vlan": {"config": json.loads(sent)}}
    _validate(tmp_path, {"interface": [{"name": "e1", PLACES[place]: switched}]})
