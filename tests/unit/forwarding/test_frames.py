import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.forwarding.frames import Probe, announcement, parse_probe, probe
from hydra.forwarding.pipeline import ANNOUNCE_ETHERTYPE
from hydra.model import MacAddress, VlanId

A, B = MacAddress("02:00:00:00:01:01"), MacAddress("02:00:00:00:02:01")
VLANS = st.integers(1, 4094).map(VlanId)
NONCES = st.integers(0, 2**64 - 1)


def untagged(frame):
    """As the frame arrives after a switch removed its tag."""
    return frame[:12] + frame[16:]


@given(VLANS, NONCES)
def test_a_probe_is_read_back_tagged_and_untagged(vlan, nonce):
    frame = probe(A, B, vlan, nonce)
    assert parse_probe(frame) == Probe(nonce)
    assert parse_probe(untagged(frame)) == Probe(nonce)


def test_a_probe_on_the_wire():
    assert probe(A, B, VlanId(100), 0x0102030405060708).hex() == (
        "020000000201" "020000000101" "81000064" "88b5" + b"HydRA?".hex() + "0102030405060708"
        + 28 * "00"
    )  # fmt: skip


@pytest.mark.parametrize("vlan", [None, VlanId(4094)])
def test_an_announcement_comes_from_the_host_to_a_local_group(vlan):
    frame = announcement(A, vlan, 7)
    assert len(frame) == 60
    assert frame[0] & 0b11 == 0b11  # a group, locally administered
    assert frame[6:12].hex(":") == A
    tag = b"" if vlan is None else bytes.fromhex("81000ffe")
    assert frame[12:].startswith(tag + ANNOUNCE_ETHERTYPE.to_bytes(2, "big"))
    assert parse_probe(frame) is None


def test_each_announcement_is_to_an_address_of_its_own():
    numbers = (0, 1, 2, 2**24 - 1)
    assert len({announcement(A, None, number)[:6] for number in numbers}) == len(numbers)
    assert announcement(A, None, 2**24) == announcement(A, None, 0)


@given(VLANS, NONCES, st.integers(0, 37))
def test_a_probe_cut_short_is_none(vlan, nonce, length):
    whole = 16 + 2 + 6 + 8
    expected = Probe(nonce) if length >= whole else None
    assert parse_probe(probe(A, B, vlan, nonce)[:length]) == expected


@given(st.binary(max_size=80))
def test_any_bytes_are_a_probe_or_none(frame):
    assert parse_probe(frame) is None


@given(VLANS, NONCES, st.integers(0, 31), st.integers(0, 255))
def test_one_changed_byte_never_raises(vlan, nonce, position, value):
    frame = bytearray(probe(A, B, vlan, nonce))
    frame[position] = value
    found = parse_probe(bytes(frame))
    assert found is None or isinstance(found.nonce, int)
    if position >= 24:
        assert found is not None
        assert found.nonce.to_bytes(8, "big") == frame[24:32]


@pytest.mark.parametrize(("vlan", "header"), [(None, 14), (VlanId(100), 18)])
def test_a_probe_is_as_long_as_a_packet_of_the_largest_size(vlan, header):
    frame = probe(A, B, vlan, 7, mtu=1500)
    assert len(frame) == 1500 + header
    assert parse_probe(frame).nonce == 7
