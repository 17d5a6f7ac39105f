"""Processor time of a controller.

``python -m benchmarks.processor`` (root). The whole controller on the demo fabric, four ToRs and
eight vswitches of Open vSwitch, without and with polling; then only polling, for 125 ToRs and 1,000
vswitches of 125 rules, which the benchmark's process plays. Polling is once a second throughout.
The baseline of a row is the row before.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from apps.process.configuration import load_configuration
from benchmarks import sweep
from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.stage import Stage

WATCHED_S = 30.0
SETTLES_S = 5.0
RACKS, SERVERS = 125, 8


def share(stage: Stage, poll_interval_s: float) -> float:
    """Target share of a core for the whole controller without requests."""
    with stage.process({"poll_interval_s": poll_interval_s}) as process:
        time.sleep(SETTLES_S)
        before_s, started_s = process.cpu_s(), time.monotonic()
        time.sleep(WATCHED_S)
        return (process.cpu_s() - before_s) / (time.monotonic() - started_s)


def thousand(folder: Path) -> Path:
    """Configuration of the reference fabric with fewer racks, and fewer servers in each rack."""
    text = sweep.CONFIG.read_text()
    smaller = text.replace("r[1-320]", f"r[1-{RACKS}]").replace("-h[1-32]", f"-h[1-{SERVERS}]")
    path = folder / "thousand.yaml"
    path.write_text(smaller)
    if len(load_configuration(path).fabric.servers) != RACKS * SERVERS:
        raise RuntimeError(f"{sweep.CONFIG} names its racks and servers in another way now")
    return path


def main() -> int:
    with demo_stage() as stage:
        idle, eight = share(stage, 0.0), share(stage, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        many = asyncio.run(sweep.measure(thousand(Path(folder)), 1.0))
    rows = (
        ("whole controller, demo fabric, no polling", idle, idle, "itself"),
        ("whole controller, 8 vswitches polled", eight, idle, "no polling"),
        ("polling of 1,000 vswitches and 125 ToRs", many.cpu_share, eight, "8 vswitches"),
    )
    results = [
        Result(case, "of a core", "%", "lower", 100 * ours, 100 * baseline, name)
        for case, ours, baseline, name in rows
    ]
    asked = "1,000 vswitches and 125 ToRs"
    results.append(
        Result(asked, "answers", "/s", "higher", many.answers_per_s, note=str(many.troubles))
    )
    return report("processor", results)


if __name__ == "__main__":
    run_benchmark(main)
