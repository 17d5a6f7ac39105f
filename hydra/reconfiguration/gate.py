"""The gate between substeps 3-2 and 3-3: each new path has light and passes probes both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from hydra.failures import Failure, FailureKind
from hydra.model import Circuit, Fabric, NetworkState, Path, RackId, VlanId
from hydra.reconfiguration.commands import (
    Announce,
    AwaitPortsUp,
    Batch,
    Course,
    Outcome,
    ProbePath,
    Steps,
    ask_all,
)
from hydra.reconfiguration.plan import off_the_dark, pair_named, pair_of, sharing_vlans, without
from hydra.reconfiguration.retagging import retag_alone
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import able
from hydra.rings import rings_of
from hydra.roles import PortVlans

GATE: Final = frozenset({"carrier", "probe"})
"""The steps in which circuits and paths are tried before carrying traffic."""

_TorPort = tuple[RackId, str]


def gate(run: Run) -> Steps:
    """Give up new circuits without light, and new paths that pass no probes."""
    yield from _await_carrier(run)
    dark = _failed(run)
    yield from tag_last(run)
    paths = run.new_paths()
    left = without(run.plan.target, run.failures, run.lost_paths)
    yield from announce(run, "announce", left, paths)
    if not paths:
        return
    yield from _probe(run, paths)
    failed_ports = _ports_off_new_vlans(run, _failed(run) - dark)
    if failed_ports:
        yield from retag_alone(run, "isolate", failed_ports)
        yield from _relearn(run)


def _relearn(run: Run) -> Steps:
    """Announce the servers of new paths once failed circuits are isolated: announcements and probes
    that a failed circuit led back have passed all ToRs of their VLAN, which learned the servers at
    the wrong ports.
    """
    left = without(run.plan.target, run.failures, run.lost_paths)
    yield from announce(run, "relearn", left, run.new_paths(), sent=True)


def _await_carrier(run: Run) -> Steps:
    """Wait for carrier at the receiving ports of new circuits, and give up circuits without."""
    lighting = rings_of(run.plan.connect, run.plan.target.topology.circuits)
    circuits = sorted(lighting - run.failures.keys())
    timeout_s = run.policy.timeouts.port_up_s
    commands = _awaiting(run.fabric, circuits, timeout_s)
    if not commands:
        return
    outcomes = yield from ask_all("carrier", commands)
    run.note("carrier", outcomes)
    dark: dict[_TorPort, Failure] = {}
    for command, outcome in zip(commands, outcomes, strict=True):
        kind = outcome.failure.kind if outcome.failure else FailureKind.NO_CARRIER
        for name in outcome.value_or(command.ports):
            place = f"{run.fabric.racks[command.rack].name}:{name}"
            reason = f"no carrier at {place} within {timeout_s:g} s"
            dark[command.rack, name] = Failure("carrier", place, kind, reason)
    for circuit in circuits:
        failures = (dark[port] for port in _receiving(run.fabric, circuit) if port in dark)
        if failure := next(failures, None):
            run.fail(circuit, failure)


def tag_last(run: Run) -> Steps:
    """Add circuits with light to VLANs in use elsewhere, and remove circuits without light from the
    VLANs of new paths.
    """
    lit = {
        (run.fabric.ports[end].rack, run.fabric.ports[end].tor_port)
        for circuit in run.lit()
        for end in circuit.ends
    }
    ports = _ports_off_new_vlans(run, _failed(run))
    for rack, named in run.plan.tag_last.items():
        for name, vlans in named.items():
            if (rack, name) in lit:
                ports.setdefault(rack, {})[name] = vlans
    yield from retag_alone(run, "tag", ports)


def _failed(run: Run) -> AbstractSet[Circuit]:
    return run.plan.target.topology.circuits - run.lit()


def _ports_off_new_vlans(
    run: Run, failed: Collection[Circuit]
) -> dict[RackId, dict[str, PortVlans]]:
    """VLANs for ports of ``failed`` circuits that are tagged with the VLAN of a new path.

    ToRs flood frames of the new path into such a port. An optical switch may lead the light back to
    the port, and the ToR then learns addresses of the rack's own servers there.
    """
    target = run.plan.target
    flooded = {target.vlans[path] for path in run.new_paths()}
    left = without(target, run.failures, run.lost_paths)
    return off_the_dark(run.fabric, target, left, failed, flooded)


def announce(
    run: Run, step: str, state: NetworkState, paths: Collection[Path] = (), *, sent: bool = False
) -> Steps:
    """Announce the servers at both ends of ``paths``, and of paths of ``state`` that share a
    VLAN-ID with a port retagged since the last announcement.

    ``sent``: as in :class:`~hydra.reconfiguration.commands.Announce`.
    """
    retagged = sharing_vlans(state, run.relearning, before=run.plan.current)
    run.relearning.clear()
    vlans: dict[RackId, set[VlanId]] = {}
    for path in (*paths, *retagged):
        for rack in pair_of(path):
            vlans.setdefault(rack, set()).add(state.vlans[path])
    if not vlans:
        return
    servers = tuple(
        (server, tuple(sorted(tags)))
        for rack, tags in sorted(vlans.items())
        for server in able(run, rack)
    )
    outcomes = yield Batch(step, (Announce(servers, sent),))
    run.note(step, outcomes)


def _probe(run: Run, paths: Collection[Path]) -> Steps:
    probes: list[ProbePath] = []
    uses = Counter(circuit for path in paths for circuit in path.circuits)
    shared = {circuit for circuit, number in uses.items() if number > 1}
    for path in paths:
        a, b = able(run, path.src), able(run, path.dst)
        if a and b:
            vlan = run.plan.target.vlans[path]
            probes.append(
                ProbePath(path, vlan, (a[0], b[0]), timeout_s=run.policy.timeouts.probe_s)
            )
        else:
            _fail_path(run, path, shared, _not_probed(run, path, path.dst if a else path.src))
    if not probes:
        return
    verdicts = yield from _verdicts(run, probes)
    tried = list(zip(probes, verdicts, strict=True))
    good = {circuit for probed, lost in tried if lost is None for circuit in probed.path.circuits}
    dead = run.conditions.dead_uplinks  # by now
    for probed, lost in tried:
        if lost is None:
            continue
        unable = [server for server in probed.ends if server.name in dead]
        cause = _not_probed(run, probed.path, unable[0].rack) if unable else lost
        _fail_path(run, probed.path, good, cause)


def _verdicts(run: Run, probes: Sequence[ProbePath]) -> Course[list[Failure | None]]:
    """Probe paths; if probes are lost where carrier is still missing, probe once more.

    A ToR may have reported carrier from before the move of the mirrors. Returns the failure of each
    probe, in order; None if the probe passed both ways.
    """
    fabric, port_up_s = run.fabric, run.policy.timeouts.port_up_s
    outcomes = list((yield from ask_all("probe", probes)))
    run.note("probe", outcomes)
    lost = [n for n, outcome in enumerate(outcomes) if outcome.confirmed and outcome.value]
    late = yield from _without_carrier(fabric, {n: probes[n].path for n in lost})
    if late:
        circuits = {circuit for pair_circuits in late.values() for circuit in pair_circuits}
        yield Batch("probe", _awaiting(fabric, circuits, port_up_s))
        repeated = yield from ask_all("probe", [probes[n] for n in late])
        run.note("probe", repeated)
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


def _not_probed(run: Run, path: Path, rack: RackId) -> Failure:
    reason = f"no server of {run.fabric.racks[rack].name} can be probed"
    return Failure("probe", run.between(path), FailureKind.NOT_PROBED, reason)


def _fail_path(run: Run, path: Path, good: Collection[Circuit], failure: Failure) -> None:
    """Give up the circuits of ``path`` except ``good`` circuits, which other paths use; if all are
    good, give up only the path.
    """
    blamed = set(path.circuits).difference(good) - run.use().serving
    for circuit in blamed:
        run.fail(circuit, failure)
    if not blamed:
        run.lose(path, failure)
