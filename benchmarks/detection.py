"""Time for which a dead circuit carries traffic: from the cut to the confirmed divert of its pairs.

``python -m benchmarks.detection`` (root). On the demo fabric, a circuit under a standing path is
cut in two ways: carrier goes (port state), or one direction dies while there is light (probes). The
baseline is three intervals between probes.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from statistics import median

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.controller_client import (
    ControllerClient,
    PairDemand,
    ReconfigurationRecord,
)

TRIALS = 10
INTERVAL_S = 1.0
PORT_STATE_TARGET_MS = 300.0
PROBE_INTERVALS_TARGET = 3
_SETTLED_S = 1.3
"""Time for quarantines to end, and for the first probes of a new path."""
_PATIENCE_S = 15.0
_DEMAND = PairDemand("r1", "r2", 80.0)


def cut_fibre() -> None:
    subprocess.run(["ip", "link", "set", "dev", "hyc-p1-1", "down"], check=True)


def mend_fibre() -> None:
    subprocess.run(["ip", "link", "set", "dev", "hyc-p1-1", "up"], check=True)


def kill_direction() -> None:
    """The emulated mirror of one direction drops frames; its emulator and both ToRs see light."""
    subprocess.run(["tc", "filter", "del", "dev", "hyc-p1-1", "ingress"], check=True)


def nothing() -> None:
    """No cut to undo: the next connection moves the mirror again."""


def diverted_ms(
    client: ControllerClient, cut: Callable[[], None], mend: Callable[[], None]
) -> float:
    """Cut the pair's circuit on p1, and repair the circuit after the pair's divert."""
    time.sleep(_SETTLED_S)
    client.reconfigure([_DEMAND], racks=("r1", "r2"), use_planes=("p1",))
    if client.path_between("r1", "r2").planes != ("p1",):
        raise RuntimeError("there is no circuit on p1 to cut")
    known = {record.id for record in client.reconfigurations()}
    time.sleep(_SETTLED_S)
    cut_unix_s = time.time()
    cut()
    try:
        record = _withdrawal(client, known)
    finally:
        mend()
    (divert,) = (step for step in record.timeline if step.step == "divert")
    return (record.created_unix_s - cut_unix_s) * 1000 + divert.finished_ms


def _withdrawal(client: ControllerClient, known: set[str]) -> ReconfigurationRecord:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        for record in reversed(client.reconfigurations()):
            if record.id not in known and record.trigger == "circuit lost" and record.finished:
                return record
        time.sleep(0.05)
    raise RuntimeError(f"the cut was not noticed within {_PATIENCE_S:g} s")


def main() -> int:
    # Short quarantines: each trial uses the same ports again.
    policy = {"probe_interval_s": INTERVAL_S, "quarantine_s": 0.5, "audit_interval_s": 0}
    with demo_stage() as stage, stage.controller(policy) as client:
        by_state = [diverted_ms(client, cut_fibre, mend_fibre) for _ in range(TRIALS)]
        by_probe = [diverted_ms(client, kill_direction, nothing) for _ in range(TRIALS)]
    bound_ms = PROBE_INTERVALS_TARGET * INTERVAL_S * 1000
    results = []
    for case, taken, target in (
        ("carrier lost, by port state", by_state, PORT_STATE_TARGET_MS),
        (f"one direction dead, probes every {INTERVAL_S:g} s", by_probe, bound_ms),
    ):
        for name, figure in (("median", median(taken)), ("worst", max(taken))):
            metric = f"cut to diverted, {name} of {TRIALS}"
            results.append(
                Result(case, metric, "ms", "lower", figure, bound_ms, "3 intervals", target)
            )
    return report("detection", results)


if __name__ == "__main__":
    run_benchmark(main)
