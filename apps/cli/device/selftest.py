"""``hydra device selftest``"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from apps.cli.command import Command
from apps.cli.device.named import find, in_use_by_controller
from apps.cli.output import ExitCode, agreed, json_option, print_json, print_table
from apps.cli.parameters import config_option
from apps.process.configuration import load_configuration
from apps.tools.device_selftest import (
    Probe,
    VlanTrial,
    read_optical,
    read_tor,
    try_cross_connect,
    try_vlan,
)
from drivers.registry import optical_switch, tor_switch
from hydra.config import Loaded
from hydra.model import CrossConnect, Plane, Rack
from hydra.roles import OpticalSwitch, TorSwitch


@click.command(
    cls=Command,
    examples=[
        "hydra device selftest p1 --config fabric.yaml",
        "hydra device selftest r1 --config fabric.yaml --yes --json",
    ],
)
@click.argument("name", metavar="DEVICE")
@click.option("--yes", is_flag=True, help="Go ahead with the round trip without asking.")
@click.option("--reads-only", is_flag=True, help="No round trip.")
@config_option()
@json_option
@click.pass_context
def selftest(
    ctx: click.Context, name: str, yes: bool, reads_only: bool, config: Path, as_json: bool
) -> None:
    """Check that a DEVICE behaves as its driver expects.

    Reads everything that the driver can read. Then a round trip: one cross-connect is set up and
    taken down again, or one VLAN is added to a ToR port and removed. The round trip uses ports
    without traffic, not in use by the device or the controller's journal; the ports are named
    before anything is written. Exit status 1 if anything fails.
    """
    loaded = load_configuration(config)
    device = find(loaded.fabric, name)
    probe = Probe()
    if isinstance(device, Plane):
        with closing(optical_switch(device, loaded.policy.timeouts.ocs_s)) as switch:
            skipped = _test_optical(loaded, device, switch, probe, yes, reads_only)
    else:
        with closing(tor_switch(device, loaded.policy.timeouts.tor_s)) as tor:
            skipped = _test_tor(loaded, device, tor, probe, yes, reads_only)
    if as_json:
        steps = [asdict(step) for step in probe.steps]
        document = {"device": device.name, "passed": probe.passed, "steps": steps}
        print_json({**document, "round_trip_skipped": skipped})
    else:
        rows = ((s.name, "ok" if s.ok else "FAILED", f"{s.ms:.1f}", s.detail) for s in probe.steps)
        print_table(f"Self-test of {device.name}", ("step", "", "ms>", "detail"), rows)
        click.echo("passed" if probe.passed else "FAILED")
        if skipped:
            click.echo(f"no round trip: {skipped}")
    ctx.exit(ExitCode.OK if probe.passed else ExitCode.PROBLEM)


def _test_optical(
    loaded: Loaded, plane: Plane, switch: OpticalSwitch, probe: Probe, yes: bool, reads_only: bool
) -> str | None:
    """Reason why there was no round trip; None after a round trip."""
    pair = read_optical(probe, switch, loaded.fabric, plane, in_use_by_controller(loaded))
    reason = _why_not(probe, reads_only, pair, "no free ingress and egress port")
    if pair is None or reason:
        return reason
    notice = (
        f"{plane.name}: {pair.ingress} will be connected to {pair.egress} and taken down again."
    )
    if not _agreed(notice, yes):
        return "not agreed to"
    try_cross_connect(probe, switch, pair)
    return None


def _test_tor(
    loaded: Loaded, rack: Rack, tor: TorSwitch, probe: Probe, yes: bool, reads_only: bool
) -> str | None:
    trial = read_tor(probe, tor, loaded.fabric, rack, in_use_by_controller(loaded))
    nothing = (
        "the ports have no VLANs"
        if tor.capabilities.labels
        else "no optical port without a circuit"
    )
    reason = _why_not(probe, reads_only, trial, nothing)
    if trial is None or reason:
        return reason
    notice = (
        f"{rack.name}: port {trial.port}, which carries only the parking VLAN, will be tagged for "
        f"VLAN {trial.vlan} as well, and put back."
    )
    if not _agreed(notice, yes):
        return "not agreed to"
    try_vlan(probe, tor, trial)
    return None


def _why_not(
    probe: Probe, reads_only: bool, found: CrossConnect | VlanTrial | None, nothing: str
) -> str | None:
    if reads_only:
        return "reads only"
    if not probe.passed:
        return "a read failed"
    return nothing if found is None else None


def _agreed(notice: str, yes: bool) -> bool:
    click.echo(notice, err=True)
    return yes or agreed("Go ahead?")
