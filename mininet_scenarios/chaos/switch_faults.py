"""Faults of Open vSwitch: daemons, bridges, and third parties' changes to rules."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from typing import Final, Self

from drivers.tor.ovsdb_hold import HOLDER, lock_name
from drivers.transports.ovsdb_session import Call, OvsdbSession
from hydra.model import Rack, Server
from mininet_scenarios.chaos.fault import (
    FOUND_BY_PROBES_S,
    OPEN_VSWITCH,
    SILENT_S,
    Fault,
    Field,
)
from mininet_scenarios.testbed import ovs
from mininet_scenarios.testbed.shell import run

_TIMEOUT_S: Final = 10.0
_NOWHERE: Final = "tcp:127.0.0.1:1"
"""A controller in Open vSwitch's notation that never answers."""
_SWAPS: Final = 0.3
"""Share of renumberings in which two ports swap numbers."""


class OvsFault(Fault):
    """A fault of one or all bridges; one such fault at a time, since tools need the daemons."""

    def __init__(self, field: Field, target: str) -> None:
        super().__init__(field, target, OPEN_VSWITCH)


class DaemonKilled(OvsFault):
    """Death of one of the two daemons of all bridges.

    ovs-vswitchd forgets all rules. Without ovsdb-server, ovs-vswitchd keeps the rules, but forwards
    nothing until the lock in the database is regained: the daemon's main loop runs the userspace
    datapath.
    """

    def __init__(self, field: Field, daemon: str) -> None:
        super().__init__(field, daemon)

    def strike(self) -> None:
        ovs.kill(self.target)

    def heal(self) -> None:
        ovs.ensure_running()
        ovs.separate_cached_flows()
        ovs.apply()

    def cuts(self, _source: str, _destination: str) -> bool:
        return True


class BridgeFault(OvsFault):
    """A fault of one bridge.

    If the bridge's rules are ruined, probes find paths relayed by the bridge dead.
    """

    longest_silence_s = FOUND_BY_PROBES_S

    def __init__(
        self, field: Field, bridge: str, behind: frozenset[str], ports: Collection[str]
    ) -> None:
        """``behind``: servers steered by the bridge; ``ports``: the bridge's optical ports."""
        super().__init__(field, bridge)
        self.bridge = bridge
        self.behind = behind
        self._ports = ports
        self._made_s = time.monotonic()

    @classmethod
    def steering(cls, field: Field, server: Server) -> Self:
        """A fault of the bridge that steers a server's outgoing frames."""
        ports = field.fabric.ports_of(server.rack) if server.vswitch is None else ()
        names = [port.tor_port for port in ports]
        return cls(field, field.bridge_of(server), field.behind(server), names)

    @classmethod
    def of_tor(cls, field: Field, rack: Rack) -> Self:
        behind = frozenset(server.name for server in rack.servers)
        ports = [port.tor_port for port in field.fabric.ports_of(rack.id)]
        return cls(field, rack.tor.bridge, behind, ports)


class RulesRuined(BridgeFault):
    """A fault by which a bridge stops forwarding until the controller has mended the rules."""

    ends_alone = True

    def cuts(self, source: str, destination: str) -> bool:
        return not self.behind.isdisjoint((source, destination))

    def touches(self, source: str, destination: str) -> bool:
        return self.field.led_through(self._ports, self._made_s, (source, destination))


class ControllerMisset(BridgeFault):
    """A bridge is given the address of an absent controller, and forwards as before."""

    def strike(self) -> None:
        ovs.set_controller(self.bridge, _NOWHERE)

    def heal(self) -> None:
        ovs.set_controller(self.bridge, self.field.openflow)

    def blinds(self, source: str, destination: str) -> bool:
        return not self.behind.isdisjoint((source, destination))


class ControllerUnset(RulesRuined):
    """A bridge loses its controller setting, and Open vSwitch deletes the bridge's rules."""

    ends_alone = False

    def strike(self) -> None:
        run(["ovs-vsctl", "--timeout=10", "del-controller", self.bridge])

    def heal(self) -> None:
        ovs.set_controller(self.bridge, self.field.openflow)

    def blinds(self, source: str, destination: str) -> bool:
        return self.cuts(source, destination)


class FlowsDeleted(RulesRuined):
    """A third party deletes all rules of a bridge; on a learning ToR, the learning rule."""

    def strike(self) -> None:
        run(["ovs-ofctl", "-O", "OpenFlow13", "del-flows", self.bridge])


class FlowAdded(RulesRuined):
    """A third party adds a rule by which all of a bridge's frames are dropped."""

    def strike(self) -> None:
        rule = "table=0,priority=60000,actions=drop"
        run(["ovs-ofctl", "-O", "OpenFlow13", "add-flow", self.bridge, rule])


class PortsRenumbered(BridgeFault):
    """A port of a bridge gets a new OpenFlow number, as after a deletion and addition, or two ports
    swap numbers. The controller has the rules follow.
    """

    longest_silence_s = SILENT_S
    ends_alone = True
    chance = random.Random(0)
    _renumbered: frozenset[str] = frozenset()

    def drawn_by(self, chance: random.Random) -> Self:
        """Use ``chance`` to draw ports and numbers."""
        self.chance = random.Random(chance.random())
        return self

    def strike(self) -> None:
        ports = run(["ovs-vsctl", "--timeout=10", "list-ports", self.bridge]).split()
        some = self.chance.sample(sorted(ports), min(2, len(ports)))
        numbers = {some[0]: str(self.chance.randint(100, 60_000))}
        if self.chance.random() < _SWAPS:
            read = ["ovs-vsctl", "--timeout=10", "get", "Interface"]
            now = [run([*read, port, "ofport"]).strip() for port in some]
            numbers = dict(zip(some, reversed(now), strict=True))
        self._renumbered = frozenset(numbers)
        command = ["ovs-vsctl", "--timeout=10"]
        for port, number in numbers.items():
            command += ["--", "set", "Interface", port, f"ofport_request={number}"]
        run(command)

    def touches(self, source: str, destination: str) -> bool:
        behind = not self.behind.isdisjoint((source, destination))
        return behind or self.field.led_through(self._ports, self._made_s, (source, destination))

    def darkens(self) -> frozenset[str]:
        """After a swap, a server's frames go to a dark port until the rules follow."""
        return self._renumbered


class BridgeDeleted(BridgeFault):
    """A bridge is deleted, and made again in the initial state: without rules or circuits'
    VLANs.
    """

    def strike(self) -> None:
        ovs.delete([self.bridge])

    def heal(self) -> None:
        self.field.stage.testbed.make_again(self.bridge)

    def cuts(self, source: str, destination: str) -> bool:
        return not self.behind.isdisjoint((source, destination))

    def touches(self, source: str, destination: str) -> bool:
        return self.field.led_through(self._ports, self._made_s, (source, destination))


class BridgeRobbed(BridgeFault):
    """A stranger steals the database's lock on a ToR, is named as holder, and leaves.

    When the stranger's session ends, ovsdb-server gives the lock back to the robbed session.
    """

    bars_starts = True

    def __init__(
        self, field: Field, bridge: str, behind: frozenset[str], ports: Collection[str]
    ) -> None:
        super().__init__(field, bridge, behind, ports)
        tors = {rack.tor.bridge: rack.tor for rack in field.fabric.racks}
        self._session = OvsdbSession(tors[bridge].address, {})

    def strike(self) -> None:
        with Call(_TIMEOUT_S) as call:
            self._session.connect(call, lock_name(self.bridge), steal=True)
        stranger = ["br-set-external-id", self.bridge, HOLDER, "0-stranger"]
        run(["ovs-vsctl", "--timeout=10", *stranger])

    def heal(self) -> None:
        self._session.close()
