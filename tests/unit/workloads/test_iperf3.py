import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.stage.stage import listens
from mininet_scenarios.workloads import iperf3
from mininet_scenarios.workloads.iperf3 import Sample, ThroughputRun
from mininet_scenarios.workloads.reports import WorkloadError
from tests.waiting import PATIENCE_S

DATA = Path(__file__).parent / "data"


def test_a_captured_receiver_report_is_read() -> None:
    run = iperf3.parse((DATA / "iperf3_server.json").read_text())
    assert len(run.samples) == 10
    assert run.samples[0].mbps == pytest.approx(104.77, abs=0.01)
    assert run.average_mbps == pytest.approx(100.65, rel=0.01)
    assert run.retransmits is None
    assert run.seconds == pytest.approx(1.0, abs=0.01)


def test_a_captured_sender_report_knows_its_retransmissions() -> None:
    text = (DATA / "iperf3_client.json").read_text()
    assert iperf3.parse(text).retransmits == 0
    document = json.loads(text)
    document["intervals"][3]["sum"]["retransmits"] = 5
    document["intervals"][7]["sum"]["retransmits"] = 2
    assert iperf3.parse(json.dumps(document)).retransmits == 7


measures = pytest.mark.quiet("iperf3 measures for one second")


def wait_for_listener(port: int, process: subprocess.Popen[bytes]) -> None:
    tables = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
    while not any(listens(table.read_text(), port) for table in tables):
        assert process.poll() is None
        time.sleep(0.01)


def sent(**options: Any) -> tuple[ThroughputRun, ThroughputRun]:
    """The receiver's and the sender's measurements of a second."""
    port = free_port()
    server = subprocess.Popen(iperf3.server_command("127.0.0.1", port), stdout=subprocess.PIPE)
    wait_for_listener(port, server)
    command = iperf3.client_command("127.0.0.1", port, 1, **options)
    client = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    received = server.communicate(timeout=PATIENCE_S)[0].decode()
    return iperf3.parse(received), iperf3.parse(client.stdout)


@measures
def test_iperf3_itself_understands_the_commands_and_is_understood() -> None:
    received, sender = sent(streams=2, rate_mbps=10, congestion="reno")
    assert sender.retransmits is not None
    assert received.average_mbps == pytest.approx(20, rel=0.45)  # of one stream: 10
    assert len(received.samples) in range(9, 13)


@measures
def test_datagrams_are_counted_where_they_arrive() -> None:
    received, sender = sent(average_mbps=10, datagram_bytes=1448)
    assert sender.retransmits is None
    assert received.average_mbps == pytest.approx(10, rel=0.45)


def test_an_iperf3_error_is_passed_on_in_its_own_words() -> None:
    with pytest.raises(WorkloadError, match="unable to connect"):
        iperf3.parse('{"start":{},"intervals":[],"error":"unable to connect to server"}')
    with pytest.raises(WorkloadError, match="no JSON"):
        iperf3.parse("iperf3: command not found")


def test_an_average_is_weighted_by_time() -> None:
    run = ThroughputRun((Sample(0, 1, 10), Sample(1, 3, 40)), 30, 0, 3)
    assert run.average_between(0.5, 2.0) == pytest.approx((10 * 0.5 + 40) / 1.5)
    with pytest.raises(WorkloadError, match="no throughput samples"):
        run.average_between(5, 6)
