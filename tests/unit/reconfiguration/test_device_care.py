"""Devices and the frames under way to them."""

import random

from hydra.model import NetworkState
from hydra.reconfiguration.commands import AwaitRounds
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation import Network
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep

FABRIC = small_fabric(racks=3, planes=1, servers=2)
STATE = state_of(FABRIC, NetworkState(), path_of(FABRIC, 0, 1, circuit_between(FABRIC, 0, 1, 0)))


def test_a_drain_waits_for_those_alone_that_can_tell():
    """A learning ToR has none of the rules that end: it would be waited for in vain."""
    network = Network(FABRIC, STATE, random.Random(1))
    assert network.learning
    upkeep = SimulatedUpkeep.at_work(network, STATE)
    assert upkeep.switches.ready() == network.names.keys() | network.learning.keys()
    (told,) = next(upkeep.care.drain()).commands
    assert isinstance(told, AwaitRounds)
    assert told.datapaths == tuple(sorted(network.names))
