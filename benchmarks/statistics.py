"""Flow statistics decoded per second, compared with Ryu, on the same bytes.

``python -m benchmarks.statistics``. The replies are for the account table of the reference fabric's
vswitches: a rule for each of 638 foreign prefixes (319 racks, IPv4 and IPv6) and a rule for other
destinations; and for the 320 rules needed by IPv4. Each run reads the replies of 16 vswitches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from apps.process.configuration import load_configuration
from benchmarks import _ryu
from benchmarks._replies import account_rules, flow_entry
from benchmarks._report import Result, report, run_benchmark
from benchmarks._timing import median_ms
from drivers.codecs.openflow.statistics import decode_flow_stats
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import FlowRule

CONFIG: Final = Path(__file__).parents[1] / "configs" / "reference.yaml"
RUNS: Final = 15
SWITCHES: Final = 16
TARGET_TIMES: Final = 30.0
"""Target factor by which decoding is faster than Ryu's parser in the same run."""


def replies(rules: list[FlowRule]) -> list[bytes]:
    """A body for each switch, with different counters."""
    return [
        b"".join(
            flow_entry(rule, 60 * 10**9, 3 * number + switch, 4000 * number + switch)
            for number, rule in enumerate(rules)
        )
        for switch in range(SWITCHES)
    ]


def measure(rules: list[FlowRule]) -> Result:
    bodies = replies(rules)
    found = decode_flow_stats(bodies[0])
    columns = (found.cookie.tolist(), found.packets.tolist(), found.bytes.tolist())
    if list(zip(*columns, strict=True)) != _ryu.decode_flow_stats(bodies[0]):
        raise SystemExit("the two decoders disagree: there is nothing to compare")
    times = median_ms(
        {
            "ours": lambda _run: [decode_flow_stats(body) for body in bodies],
            "ryu": lambda _run: [_ryu.decode_flow_stats(body) for body in bodies],
        },
        RUNS,
    )
    entries = len(rules) * SWITCHES
    ours, ryu = (entries / times[way] * 1000 for way in ("ours", "ryu"))
    metric = f"flow statistics decoded, median of {RUNS}"
    target = TARGET_TIMES * ryu
    return Result(f"{len(rules)} rules", metric, "/s", "higher", ours, ryu, "Ryu", target)


def main() -> int:
    fabric = load_configuration(CONFIG).fabric
    rules = account_rules(fabric, fabric.servers[0])
    for_ipv4 = [rule for rule in rules if rule.kind is not RuleKind.ACCOUNT_V6]
    return report("statistics", [measure(for_ipv4), measure(rules)])


if __name__ == "__main__":
    run_benchmark(main)
