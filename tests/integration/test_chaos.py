"""A short form of `python -m benchmarks.chaos`: rounds of fixed seeds, and a fault with a false
report.
"""

from __future__ import annotations

import pytest

from mininet_scenarios.chaos.fabrics import SUBSTRATES
from mininet_scenarios.chaos.faults import FAULTS
from mininet_scenarios.chaos.harness import play_round
from mininet_scenarios.chaos.server_faults import UplinkDown

pytestmark = [
    pytest.mark.ovs,
    pytest.mark.quiet("asks how soon the network is whole again", takes_s=60),
]

SEED = 1
INCIDENTS = 1


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_nothing_promised_is_broken(substrate):
    played = play_round(SEED, substrate, print, incidents=INCIDENTS)
    assert played.violations == []
    assert played.strikes.total() >= INCIDENTS
    assert played.changes > 0
    assert played.datagrams > 0


class Undeclared(UplinkDown):
    """Cuts a server off for longer than allowed, and reports no cut."""

    def touches(self, source: str, destination: str) -> bool:
        return False

    cuts = touches


def test_what_a_fault_did_not_declare_is_found(tmp_path):
    faults = {
        "undeclared": lambda field, _: Undeclared(field, field.fabric.servers[0]),
    }
    played = play_round(
        SEED, "single-homed-openflow", print, faults=faults, incidents=1, logs=tmp_path
    )
    assert any("outages that are too long" in one for one in played.violations)
    assert any("nothing touched" in one for one in played.violations)
    assert all("h11" in one for one in played.violations)
    evidence = (tmp_path / f"seed-{SEED}-single-homed-openflow" / "evidence.txt").read_text()
    trails = evidence.partition("where they were seen:")[2]
    towards = trails.partition("h21 to h11 over IPv4")[2].partition(" over IPv")[0]
    assert (
        towards.count(" hys-h21 in") > 5
    )  # the datagrams left their server, and were lost at the end
    assert towards.count(" hys-h21 in") > towards.count(" hys-h11 out") + 5
    assert FAULTS.keys().isdisjoint(faults)
