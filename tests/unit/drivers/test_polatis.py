"""The Polatis driver against the emulated switch, on a real socket, with every fault."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from drivers.optical.polatis_scpi import PolatisScpi
from drivers.registry import optical_switch
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, UnknownName
from hydra.model import CrossConnect, Plane, PlaneId
from hydra.roles import DeviceIdentity, PortState
from mininet_scenarios.emulators.admin import AdminError
from mininet_scenarios.emulators.faults import FaultKind
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S


def pairs(*wanted: tuple[int, int]) -> frozenset[CrossConnect]:
    return frozenset(CrossConnect(a, b) for a, b in wanted)


CIRCUIT = pairs((1, 18), (2, 17))
OTHER = pairs((1, 19), (3, 17))


def test_who_and_how_large(switch):
    assert switch.identity() == DeviceIdentity(
        "Polatis", "N-VST-16x16-LU1-DMHNV", "000042", "6.5.2.18"
    )
    assert switch.size() == (16, 16)
    assert switch.name == "p1"
    assert switch.capabilities.bulk


def test_a_circuit_is_made_moved_and_torn_down(switch):
    switch.change([], CIRCUIT)
    assert switch.cross_connects() == CIRCUIT
    switch.change(CIRCUIT, OTHER)
    assert switch.cross_connects() == OTHER
    switch.change(OTHER, [])
    assert switch.cross_connects() == frozenset()


def test_a_full_switch_changes_in_two_commands(switch, emulator):
    straight = pairs(*((port, 16 + port) for port in range(1, 17)))
    crossed = pairs(*((port, 33 - port) for port in range(1, 17)))
    before = emulator.admin.counters().moves
    switch.change([], straight)
    switch.change(straight, crossed)
    assert switch.cross_connects() == crossed
    assert emulator.admin.counters().moves == before + 3  # add; sub, add


def test_a_repeated_change_moves_nothing(switch, emulator):
    for disconnect, connect in (([], CIRCUIT), (CIRCUIT, OTHER), (OTHER, [])):
        switch.change(disconnect, connect)
        moves = emulator.admin.counters().moves
        switch.change(disconnect, connect)
        assert emulator.admin.counters().moves == moves


def test_what_is_both_torn_down_and_set_up_stays(switch, emulator):
    switch.change([], CIRCUIT)
    moves = emulator.admin.counters().moves
    switch.change(CIRCUIT, CIRCUIT)
    assert emulator.admin.counters().moves == moves
    assert switch.cross_connects() == CIRCUIT


@pytest.mark.parametrize(("busy", "new"), [(1, (1, 19)), (18, (3, 18))])
def test_a_busy_port_is_named_with_its_peer_and_nothing_moves(switch, emulator, busy, new):
    switch.change([], CIRCUIT)
    moves = emulator.admin.counters().moves
    peer = {1: 18, 18: 1}[busy]
    with pytest.raises(DeviceError, match=f"p1: .*port {busy} is connected to {peer}"):
        switch.change([], pairs((5, 21), new))
    assert switch.cross_connects() == CIRCUIT
    assert emulator.admin.counters().moves == moves


def test_somebody_elses_connection_is_respected(switch, emulator):
    ingress, egress = emulator.admin.block_port(3)
    with pytest.raises(DeviceError, match=f"port 3 is connected to {egress}"):
        switch.change([], pairs((3, 17)))
    assert switch.cross_connects() == pairs((ingress, egress))


def test_a_port_used_twice_in_one_change(switch):
    with pytest.raises(DeviceError, match="port 17 is used twice"):
        switch.change([], pairs((1, 17), (2, 17)))


@pytest.mark.parametrize(
    ("pair", "message"),
    [((17, 18), "no ingress port 17: this switch has 1..16"), ((1, 16), "no egress port 16"),
     ((0, 17), "no ingress port 0"), ((1, 33), "no egress port 33: this switch has 17..32")],
)  # fmt: skip
def test_ports_that_do_not_exist(switch, pair, message):
    with pytest.raises(DeviceError, match=message):
        switch.change([], pairs((2, 18), pair))
    assert switch.cross_connects() == frozenset()


def test_port_states(switch, emulator):
    with raw(emulator) as device:
        device.sendall(b":oxc:swit:port:dis (@4)\r\n*opc?\r\n")
        assert device.recv(10) == b"1\r"
        assert switch.port_states([2, 4]) == {2: PortState.ENABLED, 4: PortState.DISABLED}
        device.sendall(b":oxc:swit:port:enab (@4)\r\n*opc?\r\n")
        assert device.recv(10) == b"1\r"
    assert switch.port_states([4]) == {4: PortState.ENABLED}
    assert switch.port_states([]) == {}
    with pytest.raises(DeviceError, match="no port 33"):
        switch.port_states([33])


def test_change_returns_when_the_mirrors_have_settled(emulator):
    switch = PolatisScpi("p1", emulator.address, timeout_s=PATIENCE_S)
    switch.open()
    started = time.monotonic()
    switch.change([], CIRCUIT)
    assert time.monotonic() - started >= 0.005
    switch.close()


# --- faults -------------------------------------------------------------------------------------


def test_refused(switch, emulator):
    emulator.admin.fault(FaultKind.REFUSE, times=1)
    with pytest.raises(DeviceError, match=r"reports -200 Execution error.*not connected: 1 to 18"):
        switch.change([], CIRCUIT)
    switch.change([], CIRCUIT)
    assert switch.cross_connects() == CIRCUIT


@pytest.mark.parametrize(
    ("before", "disconnect", "connect", "message"),
    [
        ([], [], CIRCUIT, "reports no error; not connected: 1 to 18, 2 to 17"),
        (CIRCUIT, CIRCUIT, [], "reports no error; still connected: 1 to 18, 2 to 17"),
    ],
)
def test_silent_success_is_found_out(switch, emulator, before, disconnect, connect, message):
    switch.change([], before)
    emulator.admin.fault(FaultKind.SILENT)
    with pytest.raises(DeviceError, match=message) as caught:
        switch.change(disconnect, connect)
    assert not isinstance(caught.value, OutcomeUnknown)
    assert switch.cross_connects() == frozenset(before)


def test_a_half_made_change_is_found_out(switch, emulator):
    emulator.admin.fault(FaultKind.PARTIAL, times=1)
    with pytest.raises(DeviceError, match=r"no error; not connected: 2 to 17$"):
        switch.change([], CIRCUIT)


def test_a_lost_reply_leaves_the_outcome_unknown_and_repeating_settles_it(switch, emulator):
    emulator.admin.fault(FaultKind.LOSE_REPLY, times=1)
    with pytest.raises(OutcomeUnknown):
        switch.change([], CIRCUIT)
    assert (
        switch.cross_connects() == CIRCUIT
    )  # the change had taken effect; the driver reconnects by itself
    switch.change([], CIRCUIT)


def test_slow_but_in_time(switch, emulator):
    emulator.admin.fault(FaultKind.SLOW, delay_s=0.05)
    switch.change([], CIRCUIT)
    assert switch.cross_connects() == CIRCUIT


def test_too_slow(emulator):
    switch = PolatisScpi("p1", emulator.address, timeout_s=SHORT_S)
    assert switch.size() == (16, 16)
    emulator.admin.fault(FaultKind.SLOW, delay_s=2 * SHORT_S)
    started = time.monotonic()
    with pytest.raises(DeviceUnavailable, match=r"no answer within 2 s"):
        switch.change([], CIRCUIT)
    assert time.monotonic() - started < HANGS_S
    switch.close()


def test_mute(emulator):
    switch = PolatisScpi("p1", emulator.address, timeout_s=SHORT_S)
    emulator.admin.fault(FaultKind.MUTE)
    with pytest.raises(DeviceUnavailable):
        switch.cross_connects()
    emulator.admin.clear()
    assert switch.cross_connects() == frozenset()
    switch.close()


def test_dead_and_back(switch, emulator):
    switch.change([], CIRCUIT)
    emulator.admin.fault(FaultKind.DEAD)
    for _ in range(2):
        with pytest.raises(DeviceUnavailable, match="refused"):
            switch.change(CIRCUIT, OTHER)
    emulator.admin.clear()
    assert switch.cross_connects() == CIRCUIT
    switch.change(CIRCUIT, OTHER)
    assert switch.cross_connects() == OTHER


# --- the emulated device itself -----------------------------------------------------------------


def raw(emulator) -> socket.socket:
    host, _, port = emulator.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def ask(device: socket.socket, line: bytes) -> bytes:
    device.sendall(line)
    reply = b""
    while not reply.endswith(b"\r"):
        reply += device.recv(1000)
    return reply


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (b":oxc:swit:conn:nonsense (@1)", b"-113,"),
        (b":oxc:swit:conn:add (@1),(@99)", b"-222,"),
        (b":oxc:swit:conn:add (@1,2),(@17)", b"-222,"),
        (b":oxc:swit:conn:add (@1,2),(@17,17)", b"-221,"),
        (b":oxc:swit:conn:add (@1)", b"-109,"),
        (b":oxc:swit:conn:add 1,17", b"-102,"),
        (b"\xff\xfe", b"-102,"),
    ],
)
def test_the_device_tells_errors_only_when_asked(emulator, command, code):
    with raw(emulator) as device:
        assert ask(device, b"*cls;*opc?\r\n") == b"1\r"
        assert ask(device, command + b";*opc?\r\n") == b"1\r"
        assert ask(device, b":syst:err:all?\r\n").startswith(code)
        assert ask(device, b":syst:err:all?\r\n") == b'0,"No error"\r'


def test_the_device_takes_commands_in_any_case_and_in_pieces(emulator):
    with raw(emulator) as device:
        device.sendall(b":OXC:SWIT:CO")
        time.sleep(0.02)  # timed: the device reads a part of a command
        assert ask(device, b"NN:ONLY (@4,5),(@20,21);*OPC?\r") == b"1\r"
        assert ask(device, b":oxc:swit:conn:stat?;:oxc:swit:conn:port? 4\n") == (
            b'(@4,5),(@20,21);"20"\r'
        )
        assert ask(device, b":oxc:swit:conn:sub (@4),(@);*opc?\r\n") == b"1\r"
        assert ask(device, b":oxc:swit:conn:port? 4\r\n") == b'""\r'


def test_several_clients_at_once(emulator):
    def work(number: int) -> None:
        driver = PolatisScpi(f"client {number}", emulator.address, timeout_s=PATIENCE_S)
        mine = pairs((number, 16 + number))
        for _ in range(5):
            driver.change([], mine)
            driver.change(mine, [])
        driver.change([], mine)
        driver.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    reader = PolatisScpi("reader", emulator.address, timeout_s=PATIENCE_S)
    assert reader.cross_connects() == pairs(*((n, 16 + n) for n in range(1, 5)))
    reader.close()


@pytest.mark.parametrize(
    "order",
    [
        {"op": "explode"},
        {"op": "fault", "fault": "nothing"},
        {"op": "fault", "fault": "slow", "delay_s": "long"},
        {"op": "fault", "fault": "refuse", "times": 0},
        {"op": "block-port", "port": 99},
        {"op": "block-port", "port": "3"},
        ["counters"],
    ],
)
def test_bad_orders_to_the_admin_socket_are_refused(emulator, order):
    with pytest.raises(AdminError, match="refuses"):
        emulator.admin._order(order if isinstance(order, dict) else {"op": order})
    assert emulator.admin.counters().dark_frames == 0


# --- the registry -------------------------------------------------------------------------------


def test_the_registry_knows_its_drivers(emulator):
    plane = Plane(PlaneId(0), "p7", "polatis-scpi", emulator.address, 16, 5.0, 100.0)
    switch = optical_switch(plane, timeout_s=PATIENCE_S)
    assert (switch.name, switch.size()) == ("p7", (16, 16))
    switch.close()


def test_the_registry_names_an_unknown_driver():
    plane = Plane(PlaneId(0), "p7", "nonsense", "127.0.0.1:1", 16, 5.0, 100.0)
    with pytest.raises(
        UnknownName, match=r"plane p7: no driver 'nonsense' \(there are: .*polatis-scpi"
    ):
        optical_switch(plane, timeout_s=PATIENCE_S)
