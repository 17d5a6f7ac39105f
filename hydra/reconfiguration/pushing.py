"""The rule changes of a plan for each switch: for steered pairs, and for relays."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from hydra.forwarding.resteering import Resteering, steering_of
from hydra.forwarding.rules import RuleChange
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, RackId
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.relaying import joining


def rules_of(
    fabric: Fabric,
    plan: Plan,
    connected: Collection[DatapathId],
    *,
    steers: bool = True,
) -> dict[DatapathId, tuple[RuleChange, ...]]:
    """Circuit rules of the affected pairs and of their relays, for ``connected`` switches.

    Switches of a rack share an object, unless they relay. Without ``steers``, only relays get
    rules.
    """
    substrate = substrate_of(fabric)
    relays = joining(substrate, plan)
    changes = {datapath: relays[datapath] for datapath in relays if datapath in connected}
    steer = Resteering.between(substrate, plan.current, plan.target)
    in_common: dict[RackId, list[RuleChange]] = {}
    for switch, racks in steering_of(substrate, plan.affected).items():
        if switch.datapath not in connected:
            continue
        if switch.rack not in in_common:
            some = [steer.changes(switch.rack, rack) for rack in sorted(racks) if steers]
            in_common[switch.rack] = list(chain.from_iterable(some))
        rules = changes.get(switch.datapath)
        changes[switch.datapath] = (
            in_common[switch.rack] if rules is None else rules + in_common[switch.rack]
        )
    different = {id(rules): rules for rules in changes.values()}
    frozen = {key: tuple(rules) for key, rules in different.items()}
    return {datapath: frozen[id(rules)] for datapath, rules in changes.items() if rules}
