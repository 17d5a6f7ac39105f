"""Five racks in a ring, on packets: rates over the electrical network, then over circuits.

As root: python examples/ring_of_five.py FILES; the new directory FILES gets logs and reports.
"""

import sys
from pathlib import Path

from rich.console import Console

from mininet_scenarios.reporting.narrator import ConsoleNarrator
from mininet_scenarios.stage.building import DEFAULT_CONFIG, stage_of
from mininet_scenarios.stage.transfers import Wish, transfer_all

files = Path(sys.argv[1])
five = files.with_suffix(".yaml")  # the demo's four racks and two planes, and one more of each
demo = DEFAULT_CONFIG.read_text()
five.write_text(demo.replace("r[1-4]", "r[1-5]").replace("p[1-2]", "p[1-3]"))
ring = {"p1": [("r1", "r2"), ("r3", "r4")], "p2": [("r2", "r3"), ("r4", "r5")]}
ring["p3"] = [("r5", "r1")]
wishes = [Wish(f"h{rack}1", f"h{rack % 5 + 1}1", 1_000_000, "ring") for rack in range(1, 6)]

narrator = ConsoleNarrator(Console(), total_s=10)
with stage_of(five, 0.2, files, narrator) as stage, stage.controller({}) as client:
    stage.introduce([wish.source for wish in wishes])
    for name, circuits in {"electrical": {}, "ring": ring}.items():
        client.apply(circuits)  # rates are a fifth of the file's: 20 and 2 Mb/s
        done = transfer_all(stage, wishes, timeout_s=120)
        print(name, *(f"{member.mbps:.1f}" for member in done), "Mb/s")
