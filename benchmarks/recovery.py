"""A controller killed in the middle of a change: recovery time of the next controller, and losses.

``python -m benchmarks.recovery`` (root). On the demo fabric, SIGKILL hits the controller while the
circuit of a pair moves, in each phase of the change several times; then the controller is started
again. Meanwhile datagrams go between every two racks. Recovered means: ready, with the mirrors of
every plane as reported by the controller. The baseline is a stop and a start without a change.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from hydra.lifecycle import ReconfigurationState
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.controller_process import ControllerProcess
from mininet_scenarios.stage.stage import Losses, Stage
from mininet_scenarios.stage.streams import streams_everywhere

TRIALS = 3
PHASES = [
    state.value
    for state in (
        ReconfigurationState.QUEUED,
        ReconfigurationState.DIVERTING,
        ReconfigurationState.DRAINING,
        ReconfigurationState.MOVING,
        ReconfigurationState.GATING,
        ReconfigurationState.ACTIVATING,
    )
]
LONGEST_SILENCE_MS = 200.0
_MOVED = PairDemand("r1", "r2", 80.0)
_KEPT = PairDemand("r3", "r4", 80.0)
_PATIENCE_S = 30.0


def _settled(stage: Stage, client: ControllerClient) -> bool:
    circuits = client.circuits_per_plane()
    return all(
        stage.testbed.ocs(plane.name).counters().cross_connects == 2 * circuits[plane.name]
        for plane in stage.fabric.planes
    )


def _start_s(stage: Stage, process: ControllerProcess) -> float:
    """Time from the start of the process to recovered."""
    started_s = time.monotonic()
    process.start()
    with ControllerClient(process.base_url) as client:
        while not _settled(stage, client):
            if time.monotonic() - started_s > _PATIENCE_S:
                raise RuntimeError(f"not recovered within {_PATIENCE_S:g} s")
            time.sleep(0.02)
    return time.monotonic() - started_s


def _killed_s(stage: Stage, process: ControllerProcess, phase: str) -> float:
    with ControllerClient(process.base_url) as client:
        client.reconfigure([_MOVED], racks=("r1", "r2"), use_planes=("p1",))
        number = client.request([_MOVED], racks=("r1", "r2"), use_planes=("p2",))
        # A change past the phase is killed there: phases last milliseconds.
        reached = [*PHASES[PHASES.index(phase) :], ReconfigurationState.DONE.value]
        while client.reconfiguration(number).state not in reached:
            time.sleep(0.01)  # the controller answers 100 requests a second for long
        process.kill()
    return _start_s(stage, process)


def _stopped_s(stage: Stage, process: ControllerProcess) -> float:
    process.stop()
    return _start_s(stage, process)


def _watched(stage: Stage, play: Callable[[], None]) -> tuple[float, int, Losses]:
    """(Longest silence of any pair in ms, datagrams lost, frames lost) while ``play`` runs."""
    before = stage.losses()
    with streams_everywhere(stage) as streams:
        play()
        results = [stream.stop() for stream in streams]
    silence_ms = max(result.max_gap_ms for result in results)
    return silence_ms, sum(result.lost for result in results), stage.losses().since(before)


def main() -> int:
    recovered_s: dict[str, list[float]] = {phase: [] for phase in PHASES}
    calm_s: list[float] = []
    # Only the state of a circuit counts: an audit must not repair faults left by the recovery.
    with demo_stage() as stage, stage.process({"audit_interval_s": 0}) as process:
        with ControllerClient(process.base_url) as client:
            client.reconfigure([_MOVED, _KEPT], use_planes=("p1",))

        def kills() -> None:
            for phase in PHASES:
                for trial in range(TRIALS):
                    recovered_s[phase].append(_killed_s(stage, process, phase))
                    print(f"killed while {phase}, {trial + 1} of {TRIALS}: recovered")

        def stops() -> None:
            calm_s.extend(_stopped_s(stage, process) for _ in range(TRIALS))

        calm_silence_ms, calm_lost, _ = _watched(stage, stops)
        silence_ms, lost, losses = _watched(stage, kills)
    calm = median(calm_s)
    results = [
        Result(f"killed while {phase}", f"start to recovered, median of {TRIALS}", "s", "lower",
               median(taken), calm, "stop and start")
        for phase, taken in recovered_s.items()
    ]  # fmt: skip
    whole = f"{TRIALS * len(PHASES)} kills"
    results += [
        Result(whole, "longest silence of any rack pair", "ms", "lower", silence_ms,
               calm_silence_ms, "stop and start", LONGEST_SILENCE_MS),
        Result(whole, "datagrams lost", "", "lower", float(lost), float(calm_lost),
               "stop and start", 0.0),
        Result(whole, "frames at dark ports", "", "lower", float(losses.dark_frames), 0.0,
               "stop and start", 0.0),
    ]  # fmt: skip
    return report("recovery", results)


if __name__ == "__main__":
    run_benchmark(main)
