import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.workloads import paced_udp
from mininet_scenarios.workloads.paced_udp import Ledger, Pace
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError, read_report, report_as
from tests.ipv6 import BOTH_LOOPBACKS
from tests.waiting import HANGS_S, PATIENCE_S, wait_until

MODULE = "mininet_scenarios.workloads.paced_udp"


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", MODULE, *arguments])


@pytest.mark.parametrize("address", BOTH_LOOPBACKS)
def test_every_datagram_is_accounted_for_over_loopback(tmp_path: Path, address: str) -> None:
    port = str(free_port())
    ready, rx, tx = tmp_path / "ready", tmp_path / "rx.json", tmp_path / "tx.json"
    receiver = start(
        "receive", "--bind", address, "--port", port, "--ready", str(ready), "--report", str(rx)
    )
    wait_until(ready.exists)
    sender = start(
        *("send", "--to", address, "--port", port, "--pps", "1000", "--payload", "200"),
        *("--count", "500", "--report", str(tx)),
    )
    assert sender.wait(PATIENCE_S) == 0
    assert receiver.wait(PATIENCE_S) == 0
    sent = report_as(paced_udp.SendReport, read_report(tx))
    heard = report_as(paced_udp.ReceiveReport, read_report(rx))
    assert (sent.sent, sent.refused) == (500, 0)
    assert (heard.received, heard.lost, heard.duplicates, heard.complete) == (500, 0, 0, True)
    # 500 datagrams at 1000/s take half a second; never less, for any delay of the sender.
    assert sent.finished_s - sent.started_s >= 0.49
    assert heard.median_delay_ms is not None
    assert heard.p99_delay_ms is not None
    assert 0 < heard.median_delay_ms <= heard.p99_delay_ms < 1000 * HANGS_S


def test_both_ends_write_their_report_when_terminated(tmp_path: Path) -> None:
    port = str(free_port())
    ready, rx, tx = tmp_path / "ready", tmp_path / "rx.json", tmp_path / "tx.json"
    sending = tmp_path / "sending"
    receiver = start(
        *("receive", "--bind", "127.0.0.1", "--port", port, "--stream", "7"),
        *("--ready", str(ready), "--report", str(rx)),
    )
    wait_until(ready.exists)
    sender = start(
        *("send", "--to", "127.0.0.1", "--port", port, "--stream", "8", "--pps", "500"),
        *("--count", "100000", "--ready", str(sending), "--report", str(tx)),
    )
    wait_until(sending.exists)
    sender.send_signal(signal.SIGTERM)
    assert sender.wait(PATIENCE_S) == 0
    receiver.send_signal(signal.SIGTERM)
    assert receiver.wait(PATIENCE_S) == 0
    sent = report_as(paced_udp.SendReport, read_report(tx))
    heard = report_as(paced_udp.ReceiveReport, read_report(rx))
    assert 0 < sent.sent < 100000
    # Another stream's datagrams are strangers, including its closing word.
    assert heard.received == 0
    assert heard.foreign >= sent.sent
    assert not heard.complete


def test_a_late_sender_moves_its_timetable_instead_of_bursting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = {"now": 0.0, "stall": 0.5}
    sent_at: list[float] = []

    def sleep(seconds: float) -> None:
        clock["now"] += seconds
        if clock["now"] > 0.1:  # the machine stopped the process, once
            clock["now"] += clock["stall"]
            clock["stall"] = 0.0

    real_sent = paced_udp._sent

    def note(sock: socket.socket, datagram: bytes) -> bool:
        sent_at.append(clock["now"])
        return real_sent(sock, datagram)

    monkeypatch.setattr(paced_udp.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(paced_udp.time, "sleep", sleep)
    monkeypatch.setattr(paced_udp, "_sent", note)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        pace = Pace(pps=100.0, payload_bytes=100, count=50, catch_up=3)
        report = paced_udp.send("127.0.0.1", listener.getsockname()[1], pace, 0, StopFlag())
    assert report.behind == 1
    at_once = max(sent_at[:50].count(moment) for moment in sent_at[:50])
    assert at_once <= pace.catch_up


def test_the_ledger_tells_loss_duplicates_and_reordering_apart() -> None:
    ledger = Ledger()
    for number, now in [(0, 0.0), (1, 0.1), (4, 0.2), (3, 0.3), (3, 0.4), (7, 0.9)]:
        ledger.arrived(number, now)
    ledger.total = 10
    report = ledger.report(socket_drops=0)
    assert (report.received, report.lost, report.duplicates, report.reordered) == (5, 5, 1, 1)
    assert report.max_gap_ms == pytest.approx(600)


def test_without_the_senders_word_only_the_tail_is_unknown() -> None:
    ledger = Ledger()
    for number in (0, 2):
        ledger.arrived(number, float(number))
    report = ledger.report(socket_drops=None)
    assert (report.expected, report.lost, report.complete) == (3, 1, False)


def test_the_pace_that_makes_up_a_load_counts_headers() -> None:
    pps = paced_udp.pps_for_load(8.0, 600, paced_udp.WIRE_OVERHEAD_V4)
    assert pps * (600 + 42) * 8 == pytest.approx(8e6)


@pytest.mark.parametrize(
    ("pps", "payload", "count"), [(0, 100, 1), (10, 8, 1), (10, 70000, 1), (10, 100, 0)]
)
def test_an_impossible_pace_is_refused(pps: float, payload: int, count: int) -> None:
    with pytest.raises(WorkloadError):
        Pace(pps, payload, count)
