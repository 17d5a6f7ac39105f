"""Filling the disk under a controller's journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from .live import Live


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """A disk without a free byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(1024))
            except OSError:
                break
    try:
        yield
    finally:
        filler.unlink()


def refused_for_the_disk(network: Live) -> httpx.Response:
    """Send requests until the journal's file has no room left in its allocated blocks."""
    body = {"src": "r1", "dst": "r3", "bandwidth_mbps": 1}
    for _ in range(200):
        answer = network.api("POST", "/v1/reservations", json=body)
        if answer.status_code != httpx.codes.CREATED:
            return answer
    raise AssertionError("it never noticed")
