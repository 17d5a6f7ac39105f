"""``hydra doctor``: configuration, devices, controller and machine in one list."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import click

from apps.cli.check import checked, directory_option, file_argument
from apps.cli.client import ControllerClient
from apps.cli.command import Command
from apps.cli.device.look import contacted
from apps.cli.output import (
    CommandError,
    ExitCode,
    UnreachableError,
    json_option,
    print_json,
    print_table,
)
from apps.cli.wording import local
from apps.openflow.limits import BACKLOG
from apps.process.limits import check_memory
from apps.process.single_instance import check_port
from apps.rest.connections import room_for_connections
from hydra.config import Loaded
from hydra.errors import ConfigError, HydraError
from hydra.settings import ControllerSettings

_SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
_TIMEX_BYTES: Final = 256
"""More than the size of ``struct timex``; zeros ask for the clock's state (adjtimex(2))."""
_TIME_ERROR: Final = 5


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "PROBLEM"


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the list."""

    what: str
    state: State
    finding: str
    remedy: str = ""


@click.command(
    cls=Command,
    examples=[
        "hydra doctor fabric.yaml",
        "hydra doctor --directory /var/lib/hydra /etc/hydra/fabric.yaml",
        "hydra doctor --json fabric.yaml | jq '.[] | select(.state != \"ok\")'",
    ],
)
@file_argument
@directory_option
@click.option(
    "--url",
    help="Address of the controller's REST API; default: the address in FILE.",
    metavar="URL",
)
@json_option
@click.pass_context
def doctor(
    ctx: click.Context, file: Path, directory: Path | None, url: str | None, as_json: bool
) -> None:
    """Check configuration, devices and machine, and list findings with remedies.

    Checks the configuration FILE with secrets and files, as `hydra check` does; contact with each
    device; the running controller, or else the ports for a start; this machine's clock, descriptors
    and listen queues. Nothing is changed. Exit status 1 if there is a problem.
    """
    found = list(_examined(file, directory, url))
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        columns = ("what", "state", "found", "to do")
        print_table("Findings", columns, ((o.what, o.state, o.finding, o.remedy) for o in found))
    wrong = any(finding.state is State.PROBLEM for finding in found)
    ctx.exit(ExitCode.PROBLEM if wrong else ExitCode.OK)


def _examined(file: Path, directory: Path | None, url: str | None) -> Iterator[Finding]:
    try:
        loaded = checked(file, directory)
    except ConfigError as error:
        remedy = (
            f"correct the problems in {file}; then run `hydra doctor` again to check devices and "
            "the controller"
        )
        for problem in error.problems:
            yield Finding("configuration", State.PROBLEM, str(problem), remedy)
    else:
        yield from _configuration(loaded)
        yield from _devices(loaded, file)
        yield from _controller(loaded, file, url)
        yield _refusal("descriptors", "enough", partial(room_for_connections, loaded))
        yield _listen_queue(loaded)
    yield _refusal("memory", "enough", check_memory)
    yield _clock()


def _configuration(loaded: Loaded) -> Iterator[Finding]:
    """A line for the file, and for each warning of `hydra check`."""
    yield Finding("configuration", State.OK, f"{loaded.source} is usable, with its files")
    for warning in loaded.warnings:
        yield Finding("configuration", State.WARNING, str(warning))


def _devices(loaded: Loaded, file: Path) -> Iterator[Finding]:
    fabric = loaded.fabric
    names = [f"plane {plane.name}" for plane in fabric.planes]
    names += [f"ToR {rack.name}" for rack in fabric.racks]
    for name, problem in zip(names, contacted(loaded), strict=True):
        if problem is None:
            yield Finding(name, State.OK, "answers")
            continue
        remedy = (
            f"check power, network, address and login in {file}; then "
            f"hydra device show {name.rpartition(' ')[2]} --config {file}"
        )
        yield Finding(name, State.PROBLEM, problem, remedy)


def _controller(loaded: Loaded, file: Path, url: str | None) -> Iterator[Finding]:
    where = url or _url(loaded.controller)
    try:
        with ControllerClient(where) as client:
            missing, wrong = client.get_readiness(), client.get("/v1/conditions")
    except UnreachableError as error:
        yield Finding("controller", State.WARNING, str(error.message), f"hydra run --config {file}")
        if url is None:
            yield from _ports(loaded.controller)
        return
    except CommandError as error:
        remedy = "give a token that may read (HYDRA_TOKEN_FILE), or --url"
        yield Finding("controller", State.PROBLEM, str(error.message), remedy)
        return
    for reason in missing:
        yield Finding("controller", State.PROBLEM, f"not ready: {reason}", "hydra status")
    for condition in wrong["conditions"]:
        remedy = f"{local(condition['to_do'])}: {condition['command']}"
        yield Finding("controller", State.PROBLEM, local(condition["what"]), remedy)
    if not missing and wrong["healthy"]:
        yield Finding("controller", State.OK, f"ready and healthy at {where}")


def _url(settings: ControllerSettings) -> str:
    """URL of the REST API, seen from this machine."""
    scheme = "http" if settings.tls_certificate is None else "https"
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(
        settings.rest_host, settings.rest_host
    )
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.rest_port}"


def _ports(settings: ControllerSettings) -> Iterator[Finding]:
    """Whether a start could listen."""
    places = [("controller.rest", settings.rest_host, settings.rest_port)]
    if settings.workers is None:
        places.append(("controller.openflow", settings.openflow_host, settings.openflow_port))
    for key, host, port in places:
        yield _refusal(f"port {port}", "free", partial(check_port, key, host, port))


def _refusal(what: str, good: str, check: Callable[[], object]) -> Finding:
    """The finding of a check; the message of its HydraError has the remedy."""
    try:
        check()
    except HydraError as error:
        return Finding(what, State.PROBLEM, str(error))
    return Finding(what, State.OK, good)


def _listen_queue(loaded: Loaded) -> Finding:
    """Compare ``somaxconn``, the longest queue of new connections, with the number of switches."""
    fabric = loaded.fabric
    wanted = min(BACKLOG, len(fabric.servers) + len(fabric.racks))
    has = int(_SOMAXCONN.read_text())
    if has >= wanted:
        return Finding("listen queue", State.OK, f"{has} connections may wait, {wanted} are wanted")
    return Finding(
        "listen queue",
        State.WARNING,
        f"{has} connections may wait, and {wanted} switches may connect at once: the other "
        "switches try again",
        f"sysctl -w net.core.somaxconn={wanted}",
    )


def _clock() -> Finding:
    """Ask the kernel whether the clock is synchronised: reservations begin and end by the clock."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state < 0:
        why = os.strerror(ctypes.get_errno())
        return Finding(
            "clock", State.WARNING, f"the kernel does not report the state of the clock: {why}"
        )
    if state == _TIME_ERROR:
        return Finding(
            "clock",
            State.WARNING,
            "no program keeps the clock right, but reservations begin and end by the clock",
            "run chrony or systemd-timesyncd, on the host of a container",
        )
    return Finding("clock", State.OK, "kept right")
