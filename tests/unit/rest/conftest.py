import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx
import pytest
from fastapi import FastAPI

from apps.rest.app import create_app
from apps.rest.server import RestServer
from hydra.lifecycle import ReservationState
from hydra.model import NetworkState, Topology, VlanId
from hydra.reservations.reservation import ReservationRequest
from mininet_scenarios import plain_http
from tests.waiting import PATIENCE_S, once

from .fake_service import FakeService, relay_path


@pytest.fixture
def service(fabric) -> FakeService:
    return FakeService(fabric)


@pytest.fixture
def network(service) -> FakeService:
    """The same with two circuits, a path over both, and a reservation on the path."""
    path = relay_path()
    service.network = NetworkState(
        3, Topology(frozenset(path.circuits), (path,)), {path: VlanId(7)}
    )
    service.reconfigure(None, "periodic")
    service.finish("c0")
    service.reserve(ReservationRequest("r1", "r2", 40.0))
    service.settle("v0", ReservationState.ACTIVE, path=path)
    return service


@pytest.fixture
def server(service) -> Iterator[RestServer]:
    """A separate server for a test."""
    running = RestServer(create_app(service), "127.0.0.1", 0)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def shared_app(fabric) -> Iterator[tuple[FastAPI, RestServer]]:
    """A server shared by all tests that only send requests: starting a server takes a moment."""
    app = create_app(FakeService(fabric))
    running = RestServer(app, "127.0.0.1", 0)
    running.start()
    yield app, running
    running.stop()


@pytest.fixture
def client(shared_app, service) -> Iterator[httpx.Client]:
    """Sends requests to ``service``, over HTTP."""
    app, running = shared_app
    app.state.service = service
    with plain_http.client(base_url=running.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> tuple[str, str]:
    """Certificate and key for 127.0.0.1."""
    directory = tmp_path_factory.mktemp("tls")
    key, pem = directory / "key.pem", directory / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "1", "-subj", "/CN=hydra", "-keyout", key, "-out", pem),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return str(pem), str(key)


@pytest.fixture
def waits(service, monkeypatch) -> Callable[[str, Callable[[], None]], AbstractContextManager]:
    """``waits(READ, act)``: call ``act`` once REST calls the service's ``READ`` repeatedly.

    REST does so while a request waits for an outcome.
    """
    reads: list[object] = []

    def soon(name: str, act: Callable[[], None]) -> AbstractContextManager:
        read = getattr(service, name)
        monkeypatch.setattr(service, name, lambda *asked: reads.append(asked) or read(*asked))
        return once(lambda: len(reads) > 3, act)

    return soon
