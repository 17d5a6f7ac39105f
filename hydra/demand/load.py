"""The load of the last hour: Mb/s of each circuit, and of the rack pairs that carry most.

It is in memory, and bounded by the fabric alone. At 320 racks and 32 planes, with a sample every
10 s: 360 samples of 10,240 ToR ports (14,745,600 bytes) and of 1,024 pairs (1,474,560 bytes),
11,072 bytes of times and names of pairs, and 0.3 MB of which port sends on which circuit: 16.5 MB
in all. A longer history is Prometheus's and Grafana's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, DemandMatrix, Fabric, PortId, RackId

LOAD_S: Final = 3600.0
"""Age in s up to which samples are told."""
LOAD_INTERVAL_S: Final = 10.0
"""Least time in s between two samples."""
MOST_PAIRS: Final = 1024
"""Rack pairs that are kept, each direction being one."""
_LATE: Final = 1.5
"""Intervals after which a sample is missing."""
_NOBODY: Final = -1

Series = NDArray[np.float32]
"""Mbps, an entry for each sample; NaN where unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class CircuitLoad:
    circuit: Circuit
    a_to_b_mbps: Series
    b_to_a_mbps: Series | None
    """None: it is one-way."""


@dataclass(frozen=True, slots=True, eq=False)
class PairLoad:
    src: RackId
    dst: RackId
    mbps: Series


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Samples of the last hour; those with the highest rate in it come first."""

    interval_s: float | None
    """Time between two samples; None: nothing is recorded, since nothing is polled."""
    unix_s: NDArray[np.float64]
    """Times of the samples, the oldest first."""
    circuits: Sequence[CircuitLoad]
    pairs: Sequence[PairLoad]


NOT_RECORDED: Final = Load(None, np.empty(0), (), ())


class LoadLog:
    """Ring buffers of samples: a row for each sample, a column for each sending ToR port or pair.

    A column is emptied when its port's circuit goes, and when its pair gives way to one that
    carries more.
    """

    def __init__(self, fabric: Fabric, interval_s: float, most_pairs: int = MOST_PAIRS) -> None:
        racks = len(fabric.racks)
        rows = max(2, math.ceil(LOAD_S / interval_s))
        every = np.flatnonzero(~np.eye(racks, dtype=bool))
        columns = min(len(every), most_pairs)
        self._fabric = fabric
        self._interval_s = interval_s
        self._at_s = np.full(rows, -np.inf)
        self._row = rows - 1
        """Row of the newest sample."""
        self._ports_mbps = np.full((rows, len(fabric.ports)), np.nan, dtype=np.float32)
        self._pairs_mbps = np.full((rows, columns), np.nan, dtype=np.float32)
        self._pair = np.full(columns, _NOBODY) if columns < len(every) else every
        """The pair of each column, as ``src * racks + dst``."""
        self._standing: Collection[Circuit] = ()
        self._sender: Mapping[PortId, Circuit] = {}
        """The circuit that each recorded port sends on."""

    @property
    def size_bytes(self) -> int:
        """Memory of the buffers, however much has been recorded."""
        return sum(
            one.nbytes for one in (self._ports_mbps, self._pairs_mbps, self._at_s, self._pair)
        )

    def take(
        self,
        now_s: float,
        circuits: Collection[Circuit],
        ports_mbps: Mapping[PortId, float],
        pairs_mbps: DemandMatrix,
    ) -> None:
        """Take a sample; ports that are absent, and pairs that are NaN, are unknown.

        ``pairs_mbps`` has the shape (N, N). If samples before it are missing, a row in which all is
        unknown stands for them.
        """
        last_s = self._at_s[self._row]
        if math.isfinite(last_s) and now_s - last_s > _LATE * self._interval_s:
            self._begin(last_s + self._interval_s)
        self._begin(now_s)
        self._follow(circuits)
        for port in self._sender:
            self._ports_mbps[self._row, port] = ports_mbps.get(port, np.nan)
        self._take_pairs(pairs_mbps.ravel())

    def _begin(self, at_s: float) -> None:
        """The next row, with nothing in it."""
        self._row = (self._row + 1) % len(self._at_s)
        self._at_s[self._row] = at_s
        self._ports_mbps[self._row] = np.nan
        self._pairs_mbps[self._row] = np.nan

    def _follow(self, circuits: Collection[Circuit]) -> None:
        if circuits is self._standing:
            return
        sender = {port: one for one in circuits for port in one.senders}
        gone = [port for port, one in self._sender.items() if sender.get(port) != one]
        self._ports_mbps[:, gone] = np.nan
        self._standing, self._sender = circuits, sender

    def _take_pairs(self, rates_mbps: NDArray[np.float64]) -> None:
        kept = self._pair != _NOBODY
        self._pairs_mbps[self._row, kept] = rates_mbps[self._pair[kept]]
        known_mbps = np.nan_to_num(rates_mbps)
        columns = len(self._pair)
        if columns == 0 or len(known_mbps) <= columns:
            return
        most = np.argpartition(known_mbps, -columns)[-columns:]
        new = np.setdiff1d(most[known_mbps[most] > 0], self._pair)
        new = new[np.argsort(-known_mbps[new], kind="stable")]
        peaks_mbps = np.where(kept, _peaks(self._pairs_mbps), -1.0)
        least = np.argsort(peaks_mbps, kind="stable")[: len(new)]
        more = known_mbps[new] > peaks_mbps[least]
        into, pairs = least[more], new[more]
        self._pairs_mbps[:, into] = np.nan
        self._pair[into] = pairs
        self._pairs_mbps[self._row, into] = rates_mbps[pairs]

    def load(
        self,
        now_s: float,
        unix_s: float,
        circuits: Collection[Circuit],
        racks: Collection[RackId],
        most: int,
    ) -> Load:
        """The hour before ``now_s``, which is ``unix_s``, of ``most`` circuits and pairs.

        Circuits are those of ``circuits``, which stand now, with all of ``racks`` at their ends; so
        are pairs. Of two racks, both directions are told, known or not.
        """
        rows = (self._row + 1 + np.arange(len(self._at_s))) % len(self._at_s)
        rows = rows[now_s - self._at_s[rows] <= LOAD_S]
        return Load(
            self._interval_s,
            unix_s - (now_s - self._at_s[rows]),
            self._circuits(rows, circuits, racks, most),
            self._pairs(rows, racks, most),
        )

    def _circuits(
        self,
        rows: NDArray[np.intp],
        circuits: Collection[Circuit],
        racks: Collection[RackId],
        most: int,
    ) -> Sequence[CircuitLoad]:
        peaks_mbps = _peaks(self._ports_mbps)

        def peak_mbps(one: Circuit) -> float:
            return max(
                float(peaks_mbps[p]) if self._sender.get(p) == one else 0.0 for p in one.senders
            )

        def series(one: Circuit, port: PortId) -> Series:
            if self._sender.get(port) != one:  # it has come up since the last sample
                return np.full(len(rows), np.nan, dtype=np.float32)
            found: Series = self._ports_mbps[rows, port]
            return found

        wanted = [one for one in circuits if set(racks) <= set(self._fabric.racks_of(one))]
        wanted.sort(key=lambda one: (-peak_mbps(one), one.plane, one.a))
        return [
            CircuitLoad(one, series(one, one.a), None if one.one_way else series(one, one.b))
            for one in wanted[:most]
        ]

    def _pairs(
        self, rows: NDArray[np.intp], racks: Collection[RackId], most: int
    ) -> Sequence[PairLoad]:
        many = len(self._fabric.racks)
        samples = self._pairs_mbps[rows]
        if len(racks) > 1:
            one, other = racks
            return [
                PairLoad(src, dst, self._samples_of(samples, src * many + dst))
                for src, dst in ((one, other), (other, one))
            ]
        peaks_mbps = np.where(self._pair == _NOBODY, 0.0, _peaks(samples))
        for rack in racks:
            peaks_mbps[(self._pair // many != rack) & (self._pair % many != rack)] = 0.0
        first = np.argsort(-peaks_mbps, kind="stable")[:most]
        return [
            PairLoad(
                RackId(int(self._pair[column]) // many),
                RackId(int(self._pair[column]) % many),
                samples[:, column],
            )
            for column in first[peaks_mbps[first] > 0]
        ]

    def _samples_of(self, samples: NDArray[np.float32], pair: int) -> Series:
        (column,) = np.nonzero(self._pair == pair)
        if not len(column):
            return np.full(len(samples), np.nan, dtype=np.float32)
        found: Series = samples[:, column[0]]
        return found


def _peaks(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Highest rate of each column; 0 if none is known."""
    peaks: NDArray[np.float64] = np.fmax.reduce(samples, axis=0, initial=0.0).astype(np.float64)
    return peaks
