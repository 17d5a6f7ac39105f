"""Reserved bandwidth after a cut fibre: a protected reservation compared with re-routing.

``python -m benchmarks.protection`` (root). On the demo fabric, slowed down, h11 sends 1000
datagrams a second to h21 with a reservation, four times as much as the electrical network carries.
The fibre of the working path is cut at the far end of the path, where the sender's switches see no
loss of carrier. The baseline is a reservation without protection: the same cut, until the path on
the other plane stands. The number of lost datagrams, at the stream's rate, gives the time without
the reserved bandwidth.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from statistics import median
from typing import Final

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from hydra_hybrid_network_client import HydraClient
from hydra_hybrid_network_client.documents import Protect, Reservation
from mininet_scenarios.stage.controller_client import ControllerClient
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.streams import UdpResult, paced_stream

TRIALS: Final = 10
PPS: Final = 1000.0
PAYLOAD_BYTES: Final = 960
MBPS: Final = 9.0
CIRCUIT_MBPS: Final = 20.0
TARGET_MS: Final = 20.0
_PATIENCE_S: Final = 20.0
_SETTLED_S: Final = 1.5
"""Time for the first probes and announcements on new paths."""


def fibre(plane: str, up: bool) -> None:
    """Cut or repair the fibre of r2, the receiver's rack."""
    state = "up" if up else "down"
    subprocess.run(["ip", "link", "set", "dev", f"hyc-{plane}-2", state], check=True)


def wait_until(condition: Callable[[], bool]) -> None:
    began_s = time.monotonic()
    while time.monotonic() - began_s < _PATIENCE_S:
        if condition():
            return
        time.sleep(0.002)
    raise RuntimeError(f"not within {_PATIENCE_S:g} s")


def plane_of(reservation: Reservation) -> str:
    return reservation.path.hops[0].plane if reservation.path else ""


def trial(
    stage: Stage, client: ControllerClient, hydra: HydraClient, protect: Protect
) -> UdpResult:
    """The stream across a cut, until the other path carries the reservation."""
    paths = 2 if protect is Protect.DISJOINT else 1
    made = hydra.reserve("h11", "h21", MBPS, protect=protect, wait_s=30)
    wait_until(lambda: len(hydra.topology().paths) == paths)
    time.sleep(_SETTLED_S)
    plane = plane_of(hydra.reservation(made.id))
    with paced_stream(stage, "h11", "h21", pps=PPS, payload_bytes=PAYLOAD_BYTES) as stream:
        time.sleep(0.5)
        fibre(plane, up=False)
        try:
            wait_until(lambda: plane_of(hydra.reservation(made.id)) not in ("", plane))
            time.sleep(0.3)
            result = stream.stop()
        finally:
            fibre(plane, up=True)
    hydra.release(made.id, wait_s=30)
    wait_until(lambda: not hydra.topology().circuits)
    for rack, port in client.set_aside_ports():
        client.clear(rack, port)
    return result


def main() -> int:
    policy = {"audit_interval_s": 0, "quarantine_s": 60.0}
    found: dict[Protect, list[UdpResult]] = {kind: [] for kind in Protect}
    with (
        demo_stage(CIRCUIT_MBPS) as stage,
        stage.process(policy) as process,
        ControllerClient(process.base_url) as client,
        HydraClient(process.base_url) as hydra,
    ):
        for _ in range(TRIALS):
            for protect, results in found.items():
                results.append(trial(stage, client, hydra, protect))
    plain, protected = found[Protect.NONE], found[Protect.DISJOINT]
    figures: dict[str, Callable[[UdpResult], float]] = {
        "longest silence": lambda stream: stream.max_gap_ms,
        "time without the bandwidth": lambda stream: stream.lost * 1000 / PPS,
    }
    compared: list[Result] = []
    for name, of in (("median", median), ("worst", max)):
        for metric, figure in figures.items():
            ours, baseline = (of(list(map(figure, some))) for some in (protected, plain))
            target = TARGET_MS if name == "median" else None
            what = f"{metric}, {name} of {TRIALS}"
            compared.append(
                Result("cut fibre", what, "ms", "lower", ours, baseline, "re-route", target)
            )
    return report("protection", compared)


if __name__ == "__main__":
    run_benchmark(main)
