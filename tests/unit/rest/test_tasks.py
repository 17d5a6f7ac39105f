"""Tasks of a patch panel over HTTP, on a panel's real file."""

import pytest

from drivers.optical.panel_store import PanelStore
from hydra.model import CrossConnect

CREATED_UNIX_S = 1_700_000_000.0


@pytest.fixture
def panel(service, tmp_path):
    service.panel = PanelStore(str(tmp_path / "panel.db"))
    service.panel.ask([], [CrossConnect(1, 18), CrossConnect(9, 30)], CREATED_UNIX_S)
    return service.panel


def test_a_task_says_what_to_plug_and_what_is_there(client, panel):
    assert client.get("/v1/devices/p1/tasks").json() == {
        "tasks": [
            {
                "id": 1,
                "state": "pending",
                "disconnect": [],
                "connect": [
                    {
                        "ingress": 1,
                        "egress": 18,
                        "ingress_wired_to": "r1 hyt-r1-p1",
                        "egress_wired_to": "r2 hyt-r2-p1",
                    },
                    {
                        "ingress": 9,
                        "egress": 30,
                        "ingress_wired_to": None,
                        "egress_wired_to": None,
                    },
                ],
                "created_unix_s": CREATED_UNIX_S,
                "settled_unix_s": None,
                "note": "",
            }
        ]
    }


def test_done_once_and_again(client, panel):
    for _ in range(2):
        answer = client.post("/v1/devices/p1/tasks/1", json={"state": "done"})
        assert answer.status_code == 200
        assert answer.json()["state"] == "done"
        assert answer.json()["settled_unix_s"] == CREATED_UNIX_S + 60
    assert panel.cross_connects() == {CrossConnect(1, 18), CrossConnect(9, 30)}
    assert client.get("/v1/devices/p1/tasks").json() == {"tasks": []}
    (done,) = client.get("/v1/devices/p1/tasks?state=done").json()["tasks"]
    assert done["id"] == 1


def test_failed_can_not_be_done_afterwards(client, panel):
    body = {"state": "failed", "note": "port 18 is broken"}
    assert client.post("/v1/devices/p1/tasks/1", json=body).json()["note"] == "port 18 is broken"
    answer = client.post("/v1/devices/p1/tasks/1", json={"state": "done"})
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/lifecycle-conflict"
    assert panel.cross_connects() == frozenset()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("p1/tasks/2", {"state": "done"}, 404),
        ("p1/tasks/x", {"state": "done"}, 422),
        ("p1/tasks/1", {"state": "pending"}, 422),
        ("p1/tasks/1", {"state": "done", "why": ""}, 422),
    ],
)
def test_slips(client, panel, path, body, status):
    assert client.post(f"/v1/devices/{path}", json=body).status_code == status
    assert len(panel.tasks()) == 1


def test_devices_without_tasks_and_without_existence(client, panel):
    assert client.get("/v1/devices/p2/tasks").json() == {"tasks": []}
    assert client.get("/v1/devices/p9/tasks").status_code == 404
    assert client.get("/v1/devices/p1/tasks?state=lost").status_code == 422
