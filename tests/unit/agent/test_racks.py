"""Racks of addresses."""

import ipaddress

import pytest

from apps.agent.racks import RackFinder
from hydra.demand.backlog import Waiting

FINDER = RackFinder(
    {
        "r2": ["10.0.2.0/24", "fd00:10:0:2::/64"],
        "r3": ["10.0.3.0/25", "10.0.3.128/26"],
        "r4": ["10.1.0.0/16"],
    }
)


def packed(text):
    return ipaddress.ip_address(text).packed


@pytest.mark.parametrize(
    ("address", "rack"),
    [
        ("10.0.2.1", "r2"),
        ("10.0.2.255", "r2"),
        ("10.0.3.127", "r3"),
        ("10.0.3.191", "r3"),
        ("10.0.3.192", None),
        ("10.1.255.7", "r4"),
        ("127.0.0.1", None),
        ("fd00:10:0:2::1", "r2"),
        ("fd00:10:0:3::1", None),
        ("::ffff:10.0.2.9", "r2"),
        ("::1", None),
    ],
)
def test_rack_of(address, rack):
    assert FINDER.rack_of(packed(address)) == rack
    assert FINDER.rack_of(packed(address)) == rack, "remembered"


def test_sums():
    of_addresses = (("10.0.2.1", 5), ("10.0.2.2", 6), ("8.8.8.8", 7), ("fd00:10:0:2::1", 8))
    waiting = [(packed(address), Waiting(octets, 2)) for address, octets in of_addresses]
    assert FINDER.by_rack(waiting) == {"r2": Waiting(19, 6)}


def test_no_prefix():
    with pytest.raises(ValueError, match="host bits"):
        RackFinder({"r1": ["10.0.0.1/24"]})
