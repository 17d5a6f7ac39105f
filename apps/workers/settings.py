"""A worker's command-line options, handed to its process by the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Final

VARIABLE: Final = "HYDRA_WORKER"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    name: str
    listen: tuple[str, int]
    """Where switches connect to."""
    controllers: tuple[tuple[str, int], ...]
    key: str | None = None
    """The file with the worker's secret key."""
    controller_key: str | None = None
    """The file with the controllers' public key."""


def handed_on(options: WorkerOptions) -> str:
    return json.dumps(asdict(options))


def handed_over() -> WorkerOptions:
    """The options in the environment."""
    document = json.loads(os.environ[VARIABLE])
    host, port = document.pop("listen")
    controllers = tuple((address[0], address[1]) for address in document.pop("controllers"))
    return WorkerOptions(listen=(host, port), controllers=controllers, **document)
