"""5000 circuit rules: what it takes to write them down, and to have them in a vswitch.

``python -m benchmarks.rule_encoding`` (root). Encoding is compared with
Ryu's objects for the same rules. End to end, from rules in memory to the switch's word that they
are in its table, it is compared with ``ovs-ofctl``, which reads them from a file and is a process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from apps.openflow import SwitchPorts, encode_changes
from benchmarks._report import Result, report
from benchmarks._ryu import encode_circuit_rules
from benchmarks._timing import median_ms
from hydra.model import RackId, VlanId
from hydra.pipeline import SHAPES, RuleKind
from hydra.rules import FlowRule, Install, circuit_rule
from mininet_scenarios.testbed import open_vswitch
from tests.integration.bare_switch import BareSwitch, bare_switch

RULES = 5000
RUNS = 25
PORTS = SwitchPorts(host=1, optical=2, electrical=3)
XID = 0x40000001
TARGET_ENCODING_MS = 50.0
TARGET_PUSH_MS = 100.0


def rules_of(run: int) -> list[FlowRule]:
    """The same racks every time, on another VLAN: each run replaces every rule."""
    vlan = VlanId(100 + run)
    return [circuit_rule(RackId(rack), vlan, run) for rack in range(RULES)]


def encode(bundle_id: int | None, rules: Sequence[FlowRule]) -> bytes:
    return encode_changes(map(Install, rules), PORTS, XID, bundle_id)


def encoding() -> list[Result]:
    rules = rules_of(1)
    if encode(None, rules) != encode_circuit_rules(rules, PORTS.optical, XID):
        raise SystemExit("the two encoders disagree: there is nothing to compare")
    times = median_ms(
        {
            "ours": lambda _run: encode(None, rules),
            "bundled": lambda run: encode(run, rules),
            "ryu": lambda _run: encode_circuit_rules(rules, PORTS.optical, XID),
        },
        RUNS,
    )
    metric = f"build and serialise {RULES} rules, median of {RUNS}"
    return [
        Result(case, metric, "ms", "lower", times[ours], times["ryu"], "Ryu", TARGET_ENCODING_MS)
        for case, ours in (("flow-mods", "ours"), ("flow-mods in a bundle", "bundled"))
    ]


def in_words(rule: FlowRule) -> str:
    shape = SHAPES[RuleKind.CIRCUIT]
    metadata, vlan = rule.args
    return (
        f"cookie={rule.cookie:#x},table={int(shape.table)},priority={shape.priority},"
        f"metadata={metadata},"
        f"actions=push_vlan:0x8100,set_field:{vlan | 0x1000}->vlan_vid,output:{PORTS.optical}"
    )


def push(switch: BareSwitch, bundled: bool, run: int) -> None:
    rules = rules_of(run)
    errors = switch.confirm(encode(run if bundled else None, rules), XID)
    if errors:
        raise SystemExit(f"the switch refused rules: {errors[0]}")


def ovs_ofctl(bridge: str, files: Sequence[Path], bundled: bool, run: int) -> None:
    options = ["--bundle"] if bundled else []
    command = ["ovs-ofctl", "-O", "OpenFlow13", *options, "add-flows", bridge, str(files[run])]
    subprocess.run(command, check=True)


def pushing() -> list[Result]:
    with (
        tempfile.TemporaryDirectory() as directory,
        open_vswitch(),
        bare_switch("hyBench0") as switch,
    ):
        files = [Path(directory) / str(run) for run in range(RUNS + 1)]
        for run, file in enumerate(files):
            # Other VLANs than ours of the same run, so that every way replaces every rule.
            rules = (circuit_rule(RackId(rack), VlanId(200 + run), run) for rack in range(RULES))
            file.write_text("\n".join(map(in_words, rules)))
        times = median_ms(
            {
                "ours": partial(push, switch, True),
                "ovs-ofctl --bundle": partial(ovs_ofctl, switch.bridge, files, True),
                "ours, unbundled": partial(push, switch, False),
                "ovs-ofctl": partial(ovs_ofctl, switch.bridge, files, False),
            },
            RUNS,
        )
        if len(switch.flows()) != RULES:
            raise SystemExit(f"the switch holds {len(switch.flows())} rules, not {RULES}")
    metric = f"{RULES} rules into a vswitch, confirmed, median of {RUNS}"
    ours, bundled = times["ours"], "ovs-ofctl --bundle"
    return [
        Result("bundle", metric, "ms", "lower", ours, times[bundled], bundled, TARGET_PUSH_MS),
        Result("bundle", metric, "ms", "lower", ours, times["ovs-ofctl"], "ovs-ofctl"),
        Result(
            "unbundled",
            metric,
            "ms",
            "lower",
            times["ours, unbundled"],
            times["ovs-ofctl"],
            "ovs-ofctl",
        ),
    ]


def main() -> None:
    report("rule_encoding", [*encoding(), *pushing()])


if __name__ == "__main__":
    sys.exit(main())
