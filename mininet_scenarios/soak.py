"""Keeps a controller busy for a given time, and samples the controller's resources.

Each round moves circuits. Now and then other actions of users come in between: reservations, dry
runs, followers of events that go away without a word, scrapes, reloads, and an optical switch whose
management restarts. Samples are taken between two rounds, without other connections.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from hydra_hybrid_network_client import HydraClient, MatrixEntry, Repeat, ReservationState
from mininet_scenarios import plain_http
from mininet_scenarios.stage.controller_client import ControllerClient, PairDemand
from mininet_scenarios.stage.controller_process import ALL_THERE, ControllerProcess
from mininet_scenarios.stage.stage import ScenarioError, Stage

_DEMAND_MBPS: Final = 80.0
_WAIT_S: Final = 20
_EVERY_RESERVATION: Final = 7
_EVERY_LOOK: Final = 5
_EVERY_FOLLOWER: Final = 11
_EVERY_RELOAD: Final = 40
_EVERY_RESTART: Final = 150
"""Number of rounds between two restarts; above, between the other actions."""
REMEMBERED: Final = 1000
"""Number of ended reservations that a controller keeps."""
POOLS: Final = frozenset(("AnyIO worker thread", "bodies", "device", "reader"))
"""Pools of threads of a controller, which grow with the greatest number of simultaneous tasks."""
_LATER_S: Final = 3600.0
_READ: Final = (
    "/",
    "/metrics",
    "/v1/topology",
    "/v1/demand",
    "/v1/devices",
    "/v1/reconfigurations",
    "/v1/reservations",
    "/v1/quarantine",
    "/v1/decisions",
)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources held by all processes of a controller together."""

    at_s: float
    """Time from the start of the run."""
    changes: int
    """Number of reconfigurations until then."""
    resident_mb: float
    descriptors: int
    threads: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Actions and samples of a run of ``seconds``."""

    seconds: float
    changes: int
    reservations: int
    restarts: int
    """Number of restarts of an optical switch's management."""
    samples: tuple[Footprint, ...]

    def early(self) -> tuple[Footprint, ...]:
        """Samples of the second quarter: bounded histories have begun to fill by then."""
        quarter = len(self.samples) // 4
        return self.samples[quarter : 2 * quarter]

    def late(self) -> tuple[Footprint, ...]:
        """Samples of the last quarter."""
        return self.samples[-(len(self.samples) // 4) :]


def typical(samples: Sequence[Footprint], what: Callable[[Footprint], float]) -> float:
    return median(what(sample) for sample in samples)


def footprint(process: ControllerProcess, at_s: float, changes: int) -> Footprint:
    """Resources of the controller and all of its workers, from /proc."""
    resident = descriptors = threads = 0
    for pid in process.members():
        folder = Path("/proc") / str(pid)
        status = dict(
            line.split(":", 1)
            for line in (folder / "status").read_text().splitlines()
            if ":" in line
        )
        resident += int(status["VmRSS"].split()[0])
        threads += int(status["Threads"])
        descriptors += len(list((folder / "fd").iterdir()))
    return Footprint(at_s, changes, resident / 1024, descriptors, threads, process.cpu_s())


def threads(process: ControllerProcess) -> dict[str, int]:
    """Threads of the controller by purpose, from the metrics."""
    answer = plain_http.get(process.base_url + "/metrics")
    return {
        sample.labels["of"]: int(sample.value)
        for family in text_string_to_metric_families(answer.raise_for_status().text)
        for sample in family.samples
        if sample.name == "hydra_threads"
    }


def lasting(found: Mapping[str, int]) -> dict[str, int]:
    """The entries of ``threads`` that belong to no pool: their numbers are constant."""
    return {of: many for of, many in found.items() if of not in POOLS}


class Soak:
    """A run against a controller on ``stage``; ``seed`` decides the order of events."""

    def __init__(self, stage: Stage, process: ControllerProcess, seed: int) -> None:
        self._stage = stage
        self._process = process
        self._chance = random.Random(seed)
        self._racks = [rack.name for rack in stage.fabric.racks]
        self._planes = [plane.name for plane in stage.fabric.planes]
        self._changes = self._reservations = self._restarts = 0

    def run(
        self, seconds: float, sample_s: float, report: Callable[[Footprint], None] | None = None
    ) -> SoakResult:
        """Keep the controller busy for ``seconds``, and take a sample every ``sample_s``.

        Raises ScenarioError and ControllerError for any failure.
        """
        started_s = time.monotonic()
        samples: list[Footprint] = []
        number = 0
        while (at_s := time.monotonic() - started_s) < seconds:
            if at_s >= len(samples) * sample_s:
                samples.append(footprint(self._process, at_s, self._changes))
                if report is not None:
                    report(samples[-1])
            number += 1
            self._round(number)
        samples.append(footprint(self._process, time.monotonic() - started_s, self._changes))
        return SoakResult(
            samples[-1].at_s, self._changes, self._reservations, self._restarts, tuple(samples)
        )

    def fill(self) -> None:
        """Fill the history of reservations; otherwise the history takes half an hour of rounds.

        The reservations are cancelled before their start: no circuits are made.
        """
        entry = MatrixEntry(src=self._racks[0], dst=self._racks[-1], bandwidth_mbps=_DEMAND_MBPS)
        with HydraClient(self._process.base_url) as client:
            made = client.reserve_matrix(
                [entry],
                start_unix_s=time.time() + _LATER_S,
                duration_s=_LATER_S / 2,
                repeat=Repeat(every_s=_LATER_S, times=REMEMBERED),
            )
            client.release_group(made.id)

    def _round(self, number: int) -> None:
        self._change()
        for every, happen in (
            (_EVERY_LOOK, self._look),
            (_EVERY_RESERVATION, self._reserve),
            (_EVERY_FOLLOWER, self._follow),
            (_EVERY_RELOAD, self._reload),
            (_EVERY_RESTART, self._restart),
        ):
            if number % every == 0:
                happen()

    def _change(self) -> None:
        """Ask for other circuits, for up to two pairs of racks; sometimes for none."""
        pairs = list(combinations(self._racks, 2))
        chosen = self._chance.sample(pairs, self._chance.randrange(3))
        plane = self._chance.choice(self._planes)
        with ControllerClient(self._process.base_url) as client:
            client.reconfigure(
                [PairDemand(a, b, _DEMAND_MBPS) for a, b in chosen], use_planes=(plane,)
            )
        self._changes += 1

    def _look(self) -> None:
        with self._http() as http:
            for path in _READ:
                http.get(path).raise_for_status()
            demand = [{"src": self._racks[0], "dst": self._racks[-1], "mbps": _DEMAND_MBPS}]
            http.post("/v1/plan", json={"demand": demand}).raise_for_status()

    def _reserve(self) -> None:
        src, dst = self._chance.sample(self._racks, 2)
        with HydraClient(self._process.base_url) as client:
            got = client.reserve(src, dst, _DEMAND_MBPS, wait_s=_WAIT_S)
            if got.state is not ReservationState.ACTIVE:
                raise ScenarioError(f"reservation {got.id} is {got.state.value}: {got.reason}")
            client.release(got.id, wait_s=_WAIT_S)
        self._reservations += 1

    def _follow(self) -> None:
        """Follow events, and go away in the middle of the stream."""
        with self._http() as http, http.stream("GET", "/v1/events") as answer:
            if not next(answer.iter_raw(), b""):
                raise ScenarioError("the stream of events ended before its first event")

    def _reload(self) -> None:
        with self._http() as http:
            http.post("/v1/reload", json={}).raise_for_status()

    def _restart(self) -> None:
        """Restart an optical switch's management; the mirrors stay unchanged."""
        ocs = self._stage.testbed.ocs(self._chance.choice(self._planes))
        ocs.kill()
        ocs.start()
        ocs.wait_until_ready()
        deadline_s = time.monotonic() + _WAIT_S
        with self._http() as http:
            # The session is found dead, and opened again, at the next use.
            http.get("/v1/drift")
            while http.get(ALL_THERE).status_code != httpx.codes.OK:
                if time.monotonic() > deadline_s:
                    raise ScenarioError(f"{ocs.plane.name} is not connected again")
                time.sleep(0.1)
        self._restarts += 1

    def _http(self) -> httpx.Client:
        return plain_http.client(base_url=self._process.base_url, timeout=_WAIT_S)
