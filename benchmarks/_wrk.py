"""The REST API under load by wrk (https://github.com/wg/wrk), over connections that stay open."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("_wrk.lua")
CLIENTS = 4
THREADS = 2
SECONDS = 5


@dataclass(frozen=True, slots=True)
class Load:
    """Counts and times reported by wrk."""

    requests: int
    seconds: float
    p99_ms: float
    worst_ms: float
    created: int
    """Number of requests answered with 200 or 201."""
    refused: int
    """Number of requests answered with 409."""
    failed: int

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def check_wrk() -> None:
    """Raises SystemExit if wrk is not installed."""
    if shutil.which("wrk") is None:
        raise SystemExit("no wrk here: install it (apt-get install wrk)")


def load(url: str, kind: str, choices: Sequence[str], ahead_s: float) -> Load:
    """``kind`` is ``healthz``, ``read``, ``page`` or ``reserve``; see the script.

    ``choices`` are ids of reservations, or names of racks; ``ahead_s`` is the latest start of a new
    reservation, from now. Raises RuntimeError for any error.
    """
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(choices))
        file.flush()
        command = [
            *("wrk", f"-t{THREADS}", f"-c{CLIENTS}", f"-d{SECONDS}s", "-s", str(SCRIPT), url),
            *("--", kind, file.name, str(ahead_s)),
        ]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seen = Load(**json.loads(output.strip().rpartition("\n")[2]))
    if seen.failed or not seen.created:
        raise RuntimeError(f"{kind}: {seen}")
    return seen
