"""The connection shared by clients: number of requests to each controller, and errors by
failure.
"""

import socket
import ssl

import pytest

from apps.process.configuration import load_configuration
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra_hybrid_network_client import ClientError, NoAnswer, NoTls, NotReached
from hydra_hybrid_network_client.errors import BadToken, BadUrl, Refusal, TooLate
from hydra_hybrid_network_client.requests import Place, resource
from hydra_hybrid_network_client.synchronous.connection import Connection
from tests.unit.cli import DEMO
from tests.unit.rest.fake_service import FakeService


@pytest.fixture(scope="module")
def url():
    server = RestServer(create_app(FakeService(load_configuration(DEMO).fabric)), "127.0.0.1", 0)
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def at(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def callers(listener):
    """Number of connections so far."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize("attempts", [1, 3])
def test_silence_is_told_from_nobody_there_and_each_attempt_calls_once(listener, attempts):
    with (
        # timed: no answer comes
        Connection(at(listener), timeout_s=0.1, attempts=attempts) as connection,
        pytest.raises(TooLate),
    ):
        connection.request("GET", "/v1/topology")
    assert callers(listener) == attempts


def test_the_end_of_a_tokens_line_is_no_part_of_it(url):
    with Connection(url, "hydra_secret\n") as connection:
        answer = connection.request("GET", "/v1/topology")
    assert answer.request.headers["Authorization"] == "Bearer hydra_secret"


@pytest.mark.parametrize("token", ["hydra_secret\nmore", "hydra_secret\N{BULLET}"])
def test_a_token_that_can_not_be_sent_is_not_shown(url, token):
    with pytest.raises(BadToken) as caught:
        Connection(url, token)
    assert "secret" not in str(caught.value)


def test_nobody_there():
    with socket.socket() as deaf:  # bound, so that no other test listens at the port
        deaf.bind(("127.0.0.1", 0))
        with Connection(at(deaf)) as connection, pytest.raises(NoAnswer, match="refused") as caught:
            connection.request("GET", "/v1/topology")
    assert isinstance(caught.value, NotReached)
    assert "refused): start a controller with `hydra run" in str(caught.value)


def test_errors_of_addresses_have_remedies(url):
    words = r"does not speak TLS .*: .* the URL begins with http://"
    with (
        Connection(url.replace("http:", "https:")) as connection,
        pytest.raises(NoTls, match=words),
    ):
        connection.request("GET", "/v1/topology")
    with Connection(f"{url}/v1") as connection, pytest.raises(Refusal, match="leave /v1 out of"):
        connection.request("GET", "/v1/topology")


def test_a_refusal_is_in_words_and_lists_all_errors(url):
    body = {"src": "r1", "dst": "", "bandwidth_mbps": -1}
    with Connection(url) as connection, pytest.raises(Refusal) as caught:
        connection.json("POST", "/v1/reservations", body=body)
    first, *more = str(caught.value).splitlines()
    assert first.startswith(f"{caught.value.document['title']}: ")
    assert [line.split(":")[0].strip() for line in more] == ["/dst", "/bandwidth_mbps"]
    assert caught.value.response.status_code == 422


def test_a_stream_is_refused_like_anything_else(url):
    with Connection(url) as connection, pytest.raises(Refusal) as caught:
        next(connection.follow(["no-such-kind"], Place()))
    assert caught.value.response.status_code == 422


def test_an_answer_without_a_document_is_no_controllers(url):
    with Connection(url) as connection:
        assert connection.request("GET", "/metrics").text.startswith("# HELP")
        with pytest.raises(ClientError, match="200 OK, but not like a HydRA controller"):
            connection.json("GET", "/metrics")


def test_a_query_in_the_path_stays_and_one_beside_it_is_quoted(url):
    with Connection(url) as connection:
        for path, query in (
            ("/v1/reservations?limit=0", ()),
            ("/v1/reservations", [("limit", "0")]),
        ):
            with pytest.raises(Refusal, match="limit"):
                connection.json("GET", path, query=query)
    assert resource("/v1/reservations", "a/b?c") == "/v1/reservations/a%2Fb%3Fc"


def test_where_no_url_asks_for_tls_no_authorities_are_read(url, monkeypatch):
    monkeypatch.setattr(ssl, "create_default_context", None)
    with Connection(f"{url}, {url}") as connection:
        assert connection.request("GET", "/v1/topology").status_code == 200
    with pytest.raises(TypeError):
        Connection(f"{url},https://127.0.0.1:1")


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "", "http://[::1"])
def test_urls_that_are_none(url):
    with pytest.raises(BadUrl, match=r"http|Invalid"), Connection(url) as connection:
        connection.request("GET", "/v1/topology")
