"""Parsers of tools' and files' output, without the controller's code."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace

from mininet_scenarios.chaos import readers
from mininet_scenarios.chaos.optical_faults import EmulatorKilled
from mininet_scenarios.chaos.readers import Dark, ReportedTopology
from tests.unit.core.fabrics import small_fabric

RULES = """\
 cookie=0x4822000000000000, table=2, priority=0 actions=goto_table:3
 cookie=0x4820000000000007, table=2, priority=100,metadata=0x4 actions=output:3
 cookie=0x4828000000000000, table=3, priority=0 actions=goto_table:4
 cookie=0x4832000100000002, table=5, metadata=0x2 actions=set_field:4196->vlan_vid,output:2
 cookie=0x4832000300000003, table=5, metadata=0xa actions=set_field:4197->vlan_vid,output:2
 cookie=0x4836000600000005, table=5, metadata=0x5 actions=multipath(hrw),goto_table:6
 cookie=0x4833000000000000, table=5, priority=0 actions=output:3
 cookie=0x4837000600000005, table=6, reg0=0,metadata=0x5 actions=set_field:4198->vlan_vid,output:2
 cookie=0x4837000600000005, table=6, reg0=0x1,metadata=0x5 actions=set_field:4199->vlan_vid,output:2
"""


def hop(a, b):
    return {"plane": "p1", "from_rack": a, "from_port": f"t-{a}", "to_rack": b, "to_port": f"t-{b}"}


def told(*, one_way):
    circuit = {"plane": "p1", "a": {"port": "t-r1"}, "b": {"port": "t-r2"}, "one_way": one_way}
    path = {"src": "r1", "dst": "r2", "vlan": 100, "hops": [hop("r1", "r2")], "one_way": one_way}
    return ReportedTopology.from_json({"circuits": [circuit], "paths": [path]})


def test_rules_are_circuits_by_rack_and_vlan_and_diverts():
    found = readers.steering_in(RULES)
    assert found.circuits == {(2, 100), (10, 101), (5, 102), (5, 103)}
    assert found.diverts == 1


def test_frames_in_the_dark_are_counted_once_however_often_an_emulator_dies():
    fabric = small_fabric(racks=2, planes=1)
    (plane,) = fabric.planes
    counted = [SimpleNamespace(ingress=port.ingress, dark_frames=2) for port in fabric.ports]
    admin = SimpleNamespace(counters=lambda: SimpleNamespace(ports=counted))  # it counts on
    ocs = SimpleNamespace(admin=admin, kill=lambda: None)
    dark = Dark(fabric, {plane.name: ocs})
    field = SimpleNamespace(
        fabric=fabric,
        dark=dark,
        stage=SimpleNamespace(testbed=SimpleNamespace(ocs={plane.name: ocs}.get)),
    )
    before = dark.frames()
    EmulatorKilled(field, plane.name).strike()
    assert dark.frames() == before == {port.tor_port: 2 for port in fabric.ports}


def test_a_circuit_is_light_in_both_directions_unless_it_is_one_way():
    assert told(one_way=False).light == {("t-r1", "t-r2"), ("t-r2", "t-r1")}
    assert told(one_way=True).light == {("t-r1", "t-r2")}
    assert told(one_way=True).circuits == told(one_way=False).circuits


def test_a_port_is_in_the_vlans_of_the_paths_through_it():
    assert told(one_way=False).vlans_at("t-r2") == {100}
    assert told(one_way=False).vlans_at("t-r3") == set()


def test_the_journal_is_read_from_its_file(tmp_path):
    ends = [["r1", "t-r1"], ["r2", "t-r2"]]
    state = {"circuits": [ends], "paths": [{"src": "r1", "dst": "r2", "vlan": 100}]}
    records = [
        ("state", {"fabric": "x", "state": state}),
        ("reservation", {"id": "a1", "state": "active"}),
        ("entry", {"what": "reconfigured"}),
    ]
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE records (kind TEXT, record TEXT)")
        rows = [(kind, json.dumps(record)) for kind, record in records]
        database.executemany("INSERT INTO records VALUES (?, ?)", rows)
        database.commit()
    found = readers.journal(path)
    assert found.circuits == told(one_way=False).circuits
    assert found.vlans == told(one_way=False).vlans
    assert found.reservations == {"a1": "active"}
