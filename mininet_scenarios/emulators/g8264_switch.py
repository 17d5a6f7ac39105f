"""An emulated RackSwitch G8264: VLANs, configuration mode, and output.

Written independently of the controller's codec, so that misreadings there show up here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from mininet_scenarios.emulators.faults import FaultKind, Faults

PORTS: Final = 64
_VLANS: Final = range(1, 4095)
_WRAPPED_COLUMNS: Final = 30
_LIST: Final = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


class CommandError(Exception):
    """A command that the switch does not understand or does not carry out."""


@dataclass(slots=True)
class Port:
    """VLAN settings and link state of a port."""

    trunk: bool = False
    access: int = 1
    native: int = 1
    """Untagged VLAN of a trunk."""
    allowed: set[int] = field(default_factory=lambda: set(_VLANS))
    up: bool = True

    @property
    def carries(self) -> set[int]:
        """VLANs whose frames pass."""
        return self.allowed if self.trunk else {self.access}


@dataclass(slots=True)
class Place:
    """A session's position in the configuration, shown in parentheses by the prompt."""

    configuring: bool = False
    ports: tuple[int, ...] = ()

    @property
    def mode(self) -> str:
        if not self.configuring:
            return "#"
        return "(config-if)#" if self.ports else "(config)#"


class G8264:
    """The switch itself, shared by all sessions."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.changes = 0
        self.ports = {number: Port() for number in range(1, PORTS + 1)}
        self.carried: dict[int, set[int]] = {number: set() for number in self.ports}
        """VLANs carried by each port before any of the changes so far."""

    def configure(self, place: Place, command: str) -> None:
        """Carry out one line of the configuration mode. Raises CommandError."""
        words = command.split()
        match words:
            case [] | ["!", *_]:
                return
            case ["end"]:
                place.configuring, place.ports = False, ()
            case ["exit"]:
                place.configuring, place.ports = bool(place.ports), ()
            case ["interface", "port", listed]:
                place.ports = tuple(sorted(self._numbers(listed, self.ports.keys(), "port")))
            case ["switchport", *setting] if place.ports:
                self._set(place.ports, setting)
            case ["no", "prompting"]:
                return
            case _:
                raise CommandError(f"% Error: unknown command: {command[:40]}")

    def apply(self, text: str) -> None:
        """Carry out configuration text atomically. Raises CommandError."""
        before = copy.deepcopy(self.ports)
        place = Place(configuring=True)
        try:
            for line in text.splitlines():
                self.configure(place, line)
        except CommandError:
            self.ports = before
            raise

    def running_config(self) -> list[str]:
        """Lines of ``show running-config``: all settings different from the factory's."""
        lines = ["Current configuration:", "!", 'version "7.11.1"']
        lines += [
            'switch-type "IBM Networking Operating System RackSwitch G8264"',
            "iscli-new",
            "!",
        ]
        for number, port in self.ports.items():
            settings = self._settings(port)
            if settings:
                lines += [f"interface port {number}", *(f"        {s}" for s in settings)]
                lines += ["        exit", "!"]
        return [*lines, "end", ""]

    def status(self) -> list[str]:
        """Lines of ``show interface status``."""
        rule = "-" * 71
        lines = [rule, "Alias   Port   Speed    Duplex     Flow Ctrl      Link     Description"]
        lines.append("------- ----   -----   --------  --TX-----RX--   ------   -------------")
        for number, port in self.ports.items():
            link = "up" if port.up else "down"
            lines.append(f"{number:<7} {number:>3}    10000    full      no     no    {link:>6}   ")
        lines.append("MGT      65     1000    full     yes    yes        up   ")
        lines += [rule, "Note: 65 ports are listed here, of which 1 is for management."]
        return lines

    def _set(self, numbers: Collection[int], setting: list[str]) -> None:
        if self.faults.strikes(FaultKind.REFUSE):
            raise CommandError("% Error: the command was not carried out")
        self.changes += 1
        if self.faults.strikes(FaultKind.SILENT):
            return
        for number in numbers:
            port = self.ports[number]
            self.carried[number] |= port.carries
            match setting:
                case ["mode", "trunk"]:
                    port.trunk = True
                case ["mode", "access"]:
                    self.ports[number] = Port(up=port.up)
                case ["access", "vlan", vlan]:
                    port.access = self._vlan(vlan)
                case ["trunk", "native", "vlan", vlan]:
                    port.native = self._vlan(vlan)
                case ["trunk", "allowed", "vlan", *how]:
                    port.allowed = self._allowed(port.allowed, how)
                case _:
                    raise CommandError(f"% Error: unknown setting: {' '.join(setting)[:40]}")

    def _allowed(self, before: set[int], how: list[str]) -> set[int]:
        match how:
            case ["all"]:
                return set(_VLANS)
            case ["none"]:
                return set()
            case ["add", listed]:
                return before | self._numbers(listed, _VLANS, "VLAN")
            case ["remove", listed]:
                return before - self._numbers(listed, _VLANS, "VLAN")
            case [listed]:
                wanted = self._numbers(listed, _VLANS, "VLAN")
                return before | wanted if self.faults.strikes(FaultKind.MERGE) else wanted
            case _:
                raise CommandError("% Incomplete command")

    def _vlan(self, text: str) -> int:
        (vlan,) = self._numbers(text.partition("-")[0], _VLANS, "VLAN")
        return vlan

    def _numbers(self, text: str, known: Collection[int], what: str) -> set[int]:
        if _LIST.fullmatch(text) is None:
            raise CommandError(f"% Invalid input: {text[:40]}")
        found: set[int] = set()
        for run in text.split(","):
            first, _, last = run.partition("-")
            found.update(range(int(first), min(int(last or first), 9999) + 1))
        bad = sorted(number for number in found if number not in known)
        if bad or not found:
            raise CommandError(f"Error: there is no {what} {bad[0] if bad else text}")
        return found

    def _settings(self, port: Port) -> list[str]:
        if not port.trunk:
            return [] if port.access == 1 else [f"switchport access vlan {port.access}"]
        listed = self._listed(port.allowed)
        settings = ["switchport mode trunk"]
        if port.allowed != set(_VLANS):
            settings.append(f"switchport trunk allowed vlan {listed}")
        if port.native != 1:
            settings.append(f"switchport trunk native vlan {port.native}")
        return [line for setting in settings for line in self._wrapped(setting)]

    def _listed(self, vlans: set[int]) -> str:
        runs: list[list[int]] = []
        for vlan in sorted(vlans):
            if runs and runs[-1][1] == vlan - 1:
                runs[-1][1] = vlan
            else:
                runs.append([vlan, vlan])
        return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs) or "none"

    def _wrapped(self, setting: str) -> list[str]:
        if not self.faults.active(FaultKind.WRAP):
            return [setting]
        head, _, listed = setting.rpartition(" ")
        lines, line = [], head + " "
        for run in listed.split(","):
            if len(line) > len(head) + _WRAPPED_COLUMNS:
                lines.append(line)
                line = " " * 30
            line += f"{run},"
        return [*lines, line.removesuffix(",")]


class OldG8264(G8264):
    """A switch with the older command line, without ``switchport``."""

    def configure(self, place: Place, command: str) -> None:
        if command.startswith("switchport"):
            raise CommandError(f"% Error: unknown command: {command[:40]}")
        super().configure(place, command)

    def running_config(self) -> list[str]:
        """Ports 1 to 4 are tagged members of VLAN 10."""
        lines = ["Current configuration:", "!", 'version "6.8.0"', "!"]
        for number in range(1, 5):
            lines += [
                f"interface port {number}",
                "        tagging",
                "        pvid 10",
                "        exit",
            ]
        return [*lines, "!", "vlan 10", "        enable", "        member 1-4", "!", "end", ""]
