"""Gating: new circuits need carrier at both ToRs, and each new path passes probes both ways.

The gate reports failures; the executor decides the consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from hydra.failures import Failure, FailureKind
from hydra.model import Circuit, Fabric, Path, RackId
from hydra.reconfiguration.commands import (
    AwaitPortsUp,
    Batch,
    Course,
    Outcome,
    ProbePath,
    ask_all,
)
from hydra.reconfiguration.plan import pair_named, pair_of

GATE: Final = frozenset({"carrier", "probe"})
"""The steps in which circuits and paths are tried before carrying traffic."""

Note = Callable[[str, Sequence[Outcome[Any]]], None]
"""Takes the name and the outcomes of a finished step."""
_TorPort = tuple[RackId, str]


def await_carrier(
    fabric: Fabric, circuits: Iterable[Circuit], timeout_s: float, note: Note
) -> Course[dict[Circuit, Failure]]:
    """Wait for carrier at the receiving ports of ``circuits``; return circuits without, with the
    failure.
    """
    circuits = sorted(circuits)
    commands = _awaiting(fabric, circuits, timeout_s)
    if not commands:
        return {}
    outcomes = yield from ask_all("carrier", commands)
    note("carrier", outcomes)
    dark: dict[_TorPort, Failure] = {}
    for command, outcome in zip(commands, outcomes, strict=True):
        kind = outcome.failure.kind if outcome.failure else FailureKind.NO_CARRIER
        for name in outcome.value_or(command.ports):
            place = f"{fabric.racks[command.rack].name}:{name}"
            reason = f"no carrier at {place} within {timeout_s:g} s"
            dark[command.rack, name] = Failure("carrier", place, kind, reason)
    failed: dict[Circuit, Failure] = {}
    for circuit in circuits:
        for port in _receiving(fabric, circuit):
            if port in dark:
                failed.setdefault(circuit, dark[port])
    return failed


def probe(
    fabric: Fabric, probes: Sequence[ProbePath], port_up_s: float, note: Note
) -> Course[list[Failure | None]]:
    """Probe paths; if probes are lost where carrier is still missing, probe once more.

    A ToR may have reported the carrier of before the mirrors moved. ``port_up_s``: seconds for a
    port to get carrier. Returns the failure of each probe, in order; None if the probe passed both
    ways.
    """
    outcomes = list((yield from ask_all("probe", probes)))
    note("probe", outcomes)
    lost = [n for n, outcome in enumerate(outcomes) if outcome.confirmed and outcome.value]
    late = yield from _without_carrier(fabric, {n: probes[n].path for n in lost})
    if late:
        circuits = {circuit for pair_circuits in late.values() for circuit in pair_circuits}
        yield Batch("probe", _awaiting(fabric, circuits, port_up_s))
        repeated = yield from ask_all("probe", [probes[n] for n in late])
        note("probe", repeated)
        for n, outcome in zip(late, repeated, strict=True):
            outcomes[n] = outcome
    return [
        _verdict(fabric, probe.path, outcome)
        for probe, outcome in zip(probes, outcomes, strict=True)
    ]


def _without_carrier(
    fabric: Fabric, paths: dict[int, Path]
) -> Course[dict[int, frozenset[Circuit]]]:
    """The circuits of each path without carrier at this moment; paths with full carrier are left
    out.
    """
    awaited = _awaiting(fabric, {c for path in paths.values() for c in path.circuits}, 0.0)
    if not awaited:
        return {}
    probed = yield from ask_all("probe", awaited)
    dark = {
        (command.rack, name)
        for command, outcome in zip(awaited, probed, strict=True)
        for name in outcome.value_or(())
    }
    late = {n: _ending_at(fabric, path, dark) for n, path in paths.items()}
    return {n: circuits for n, circuits in late.items() if circuits}


def _ending_at(fabric: Fabric, path: Path, ports: Collection[_TorPort]) -> frozenset[Circuit]:
    """Circuits of a path received at one of these ToR ports."""
    return frozenset(
        circuit
        for circuit in path.circuits
        if any(port in ports for port in _receiving(fabric, circuit))
    )


def _receiving(fabric: Fabric, circuit: Circuit) -> list[_TorPort]:
    """The ToR ports that receive the light of a circuit."""
    ports = (fabric.ports[end] for end in circuit.receivers)
    return [(port.rack, port.tor_port) for port in ports]


def _awaiting(
    fabric: Fabric, circuits: Iterable[Circuit], timeout_s: float
) -> tuple[AwaitPortsUp, ...]:
    """Commands that wait for carrier at the receiving ports of ``circuits``."""
    ports: dict[RackId, set[str]] = {}
    for circuit in circuits:
        for rack, name in _receiving(fabric, circuit):
            ports.setdefault(rack, set()).add(name)
    return tuple(
        AwaitPortsUp(rack, tuple(sorted(names)), timeout_s) for rack, names in sorted(ports.items())
    )


def _verdict(fabric: Fabric, path: Path, outcome: Outcome[Sequence[str]]) -> Failure | None:
    names = pair_named(fabric, pair_of(path))
    if outcome.failure is not None:
        return Failure("probe", names, outcome.failure.kind, outcome.failure.reason)
    if outcome.value:
        reason = f"no probe came through {', '.join(outcome.value)}"
        return Failure("probe", names, FailureKind.PROBE_LOST, reason)
    return None
