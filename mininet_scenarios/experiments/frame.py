"""What an experiment is: who it follows, what it does, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from mininet_scenarios.experiments.scaling import Rates
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row

T = TypeVar("T")
"""What one repetition measures: a dataclass of plain values, saved as the raw data."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One repetition."""

    full: bool
    """Otherwise the short form."""
    seed: int
    """Counted from 1 by repetition; the same seed gives the same workload."""
    work_dir: Path
    """For logs; exists."""
    rates: Rates = field(default_factory=Rates)
    """What the scale of those with a data plane follows from."""
    trace: Path | None = None
    """Of those that take one; None: the sample."""


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that have no counterpart in a paper."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """What all repetitions together say."""

    rows: tuple[Row, ...]
    """Beside the paper's figures, and checks."""
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment(Generic[T]):
    """Everything about an experiment; each has a file of its own."""

    name: str
    title: str
    source: str
    """Paper, section and figure."""
    topology: str
    workload: str
    policy: str
    measured: str
    needs_data_plane: bool
    """Whether it builds a testbed: root, Mininet and Open vSwitch."""
    expected_s: Callable[[bool], float]
    """How long one repetition takes, in full form or not."""
    measure: Callable[[Setting, Narrator], T]
    """One repetition. Raises HydraError for a run that can't be counted."""
    conclude: Callable[[Sequence[T]], Findings]
    draw: Callable[[Sequence[T], Path], Sequence[Path]]
    """Writes plots (PNG) into a directory; returns their paths."""
    takes_trace: bool = False
    """Whether its workload can be a trace of the user's."""
    needs_mpi: bool = False
    """Whether it compiles and starts MPI programs: Open MPI, and FFTW's MPI transforms."""
