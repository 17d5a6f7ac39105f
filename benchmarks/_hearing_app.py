"""A controller process that counts messages, for ``benchmarks.openflow_packages``."""

from __future__ import annotations

import threading
from typing import Any

from apps.openflow.framework import OpenFlowApp
from apps.openflow.interface import Application, Post
from benchmarks.openflow_packages import OPENFLOW_PORT, SWITCHES

_REPORT_S = 0.2


class _Counter:
    """Counts switches and barriers."""

    def __init__(self) -> None:
        self.count = 0

    def knows(self, _datapath: int) -> bool:
        return True

    def switch_connected(self, *_switch: Any) -> None:
        self.count += 1

    def barrier_replied(self, *_reply: Any) -> None:
        self.count += 1

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_more: None


class _Hearing:
    openflow_address = ("127.0.0.1", OPENFLOW_PORT)
    openflow_tls = None
    openflow_connections = 2 * SWITCHES

    def __init__(self) -> None:
        self.events = _Counter()
        self._over = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._report).start()

    def _report(self) -> None:
        while not self._over.wait(_REPORT_S):
            print(self.events.count, flush=True)

    def stop(self) -> None:
        self._over.set()


class HearingApp(OpenFlowApp):
    def compose(self, _post: Post) -> Application:
        return _Hearing()
