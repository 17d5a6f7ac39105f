"""Faults of emulated switches, injected from a shell."""

from __future__ import annotations

import importlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.testbed import __main__ as command
from mininet_scenarios.testbed import sysctl
from tests.conformance.devices import CANDIDATES
from tests.waiting import PATIENCE_S, accepts, wait_until

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Plane p1 of a running testbed; its addresses by name."""
    monkeypatch.setattr(sysctl, "STATE_DIR", tmp_path)
    log = tmp_path / "ocs-p1.log"
    any_port = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "mininet_scenarios.emulators.polatis", *any_port],
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
        ) as emulator,
    ):
        try:
            wait_until(lambda: "listening" in log.read_text())
            words = log.read_text().split()
            yield dict(zip(words[1::2], words[2::2], strict=False))
        finally:
            emulator.terminate()
        assert emulator.wait(PATIENCE_S) == 0


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error message of a refused command."""
    assert command.main(["fault", *arguments]) == 1
    return capsys.readouterr().err.strip()


def raw(address: str, line: bytes) -> dict[str, object]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(line + b"\n")
        answer: dict[str, object] = json.loads(connection.makefile().readline())
    return answer


def test_a_plane_dies_and_comes_back_by_its_name_or_address(addresses: dict[str, str]) -> None:
    port = int(addresses["scpi"].rpartition(":")[2])
    assert accepts(port)
    assert command.main(["fault", "p1", "dead"]) == 0
    assert not accepts(port)
    assert command.main(["fault", addresses["admin"], "clear"]) == 0
    assert accepts(port)


def test_orders_that_cannot_be_carried_out_are_refused_by_name(
    addresses: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "p7", "dead") == "no plane 'p7' here: the testbed has p1"
    assert "this emulator has no fault 'reserved'; there are refuse, " in told(
        capsys, "p1", "reserved"
    )
    assert "port 99 is outside 1..32" in told(capsys, "p1", "close", "99")
    for arguments in (["close"], ["dead", "3"]):
        assert (
            told(capsys, "p1", *arguments) == "close and open need a PORT, other faults take none"
        )
    unreadable = raw(addresses["admin"], b"dead")
    assert unreadable == {
        "ok": False,
        "error": 'a request is a JSON object such as {"op": "clear"}, not \'dead\'',
    }


def test_without_a_testbed_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysctl, "STATE_DIR", tmp_path / "none")
    assert told(capsys, "p1", "dead") == "no plane 'p1' here: no testbed is up"


def played(driver: str) -> frozenset[FaultKind]:
    module = importlib.import_module(EMULATORS[driver].path)
    faults: frozenset[FaultKind] = module.FAULTS if driver == "sonic-ocs" else module.PRODUCT.faults
    return faults


@pytest.mark.parametrize("driver", sorted(EMULATORS))
def test_an_emulator_plays_the_faults_that_its_driver_is_tried_with(driver: str) -> None:
    tried = [candidate.faults for candidate in CANDIDATES if candidate.driver == driver]
    assert any(tried)
    assert frozenset().union(*tried) <= played(driver)


def test_faults_of_one_language_are_played_by_its_emulators_alone() -> None:
    of_tl1 = {FaultKind.AUTONOMOUS, FaultKind.BLOCKS, FaultKind.WRONG_CTAG, FaultKind.ECHO}
    assert {driver for driver in EMULATORS if of_tl1 & played(driver)} == {
        "calient-tl1",
        "glimmerglass-tl1",
        "polatis-tl1",
    }
    assert {driver for driver in EMULATORS if FaultKind.RESERVED in played(driver)} == {
        "calient-tl1",
        "sonic-ocs",
    }
    assert not {FaultKind.MERGE, FaultKind.PAGER, FaultKind.WRAP} & played("polatis-scpi")
