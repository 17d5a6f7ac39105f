"""Polatis optical circuit switches over NETCONF (port 830).

Modules ``optical-switch`` and ``polatis-switch``, as public clients of these switches use them (the
ONOS drivers of 2018, tcdona3, valarmathip/Terafast, the maker's test suite):
``cross-connects/pair[ingress]``, named ``pairs`` before revision 2017-08-04;
``port-config/port[port-id]/status``, in older models ``ports/port[port-id]/port-state``,
``PC_ENABLED`` or ``PC_DISABLED``; ``opm-power``; attenuators ``voa/port``; alarm thresholds
``opm-alarm-config/port``, in older models ``ports/port/opm``; ``system-alarms``; notifications such
as ``port-power-alarm``. The size is part of the model name. Inferred are spellings of ``status``
other than ENABLED and DISABLED, and the severities of alarms, which the YANG modules do not state,
that the text of a standing alarm names its port, and that released firmware writes to the running
datastore.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from lxml import etree

from drivers.exclusive import exclusive
from drivers.optical.base import ReadBackSwitch
from drivers.optical.changes import Difference, not_made, shortfall
from drivers.optical.light import AlarmThresholds, Attenuator, LightOptions
from drivers.optical.polatis_model import (
    PolatisYangSwitch,
    attenuator,
    port_state,
    thresholds,
)
from drivers.transports.netconf import OPERATION, NetconfTransport
from drivers.transports.netconf_requests import NETCONF_NS, Element
from drivers.transports.ssh import SshOptions
from hydra.config.devices import endpoint_problems, login_problems, option_problems
from hydra.errors import DeviceError, Problem, ProtocolError
from hydra.model import CrossConnect, Login, Plane
from hydra.roles import (
    Alarm,
    DeviceIdentity,
    OpticalCapabilities,
    OpticalSwitch,
    PortState,
    Severity,
)

_log: Final = logging.getLogger(__name__)

CAPABILITIES: Final = OpticalCapabilities(
    bulk=True, unidirectional=True, power_readings=True, alarms=True
)

_SWITCH: Final = "http://www.polatis.com/yang/optical-switch"
_POLATIS: Final = "http://www.polatis.com/yang/polatis-switch"
_REVISION: Final = re.compile(re.escape(_SWITCH) + r"\?.*\brevision=(\d{4}-\d\d-\d\d)")
_RENAMED: Final = "2017-08-04"
"""First revision with the list of cross-connects named pair, not pairs."""
_OLD_PAIR: Final = "pairs"
_CONDITIONS: Final = {
    "NOTIF_PORT_POWER": "port-power-alarm",
    "NOTIF_PORT_POWER_WARN": "port-power-warn-alarm",
}
"""Conditions by name in the list of standing alarms, to their names in notifications."""
_SEVERITIES: Final = {
    "port-power-alarm": Severity.MAJOR,
    "port-power-warn-alarm": Severity.WARNING,
    "system-error": Severity.MAJOR,
}
_CLEAR: Final = "-clear"
_THRESHOLDS: Final = ("mode", "signal-low-threshold", "signal-high-threshold")
_OLD_THRESHOLDS: Final = ("power-alarm-control", "power-low-alarm", "power-high-alarm")
"""Leaves with an alarm's mode and its thresholds."""
_MOST_DIGITS: Final = 6
"""Longest number of a port."""
_LARGEST: Final = 200.0
"""Bound on the absolute value of a power in dBm or a level in dB."""
_PORT_IN_TEXT: Final = re.compile(r"\bport\W{0,3}([1-9][0-9]{0,5})\b", re.IGNORECASE)


class Options(SshOptions, LightOptions):
    """``options`` of a plane."""

    stream: str = "Polatis"
    """Event stream to subscribe to for alarms."""
    datastore: Literal["auto", "candidate", "running"] = "auto"


def build(plane: Plane, timeout_s: float) -> OpticalSwitch:
    """The driver of ``plane``, not connected yet. Raises DeviceError without a login."""
    if plane.login is None:
        raise DeviceError(plane.name, "NETCONF wants a login")
    options = Options.model_validate(dict(plane.options))
    return PolatisNetconf(plane.name, plane.address, plane.login, options, timeout_s=timeout_s)


def check(plane: Plane) -> Iterator[Problem]:
    """Problems of ``plane``'s address, login and options."""
    yield from endpoint_problems(plane.address)
    yield from login_problems(plane.login, keys=True)
    yield from option_problems(Options, plane.options)


class PolatisNetconf(PolatisYangSwitch, ReadBackSwitch):
    """An :class:`~hydra.roles.OpticalSwitch` with power readings and alarms.

    Ingress ports are 1..N, egress ports N+1..N+M. A change of any size is one ``edit-config`` under
    a lock, read back before the commit is confirmed. ``timeout_s`` covers one call.
    """

    CAPABILITIES = CAPABILITIES

    def __init__(
        self, name: str, address: str, login: Login, options: Options, *, timeout_s: float
    ) -> None:
        super().__init__(name, options)
        self._netconf = NetconfTransport(
            name,
            address,
            login,
            options,
            timeout_s=timeout_s,
            stream=options.stream,
            datastore=options.datastore,
        )

    @exclusive
    def open(self) -> None:
        """Connect and subscribe to alarms; a second call on an open device does nothing.

        Warns of a device that loses its cross-connects with its power, and of attenuators and alarm
        thresholds that contradict the owner's expectations.
        """
        was_connected = self._netconf.connected
        self._netconf.open()
        if not was_connected:
            self._warn_at_attach(self._start())

    def _start(self) -> str | None:
        """The start-up mode; None if the switch does not report the mode."""
        subtree = etree.Element(f"{{{_SWITCH}}}system-config")
        etree.SubElement(subtree, f"{{{_POLATIS}}}startup-mode")
        try:
            mode: str | None = self._read(subtree).findtext(f"{{{_POLATIS}}}startup-mode")
        except DeviceError as error:
            _log.info("%s does not report a start-up mode: %s", self._name, error)
            return None
        return mode

    def _drop(self) -> None:
        self._netconf.close()

    @exclusive
    def identity(self) -> DeviceIdentity:
        found = self._read(etree.Element(f"{{{_SWITCH}}}product-information"))
        manufacturer, model, serial, firmware = (
            self._text(found, leaf)
            for leaf in ("manufacturer", "model-name", "serial-number", "software-version")
        )
        return DeviceIdentity(manufacturer, model, serial, firmware)

    @exclusive
    def cross_connects(self) -> frozenset[CrossConnect]:
        """Read from the device, never from memory."""
        self._netconf.open()
        subtree = etree.Element(f"{{{_SWITCH}}}cross-connects")
        etree.SubElement(subtree, f"{{{_SWITCH}}}{self._pair()}")
        pairs = self._read(subtree, whole=True).findall(f"{{{_SWITCH}}}{self._pair()}")
        return frozenset(
            CrossConnect(self._number(pair, "ingress"), self._number(pair, "egress"))
            for pair in pairs
        )

    @exclusive
    def change(
        self, disconnect: Collection[CrossConnect], connect: Collection[CrossConnect]
    ) -> None:
        """Change as in the base class; reads before the edit count towards the edit's time."""
        with self._netconf.bounded():
            super().change(disconnect, connect)

    def _make(self, change: Difference) -> None:
        """Tear down and set up in one edit, which the device makes atomically."""
        self._netconf.edit(self._config(change), lambda: self._check_result(change))

    def _read_port_states(self, ports: list[int]) -> Mapping[int, PortState]:
        """States of the given ports; words unknown to this driver read as UNKNOWN."""
        container, leaf = ("ports", "port-state") if self._is_older() else ("port-config", "status")
        words = self._per_port(container, ports, leaf)
        return {port: port_state(word) for port, word in words.items()}

    @exclusive
    def power_dbm(self, ports: Collection[int]) -> Mapping[int, float | None]:
        readings = self._per_port("opm-power", ports, "power")
        return {
            port: self._reading(port, text) if (text := (reading or "").strip()) else None
            for port, reading in readings.items()
        }

    @exclusive
    def alarms(self) -> tuple[Alarm, ...]:
        """Standing alarms, oldest first as the device lists them."""
        found = self._read(etree.Element(f"{{{_POLATIS}}}system-alarms"))
        return tuple(_standing(alarm) for alarm in found.findall(f"{{{_POLATIS}}}alarm"))

    @exclusive
    def reports(self) -> tuple[Alarm, ...]:
        """Alarms notified since the last call, oldest first; never waits."""
        alarms = (_reported(element) for element in self._netconf.notifications())
        return tuple(alarm for alarm in alarms if alarm is not None)

    # --- edits ----------------------------------------------------------------------------------

    def _pair(self) -> str:
        """The name of the list of cross-connects."""
        for uri in self._netconf.capabilities:
            if (match := _REVISION.match(uri)) is not None:
                return _OLD_PAIR if match[1] < _RENAMED else "pair"
        return "pair"

    def _is_older(self) -> bool:
        """True if the switch has the model from before the cross-connects' list was renamed."""
        self._netconf.open()
        return self._pair() == _OLD_PAIR

    def _config(self, change: Difference) -> Element:
        root = etree.Element(f"{{{NETCONF_NS}}}config", nsmap={"nc": NETCONF_NS})
        listed = etree.SubElement(root, f"{{{_SWITCH}}}cross-connects", nsmap={None: _SWITCH})
        moved = {new.ingress for new in change.added}
        # Deletions first: a switch that carries out an edit line by line frees ports before their
        # next use.
        for old in sorted(change.removed):
            if old.ingress not in moved:
                pair = etree.SubElement(listed, f"{{{_SWITCH}}}{self._pair()}")
                pair.set(OPERATION, "delete")
                etree.SubElement(pair, f"{{{_SWITCH}}}ingress").text = str(old.ingress)
        for new in sorted(change.added):
            pair = etree.SubElement(listed, f"{{{_SWITCH}}}{self._pair()}")
            pair.set(OPERATION, "merge")
            etree.SubElement(pair, f"{{{_SWITCH}}}ingress").text = str(new.ingress)
            etree.SubElement(pair, f"{{{_SWITCH}}}egress").text = str(new.egress)
        return root

    def _check_result(self, change: Difference) -> None:
        problems = shortfall(change, self.cross_connects())
        if problems:
            raise not_made(self._name, problems)

    # --- reading --------------------------------------------------------------------------------

    def _attenuators(self, ports: Collection[int]) -> Mapping[int, Attenuator]:
        found = self._listed_ports("voa")
        return {
            port: attenuator(
                entry.findtext(f"{{{_SWITCH}}}atten-mode") or "",
                self._level(port, entry, "atten-level"),
            )
            for port, entry in found.items()
            if port in ports
        }

    def _thresholds(self) -> Mapping[int, AlarmThresholds]:
        """Thresholds from the newer model's list, or from each port of the older model."""
        if self._is_older():
            found = {
                port: opm
                for port, entry in self._listed_ports("ports", "opm").items()
                if (opm := entry.find(f"{{{_SWITCH}}}opm")) is not None
            }
            names = _OLD_THRESHOLDS
        else:
            found, names = self._listed_ports("opm-alarm-config"), _THRESHOLDS
        mode, low, high = names
        return {
            port: thresholds(
                entry.findtext(f"{{{_SWITCH}}}{mode}") or "",
                self._level(port, entry, low),
                self._level(port, entry, high),
            )
            for port, entry in found.items()
        }

    def _listed_ports(self, container: str, *leaves: str) -> dict[int, Element]:
        """Entries of a list of ports, by port number; with the given leaves, or with all."""
        subtree = etree.Element(f"{{{_SWITCH}}}{container}")
        if leaves:
            entry = etree.SubElement(subtree, f"{{{_SWITCH}}}port")
            for leaf in ("port-id", *leaves):
                etree.SubElement(entry, f"{{{_SWITCH}}}{leaf}")
        entries = self._read(subtree).findall(f"{{{_SWITCH}}}port")
        return {self._number(entry, "port-id"): entry for entry in entries}

    def _level(self, port: int, entry: Element, leaf: str) -> float | None:
        text = (entry.findtext(f"{{{_SWITCH}}}{leaf}") or "").strip()
        return self._reading(port, text) if text else None

    def _read(self, subtree: Element, *, whole: bool = False) -> Element:
        """The reply's element of the filter's name; an empty element if the device has none."""
        found = self._netconf.get(subtree, whole=whole).find(subtree.tag)
        return etree.Element(subtree.tag) if found is None else found

    def _per_port(self, container: str, ports: Collection[int], leaf: str) -> dict[int, str | None]:
        asked = self._asked(ports)
        if not asked:
            return {}
        subtree = etree.Element(f"{{{_SWITCH}}}{container}")
        for port in asked:
            entry = etree.SubElement(subtree, f"{{{_SWITCH}}}port")
            etree.SubElement(entry, f"{{{_SWITCH}}}port-id").text = str(port)
            etree.SubElement(entry, f"{{{_SWITCH}}}{leaf}")
        found: dict[int, str | None] = dict.fromkeys(asked)
        for entry in self._read(subtree).findall(f"{{{_SWITCH}}}port"):
            port = self._number(entry, "port-id")
            if port in found:
                found[port] = entry.findtext(f"{{{_SWITCH}}}{leaf}")
        return found

    def _text(self, parent: Element, leaf: str) -> str:
        text: str = parent.findtext(f"{{{_SWITCH}}}{leaf}") or ""
        if not text:
            raise ProtocolError(self._name, f"the device tells no {leaf}")
        return text

    def _number(self, parent: Element, leaf: str) -> int:
        text = self._text(parent, leaf).strip()
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise ProtocolError(self._name, f"{leaf} {text!r} is no port number")
        return int(text)

    def _reading(self, port: int, text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not -_LARGEST < found < _LARGEST:  # inf and nan would pass every limit
            raise ProtocolError(self._name, f"port {port}: {text!r} is no level or power")
        return found


def _standing(alarm: Element) -> Alarm:
    kind = str(alarm.findtext(f"{{{_POLATIS}}}alarm-type") or "unknown")
    text = str(alarm.findtext(f"{{{_POLATIS}}}alarm-message") or "")
    code = _CONDITIONS.get(kind, kind)
    match = _PORT_IN_TEXT.search(text)
    return Alarm(
        _SEVERITIES.get(code, Severity.MAJOR), None if match is None else int(match[1]), code, text
    )


def _reported(element: Element) -> Alarm | None:
    """The alarm; None for other notifications: configuration changes, sessions, activity."""
    name = etree.QName(element)
    condition = name.localname.removesuffix(_CLEAR)
    if name.namespace not in (_SWITCH, _POLATIS) or condition not in _SEVERITIES:
        return None
    cleared = name.localname.endswith(_CLEAR)
    leaves = [(etree.QName(leaf).localname, (leaf.text or "").strip()) for leaf in element]
    return Alarm(
        Severity.CLEARED if cleared else _SEVERITIES[condition],
        _port_of(leaves),
        condition,
        ", ".join(f"{leaf} {text}" for leaf, text in leaves),
    )


def _port_of(leaves: Sequence[tuple[str, str]]) -> int | None:
    numbers = [
        text
        for leaf, text in leaves
        if "port" in leaf and text.isascii() and len(text) <= _MOST_DIGITS
    ]
    return next((int(text) for text in numbers if text.isdigit()), None)
