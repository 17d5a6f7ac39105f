"""Reports about the devices at a start."""

import logging
import random

import pytest

from hydra.model import NetworkState
from hydra.reconfiguration.plan import SETTLED, Unsettled
from tests.unit.core.fabrics import circuit_between, path_of, small_fabric, state_of
from tests.unit.reconfiguration.simulation.network import Network
from tests.unit.reconfiguration.upkeep import SimulatedUpkeep

FABRIC = small_fabric(racks=3, planes=1, servers=2)
NOTHING = NetworkState()
CIRCUIT = circuit_between(FABRIC, 0, 1, 0)
STATE = state_of(FABRIC, NOTHING, path_of(FABRIC, 0, 1, CIRCUIT))


@pytest.mark.parametrize(
    ("remembered", "unsettled", "is_foreign"),
    [
        (NOTHING, SETTLED, True),
        (NOTHING, Unsettled.by(NOTHING, STATE), False),
        (STATE, SETTLED, False),
    ],
    ids=["another journal", "a change broke off", "its own journal"],
)
def test_circuits_that_the_journal_does_not_know_are_named(
    remembered, unsettled, is_foreign, caplog
):
    upkeep = SimulatedUpkeep(Network(FABRIC, STATE, random.Random(1)), remembered, unsettled)
    with caplog.at_level(logging.WARNING, "hydra.recovery"):
        upkeep.run(upkeep.recovery.run())
    told = [record.message for record in caplog.records if "taken down" in record.message]
    crosses = FABRIC.cross_connects(CIRCUIT)
    places = ", ".join(f"p1: {cross.ingress} to {cross.egress}" for cross in sorted(crosses))
    assert [message.rpartition("?): ")[2] for message in told] == ([places] if is_foreign else [])
