"""The exchange named in a configuration; needs an extra."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from hydra.errors import HydraError
from hydra.model import Fabric
from hydra.settings import WorkerSettings

if TYPE_CHECKING:
    from apps.workers.exchange import Exchange


def needs_zmq(module: str) -> ModuleType:
    """Import a module in need of ZeroMQ. Raises HydraError without ZeroMQ."""
    try:
        return import_module(module)
    except ImportError as error:
        raise HydraError(
            f"workers need {error.name}, which is not installed: pip install "
            "'hydra-hybrid-network[workers]', or leave controller.workers out"
        ) from error


def needs_workers(
    settings: WorkerSettings | None, fabric: Fabric, incarnation: Callable[[], int | None]
) -> Exchange | None:
    """None where switches connect to the controller itself."""
    if settings is None:
        return None
    exchange: Exchange = needs_zmq("apps.workers.exchange").Exchange(settings, fabric, incarnation)
    return exchange


def check_keys(settings: WorkerSettings) -> None:
    """Raise HydraError unless the link's package and keys can be used."""
    module = needs_zmq("apps.workers.exchange")
    if settings.key is not None and settings.known is not None:
        module.certificate(settings.key)
        module.check_known(settings.known)
