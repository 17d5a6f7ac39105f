"""c-Through (SIGCOMM 2010, section 6.2, Fig. 7 and 8): Hadoop sorts, and keeps three copies.

Each server maps a part of the input and reduces a part of the keys. While maps run, their output
goes to all servers, after some blocks have come from other racks. Then each server writes its part
of the output, block by block: one copy stays, one goes to another rack, and a third from there to a
neighbour. Disks set the pace on any network: applications make data at a rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hydra.model import Fabric
from mininet_scenarios.experiments.cthrough import scenario
from mininet_scenarios.experiments.cthrough.scenario import (
    RACK_SERVERS,
    RACKS,
    Case,
    Completion,
    Scale,
)
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.transfers import Transferred, Wish, transfer_all

READ: Final = "read"
SHUFFLE: Final = "shuffle"
OUTPUT: Final = "output"
COPY: Final = "copy of the output"
PAPER_BYTES: Final = 10e9
"""Size of the input, of the maps' output, and of each copy of the final output."""
BLOCK_BYTES: Final = 64e6
_COPIES: Final = 3
_READS: Final = 0.1
"""Part of all blocks read from other racks; "a few" in the paper."""
_DISK_BYTES_PER_S: Final = 50e6
"""Assumed speed of a disk of 2009."""
_SERVER_BYTES: Final = PAPER_BYTES / (RACKS * RACK_SERVERS)
PAPER_MAP_S: Final = 2 * _SERVER_BYTES / _DISK_BYTES_PER_S
"""Time in which a server's maps read their input and write an equal output."""
PAPER_WRITE_S: Final = _COPIES * _SERVER_BYTES / _DISK_BYTES_PER_S
"""Time in which a server's disk writes a copy of its own output and two of others'."""
PAPER_DISKS_S: Final = PAPER_MAP_S + PAPER_WRITE_S
_STEP_S: Final = 3.0
"""Rough time to start all processes, at each of the two steps."""
_LONGEST: Final = 4.0

Sort = Completion[tuple[Transferred, ...]]
"""The sort: its time is scaled to all of the paper's data, the transfers' times are as measured."""


def reads(fabric: Fabric, scale: Scale) -> Iterator[Wish]:
    """Transfers of blocks from outside the mapper's rack, dealt out evenly, ready at once."""
    servers = [[server.name for server in rack.servers] for rack in fabric.racks]
    blocks = _READS * PAPER_BYTES / BLOCK_BYTES / sum(map(len, servers))
    each_bytes = max(1, round(blocks * BLOCK_BYTES * scale.rate * scale.part / (RACKS - 1)))
    for here, there, number in _rack_pairs(servers):
        yield Wish(servers[there][number], servers[here][number], each_bytes, READ)


def shuffle(fabric: Fabric, scale: Scale) -> Iterator[Wish]:
    """Transfers from each server to each other, made while the maps run."""
    servers = [server.name for server in fabric.servers]
    paper_bytes = PAPER_BYTES / len(servers) ** 2
    for mapper in servers:
        for reducer in servers:
            if mapper != reducer:
                yield _made(mapper, reducer, paper_bytes, PAPER_MAP_S, SHUFFLE, scale)


def output(fabric: Fabric, scale: Scale) -> Iterator[Wish]:
    """Transfers of a server's output, in equal parts to other racks, and on to a neighbour there.

    A block arrives before the next block is written, so a buffer never holds more than one block.
    While a server waits, the server's disk serves the others' output.
    """
    block_bytes = max(1, round(BLOCK_BYTES * scale.rate * scale.part))
    servers = [[server.name for server in rack.servers] for rack in fabric.racks]
    paper_bytes = PAPER_BYTES / sum(map(len, servers)) / (RACKS - 1)
    for here, there, number in _rack_pairs(servers):
        rack = servers[there]
        ends = servers[here][number], rack[number], rack[(number + 1) % len(rack)]
        for source, destination, kind in ((*ends[:2], OUTPUT), (*ends[1:], COPY)):
            wish = _made(source, destination, paper_bytes, PAPER_WRITE_S, kind, scale)
            yield replace(wish, unit_bytes=block_bytes, disk=kind)


def _rack_pairs(servers: Sequence[Sequence[str]]) -> Iterator[tuple[int, int, int]]:
    """Pairs of racks, and the number of a server in both."""
    for here, rack in enumerate(servers):
        for there in range(len(servers)):
            if there != here:
                for number in range(len(rack)):
                    yield here, there, number


def _made(
    source: str, destination: str, paper_bytes: float, paper_s: float, kind: str, scale: Scale
) -> Wish:
    size_bytes = max(1, round(paper_bytes * scale.rate * scale.part))
    return Wish(source, destination, size_bytes, kind, paper_bytes * 8e-6 / paper_s * scale.rate)


def _electrical_s(case: Case) -> float:
    """Time of a rack's uplink alone for all of the rack's data."""
    other_racks = 1 - 1 / RACKS
    rack_bytes = PAPER_BYTES / RACKS * (other_racks + 1 + _READS)
    return rack_bytes * 8e-6 / case.electrical_mbps


def expected_s(case: Case, scale: Scale) -> float:
    """Largest wall time of a sort."""
    network_s = _electrical_s(case) if case.circuits is None else 0.2 * _electrical_s(case)
    seconds = 1.2 * scale.part * max(PAPER_DISKS_S, network_s)
    if case.interval_s is not None:  # the last data have waited for two other racks at both steps
        seconds += 2 * (RACKS - 1) * case.interval_s
    return scenario.SETUP_S + 2 * _STEP_S + seconds


def run(stage: Stage, case: Case, scale: Scale, narrator: Narrator) -> Sort:
    """Play one case; raises ScenarioError for a run that can't be counted."""
    fabric = stage.fabric
    first = [*reads(fabric, scale), *shuffle(fabric, scale)]
    second = list(output(fabric, scale))
    longest_s = PATIENCE_S + _LONGEST * expected_s(case, scale)

    def sort() -> tuple[float, tuple[Transferred, ...]]:
        shuffled = transfer_all(stage, first, longest_s)
        written = _after(shuffled, transfer_all(stage, second, longest_s))
        return ended_s(written) / scale.part, shuffled + written

    with narrator.phase(str(case), expected_s(case, scale)):
        servers = [server.name for server in fabric.servers]
        stage.introduce(servers)
        completion = scenario.play(stage, case, scale, servers, sort)
    narrator.say(f"{case}: {completion.seconds:.0f} s, {completion.changes} changes")
    return completion


def ended_s(done: Sequence[Transferred]) -> float:
    return max(transfer.finished_s for transfer in done)


def _after(earlier: Sequence[Transferred], later: Sequence[Transferred]) -> tuple[Transferred, ...]:
    """``later`` without the time in which processes started in between."""
    gone_s = ended_s(earlier)
    return tuple(
        replace(
            transfer, started_s=gone_s + transfer.started_s, finished_s=gone_s + transfer.finished_s
        )
        for transfer in later
    )
