"""Faults of optical ports, their fibres and VLANs, and of optical switches."""

from __future__ import annotations

import subprocess
import time
from abc import abstractmethod
from typing import Final

from mininet_scenarios.chaos.fault import FOUND_BY_PROBES_S, OPEN_VSWITCH, Fault, Field
from mininet_scenarios.chaos.readers import redirections
from mininet_scenarios.emulators.admin import AdminError
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.testbed import links
from mininet_scenarios.testbed.layout import ocs_interface
from mininet_scenarios.testbed.shell import run

_FAR_PORT: Final = 16
"""A port of each emulated optical switch with nothing plugged in."""
_SMALL_MTU: Final = 1494
_USUAL_MTU: Final = 1500


class PortFault(Fault):
    """A fault of an optical port; touches all pairs with a path through the port."""

    def __init__(self, field: Field, port: str, holds: str = "") -> None:
        super().__init__(field, port, holds)
        self.port = port
        (self.wired,) = [wired for wired in field.fabric.ports if wired.tor_port == port]
        plane = field.fabric.planes[self.wired.plane]
        self.fibre = ocs_interface(plane, self.wired)
        self._plane = plane.name
        self._from_s = time.monotonic()

    def strike(self) -> None:
        self._from_s = time.monotonic()
        self.break_it()

    @abstractmethod
    def break_it(self) -> None: ...

    def touches(self, source: str, destination: str) -> bool:
        return self.field.led_through([self.port], self._from_s - 1.0, (source, destination))

    def darkens(self) -> frozenset[str]:
        return frozenset({self.port})


class FibreCut(PortFault):
    def break_it(self) -> None:
        links.set_up(self.fibre, up=False)

    def heal(self) -> None:
        """Mend the fibre; the light follows the mirrors, now and afterwards."""
        if self._fed():
            links.set_up(self.fibre, up=True)
            if not self._fed():  # the mirrors were moving
                links.set_up(self.fibre, up=False)

    def _fed(self) -> bool:
        try:
            counters = self.field.stage.testbed.ocs(self._plane).admin.counters()
        except AdminError:  # another fault: the mirrors stay unchanged
            return any(port == self.port for _, port in redirections(self.field.fabric))
        return any(counted.lit for counted in counters.ports if counted.egress == self.wired.egress)


class FibreFlapping(FibreCut):
    def __init__(self, field: Field, port: str, times: int) -> None:
        super().__init__(field, port)
        self._times = times

    def break_it(self) -> None:
        for _ in range(self._times):
            super().break_it()
            time.sleep(0.1)
            self.heal()
            time.sleep(0.2)
        super().break_it()


class FibreOneWay(PortFault):
    """A rack's frames on a plane are lost, and there is light."""

    longest_silence_s = FOUND_BY_PROBES_S
    ends_alone = True

    def break_it(self) -> None:
        # If the port's mirrors are moving, there is no redirection to delete.
        command = ["tc", "filter", "del", "dev", self.fibre, "ingress"]
        subprocess.run(command, capture_output=True, check=False)


class SmallFrames(PortFault):
    """A port passes no tagged frames of full size any more; small frames still pass."""

    longest_silence_s = FOUND_BY_PROBES_S

    def break_it(self) -> None:
        self._set_mtu(_SMALL_MTU)

    def heal(self) -> None:
        self._set_mtu(_USUAL_MTU)

    def _set_mtu(self, octets: int) -> None:
        # Other faults may have taken the port away.
        command = ["ip", "link", "set", "dev", self.port, "mtu", str(octets)]
        subprocess.run(command, capture_output=True, check=False)


class TrunksChanged(PortFault):
    """A third party takes an optical port out of its VLANs; needs Open vSwitch's daemons."""

    longest_silence_s = FOUND_BY_PROBES_S
    ends_alone = True

    def __init__(self, field: Field, port: str) -> None:
        super().__init__(field, port, OPEN_VSWITCH)

    def break_it(self) -> None:
        run(["ovs-vsctl", "--timeout=10", "set", "port", self.port, "trunks=4001"])


class PlaneFault(Fault):
    def __init__(self, field: Field, plane: str) -> None:
        super().__init__(field, plane)
        self.plane = plane
        self.ocs = field.stage.testbed.ocs(plane)


class EmulatorKilled(PlaneFault):
    """An optical switch's management dies; the mirrors stay."""

    def strike(self) -> None:
        self.ocs.kill()

    def heal(self) -> None:
        self.ocs.start()
        self.ocs.wait_until_ready()


class EmulatorFault(PlaneFault):
    """A fault kind of the emulators, for the length of the fault."""

    def __init__(self, field: Field, plane: str, kind: FaultKind, delay_s: float = 0.0) -> None:
        super().__init__(field, plane)
        self._kind = kind
        self._delay_s = delay_s

    def strike(self) -> None:
        self.ocs.admin.fault(self._kind, delay_s=self._delay_s)

    def heal(self) -> None:
        self.ocs.admin.clear()

    def darkens(self) -> frozenset[str]:
        """Probes of new paths end in the dark if a plane falsely reports a cross-connect."""
        if self._kind is not FaultKind.ONE_WAY:
            return frozenset()
        planes = self.field.fabric.planes
        return frozenset(
            port.tor_port
            for port in self.field.fabric.ports
            if planes[port.plane].name == self.plane
        )


class ForeignCrossConnect(PlaneFault):
    """A third party connects an unused port of a rack to an unwired port."""

    def __init__(self, field: Field, plane: str, port: int) -> None:
        super().__init__(field, plane)
        self._port = port

    def strike(self) -> None:
        try:
            self.ocs.admin.block_port(self._port)
        except AdminError:  # a circuit uses the port by now
            self.ocs.admin.block_port(_FAR_PORT)

    def heal(self) -> None:
        self.ocs.admin.unblock()
