import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.workloads import alltoall
from mininet_scenarios.workloads.alltoall import Exchange, Peer, Rank
from mininet_scenarios.workloads.mesh import Endpoint
from mininet_scenarios.workloads.reports import StopFlag, WorkloadError, read_report

MODULE = "mininet_scenarios.workloads.alltoall"


def start_ranks(tmp_path: Path, ranks: int, *options: str) -> list[subprocess.Popen[bytes]]:
    peers = ",".join(f"127.0.0.1:{free_port()}" for _ in range(ranks))
    return [
        subprocess.Popen(
            [
                *(sys.executable, "-m", MODULE, "--rank", str(rank), "--peers", peers),
                *("--report", str(tmp_path / f"{rank}.json"), *options),
            ],
            stdout=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]


def finish(processes: list[subprocess.Popen[bytes]]) -> list[bytes]:
    printed = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return printed


def reports(tmp_path: Path, ranks: int) -> list[alltoall.RankReport]:
    return [
        alltoall.rank_report_from_json(read_report(tmp_path / f"{rank}.json"))
        for rank in range(ranks)
    ]


def test_three_ranks_exchange_every_byte(tmp_path: Path) -> None:
    # Not a multiple of the chunk: the last piece of each round is cut.
    size, rounds = 300_001, 4
    printed = finish(
        start_ranks(
            tmp_path, 3, "--bytes", str(size), "--rounds", str(rounds), "--compute-ms", "30"
        )
    )
    for report in reports(tmp_path, 3):
        assert report.complete, report.reason
        assert report.verified
        assert report.received_bytes == 2 * size * rounds
        assert len(report.round_s) == rounds
        assert report.seconds >= rounds * 0.03
        assert report.samples[-1].received_bytes == report.received_bytes
    assert printed[0].count(b"\n") == rounds
    assert printed[1] == printed[2] == b""


def test_a_stopped_rank_reports_how_far_it_came_and_so_do_the_others(tmp_path: Path) -> None:
    processes = start_ranks(
        tmp_path, 3, "--bytes", "1000", "--rounds", "100000", "--compute-ms", "20"
    )
    for _ in range(2):  # the second time, each has a whole round behind it
        assert processes[0].stdout.readline()
    processes[1].send_signal(signal.SIGTERM)
    finish(processes)
    by_rank = reports(tmp_path, 3)
    assert not any(report.complete for report in by_rank)
    assert all(report.verified and report.round_s for report in by_rank)
    assert by_rank[1].reason == "stopped by a signal"
    assert "rank" in by_rank[0].reason or "reset" in by_rank[0].reason


def test_a_wrong_byte_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        work = Exchange((Endpoint("a", 1), Endpoint("b", 2)), 64, 1)
        right = alltoall.chunk_of(1, 0, 0)[:64]
        theirs.sendall(right[:-1] + bytes([right[-1] ^ 1]))
        report = Rank(0, work, [Peer(1, ours)], StopFlag()).run()
    assert report.complete
    assert not report.verified


def test_a_rank_that_never_comes_is_reported_in_time() -> None:
    peers = tuple(Endpoint("127.0.0.1", free_port()) for _ in range(2))
    work = Exchange(peers, 10, 1, meet_timeout_s=0.5)  # timed: no peer connects
    with pytest.raises(WorkloadError, match="did not turn up"):
        alltoall.run_rank(0, work, StopFlag())
    with pytest.raises(WorkloadError, match="did not turn up"):
        alltoall.run_rank(1, work, StopFlag())


@pytest.mark.parametrize(
    ("text", "address", "port"), [("10.0.1.1:54", "10.0.1.1", 54), ("[fd00::1]:7", "fd00::1", 7)]
)
def test_endpoints_are_read_and_printed_alike(text: str, address: str, port: int) -> None:
    endpoint = Endpoint.parse(text)
    assert endpoint == Endpoint(address, port)
    assert str(endpoint) == text


@pytest.mark.parametrize("text", ["10.0.1.1", ":5", "h:x", ""])
def test_a_peer_that_is_no_endpoint_is_named(text: str) -> None:
    with pytest.raises(WorkloadError, match="expected address:port"):
        Endpoint.parse(text)


def test_work_that_is_none_is_refused() -> None:
    with pytest.raises(WorkloadError, match="at least two ranks"):
        Exchange((Endpoint("127.0.0.1", 1),), 1, 1)
