"""The whole controller at its design size, with simulated switches.

``python -m benchmarks.whole_fabric [--racks 320] [--planes 32] [--vswitches-per-rack 32]
[--baseline DIR]``. ``configs/reference.yaml`` as shipped, with polling, probing and audits, at the
given size: the controller as operators start it, OpenFlow switches with real tables in a single
process (``_fabric.c``), an ovsdb-server for each ToR, and planes that speak SCPI. After each
change, packets are sent through the tables of every vswitch, and have to leave in accordance with
the topology. The baseline is the controller of another checkout, in the same session.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

from benchmarks._fabric import SWITCHING_MS, Size, Switches, devices, wrong_turns
from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.stage.controller_client import ControllerError, TimelineStep
from mininet_scenarios.stage.controller_process import ALL_THERE, ControllerProcess, members_of
from mininet_scenarios.stage.delays import split

FULL = Size(320, 32, 32)
ON_P2 = {"planes": ["p2"]}
TARDY = "half the racks beside tardy vswitches"
PROMPT = "half the racks beside none"
OLD = 4
"""Partners before the change with tardy vswitches, as in :func:`shifted`: since tardy racks come
every third rack, some racks remain whose old and new partners are not tardy.
"""
NEXT = "the next change"
NEXTS = 3
"""Number of consecutive changes after the change of half the racks, while its omitted part is made.
"""
WHILE = f"{NEXT}, while what was left out is made"
"""Changes of racks without tardy vswitches, with the target of changes without any tardy vswitch.

A change of tardy racks would wait for its own vswitches. The figure is the median of the changes
during the omitted part.
"""
TIMES = "times that without tardy ones"
SLOW_S = 1.0
"""Delay of a slow vswitch's reads. A silent vswitch reads nothing."""
TARGETS = {
    "ready, cold": 60.0,
    "ready, after a restart": 20.0,
    "memory, peak": 1.5,
    "idle": 25.0,
    "one pair": 0.15,
    "half the racks on one plane": 2.0,
    "all circuits: less mirrors and drain": 8.0,
    TARDY: 4.0,
    f"{TARDY}: others' circuits that were not made": 0.0,
    f"{TARDY}: {NEXT}, 1": 4.0,
    "echo p99": 100.0,
    "REST p99": 200.0,
    "SIGTERM": 5.0,
    "circuits that failed": 0.0,
    "circuits that the restart lost": 0.0,
    "packets that went wrong": 0.0,
}
"""Targets at :data:`FULL`."""
ALWAYS = {f"{NEXT}, {n}: {TIMES}": 1.25 for n in range(1, NEXTS + 1)} | {f"{WHILE}: {TIMES}": 1.25}
"""Targets at any size."""
READY_WITHIN_S = 900.0
CHANGED_WITHIN_S = 600.0
STOPPED_WITHIN_S = 120.0
MENDED_WITHIN_S = 60.0
"""Time limit for switches that did not confirm a change to be synchronised."""
IDLE_S = 65.0
"""Longer than the polling interval, so that each switch is polled once."""
AFTERMATH_S = 3.0
"""Observation of the controller after each change."""
ENDED = ("done", "partial", "refused", "failed")
PARTNERS = 8
OTHERS = 4
"""Number of packets, at each vswitch, to racks without a circuit."""
ECHO_MS_OF_DEAD = 10_000.0
_TELL_EVERY_S = 10.0
_ASK_EVERY_S = 0.1
_LOOK_EVERY_S = 0.25


class Rest:
    """A client of the controller without time-out."""

    def __init__(self, process: ControllerProcess) -> None:
        self._address = process.settings.rest_host, process.settings.rest_port

    def get(self, path: str) -> Any:
        return self._ask("GET", path, None)[1]

    def ask(self, method: str, path: str, body: object) -> tuple[int, Any]:
        return self._ask(method, path, None if body is None else json.dumps(body))

    @contextmanager
    def following(self) -> Iterator[Iterator[dict[str, Any]]]:
        """Ids and new states of reconfigurations, from now on."""
        with contextlib.closing(
            http.client.HTTPConnection(*self._address, timeout=CHANGED_WITHIN_S)
        ) as connection:
            connection.request("GET", "/v1/events?kind=reconfiguration")
            answer = connection.getresponse()
            yield _progress(answer)

    def _ask(self, method: str, path: str, body: str | None) -> tuple[int, Any]:
        with contextlib.closing(
            http.client.HTTPConnection(*self._address, timeout=CHANGED_WITHIN_S)
        ) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


def _progress(events: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    deadline_s = time.monotonic() + CHANGED_WITHIN_S
    for line in events:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"nothing has ended after {CHANGED_WITHIN_S:g} s")
        if line.startswith(b"data:"):
            yield json.loads(line.removeprefix(b"data:"))["reconfiguration"]


class Watch:
    """Load of the controller on the machine, and response times, until :meth:`end`."""

    def __init__(self, process: ControllerProcess, switches: Switches) -> None:
        self._process = process
        self._switches = switches
        self._over = threading.Event()
        self.peak_gb = 0.0
        self.rest_ms: list[float] = []
        self._threads = [
            threading.Thread(target=self._look), threading.Thread(target=self._ask)
        ]  # fmt: skip
        switches.echoes()
        for thread in self._threads:
            thread.start()

    def end(self) -> dict[str, float]:
        """Round trips of echo requests."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        return self._switches.echoes()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            self.peak_gb = max(self.peak_gb, memory_gb(self._process.pid))

    def _ask(self) -> None:
        rest = Rest(self._process)
        while not self._over.wait(_ASK_EVERY_S):
            started_s = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):
                rest.get("/v1/policy")
            self.rest_ms.append((time.monotonic() - started_s) * 1000)


def memory_gb(group: int) -> float:
    """Memory of a process and its workers, without mapped files."""
    kb = 0
    for pid in members_of(group):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    kb += int(line.split()[1])
    return kb / 1e6


def p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1] if ordered else math.nan


class Session:
    """Run of a controller on a fabric through all measurements; :attr:`figures` by name."""

    def __init__(self, size: Size, source: Path | None, name: str) -> None:
        self._size = size
        self._source = source
        self._name = name
        self._started_s = time.monotonic()
        self.figures: dict[str, tuple[float, str]] = {}
        self._circuits = 0
        self._asked_for: set[str] = set()
        """Ids of the reconfigurations requested here."""
        self._echo_ms: list[float] = []
        self._rest_ms: list[float] = []

    def say(self, text: str) -> None:
        print(f"{self._name} {time.monotonic() - self._started_s:6.1f} s  {text}", flush=True)

    def note(self, name: str, value: float, unit: str) -> None:
        self.figures[name] = value, unit
        self.say(f"{name}: {value:.4g} {unit}")

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="hyW") as directory:
            self.say(f"{self._size}; load {os.getloadavg()[0]:.1f}")
            with devices(self._size, Path(directory)) as (switches, configuration):
                self.say(f"{self._size.racks} ovsdb-servers, {self._size.planes} planes")
                process = ControllerProcess(
                    configuration, ready_timeout_s=READY_WITHIN_S, launch=self._launch
                )
                try:
                    self._measure(process, switches)
                except Exception:
                    print(process.log_tail(), file=sys.stderr)
                    raise
                finally:
                    process.kill()

    def _launch(self, config: Path, log: BinaryIO) -> subprocess.Popen[bytes]:
        root = self._source or Path(__file__).parents[1]
        paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("ryu-manager")), str(root / "apps" / "main.py")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=root,
            env={**os.environ, "HYDRA_CONFIG": str(config), "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )

    def _measure(self, process: ControllerProcess, switches: Switches) -> None:
        switches.say("start")
        self.note("ready, cold", self._start(process, switches), "s")
        self.note("ready, cold, processor", process.cpu_s(), "s")
        self.note("memory at ready", memory_gb(process.pid), "GB")
        peak_gb = max(self._peak_gb, memory_gb(process.pid))
        self._verify(process, switches, "after the start")
        with self._watched(process, switches, "idle") as watch:
            before_s, started_s = process.cpu_s(), time.monotonic()
            time.sleep(IDLE_S)
            share = (process.cpu_s() - before_s) / (time.monotonic() - started_s)
        self.note("idle", share * 100, "% of a core")
        peak_gb = max(peak_gb, watch.peak_gb)
        with self._watched(process, switches, "an audit") as watch:
            self._audit(process)
        peak_gb = max(peak_gb, watch.peak_gb)
        failed = wrong = 0.0
        for name, body in changes(self._size):
            with self._watched(process, switches, name) as watch:
                failed += self._change(process, name, body)
                time.sleep(AFTERMATH_S)
            peak_gb = max(peak_gb, watch.peak_gb)
            wrong += self._verify(process, switches, name)
        lost, more = self._with_tardy_ones(process, switches)
        failed, wrong = failed + lost, wrong + more
        self.note("SIGTERM", self._stop(process), "s")
        self.note("ready, after a restart", self._start(process, switches), "s")
        self.note("ready, after a restart, processor", process.cpu_s(), "s")
        before = self._circuits
        wrong += self._verify(process, switches, "after the restart")
        self.note("circuits that the restart lost", before - self._circuits, "")
        self._stop(process)
        self.note("memory, peak", max(peak_gb, self._peak_gb), "GB")
        self.note("circuits that failed", failed, "")
        self.note("packets that went wrong", wrong, "")
        self.note("echo p99", max(self._echo_ms), "ms")
        self.note("REST p99", max(self._rest_ms), "ms")

    def _start(self, process: ControllerProcess, switches: Switches) -> float:
        """Start the controller; returns the time until all switches are connected and ready."""
        started_s = told_s = time.monotonic()
        self._peak_gb = 0.0
        pool = ThreadPoolExecutor(1)
        starting = pool.submit(process.start)
        pool.shutdown(wait=False)
        while wait([starting], _LOOK_EVERY_S).not_done:
            if process.running:
                self._peak_gb = max(self._peak_gb, memory_gb(process.pid))
            if time.monotonic() - told_s > _TELL_EVERY_S:
                told_s = time.monotonic()
                counts = switches.counts()
                self.say(
                    f"starting: {counts['connected']} of {counts['switches']} switches connected, "
                    f"{counts['rules']} rules, {self._peak_gb:.2f} GB"
                )
        starting.result()
        taken_s = time.monotonic() - started_s
        counts = switches.counts()
        self.say(f"{counts['added']} flow-mods so far for {counts['rules']} rules; "
                 f"{counts['losses']} connections lost, {counts['errors']} errors")  # fmt: skip
        return taken_s

    def _stop(self, process: ControllerProcess) -> float:
        """End the controller; returns the time from SIGTERM to the end."""
        started_s = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        while process.running and time.monotonic() - started_s < STOPPED_WITHIN_S:
            time.sleep(0.02)
        process.kill()
        return time.monotonic() - started_s

    @contextmanager
    def _watched(
        self, process: ControllerProcess, switches: Switches, name: str
    ) -> Iterator[Watch]:
        watch = Watch(process, switches)
        try:
            yield watch
        finally:
            echoes = watch.end()
        self._echo_ms.append(echoes["p99_ms"])
        self._rest_ms.append(p99(watch.rest_ms))
        self.note(f"{name}: echo p99", echoes["p99_ms"], "ms")
        self.note(f"{name}: echo p99, until the simulator reads it", echoes["read_p99_ms"], "ms")
        self.note(f"{name}: REST p99", p99(watch.rest_ms), "ms")
        if echoes["max_ms"] > ECHO_MS_OF_DEAD:
            self.say(f"an echo took {echoes['max_ms']:.0f} ms: Open vSwitch would reconnect")

    def _audit(self, process: ControllerProcess) -> None:
        """Audit everything once; no difference from the intended state is allowed."""
        before_s, started_s = process.cpu_s(), time.monotonic()
        status, answer = Rest(process).ask("GET", "/v1/drift", None)
        if status != HTTPStatus.OK:
            self.say(f"no audit: {answer.get('detail')}")
            return
        self.note("an audit", time.monotonic() - started_s, "s")
        self.note("an audit, processor", process.cpu_s() - before_s, "s")
        found, silent = len(answer["items"]), len(answer["silent"])
        self.say(f"an audit: {found} things differ, {silent} say nothing")
        for item in answer["items"][:5]:
            self.say(f"  {item}")

    def _change(self, process: ControllerProcess, name: str, body: dict[str, Any]) -> float:
        """Carry out a change; returns the number of failed circuits."""
        rest = Rest(process)
        with rest.following() as steps:
            before_s, started_s = process.cpu_s(), time.monotonic()
            status, answer = rest.ask("POST", "/v1/reconfigurations", body)
            if status not in (200, 202):
                raise SystemExit(f"{name} was refused: {answer}")
            number, told_s = answer["id"], started_s
            self._asked_for.add(number)
            for step in steps:
                if step["id"] == number and step["state"] in ENDED:
                    break
                if time.monotonic() - told_s > _TELL_EVERY_S:
                    told_s = time.monotonic()
                    self.say(f"{name}: {step['state']}")
            taken_s = time.monotonic() - started_s
        answer = rest.get(f"/v1/reconfigurations/{number}")
        self.note(name, taken_s, "s")
        self.note(f"{name}, processor", process.cpu_s() - before_s, "s")
        if answer["state"] != "done":
            self.say(f"{name} ended {answer['state']}: {answer.get('reason', '')[:300]}")
            for trouble in answer.get("troubles", ())[:5]:
                self.say(f"  {trouble}")
        steps = [
            TimelineStep(
                entry["step"], entry.get("device"), entry["started_ms"], entry["finished_ms"], ""
            )
            for entry in answer["timeline"]
        ]
        with contextlib.suppress(ControllerError):
            delay = split(steps, SWITCHING_MS)
            self.note(f"{name}: less mirrors and drain", delay.delay_without_mirrors_ms / 1000, "s")
        return float(len(answer.get("failures", ())))

    def _with_tardy_ones(
        self, process: ControllerProcess, switches: Switches
    ) -> tuple[float, float]:
        """Changes with vswitches that answer late or never: failed circuits, and wrong packets
        afterwards.
        """
        rest, half = Rest(process), self._size.racks // 2
        prompt = switches.prompt_racks
        ends = iter(sorted(prompt))
        others = list(zip(ends, ends, strict=False))
        failed = self._change(process, "before", changing([others[0]], ["p2"]) | ON_P2)
        failed += self._change(process, PROMPT, changing(shifted(half, OLD), ["p1"]))
        before_s = self._next_changes(process, PROMPT, others[1:])
        switches.be_tardy(SLOW_S)
        pairs = shifted(half, 1)
        # A rack with a staying old partner has no free port on the plane.
        old = {a: half + (a + OLD) % half for a in range(half)} | {
            b: (b - OLD) % half for b in range(half, 2 * half)
        }
        free = [(a, b) for a, b in pairs if prompt.issuperset((a, b, old[a], old[b]))]
        earlier, started_s = self._listed(rest).keys(), time.monotonic()
        with self._watched(process, switches, TARDY):
            failed += self._change(process, TARDY, changing(pairs, ["p1"]))
            topology = rest.get("/v1/topology")
            after_s = self._next_changes(process, TARDY, others)
        self.note(f"{TARDY}: of {len(pairs)} circuits, made", made(topology, pairs), "")
        missing = len(free) - made(topology, free)
        self.note(f"{TARDY}: others' circuits that were not made", missing, "")
        self.say(f"{len(free)} circuits are others': neither tardy racks' nor their partners'")
        for number, (one_s, other_s) in enumerate(zip(after_s, before_s, strict=False), 1):
            self.note(f"{NEXT}, {number}: {TIMES}", one_s / other_s, "")
        self._await_next_try(rest, earlier)
        while_s: list[float] = []
        while self._not_over(rest) and len(while_s) < NEXTS:
            pair = others[len(while_s) % len(others)]
            failed += self._change(process, WHILE, changing([pair], ["p2"]) | ON_P2)
            while_s.append(self.figures[WHILE][0])
        if while_s:
            self.note(f"{WHILE}: {TIMES}", median(while_s) / median(before_s), "")
        self.note(f"{WHILE}: changes", len(while_s), "")
        while self._not_over(rest):
            time.sleep(_LOOK_EVERY_S)
        self.note(
            f"{TARDY}: until the slow ones were tried again", time.monotonic() - started_s, "s"
        )
        self.note(f"{TARDY}: then, made", made(rest.get("/v1/topology"), pairs), "")
        switches.be_prompt()
        while rest.ask("GET", ALL_THERE, None)[0] != HTTPStatus.OK:
            time.sleep(_LOOK_EVERY_S)
        return failed, self._verify(process, switches, "all answer again")

    def _await_next_try(self, rest: Rest, earlier: Collection[str]) -> None:
        """Wait until the omitted circuits are made, by a change without a request that is not among
        the ``earlier`` changes.

        On a busy machine, the change may end before the first look.
        """
        began_s = time.monotonic()
        while True:
            listed = self._listed(rest)
            tries = listed.keys() - self._asked_for - earlier
            if {listed[number] for number in tries} - {"queued"}:
                return
            if time.monotonic() - began_s > MENDED_WITHIN_S:
                raise SystemExit(f"what was left out is not tried again: {tries or 'no change'}")
            time.sleep(_LOOK_EVERY_S / 5)

    def _next_changes(
        self, process: ControllerProcess, after: str, pairs: Sequence[tuple[int, int]]
    ) -> list[float]:
        """Durations in s of consecutive changes of other racks: each sets up a circuit on the
        second plane, or takes a circuit down.
        """
        taken_s = []
        for number, pair in enumerate(pairs[:NEXTS], 1):
            name = f"{after}: {NEXT}, {number}"
            self._change(process, name, changing([pair], ["p2"]) | ON_P2)
            taken_s.append(self.figures[name][0])
        return taken_s

    def _listed(self, rest: Rest) -> dict[str, str]:
        """States of the listed reconfigurations, by id."""
        found = rest.get("/v1/reconfigurations")["reconfigurations"]
        return {entry["id"]: entry["state"] for entry in found}

    def _not_over(self, rest: Rest) -> set[str]:
        """States of the listed unfinished reconfigurations."""
        return {*self._listed(rest).values()} - {*ENDED}

    def _verify(self, process: ControllerProcess, switches: Switches, name: str) -> float:
        """Packets that leave in conflict with the topology, also once all switches are ready."""
        wrong = self._look_for_wrong_turns(process, switches, name)
        deadline_s = time.monotonic() + MENDED_WITHIN_S
        while wrong and time.monotonic() < deadline_s:
            time.sleep(_TELL_EVERY_S / 2)
            if Rest(process).ask("GET", ALL_THERE, None)[0] == HTTPStatus.OK:
                return self._look_for_wrong_turns(process, switches, f"{name}, switches ready")
        return wrong

    def _look_for_wrong_turns(
        self, process: ControllerProcess, switches: Switches, name: str
    ) -> float:
        rest, topology = Rest(process), None
        while topology is None or rest.get("/v1/topology")["paths"] != topology["paths"]:
            topology = rest.get("/v1/topology")
            packets, wrong = wrong_turns(switches, topology, OTHERS)
        counts = switches.counts()
        self._circuits = len(topology["circuits"])
        self.say(
            f"{name}: {self._circuits} circuits, {counts['rules']} rules; "
            f"{len(wrong)} of {packets} packets went wrong; {counts['lost']} of "
            f"{counts['probes']} probes got lost, {counts['loops']} looped"
        )
        for difference in wrong[:5]:
            self.say(f"  {difference}")
        return float(len(wrong))


def made(topology: dict[str, Any], pairs: Sequence[tuple[int, int]]) -> int:
    """Number of these pairs with a circuit on the first plane."""
    up = {
        frozenset((circuit["a"]["rack"], circuit["b"]["rack"]))
        for circuit in topology["circuits"]
        if circuit["plane"] == "p1"
    }
    return sum(frozenset(names(pair)) in up for pair in pairs)


def shifted(half: int, by: int) -> list[tuple[int, int]]:
    """Each rack of the first half with a rack of the second half, in turn."""
    return [(rack, half + (rack + by) % half) for rack in range(half)]


def names(pair: tuple[int, int]) -> tuple[str, str]:
    return f"r{pair[0] + 1}", f"r{pair[1] + 1}"


def changing(pairs: Sequence[tuple[int, int]], planes: Sequence[str] | None) -> dict[str, Any]:
    """Request for circuits between these racks, with all other racks out of reach."""
    both = [(src, dst) for a, b in map(names, pairs) for src, dst in ((a, b), (b, a))]
    demand = [{"src": src, "dst": dst, "mbps": 9_000.0} for src, dst in both]
    return {"demand": demand, "use_planes": planes}


def changes(size: Size) -> list[tuple[str, dict[str, Any]]]:
    """Changes by name, as requests for reconfigurations."""
    racks = size.racks

    half = shifted(racks // 2, 0)
    partners = {
        tuple(sorted((rack, (rack + step) % racks)))
        for rack in range(racks)
        for step in range(1, min(PARTNERS // 2, (racks - 1) // 2) + 1)
    }
    beyond = [
        (rack, racks // 2 + (rack + step) % (racks // 2))
        for rack in range(racks // 2)
        for step in range(min(size.planes, racks // 2))
    ]
    return [
        ("one pair", changing([(0, 1)], ["p1"])),
        ("half the racks on one plane", changing(half, ["p1"])),
        (f"{PARTNERS} partners a rack", changing(sorted(partners), None)),
        ("all circuits", changing(beyond, None)),
        ("all but one go", changing([(0, 1)], None)),
        ("half the racks again", changing(half, ["p1"])),
    ]


def results(
    size: Size, ours: dict[str, tuple[float, str]], baseline: dict[str, tuple[float, str]] | None
) -> Iterator[Result]:
    for name, (value, unit) in ours.items():
        target = ALWAYS.get(name, TARGETS.get(name) if size == FULL else None)
        before = (baseline or {}).get(name)
        yield Result(str(size), name, unit, "lower", value, before and before[0],
                     "" if before is None else "baseline", target)  # fmt: skip


def measured(size: Size, source: Path | None, name: str) -> dict[str, tuple[float, str]]:
    session = Session(size, source, name)
    session.run()
    return session.figures


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.whole_fabric")
    parser.add_argument("--racks", type=int, default=FULL.racks)
    parser.add_argument("--planes", type=int, default=FULL.planes)
    parser.add_argument("--vswitches-per-rack", type=int, default=FULL.servers)
    parser.add_argument("--baseline", type=Path, help="a checkout of another version, built")
    asked = parser.parse_args(argv)
    size = Size(asked.racks, asked.planes, asked.vswitches_per_rack)
    before = None
    if asked.baseline is not None:
        if not (asked.baseline / "apps" / "main.py").exists():
            parser.error(f"{asked.baseline} is no checkout of HydRA: it has no apps/main.py")
        before = measured(size, asked.baseline.resolve(), "baseline")
    found = list(results(size, measured(size, None, "ours"), before))
    return report("whole_fabric", found)


if __name__ == "__main__":
    run_benchmark(main)
