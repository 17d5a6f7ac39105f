from tests.unit.cli.conftest import app, fabric, rest, run, service
from tests.unit.cli.jobs import network

__all__ = ["app", "fabric", "network", "rest", "run", "service"]
