from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from fastapi import FastAPI

from apps.cli import hydra
from apps.process.metrics import Metrics
from apps.rest.app import create_app
from apps.rest.server import RestServer
from mininet_scenarios.emulators.ports import free_port
from tests.unit.rest.fake_service import FakeService

from .jobs import away, network, start

__all__ = ["away", "network", "start"]


@pytest.fixture(scope="session")
def app(fabric) -> FastAPI:
    return create_app(FakeService(fabric), registry=Metrics().registry)


@pytest.fixture(scope="session")
def rest(app) -> Iterator[RestServer]:
    running = RestServer(
        app, "127.0.0.1", free_port()
    )  # the server returns at the same port after ``away``
    running.start()
    yield running
    running.stop()


@pytest.fixture
def service(fabric, app) -> FakeService:
    """The controller behind the REST server; a fresh one for each test."""
    fresh = FakeService(fabric)
    app.state.service = fresh
    return fresh


@pytest.fixture
def run() -> Callable[..., Result]:
    """``hydra ARGUMENTS…`` in this process."""
    return lambda *arguments: CliRunner().invoke(hydra, list(arguments), prog_name="hydra")


@pytest.fixture
def call(run, rest, service) -> Callable[..., Result]:
    """``hydra ARGUMENTS… --url …`` against a controller's real REST API."""
    return lambda *arguments: run(*arguments, "--url", rest.url)
