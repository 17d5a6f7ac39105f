"""Entries in the history for conditions that come and go."""

from types import SimpleNamespace

import pytest

from apps.controller.health import Health
from hydra.faults.condition import ConditionKind
from hydra.faults.facts import MissingSwitch, RefusedWorker, TakeoverRisk
from hydra.history import HappeningKind
from hydra.model import NetworkState, PlaneId, RackId
from hydra.reconfiguration.drift import Drift, DriftKind
from hydra.reconfiguration.readiness import RenumberedPort
from hydra.roles import Alarm, Severity
from tests.unit.core.fabrics import path_of, small_fabric, state_of

FABRIC = small_fabric(racks=4, planes=2)


class Away:
    """Missing parts of the network, as reported by :class:`apps.controller.reach.Reach` and
    :class:`apps.controller.missing_devices.MissingDevices`.
    """

    def __init__(self):
        self.planes, self.tors, self.switches, self.uplinks, self.complaints = {}, {}, [], set(), {}
        self.mute, self.refusing, self.renumbered = [], {}, []
        self.absences = self

    def planes_down(self):
        return self.planes

    def tors_down(self):
        return self.tors

    def switches_away(self):
        return self.switches

    def rules_refused(self):
        return self.refusing

    def described(self, refused):
        return refused

    def switches_mute(self):
        return self.mute

    def switches_refused(self):
        return []

    def unconfirmed(self):
        return []

    def renumbered_ports(self):
        return self.renumbered

    def dead_uplinks(self):
        return self.uplinks

    def alarms(self):
        return self.complaints


@pytest.fixture
def told():
    return []


@pytest.fixture
def away():
    return Away()


@pytest.fixture
def auditor():
    return SimpleNamespace(found=(), sending_foreign=frozenset())


@pytest.fixture
def ledger(told):
    def note(kind, text, pairs):
        assert kind is HappeningKind.CONDITION
        told.append((text, *pairs))

    return SimpleNamespace(
        network=SimpleNamespace(state=NetworkState()),
        bookings=SimpleNamespace(all=lambda: ()),
        writer=SimpleNamespace(failure=None),
        log=SimpleNamespace(note=note),
    )


@pytest.fixture
def refused():
    return []


@pytest.fixture
def risks():
    return []


@pytest.fixture
def health(ledger, away, auditor, refused, risks):
    poller = SimpleNamespace(freshness=lambda: (0.0, (), True), stale_s=3.0)
    policing = SimpleNamespace(refused={})
    nothing = SimpleNamespace(entries=lambda: (), fitting_mbps=lambda _: {})
    return Health(
        fabric=FABRIC,
        ledger=ledger,
        reach=away,
        quarantine=nothing,
        poller=poller,
        auditor=auditor,
        admission=nothing,
        policing=policing,
        workers_refused=lambda: refused,
        takeover_risks=lambda: risks,
    )


def test_what_comes_and_goes_is_told_once_in_words_for_people(health, away, auditor, told):
    away.planes[PlaneId(0)] = "no answer"
    away.tors[RackId(0)] = "no answer"
    away.switches += [MissingSwitch(f"hyv-h1{n}", f"h1{n}", RackId(0)) for n in (1, 2)]
    away.mute.append(MissingSwitch("hyv-h21", "h21", RackId(1)))
    away.uplinks.add("h11")
    away.complaints["p2"] = [Alarm(Severity.MAJOR, 3, "LOS", "no light")]
    auditor.found = [
        Drift(
            kind=DriftKind.CROSS_CONNECT,
            device="p2",
            subject="1 to 18",
            intended="connected",
            actual="nothing",
        )
    ]
    health.look()
    health.look()
    assert [text for text, *_ in told] == [
        "optical switch p1 can't be commanded: no answer",
        "ToR r1 can't be commanded: no answer",
        "2 switches are not connected: hyv-h11, hyv-h12",
        "switch hyv-h21 is connected, and not answering",
        "server h11 is without an uplink for circuits",
        "optical switch p2 complains: major LOS at port 3, no light",
        "changed by somebody else: p2, 1 to 18: nothing instead of connected",
    ]
    told.clear()
    away.__init__()
    auditor.found = ()
    health.look()
    health.look()
    assert [text for text, *_ in told] == [
        "optical switch p1 can be commanded again",
        "ToR r1 can be commanded again",
        "2 switches are connected now: hyv-h11, hyv-h12",
        "switch hyv-h21 answers again",
        "server h11 has an uplink for circuits again",
        "optical switch p2 has no alarm any more",
        "p2 is as intended again",
    ]


def test_a_port_whose_new_number_is_not_followed_is_told_until_it_is(health, away, told):
    away.renumbered = [
        RenumberedPort(switch="hyv-h11", port="hyo-h11", old=(2,), now=41, rack=RackId(0))
    ]
    health.look()
    (one,) = health.conditions()
    assert (one.kind, one.subjects) == (ConditionKind.PORT_RENUMBERED, ("hyv-h11:hyo-h11",))
    away.renumbered = []
    health.look()
    assert [text for text, *_ in told] == [
        "port hyo-h11 of switch hyv-h11 has OpenFlow number 41, was 2",
        "rules follow the new number of port hyv-h11:hyo-h11",
    ]


def test_workers_that_are_refused_are_told_of(health, refused, told):
    refused += [RefusedWorker("w1", "w1 and this controller differ")]
    health.look()
    (one,) = health.conditions()
    assert (one.kind, one.subjects) == (ConditionKind.WORKER_REFUSED, ("w1",))
    refused.clear()
    health.look()
    assert [text for text, *_ in told] == [
        "w1 and this controller differ",
        "worker w1 is accepted again",
    ]


def test_its_end_is_told_to_those_whom_it_affected_though_they_have_other_paths_by_then(
    health, ledger, away, told
):
    ledger.network.state = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1))
    (circuit,) = ledger.network.state.topology.circuits
    away.planes[circuit.plane] = "no answer"
    health.look()
    ledger.network.state = NetworkState()
    health.look()
    away.planes.clear()
    health.look()
    assert told == [
        ("optical switch p1 can't be commanded: no answer", ("r1", "r2")),
        ("optical switch p1 can be commanded again", ("r1", "r2")),
    ]


def test_what_a_takeover_would_suffer_from_is_told_of(health, risks, told):
    risks += [TakeoverRisk("etcd2", "etcd2 does not answer: start it again")]
    health.look()
    (one,) = health.conditions()
    assert (one.kind, one.subjects) == (ConditionKind.TAKEOVER_AT_RISK, ("etcd2",))
    risks.clear()
    health.look()
    assert [text for text, *_ in told] == [
        "etcd2 does not answer: start it again",
        "etcd2 no longer puts a takeover at risk",
    ]
