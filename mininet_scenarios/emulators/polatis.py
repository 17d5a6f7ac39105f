"""An emulated Polatis optical circuit switch: ``python -m mininet_scenarios.emulators.polatis``.

It speaks SCPI. What else it does: :mod:`mininet_scenarios.emulators.process`.
"""

from __future__ import annotations

import sys
from typing import Final

from mininet_scenarios.emulators.polatis_server import PolatisServer
from mininet_scenarios.emulators.process import Product, run

PRODUCT: Final = Product("polatis", __doc__, "scpi", 5025, PolatisServer)

if __name__ == "__main__":
    sys.exit(run(PRODUCT))
