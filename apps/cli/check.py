"""``hydra check``"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from apps.cli.command import Command
from apps.cli.output import ExitCode, json_option, print_facts, print_json, warn
from apps.journal.opening import check_journal, needs_etcd
from apps.openflow.seam import OpenFlowTls
from apps.process.configuration import load_configuration
from apps.process.single_instance import check_writable
from apps.rest.tokens import TokenFile
from apps.rest.trust import Tls, trust_in
from apps.workers.opening import check_keys
from hydra.config import Loaded
from hydra.errors import ConfigError, HydraError, Problem
from hydra.forwarding.frames import TAGGED_HEADER_BYTES
from hydra.model import Addressing
from hydra.policy import ControllerSettings, EtcdSettings

_ADDRESSING: Final = {
    Addressing.ONE_SUBNET: "all servers share one subnet; rack prefixes only classify",
    Addressing.ROUTED: "each rack is its own subnet",
}


@click.command(
    cls=Command,
    examples=[
        "hydra check configs/demo.yaml",
        "hydra check --directory /var/lib/hydra /etc/hydra/fabric.yaml",
        "hydra check --json fabric.yaml | jq '.problems[].path'",
    ],
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the controller runs (as a service: /var/lib/hydra), from which relative paths in "
    "FILE start; here, if left out.",
)
@json_option
@click.pass_context
def check(ctx: click.Context, file: Path, directory: Path | None, as_json: bool) -> None:
    """Check a configuration FILE and say what it describes.

    Lists every problem with its line and its path in the file. What passes here starts the
    controller: both run the same code. Devices are not contacted. The files that the controller
    reads and writes have to be there for the user who asks.
    """
    try:
        if directory is None:
            loaded = _checked(file)
        else:
            file = file.absolute()
            with chdir(directory):
                loaded = _checked(file)
    except ConfigError as error:
        _report_problems(error, as_json)
        ctx.exit(ExitCode.PROBLEM)
    if as_json:
        print_json({"ok": True, **_summary(loaded), "warnings": _listed(loaded.warnings)})
        return
    for warning in loaded.warnings:
        warn(f"{loaded.source}:{warning}")
    click.echo(f"{loaded.source}: usable")
    print_facts(_facts(loaded))


def _checked(file: Path) -> Loaded:
    """The file as a start would read it. Raises ConfigError with all that a start would refuse."""
    loaded = load_configuration(file)
    if problems := list(_problems_of_files(loaded.controller)):
        raise ConfigError(loaded.source, problems)
    return loaded


def _problems_of_files(settings: ControllerSettings) -> Iterator[Problem]:
    """Defects of tokens, certificates, journal and audit log that a start would refuse."""
    tls, tokens = (settings.tls_certificate, settings.tls_key), settings.tokens
    certificate, key = settings.openflow_certificate, settings.openflow_key
    authority = settings.openflow_authority
    checks: list[tuple[str, Callable[[], object]]] = []
    if settings.etcd is None:
        checks.append(("journal", partial(check_journal, settings.journal)))
    else:
        checks.append(("store", partial(_check_etcd, settings.etcd)))
    if settings.audit_log is not None:
        checks.append(("audit_log", partial(check_writable, settings.audit_log, streams=True)))
    if tokens is not None:
        checks.append(("tokens", partial(TokenFile, Path(tokens))))
    if tls[0] and tls[1]:
        checks.append(("tls_certificate", Tls(tls[0], tls[1]).context))
    if certificate and key and authority:
        checks.append(("openflow_certificate", OpenFlowTls(certificate, key, authority).check))
    if settings.workers is not None:
        checks.append(("workers", partial(check_keys, settings.workers)))
    checks.append(("authority", partial(trust_in, settings.authority)))
    for name, refuse in checks:
        try:
            refuse()
        except HydraError as error:
            yield Problem(f"controller.{name}", str(error))
        except OSError as error:
            why = f"this user can't tell of {error.filename}: {error.strerror}"
            yield Problem(f"controller.{name}", why)


def _check_etcd(settings: EtcdSettings) -> None:
    """Raise HydraError unless the files and the package that etcd needs are there."""
    needs_etcd("apps.etcd.gateway").check_files(settings)


def _report_problems(error: ConfigError, as_json: bool) -> None:
    if as_json:
        listed = _listed(error.problems)
        print_json({"ok": False, "count": error.count, "problems": listed})
        return
    click.echo(str(error), err=True)
    click.echo(f"{error.count:,} problem{'s' if error.count != 1 else ''}", err=True)


def _listed(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    return [asdict(problem) for problem in problems]


def _summary(loaded: Loaded) -> dict[str, Any]:
    fabric, policy = loaded.fabric, loaded.policy
    return {
        "fabric": fabric.name,
        "racks": len(fabric.racks),
        "servers": len(fabric.servers),
        "planes": len(fabric.planes),
        "optical_ports": len(fabric.ports),
        "one_way_circuits": fabric.one_way,
        "addressing": fabric.addressing.value,
        "substrate": fabric.substrate.value,
        "circuit_vlans": len(fabric.circuit_vlans),
        "mode": policy.mode.value,
        "algorithm": policy.algorithm,
        "frame_bytes": policy.server_mtu + TAGGED_HEADER_BYTES,
    }


def _facts(loaded: Loaded) -> list[tuple[str, object]]:
    fabric, policy = loaded.fabric, loaded.policy
    vlans, parked = fabric.circuit_vlans, fabric.parking_vlan
    parking = f"{parked} for parking" if parked else "as labels"
    return [
        ("fabric", fabric.name),
        ("racks", f"{len(fabric.racks)} with {len(fabric.servers):,} servers"),
        ("planes", len(fabric.planes)),
        ("optical ports", f"{len(fabric.ports):,}"),
        ("addressing", f"{fabric.addressing.value} ({_ADDRESSING[fabric.addressing]})"),
        ("substrate", fabric.substrate.value),
        ("circuits", "one-way, in rings" if fabric.one_way else "duplex"),
        ("VLANs", f"{vlans.first}-{vlans.last} for circuits, {parking}"),
        ("frames", _frames(policy.server_mtu)),
        ("policy", f"{policy.mode.value}, {policy.algorithm}, at most {policy.max_hops} hops"),
        ("OpenFlow", _openflow(loaded.controller)),
        ("REST", f"{loaded.controller.rest_host} port {loaded.controller.rest_port}"),
    ]


def _frames(server_mtu: int) -> str:
    octets = server_mtu + TAGGED_HEADER_BYTES
    return f"{octets:,} bytes, tag included, have to pass each ToR port (policy.server_mtu)"


def _openflow(settings: ControllerSettings) -> str:
    if settings.workers is not None:
        return f"by workers, at {settings.workers.host} port {settings.workers.port}"
    return f"{settings.openflow_host} port {settings.openflow_port}"
