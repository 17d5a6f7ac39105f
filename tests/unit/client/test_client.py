"""The typed client, over HTTP, against the REST API in front of a stand-in for the network."""

import asyncio
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.lifecycle import ReservationState as Core
from hydra_hybrid_network_client import (
    AsyncHydraClient,
    BadSetting,
    BadValue,
    ClientError,
    HydraClient,
    MatrixEntry,
    NotActive,
    Refused,
    ServiceClass,
)
from hydra_hybrid_network_client import ReservationState as State
from hydra_hybrid_network_client.documents import AnyRacks, ConstraintsBody, Gap, Profile, Protect
from tests import silent_streams
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import CREATED_UNIX_S, FakeService, recorded
from tests.waiting import PATIENCE_S, once


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


def settled_soon(service, state, reason=""):
    return once(service.reservations, lambda: service.settle("v0", state, reason))


def test_bandwidth_for_a_block(client, service):
    with (
        settled_soon(service, Core.ACTIVE),
        client.bandwidth("r1", "r2", 40) as reservation,
    ):
        assert reservation.state is State.ACTIVE
        assert reservation.path.hops[0].plane == "p1"
    assert client.reservation("v0").state is State.RELEASING


def test_a_purpose_is_kept(client):
    made = client.reserve("r1", "r2", 1, purpose="job 42")
    assert client.reservation(made.id).purpose == "job 42"


def test_a_block_that_fails_gives_it_back(client, service):
    with (
        settled_soon(service, Core.ACTIVE),
        pytest.raises(ZeroDivisionError),
        client.bandwidth("r1", "r2", 40),
    ):
        _ = 1 / 0
    assert client.reservation("v0").state is State.RELEASING


def test_no_block_without_it(client, service):
    with (
        settled_soon(service, Core.FAILED, "no light"),
        pytest.raises(NotActive, match="no light"),
        client.bandwidth("r1", "r2", 40),
    ):
        pytest.fail("it is not there")


@pytest.mark.parametrize("becomes", [Core.ACTIVE, Core.FAILED])
def test_a_state_is_waited_for_or_what_rules_it_out(client, service, becomes):
    made = client.reserve("r1", "r2", 40)
    with settled_soon(service, becomes):
        assert client.reservation(made.id, wait=State.ACTIVE).state == becomes


def test_a_state_is_not_waited_for_beyond_the_limit(client):
    made = client.reserve("r1", "r2", 40)
    assert client.reservation(made.id, wait=State.ACTIVE, wait_s=1).state is State.ACTIVATING


@pytest.mark.parametrize("wait_s", [-1, 61])
def test_a_wait_that_no_controller_grants_is_refused(client, wait_s):
    with pytest.raises(BadValue, match="wait_s must be 0 to 60"):
        client.reserve("r1", "r2", 40, wait_s=wait_s)
    assert list(client.reservations()) == []


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


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda c: c.reserve("r1", "r2", "40"), "bandwidth_mbps must be a number, not '40'"),
        (lambda c: c.reserve("r1", "r2", 40, priority="3"), "priority must be a number, not '3'"),
        (lambda c: c.reserve("r1", "r2", float("nan")), "bandwidth_mbps must be a finite number"),
        (
            lambda c: c.reserve("r1", "r2", 40, service="gold"),
            "service must be .*'gold'",
        ),
        (lambda c: c.preview("r1", "r2", 40, duration_s="1h"), "duration_s must be a valid number"),
        (lambda c: c.modify("v0", bandwidth_mbps="40"), "bandwidth_mbps must be a number"),
        (lambda c: c.reserve_shape("ring", ["r1"], "40"), "bandwidth_mbps must be a number"),
        (lambda c: c.reserve_shape("ring", ["r1"], "mos"), "bandwidth_mbps must be .*'mos'$"),
        (lambda c: c.reserve_matrix([("r1", "r2")]), "entries must be "),
    ],
)
def test_a_wrong_argument_is_an_error_of_the_client(client, ask, words):
    with pytest.raises(BadValue, match=words):
        ask(client)
    assert list(client.reservations()) == []
    assert issubclass(BadValue, ClientError)


def test_all_events_of_a_reservation(client, service):
    made = client.reserve("r1", "r2", 40)
    service.settle(made.id, Core.ACTIVE)
    gap, *told = islice(client.events(reservations=[made.id], last_id="0"), 2)
    assert isinstance(gap[1], Gap)
    assert told[0][1].reservation.state is State.ACTIVE
    with pytest.raises(Refused, match="no reservation 'nonesuch'"):
        next(client.events(reservations=["nonesuch"]))


def test_threads_share_a_client(server):
    """One of two controllers is gone, so each thread uses the other controller."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        urls = f"http://127.0.0.1:{deaf.getsockname()[1]},{server.url}"
        with HydraClient(urls) as client, ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(client.servers) for _ in range(64)]
            assert {len(one.result().servers) for one in asked} == {8}


def test_all_pages(client, service):
    entries = [MatrixEntry(src="r1", dst="r2", bandwidth_mbps=0.01)] * 1003
    group = client.reserve_matrix(entries)
    assert len(group.reservations) == len(list(client.reservations())) == 1003
    assert list(client.reservations(State.FAILED)) == []
    assert len(client.release_group(group.id).reservations) == 1003


def test_bytes_by_a_deadline(client):
    end = CREATED_UNIX_S + 100
    made = client.reserve("r1", "r2", megabytes=125, end_unix_s=end, profile=Profile.LATEST)
    assert (made.bandwidth_mbps, made.expires_unix_s) == (100, end)
    assert made.transfer.megabytes == 125


def test_availability(client):
    (span,) = client.availability("r1", "r2", end_unix_s=CREATED_UNIX_S + 5).spans
    assert (span.mbps, span.end_unix_s) == (100, CREATED_UNIX_S + 5)


def test_a_shape(client):
    made = client.reserve_shape("ring", ["r1", "r2", "r3", "r4"], "most", purpose="job 7")
    assert (made.bandwidth_mbps, len(made.reservations)) == (100, 4)
    assert client.shapes()[0].id == client.shape(made.id).id == made.id
    with pytest.raises(Refused) as caught:
        client.reserve_shape("pairs", ["r1", "r3"], 50, key="k")
    assert caught.value.problem.status == 409
    assert client.release_shape(made.id).state == "over"
    chosen = client.reserve_shape("pairs", AnyRacks(any=2, from_=["r3", "r4"]), 50)
    assert (chosen.racks, chosen.choice[:12]) == (["r3", "r4"], "2 of 2 racks")
    around = ConstraintsBody(avoid_planes=["p1"])
    kept = client.reserve_shape("pairs", ["r1", "r2"], 5, constraints=around, priority=3)
    (edge,) = kept.reservations
    assert (edge.constraints.avoid_planes, edge.priority) == (["p1"], 3)
    with pytest.raises(Refused, match="a disjoint path needs a second plane"):
        client.reserve_shape("pairs", ["r1", "r2"], 5, constraints=around, protect=Protect.DISJOINT)


def test_between_servers_of_different_racks(client):
    group = client.reserve_between(["h21", "h11", "h12", "laptop", "h11"], 5, duration_s=60)
    assert {(one.src, one.dst) for one in group.reservations} == {("h11", "h21"), ("h12", "h21")}
    assert {one.bandwidth_mbps for one in group.reservations} == {5}
    assert client.reserve_between(["h11", "h12", "laptop"], 5) is None
    assert len(list(client.reservations())) == 2


def test_hold_commit_preview(client):
    held = client.reserve("r1", "r2", 1, hold_s=30)
    assert held.state is State.HELD
    assert client.commit(held.id).state is State.ACTIVATING
    assert client.preview("r3", "r4", 1, duration_s=5.0).booked.hops
    assert client.release(held.id).state is State.RELEASING


def test_events(client, service):
    reservation = client.reserve("r1", "r2", 1)
    service.settle(reservation.id, Core.FAILED)
    identifier, event = next(client.events(last_id="run-0"))
    assert (identifier, event.reservation.state) == ("run-1", State.FAILED)
    assert isinstance(next(client.events(last_id="other-1"))[1], Gap)


def test_events_of_one_reservation(client, service):
    mine, other = client.reserve("r1", "r2", 1), client.reserve("r1", "r3", 1)
    follower = client.events(last_id="run-0", reservations=[mine.id])
    service.settle(other.id, Core.FAILED)
    service.settle(mine.id, Core.ACTIVE)
    about = next(follower)[1].reservation
    assert (about.id, about.state) == (mine.id, State.ACTIVE)


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
        with pytest.raises(ClientError, match="unexpected"):
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
    """Relay bytes until either end closes; with ``lose``, until the answer begins."""
    while True:
        for readable in select.select([near, far], [], [], 20)[0]:
            data = readable.recv(65536)
            if not data or (lose and readable is far):
                return
            (near if readable is far else far).sendall(data)


def test_a_lost_connection_is_tried_again_and_makes_nothing_twice(service, server):
    """A proxy loses the first answer."""

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


def test_asyncio_reserves_for_a_block_beside_a_stream_of_events(server, service):
    """In one thread: neither the wait for circuits nor the stream blocks the other."""

    async def until_active(client, name):
        async for _, event in client.events("reservation", last_id="run-0"):
            if event.reservation.id == name and event.reservation.state is State.ACTIVE:
                return event.reservation.state
        pytest.fail("the stream ended")

    async def work():
        async with AsyncHydraClient(server.url) as client:
            seen = asyncio.create_task(until_active(client, "v0"))
            with settled_soon(service, Core.ACTIVE):
                async with client.bandwidth("r1", "r2", 40) as reservation:
                    assert reservation.state is State.ACTIVE
                    assert await asyncio.wait_for(seen, PATIENCE_S) is State.ACTIVE
                    assert [one.id async for one in client.reservations()] == [reservation.id]
            assert (await client.reservation(reservation.id)).state is State.RELEASING
            with pytest.raises(Refused, match="r9"):
                await client.load("r9")

    asyncio.run(work())


def test_all_settings_come_from_the_environment(server, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("hydra_secret\n")
    monkeypatch.setenv("HYDRA_URL", server.url)
    monkeypatch.setenv("HYDRA_TOKEN_FILE", str(token))
    with HydraClient() as client:
        assert client.topology().racks == ["r1", "r2", "r3", "r4"]
        asked = client._connection.request("GET", "/v1/topology").request
    assert asked.headers["Authorization"] == "Bearer hydra_secret"


@pytest.mark.parametrize("variable", ["HYDRA_TOKEN_FILE", "HYDRA_CA"])
def test_a_file_that_the_environment_names_and_that_is_not_there(variable, tmp_path, monkeypatch):
    monkeypatch.setenv(variable, str(tmp_path / "no-such-file"))
    with pytest.raises(BadSetting, match=f"{variable} .*no-such-file can't be read .*unset it"):
        HydraClient("http://127.0.0.1:1")
