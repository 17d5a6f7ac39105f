"""The tournament's second half: every way of sharing circuits on a changing demand.

Decisions are the controller's, taken offline by the code of ``hydra replay``: whether a change
pays, whose turn comes, which traffic a change disturbs. Each policy is tried with each of the
controller's planning algorithms, on circuits of the algorithm's kind: duplex or one-way. Slots use
duplex circuits and have their own scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from apps.offline.recording import Reading, Trace
from apps.offline.replay import Variant, replay
from apps.offline.study import plain_fabric
from apps.planning.engine import SCHEDULER
from apps.traces.windows import Window
from hydra.model import Fabric, MacAddress, RackId, Server, SubstrateKind
from hydra.policy import Policy, Sharing, SlotPolicy
from topology.algorithms import ENTRIES, objection
from topology.problem import FabricArrays

EPOCH_S: Final = 2.0
"""Time between decisions; a demand lasts for five."""
OUTAGE_S: Final = 0.1
"""Time for which a change interrupts the moved traffic."""
_LEAST_SHARE: Final = 0.01
"""Least part of a port's rate for an elephant, or for a gain."""
_NONE: Final = "static"
"""A policy that changes nothing, and so leaves a dark network dark under any sharing."""
_PLANNING_MS: Final = 600_000.0
"""Time for a plan, longer than any search: searches end by their number of steps, so that results
do not depend on the machine.
"""
ALONE: Final = Variant("electrical alone", None)


@dataclass(frozen=True, slots=True)
class Course:
    """A policy on one workload."""

    workload: str
    policy: str
    served_share: float
    """Share served by circuits and packets together, less the cost of changes."""
    changes: int
    lasts_s: float


def fabric(
    racks: int, planes: int, port_mbps: float, electrical_share: float, *, one_way: bool = False
) -> Fabric:
    """A fabric of all racks on all planes.

    Servers fill all ports, and the electrical network has a part of the ports' rate. One-way
    circuits need ToRs that do not learn.
    """
    plain = plain_fabric(racks, planes, port_mbps)
    rack_mbps = planes * port_mbps
    return replace(
        plain,
        racks=tuple(replace(rack, servers=(_server(rack.id),)) for rack in plain.racks),
        server_rate_mbps=rack_mbps,
        electrical_rate_mbps=electrical_share * rack_mbps,
        substrate=SubstrateKind.SINGLE_HOMED_OPENFLOW if one_way else plain.substrate,
        one_way=one_way,
    )


def variants(network: Fabric) -> Iterator[Variant]:
    """Each way of sharing with each algorithm for the fabric's circuits.

    The electrical network alone comes before the variants of duplex circuits.
    """
    if not network.one_way:
        yield ALONE
    base = base_policy(network.planes[0].rate_mbps)
    arrays = FabricArrays.of(network)
    algorithms = [
        name
        for name in ENTRIES
        if name != _NONE and objection(name, arrays, one_way=network.one_way) is None
    ]
    for sharing in Sharing:
        if sharing is Sharing.SLOTTED:
            if not network.one_way:
                yield Variant(f"{sharing.value}, {SCHEDULER}", replace(base, sharing=sharing))
            continue
        for name in algorithms:
            policy = replace(base, sharing=sharing, algorithm=name)
            yield Variant(f"{sharing.value}, {name}", policy)


def base_policy(port_mbps: float) -> Policy:
    return Policy(
        planning_budget_ms=_PLANNING_MS,
        epoch_s=EPOCH_S,
        minimum_circuit_life_s=EPOCH_S,
        elephant_mbps=_LEAST_SHARE * port_mbps,
        minimum_gain_mbps=_LEAST_SHARE * port_mbps,
        slots=SlotPolicy(slot_s=EPOCH_S / 4, week_s=2 * EPOCH_S),
    )


def courses(
    network: Fabric,
    workload: str,
    cut: Sequence[Window],
    window_s: float,
    begun: Callable[[Variant], AbstractContextManager[None]] = lambda _variant: nullcontext(),
) -> Iterator[Course]:
    """Every policy on a workload; each demand lasts ``window_s``.

    Each policy is played within the context returned by ``begun``.
    """
    base = base_policy(network.planes[0].rate_mbps)
    trace = trace_of(network, cut, window_s)
    for variant in variants(network):
        with begun(variant):
            run = replay(network, base, trace, variant, OUTAGE_S)
        lasts_s = len(cut) * window_s
        yield Course(workload, variant.name, run.served_share, run.changes, lasts_s)


def trace_of(network: Fabric, cut: Sequence[Window], window_s: float) -> Trace:
    """A reading for each decision; the last reading ends the last window."""
    times_s = np.arange(0.0, len(cut) * window_s, EPOCH_S).tolist()
    readings = [_reading(at_s, cut[int(at_s // window_s)]) for at_s in times_s]
    readings.append(_reading(len(cut) * window_s, cut[-1]))
    return Trace(network.name, 0.0, tuple(readings))


def _reading(at_s: float, window: Window) -> Reading:
    src, dst = np.nonzero(window.demand_mbps)
    return Reading(at_s, src, dst, window.demand_mbps[src, dst])


def _server(rack: RackId) -> Server:
    mac = MacAddress(f"02:00:00:00:{rack >> 8:02x}:{rack & 255:02x}")
    return Server(f"h{rack + 1}", rack, mac, (), f"s{rack + 1}", None)
