"""An emulated Polatis optical circuit switch: ``python -m mininet_scenarios.emulators.polatis``.

It speaks SCPI. What else it does: :mod:`mininet_scenarios.emulators.process`.

``--firmware linewise`` answers each query in a line of its own, ended by LF only, and gives a busy
port to whoever asks for it; its cross-connects do not survive a power cycle.
"""

from __future__ import annotations

import sys
from typing import Final

from mininet_scenarios.emulators.polatis_server import LinewiseServer, PolatisServer
from mininet_scenarios.emulators.process import Product, run

PRODUCT: Final = Product(
    "polatis", __doc__, "scpi", 5025, PolatisServer, {"linewise": LinewiseServer}
)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
