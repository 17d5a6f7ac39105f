"""Holdings computed again only where paths or reservations have changed."""

import random
from dataclasses import replace

import pytest

from apps.controller.meter_tables import tables_with
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState
from hydra.reservations.reservation import Reservation, ServiceClass
from hydra.sharing.parted_holdings import PartedHoldings
from hydra.sharing.policing import Holdings, holdings
from tests.unit.core.fabrics import circuit_between, path_of, random_state, small_fabric, state_of

FABRIC = small_fabric(racks=6, planes=3, servers=2)
SWITCH_OF = {server.name: server.vswitch.datapath_id for server in FABRIC.servers}
STEPS = 10


def random_reservation(rng, name, paths):
    booked = rng.choice(paths)
    src, dst = (
        rng.choice([FABRIC.racks[rack].name, FABRIC.racks[rack].servers[0].name])
        for rack in (booked.src, booked.dst)
    )
    others = [path for path in paths if (path.src, path.dst) == (booked.src, booked.dst)]
    protection = rng.choice([None, *(path for path in others if path != booked)])
    service = rng.choice(list(ServiceClass))
    return Reservation(
        id=name, state=ReservationState.ACTIVE, src=src, dst=dst, bandwidth_mbps=10.0,
        duration_s=None, src_rack=booked.src, dst_rack=booked.dst, created_unix_s=0.0,
        expires_unix_s=None, starts_unix_s=0.0, booked=booked, service=service,
        protection=protection,
    )  # fmt: skip


def as_a_set(held):
    return replace(held, flows=frozenset(held.flows))


def keys_of(tables):
    """The tables, without the numbers of meters and tallies."""
    return {
        datapath: replace(table, meters=set(table.meters), tallies=set(table.tallies))
        for datapath, table in tables.items()
    }


@pytest.mark.parametrize("seed", range(40))
def test_parts_together_are_what_all_anew_would_be(seed):
    rng = random.Random(seed)
    parted, tables = PartedHoldings(FABRIC), {}
    state, reserved = random_state(FABRIC, NetworkState(), rng), []
    for step in range(STEPS):
        before = state
        if step % 3 == 2:
            state = random_state(FABRIC, state, rng)
        # Some paths of reservations stood before, and some do not stand yet.
        paths = [*before.topology.paths, *state.topology.paths]
        reserved = [one for one in reserved if rng.random() < 0.8]
        reserved += [random_reservation(rng, f"{step}.{n}", paths) for n in range(3)]
        parted, gone, new = parted.renewed(state, reserved)
        tables = tables_with(tables, gone, new, SWITCH_OF)
        anew = holdings(FABRIC, state.topology.paths, state.vlans, reserved)
        assert as_a_set(parted.whole) == as_a_set(anew)
        assert keys_of(tables) == keys_of(tables_with({}, Holdings(), anew, SWITCH_OF))
        for table in tables.values():
            assert len(set(table.meters.values())) == len(table.meters)


NEAR, FAR = path_of(FABRIC, 0, 1), path_of(FABRIC, 2, 3, circuit_between(FABRIC, 2, 3, 1))
STATE = state_of(FABRIC, NetworkState(), NEAR, FAR)


def test_only_the_part_of_a_change_is_computed_again():
    near, far = (random_reservation(random.Random(1), name, [path])
                 for name, path in (("near", NEAR), ("far", FAR)))  # fmt: skip
    parted, _, _ = PartedHoldings(FABRIC).renewed(STATE, [near, far])
    _, *same = parted.renewed(STATE, [near, replace(far, since_unix_s=1.0)])
    assert same == [Holdings(), Holdings()]
    _, gone, new = parted.renewed(STATE, [near, replace(far, bandwidth_mbps=20.0)])
    assert {flow.reservation for flow in (*gone.flows, *new.flows)} == {"far"}
    assert {flow.mbps for flow in new.flows} == {20.0}
