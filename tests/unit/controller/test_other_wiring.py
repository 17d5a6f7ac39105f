"""A ledger started again with a configuration in another order, or with fewer entries.

The journal is a real file, and the fabrics come from configuration files as operators write them.
"""

import random
from contextlib import closing

import pytest
import yaml

from apps.controller.record.ledger import Ledger
from apps.process.configuration import load_configuration
from apps.rest.resources.reservations import Reservation
from hydra.errors import AdmissionError
from hydra.journal import Kind
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState
from hydra.reservations.limits import AdmissionLimits
from hydra.reservations.reservation import GONE, ReservationRequest
from tests.journals import SqliteJournal
from tests.unit.core.fabrics import path_of, physical, state_of

LIMITS = AdmissionLimits(3)
RACKS, PLANES, LINKS = 4, 2, 2


def things():
    """Racks, planes and wirings of two ports each, one entry for each."""
    racks = [
        {
            "names": f"r{n}",
            "prefixes": [f"10.0.{n}.0/24"],
            "tor": {
                "driver": "ovs-ovsdb",
                "address": "unix:/var/run/openvswitch/db.sock",
                "bridge": f"hytor-r{n}",
                "datapath_id": 0x1000 + n,
                "native_vlan": 10,
            },
            "servers": [
                {
                    "names": f"h{n}{server}",
                    "addresses": [f"10.0.{n}.{server}/16"],
                    "mac": f"02:00:00:00:{n:02x}:{server:02x}",
                    "tor_port": f"hys-h{n}{server}",
                    "vswitch": {
                        "datapath_id": 0x2000 + 256 * n + server,
                        "bridge": f"hyv-h{n}{server}",
                        "host_port": f"hyh-h{n}{server}",
                        "optical_port": f"hyo-h{n}{server}",
                        "electrical_port": f"hye-h{n}{server}",
                    },
                }
                for server in (1, 2)
            ],
        }
        for n in range(1, RACKS + 1)
    ]
    planes = [
        {
            "names": f"p{n}",
            "driver": "polatis-scpi",
            "address": f"127.0.0.1:{5024 + n}",
            "ports": 16,
            "switching_ms": 25,
            "rate_mbps": 100,
        }
        for n in range(1, PLANES + 1)
    ]
    wiring = [
        {
            "racks": f"r{rack}",
            "planes": f"p{plane}",
            "tor_port": f"o{rack}{plane}{link}",
            "ingress": 2 * rack + link,
            "egress": 16 + 2 * rack + link,
        }
        for rack in range(1, RACKS + 1)
        for plane in range(1, PLANES + 1)
        for link in range(LINKS)
    ]
    return racks, planes, wiring


def fabric_of(folder, racks, planes, wiring):
    document = {
        "fabric": "demo",
        "subnets": ["10.0.0.0/16"],
        "racks": racks,
        "planes": planes,
        "wiring": wiring,
        "electrical": {"rate_mbps": 10},
        "server_rate_mbps": 100,
        "vlans": {"circuits": "100-199", "parking": 4000},
    }
    path = folder / "fabric.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_configuration(path).fabric


@pytest.fixture
def fabric(tmp_path):
    return fabric_of(tmp_path, *things())


def shuffled(folder, seed):
    """The same fabric, with racks, planes and wirings in another order."""
    rng = random.Random(seed)
    return fabric_of(folder, *(rng.sample(listed, len(listed)) for listed in things()))


@pytest.fixture
def journal(tmp_path):
    return str(tmp_path / "journal.db")


def port(fabric, rack, name):
    return fabric.port_by_name[rack, name].id


def circuit(fabric, *ends):
    return fabric.circuit(*(port(fabric, *end) for end in ends))


def started(fabric, journal):
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(journal))
    ledger.load()
    return ledger


REQUESTS = {
    "active": ReservationRequest("h11", "r3", 30.0),
    "beside": ReservationRequest("r3", "r1", 20.0),
    "activating": ReservationRequest("r2", "h41", 50.0),
    "scheduled": ReservationRequest("r4", "r1", 90.0, start_unix_s=4e9, duration_s=9.0),
    "held": ReservationRequest("r3", "r2", 90.0, hold_s=1e9),
    "released": ReservationRequest("r2", "r1", 10.0),
}


def filled(fabric, journal):
    """Reservations in most states, by name: the paths of r1 and r3 stand, over r4."""
    ledger = started(fabric, journal)
    relayed = path_of(
        fabric,
        0,
        2,
        circuit(fabric, ("r1", "o121"), ("r4", "o420")),
        circuit(fabric, ("r4", "o411"), ("r3", "o310")),
    )
    used = {end for hop in relayed.circuits for end in hop.ends}
    blocked = frozenset(one.id for one in fabric.ports) - used
    ids = {}
    for name, request in REQUESTS.items():
        limits = AdmissionLimits(3, blocked if name == "active" else frozenset())
        one = ledger.bookings.add(request, limits)
        ledger.reservations.keep([one])
        ids[name] = one.id
    ledger.network.settle(state_of(fabric, NetworkState(), relayed))
    for name in ("active", "beside"):
        ledger.reservations.change(ids[name], State.ACTIVE)
    for step in (State.RELEASING, State.RELEASED):
        ledger.reservations.change(ids["released"], step, "asked for")
    ledger.reservations.save("reconfigured")
    return ledger, ids


def described(ledger, fabric):
    """All facts about the network in reservations and state, without positions."""
    return [
        (
            one.id,
            one.state,
            (one.src, fabric.racks[one.src_rack].name),
            (one.dst, fabric.racks[one.dst_rack].name),
            [
                None if path is None else physical(fabric, path, one.src_rack)
                for path in (one.booked, one.path)
            ],
            one.vlan,
            ledger.network.state.vlans.get(one.booked),
            one.reason,
        )
        for one in ledger.bookings.all()
    ]


def files_records(journal):
    with closing(SqliteJournal(journal, read_only=True)) as reader:
        return reader.records(Kind.RESERVATION)


def lights(fabric, path):
    """The cross-connects of a path, by plane."""
    return {
        (fabric.planes[c.plane].name, x) for c in path.circuits for x in fabric.cross_connects(c)
    }


def check_the_same(ledger, fabric, again, other, ids):
    assert described(again, other) == described(ledger, fabric)
    for one in again.bookings.all():
        assert (one.booked.src, one.booked.dst) == one.pair
    before, after = (one.bookings.get(ids["active"]) for one in (ledger, again))
    assert (before.path, before.path.hops) == (before.booked, 2)
    assert (
        ledger.network.state.vlans[before.path]
        == again.network.state.vlans[after.path]
        == after.vlan
    )
    assert lights(other, after.path) == lights(fabric, before.path)
    with pytest.raises(AdmissionError):  # 50 of 100 Mb/s are taken on the pair's only path
        again.bookings.add(ReservationRequest("r1", "r3", 51.0), LIMITS)


@pytest.mark.parametrize("seed", range(8))
def test_everything_means_the_same_ports_in_another_order(fabric, tmp_path, journal, seed):
    ledger, ids = filled(fabric, journal)
    written = files_records(journal)
    other = shuffled(tmp_path, seed)
    assert (other.racks, other.planes, other.ports) != (fabric.racks, fabric.planes, fabric.ports)
    again = started(other, journal)
    check_the_same(ledger, fabric, again, other, ids)
    assert files_records(journal) == written, "there was nothing to write"
    assert started(fabric, journal).bookings.all() == ledger.bookings.all()


def test_what_is_gone_has_failed_for_good_and_everybody_is_told(fabric, tmp_path, journal, caplog):
    """The configuration without r4."""
    _, ids = filled(fabric, journal)
    racks, planes, wiring = things()
    smaller = fabric_of(tmp_path, racks[:3], planes, [w for w in wiring if w["racks"] != "r4"])
    again = started(smaller, journal)
    outcome = {name: again.bookings.get(one) for name, one in ids.items()}
    lost = "fabric demo has no"
    assert {name: (one.state, one.reason) for name, one in outcome.items()} == {
        "active": (State.FAILED, f"{lost} optical port r4 o420 any more"),
        "beside": (State.FAILED, f"{lost} optical port r4 o420 any more"),
        "activating": (State.FAILED, f"{lost} rack r4 any more"),
        "scheduled": (State.FAILED, f"{lost} rack r4 any more"),
        "held": (State.HELD, ""),
        "released": (State.RELEASED, "asked for"),
    }
    assert outcome["scheduled"].src_rack == GONE
    assert {one.id for one in again.bookings.all() if one.is_booked} == {ids["held"]}
    told = [event.reservation.id for event in again.events.after(0)[0] if event.reservation]
    failed = [one for name, one in ids.items() if outcome[name].state is State.FAILED]
    assert told == failed
    for one in failed:
        assert f"reservation {one} has failed: {again.bookings.get(one).reason}" in caplog.messages
    shown = Reservation.of(smaller, outcome["scheduled"])
    assert (shown.src, shown.src_rack, shown.dst_rack) == ("r4", "", "r1")
    assert again.network.state.topology.paths == ()

    back = started(fabric, journal)
    for name, one in ids.items():
        assert back.bookings.get(one).state is outcome[name].state, "what has failed stays so"
    caplog.clear()
    assert started(smaller, journal).bookings.all() == again.bookings.all()
    assert caplog.messages == []
