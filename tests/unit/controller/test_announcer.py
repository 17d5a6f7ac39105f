"""Announcements go only to the switches of the announced servers."""

from apps.controller.announcer import Announcer
from hydra.forwarding.frames import announcement
from hydra.forwarding.match_action import Port
from hydra.forwarding.substrate import substrate_of
from hydra.model import VlanId
from tests.unit.core.fabrics import small_fabric

FABRIC = small_fabric(racks=2, planes=1, servers=3)


class Fleet:
    def send_frames(self, frames):
        self.sent = {datapath: list(some) for datapath, some in frames.items()}


def test_only_switches_of_these_servers_are_sent_anything():
    fleet, (first, _, third, *_) = Fleet(), FABRIC.servers
    announcer = Announcer(
        fleet=fleet, substrate=substrate_of(FABRIC), current=tuple, interval_s=60.0
    )
    announcer.announce([(first, (VlanId(7),)), (third, ())])
    assert fleet.sent == {
        server.vswitch.datapath_id: [
            (port, announcement(server.mac, vlan, 0)) for port, vlan in (*some, *always)
        ]
        for always in [((Port.OPTICAL, None), (Port.ELECTRICAL, None))]
        for server, some in ((first, [(Port.OPTICAL, VlanId(7))]), (third, []))
    }
