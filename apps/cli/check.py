"""``hydra check``"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import click

from apps.cli.command import Command
from apps.cli.output import ExitCode, json_option, print_facts, print_json, warn
from apps.journal.opening import check_journal, needs_etcd
from apps.openflow.interface import OpenFlowTls
from apps.process.configuration import load_configuration
from apps.process.single_instance import check_writable
from apps.rest.tokens import TokenFile
from apps.rest.trust import Tls, trust_in
from apps.workers.opening import check_keys
from drivers.credentials import secret
from drivers.transports.tls import TlsOptions, authorities
from hydra.config import Loaded
from hydra.errors import ConfigError, DeviceError, HydraError, Problem
from hydra.forwarding.frames import TAGGED_HEADER_BYTES
from hydra.model import Fabric, Login
from hydra.settings import ControllerSettings, EtcdSettings

file_argument = click.argument("file", type=click.Path(path_type=Path))
directory_option = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help=(
        "Working directory of the controller (as a service: /var/lib/hydra), for relative paths "
        "in FILE; default: the current directory. A directory that does not exist yet counts as "
        "empty."
    ),
)
_NAMED: Final = 5
"""Most devices named in a problem; further devices are counted."""


@click.command(
    cls=Command,
    examples=[
        "hydra check configs/demo.yaml",
        "hydra check --directory /var/lib/hydra /etc/hydra/fabric.yaml",
        "hydra check --json fabric.yaml | jq '.problems[].path'",
    ],
)
@file_argument
@directory_option
@json_option
@click.pass_context
def check(ctx: click.Context, file: Path, directory: Path | None, as_json: bool) -> None:
    """Check a configuration FILE and describe its contents.

    Lists every problem with the line and the path in the file. A file that passes here starts the
    controller: both run the same code. Devices are not contacted. Files that the controller reads
    and writes must be accessible to the user of this command.
    """
    try:
        loaded = checked(file, directory)
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


def checked(file: Path, directory: Path | None) -> Loaded:
    """The file, loaded as at a start in ``directory`` (None: here).

    Raises ConfigError with all problems that a start would refuse.
    """
    if directory is not None:
        file = file.absolute()
        if not directory.is_dir():
            return _checked_without(directory, file)
        with chdir(directory):
            return _checked(file)
    return _checked(file)


def _checked_without(directory: Path, file: Path) -> Loaded:
    """The file, loaded as at a start in ``directory``, which systemd makes at the first start."""
    with TemporaryDirectory() as empty, chdir(empty):
        loaded = _checked(file)
    missing = Problem(
        "",
        f"{directory} does not exist, and was taken as empty: systemd makes /var/lib/hydra at the "
        "service's first start",
    )
    return replace(loaded, warnings=(*loaded.warnings, missing))


def _checked(file: Path) -> Loaded:
    loaded = load_configuration(file)
    problems = [*_problems_of_files(loaded.controller), *_problems_of_devices(loaded.fabric)]
    if problems:
        raise ConfigError(loaded.source, problems)
    return replace(loaded, warnings=(*loaded.warnings, *_unset_passwords(loaded.fabric)))


class _Device(NamedTuple):
    """An optical switch or a ToR, with requirements on this machine."""

    name: str
    path: str
    """Place in the file of all devices of this kind."""
    login: Login | None
    options: Mapping[str, Any]


def _devices(fabric: Fabric) -> list[_Device]:
    return [
        *(_Device(plane.name, "planes", plane.login, plane.options) for plane in fabric.planes),
        *(
            _Device(rack.name, "racks.tor", rack.tor.login, rack.tor.options)
            for rack in fabric.racks
        ),
    ]


def _problems_of_devices(fabric: Fabric) -> Iterator[Problem]:
    """Password, key and certificate files that the drivers could not use."""
    found: dict[tuple[str, str], list[str]] = {}
    for device in _devices(fabric):
        for key, refuse in _files_of(device):
            try:
                refuse()
            except HydraError as error:
                why = str(error).removeprefix(f"{device.name}: ")
                found.setdefault((f"{device.path}.{key}", why), []).append(device.name)
    for (path, why), names in found.items():
        yield Problem(path, f"{_named(names)}: {why}")


def _files_of(device: _Device) -> Iterator[tuple[str, Callable[[], object]]]:
    """Key of each file needed by a device, and a function that raises for an unusable file."""
    login, options = device.login, device.options
    if login is not None and login.password_file is not None:
        yield "login.password_file", partial(secret, device.name, login)
    if login is not None and login.key_file is not None:
        yield "login.key_file", partial(_check_there, device.name, "login.key_file", login.key_file)
    if isinstance(ca_file := options.get("ca_file"), str):
        yield "options.ca_file", partial(authorities, device.name, TlsOptions(ca_file=ca_file))
    if isinstance(hosts := options.get("known_hosts"), str):
        check = partial(_check_there, device.name, "options.known_hosts", hosts)
        yield "options.known_hosts", check


def _check_there(device: str, key: str, name: str) -> None:
    """Raise DeviceError unless a file can be read."""
    try:
        Path(name).expanduser().open("rb").close()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DeviceError(
            device,
            f"can't read {name}: {reason}; make it readable for the controller's user ({key})",
        ) from None


def _unset_passwords(fabric: Fabric) -> Iterator[Problem]:
    """Unset password variables: a warning, since the controller may have another environment."""
    found: dict[tuple[str, str], list[str]] = {}
    for device in _devices(fabric):
        variable = None if device.login is None else device.login.password_env
        if variable is not None and not os.environ.get(variable):
            found.setdefault((device.path, variable), []).append(device.name)
    for (path, variable), names in found.items():
        yield Problem(
            f"{path}.login.password_env",
            f"{_named(names)}: {variable} is not set here: set it where the controller starts "
            "(as a service: /etc/hydra/environment)",
        )


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


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
            why = f"this user may not look at {error.filename}: {error.strerror}"
            yield Problem(f"controller.{name}", why)


def _check_etcd(settings: EtcdSettings) -> None:
    """Raise HydraError unless the files and the package required for etcd exist."""
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
