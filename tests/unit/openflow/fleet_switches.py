"""Switches for tests of the fleet: connections in memory with scripted answers."""

import struct

from apps.openflow.fleet import Question
from apps.openflow.interface import PortInfo
from hydra.failures import Failure, FailureKind
from hydra.forwarding.rules import Install, divert_rule, round_rule
from hydra.model import RackId
from tests.unit.core.fabrics import small_fabric
from tests.unit.openflow.ryu_reference import split

FABRIC = small_fabric(racks=2, planes=1, servers=1)
H11, H21 = FABRIC.servers
V1, V2 = H11.vswitch.datapath_id, H21.vswitch.datapath_id
TOR1 = FABRIC.racks[0].tor.datapath_id
RULES1 = Question(V1, 1)
REFUSED = FailureKind.REFUSED
CHANGES = (Install(divert_rule(RackId(1), 1)),)


def port_table(*names, up=True):
    return {number: PortInfo(number, name, up) for number, name in enumerate(names, start=4)}


VSWITCH_PORTS = port_table("host", "optical", "electrical")


class Switch:
    """A connection that records its messages and answers by ``answer``, but sends no echo
    replies.
    """

    address = "192.0.2.1:6653"

    def __init__(self, fleet, datapath, answer=None, ports=VSWITCH_PORTS):
        self.fleet, self.datapath, self.answer = fleet, datapath, answer
        self.sent = []
        fleet.switch_connected(datapath, self, ports)

    def ask(self, tell):
        tell(False)

    def close(self):
        self.disconnect()

    def send(self, message):
        self.sent += split(message)
        xid = struct.unpack_from("!I", message, 4)[0]
        if self.answer is not None:
            self.answer(self, xid)

    def disconnect(self):
        self.fleet.switch_disconnected(self.datapath, self)


def refusal(name):
    return Failure("openflow", name, REFUSED, "OpenFlow error type 4, code 2")


def away(name):
    return Failure("openflow", name, FailureKind.NOT_CONNECTED, "not connected")


def unknown(reason):
    return Failure("openflow", "v-h11", FailureKind.UNKNOWN, reason)


NO_ANSWER = unknown("no answer within 0.02 s: outcome unknown")


def agrees(switch, xid):
    switch.fleet.barrier_replied(switch, xid)


def refuses(switch, xid):
    switch.fleet.error_replied(switch, xid, REFUSED, "OpenFlow error type 4, code 2")
    switch.fleet.error_replied(switch, xid, REFUSED, "another one")
    agrees(switch, xid)


def hangs_up(switch, xid):
    switch.disconnect()


def replies_with(*parts):
    def answer(switch, xid):
        for number, part in enumerate(parts, start=1):
            more = number < len(parts)
            switch.fleet.statistics_replied(switch, xid, part, more=more)

    return answer


def end(fleet, switch, number):
    fleet.rule_ended(switch.datapath, switch, round_rule(number).cookie)
