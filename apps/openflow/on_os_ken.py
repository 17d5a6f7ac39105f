"""os-ken: Ryu's fork without eventlet, and without a manager that runs applications.

os-ken's own hub would give each switch three native threads (docs/decisions/0025). Names and
meanings are the same as in ``on_ryu.py``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from functools import cache
from typing import Any, Final

os.environ["OSKEN_HUB_TYPE"] = "native"  # read at import; else os-ken imports eventlet
from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import ofp_handler

App: Final[Any] = app_manager.OSKenApp


@cache
def loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _over() -> asyncio.Future[None]:
    return loop().create_future()


def manager() -> Any:
    return app_manager


def run(arguments: list[str]) -> None:
    cfg.CONF.register_cli_opts([cfg.MultiStrOpt("app", positional=True, default=[])])
    cfg.CONF(args=arguments, project="os_ken", prog="ryu-manager", default_config_files=[])
    applications = app_manager.AppManager.get_instance()
    try:
        applications.load_apps(cfg.CONF.app)
        if applications.instantiate_apps(**applications.create_contexts()):
            loop().run_until_complete(_over())
    finally:
        applications.close()


def leave() -> None:
    if not _over().done():
        _over().set_result(None)


def wait_for(coroutine: Coroutine[Any, Any, None]) -> None:
    loop().run_until_complete(coroutine)


def is_outside_loop() -> bool:
    return not loop().is_running()


def open_no_port() -> None:
    ofp_handler.OFPHandler.start = lambda _handler: "others listen"
