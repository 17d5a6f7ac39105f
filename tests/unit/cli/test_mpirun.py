"""``hydra mpirun`` as a process of its own, and what it makes of host files and patterns."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.jobs.mpi import PATTERNS, Host, between_racks, host_traffic, placement, read_hosts
from hydra.errors import HydraError
from hydra.lifecycle import ReservationState as State
from tests.waiting import wait_until

from .jobs import all_over, finish, states

HOSTS = "h11 slots=2\n# the others\nh21\nh31\n"


@pytest.fixture
def hosts(tmp_path):
    path = tmp_path / "hosts"
    path.write_text(HOSTS)
    return str(path)


def promised(service):
    return {(one.src, one.dst): one.bandwidth_mbps for one in service.reservations()}


def test_it_reserves_what_the_ranks_need_runs_and_releases(start, service, network, hosts):
    job = ("mpirun", "--hosts", hosts, "--pattern", "all-to-all", "--mbps", "10")
    code, out, err = finish(start(*job, "--", "sh", "-c", "echo -n ran; exit 3"))
    assert (code, out) == (3, "ran"), err
    assert promised(service) == {("h11", "h21"): 20, ("h11", "h31"): 20, ("h21", "h31"): 10}
    assert all_over(service)
    assert set(states(service)) == {State.RELEASED}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_job_and_release(start, service, network, hosts, number, tmp_path):
    ready = tmp_path / "ready"
    job = ("mpirun", "--hosts", hosts, "--pattern", "ring", "--mbps", "10")
    process = start(*job, "--", "sh", "-c", f"touch {ready}; exec sleep 600")
    wait_until(ready.exists)
    assert State.ACTIVE in states(service)
    process.send_signal(number)
    code, _, err = finish(process)
    assert code == 128 + number, err
    assert all_over(service)


def test_all_of_it_or_nothing(start, service, network, hosts):
    job = ("mpirun", "--hosts", hosts, "--pattern", "all-to-all", "--mbps", "60")
    code, out, err = finish(start(*job, "--", "echo", "never"))
    assert (code, out) == (1, "")
    assert "Mb/s" in err
    assert service.reservations() == []


def test_a_job_inside_one_rack_just_runs(start, service, network, tmp_path):
    path = tmp_path / "hosts"
    path.write_text("h11\nh12\n")
    job = ("mpirun", "--hosts", str(path), "--pattern", "ring", "--mbps", "60")
    assert finish(start(*job, "--", "echo", "-n", "ran"))[:2] == (0, "ran")
    assert service.reservations() == []


def test_a_file_of_flows(start, service, network, hosts, tmp_path):
    flows = tmp_path / "flows.json"
    flows.write_text('[{"src": "h11", "dst": "h31", "mbps": 7}]')
    job = ("mpirun", "--hosts", hosts, "--pattern", str(flows))
    code, _, err = finish(start(*job, "--", "true"))
    assert code == 0, err
    assert promised(service) == {("h11", "h31"): 7}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--pattern", "ring"), 2, "--mbps is for the patterns all-to-all, ring, root, stencil"),
        (("--pattern", "x.csv", "--mbps", "1"), 2, "--mbps is for"),
        (("--pattern", "x.csv"), 2, "'x.csv' is neither a file nor one of all-to-all, ring, root"),
        (("--pattern", "ring", "--mbps", "1", "--ranks", "9"), 1, "9 ranks do not fit"),
    ],
)
def test_refusals(call, hosts, arguments, code, words):
    result = call("mpirun", "--hosts", hosts, *arguments, "--", "true")
    assert result.exit_code == code
    assert words in result.stderr


def test_hosts_that_are_no_servers(run, rest, service, tmp_path):
    path = tmp_path / "hosts"
    path.write_text("h11\nnode7\n")
    job = ("--hosts", str(path), "--pattern", "ring", "--mbps", "1", "--url", rest.url)
    result = run("mpirun", *job, "--", "true")
    assert result.exit_code == 1
    assert "knows no server node7" in result.stderr


def test_a_host_file_that_is_none(run, tmp_path):
    job = ("--hosts", str(tmp_path / "none"), "--pattern", "ring", "--mbps", "1")
    result = run("mpirun", *job, "--", "true")
    assert result.exit_code == 1
    assert "can't be read" in result.stderr


# --- host files and patterns ----------------------------------------------------------------


def test_host_files_of_both_kinds():
    text = "a max_slots=8 slots=3\na slots=1 max-slots=8\nb:2\n\n# c\nd # one\na\n"
    assert read_hosts(text, "f") == [Host("a", 5), Host("b", 2), Host("d", 1)]
    for bad in ("a:x", "a:0", ":3", "a slots=0", "", "# a"):
        with pytest.raises(HydraError, match=r"^f"):
            read_hosts(bad, "f")


def test_ranks_fill_one_host_after_the_other():
    hosts = [Host("a", 2), Host("b", 2)]
    assert placement(hosts, None) == ["a", "a", "b", "b"]
    assert placement(hosts, 3) == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("pattern", "n", "pairs"),
    [
        ("all-to-all", 3, {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}),
        ("ring", 3, {(0, 1), (1, 2), (2, 0)}),
        ("root", 3, {(0, 1), (1, 0), (0, 2), (2, 0)}),
        ("stencil", 4, {(0, 1), (1, 0), (2, 3), (3, 2), (0, 2), (2, 0), (1, 3), (3, 1)}),
        ("stencil", 3, {(0, 1), (1, 0), (1, 2), (2, 1)}),
    ],
)
def test_patterns(pattern, n, pairs):
    found = list(PATTERNS[pattern](n))
    assert len(found) == len(set(found))
    assert set(found) == pairs


@given(pattern=st.sampled_from(sorted(PATTERNS)), n=st.integers(1, 40))
def test_every_pattern_stays_among_the_ranks_and_joins_them_all(pattern, n):
    pairs = list(PATTERNS[pattern](n))
    assert all(0 <= a < n and 0 <= b < n and a != b for a, b in pairs)
    joined = {0}
    for _ in range(n):
        joined |= {b for a, b in pairs if a in joined} | {a for a, b in pairs if b in joined}
    assert joined == set(range(n))


@given(
    slots=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    pattern=st.sampled_from(sorted(PATTERNS)),
)
def test_every_message_between_racks_finds_its_bandwidth(slots, pattern):
    hosts = [Host(f"h{number}", count) for number, count in enumerate(slots)]
    racks = {host.name: f"r{number % 3}" for number, host in enumerate(hosts)}
    places = placement(hosts, None)
    traffic = host_traffic(pattern, places, 2.0)
    assert sum(traffic.values()) == 2.0 * len(list(PATTERNS[pattern](len(places))))
    wanted = between_racks(traffic, racks)
    for (src, dst), mbps in traffic.items():
        held = wanted.get((min(src, dst), max(src, dst)), 0.0)
        assert held >= mbps if racks[src] != racks[dst] else held == 0.0
