"""Tests of every driver and device by the contract of :class:`~hydra.roles.OpticalSwitch`."""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import closing

import pytest

from drivers.transports.permit import permitted
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.model import CrossConnect
from hydra.roles import Alarm, AlarmSource, Mirrors, PortState, PowerMeter, Severity
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.ports import free_port
from tests.conformance.candidate import Deviation
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S

pytestmark = pytest.mark.takes(40)


def test_the_registry_takes_the_configuration(bench):
    assert list(bench.module.check(bench.plane)) == []


def test_a_bad_address_is_found_before_anything_connects(bench):
    bad = dataclasses.replace(bench.plane, address="not an address at all")
    assert "address" in {problem.path for problem in bench.module.check(bad)}


def test_an_unknown_option_is_found_before_anything_connects(bench):
    bad = dataclasses.replace(bench.plane, options={**bench.plane.options, "warp_factor": 9})
    assert [problem.path for problem in bench.module.check(bad)] == ["options.warp_factor"]


def test_what_it_can_do_is_what_it_declares(bench, switch):
    # Options may add to the abilities of all devices of a driver.
    always = dataclasses.asdict(bench.module.CAPABILITIES)
    assert {
        name for name, can in always.items() if can and not getattr(switch.capabilities, name)
    } == set()
    assert isinstance(switch, PowerMeter) == switch.capabilities.power_readings
    assert isinstance(switch, AlarmSource) == switch.capabilities.alarms


def test_who_it_is_and_how_large(bench, switch):
    assert switch.name == bench.plane.name
    identity = switch.identity()
    assert identity.vendor and identity.model
    ingress, egress = switch.size()
    assert min(ingress, egress) >= bench.plane.ports


# --- cross-connects -----------------------------------------------------------------------------


def test_circuits_are_made_moved_and_torn_down(switch, slots):
    foreign = switch.cross_connects()
    circuit, other = slots.many((0, 1), (1, 0)), slots.many((0, 2), (2, 1))
    for disconnect, connect in (([], circuit), (circuit, other), (other, [])):
        switch.change(disconnect, connect)
        assert switch.cross_connects() == foreign | set(connect)


def test_another_session_sees_what_this_one_made(bench, switch, slots, deviations):
    switch.change([], slots.many((0, 0)))
    if Deviation.NO_SECOND_SESSION in deviations:
        switch.close()
    other = bench.driver(name="second")
    assert slots.cross(0, 0) in other.cross_connects()
    other.close()


def test_every_free_port_at_once(switch, slots):
    foreign = switch.cross_connects()
    straight = slots.many(*((n, n) for n in range(len(slots.ingress))))
    shifted = slots.many(*((n, n - 1) for n in range(len(slots.ingress))))
    switch.change([], straight)
    switch.change(straight, shifted)
    assert switch.cross_connects() == foreign | shifted


def test_a_port_may_be_given_to_its_own_egress(switch, slots):
    """Fibres are tested by looping a ToR port back to itself."""
    loop = slots.many((0, 0))
    switch.change([], loop)
    assert loop <= switch.cross_connects()


def test_a_repeated_change_moves_nothing(bench, switch, slots):
    circuit, other = slots.many((0, 1), (1, 0)), slots.many((0, 2), (2, 1))
    for disconnect, connect in (([], circuit), (circuit, other), (other, [])):
        switch.change(disconnect, connect)
        moves = bench.moves()
        switch.change(disconnect, connect)
        assert bench.moves() == moves


def test_a_controller_that_leads_no_more_moves_nothing(bench, switch, slots, deviations):
    """Like a controller whose process was stopped during a move of mirrors, and goes on after its
    lease.
    """
    before, moves = switch.cross_connects(), bench.moves()
    if Deviation.NOT_ON_THE_NETWORK not in deviations:
        with permitted(lambda: 0.0), pytest.raises(DeviceError, match="no longer leads"):
            switch.change([], slots.many((0, 1)))
    assert (switch.cross_connects(), bench.moves()) == (before, moves)


def test_an_empty_change_moves_nothing(bench, switch):
    moves, present = bench.moves(), switch.cross_connects()
    switch.change([], [])
    assert (bench.moves(), switch.cross_connects()) == (moves, present)


def test_what_is_torn_down_and_set_up_at_once_stays(bench, switch, slots):
    circuit = slots.many((0, 1), (1, 0))
    switch.change([], circuit)
    moves = bench.moves()
    switch.change(circuit, circuit)
    assert bench.moves() == moves
    assert circuit <= switch.cross_connects()


def test_tearing_down_what_is_not_there_is_harmless(bench, switch, slots):
    switch.change([], slots.many((0, 1)))
    moves = bench.moves()
    switch.change(slots.many((0, 2), (3, 3)), [])
    assert bench.moves() == moves
    assert slots.cross(0, 1) in switch.cross_connects()


@pytest.mark.parametrize(("new", "busy"), [((0, 2), "ingress"), ((2, 1), "egress")])
def test_a_busy_port_is_named_and_nothing_moves(bench, switch, slots, new, busy):
    switch.change([], slots.many((0, 1)))
    before, moves = switch.cross_connects(), bench.moves()
    port = slots.ingress[0] if busy == "ingress" else slots.egress[1]
    with pytest.raises(DeviceError, match=rf"{bench.plane.name}: .*\b{port}\b") as caught:
        switch.change([], slots.many((3, 3), new))
    assert not isinstance(caught.value, OutcomeUnknown | DeviceUnavailable)
    assert (switch.cross_connects(), bench.moves()) == (before, moves)


def test_a_busy_port_is_free_for_the_change_that_tears_it_down(switch, slots):
    switch.change([], slots.many((0, 1)))
    switch.change(slots.many((0, 1)), slots.many((2, 1), (0, 3)))
    assert slots.many((2, 1), (0, 3)) <= switch.cross_connects()


def test_a_port_used_twice_is_named_and_nothing_moves(bench, switch, slots):
    before, moves = switch.cross_connects(), bench.moves()
    with pytest.raises(DeviceError, match=rf"\b{slots.egress[1]}\b"):
        switch.change([], slots.many((0, 1), (2, 1)))
    assert (switch.cross_connects(), bench.moves()) == (before, moves)


@pytest.mark.parametrize("side", ["ingress", "egress"])
@pytest.mark.parametrize("where", ["below", "above"])
def test_a_port_that_does_not_exist_is_named_and_nothing_moves(bench, switch, slots, side, where):
    ingress, egress = switch.size()
    before, moves = switch.cross_connects(), bench.moves()
    bad = {
        ("ingress", "below"): 0,
        ("ingress", "above"): ingress + 1,
        ("egress", "below"): ingress,
        ("egress", "above"): ingress + egress + 1,
    }[side, where]
    pair = (
        CrossConnect(bad, slots.egress[0])
        if side == "ingress"
        else CrossConnect(slots.ingress[0], bad)
    )
    for disconnect, connect in (([], [slots.cross(1, 1), pair]), ([pair], [])):
        with pytest.raises(DeviceError, match=rf"\b{bad}\b"):
            switch.change(disconnect, connect)
    assert (switch.cross_connects(), bench.moves()) == (before, moves)


# --- ports, power, alarms -----------------------------------------------------------------------


def test_port_states(switch, slots):
    ports = [slots.ingress[0], slots.egress[1]]
    states = switch.port_states(ports)
    assert set(states) == set(ports)
    assert set(states.values()) <= set(PortState)
    assert switch.port_states([]) == {}


def test_the_state_of_a_port_that_does_not_exist(switch):
    beyond = sum(switch.size()) + 1
    with pytest.raises(DeviceError, match=rf"\b{beyond}\b"):
        switch.port_states([beyond])


def test_power_is_a_reading_or_none(bench, switch, slots):
    if not switch.capabilities.power_readings:
        assert not hasattr(switch, "power_dbm")
        return
    switch.change([], slots.many((0, 1)))
    ports = [slots.ingress[0], slots.ingress[2], slots.egress[1]]
    readings = switch.power_dbm(ports)
    assert set(readings) == set(ports)
    assert all(value is None or -100 < value < 50 for value in readings.values())
    assert switch.power_dbm([]) == {}
    beyond = sum(switch.size()) + 1
    with pytest.raises(DeviceError, match=rf"\b{beyond}\b"):
        switch.power_dbm([beyond])


@pytest.mark.needs_emulated("power_readings")
def test_light_that_is_too_strong_is_not_let_in(bench, slots, admin):
    options = {**bench.plane.options, "max_input_dbm": -1.0}
    plane = dataclasses.replace(bench.plane, options=options)
    assert list(bench.module.check(plane)) == []
    driver = bench.module.build(plane, bench.timeout_s)
    driver.change([], slots.many((0, 1)))
    before, moves = driver.cross_connects(), bench.moves()
    admin.input_power(slots.ingress[2], 3.2)
    try:
        with pytest.raises(DeviceError, match=rf"port {slots.ingress[2]} receives \+3\.20 dBm"):
            driver.change(slots.many((0, 1)), slots.many((0, 2), (2, 1)))
        assert (driver.cross_connects(), bench.moves()) == (before, moves)
    finally:
        admin.input_power(slots.ingress[2], -2.0)
    driver.change(slots.many((0, 1)), slots.many((0, 2), (2, 1)))
    driver.close()


def test_alarms_are_alarms_and_reports_never_wait(bench, switch):
    if not switch.capabilities.alarms:
        assert not hasattr(switch, "reports")
        return
    assert switch.reports() == ()  # the state is unknown before the first connection
    assert all(isinstance(alarm, Alarm) for alarm in switch.alarms())
    started = time.monotonic()
    assert all(isinstance(alarm, Alarm) for alarm in switch.reports())
    assert time.monotonic() - started < HANGS_S


# --- misuse -------------------------------------------------------------------------------------


def test_opened_twice_and_closed_twice(switch):
    switch.close()
    for _ in range(2):
        switch.open()
    assert min(switch.size()) > 0
    for _ in range(2):
        switch.close()


def test_use_after_close_connects_again(switch, slots):
    switch.change([], slots.many((0, 1)))
    switch.close()
    assert slots.cross(0, 1) in switch.cross_connects()


def test_one_driver_used_by_several_threads(switch, slots):
    """Calls queue up; no call gets another call's reply."""
    size, failures = switch.size(), []

    def work(number: int) -> None:
        mine = slots.many((number, number))
        try:
            for _ in range(5):
                switch.change([], mine)
                assert mine <= switch.cross_connects()
                assert switch.size() == size
                switch.change(mine, [])
        except Exception as error:  # a failure in a thread fails this test
            failures.append(error)

    _run_threads(work, len(slots.ingress))
    assert failures == []


def test_several_drivers_of_one_device(bench, slots, deviations):
    failures, workers = [], len(slots.ingress)
    if (
        Deviation.FIRST_AND_LAST_RACE in deviations
    ):  # a standing cross-connect: neither first nor last
        workers -= 1
        with closing(bench.driver()) as other:
            other.change([], slots.many((workers, workers)))
    together = threading.Semaphore(1 if Deviation.NO_SECOND_SESSION in deviations else 4)

    def work(number: int) -> None:
        mine = slots.many((number, number))
        for _ in range(3):
            with together:
                driver = bench.driver(name=f"driver {number}", timeout_s=PATIENCE_S)
                try:
                    driver.change([], mine)
                    assert mine <= driver.cross_connects()
                    driver.change(mine, [])
                except Exception as error:
                    failures.append(error)
                finally:
                    driver.close()

    _run_threads(work, workers)
    assert failures == []


def _run_threads(work, count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_a_device_that_is_not_there(bench, deviations):
    nobody = f"127.0.0.1:{free_port()}"
    plane = dataclasses.replace(bench.plane, address=nobody)
    if Deviation.NOT_ON_THE_NETWORK in deviations:
        assert [problem.path for problem in bench.module.check(plane)] == ["address"]
        return
    driver = bench.module.build(plane, 1.0)
    for attempt in (driver.open, driver.size, lambda: driver.change([], [CrossConnect(1, 99)])):
        with pytest.raises(DeviceUnavailable, match=nobody):
            attempt()
    driver.close()


# --- a device that fails ------------------------------------------------------------------------


@pytest.mark.needs_fault(FaultKind.REFUSE)
def test_a_refusal_is_told_with_the_devices_reason(switch, slots, admin):
    circuit = slots.many((0, 1), (1, 0))
    admin.fault(FaultKind.REFUSE)
    with pytest.raises(DeviceError, match="refuse") as caught:
        switch.change([], circuit)
    assert not isinstance(caught.value, OutcomeUnknown | DeviceUnavailable)
    assert not circuit & switch.cross_connects()
    admin.clear()
    switch.change([], circuit)
    assert circuit <= switch.cross_connects()


@pytest.mark.needs_fault(FaultKind.REFUSE)
def test_one_refusal_and_nothing_is_made(switch, slots, admin, deviations):
    circuit = slots.many((0, 1), (1, 0), (2, 2))
    admin.fault(FaultKind.REFUSE, times=1)
    with pytest.raises(DeviceError):
        switch.change([], circuit)
    made = circuit & switch.cross_connects()
    if Deviation.ITEMS_ARE_MADE_ONE_BY_ONE in deviations:
        assert made < circuit
    else:
        assert not made
    switch.change([], circuit)
    assert circuit <= switch.cross_connects()


@pytest.mark.needs_fault(FaultKind.SILENT)
def test_silent_success_is_found_out(hasty, slots, admin):
    before, after = slots.many((0, 1)), slots.many((1, 2))
    hasty.change([], before)
    admin.fault(FaultKind.SILENT)
    for disconnect, connect in (([], after), (before, [])):
        with pytest.raises(DeviceError) as caught:
            hasty.change(disconnect, connect)
        assert not isinstance(caught.value, OutcomeUnknown | DeviceUnavailable)
    assert before <= hasty.cross_connects()


@pytest.mark.needs_fault(FaultKind.PARTIAL)
def test_a_half_made_change_names_what_is_missing(hasty, slots, admin):
    admin.fault(FaultKind.PARTIAL, times=1)
    wanted = slots.many((0, 1), (1, 0))
    with pytest.raises(DeviceError) as caught:
        hasty.change([], wanted)
    missing = wanted - hasty.cross_connects()
    assert len(missing) == 1
    for cross_connect in missing:
        assert f"{cross_connect.ingress} to {cross_connect.egress}" in str(caught.value)


@pytest.mark.needs_fault(FaultKind.STEAL)
def test_a_device_that_steals_ports_is_not_given_the_occasion(switch, slots, admin):
    switch.change([], slots.many((0, 1)))
    admin.fault(FaultKind.STEAL)
    with pytest.raises(DeviceError):
        switch.change([], slots.many((0, 2)))
    assert slots.cross(0, 1) in switch.cross_connects()


@pytest.mark.needs_fault(FaultKind.LOSE_REPLY)
def test_a_lost_reply_leaves_the_outcome_unknown_and_repeating_settles_it(hasty, slots, admin):
    circuit = slots.many((0, 1), (1, 0))
    admin.fault(FaultKind.LOSE_REPLY, times=1)
    with pytest.raises(OutcomeUnknown):
        hasty.change([], circuit)
    hasty.change([], circuit)
    assert circuit <= hasty.cross_connects()
    admin.fault(FaultKind.LOSE_REPLY, times=1)
    with pytest.raises(OutcomeUnknown):
        hasty.change(circuit, [])
    hasty.change(circuit, [])
    assert not circuit & hasty.cross_connects()


@pytest.mark.needs_fault(FaultKind.SLOW)
def test_slow_but_in_time(switch, slots, admin):
    admin.fault(FaultKind.SLOW, delay_s=0.02)
    switch.change([], slots.many((0, 1)))
    assert slots.cross(0, 1) in switch.cross_connects()


@pytest.mark.needs_fault(FaultKind.SLOW)
def test_a_reply_that_comes_too_late_is_nobodys(bench, admin):
    """A time-out in mid-command: a late reply must not be taken for the next reply."""
    driver = bench.driver(timeout_s=SHORT_S)
    size = driver.size()
    before = driver.cross_connects()
    admin.fault(FaultKind.SLOW, delay_s=1.5 * SHORT_S)
    with pytest.raises(DeviceUnavailable, match=rf"{SHORT_S:g} s"):
        driver.cross_connects()
    admin.clear()
    time.sleep(SHORT_S)  # timed: the late reply arrives meanwhile
    assert driver.cross_connects() == before
    assert driver.size() == size
    driver.close()


@pytest.mark.needs_fault(FaultKind.MUTE)
@pytest.mark.quiet("tells one time-out from two")
def test_a_mute_device_costs_one_time_out(bench, admin):
    driver = bench.driver(timeout_s=SHORT_S)
    driver.open()
    admin.fault(FaultKind.MUTE)
    started = time.monotonic()
    with pytest.raises(DeviceUnavailable):
        driver.cross_connects()
    assert time.monotonic() - started < 1.5 * SHORT_S
    admin.clear()
    assert isinstance(driver.cross_connects(), frozenset)
    driver.close()


@pytest.mark.needs_fault(FaultKind.DEAD)
def test_dead_and_back(switch, slots, admin):
    circuit, other = slots.many((0, 1), (1, 0)), slots.many((0, 2), (2, 0))
    switch.change([], circuit)
    admin.fault(FaultKind.DEAD)
    for _ in range(2):
        with pytest.raises(DeviceUnavailable):
            switch.change(circuit, other)
    admin.clear()
    assert circuit <= switch.cross_connects()
    switch.change(circuit, other)
    assert other <= switch.cross_connects()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(kind, marks=pytest.mark.needs_fault(kind))
        for kind in (FaultKind.GARBLED, FaultKind.HALF_A_LINE)
    ],
)
def test_what_a_bad_line_makes_of_a_reply_is_not_believed(bench, slots, admin, fault):
    driver = bench.driver(timeout_s=SHORT_S)
    driver.open()
    circuit, before = slots.many((0, 1), (1, 0)), driver.cross_connects()
    admin.fault(fault)
    with pytest.raises(DeviceError):
        driver.change([], circuit)
    with pytest.raises(DeviceError):
        driver.cross_connects()
    admin.clear()
    driver.change([], circuit)
    assert driver.cross_connects() == before | circuit
    driver.close()


@pytest.mark.needs_fault(FaultKind.KILL)
def test_a_connection_lost_in_the_middle_of_a_change(hasty, slots, admin):
    """A lost serial line gives no error: the change takes its full time."""
    circuit = slots.many((0, 1), (1, 0))
    admin.fault(FaultKind.KILL, times=1)
    with pytest.raises(OutcomeUnknown):
        hasty.change([], circuit)
    hasty.change([], circuit)
    assert circuit <= hasty.cross_connects()


@pytest.mark.needs_fault(FaultKind.NO_LIGHT)
def test_a_cross_connect_that_exists_and_is_in_fault(hasty, slots, admin):
    """A dark cross-connect is reported and shown, and a repeated request makes the cross-connect
    anew.
    """
    bad, good = slots.cross(0, 1), slots.cross(2, 2)
    hasty.change([], [good])
    admin.fault(FaultKind.NO_LIGHT, times=1)
    with pytest.raises(DeviceError, match=f"{bad.ingress} to {bad.egress}") as caught:
        hasty.change([], [bad])
    assert not isinstance(caught.value, OutcomeUnknown | DeviceUnavailable)
    assert {bad, good} <= hasty.cross_connects()
    assert hasty.mirrors().dark == {bad}
    hasty.change([good], [bad])
    assert bad in hasty.mirrors().lit


@pytest.mark.needs_fault(FaultKind.RESERVED)
def test_a_cross_connect_that_is_reserved_and_never_active(bench, slots, admin):
    switch, wanted = bench.driver(timeout_s=SHORT_S), slots.cross(0, 1)
    admin.fault(FaultKind.RESERVED, times=1)
    with pytest.raises(DeviceError, match=f"{wanted.ingress} to {wanted.egress}") as caught:
        switch.change([], [wanted])
    assert not isinstance(caught.value, OutcomeUnknown | DeviceUnavailable)
    assert switch.mirrors() == Mirrors(switch.cross_connects(), frozenset({wanted}))
    with pytest.raises(DeviceError, match=f"port {wanted.egress} is connected to"):
        switch.change([], [slots.cross(2, 1)])  # its ports are not free
    switch.change([], [wanted])
    assert wanted in switch.mirrors().lit
    switch.close()


# --- the ways of TL1 ----------------------------------------------------------------------------


def _is_used_as_ever(switch, slots) -> None:
    circuit, other = slots.many((0, 1), (1, 0), (2, 2)), slots.many((0, 2), (2, 0))
    size = switch.size()
    switch.change([], circuit)
    assert circuit <= switch.cross_connects()
    switch.change(circuit, other)
    assert other <= switch.cross_connects()
    assert set(switch.port_states(slots.ingress)) == set(slots.ingress)
    assert switch.size() == size


@pytest.mark.needs_fault(FaultKind.AUTONOMOUS)
def test_messages_between_commands_and_replies(switch, slots, admin):
    admin.fault(FaultKind.AUTONOMOUS)
    _is_used_as_ever(switch, slots)


@pytest.mark.needs_fault(FaultKind.BLOCKS)
def test_replies_in_many_blocks(switch, slots, admin):
    admin.fault(FaultKind.BLOCKS)
    _is_used_as_ever(switch, slots)


@pytest.mark.needs_fault(FaultKind.ECHO)
def test_echoes(switch, slots, admin):
    admin.fault(FaultKind.ECHO)
    _is_used_as_ever(switch, slots)


@pytest.mark.needs_fault(FaultKind.IDLE_LOGOUT)
def test_a_session_that_was_logged_out_logs_in_again(switch, slots, admin):
    switch.open()
    for _ in range(5):
        admin.fault(FaultKind.IDLE_LOGOUT, times=1)
        _is_used_as_ever(switch, slots)
        switch.change(switch.cross_connects() & slots.many((0, 2), (2, 0)), [])


@pytest.mark.needs_fault(FaultKind.WRONG_CTAG)
def test_somebody_elses_reply_is_not_taken(bench, slots, admin):
    switch = bench.driver(timeout_s=SHORT_S)
    switch.open()
    admin.fault(FaultKind.WRONG_CTAG, times=1)
    with pytest.raises(DeviceUnavailable, match=rf"no answer within {SHORT_S:g} s"):
        switch.cross_connects()
    _is_used_as_ever(switch, slots)
    switch.close()


# --- power, shutters and alarms of emulated devices ---------------------------------------------


@pytest.mark.needs_emulated("power_readings")
def test_power_follows_the_light(switch, slots, admin):
    ingress, egress = slots.ingress[0], slots.egress[1]
    admin.input_power(ingress, -7.5)
    switch.change([], slots.many((0, 1)))
    readings = switch.power_dbm([ingress, egress])
    assert readings[ingress] == pytest.approx(-7.5)
    assert -10 < readings[egress] < -7.5
    admin.input_power(ingress, None)
    dark = switch.power_dbm([ingress, egress])
    assert all(value is None or value < -40 for value in dark.values())
    admin.input_power(ingress, -2.0)


@pytest.mark.needs_emulated("alarms")
def test_alarms_stand_and_are_reported_as_they_begin_and_end(switch, slots, admin):
    port = slots.ingress[0]
    switch.change([], slots.many((0, 1)))  # some devices raise alarms only for ports in use
    switch.reports()
    admin.alarm(port, "CR", "LOS", "no light; see fibre 7")
    standing = [alarm for alarm in switch.alarms() if alarm.port == port]
    assert [alarm.severity for alarm in standing] == [Severity.CRITICAL]
    admin.alarm(port, "CL", "LOS")
    assert not [alarm for alarm in switch.alarms() if alarm.port == port]
    reported = switch.reports()
    assert [(a.severity, a.port, a.code) for a in reported] == [
        (Severity.CRITICAL, port, "LOS"),
        (Severity.CLEARED, port, "LOS"),
    ]
    assert reported[0].text == "no light; see fibre 7"
    assert switch.reports() == ()
