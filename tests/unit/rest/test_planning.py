import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from apps.offline.study import plain_fabric
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.model import NetworkState, Topology, VlanId
from hydra.service import PlanRequest
from hydra.vlan_pool import VlanPool
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S

from .fake_service import FakeService, relay_path, ring_state

NO_LIGHT = {
    "step": "carrier",
    "subject": "r3:o3.1",
    "kind": "no-carrier",
    "reason": "no light at r3",
}
SILENT = {"step": "divert", "subject": "h12", "kind": "unknown", "reason": "no answer"}
CIRCUITS = [
    {
        "plane": "p1",
        "a": {"rack": "r1", "port": "hyt-r1-p1"},
        "b": {"rack": "r3", "port": "hyt-r3-p1"},
        "rate_mbps": 100.0,
        "one_way": False,
    },
    {
        "plane": "p2",
        "a": {"rack": "r2", "port": "hyt-r2-p2"},
        "b": {"rack": "r3", "port": "hyt-r3-p2"},
        "rate_mbps": 100.0,
        "one_way": False,
    },
]


def test_topology_by_name(client, service):
    empty = client.get("/v1/topology").json()
    assert (empty["epoch"], empty["circuits"], empty["paths"]) == (0, [], [])
    path = relay_path()
    service.network = NetworkState(
        7,
        Topology(frozenset(path.circuits), (path,)),
        {path: VlanId(101)},
        VlanPool(frozenset({VlanId(103), VlanId(102)})),
    )
    topology = client.get("/v1/topology").json()
    assert topology["fabric"] == "demo"
    assert topology["epoch"] == 7
    assert topology["racks"] == ["r1", "r2", "r3", "r4"]
    assert topology["planes"][0] == {"name": "p1", "switching_ms": 25.0, "rate_mbps": 100.0}
    assert topology["electrical_rate_mbps"] == 10.0
    assert topology["ports"] == 8, "two of each rack"
    rates = [(one.pop("a_to_b_mbps"), one.pop("b_to_a_mbps")) for one in topology["circuits"]]
    assert topology["circuits"] == CIRCUITS
    assert rates == [(12.5, None), (None, None)], "unknown is null, not zero"
    assert topology["resting_vlans"] == [102, 103]
    (shown,) = topology["paths"]
    assert (shown["src"], shown["dst"], shown["vlan"]) == ("r1", "r2", 101)
    assert [(hop["from_rack"], hop["plane"], hop["to_rack"]) for hop in shown["hops"]] == [
        ("r1", "p1", "r3"),
        ("r3", "p2", "r2"),
    ]


def test_one_way_circuits_and_paths_lead_one_way(client, service):
    service.network = ring_state()
    topology = client.get("/v1/topology").json()
    first = topology["circuits"][0]
    assert (first["a"]["rack"], first["b"]["rack"], first["one_way"]) == ("r1", "r2", True)
    assert (first["a_to_b_mbps"], first["b_to_a_mbps"]) == (12.5, None)
    ways = [(one["src"], one["dst"], one["one_way"]) for one in topology["paths"]]
    assert ways == [("r1", "r2", True), ("r2", "r3", True), ("r3", "r1", True)]


def test_demand_lists_the_pairs_that_have_some(client):
    assert client.get("/v1/demand").json() == {
        "source": "measured",
        "basis": "estimate",
        "window_s": 3.0,
        "age_s": 0.5,
        "stale": ["h42"],
        "troubles": {"no answer": 3},
        "prediction": "last",
        "prediction_error": None,
        "entries": [
            {
                "src": "r1",
                "dst": "r2",
                "rate_mbps": 12.5,
                "estimated_mbps": 25.0,
                "expected_mbps": 20.0,
                "backlog_mbps": 1.25,
                "constrained": True,
                "electrical_share": 0.25,
                "planned_mbps": 25.0,
                "error_mbps": None,
            },
            {
                "src": "r3",
                "dst": "r4",
                "rate_mbps": 3.0,
                "estimated_mbps": 6.0,
                "expected_mbps": 6.0,
                "backlog_mbps": 0.3,
                "constrained": False,
                "electrical_share": 0.0,
                "planned_mbps": 6.0,
                "error_mbps": None,
            },
        ],
    }


def test_a_dry_run(client):
    answer = client.post("/v1/plan", json={})
    assert answer.status_code == 200
    plan = answer.json()
    assert plan["paths"][0]["vlan"] == 100
    del plan["paths"]
    assert plan == {
        "current_epoch": 0,
        "connect": CIRCUITS,
        "disconnect": [],
        "affected_pairs": [{"src": "r1", "dst": "r2"}],
        "diverted_pairs": [{"src": "r1", "dst": "r2"}],
        "courses": 1,
        "retagged_ports": 4,
        "rules": 8,
        "served_mbps": 80.0,
        "demand_mbps": 80.0,
        "on_circuits": {"served_share": 0.75, "served_share_bound": 0.875},
        "verdict": {
            "pays": True,
            "reason": "gains 70 Mb/s",
            "gain_mbps": 70.0,
            "gain_mbit": 700.0,
            "cost_mbit": 5.0,
        },
        "planning_ms": 1.5,
        "at_risk": [],
        "stages": [
            {
                "pairs": [{"src": "r1", "dst": "r2"}],
                "diverted_mbps": 90.0,
                "beyond": [{"rack": "r1", "mbps": 10.0}],
                "detoured": [{"src": "r1", "dst": "r2"}],
                "last": True,
            }
        ],
    }


@pytest.mark.parametrize("route", ["/v1/plan", "/v1/reconfigurations"])
def test_names_become_numbers(client, service, route):
    body = {
        "demand": [
            {"src": "r1", "dst": "r2", "mbps": 80},
            {"src": "r2", "dst": "r1", "mbps": 0.5},
            {"src": "r4", "dst": "r3", "mbps": 0},
        ],
        "planes": ["p2"],
        "use_planes": ["p1", "p2"],
        "racks": ["r1", "r2", "r1"],
        "algorithm": "hydra-bfs",
        "only_if_it_pays": True,
    }
    assert client.post(route, json=body).status_code in {200, 202}
    (request,) = service.plan_requests
    expected = np.zeros((4, 4))
    expected[0, 1], expected[1, 0] = 80, 0.5
    np.testing.assert_array_equal(request.demand, expected)
    assert request.planes == {1}
    assert request.use_planes == {0, 1}
    assert request.racks == {0, 1}
    assert request.algorithm == "hydra-bfs"
    assert request.only_if_it_pays


def test_a_guess_may_tell_what_is_expected_of_it(client, service):
    guess = {"src": "r1", "dst": "r2", "mbps": 80, "expected_mbps": 20}
    known = {"src": "r2", "dst": "r1", "mbps": 30}
    assert client.post("/v1/plan", json={"demand": [guess, known]}).status_code == 200
    assert client.post("/v1/plan", json={"demand": [known]}).status_code == 200
    with_guess, without = service.plan_requests
    assert [with_guess.demand[0, 1], with_guess.demand[1, 0]] == [80, 30]
    assert [with_guess.weights[0, 1], with_guess.weights[1, 0]] == [20, 30]
    assert with_guess.weights.sum() == 50
    assert without.weights is None
    wrong = client.post("/v1/plan", json={"demand": [{**guess, "expected_mbps": -1}]})
    assert wrong.status_code == 422


@pytest.mark.parametrize(
    "body", [{}, {"demand": None, "planes": None, "racks": None, "algorithm": None}]
)
def test_absent_and_null_mean_the_same(client, service, body):
    client.post("/v1/plan", json=body)
    assert service.plan_requests == [PlanRequest()]


def test_no_demand_is_not_measured_demand(client, service):
    client.post("/v1/plan", json={"demand": []})
    np.testing.assert_array_equal(service.plan_requests[0].demand, np.zeros((4, 4)))


def test_planning_does_not_stop_the_server(client, service):
    service.blocked.clear()
    with ThreadPoolExecutor(1) as pool:
        planning = pool.submit(client.post, "/v1/plan", json={})
        while service.planned_in is None:
            time.sleep(0.01)
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/v1/topology").status_code == 200
        assert not planning.done()
        service.blocked.set()
        assert planning.result().status_code == 200
    assert service.planned_in != "rest"


def test_a_reconfiguration_is_queued_and_can_be_followed(client, service):
    answer = client.post("/v1/reconfigurations", json={})
    assert answer.status_code == 202
    assert answer.json()["state"] == "queued"
    assert answer.json()["trigger"] == "operator"
    service.finish("c0")
    followed = client.get(answer.headers["location"]).json()
    assert followed == {
        "id": "c0",
        "state": "partial",
        "trigger": "operator",
        "epoch": 1,
        "created_unix_s": 1_700_000_000.0,
        "started_unix_s": 1_700_000_001.5,
        "timeline": [
            {"step": "divert", "device": None, "started_ms": 0.0, "finished_ms": 4.5, "note": ""},
            {
                "step": "divert",
                "device": "h11",
                "started_ms": 0.1,
                "finished_ms": 4.0,
                "note": "2 rules",
            },
        ],
        "rules_pushed": 8,
        "ports_retagged": 4,
        "connected": CIRCUITS[:1],
        "disconnected": [],
        "failures": [{"circuit": CIRCUITS[1], **NO_LIGHT}],
        "troubles": [SILENT, NO_LIGHT],
        "unconfirmed": ["h12"],
        "reason": "",
        "stages_done": 0,
        "stages_expected": 1,
        "paused": False,
    }
    client.post("/v1/reconfigurations", json={})
    listed = client.get("/v1/reconfigurations").json()["reconfigurations"]
    assert [one["id"] for one in listed] == ["c1", "c0"]


def test_prefer_wait_sees_the_end_of_a_reconfiguration(client, service, waits):
    with waits("reconfiguration", lambda: service.finish("c0")):
        answer = client.post("/v1/reconfigurations", json={}, headers={"Prefer": "wait=60"})
    assert (answer.status_code, answer.json()["state"]) == (200, "partial")
    assert answer.headers["location"] == "/v1/reconfigurations/c0"
    assert answer.headers["preference-applied"] == "wait=60"


def test_prefer_wait_0_is_still_accepted(client):
    answer = client.post("/v1/reconfigurations", json={}, headers={"Prefer": "wait=0"})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")


def test_devices_and_decisions(client):
    assert client.get("/v1/devices").json()["devices"][1] == {
        "name": "h42",
        "kind": "vswitch",
        "driver": "openflow",
        "connected": False,
        "detail": "never connected",
        "alarms": [],
        "answers": True,
    }
    decided = client.get("/v1/decisions").json()
    assert decided["decisions"] == ["2023-11-14T22:13:20Z keep: gains 1.0 Mb/s, less than 5 Mb/s"]
    (record,) = decided["records"]
    assert (record["action"], record["served_now_mbps"], record["demand_mbps"]) == (
        "keep",
        40.0,
        42.0,
    )
    assert record["demand"] == [
        {
            "src": "r1",
            "dst": "r2",
            "rate_mbps": 30.0,
            "estimated_mbps": 42.0,
            "expected_mbps": 36.0,
        }
    ]
    assert record["proposal"]["verdict"]["gain_mbit"] == 10.0
    (circuit,) = record["proposal"]["connect"]
    assert (circuit["a"]["rack"], circuit["b"]["rack"]) == ("r1", "r2")


def test_an_explanation_has_the_facts_and_the_words(client):
    found = client.get("/v1/explanations/circuits/r2/r1").json()
    assert found["lines"][0] == "no circuit joins r2 and r1 directly"
    assert [(one["src"], one["rate_mbps"]) for one in found["demand"]] == [
        ("r2", 0.0),
        ("r1", 12.5),
    ]
    assert found["decisions"] == client.get("/v1/decisions").json()["records"]


@pytest.mark.parametrize(("pair", "status"), [("r1/r9", 404), ("x/r1", 404), ("r1/r1", 409)])
def test_an_explanation_of_what_is_not_there(client, pair, status):
    answer = client.get(f"/v1/explanations/circuits/{pair}")
    assert answer.status_code == status, answer.json()


def test_ready_only_when_nothing_is_missing(client, service):
    assert client.get("/readyz").json() == {"ready": True, "role": "alone"}
    service.unready = ["vswitch h42 is not connected", "optical switch p2: no answer"]
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "/problems/not-ready"
    assert answer.json()["missing"] == service.unready
    assert answer.json()["detail"] == "; ".join(service.unready)
    assert client.get("/healthz").status_code == 200


def test_it_is_ready_while_devices_are_away_and_complete_when_they_are_back(client, service):
    service.away = ["vswitch h42 is not connected"]
    assert client.get("/readyz").json() == {"ready": True, "role": "alone"}
    answer = client.get("/readyz?complete=true")
    assert (answer.status_code, answer.json()["missing"]) == (503, service.away)
    service.away.clear()
    assert client.get("/readyz?complete=true").status_code == 200


def test_what_is_wrong_is_listed_apart_from_being_ready(client, service):
    service.trouble = {"stale": [f"h{number}" for number in range(50)]}
    document = client.get("/v1/conditions").json()
    assert not document["healthy"]
    quarantined, trial, stale = document["conditions"]
    assert (quarantined["kind"], quarantined["subjects"]) == ("port-quarantined", ["r2:hyt-r2-p2"])
    assert trial["command"] == "hydra quarantine clear r1 hyt-r1-p1"
    assert (len(stale["subjects"]), stale["subjects_total"]) == (20, 50)
    assert client.get("/readyz").status_code == 200
    service.trouble.clear()
    service.quarantined.clear()
    assert client.get("/v1/conditions").json() == {"healthy": True, "conditions": []}


def test_the_history_is_paged_by_time(client):
    first = client.get("/v1/history?limit=2").json()
    assert [one["kind"] for one in first["happenings"]] == ["reservation", "quarantine"]
    assert first["happenings"][0]["pairs"] == [{"src": "r1", "dst": "r2"}]
    before = first["next_before_unix_s"]
    last = client.get(f"/v1/history?limit=2&before_unix_s={before}").json()
    assert [one["kind"] for one in last["happenings"]] == ["controller"]
    assert last["next_before_unix_s"] is None
    some = client.get("/v1/history?kind=quarantine&kind=policy").json()["happenings"]
    assert [one["text"].partition(":")[0] for one in some] == ["carrier lost at r1"]
    assert client.get("/v1/history?limit=0").status_code == 422


def test_an_explanation_tells_of_what_is_gone(client):
    lines = client.get("/v1/explanations/circuits/r2/r1").json()["lines"]
    assert lines[-3:-1] == [
        "2023-11-14T22:15:20Z reservation v7 (r1 to r2, 40 Mb/s) is failed: no other path",
        "2023-11-14T22:14:20Z carrier lost at r1:hyt-r1-p1: r1:hyt-r1-p1 left out of plans",
    ]
    there = client.get("/v1/explanations/circuits/r3/r1").json()["lines"]
    assert not any("carrier lost" in line for line in there)


def test_a_dense_demand_of_320_racks_is_read_in_either_form():
    fabric = plain_fabric(320, 4, 10_000.0)
    demand = np.round(np.random.default_rng(1).uniform(0, 10_000, (320, 320)), 6)
    np.fill_diagonal(demand, 0)
    names = [rack.name for rack in fabric.racks]
    entries = [
        {"src": names[a], "dst": names[b], "mbps": demand[a, b]}
        for a, b in np.argwhere(demand).tolist()
    ]
    matrix = {"racks": names, "mbps": demand.tolist()}
    service = FakeService(fabric)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    try:
        with plain_http.client(base_url=server.url, timeout=PATIENCE_S) as client:
            sizes = []
            for body in ({"demand": entries}, {"demand_matrix": matrix}):
                answer = client.post("/v1/plan", json=body)
                assert answer.status_code == 200, answer.text
                sizes.append(len(answer.request.content))
    finally:
        server.stop()
    for request in service.plan_requests:
        np.testing.assert_array_equal(request.demand, demand)
    assert sizes[0] > 1024 * 1024
    assert sizes[1] < sizes[0] / 3


def test_a_matrix_may_name_some_racks_or_none(client, service):
    body = {"demand_matrix": {"racks": ["r3", "r1"], "mbps": [[0, 5], [7.5, 0]]}}
    assert client.post("/v1/plan", json=body).status_code == 200
    whole = [[0, 0, 7.5, 0], [0] * 4, [5, 0, 0, 0], [0] * 4]
    assert client.post("/v1/plan", json={"demand_matrix": {"mbps": whole}}).status_code == 200
    for request in service.plan_requests:
        np.testing.assert_array_equal(request.demand, whole)


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"mbps": [[0]]}, "/demand_matrix/mbps", "1 rows for 4 racks"),
        (
            {"racks": ["r1", "r2"], "mbps": [[0, 1], [1]]},
            "/demand_matrix/mbps/1",
            "1 numbers for 2",
        ),
        ({"racks": ["r1"], "mbps": [[5]]}, "/demand_matrix/mbps/0/0", "r1 to itself"),
        ({"racks": ["r1", "r1"], "mbps": [[0, 1], [1, 0]]}, "/demand_matrix/racks/1", "twice"),
        (
            {"racks": ["r1", "r9"], "mbps": [[0, 1], [1, 0]]},
            "/demand_matrix/racks/1",
            "no rack 'r9'",
        ),
        ({"racks": ["r1", "r2"], "mbps": [[0, -1], [1, 0]]}, "/demand_matrix/mbps/0/1", "greater"),
        ({"racks": [], "mbps": []}, "/demand_matrix/racks", "at least 1"),
        ({"racks": ["r1"]}, "/demand_matrix/mbps", "is missing"),
    ],
)
def test_matrices_that_are_none(client, service, body, pointer, words):
    answer = client.post("/v1/plan", json={"demand_matrix": body})
    assert answer.status_code in {404, 422}
    errors = {error["pointer"]: error["detail"] for error in answer.json()["errors"]}
    assert words in errors[pointer]
    assert service.plan_requests == []


def test_a_demand_comes_in_one_form_only(client):
    both = {"demand": [], "demand_matrix": {"racks": ["r1"], "mbps": [[0]]}}
    answer = client.post("/v1/plan", json=both)
    assert answer.status_code == 422
    assert "send either" in answer.json()["errors"][0]["detail"]


def test_a_change_can_be_stopped_while_there_is_something_ahead_of_it(client, service):
    path = client.post("/v1/reconfigurations", json={}).headers["location"]
    answer = client.delete(path)
    assert (answer.status_code, answer.json()["reason"]) == (200, "stopped by operator")
    service.finish("c0")
    answer = client.delete(path)
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/lifecycle-conflict"
    assert client.delete("/v1/reconfigurations/c9").status_code == 404


def test_a_change_can_be_paused_while_there_is_something_ahead_of_it(client, service):
    path = client.post("/v1/reconfigurations", json={}).headers["location"]
    for paused in (True, False):
        answer = client.patch(path, json={"paused": paused})
        assert (answer.status_code, answer.json()["paused"]) == (200, paused)
    assert client.patch(path, json={}).status_code == 422
    service.finish("c0")
    answer = client.patch(path, json={"paused": True})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/lifecycle-conflict")
    assert client.patch("/v1/reconfigurations/c9", json={"paused": True}).status_code == 404
