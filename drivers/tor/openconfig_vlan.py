"""Switches with OpenConfig VLANs over NETCONF (nodes as in the OpenConfig modules
``openconfig-interfaces``, ``openconfig-if-ethernet`` and ``openconfig-vlan``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Literal

from lxml import etree

from drivers.codecs.openconfig import Leaves
from drivers.tor import openconfig
from drivers.tor.openconfig import Container, Dialect, OpenconfigTor
from drivers.transports.netconf import NETCONF_NS, OPERATION, Element, NetconfTransport
from drivers.transports.ssh import SshOptions
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem
from hydra.model import Rack
from hydra.roles import TorSwitch

CAPABILITIES: Final = openconfig.CAPABILITIES

_INTERFACES: Final = "http://openconfig.net/yang/interfaces"
_ETHERNET: Final = "http://openconfig.net/yang/interfaces/ethernet"
_VLAN: Final = "http://openconfig.net/yang/vlan"
_CONFIG: Final = f"{{{_VLAN}}}config"
_STATE: Final = f"{{{_INTERFACES}}}state"
_PATHS: Final[Mapping[Container, tuple[str, ...]]] = {
    Container.VLANS: (f"{{{_ETHERNET}}}ethernet", f"{{{_VLAN}}}switched-vlan", _CONFIG),
    Container.STATE: (_STATE,),
    Container.COUNTERS: (_STATE, f"{{{_INTERFACES}}}counters"),
}


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
    return OpenconfigTor(rack.name, NetconfInterfaces(rack.name, netconf))


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR."""
    yield from endpoint_problems(rack.tor.address)
    yield from login_problems(rack.tor.login, keys=True)
    yield from option_problems(Options, rack.tor.options)


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
        path = _PATHS[container]
        root = etree.Element(f"{{{_INTERFACES}}}interfaces")
        for port in ports:
            node = _interface(root, port)
            for tag in path:
                node = etree.SubElement(node, tag)
            if container is Container.STATE:
                etree.SubElement(node, f"{{{_INTERFACES}}}oper-status")
        found = self._listed(root)
        openconfig.check_present(self._device, ports, found)
        return {port: _leaves(found[port].find("/".join(path))) for port in ports}

    def replace(self, wanted: Mapping[str, Leaves], check: Callable[[], None]) -> None:
        self._netconf.edit(_edit(wanted), check)

    def _listed(self, root: Element) -> dict[str, Element]:
        """The interfaces in the answer to a request, by name."""
        data = self._netconf.get(root)
        listed = data.findall(f"{{{_INTERFACES}}}interfaces/{{{_INTERFACES}}}interface")
        return {_text(entry.find(f"{{{_INTERFACES}}}name")): entry for entry in listed}


def _leaves(container: Element | None) -> Leaves | None:
    if container is None:
        return None
    found: dict[str, list[str]] = {}
    for leaf in container.iterchildren("{*}*"):
        found.setdefault(etree.QName(leaf).localname, []).append(_text(leaf))
    return found


def _edit(wanted: Mapping[str, Leaves]) -> Element:
    root = etree.Element(f"{{{NETCONF_NS}}}config", nsmap={"nc": NETCONF_NS})
    interfaces = etree.SubElement(root, f"{{{_INTERFACES}}}interfaces", nsmap={None: _INTERFACES})
    for port, leaves in wanted.items():
        ethernet = etree.SubElement(_interface(interfaces, port), f"{{{_ETHERNET}}}ethernet")
        switched = etree.SubElement(ethernet, f"{{{_VLAN}}}switched-vlan", nsmap={None: _VLAN})
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
