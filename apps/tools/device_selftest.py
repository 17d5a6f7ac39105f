"""Self-test of a device and driver: reads first, then a change on unused ports."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from apps.tools.in_use import InUse
from hydra.errors import DeviceError
from hydra.model import CrossConnect, Fabric, Plane, Rack, VlanId
from hydra.port_labels import behind_tor_ports, wired_to
from hydra.roles import (
    AlarmSource,
    CounterReader,
    OpticalSwitch,
    PortState,
    PortVlans,
    PowerMeter,
    TorSwitch,
)

_ValueT = TypeVar("_ValueT")


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the test, and the outcome."""

    name: str
    ok: bool
    detail: str
    ms: float


@dataclass(frozen=True, slots=True)
class _Seen:
    """Readings of an optical switch."""

    size: tuple[int, int]
    present: frozenset[CrossConnect]
    states: Mapping[int, PortState]


@dataclass(frozen=True, slots=True)
class VlanTrial:
    """A trial of a further VLAN on a ToR port without a circuit."""

    port: str
    before: PortVlans
    vlan: VlanId

    @property
    def during(self) -> PortVlans:
        return PortVlans(self.before.tagged | {self.vlan}, self.before.native)


class Probe:
    """Runs steps in turn, and keeps the outcomes."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    @property
    def passed(self) -> bool:
        return all(step.ok for step in self.steps)

    def attempt(
        self, name: str, action: Callable[[], _ValueT], describe: Callable[[_ValueT], str]
    ) -> _ValueT | None:
        """The action's value; None if the device failed: the step has the reason."""
        started_s = time.perf_counter()
        try:
            value = action()
        except DeviceError as error:
            self._note(name, started_s, str(error), ok=False)
            return None
        self._note(name, started_s, describe(value), ok=True)
        return value

    def carry_out(self, name: str, action: Callable[[], None], detail: str) -> bool:
        """True if the device carried the action out."""
        started_s = time.perf_counter()
        try:
            action()
        except DeviceError as error:
            self._note(name, started_s, str(error), ok=False)
            return False
        self._note(name, started_s, detail, ok=True)
        return True

    def judge(self, name: str, complaint: str | None, agreed: str) -> None:
        """Add a step that compares values read before."""
        self._note(name, time.perf_counter(), complaint or agreed, ok=complaint is None)

    def _note(self, name: str, started_s: float, detail: str, *, ok: bool) -> None:
        self.steps.append(Step(name, ok, detail, (time.perf_counter() - started_s) * 1000))


# --- optical switches ---------------------------------------------------------------------------


def read_optical(
    probe: Probe, switch: OpticalSwitch, fabric: Fabric, plane: Plane, in_use: InUse
) -> CrossConnect | None:
    """Make all reads; returns a cross-connect between free ports to try, None if there is none."""
    if not probe.carry_out("connect", switch.open, plane.address):
        return None
    probe.attempt("identity", switch.identity, lambda i: f"{i.vendor} {i.model} {i.firmware}")
    size = probe.attempt("size", switch.size, lambda s: f"{s[0]} ingress, {s[1]} egress")
    present = probe.attempt("cross-connects", switch.cross_connects, lambda c: f"{len(c)}")
    if size is None or present is None:
        return None
    numbers = range(1, sum(size) + 1)
    states = probe.attempt("port states", lambda: switch.port_states(numbers), _count_states)
    probe.judge("wiring", _wiring_complaint(fabric, plane, size), "every wired port exists")
    probe.judge(
        "journal", _missing(in_use, plane, present), "cross-connects of the controller are there"
    )
    if isinstance(switch, PowerMeter) and switch.capabilities.power_readings:
        meter = switch
        probe.attempt("power", lambda: meter.power_dbm(numbers), lambda p: f"{len(p)} readings")
    if isinstance(switch, AlarmSource) and switch.capabilities.alarms:
        probe.attempt("alarms", switch.alarms, lambda a: f"{len(a)} standing")
    if states is None:
        return None
    return _free_pair(_Seen(size, present, states), fabric, plane, in_use)


def try_cross_connect(probe: Probe, switch: OpticalSwitch, pair: CrossConnect) -> None:
    """Connect, read back, disconnect, read back."""
    shown = f"{pair.ingress} to {pair.egress}"
    if probe.carry_out("set up", lambda: switch.change([], [pair]), shown):
        seen = probe.attempt("read back", switch.cross_connects, lambda c: f"{len(c)}")
        if seen is not None:
            complaint = None if pair in seen else f"{shown} is not among the cross-connects"
            probe.judge("is connected", complaint, shown)
    # Even after an error: a set-up whose reply was lost may have been made.
    probe.carry_out("tear down", lambda: switch.change([pair], []), shown)
    seen = probe.attempt("read back", switch.cross_connects, lambda c: f"{len(c)}")
    if seen is not None:
        complaint = f"{shown} is still connected: disconnect it" if pair in seen else None
        probe.judge("is free again", complaint, shown)


def _count_states(states: Mapping[int, PortState]) -> str:
    found = list(states.values())
    return ", ".join(f"{found.count(s)} {s.value}" for s in PortState if s in found)


def _wiring_complaint(fabric: Fabric, plane: Plane, size: tuple[int, int]) -> str | None:
    ingress, egress = size
    for port in fabric.ports:
        if port.plane != plane.id:
            continue
        if not 1 <= port.ingress <= ingress:
            return f"{port.tor_port} is wired to ingress {port.ingress}, of 1..{ingress}"
        if not ingress < port.egress <= ingress + egress:
            last = ingress + egress
            return f"{port.tor_port} is wired to egress {port.egress}, of {ingress + 1}..{last}"
    return None


def _missing(in_use: InUse, plane: Plane, present: Collection[CrossConnect]) -> str | None:
    lost = sorted(in_use.on(plane.id).keys() - set(present))
    if not lost:
        return None
    listed = ", ".join(f"{cross.ingress} to {cross.egress}" for cross in lost[:8])
    return f"{len(lost)} of the controller's cross-connects are missing: {listed}"


def _free_pair(seen: _Seen, fabric: Fabric, plane: Plane, in_use: InUse) -> CrossConnect | None:
    """The last ingress and the last egress port without a circuit, preferably unwired."""
    ingress, egress = seen.size
    held = {*seen.present, *in_use.on(plane.id)}
    busy = {port for cross in held for port in (cross.ingress, cross.egress)}
    usable = [
        port for port, state in seen.states.items()
        if port not in busy and state in (PortState.ENABLED, PortState.UNKNOWN)
    ]  # fmt: skip
    wired = wired_to(fabric, plane.id)
    usable.sort(key=lambda port: (port in wired, -port))
    inputs = [port for port in usable if port <= ingress]
    outputs = [port for port in usable if ingress < port <= ingress + egress]
    return CrossConnect(inputs[0], outputs[0]) if inputs and outputs else None


# --- ToR switches -------------------------------------------------------------------------------


def read_tor(
    probe: Probe, tor: TorSwitch, fabric: Fabric, rack: Rack, in_use: InUse
) -> VlanTrial | None:
    """Make all reads; returns a VLAN to try on a free port, None if there is no such port."""
    if not probe.carry_out("connect", tor.open, rack.tor.address):
        return None
    optical = [port.tor_port for port in fabric.ports_of(rack.id)]
    ports = tuple(behind_tor_ports(fabric, rack))
    had = probe.attempt("ports", tor.ports, lambda had: f"{len(had)}")
    if had is not None:
        lost = ", ".join(sorted(set(ports) - set(had)))
        complaint = f"the switch lacks configured ports: {lost}" if lost else None
        probe.judge("as configured", complaint, f"{len(ports)} ports")
    vlans = None
    if not tor.capabilities.labels:
        vlans = probe.attempt("VLANs", lambda: tor.vlans(ports), lambda v: f"of {len(v)} ports")
    links = probe.attempt(
        "links", lambda: tor.link_up(ports), lambda up: f"{sum(up.values())} of {len(up)} up"
    )
    if isinstance(tor, CounterReader) and tor.capabilities.counters:
        reader = tor
        probe.attempt("counters", lambda: reader.counters(ports), lambda c: f"of {len(c)} ports")
    if vlans is None or links is None:
        return None
    return _free_port(optical, vlans, fabric, in_use)


def try_vlan(probe: Probe, tor: TorSwitch, trial: VlanTrial) -> None:
    """Tag the port for a further VLAN, read back, and restore it."""
    for name, wanted in (("tag", trial.during), ("untag", trial.before)):
        change = {trial.port: wanted}
        # Both, even if the first failed: the command may have taken effect.
        probe.carry_out(name, partial(tor.set_vlans, change), f"{trial.port}, VLAN {trial.vlan}")
        seen = probe.attempt("read back", lambda: tor.vlans([trial.port]), lambda _: trial.port)
        if seen is not None:
            complaint = None if seen == change else f"{trial.port} has other VLANs than written"
            probe.judge("as written", complaint, trial.port)


def _free_port(
    optical: Collection[str], vlans: Mapping[str, PortVlans], fabric: Fabric, in_use: InUse
) -> VlanTrial | None:
    parked = PortVlans(frozenset({fabric.parking_vlan}))
    taken = in_use.vlans.union(*(vlans[port].tagged for port in optical))
    spare = next(_circuit_vlans_down(fabric, taken), None)
    free = [port for port in optical if vlans[port] == parked]
    return None if spare is None or not free else VlanTrial(free[-1], parked, spare)


def _circuit_vlans_down(fabric: Fabric, taken: Collection[VlanId]) -> Iterator[VlanId]:
    first, last = fabric.circuit_vlans.first, fabric.circuit_vlans.last
    return (VlanId(vlan) for vlan in range(last, first - 1, -1) if vlan not in taken)
