"""The agent with a real REST server: reports, waits for an absent server, and reconnects."""

import contextlib
import threading
from dataclasses import replace
from ipaddress import ip_address, ip_network

import numpy as np
import pytest

from apps.agent.loop import Agent, Pauses
from apps.agent.scheduler import SchedulingError
from apps.cli.client import ControllerClient
from apps.cli.output import CommandError, UnreachableError
from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.resources import agents
from apps.rest.server import RestServer
from hydra.demand.backlog import ConnectionKey, Sending, Waiting
from hydra.forwarding.class_table import TcpConnection
from hydra.model import NetworkState
from hydra.policy import AgentPolicy, Policy, Sharing
from mininet_scenarios.emulators.ports import free_port
from tests.unit.cli import DEMO
from tests.unit.core.fabrics import path_of, state_of
from tests.unit.rest.fake_service import FakeService
from tests.waiting import PATIENCE_S, wait_until

MB = 1_000_000
FAST = AgentPolicy(sample_s=0.02, report_gap_s=0.05, repeat_s=0.3)


class Sockets:
    def __init__(self):
        self.octets = {}
        self.connections = 1

    def send(self, address, octets):
        self.octets = {ip_address(address).packed: octets}

    def waiting(self):
        return {to: Waiting(octets, self.connections) for to, octets in self.octets.items()}

    def sending(self):
        return {
            ConnectionKey(address, 40000, 5201): Sending(waiting, sent=0)
            for address, waiting in self.octets.items()
        }


@pytest.fixture
def service():
    service = FakeService(load_configuration(DEMO).fabric)
    service.for_agents.now = Policy(agents=FAST)
    return service


@pytest.fixture
def server(service):
    running = RestServer(
        create_app(service), "127.0.0.1", free_port()
    )  # the server returns at the same port
    running.start()
    yield running
    running.stop()


class Schedule:
    """Stands in for the kernel's queues: keeps the last settings, and their times."""

    def __init__(self):
        self.told = []
        self.prefixes = []
        """Prefixes, at each construction."""
        self.cleared = 0
        self.fails = None

    def __call__(self, prefixes):
        assert "10.0.2.0/24" in prefixes["r2"]
        self.prefixes.append(prefixes)
        return self

    def clear(self):
        self.cleared += 1

    def apply(self, link_mbps, optical_share, optical):
        if self.fails:
            raise self.fails
        self.told.append((optical_share, tuple(optical)))


@contextlib.contextmanager
def running(url, sockets, name="h11", schedule=None):
    lost = UnreachableError, CommandError
    with ControllerClient(url) as client:
        agent = Agent(f"/v1/agents/{name}", client, sockets, lost, schedule)
        thread = threading.Thread(target=agent.run)
        thread.start()
        try:
            yield agent
        finally:
            agent.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def waiting_mb(service):
    return [one.waiting_mb for one in service.agents.agents()]


def test_it_reports_what_changes_and_that_it_lives(service, server):
    sockets = Sockets()
    with running(server.url, sockets):
        wait_until(lambda: waiting_mb(service) == [0.0])
        sockets.send("10.0.2.1", 50 * MB)
        wait_until(lambda: waiting_mb(service) == [50.0])
        wait_until(lambda: service.agents.agents()[0].age_s > 0.1)
        wait_until(lambda: service.agents.agents()[0].age_s < 0.1)
        sockets.send("10.0.1.2", 50 * MB)  # its own rack
        wait_until(lambda: waiting_mb(service) == [0.0])
    assert service.agents.troubles() == {}


def test_a_new_setup_is_fetched(service, server):
    sockets = Sockets()
    sockets.send("10.0.2.1", 5 * MB)
    with running(server.url, sockets):
        wait_until(lambda: waiting_mb(service) == [5.0])
        service.for_agents.now = Policy(agents=replace(FAST, report_above_mb=10.0))
        wait_until(lambda: waiting_mb(service) == [0.0])


def test_it_tells_elephants_where_somebody_wants_to_know(service, server):
    server_h11 = service.fabric.server_by_name["h11"]
    sockets = Sockets()
    sockets.send("10.0.2.1", 50 * MB)
    with running(server.url, sockets):
        wait_until(lambda: waiting_mb(service) == [50.0])
        assert service.agents.elephants(server_h11) == set()
        service.for_agents.now = Policy(agents=FAST, sharing=Sharing.ON_DEMAND)
        flow = TcpConnection(ip_address("10.0.2.1"), 40000, 5201)
        wait_until(lambda: service.agents.elephants(server_h11) == {flow})
        service.for_agents.now = Policy(agents=FAST)
        wait_until(lambda: service.agents.elephants(server_h11) == set())


def test_it_outlives_the_controller(service, server, caplog):
    sockets = Sockets()
    with running(server.url, sockets):
        wait_until(lambda: waiting_mb(service) == [0.0])
        server.stop()
        sockets.send("10.0.2.1", 50 * MB)
        wait_until(lambda: "reports to the controller fail" in caplog.text)
        server.start()
        wait_until(lambda: waiting_mb(service) == [50.0])
    complaints = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(complaints) == 1, "once, however often it tries"


def test_it_tells_how_many_connections_wait(service, server):
    sockets = Sockets()
    sockets.send("10.0.2.1", 1000)  # too little for a report
    sockets.connections = 7
    counted = np.array([5.0])
    with running(server.url, sockets):
        wait_until(
            lambda: service.agents.backlog(lambda *_: (counted, counted)).connections.sum() == 7
        )
        assert waiting_mb(service) == [0.0]
        service.for_agents.now = Policy(agents=FAST, sharing=Sharing.ON_DEMAND)
        wait_until(
            lambda: service.agents.backlog(lambda *_: (counted, counted)).connections.sum() == 1
        )


def join(service, *ends):
    path = path_of(service.fabric, *ends)
    service.network = state_of(service.fabric, NetworkState(), path)
    service.agents.circuits_may_have_changed()


def test_circuits_are_scheduled_for_as_soon_as_they_change(service, server, monkeypatch):
    """And not with the answer to the next report: no report is due in this time."""
    monkeypatch.setattr(agents, "_LOOK_UP_S", 2 * PATIENCE_S)
    slow = replace(FAST, repeat_s=2 * PATIENCE_S, optical_share=0.9)
    service.for_agents.now = Policy(agents=slow)
    schedule = Schedule()
    with running(server.url, Sockets(), schedule=schedule):
        wait_until(lambda: schedule.told == [(0.9, ()), (0.9, ())])
        wait_until(lambda: waiting_mb(service) == [0.0])
        age_s = service.agents.agents()[0].age_s
        join(service, 0, 1)
        wait_until(lambda: schedule.told[-1] == (0.9, ("r2",)))
        join(service, 0, 2)
        wait_until(lambda: schedule.told[-1] == (0.9, ("r3",)))
        assert service.agents.agents()[0].age_s > age_s, "it has not reported meanwhile"


def test_it_follows_circuits_again_when_the_controller_is_back(service, server, caplog):
    schedule = Schedule()
    with running(server.url, Sockets(), schedule=schedule):
        wait_until(lambda: len(schedule.told) == 2)
        server.stop()
        join(service, 0, 1)
        wait_until(lambda: "reports to the controller fail" in caplog.text)
        server.start()
        wait_until(lambda: schedule.told[-1][1] == ("r2",))


def test_another_share_is_taken_over_with_the_circuits_that_are_known(service, server):
    schedule = Schedule()
    with running(server.url, Sockets(), schedule=schedule):
        wait_until(lambda: len(schedule.told) == 2)
        join(service, 0, 1)
        wait_until(lambda: schedule.told[-1] == (0.0, ("r2",)))
        service.for_agents.now = Policy(agents=replace(FAST, optical_share=0.5))
        wait_until(lambda: schedule.told[-1] == (0.5, ("r2",)))


def test_a_controller_that_comes_back_with_other_prefixes_is_scheduled_for(service, server):
    fabric = service.fabric
    added = ip_network("10.9.3.0/24")
    racks = [
        replace(rack, prefixes=(*rack.prefixes, added)) if rack.name == "r3" else rack
        for rack in fabric.racks
    ]
    with_more = FakeService(replace(fabric, racks=tuple(racks)))
    with_more.for_agents.now = Policy(agents=FAST)
    join(with_more, 0, 2)
    schedule = Schedule()
    with running(server.url, Sockets(), schedule=schedule):
        wait_until(lambda: len(schedule.told) == 2)
        join(service, 0, 2)
        wait_until(lambda: schedule.told[-1][1] == ("r3",))
        service.agents = with_more.agents
        wait_until(lambda: len(schedule.prefixes) == 2)
        assert schedule.cleared == 1
        assert str(added) in schedule.prefixes[1]["r3"]
        wait_until(lambda: schedule.told[-1][1] == ("r3",))


def test_an_output_that_can_no_longer_be_scheduled_ends_it(service, server):
    schedule = Schedule()
    with ControllerClient(server.url) as client:
        lost = UnreachableError, CommandError
        agent = Agent("/v1/agents/h11", client, Sockets(), lost, schedule)

        def break_it():
            wait_until(lambda: len(schedule.told) == 2)
            schedule.fails = SchedulingError("eth0 is gone")
            join(service, 0, 1)

        breaking = threading.Thread(target=break_it)
        breaking.start()
        with pytest.raises(SchedulingError, match="eth0 is gone"):
            agent.run()
        breaking.join()


def test_a_refused_agent_goes_on_trying_more_and_more_seldom(server, caplog):
    with running(server.url, Sockets(), name="h99"):
        wait_until(lambda: "no server 'h99'" in caplog.text)


def test_pauses_double_up_to_a_limit_and_are_spread():
    longest = Pauses(chance=lambda: 1.0)
    assert [longest.next_s() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    longest.reset()
    assert longest.next_s() == 0.5
    assert Pauses(chance=lambda: 0.0).next_s() == 0.25
