"""The package that provides applications, handshake and parsers of OpenFlow: Ryu, or os-ken.

``HYDRA_OPENFLOW`` names the package; by default Ryu, if installed. os-ken, a fork of Ryu, has
modules of the same names. All differences between the two are in ``on_ryu.py`` and
``on_os_ken.py``. Only these modules import the packages, and only one of the modules is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from apps.process.admitted_connections import Sparing
from hydra.errors import HydraError

VARIABLE: Final = "HYDRA_OPENFLOW"
RYU: Final = "ryu"
OS_KEN: Final = "os-ken"
_ROOTS: Final = {RYU: "ryu", OS_KEN: "os_ken"}


def chosen() -> str:
    """RYU or OS_KEN; raises HydraError if the environment names another or a missing package."""
    name = os.environ.get(VARIABLE) or (RYU if find_spec("ryu") else OS_KEN)
    if name not in _ROOTS:
        raise HydraError(
            f"{VARIABLE} is {name!r}: set the variable to {' or '.join(_ROOTS)}, or unset the "
            f"variable for {RYU}"
        )
    if find_spec(_ROOTS[name]) is None:
        raise HydraError(
            f"{VARIABLE} asks for {name}, which is not installed: pip install "
            "'hydra-hybrid-network[os-ken]', or unset the variable"
        )
    return name


try:
    NAME: Final = chosen()
except HydraError as problem:
    sys.exit(str(problem))  # importers can't go on, and a traceback adds no information

_ROOT: Final = _ROOTS[NAME]
HOST: Final[Any] = import_module(f"apps.openflow.on_{_ROOT}")
"""Prepares, runs and ends the package; ``on_ryu.py`` documents the names."""


def _module(name: str) -> Any:
    return import_module(f"{_ROOT}.{name}")


app_manager = _module("base.app_manager")
controller = _module("controller.controller")
handler = _module("controller.handler")
nicira_ext = _module("ofproto.nicira_ext")
ofp_event = _module("controller.ofp_event")
ofproto_parser = _module("ofproto.ofproto_parser")
ofproto_protocol = _module("ofproto.ofproto_protocol")
ofproto_v1_3 = _module("ofproto.ofproto_v1_3")
ofproto_v1_3_parser = _module("ofproto.ofproto_v1_3_parser")
App = HOST.App


class _Words(Sparing):
    """Drops tracebacks, which lead to the reading of messages for any error."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return super().filter(record)


logging.getLogger(_ROOT).setLevel(logging.WARNING)
for _name in (f"{_ROOT}.ofproto.ofproto_parser", f"{_ROOT}.controller.controller", "OFPHandler"):
    logging.getLogger(_name).addFilter(_Words())
