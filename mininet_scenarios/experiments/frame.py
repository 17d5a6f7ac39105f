"""Experiments as data: source, measurement, and conclusions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from mininet_scenarios.experiments.scaling import Rates
from mininet_scenarios.reporting.narrator import Narrator
from mininet_scenarios.reporting.table import Row

T = TypeVar("T")
"""Measurements of a repetition: a dataclass of plain values, saved as the raw data."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of a repetition."""

    full: bool
    """True for the full form, False for the short form."""
    seed: int
    """Counted from 1 by repetition; the same seed gives the same workload."""
    work_dir: Path
    """Existing directory for logs."""
    rates: Rates = field(default_factory=Rates)
    """Rates by which experiments with a data plane set their scale."""
    trace: Path | None = None
    """Trace, for experiments with a trace; None: the sample."""
    fabric: Path | None = None
    """Fabric file, for experiments on any fabric; None: the experiment's own."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of figures without counterparts in a paper."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Findings:
    """Conclusions from all repetitions together."""

    rows: tuple[Row, ...]
    """Figures beside the paper's, and checks."""
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment(Generic[T]):
    """An experiment; each experiment has a file of its own."""

    name: str
    title: str
    source: str
    """Paper, section and figure."""
    topology: str
    workload: str
    policy: str
    measured: str
    needs_data_plane: bool
    """True for an experiment on a testbed: root, Mininet and Open vSwitch."""
    expected_s: Callable[[bool], float]
    """Time of a repetition, in full form or not."""
    measure: Callable[[Setting, Narrator], T]
    """Makes a repetition. Raises HydraError for a run that can't be counted."""
    conclude: Callable[[Sequence[T]], Findings]
    draw: Callable[[Sequence[T], Path], Sequence[Path]]
    """Writes plots (PNG) into a directory; returns their paths."""
    takes_trace: bool = False
    """True if the workload can be a user's trace."""
    takes_fabric: Callable[[Path], object] | None = None
    """Raises HydraError for a user's fabric file that does not suit the experiment; None: the
    experiment has a fabric of its own.
    """
    needs_mpi: bool = False
    """True for an experiment that compiles and starts MPI programs: Open MPI, and FFTW's MPI
    transforms.
    """
