"""Tests of every driver and device by the contract of :class:`~hydra.roles.TorSwitch`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import partial

import pytest

from drivers.registry import tor_switch
from drivers.transports.permit import permitted
from hydra.errors import DeviceError, DeviceUnavailable, HeldElsewhere, OutcomeUnknown
from hydra.model import VlanId
from hydra.roles import Claimable, CounterReader, PortVlans
from mininet_scenarios.emulators.faults import FaultKind
from tests.conformance.tor.candidate import TorDeviation
from tests.waiting import PATIENCE_S, SHORT_S

pytestmark = pytest.mark.takes(20)

retags = pytest.mark.tor_conforms(TorDeviation.NO_VLANS)


def trunk(*vlans: int, native: int | None = None) -> PortVlans:
    tagged = frozenset(VlanId(vlan) for vlan in vlans)
    return PortVlans(tagged, None if native is None else VlanId(native))


def test_the_registry_takes_the_configuration(bench):
    assert list(bench.module.check(bench.rack)) == []


def test_a_bad_address_is_found_before_anything_connects(bench):
    bad = bench.with_tor(address="not an address at all", options={})
    assert [problem.path for problem in bench.module.check(bad)] == ["address"]


def test_an_unknown_option_is_found_before_anything_connects(bench):
    bad = bench.with_tor(options={**bench.rack.tor.options, "warp_factor": 9})
    assert [problem.path for problem in bench.module.check(bad)] == ["options.warp_factor"]


def test_what_it_can_do_is_what_it_declares(bench, tor):
    assert tor.name == bench.rack.name
    assert tor.capabilities == bench.module.CAPABILITIES
    assert isinstance(tor, CounterReader) == tor.capabilities.counters
    assert isinstance(tor, Claimable) == tor.capabilities.claims


# --- VLANs --------------------------------------------------------------------------------------


@retags
def test_membership_is_replaced_not_added_to(bench, tor):
    port = bench.ports[0]
    for vlans in (trunk(300, 301, 302), trunk(302, 17), trunk(4094)):
        tor.set_vlans({port: vlans})
        assert tor.vlans([port]) == {port: vlans}


@retags
def test_an_untagged_vlan_comes_and_goes(bench, tor):
    port = bench.ports[0]
    for vlans in (trunk(300, native=10), trunk(300), trunk(10, 300, native=11), trunk(11)):
        tor.set_vlans({port: vlans})
        assert tor.vlans([port]) == {port: vlans}


@retags
def test_ports_that_differ_change_at_once(bench, tor):
    for first in (100, 2100):
        wanted = {
            port: trunk(*range(first + number, first + number + 900, 3), native=9)
            for number, port in enumerate(bench.ports)
        }
        tor.set_vlans(wanted)
        assert tor.vlans(bench.ports) == wanted


@retags
def test_ports_that_are_not_named_stay(bench, tor):
    tor.set_vlans({port: trunk(400) for port in bench.ports})
    tor.set_vlans({bench.ports[0]: trunk(401)})
    assert tor.vlans(bench.ports[1:]) == {port: trunk(400) for port in bench.ports[1:]}


@retags
def test_another_session_sees_what_this_one_wrote(bench, tor, deviations):
    tor.set_vlans({bench.ports[0]: trunk(500, 4000)})
    if TorDeviation.NO_SECOND_SESSION in deviations:
        tor.close()
    other = bench.driver()
    assert other.vlans(bench.ports[:1]) == {bench.ports[0]: trunk(500, 4000)}
    other.close()


@retags
def test_the_same_again_changes_nothing(bench, tor):
    wanted = {port: trunk(600, native=3) for port in bench.ports}
    tor.set_vlans(wanted)
    changes = bench.changes()
    tor.set_vlans(wanted)
    assert bench.changes() == changes
    assert tor.vlans(bench.ports) == wanted


@retags
def test_a_controller_that_leads_no_more_writes_nothing(bench, tor):
    """Like a controller whose process was stopped during a retag, and goes on after its lease."""
    tor.set_vlans({bench.ports[0]: trunk(610)})
    changes = bench.changes()
    with permitted(lambda: 0.0), pytest.raises(DeviceError, match="no longer leads"):
        tor.set_vlans({bench.ports[0]: trunk(611)})
    assert bench.changes() == changes
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: trunk(610)}


@pytest.mark.tor_ability("claims")
def test_a_switch_that_a_later_leader_has_held_stays_closed_to_earlier_ones(bench, tor):
    """A claim outlives sessions, and a request begun by an earlier leader is refused, too."""
    port = bench.ports[0]
    later = bench.driver()
    tor.claim(1 << 28)
    tor.set_vlans({port: trunk(620)})
    later.claim(2 << 28)
    later.close()
    with pytest.raises(HeldElsewhere):
        tor.set_vlans({port: trunk(621)})
    later.set_vlans({port: trunk(622)})
    with pytest.raises(HeldElsewhere):
        tor.vlans([port])
    assert later.vlans([port]) == {port: trunk(622)}
    later.close()


def test_nothing_asked_is_nothing_done(tor):
    tor.set_vlans({})
    assert tor.vlans([]) == {}
    assert tor.link_up([]) == {}


@pytest.mark.parametrize(
    ("vlans", "message"),
    [
        (trunk(100, 0), r"VLAN 0 is outside 1\.\.4094"),
        (trunk(100, 4095), r"VLAN 4095 is outside 1\.\.4094"),
        (trunk(100, native=5000), r"VLAN 5000 is outside 1\.\.4094"),
        (trunk(), "empty trunk would carry all VLANs"),
        (trunk(native=10), "empty trunk would carry all VLANs"),
        (trunk(10, native=10), "VLAN 10 can't be both native and tagged"),
    ],
)
@retags
def test_meaningless_memberships_are_refused_and_nothing_is_written(bench, tor, vlans, message):
    tor.set_vlans({port: trunk(700) for port in bench.ports})
    changes = bench.changes()
    with pytest.raises(DeviceError, match=f"r1: port {bench.ports[1]}: .*{message}|{message}"):
        tor.set_vlans({bench.ports[0]: trunk(701), bench.ports[1]: vlans})
    assert bench.changes() == changes
    assert tor.vlans(bench.ports) == {port: trunk(700) for port in bench.ports}


@retags
def test_a_port_that_does_not_exist_is_named_and_nothing_is_written(bench, tor):
    tor.set_vlans({bench.ports[0]: trunk(800)})
    with pytest.raises(DeviceError, match="nonesuch"):
        tor.set_vlans({bench.ports[0]: trunk(801), "nonesuch": trunk(801)})
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: trunk(800)}


@pytest.mark.tor_deviates(TorDeviation.NO_VLANS)
def test_ports_without_vlans_read_as_such_and_may_be_left_so(bench, tor):
    none = dict.fromkeys(bench.ports, trunk())
    assert tor.vlans(bench.ports) == none
    tor.set_vlans(none)
    assert tor.vlans(bench.ports) == none


@pytest.mark.tor_deviates(TorDeviation.NO_VLANS)
@pytest.mark.parametrize("vlans", [trunk(300), trunk(native=10), trunk(0), trunk(10, native=10)])
def test_ports_without_vlans_refuse_any(bench, tor, vlans):
    wanted = {bench.ports[0]: trunk(), bench.ports[1]: vlans}
    with pytest.raises(DeviceError, match=f"r1: port {bench.ports[1]}: .*have no VLANs to set"):
        tor.set_vlans(wanted)
    with pytest.raises(DeviceError, match="nonesuch"):
        tor.set_vlans({"nonesuch": trunk()})
    assert tor.vlans(bench.ports) == dict.fromkeys(bench.ports, trunk())


# --- links and counters -------------------------------------------------------------------------


def test_it_lists_its_ports(bench, tor):
    listed = tor.ports()
    assert set(bench.ports) <= set(listed)
    assert len(set(listed)) == len(listed)
    assert listed == tor.ports()
    assert set(tor.link_up(listed)) == set(listed)


def test_ports_that_do_not_exist_are_named(bench, tor):
    for call in (tor.vlans, tor.link_up):
        with pytest.raises(DeviceError, match="nonesuch"):
            call([bench.ports[0], "nonesuch"])


@pytest.mark.tor_ability("counters")
def test_counters_are_of_the_ports_that_were_named(bench, tor, deviations):
    if TorDeviation.NO_COUNTERS in deviations:
        with pytest.raises(DeviceError, match=f"has no counters of port {bench.ports[0]}"):
            tor.counters(bench.ports[:1])
        return
    earlier, later = tor.counters(bench.ports[:2]), tor.counters(bench.ports[:2])
    assert set(earlier) == set(bench.ports[:2])
    for port, counted in earlier.items():
        pairs = zip(astuple(counted), astuple(later[port]), strict=True)
        assert all(0 <= before <= after for before, after in pairs)
    assert tor.counters([]) == {}
    with pytest.raises(DeviceError, match="nonesuch"):
        tor.counters([bench.ports[0], "nonesuch"])


# --- sessions -----------------------------------------------------------------------------------


def test_open_and_close_may_be_repeated(tor):
    tor.close()
    for _ in range(2):
        tor.open()
    for _ in range(2):
        tor.close()


def test_use_after_close_connects_again(bench, tor):
    before = tor.vlans(bench.ports)
    tor.close()
    assert tor.vlans(bench.ports) == before
    tor.close()
    assert set(tor.link_up(bench.ports)) == set(bench.ports)


def test_a_switch_that_is_not_there_is_unavailable(bench):
    """No process listens at port 1, no line is plugged in."""
    serial = bench.rack.tor.address.startswith("serial:")
    address = "serial:/dev/hydra-nonesuch" if serial else "127.0.0.1:1"
    options = dict(bench.rack.tor.options)
    options |= {"cli_port": 1} if "cli_port" in options else {}
    driver = tor_switch(bench.with_tor(address=address, options=options), PATIENCE_S)
    for call in (driver.open, partial(driver.vlans, bench.ports)):
        with pytest.raises(DeviceUnavailable):
            call()
    driver.close()


def test_threads_that_use_one_driver_take_turns(bench, tor):
    before = tor.vlans(bench.ports)
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(tor.vlans, bench.ports) for _ in range(8)]
        looks = [pool.submit(tor.link_up, bench.ports) for _ in range(8)]
    assert all(read.result() == before for read in reads)
    assert all(set(look.result()) == set(bench.ports) for look in looks)


# --- faults -------------------------------------------------------------------------------------

OLD, NEW = trunk(1000, 1002, 1004), trunk(1001, 1003)


@pytest.mark.tor_fault(FaultKind.MERGE)
def test_vlans_that_were_added_instead_of_replaced_are_found(bench, tor, admin):
    tor.set_vlans({bench.ports[0]: OLD})
    admin.fault(FaultKind.MERGE)
    with pytest.raises(DeviceError, match=r"reads back as tagged \[1000-1004\]"):
        tor.set_vlans({bench.ports[0]: NEW})


@pytest.mark.tor_fault(FaultKind.SILENT)
def test_a_switch_that_only_says_that_it_did_is_found_out(bench, tor, admin):
    tor.set_vlans({bench.ports[0]: OLD})
    admin.fault(FaultKind.SILENT)
    with pytest.raises(DeviceError, match=r"reads back as tagged \[1000,1002,1004\]") as caught:
        tor.set_vlans({bench.ports[0]: NEW})
    assert not isinstance(caught.value, OutcomeUnknown)


@pytest.mark.tor_fault(FaultKind.REFUSE)
def test_a_refusal_is_told_in_the_switchs_words(bench, tor, admin):
    tor.set_vlans({bench.ports[0]: OLD})
    admin.fault(FaultKind.REFUSE)
    with pytest.raises(DeviceError, match="the command was not carried out"):
        tor.set_vlans({bench.ports[0]: NEW})
    admin.clear()
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: OLD}
    tor.set_vlans({bench.ports[0]: NEW})  # and the session goes on
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: NEW}


@pytest.mark.tor_fault(FaultKind.KILL)
@pytest.mark.parametrize("fault", [FaultKind.KILL, FaultKind.LOSE_REPLY])
def test_a_session_lost_in_a_change_leaves_the_outcome_unknown(bench, tor, admin, fault):
    tor.set_vlans({bench.ports[0]: OLD})
    tor.close()
    hasty = bench.driver(timeout_s=5.0)  # timed: on a serial line, the reply may take this long
    hasty.open()
    admin.fault(fault, times=1)
    with pytest.raises(OutcomeUnknown, match="read the device back"):
        hasty.set_vlans({bench.ports[0]: NEW})
    hasty.close()
    assert set(tor.vlans(bench.ports[:1])) == {bench.ports[0]}  # on a new session
    tor.set_vlans({bench.ports[0]: NEW})
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: NEW}


@pytest.mark.tor_fault(FaultKind.SLOW)
def test_a_slow_switch_is_waited_for(bench, tor, admin):
    admin.fault(FaultKind.SLOW, delay_s=0.05)
    tor.set_vlans({bench.ports[0]: NEW})
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: NEW}


@pytest.mark.tor_fault(FaultKind.MUTE)
@pytest.mark.quiet("tells one time-out from several")
def test_a_mute_switch_costs_one_time_out(bench, admin):
    driver = bench.driver(timeout_s=SHORT_S)
    driver.open()
    admin.fault(FaultKind.MUTE)
    started = time.monotonic()
    with pytest.raises(DeviceUnavailable, match="no answer"):
        driver.set_vlans({bench.ports[0]: OLD})
    assert time.monotonic() - started < 2 * SHORT_S
    driver.close()


@pytest.mark.tor_fault(FaultKind.DEAD)
def test_a_dead_switch_is_unavailable_and_found_again(bench, tor, admin):
    tor.set_vlans({bench.ports[0]: OLD})
    admin.fault(FaultKind.DEAD)
    with pytest.raises(DeviceUnavailable):
        tor.set_vlans({bench.ports[0]: NEW})
    admin.clear()
    assert tor.vlans(bench.ports[:1]) == {bench.ports[0]: OLD}


@pytest.mark.tor_fault(FaultKind.PAGER)
@pytest.mark.parametrize("fault", [FaultKind.PAGER, FaultKind.WRAP])
def test_output_that_is_paged_or_wrapped_reads_the_same(bench, tor, admin, fault):
    wanted = {port: trunk(*range(10 + number, 1000, 7)) for number, port in enumerate(bench.ports)}
    tor.set_vlans(wanted)
    admin.fault(fault)
    assert tor.vlans(bench.ports) == wanted
    assert all(tor.link_up(bench.ports).values())
