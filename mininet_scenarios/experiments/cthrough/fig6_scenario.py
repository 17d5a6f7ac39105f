"""c-Through (SIGCOMM 2010, section 6.1, Fig. 6): a rack's virtual machines migrate to other racks.

Eight machines of each of four servers migrate, evenly spread over the three other racks. The
machines' memory is compressed before sending, and compression takes 52 s on any network. So the
emulated sender produces data at a fixed rate, and pauses while the socket's buffer is full. In each
interval, the controller joins the rack to a different rack.
"""

from __future__ import annotations

from itertools import cycle
from typing import Final

from mininet_scenarios.experiments.cthrough import scenario
from mininet_scenarios.experiments.cthrough.scenario import Case, Completion, Scale
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.stage.stage import Stage
from mininet_scenarios.stage.transfers import Transferred, Wish, transfer_all

RACK: Final = "r1"
VMS_PER_SERVER: Final = 8
PAPER_MADE_S: Final = 52.0
"""Time of the migration at full bisection, set by compression, not by the network."""
PAPER_ELECTRICAL_S: Final = 280.0
PAPER_BYTES: Final = PAPER_ELECTRICAL_S * 100e6 / 8
"""Size of all images together, compressed: the bytes carried by 100 Mb/s in
``PAPER_ELECTRICAL_S``.
"""
_LONGEST: Final = 4.0

Migration = Completion[tuple[Transferred, ...]]
"""The migration; times are scaled to the paper's amount of data."""


def expected_s(case: Case, scale: Scale) -> float:
    """Largest wall time of a migration."""
    packets_s = PAPER_ELECTRICAL_S * 100 / case.electrical_mbps
    helped_s = packets_s if case.circuits is None else 0.4 * packets_s
    return scenario.SETUP_S + 1.1 * scale.part * max(PAPER_MADE_S, helped_s)


def wishes(stage: Stage, scale: Scale) -> list[Wish]:
    """Transfers of the machines, dealt out to the servers of the other racks."""
    fabric = stage.fabric
    home = fabric.rack_by_name[RACK]
    others = [rack for rack in fabric.racks if rack is not home]
    # Rack by rack in turn, so that each server has some machines for each rack.
    places = cycle(
        [server.name for some in zip(*(o.servers for o in others), strict=True) for server in some]
    )
    machines = VMS_PER_SERVER * len(home.servers)
    size_bytes = round(PAPER_BYTES * scale.rate * scale.part / machines)
    made_mbps = PAPER_BYTES * 8 / 1e6 / PAPER_MADE_S * scale.rate / machines
    return [
        Wish(server.name, next(places), size_bytes, f"vm {number}", made_mbps)
        for server in home.servers
        for number in range(VMS_PER_SERVER)
    ]


def run(stage: Stage, case: Case, scale: Scale, narrator: Narrator) -> Migration:
    """Play one case; raises ScenarioError for a run that can't be counted."""
    wanted = wishes(stage, scale)
    longest_s = _LONGEST * scale.part * (PAPER_ELECTRICAL_S + PAPER_MADE_S)

    def migrate() -> tuple[float, tuple[Transferred, ...]]:
        done = transfer_all(stage, wanted, longest_s + 20)
        return max(transfer.finished_s for transfer in done) / scale.part, done

    with narrator.phase(str(case), expected_s(case, scale)):
        senders = (server.name for server in stage.fabric.rack_by_name[RACK].servers)
        migration = scenario.play(stage, case, scale, senders, migrate)
    narrator.say(f"{case}: {migration.seconds:.0f} s, {migration.changes} changes")
    return migration
