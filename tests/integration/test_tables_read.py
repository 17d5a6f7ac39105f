"""The reader of benchmarks.whole_fabric finds wrong rules in a switch's tables."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from apps.process.configuration import load_configuration
from benchmarks._fabric import Server, Size, Switches, reference, wrong_turns
from drivers.codecs.openflow.rules import SwitchPorts, encode_changes
from hydra.forwarding.pipeline import RuleKind
from hydra.forwarding.rules import FlowRule, Install, Remove, RuleChange, divert_rule
from hydra.forwarding.substrate import substrate_of
from hydra.model import Fabric, NetworkState, RackId, VlanId
from tests.integration.bare_switch import BareSwitch
from tests.unit.core.fabrics import circuit_between, path_of, state_of
from tests.unit.forwarding.sample_rules import circuit_rule

SIZE = Size(racks=4, planes=2, servers=2)
PORTS = SwitchPorts(host=1, optical=2, electrical=3)
SECOND = Server(0, 1)


class Stage:
    """All vswitches with the tables of a state with a circuit between r1 and r2."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        document = reference(SIZE, directory, ["192.0.2.1:1", "192.0.2.2:1"])
        (directory / "fabric.yaml").write_text(yaml.safe_dump(document))
        fabric: Fabric = load_configuration(directory / "fabric.yaml").fabric
        path = path_of(fabric, 0, 1, circuit_between(fabric, 0, 1, 0))
        state = state_of(fabric, NetworkState(), path)
        self.topology = {"paths": [{"src": "r1", "dst": "r2", "vlan": state.vlans[path]}]}
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self.fabric = Switches(SIZE, f"127.0.0.1:{listener.getsockname()[1]}", directory)
        stack.callback(self.fabric.close)
        self.fabric.say("start")
        self.switches = {}
        for _ in range(SIZE.racks + SIZE.vswitches):
            switch = BareSwitch("simulated", listener.accept()[0])
            stack.callback(switch.close)
            switch._socket.sendall(struct.pack("!BBHI", 4, 5, 8, 1))
            self.switches[struct.unpack_from("!Q", switch._receive(), 8)[0]] = switch
        self.rules = {}
        for datapath in substrate_of(fabric).owned():
            self.rules[datapath] = list(substrate_of(fabric).rules(datapath, state, ()))
            self.change(datapath, *map(Install, self.rules[datapath]))

    def change(self, datapath: int, *changes: RuleChange) -> None:
        assert self.switches[datapath].confirm(encode_changes(changes, PORTS, 1, 1), 1) == []

    def rule(self, kind: RuleKind) -> FlowRule:
        return next(rule for rule in self.rules[SECOND.datapath] if rule.kind is kind)

    def wrong(self) -> list[str]:
        packets, wrong = wrong_turns(self.fabric, self.topology, others=SIZE.racks)
        assert packets > 100
        return wrong


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def test_tables_as_the_controller_makes_them_lead_where_the_topology_says(stage: Stage) -> None:
    assert stage.wrong() == []


def test_a_rule_too_few_or_too_many_is_found(stage: Stage) -> None:
    for kind, words in (
        (RuleKind.CIRCUIT, "to rack r2"),
        (RuleKind.ACCOUNT_V6, "IPv6 to rack"),
        (RuleKind.OWN_RACK_V4, "IPv4 to rack r1"),
        (RuleKind.UPLINK_TAGGED, "from a circuit"),
        (RuleKind.UPLINK_PROBE, "a probe"),
        (RuleKind.HOST_GROUP, "broadcast"),
        (RuleKind.PORT_OWN, "to rack"),
        (RuleKind.ELECTRICAL_UNICAST, "from the electrical network"),
    ):
        rule = stage.rule(kind)
        stage.change(SECOND.datapath, Remove(rule))
        found = stage.wrong()
        assert found, kind
        assert all(one.startswith(f"switch {SECOND.datapath:#x}: ") for one in found)
        assert any(words in one for one in found), (kind, found)
        stage.change(SECOND.datapath, Install(rule))
    assert stage.wrong() == []
    for more in (
        circuit_rule(RackId(2), VlanId(100), 1),
        circuit_rule(RackId(1), VlanId(999), 1),
        divert_rule(RackId(1), 1),
    ):
        stage.change(SECOND.datapath, Install(more))
        assert stage.wrong(), more
        stage.change(SECOND.datapath, Remove(more), Install(stage.rule(RuleKind.CIRCUIT)))
    assert stage.wrong() == []


def test_a_circuit_that_the_topology_does_not_have_is_found(stage: Stage) -> None:
    stage.topology = {"paths": []}
    assert len(stage.wrong()) == 2 * 2 * SIZE.servers
