"""The typed client, over HTTP, against the REST API in front of a stand-in for the network."""

import select
import socket
import threading
import time

import pytest

from apps.client import ClientError, HydraClient, NotActive, Refused
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.resources import Gap, MatrixEntry
from apps.rest.server import RestServer
from hydra.lifecycle import ReservationState as State
from hydra.reservations.reservation import ServiceClass
from tests import silent_streams
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import FakeService, recorded
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def fabric():
    return load_configuration(DEMO).fabric


@pytest.fixture
def service(fabric):
    return FakeService(fabric)


@pytest.fixture
def server(service):
    running = RestServer(create_app(service), "127.0.0.1", 0)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def client(server):
    with HydraClient(server.url) as client:
        yield client


def settle_soon(service, state, reason=""):
    def settle():
        while not service.reservations():
            time.sleep(0.01)
        service.settle("v0", state, reason)

    thread = threading.Thread(target=settle)
    thread.start()
    return thread


def test_bandwidth_for_a_block(client, service):
    thread = settle_soon(service, State.ACTIVE)
    with client.bandwidth("r1", "r2", 40) as reservation:
        assert reservation.state is State.ACTIVE
        assert reservation.path.hops[0].plane == "p1"
    thread.join()
    assert client.reservation("v0").state is State.RELEASING


def test_a_purpose_is_kept(client):
    made = client.reserve("r1", "r2", 1, purpose="job 42")
    assert client.reservation(made.id).purpose == "job 42"


def test_a_block_that_fails_gives_it_back(client, service):
    thread = settle_soon(service, State.ACTIVE)
    with pytest.raises(ZeroDivisionError), client.bandwidth("r1", "r2", 40):
        _ = 1 / 0
    thread.join()
    assert client.reservation("v0").state is State.RELEASING


def test_no_block_without_it(client, service):
    thread = settle_soon(service, State.FAILED, "no light")
    with pytest.raises(NotActive, match="no light"), client.bandwidth("r1", "r2", 40):
        pytest.fail("it is not there")
    thread.join()


@pytest.mark.parametrize("becomes", [State.ACTIVE, State.FAILED])
def test_a_state_is_waited_for_or_what_rules_it_out(client, service, becomes):
    made = client.reserve("r1", "r2", 40)
    thread = settle_soon(service, becomes)
    assert client.reservation(made.id, wait=State.ACTIVE).state is becomes
    thread.join()


def test_a_state_is_not_waited_for_beyond_the_limit(client):
    made = client.reserve("r1", "r2", 40)
    assert client.reservation(made.id, wait=State.ACTIVE, wait_s=1).state is State.ACTIVATING


def test_a_state_that_there_is_not_is_refused(client):
    made = client.reserve("r1", "r2", 40)
    with pytest.raises(Refused, match="wait"):
        client.reservation(made.id, wait="activ")


def test_a_refusal_has_alternatives(client):
    client.reserve("r1", "r2", 70, duration_s=60)
    with pytest.raises(Refused) as caught:
        client.reserve("r1", "r2", 60)
    assert [one.bandwidth_mbps for one in caught.value.problem.alternatives] == [30, 60]
    assert caught.value.problem.status == 409


def test_all_pages(client, service):
    entries = [MatrixEntry(src="r1", dst="r2", bandwidth_mbps=0.01)] * 1003
    group = client.reserve_matrix(entries)
    assert len(group.reservations) == len(list(client.reservations())) == 1003
    assert list(client.reservations(State.FAILED)) == []
    assert len(client.release_group(group.id).reservations) == 1003


def test_between_servers_of_different_racks(client):
    group = client.reserve_between(["h21", "h11", "h12", "laptop", "h11"], 5, duration_s=60)
    assert {(one.src, one.dst) for one in group.reservations} == {("h11", "h21"), ("h12", "h21")}
    assert {one.bandwidth_mbps for one in group.reservations} == {5}
    assert client.reserve_between(["h11", "h12", "laptop"], 5) is None
    assert len(list(client.reservations())) == 2


def test_more_servers_than_one_request_may_be_for(client, monkeypatch):
    monkeypatch.setattr("apps.rest.resources.MOST_ENTRIES", 3)
    with pytest.raises(ClientError, match="4 pairs of servers are more than the 3"):
        client.reserve_between(["h11", "h12", "h21", "h22"], 5)


def test_hold_commit_preview(client):
    held = client.reserve("r1", "r2", 1, hold_s=30)
    assert held.state is State.HELD
    assert client.commit(held.id).state is State.ACTIVATING
    assert client.preview("r3", "r4", 1, duration_s=5.0).booked.hops
    assert client.release(held.id).state is State.RELEASING


def test_events(client, service):
    reservation = client.reserve("r1", "r2", 1)
    service.settle(reservation.id, State.FAILED)
    identifier, event = next(client.events(last_id="run-0"))
    assert (identifier, event.reservation.state) == ("run-1", State.FAILED)
    assert isinstance(next(client.events(last_id="other-1"))[1], Gap)


def test_a_stream_that_is_silent_after_an_event_goes_on():
    with silent_streams.network() as network, HydraClient(network.url) as client:
        events = client.events(last_id="run-0")
        for number in range(1, 4):
            network.act()
            assert next(events)[0] == f"run-{number}"
            network.be_silent()


@pytest.mark.parametrize("data", ["not JSON", "[]", '{"kind": "of-a-later-release"}'])
def test_an_event_that_is_none_is_an_error_of_the_client(data):
    stream = silent_streams.stream("event: reservation", "id: run-1", f"data: {data}", "")
    with silent_streams.answering(stream) as script, HydraClient(script.url) as client:
        events = client.events()
        with pytest.raises(ClientError, match="something else"):
            next(events)


def test_the_network(client):
    assert client.topology().racks == ["r1", "r2", "r3", "r4"]
    assert client.demand().entries
    assert client.devices().devices


def test_the_last_hours_load(client, service):
    assert client.load().interval_s is None, "nothing is polled"
    recorded(service)
    (pair,) = client.load(limit=1).pairs
    assert (pair.src, pair.dst, pair.mbps) == ("r1", "r2", [80.0] * 13)
    assert {one.src for one in client.load("r4", "r3").pairs} == {"r3", "r4"}
    with pytest.raises(Refused, match="r9"):
        client.load("r9")


def relay(near, far, *, lose):
    """Pass bytes on until either end closes; with ``lose``, until the answer begins."""
    while True:
        for readable in select.select([near, far], [], [], 20)[0]:
            data = readable.recv(65536)
            if not data or (lose and readable is far):
                return
            (near if readable is far else far).sendall(data)


def test_a_lost_connection_is_tried_again_and_makes_nothing_twice(service, server):
    """A proxy loses the first answer on its way back."""

    def pass_on():
        for number in range(2):
            near, _ = listener.accept()
            with near, socket.create_connection(("127.0.0.1", server.port)) as far:
                relay(near, far, lose=number == 0)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        proxy = threading.Thread(target=pass_on)
        proxy.start()
        with HydraClient(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            reservation = client.reserve("r1", "r2", 10)
        proxy.join()
    assert [one.id for one in service.reservations()] == [reservation.id]


def test_nobody_there():
    with HydraClient("http://127.0.0.1:1") as client, pytest.raises(ClientError, match="refused"):
        client.topology()


def test_what_a_reservation_gets(client, service):
    reservation = client.reserve("r1", "r2", 40, service=ServiceClass.BEST_EFFORT)
    assert reservation.service is ServiceClass.BEST_EFFORT
    delivery = client.delivery(reservation.id)
    assert (delivery.promised_mbps, delivery.there_mbps, delivery.back_mbps) == (0, 38.5, None)
    assert delivery.unheld == ["h12"]
    assert client.deliveries() == [delivery]


def test_a_modification(client):
    reservation = client.reserve("h11", "r2", 40)
    assert client.modify(reservation.id, bandwidth_mbps=50).bandwidth_mbps == 50
    with pytest.raises(Refused) as refused:
        client.modify(reservation.id, dst="r3")
    assert refused.value.problem.type == "/problems/not-hitless"
