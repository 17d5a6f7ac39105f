"""Processor time of a controller and of its workers, by the number of workers.

``python -m benchmarks.workers [--racks 320] [--planes 32] [--vswitches-per-rack 32] [--workers 0 1
2 4]``. ``configs/reference.yaml`` as shipped, with the simulated switches of
``benchmarks.whole_fabric``, at a quarter of the racks and at all racks. With 0 workers the switches
connect to the controller itself. All other work is the same in all runs: the controller plans,
decides, and speaks to ToRs and planes. The last table is a model of a fabric of ten times the size,
with stated assumptions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Final

from benchmarks._fabric import Size, devices
from benchmarks._report import Result, report, run_benchmark
from benchmarks.whole_fabric import CHANGED_WITHIN_S, READY_WITHIN_S, Rest, changes
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.stage.controller_process import ControllerProcess
from mininet_scenarios.workers import WorkerProcess, await_workers

FULL: Final = Size(320, 32, 32)
IDLE_S: Final = 65.0
"""Longer than the polling interval."""
LARGER: Final = 10


class Session:
    """A controller with this number of workers through all phases; results are in :attr:`taken`."""

    def __init__(self, size: Size, number: int) -> None:
        self._size = size
        self._number = number
        self.taken: dict[str, tuple[float, float, list[float]]] = {}
        """By phase: seconds, and the processor time of the controller and of each worker."""

    def run(self) -> None:
        ports = [free_port() for _ in range(self._number)]
        with tempfile.TemporaryDirectory(prefix="hyW") as directory, ExitStack() as stack:
            place = Path(directory)
            switches, config = stack.enter_context(devices(self._size, place, ports))
            # Names in this order: shards are assigned to workers in turn, as racks' switches are.
            self._workers = [
                WorkerProcess(f"w{number:02}", config, port, place / f"worker-{number}.log")
                for number, port in enumerate(ports)
            ]
            for worker in self._workers:
                stack.callback(worker.kill)
                worker.start()
            for worker in self._workers:
                worker.await_start(READY_WITHIN_S)
            process = ControllerProcess(config, ready_timeout_s=READY_WITHIN_S)
            stack.callback(process.kill)
            switches.say("start")
            try:
                self._measure(process)
            except Exception:
                print(process.log_tail(), *(worker.log_tail() for worker in self._workers),
                      sep="\n", file=sys.stderr)  # fmt: skip
                raise

    def _measure(self, process: ControllerProcess) -> None:
        self._phase("ready, cold", process, process.start)
        if self._workers:
            each = self._size.vswitches // self._number // 2
            rest = Rest(process)
            await_workers(
                lambda: rest.get("/v1/workers")["workers"],
                lambda found: (
                    len(found) == self._number and all(worker["serves"] > each for worker in found)
                ),
            )
        self._phase("idle", process, lambda: time.sleep(IDLE_S))
        self._phase("an audit", process, lambda: self._audit(process))
        for name, body in changes(self._size)[:2]:
            self._phase(name, process, lambda body=body: self._change(process, body))
        process.stop()
        self._phase("ready, after a restart", process, process.start)

    def _phase(self, name: str, process: ControllerProcess, act: Callable[[], object]) -> None:
        mine_s = process.cpu_s() if process.running else 0.0
        theirs_s = [worker.cpu_s() for worker in self._workers]
        began_s = time.monotonic()
        act()
        taken_s = time.monotonic() - began_s
        workers_s = [
            worker.cpu_s() - before for worker, before in zip(self._workers, theirs_s, strict=True)
        ]
        self.taken[name] = taken_s, process.cpu_s() - mine_s, workers_s
        print(
            f"{self._number} workers, {name}: {taken_s:.2f} s; processor: controller "
            f"{self.taken[name][1]:.2f} s, workers {', '.join(f'{s:.2f}' for s in workers_s)}",
            flush=True,
        )

    def _audit(self, process: ControllerProcess) -> None:
        status, answer = Rest(process).ask("GET", "/v1/drift", None)
        if status != HTTPStatus.OK or answer["silent"] or answer["items"]:
            print(f"the audit is not clean: {str(answer)[:300]}")

    def _change(self, process: ControllerProcess, body: dict[str, object]) -> None:
        rest = Rest(process)
        _, answer = rest.ask("POST", "/v1/reconfigurations", body)
        until_s, number = time.monotonic() + CHANGED_WITHIN_S, answer["id"]
        while answer["state"] not in ("done", "partial", "refused", "failed"):
            if time.monotonic() > until_s:
                raise SystemExit(f"a change is {answer['state']} after {CHANGED_WITHIN_S:g} s")
            time.sleep(0.02)
            answer = rest.get(f"/v1/reconfigurations/{number}")
        if answer["state"] != "done":
            print(f"a change ended {answer['state']}: {answer.get('reason', '')[:300]}")


Figures = dict[str, tuple[float, float, list[float]]]
Taken = dict[int, Figures]
"""By number of workers."""


def rows(size: Size, taken: Taken) -> Iterator[Result]:
    """Measured results, compared with the smallest number of workers."""
    numbers = [*taken]
    for phase in taken[numbers[0]]:
        unit = "%" if phase == "idle" else "s"
        least_s, least = taken[numbers[0]][phase][0], _of_phase(phase, taken[numbers[0]], 1)[0]
        beside = f"{numbers[0]} workers"
        for number in numbers[1:]:
            case, figures = f"{size}, {number} workers", taken[number]
            own, each = _of_phase(phase, figures, number)
            yield Result(case, f"{phase}: controller", unit, "lower", own, least, beside)
            yield Result(case, f"{phase}: each worker, mean", unit, "lower", each)
            if phase != "idle":
                yield Result(case, phase, "s", "lower", figures[phase][0], least_s, beside)


def model(small: tuple[Size, Taken], large: tuple[Size, Taken]) -> Iterator[Result]:
    """Model of ten times as many switches, which were not played: a line through two sizes.

    Assumptions: a process takes a fixed time, and a time for each switch that it holds (the
    controller: for each switch of the fabric); each process has a processor; a switch has as many
    rules as in the larger of the two sizes. Parts that grow faster than the number of switches
    (rules of a switch that name every rack, planning) are not included.
    """
    sizes = small[0].vswitches, large[0].vswitches
    wanted = LARGER * sizes[1]
    for phase in ("ready, cold", "idle", "an audit"):
        for number, figures in large[1].items():
            if not number:
                continue
            ends = [_of_phase(phase, part, number) for part in (small[1][number], figures)]
            far = [
                least + (most - least) * (wanted - sizes[0]) / (sizes[1] - sizes[0])
                for least, most in zip(*ends, strict=True)
            ]
            case, unit = (
                f"model: {wanted} vswitches, {number} workers",
                "%" if phase == "idle" else "s",
            )
            yield Result(case, f"{phase}: controller", unit, "lower", far[0])
            yield Result(case, f"{phase}: each worker", unit, "lower", far[1])


def _of_phase(phase: str, figures: Figures, number: int) -> tuple[float, float]:
    """Processor time of the controller, and of each worker."""
    took_s, mine_s, workers_s = figures[phase]
    scale = 100 / took_s if phase == "idle" else 1.0
    return mine_s * scale, sum(workers_s) / max(1, number) * scale


def measured(size: Size, numbers: Sequence[int]) -> Taken:
    taken = {}
    for number in numbers:
        session = Session(size, number)
        session.run()
        taken[number] = session.taken
    return taken


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers")
    parser.add_argument("--racks", type=int, default=FULL.racks)
    parser.add_argument("--planes", type=int, default=FULL.planes)
    parser.add_argument("--vswitches-per-rack", type=int, default=FULL.servers)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    asked = parser.parse_args(argv)
    size = Size(asked.racks, asked.planes, asked.vswitches_per_rack)
    quarter = Size(max(2, size.racks // 4), size.planes, size.servers)
    both = [(fabric_size, measured(fabric_size, asked.workers)) for fabric_size in (quarter, size)]
    found = [row for fabric_size, taken in both for row in rows(fabric_size, taken)]
    return report("workers", [*found, *model(*both)])


if __name__ == "__main__":
    run_benchmark(main)
