"""``hydra init``: a commented configuration file from the answers to ten questions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

import click
import yaml

from apps.cli.check import checked
from apps.cli.command import Command
from apps.cli.fabric_file import (
    QUESTIONS,
    Answers,
    configuration,
    password_variable,
    plane_problems,
    tor_problems,
)
from apps.cli.output import CommandError, json_option, print_outcome
from apps.process.files import making
from drivers.registry import OPTICAL, TOR
from hydra.config.patterns import PatternError, parse_template
from hydra.errors import ConfigError, Problem
from hydra.model import SubstrateKind

_ANSWERS: Final = "hydra.init.answers"
_SILENT: Final = "hydra.init.silent"
_EMULATED: Final = "hydra.init.emulated"
_RACK_PREFIX: Final = 24
_RUN: Final = "/var/run/openvswitch"
_OF_DEVICES: Final = ("tor_driver", "tor_address", "plane_driver", "plane_address")
"""Questions not asked for an emulated fabric."""
_OF_EACH_PLANE: Final = ("plane-driver", "plane-address")
"""Keys of answers that may be lists."""
_OPENFLOW: Final = "openflow"
_PLANE_DRIVER: Final = ("polatis-scpi",)
"""Default driver of all planes."""
_EACH: Final = "each"
"""Answer about the planes that asks for each plane."""
_MOST_SERVERS: Final = 254
"""Addresses of a /24."""
_TOR_PORTS: Final[Mapping[str, int]] = {
    "ibm-g8264": 22,
    "ibm-g8264-netconf": 830,
    "openconfig-vlan": 830,
    "openconfig-vlan-gnmi": 6030,
    "openflow": 6653,
    "ovs-ovsdb": 6640,
    "sonic-vlan": 8080,
}
"""Usual TCP ports of the protocols, by driver."""
_PLANE_PORTS: Final[Mapping[str, int]] = {
    "calient-tl1": 3083,
    "glimmerglass-tl1": 10033,
    "openflow-xc": 6653,
    "polatis-netconf": 830,
    "polatis-restconf": 8008,
    "polatis-scpi": 5025,
    "polatis-tl1": 3082,
    "sonic-ocs": 8080,
}
_OTHER_PORT: Final = 22
"""Port in the example address of all other drivers."""
EMULATED_PASSWORDS: Final[Mapping[str, str]] = {
    "calient-tl1": "root",
    "glimmerglass-tl1": "",
    "polatis-restconf": "root",
    "polatis-scpi": "",
    "polatis-tl1": "root",
}
"""Drivers of optical switches that the testbed emulates, with the password of user admin; none if
the protocol needs no login. An emulated `template` device needs options, which nobody asks for.
"""


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
        return click.prompt(str(self.prompt), self.get_default(ctx), type=self.type)


class TorDriverQuestion(Question):
    """Offers the drivers that the substrate allows."""

    def ask(self, ctx: click.Context) -> object:
        suggested = self.get_default(ctx)
        allowed = [suggested] if suggested == _OPENFLOW else sorted({*TOR} - {_OPENFLOW})
        return click.prompt(str(self.prompt), suggested, type=click.Choice(allowed))


class TorAddressQuestion(Question):
    """Asks again for an address that the driver refuses."""

    def ask(self, ctx: click.Context) -> object:
        driver = ctx.params["tor_driver"]
        accepted = _accepted("rack", 1, lambda address: tor_problems(driver, address))
        return click.prompt(str(self.prompt), self.get_default(ctx), value_proc=accepted)


def _accepted(
    name: str, number: int, problems: Callable[[str], Iterable[Problem]]
) -> Callable[[str], str]:
    """A check of a template's text, for the device with ``number``; click asks again after a
    UsageError.
    """

    def accepted(template: str) -> str:
        try:
            address = parse_template(template, (name,)).render({name: number})
        except PatternError as error:
            raise click.UsageError(str(error)) from error
        if wrong := [str(each.message) for each in problems(address) if each.path == "address"]:
            raise click.UsageError("; ".join(wrong))
        return template

    return accepted


class PlaneQuestion(Question):
    """A repeatable option: one answer for all planes, or an answer for each plane."""

    def prompt_for_value(self, ctx: click.Context) -> object:
        answer = super().prompt_for_value(ctx)
        return answer if isinstance(answer, list | tuple) else (answer,)


class PlaneDriverQuestion(PlaneQuestion):
    """Asks for each plane after the answer ``each``; the default is the plane before's driver."""

    def ask(self, ctx: click.Context) -> object:
        offered = click.Choice([*sorted(OPTICAL), _EACH])
        answer = click.prompt(str(self.prompt), *_PLANE_DRIVER, type=offered)
        if answer != _EACH:
            return answer
        answers = [*_PLANE_DRIVER]
        for plane in range(1, ctx.params["planes"] + 1):
            prompt = f"Driver of p{plane}"
            answers.append(click.prompt(prompt, answers[-1], type=self.type, show_choices=False))
        return answers[1:]


class PlaneAddressQuestion(PlaneQuestion):
    """Asks for each plane if several drivers are given; asks again for an address that the
    driver refuses.
    """

    def ask(self, ctx: click.Context) -> object:
        drivers: tuple[str, ...] = ctx.params["plane_driver"]
        if len(drivers) == 1:
            suggested = _plane_address(drivers[0])
            return self._ask_for(1, drivers[0], str(self.prompt), suggested)
        return [
            self._ask_for(plane, driver, f"Address of p{plane}", _plane_address(driver, f"{plane}"))
            for plane, driver in enumerate(drivers, start=1)
        ]

    def _ask_for(self, plane: int, driver: str, prompt: str, suggested: str) -> str:
        accepted = _accepted("plane", plane, lambda address: plane_problems(driver, address))
        answer: str = click.prompt(prompt, suggested, value_proc=accepted)
        return answer


def _take_answers(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.BadParameter(f"{path} can't be read: {error}") from error
    known = {name.replace("_", "-"): name for name in QUESTIONS}
    if not isinstance(found, Mapping) or not found.keys() <= known.keys():
        raise click.BadParameter(f"{path}: write lines `key: value`; keys are {', '.join(known)}")
    ctx.meta[_ANSWERS] = {known[key]: _as_typed(path, key, value) for key, value in found.items()}


def _as_typed(path: Path, key: str, value: object) -> str | list[str]:
    """An answer of a file, as if typed: the option's own checks apply."""
    listed = value if isinstance(value, list) and key in _OF_EACH_PLANE else None
    answers = [value] if listed is None else listed
    if any(answer is None or isinstance(answer, list | dict | set) for answer in answers):
        kinds = (
            "text, a number, or a list of these" if key in _OF_EACH_PLANE else "text or a number"
        )
        raise click.BadParameter(f"{path}: {key}: write {kinds}")
    texts = [str(answer) for answer in answers]
    return texts[0] if listed is None else texts


def _new(_ctx: click.Context, _param: click.Parameter, file: Path) -> Path:
    """Refuses a file that can't be made, before the questions."""
    if os.path.lexists(file):
        raise CommandError(f"{file} exists; name another file, or remove this file")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise CommandError(
            f"{file} can't be written: {file.parent} is no folder that you may write to; name "
            "another file"
        )
    return file


def _take_defaults(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    ctx.meta[_SILENT] = wanted


def _take_emulated(ctx: click.Context, _param: click.Parameter, wanted: bool) -> bool:
    ctx.meta[_EMULATED] = wanted
    return wanted


def _tor_driver() -> str:
    """The default driver for the substrate given before."""
    context = click.get_current_context(silent=True)
    substrate = None if context is None else context.params.get("substrate")
    return _OPENFLOW if substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW else "ovs-ovsdb"


def _tor_address() -> str:
    """An example address for the driver given before."""
    context = click.get_current_context(silent=True)
    driver = _tor_driver() if context is None else context.params.get("tor_driver")
    return f"172.16.{{rack // 256}}.{{rack % 256}}:{_TOR_PORTS.get(str(driver), _OTHER_PORT)}"


def _plane_addresses() -> tuple[str, ...]:
    """Example addresses for the drivers given before: one for all planes, or one for each."""
    context = click.get_current_context(silent=True)
    drivers = _PLANE_DRIVER if context is None else context.params.get("plane_driver")
    return tuple(map(_plane_address, drivers or _PLANE_DRIVER))


def _plane_address(driver: str, plane: str = "{plane}") -> str:
    if driver == "manual":
        return f"panel: row 1, rack {plane}"
    return f"172.17.0.{plane}:{_PLANE_PORTS.get(driver, _OTHER_PORT)}"


def _emulated_devices(substrate: str | None) -> dict[str, str]:
    """Answers about the devices that the testbed emulates."""
    openflow = substrate == SubstrateKind.SINGLE_HOMED_OPENFLOW
    return {
        "tor_driver": _OPENFLOW if openflow else "ovs-ovsdb",
        "tor_address": f"unix:{_RUN}/{'hytor-r{rack}.mgmt' if openflow else 'db.sock'}",
        "plane_driver": _PLANE_DRIVER[0],
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
        "hydra init lab.yaml --emulated --plane-driver calient-tl1 --defaults",
    ],
)
@click.argument(
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="fabric.yaml",
    callback=_new,
)
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
    help="A fabric for `python -m mininet_scenarios.testbed up FILE`: no questions about devices. "
    f"--plane-driver may be {', '.join(EMULATED_PASSWORDS)}.",
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
    cls=TorDriverQuestion,
    prompt="Driver of the ToR switches (docs/devices.md)",
    type=click.Choice(sorted(TOR)),
    default=_tor_driver,
    show_default="ovs-ovsdb; openflow on OpenFlow ToRs",
)
@click.option(
    "--tor-address",
    cls=TorAddressQuestion,
    prompt="Management address of the ToRs; {rack} is the rack's number",
    default=_tor_address,
    show_default="172.16.…, with the usual port of the driver",
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
    cls=PlaneDriverQuestion,
    prompt="Driver of the optical switches (docs/devices.md); each: ask for each plane",
    type=click.Choice(sorted(OPTICAL)),
    multiple=True,
    default=_PLANE_DRIVER,
    show_default=True,
    help="Once for all planes, or once for each.",
)
@click.option(
    "--plane-address",
    cls=PlaneAddressQuestion,
    prompt="Address of the optical switches; {plane} is the plane's number",
    multiple=True,
    default=_plane_addresses,
    show_default="172.17.0.{plane}, with the usual port of the driver",
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
        with making(file, 0o666) as new:
            new.write(text.encode())
    except OSError as error:
        raise CommandError(f"{file} can't be written: {error.strerror}") from error
    try:
        checked(file, None)
    except ConfigError as error:
        raise CommandError(
            f"written, and not usable yet:\n{error}\ncorrect the file, then: hydra check {file}"
        ) from error
    words = f"written: {file}\nnext: {_following(answers, file)}"
    print_outcome({"written": str(file)}, words, as_json)


def _following(answers: Answers, file: Path) -> str:
    """The next step of the operator."""
    if not answers.emulated:
        return f"replace the examples in the file, then: hydra doctor {file}"
    step = f"as root: python -m mininet_scenarios.testbed up {file}"
    passwords = {driver: EMULATED_PASSWORDS[driver] for driver in answers.plane_driver}
    wanted = [f"{password_variable(name)}={word}" for name, word in passwords.items() if word]
    if wanted:
        step += f"\nthen: {' '.join(wanted)} hydra run --config {file}"
    return step


def _check_emulated(answers: Answers) -> None:
    """Raises UsageError for devices that the testbed does not emulate."""
    if not answers.emulated:
        return
    for name, emulated in _emulated_devices(answers.substrate).items():
        given = getattr(answers, name)
        known = [*EMULATED_PASSWORDS] if name == "plane_driver" else [emulated]
        if others := ({given} if isinstance(given, str) else set(given)) - set(known):
            option = name.replace("_", "-")
            raise click.UsageError(
                f"{option} {min(others)}: an emulated fabric has {' or '.join(known)}; leave out "
                f"{option}, or --emulated"
            )
