"""A tenant's limits, over HTTP and in the book."""

import json

import pytest

from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, read_tokens, write_tokens
from hydra.access import Role, make_token
from hydra.errors import HydraError, QuotaExceeded
from hydra.lifecycle import ReservationState as State
from hydra.reservations.book import ReservationBook
from hydra.reservations.quotas import Quota, Usage
from hydra.reservations.reservation import ReservationRequest
from mininet_scenarios import plain_http
from tests.unit.core.fabrics import reread
from tests.waiting import PATIENCE_S

from .fake_service import CREATED_UNIX_S

LIMITS = {"tina": Quota(3, 50.0), "tom": Quota(), "olaf": Quota()}
ROLES = {"tina": Role.TENANT, "tom": Role.TENANT, "olaf": Role.OPERATOR}


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens.json"
    write_tokens(
        path, [make_token(n, role, "secret", 1.0, LIMITS[n])[1] for n, role in ROLES.items()]
    )
    return path


@pytest.fixture
def ask(service, tokens):
    server = RestServer(create_app(service, TokenFile(tokens)), "127.0.0.1", 0)
    server.start()
    with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:

        def send(name, method, path, **kwargs):
            headers = {"Authorization": f"Bearer hydra_{name}_secret"}
            return client.request(method, path, headers=headers, **kwargs)

        yield send
    server.stop()


def body(mbps, **more):
    return {"src": "r1", "dst": "r2", "bandwidth_mbps": mbps, **more}


def test_more_than_the_quota_is_refused_and_changes_nothing(ask):
    made = ask("tina", "POST", "/v1/reservations", json=body(40))
    assert made.status_code == 201
    refused = ask("tina", "POST", "/v1/reservations", json=body(20))
    assert refused.status_code == 409
    assert refused.json()["type"] == "/problems/quota-exceeded"
    assert "quota of 50 Mb/s at a time; 10 Mb/s are left" in refused.json()["detail"]
    dry = ask("tina", "POST", "/v1/reservations/preview", json=body(20))
    assert dry.json()["type"] == "/problems/quota-exceeded"
    assert ask("tina", "POST", "/v1/reservations", json=body(10)).status_code == 201
    assert ask("tom", "POST", "/v1/reservations", json=body(50)).status_code == 201
    ask("tina", "DELETE", f"/v1/reservations/{made.json()['id']}")
    away = {**body(40), "src": "r3", "dst": "r4"}
    assert ask("tina", "POST", "/v1/reservations", json=away).status_code == 201


def test_the_number_counts_those_that_are_not_over(ask):
    for _ in range(3):
        last = ask("tina", "POST", "/v1/reservations", json=body(1)).json()
    refused = ask("tina", "POST", "/v1/reservations", json=body(1))
    assert refused.json()["type"] == "/problems/quota-exceeded"
    assert "3 reservations at a time" in refused.json()["detail"]
    ask("tina", "DELETE", f"/v1/reservations/{last['id']}")
    assert ask("tina", "POST", "/v1/reservations", json=body(1)).status_code == 201


def test_groups_are_within_the_quota_too(ask):
    entries = [{"src": "r1", "dst": dst, "bandwidth_mbps": 30} for dst in ("r2", "r3")]
    refused = ask("tina", "POST", "/v1/groups", json={"entries": entries})
    assert refused.json()["type"] == "/problems/quota-exceeded"
    assert ask("tina", "GET", "/v1/reservations").json()["reservations"] == []
    some = ask("tina", "POST", "/v1/groups", json={"entries": entries, "all_or_nothing": False})
    assert len(some.json()["reservations"]) == 1
    assert "quota" in some.json()["refused"][0]["detail"]


def test_who_sees_which(ask):
    ask("tina", "POST", "/v1/reservations", json=body(40))
    mine = ask("tina", "GET", "/v1/quotas").json()["quotas"]
    assert mine == [
        {
            "tenant": "tina",
            "max_reservations": 3,
            "max_mbps": 50.0,
            "max_priority": 0,
            "reservations": 1,
            "peak_mbps": 40.0,
        }
    ]
    every = ask("olaf", "GET", "/v1/quotas").json()["quotas"]
    assert [one["tenant"] for one in every] == ["tina", "tom"]
    assert every[0] == mine[0]
    assert every[1]["max_mbps"] is None


def test_a_new_quota_counts_at_once(ask, tokens):
    known = read_tokens(tokens)
    stored = make_token("tina", Role.TENANT, "secret", 1.0, Quota(0))[1]
    write_tokens(tokens, {**known, "tina": stored}.values())
    refused = ask("tina", "POST", "/v1/reservations", json=body(1))
    assert refused.json()["type"] == "/problems/quota-exceeded"


@pytest.mark.parametrize(
    "limit",
    [{"max_mbps": "many"}, {"max_mbps": -1}, {"max_reservations": 1.5}, {"max_priority": 10}],
)
def test_a_limit_that_is_none_is_no_token_at_all(tokens, limit):
    document = json.loads(tokens.read_text())
    document["tokens"][0] |= limit
    tokens.write_text(json.dumps(document))
    with pytest.raises(HydraError, match="token"):
        read_tokens(tokens)


# --- in the book ----------------------------------------------------------------------------


def mine(mbps, start=None, duration=None, quota=None):
    return ReservationRequest(
        "r1", "r2", mbps, duration, start, owner="tina", quota=quota or LIMITS["tina"]
    )


def test_bandwidths_count_only_while_they_overlap(fabric):
    book = ReservationBook(fabric)
    now = CREATED_UNIX_S
    book.add("a", mine(40.0, now + 100, 50.0), now)
    book.add("b", mine(50.0, now + 200, 50.0), now)
    with pytest.raises(QuotaExceeded):
        book.add("c", mine(20.0, now + 120), now)
    book.add("c", mine(10.0, now + 120, 30.0), now)
    assert book.usage("tina", now) == Usage(3, 50.0)
    assert book.usage("tina", now + 220) == Usage(3, 50.0)


def test_a_restart_forgets_nothing(fabric):
    book = ReservationBook(fabric)
    book.add("a", mine(40.0), 0.0)
    again = reread(book, fabric)
    with pytest.raises(QuotaExceeded):
        again.add("b", mine(20.0), 0.0)
    again.transition("a", State.FAILED)
    assert again.usage("tina", 0.0) == Usage(0, 0.0)
    again.add("b", mine(20.0), 0.0)
