import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from apps.rest import reply
from apps.rest import server as rest_server
from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.errors import HydraError
from mininet_scenarios import plain_http
from mininet_scenarios.emulators.ports import free_port
from tests.ipv6 import needs_ipv6
from tests.waiting import HANGS_S, PATIENCE_S, wait_until


def get(server, path="/healthz"):
    return plain_http.get(server.url + path, timeout=PATIENCE_S)


def test_start_and_stop_can_be_repeated(service):
    threads = threading.active_count()
    server = RestServer(create_app(service), "127.0.0.1", 0)
    for _ in range(2):
        server.start()
        url = server.url
        assert get(server).json() == {"status": "ok"}
        server.stop()
        with pytest.raises(httpx.ConnectError):
            plain_http.get(url)
    assert server.port == 0
    wait_until(lambda: threading.active_count() <= threads)


def test_the_same_port_is_free_again_at_once(service):
    port = free_port()
    first = RestServer(create_app(service), "127.0.0.1", port)
    first.start()
    assert get(first).status_code == 200
    first.stop()
    second = RestServer(create_app(service), "127.0.0.1", port)
    second.start()
    assert (second.port, get(second).status_code) == (port, 200)
    second.stop()


def test_starting_and_stopping_twice_is_harmless(server):
    port = server.port
    server.start()
    assert server.port == port
    assert get(server).status_code == 200
    server.stop()
    server.stop()


def test_a_port_in_use_is_named(service):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = RestServer(create_app(service), "127.0.0.1", port)
        with pytest.raises(HydraError, match=rf"127\.0\.0\.1:{port}: .*in use.*controller\.rest"):
            server.start()
    server.start()
    assert get(server).status_code == 200, "and it can be tried again"
    server.stop()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_named(service, host):
    with pytest.raises(HydraError, match=host):
        RestServer(create_app(service), host, 0).start()


@needs_ipv6
def test_ipv6(service):
    server = RestServer(create_app(service), "::1", 0)
    server.start()
    assert server.url.startswith("http://[::1]:")
    assert get(server).status_code == 200
    server.stop()


def test_signals_are_left_alone(service):
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(one) for one in signals]
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    assert [signal.getsignal(one) for one in signals] == before
    server.stop()


def test_stopping_does_not_wait_for_those_who_wait(service, monkeypatch):
    monkeypatch.setattr(reply, "LONGEST_WAIT_S", 120)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.start()
    body = {"src": "r1", "dst": "r2", "bandwidth_mbps": 1}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            httpx.post,
            server.url + "/v1/reservations",
            json=body,
            headers={"Prefer": "wait=120"},
            timeout=PATIENCE_S,
            trust_env=False,
        )
        wait_until(service.reservations)
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < HANGS_S
        answer = waiting.result()
    assert (answer.status_code, answer.json()["state"]) == (201, "activating")


def test_draining_waits_for_what_is_under_way_and_lets_others_in(service, monkeypatch):
    """An ending leader answers accepted requests, and asks new callers to repeat their requests."""
    begun, go_on = threading.Event(), threading.Event()
    read = service.reservations

    def slow():
        begun.set()
        go_on.wait(PATIENCE_S)
        return read()

    monkeypatch.setattr(service, "reservations", slow)
    monkeypatch.setattr(rest_server, "_GRACE_S", PATIENCE_S)
    server = RestServer(create_app(service), "127.0.0.1", 0)
    server.drain()  # not started: nothing is under way
    server.start()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(get, server, "/v1/reservations")
        begun.wait(PATIENCE_S)
        drained = pool.submit(server.drain)
        assert get(server).status_code == 200
        assert not drained.done()
        go_on.set()
        drained.result(PATIENCE_S)
        assert asked.result(PATIENCE_S).status_code == 200
    assert get(server).status_code == 200
    server.stop()


def test_a_client_that_hangs_up_harms_nobody(server, service):
    request = b"POST /v1/plan HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request)
    assert get(server, "/v1/topology").status_code == 200
    assert service.plan_requests == []


def test_head_has_the_headers_of_get_and_no_body(client):
    head, whole = client.head("/v1/topology"), client.get("/v1/topology")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == whole.headers["content-length"]
