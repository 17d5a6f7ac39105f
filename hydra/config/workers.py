"""Checks of the settings of workers, the processes that hold the connections of switches."""

from __future__ import annotations

from typing import Final

from hydra.config.checks import is_loopback
from hydra.config.devices import parse_endpoint
from hydra.config.problems import ProblemLog
from hydra.config.schema import WorkersSection
from hydra.config.source import Path
from hydra.settings import WorkerSettings

_WORKERS: Final[Path] = ("controller", "workers")


def read_workers(section: WorkersSection | None, log: ProblemLog) -> WorkerSettings | None:
    """Settings of the link to workers; None without a workers section."""
    if section is None:
        return None
    endpoint = parse_endpoint(section.listen)
    if endpoint is None:
        log.add(
            (*_WORKERS, "listen"), "{!r} is not host:port, such as 127.0.0.1:6654", section.listen
        )
    if (section.key is None) != (section.known is None):
        log.add(_WORKERS, "key and known go together: give both, or neither")
    elif endpoint is not None and section.key is None and not is_loopback(endpoint[0]):
        log.add(
            (*_WORKERS, "listen"),
            "other machines reach {}, and without keys any of these machines could pass for all "
            "switches: set key and known (`hydra worker-keys` makes them), or listen on "
            "127.0.0.1",
            endpoint[0],
        )
    host, port = endpoint or ("", 0)
    return WorkerSettings(host, port, section.shards, section.lease_s, section.key, section.known)
