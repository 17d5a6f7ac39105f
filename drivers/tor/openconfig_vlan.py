"""Switches with OpenConfig VLANs over NETCONF.

Nodes as in the OpenConfig modules ``openconfig-interfaces``, ``openconfig-if-ethernet`` and
``openconfig-vlan``. Merging would unite the old and the new ``trunk-vlans``: each port's ``config``
container is replaced as a whole. Neighbouring VLANs are written as ranges (``300..310``).

EOS, NX-OS and IOS-XE drop untagged frames on a trunk unless its ``native-vlan`` is among its
``trunk-vlans``: it is written into both, and one that is not in the list reads as none.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

from lxml import etree

from drivers.exclusive import exclusive
from drivers.tor import membership
from drivers.transports.netconf import NETCONF_NS, OPERATION, Element, NetconfTransport
from drivers.transports.ssh import SshOptions
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem, ProtocolError
from hydra.model import Login, Rack, VlanId
from hydra.roles import PortCounters, PortVlans, TorCapabilities, TorSwitch

CAPABILITIES: Final = TorCapabilities(bulk=True, counters=True)

_INTERFACES: Final = "http://openconfig.net/yang/interfaces"
_ETHERNET: Final = "http://openconfig.net/yang/interfaces/ethernet"
_VLAN: Final = "http://openconfig.net/yang/vlan"
_CONFIG: Final = f"{{{_VLAN}}}config"
_RANGE: Final = re.compile(r"([1-9][0-9]{0,3})\.\.([1-9][0-9]{0,3})", re.ASCII)
_KINDS: Final = ("unicast", "broadcast", "multicast")


class Options(SshOptions):
    """``options`` of a ToR."""

    datastore: Literal["auto", "candidate", "running"] = "auto"


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. Raises DeviceError without a login."""
    if rack.tor.login is None:
        raise DeviceError(rack.name, "NETCONF wants a login")
    options = Options.model_validate(dict(rack.tor.options))
    return OpenconfigTor(rack.name, rack.tor.address, rack.tor.login, options, timeout_s=timeout_s)


def check(rack: Rack) -> Iterator[Problem]:
    """Problems of the address, login and options of a rack's ToR."""
    yield from endpoint_problems(rack.tor.address)
    yield from login_problems(rack.tor.login, keys=True)
    yield from option_problems(Options, rack.tor.options)


class OpenconfigTor:
    """A :class:`~hydra.roles.TorSwitch` with counters.

    All ports of a change go in one ``edit-config``, which the switch makes whole or not at all.
    ``timeout_s`` covers one call.
    """

    def __init__(
        self, name: str, address: str, login: Login, options: Options, *, timeout_s: float
    ) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._netconf = NetconfTransport(
            name, address, login, options, timeout_s=timeout_s, datastore=options.datastore
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> TorCapabilities:
        return CAPABILITIES

    @exclusive
    def open(self) -> None:
        """Connect; a second call on an open device does nothing. Raises DeviceUnavailable."""
        self._netconf.open()

    @exclusive
    def close(self) -> None:
        """Drop the session; safe to repeat. The next use connects again."""
        self._netconf.close()

    @exclusive
    def ports(self) -> tuple[str, ...]:
        """All interfaces, in the switch's order."""
        root = etree.Element(f"{{{_INTERFACES}}}interfaces")
        interface = etree.SubElement(root, f"{{{_INTERFACES}}}interface")
        etree.SubElement(interface, f"{{{_INTERFACES}}}name")
        return tuple(self._listed(root))

    @exclusive
    def vlans(self, ports: Collection[str]) -> Mapping[str, PortVlans]:
        """Membership as configured; a trunk without a list carries all VLANs."""
        found = self._read(ports, f"{{{_ETHERNET}}}ethernet", f"{{{_VLAN}}}switched-vlan", _CONFIG)
        return {port: self._membership(port, element) for port, element in found.items()}

    @exclusive
    def set_vlans(self, wanted: Mapping[str, PortVlans]) -> None:
        """Replace the membership of these ports in one edit, and read it back.

        Raises DeviceError (nothing written) for a bad VLAN or a port that the switch does not have.
        """
        membership.check_memberships(self._name, wanted)
        present = self.vlans(wanted)
        changed = {port: vlans for port, vlans in wanted.items() if present[port] != vlans}
        if changed:
            self._netconf.edit(_edit(changed), lambda: self._check_result(changed))

    @exclusive
    def link_up(self, ports: Collection[str]) -> Mapping[str, bool]:
        """True by port whose ``oper-status`` is UP."""
        state = f"{{{_INTERFACES}}}state"
        found = self._read(ports, state, f"{{{_INTERFACES}}}oper-status")
        return {port: _text(element) == "UP" for port, element in found.items()}

    @exclusive
    def counters(self, ports: Collection[str]) -> Mapping[str, PortCounters]:
        """Frames and octets per port; kinds of frames are added up if the switch has no total."""
        found = self._read(ports, f"{{{_INTERFACES}}}state", f"{{{_INTERFACES}}}counters")
        return {port: self._counters(port, element) for port, element in found.items()}

    # --- the tree of interfaces ---------------------------------------------------------------

    def _check_result(self, wanted: Mapping[str, PortVlans]) -> None:
        membership.check_result(self._name, wanted, self.vlans(wanted))

    def _read(self, ports: Collection[str], *path: str) -> dict[str, Element | None]:
        """The element at ``path`` below each port; None if the switch has none."""
        if not ports:
            return {}
        root = etree.Element(f"{{{_INTERFACES}}}interfaces")
        for port in ports:
            node = _interface(root, port)
            for tag in path:
                node = etree.SubElement(node, tag)
        found = self._listed(root)
        missing = sorted(set(ports) - found.keys())
        if missing:
            raise DeviceError(self._name, f"the switch has no interface {', '.join(missing)}")
        return {port: found[port].find("/".join(path)) for port in ports}

    def _listed(self, root: Element) -> dict[str, Element]:
        """The interfaces in the answer to a request, by name."""
        data = self._netconf.get(root)
        listed = data.findall(f"{{{_INTERFACES}}}interfaces/{{{_INTERFACES}}}interface")
        return {_text(entry.find(f"{{{_INTERFACES}}}name")): entry for entry in listed}

    def _membership(self, port: str, config: Element | None) -> PortVlans:
        if config is None:
            return PortVlans(frozenset())
        mode = _text(config.find(f"{{{_VLAN}}}interface-mode"))
        if mode == "ACCESS":
            return PortVlans(frozenset(), self._vlan(port, config, "access-vlan"))
        native = self._vlan(port, config, "native-vlan")
        listed = [_text(leaf) for leaf in config.findall(f"{{{_VLAN}}}trunk-vlans")]
        allowed = membership.expanded(self._range(port, text) for text in listed)
        if mode == "TRUNK" and not listed:
            allowed = membership.ALL_VLANS
        return PortVlans(allowed - {native}, native if native in allowed else None)

    def _vlan(self, port: str, config: Element, leaf: str) -> VlanId | None:
        element = config.find(f"{{{_VLAN}}}{leaf}")
        return None if element is None else VlanId(self._range(port, _text(element))[0])

    def _range(self, port: str, text: str) -> tuple[int, int]:
        match = _RANGE.fullmatch(f"{text}..{text}" if text.isdigit() else text)
        first, last = (int(match[1]), int(match[2])) if match else (0, 0)
        if not membership.FIRST_VLAN <= first <= last <= membership.LAST_VLAN:
            raise ProtocolError(self._name, f"port {port} has {text!r} where VLANs are expected")
        return first, last

    def _counters(self, port: str, counters: Element | None) -> PortCounters:
        if counters is None:
            raise DeviceError(self._name, f"the switch counts nothing at port {port}")
        return PortCounters(
            rx_frames=self._frames(port, counters, "in"),
            tx_frames=self._frames(port, counters, "out"),
            rx_octets=self._count(port, counters, "in-octets"),
            tx_octets=self._count(port, counters, "out-octets"),
            rx_dropped=self._count(port, counters, "in-discards"),
            tx_dropped=self._count(port, counters, "out-discards"),
        )

    def _frames(self, port: str, counters: Element, way: str) -> int:
        if counters.find(f"{{{_INTERFACES}}}{way}-pkts") is not None:
            return self._count(port, counters, f"{way}-pkts")
        return sum(self._count(port, counters, f"{way}-{kind}-pkts") for kind in _KINDS)

    def _count(self, port: str, counters: Element, leaf: str) -> int:
        text = _text(counters.find(f"{{{_INTERFACES}}}{leaf}")) or "0"
        if not (text.isascii() and text.isdigit()):
            raise ProtocolError(self._name, f"port {port} has {leaf} {text!r}, which is no number")
        return int(text)


def _edit(wanted: Mapping[str, PortVlans]) -> Element:
    root = etree.Element(f"{{{NETCONF_NS}}}config", nsmap={"nc": NETCONF_NS})
    interfaces = etree.SubElement(root, f"{{{_INTERFACES}}}interfaces", nsmap={None: _INTERFACES})
    for port, vlans in wanted.items():
        ethernet = etree.SubElement(_interface(interfaces, port), f"{{{_ETHERNET}}}ethernet")
        switched = etree.SubElement(ethernet, f"{{{_VLAN}}}switched-vlan", nsmap={None: _VLAN})
        config = etree.SubElement(switched, _CONFIG)
        config.set(OPERATION, "replace")
        etree.SubElement(config, f"{{{_VLAN}}}interface-mode").text = "TRUNK"
        if vlans.native is not None:
            etree.SubElement(config, f"{{{_VLAN}}}native-vlan").text = str(vlans.native)
        native = () if vlans.native is None else (vlans.native,)
        for first, last in membership.ranges({*vlans.tagged, *native}):
            text = str(first) if first == last else f"{first}..{last}"
            etree.SubElement(config, f"{{{_VLAN}}}trunk-vlans").text = text
    return root


def _interface(parent: Element, port: str) -> Element:
    interface = etree.SubElement(parent, f"{{{_INTERFACES}}}interface")
    etree.SubElement(interface, f"{{{_INTERFACES}}}name").text = port
    return interface


def _text(element: Element | None) -> str:
    return "" if element is None else (element.text or "").strip()
