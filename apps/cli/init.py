"""``hydra init``: a commented configuration file from the answers to ten questions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import click
import yaml

from apps.cli.check import checked
from apps.cli.command import Command
from apps.cli.output import CommandError, json_option, print_outcome
from drivers.registry import OPTICAL, TOR, plane_checks, rack_checks
from hydra.errors import ConfigError, Problem
from hydra.model import DatapathId, Plane, PlaneId, Rack, RackId, SubstrateKind, Tor, VlanId

_ANSWERS: Final = "hydra.init.answers"
_SILENT: Final = "hydra.init.silent"
_EMULATED: Final = "hydra.init.emulated"
_RACK_PREFIX: Final = 24
_RUN: Final = "/var/run/openvswitch"
_OF_DEVICES: Final = ("tor_driver", "tor_address", "plane_driver", "plane_address")
"""Questions without a choice for an emulated fabric."""
_EACH: Final = "each"
"""Answer about the planes that asks for each plane."""
_MOST_SERVERS: Final = 254
"""Addresses of a /24."""
_BYTE_2_ENDS: Final = 16
_ON_OPENFLOW: Final = frozenset({"openflow", "ovs-ovsdb"})
"""Drivers of ToRs that also connect to the controller."""
_BRIDGE: Final = """\
      bridge: {names.tor_bridge:<24} # the bridge that is this ToR
      datapath_id: "{{0x10000 + rack}}"  # ovs-vsctl get bridge br0 datapath_id, with 0x in front
"""
_TAGGED: Final = """\
      native_vlan: 10                  # carries the rack's own traffic
"""
_ELECTRICAL_PORT: Final = """\
      electrical_port: {names.tor_uplink:<15} # leads to the electrical network
"""
_VSWITCH: Final = """\
        vswitch:                       # Open vSwitch in the server, which the controller owns
          datapath_id: "{{0x1000000 + rack * 256 + server}}"
          bridge: {names.bridge}
          host_port: {names.host_port}
"""
_TWO_UPLINKS: Final = """\
          optical_port: {names.optical_port:<14} # the uplink to the ToR
          electrical_port: {names.electrical_port:<11} # the uplink to the electrical network
"""
_ONE_UPLINK: Final = """\
          uplink_port: {names.uplink_port:<15} # the uplink to the ToR
"""
_PARKING: Final = """\
  parking: 4000                        # the VLAN of optical ports without a circuit
"""
_PLANES: Final = """\
  - names: {planes}
    driver: {driver}
    address: {quoted_address}
{login}\
    ports: {racks}  # of one side: ingress 1 to {racks}, egress from there on
    switching_ms: 25                   # how long moved ports are dark
    rate_mbps: {names.circuit_mbps:<23} # of a circuit
"""
_FILE: Final = """\
# Written by `hydra init`. All keys: docs/configuration.md. `hydra check` tells every problem with
# its line; `hydra doctor` also contacts the devices. Names with [1-4] stand for several things; in
# templates, {{rack}}, {{server}} and {{plane}} are numbers from 1.
fabric: {quoted_name}
substrate: {substrate}
subnets: ["{network}"]                # every address of a server lies in it

controller:
  openflow: 127.0.0.1:6653             # where switches connect; 0.0.0.0:6653 for other machines
  rest: 127.0.0.1:8080                 # for other machines: with tokens (`hydra token`) and TLS
  journal: journal.db                  # its state; as a service: /var/lib/hydra/journal.db

racks:
  - names: r[1-{racks}]
    prefixes: ["{rack_network}.0/24"]
    tor:
      driver: {tor_driver}
      address: {quoted_tor_address}
{tor_login}{bridge}{native_vlan}{electrical_port}\
    servers:
      - names: r{{rack}}-h[1-{servers}]
        addresses: ["{rack_network}.{{server}}/{prefix_length}"]
        # {names.comment}
        mac: "02:00:{{rack // 256:02x}}:{{rack % 256:02x}}:00:{{server:02x}}"
        tor_port: {names.server_port}
{vswitch}\

planes:
{plane_entries}
# Which ToR port leads to which ports of a plane. More entries give racks more ports on a plane.
wiring:
  - racks: r[1-{racks}]
    planes: p[1-{planes}]
    tor_port: {names.plane_port}
    ingress: "{{rack}}"
    egress: "{{ports + rack}}"

electrical:
  rate_mbps: {names.electrical_mbps:<25} # of an uplink to the electrical network
server_rate_mbps: {names.circuit_mbps:<20} # of a server's uplink to its ToR

vlans:
  circuits: 100-3999                   # VLAN-IDs for circuits alone
{parking}\

policy:
  mode: on-request                     # periodic: plan for the measured demand as well
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """Names of bridges and ports, as templates, and rates."""

    comment: str
    """Above MAC addresses and ports of servers."""
    tor_bridge: str
    tor_uplink: str
    server_port: str
    plane_port: str
    bridge: str
    host_port: str
    optical_port: str
    electrical_port: str
    uplink_port: str
    circuit_mbps: int
    electrical_mbps: int


_REAL: Final = _Names(
    comment="Examples: the servers' own MAC addresses, and the ToR ports that they are plugged "
    "into.",
    tor_bridge="br0",
    tor_uplink="uplink",
    server_port="server{server}",
    plane_port="optical{plane}",
    bridge="br0",
    host_port="host",
    optical_port="optical",
    electrical_port="electrical",
    uplink_port="uplink",
    circuit_mbps=10_000,
    electrical_mbps=1_000,
)
_ON_THE_TESTBED: Final = _Names(
    comment="The emulation uses these MAC addresses; names of bridges and ports begin with hy.",
    tor_bridge="hytor-r{rack}",
    tor_uplink="hyl-r{rack}",
    server_port="hys-r{rack}-h{server}",
    plane_port="hyt-r{rack}-p{plane}",
    bridge="hyv-r{rack}-h{server}",
    host_port="hyh-r{rack}-h{server}",
    optical_port="hyo-r{rack}-h{server}",
    electrical_port="hye-r{rack}-h{server}",
    uplink_port="hyo-r{rack}-h{server}",
    circuit_mbps=100,
    electrical_mbps=10,
)
"""One machine emulates all switches, so each name differs; it forwards a few hundred Mb/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers to the questions, named after the options."""

    name: str
    substrate: str
    racks: int
    servers: int
    network: IPv4Network
    tor_driver: str
    tor_address: str
    planes: int
    plane_driver: tuple[str, ...]
    """One for all planes, or one for each."""
    plane_address: tuple[str, ...]
    """Templates: one for all planes, or one for each."""
    emulated: bool = False
    """True for a fabric that the testbed can emulate."""


_QUESTIONS: Final = tuple(name for name in Answers.__dataclass_fields__ if name != "emulated")


class Network(click.ParamType[IPv4Network]):
    """An IPv4 network with room for a /24 a rack."""

    name = "network"

    def convert(
        self, value: str | IPv4Network, param: click.Parameter | None, ctx: click.Context | None
    ) -> IPv4Network:
        if isinstance(value, IPv4Network):
            return value
        try:
            network = IPv4Network(value)
        except ValueError as error:
            self.fail(f"{value!r} is no IPv4 network such as 10.0.0.0/16: {error}", param, ctx)
        if network.prefixlen not in range(8, _RACK_PREFIX):
            self.fail(
                f"{network}: give a network of /8 to /23, with a /24 for each rack", param, ctx
            )
        return network


class Question(click.Option):
    """An option with a prompt, unless a file of answers, ``--defaults`` or ``--emulated``
    answers.
    """

    def prompt_for_value(self, ctx: click.Context) -> object:
        answers: Mapping[str, object] = ctx.meta.get(_ANSWERS, {})
        if self.name in answers:
            return answers[self.name]
        if ctx.meta.get(_EMULATED) and self.name in _OF_DEVICES:
            return _emulated_devices(ctx.params.get("substrate"))[self.name]
        return self.get_default(ctx) if ctx.meta.get(_SILENT) else self.ask(ctx)

    def ask(self, ctx: click.Context) -> object:
        """Prompt for the answer."""
        return super().prompt_for_value(ctx)


class PlaneQuestion(Question):
    """A repeatable option: one answer for all planes, or an answer for each plane."""

    def prompt_for_value(self, ctx: click.Context) -> object:
        answer = super().prompt_for_value(ctx)
        return answer if isinstance(answer, list | tuple) else (answer,)

    def ask(self, ctx: click.Context) -> object:
        """Prompt once for all planes, or for each plane.

        Each plane has a prompt after the answer ``each``, and if several drivers are given. The
        default driver of a plane is the driver of the plane before.
        """
        defaults: Any = self.get_default(ctx)
        (default,) = defaults
        drivers = self.type.choices if isinstance(self.type, click.Choice) else ()
        if len(ctx.params.get("plane_driver", ())) <= 1:
            kind = click.Choice([*drivers, _EACH]) if drivers else None
            answer = click.prompt(str(self.prompt), default, type=kind)
            if answer != _EACH:
                return answer
        answers: list[str] = []
        what = str(self.name).removeprefix("plane_").capitalize()
        for plane in range(1, ctx.params["planes"] + 1):
            suggested = answers[-1] if answers and drivers else default
            answers.append(
                click.prompt(f"{what} of p{plane}", suggested, type=self.type, show_choices=False)
            )
        return answers


def _take_answers(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{path} can't be read: {error}") from error
    known = {name.replace("_", "-"): name for name in _QUESTIONS}
    if not isinstance(found, Mapping) or not found.keys() <= known.keys():
        raise click.BadParameter(f"{path}: write lines `key: value`; keys are {', '.join(known)}")
    ctx.meta[_ANSWERS] = {known[key]: value for key, value in found.items()}


def _take_defaults(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    ctx.meta[_SILENT] = wanted


def _take_emulated(ctx: click.Context, _param: click.Parameter, wanted: bool) -> bool:
    ctx.meta[_EMULATED] = wanted
    return wanted


def _tor_driver() -> str:
    """The default driver for the substrate given before."""
    context = click.get_current_context(silent=True)
    substrate = None if context is None else context.params.get("substrate")
    return "openflow" if substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW else "ovs-ovsdb"


def _emulated_devices(substrate: str | None) -> dict[str, str]:
    """Answers about the devices that the testbed emulates."""
    openflow = substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW
    return {
        "tor_driver": "openflow" if openflow else "ovs-ovsdb",
        "tor_address": f"unix:{_RUN}/{'hytor-r{rack}.mgmt' if openflow else 'db.sock'}",
        "plane_driver": "polatis-scpi",
        "plane_address": "127.0.0.1:{5024 + plane}",
    }


@click.command(
    cls=Command,
    examples=[
        "hydra init",
        "hydra init lab.yaml --defaults --racks 8 --planes 4",
        "hydra init lab.yaml --answers answers.yaml --defaults",
        "hydra init lab.yaml --planes 2 --plane-driver polatis-scpi --plane-driver calient-tl1",
        "hydra init lab.yaml --emulated --racks 6 --defaults",
    ],
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="fabric.yaml")
@click.option(
    "--answers",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_take_answers,
    is_eager=True,
    expose_value=False,
    help="A file of answers: lines `racks: 8`, named as the options below.",
)
@click.option(
    "--defaults",
    is_flag=True,
    callback=_take_defaults,
    is_eager=True,
    expose_value=False,
    help="Ask nothing: values not given by options or --answers are the defaults in brackets.",
)
@click.option(
    "--emulated",
    is_flag=True,
    callback=_take_emulated,
    is_eager=True,
    help="A fabric for `python -m mininet_scenarios.testbed up FILE`: no questions about devices.",
)
@json_option
@click.option(
    "--name", cls=Question, prompt="Name of the fabric", default="fabric", show_default=True
)
@click.option(
    "--substrate",
    cls=Question,
    prompt="How servers are attached (docs/configuration.md, Substrates)",
    type=click.Choice([kind.value for kind in SubstrateKind]),
    default=SubstrateKind.DUAL_HOMED_VLAN.value,
    show_default=True,
)
@click.option(
    "--racks",
    cls=Question,
    prompt="Number of racks",
    type=click.IntRange(2, 4096),
    default=4,
    show_default=True,
)
@click.option(
    "--servers",
    cls=Question,
    prompt="Servers in each rack",
    type=click.IntRange(1, _MOST_SERVERS),
    default=2,
    show_default=True,
)
@click.option(
    "--network",
    cls=Question,
    prompt="IPv4 network of the servers, with a /24 for each rack",
    type=Network(),
    default="10.0.0.0/16",
    show_default=True,
)
@click.option(
    "--tor-driver",
    cls=Question,
    prompt="Driver of the ToR switches (docs/devices.md)",
    type=click.Choice(sorted(TOR)),
    default=_tor_driver,
    show_default="ovs-ovsdb; openflow on OpenFlow ToRs",
)
@click.option(
    "--tor-address",
    cls=Question,
    prompt="Management address of the ToRs; {rack} is the rack's number",
    default="172.16.{rack // 256}.{rack % 256}:6640",
    show_default=True,
)
@click.option(
    "--planes",
    cls=Question,
    prompt="Number of optical switches (planes)",
    type=click.IntRange(1, 4096),
    default=2,
    show_default=True,
)
@click.option(
    "--plane-driver",
    cls=PlaneQuestion,
    prompt="Driver of the optical switches (docs/devices.md); each: ask for each plane",
    type=click.Choice(sorted(OPTICAL)),
    multiple=True,
    default=("polatis-scpi",),
    show_default=True,
    help="Once for all planes, or once for each.",
)
@click.option(
    "--plane-address",
    cls=PlaneQuestion,
    prompt="Address of the optical switches; {plane} is the plane's number",
    multiple=True,
    default=("172.17.0.{plane}:5025",),
    show_default=True,
    help="Once for all planes, or once for each.",
)
def init(file: Path, as_json: bool, **given: Any) -> None:
    """Ask a few questions, and write a commented configuration FILE that `hydra check` passes.

    Each question has an option; questions with a given option are skipped. Names of ports, MAC
    addresses and rates in the file are examples, with comments. With --emulated,
    nothing has to be replaced.
    """
    answers = Answers(**given)
    _check_emulated(answers)
    room = 2 ** (_RACK_PREFIX - answers.network.prefixlen) - 1
    if answers.racks > room:
        raise click.UsageError(
            f"{answers.network} has room for {room} racks: give a larger --network, or fewer racks"
        )
    text = configuration(answers)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        why = f"{file} can't be written: {error.strerror}"
        raise CommandError(f"{why}; name another file, or remove this file") from error
    try:
        checked(file, None)
    except ConfigError as error:
        raise CommandError(
            f"written, and not usable yet:\n{error}\ncorrect the file, then: hydra check {file}"
        ) from error
    following = (
        f"as root: python -m mininet_scenarios.testbed up {file}"
        if answers.emulated
        else f"replace the examples in the file, then: hydra doctor {file}"
    )
    words = f"written: {file}\nnext: {following}"
    print_outcome({"written": str(file)}, words, as_json)


def _check_emulated(answers: Answers) -> None:
    """Raises UsageError for devices that the testbed does not emulate."""
    if not answers.emulated:
        return
    for name, emulated in _emulated_devices(answers.substrate).items():
        given = getattr(answers, name)
        if others := ({given} if isinstance(given, str) else set(given)) - {emulated}:
            option = name.replace("_", "-")
            raise click.UsageError(
                f"{option} {min(others)}: an emulated fabric has {emulated}; leave out "
                f"{option}, or --emulated"
            )


def _names(answers: Answers) -> _Names:
    return _ON_THE_TESTBED if answers.emulated else _REAL


def configuration(answers: Answers) -> str:
    """The text of the file. Raises UsageError for neither one answer nor one for each plane."""
    names = _names(answers)
    openflow = answers.substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW
    tagged = "" if openflow else _TAGGED
    dual_homed = answers.substrate == SubstrateKind.DUAL_HOMED_VLAN
    uplinks = _TWO_UPLINKS if dual_homed else _ONE_UPLINK
    speaks = answers.tor_driver in _ON_OPENFLOW
    return _FILE.format(
        **{name: getattr(answers, name) for name in _QUESTIONS},
        names=names,
        quoted_name=json.dumps(answers.name),
        quoted_tor_address=json.dumps(answers.tor_address),
        rack_network=_rack_network(answers.network),
        prefix_length=answers.network.prefixlen,
        bridge=_BRIDGE.format(names=names) if speaks else "",
        native_vlan=tagged,
        electrical_port="" if dual_homed else _ELECTRICAL_PORT.format(names=names),
        vswitch="" if openflow else (_VSWITCH + uplinks).format(names=names),
        parking="" if openflow else _PARKING,
        tor_login=_login("      ", "TOR_PASSWORD") if _wants_login(_rack(answers)) else "",
        plane_entries="".join(_plane_entries(answers)),
    )


def _plane_entries(answers: Answers) -> Iterator[str]:
    """An entry for each run of planes with the same driver and the same address template."""
    drivers = _for_each_plane("--plane-driver", answers.plane_driver, answers.planes)
    addresses = _for_each_plane("--plane-address", answers.plane_address, answers.planes)
    devices = enumerate(zip(drivers, addresses, strict=True), start=1)
    for (driver, address), run in groupby(devices, key=itemgetter(1)):
        first, *others = (plane for plane, _ in run)
        yield _PLANES.format(
            planes=f"p[{first}-{others[-1]}]" if others else f"p{first}",
            driver=driver,
            quoted_address=json.dumps(address),
            login=_login("    ", "OCS_PASSWORD") if _wants_login(_plane(driver, answers)) else "",
            racks=answers.racks,
            names=_names(answers),
        )


def _for_each_plane(option: str, given: tuple[str, ...], planes: int) -> tuple[str, ...]:
    if len(given) not in {1, planes}:
        raise click.UsageError(
            f"{option} is given {len(given)} times for {planes} planes: give the option once, or "
            "once for each plane"
        )
    return given * planes if len(given) == 1 else given


def _rack_network(network: IPv4Network) -> str:
    """The first three bytes of each rack's addresses, as a template."""
    first, second, third, _ = network.network_address.packed
    if network.prefixlen > _BYTE_2_ENDS:
        return f"{first}.{second}.{{{third} + rack}}"
    beyond = f"{second} + " if second else ""
    return f"{first}.{{{beyond}rack // 256}}.{{rack % 256}}"


def _login(indent: str, variable: str) -> str:
    lines = ("login:", "  username: admin", f"  password_env: {variable} # never the secret itself")
    return "".join(f"{indent}{line}\n" for line in lines)


def _wants_login(problems: Iterable[Problem]) -> bool:
    return any(problem.path == "login" for problem in problems)


def _plane(driver: str, answers: Answers) -> Iterable[Problem]:
    """The driver's problems with a plane without a login."""
    plane = Plane(
        PlaneId(0),
        "p1",
        driver,
        "p1:1",
        answers.racks,
        switching_ms=25,
        rate_mbps=10_000,
    )
    return plane_checks()[driver](plane)


def _rack(answers: Answers) -> Iterable[Problem]:
    """The driver's problems with a ToR without a login."""
    tor = Tor(answers.tor_driver, "r1:1", "br0", DatapathId(1), VlanId(10))
    return rack_checks()[answers.tor_driver](Rack(RackId(0), "r1", (), tor, ()))
