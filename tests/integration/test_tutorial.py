"""docs/tutorial.md, typed as written, on a real testbed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest
import yaml

from tests.unit.docs.blocks import commands

from .live import CONFIGS, wait_until

pytestmark = [pytest.mark.takes(45), pytest.mark.ovs, pytest.mark.usefixtures("machine")]

TUTORIAL = CONFIGS.parent / "docs" / "tutorial.md"
EXAMPLES = CONFIGS.parent / "examples"
ALREADY_DONE = ("make bootstrap", ". .venv/bin/activate")
"""The environment of this test is the one that these commands make."""
ELECTRICAL_MBPS = 2.0
"""Rate of an electrical link in examples/ring_of_five.py."""
IN_A_TERMINAL_OF_ITS_OWN = ("python -m mininet_scenarios.testbed up", "hydra run")
"""Beginnings of commands that run until Ctrl-C."""


class Reader:
    """Types the page's commands, in a folder with the shipped configurations and a separate
    journal.
    """

    def __init__(self, folder: Path) -> None:
        shutil.copytree(CONFIGS, folder / "configs")
        config = folder / "configs" / "demo.yaml"
        document = yaml.safe_load(config.read_text())
        document["controller"]["journal"] = str(folder / "journal.db")
        config.write_text(yaml.safe_dump(document, sort_keys=False))
        activated = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._options = {
            "shell": True,
            "cwd": folder,
            "stdin": subprocess.DEVNULL,
            "env": {**os.environ, "PATH": activated, "PYTHONUNBUFFERED": "1"},
        }

    def read(self, command: str) -> str:
        answer = subprocess.run(
            command, **self._options, capture_output=True, text=True, timeout=60, check=False
        )
        assert answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
        return answer.stdout

    def open(self, command: str, sink: IO[str]) -> subprocess.Popen[bytes]:
        """In another terminal."""
        return subprocess.Popen(
            f"exec {command}", **self._options, stdout=sink, stderr=sink, start_new_session=True
        )

    def start(self, command: str, terminals: ExitStack, log: Path) -> None:
        """In another terminal, closed by Ctrl-C at the end."""
        sink = terminals.enter_context(log.open("w"))
        process = self.open(command, sink)

        def ctrl_c() -> None:
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 0, log.read_text()

        terminals.callback(ctrl_c)
        wait_until(lambda: log.read_text() != "" or process.poll() is not None)


@pytest.mark.quiet("compares the rates of TCP over both networks")
def test_every_command_does_what_the_tutorial_says(tmp_path):
    reader = Reader(tmp_path)
    said: dict[str, str] = {}
    rates = []
    with ExitStack() as terminals:
        for number, command in enumerate(commands(TUTORIAL)):
            if command.startswith(IN_A_TERMINAL_OF_ITS_OWN):
                reader.start(command, terminals, tmp_path / f"{number}.log")
            elif command not in ALREADY_DONE:
                identifier = re.search(r"\b[0-9a-f]{12}\b", said.get("hydra reservations", ""))
                wanted = re.sub(r"\bID\b", identifier[0] if identifier else "ID", command)
                said[command] = reader.read(wanted)
                rates += re.findall(r"([\d.]+) Mbits/sec +receiver", said[command])
        electrical, optical = map(float, rates)
        assert electrical < 12
        assert optical > 4 * electrical, "not by circuit"
        assert "p1" in said["hydra topology"]
        assert "r1 =p1= r2" in said["hydra topology"]
        assert "done" in said["hydra reconfigurations"]
        # A fast reader sees no demand before the second reading of counters.
        demand = "curl -s localhost:8080/v1/demand"
        assert json.loads(said[demand])["source"] in {"none", "measured"}
        wait_until(lambda: json.loads(reader.read(demand))["source"] == "measured")
        assert "released" in reader.read("hydra reservations --all")
        follow_the_examples(reader, terminals, tmp_path)


def follow_the_examples(reader: Reader, terminals: ExitStack, folder: Path) -> None:
    """Programs of examples/ that need a controller, on the tutorial's network."""
    events = folder / "events"
    sink = terminals.enter_context(events.open("w"))
    follower = reader.open(f"python {EXAMPLES / 'follow_events.py'}", sink)
    terminals.callback(follower.wait, 20)
    terminals.callback(follower.terminate)
    assert "by plane p" in reader.read(f"python {EXAMPLES / 'reserve.py'}")
    job = f"{EXAMPLES / 'mpi_job.sh'} hydra reservations"
    assert len(re.findall(r"h\d1 .*active", reader.read(job))) >= 2
    command = f"{EXAMPLES / 'reserve.sh'} hydra reservations"
    reserved = reader.read(command)
    identifier = re.search(r"reservation (\S+) is there", reserved)
    assert identifier is not None
    assert re.search(rf"{identifier[1]}.*active", reserved)
    assert re.search(rf"{identifier[1]}.*released", reader.read("hydra reservations --all"))
    wait_until(lambda: identifier[1] in events.read_text())


def test_a_fabric_of_init_is_emulated_at_once(tmp_path):
    reader = Reader(tmp_path)
    reader.read("hydra init mine.yaml --emulated --defaults --racks 3 --planes 1")
    commands = ("python -m mininet_scenarios.testbed up mine.yaml", "hydra run --config mine.yaml")
    with ExitStack() as terminals:
        for number, command in enumerate(commands):
            reader.start(command, terminals, tmp_path / f"{number}.log")
        assert "healthy" in reader.read("hydra status --wait 30")
        assert "r1 =p1= r3" in reader.read("hydra reserve r1 r3 --mbps 40 --wait")
        assert "0% packet loss" in reader.read(
            "mnexec -a $(pgrep -f 'mininet:r1-h1$') ping -c1 10.0.3.2"
        )


@pytest.mark.quiet("compares rates", takes_s=15)
def test_five_racks_in_a_ring_are_faster_over_circuits(tmp_path):
    """With a relative directory, as people type; programs in hosts start in another directory."""
    run = [sys.executable, str(EXAMPLES / "ring_of_five.py"), "ring"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    found = {
        line.split()[0]: [float(word) for word in line.split()[1:-1]]
        for line in done.stdout.splitlines()
        if line.endswith("Mb/s")
    }
    assert {name: len(rates) for name, rates in found.items()} == {"electrical": 5, "ring": 5}
    assert max(found["electrical"]) < ELECTRICAL_MBPS < min(found["ring"])
    assert list((tmp_path / "ring").glob("*-controller.log"))
