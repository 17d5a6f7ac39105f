"""Slurm's description of a job, for the programs that it runs before and after it.

A job asks for bandwidth in its comment: ``sbatch --comment hydra:all-to-all=5 …``. Variables:
slurm.conf(5), PrologSlurmctld; notation of host lists: scontrol(1), ``show hostnames``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite
from typing import Final

from apps.jobs.mpi import PATTERNS, Host
from hydra.errors import HydraError

_JOB_ID: Final = re.compile(r"[0-9]{1,20}")
_WISH: Final = re.compile(r"(?:^|\s)hydra:(?P<pattern>[^\s=]*)=?(?P<rate>\S*)")
_LISTED: Final = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_BRACKET: Final = re.compile(r"\[([^\]]*)\]")
_COUNT: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?")


@dataclass(frozen=True, slots=True)
class Wish:
    """Bandwidth that a job asks for."""

    pattern: str
    mbps: float
    """Rate for each two ranks that talk, each way."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Slurm describes it."""

    number: str
    wish: Wish | None
    hosts: tuple[Host, ...]

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Job:
        """Raises HydraError if Slurm's variables, or the wish in the comment, make no sense."""
        number = job_number(variables)
        names = list(hostnames(variables.get("SLURM_JOB_NODELIST", "")))
        slots = list(_counts(variables.get("SLURM_JOB_CPUS_PER_NODE", "")))
        if not names or len(names) != len(slots):
            raise HydraError(f"job {number}: {len(names)} nodes and the processors of {len(slots)}")
        hosts = tuple(Host(name, count) for name, count in zip(names, slots, strict=True))
        return cls(number, read_wish(variables.get("SLURM_JOB_COMMENT", "")), hosts)


def job_number(variables: Mapping[str, str]) -> str:
    """Raises HydraError if Slurm does not say which job it is."""
    number = variables.get("SLURM_JOB_ID", "")
    if not number:
        raise HydraError("SLURM_JOB_ID is not set: Slurm runs this, see PrologSlurmctld")
    if not _JOB_ID.fullmatch(number):
        raise HydraError(
            f"SLURM_JOB_ID is {number!r}, which is no job's: Slurm sets it where it runs this, see "
            "PrologSlurmctld; by hand, set it to the job's number, as squeue lists it"
        )
    return number


def read_wish(comment: str) -> Wish | None:
    """The ``hydra:PATTERN=MBPS`` in a job's comment; None if it asks for nothing.

    Raises HydraError for a wish that can't be understood.
    """
    found = _WISH.search(comment)
    if found is None:
        return None
    pattern = found["pattern"]
    try:
        mbps = float(found["rate"])
    except ValueError:
        mbps = 0.0
    if pattern not in PATTERNS or not (isfinite(mbps) and mbps > 0):
        raise HydraError(
            f"{found[0].strip()!r} is not hydra:PATTERN=MBPS with a pattern of "
            f"{', '.join(PATTERNS)}"
        )
    return Wish(pattern, mbps)


def hostnames(listed: str) -> Iterator[str]:
    """All names in a list such as ``h[11-12,21],login``."""
    for part in _LISTED.findall(listed):
        pieces = _BRACKET.split(part)
        choices = [
            list(_numbers(piece)) if index % 2 else [piece] for index, piece in enumerate(pieces)
        ]
        yield from map("".join, product(*choices))


def _numbers(text: str) -> Iterator[str]:
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not dash:
            yield first
            continue
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _counts(text: str) -> Iterator[int]:
    """Tasks of each host in a list such as ``4,2(x3)``: 4 on one, 2 on each of three more."""
    for count, times in _COUNT.findall(text):
        for _ in range(int(times or 1)):
            yield int(count)
