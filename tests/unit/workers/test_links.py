"""A controller and its workers over real sockets: reports, commands, and obedience."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from contextlib import ExitStack

import pytest
import zmq
import zmq.auth

from apps.openflow.fleet import Fleet, Question
from apps.openflow.interface import PortInfo, SumRequest
from apps.openflow.refusals import Refusal, of_versions
from apps.process.worker_list import SessionEnd
from apps.workers import holder as holder_room
from apps.workers import roster as roster_room
from apps.workers import wire
from apps.workers.exchange import Exchange, endpoint
from apps.workers.links import Links
from apps.workers.settings import WorkerOptions
from apps.workers.wire import Order, Record
from drivers.codecs.openflow.messages import MULTIPART_FLOW, MULTIPART_PORT_STATS
from hydra.errors import HydraError
from hydra.failures import FailureKind
from hydra.forwarding.frames import probe
from hydra.model import MacAddress, VlanId
from hydra.settings import WorkerSettings
from mininet_scenarios.emulators.ports import free_port
from tests.unit.core.fabrics import small_fabric
from tests.waiting import PATIENCE_S, remains, wait_until

FABRIC = small_fabric(racks=2, planes=1, servers=1)
SWITCH, OTHER = (one.vswitch.datapath_id for one in FABRIC.servers)
LEASE_S = 5.0
"""Longer than a busy machine delays a worker's renewal."""
LONG_S = PATIENCE_S
PORTS = {1: PortInfo(1, "p1", True)}
MAC = MacAddress("02:00:00:00:00:01")


class Switch:
    """A switch's connection to a worker, which records its messages."""

    def __init__(self, answers=True):
        self.address = "192.0.2.1:1"
        self.sent = []
        self.asked = 0
        self.closed = False
        self._answers = answers

    def send(self, message):
        self.sent.append(message)

    def ask(self, tell):
        self.asked += 1
        tell(self._answers)

    def close(self):
        self.closed = True


class Hub:
    """A thread that runs posted functions, like the framework's hub."""

    def __init__(self):
        self.waiting = deque()
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def post(self, function):
        self.waiting.append(function)

    def do(self, function, *arguments, **options):
        done = threading.Event()
        self.post(lambda: (function(*arguments, **options), done.set()))
        assert done.wait(LONG_S)

    def _run(self):
        while not self._over:
            if self.waiting:
                self.waiting.popleft()()
            else:
                time.sleep(0.001)

    def close(self):
        self._over = True
        self._thread.join()


class Worker:
    def __init__(self, name, *ports, key=None, controller_key=None):
        places = tuple(("127.0.0.1", port) for port in ports)
        options = WorkerOptions(name, ("127.0.0.1", 0), places, key, controller_key)
        self.hub = Hub()
        self.links = Links(options, self.hub.post)
        self.holder = self.links.holder
        self.links.start()

    def connect(self, datapath=SWITCH, ports=PORTS, answers=True):
        switch = Switch(answers)
        self.hub.do(self.holder.switch_connected, datapath, switch, ports)
        return switch

    def close(self):
        self.links.stop()
        self.hub.close()


class Controller:
    """An exchange, with its events as tuples."""

    def __init__(self, port, leads=lambda: 1, **settings):
        self.told = []
        self.jobs = []
        self.connections = {}
        given = {"host": "127.0.0.1", "port": port, "shards": 2, "lease_s": LEASE_S, **settings}
        self.exchange = Exchange(WorkerSettings(**given), FABRIC, leads)
        self.exchange.start(self, self.between_changes)

    def between_changes(self, job):
        self.jobs.append(job)

    def switch_connected(self, datapath, connection, ports):
        self.connections[datapath] = connection
        self.told.append(("connected", datapath, connection.worker.name, dict(ports)))

    def switch_disconnected(self, datapath, connection):
        self.told.append(("disconnected", datapath, connection.worker.name))

    def port_changed(self, datapath, connection, port, *, deleted):
        self.told.append(("port", datapath, port, deleted))

    def barrier_replied(self, connection, xid):
        self.told.append(("barrier", connection.datapath, xid))

    def error_replied(self, connection, xid, kind, error):
        self.told.append(("error", xid, kind, error))

    def statistics_replied(self, connection, xid, body, *, more):
        self.told.append(("statistics", xid, body, more))

    def sums_replied(self, connection, xid, sums):
        self.told.append(("sums", xid, sums.octets.tolist(), sums.age_s))

    def role_replied(self, connection, xid, generation):
        self.told.append(("role", xid, generation))

    def switch_refused(self, datapath, address, why):
        self.told.append(("refused", datapath, address, why))

    def report_second(self, datapath, cause, text):
        self.told.append(("second", datapath, cause, text))

    def rule_ended(self, datapath, connection, cookie):
        self.told.append(("ended", datapath, cookie))

    def packet_received(self, datapath, connection, frame):
        self.told.append(("packet", datapath, frame))

    def await_told(self, *event):
        wait_until(lambda: event in self.told)

    def connected(self, datapath=SWITCH):
        wait_until(lambda: datapath in self.connections)
        return self.connections[datapath]

    def send(self, message, datapath=SWITCH):
        self.exchange.post(lambda: self.connections[datapath].send(message))

    def serving(self, datapath=SWITCH):
        """Name of the worker that holds a switch."""
        named = [one for one in self.told if one[0] == "connected" and one[1] == datapath]
        return named[-1][2] if named else None

    def known(self, name="w"):
        return {one.name: one for one in self.exchange.roster.known()}.get(name)

    def await_ended(self, ended, name="w"):
        """Wait until this number of a worker's sessions have ended in this way, and no others."""
        wait_until(lambda: (known := self.known(name)) and known.ended == ended)

    def close(self):
        self.exchange.stop()


class Way:
    """A relay to a port whose connections can fall silent: messages are lost, and neither end is
    notified.
    """

    def __init__(self, port):
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._connections = []
        self._silent = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __len__(self):
        """Number of connections so far."""
        return len(self._connections) // 2

    def fall_silent(self):
        """Standing connections; new connections are relayed."""
        self._silent.update(self._connections)

    def _accept(self):
        while True:
            try:
                ends = self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._connections += ends
            for here, there in (ends, ends[::-1]):
                threading.Thread(target=self._carry, args=(here, there), daemon=True).start()

    def _carry(self, here, there):
        try:
            while read := here.recv(65536):
                if here not in self._silent:
                    there.sendall(read)
            if here not in self._silent:
                there.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._listener, *self._connections):
            one.close()


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def controller(stack, port, **options):
    one = Controller(port, **options)
    stack.callback(one.close)
    return one


def worker(stack, name, *ports, **options):
    one = Worker(name, *ports, **options)
    stack.callback(one.close)
    return one


def test_what_a_switch_says_is_told_and_what_it_is_sent_arrives_in_order(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    assert a.told == [("connected", SWITCH, "w", PORTS)]
    for number in range(500):
        a.send(bytes([number % 256]))
    wait_until(lambda: len(switch.sent) == 500)
    assert switch.sent == [bytes([number % 256]) for number in range(500)]
    down = PortInfo(1, "p1", False)
    tell, holder = w.hub.do, w.holder
    tell(holder.port_changed, SWITCH, switch, down, deleted=False)
    tell(holder.barrier_replied, switch, 7)
    tell(holder.error_replied, switch, 8, FailureKind.REFUSED, "no")
    tell(holder.role_replied, switch, 9, 2**63 + 1)
    tell(holder.rule_ended, SWITCH, switch, 2**64 - 1)
    tell(holder.switch_disconnected, SWITCH, switch)
    a.await_told("disconnected", SWITCH, "w")
    assert a.told[1:] == [
        ("port", SWITCH, down, False),
        ("barrier", SWITCH, 7),
        ("error", 8, FailureKind.REFUSED, "no"),
        ("role", 9, 2**63 + 1),
        ("ended", SWITCH, 2**64 - 1),
        ("disconnected", SWITCH, "w"),
    ]


def test_parts_of_statistics_are_told_together_up_to_a_bound(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    a.send(b"ask")
    wait_until(lambda: switch.sent)
    for part, more in ((b"1", True), (b"2", True), (b"3", False)):
        w.hub.do(w.holder.statistics_replied, switch, 5, part, more=more)
    a.await_told("statistics", 5, b"123", False)
    large = bytes(700_000)
    for more in (True, True, False):
        w.hub.do(w.holder.statistics_replied, switch, 6, large, more=more)
    a.await_told("statistics", 6, large, False)
    assert [one[2:] for one in a.told if one[1:2] == (6,)] == [(large * 2, True), (large, False)]


def test_of_rules_the_sums_by_subject_are_told(stack):
    """A worker adds up a switch's counters; unreadable replies are passed on unchanged."""
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    for xid in (5, 6, 7):
        a.send(SumRequest.of(b"request", xid, 0xFFFF, 2))
    wait_until(lambda: switch.sent == [b"request"] * 3)
    tell, holder = w.hub.do, w.holder
    entries = [flow_entry(1, 10), flow_entry(2, 20), flow_entry(1, 2**63)]
    for entry, more in zip(entries, (True, True, False), strict=True):
        tell(holder.statistics_replied, switch, 5, entry, more=more)
    a.await_told("sums", 5, [2**63 + 10, 20], 4.0)
    tell(holder.statistics_replied, switch, 6, b"nonsense", more=False)
    a.await_told("statistics", 6, b"nonsense", False)
    tell(holder.error_replied, switch, 7, FailureKind.REFUSED, "no")
    a.await_told("error", 7, FailureKind.REFUSED, "no")


def test_two_ways_to_one_controller_do_not_take_each_others_place(stack):
    """As with a name and an address of the same host: the second link has to wait."""
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port, port)
    switch = w.connect()
    a.connected()
    time.sleep(LEASE_S)  # timed: a place without renewals becomes free
    a.send(b"on")
    wait_until(lambda: switch.sent == [b"on"])
    assert [one[0] for one in a.told] == ["connected"]


def test_the_poller_is_content_with_sums(stack):
    """Through the switchboard, as usual; ports are reported unchanged."""
    port = free_port()
    exchange = Exchange(
        WorkerSettings("127.0.0.1", port, shards=2, lease_s=LONG_S), FABRIC, lambda: 1
    )
    stack.callback(exchange.stop)
    fleet = Fleet(FABRIC, exchange.post, catch_up=exchange.catch_up)
    exchange.start(fleet, [].append)  # no switch has to move
    w = worker(stack, "w", port)
    switch = w.connect()
    wait_until(lambda: SWITCH in fleet.connected())
    of_rules, of_ports = Question(SWITCH, 3), Question(SWITCH, None)
    asked = fleet.ask_for_counters([of_rules, of_ports], (0xFFFF, 2))
    wait_until(lambda: len(switch.sent) == 2)
    xids = {kind(one): struct.unpack_from("!I", one, 4)[0] for one in switch.sent}
    for which, body in ((MULTIPART_PORT_STATS, b"ports"), (MULTIPART_FLOW, flow_entry(2, 9))):
        w.hub.do(w.holder.statistics_replied, switch, xids[which], body, more=False)
    wait_until(lambda: all(one.done() for one in asked.values()))
    assert asked[of_ports].result() == b"ports"
    sums = asked[of_rules].result()
    assert (sums.octets.tolist(), sums.age_s) == ([0, 9], 4.0)


def test_orders_that_come_when_the_lease_is_over_are_missed(stack):
    """As after a pause of the worker: all sessions begin anew, so that no call waits for lost
    messages.
    """
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    (link,) = w.links._links

    def come_late():
        link.until_s = 0.0
        w.links._obey(link, wire.packed(wire.ORDERS, 1, [Record(Order.SEND, 1, body=b"late")]))

    w.hub.do(come_late)
    wait_until(lambda: len([one for one in a.told if one[0] == "connected"]) == 2)
    a.send(b"on")
    wait_until(lambda: switch.sent == [b"on"])
    a.await_ended({SessionEnd.ORDERS_LATE: 1})


def kind(message):
    return struct.unpack_from("!H", message, 8)[0]


def flow_entry(subject, octets):
    return struct.pack("!H2xI16xQQQHHxxxx", 56, 4, subject, 1, octets, 1, 4)


def test_of_frames_probes_alone_are_told_and_only_by_the_connection_in_use(stack):
    """As are expired rules. Both workers obey the controller, which uses one worker's
    connection.
    """
    port = free_port()
    a = controller(stack, port)
    these = {name: worker(stack, name, port) for name in ("w1", "w2")}
    switches = {name: one.connect() for name, one in these.items()}
    a.connected()
    wait_until(lambda: sum(one.switches for one in a.exchange.roster.seen()) == 2)
    caught_up = threading.Event()
    a.exchange.post(lambda: a.exchange.catch_up(caught_up.set))
    assert caught_up.wait(LONG_S)
    used = a.serving()
    (other,) = these.keys() - {used}
    for xid, name in enumerate((other, used)):
        tell, holder, switch = these[name].hub.do, these[name].holder, switches[name]
        tell(holder.packet_received, SWITCH, switch, b"\xff" * 60)
        tell(holder.packet_received, SWITCH, switch, probe(MAC, MAC, VlanId(7), xid))
        tell(holder.rule_ended, SWITCH, switch, xid)
        tell(holder.barrier_replied, switch, xid)
        a.await_told("barrier", SWITCH, xid)
    assert a.serving() == used
    assert [one for one in a.told if one[0] in {"packet", "ended"}] == [
        ("packet", SWITCH, probe(MAC, MAC, VlanId(7), 1)),
        ("ended", SWITCH, 1),
    ]


def test_a_worker_that_dies_gives_its_switches_to_the_next(stack):
    port = free_port()
    a = controller(stack, port)
    first, second = worker(stack, "w1", port), worker(stack, "w2", port)
    switches = {"w1": first.connect(), "w2": second.connect()}
    a.connected()
    wait_until(lambda: sum(one.switches for one in a.exchange.roster.seen()) == 2)
    name = a.serving()
    other = {"w1": "w2", "w2": "w1"}[name]
    assert len([one for one in a.told if one[0] == "connected"]) == 1
    dying = {"w1": first, "w2": second}[name]
    for link in dying.links._links:  # as SIGKILL: the system closes its connection
        dying.links._send = lambda _link, _frames: True  # without a goodbye
        dying.links._closing = True
        dying.links._awake()
        dying.links._thread.join()
        link.socket.close(0)
    a.await_told("connected", SWITCH, other, PORTS)
    assert a.told.index(("disconnected", SWITCH, name)) < a.told.index(
        ("connected", SWITCH, other, PORTS)
    )
    a.send(b"on")
    wait_until(lambda: switches[other].sent == [b"on"])
    assert switches[name].sent == []
    a.await_ended({SessionEnd.DISCONNECTED: 1}, name)
    assert (a.known(name).seen, a.known(other).seen.serves) == (None, 1)


def test_a_worker_that_is_silent_for_its_lease_is_no_more_counted_on(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    renew = w.links._renew
    w.links._renew = lambda link: setattr(link, "renew_at_s", wire.boot_s() + 0.1)
    a.await_told("disconnected", SWITCH, "w")
    a.await_ended({SessionEnd.SILENT: 1})
    assert (a.known().seen, a.known().renewal_age_s > LEASE_S) == (None, True)
    link = w.links._links[0]
    assert wire.boot_s() >= link.until_s
    orders = wire.packed(wire.ORDERS, 1, [Record(Order.SEND, 1, body=b"late")])
    w.hub.do(w.links._obey, link, orders)
    assert switch.sent == []
    w.links._renew = renew
    wait_until(lambda: len([one for one in a.told if one[0] == "connected"]) == 2)
    a.send(b"again")
    wait_until(lambda: switch.sent == [b"again"])
    wait_until(lambda: a.known().seen is not None and a.known().renewal_age_s < LEASE_S)


def test_a_worker_whose_connection_breaks_without_a_word_is_heard_on_the_next(stack):
    """While the controller still holds the broken session, with the same identity."""
    port = free_port()
    a = controller(stack, port, lease_s=LONG_S)
    way = Way(port)
    stack.callback(way.close)
    w = worker(stack, "w", way.port)
    switch = w.connect()
    a.connected()
    way.fall_silent()
    wait_until(lambda: len(way) > 1)
    down = PortInfo(1, "p1", False)
    w.hub.do(w.holder.port_changed, SWITCH, switch, down, deleted=False)
    # Alone, or with all other switches if messages were lost.
    told = [("port", SWITCH, down, False), ("connected", SWITCH, "w", {1: down})]
    wait_until(lambda: a.told[-1] in told)
    a.send(b"on")
    wait_until(lambda: b"on" in switch.sent)


def test_orders_of_a_leader_that_was_followed_are_thrown_away(stack):
    ports = [free_port(), free_port()]
    later = [None]
    a = controller(stack, ports[0])
    b = controller(stack, ports[1], leads=lambda: later[0])
    w = worker(stack, "w", *ports)
    switch = w.connect()
    a.connected()
    b.connected()
    a.send(b"of a")
    wait_until(lambda: switch.sent == [b"of a"])
    b.send(b"of a standby")
    assert remains(lambda: switch.sent == [b"of a"], 0.5)
    later[0] = 2
    wait_until(lambda: b.exchange._led == 2)
    b.send(b"of b")
    wait_until(lambda: switch.sent[-1] == b"of b")
    a.send(b"of a, which does not know")
    w.hub.do(w.holder.barrier_replied, switch, 3)
    b.await_told("barrier", SWITCH, 3)
    wait_until(lambda: not w.hub.waiting)
    assert remains(lambda: switch.sent == [b"of a", b"of b"], 0.5)
    assert ("barrier", SWITCH, 3) not in a.told


def test_what_is_lost_on_the_way_is_found_out_and_told_anew(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    w.connect()
    a.connected()
    link = w.links._links[0]
    link.taken()
    link.sent += 1  # as if a sent message had been lost
    wait_until(lambda: len([one for one in a.told if one[0] == "connected"]) == 2)
    a.await_ended({SessionEnd.LOSSES_REPORTED: 1})
    link.received += 1  # as if a message had come that the controller never sent
    wait_until(lambda: len([one for one in a.told if one[0] == "connected"]) == 3)
    a.await_ended({SessionEnd.LOSSES_REPORTED: 1, SessionEnd.ORDERS_LOST: 1})


def test_what_is_lost_twice_in_a_lease_is_told_anew_twice(stack):
    port = free_port()
    a, w = controller(stack, port, lease_s=2 * LONG_S), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    send, refused = w.links._send, []

    def send_but_once(link, frames):
        if frames[0] == wire.TOLD and not refused:  # as without a connection
            refused.append(frames)
            return False
        return send(link, frames)

    w.links._send = send_but_once
    w.hub.do(w.holder.port_changed, SWITCH, switch, PORTS[1], deleted=False)
    wait_until(lambda: [one[0] for one in a.told].count("connected") == 2)
    refused.clear()
    w.hub.do(w.holder.port_changed, SWITCH, switch, PORTS[1], deleted=False)
    wait_until(lambda: [one[0] for one in a.told].count("connected") == 3)
    a.await_ended({SessionEnd.LOSSES_REPORTED: 2})


def test_catching_up_waits_for_what_workers_have_heard(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    a.send(b"ask")
    wait_until(lambda: switch.sent)
    told = []
    w.hub.post(lambda: time.sleep(0.3))  # timed: the worker is busy
    w.hub.post(lambda: w.holder.barrier_replied(switch, 4))
    a.exchange.post(lambda: a.exchange.catch_up(lambda: told.append(list(a.told))))
    wait_until(lambda: told)
    assert told[0][-1] == ("barrier", SWITCH, 4)


def test_catching_up_does_not_wait_for_a_worker_that_is_gone(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    w.connect()
    a.connected()
    wait_until(lambda: a.exchange._led == 1)
    told = threading.Event()
    w.hub.post(lambda: time.sleep(1))  # timed: the worker is busy
    a.exchange.post(lambda: a.exchange.catch_up(told.set))
    w.links.stop()
    assert told.wait(LONG_S)


def test_switches_move_to_a_worker_that_joins_once_no_change_is_under_way(stack):
    port = free_port()
    a = controller(stack, port)
    first = worker(stack, "w1", port)
    for datapath in (SWITCH, OTHER):
        first.connect(datapath)
        a.connected(datapath)
    second = worker(stack, "w2", port)
    for datapath in (SWITCH, OTHER):
        second.connect(datapath)
    wait_until(lambda: a.jobs)
    assert {a.serving(SWITCH), a.serving(OTHER)} == {"w1"}
    wait_until(lambda: sum(one.switches for one in a.exchange.roster.seen()) == 4)
    a.jobs[-1]()
    assert {a.serving(SWITCH), a.serving(OTHER)} == {"w1", "w2"}


def test_the_second_of_a_name_waits_until_the_first_is_gone(stack):
    port = free_port()
    a = controller(stack, port)
    first = worker(stack, "w", port)
    first.connect()
    a.connected()
    second = worker(stack, "w", port)
    second.connect(OTHER)
    assert remains(lambda: OTHER not in a.connections, 1)
    first.links.stop()
    a.connected(OTHER)
    a.await_ended({SessionEnd.ENDED: 1})


def test_a_worker_that_stays_away_is_forgotten(stack, monkeypatch):
    monkeypatch.setattr(roster_room, "_REMEMBERED_S", 1.0)
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    wait_until(lambda: a.known() and a.known().seen)
    a.exchange.post(lambda: a.exchange.remember_owners({0: "w", 1: "v"}, lambda _owners: None))
    wait_until(lambda: a.known("v"))  # known to an earlier leader
    wait_until(lambda: not a.known("v"))
    assert a.known().seen, "it is here"
    w.links.stop()
    wait_until(lambda: not a.known())


def test_a_second_connection_of_a_switch_is_refused_while_the_first_answers(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    first = w.connect()
    a.connected()
    second = w.connect()
    assert (first.asked, second.closed, first.closed) == (1, True, False)
    w.hub.do(w.holder.switch_disconnected, SWITCH, second)
    w.hub.do(w.holder.barrier_replied, first, 1)
    assert [one[0] for one in a.told if one[0] not in {"barrier", "second"}] == ["connected"]


@pytest.mark.parametrize("answers", [True, False])
def test_the_controller_that_leads_is_told_of_a_second_connection(stack, answers):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect(answers=answers)
    a.connected()
    a.send(b"lead")
    wait_until(lambda: switch.sent)
    w.connect()
    text = (
        "refused a second connection, from 192.0.2.1:1: the connection from 192.0.2.1:1 answers"
        if answers
        else "no answer from 192.0.2.1:1 within 2 s: a new connection, from 192.0.2.1:1, is used"
    )
    a.await_told("second", SWITCH, "refused" if answers else "replaced", text)


def test_every_controller_is_told_of_switches_that_are_kept_out(stack):
    """Also before a switch is accepted, which no switch of a wrong version ever is."""
    ports = free_port(), free_port()
    leader, standby = (
        controller(stack, port, leads=lambda n=n: n)
        for port, n in zip(ports, (1, None), strict=True)
    )
    w = worker(stack, "w", *ports)
    wait_until(lambda: leader.exchange.roster.seen() and standby.exchange.roster.seen())
    why = of_versions({1})
    for datapath, address in ((SWITCH, "192.0.2.1:40000"), (None, "[2001:db8::1]:40001")):
        # Once both controllers have a session with the worker, and have received messages.
        def tell(datapath=datapath, address=address):
            w.hub.do(w.holder.switch_refused, datapath, address, why)
            event = "refused", datapath, address, why
            return event in leader.told and event in standby.told

        wait_until(tell)


def test_a_switch_kept_out_at_a_worker_is_told_as_at_the_controller_itself(stack, caplog):
    """Its name, log and condition have the same source, the switchboard."""
    port = free_port()
    exchange = Exchange(WorkerSettings("127.0.0.1", port, 2, LEASE_S), FABRIC, lambda: 1)
    fleet = Fleet(FABRIC, exchange.post, catch_up=exchange.catch_up)
    exchange.start(fleet, lambda _job: None)
    stack.callback(exchange.stop)
    w = worker(stack, "w", port)
    name, why = "v-h11", of_versions({1})

    def tell():
        w.hub.do(w.holder.switch_refused, SWITCH, "192.0.2.1:40000", why)
        return fleet.refused() == [Refusal(name, why)]

    wait_until(tell)
    (line,) = [one for one in caplog.messages if "not let in" in one]
    assert line.startswith(f"{name} (192.0.2.1, datapath id {SWITCH:#018x}) is not let in")
    w.connect()
    wait_until(lambda: fleet.refused() == [])


def test_a_second_connection_takes_the_place_of_one_that_is_dead(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    first = w.connect(answers=False)
    a.connected()
    second = w.connect()
    assert (first.closed, second.closed) == (True, False)
    kinds = ["connected", "disconnected", "connected"]
    wait_until(lambda: [one[0] for one in a.told if one[0] != "second"] == kinds)


@pytest.fixture
def keys(tmp_path):
    for name in ("controller", "w", "stranger"):
        zmq.auth.create_certificates(tmp_path, name)
    known = tmp_path / "known"
    known.mkdir()
    (tmp_path / "w.key").rename(known / "w.key")
    return tmp_path


def test_with_keys_those_alone_are_heard_who_are_known(stack, keys):
    port = free_port()
    secured = {"key": str(keys / "controller.key_secret"), "known": str(keys / "known")}
    a = controller(stack, port, **secured)
    its = {"controller_key": str(keys / "controller.key")}
    worker(stack, "stranger", port, key=str(keys / "stranger.key_secret"), **its).connect(OTHER)
    worker(stack, "nobody", port).connect(OTHER)
    switch = worker(stack, "w", port, key=str(keys / "w.key_secret"), **its).connect()
    a.connected()
    a.send(b"secret")
    wait_until(lambda: switch.sent == [b"secret"])
    assert remains(lambda: OTHER not in a.connections, 0.5)
    assert [one.name for one in a.exchange.roster.seen()] == ["w"]


def test_keys_that_can_not_be_used_are_named(keys):
    given = {"key": str(keys / "controller.key"), "known": str(keys / "known")}
    with pytest.raises(HydraError, match=r"controller\.key has no secret key"):
        Exchange(WorkerSettings(port=free_port(), **given), FABRIC, lambda: 1)
    given = {"key": str(keys / "controller.key_secret"), "known": str(keys)}
    (keys / "known" / "w.key").unlink()
    with pytest.raises(HydraError, match="no public key of a worker"):
        Exchange(
            WorkerSettings(port=free_port(), **{**given, "known": str(keys / "known")}),
            FABRIC,
            lambda: 1,
        )


def test_a_peer_that_says_nonsense_is_dropped_and_others_go_on(stack):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    context = stack.enter_context(zmq.Context())
    stranger = stack.enter_context(context.socket(zmq.DEALER))
    stranger.setsockopt(zmq.LINGER, 0)
    stranger.connect(endpoint("127.0.0.1", port))
    no_number = wire.text({"name": "x", "session": float("inf"), **wire.OWN._asdict()})
    no_version = b'{"name": "x", "protocol": []}'
    renewals = (b"{", b"[]", no_number, no_version, b"[" * 200_000)
    for frames in (
        *([b"renew", one] for one in renewals),
        [b"renew"],
        [b"told", b"x", b"y"],
        [b""],
    ):
        stranger.send_multipart(frames)
    a.send(b"on")
    wait_until(lambda: switch.sent == [b"on"])
    assert remains(lambda: [one.name for one in a.exchange.roster.seen()] == ["w"])
    renewal = {"name": "x", "renewal": 1, "session": 0, "told": 0, "cpu_s": 0.0}
    stranger.send_multipart([wire.RENEW, wire.text({**renewal, **wire.OWN._asdict()})])
    stranger.send_multipart([wire.TOLD, b"x", b"y"])
    a.await_ended({SessionEnd.UNREADABLE: 1}, "x")


def test_a_worker_is_not_dropped_for_what_goes_wrong_where_it_is_told(stack, caplog):
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    a.send(b"on")
    wait_until(lambda: switch.sent == [b"on"])
    for event in ("rule_ended", "barrier_replied", "port_changed", "switch_disconnected"):
        setattr(a, event, failing(getattr(a, event)))
    tell = w.hub.do
    tell(w.holder.rule_ended, SWITCH, switch, 7)
    tell(w.holder.barrier_replied, switch, 8)
    tell(w.holder.port_changed, SWITCH, switch, PORTS[1], deleted=False)
    tell(w.holder.switch_disconnected, SWITCH, switch)
    w.connect()
    wait_until(lambda: len(a.told) == 6)
    said = ["connected", "ended", "barrier", "port", "disconnected", "connected"]
    assert [one[0] for one in a.told] == said
    assert (a.known().seen is not None, a.known().ended) == (True, {})
    assert len([one for one in caplog.records if one.exc_info]) == 1, "once a minute"


def failing(function):
    def fail(*arguments, **named):
        function(*arguments, **named)
        raise LookupError("as of a defect")

    return fail


def test_a_worker_keeps_and_tells_no_more_ports_than_a_switch_may_have(stack, monkeypatch):
    monkeypatch.setattr(holder_room, "MOST_PORTS", 3)
    port = free_port()
    a, w = controller(stack, port), worker(stack, "w", port)
    switch = w.connect()
    a.connected()
    for number in (2, 3, 4, 5, 2):
        told = PortInfo(number, f"p{number}", True)
        w.hub.do(w.holder.port_changed, SWITCH, switch, told, deleted=False)
    w.hub.do(w.holder.switch_disconnected, SWITCH, switch)
    a.await_told("disconnected", SWITCH, "w")
    assert [one[2].number for one in a.told if one[0] == "port"] == [2, 3, 2]


def test_an_address_that_is_taken_is_said():
    port = free_port()
    with ExitStack() as stack:
        controller(stack, port)
        with pytest.raises(HydraError, match=f"can't listen at 127.0.0.1 port {port}"):
            Exchange(WorkerSettings(port=port), FABRIC, lambda: 1)


def test_a_record_that_ends_early_is_refused():
    frames = wire.packed(wire.TOLD, 1, [Record(4, 1, 2, 3, b"body")])
    head, records = wire.unpacked(frames)
    assert (head, list(records)) == (1, [Record(4, 1, 2, 3, b"body")])
    _, records = wire.unpacked([*frames[:2], b"bod"])
    with pytest.raises(ValueError, match="early"):
        list(records)
    with pytest.raises(ValueError, match="heads"):
        wire.unpacked([frames[0], frames[1][:-1], frames[2]])
