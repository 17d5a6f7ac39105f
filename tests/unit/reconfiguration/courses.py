"""The first course that a mover would take: in the light, or to make room for others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hydra.model import Fabric, NetworkState
from hydra.policy import Policy
from hydra.reconfiguration.course_choice import MOST_COURSES, Ways, having
from hydra.reconfiguration.detours import Detours
from hydra.reconfiguration.executor import Execution
from hydra.reconfiguration.moving_aside import Spare
from hydra.reconfiguration.plan import OrderOf, diff
from hydra.reconfiguration.run import Conditions
from topology.marks import marks_of


def ways(fabric: Fabric, conditions: Conditions, **spare: Any) -> Ways:
    """Ways with unlimited room for pairs that move aside; ``spare``: other arguments of
    :class:`Spare`.
    """
    detours = Detours(fabric=fabric, max_hops=3, closed=frozenset(), toward=marks_of(fabric).state)
    room = Spare(**{"detours": detours, **spare})
    return Ways(fabric=fabric, conditions=conditions, spare=room)


def first_course(
    fabric: Fabric,
    policy: Policy,
    current: NetworkState,
    target: NetworkState,
    conditions: Conditions,
    order_of: OrderOf,
    **options: Any,
) -> Execution:
    """To ``target``, or as far as the first course gets; ``options`` as of :class:`Execution`.

    Beside other changes no pair moves aside: these may want the spare ports.
    """
    possible = ways(fabric, conditions)
    if options.get("beside"):
        possible = replace(possible, spare=None)
    first = possible.next(current, target, MOST_COURSES, having(current))
    return Execution(
        fabric=fabric,
        policy=policy,
        plan=diff(fabric, current, first.target, order_of),
        conditions=conditions,
        order_of=order_of,
        in_light=first.in_light,
        **options,
    )
