"""The one error tree. Every error an operator sees names the thing, the value and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hydra.failures import Failure, FailureKind


class HydraError(Exception):
    """Root of everything this project raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a configuration file.

    ``path`` locates it inside the file, e.g. ``racks[2].prefixes[0]``; it is empty for the file as
    a whole. ``line`` counts from 1 and is None where unknown.
    """

    path: str
    message: str
    line: int | None = None
    count: int = 1
    """Number of problems that this one stands for, itself among them; the message tells it."""

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.line or ""), self.path, self.message) if part)


class ConfigError(HydraError):
    """A configuration file that can't be used; carries *all* of its problems."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        self.count = sum(problem.count for problem in problems)
        """Number of problems, those without a line of their own among them."""
        super().__init__(
            "\n".join(
                f"{source}:{problem}" if problem.line else f"{source}: {problem}"
                for problem in problems
            )
        )


class PlanError(HydraError):
    """No topology meets the request; the message says which limit stands in the way."""


class UnknownName(HydraError):
    """A request names a rack, server, plane, algorithm or resource that does not exist."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """An alternative to a reservation that was refused."""

    bandwidth_mbps: float
    start_unix_s: float | None
    """None: from the time that was asked for."""
    end_unix_s: float | None = None
    """None: as asked for, or, where it starts later, as long after that."""


class AdmissionError(HydraError):
    """A reservation that would exceed what the fabric can carry."""

    def __init__(
        self,
        message: str,
        alternatives: Sequence[Alternative] = (),
        in_public: str | None = None,
    ) -> None:
        self.alternatives = tuple(alternatives)
        self.in_public = message if in_public is None else in_public
        """The message without anything about others' reservations."""
        super().__init__(message)

    def discreet(self) -> AdmissionError:
        """The same refusal, for those who may not know of others' reservations."""
        return type(self)(self.in_public, self.alternatives)


class NoRoom(AdmissionError):
    """A reservation that does not fit beside others and what is out of use."""


class DeviceMissing(AdmissionError):
    """A reservation that is refused because devices can't be reached."""


class QuotaExceeded(AdmissionError):
    """A reservation that would exceed what its tenant may have."""


class NotHitless(AdmissionError):
    """A change that can't be made without an interruption."""


class LifecycleError(HydraError):
    """A transition that the state of a resource does not allow."""


class KeyReused(HydraError):
    """An idempotency key that came again with another request."""


class Changed(HydraError):
    """A resource is no longer what the client saw."""


class DeviceError(HydraError):
    """A device refused, or answered something its protocol does not allow."""

    kind: ClassVar[FailureKind] = FailureKind.REFUSED

    def __init__(self, device: str, message: str) -> None:
        self.device = device
        super().__init__(f"{device}: {message}")

    def failure(self, step: str) -> Failure:
        """The failure of a step that this error is."""
        return Failure(step, self.device, self.kind, str(self))


class DeviceUnavailable(DeviceError):
    """The device can't be reached; nothing was written."""

    kind = FailureKind.NOT_CONNECTED


class PortsMissing(DeviceError):
    """The device has some of these ports no more, or never had them; nothing was written."""

    def __init__(self, device: str, message: str, ports: Collection[str]) -> None:
        self.ports = frozenset(ports)
        super().__init__(device, message)


class HeldElsewhere(DeviceError):
    """Another controller holds the device; nothing was written."""

    kind = FailureKind.TAKEN_OVER

    def __init__(self, device: str, message: str, generation: int | None = None) -> None:
        self.generation = generation
        """Generation of the leader that holds the device; None: the device tells none."""
        super().__init__(device, message)


class ProtocolError(DeviceError):
    """Bytes from the device that its grammar does not contain."""

    kind = FailureKind.MALFORMED


class NotProbed(DeviceError):
    """The switch that should send or hear a probe answers nothing: the path may be good."""

    kind = FailureKind.NOT_PROBED


class OutcomeUnknown(DeviceError):
    """A write was sent and its reply lost: it may or may not have taken effect.

    Never treat this as failure; read the device back.
    """

    kind = FailureKind.UNKNOWN


class AwaitsPeople(OutcomeUnknown):
    """People were asked to make the change, and have not said yet what became of it."""

    kind = FailureKind.AWAITS_PEOPLE
