"""The interface between OpenFlow's side and the controller, for both packages."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hydra.errors import HydraError
from hydra.failures import FailureKind


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A switch port as described by the switch."""

    number: int
    name: str
    up: bool
    """Neither administratively down, in one direction or both, nor without carrier."""


class SwitchConnection(Protocol):
    """OpenFlow connection; used in the hub's thread only."""

    @property
    def address(self) -> str:
        """Address of the other end, with the port."""

    def send(self, message: bytes) -> None:
        """Send in order; does not wait until the switch reads."""

    def ask(self, report: Callable[[bool], None]) -> None:
        """Send an echo request; ``report``, within ECHO_S and a little, whether the switch
        answered.
        """

    def close(self) -> None: ...


class Sums(NamedTuple):
    """Counters from a reply about a table's rules, by subject."""

    octets: NDArray[np.uint64]
    age_s: float
    """Age of the oldest rule, by the switch's clock."""


class SumRequest(bytes):
    """A request for statistics of a table's rules, for which sums by subject are enough.

    Connections with ``takes_sums`` may answer with the sums.
    """

    xid: int
    mask: int
    """Bits of the rules' cookies that hold the subject."""
    subjects: int
    """Number of subjects, counted from 1."""

    @classmethod
    def of(cls, message: bytes, xid: int, mask: int, subjects: int) -> SumRequest:
        request = cls(message)
        request.xid, request.mask, request.subjects = xid, mask, subjects
        return request


class SwitchEvents(Protocol):
    """Receiver of the OpenFlow side's reports; called in the hub's thread, must not block."""

    def knows(self, datapath: int) -> bool:
        """False for a switch outside the fabric: no further messages of the switch are read."""
        ...

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None: ...

    def switch_disconnected(self, datapath: int, connection: SwitchConnection) -> None: ...

    def switch_refused(self, datapath: int | None, address: str, why: str) -> None:
        """A connection did not become a switch's.

        ``datapath`` is None if the switch did not get as far as its datapath id. ``address`` is the
        address of the other end, with the port; ``why`` is a sentence with the remedy.
        """

    def port_changed(
        self, datapath: int, connection: SwitchConnection, port: PortInfo, *, deleted: bool
    ) -> None: ...

    def barrier_replied(self, connection: SwitchConnection, xid: int) -> None: ...

    def error_replied(
        self, connection: SwitchConnection, xid: int, kind: FailureKind, error: str
    ) -> None: ...

    def statistics_replied(
        self, connection: SwitchConnection, xid: int, body: bytes, *, more: bool
    ) -> None: ...

    def role_replied(self, connection: SwitchConnection, xid: int, generation: int) -> None: ...

    def role_taken(self, datapath: int, connection: SwitchConnection, generation: int) -> None:
        """Another controller has become a switch's master, with the given generation."""

    def rule_ended(self, datapath: int, connection: SwitchConnection, cookie: int) -> None:
        """A rule that reports its end has ended by itself."""

    def packet_received(
        self, datapath: int, connection: SwitchConnection, frame: bytes
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenFlowTls:
    """PEM files with which the controller and its switches authenticate each other."""

    certificate: str
    key: str
    authority: str
    """Authority of the switches' certificates: a switch without such a certificate is refused."""

    @property
    def paths(self) -> tuple[str, str, str]:
        return self.certificate, self.key, self.authority

    DESCRIPTORS: ClassVar[int] = 4
    """File descriptors per connection (without TLS: one): the socket twice, and a pair that carries
    the plain bytes.
    """

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the files into a server's context. Raises HydraError if the files do not fit
        together.
        """
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except OSError as error:  # includes ssl.SSLError
            raise HydraError(
                f"OpenFlow can't use the certificate {self.certificate} with the key {self.key} "
                f"and the authority {self.authority} ({error.strerror or error}): make them with "
                "`hydra ca`"
            ) from error

    def check(self) -> None:
        """Raises HydraError if the files do not fit together."""
        self.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


class Application(Protocol):
    """Launched controller, seen from OpenFlow's side."""

    @property
    def openflow_address(self) -> tuple[str, int] | None:
        """None: switches connect to other processes, which pass the messages on."""

    @property
    def openflow_connections(self) -> int:
        """Largest number of connections at a time."""

    @property
    def openflow_tls(self) -> OpenFlowTls | None:
        """None: OpenFlow is not encrypted, and anything that reaches the address may be a
        switch.
        """

    @property
    def events(self) -> SwitchEvents: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


Post = Callable[[Callable[[], None]], None]
"""Run a function in the hub's thread, soon; callable from any thread."""


Peer = tuple[Any, ...]
"""A socket's other end: address, port, and further fields for IPv6."""


def address_in_words(peer: Peer) -> str:
    """``192.0.2.1:6653`` or ``[2001:db8::1]:6653``."""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unread(error: Exception) -> str:
    """Message of a controller that ends because switches' messages can't be read any more."""
    return f"messages of switches are no longer read: {error!r}; start the controller again"
