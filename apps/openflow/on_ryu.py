"""Ryu: its preparation, its ``ryu-manager``, and its green threads on the process's loop.

Before the rest of Ryu is imported, two problems are solved here (docs/decisions/0002). Ryu 4.34
needs ``eventlet.wsgi.ALREADY_HANDLED``, which eventlet dropped in 0.30.3. Ryu's launcher would
monkey-patch the process, while device drivers, REST and the journal run in native threads with
native sockets.

Eventlet's hub runs on the loop that serves switches, so that other Ryu applications may run beside
ours.
"""

from __future__ import annotations

import asyncio
import http.server
import os
import sys
import warnings
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, Final

with warnings.catch_warnings():
    # eventlet announces on import that it is in maintenance, and Ryu still uses distutils and cgi
    # (docs/decisions/0002).
    warnings.simplefilter("ignore")
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")  # the hub resolves no names
    import eventlet.wsgi

    # eventlet leaves a green copy of http.server in the package, for all later users.
    http.server = sys.modules["http.server"]
    if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        eventlet.wsgi.ALREADY_HANDLED = object()
    if sys.version_info < (3, 12):
        # Ryu needs LooseVersion: the standard library's own, without all of setuptools.
        with suppress(ImportError):
            import_module("_distutils_hack").remove_shim()
    from ryu.base import app_manager
    from ryu.controller import ofp_handler
    from ryu.lib import hub

App: Final[Any] = app_manager.RyuApp


def _no_patch(**_modules: bool) -> None:
    """Replaces ``hub.patch``: sockets, threads and select stay the system's own."""


hub.patch = _no_patch  # before the import of ryu.cmd.manager, which calls hub.patch
eventlet.hubs.use_hub("asyncio")  # before any green thread begins, bound to another hub


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop of the thread that calls first: the first thread of the process."""
    made: asyncio.AbstractEventLoop = eventlet.hubs.get_hub().loop
    return made


def manager() -> Any:
    """The module of Ryu's ``ryu-manager``; its import defines the flags, and takes a while."""
    return import_module("ryu.cmd.manager")


def run(arguments: list[str]) -> None:
    """Run Ryu's own ``ryu-manager`` until :func:`leave`, or until the applications have ended."""
    manager().main(args=arguments, prog="ryu-manager")


def leave() -> None:
    """End :func:`run`; in the loop."""
    loop().call_soon(eventlet.hubs.get_hub().greenlet.parent.throw, KeyboardInterrupt)


def wait_for(coroutine: Coroutine[Any, Any, None]) -> None:
    """Wait until ``coroutine`` has ended, while the loop goes on. Not in the loop."""
    over = eventlet.event.Event()
    loop().create_task(coroutine).add_done_callback(lambda _task: over.send())
    over.wait()


def is_outside_loop() -> bool:
    """False in the loop and in green threads.

    There, an exception would be swallowed, and the hub would lose the work in progress.
    """
    return eventlet.getcurrent().parent is None


def open_no_port() -> None:
    """Keep Ryu from listening for switches."""
    ofp_handler.OFPHandler.start = lambda _handler: hub.spawn(eventlet.event.Event().wait)


_send_event: Final = App._send_event


def _send_in_turn(app: Any, event: Any, state: Any) -> None:
    """Replaces ``RyuApp._send_event``, which may wait: in the loop, a green thread waits
    instead.
    """
    if eventlet.getcurrent() is not eventlet.hubs.get_hub().greenlet:
        _send_event(app, event, state)
        return
    waiting = vars(app).setdefault("waiting_events", deque())
    waiting.append((event, state))
    if len(waiting) == 1:
        hub.spawn(_send_waiting, app, waiting)


def _send_waiting(app: Any, waiting: deque[tuple[Any, Any]]) -> None:
    while waiting:
        _send_event(app, *waiting[0])
        waiting.popleft()


App._send_event = _send_in_turn
