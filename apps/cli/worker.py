"""``hydra worker``, ``hydra workers``, ``hydra worker-keys``: processes that hold switches'
connections.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

from apps.cli.client import ControllerClient, answered
from apps.cli.command import Command
from apps.cli.output import CommandError, json_option, print_columns, print_json
from apps.cli.parameters import config_option, log_options
from apps.cli.wording import moment
from apps.workers.opening import needs_zmq
from apps.workers.settings import WorkerOptions
from hydra.config.checks import is_loopback
from hydra.config.devices import parse_endpoint
from hydra.errors import HydraError


class _Endpoint(click.ParamType[tuple[str, int]]):
    name = "host:port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        found = parse_endpoint(str(value))
        if found is None:
            self.fail(f"{value!r} is not host:port, such as 10.0.0.1:6654", param, ctx)
        return found


@click.command(
    cls=Command,
    examples=[
        "hydra worker --config fabric.yaml --listen 127.0.0.1:6661",
        "hydra worker --config fabric.yaml --name w1 --listen 0.0.0.0:6653 "
        "--controller 10.0.0.1:6654 --controller 10.0.0.2:6654 "
        "--key w1.key_secret --controller-key controller.key",
    ],
)
@config_option("The controller's configuration file: of the fabric, and OpenFlow's certificates.")
@click.option(
    "--listen",
    type=_Endpoint(),
    help="Where switches connect to; controller.openflow of the file, if left out.",
)
@click.option(
    "--controller",
    "controllers",
    type=_Endpoint(),
    multiple=True,
    help=(
        "Address in a controller's controller.workers.listen; repeat for several controllers. "
        "Default: the address in the file."
    ),
)
@click.option(
    "--name", help="The worker's name, different for each worker; default: machine and port."
)
@click.option(
    "--key", type=click.Path(exists=True, dir_okay=False), help="This worker's secret key."
)
@click.option(
    "--controller-key",
    type=click.Path(exists=True, dir_okay=False),
    help="The controllers' public key.",
)
@log_options
@click.pass_context
def worker(
    ctx: click.Context,
    config: Path,
    listen: tuple[str, int] | None,
    controllers: tuple[tuple[str, int], ...],
    name: str | None,
    key: str | None,
    controller_key: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Hold switches' OpenFlow connections for a controller, in the foreground.

    The file must have a section controller.workers. Each switch must be configured with all of its
    possible workers. A worker decides nothing, and sends nothing while no leader is reachable.
    Ctrl-C and SIGTERM end the worker, and its switches move to other workers; SIGHUP does nothing.
    """
    os.environ.update(HYDRA_LOG_FORMAT=log_format, HYDRA_LOG_LEVEL=log_level)
    needs_zmq("zmq")
    # Not at the top: the launcher changes Ryu's hub before anything else may import Ryu.
    launcher = import_module("apps.launcher")
    settings = import_module("apps.process.configuration").load_configuration(config).controller
    if settings.workers is None:
        raise HydraError(f"{config} has no section controller.workers: add the section")
    listen = listen or (settings.openflow_host, settings.openflow_port)
    controllers = controllers or ((settings.workers.host, settings.workers.port),)
    _check_keys(controllers, key, controller_key)
    options = WorkerOptions(
        name or f"{socket.gethostname()}:{listen[1]}", listen, controllers, key, controller_key
    )
    ctx.exit(launcher.worker(config, options))


def _check_keys(
    controllers: tuple[tuple[str, int], ...], key: str | None, controller_key: str | None
) -> None:
    """Raise HydraError unless the links are encrypted, or stay within this machine."""
    if (key is None) != (controller_key is None):
        raise HydraError("--key and --controller-key go together: give both, or neither")
    elsewhere = next((host for host, _ in controllers if not is_loopback(host)), None)
    if key is None and elsewhere is not None:
        raise HydraError(
            f"--controller {elsewhere} is another machine, and without keys any program there "
            "could command all switches: give --key and --controller-key (`hydra worker-keys` "
            "makes them)"
        )


@click.command(cls=Command, examples=["hydra worker-keys /etc/hydra/workers controller w1 w2"])
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, required=True)
@json_option
def worker_keys(directory: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Make keys by which a controller and its workers know each other.

    For each of NAMES, makes a file NAME.key_secret, which stays on the machine NAME, and NAME.key
    for the other side: put the workers' NAME.key into the folder controller.workers.known, and give
    the controller's NAME.key to `hydra worker --controller-key`.
    """
    auth = needs_zmq("zmq.auth")
    for name in names:
        if Path(name).name != name or name.startswith(".") or not name:
            raise CommandError(f"{name!r} can't name key files in {directory}: use another name")
    made = []
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in names:
            public, secret = _make_keys(auth, directory, name)
            made.append({"name": name, "public_file": str(public), "secret_file": str(secret)})
            if not as_json:
                click.echo(f"{public}\n{secret}")
    except OSError as error:
        raise CommandError(f"can't write keys to {directory}: {error.strerror}") from error
    if as_json:
        print_json({"keys": made})


def _make_keys(auth: ModuleType, directory: Path, name: str) -> tuple[Path, Path]:
    """Make a key pair, and return the files of the public and the secret key."""
    if (directory / f"{name}.key_secret").exists():
        raise CommandError(
            f"{directory / name}.key_secret exists: take another name, or remove the file"
        )
    before = os.umask(0o077)
    try:
        public, secret = map(Path, auth.create_certificates(directory, name))
    finally:
        os.umask(before)
    public.chmod(0o644)
    return public, secret


@click.command(cls=Command, examples=["hydra workers", "hydra workers --json | jq .workers[].name"])
@answered
def workers(client: ControllerClient) -> Iterator[object]:
    """List the workers that hold switches for the controller, and the racks of each."""
    document = client.get("/v1/workers")
    yield document
    print_columns(
        "Workers",
        document["workers"],
        {
            "name": "name",
            "release": "release",
            "since": lambda row: moment(row["since_unix_s"]),
            "switches": "switches",
            "serves": "serves",
            "shards": lambda row: len(row["shards"]),
            "processor s": lambda row: f"{row['cpu_s']:.1f}",
        },
        empty="no worker has a lease, or switches connect to the controller itself",
    )
