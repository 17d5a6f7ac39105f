"""The gate between substeps 3-2 and 3-3: each new path has light and passes probes both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hydra.failures import Failure, FailureKind
from hydra.model import Circuit, NetworkState, Path, RackId, VlanId
from hydra.reconfiguration.commands import Announce, Batch, ProbePath, Steps
from hydra.reconfiguration.gating import await_carrier, probe
from hydra.reconfiguration.plan import off_the_dark, pair_of, without
from hydra.reconfiguration.retagging import retag_alone
from hydra.reconfiguration.run import Run
from hydra.reconfiguration.steering import able
from hydra.rings import rings_of
from hydra.roles import PortVlans


def gate(run: Run) -> Steps:
    """Give up new circuits without light, and new paths that pass no probes."""
    yield from _await_carrier(run)
    yield from tag_last(run)
    paths = run.new_paths()
    if not paths:
        return
    left = without(run.plan.target, run.failures, run.lost_paths)
    yield from announce(run, "announce", left, paths)
    yield from _probe(run, paths)
    yield from retag_alone(run, "isolate", _ports_off_new_vlans(run))


def _await_carrier(run: Run) -> Steps:
    lighting = rings_of(run.plan.connect, run.plan.target.topology.circuits)
    fresh = lighting - run.failures.keys()
    timeout_s = run.policy.timeouts.port_up_s
    dark = yield from await_carrier(run.fabric, fresh, timeout_s, run.note)
    for circuit, failure in dark.items():
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
    ports = _ports_off_new_vlans(run)
    for rack, named in run.plan.tag_last.items():
        for name, vlans in named.items():
            if (rack, name) in lit:
                ports.setdefault(rack, {})[name] = vlans
    yield from retag_alone(run, "tag", ports)


def _ports_off_new_vlans(run: Run) -> dict[RackId, dict[str, PortVlans]]:
    """VLANs for ports of failed circuits that are tagged with the VLAN of a new path.

    ToRs flood frames of the new path into such a port. An optical switch may lead the light back to
    the port, and the ToR then learns addresses of the rack's own servers there.
    """
    target = run.plan.target
    flooded = {target.vlans[path] for path in run.new_paths()}
    left = without(target, run.failures, run.lost_paths)
    return off_the_dark(run.fabric, target, left, target.topology.circuits - run.lit(), flooded)


def announce(run: Run, step: str, state: NetworkState, paths: Collection[Path] = ()) -> Steps:
    """Announce the servers at both ends of ``paths``, and of paths of ``state`` through ports that
    were retagged since the last announcement.
    """
    retagged = [
        path
        for path in (state.topology.paths if run.relearning else ())
        if any(end in run.relearning for circuit in path.circuits for end in circuit.ends)
    ]
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
    outcomes = yield Batch(step, (Announce(servers),))
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
    port_up_s = run.policy.timeouts.port_up_s
    verdicts = yield from probe(run.fabric, probes, port_up_s, run.note)
    tried = list(zip(probes, verdicts, strict=True))
    good = {circuit for probed, lost in tried if lost is None for circuit in probed.path.circuits}
    dead = run.conditions.dead_uplinks  # by now
    for probed, lost in tried:
        if lost is None:
            continue
        unable = [server for server in probed.ends if server.name in dead]
        cause = _not_probed(run, probed.path, unable[0].rack) if unable else lost
        _fail_path(run, probed.path, good, cause)


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
