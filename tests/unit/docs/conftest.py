from tests.unit.cli.conftest import app, rest, run, service
from tests.unit.cli.jobs import network

__all__ = ["app", "network", "rest", "run", "service"]
