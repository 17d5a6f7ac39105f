"""One id through a reconfiguration, in text and in JSON."""

import json
import logging
import sys
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from apps.controller.announcer import Announcer
from apps.controller.devices import Devices
from apps.controller.record.ledger import Ledger
from apps.controller.runner import Runner
from apps.openflow.fleet import Fleet
from apps.process import logs
from apps.process.configuration import load_configuration
from apps.process.metrics import Metrics
from hydra.errors import HydraError
from hydra.forwarding.match_action import Port
from hydra.model import CrossConnect, PlaneId
from hydra.policy import CurrentPolicy, Policy
from hydra.reconfiguration.commands import Batch, MoveMirrors, Pause
from hydra.reconfiguration.plan import MirrorMove
from tests.journals import SqliteJournal
from tests.unit.controller.runners import performed
from tests.unit.planning.test_planner import ROOT

DEMO = load_configuration(ROOT / "configs" / "demo.yaml").fabric
NOBODY = "127.0.0.9:1"
FABRIC = replace(DEMO, planes=tuple(replace(plane, address=NOBODY) for plane in DEMO.planes))


@pytest.fixture(autouse=True)
def loggers_as_they_were():
    names = ("", "hydra", "drivers", "ryu", "os_ken", "httpx", "asyncio", "uvicorn")
    levels = {name: logging.getLogger(name).level for name in names}
    handlers, stderr = logging.getLogger().handlers[:], sys.stderr
    for name in ("ledger", "mover", "runner"):
        # Mininet, once imported, makes loggers with a separate level.
        logging.getLogger(f"hydra.{name}").setLevel(logging.NOTSET)
    yield
    logging.getLogger().handlers[:], sys.stderr = handlers, stderr
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class Written:
    """A log's file."""

    def __init__(self, file):
        self._file = file

    def fileno(self):
        return self._file.fileno()

    def getvalue(self):
        logs.flush(60)
        return Path(self._file.name).read_text()


@pytest.fixture
def written(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        yield Written(file)


def lines(written):
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_text_names_the_reconfiguration(written):
    logs.set_up("text", "info", written.fileno())
    with logs.about("c1"):
        logging.getLogger("hydra.mover").info("begins")
    logging.getLogger("hydra.mover").info("idle")
    first, second = written.getvalue().splitlines()
    assert first.endswith("INFO    hydra.mover [c1]: begins")
    assert second.endswith("INFO    hydra.mover: idle")
    day, time_of_day, _ = second.split(maxsplit=2)
    assert datetime.fromisoformat(f"{day} {time_of_day}").tzinfo is not None, "a log travels"


def test_json_is_an_object_a_line_with_its_fields(written):
    logs.set_up("json", "info", written.fileno())
    with logs.about("c1"):
        logging.getLogger("hydra.mover").warning("two\nlines", extra={"device": "p1"})
    (line,) = lines(written)
    assert line.pop("unix_s") > 1e9
    assert line == {
        "level": "WARNING",
        "logger": "hydra.mover",
        "thread": threading.current_thread().name,
        "message": "two\nlines",
        "device": "p1",
        "reconfiguration": "c1",
    }


def test_a_traceback_stays_in_its_line(written):
    logs.set_up("json", "error", written.fileno())
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("hydra").exception("a job failed")
    (line,) = lines(written)
    assert "ValueError: odd" in line["traceback"]


def test_details_of_libraries_are_not_told(written):
    logs.set_up("json", "debug", written.fileno())
    logging.getLogger("ncclient").debug("bytes")
    logging.getLogger("hydra.runner").debug("step")
    assert [line["message"] for line in lines(written)] == ["step"]


@pytest.mark.parametrize(("log_format", "level"), [("xml", "info"), ("json", "loud")])
def test_unknown_words_are_refused(log_format, level):
    before = logging.getLogger().handlers[:]
    with pytest.raises(HydraError, match="may be one of"):
        logs.set_up(log_format, level)
    assert logging.getLogger().handlers == before


def test_threads_that_work_for_a_reconfiguration_name_it(written):
    """Commands run in the runner's pool; the mirror's command fails, as no device answers."""
    logs.set_up("json", "debug", written.fileno())
    fleet = Fleet(FABRIC, post=lambda function: function())
    devices = Devices(fabric=FABRIC, policy=Policy())
    announcer = Announcer(
        fleet=fleet, substrate=(Port.OPTICAL, Port.ELECTRICAL), current=lambda: (), interval_s=60.0
    )
    runner = Runner(
        fabric=FABRIC,
        policy=CurrentPolicy(Policy()),
        fleet=fleet,
        devices=devices,
        writer=None,
        reservations=None,
        announcer=announcer,
        metrics=Metrics(),
        mastership=None,
        policing=None,
    )
    move = MoveMirrors(PlaneId(0), MirrorMove(frozenset(), frozenset({CrossConnect(1, 18)})))
    try:
        with logs.about("c1"):
            performed(runner, Batch("move", (Pause(0.0), move)))
        performed(runner, Batch("drain", (Pause(0.0), Pause(0.0))))
    finally:
        runner.close()
    told = [line for line in lines(written) if line["logger"] == "hydra.runner"]
    assert {line["command"]: line.get("reconfiguration") for line in told[:2]} == {
        "Pause": "c1",
        "MoveMirrors": "c1",
    }
    (failed,) = [line for line in told if line["level"] == "WARNING"]
    assert failed["device"] == FABRIC.planes[0].name
    assert failed["ms"] >= 0
    assert [line.get("reconfiguration") for line in told[2:]] == [None, None]


def test_the_trigger_is_told_under_the_same_id(written):
    logs.set_up("json", "info", written.fileno())
    ledger = Ledger(fabric=FABRIC, journal=SqliteJournal(":memory:"))
    entry = ledger.log.enter("periodic", "gains 70 Mb/s")
    ledger.log.refuse(entry, "no planner")
    asked, refused = lines(written)
    assert asked["reconfiguration"] == refused["reconfiguration"] == entry.id
    assert (asked["trigger"], asked["message"]) == (
        "periodic",
        "asked for by periodic: gains 70 Mb/s",
    )
    assert refused["level"] == "WARNING"
