"""``hydra slurm`` as run by a real slurmctld, before and after the jobs of real slurmds."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from apps.jobs.slurm import Job, Wish, hostnames, read_wish
from hydra.errors import HydraError
from hydra.lifecycle import ReservationState as State
from hydra.model import NetworkState, Topology, VlanId
from mininet_scenarios.emulators.ports import free_port
from tests.unit.rest.fake_service import FakeService, relay_path
from tests.waiting import PATIENCE_S, accepts, wait_until

from .jobs import all_over, states

pytestmark = pytest.mark.takes(15)

NODES = ("h11", "h12", "h21")
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.sock
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/ctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
TopologyPlugin=topology/tree
PrologSlurmctld={home}/prolog
EpilogSlurmctld={home}/epilog
"""


@contextmanager
def daemon(home, name, *command):
    log = home / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=home)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # slurmctld may wait long for answers of its slurmds
            process.kill()
            process.wait()


class Cluster:
    """Slurm with a controller, and a slurmd for each of three servers, all on this machine."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        host, ports = socket.gethostname(), [free_port() for _ in range(1 + len(NODES))]
        text = CONFIGURATION.format(host=host, home=home, ports=ports)
        for name, port in zip(NODES, ports[1:], strict=True):
            text += f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1\n"
        text += "PartitionName=all Nodes=ALL Default=YES State=UP\n"
        (home / "slurm.conf").write_text(text)
        write = [sys.executable, "-m", "apps.cli", "slurm", "topology", "--format", "conf"]
        write += ["--file", str(home / "topology.conf"), "--url", url]
        subprocess.run(write, check=True, timeout=PATIENCE_S)
        for name in ("prolog", "epilog"):
            script = home / name
            options = [name, "--state", f"{home}/jobs", "--url", url]
            command = shlex.join([sys.executable, "-m", "apps.cli", "slurm", *options])
            script.write_text(f"#!/bin/sh\nexec {command} >> {home}/{name}.out 2>&1\n")
            script.chmod(0o755)
        (home / "key").write_bytes(os.urandom(1024))
        (home / "key").chmod(0o600)
        self.environment = {**os.environ, "SLURM_CONF": str(home / "slurm.conf")}

    @contextmanager
    def running(self):
        home, conf = self.home, str(self.home / "slurm.conf")
        files = ("key-file", "socket", "pid-file", "seed-file", "log-file")
        names = ("key", "munge.sock", "munge.pid", "munge.seed", "munge.out")
        options = [f"--{a}={home / b}" for a, b in zip(files, names, strict=True)]
        with ExitStack() as stack:
            munged = ["/usr/sbin/munged", "--foreground", "--force", *options]
            stack.enter_context(daemon(home, "munged", *munged))
            wait_until(lambda: accepts(home / "munge.sock"))
            stack.enter_context(daemon(home, "slurmctld", "/usr/sbin/slurmctld", "-D", "-f", conf))
            for name in NODES:
                slurmd = ["/usr/sbin/slurmd", "-D", "-N", name, "-f", conf]
                stack.enter_context(daemon(home, f"slurmd-{name}", *slurmd))
            wait_until(lambda: self.ask("sinfo", "-h", "-t", "idle", "-o", "%D") == str(len(NODES)))
            yield self

    def ask(self, *command):
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.stdout.strip()

    def run(self, comment, *command):
        """Run a job on all nodes to its end."""
        wish = ["--comment", comment] if comment else []
        return self.ask("srun", "-N", str(len(NODES)), *wish, *command)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, rest, app, fabric):
    """Started while a path of circuits joins r1 and r2."""
    path = relay_path()
    app.state.service = FakeService(fabric)
    app.state.service.network = NetworkState(
        1, Topology(frozenset(path.circuits), (path,)), {path: VlanId(100)}
    )
    with Cluster(tmp_path_factory.mktemp("slurm"), rest.url).running() as running:
        yield running


@pytest.fixture
def idle(cluster, network, service):
    """Nothing of earlier tests' jobs is left."""
    wait_until(lambda: cluster.ask("squeue", "-h") == "")
    return cluster


def test_a_job_has_its_bandwidth_while_it_runs_and_no_longer(idle, service, tmp_path):
    seen, over = tmp_path / "seen", tmp_path / "over"
    job = f"touch {seen}-$SLURM_NODEID; until test -e {over}; do sleep 0.05; done"
    process = subprocess.Popen(
        ["srun", "-N", "3", "--comment", "mine hydra:all-to-all=10", "sh", "-c", job],
        env=idle.environment,
    )
    wait_until(lambda: len(list(tmp_path.glob("seen-*"))) == 3)
    promised = {(one.src, one.dst): one.bandwidth_mbps for one in service.reservations()}
    assert promised == {("h11", "h21"): 10, ("h12", "h21"): 10}
    assert set(states(service)) == {State.ACTIVE}
    over.touch()
    assert process.wait(PATIENCE_S) == 0
    wait_until(lambda: all_over(service))
    assert set(states(service)) == {State.RELEASED}
    wait_until(lambda: not list((idle.home / "jobs").iterdir()))


def test_a_job_that_is_cancelled_gives_it_back(idle, service, tmp_path):
    started = tmp_path / "started"
    script = tmp_path / "job"
    script.write_text(f"#!/bin/sh\ntouch {started}\nsleep 600\n")
    number = idle.ask(
        "sbatch", "--parsable", "-N", "3", "--comment", "hydra:ring=5", "-o", "/dev/null", script
    )
    wait_until(started.exists)
    assert set(states(service)) == {State.ACTIVE}
    idle.ask("scancel", number)
    wait_until(lambda: all_over(service))


def test_a_job_that_asks_for_nothing_gets_nothing(idle, service):
    assert idle.run("", "echo", "ran").splitlines() == ["ran"] * 3
    assert service.reservations() == []


def test_a_job_does_not_run_without_what_it_asks_for(idle, service):
    assert idle.run("hydra:all-to-all=500", "echo", "never") == ""
    assert service.reservations() == []
    assert "ask for at most 100 Mb/s" in (idle.home / "prolog.out").read_text()


@pytest.fixture
def slurm(rest, service, tmp_path):
    """slurm(WHAT, COMMENT=…): ``hydra slurm WHAT`` for one job, a process."""

    def begin(what, comment="hydra:all-to-all=5", job=None, **more):
        variables = {
            "SLURM_JOB_ID": "42",
            "SLURM_JOB_NODELIST": "h[11,21]",
            "SLURM_JOB_CPUS_PER_NODE": "1(x2)",
            "SLURM_JOB_COMMENT": comment,
            "HYDRA_URL": rest.url,
            **(job or {}),
        }
        command = [sys.executable, "-m", "apps.cli", "slurm", what, "--state", tmp_path / "jobs"]
        return subprocess.Popen(command, env={**os.environ, **variables}, **more)

    return begin


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_prolog_that_is_killed_while_it_waits_leaves_it_to_the_epilog(
    slurm, service, network, number
):
    network.idle = True
    prolog = slurm("prolog")
    wait_until(lambda: states(service) == [State.ACTIVATING])
    prolog.send_signal(number)
    assert prolog.wait(PATIENCE_S) == -number
    assert slurm("epilog").wait(PATIENCE_S) == 0
    assert all_over(service)


def test_one_that_is_killed_before_the_answer_comes_does_too(slurm, service, network, tmp_path):
    made = threading.Event()
    reserve_all = service.reserve_all

    def without_an_answer(*arguments, **more):
        outcome = reserve_all(*arguments, **more)
        if not made.is_set():
            made.set()
            prolog.kill()
            prolog.wait(PATIENCE_S)
        return outcome

    service.reserve_all = without_an_answer
    prolog = slurm("prolog")
    wait_until(made.is_set)
    assert slurm("epilog").wait(PATIENCE_S) == 0
    assert len(states(service)) == 1
    assert all_over(service)
    assert list((tmp_path / "jobs").iterdir()) == []


def test_a_prolog_that_runs_again_gives_back_what_the_first_reserved(slurm, service, network):
    for _ in range(2):
        assert slurm("prolog").wait(PATIENCE_S) == 0
    assert states(service) == [State.RELEASED, State.ACTIVE]
    assert slurm("epilog").wait(PATIENCE_S) == 0
    assert all_over(service)


def test_a_job_has_the_shape_of_its_racks(slurm, service, network):
    job = {"SLURM_JOB_NODELIST": "h[11-12,31,21,41]", "SLURM_JOB_CPUS_PER_NODE": "4(x5)"}
    assert slurm("prolog", "hydra:shape:ring=most", job).wait(PATIENCE_S) == 0
    made = [(one.src, one.dst, one.bandwidth_mbps) for one in service.reservations()]
    assert made == [
        *(("r1", "r3", 100.0), ("r2", "r4", 100.0)),
        *(("r3", "r2", 100.0), ("r4", "r1", 100.0)),
    ]
    assert slurm("epilog").wait(PATIENCE_S) == 0
    assert all_over(service)
    assert slurm("prolog", "hydra:shape:rnig=9", job).wait(PATIENCE_S) == 1
    alone = {"SLURM_JOB_NODELIST": "h[11-12]"}
    assert slurm("prolog", "hydra:shape:ring=most", alone).wait(PATIENCE_S) == 0
    assert len(service.reservations()) == 4


def test_what_does_not_come_up_is_given_back(slurm, service, network, tmp_path):
    network.fails = True
    assert slurm("prolog").wait(PATIENCE_S) == 1
    assert all_over(service)
    assert list((tmp_path / "jobs").iterdir()) == []


def test_an_epilog_needs_no_comment_that_makes_sense(slurm, service, network):
    """A user may change the comment while the job runs."""
    assert slurm("prolog").wait(PATIENCE_S) == 0
    assert slurm("epilog", "hydra: sweep 7").wait(PATIENCE_S) == 0
    assert all_over(service)


def test_an_epilog_waits_for_a_controller_that_is_away(slurm, service, network, away):
    assert slurm("prolog").wait(PATIENCE_S) == 0
    with away():
        epilog = slurm("epilog", stderr=subprocess.PIPE, text=True)
        assert "retrying for 60 s" in epilog.stderr.readline()
    _, err = epilog.communicate(timeout=PATIENCE_S)
    assert (epilog.returncode, err) == (0, "")
    assert all_over(service)


def test_a_group_that_the_controller_has_forgotten_is_over(slurm, service, tmp_path):
    note = tmp_path / "jobs" / "42"
    note.parent.mkdir()
    note.write_text('{"key": "k", "entries": [], "duration_s": null, "group": "gone"}')
    assert slurm("epilog").wait(PATIENCE_S) == 0
    assert not note.exists()


def test_a_damaged_note_is_named_and_kept(slurm, service, tmp_path):
    note = tmp_path / "jobs" / "42"
    note.parent.mkdir()
    note.write_text('{"key": "k", "ent')
    run = slurm("epilog", stderr=subprocess.PIPE, text=True)
    _, said = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1
    assert f"{note} is damaged" in said and "hydra reservations" in said
    assert note.exists()


@pytest.mark.parametrize(
    ("comment", "wish"),
    [
        ("hydra:all-to-all=5", Wish("all-to-all", 5.0)),
        ("for bob, hydra:ring=2.5 urgent", Wish("ring", 2.5)),
        ("", None),
        ("(null)", None),
        ("nothydra:ring=5", None),
        ("my-hydra:ring=5", None),
        ("hydra-core sweep", None),
        ("project=x,hydra:ring=5", Wish("ring", 5.0)),
        ("hydra:ring=5,project=x", Wish("ring", 5.0)),
        ("project=x;hydra:all-to-all=5;y", Wish("all-to-all", 5.0)),
        ("Hydra:ring=5", Wish("ring", 5.0)),
        ("HYDRA:Ring=5", Wish("ring", 5.0)),
        ("'hydra:ring=5'", Wish("ring", 5.0)),
        ('{"net": "hydra:ring=5"}', Wish("ring", 5.0)),
        ("x,hydra:shape:torus:2x2=Most", Wish("torus:2x2", None, of_racks=True)),
        ("hydra:shape:ring=40", Wish("ring", 40.0, of_racks=True)),
    ],
)
def test_wishes(comment, wish):
    assert read_wish(comment) == wish


@pytest.mark.parametrize("comment", ["hydra:", "hydra:ring", "hydra:ring=", "hydra:ring=-1",
                                     "hydra:ring=nan", "hydra:some=5", "x,hydra: ring=5",
                                     "hydra=ring:5", "hydra:ring=2,5", "hydra:ring=5Mb/s",
                                     "Hydra :ring=5", "hydra:ring:5", "hydra:ring=most",
                                     "hydra:shape:=5", "hydra:shape:ring=",
                                     "hydra:shape=5"])  # fmt: skip
def test_wishes_that_make_no_sense(comment):
    with pytest.raises(HydraError, match="is not hydra:PATTERN=MBPS with a pattern of all-to-all"):
        read_wish(comment)


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("h11", ["h11"]),
        ("h[11-12,21],login", ["h11", "h12", "h21", "login"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]-h[1,3]", ["r1-h1", "r1-h3", "r2-h1", "r2-h3"]),
        ("", []),
    ],
)
def test_host_lists(listed, names):
    assert list(hostnames(listed)) == names


def test_two_wishes_in_a_comment_are_refused():
    with pytest.raises(HydraError, match="asks for bandwidth 2 times"):
        read_wish("hydra:ring=5,hydra:root=2")


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ("n[a-c]", r"\[a-c\] is neither a number nor a range"),
        ("n[1,a]", r"\[a\] is neither"),
        ("n[]", r"\[\] is neither"),
        ("n[1-2-3]", r"\[1-2-3\] is neither"),
        ("n[5-3]", r"\[5-3\] goes down"),
        ("n[1", "brackets do not pair"),
        ("n1]", "brackets do not pair"),
        ("n[[1]]", "brackets do not pair"),
        ("n[1-999999999]", "more than 65536 hosts"),
        ("n[1-999]-[1-999]", "more than 65536 hosts"),
    ],
)
def test_what_is_no_host_list(listed, why):
    with pytest.raises(HydraError, match=why):
        list(hostnames(listed))


@pytest.mark.parametrize("listed", ["4,x", "4(2)", "2(x99999999)", "four"])
def test_what_is_no_list_of_processors(listed):
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h1"}
    with pytest.raises(HydraError, match="such as 4 or 2"):
        Job.from_environment({**variables, "SLURM_JOB_CPUS_PER_NODE": listed})


def test_slurmctld_takes_the_topology(cluster):
    """Slurm has three of the fabric's servers; other servers are no error."""
    shown = cluster.ask("scontrol", "show", "topology").splitlines()
    words = [[*line.split()[:2], line.split()[3]] for line in shown]
    assert words[:2] == [
        ["SwitchName=r1", "Level=0", "Nodes=h11,h12"],
        ["SwitchName=r2", "Level=0", "Nodes=h21,h22"],
    ]
    near, root = shown[-2:]
    assert near.startswith("SwitchName=circuits1 Level=1 ")
    assert near.endswith(" Nodes=h[11-12,21] Switches=r1,r2")
    assert root.startswith("SwitchName=electrical Level=2 ")
    assert root.endswith(" Nodes=h[11-12,21] Switches=circuits1,r3,r4")


def test_slurms_own_reading_of_host_lists(cluster):
    listed = "h[11-12,21],n[098-101],r[1-2]-s[5,7]"
    assert list(hostnames(listed)) == cluster.ask("scontrol", "show", "hostnames", listed).split()


def test_processors_of_each_host():
    job = Job.from_environment(
        {
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": "h[1-4]",
            "SLURM_JOB_CPUS_PER_NODE": "4,2(x3)",
            "SLURM_JOB_COMMENT": "(null)",
        }
    )
    assert [(host.name, host.slots) for host in job.hosts] == [
        ("h1", 4),
        ("h2", 2),
        ("h3", 2),
        ("h4", 2),
    ]


@pytest.mark.parametrize(
    "variables",
    [{}, {"SLURM_JOB_ID": "../7"}, {"SLURM_JOB_ID": "7"},
     {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h1", "SLURM_JOB_CPUS_PER_NODE": "1,1"}],
)  # fmt: skip
def test_variables_that_are_not_slurms(variables):
    with pytest.raises(HydraError):
        Job.from_environment(variables)


def test_variables_that_are_missing_are_named():
    with pytest.raises(HydraError, match="SLURM_JOB_NODELIST and SLURM_JOB_CPUS_PER_NODE not set"):
        Job.from_environment({"SLURM_JOB_ID": "7"})
    given = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h[1-2]"}
    with pytest.raises(HydraError, match="job 7: SLURM_JOB_CPUS_PER_NODE not set: Slurm sets"):
        Job.from_environment(given)
    with pytest.raises(HydraError, match=r"names 2 nodes, and SLURM_JOB_CPUS_PER_NODE the .* of 3"):
        Job.from_environment({**given, "SLURM_JOB_CPUS_PER_NODE": "1(x3)"})


@pytest.mark.parametrize("number", ["../7", "12_3", "seven", "\u0667"])
@pytest.mark.parametrize("command", ["prolog", "epilog"])
def test_a_malformed_job_id_is_named(run, monkeypatch, tmp_path, command, number):
    monkeypatch.setenv("SLURM_JOB_ID", number)
    result = run("slurm", command, "--state", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: SLURM_JOB_ID is {number!r}, not a job's number: ")
    assert "set the job's number" in result.stderr
    assert len(result.stderr.splitlines()) == 1
