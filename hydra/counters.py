"""From polled counters to rates: resets, late switches and averaging.

One row per server, one column per destination rack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hydra.model import DemandMatrix, Fabric, PortId

_BITS_PER_MBIT = 1e6


@dataclass(slots=True)
class DemandMeter:
    """Exponentially weighted rates from byte counters.

    A counter that went back (the switch restarted, or its rules were installed anew) starts over
    from its new value. A server that was not heard keeps its last rates and is reported stale.
    """

    fabric: Fabric
    window_s: float
    """Time constant of the average."""
    _bytes: NDArray[np.float64] = field(init=False)
    _rates_mbps: NDArray[np.float64] = field(init=False)
    _heard_s: NDArray[np.float64] = field(init=False)
    _measured: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        shape = (len(self.fabric.servers), len(self.fabric.racks))
        self._bytes = np.zeros(shape)
        self._rates_mbps = np.zeros(shape)
        self._heard_s = np.full(shape[0], -math.inf)
        self._measured = np.zeros(shape[0], dtype=bool)

    def update(self, server: int, totals: NDArray[np.float64], now_s: float) -> None:
        """Take one server's byte totals, shape (racks,), read at ``now_s``."""
        elapsed = now_s - self._heard_s[server]
        if elapsed <= 0:
            return  # the same reading twice, or a clock that stepped back
        if math.isfinite(elapsed):
            delta = totals - self._bytes[server]
            delta = np.where(delta < 0, totals, delta)
            rate = delta * 8 / _BITS_PER_MBIT / elapsed
            weight = 1 - math.exp(-elapsed / self.window_s) if self._measured[server] else 1.0
            self._rates_mbps[server] += weight * (rate - self._rates_mbps[server])
            self._measured[server] = True
        self._bytes[server] = totals
        self._heard_s[server] = now_s

    def matrix(self) -> DemandMatrix:
        """Rack-to-rack rates in Mbps, shape (racks, racks)."""
        racks = len(self.fabric.racks)
        demand = np.zeros((racks, racks))
        owner = np.fromiter((server.rack for server in self.fabric.servers), dtype=np.intp)
        np.add.at(demand, owner, self._rates_mbps)
        np.fill_diagonal(demand, 0.0)
        return demand

    @property
    def ready(self) -> bool:
        """Whether any server has been read twice."""
        return bool(self._measured.any())

    def stale(self, now_s: float, limit_s: float) -> Sequence[str]:
        """Servers not heard for longer than ``limit_s``."""
        late = now_s - self._heard_s > limit_s
        return [s.name for s, is_late in zip(self.fabric.servers, late, strict=True) if is_late]

    def age_s(self, now_s: float) -> float | None:
        """Time since the newest reading; None before the first."""
        newest = float(self._heard_s.max(initial=-math.inf))
        return now_s - newest if math.isfinite(newest) else None


@dataclass(slots=True)
class PortMeter:
    """Sending rates of ToR ports from byte counters, over the last interval."""

    _last: dict[PortId, tuple[int, float]] = field(default_factory=dict)
    _rates_mbps: dict[PortId, float] = field(default_factory=dict)

    def update(self, port: PortId, sent_bytes: int, now_s: float) -> None:
        """Take one reading; a counter that went back starts over."""
        last_bytes, last_s = self._last.get(port, (sent_bytes, -math.inf))
        if now_s <= last_s:
            return
        if math.isfinite(last_s):
            delta = sent_bytes - last_bytes if sent_bytes >= last_bytes else sent_bytes
            self._rates_mbps[port] = delta * 8 / _BITS_PER_MBIT / (now_s - last_s)
        self._last[port] = (sent_bytes, now_s)

    def forget(self, port: PortId) -> None:
        """Its switch did not answer: unknown, not zero."""
        self._last.pop(port, None)
        self._rates_mbps.pop(port, None)

    def rates_mbps(self) -> dict[PortId, float]:
        """Mbps sent by each port that has been read twice."""
        return dict(self._rates_mbps)
