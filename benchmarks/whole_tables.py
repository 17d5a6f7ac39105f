"""Whole tables of the reference fabric's vswitches: made, encoded, and compared with the switches'
tables.

``python -m benchmarks.whole_tables``. The 32 vswitches of a rack get their rules (665 each, of
which 664 are common), as at a start, and their flow statistics are compared with the rules, as in
an audit. The baseline is the same code without common rules: every rule of every vswitch
separately.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from apps.process.configuration import load_configuration
from benchmarks._replies import PORTS, flow_entry
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from drivers.codecs.openflow.rule_tables import intended_table, table_drift
from drivers.codecs.openflow.rules import encode_changes
from hydra.forwarding.rules import Install, Installation, installed
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.reconcile import Held
from hydra.reconfiguration.switches import Switches

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
RUNS: Final = 15
_BUNDLE: Final = 1
Tables = dict[DatapathId, tuple[Installation, ...]]


def encode(tables: Tables) -> list[bytes]:
    return [encode_changes(table, PORTS, xid, _BUNDLE) for xid, table in enumerate(tables.values())]


def compare(tables: Tables, bodies: Sequence[bytes]) -> None:
    for (datapath, table), body in zip(tables.items(), bodies, strict=True):
        if table_drift(f"{datapath:#x}", table, PORTS, body).items:
            raise SystemExit("a table that is as intended differs: there is nothing to compare")


def held_kb(make) -> float:
    """Memory used by the result of ``make``."""
    tracemalloc.start()
    made = make()
    octets, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return octets / len(made) / 1000


def measure(fabric: Fabric) -> list[Result]:
    substrate, state = substrate_of(fabric), NetworkState()
    memory = SimpleNamespace(state=state, held=Held())
    switches = Switches(
        fabric=fabric,
        policy=CurrentPolicy(load_configuration(CONFIG).policy),
        memory=memory,
        connections=None,
    )
    rack = [switch.datapath for switch in substrate.steering(fabric.racks[0].id)]

    def ours() -> Tables:
        return dict(switches.tables(rack))

    def each() -> Tables:
        return {
            datapath: tuple(map(Install, substrate.rules(datapath, state, ()))) for datapath in rack
        }

    def statistics(table: Sequence[Installation]) -> bytes:
        entries = [flow_entry(rule, 10**9, 7, 700) for rule in installed(table)]
        return b"".join(sorted(entries, key=lambda entry: (entry[2], len(entry))))

    bodies = [statistics(table) for table in each().values()]
    common, single = ours(), each()
    tables = [
        [intended_table(way[datapath], PORTS) for datapath in rack] for way in (common, single)
    ]
    if tables[0] != tables[1]:
        raise SystemExit("the two ways encode other rules: there is nothing to compare")
    results = []
    for case, way, other in (
        ("made and encoded in bundles", lambda: encode(ours()), lambda: encode(each())),
        ("held against flow statistics", lambda: compare(ours(), bodies),
         lambda: compare(each(), bodies)),
    ):  # fmt: skip
        ways = {"ours": lambda _, way=way: way(), "each": lambda _, way=other: way()}
        times = median_ms(ways, RUNS, time.process_time)
        results.append(
            Result(case, f"a vswitch, median of {RUNS}", "ms", "lower", times["ours"] / len(rack),
                   times["each"] / len(rack), "every rule by itself")
        )  # fmt: skip
    kb = held_kb(ours), held_kb(each)
    results.append(Result("in memory", "a vswitch", "kB", "lower", *kb, "every rule by itself"))
    return results


def main() -> int:
    return report("whole_tables", measure(load_configuration(CONFIG).fabric))


if __name__ == "__main__":
    run_benchmark(main)
