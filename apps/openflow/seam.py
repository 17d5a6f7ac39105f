"""What OpenFlow's side and the controller know of each other, whichever package runs underneath."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hydra.errors import HydraError
from hydra.failures import FailureKind

HANDSHAKE_S = 10.0
HANDSHAKES: Final = 64
"""Handshakes at a time: of thousands at once, none would be done within HANDSHAKE_S."""
HANDSHAKES_LOOK_S: Final = 0.02
BACKLOG: Final = 4096
"""Connections that the system holds until they are accepted, as many as Linux allows by default. It
lets others try again after ever longer waits, up to minutes."""
MOST_PORTS: Final = 10_000
"""Most ports of a switch; each takes memory as long as it is connected."""
ECHO_S: Final = 2.0
"""How long a connection may take to answer an echo when another one claims to be its switch."""
ECHO_LOOKS: Final = 20
ECHO_EVERY_S: Final = 15.0
UNANSWERED_ECHOES: Final = 4
"""A switch that leaves more unanswered, 15 s apart, is gone."""
SOCKET_S: Final = 60.0
"""How long a switch may read nothing while more is sent to it than its connection holds. Each
connection on which nothing comes in is looked at as often."""
MOST_WAITING_BYTES: Final = 1 << 28
"""What waits for a switch that does not read; rules of a switch are a thousandth of that."""
IN_A_ROW: Final = 32
"""Messages of one switch, or functions posted, before others have their turn. Ryu reads 2048."""
MESSAGES_PER_S: Final = 1000.0
"""Messages of one switch that are handled, in the long run. A switch that sends more waits: its
connection is read no further until then: it takes neither memory nor other switches' time.
Polls, probes and barriers of a switch are a tenth of that."""
BURST: Final = 8192.0
"""Messages that a switch may send at once: as many as it refuses rules of a large table."""
SILENT_WORDS: Final = f"it left {UNANSWERED_ECHOES + 1} echo requests unanswered"
FLOODED_WORDS: Final = f"{MOST_WAITING_BYTES >> 20} MiB wait for it, and it does not read"


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A switch port as the switch describes it."""

    number: int
    name: str
    up: bool
    """Neither administratively down, in one direction or both, nor without carrier."""


class SwitchConnection(Protocol):
    """OpenFlow connection; used in the hub's thread only."""

    @property
    def address(self) -> str:
        """Address of the other end, with its port."""

    def send(self, message: bytes) -> None:
        """Messages go out in order; a switch that does not read them keeps nobody waiting."""

    def ask(self, tell: Callable[[bool], None]) -> None:
        """Send an echo request; ``tell``, within ECHO_S and a little, whether it was answered."""

    def close(self) -> None: ...


class Sums(NamedTuple):
    """What a reply about a table's rules has counted, by subject."""

    octets: NDArray[np.uint64]
    age_s: float
    """Age of the oldest rule, by the switch's clock."""


class SumRequest(bytes):
    """A request for statistics of a table's rules, of which sums by subject are all that is wanted.

    Connections with ``takes_sums`` may answer it by these.
    """

    xid: int
    mask: int
    """Bits of the rules' cookies that say the subject."""
    subjects: int
    """Number of subjects, which count from 1."""

    @classmethod
    def of(cls, message: bytes, xid: int, mask: int, subjects: int) -> SumRequest:
        request = cls(message)
        request.xid, request.mask, request.subjects = xid, mask, subjects
        return request


class SwitchEvents(Protocol):
    """Receiver of the OpenFlow side's reports; called in the hub's thread, must not block."""

    def knows(self, datapath: int) -> bool:
        """False for a switch that is none of the fabric's: nothing else that it says is read."""
        ...

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None: ...

    def switch_disconnected(self, datapath: int, connection: SwitchConnection) -> None: ...

    def switch_refused(self, datapath: int | None, address: str, why: str) -> None:
        """A connection did not become a switch's; ``datapath`` is None if the switch did not get
        as far as its datapath id. ``address`` is the other end's, with its port; ``why`` is a
        sentence with the remedy.
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
        """Another controller has become a switch's master, with this generation."""

    def rule_ended(self, datapath: int, connection: SwitchConnection, cookie: int) -> None:
        """A rule that was to tell its end has ended by itself."""

    def packet_received(
        self, datapath: int, connection: SwitchConnection, frame: bytes
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenFlowTls:
    """PEM files with which the controller and its switches make themselves known to each other."""

    certificate: str
    key: str
    authority: str
    """Authority of the switches' certificates: without one of its, nobody is let in."""

    @property
    def paths(self) -> tuple[str, str, str]:
        return self.certificate, self.key, self.authority

    DESCRIPTORS: ClassVar[int] = 4
    """Of each connection, which has one without TLS: the socket twice, and a pair that carries what
    is inside.
    """

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have a server's context use them. Raises HydraError if they can't be used together."""
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except OSError as error:  # ssl.SSLError is one
            raise HydraError(
                f"OpenFlow can't use the certificate {self.certificate} with the key {self.key} "
                f"and the authority {self.authority} ({error.strerror or error}): `hydra ca` makes "
                "them"
            ) from error

    def check(self) -> None:
        """Raises HydraError if they can't be used together."""
        self.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


class Application(Protocol):
    """Launched controller, seen from OpenFlow's side."""

    @property
    def openflow_address(self) -> tuple[str, int] | None:
        """None: switches connect to others, which pass on what they say."""

    @property
    def openflow_connections(self) -> int:
        """Largest number of connections at a time."""

    @property
    def openflow_tls(self) -> OpenFlowTls | None:
        """None: OpenFlow is not encrypted, and whoever reaches the address may be a switch."""

    @property
    def events(self) -> SwitchEvents: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


Post = Callable[[Callable[[], None]], None]
"""Run a function in the hub's thread, soon; callable from any thread."""


Peer = tuple[Any, ...]
"""What a socket says of its other end: address, port, and more where that is IPv6."""


def address_in_words(peer: Peer) -> str:
    """``192.0.2.1:6653`` or ``[2001:db8::1]:6653``."""
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unread(error: Exception) -> str:
    """What a controller says that ends since it would hear no switch any more."""
    return f"what switches say is read no more: {error!r}; start it again"
