"""Customers that ask for reservations without a pause while their controller is killed.

Each life of the controller ends by SIGKILL at a random moment. The journal at the moment of the
kill, and the state of the next controller, are compared with the answers to customers: acknowledged
requests are there; unacknowledged requests are there in full or not at all; a repeated request has
no effect twice.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from apps.journal.sqlite import SqliteJournal
from hydra.journal import Kind
from hydra.lifecycle import RESERVATION_TRANSITIONS, ReservationState
from hydra.reservations.records import read_reservation
from hydra.reservations.reservation import FINAL_STATES, Reservation
from mininet_scenarios import plain_http
from mininet_scenarios.stage.controller_process import ControllerProcess
from mininet_scenarios.stage.stage import ScenarioError, Stage

POLICY: Final[Mapping[str, Any]] = {"mode": "on-request", "preemption_notice_s": 1.0}
UNHURRIED: Final[Mapping[str, Any]] = {"requests_per_s": 10_000}
"""Settings for the controller's section: no limit on the rate of requests."""
CUSTOMERS: Final = 3
_LONGEST_LIFE_S: Final = 1.5
_LONGEST_PAUSE_S: Final = 0.15
_SETTLED_S: Final = 30.0
_POLL_S: Final = 0.05
_TIMEOUT_S: Final = 10.0
_MANY: Final = 4
"""Number of reservations above which a customer prefers to give one back."""

_ENDS: Final = ("from", "to")

_S = ReservationState
_UNSETTLED: Final = frozenset({_S.COMMITTED, _S.ACTIVATING, _S.RELEASING})
_ASKED_FOR: Final = {_S.COMMITTED: "commit", _S.RELEASING: "release", _S.CANCELLED: "release"}
"""Requests by the state that a reservation reaches only on the customer's request."""
_REFUSALS: Final = frozenset(
    {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT, httpx.codes.SERVICE_UNAVAILABLE}
)

DoubleBooked = Callable[[Collection[Reservation], float], Collection[object]]
"""Returns the reservations that can't be kept beside other promises from a Unix time on."""


@dataclass(slots=True)
class Acknowledged:
    """State of a reservation as last reported to a customer, and the customer's requests since."""

    state: ReservationState
    mbps: float
    wished: str = ""
    wished_mbps: float | None = None

    def contradicts(self, found: Reservation) -> str:
        """The contradiction between the last answer and ``found``, in words; empty: none."""
        if found.state not in self._reachable():
            return f"{found.id} was {self.state.value} and is {found.state.value}: {found.reason}"
        if found.bandwidth_mbps not in (self.mbps, self.wished_mbps):
            return f"{found.id} had {self.mbps:g} Mb/s and has {found.bandwidth_mbps:g}"
        if found.state is _S.FAILED:
            return f"{found.id} failed: {found.reason}"
        if found.state is _S.PREEMPTED and found.preempted_by is None:
            return f"{found.id} gave way to nobody"
        return ""

    def _reachable(self) -> set[ReservationState]:
        reached, new = {self.state}, [self.state]
        while new:
            for state in RESERVATION_TRANSITIONS[new.pop()] - reached:
                if _ASKED_FOR.get(state, self.wished) == self.wished:
                    reached.add(state)
                    new.append(state)
        return reached


@dataclass(frozen=True, slots=True)
class Order:
    """A request that makes reservations."""

    path: str
    body: Mapping[str, Any]
    makes: int
    """Number of reservations made by an accepted request."""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def send(self, http: httpx.Client) -> httpx.Response:
        headers = {"Idempotency-Key": self.key}
        return http.post(self.path, json=dict(self.body), headers=headers)


class Customer:
    """A customer that makes all kinds of requests, and keeps the answers."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self._racks = stage.fabric.racks
        self._chance = chance
        self.acknowledged: dict[str, Acknowledged] = {}
        self.unanswered: list[Order] = []
        self.answers: Counter[str] = Counter()
        self.complaints: list[str] = []

    def shop(self, url: str) -> None:
        """Make requests until the controller stops answering."""
        with plain_http.client(base_url=url, timeout=_TIMEOUT_S) as http:
            try:
                while not self.complaints:
                    self._step(http)
            except httpx.TransportError:
                return

    def _step(self, http: httpx.Client) -> None:
        time.sleep(self._chance.uniform(0, _LONGEST_PAUSE_S))
        acknowledged_ids = [
            reservation_id
            for reservation_id, acknowledged in self.acknowledged.items()
            if acknowledged.state not in FINAL_STATES
        ]
        if not acknowledged_ids or self._chance.random() < (
            0.2 if len(acknowledged_ids) > _MANY else 0.6
        ):
            order = self._order()
            self.unanswered.append(order)
            self.note_answer(order, order.send(http))
        else:
            self._change(http, self._chance.choice(acknowledged_ids))

    def _order(self) -> Order:
        pick = self._chance.choice
        src, dst, other = self._chance.sample(self._racks, 3)
        mbps = float(pick([10, 20, 40, 60]))
        pair = {
            "src": pick([src.name, src.servers[0].name]),
            "dst": pick([dst.name, dst.servers[0].name]),
            "bandwidth_mbps": mbps,
        }
        now_s = time.time()
        span: dict[str, Any] = {"duration_s": pick([1.0, 3.0, 10.0])}
        if pick([True, False]):
            span["start_unix_s"] = now_s + pick([0.5, 1.0, 3.0])
        if self._chance.random() < 0.3:
            entries = [pair, {"src": src.name, "dst": other.name, "bandwidth_mbps": mbps}]
            if pick([True, False]):
                return Order("/v1/groups", {"entries": entries, **span}, 2)
            times = {"start_unix_s": now_s + 30, "duration_s": 5.0}
            repeat = {"every_s": 60.0, "times": 3}
            return Order("/v1/groups", {"entries": entries, "repeat": repeat, **times}, 6)
        more: dict[str, Any] = pick([{}, {}, {"hold_s": 20.0}, {"priority": 5}])
        service = pick(["shared", "shared", "shared", "guaranteed", "best-effort"])
        return Order("/v1/reservations", {**pair, **span, **more, "service": service}, 1)

    def note_answer(self, order: Order, answer: httpx.Response) -> None:
        """Take note of an answer."""
        if self._is_answer(answer):
            document = answer.json()
            for entry in document.get("reservations", [document]):
                self._note(entry)
        self.unanswered.remove(order)

    def _change(self, http: httpx.Client, reservation_id: str) -> None:
        acknowledged = self.acknowledged[reservation_id]
        path = f"/v1/reservations/{reservation_id}"
        if acknowledged.state is _S.HELD and self._chance.random() < 0.5:
            acknowledged.wished = "commit"
            answer = http.post(f"{path}/commit")
        elif self._chance.random() < 0.4:
            acknowledged.wished_mbps = self._chance.choice([5.0, 15.0, 50.0])
            answer = http.patch(path, json={"bandwidth_mbps": acknowledged.wished_mbps})
        else:
            acknowledged.wished = "release"
            answer = http.delete(path)
        if self._is_answer(answer):
            self._note(answer.json())
        acknowledged.wished, acknowledged.wished_mbps = "", None

    def _is_answer(self, answer: httpx.Response) -> bool:
        kind = answer.request.method if answer.is_success else "refused"
        self.answers[kind] += 1
        if not (answer.is_success or answer.status_code in _REFUSALS or _came_late(answer)):
            self.complaints.append(f"{answer.request.url}: {answer.status_code} {answer.text}")
        return answer.is_success

    def _note(self, document: Mapping[str, Any]) -> None:
        state, mbps = ReservationState(document["state"]), float(document["bandwidth_mbps"])
        self.acknowledged[document["id"]] = Acknowledged(state, mbps)

    # -- afterwards --------------------------------------------------------------------------------

    def contradictions(self, found: Mapping[str, Reservation]) -> Iterator[str]:
        """Differences from the answers to the customer; later changes are recorded."""
        for name, acknowledged in tuple(self.acknowledged.items()):
            if name not in found:
                yield f"{name} was {acknowledged.state.value} and is gone"
                continue
            if complaint := acknowledged.contradicts(found[name]):
                yield complaint
            self.acknowledged[name] = Acknowledged(found[name].state, found[name].bandwidth_mbps)
        for order in self.unanswered:
            made = [
                reservation
                for reservation in found.values()
                if reservation.retry and reservation.retry.key == order.key
            ]
            if len(made) not in (0, order.makes):
                yield f"{len(made)} of {order.makes} of {order.body} are there"
            self.acknowledged.update(
                (reservation.id, Acknowledged(reservation.state, reservation.bandwidth_mbps))
                for reservation in made
            )

    def repeat(self, http: httpx.Client) -> None:
        """Repeat the unanswered requests."""
        for order in tuple(self.unanswered):
            self.note_answer(order, order.send(http))

    def forget_finished(self) -> None:
        self.acknowledged = {
            n: acknowledged
            for n, acknowledged in self.acknowledged.items()
            if acknowledged.state not in FINAL_STATES
        }


@dataclass(slots=True)
class Outcome:
    lives: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    """Number of answers by HTTP method, and of refusals."""
    unanswered: int = 0
    states: Counter[ReservationState] = field(default_factory=Counter)
    """Number of reservations by state when the controller died."""
    checked: int = 0
    """Number of reservations compared with answers to customers."""
    restart_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


class Kills:
    """Lives of controllers on ``stage``, with a common journal."""

    def __init__(
        self, stage: Stage, process: ControllerProcess, seed: int, double_booked: DoubleBooked
    ) -> None:
        self._stage = stage
        self._process = process
        self._double_booked = double_booked
        self._chance = random.Random(seed)
        self._customers = [
            Customer(stage, random.Random(f"{seed} {number}")) for number in range(CUSTOMERS)
        ]

    def run(self, lives: int, report: Callable[[Outcome], None] | None = None) -> Outcome:
        """Live ``lives`` lives; ends with a running controller."""
        outcome = Outcome()
        for _ in range(lives):
            outcome.violations += self._life(outcome)
            outcome.lives += 1
            if report is not None:
                report(outcome)
        for customer in self._customers:
            outcome.answers += customer.answers
        return outcome

    def _life(self, outcome: Outcome) -> Iterator[str]:
        url = self._process.base_url
        shopping = [
            threading.Thread(target=customer.shop, args=(url,)) for customer in self._customers
        ]
        for thread in shopping:
            thread.start()
        time.sleep(self._chance.uniform(0.02, _LONGEST_LIFE_S))
        self._process.kill()
        for thread in shopping:
            thread.join()
        found = self._found()
        outcome.unanswered += sum(len(customer.unanswered) for customer in self._customers)
        alive = [
            reservation for reservation in found.values() if reservation.state not in FINAL_STATES
        ]
        outcome.states.update(reservation.state for reservation in alive)
        outcome.checked += sum(len(customer.acknowledged) for customer in self._customers)
        yield from self._judge(found)
        started_s = time.monotonic()
        self._process.start()
        outcome.restart_s.append(time.monotonic() - started_s)
        with plain_http.client(base_url=url, timeout=_TIMEOUT_S) as http:
            self._wait_until_settled()
            yield from self._judge(self._found())
            yield from self._not_there(http)
            for customer in self._customers:
                customer.repeat(http)
            yield from self._judge(self._found())
        for customer in self._customers:
            yield from customer.complaints
            customer.complaints.clear()
            customer.forget_finished()

    def _found(self) -> dict[str, Reservation]:
        """Reservations in the journal, by identifier."""
        path = self._process.settings.journal
        with closing(SqliteJournal(path, read_only=True)) as journal:
            records = journal.records(Kind.RESERVATION)
        read = (read_reservation(self._stage.fabric, record) for record in records)
        return {reservation.id: reservation for reservation in read}

    def _judge(self, found: Mapping[str, Reservation]) -> Iterator[str]:
        for customer in self._customers:
            yield from customer.contradictions(found)
        for reservation in found.values():
            if reservation.preempted_by is not None and reservation.preempted_by not in found:
                yield f"{reservation.id} gives way to {reservation.preempted_by}, which is missing"
        for twice in self._double_booked(list(found.values()), time.time()):
            yield f"promised twice: {twice}"

    def _wait_until_settled(self) -> None:
        deadline_s = time.monotonic() + _SETTLED_S
        while any(reservation.state in _UNSETTLED for reservation in self._found().values()):
            if time.monotonic() > deadline_s:
                raise ScenarioError(f"reservations did not settle within {_SETTLED_S:.0f} s")
            time.sleep(_POLL_S)

    def _not_there(self, http: httpx.Client) -> Iterator[str]:
        """Reservations unknown to the next controller, or without a network."""
        for customer in self._customers:
            for name in customer.acknowledged:
                if (answer := http.get(f"/v1/reservations/{name}")).is_error:
                    yield f"{name}: {answer.text}"
        before = _active(http)
        paths = http.get("/v1/topology").json()["paths"]
        standing = {_circuits(path) for path in paths}
        for name in before.keys() & _active(http).keys():
            if _circuits(before[name]["booked"]) not in standing:
                yield f"{name} is active without a standing path"
        if not self._mirrors_agree(http):
            yield "mirrors join ports without a circuit in any topology"

    def _mirrors_agree(self, http: httpx.Client) -> bool:
        """True if mirrors have exactly two cross-connects per circuit; waits for moving mirrors."""
        deadline_s = time.monotonic() + _SETTLED_S
        while time.monotonic() < deadline_s:
            circuits = Counter(
                circuit["plane"] for circuit in http.get("/v1/topology").json()["circuits"]
            )
            if all(
                self._stage.testbed.ocs(plane.name).counters().cross_connects
                == 2 * circuits[plane.name]
                for plane in self._stage.fabric.planes
            ):
                return True
        return False


def _came_late(answer: httpx.Response) -> bool:
    """Whether a request was right when it was made: the start has passed meanwhile."""
    if answer.status_code != httpx.codes.UNPROCESSABLE_ENTITY:
        return False
    return {error["pointer"] for error in answer.json()["errors"]} == {"/start_unix_s"}


def _active(http: httpx.Client) -> dict[str, Any]:
    answer = http.get("/v1/reservations", params={"state": "active", "limit": 1000})
    return {
        reservation["id"]: reservation
        for reservation in answer.raise_for_status().json()["reservations"]
    }


def _circuits(path: Mapping[str, Any]) -> frozenset[tuple[str, frozenset[tuple[str, str]]]]:
    """Circuits of a path, in the same form for both directions."""
    return frozenset(
        (hop["plane"], frozenset({(hop[f"{end}_rack"], hop[f"{end}_port"]) for end in _ENDS}))
        for hop in path["hops"]
    )
