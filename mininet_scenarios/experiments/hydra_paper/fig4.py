"""VLANs of paths that share racks and circuits (HydRA, section III.B.1, Fig. 4).

The paper's text gives numbers alone: seven paths among six racks in three VLANs, each free of
loops. The paths here are ours: two racks with three disjoint paths, and paths along parts of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from hydra.model import Circuit, NetworkState, PlaneId, PortId, RackId, Topology, VlanId, VlanRange
from hydra.model import Path as RackPath
from mininet_scenarios.experiments.claims import judged
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.plots import BLUE, GREEN, GREY, PURPLE, VERMILION, legend_below
from mininet_scenarios.reporting.table import Row
from topology.multihop import plan_hydra_bfs
from topology.problem import Budget, FabricArrays, Reserved
from topology.vlan import allocate

Walk = tuple[int, ...]
"""Racks along a path, both ends included."""
WALKS: Final[tuple[Walk, ...]] = (
    (1, 4),
    (1, 2, 4),
    (1, 3, 4),
    (1, 2),
    (3, 4),
    (4, 5, 6),
    (5, 6),
)
_RACKS: Final = 6
_VLANS: Final = VlanRange(VlanId(101), VlanId(199))
_PORTS: Final = 6
"""Ports of a rack in random plans: enough for most plans of seven paths."""
_RATE_MBPS: Final = 10_000.0
_MOST_PER_PAIR: Final = 3
"""Most paths of a pair of racks in random plans."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """VLANs of the paths, and numbers of VLANs of random plans."""

    vlans: tuple[int, ...]
    """VLAN-ID of each of :data:`WALKS`."""
    fewest: int
    """Fewest loop-free VLANs that any allocation needs, by exhaustive search."""
    random: tuple[tuple[int, int], ...]
    """(allocated, fewest) VLANs of each random plan of seven paths."""


def laid(walks: Sequence[Walk]) -> tuple[FabricArrays, Topology]:
    """A fabric with one optical switch, and the paths along ``walks``.

    Racks are numbered from 1. Walks over the same two racks share a circuit.
    """
    pairs = sorted({(min(hop), max(hop)) for walk in walks for hop in pairwise(walk)})
    racks = [rack - 1 for pair in pairs for rack in pair]
    count = max(rack for walk in walks for rack in walk)
    fabric = _fabric(count, racks)
    circuits = {
        pair: Circuit(PlaneId(0), PortId(2 * place), PortId(2 * place + 1))
        for place, pair in enumerate(pairs)
    }
    paths = []
    for walk in walks:
        forth = walk if walk[0] < walk[-1] else walk[::-1]
        hops = tuple(circuits[min(hop), max(hop)] for hop in pairwise(forth))
        paths.append(RackPath(RackId(forth[0] - 1), RackId(forth[-1] - 1), hops))
    return fabric, Topology(frozenset(circuits.values()), tuple(sorted(paths)))


def _fabric(count: int, port_rack: Sequence[int]) -> FabricArrays:
    """``count`` racks with ports on one optical switch."""
    ports = len(port_rack)
    return FabricArrays(
        n_racks=count,
        n_planes=1,
        port_rack=np.array(port_rack, dtype=np.int32),
        port_plane=np.zeros(ports, dtype=np.int32),
        port_rate_mbps=np.full(ports, _RATE_MBPS),
    )


def vlans_of(walks: Sequence[Walk]) -> list[tuple[Walk, VlanId]]:
    """(walk, VLAN-ID) of each path, as the controller allocates VLANs."""
    fabric, topology = laid(walks)
    state = allocate(fabric, NetworkState(), topology, _VLANS)
    return [
        (tuple(rack + 1 for rack in fabric.racks_along(path)), VlanId(int(vlan)))
        for path, vlan in state.vlans.items()
    ]


def loop_free(fabric: FabricArrays, circuits: Iterable[Circuit]) -> bool:
    """True if the circuits are a forest on the racks; parallel circuits are a loop."""
    group = list(range(fabric.n_racks))
    for circuit in circuits:
        group_a, group_b = (group[rack] for rack in fabric.racks_of(circuit))
        if group_a == group_b:
            return False
        group = [group_a if number == group_b else number for number in group]
    return True


def fewest_vlans(fabric: FabricArrays, topology: Topology) -> int:
    """The smallest number of loop-free VLANs, by a search of all allocations."""
    paths = [frozenset(path.circuits) for path in topology.paths]
    best = len(paths)

    def search(place: int, vlans: list[frozenset[Circuit]]) -> None:
        nonlocal best
        if len(vlans) >= best:
            return
        if place == len(paths):
            best = len(vlans)
            return
        for number, taken in enumerate(vlans):
            both = taken | paths[place]
            if loop_free(fabric, both):
                search(place + 1, [*vlans[:number], both, *vlans[number + 1 :]])
        search(place + 1, [*vlans, paths[place]])

    search(0, [])
    return best


def _random_plan(chance: np.random.Generator) -> tuple[FabricArrays, Topology]:
    """Seven paths among six racks, planned for random demands."""
    fabric = _fabric(_RACKS, [rack for rack in range(_RACKS) for _ in range(_PORTS)])
    budget = Budget(max_hops=3, paths_per_pair=_MOST_PER_PAIR)
    while True:
        demand = chance.uniform(0.0, 3 * _RATE_MBPS, (_RACKS, _RACKS))
        demand *= chance.random((_RACKS, _RACKS)) < chance.uniform(0.05, 0.3)
        np.fill_diagonal(demand, 0.0)
        planned = plan_hydra_bfs(fabric, demand, Topology(), Reserved(), budget).topology
        if len(planned.paths) == len(WALKS):
            return fabric, planned


def _measure(setting: Setting, narrator: Narrator) -> Allocation:
    chance = np.random.default_rng(setting.seed)
    found = []
    with narrator.phase("allocating VLANs", _expected_s(setting.full)):
        for _ in range(400 if setting.full else 30):
            fabric, topology = _random_plan(chance)
            state = allocate(fabric, NetworkState(), topology, _VLANS)
            found.append((len(set(state.vlans.values())), fewest_vlans(fabric, topology)))
        given = dict(vlans_of(WALKS))
        return Allocation(
            tuple(int(given[walk]) for walk in WALKS), fewest_vlans(*laid(WALKS)), tuple(found)
        )


def _conclude(runs: Sequence[Allocation]) -> Findings:
    first = runs[0]
    random = [sample for run in runs for sample in run.random]
    more = sum(allocated > fewest for allocated, fewest in random)
    fabric, topology = laid(WALKS)
    paths = dict(zip(WALKS, first.vlans, strict=True))
    loops = [
        vlan
        for vlan in sorted(set(first.vlans))
        if not loop_free(
            fabric,
            {
                circuit
                for path in topology.paths
                if paths[tuple(rack + 1 for rack in fabric.racks_along(path))] == vlan
                for circuit in path.circuits
            },
        )
    ]
    number = len(set(first.vlans))
    return Findings(
        (
            judged("hydra/vlans", number, "VLANs of seven paths among six racks, ours"),
            Row(
                "fewest VLANs of these paths, by exhaustive search",
                "",
                str(first.fewest),
                target=f"{number}",
                met=first.fewest == number,
            ),
            Row("VLANs with a loop", "", str(len(loops)), target="0", met=not loops),
            Row(
                f"random plans of seven paths with more VLANs than the fewest, of {len(random)}",
                "",
                str(more),
                target="0",
                met=more == 0,
            ),
        ),
        (
            Table(
                "VLANs of the paths",
                ("path", "VLAN"),
                tuple((_name(walk), str(vlan)) for walk, vlan in paths.items()),
            ),
            Table(
                "Random plans of seven paths",
                ("VLANs", "plans"),
                tuple(
                    (str(count), str(sum(allocated == count for allocated, _ in random)))
                    for count in sorted({allocated for allocated, _ in random})
                ),
            ),
        ),
    )


def _name(walk: Walk) -> str:
    return " – ".join(f"r{rack}" for rack in walk)


def _draw(runs: Sequence[Allocation], directory: Path) -> Sequence[Path]:
    """As in the paper's figure: the wanted paths, and each VLAN on the circuits."""
    vlans = sorted(set(runs[0].vlans))
    colours = dict(zip(vlans, (BLUE, VERMILION, GREEN, PURPLE), strict=False))
    at = {
        rack: (float(np.cos(angle)), float(np.sin(angle)))
        for rack, angle in enumerate(np.pi / 2 - np.pi / 3 * np.arange(_RACKS), start=1)
    }
    figure = Figure(figsize=(10.0, 4.0), dpi=150, layout="constrained")
    left, *others = figure.subplots(1, 1 + len(vlans))
    left.set_title("seven paths")
    for place, (walk, vlan) in enumerate(zip(WALKS, runs[0].vlans, strict=True)):
        aside = 0.03 * (place - len(WALKS) / 2)
        x, y = zip(*((at[rack][0] + aside, at[rack][1] + aside) for rack in walk), strict=True)
        left.plot(x, y, color=colours[vlan], linewidth=1.5)
    circuits = sorted({(min(hop), max(hop)) for walk in WALKS for hop in pairwise(walk)})
    for axes, vlan in zip(others, vlans, strict=True):
        walks = [walk for walk, walked in zip(WALKS, runs[0].vlans, strict=True) if walked == vlan]
        used = {(min(hop), max(hop)) for walk in walks for hop in pairwise(walk)}
        axes.set_title(f"VLAN {vlan}")
        for pair in circuits:
            x, y = zip(*(at[rack] for rack in pair), strict=True)
            style = {"color": colours[vlan], "linewidth": 2.5} if pair in used else {"color": GREY}
            axes.plot(x, y, **{"linewidth": 0.6, **style})
        axes.set_xlabel("\n".join(map(_name, walks)), fontsize="small")
    for axes in (left, *others):
        for rack, (across, up) in at.items():
            axes.text(across, up, f"r{rack}", ha="center", va="center", bbox={"facecolor": "white"})
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[], yticks=[])
    for vlan in vlans:
        left.plot([], [], color=colours[vlan], label=f"VLAN {vlan}")
    legend_below(figure, left)
    written = directory / "fig4.png"
    figure.savefig(written)
    return [written]


def _expected_s(full: bool) -> float:
    return 8.0 if full else 2.0


EXPERIMENT: Final = Experiment(
    name="fig4",
    title="Seven paths in three VLANs",
    source="Christodoulopoulos et al., HydRA, JOCN 2015, section III.B.1, Fig. 4",
    topology=f"{_RACKS} racks on one optical switch",
    workload="seven paths of ours, and random plans of seven paths",
    policy="the controller's own allocation of VLANs",
    measured="VLANs, and the fewest by exhaustive search",
    needs_data_plane=False,
    expected_s=_expected_s,
    measure=_measure,
    conclude=_conclude,
    draw=_draw,
)
