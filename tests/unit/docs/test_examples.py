"""examples/ are few, short, and all run: here or on the tutorial's network."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, write_tokens
from hydra.access import Role, make_token
from hydra.lifecycle import ReservationState
from hydra.reservations.reservation import ReservationRequest
from tests import silent_streams
from tests.unit.rest.fake_service import FakeService
from tests.waiting import PATIENCE_S, once, wait_until

from .blocks import ROOT

pytestmark = pytest.mark.takes(8)

EXAMPLES = ROOT / "examples"
SPARK_EVENTS = Path(__file__).with_name("spark-4.3.0-events.jsonl")
"""Spark's events of executors, jobs and stages, without descriptions of data, of a cluster on two
servers of configs/demo.yaml.
"""
MOST_LINES = 20
ON_A_NETWORK = (ROOT / "tests" / "integration" / "test_tutorial.py").read_text()


def test_each_is_listed_and_run_by_a_test():
    listed = (ROOT / "docs" / "examples.md").read_text()
    own = Path(__file__).read_text()
    programs = [path for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh", ".ipynb"}]
    assert len(programs) >= 5
    for path in programs:
        assert f"| `examples/{path.name}` |" in listed, path
        assert path.name in ON_A_NETWORK or path.name in own, f"no test runs {path.name}"


def test_each_has_twenty_lines_of_code_at_most():
    for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.sh")):
        assert len(code_of(path)) <= MOST_LINES, path


def code_of(path: Path) -> list[str]:
    """Number of lines without docstrings, comments, and blank lines."""
    text = re.sub(r'^ *""".*?"""$', "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if not re.match(r"\s*(#|$)", line)]


@pytest.mark.parametrize(
    ("end", "released"),
    [
        (ReservationState.ACTIVE, ReservationState.RELEASING),
        (ReservationState.FAILED, ReservationState.RELEASED),
    ],
)
def test_a_reservation_from_18_00_is_told_of_and_released(end, released):
    service = FakeService(load_configuration(ROOT / "configs" / "demo.yaml").fabric)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    command = [sys.executable, EXAMPLES / "reserve_later.py"]
    environment = {**os.environ, "HYDRA_URL": server.url}
    job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline().split()[-2:] == ["from", "18:00"]
        (mine,) = service.reservations()
        begins = datetime.fromtimestamp(mine.starts_unix_s)
        assert (begins.hour, begins.minute, mine.duration_s) == (18, 0, 3600)
        service.settle(mine.id, ReservationState.ACTIVATING)
        service.settle(mine.id, end, "because")
        told, _ = job.communicate(timeout=PATIENCE_S)
        assert (job.returncode, told) == (0, f"{mine.id} {end} because\n")
        (mine,) = service.reservations()
        assert mine.state is released
    finally:
        job.kill()
        job.wait()
        job.stdout.close()
        server.stop()


def test_a_ring_is_held_while_a_job_runs_in_its_order(tmp_path):
    """mpirun and the network behind REST are stand-ins."""
    service = FakeService(load_configuration(ROOT / "configs" / "demo.yaml").fabric)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    (tmp_path / "hosts").write_text("h11 slots=1\nh31 slots=1\nh21 slots=1\nh41 slots=1\n")
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\nhydra shape list --json\necho "$1" "$3"\ncat "$2"\n')
    mpirun.chmod(0o755)

    def network():
        for one in service.reservations():
            service.settle(one.id, ReservationState.ACTIVE)

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [EXAMPLES / "ring_job.sh", tmp_path / "hosts", mpirun, "./fft"]
    try:
        with once(lambda: len(service.reservations()) == 4, network):
            done = subprocess.run(
                command,
                env={**os.environ, "HYDRA_URL": server.url, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        shapes, _, told = done.stdout.rpartition("--hostfile ./fft\n")
        (shape,) = json.loads(shapes)["shapes"]
        assert (shape["pattern"], shape["state"]) == ("ring", "ready")
        assert sorted(line.split()[0] for line in told.splitlines()) == ["h11", "h21", "h31", "h41"]
        assert {one.state for one in service.reservations()} == {ReservationState.RELEASING}
    finally:
        server.stop()


def test_the_example_with_curl_sends_the_token(tmp_path):
    token, stored = make_token("tina", Role.TENANT, "secret", 1.0)
    write_tokens(tmp_path / "tokens.json", [stored])
    (tmp_path / "token").write_text(f"{token}\n")
    service = FakeService(load_configuration(ROOT / "configs" / "demo.yaml").fabric)
    app = create_app(service, TokenFile(tmp_path / "tokens.json"))
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    environment = {**os.environ, "HYDRA_URL": server.url}

    def network():
        service.settle("v0", ReservationState.ACTIVE)
        wait_until(lambda: service.reservation("v0").state is ReservationState.RELEASING)
        service.settle("v0", ReservationState.RELEASED)

    settings = {"HYDRA_TOKEN_FILE": str(tmp_path / "token")}
    command = [EXAMPLES / "reserve.sh", "echo", "moved"]
    try:
        with once(service.reservations, network):
            done = subprocess.run(
                command, env=environment | settings, capture_output=True, text=True, check=False
            )
        assert (done.returncode, done.stdout) == (0, "reservation v0 is there\nmoved\n"), done
        assert service.reservations()[0].owner == "tina"
        refused = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert refused.returncode != 0
        assert b"unauthenticated" in refused.stderr
    finally:
        server.stop()


def test_a_compressed_log_of_spark_is_refused_with_the_remedy():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "spark_job.py", "3"],
        input=b"\x28\xb5\x2f\xfd\x00\x58\x01\xff",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert b"spark.eventLog.rolling.enabled=false" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("torn", [False, True])
def test_a_shuffle_of_spark_is_reserved_for_as_long_as_it_takes(torn):
    """The events of a real run, with the file's timing: Spark writes its buffer at the end of a
    stage, not at the beginning of the next stage, which fetches. The network behind REST is a
    stand-in.
    """
    service = FakeService(load_configuration(ROOT / "configs" / "demo.yaml").fabric)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    lines = SPARK_EVENTS.read_text().splitlines(keepends=True)
    mapped, fetched = (n for n, line in enumerate(lines) if "StageCompleted" in line)
    begun, left = lines[: mapped + 1], lines[mapped + 1 :]
    assert "StageSubmitted" in left[0]
    if torn:
        left = [*lines[mapped + 1 : fetched], lines[fetched][:70]]
    job = subprocess.Popen(
        [sys.executable, EXAMPLES / "spark_job.py", "3"],
        env={**os.environ, "HYDRA_URL": server.url},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        job.stdin.write("".join(begun))
        job.stdin.flush()
        wait_until(lambda: service.reservations() != [])
        (shuffle,) = service.reservations()
        assert (shuffle.bandwidth_mbps, shuffle.state) == (3, ReservationState.ACTIVATING)
        _, complaints = job.communicate("".join(left), timeout=60)
        assert (job.returncode, complaints) == (0, "")
        assert [one.state for one in service.reservations()] == [ReservationState.RELEASING]
    finally:
        job.kill()
        job.wait()
        server.stop()


def test_events_are_followed_through_silence():
    with silent_streams.network() as network:
        follower = subprocess.Popen(
            [sys.executable, EXAMPLES / "follow_events.py"],
            env={**os.environ, "HYDRA_URL": network.url},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(network.followed)
            network.act()
            network.be_silent()
            network.act()
            assert [follower.stdout.readline().split()[0] for _ in "12"] == ["run-1", "run-2"]
        finally:
            follower.kill()
            follower.communicate()


def test_events_of_a_reservation_are_followed_to_its_end():
    with silent_streams.network() as network:
        mine = network.service.reserve(ReservationRequest("r1", "r3", 1.0))
        follower = subprocess.Popen(
            [sys.executable, EXAMPLES / "follow_events.py", mine.id],
            env={**os.environ, "HYDRA_URL": network.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert follower.stdout.readline().split()[1:] == [mine.id, "activating"]
            network.act()  # for another reservation
            network.service.settle(mine.id, ReservationState.ACTIVE)
            network.service.settle(mine.id, ReservationState.FAILED, "no light")
            told, complaints = follower.communicate(timeout=PATIENCE_S)
        finally:
            follower.kill()
            follower.wait()
    assert (follower.returncode, complaints) == (0, "")
    events = [line.split() for line in told.splitlines()]
    assert {event[1] for event in events} == {mine.id}
    assert [event[2:] for event in events][-2:] == [["active"], ["failed", "no", "light"]]


def test_who_follows_an_unknown_reservation_is_told_so():
    with silent_streams.network() as network:
        done = subprocess.run(
            [sys.executable, EXAMPLES / "follow_events.py", "nobody"],
            env={**os.environ, "HYDRA_URL": network.url},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    assert "nobody" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_algorithms_are_compared_without_a_controller():
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [EXAMPLES / "plan_offline.sh"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hydra-bfs+" in done.stdout
    assert "edmonds" in done.stdout


def test_the_cells_of_study_ipynb_run_in_order(tmp_path):
    """In a single namespace, as in a notebook's kernel; without Jupyter."""
    notebook = json.loads((EXAMPLES / "study.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = ["".join(one["source"]) for one in notebook["cells"] if one["cell_type"] == "code"]
    assert len(cells) >= 5
    assert not any(one.get("outputs") for one in notebook["cells"]), "clear outputs before a commit"
    program = tmp_path / "study.py"
    program.write_text("\n".join(cells))
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    ran = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("problems: none") == 2
    shares = dict(re.findall(r"^(\S+) +serves (\d\.\d+)", ran.stdout, re.MULTILINE))
    assert list(shares) == ["greedy", "hydra-bfs", "edmonds", "anytime"]
    assert 0 < float(shares["greedy"]) < float(shares["anytime"]) < 1
    for plot in re.findall(r"!\[[^]]*\]\((\S+)\)", json.dumps(notebook)):
        assert (tmp_path / plot).read_bytes().startswith(b"\x89PNG"), plot


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        ([], ["r1 - r2 - r4", "r1 - r3 - r4", "r1 - r4"]),  # HydRA's Fig. 4
        (["1-2", "2-3", "3-1"], ["r1 - r3", "r2 - r3"]),
    ],
)
def test_paths_that_would_make_a_loop_get_vlans_of_their_own(paths, told):
    command = [sys.executable, EXAMPLES / "loop_free_vlans.py", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    vlans = dict(reversed(line.split(": ")) for line in done.stdout.splitlines())
    assert len({vlans[path] for path in told}) == len(told) == len(set(vlans.values()))
