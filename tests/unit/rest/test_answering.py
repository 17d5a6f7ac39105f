"""Answers are serialised in the thread of their route, not in the event loop."""

import threading

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, field_serializer

from apps.rest.dependencies import Answer
from apps.rest.mounting import mounted
from apps.rest.routing import Routes
from apps.rest.server import RestServer
from mininet_scenarios import plain_http

routes = Routes()


class Written(BaseModel):
    thread: str = ""

    @field_serializer("thread")
    def tell(self, _value):
        return threading.current_thread().name


@routes.on("GET", "/loop")
async def in_the_loop() -> Written:
    return Written()


@routes.on("GET", "/thread", status_code=203)
def in_a_thread() -> Written:
    return Written()


@routes.on("GET", "/headers")
async def with_headers(answer: Answer) -> Written:
    answer.at("/here")
    return Written()


@routes.on("DELETE", "/nothing", status_code=204)
def nothing() -> None:
    return None


@pytest.fixture(scope="module")
def client():
    app = FastAPI(routes=list(mounted([routes])))
    app.state.closing = threading.Event()
    server = RestServer(app, "127.0.0.1", 0)
    server.start()
    with plain_http.client(base_url=server.url) as client:
        yield client
    server.stop()


def test_an_answer_is_written_where_it_is_made(client):
    loop = client.get("/loop").json()["thread"]
    answer = client.get("/thread")
    assert (answer.status_code, answer.headers["content-type"]) == (203, "application/json")
    assert answer.json()["thread"] != loop


def test_headers_and_answers_without_a_body_stay(client):
    assert client.get("/headers").headers["Location"] == "/here"
    assert client.delete("/nothing").status_code == 204


def test_the_description_of_answers_stays(client):
    paths = client.get("/openapi.json").json()["paths"]
    described = [paths[f"/{one}"]["get"]["responses"] for one in ("loop", "thread")]
    assert described[0]["200"]["content"] == described[1]["203"]["content"]
