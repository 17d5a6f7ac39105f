"""Polatis optical circuit switches over RESTCONF (port 8008)."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Final, Self, TypeVar

import httpx
from pydantic import model_validator

from drivers.codecs import polatis_restconf as codec
from drivers.codecs.yang_json import YangJsonError
from drivers.exclusive import exclusive
from drivers.optical import polatis_model
from drivers.optical.changes import (
    Difference,
    check_ports,
    difference,
    not_made,
    shortfall,
    unconfirmed,
)
from drivers.optical.light import AlarmThresholds, Attenuator, LightOptions
from drivers.transports.restconf import RestconfSession
from drivers.transports.tls import TlsOptions
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, OutcomeUnknown, Problem, ProtocolError
from hydra.model import CrossConnect, Login, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch, PortState

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True, power_readings=True)

_LOOKED_AT: Final = (httpx.codes.PRECONDITION_FAILED, httpx.codes.NOT_FOUND)
"""Statuses that may mean success or failure: the list of cross-connects, read again, decides."""
_T = TypeVar("_T")
_log: Final = logging.getLogger(__name__)


class Options(TlsOptions, LightOptions):
    """``options`` of a plane."""

    tls: bool = False
    """False: plain HTTP, the usual protocol of the switches on port 8008."""

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if not self.tls and (self.ca_file or self.server_name):
            raise ValueError("ca_file and server_name mean nothing without tls: true")
        return self


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet. Raises DeviceError without a login."""
    if plane.login is None:
        raise DeviceError(plane.name, "RESTCONF wants a login")
    options = Options.model_validate(dict(plane.options))
    return PolatisRestconf(plane.name, plane.address, plane.login, options, timeout_s=timeout_s)


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    yield from endpoint_problems(plane.address)
    yield from login_problems(plane.login)
    yield from option_problems(Options, plane.options)


class PolatisRestconf(polatis_model.PolatisYangSwitch):
    """An :class:`~hydra.roles.OpticalSwitch`.

    Ingress ports are 1..N, egress ports N+1..N+M. All connections that a change makes or aims anew
    are one request. Before, each removed cross-connect whose ingress port stays free is a request
    of its own. Each request names the ETag of the list as last read: if another client has changed
    the list since, a switch with ETags refuses the request, and the list is read again.
    ``timeout_s`` covers each step of a request.
    """

    CAPABILITIES = CAPABILITIES

    def __init__(
        self, name: str, address: str, login: Login, options: Options, *, timeout_s: float
    ) -> None:
        super().__init__(name, options)
        self._timeout_s = timeout_s
        self._session = RestconfSession(
            name,
            address,
            login,
            "api",
            tls=options if options.tls else None,
            timeout_s=timeout_s,
        )

    @exclusive
    def open(self) -> None:
        """Connect and log in; a second call on an open device does nothing.

        Warns of a device that loses its cross-connects with its power, and of attenuators and alarm
        thresholds that contradict the owner's expectations.
        """
        if self._session.connected:
            return
        self.identity()
        self._warn_at_attach(self._start())

    def _start(self) -> str | None:
        """The start-up mode; None if the switch does not report the mode."""
        answer = self._session.get(codec.START)
        if answer.status_code != httpx.codes.OK:
            return None
        try:
            return self._understood(codec.parse_start, answer)
        except ProtocolError as error:
            _log.info("%s does not report a start-up mode: %s", self._name, error)
            return None

    def _drop(self) -> None:
        self._session.close()

    @exclusive
    def identity(self) -> DeviceIdentity:
        found = self._understood(codec.parse_product, self._got(codec.PRODUCT))
        return DeviceIdentity(found.manufacturer, found.model, found.serial, found.software)

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """Read from the device, never from memory."""
        return self._listed()[0]

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down, then set up; return once the switch lists the result.

        Cross-connects already as wanted are left alone, so repeating a change moves nothing.
        """
        disconnect, connect = frozenset(disconnect), frozenset(connect)
        check_ports(self._name, self.size(), disconnect | connect)
        taken: list[str] = []
        try:
            refused, present = self._made(disconnect, connect, taken)
        except OutcomeUnknown:
            raise
        except DeviceError as error:
            if taken:
                raise unconfirmed(self._name, error) from error
            raise
        problems = shortfall(Difference(disconnect - connect, connect, connect), present)
        if refused or problems:
            raise not_made(self._name, [*refused, *problems])

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of the given ports; words unknown to this driver read as UNKNOWN."""
        answer = self._session.get(codec.PORTS)
        if answer.status_code == httpx.codes.NOT_FOUND:
            answer = self._session.get(codec.OLD_PORTS)
        self._session.check(answer)
        words = self._understood(codec.parse_port_states, answer)
        return {port: polatis_model.port_state(words.get(port)) for port in ports}

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        asked = self._asked(ports)
        if not asked:
            return {}
        readings = self._listed_ports(codec.POWER, codec.parse_powers)
        return {port: readings.get(port) for port in asked}

    # --- changes --------------------------------------------------------------------------------

    def _made(
        self, disconnect: Set[CrossConnect], connect: Set[CrossConnect], taken: list[str]
    ) -> tuple[list[str], Set[CrossConnect]]:
        """Return (refusals by the switch, cross-connects afterwards); append each done request to
        ``taken``.
        """
        give_up_at, least = math.inf, math.inf
        while True:
            present, tag = self._listed()
            change = difference(self._name, present, disconnect, connect)
            if not change:
                return [], present
            left = len(change.removed) + len(change.added)
            if left < least:  # progress, if only by one step for each reading
                give_up_at, least = time.monotonic() + self._timeout_s, left
            self._check_light(change.added)
            refusals = self._carry_out(change, tag, taken)
            if refusals is not None:
                return refusals, self.cross_connects()
            if time.monotonic() > give_up_at:
                raise DeviceError(
                    self._name,
                    "other clients change the switch all the time: stop the other clients, and try "
                    "again",
                )

    def _carry_out(self, change: Difference, tag: str | None, taken: list[str]) -> list[str] | None:
        """Refusals by the switch; None if another client has changed the switch since ``tag``."""
        moved = {new.ingress for new in change.added}
        requests: list[tuple[str, str, bytes | None]] = [
            ("DELETE", codec.pair_resource(old.ingress), None)
            for old in sorted(change.removed)
            if old.ingress not in moved
        ]
        if change.added:
            requests.append(("PATCH", codec.CROSS_CONNECTS, codec.pairs_text(sorted(change.added))))
        for method, path, body in requests:
            headers = {} if tag is None else {"If-Match": tag}
            answer = self._session.change(method, path, body, headers, _LOOKED_AT)
            if answer.status_code == httpx.codes.PRECONDITION_FAILED:
                return None
            if not (answer.is_success or _is_gone(method, answer)):
                return [self._session.refusal(answer)]
            taken.append(path)
            tag = answer.headers.get("ETag", tag)
        return []

    # --- reading --------------------------------------------------------------------------------

    def _listed(self) -> tuple[frozenset[CrossConnect], str | None]:
        """Cross-connects, and the ETag of their list."""
        answer = self._got(codec.CROSS_CONNECTS)
        pairs = self._understood(codec.parse_pairs, answer)
        return frozenset(map(CrossConnect._make, pairs)), answer.headers.get("ETag")

    def _attenuators(self, ports: Collection[int]) -> Mapping[int, Attenuator]:
        found = self._listed_ports(codec.ATTENUATORS, codec.parse_attenuators)
        return {
            port: polatis_model.attenuator(entry.mode, entry.level)
            for port, entry in found.items()
            if port in ports
        }

    def _thresholds(self) -> Mapping[int, AlarmThresholds]:
        found = self._listed_ports(codec.THRESHOLDS, codec.parse_thresholds)
        return {
            port: polatis_model.thresholds(entry.mode, entry.low_dbm, entry.high_dbm)
            for port, entry in found.items()
        }

    def _listed_ports(self, path: str, read: Callable[[bytes], dict[int, _T]]) -> dict[int, _T]:
        """Entries by port; none on a switch without the list."""
        answer = self._session.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return {}
        self._session.check(answer)
        return self._understood(read, answer)

    def _got(self, path: str) -> httpx.Response:
        answer = self._session.get(path)
        self._session.check(answer)
        return answer

    def _understood(self, read: Callable[[bytes], _T], answer: httpx.Response) -> _T:
        try:
            return read(answer.content)
        except YangJsonError as error:
            raise ProtocolError(self._name, f"{answer.url.path}: {error}") from error


def _is_gone(method: str, answer: httpx.Response) -> bool:
    """True if the object to delete does not exist any more."""
    return method == "DELETE" and answer.status_code == httpx.codes.NOT_FOUND
