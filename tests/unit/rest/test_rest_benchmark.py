"""The service behind the API in ``python -m benchmarks.rest``."""

import time

import httpx
import pytest

from apps.controller.record.ledger import Ledger
from apps.journal.sqlite import SqliteJournal
from apps.rest.app import create_app
from apps.rest.server import RestServer
from benchmarks import rest, undisturbed
from benchmarks.rest import LedgerService
from tests.unit.core.fabrics import small_fabric
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("benchmark", [rest, undisturbed])
def test_without_wrk_it_says_what_to_install(monkeypatch, benchmark):
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    assert str(ended.value) == "no wrk here: install it (apt-get install wrk)"


def test_it_is_served(tmp_path):
    fabric = small_fabric()
    ledger = Ledger(fabric=fabric, journal=SqliteJournal(tmp_path / "journal.db"))
    ledger.load()
    server = RestServer(create_app(LedgerService(fabric, ledger)), "127.0.0.1", 0)
    server.start()
    body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 10, "start_unix_s": time.time() + 3600}
    try:
        with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
            made = client.post("/v1/reservations", json=body)
            assert made.is_success, made.text
            kept = client.get(f"/v1/reservations/{made.json()['id']}").json()
    finally:
        server.stop()
        ledger.close()
    assert kept == made.json()
