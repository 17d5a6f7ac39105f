"""Mice: endless short bursts of datagrams to random places.

``python -m mininet_scenarios.workloads.mice --to 10.0.2.1,10.0.3.1 --mbps 0.5 --seed 7``. Sizes and
pauses of bursts are exponentially distributed, so averages over a few seconds scatter widely around
the mean; no receiver is needed.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from mininet_scenarios.workloads.reports import StopFlag

_PORT: Final = 9
_PAYLOAD_BYTES: Final = 1000
_MEAN_BURST_BYTES: Final = 20_000
_GAP_S: Final = 0.002
"""Pause between the datagrams of a burst: 4 Mb/s."""


def send(
    addresses: Sequence[str], mbps: float, chance: np.random.Generator, stop: StopFlag
) -> None:
    """Send ``mbps`` on average to all ``addresses`` together, until stopped."""
    mean_pause_s = _MEAN_BURST_BYTES * 8 / (mbps * 1e6)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouse:
        while not stop.is_set:
            address = addresses[int(chance.integers(len(addresses)))]
            size = int(chance.exponential(_MEAN_BURST_BYTES))
            for _ in range(max(1, size // _PAYLOAD_BYTES)):
                mouse.sendto(bytes(_PAYLOAD_BYTES), (address, _PORT))
                time.sleep(_GAP_S)
            time.sleep(chance.exponential(mean_pause_s))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", required=True, help="addresses, separated by commas")
    parser.add_argument("--mbps", type=float, required=True, help="to all of them together")
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    stop = StopFlag()
    stop.install()
    send(given.to.split(","), given.mbps, np.random.default_rng(given.seed), stop)


if __name__ == "__main__":
    main()
