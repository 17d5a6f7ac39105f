"""The Polatis NETCONF driver against netconfd on modules of the same nodes."""

from __future__ import annotations

import logging
import subprocess

import pytest
from lxml import etree

from drivers.optical.polatis_netconf import Options, PolatisNetconf, _reported
from drivers.registry import optical_switch
from hydra.errors import DeviceError, ProtocolError
from hydra.model import CrossConnect, Plane, PlaneId
from hydra.roles import Alarm, AlarmSource, DeviceIdentity, PortState, PowerMeter, Severity
from mininet_scenarios.emulators.netconfd import MODULES, YANG
from tests.waiting import PATIENCE_S

SWITCH = "http://www.polatis.com/yang/optical-switch"
POLATIS = "http://www.polatis.com/yang/polatis-switch"


def pairs(*wanted: tuple[int, int]) -> frozenset[CrossConnect]:
    return frozenset(CrossConnect(a, b) for a, b in wanted)


CIRCUIT = pairs((1, 18), (2, 17))
OTHER = pairs((1, 19), (3, 17))


@pytest.fixture(scope="module")
def driver(server):
    options = Options(host_key=server.host_key, stream="NETCONF")
    driver = PolatisNetconf("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    yield driver
    driver.close()


@pytest.fixture
def switch(driver):
    yield driver
    driver.change(driver.cross_connects(), [])


def test_who_and_how_large(switch):
    assert switch.identity() == DeviceIdentity(
        "Polatis", "I-OST-16x16-LU1-DMHNS", "000042", "6.5.2.18"
    )
    assert switch.size() == (16, 16)
    assert isinstance(switch, PowerMeter)
    assert isinstance(switch, AlarmSource)


@pytest.mark.parametrize(("mode", "warned"), [("volatile", True), ("preserve", False)])
def test_a_switch_that_starts_dark_is_warned_of(switch, server, caplog, mode, warned):
    server.write(
        f'<system-config xmlns="{SWITCH}"><startup-mode xmlns="{POLATIS}">{mode}</startup-mode>'
        "</system-config>"
    )
    switch.close()
    with caplog.at_level(logging.WARNING, "drivers"):
        switch.open()
        switch.open()
    told = [record.message for record in caplog.records if "power cycle" in record.message]
    assert len(told) == warned


def test_attenuators_and_thresholds_are_held_against_what_is_expected(server, caplog):
    limits = {"min_input_dbm": -4.0, "loss_budget_db": 3.0}
    options = Options(host_key=server.host_key, stream="NETCONF", **limits)
    server.write(
        f'<voa xmlns="{SWITCH}"><port><port-id>18</port-id><atten-mode>VOA_MODE_ABSOLUTE'
        "</atten-mode><atten-level>-12.50</atten-level></port></voa>"
        f'<opm-alarm-config xmlns="{SWITCH}"><port><port-id>17</port-id><mode>POWER_ALARM_ENABLED'
        "</mode><signal-low-threshold>-6.00</signal-low-threshold></port></opm-alarm-config>"
    )
    switch = PolatisNetconf("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    with caplog.at_level(logging.WARNING, "drivers"):
        switch.open()
    assert "port 18 limits the light to -12.50 dBm (VOA_MODE_ABSOLUTE)" in caplog.text
    assert "port 17 has an alarm below -6.00 dBm, where -7.00 dBm are to be expected" in caplog.text
    with pytest.raises(DeviceError, match=r"port 18 .*8\.50 dB below .* nothing was moved"):
        switch.change([], CIRCUIT)
    assert switch.cross_connects() == frozenset()
    server.write(
        f'<voa xmlns="{SWITCH}"><port><port-id>18</port-id><atten-mode>VOA_MODE_NONE</atten-mode>'
        "</port></voa>"
    )
    switch.change([], CIRCUIT)
    switch.change(CIRCUIT, [])
    switch.close()


def test_a_circuit_is_made_moved_and_torn_down(switch):
    switch.change([], CIRCUIT)
    assert switch.cross_connects() == CIRCUIT
    switch.change(CIRCUIT, OTHER)
    assert switch.cross_connects() == OTHER
    switch.change(OTHER, [])
    assert switch.cross_connects() == frozenset()


def test_egress_ports_are_exchanged_in_one_edit(switch):
    switch.change([], pairs((1, 17), (2, 18)))
    switch.change(pairs((1, 17), (2, 18)), pairs((1, 18), (2, 17)))
    assert switch.cross_connects() == pairs((1, 18), (2, 17))


def test_a_full_switch_changes_at_once(switch):
    straight = pairs(*((port, 16 + port) for port in range(1, 17)))
    crossed = pairs(*((port, 33 - port) for port in range(1, 17)))
    switch.change([], straight)
    switch.change(straight, crossed)
    assert switch.cross_connects() == crossed


def test_a_repeated_change_writes_nothing(switch, stranger):
    switch.change([], CIRCUIT)
    for datastore in ("running", "candidate"):
        stranger.session.lock(datastore)  # no edit gets past this
    switch.change([], CIRCUIT)
    switch.change(OTHER - CIRCUIT, [])
    for datastore in ("running", "candidate"):
        stranger.session.unlock(datastore)


def test_a_busy_port_is_named_and_nothing_moves(switch):
    switch.change([], CIRCUIT)
    with pytest.raises(DeviceError, match=r"p1: .*port 18 is connected to 1"):
        switch.change([], pairs((5, 21), (3, 18)))
    assert switch.cross_connects() == CIRCUIT


@pytest.mark.parametrize(
    ("pair", "message"),
    [((17, 18), "no ingress port 17: this switch has 1..16"), ((1, 33), "no egress port 33")],
)
def test_ports_that_do_not_exist(switch, pair, message):
    with pytest.raises(DeviceError, match=message):
        switch.change([], pairs((2, 18), pair))
    assert switch.cross_connects() == frozenset()


def test_states_and_power(switch, server):
    server.write(
        f'<port-config xmlns="{SWITCH}"><port><port-id>4</port-id><status>DISABLED</status></port>'
        f"<port><port-id>5</port-id><status>SLEEPING</status></port></port-config>"
        f'<opm-power xmlns="{SWITCH}"><port><port-id>4</port-id><power>-41.07</power></port>'
        f"</opm-power>"
    )
    assert switch.port_states([2, 4, 5]) == {
        2: PortState.ENABLED,
        4: PortState.DISABLED,
        5: PortState.UNKNOWN,
    }
    assert switch.power_dbm([2, 4]) == {2: -3.5, 4: -41.07}
    assert switch.power_dbm([]) == {}
    with pytest.raises(DeviceError, match="no port 33"):
        switch.power_dbm([33])


def test_a_port_without_a_meter_has_no_reading(switch, server):
    server.write(
        f'<opm-power xmlns="{SWITCH}" xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0"><port '
        f'nc:operation="remove"><port-id>7</port-id></port></opm-power>'
    )
    assert switch.power_dbm([7]) == {7: None}


def test_standing_alarms(switch, server):
    assert switch.alarms() == ()
    alarms = "".join(
        f"<alarm><alarm-time>2026-01-0{day}T00:00:00Z</alarm-time><alarm-type>{kind}</alarm-type>"
        f"<alarm-message>{text}</alarm-message></alarm>"
        for day, kind, text in (
            (1, "NOTIF_PORT_POWER", "Low power at port 12"),
            (2, "NOTIF_FAN", "Fan 2 stands still"),
        )
    )
    server.write(f'<system-alarms xmlns="{POLATIS}">{alarms}</system-alarms>')
    assert switch.alarms() == (
        Alarm(Severity.MAJOR, 12, "port-power-alarm", "Low power at port 12"),
        Alarm(Severity.MAJOR, None, "NOTIF_FAN", "Fan 2 stands still"),
    )
    server.write(
        f'<system-alarms xmlns="{POLATIS}" xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0" '
        f'nc:operation="remove"/>'
    )


def test_notifications_that_are_no_alarms_are_no_reports(switch):
    switch.open()
    switch.change([], CIRCUIT)  # the server notifies of the configuration change
    assert switch.reports() == ()


@pytest.mark.parametrize(
    ("name", "alarm"),
    [
        (
            "port-power-alarm",
            Alarm(Severity.MAJOR, 12, "port-power-alarm", "port-id 12, power -60.00"),
        ),
        (
            "port-power-alarm-clear",
            Alarm(Severity.CLEARED, 12, "port-power-alarm", "port-id 12, power -60.00"),
        ),
        (
            "port-power-warn-alarm",
            Alarm(Severity.WARNING, 12, "port-power-warn-alarm", "port-id 12, power -60.00"),
        ),
        ("activity-log-notification", None),
    ],
)
def test_what_notifications_mean(name, alarm):
    element = etree.fromstring(
        f'<{name} xmlns="{SWITCH}"><port-id>12</port-id><power>-60.00</power></{name}>'
    )
    assert _reported(element) == alarm


def test_a_model_without_a_size_is_named(switch, server):
    model = "<product-information xmlns='{}'><model-name>{}</model-name></product-information>"
    server.write(model.format(SWITCH, "N-VST-192xCC-HU1"))
    switch.close()  # the size is asked once per session
    with pytest.raises(DeviceError, match="N-VST-192xCC-HU1' has no size such as 16x16"):
        switch.size()
    server.write(model.format(SWITCH, "I-OST-16x16-LU1-DMHNS"))
    assert switch.size() == (16, 16)


def test_a_device_without_these_modules_is_no_polatis(server):
    """netconfd's own data only: the requested data does not exist there."""
    server.write(
        f'<product-information xmlns="{SWITCH}" xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0" '
        f'nc:operation="remove"/>'
    )
    options = Options(host_key=server.host_key, stream="NETCONF")
    driver = PolatisNetconf("p1", server.address, server.login, options, timeout_s=PATIENCE_S)
    with pytest.raises(ProtocolError, match="the device tells no manufacturer"):
        driver.identity()
    driver.close()
    server.become_polatis(16)


def test_the_registry_builds_it_from_a_plane(server):
    options = {"host_key": server.host_key, "stream": "NETCONF"}
    plane = Plane(
        PlaneId(0), "p7", "polatis-netconf", server.address, 16, 5.0, 100.0, server.login, options
    )
    driver = optical_switch(plane, timeout_s=PATIENCE_S)
    assert (driver.name, driver.size()) == ("p7", (16, 16))
    driver.close()


@pytest.mark.parametrize("module", MODULES)
def test_our_modules_are_yang(module):
    subprocess.run(["yanglint", "-p", str(YANG), str(YANG / f"{module}.yang")], check=True)
