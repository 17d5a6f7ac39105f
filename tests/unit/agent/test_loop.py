"""The agent against a real REST server: it reports, waits for one that is away, and comes back."""

import contextlib
import threading
import time
from dataclasses import replace
from ipaddress import ip_address

import pytest

from apps.agent.loop import Agent, Pauses
from apps.cli.client import ControllerClient
from apps.cli.output import CommandError, UnreachableError
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.demand.backlog import ConnectionKey, Sending
from hydra.forwarding.class_table import TcpConnection
from hydra.policy import AgentPolicy, Policy, Sharing
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import FakeService

MB = 1_000_000
FAST = AgentPolicy(sample_s=0.02, report_gap_s=0.05, repeat_s=0.3)


class Sockets:
    def __init__(self):
        self.waiting = {}

    def send(self, address, octets):
        self.waiting = {ip_address(address).packed: octets}

    def waiting_bytes(self):
        return self.waiting

    def sending(self):
        return {
            ConnectionKey(address, 40000, 5201): Sending(waiting, sent=0)
            for address, waiting in self.waiting.items()
        }


@pytest.fixture
def service():
    service = FakeService(load_configuration(DEMO).fabric)
    service.for_agents.now = Policy(agents=FAST)
    return service


@pytest.fixture
def server(service):
    running = RestServer(create_app(service), "127.0.0.1", 0)
    running.start()
    running._wanted_port = running.port  # so that it comes back where it was
    yield running
    running.stop()


@contextlib.contextmanager
def running(url, sockets, name="h11"):
    with ControllerClient(url) as client:
        agent = Agent(f"/v1/agents/{name}", client, sockets, (UnreachableError, CommandError))
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            yield agent
        finally:
            agent.stop()
            thread.join(10)
            assert not thread.is_alive()


def until(condition):
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def waiting_mb(service):
    return [one.waiting_mb for one in service.agents.agents()]


def test_it_reports_what_changes_and_that_it_lives(service, server):
    sockets = Sockets()
    with running(server.url, sockets):
        until(lambda: waiting_mb(service) == [0.0])
        sockets.send("10.0.2.1", 50 * MB)
        until(lambda: waiting_mb(service) == [50.0])
        until(lambda: service.agents.agents()[0].age_s > 0.1)
        until(lambda: service.agents.agents()[0].age_s < 0.1)
        sockets.send("10.0.1.2", 50 * MB)  # its own rack
        until(lambda: waiting_mb(service) == [0.0])
    assert service.agents.troubles() == {}


def test_a_new_setup_is_fetched(service, server):
    sockets = Sockets()
    sockets.send("10.0.2.1", 5 * MB)
    with running(server.url, sockets):
        until(lambda: waiting_mb(service) == [5.0])
        service.for_agents.now = Policy(agents=replace(FAST, report_above_mb=10.0))
        until(lambda: waiting_mb(service) == [0.0])


def test_it_tells_elephants_where_somebody_wants_to_know(service, server):
    server_h11 = service.fabric.server_by_name["h11"]
    sockets = Sockets()
    sockets.send("10.0.2.1", 50 * MB)
    with running(server.url, sockets):
        until(lambda: waiting_mb(service) == [50.0])
        assert service.agents.elephants(server_h11) == set()
        service.for_agents.now = Policy(agents=FAST, sharing=Sharing.ON_DEMAND)
        flow = TcpConnection(ip_address("10.0.2.1"), 40000, 5201)
        until(lambda: service.agents.elephants(server_h11) == {flow})
        service.for_agents.now = Policy(agents=FAST)
        until(lambda: service.agents.elephants(server_h11) == set())


def test_it_outlives_the_controller(service, server, caplog):
    sockets = Sockets()
    with running(server.url, sockets):
        until(lambda: waiting_mb(service) == [0.0])
        server.stop()
        sockets.send("10.0.2.1", 50 * MB)
        until(lambda: "no report gets through" in caplog.text)
        server.start()
        until(lambda: waiting_mb(service) == [50.0])
    complaints = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(complaints) == 1, "once, however often it tries"


def test_a_refused_agent_goes_on_trying_more_and_more_seldom(server, caplog):
    with running(server.url, Sockets(), name="h99"):
        until(lambda: "no server 'h99'" in caplog.text)


def test_pauses_double_up_to_a_limit_and_are_spread():
    longest = Pauses(chance=lambda: 1.0)
    assert [longest.next_s() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    longest.reset()
    assert longest.next_s() == 0.5
    assert Pauses(chance=lambda: 0.0).next_s() == 0.25
