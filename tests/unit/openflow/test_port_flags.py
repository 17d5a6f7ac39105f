"""Ports configured to drop all frames in one direction count as down."""

import struct

import pytest

from apps.openflow.messages import port_info
from apps.openflow.package import ofproto_v1_3, ofproto_v1_3_parser
from drivers.codecs.openflow.messages import decode_port_descriptions

FLAGS = {
    ofproto_v1_3.OFPPC_PORT_DOWN: False,
    ofproto_v1_3.OFPPC_NO_RECV: False,
    ofproto_v1_3.OFPPC_NO_FWD: False,
    ofproto_v1_3.OFPPC_NO_PACKET_IN: True,
    0: True,
}


def port(config, state=0):
    rates = (0,) * 6
    return ofproto_v1_3_parser.OFPPort(41, "02:00:00:00:00:01", b"hyo-h11", config, state, *rates)


@pytest.mark.parametrize(("config", "up"), FLAGS.items())
def test_as_port_status_tells(config, up):
    assert port_info(port(config)).up is up
    assert not port_info(port(config, ofproto_v1_3.OFPPS_LINK_DOWN)).up


@pytest.mark.parametrize(("config", "up"), FLAGS.items())
def test_as_descriptions_tell(config, up):
    layout = ofproto_v1_3.OFP_PORT_PACK_STR
    body = struct.pack(layout, 41, bytes(6), b"hyo-h11", config, *(0,) * 7)
    (described,) = decode_port_descriptions(body)
    assert (described.number, described.name) == (41, "hyo-h11")
    assert described.down is (not up)
