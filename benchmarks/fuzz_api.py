"""schemathesis (https://schemathesis.io) on a running controller, on the demo fabric.

``python -m benchmarks.fuzz_api [EXAMPLES]`` (root): EXAMPLES of each operation, by default 50, and
sequences of operations. Every request has to be answered as /openapi.json says, and the controller
has to be well afterwards: nothing failed inside, and ready. Requests are carried out, on real
switches and emulated mirrors. ``tests/unit/rest/test_schema_fuzz.py`` is a short form, without a
network.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report
from mininet_scenarios.kills import UNHURRIED

EXAMPLES = 50
CONFIG = Path(__file__).parents[1] / "tests" / "unit" / "rest" / "schemathesis.toml"
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
READY_S = 60.0


def main(argv: Sequence[str] = ()) -> int:
    examples = argv[0] if argv else str(EXAMPLES)
    started_s = time.monotonic()
    with demo_stage() as stage, stage.process({"mode": "on-request"}, UNHURRIED) as process:
        run = subprocess.run(
            [
                *(SCHEMATHESIS, "--config-file", CONFIG, "run", f"{process.base_url}/openapi.json"),
                *("--max-examples", examples, "--generation-deterministic", "--no-color"),
                *("--exclude-path", "/v1/events"),  # it does not end
            ],
            capture_output=True,
            text=True,
            cwd=stage.work_dir,
            check=False,
        )
        with httpx.Client(base_url=process.base_url, timeout=30, trust_env=False) as http:
            wait_until_ready(http)
            metrics = http.get("/metrics").raise_for_status().text
        log = process.log.read_text()
    print(run.stdout)
    (cases,) = map(int, re.findall(r"(\d+) generated", run.stdout))
    failures = sum(map(int, re.findall(r"(\d+) (?:unique )?failures?", run.stdout)))
    (failed_jobs,) = map(float, re.findall(r"^hydra_failed_jobs_total (\S+)", metrics, re.M))
    case = f"{cases} requests in {time.monotonic() - started_s:.0f} s"
    results = [
        Result(case, "failures", "", "lower", failures or run.returncode, cases, "requests", 0),
        Result(case, "failed jobs of the controller", "", "lower", failed_jobs, cases,
               "requests", 0),
        Result(case, "tracebacks in its log", "", "lower", log.count("Traceback"), cases,
               "requests", 0),
    ]  # fmt: skip
    report("fuzz_api", results)
    return 0 if all(result.meets_target for result in results) else 1


def wait_until_ready(http: httpx.Client) -> None:
    deadline_s = time.monotonic() + READY_S
    while http.get("/readyz").is_error:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not ready within {READY_S:.0f} s")
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
