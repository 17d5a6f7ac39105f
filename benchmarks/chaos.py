"""Random faults of the field, and conditions that must hold for any fault. No pair is silent for
more than 1 s except by the fault itself; untouched pairs lose only datagrams dropped by queues; no
frame goes into the dark except at a cut fibre; 5 s after the last fault, controller and devices
agree. Known limit: ToRs do not report cached flows for servers that moved to another port within a
VLAN.

``python -m benchmarks.chaos --minutes N [--fabric FILE] [--substrate NAME] [--seed S]`` (root; see
``--help``). Each round draws a fabric, starts its controller, lets users change and reserve,
injects one to three faults at a time, and judges the result. A round depends only on its seed; for
a round with a violation, the output has the command that repeats the round.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count, cycle
from pathlib import Path

import yaml

from benchmarks._report import Result, report, run_benchmark
from mininet_scenarios.chaos import fabrics
from mininet_scenarios.chaos.faults import FAULTS
from mininet_scenarios.chaos.harness import INCIDENTS, RoundResult, play_round

MINUTES = 10.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--rounds", type=int, help="stop after so many, however long they take")
    parser.add_argument("--incidents", type=int, default=INCIDENTS, help="in a round")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first round; the next has one more"
    )
    parser.add_argument(
        "--fabric", type=Path, help="a fabric file instead of fabrics drawn at random"
    )
    parser.add_argument("--logs", type=Path, help="folder for the logs of rounds with violations")
    parser.add_argument("--substrate", choices=fabrics.SUBSTRATES, action="append")
    parser.add_argument(
        "--fault", choices=tuple(FAULTS), action="append", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--without", choices=tuple(FAULTS), action="append", default=[], help="not this one"
    )
    return parser


def say(line: str) -> None:
    print(line, flush=True)


def main(argv: Sequence[str] = ()) -> int:
    options = _parser().parse_args(argv)
    document = yaml.safe_load(options.fabric.read_text()) if options.fabric else None
    wanted = [name for name in options.fault or FAULTS if name not in options.without]
    faults = {name: FAULTS[name] for name in wanted}
    substrates = options.substrate or fabrics.SUBSTRATES
    if document is not None:
        substrates = [document.get("substrate", fabrics.SUBSTRATES[0])]
    ends_s = time.monotonic() + 60 * options.minutes
    rounds: list[RoundResult] = []
    for seed, substrate in zip(count(options.seed), cycle(substrates)):
        if len(rounds) == options.rounds or (options.rounds is None and time.monotonic() > ends_s):
            break
        say(f"seed {seed}, {substrate}")
        played = play_round(
            seed,
            substrate,
            say,
            faults=faults,
            document=document,
            incidents=options.incidents,
            logs=options.logs,
        )
        rounds.append(played)
        if played.violations:
            say(f"  again: python -m benchmarks.chaos {_again(options, seed, substrate)}")
    return report("chaos", results(rounds))


def _again(options: argparse.Namespace, seed: int, substrate: str) -> str:
    """The arguments that repeat a round with these options."""
    again = ["--rounds", "1", "--seed", f"{seed}", "--incidents", f"{options.incidents}"]
    again += ["--substrate", substrate] if options.fabric is None else ["--fabric", options.fabric]
    again += [f"--fault {name}" for name in options.fault or ()]
    again += [f"--without {name}" for name in options.without]
    return " ".join(map(str, again))


def results(rounds: Sequence[RoundResult]) -> list[Result]:
    """Number of faults by kind and substrate, with the violations of rounds on the substrate."""
    found = []
    for substrate in sorted({round_.substrate for round_ in rounds}):
        here = [round_ for round_ in rounds if round_.substrate == substrate]
        strikes: Counter[str] = Counter()
        for round_ in here:
            strikes += round_.strikes
        found += [
            Result(f"{substrate}: {name}", "strikes", "", "higher", number)
            for name, number in sorted(strikes.items())
        ]
        changes = sum(round_.changes for round_ in here)
        violations = sum(len(round_.violations) for round_ in here)
        case = f"{substrate}: {len(here)} rounds, {changes} changes, {strikes.total()} strikes"
        found.append(Result(case, "violations", "", "lower", violations, target=0))
    return found


if __name__ == "__main__":
    run_benchmark(main)
