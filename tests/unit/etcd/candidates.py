"""Candidates for leadership without a network."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from apps.etcd.leadership import Leadership, boot_s
from hydra.settings import EtcdSettings

LONG_S = 60.0


class Candidate:
    def __init__(self, settings: EtcdSettings, name: str, release: str = "1.0") -> None:
        self.gone = threading.Event()
        self.leads: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.lost: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.switches = 0
        self.leadership = Leadership(
            settings,
            name,
            f"http://{name}:8080",
            release,
            lambda: self.leads.put(boot_s()),
            self._lose,
            self.ended.put,
            lambda: self.switches,
        )

    def _lose(self, why: str) -> None:
        """As the process does: no further work follows."""
        self.lost.put((boot_s(), why))
        self.gone.wait()

    @property
    def words(self) -> str:
        """The answers to requests."""
        standby = self.leadership.standby()
        assert standby is not None
        return standby.words


@contextmanager
def candidate(settings: EtcdSettings, name: str, release: str = "1.0") -> Iterator[Candidate]:
    one = Candidate(settings, name, release)
    one.leadership.start()
    try:
        yield one
    finally:
        one.gone.set()
        one.leadership.close()
