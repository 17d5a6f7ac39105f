"""The package whose parsers and handshake of OpenFlow are used: Ryu, or os-ken, its fork.

``HYDRA_OPENFLOW`` says which; without it, Ryu if that is installed. The only module that imports
either: os-ken has its modules from Ryu, by the same names. What has to be done before is done here
(docs/decisions/0002): Ryu 4.34 asks for ``eventlet.wsgi.ALREADY_HANDLED``, which eventlet dropped
in 0.30.3, and its launcher would monkey-patch the process, while device drivers, REST and the
journal run in native threads with native sockets. Ryu's own sockets are green explicitly; os-ken
gets none (docs/decisions/0025).
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from apps.process.doors import Sparing
from hydra.errors import HydraError

VARIABLE: Final = "HYDRA_OPENFLOW"
RYU: Final = "ryu"
OS_KEN: Final = "os-ken"
_ROOTS: Final = {RYU: "ryu", OS_KEN: "os_ken"}


def chosen() -> str:
    """RYU or OS_KEN; raises HydraError if the environment names another, or one that is missing."""
    name = os.environ.get(VARIABLE) or (RYU if find_spec("ryu") else OS_KEN)
    if name not in _ROOTS:
        raise HydraError(
            f"{VARIABLE} is {name!r}: it may be {' or '.join(_ROOTS)}, or unset for {RYU}"
        )
    if find_spec(_ROOTS[name]) is None:
        raise HydraError(
            f"{VARIABLE} asks for {name}, which is not installed: "
            "pip install 'hydra-hybrid-network[os-ken]', or have the variable unset"
        )
    return name


try:
    NAME: Final = chosen()
except HydraError as problem:
    sys.exit(str(problem))  # whatever imports this can't go on, and a traceback says nothing more


def _no_patch(**_modules: bool) -> None:
    """Stands in for ``hub.patch``: sockets, threads and select stay the system's own."""


if NAME == OS_KEN:
    os.environ["OSKEN_HUB_TYPE"] = "native"  # read at import; else it imports eventlet
    from os_ken import cfg
    from os_ken.base import app_manager
    from os_ken.controller import controller, ofp_event, ofp_handler
    from os_ken.controller.handler import (
        CONFIG_DISPATCHER,
        DEAD_DISPATCHER,
        MAIN_DISPATCHER,
        set_ev_cls,
    )
    from os_ken.lib import hub
    from os_ken.ofproto import (
        nicira_ext,
        ofproto_parser,
        ofproto_protocol,
        ofproto_v1_3,
        ofproto_v1_3_parser,
    )

    App = app_manager.OSKenApp
else:
    with warnings.catch_warnings():
        # eventlet announces on import that it is in maintenance, and Ryu still uses distutils and
        # cgi; docs/decisions/0002 knows.
        warnings.simplefilter("ignore")
        import http.server

        os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")  # nobody asks the hub for names
        import eventlet.wsgi

        # It leaves a green copy of http.server in its package, for everybody from now on.
        http.server = sys.modules["http.server"]
        if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
            eventlet.wsgi.ALREADY_HANDLED = object()

        if sys.version_info < (3, 12):
            # Ryu wants LooseVersion: the standard library's own, without all of setuptools.
            with suppress(ImportError):
                import_module("_distutils_hack").remove_shim()

        from ryu import cfg
        from ryu.base import app_manager
        from ryu.controller import controller, ofp_event, ofp_handler
        from ryu.controller.handler import (
            CONFIG_DISPATCHER,
            DEAD_DISPATCHER,
            MAIN_DISPATCHER,
            set_ev_cls,
        )
        from ryu.lib import hub
        from ryu.ofproto import (
            nicira_ext,
            ofproto_parser,
            ofproto_protocol,
            ofproto_v1_3,
            ofproto_v1_3_parser,
        )

    App = app_manager.RyuApp
    hub.patch = _no_patch  # before ryu.cmd.manager is imported, which calls it

__all__ = [
    "CONFIG_DISPATCHER",
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "App",
    "app_manager",
    "cfg",
    "controller",
    "hub",
    "nicira_ext",
    "ofp_event",
    "ofp_handler",
    "ofproto_parser",
    "ofproto_protocol",
    "ofproto_v1_3",
    "ofproto_v1_3_parser",
    "ryu_manager",
    "set_ev_cls",
]


def ryu_manager() -> Any:
    """The module of the ``ryu-manager`` command, whose import defines its flags."""
    from ryu.cmd import manager  # noqa: PLC0415  (only if asked for)

    return manager


class _Words(Sparing):
    """Leaves tracebacks out, which lead to where messages are read, whatever was wrong."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return super().filter(record)


_ROOT: Final = _ROOTS[NAME]
logging.getLogger(_ROOT).setLevel(logging.WARNING)
for _name in (f"{_ROOT}.ofproto.ofproto_parser", f"{_ROOT}.controller.controller", "OFPHandler"):
    logging.getLogger(_name).addFilter(_Words())
