"""Rules of every kind, for the tests of what encodes and carries them."""

from collections.abc import Iterator

from hydra.model import Fabric, NetworkState, RackId, VlanId
from hydra.pipeline import RuleKind, cookie
from hydra.rules import FlowRule, base_rules, circuit_rules, divert_rule, emulated_rules
from tests.unit.core.fabrics import path_of, state_of


def every_rule(fabric: Fabric) -> Iterator[FlowRule]:
    """At least one rule of every kind that vswitches hold; many are the same on several."""
    state = state_of(fabric, NetworkState(), path_of(fabric, 0, 1))
    for server in fabric.servers:
        yield from base_rules(fabric, server, {"h11", "h31"})
        yield from circuit_rules(state, server)
    yield divert_rule(RackId(1), 3)
    yield from emulated_rules(3, VlanId(100), 3)
    yield FlowRule(RuleKind.TOR_NORMAL, (), cookie(RuleKind.TOR_NORMAL))
