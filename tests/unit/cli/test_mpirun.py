"""``hydra mpirun`` as a separate process, and its reading of host files and patterns."""

import re
import signal
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.jobs.mpi import PATTERNS, Host, between_racks, host_traffic, placement, read_hosts
from hydra.errors import HydraError
from hydra.lifecycle import ReservationState as State
from tests.waiting import wait_until

from .jobs import all_over, finish, states

pytestmark = pytest.mark.takes(6)

HOSTS = "h11 slots=2\n# the others\nh21 slots=1\nh31 slots=1\n"


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
    path.write_text("h11:1\nh12:1\n")
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
        (("--pattern", "x.csv"), 2, "'x.csv' is neither a file nor a pattern"),
        (("--pattern", "ring", "--mbps", "1", "--ranks", "9"), 1, "9 ranks do not fit"),
    ],
)
def test_refusals(call, hosts, arguments, code, words):
    result = call("mpirun", "--hosts", hosts, *arguments, "--", "true")
    assert result.exit_code == code
    assert words in result.stderr


def test_hosts_that_are_no_servers(run, rest, service, tmp_path):
    path = tmp_path / "hosts"
    path.write_text("h11:1\nnode7:1\n")
    job = ("--hosts", str(path), "--pattern", "ring", "--mbps", "1", "--url", rest.url)
    result = run("mpirun", *job, "--", "true")
    assert result.exit_code == 1
    assert "knows no server node7" in result.stderr


def test_a_host_file_that_is_none(run, tmp_path):
    job = ("--hosts", str(tmp_path / "none"), "--pattern", "ring", "--mbps", "1")
    result = run("mpirun", *job, "--", "true")
    assert result.exit_code == 1
    assert "can't be read" in result.stderr


def test_a_controller_that_is_not_there_is_told_as_by_all_commands(run, hosts):
    job = ("--hosts", hosts, "--pattern", "ring", "--mbps", "1", "--url", "http://127.0.0.1:1")
    result = run("mpirun", *job, "--", "true")
    assert result.exit_code == 3
    assert "no controller answers at http://127.0.0.1:1" in result.stderr
    assert "start a controller with `hydra run --config FILE`" in result.stderr


# --- host files and patterns ----------------------------------------------------------------


OPEN_MPI = [
    ("h1 slots=2\nh2 slots=3\n", {"h1": 2, "h2": 3}),
    ("h1\nh1\nh1\nh2 slots=1", {"h1": 3, "h2": 1}),
    ("h1 slots=2\nh1\n", {"h1": 3}),
    ("h1 cpu=3\nh2 count = 2\n", {"h1": 3, "h2": 2}),
    ("h1 max_slots=8 slots=3\nh2 max-slots=2\n", {"h1": 3, "h2": 2}),
    ("h1 max_slots=4\nh1\n", {"h1": 5}),
    ("h1\nh1 max_slots=4\n", {"h1": 2}),
    ("h1 slots=2 max_slots=2\nh1\n", {"h1": 3}),
    ("root@h1 slots=1\nh1\n", {"h1": 2}),
    ("h1 port=22 slots=2\nh2 user-name=root username=root slots=1", {"h1": 2, "h2": 1}),
    ("# c\n//c\nh1 slots=2#c\nh2 slots=3 /* c */\n/* c */\n", {"h1": 2, "h2": 3}),
]
REFUSED_BY_OPEN_MPI = [
    ("h1 slots=2\nh1 slots=2\n", "write one line with all its slots"),
    ("h1\nh1 slots=2\n", "write one line with all its slots"),
    ("h1 slots=2\nroot@h1 slots=1\n", "write one line with all its slots"),
    ("h1 slots=2 cpu=3\n", "slots are given twice"),
    ("h1 slots=3 max_slots=2\n", "max_slots is less than the 3 slots of h1"),
    ("h1 max_slots=4\nh1 max_slots=4\n", "max_slots is less than the 5 slots of h1"),
    ("h1,h2\n", "the name of one host"),
    ("+n0\n", "the name of one host"),
    ("h1 slots=auto\n", "slots is 'auto': write a number from 1"),
    ("h1 slots=0\n", "slots is '0': write a number from 1"),
    ("h1 slots=-2\n", "slots is '-2': write a number from 1"),
    ("h1 cores=2\n", "mpirun knows no cores="),
    ("h1 user=root\n", "mpirun knows no user="),
]


def mapped_by_open_mpi(tmp_path, text):
    """The number of ranks that Open MPI itself would start on each host; None if it refuses."""
    path = tmp_path / "hosts"
    path.write_text(text)
    launcher = ["mpirun.openmpi", "--allow-run-as-root", "--do-not-launch", "--display-map"]
    told = subprocess.run(
        [*launcher, "--hostfile", str(path), "true"], capture_output=True, text=True, check=False
    ).stdout
    found = re.findall(r"Data for node: (\S+).*Num procs: (\d+)", told)
    return {name: int(ranks) for name, ranks in found} or None


@pytest.mark.parametrize(("text", "slots"), OPEN_MPI)
def test_a_host_file_is_read_as_open_mpi_reads_it(tmp_path, text, slots):
    assert mapped_by_open_mpi(tmp_path, text) == slots
    assert {host.name: host.slots for host in read_hosts(text, "f")} == slots


@pytest.mark.parametrize(("text", "words"), REFUSED_BY_OPEN_MPI)
def test_a_host_file_that_open_mpi_refuses_is_refused(tmp_path, text, words):
    assert mapped_by_open_mpi(tmp_path, text) is None
    with pytest.raises(HydraError, match=r"^f:\d: ") as refused:
        read_hosts(text, "f")
    assert words in str(refused.value)


def test_a_host_file_of_mpich():
    """As read by mpiexec.hydra 5.0.2."""
    text = "a:2\na:1\n\nb\nb\nc\nd:4 user=me # c\n"
    assert read_hosts(text, "f") == [Host("a", 3), Host("b", 2), Host("c", 1), Host("d", 4)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:x", "write a number from 1"),
        ("a:0", "write a number from 1"),
        (":3", "the name of one host"),
        ("a:2\nb slots=2", "f:2: 'b slots=2': NAME:N is MPICH's notation"),
        ("a b", "write each host on a line of its own"),
        ("a 3", "write each host on a line of its own"),
        ("", "f names no hosts"),
        ("# a", "f names no hosts"),
    ],
)
def test_what_is_no_host_file(text, words):
    with pytest.raises(HydraError, match=r"^f") as refused:
        read_hosts(text, "f")
    assert words in str(refused.value)


def test_a_host_without_a_number_is_refused_where_the_number_counts(run, tmp_path):
    """Open MPI starts a rank on each core of such a host: two hosts of 8 cores run 16 ranks."""
    assert read_hosts("h11\nh21\n", "f") == [Host("h11", None), Host("h21", None)]
    path = tmp_path / "hosts"
    path.write_text("h11\nh21\n")
    job = ("--hosts", str(path), "--pattern", "all-to-all", "--mbps", "5")
    result = run("mpirun", *job, "--", "true")
    assert result.exit_code == 1
    assert "write `h11 slots=N` (Open MPI) or `h11:N` (MPICH)" in result.stderr


def test_flows_from_host_to_host_need_no_slots(start, service, network, tmp_path):
    path, flows = tmp_path / "hosts", tmp_path / "flows.json"
    path.write_text("h11\nh31\n")
    flows.write_text('[{"src": "h11", "dst": "h31", "mbps": 7}]')
    code, _, err = finish(
        start("mpirun", "--hosts", str(path), "--pattern", str(flows), "--", "true")
    )
    assert code == 0, err
    assert promised(service) == {("h11", "h31"): 7}


def test_ranks_fill_one_host_after_the_other():
    hosts = [Host("a", 2), Host("b", 2)]
    assert placement(hosts, None) == ["a", "a", "b", "b"]
    assert placement(hosts, 3) == ["a", "a", "b"]
    assert placement([Host("a", 2), Host("b", None)], 2) == ["a", "a"]


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
