"""Circuits moved by a constant demand, and by mice: the target is none.

``python -m benchmarks.stability [MINUTES]`` (root; by default 10, twice). The periodic mode with
its defaults, a decision every 10 s, on the demo fabric at a fifth of its rates (20 and 2 Mb/s).
First two pairs of racks send TCP at full speed, with mice in addition: once these pairs' circuits
stand, no circuit should move. Then only mice: all servers send bursts of random size at random
times to random racks, on average a fifth of an elephant's least rate per rack pair. (A pair whose
random load exceeds that rate is no mouse, and gets a free circuit.)
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from hydra.policy import Policy
from mininet_scenarios import plain_http
from mininet_scenarios.stage.controller_client import ControllerClient
from mininet_scenarios.stage.stage import Stage, tcp_transfer

MINUTES = 10.0
OPTICAL_MBPS = 20
HOT = (("h11", "h21"), ("h31", "h41"))
PORT = 5201
SETTLE_S = 40.0
"""Time for the first circuits: the demand has to be measured, and an epoch has to pass."""
SAMPLE_S = 2.0


@contextmanager
def mice(stage: Stage, mbps_per_pair: float) -> Iterator[None]:
    """Mice from every server to the first server of each other rack, at this rate for a pair of
    racks.
    """
    with ExitStack() as stack:
        for number, server in enumerate(stage.fabric.servers):
            others = [rack for rack in stage.fabric.racks if rack.id != server.rack]
            to = ",".join(stage.address(rack.servers[0].name) for rack in others)
            share = mbps_per_pair * len(others) / len(stage.fabric.racks[server.rack].servers)
            arguments = ["--to", to, "--mbps", f"{share:.3f}", "--seed", str(number)]
            stack.enter_context(stage.workload(server.name, "mice", arguments))
        yield


@dataclass(frozen=True, slots=True)
class Watched:
    changes: int
    decisions: int
    largest_mouse_mbps: float
    """Largest average seen by the controller for a rack pair without an elephant."""


def watch(stage: Stage, seconds: float, hot: Sequence[tuple[str, str]]) -> Watched:
    """Changes and decisions after the first circuits stood."""
    with ExitStack() as stack:
        process = stack.enter_context(stage.process({"mode": "periodic"}))
        client = stack.enter_context(ControllerClient(process.base_url))
        client.reconfigure([])
        for number, pair in enumerate(hot):
            length_s = int(SETTLE_S + seconds + 10)
            stack.enter_context(tcp_transfer(stage, *pair, PORT + number, length_s))
        stack.enter_context(mice(stage, Policy().elephant_mbps / 5))
        time.sleep(SETTLE_S)
        if bool(client.circuits_per_plane()) != bool(hot):
            raise SystemExit(f"circuits after {SETTLE_S:g} s: {client.circuits_per_plane()}")
        before, began_s = len(client.reconfigurations()), time.time()
        ask = stack.enter_context(plain_http.client(base_url=process.base_url))
        largest_mbps, elephants = 0.0, {frozenset(racks_of(stage, pair)) for pair in hot}
        while time.time() < began_s + seconds:
            time.sleep(SAMPLE_S)
            seen = largest_mouse(ask.get("/v1/demand").json(), elephants)
            largest_mbps = max(largest_mbps, seen)
        decisions = ask.get("/v1/decisions").json()["records"]
        changes = len(client.reconfigurations()) - before
    made = sum(decision["unix_s"] >= began_s for decision in decisions)
    return Watched(changes, made, largest_mbps)


def racks_of(stage: Stage, servers: Collection[str]) -> list[str]:
    fabric = stage.fabric
    return [fabric.racks[fabric.server_by_name[name].rack].name for name in servers]


def largest_mouse(demand: Mapping[str, Any], elephants: Collection[frozenset[str]]) -> float:
    mice = [e for e in demand["entries"] if frozenset((e["src"], e["dst"])) not in elephants]
    return max((float(flow["rate_mbps"]) for flow in mice), default=0.0)


def rows(case: str, run: Watched) -> list[Result]:
    limit_mbps = Policy().elephant_mbps
    decisions = f"reconfigurations, in {run.decisions} decisions"
    return [
        Result(case, decisions, "", "lower", run.changes, target=0),
        Result(case, "largest mouse seen", "Mb/s", "higher", run.largest_mouse_mbps, limit_mbps,
               "an elephant is one from"),
    ]  # fmt: skip


def main(argv: Sequence[str] = ()) -> int:
    minutes = float(argv[0]) if argv else MINUTES
    with demo_stage(OPTICAL_MBPS) as stage:
        stable = watch(stage, 60 * minutes, HOT)
        noisy = watch(stage, 60 * minutes, ())
    results = rows(f"stable demand, {minutes:g} min", stable)
    results += rows(f"mice, {minutes:g} min", noisy)
    return report("stability", results)


if __name__ == "__main__":
    run_benchmark(main)
