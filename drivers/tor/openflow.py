"""ToRs controlled by OpenFlow alone, read through the driver's own connection.

The controller commands and reads such a ToR on the connection made by the switch. This driver is
for a person at the rack (``hydra device``): the switch listens, at ``host:port`` or, on the same
machine, at ``unix:/path`` (Open vSwitch: ``unix:RUNDIR/BRIDGE.mgmt``). The driver changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

from drivers.codecs.openflow import messages
from drivers.codecs.openflow.messages import OpenFlowError, PortDescription
from drivers.exclusive import exclusive
from drivers.tor.session import SessionTor
from drivers.transports.openflow_session import OpenFlowSession
from drivers.transports.tcp import UNIX_PREFIX, TcpStream, UnixStream
from hydra.config.devices import NoOptions, endpoint_problems, no_login_problems, option_problems
from hydra.errors import DeviceError, Problem, ProtocolError
from hydra.model import Rack
from hydra.roles import PortCounters, PortVlans, TorCapabilities, TorSwitch

CAPABILITIES: Final = TorCapabilities(counters=True, labels=True)

_NO_VLANS: Final = PortVlans(frozenset())
_ResultT = TypeVar("_ResultT")


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of the rack's ToR, not connected yet."""
    address = rack.tor.address
    stream = (UnixStream if address.startswith(UNIX_PREFIX) else TcpStream)(rack.name, address)
    return OpenFlowTor(rack.name, OpenFlowSession(rack.name, stream, timeout_s=timeout_s))


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login, options and datapath of the rack's ToR."""
    tor = rack.tor
    if not tor.address.startswith(f"{UNIX_PREFIX}/"):
        yield from endpoint_problems(tor.address)
    yield from no_login_problems(tor.login)
    yield from option_problems(NoOptions, tor.options)
    if tor.datapath_id is None:
        yield Problem(
            "datapath_id", "is missing: the controller identifies the ToR by the datapath id"
        )


class OpenFlowTor(SessionTor):
    """A :class:`~hydra.roles.TorSwitch` and :class:`~hydra.roles.CounterReader`."""

    CAPABILITIES = CAPABILITIES

    def __init__(self, name: str, session: OpenFlowSession) -> None:
        super().__init__(name, session)
        self._session = session

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """Names in the order of the ports' OpenFlow numbers."""
        return tuple(port.name for port in sorted(self._every_port(), key=lambda p: p.number))

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """No VLANs at any port. Raises DeviceError for a port missing on the switch."""
        self._described(ports)
        return dict.fromkeys(ports, _NO_VLANS)

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Raises DeviceError for any VLAN: ports of an OpenFlow ToR have none."""
        self._described(wanted)
        for port, vlans in wanted.items():
            if vlans != _NO_VLANS:
                raise DeviceError(
                    self._name, f"port {port}: ports of an OpenFlow ToR have no VLANs to set"
                )

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        return {
            name: port.carrier and not port.down for name, port in self._described(ports).items()
        }

    @exclusive
    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        described = self._described(ports)
        body = self._session.query(messages.MULTIPART_PORT_STATS, messages.port_stats_body())
        by_number = self._decoded(messages.decode_port_counters, body)
        missing = sorted(name for name in ports if described[name].number not in by_number)
        if missing:
            raise ProtocolError(self._name, f"no counters of port {missing[0]} came")
        return {name: PortCounters(*by_number[described[name].number]) for name in ports}

    def _every_port(self) -> tuple[PortDescription, ...]:
        body = self._session.query(messages.MULTIPART_PORT_DESC)
        return self._decoded(messages.decode_port_descriptions, body)

    def _described(self, names: Collection[str]) -> dict[str, PortDescription]:
        known = {port.name: port for port in self._every_port()}
        for name in names:
            if name not in known:
                raise DeviceError(self._name, f"the switch has no port {name}")
        return {name: known[name] for name in names}

    def _decoded(self, decode: Callable[[bytes], _ResultT], body: bytes) -> _ResultT:
        try:
            return decode(body)
        except OpenFlowError as error:
            self._session.close()
            raise ProtocolError(self._name, str(error)) from error
