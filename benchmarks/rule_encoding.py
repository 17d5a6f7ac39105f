"""5000 circuit rules: time to encode the rules, and to install the rules in a vswitch.

``python -m benchmarks.rule_encoding`` (root). Encoding is compared with Ryu's objects for the same
rules. The whole way, from rules in memory to the switch's confirmation, is compared with
``ovs-ofctl``, a process that reads the rules from a file: for an idle vswitch, and for a vswitch of
the demo fabric that carries 100 Mb/s of TCP meanwhile, with the resulting retransmissions.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks._demo import demo_stage
from benchmarks._report import Result, report, run_benchmark
from benchmarks._ryu import encode_circuit_rules
from benchmarks._timing import median_ms
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from hydra.forwarding.pipeline import SHAPES
from hydra.forwarding.rules import FlowRule, Install
from hydra.forwarding.substrate.vlan import vswitch_of
from hydra.model import VlanId
from mininet_scenarios.cycles.orders import emulated_rules
from mininet_scenarios.stage.controller_client import PairDemand
from mininet_scenarios.stage.stage import Stage, tcp_transfer
from mininet_scenarios.testbed import open_vswitch
from tests.integration.bare_switch import BareSwitch, bare_switch

RULES = 5000
RUNS = 25
PORTS = SwitchPorts(host=1, optical=2, electrical=3)
XID = 0x40000001
TARGET_TIMES = 50
"""Target factor by which building a rule is faster than with Ryu's objects."""
PUSH_PERIOD_S = 1.0
PUSHES = 20
SOURCE, DESTINATION = "h11", "h21"


def rules_of(run: int) -> Sequence[FlowRule]:
    """Rules of a run, for the same racks on another VLAN: each run replaces every rule."""
    return emulated_rules(RULES, VlanId(100 + run), 2 * run)


def encode(bundle_id: int | None, rules: Sequence[FlowRule]) -> bytes:
    return encode_changes([Install(rule) for rule in rules], PORTS, XID, bundle_id)


def encoding() -> list[Result]:
    rules = rules_of(1)
    if encode(None, rules) != encode_circuit_rules(rules, PORTS.optical, XID):
        raise SystemExit("the two encoders disagree: there is nothing to compare")
    changes = [Install(rule) for rule in rules]  # as in a plan
    times = median_ms(
        {
            "ours": lambda _run: encode_changes(changes, PORTS, XID, None),
            "bundled": lambda run: encode_changes(changes, PORTS, XID, run),
            "ryu": lambda _run: encode_circuit_rules(rules, PORTS.optical, XID),
        },
        RUNS,
    )
    metric = f"build and serialise {RULES} rules, median of {RUNS}"
    target = times["ryu"] / TARGET_TIMES
    return [
        Result(case, metric, "ms", "lower", times[ours], times["ryu"], "Ryu", target)
        for case, ours in (("flow-mods", "ours"), ("flow-mods in a bundle", "bundled"))
    ]


def in_words(rule: FlowRule, optical: int) -> str:
    shape = SHAPES[rule.kind]
    metadata, vlan = rule.args
    return (
        f"cookie={rule.cookie:#x},table={int(shape.table)},priority={shape.priority},"
        f"metadata={metadata},"
        f"actions=push_vlan:0x8100,set_field:{vlan | 0x1000}->vlan_vid,output:{optical}"
    )


def push(switch: BareSwitch, bundled: bool, run: int) -> None:
    rules = rules_of(run)
    errors = switch.confirm(encode(run if bundled else None, rules), XID)
    if errors:
        raise SystemExit(f"the switch refused rules: {errors[0]}")


def files_of(directory: Path, number: int) -> list[Path]:
    """Files for a run with other VLANs than HydRA's run, so that every way replaces every rule."""
    files = [directory / str(run) for run in range(number)]
    for run, file in enumerate(files):
        rules = emulated_rules(RULES, VlanId(200 + run), 2 * run)
        file.write_text("\n".join(in_words(rule, PORTS.optical) for rule in rules))
    return files


def ovs_ofctl(bridge: str, files: Sequence[Path], bundled: bool, run: int) -> None:
    options = ["--bundle"] if bundled else []
    command = ["ovs-ofctl", "-O", "OpenFlow13", *options, "add-flows", bridge, str(files[run])]
    subprocess.run(command, check=True)


def pushing(directory: Path) -> list[Result]:
    files = files_of(directory, RUNS + 1)
    with open_vswitch(), bare_switch("hyBench0") as switch:
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
    metric = f"{RULES} rules into an idle vswitch, confirmed, median of {RUNS}"
    ours, unbundled, name = times["ours"], times["ours, unbundled"], "ovs-ofctl --bundle"
    return [
        Result("bundle", metric, "ms", "lower", ours, times[name], name, times[name]),
        Result("bundle", metric, "ms", "lower", ours, times["ovs-ofctl"], "ovs-ofctl"),
        Result("unbundled", metric, "ms", "lower", unbundled, times["ovs-ofctl"], "ovs-ofctl"),
    ]


def under_traffic(directory: Path) -> list[Result]:
    """Results for the vswitch of a server that sends at its full rate over a circuit."""
    files = files_of(directory, max(RUNS + 1, PUSHES))
    with demo_stage() as stage, stage.controller({"mode": "on-request"}) as client:
        client.reconfigure([PairDemand("r1", "r2", 80.0)], use_planes=("p1",))
        with closing(BareSwitch(vswitch_of(stage.fabric.server_by_name[SOURCE]).bridge)) as switch:
            ours = partial(push, switch, True)
            theirs = partial(ovs_ofctl, switch.bridge, files, True)
            with tcp_transfer(stage, SOURCE, DESTINATION, 5201, 60):
                time.sleep(PUSH_PERIOD_S)
                times = median_ms({"ours": ours, "theirs": theirs}, RUNS)
            resent = {
                name: retransmissions(stage, way)
                for name, way in (("static", None), ("ours", ours), ("theirs", theirs))
            }
    metric = f"{RULES} rules into a vswitch that carries 100 Mb/s, confirmed, median of {RUNS}"
    costs = f"TCP segments sent again in {PUSHES * PUSH_PERIOD_S:g} s with {PUSHES} pushes"
    name, our_ms, static = "ovs-ofctl --bundle", float(resent["ours"]), float(resent["static"])
    return [
        Result("bundle", metric, "ms", "lower", times["ours"], times["theirs"], name,
               times["theirs"]),
        Result("bundle", costs, "", "lower", our_ms, float(resent["theirs"]), name),
        Result("bundle", costs, "", "lower", our_ms, static, "no push"),
    ]  # fmt: skip


def retransmissions(stage: Stage, way: Callable[[int], None] | None) -> int:
    """Segments that a TCP flow at full rate retransmits during ``PUSHES`` pushes, or without
    pushes.
    """
    with tcp_transfer(stage, SOURCE, DESTINATION, 5201, (PUSHES + 1) * PUSH_PERIOD_S) as tcp:
        for run in range(PUSHES):
            time.sleep(PUSH_PERIOD_S)
            if way is not None:
                way(run)
        _, sent = tcp.finish(30)
    return sent.retransmits or 0


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        return report("rule_encoding", [*encoding(), *pushing(home), *under_traffic(home)])


if __name__ == "__main__":
    run_benchmark(main)
