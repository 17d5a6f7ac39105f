"""The application's parts, put together."""

import gc
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import apps.main
from apps.controller.standby_service import StoredView
from apps.main import HydraApplication
from apps.process.configuration import load_configuration
from hydra.config import Loaded
from hydra.policy import Policy
from hydra.settings import ControllerSettings, EtcdSettings
from mininet_scenarios.emulators.ports import free_port
from tests.unit.core.fabrics import small_fabric
from tests.waiting import wait_until

CONFIGS = Path(__file__).parents[3] / "configs"
STORE = EtcdSettings(("http://127.0.0.1:1",), "/hydra/", None, None, None, None, None, None, 2)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyError("shards")])
def test_who_leads_and_can_not_begin_ends(monkeypatch, error):
    """Otherwise the process would keep its lease, report that it is about to lead, and never
    lead.
    """

    def fail(_view):
        raise error

    given_up = []
    monkeypatch.setattr(StoredView, "stop", fail)
    monkeypatch.setattr(apps.main, "give_up", given_up.append)
    application = HydraApplication.__new__(HydraApplication)
    application._exchange = None
    settings = replace(ControllerSettings(), etcd=STORE)
    fabric = small_fabric(racks=2, planes=1, servers=1)
    journal = application._open_journal(Loaded(fabric, Policy(), settings, "fabric.yaml"))
    application._term._on_lead()
    journal.close()
    application._term.close()
    (why,) = given_up
    assert f"can't begin to lead, the log says where: {error!r}" in str(why)


@pytest.fixture
def settings_of_python():
    """The settings of the interpreter that an application changes, as before."""
    interval_s, handler = sys.getswitchinterval(), signal.getsignal(signal.SIGHUP)
    yield
    sys.setswitchinterval(interval_s)
    signal.signal(signal.SIGHUP, handler)
    gc.unfreeze()


@pytest.mark.usefixtures("settings_of_python")
def test_who_stands_by_can_plan_already():
    """Otherwise a new leader would not be ready for as long as a planning process starts."""
    loaded = load_configuration(CONFIGS / "demo.yaml")
    settings = replace(
        loaded.controller, etcd=STORE, rest_port=free_port(), openflow_port=free_port()
    )
    application = HydraApplication(replace(loaded, controller=settings), lambda job: job())
    planner = application._controller.rooms.planner
    application.start()
    try:
        wait_until(lambda: not planner.not_ready())
        assert not application._began
        pid = planner.pid
    finally:
        application.stop()
    assert not Path(f"/proc/{pid}").exists()
