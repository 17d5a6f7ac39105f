"""The application's parts, put together."""

from dataclasses import replace

import pytest

import apps.main
from apps.controller.standby_service import StoredView
from apps.main import HydraApplication
from hydra.config import Loaded
from hydra.policy import Policy
from hydra.settings import ControllerSettings, EtcdSettings
from tests.unit.core.fabrics import small_fabric

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
