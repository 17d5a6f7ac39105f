"""Meters on the wire, compared with Ryu's parser."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.openflow.package import ofproto_v1_3, ofproto_v1_3_parser
from drivers.codecs.openflow.meters import (
    AddMeter,
    MeterCounters,
    RemoveEveryMeter,
    RemoveMeter,
    SetMeter,
    decode_meter_rates,
    decode_meter_stats,
    encode_meter_changes,
    encode_meter_config_request,
    encode_meter_stats_request,
)
from drivers.codecs.openflow.statistics import MalformedReplyError
from hydra.sharing.policing import LENIENT
from tests.unit.openflow.ryu_reference import DATAPATH, serialised, split

XID = 0x4000_0001


def theirs(command, number, kbps=None, burst_kbit=None):
    """The same meter-mod, written by Ryu."""
    parser, proto = ofproto_v1_3_parser, ofproto_v1_3
    bands = [] if kbps is None else [parser.OFPMeterBandDrop(kbps, burst_kbit)]
    flags = proto.OFPMF_KBPS | proto.OFPMF_BURST if bands else 0
    return serialised(parser.OFPMeterMod(DATAPATH, command, flags, number, bands), XID)


def test_changes_are_as_ryu_writes_them_in_their_order():
    changes = [AddMeter(7, 40.0), SetMeter(7, 57.5, LENIENT), RemoveMeter(7), RemoveEveryMeter()]
    assert list(split(encode_meter_changes(changes, XID))) == [
        theirs(ofproto_v1_3.OFPMC_ADD, 7, 40_000, 640),
        theirs(ofproto_v1_3.OFPMC_MODIFY, 7, 57_500, 57_500 * 20 // 1000),
        theirs(ofproto_v1_3.OFPMC_DELETE, 7),
        theirs(ofproto_v1_3.OFPMC_DELETE, ofproto_v1_3.OFPM_ALL),
    ]


@given(st.floats(min_value=0.0, allow_nan=False))
def test_every_rate_fits(mbps):
    (rate,) = struct.unpack_from("!I", encode_meter_changes([AddMeter(1, mbps)], XID), 20)
    assert 1 <= rate <= 2**32 - 1


def stats(*entries):
    """A reply's body: number, bytes in, and bytes dropped by each band of each meter."""
    body = b""
    for number, bytes_in, dropped in entries:
        length = 40 + 16 * len(dropped)
        body += struct.pack("!IHxxxxxxIQQII", number, length, 2, 9, bytes_in, 1, 5)
        body += b"".join(struct.pack("!QQ", 3, one) for one in dropped)
    return body


def test_counters_are_what_ryu_reads():
    body = stats((1, 1000, [30]), (9, 2**40, [1, 2]), (10, 0, []))
    read, offset = {}, 0
    while offset < len(body):
        one = ofproto_v1_3_parser.OFPMeterStats.parser(body, offset)
        dropped = sum(band.byte_band_count for band in one.band_stats)
        read[one.meter_id] = MeterCounters(one.byte_in_count, dropped)
        offset += one.len
    assert decode_meter_stats(body) == read
    assert read[9] == MeterCounters(2**40, 3)


def test_a_meter_without_counters_is_left_out():
    body = stats((1, 2**64 - 1, [30]), (2, 10, [1, 2**64 - 1]), (3, 2**64 - 2, [2]))
    assert decode_meter_stats(body) == {3: MeterCounters(2**64 - 2, 2)}


@pytest.mark.parametrize("cut", [1, 39, 41, 55])
def test_a_reply_that_is_cut_short_is_refused(cut):
    with pytest.raises(MalformedReplyError, match="meter statistics"):
        decode_meter_stats(stats((1, 1000, [30]))[:cut])


def test_a_length_of_nothing_is_no_endless_loop():
    with pytest.raises(MalformedReplyError):
        decode_meter_stats(struct.pack("!IH", 1, 0) + bytes(50))


def test_all_meters_are_asked_for():
    request = ofproto_v1_3_parser.OFPMeterStatsRequest(DATAPATH, 0, ofproto_v1_3.OFPM_ALL)
    assert encode_meter_stats_request(XID) == serialised(request, XID)


def config(number, *bands):
    """A meter's entry of an OFPMP_METER_CONFIG reply; bands by kind and rate."""
    packed = b"".join(struct.pack("!HHIIxxxx", kind, 16, rate, 640) for kind, rate in bands)
    return struct.pack("!HHI", 8 + len(packed), 5, number) + packed


def test_rates_are_asked_for_as_ryu_does():
    theirs = ofproto_v1_3_parser.OFPMeterConfigStatsRequest(DATAPATH, 0, ofproto_v1_3.OFPM_ALL)
    assert encode_meter_config_request(XID) == serialised(theirs, XID)


def test_rates_are_those_of_bands_that_drop():
    body = config(7, (1, 40_000)) + config(8, (2, 1), (1, 5)) + config(9, (2, 1)) + config(10)
    assert decode_meter_rates(body) == {7: 40_000, 8: 5}


@pytest.mark.parametrize("cut", [1, 4, 17, 20])
def test_configurations_that_are_cut_short_are_refused(cut):
    with pytest.raises(MalformedReplyError):
        decode_meter_rates((config(7, (1, 40_000)) * 2)[:-cut])


def test_a_band_that_is_longer_than_its_meter_is_refused():
    body = config(7, (1, 40_000))
    with pytest.raises(MalformedReplyError):
        decode_meter_rates(body[:10] + struct.pack("!H", 0) + body[12:])
