"""A further reservation on the reference fabric: changes of vswitches' meters and rules.

``python -m benchmarks.policing``. Racks of ``configs/reference.yaml`` are joined by circuits with a
reservation each, from one server to another; then a further reservation begins. The baseline
computes all reservations anew, as at a start. No switch is connected: the benchmark measures the
controller's own time, and counts the vswitches that get changes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast

from apps.controller.policing import Policing
from apps.openflow.fleet import Fleet
from apps.process.configuration import load_configuration
from benchmarks._fabric import REFERENCE
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from hydra.forwarding.substrate import substrate_of
from hydra.lifecycle import ReservationState
from hydra.model import Circuit, DatapathId, Fabric, NetworkState, Path, Topology, VlanId
from hydra.reservations.reservation import Reservation

RESERVATIONS: Final = (30, 300, 1000)
RUNS: Final = 10
MBPS: Final = 1000.0


class Recorder:
    """Replaces the fleet: counts the switches that get changes."""

    def __init__(self) -> None:
        self.changed: set[DatapathId] = set()

    def change_meters(self, changes: Mapping[DatapathId, object], _: float) -> dict[Any, Any]:
        self.changed.update(changes)
        return {}

    apply = change_meters


def paths(fabric: Fabric) -> Iterator[Path]:
    """Paths of one circuit each between racks whose numbers differ in a few bits, plane by
    plane.
    """
    port = {(port.rack, port.plane): port.id for port in fabric.ports}
    for plane in fabric.planes:
        for rack in fabric.racks:
            other = rack.id ^ (plane.id + 1)
            if rack.id < other < len(fabric.racks):
                ends = sorted((port[rack.id, plane.id], port[fabric.racks[other].id, plane.id]))
                yield Path(rack.id, fabric.racks[other].id, (Circuit(plane.id, *ends),))


def state_of(chosen: Collection[Path]) -> NetworkState:
    circuits = frozenset(circuit for path in chosen for circuit in path.circuits)
    topology = Topology(circuits, tuple(sorted(chosen)))
    return NetworkState(1, topology, dict.fromkeys(chosen, VlanId(2)))


def reserved(fabric: Fabric, number: int, path: Path) -> Reservation:
    src, dst = (
        fabric.racks[rack].servers[number % len(fabric.racks[rack].servers)].name
        for rack in (path.src, path.dst)
    )
    return Reservation(
        f"{number}", ReservationState.ACTIVE, src, dst, MBPS, None, path.src, path.dst,
        0.0, None, 0.0, path,
    )  # fmt: skip


def measure(fabric: Fabric, number: int) -> list[Result]:
    chosen = list(islice(paths(fabric), number + 1))
    state = state_of(chosen)
    some = [reserved(fabric, place, path) for place, path in enumerate(chosen)]
    steering = substrate_of(fabric).steering
    ready = frozenset(switch.datapath for rack in fabric.racks for switch in steering(rack.id))
    everybody, few = Recorder(), Recorder()
    standing = Policing(fabric=fabric, fleet=cast(Fleet, few), timeout_s=1.0)
    standing.hold(state, some, ready)
    few.changed.clear()
    took_ms = median_ms(
        {
            "all": lambda _: Policing(
                fabric=fabric, fleet=cast(Fleet, everybody), timeout_s=1.0
            ).hold(state, some, ready),
            "one": lambda run: standing.hold(state, some if run % 2 else some[:-1], ready),
        },
        RUNS,
        time.process_time,
    )
    case = f"one more than {number}"
    return [
        Result(case, "processor time", "ms", "lower", took_ms["one"], took_ms["all"], "all anew"),
        Result(
            case,
            "vswitches told",
            "",
            "lower",
            len(few.changed),
            len(everybody.changed),
            "all anew",
        ),
    ]


def main() -> int:
    fabric = load_configuration(REFERENCE).fabric
    return report("policing", [row for number in RESERVATIONS for row in measure(fabric, number)])


if __name__ == "__main__":
    run_benchmark(main)
