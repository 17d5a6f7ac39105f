"""The file that ``hydra init`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import groupby
from operator import itemgetter
from typing import Final

import click

from drivers.registry import plane_checks, rack_checks
from hydra.errors import Problem
from hydra.model import DatapathId, Plane, PlaneId, Rack, RackId, SubstrateKind, Tor, VlanId

_BYTE_2_ENDS: Final = 16
_ON_OPENFLOW: Final = frozenset({"openflow", "ovs-ovsdb"})
"""Drivers of ToRs that also connect to the controller."""
_OPTIONS: Final[Mapping[str, str]] = {
    "manual": '    options: {state: "/var/lib/hydra/{name}.panel"} # tasks and patches\n',
    "template": "    # options: the device's words (docs/template-driver.md)\n",
}
"""Lines about options without a default, by driver."""
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
{login}{options}\
    ports: {racks}  # of one side, as many as the switch has: ingress 1 to {racks}, then egress
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


QUESTIONS: Final = tuple(name for name in Answers.__dataclass_fields__ if name != "emulated")


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
        **{name: getattr(answers, name) for name in QUESTIONS},
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
        tor_login=_login("      ", answers.tor_driver, tor_problems(answers.tor_driver)),
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
            login=_login("    ", driver, plane_problems(driver, ports=answers.racks)),
            options=_OPTIONS.get(driver, ""),
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


def _login(indent: str, driver: str, problems: Iterable[Problem]) -> str:
    """Lines of a login, if the driver asks for a login; each driver's password has a name of its
    own.
    """
    if not any(problem.path == "login" for problem in problems):
        return ""
    variable = f"{password_variable(driver)} # never the secret itself"
    lines = ("login:", "  username: admin", f"  password_env: {variable}")
    return "".join(f"{indent}{line}\n" for line in lines)


def password_variable(driver: str) -> str:
    """Environment variable of the password for devices of a driver: CALIENT_TL1_PASSWORD."""
    return f"{driver.upper().replace('-', '_')}_PASSWORD"


def plane_problems(driver: str, address: str = "p1:1", ports: int = 1) -> Iterable[Problem]:
    """The driver's problems with a plane at ``address``, without a login."""
    plane = Plane(PlaneId(0), "p1", driver, address, ports, switching_ms=25, rate_mbps=10_000)
    return plane_checks()[driver](plane)


def tor_problems(driver: str, address: str = "r1:1") -> Iterable[Problem]:
    """The driver's problems with a ToR at ``address``, without a login."""
    tor = Tor(driver, address, "br0", DatapathId(1), VlanId(10))
    return rack_checks()[driver](Rack(RackId(0), "r1", (), tor, ()))
