"""All benchmarks in turn: ``python -m benchmarks`` (``make bench``; root)."""

from __future__ import annotations

from benchmarks import (
    detection,
    planner,
    probing,
    reconfigurations,
    retag,
    rule_encoding,
    statistics,
)


def main() -> None:
    for benchmark in (planner, rule_encoding, statistics, retag, probing, detection):
        print(f"\n== {benchmark.__name__}", flush=True)
        benchmark.main()
    print(f"\n== {reconfigurations.__name__}", flush=True)
    reconfigurations.main(())


if __name__ == "__main__":
    main()
