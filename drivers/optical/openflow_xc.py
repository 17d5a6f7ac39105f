"""Cross-connects by OpenFlow 1.3: each rule of the switch sends the light of a port out at another.

For optical switches with an OpenFlow agent, and for an Open vSwitch bridge in place of a mirror
array. The switch listens, at ``host:port`` or, on the same machine, at ``unix:/path``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drivers.codecs.openflow import messages
from drivers.codecs.openflow.messages import FlowEntry, OpenFlowError, PortPair, RuleAddress
from drivers.exclusive import exclusive
from drivers.optical.base import BaseSwitch
from drivers.optical.changes import (
    Difference,
    check_ports,
    check_untaken,
    difference,
    not_made,
    shortfall,
    unconfirmed,
)
from drivers.skipped_rows import SkippedRows
from drivers.transports.openflow_session import OpenFlowSession
from drivers.transports.tcp import UNIX_PREFIX, TcpStream, UnixStream
from hydra.config.devices import endpoint_problems, no_login_problems, option_problems
from hydra.errors import DeviceError, Problem, ProtocolError
from hydra.model import CrossConnect, Plane
from hydra.roles import DeviceIdentity, OpticalCapabilities, OpticalSwitch, PortState

CAPABILITIES: Final = OpticalCapabilities(bulk=True, unidirectional=True)

_COOKIE: Final = int.from_bytes(b"hydra-xc", "big")

_PortName = Annotated[int, Field(ge=1, lt=messages.PORT_MAX)] | Annotated[str, Field(min_length=1)]


class OpenFlowOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ingress_ports: list[_PortName] | None = None
    """OpenFlow number or name of ingress port 1, 2, …; by default numbers 1 to ``ports``."""
    egress_ports: list[_PortName] | None = None
    """OpenFlow number or name of egress port 1, 2, …; by default ingress and egress ports are
    equal.
    """
    table: Annotated[int, Field(ge=0, le=254)] = 0
    priority: Annotated[int, Field(ge=1, le=0xFFFF)] = 100
    bundles: bool = True
    """Make a change atomically. False: rule by rule, for switches without bundles."""


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet."""
    try:
        options = OpenFlowOptions.model_validate(dict(plane.options))
    except ValidationError as error:
        raise DeviceError(plane.name, f"options of the openflow-xc driver: {error}") from error
    local = plane.address.startswith(UNIX_PREFIX)
    stream = (UnixStream if local else TcpStream)(plane.name, plane.address)
    session = OpenFlowSession(plane.name, stream, timeout_s=timeout_s)
    return OpenFlowXc(plane.name, session, options, plane.ports)


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    if not plane.address.startswith(f"{UNIX_PREFIX}/"):
        yield from endpoint_problems(plane.address)
    yield from no_login_problems(plane.login)
    problems = list(option_problems(OpenFlowOptions, plane.options))
    yield from problems
    if not problems:
        yield from _port_list_problems(plane)


def _port_list_problems(plane: Plane) -> Iterator[Problem]:
    options = OpenFlowOptions.model_validate(dict(plane.options))
    for side in ("ingress_ports", "egress_ports"):
        listed = getattr(options, side)
        if listed is None:
            continue
        if len(listed) != plane.ports:
            yield Problem(
                f"options.{side}", f"has {len(listed)} of the plane's {plane.ports} ports"
            )
        if len(set(listed)) != len(listed):
            yield Problem(f"options.{side}", "names a port twice")


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Conversion between OpenFlow port numbers and our ports."""

    ingress: tuple[int, ...]
    egress: tuple[int, ...]

    def pair(self, cross: CrossConnect) -> PortPair:
        egress = self.egress[cross.egress - len(self.ingress) - 1]
        return PortPair(self.ingress[cross.ingress - 1], egress)

    def cross_connect(self, pair: PortPair) -> CrossConnect | None:
        """``pair`` by our ports; None unless both are ours."""
        ours = self.ours(pair)
        return CrossConnect(*ours) if len(ours) == 2 else None

    def ours(self, pair: PortPair) -> list[int]:
        """Our ports at the ends of ``pair``, ingress first."""
        ends = [self.ingress.index(pair.in_port) + 1] if pair.in_port in self.ingress else []
        if pair.out_port in self.egress:
            ends.append(len(self.ingress) + 1 + self.egress.index(pair.out_port))
        return ends


class OpenFlowXc(BaseSwitch):
    """An :class:`~hydra.roles.OpticalSwitch`.

    Each cross-connect is one rule: in at a port, out at another, so directions are independent. A
    change is one atomic bundle, confirmed by a barrier and read back from the flow statistics.
    """

    CAPABILITIES = CAPABILITIES

    def __init__(
        self, name: str, session: OpenFlowSession, options: OpenFlowOptions, ports: int
    ) -> None:
        super().__init__(name)
        self._session = session
        self._options = options
        self._skipped_rows = SkippedRows(name)
        self._rules = RuleAddress(options.table, options.priority, _COOKIE)
        ingress = options.ingress_ports or list(range(1, ports + 1))
        self._sides = (ingress, options.egress_ports or ingress)

    @exclusive
    def open(self) -> None:
        """Connect and check that the ports exist; a second call on an open device does nothing."""
        self._session.open()
        self._numbers()

    def _drop(self) -> None:
        self._session.close()

    @exclusive
    def identity(self) -> DeviceIdentity:
        body = self._session.query(messages.MULTIPART_DESC)
        try:
            found = messages.decode_description(body)
        except OpenFlowError as error:
            raise self._nonsense(error) from error
        return DeviceIdentity(found.manufacturer, found.hardware, found.serial, found.software)

    def _read_size(self) -> tuple[int, int]:
        """Numbers of configured ports. Raises DeviceError if the switch lacks a configured port."""
        numbers = self._numbers()
        return len(numbers.ingress), len(numbers.egress)

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """Cross-connects read from the flow table, including other users' rules."""
        return self._read(self._numbers())

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Tear down and set up in one bundle; return once the result was read back.

        Cross-connects already as wanted are left alone, so repeating a change moves nothing.
        """
        numbers = self._numbers()
        check_ports(self._name, self.size(), {*disconnect, *connect})
        change = difference(self._name, self._read(numbers), disconnect, connect)
        check_untaken(self._name, change.added, self._taken)
        if not change:
            return
        self._session.write(lambda xid: self._messages(change, numbers, xid))
        try:
            present = self._read(numbers)
        except DeviceError as error:
            raise unconfirmed(self._name, error) from error
        if problems := shortfall(change, present):
            raise not_made(self._name, ["the switch reports no error", *problems])

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of the given ports: DISABLED if configuration switched the port off."""
        down = {port.number for port in self._descriptions() if port.down}
        numbers = self._numbers()
        both = (*numbers.ingress, *numbers.egress)
        return {
            port: PortState.DISABLED if both[port - 1] in down else PortState.ENABLED
            for port in ports
        }

    # --- messages -------------------------------------------------------------------------------

    def _messages(self, change: Difference, numbers: _Numbers, xid: int) -> bytes:
        rules = [
            messages.encode_disconnect(numbers.pair(cross), self._rules, xid)
            for cross in sorted(change.removed)
        ]
        rules += [
            messages.encode_connect(numbers.pair(cross), self._rules, xid)
            for cross in sorted(change.added)
        ]
        if not self._options.bundles:
            return b"".join(rules)
        return b"".join(
            [
                messages.encode_bundle_control(xid, messages.BUNDLE_OPEN, xid),
                *(messages.encode_bundled(rule, xid, xid) for rule in rules),
                messages.encode_bundle_control(xid, messages.BUNDLE_COMMIT, xid),
            ]
        )

    def _read(self, numbers: _Numbers) -> frozenset[CrossConnect]:
        body = self._session.query(
            messages.MULTIPART_FLOW, messages.flow_stats_body(self._options.table)
        )
        try:
            entries = messages.decode_flow_entries(body)
        except OpenFlowError as error:
            raise self._nonsense(error) from error
        pairs = [pair for entry in entries if (pair := self._pair(entry)) is not None]
        self._note_others(pairs, numbers)
        found = map(numbers.cross_connect, pairs)
        # Light may not pass our rule if another rule leads light from the same port elsewhere.
        return frozenset(c for c in found if c is not None and c.ingress not in self._taken)

    def _note_others(self, pairs: Iterable[PortPair], numbers: _Numbers) -> None:
        """Note our ports that another controller's rule joins to a foreign port, and log the
        rules.
        """
        taken: dict[int, str] = {}
        odd: dict[str, str] = {}
        for pair in pairs:
            ours = numbers.ours(pair)
            if len(ours) == 1:
                joined = f"a rule joining OpenFlow ports {pair.in_port} and {pair.out_port}"
                taken[ours[0]] = f"in use by {joined}: list both, or remove the rule"
                odd[joined] = (
                    f"{joined}, one of them missing in options.ingress_ports and egress_ports"
                )
        self._taken = taken
        self._skipped_rows.note("cross-connects", odd)

    def _pair(self, entry: FlowEntry) -> PortPair | None:
        """Ports that a rule joins; None for the catch-all rule that drops."""
        pair = entry.pair
        if pair is None:
            if entry.drops and not entry.match:
                return None
            raise DeviceError(
                self._name,
                f"table {entry.table} has a rule of priority {entry.priority}, no "
                "cross-connect: remove the rule, and set fail_mode to secure on an Open vSwitch "
                "bridge",
            )
        return pair

    def _numbers(self) -> _Numbers:
        """Numbers of our ports, read for each call: a bridge may number its ports anew."""
        present = self._descriptions()
        known = {port.name: port.number for port in present}
        numbers = {port.number for port in present}
        ingress, egress = (
            tuple(self._number(port, known, numbers) for port in side) for side in self._sides
        )
        return _Numbers(ingress, egress)

    def _number(self, port: int | str, known: Mapping[str, int], numbers: set[int]) -> int:
        number = known.get(port) if isinstance(port, str) else port
        if number is None or number not in numbers:
            raise DeviceError(self._name, f"the switch has no OpenFlow port {port}")
        return number

    def _descriptions(self) -> tuple[messages.PortDescription, ...]:
        body = self._session.query(messages.MULTIPART_PORT_DESC)
        try:
            return messages.decode_port_descriptions(body)
        except OpenFlowError as error:
            raise self._nonsense(error) from error

    def _nonsense(self, error: OpenFlowError) -> ProtocolError:
        self._session.close()
        return ProtocolError(self._name, str(error))
