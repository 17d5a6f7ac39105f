"""schemathesis (https://schemathesis.io) on a running controller, on the demo fabric.

``python -m benchmarks.fuzz_api [EXAMPLES]`` (root): EXAMPLES of each operation, by default 50, and
sequences of operations. Every request has to be answered according to /openapi.json, and afterwards
the controller has to be ready, without internal errors. Requests take effect on real switches and
emulated mirrors. ``tests/unit/rest/test_schema_fuzz.py`` is a short form, without a network.

``python -m benchmarks.fuzz_api --hostile [--requests N] [--seed S]``: requests that no client would
send (``benchmarks/_hostile.py``), as viewer, tenant, agent, and without a token, to a controller
whose devices do not answer. ``tests/unit/rest/test_hostile_requests.py`` is a short form.
"""

from __future__ import annotations

import argparse
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from rich.progress import Progress

from apps.rest.tokens import write_tokens
from benchmarks._demo import demo_stage
from benchmarks._hostile import assault, operations
from benchmarks._report import Result, report, run_benchmark
from benchmarks.fuzz_openflow import p99, resident_mb
from hydra.access import Role, make_token
from mininet_scenarios import plain_http
from mininet_scenarios.kills import UNHURRIED
from tests.unit.controller.test_responsiveness import Controller
from tests.unit.planning.test_planner import wait_until

EXAMPLES = 50
REQUESTS = 20_000
MOST_READY_MS = 1000.0
MOST_MB = 300.0
CONFIG = Path(__file__).parents[1] / "tests" / "unit" / "rest" / "schemathesis.toml"
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
READY_S = 60.0


def describe(examples: int) -> list[Result]:
    """Requests made from the API description."""
    started_s = time.monotonic()
    with demo_stage() as stage, stage.process({"mode": "on-request"}, UNHURRIED) as process:
        run = subprocess.run(
            [
                *(SCHEMATHESIS, "--config-file", CONFIG, "run", f"{process.base_url}/openapi.json"),
                *("--max-examples", str(examples), "--generation-deterministic", "--no-color"),
                *("--exclude-path", "/v1/events"),  # an endless stream
            ],
            capture_output=True,
            text=True,
            cwd=stage.work_dir,
            check=False,
        )
        with plain_http.client(base_url=process.base_url, timeout=30) as http:
            wait_until_ready(http)
            metrics = http.get("/metrics").raise_for_status().text
        log = process.log.read_text()
    print(run.stdout)
    (cases,) = map(int, re.findall(r"(\d+) generated", run.stdout))
    failures = sum(map(int, re.findall(r"(\d+) (?:unique )?failures?", run.stdout)))
    (failed_jobs,) = map(float, re.findall(r"^hydra_failed_jobs_total (\S+)", metrics, re.M))
    case = f"{cases} requests in {time.monotonic() - started_s:.0f} s"
    return [
        Result(case, "failures", "", "lower", failures or run.returncode, cases, "requests", 0),
        Result(case, "failed jobs of the controller", "", "lower", failed_jobs, cases,
               "requests", 0),
        Result(case, "tracebacks in its log", "", "lower", log.count("Traceback"), cases,
               "requests", 0),
    ]  # fmt: skip


def attack(count: int, seed: int) -> list[Result]:
    """Hostile requests."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        names = {Role.VIEWER: "vera", Role.TENANT: "tina", Role.AGENT: "h11"}
        made = {
            role: make_token(name, role, secrets.token_hex(), 1.0) for role, name in names.items()
        }
        write_tokens(folder / "tokens.json", [stored for _, stored in made.values()])
        settings: dict[str, Any] = {"tokens": str(folder / "tokens.json"), "requests_per_s": 1e6}
        controller = Controller(folder, settings)
        try:
            wait_until(controller.answers, 60)
            document = controller.http.get("/openapi.json").json()
            before_mb = resident_mb(controller)
            with Progress(transient=True) as progress:
                bar = progress.add_task("requests", total=count)
                outcome = assault(
                    controller.http.base_url.port or 0,
                    operations(document),
                    {role: token for role, (token, _) in made.items()},
                    count,
                    seed,
                    lambda: progress.advance(bar),
                )
            ended = not controller.answers()
            after_mb = resident_mb(controller, "VmHWM")
            log = controller.log.read_text(errors="replace")
        finally:
            controller.close()
    for escape in outcome.escapes:
        print(escape)
    case = f"{count} hostile requests in {outcome.lasted_s:.0f} s"
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(outcome.requests.items()))
    answers = ", ".join(
        f"{number} of {status or 'none'}" for status, number in sorted(outcome.statuses.items())
    )
    probes, most_mb = f"of {len(outcome.probes_ms)}", before_mb + MOST_MB
    median_ms, longest_ms = statistics.median(outcome.probes_ms), max(outcome.probes_ms)
    escapes, tracebacks = len(outcome.escapes), log.count("Traceback")
    return [
        Result(case, "controller ended", "", "lower", ended, target=0, note=kinds),
        Result(case, "answers of 500, or to parts", "", "lower", escapes, target=0, note=answers),
        Result(case, "tracebacks in its log", "", "lower", tracebacks, target=0),
        Result(case, "lines of its log", "", "lower", len(log.splitlines()), count, "requests"),
        Result(case, "most memory", "MB", "lower", after_mb, before_mb, "before", most_mb),
        Result(case, "/readyz unanswered", "", "lower", outcome.unanswered_probes, target=0,
               note=probes),
        Result(case, "/readyz, 99th percentile", "ms", "lower", p99(outcome.probes_ms), median_ms,
               "median"),
        Result(case, "/readyz, longest", "ms", "lower", longest_ms, median_ms, "median",
               MOST_READY_MS),
    ]  # fmt: skip


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_api")
    parser.add_argument("examples", type=int, nargs="?", default=EXAMPLES)
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    if given.hostile:
        return report("fuzz_api", attack(given.requests, given.seed))
    return report("fuzz_api", describe(given.examples))


def wait_until_ready(http: httpx.Client) -> None:
    deadline_s = time.monotonic() + READY_S
    while http.get("/readyz").is_error:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not ready within {READY_S:.0f} s")
        time.sleep(0.2)


if __name__ == "__main__":
    run_benchmark(main)
