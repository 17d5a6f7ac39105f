"""Reserved bandwidth of a rack pair on two circuits: no hash moves traffic off its circuit."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from mininet_scenarios.stage.stage import tcp_transfer
from tests.waiting import PATIENCE_S

from .live import wait_until
from .reserved import CIRCUIT_MBPS, SECONDS, release, slow

pytestmark = [pytest.mark.ovs, pytest.mark.takes(40)]

PAIRS = (("h11", "h21"), ("h12", "h22"))
STREAMS = 8
"""Number of connections of each server pair: a hash would hardly map all of them to one circuit."""


@pytest.fixture(scope="module")
def network(machine, tmp_path_factory):
    with slow("demo", tmp_path_factory.mktemp("bundle")) as running:
        yield running


def vlans_taken(network, *pairs):
    """The VLAN-IDs of TCP sent through circuits by each of these server pairs."""
    taken = []
    for number, (src, dst) in enumerate(pairs):
        with (
            network.testbed.frames_at(src, "optical", expression="vlan and ip and tcp") as frames,
            tcp_transfer(
                network.stage, src, dst, 5500 + number, 1.0, streams=STREAMS, rate_mbps=1
            ) as tcp,
        ):
            tcp.finish(PATIENCE_S)
        heard = frames.frames()
        mac = bytes.fromhex(network.fabric.server_by_name[src].mac.replace(":", ""))
        sent = [frame.data for frame in heard if frame.data[6:12] == mac]
        back = [frame.data for frame in heard if frame.data[6:12] != mac]
        taken.append([{tag(data) for data in some} for some in (sent, back)])
    return taken


def tag(data):
    return int.from_bytes(data[14:16], "big") & 0xFFF


def carried_at_once(network, pairs, mbps):
    """Mb/s delivered by each of these server pairs while all sent ``mbps`` each."""
    with ExitStack() as stack:
        sending = [
            stack.enter_context(
                tcp_transfer(network.stage, *ends, 5600 + number, SECONDS, average_mbps=mbps)
            )
            for number, ends in enumerate(pairs)
        ]
        return [one.finish(SECONDS + PATIENCE_S)[0].average_mbps for one in sending]


@pytest.fixture
def two_pairs(network):
    mbps = 0.9 * CIRCUIT_MBPS
    made = [network.reserve(*ends, mbps) for ends in PAIRS]
    assert [one["state"] for one in made] == ["active"] * 2, made
    yield made
    for one in made:
        release(network, one)
    wait_until(lambda: network.get("/v1/topology")["circuits"] == [])


def test_server_pairs_keep_to_their_circuits_both_ways(network, two_pairs):
    planes = {one["path"]["hops"][0]["plane"] for one in two_pairs}
    assert planes == {"p1", "p2"}
    vlans = [{one["path"]["vlan"]} for one in two_pairs]
    assert vlans_taken(network, *PAIRS) == [[vlan, vlan] for vlan in vlans]
    assert network.get("/v1/drift") == {"items": [], "silent": []}


@pytest.fixture
def bundle(network):
    made = network.reserve("r1", "r2", 1.5 * CIRCUIT_MBPS)
    assert made["state"] == "active", made
    yield made
    release(network, made)
    wait_until(lambda: network.get("/v1/topology")["circuits"] == [])


def test_racks_with_more_than_a_circuit_carries_have_it_by_servers(network, bundle):
    parts = bundle["parts"]
    assert [(one["src"], one["dst"], one["bandwidth_mbps"]) for one in parts] == [
        (server, "r2", 0.75 * CIRCUIT_MBPS) for server in ("h11", "h12")
    ]
    assert {one["path"]["hops"][0]["plane"] for one in parts} == {"p1", "p2"}
    vlans = [{one["path"]["vlan"]} for one in parts]
    taken = vlans_taken(network, *PAIRS, ("h11", "h22"), ("h21", "h12"))
    assert taken == [[vlans[sender]] * 2 for sender in (0, 1, 0, 1)]
    delivery = network.get(f"/v1/reservations/{bundle['id']}/delivery")
    assert delivery["promised_mbps"] == 1.5 * CIRCUIT_MBPS
    assert network.get("/v1/drift") == {"items": [], "silent": []}


@pytest.mark.quiet("measures the rates of streams that are sent at once", takes_s=15)
def test_racks_carry_what_they_were_promised_on_both(network, bundle):
    mbps = 0.75 * CIRCUIT_MBPS
    carried = carried_at_once(network, PAIRS, mbps)
    assert min(carried) >= 0.95 * mbps, carried


@pytest.mark.quiet("measures the rates of streams that are sent at once", takes_s=15)
def test_both_have_nine_tenths_of_a_circuit_at_once(network, two_pairs):
    mbps = 0.9 * CIRCUIT_MBPS
    carried = carried_at_once(network, PAIRS, mbps)
    assert min(carried) >= 0.95 * mbps, carried
