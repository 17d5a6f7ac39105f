"""Cases of a benchmark chosen on the command line, and their duration."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence


def chosen(
    benchmark: str, case: str, known: Collection[str], argv: Sequence[str], seconds: int = 0
) -> tuple[list[str], int]:
    """The chosen cases (all, if none is named), and their duration in s.

    ``seconds``: default duration; 0: the benchmark has no such option. Ends the process with a
    message for an unknown case.
    """
    names = ", ".join(known)
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}")
    parser.add_argument("cases", nargs="*", metavar=case.upper(), help=names)
    if seconds:
        parser.add_argument("--seconds", type=int, default=seconds, help="of a run")
    given = parser.parse_args(argv)
    if unknown := sorted({*given.cases}.difference(known)):
        parser.error(f"no {case} {', '.join(unknown)}: there are {names}")
    return given.cases or [*known], getattr(given, "seconds", 0)
