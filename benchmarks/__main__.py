"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

from benchmarks import planner, retag, rule_encoding, statistics, topology


def main() -> None:
    for benchmark in (planner, topology, rule_encoding, statistics, retag):
        print(f"\n== {benchmark.__name__}", flush=True)
        benchmark.main()


if __name__ == "__main__":
    main()
