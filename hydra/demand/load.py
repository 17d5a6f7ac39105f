"""Load of the last hour: Mb/s of each circuit, of the busiest rack pairs, and in total.

The log is in memory; the fabric limits the size. At 320 racks and 32 planes, with a sample every 10
s: 360 samples of 10,240 ToR ports (14,745,600 bytes) and of 1,024 pairs (1,474,560 bytes), 16,832
bytes of times, totals and pair names, and 0.3 MB for the circuit of each port: 16.5 MB in total.
Prometheus and Grafana keep longer histories.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hydra.model import Circuit, DemandMatrix, Fabric, PortId, RackId, Topology

LOAD_S: Final = 3600.0
"""Greatest age of reported samples in s."""
LOAD_INTERVAL_S: Final = 10.0
"""Least time between two samples in s."""
MOST_PAIRS: Final = 1024
"""Number of recorded rack pairs; each direction counts."""
_LATE: Final = 1.5
"""Number of intervals after which a sample is missing."""
_NOBODY: Final = -1

Series = NDArray[np.float32]
"""Mbps, an entry per sample; NaN if unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class CircuitLoad:
    circuit: Circuit
    a_to_b_mbps: Series
    b_to_a_mbps: Series | None
    """None for a one-way circuit."""


@dataclass(frozen=True, slots=True, eq=False)
class PairLoad:
    src: RackId
    dst: RackId
    mbps: Series


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Sums over the network, with an entry per sample; NaN if unknown."""

    carried_mbps: Series
    """Rate of all rack pairs."""
    with_circuits_mbps: Series
    """Rate of the rack pairs with a path of circuits."""
    circuits: Series
    """Number of circuits."""
    reservations: Series
    """Number of reservations that have or are getting circuits."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Samples of the last hour, sorted by peak rate."""

    interval_s: float | None
    """Time between two samples; None without polling."""
    unix_s: NDArray[np.float64]
    """Times of the samples, oldest first."""
    circuits: Sequence[CircuitLoad]
    pairs: Sequence[PairLoad]
    totals: Totals


_NONE: Final[Series] = np.empty(0, dtype=np.float32)
NOT_RECORDED: Final = Load(None, np.empty(0), (), (), Totals(_NONE, _NONE, _NONE, _NONE))


class LoadLog:
    """Ring buffers of samples: a row per sample, a column per sending ToR port or pair.

    A column is cleared when the circuit of the port goes, and when the pair is replaced by a busier
    pair.
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
        self._totals = np.full((rows, len(fields(Totals))), np.nan, dtype=np.float32)
        self._standing = Topology()
        self._has_path = np.zeros(racks * racks, dtype=bool)
        """True for each pair (``src * racks + dst``) with a path of circuits."""
        self._sender: Mapping[PortId, Circuit] = {}
        """The sending circuit of each recorded port."""

    @property
    def size_bytes(self) -> int:
        """Memory of the buffers, independent of the number of samples."""
        return sum(
            buffer.nbytes
            for buffer in (self._ports_mbps, self._pairs_mbps, self._at_s, self._pair, self._totals)
        )

    def take(
        self,
        now_s: float,
        topology: Topology,
        ports_mbps: Mapping[PortId, float],
        pairs_mbps: DemandMatrix,
        reservations: int,
    ) -> None:
        """Take a sample; missing ports, and NaN pairs, are unknown.

        ``pairs_mbps`` has the shape (N, N). A gap in the samples becomes a row of unknown values.
        """
        last_s = self._at_s[self._row]
        if math.isfinite(last_s) and now_s - last_s > _LATE * self._interval_s:
            self._begin(last_s + self._interval_s)
        self._begin(now_s)
        self._follow(topology)
        for port in self._sender:
            self._ports_mbps[self._row, port] = ports_mbps.get(port, np.nan)
        rates_mbps = pairs_mbps.ravel()
        self._take_pairs(rates_mbps)
        carried_mbps, with_circuits_mbps = _sum(rates_mbps), _sum(rates_mbps, self._has_path)
        circuits = len(topology.circuits)
        self._totals[self._row] = carried_mbps, with_circuits_mbps, circuits, reservations

    def _begin(self, at_s: float) -> None:
        """Begin an empty row."""
        self._row = (self._row + 1) % len(self._at_s)
        self._at_s[self._row] = at_s
        self._ports_mbps[self._row] = np.nan
        self._pairs_mbps[self._row] = np.nan
        self._totals[self._row] = np.nan

    def _follow(self, topology: Topology) -> None:
        if topology is self._standing:
            return
        sender = {port: circuit for circuit in topology.circuits for port in circuit.senders}
        gone = [port for port, circuit in self._sender.items() if sender.get(port) != circuit]
        self._ports_mbps[:, gone] = np.nan
        self._standing, self._sender = topology, sender
        racks = len(self._fabric.racks)
        self._has_path[:] = False
        for path in topology.paths:
            self._has_path[path.src * racks + path.dst] = True
            if not path.one_way:
                self._has_path[path.dst * racks + path.src] = True

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
        """The hour before ``now_s``, which equals ``unix_s``, of ``most`` circuits and pairs.

        Selects circuits of ``circuits``, the present circuits, and pairs whose ends include all of
        ``racks``. For two racks, both directions are reported, even if unknown.
        """
        rows = (self._row + 1 + np.arange(len(self._at_s))) % len(self._at_s)
        rows = rows[now_s - self._at_s[rows] <= LOAD_S]
        return Load(
            self._interval_s,
            unix_s - (now_s - self._at_s[rows]),
            self._circuits(rows, circuits, racks, most),
            self._pairs(rows, racks, most),
            Totals(*self._totals[rows].T),
        )

    def _circuits(
        self,
        rows: NDArray[np.intp],
        circuits: Collection[Circuit],
        racks: Collection[RackId],
        most: int,
    ) -> Sequence[CircuitLoad]:
        peaks_mbps = _peaks(self._ports_mbps)

        def peak_mbps(circuit: Circuit) -> float:
            return max(
                float(peaks_mbps[p]) if self._sender.get(p) == circuit else 0.0
                for p in circuit.senders
            )

        def series(circuit: Circuit, port: PortId) -> Series:
            if self._sender.get(port) != circuit:  # newer than the last sample
                return np.full(len(rows), np.nan, dtype=np.float32)
            found: Series = self._ports_mbps[rows, port]
            return found

        wanted = [
            circuit for circuit in circuits if set(racks) <= set(self._fabric.racks_of(circuit))
        ]
        wanted.sort(key=lambda circuit: (-peak_mbps(circuit), circuit.plane, circuit.a))
        return [
            CircuitLoad(
                circuit,
                series(circuit, circuit.a),
                None if circuit.one_way else series(circuit, circuit.b),
            )
            for circuit in wanted[:most]
        ]

    def _pairs(
        self, rows: NDArray[np.intp], racks: Collection[RackId], most: int
    ) -> Sequence[PairLoad]:
        many = len(self._fabric.racks)
        samples = self._pairs_mbps[rows]
        if len(racks) > 1:
            rack_a, rack_b = racks
            return [
                PairLoad(src, dst, self._samples_of(samples, src * many + dst))
                for src, dst in ((rack_a, rack_b), (rack_b, rack_a))
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


def _sum(rates_mbps: NDArray[np.float64], of: NDArray[np.bool_] | None = None) -> float:
    """Sum of the known rates, of the given pairs only; NaN if no rate is known."""
    if len(rates_mbps) and np.isnan(rates_mbps).all():
        return math.nan
    return float(np.nansum(rates_mbps if of is None else rates_mbps[of]))


def _peaks(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """Highest rate of each column; 0 if unknown."""
    peaks: NDArray[np.float64] = np.fmax.reduce(samples, axis=0, initial=0.0).astype(np.float64)
    return peaks
