"""The rules that a plan gives each switch: of pairs that are steered anew, and of their relays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from hydra.forwarding.resteering import Resteering, steering_of
from hydra.forwarding.rules import Install, RuleChange, emulated_rules
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, RackId, VlanId
from hydra.reconfiguration.plan import Plan
from hydra.reconfiguration.relaying import joining


def rules_of(
    fabric: Fabric, plan: Plan, connected: Collection[DatapathId], *, emulated: int = 0
) -> dict[DatapathId, tuple[RuleChange, ...]]:
    """Circuit rules of the affected pairs, and those of their relays, for ``connected`` switches.

    Switches of one rack have the same object, unless they relay. ``emulated``: the number of rules
    in all to fill up to, with rules for racks beyond ours; for experiments.
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
            some = [steer.changes(switch.rack, rack) for rack in sorted(racks)]
            in_common[switch.rack] = list(chain.from_iterable(some))
        mine = changes.get(switch.datapath)
        changes[switch.datapath] = (
            in_common[switch.rack] if mine is None else mine + in_common[switch.rack]
        )
    if emulated:
        changes = {datapath: list(mine) for datapath, mine in changes.items()}
        _pad(changes, emulated, fabric.circuit_vlans.first, plan.target.epoch)
    different = {id(mine): mine for mine in changes.values()}
    frozen = {key: tuple(mine) for key, mine in different.items()}
    return {datapath: frozen[id(mine)] for datapath, mine in changes.items() if mine}


def _pad(
    changes: Mapping[DatapathId, list[RuleChange]], number: int, vlan: VlanId, epoch: int
) -> None:
    """Fill up to ``number`` rules, spread evenly over the switches."""
    missing = number - sum(len(mine) for mine in changes.values())
    if missing <= 0 or not changes:
        return
    share, rest = divmod(missing, len(changes))
    for index, mine in enumerate(changes.values()):
        rules = emulated_rules(share + (index < rest), vlan, epoch)
        mine.extend(Install(rule) for rule in rules)
