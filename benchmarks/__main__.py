"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

from benchmarks import planner, rest, retag, rule_encoding, statistics


def main() -> None:
    for benchmark in (planner, rule_encoding, statistics, retag, rest):
        print(f"\n== {benchmark.__name__}", flush=True)
        benchmark.main()


if __name__ == "__main__":
    main()
