"""Reserved bandwidth on the demo fabric: the delivered rate, and the time until the first frame.

``python -m benchmarks.reserved [--seconds N]`` (root). 40 Mb/s are reserved between h11 and h21 on
a circuit of 100 Mb/s, and sent by TCP, against greedy TCP of four streams from h12 to h22 for a
minute; the baseline is the same contest on the same circuit without a reservation. Before that,
reservations are made and released while h11 sends to h21 throughout: the time from the request
until the first frame on a circuit, by part.
"""

from __future__ import annotations

import argparse
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import httpx

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios import plain_http
from mininet_scenarios.stage.contest import Outcome, contest
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.testbed import testbed_lock

RESERVED_MBPS = 40.0
STREAMS = 4
ROUNDS = 10
ENDS = ("h11", "h21")
RIVALS = ("h12", "h22")
RESERVATIONS = "/v1/reservations"
ALL = 3
PATIENCE_S = 20.0


@contextmanager
def running() -> Iterator[tuple[Stage, httpx.Client, ControllerClient]]:
    """The demo's data plane with a controller."""
    with testbed_lock(), demo_stage() as on, on.controller({}) as client:
        url = f"http://{on.config['controller']['rest']}"
        with plain_http.client(base_url=url, timeout=60) as http:
            yield on, http, client


def reserve(http: httpx.Client, seconds: int = 30) -> dict:
    body = {"src": ENDS[0], "dst": ENDS[1], "bandwidth_mbps": RESERVED_MBPS}
    answer = http.post(RESERVATIONS, json=body, headers={"Prefer": f"wait={seconds}"})
    answer.raise_for_status()
    return answer.json()


def release(http: httpx.Client, reservation: dict) -> None:
    path = f"{RESERVATIONS}/{reservation['id']}"
    http.delete(path, headers={"Prefer": "wait=30"}).raise_for_status()


def contend(on: Stage, seconds: float) -> Outcome:
    ends = {"steady": ENDS, "greedy": RIVALS, "greedy_streams": STREAMS}
    with contest(on, seconds, steady_mbps=RESERVED_MBPS, **ends) as under_way:
        return under_way.finish(seconds)


class FirstFrame(threading.Thread):
    """Waits for the first tagged IPv4 frame that leaves an optical port of a ToR."""

    def __init__(self, ports: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.seen_unix_s = 0.0
        self._taps = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in ports]
        for port, tap in zip(ports, self._taps, strict=True):
            tap.bind((port, ALL))  # not before: the socket would receive from all interfaces

    def run(self) -> None:
        while not self.seen_unix_s:
            ready, _, _ = select.select(self._taps, (), (), PATIENCE_S)
            if not ready:
                return
            for tap in ready:
                if is_tagged_ipv4(tap.recv(64)):
                    self.seen_unix_s = time.time()
        for tap in self._taps:
            tap.close()


def is_tagged_ipv4(frame: bytes) -> bool:
    """True for IPv4. The kernel removes a vswitch's tag before a tap sees the frame."""
    at = 16 if frame[12:14] == b"\x81\x00" else 12
    return frame[at : at + 2] == b"\x08\x00"


def first_byte(on: Stage, http: httpx.Client, client: ControllerClient) -> dict[str, float]:
    """Times from the request in ms, by part."""
    ports = [port.tor_port for port in on.fabric.ports_of(on.fabric.racks[0].id)]
    watch = FirstFrame(ports)
    watch.start()
    asked_s = time.time()
    body = {"src": ENDS[0], "dst": ENDS[1], "bandwidth_mbps": RESERVED_MBPS}
    made = http.post(RESERVATIONS, json=body)
    answered_s = time.time()
    made.raise_for_status()
    watch.join()
    path = f"{RESERVATIONS}/{made.json()['id']}"
    while http.get(path).json()["state"] == "activating":
        time.sleep(0.01)
    change = client.reconfigurations()[0]
    began_s = change.started_unix_s or asked_s
    steps = {
        entry.step: (entry.started_ms, entry.finished_ms)
        for entry in change.timeline
        if not entry.device
    }
    parts = {"POST until answered": (answered_s - asked_s) * 1000}
    parts["until the first step"] = (began_s - answered_s) * 1000
    for name, (started_ms, finished_ms) in steps.items():
        parts[f"step {name}"] = finished_ms - started_ms
    parts["POST until the first frame"] = (watch.seen_unix_s - asked_s) * 1000
    release(http, made.json())
    return parts


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each contest")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of request to first frame")
    options = parser.parse_args(arguments)
    results = []
    with running() as (on, http, client):
        rounds = []
        with on.job(ENDS[0], "ping", ["ping", "-i", "0.002", on.address(ENDS[1])]):
            time.sleep(1)
            rounds = [first_byte(on, http, client) for _ in range(options.rounds)]
        whole = median(times["POST until the first frame"] for times in rounds)
        for part in rounds[0]:
            ours = median(times.get(part, 0.0) for times in rounds)
            results.append(
                Result("request to first frame", part, "ms", "lower", ours, whole, "the whole")
            )
        client.reconfigure([PairDemand("r1", "r2", 80)])
        without = contend(on, options.seconds)
        reservation = reserve(http)
        kept = contend(on, options.seconds)
        release(http, reservation)
    case = f"{RESERVED_MBPS:g} of 100 Mb/s, {options.seconds:g} s"
    results += [
        Result(
            case,
            "reserved, delivered",
            "Mb/s",
            "higher",
            kept.steady.average_mbps,
            without.steady.average_mbps,
            "without a reservation",
            0.95 * RESERVED_MBPS,
        ),
        Result(
            case,
            "best effort beside it",
            "Mb/s",
            "higher",
            kept.greedy_mbps,
            without.greedy_mbps,
            "without a reservation",
        ),
    ]
    return report("reserved", results)


if __name__ == "__main__":
    run_benchmark(main)
