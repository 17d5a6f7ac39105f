import numpy as np
import pytest

from hydra.forwarding.trunks import Trunks
from hydra.model import Circuit, NetworkState, Path, PlaneId, PortId, RackId, Topology, VlanId
from hydra.roles import PortVlans

PARKING = VlanId(99)


def path(*vlans):
    """A state of paths over port 0 and a port each, with these VLANs."""
    circuits = [Circuit(PlaneId(0), PortId(0), PortId(port)) for port in range(1, len(vlans) + 1)]
    paths = tuple(Path(RackId(0), RackId(one.b), (one,)) for one in circuits)
    named = dict(zip(paths, map(VlanId, vlans), strict=True))
    return NetworkState(0, Topology(frozenset(circuits), paths), named)


def test_ports_have_the_vlans_of_the_paths_over_them():
    trunks = Trunks.of(path(8, 7), 4, PARKING)
    tagged = {0: {7, 8}, 1: {8}, 2: {7}, 3: {PARKING}}
    assert trunks == {port: PortVlans(frozenset(vlans)) for port, vlans in tagged.items()}
    assert Trunks.of(NetworkState(), 0, PARKING) == {}


@pytest.mark.parametrize("seed", range(5))
def test_any_number_of_vlans_is_that_of_the_paths(seed):
    random = np.random.default_rng(seed)
    circuits = [Circuit(PlaneId(0), PortId(2 * i), PortId(2 * i + 1)) for i in range(6)]
    along = [tuple(circuits[i] for i in random.choice(6, 1 + n % 3)) for n in range(60)]
    paths = tuple(Path(RackId(n), RackId(n + 1), along[n]) for n in range(60))
    vlans = {
        path: VlanId(int(vlan))
        for path, vlan in zip(paths, random.integers(1, 40, 60), strict=True)
    }
    carried = {port: {PARKING} for port in range(14)}
    for port in range(12):
        ends = [vlan for path, vlan in vlans.items() if any(port in c.ends for c in path.circuits)]
        carried[port] = set(ends) or {PARKING}
    state = NetworkState(0, Topology(frozenset(circuits), paths), vlans)
    trunks = Trunks.of(state, 14, PARKING)
    assert trunks == {port: PortVlans(frozenset(some)) for port, some in carried.items()}
    other = NetworkState(0, state.topology, {path: min(vlans.values()) for path in paths})
    unlike = [port for port in range(12) if carried[port] not in ({min(vlans.values())}, {PARKING})]
    assert trunks.unlike(Trunks.of(other, 14, PARKING)).tolist() == unlike


def test_removed_vlans_leave_other_ports_alone():
    trunks = Trunks.of(path(8, 7), 4, PARKING)
    left = trunks.without(frozenset({VlanId(8), VlanId(5)}), np.array([0, 1], dtype=np.int32))
    assert [sorted(left[PortId(port)].tagged) for port in range(4)] == [[7], [PARKING], [7], [99]]
    assert trunks[PortId(1)] == PortVlans(frozenset({VlanId(8)}))


def test_ports_that_differ_are_found_whatever_other_vlans_there_are():
    one, other = Trunks.of(path(8, 7), 4, PARKING), Trunks.of(path(8, 6, 4), 4, PARKING)
    assert one.unlike(other).tolist() == other.unlike(one).tolist() == [0, 2, 3]
    assert one.unlike(one).size == 0
