"""Switches with OpenConfig VLANs over NETCONF (nodes as in the OpenConfig modules
``openconfig-interfaces``, ``openconfig-if-ethernet``, ``openconfig-if-aggregate`` and
``openconfig-vlan``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal

from lxml import etree

from drivers.codecs import openconfig as codec
from drivers.codecs.openconfig import Leaves
from drivers.codecs.yang_json import Json
from drivers.exclusive import exclusive
from drivers.tor import openconfig
from drivers.tor.openconfig import Container, Dialect, OpenconfigTor
from drivers.transports.netconf import OPERATION, NetconfTransport
from drivers.transports.netconf_requests import NETCONF_NS, Element
from drivers.transports.ssh import SshOptions
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem
from hydra.model import Rack
from hydra.roles import PortVlans, TorSwitch

CAPABILITIES: Final = openconfig.CAPABILITIES

_INTERFACES: Final = "http://openconfig.net/yang/interfaces"
_AGGREGATE: Final = "http://openconfig.net/yang/interfaces/aggregate"
_ETHERNET: Final = "http://openconfig.net/yang/interfaces/ethernet"
_VLAN: Final = "http://openconfig.net/yang/vlan"
_CONFIG: Final = f"{{{_VLAN}}}config"
_SWITCHED: Final = (f"{{{_VLAN}}}switched-vlan", _CONFIG)
_PLACES: Final = {
    False: f"{{{_ETHERNET}}}ethernet",
    True: f"{{{_AGGREGATE}}}aggregation",
}
"""Container of an interface's VLANs; True: a LAG."""
_STATE: Final = f"{{{_INTERFACES}}}state"
_TYPE: Final = f"{{{_INTERFACES}}}type"
_PATHS: Final[Mapping[Container, tuple[tuple[str, ...], ...]]] = {
    Container.VLANS: (
        (f"{{{_INTERFACES}}}config", _TYPE),
        (_STATE, _TYPE),
        (_PLACES[False], *_SWITCHED),
        (_PLACES[True], *_SWITCHED),
    ),
    Container.STATE: ((_STATE, f"{{{_INTERFACES}}}oper-status"),),
    Container.COUNTERS: ((_STATE, f"{{{_INTERFACES}}}counters"),),
}
"""Nodes of an interface to ask for."""


class Options(SshOptions):
    """``options`` of a ToR."""

    datastore: Literal["auto", "candidate", "running"] = "auto"


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. Raises DeviceError without a login."""
    tor = rack.tor
    if tor.login is None:
        raise DeviceError(rack.name, "NETCONF wants a login")
    options = Options.model_validate(dict(tor.options))
    netconf = NetconfTransport(
        rack.name, tor.address, tor.login, options, timeout_s=timeout_s, datastore=options.datastore
    )
    return OpenconfigNetconfTor(rack.name, netconf)


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR."""
    yield from endpoint_problems(rack.tor.address)
    yield from login_problems(rack.tor.login, keys=True)
    yield from option_problems(Options, rack.tor.options)


class OpenconfigNetconfTor(OpenconfigTor):
    """An :class:`OpenconfigTor` with one deadline for a change and the reads before it."""

    def __init__(self, name: str, netconf: NetconfTransport) -> None:
        super().__init__(name, NetconfInterfaces(name, netconf))
        self._netconf = netconf

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        with self._netconf.bounded():
            super().set_vlans(wanted)


class NetconfInterfaces:
    """:class:`~drivers.tor.openconfig.Interfaces` in the datastores of a NETCONF server."""

    def __init__(self, device: str, netconf: NetconfTransport) -> None:
        self._device = device
        self._netconf = netconf

    def open(self) -> None:
        self._netconf.open()

    def close(self) -> None:
        self._netconf.close()

    def dialect(self) -> Dialect:
        return openconfig.NATIVE

    def names(self) -> tuple[str, ...]:
        root = etree.Element(f"{{{_INTERFACES}}}interfaces")
        interface = etree.SubElement(root, f"{{{_INTERFACES}}}interface")
        etree.SubElement(interface, f"{{{_INTERFACES}}}name")
        return tuple(self._listed(root))

    def read(self, ports: Collection[str], container: Container) -> Mapping[str, Leaves | None]:
        found = self._present(ports, container)
        return openconfig.leaves_by_port(self._device, found, container)

    def replace(self, wanted: Mapping[str, Leaves], check: Callable[[], None]) -> None:
        present = self._present(wanted, Container.VLANS)
        places = {port: _PLACES[codec.is_lag(entry)] for port, entry in present.items()}
        self._netconf.edit(_edit(wanted, places), check)

    def _present(self, ports: Collection[str], container: Container) -> dict[str, Json]:
        """The given interfaces by name. Raises DeviceError for interfaces missing on the switch."""
        self._netconf.open()
        root = etree.Element(f"{{{_INTERFACES}}}interfaces")
        for port in ports:
            interface = _interface(root, port)
            for path in filter(self._knows, _PATHS[container]):
                node = interface
                for tag in path:
                    present = node.find(tag)
                    node = etree.SubElement(node, tag) if present is None else present
        found = self._listed(root)
        openconfig.check_present(self._device, ports, found)
        return {port: _node(found[port]) for port in ports}

    def _knows(self, path: tuple[str, ...]) -> bool:
        """False for LAG nodes on a switch that announces its modules without aggregation."""
        modules = self._netconf.capabilities
        if path[0] != _PLACES[True] or not any(uri.startswith(_INTERFACES) for uri in modules):
            return True
        return any(uri.startswith(_AGGREGATE) for uri in modules)

    def _listed(self, root: Element) -> dict[str, Element]:
        """The interfaces in the answer to a request, by name."""
        data = self._netconf.get(root)
        listed = data.findall(f"{{{_INTERFACES}}}interfaces/{{{_INTERFACES}}}interface")
        return {_text(entry.find(f"{{{_INTERFACES}}}name")): entry for entry in listed}


def _node(element: Element) -> Json:
    """An element in JSON's form: children by name, or a leaf's text; ``{}`` for neither."""
    node: dict[str, Any] = {}
    for child in element.iterchildren("{*}*"):
        name, value = etree.QName(child).localname, _node(child)
        if name in node:
            several = node[name] if isinstance(node[name], list) else [node[name]]
            value = [*several, value]
        node[name] = value
    return node or _text(element) or {}


def _edit(wanted: Mapping[str, Leaves], places: Mapping[str, str]) -> Element:
    root = etree.Element(f"{{{NETCONF_NS}}}config", nsmap={"nc": NETCONF_NS})
    interfaces = etree.SubElement(root, f"{{{_INTERFACES}}}interfaces", nsmap={None: _INTERFACES})
    for port, leaves in wanted.items():
        place = etree.SubElement(_interface(interfaces, port), places[port])
        switched = etree.SubElement(place, f"{{{_VLAN}}}switched-vlan", nsmap={None: _VLAN})
        config = etree.SubElement(switched, _CONFIG)
        config.set(OPERATION, "replace")
        for name, texts in leaves.items():
            for text in texts:
                etree.SubElement(config, f"{{{_VLAN}}}{name}").text = text
    return root


def _interface(parent: Element, port: str) -> Element:
    interface = etree.SubElement(parent, f"{{{_INTERFACES}}}interface")
    etree.SubElement(interface, f"{{{_INTERFACES}}}name").text = port
    return interface


def _text(element: Element | None) -> str:
    return "" if element is None else (element.text or "").strip()
