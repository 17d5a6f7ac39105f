"""Hosts in a ring over circuits, and the files for MPI and Slurm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.jobs.mpi import Host, read_hosts
from apps.jobs.rack_paths import RackPath
from apps.jobs.ring import FORMATS, order_ring
from hydra.errors import HydraError
from topology.ring_order import RingCost

RACK_OF = {f"h{rack}{host}": f"r{rack}" for rack in range(1, 5) for host in (1, 2)}


def paths(*pairs: str):
    """Paths of a circuit, both ways, such as "r1-r3"."""
    for pair in pairs:
        a, b = pair.split("-")
        yield from (RackPath(a, b, 1, 100.0), RackPath(b, a, 1, 100.0))


def hosts(*names: str, slots=None):
    return [Host(name, slots) for name in names]


CHAIN = ("r1-r3", "r3-r2", "r2-r4")


def test_a_chain_of_racks_there_and_back():
    ring = order_ring(hosts(*RACK_OF), RACK_OF, paths(*CHAIN))
    names = [host.name for host in ring.hosts]
    assert names == ["h11", "h12", "h31", "h21", "h41", "h42", "h22", "h32"]
    assert (ring.given, ring.cost) == (RingCost(3, 1), RingCost(0, 6))
    assert ring.fewest == 0 and ring.is_proven


def test_an_order_that_is_as_good_stays():
    given_order = hosts("h12", "h32", "h22", "h42", "h41", "h21", "h31", "h11")
    ring = order_ring(given_order, RACK_OF, paths(*CHAIN))
    assert list(ring.hosts) == given_order
    assert ring.cost == ring.given == RingCost(0, 6)


def test_racks_without_a_host_of_the_job_do_not_count():
    ring = order_ring(hosts("h11", "h21"), RACK_OF, paths(*CHAIN))
    assert ring.cost == RingCost(2, 0) and ring.is_proven


def test_a_longer_path_joins_too():
    over = [*paths(*CHAIN), RackPath("r1", "r2", 2, 100.0), RackPath("r2", "r1", 2, 100.0)]
    assert order_ring(hosts("h11", "h21"), RACK_OF, over).cost == RingCost(0, 4)


@given(
    st.lists(st.sampled_from(sorted(RACK_OF)), min_size=1, unique=True),
    st.sets(st.sampled_from(["r1-r2", "r1-r3", "r1-r4", "r2-r3", "r2-r4", "r3-r4"])),
    st.booleans(),
)
def test_every_host_once_and_never_worse(names, pairs, one_way):
    known = list(paths(*sorted(pairs)))[:: 2 if one_way else 1]
    ring = order_ring(hosts(*names), RACK_OF, known)
    assert sorted(host.name for host in ring.hosts) == sorted(names)
    assert ring.hosts[0].name == names[0]
    assert ring.cost <= ring.given
    again = order_ring(ring.hosts, RACK_OF, known)
    assert again.given == ring.cost, "the cost is that of the order"
    assert ring.fewest == ring.cost.electrical


def test_strangers_are_named():
    with pytest.raises(HydraError, match="the controller knows no server h99: hosts go by"):
        order_ring(hosts("h11", "h99"), RACK_OF, ())


def test_no_hosts():
    with pytest.raises(HydraError, match="no hosts to order: name at least one"):
        order_ring([], RACK_OF, ())


ORDERED = [Host("h11", 2), Host("h31", None)]


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("hostfile", ["h11 slots=2", "h31"]),
        ("rankfile", ["rank 0=h11 slot=0", "rank 1=h11 slot=1", "rank 2=h31 slot=0"]),
        ("slurm", ["h11", "h11", "h31"]),
    ],
)
def test_formats(form, lines):
    assert list(FORMATS[form](ORDERED)) == lines


def test_a_host_file_is_read_as_it_is_written():
    assert read_hosts("\n".join(FORMATS["hostfile"](ORDERED)), "ring") == ORDERED
