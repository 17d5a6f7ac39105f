"""The base of drivers of optical switches that move cross-connects step by step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel

from drivers.exclusive import exclusive
from drivers.optical.base import ReadBackSwitch
from drivers.optical.changes import Difference, not_made, shortfall, unconfirmed
from hydra.config.devices import (
    NoOptions,
    endpoint_problems,
    login_problems,
    no_login_problems,
    option_problems,
)
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, Problem, ProtocolError
from hydra.model import CrossConnect, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch

Step = Callable[[], object]
"""An exchange that moves mirrors.

A step raises DeviceUnavailable if nothing was sent, OutcomeUnknown if the answer got lost,
DeviceError for a refusal.
"""


class Session(Protocol):
    """The way to a device: connects on first use, and again after every failure."""

    def close(self) -> None:
        """Drop the connection; safe to repeat."""


_SessionT = TypeVar("_SessionT", bound=Session)


class SteppedSwitch(ReadBackSwitch, Generic[_SessionT]):
    """An :class:`~hydra.roles.OpticalSwitch`; a driver implements the abstract methods.

    Abstract methods are called by one thread at a time, and raise the errors of
    :mod:`drivers.transports`: see :data:`Step`. This class checks ports, reduces a change to its
    moves, reads back, and distinguishes a refusal from an unknown outcome. A derived class may
    stand in ``drivers/registry.py``.

    ``timeout_s`` limits each command.
    """

    CAPABILITIES: ClassVar[OpticalCapabilities] = OpticalCapabilities(unidirectional=True)
    OPTIONS: ClassVar[type[BaseModel]] = NoOptions
    """``options`` of a plane; forbids extra keys."""
    LOGIN: ClassVar[bool] = True
    """True if the device needs a user and a password."""

    def __init__(self, plane: Plane, timeout_s: float) -> None:
        super().__init__(plane.name)
        self._plane = plane
        self._timeout_s = timeout_s
        self._session = self._reach()

    # --- the device, in its language --------------------------------------------------------------

    @abstractmethod
    def _reach(self) -> _SessionT:
        """The session to ``_plane``, not connected yet."""

    @abstractmethod
    def _listed(self) -> Iterable[tuple[int, int]]:
        """(ingress, egress) of all cross-connects, read from the device; egress from N + 1 on.

        A LookupError, TypeError or ValueError counts as an answer that makes no sense.
        """

    @abstractmethod
    def _steps(self, change: Difference) -> Iterable[Step]:
        """Steps of ``change``, in order; each step returns once the device has carried it out."""

    def _read_identity(self) -> DeviceIdentity:
        """Identity reported by the device; by default unknown, after a check that the device
        answers.
        """
        self._parsed()
        return DeviceIdentity("unknown", "unknown", "unknown", "unknown")

    def _read_size(self) -> tuple[int, int]:
        """Numbers of (ingress, egress) ports; as configured, if the device answers at all."""
        self._parsed()
        return self._plane.ports, self._plane.ports

    # --- the role ---------------------------------------------------------------------------------

    @classmethod
    def build(cls, plane: Plane, timeout_s: float) -> OpticalSwitch:
        """The driver of ``plane``, not connected yet. Raises DeviceError for unusable options."""
        return cls(plane, timeout_s)

    @classmethod
    def check(cls, plane: Plane) -> Iterator[Problem]:
        """Problems of ``plane``'s address, login and options."""
        yield from endpoint_problems(plane.address)
        yield from login_problems(plane.login) if cls.LOGIN else no_login_problems(plane.login)
        yield from option_problems(cls.OPTIONS, plane.options)

    @exclusive
    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing."""
        self.size()

    def _drop(self) -> None:
        self._session.close()

    @exclusive
    def identity(self) -> DeviceIdentity:
        return self._read_identity()

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """Read from the device, never from memory."""
        return self._parsed()

    def _make(self, change: Difference) -> None:
        refusal = self._carry_out(change)
        self._check_result(change, refusal)

    def _parsed(self) -> frozenset[CrossConnect]:
        try:
            return frozenset(CrossConnect(int(a), int(b)) for a, b in self._listed())
        except (LookupError, TypeError, ValueError) as error:
            why = f"cross-connects can't be read: {type(error).__name__}: {error}"
            raise ProtocolError(self._name, why) from error

    def _carry_out(self, change: Difference) -> str | None:
        """Take the steps; return the device's refusal, None if the device took all steps."""
        for taken, step in enumerate(self._steps(change)):
            try:
                step()
            except OutcomeUnknown:
                raise
            except DeviceUnavailable as error:
                if taken:  # a part of the change is made
                    raise unconfirmed(self._name, error) from error
                raise
            except ProtocolError as error:
                raise unconfirmed(self._name, error) from error
            except DeviceError as error:
                return str(error).removeprefix(f"{self._name}: ")
        return None

    def _check_result(self, change: Difference, refusal: str | None) -> None:
        try:
            present = self.cross_connects()
        except DeviceError as error:
            raise unconfirmed(self._name, error) from error
        problems = shortfall(change, present)
        if refusal is not None or problems:
            raise not_made(self._name, [refusal or "the device reports no error", *problems])


class SimpleSwitch(SteppedSwitch[_SessionT]):
    """A :class:`SteppedSwitch` that moves a single cross-connect at a time."""

    @abstractmethod
    def _disconnect(self, old: CrossConnect) -> None:
        """Take down a cross-connect; return once the device has done so."""

    @abstractmethod
    def _connect(self, new: CrossConnect) -> None:
        """Set up a cross-connect between free ports; return once the device has done so."""

    def _steps(self, change: Difference) -> Iterator[Step]:
        for old in sorted(change.removed):
            yield partial(self._disconnect, old)
        for new in sorted(change.added):
            yield partial(self._connect, new)
