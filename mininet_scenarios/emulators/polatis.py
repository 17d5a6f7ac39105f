"""An emulated Polatis optical circuit switch: ``python -m mininet_scenarios.emulators.polatis``.

Protocol: SCPI. Options and common behaviour: :mod:`mininet_scenarios.emulators.process`.

``--firmware linewise`` answers each query in a separate line, ended by LF only, and gives a busy
port to each new request; cross-connects do not survive a power cycle.
"""

from __future__ import annotations

import sys
from typing import Final

from mininet_scenarios.emulators.faults import OF_BAD_LINES, OF_SWITCHES
from mininet_scenarios.emulators.polatis_server import LinewiseServer, PolatisServer
from mininet_scenarios.emulators.process import Product, run

PRODUCT: Final = Product(
    "polatis",
    __doc__,
    "scpi",
    5025,
    PolatisServer,
    OF_SWITCHES | OF_BAD_LINES,
    {"linewise": LinewiseServer},
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
