"""Paced writes over TCP: an account of every byte, and of time without progress."""

import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.workloads import paced_tcp
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError, read_report, report_as
from tests.ipv6 import BOTH_LOOPBACKS
from tests.waiting import HANGS_S, wait_until

MODULE = "mininet_scenarios.workloads.paced_tcp"
LONG_S = 60


def start(*arguments):
    return subprocess.Popen([sys.executable, "-m", MODULE, *map(str, arguments)])


@pytest.mark.quiet("a receiver has to have read before it is stopped for half a second")
@pytest.mark.parametrize("address", BOTH_LOOPBACKS)
def test_all_bytes_are_accounted_for_and_a_pause_shows(tmp_path, address):
    port = free_port()
    rx, tx = tmp_path / "rx.json", tmp_path / "tx.json"
    listening, sending = tmp_path / "listening", tmp_path / "sending"
    receiver = start(
        *("receive", "--bind", address, "--port", port, "--ready", listening, "--report", rx)
    )
    wait_until(listening.exists)
    sender = start(
        *("send", "--to", address, "--port", port, "--per-s", 200, "--bytes", 300),
        *("--ready", sending, "--report", tx),
    )
    wait_until(sending.exists)
    time.sleep(0.3)  # timed: the stream is under way
    receiver.send_signal(signal.SIGSTOP)
    time.sleep(0.5)  # timed: the silence to be reported
    receiver.send_signal(signal.SIGCONT)
    time.sleep(0.3)  # timed: the stream goes on
    sender.terminate()
    assert (sender.wait(LONG_S), receiver.wait(LONG_S)) == (0, 0)
    sent = report_as(paced_tcp.SendReport, read_report(tx))
    heard = report_as(paced_tcp.ReceiveReport, read_report(rx))
    assert heard.complete
    assert (heard.received_bytes, heard.check_sum) == (sent.sent_bytes, sent.check_sum)
    assert (sent.sent_bytes % 300, sent.sent_bytes > 0) == (0, True)
    assert heard.longest_silence_ms >= 490
    assert 190 < sent.timer_ms < 1000 * HANGS_S, "Linux' timer is 200 ms at least"


def test_a_connection_that_breaks_is_no_end_in_order(monkeypatch):
    port, reports, read = free_port(), [], []
    check = SimpleNamespace(crc32=lambda octets, _before: read.append(len(octets)) or 0)
    monkeypatch.setattr(paced_tcp, "zlib", check)
    ready = threading.Event()

    class Ready:
        def touch(self):
            ready.set()

    receiving = threading.Thread(
        target=lambda: reports.append(paced_tcp.receive("127.0.0.1", port, StopFlag(), Ready()))
    )
    receiving.start()
    assert ready.wait(LONG_S)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"x" * 100)
        wait_until(lambda: sum(read) == 100)
        linger_none = b"\1\0\0\0\0\0\0\0"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)  # as a reset
    receiving.join(LONG_S)
    assert [(one.received_bytes, one.complete) for one in reports] == [(100, False)]


def test_nobody_who_listens_and_no_pace_are_said():
    port = free_port()
    with pytest.raises(WorkloadError, match=f"127.0.0.1 port {port} broke: .*refused"):
        paced_tcp.send("127.0.0.1", port, 50.0, 200, StopFlag(), None)
    with pytest.raises(WorkloadError, match="50 writes a second of 4 B"):
        paced_tcp.send("127.0.0.1", port, 50.0, 4, StopFlag(), None)
    with pytest.raises(WorkloadError, match="paced_tcp: the report lacks check_sum"):
        report_as(paced_tcp.SendReport, {"sent_bytes": 1, "sent_again": 0, "timer_ms": 200.0})


def test_a_path_without_silence_still_costs_a_timer_and_a_write():
    assert paced_tcp.longest_silence_s(0.0, 0.02) == pytest.approx(0.22)
    assert paced_tcp.longest_silence_s(1.0, 0.02) == pytest.approx(2.22)
