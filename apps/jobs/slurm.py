"""Slurm's description of a job, for programs that Slurm runs before and after the job.

A job asks for bandwidth in its comment: ``sbatch --comment hydra:all-to-all=5 …``, or ``--comment
hydra:shape:ring=most …`` for a shape of its racks. Variables:
slurm.conf(5), PrologSlurmctld; notation of host lists: scontrol(1), ``show hostnames``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import isfinite, prod
from typing import Final

from apps.jobs.mpi import PATTERNS, Host
from hydra.errors import HydraError

_JOB_ID: Final = re.compile(r"[0-9]{1,20}")
_WISH: Final = re.compile(
    r"""(?<![\w-])hydra\s*[:=]      # also after a comma, a semicolon, a quote
        (?P<pattern>[^\s=,;"']*)=?
        (?P<rate>[^\s,;"']*(?:,\d[^\s;]*)?)  # a comma before a digit is part of a rate, a wrong one
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SHAPE: Final = "shape:"
_LISTED: Final = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET: Final = re.compile(r"\[([^\]]*)\]")
_RANGE: Final = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NODES: Final = "SLURM_JOB_NODELIST"
_PROCESSORS: Final = "SLURM_JOB_CPUS_PER_NODE"
_MOST_HOSTS: Final = 65_536
"""Slurm's own bound of a range (MAX_RANGE)."""
_COUNT: Final = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")


@dataclass(frozen=True, slots=True)
class Wish:
    """Bandwidth requested by a job."""

    pattern: str
    mbps: float | None
    """Rate for each pair of communicating ranks, or of joined racks, each way; None: the most."""
    of_racks: bool = False
    """True for the pattern of a shape, between the job's racks instead of its ranks."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as described by Slurm."""

    number: str
    wish: Wish | None
    hosts: tuple[Host, ...]

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> Job:
        """The job of Slurm's variables.

        Raises HydraError if the variables, or the wish in the comment, make no sense.
        """
        number = job_number(variables)
        missing = [name for name in (_NODES, _PROCESSORS) if not variables.get(name)]
        if missing:
            raise HydraError(
                f"job {number}: {' and '.join(missing)} not set: Slurm sets them where it runs "
                f"this, see PrologSlurmctld; by hand, set {_NODES} as h[11-12] and {_PROCESSORS} "
                "as 4(x2)"
            )
        names = list(hostnames(variables[_NODES]))
        slots = list(_counts(variables[_PROCESSORS]))
        if len(names) != len(slots):
            raise HydraError(
                f"job {number}: {_NODES} names {len(names)} nodes, and {_PROCESSORS} the "
                f"processors of {len(slots)}: give as many of both"
            )
        hosts = tuple(Host(name, count) for name, count in zip(names, slots, strict=True))
        return cls(number, read_wish(variables.get("SLURM_JOB_COMMENT", "")), hosts)


def job_number(variables: Mapping[str, str]) -> str:
    """The job's number. Raises HydraError if Slurm's variables do not contain a job's number."""
    number = variables.get("SLURM_JOB_ID", "")
    if not number:
        raise HydraError("SLURM_JOB_ID is not set: run the command from Slurm, see PrologSlurmctld")
    if not _JOB_ID.fullmatch(number):
        raise HydraError(
            f"SLURM_JOB_ID is {number!r}, not a job's number: Slurm sets the variable, see "
            "PrologSlurmctld; by hand, set the job's number from squeue"
        )
    return number


def read_wish(comment: str) -> Wish | None:
    """The ``hydra:PATTERN=MBPS`` in a job's comment; None if the comment does not name ``hydra:``.

    Other words of the comment stand apart by blanks, commas, semicolons or quotes; capitals do not
    matter. Raises HydraError for an unclear wish, and for a second wish.
    """
    found = list(_WISH.finditer(comment))
    if not found:
        return None
    if len(found) > 1:
        raise HydraError(
            f"the comment {comment!r} asks for bandwidth {len(found)} times: write one "
            "hydra:PATTERN=MBPS"
        )
    named, pattern = found[0]["pattern"].lower(), found[0]["pattern"].lower().removeprefix(_SHAPE)
    of_racks = pattern != named
    if of_racks and pattern and found[0]["rate"].lower() == "most":
        return Wish(pattern, None, of_racks)
    try:
        mbps = float(found[0]["rate"])
    except ValueError:
        mbps = 0.0
    is_named_right = re.match(r"hydra:", found[0][0], re.IGNORECASE) is not None
    is_known = bool(pattern) if of_racks else pattern in PATTERNS
    if not is_named_right or not is_known or not (isfinite(mbps) and mbps > 0):
        raise HydraError(
            f"{found[0][0].strip()!r} is not hydra:PATTERN=MBPS with a pattern of "
            f"{', '.join(PATTERNS)} and a rate such as 2.5; nor hydra:shape:PATTERN=MBPS with the "
            "pattern of a shape, such as ring, and a rate, or most"
        )
    return Wish(pattern, mbps, of_racks)


def hostnames(listed: str) -> Iterator[str]:
    """All names in a list such as ``h[11-12,21],login``.

    Raises HydraError for a list unlike Slurm's.
    """
    if re.sub(r"[^\[\]]", "", listed).replace("[]", ""):
        raise _no_list(listed, "brackets do not pair")
    hosts = 0
    for part in _LISTED.findall(listed):
        pieces = _BRACKET.split(part)
        choices = [
            list(_numbers(piece, listed)) if index % 2 else [piece]
            for index, piece in enumerate(pieces)
        ]
        hosts += prod(map(len, choices))
        if hosts > _MOST_HOSTS:
            raise _no_list(listed, f"the list names more than {_MOST_HOSTS} hosts")
        yield from map("".join, product(*choices))


def _numbers(text: str, listed: str) -> Iterator[str]:
    """The numbers in a bracket. Raises HydraError."""
    for item in text.split(","):
        found = _RANGE.fullmatch(item)
        if found is None:
            raise _no_list(listed, f"[{item}] is neither a number nor a range of numbers")
        first, last = found[1], found[2] or found[1]
        if not 0 <= int(last) - int(first) < _MOST_HOSTS:
            raise _no_list(listed, f"[{item}] goes down, or names more than {_MOST_HOSTS} hosts")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def _no_list(listed: str, why: str) -> HydraError:
    return HydraError(
        f"SLURM_JOB_NODELIST {listed!r} is no list of Slurm's: {why}; `scontrol show hostnames` "
        "must take it apart"
    )


def _counts(text: str) -> Iterator[int]:
    """Processors of each host in a list such as ``4,2(x3)``: 4 on one host, 2 on each of 3 more.

    Raises HydraError.
    """
    for item in filter(None, text.split(",")):
        found = _COUNT.fullmatch(item)
        if found is None or int(found[2] or 1) > _MOST_HOSTS:
            raise HydraError(
                f"SLURM_JOB_CPUS_PER_NODE is {text!r}, unknown in Slurm: {item!r} is no "
                "number of processors, such as 4 or 2(x3)"
            )
        for _ in range(int(found[2] or 1)):
            yield int(found[1])
