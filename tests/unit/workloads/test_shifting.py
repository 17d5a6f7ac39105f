import json
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.workloads.reports import WorkloadError, read_report
from mininet_scenarios.workloads.shifting import main, samples_from_json

PERIOD_S = 0.5


@pytest.mark.quiet("flows that last for half a second")
def test_flows_go_elsewhere_when_their_time_is_over(tmp_path: Path) -> None:
    """Server 0 sends to 1, then to 2, then to no server; the received bytes show the times.

    The first period begins when all servers are ready.
    """
    ports = [free_port() for _ in range(3)]
    to = [f"127.0.0.1:{port}" for port in ports]
    start, running = tmp_path / "start", []
    for number, port in enumerate(ports):
        orders = tmp_path / f"orders-{number}.json"
        orders.write_text(
            json.dumps([[to[1], to[1]], [to[2]], []] if number == 0 else [[], [], []])
        )
        options = ["--bind", "127.0.0.1", "--port", str(port), "--orders", str(orders)]
        options += ["--ready", str(tmp_path / f"ready-{number}"), "--start", str(start)]
        options += ["--stability-s", str(PERIOD_S), "--congestion", "reno"]
        options += ["--report", str(tmp_path / f"report-{number}.json")]
        running.append(threading.Thread(target=main, args=(options,)))
    for thread in running:
        thread.start()
    while len(list(tmp_path.glob("ready-*"))) < len(ports):
        time.sleep(0.01)
    start_s = time.monotonic() + 0.2  # timed: all begin at that time
    (tmp_path / "told").write_text(str(start_s))
    (tmp_path / "told").rename(start)
    for thread in running:
        thread.join()
    reports = [read_report(tmp_path / f"report-{number}.json") for number in range(3)]
    sender, first, second = (samples_from_json(report) for report in reports)
    assert sender[-1].received_bytes == 0
    for samples, begin_s in ((first, start_s), (second, start_s + PERIOD_S)):
        growing = [
            after.at_s
            for before, after in pairwise(samples)
            if after.received_bytes > before.received_bytes
        ]
        assert growing[0] >= begin_s
        assert growing[-1] < begin_s + PERIOD_S + 1.0  # a sample late, on a busy machine


def test_a_report_of_something_else_is_refused() -> None:
    with pytest.raises(WorkloadError, match="shifting"):
        samples_from_json({"samples": [{"at": 1}]})
