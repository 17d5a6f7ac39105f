import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.stage.transfers import Transferred
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import WorkloadError, read_report, write_moment
from mininet_scenarios.workloads.transfers import (
    Counting,
    Done,
    Maker,
    Order,
    Receiver,
    send_all,
    transfer,
)
from tests.waiting import PATIENCE_S, SHORT_S, wait_until

MODULE = "mininet_scenarios.workloads.transfers"


def test_every_byte_is_receipted(tmp_path: Path) -> None:
    port = free_port()
    ready, report, orders = tmp_path / "ready", tmp_path / "report.json", tmp_path / "orders.json"
    prepared, begin = tmp_path / "prepared", tmp_path / "begin"
    sizes = [1, 65_536, 300_001]
    to = Endpoint("127.0.0.1", port)
    orders.write_text(json.dumps([Order(to, size).to_json() for size in sizes]))
    receive = ["receive", "--bind", "127.0.0.1", "--port", str(port), "--ready", str(ready)]
    receiver = subprocess.Popen([sys.executable, "-m", MODULE, *receive])
    try:
        _await(ready, receiver)
        send = ["send", "--orders", str(orders), "--report", str(report), "--congestion", "reno"]
        send += ["--ready", str(prepared), "--begin", str(begin)]
        sender = subprocess.Popen([sys.executable, "-m", MODULE, *send])
        _await(prepared, sender)
        time.sleep(0.2)  # timed: as while other servers get ready
        begin_s = time.monotonic() + 0.1  # timed: all begin at that time
        write_moment(begin, begin_s)
        assert sender.wait(PATIENCE_S) == 0
    finally:
        receiver.send_signal(signal.SIGTERM)
        assert receiver.wait(PATIENCE_S) == 0
    done = [Done(**one) for one in read_report(report)["transfers"]]
    assert [one.size_bytes for one in done] == sizes
    assert all(one.started_s >= begin_s for one in done), "all senders begin together"
    assert all(one.finished_s > one.started_s for one in done)


def _await(file: Path, job: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: file.exists() or job.poll() is not None)
    assert job.poll() is None


def test_rates_are_of_what_arrived_from_first_to_last() -> None:
    one = Transferred("h11", "h21", 1_000_000, "elephant", 2.0, 6.0)
    assert one.mbps == pytest.approx(2.0)


def test_a_transfer_that_is_cut_off_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        to = Endpoint("127.0.0.1", server.getsockname()[1])

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(10)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(WorkloadError, match=f"0 of 200000 bytes arrived at {to}"):
            transfer(Order(to, 200_000), None)
        thread.join(PATIENCE_S)
    with pytest.raises(WorkloadError, match="refused"):
        transfer(Order(to, 1), None)


def _small_buffer_server() -> socket.socket:
    """A receiver that accepts little data that its application does not read."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def test_a_transfer_may_take_longer_than_silence_is_borne() -> None:
    silence_s, pause_s, size_bytes = SHORT_S, 0.15, 250_000
    with _small_buffer_server() as server:
        to = Endpoint("127.0.0.1", server.getsockname()[1])

        def read_slowly() -> None:
            connection, _ = server.accept()
            arrived = 0
            with connection:
                while some := connection.recv(8192):
                    arrived += len(some)
                    time.sleep(pause_s)
                connection.sendall(struct.pack("!Q", arrived))

        thread = threading.Thread(target=read_slowly)
        thread.start()
        done = transfer(Order(to, size_bytes), None, silence_s)
        thread.join(PATIENCE_S)
    assert done.finished_s - done.started_s > 2 * silence_s


def test_a_transfer_of_which_nothing_moves_fails() -> None:
    with _small_buffer_server() as server:
        to = Endpoint("127.0.0.1", server.getsockname()[1])
        with pytest.raises(WorkloadError, match=r"nothing has moved for 0\.3 s; \d+ bytes wait"):
            transfer(Order(to, 20_000_000), None, 0.3)


def test_no_more_than_a_unit_is_under_way() -> None:
    unit_bytes = 300_000
    with _small_buffer_server() as server:
        to = Endpoint("127.0.0.1", server.getsockname()[1])
        order = Order.from_json(Order(to, 20_000_000, unit_bytes=unit_bytes).to_json())
        with pytest.raises(WorkloadError, match=r"nothing has moved for 0\.3 s") as stopped:
            transfer(order, None, 0.3)
    (waiting,) = re.findall(r"(\d+) bytes wait", str(stopped.value))
    assert 0 < int(waiting) < unit_bytes


def test_units_follow_each_other() -> None:
    with Receiver(("127.0.0.1", 0), Counting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            to = Endpoint("127.0.0.1", server.server_address[1])
            done = transfer(Order(to, 250_001, unit_bytes=100_000), None)
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)
    assert done.size_bytes == 250_001  # the receipt covers all transfers


def test_data_that_is_made_slowly_comes_slowly() -> None:
    with Receiver(("127.0.0.1", 0), Counting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            order = Order(Endpoint("127.0.0.1", server.server_address[1]), 100_000, 4.0)
            done = transfer(order, None)
            assert done.finished_s - done.started_s >= 0.2
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)


@pytest.mark.quiet("measures how long a transfer takes")
def test_who_waits_leaves_his_share_of_the_disk_to_the_others() -> None:
    """Alone, the unread transfer takes 1 s to make its data, at half of the disk's rate."""
    rate_mbps, size_bytes = 4.0, 500_000
    with Receiver(("127.0.0.1", 0), Counting) as server, _small_buffer_server() as deaf:
        threading.Thread(target=server.serve_forever).start()
        try:
            at = [("taken", server.server_address[1]), ("deaf", deaf.getsockname()[1])]
            to = {name: Endpoint("127.0.0.1", port) for name, port in at}
            makers = Maker.of([Order(one, size_bytes, rate_mbps) for one in to.values()])
            waiting = Order(to["deaf"], 20_000_000, rate_mbps, unit_bytes=10_000, disk="d")
            stuck = threading.Thread(target=_fails, args=(waiting, 1.0, makers))
            stuck.start()
            time.sleep(0.3)  # timed: the disk is being read by now
            done = transfer(Order(to["taken"], size_bytes, rate_mbps, disk="d"), None, 1.0, makers)
            stuck.join(PATIENCE_S)
        finally:
            server.shutdown()
    assert 0.5 <= done.finished_s - done.started_s < 0.9


def _fails(order: Order, silence_s: float, maker: Maker | None) -> None:
    with pytest.raises(WorkloadError, match="nothing has moved"):
        transfer(order, None, silence_s, maker)


@pytest.mark.quiet("alone for a tenth of a second, one of them has the disk for itself")
def test_one_disk_makes_no_more_than_the_sum_of_its_rates() -> None:
    with Receiver(("127.0.0.1", 0), Counting) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            to = Endpoint("127.0.0.1", server.server_address[1])
            orders = [
                Order.from_json(Order(to, size, 4.0, disk="d").to_json())
                for size in (100_000, 100_000, 200_000)
            ]
            done = send_all(orders)
        finally:
            server.shutdown()
    first_s = min(one.started_s for one in done)
    seconds = sorted(one.finished_s - first_s for one in done)
    assert seconds[-1] >= 400_000 * 8e-6 / 12
    assert seconds[0] >= 0.75 * 300_000 * 8e-6 / 12  # in turn, not one after the other


def test_each_begins_at_its_time() -> None:
    with Receiver(("127.0.0.1", 0), Counting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            to = Endpoint("127.0.0.1", server.server_address[1])
            orders = [Order.from_json(Order(to, 10, None, at).to_json()) for at in (1.5, 0.0)]
            begin_at_s = time.monotonic() + 0.1  # timed: all begin at that time
            done = send_all(orders, None, begin_at_s)
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)
    began_s = [one.started_s - begin_at_s for one in done]
    assert began_s[0] >= 1.5
    assert 0.0 <= began_s[1] < began_s[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": 0}, "0 bytes"),
        ({"mbps": 0}, "never there"),
        ({"unit": 0}, "never end"),
        ({"disk": "d"}, "at no rate"),
    ],
)
def test_a_transfer_of_nothing_is_none(change, message) -> None:
    with pytest.raises(WorkloadError, match=message):
        Order.from_json({"to": "127.0.0.1:1", "bytes": 1} | change)
