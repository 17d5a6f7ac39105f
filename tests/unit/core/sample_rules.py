"""Rules of every kind, for the tests of what encodes and carries them."""

from collections.abc import Iterator

from hydra.model import Fabric, NetworkState, RackId, VlanId
from hydra.rules import FlowRule, circuit_rules, divert_rule, emulated_rules
from hydra.substrate import substrate_of
from tests.unit.core.fabrics import path_of, single_homed, state_of


def every_rule(fabric: Fabric) -> Iterator[FlowRule]:
    """At least one rule of every kind that switches hold; many are the same on several."""
    state = state_of(fabric, NetworkState(), path_of(fabric, 0, 1))
    for substrate in map(substrate_of, (fabric, single_homed(fabric))):
        for server in fabric.servers:
            yield from substrate.server_rules(server, {"h11", "h31"})
            yield from circuit_rules(state, server)
        yield from substrate.tor_rules()
    yield divert_rule(RackId(1), 3)
    yield from emulated_rules(3, VlanId(100), 3)
