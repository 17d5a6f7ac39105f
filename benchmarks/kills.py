"""A controller killed at random moments while customers reserve, change and release.

``python -m benchmarks.kills [LIVES] [SEED]`` (root; by default 200 lives). The demo fabric's
controller serves three customers that hold, commit, reserve for now and for later, singly and in
groups, at recurring times, with priorities that preempt other reservations, modify and release,
without pauses. SIGKILL comes at a random moment of its first 1.5 s. Its journal and the next
controller are compared with the answers to the customers: see :mod:`mininet_scenarios.kills`. The
referee of the admission tests checks for double bookings.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from hydra.model import Fabric
from hydra.reservations.reservation import Reservation
from mininet_scenarios.kills import POLICY, UNHURRIED, DoubleBooked, Kills, Outcome
from tests.unit.reservations.referee import Referee

LIVES = 200
MAX_HOPS = 3


def double_booked(fabric: Fabric) -> DoubleBooked:
    referee = Referee(fabric, MAX_HOPS)

    def check(reservations: Collection[Reservation], now: float) -> Collection[object]:
        promised = [
            referee.promise(reservation) for reservation in reservations if reservation.is_booked
        ]
        return referee.broken(promised, now)

    return check


def report_outcome(outcome: Outcome) -> None:
    if outcome.lives % 10 == 0:
        print(f"{outcome.lives} lives, {len(outcome.violations)} violations", flush=True)


def main(argv: Sequence[str] = ()) -> int:
    lives = int(argv[0]) if argv else LIVES
    seed = int(argv[1]) if len(argv) > 1 else 1
    with demo_stage() as stage, stage.process(POLICY, UNHURRIED) as process:
        outcome = Kills(stage, process, seed, double_booked(stage.fabric)).run(
            lives, report_outcome
        )
    for violation in outcome.violations:
        print(violation)
    note = ", ".join(f"{number} {what}" for what, number in sorted(outcome.answers.items()))
    states = ", ".join(f"{number} {state.value}" for state, number in outcome.states.most_common())
    case = f"{lives} lives, {outcome.checked} reservations told of"
    results = [
        Result(
            *(case, "lost, doubled or promised twice", "reservations", "lower"),
            len(outcome.violations),
            outcome.checked,
            "checked",
            0,
            f"states at death: {states}",
        ),
        Result(case, "requests without an answer", "", "lower", outcome.unanswered, note=note),
        Result(case, "restart, median", "s", "lower", median(outcome.restart_s)),
    ]
    return report("kills", results)


if __name__ == "__main__":
    run_benchmark(main)
