"""The error tree. Every error message for operators names the thing, the value and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hydra.failures import Failure, FailureKind


class HydraError(Exception):
    """Root of all errors that the project raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a configuration file.

    ``path`` is the location inside the file, e.g. ``racks[2].prefixes[0]``; empty for the whole
    file. ``line`` counts from 1; None if unknown.
    """

    path: str
    message: str
    line: int | None = None
    count: int = 1
    """Number of problems that the entry stands for, including itself; the message states the
    number.
    """

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.line or ""), self.path, self.message) if part)


class ConfigError(HydraError):
    """An unusable configuration file, with *all* problems."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        self.count = sum(problem.count for problem in problems)
        """Number of problems, including problems without an entry."""
        super().__init__(
            "\n".join(
                f"{source}:{problem}" if problem.line else f"{source}: {problem}"
                for problem in problems
            )
        )


class PlanError(HydraError):
    """No topology meets the request; the message names the limit."""


class UnknownName(HydraError):
    """A request names a rack, server, plane, algorithm or resource that does not exist."""


class WrongRequest(HydraError):
    """A request that is invalid regardless of other reservations: names or numbers that contradict
    each other.
    """

    def __init__(self, message: str, field: str) -> None:
        self.place: tuple[str | int, ...] = (field,)
        """Path to the invalid field: keys from the root of the request."""
        self.entry: int | None = None
        """Index of the invalid request in a list of requests, from 0; None: a single request."""
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Alternative:
    """An alternative to a refused reservation."""

    bandwidth_mbps: float
    start_unix_s: float | None
    """None: the requested start."""
    end_unix_s: float | None = None
    """None: the requested end, or the requested duration from a later start."""
    racks: tuple[str, ...] | None = None
    """Racks of a smaller shape; None: the requested ends."""


class AdmissionError(HydraError):
    """A reservation beyond the capacity of the fabric."""

    def __init__(
        self,
        message: str,
        alternatives: Sequence[Alternative] = (),
        in_public: str | None = None,
    ) -> None:
        self.alternatives = tuple(alternatives)
        self.in_public = message if in_public is None else in_public
        """The message without details of other reservations."""
        super().__init__(message)

    def discreet(self) -> AdmissionError:
        """The same refusal for clients without access to other reservations."""
        return type(self)(self.in_public, self.alternatives)


class NoRoom(AdmissionError):
    """A reservation without room beside other reservations and blocked ports."""


class DeviceMissing(AdmissionError):
    """A refusal because devices are unreachable."""


class QuotaExceeded(AdmissionError):
    """A reservation beyond the quota of its tenant."""


class NotHitless(AdmissionError):
    """A change that needs an interruption."""


class LifecycleError(HydraError):
    """A transition that the state of a resource does not allow."""


class KeyReused(HydraError):
    """An idempotency key repeated with a different request."""


class Changed(HydraError):
    """A resource has changed since the client read it."""


class DeviceError(HydraError):
    """A device refused, or violated its protocol."""

    kind: ClassVar[FailureKind] = FailureKind.REFUSED

    def __init__(self, device: str, message: str) -> None:
        self.device = device
        super().__init__(f"{device}: {message}")

    def failure(self, step: str) -> Failure:
        """The error as the failure of ``step``."""
        return Failure(step, self.device, self.kind, str(self))


class DeviceUnavailable(DeviceError):
    """The device is unreachable; nothing was written."""

    kind = FailureKind.NOT_CONNECTED


class PortsMissing(DeviceError):
    """The device lacks some of the ports; nothing was written."""

    def __init__(self, device: str, message: str, ports: Collection[str]) -> None:
        self.ports = frozenset(ports)
        super().__init__(device, message)


class HeldElsewhere(DeviceError):
    """Another controller holds the device; nothing was written."""

    kind = FailureKind.TAKEN_OVER

    def __init__(self, device: str, message: str, generation: int | None = None) -> None:
        self.generation = generation
        """Generation of the leader that holds the device; None if the device reports none."""
        super().__init__(device, message)


class ProtocolError(DeviceError):
    """Bytes from the device outside its grammar."""

    kind = FailureKind.MALFORMED


class NotProbed(DeviceError):
    """The switch at an end of a probe does not answer; the path may be good."""

    kind = FailureKind.NOT_PROBED


class OutcomeUnknown(DeviceError):
    """A write was sent and the reply was lost: the write may or may not have taken effect.

    Never treat the error as a failure; read the device back.
    """

    kind = FailureKind.UNKNOWN


class AwaitsPeople(OutcomeUnknown):
    """People were asked to make the change, and have not reported the outcome."""

    kind = FailureKind.AWAITS_PEOPLE
