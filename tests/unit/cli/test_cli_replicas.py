"""hydra replicas and hydra handover, against the real REST API."""

from __future__ import annotations

import json

import pytest

from apps.cli.replicas import _print
from apps.controller.standby_service import StoredView
from apps.process.term import Alone, Replicas, Standby, StoreMember
from apps.rest.app import create_app
from hydra.errors import LifecycleError
from hydra.journal import Kind
from tests.unit.rest.fake_service import FakeService
from tests.unit.rest.test_replicas import STORE, WORDS, A, B, Term
from tests.unit.rest.test_standby import Copies, serving


@pytest.fixture
def term(app):
    app.state.term = term = Term()
    term.leads = True
    yield term
    app.state.term = Alone()


def test_it_lists_who_leads_who_stands_by_and_the_store(call, term):
    term.found = Replicas(A, (B,), (*STORE, StoreMember("http://10.0.0.2:2379", False)))
    result = call("replicas")
    assert result.exit_code == 0
    for words in ("machine-a", "stands by", "http://10.0.0.2:8080", "3.4.23", "no answer"):
        assert words in result.stdout
    assert json.loads(call("replicas", "--json").stdout)["leader"]["name"] == "machine-a"


def test_an_earlier_release_does_not_say_how_many_switches_it_has(capsys):
    leader = {"name": "machine-a", "url": "http://a", "release": "0.0", "since_unix_s": 1.0}
    _print({"leader": leader, "standing_by": [], "store": [], "problem": ""})
    assert "machine-a" in capsys.readouterr().out


def test_where_nobody_leads_it_says_why(call, term):
    term.leads, term.found = False, Replicas(None, (A, B), STORE, "etcd did not answer")
    result = call("replicas")
    assert (result.exit_code, "etcd did not answer" in result.stderr) == (1, True)


def test_a_controller_without_a_store_is_alone(call):
    result = call("replicas")
    assert (result.exit_code, "the journal is a file" in result.stdout) == (0, True)
    assert "is alone" in call("handover").stderr
    assert "is alone" in call("handover", "--wait", "60").stderr, "nobody is waited for"


def test_a_handover_names_who_stands_by(call, term):
    result = call("handover")
    assert result.exit_code == 0
    assert "http://10.0.0.2:8080" in result.stdout
    assert term.handed_over
    term.found = Replicas(A, (), STORE)
    refused = call("handover")
    assert (refused.exit_code, "no controller stands by to lead" in refused.stderr) == (1, True)


def test_a_handover_waits_until_switches_have_found_who_stands_by(call, term, monkeypatch):
    refusals = [LifecycleError("nobody stands by"), LifecycleError("b has 7 of the 8 switches")]
    own = term.hand_over

    def hand_over():
        if refusals:
            raise refusals.pop(0)
        return own()

    monkeypatch.setattr("apps.cli.replicas._POLL_S", 0.01)
    monkeypatch.setattr(term, "hand_over", hand_over)
    assert call("handover", "--wait", "30").exit_code == 0
    assert refusals == []
    assert term.handed_over


def test_a_handover_waits_no_longer_than_it_is_told_to(call, term):
    term.found = Replicas(A, (), STORE)
    refused = call("handover", "--wait", "0.1")
    assert (refused.exit_code, "no controller stands by to lead" in refused.stderr) == (1, True)


def waits(_seconds):
    raise AssertionError("nobody is to be waited for")


def test_without_a_store_status_says_so_and_reads_are_dated(run, fabric, monkeypatch):
    term, copies = Term(), Copies()
    term.known = Standby(WORDS, None, (1000.0, "etcd did not answer"))
    copies.put(Kind.RESERVATION)
    copies.look().as_of_unix_s -= 30
    copies.answers = False
    app = create_app(FakeService(fabric), term=term, view=StoredView(fabric, copies))
    with serving(app) as standby:
        url = str(standby.base_url)
        result = run("status", "--url", url)
        assert result.exit_code == 1
        for words in ("not ready: this controller stands by", "store-unavailable, since"):
            assert words in result.stdout
        with serving(create_app(FakeService(fabric), term=Term())) as started:
            monkeypatch.setattr("hydra_hybrid_network_client.synchronous.connection.sleep", waits)
            both = run("status", "--url", f"{started.base_url},{url}")
            monkeypatch.undo()
        assert (both.exit_code, both.stdout) == (1, result.stdout)
        old = run("topology", "--url", url)
        assert (old.exit_code, "is a standby without a store: this answer is 3" in old.stderr) == (
            0,
            True,
        )
        refused = run("release", "abc", "--url", url)
        assert (refused.exit_code, WORDS in refused.stderr) == (3, True)
