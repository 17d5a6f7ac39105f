"""The two ways to start the controller, the two signals that end it, and the untouched remains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import yaml

from mininet_scenarios import plain_http
from mininet_scenarios.stage.controller_process import ALL_THERE, members_of
from tests.waiting import PATIENCE_S

from .live import DEMO_CONFIG, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(60)]

REPOSITORY = DEMO_CONFIG.parents[1]
READY = "http://127.0.0.1:8080" + ALL_THERE
COMMANDS = Path(sys.executable).parent
LAUNCHES = ("ryu-manager", "hydra")

WITNESS = """
import json, select, socket
from eventlet import patcher
from apps.openflow.package import App

class Witness(App):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        seen = {
            "socket": socket.socket.__module__,
            "patched": [m for m in ("socket", "select", "thread", "os", "time")
                        if patcher.is_monkey_patched(m)],
            "epoll": hasattr(select, "epoll"),
            "poll": hasattr(select, "poll"),
        }
        print(json.dumps(seen))
"""

UNPREPARED = """
import eventlet.wsgi, socket
eventlet.wsgi.ALREADY_HANDLED = object()
from ryu.lib import hub
hub.patch(thread=False)
print(socket.socket.__module__)
"""


def command_line(launch: str, config: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment, as the README has them."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("HYDRA_CONFIG", None)
    if launch == "hydra":
        return [str(COMMANDS / "hydra"), "run", "--config", str(config)], environment
    return (
        [str(COMMANDS / "ryu-manager"), "apps.main"],
        {**environment, "HYDRA_CONFIG": str(config)},
    )


@contextmanager
def started(
    command: list[str], environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen]:
    """A process in a separate group, started outside of the clone; no process of the group outlives
    the block.
    """
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_ready() -> bool:
    with suppress(httpx.TransportError):
        return plain_http.get(READY, timeout=PATIENCE_S).status_code == 200
    return False


@pytest.fixture
def config(tmp_path: Path) -> Path:
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["controller"]["journal"] = str(tmp_path / "journal.db")
    path = tmp_path / "fabric.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.mark.parametrize(
    ("launch", "number"),
    [
        pytest.param(
            "ryu-manager", signal.SIGTERM, marks=pytest.mark.core("launch by ryu-manager")
        ),
        ("hydra", signal.SIGINT),
    ],
)
def test_it_gets_ready_and_ends_with_0(demo_testbed, config, launch, number):
    log = config.with_name("log")
    with started(*command_line(launch, config), log) as process:
        wait_until(lambda: is_ready() or process.poll() is not None)
        assert is_ready(), log.read_text()
        os.kill(process.pid, number)  # only the process: the process itself ends its workers
        assert process.wait(PATIENCE_S) == 0, log.read_text()
        assert members_of(process.pid) == set()
    text = log.read_text()
    assert "the switches go on forwarding" in text
    assert "Traceback" not in text
    assert not is_ready()


@pytest.mark.parametrize("launch", LAUNCHES)
def test_every_problem_of_a_bad_file_is_told(tmp_path, launch):
    document = yaml.safe_load(DEMO_CONFIG.read_text())
    document["policy"]["max_hpos"] = 3
    document["planes"][0]["driver"] = "polatis-telepathy"
    document["vlans"]["circuits"] = "100-50000"
    config = tmp_path / "bad.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    command, environment = command_line(launch, config)
    done = run_to_its_end(command, environment)
    assert done.returncode == 1
    for words in ("max_hpos", "polatis-telepathy", "vlans.circuits"):
        assert words in done.stderr
    assert "bad.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_ryu_manager_without_a_configuration_says_which_variable(tmp_path):
    command, environment = command_line("ryu-manager", tmp_path)
    del environment["HYDRA_CONFIG"]
    done = run_to_its_end(command, environment)
    assert done.returncode == 1
    assert "HYDRA_CONFIG is not set" in done.stderr
    assert "Traceback" not in done.stderr


def test_sockets_stay_the_systems_own(tmp_path):
    """The modules as seen by an application inside ryu-manager: after ``hub.patch``, if Ryu is
    used.
    """
    witness = tmp_path / "witness.py"
    witness.write_text(WITNESS)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    # An application without threads ends by itself, as an error.
    done = run_to_its_end([str(COMMANDS / "ryu-manager"), str(witness)], environment)
    assert (done.returncode, "has ended by itself" in done.stderr) == (1, True)
    assert json.loads(done.stdout) == {
        "socket": "socket",
        "patched": [],
        "epoll": True,
        "poll": True,
    }


def test_that_ryu_by_itself_would_patch_them():
    """The defect that the test above guards against; if the defect were gone, the guard could go,
    too.
    """
    done = run_to_its_end([sys.executable, "-W", "ignore", "-c", UNPREPARED], dict(os.environ))
    assert done.stdout.strip() == "eventlet.greenio.base", done.stderr


def run_to_its_end(
    command: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
