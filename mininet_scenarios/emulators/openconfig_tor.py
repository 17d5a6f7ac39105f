"""An emulated ToR switch with OpenConfig models (``mininet_scenarios.emulators.openconfig_tor``).

The switch speaks gNMI (Capabilities, Get, Set), with TLS and a login (``admin``, ``root``), in the
dialect named by ``--make``. The switch has VLANs, links and two LAGs, and forwards no frames.
``--directory`` has ``ca.pem``, the authority of the switch's certificate. A second socket takes the
experimenter's orders.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from pygnmi.spec.v080 import gnmi_pb2 as messages

from mininet_scenarios.emulators.catalogue import Emulator
from mininet_scenarios.emulators.certificate import certify
from mininet_scenarios.emulators.faults import FaultKind, Faults
from mininet_scenarios.emulators.gnmi_tor import GnmiTorEmulator, command_line, started
from mininet_scenarios.emulators.relayed import GoneError, RelayedServer

DEVICE: Final = Emulator("openconfig_tor", "admin", "root", has_directory=True)
_MODULES: Final = {
    "interfaces": "openconfig-interfaces",
    "ethernet": "openconfig-if-ethernet",
    "aggregation": "openconfig-if-aggregate",
    "switched-vlan": "openconfig-vlan",
}
"""Modules by their topmost nodes; lower nodes belong to the same module."""
_ORIGINS: Final = ("", "openconfig", "openconfig-interfaces")
_LAST_VLAN: Final = 4094
_FRAME_BYTES: Final = 100

_Message = Any
_Context = Any
Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Make:
    """A make's way with the protocol."""

    port: str
    """Names of the ports, with a placeholder for the number."""
    lag: str
    encodings: tuple[str, ...]
    models: tuple[str, ...]
    untagged: str
    """The leaf with a trunk's untagged VLAN."""
    wraps: bool
    """A value is an object with the requested node as only member."""
    says_not_found: bool
    """True if NOT_FOUND is the answer about a missing interface; otherwise the answer is empty."""


_OPENCONFIG: Final = ("openconfig-interfaces", "openconfig-vlan")
MAKES: Final[Mapping[str, Make]] = {
    "eos": Make(
        "Ethernet{}", "Port-Channel{}", ("JSON_IETF", "JSON"), _OPENCONFIG, "native-vlan",
        wraps=False, says_not_found=False,
    ),
    "nxos": Make(
        "eth1/{}", "po{}", ("JSON", "PROTO"), _OPENCONFIG, "native-vlan",
        wraps=False, says_not_found=True,
    ),
    "sonic": Make(
        "Ethernet{}", "PortChannel{}", ("JSON", "JSON_IETF"), (*_OPENCONFIG, "sonic-port"),
        "access-vlan", wraps=True, says_not_found=True,
    ),
}  # fmt: skip


class _Bad(Exception):
    """A request that can't be answered, with the status code of the refusal."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code = code
        super().__init__(message)


class Switch:
    """Interfaces and their VLANs."""

    def __init__(self, make: Make, ports: int) -> None:
        self.make = make
        self.places = {make.port.format(number): "ethernet" for number in range(1, ports + 1)}
        self.places |= {make.lag.format(number): "aggregation" for number in (1, 2)}
        self.up = dict.fromkeys(self.places, True)
        self.vlans: dict[str, Config] = {}
        self._answers = 0

    def interface(self, name: str) -> Config:
        """An interface in the form of the model, without modules' names."""
        self._answers += 1
        place = self.places[name]
        kind = "ethernetCsmacd" if place == "ethernet" else "ieee8023adLag"
        config = {"name": name, "type": f"iana-if-type:{kind}", "enabled": True}
        counted = {
            f"{way}-{what}": str(self._answers * (_FRAME_BYTES if what == "octets" else 1))
            for way in ("in", "out")
            for what in ("octets", "unicast-pkts")
        }
        status = "UP" if self.up[name] else "LOWER_LAYER_DOWN"
        state = {**config, "admin-status": "UP", "oper-status": status, "counters": counted}
        below: Config = {"config": {}}
        if name in self.vlans:
            below["switched-vlan"] = {"config": self.vlans[name], "state": self.vlans[name]}
        return {"name": name, "config": config, "state": state, place: below}

    def checked(self, given: Config) -> Config:
        """A port's VLANs from a request. Raises _Bad for leaves or values outside the model."""
        leaves = {name.rpartition(":")[2]: value for name, value in given.items()}
        unknown = leaves.keys() - {
            "interface-mode",
            self.make.untagged,
            "access-vlan",
            "trunk-vlans",
        }
        if unknown:
            raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"not supported: {min(unknown)}")
        numbers = [leaves[name] for name in ("native-vlan", "access-vlan") if name in leaves]
        for entry in [*leaves.get("trunk-vlans", []), *numbers]:
            first, _, last = str(entry).partition("..")
            if not 1 <= int(first) <= int(last or first) <= _LAST_VLAN:
                raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"not a VLAN: {entry}")
        if leaves.get("interface-mode", "TRUNK") not in ("ACCESS", "TRUNK"):
            raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, "no such mode")
        return leaves


class GnmiServer(RelayedServer):
    """The server; several clients, with changes one after another."""

    def __init__(self, directory: Path, switch: Switch, faults: Faults) -> None:
        super().__init__(directory / "door.sock", DEVICE, faults)
        self.changes = 0
        """Sets of the configuration so far."""
        self._switch = switch
        self._certificate = certify(directory, "emulated switch")

    async def serve(self, door: Path) -> None:
        certificate, key = (path.read_bytes() for path in self._certificate)
        self._grpc = grpc.aio.server()
        self._grpc.add_generic_rpc_handlers((self._handler(),))
        self._grpc.add_secure_port(
            f"unix:{door}", grpc.ssl_server_credentials([(key, certificate)])
        )
        await self._grpc.start()

    async def finish(self) -> None:
        await self._grpc.stop(None)

    def _handler(self) -> grpc.GenericRpcHandler:
        found = {
            name: grpc.unary_unary_rpc_method_handler(
                work,
                getattr(messages, f"{message}Request").FromString,
                getattr(messages, f"{message}Response").SerializeToString,
            )
            for name, work, message in (
                ("Capabilities", self._capabilities, "Capability"),
                ("Get", self._get, "Get"),
                ("Set", self._set, "Set"),
            )
        }
        return grpc.method_handlers_generic_handler("gnmi.gNMI", found)

    async def _capabilities(self, _request: _Message, context: _Context) -> _Message:
        await self._begin(context)
        make = self._switch.make
        return messages.CapabilityResponse(
            supported_models=[messages.ModelData(name=name) for name in make.models],
            supported_encodings=make.encodings,
            gNMI_version="0.8.0",
        )

    async def _get(self, request: _Message, context: _Context) -> _Message:
        await self._begin(context)
        try:
            encoding = messages.Encoding.Name(request.encoding)
            if encoding not in self._switch.make.encodings:
                raise _Bad(grpc.StatusCode.UNIMPLEMENTED, f"no encoding {encoding}")
            updates = [
                self._update(path, encoding, value)
                for path in request.path
                for value in self._values(_place(request.prefix, path))
            ]
        except _Bad as error:
            await context.abort(error.code, str(error))
        await asyncio.sleep(self._faults.delay_s)
        notice = messages.Notification(timestamp=time.time_ns(), update=updates)
        return messages.GetResponse(notification=[notice])

    def _values(self, place: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[object]:
        """Yield the node's value, if present."""
        switch = self._switch
        value: Any = {"interface": [switch.interface(name) for name in switch.places]}
        for name, keys in place[1:]:
            value = value.get(name) if isinstance(value, dict) else None
            if name == "interface" and keys:
                value = next((entry for entry in value if entry["name"] == keys.get("name")), None)
            if value is None:
                if switch.make.says_not_found:
                    raise _Bad(grpc.StatusCode.NOT_FOUND, "Resource not found")
                return
        yield value

    def _update(self, path: _Message, encoding: str, value: object) -> _Message:
        names = [element.name.rpartition(":")[2] for element in path.elem]
        module = next((_MODULES[name] for name in reversed(names) if name in _MODULES), None)
        if module is None:
            raise _Bad(grpc.StatusCode.NOT_FOUND, f"no container at {'/'.join(names)}")
        if self._switch.make.wraps:
            is_entry = names[-1] == "interface" and isinstance(value, dict)
            value = {names[-1]: [value] if is_entry else value}
        node = value if encoding == "JSON" else _with_modules(value, module, "")
        text = json.dumps(node).encode()
        field = "json_val" if encoding == "JSON" else "json_ietf_val"
        return messages.Update(path=path, val=messages.TypedValue(**{field: text}))

    async def _set(self, request: _Message, context: _Context) -> _Message:
        await self._begin(context)
        answers, wanted = [], {}
        try:
            if request.delete:
                raise _Bad(grpc.StatusCode.UNIMPLEMENTED, "nothing is deleted here")
            for kind in ("replace", "update"):
                for update in getattr(request, kind):
                    name = self._port(_place(request.prefix, update.path))
                    given = self._switch.checked(self._given(update.val))
                    before = self._switch.vlans.get(name, {}) if kind == "update" else {}
                    wanted[name] = {**before, **given}
                    answers.append(messages.UpdateResult(path=update.path, op=kind.upper()))
            self._change(wanted)
        except _Bad as error:
            await context.abort(error.code, str(error))
        except GoneError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is gone")
        await asyncio.sleep(self._faults.delay_s)
        return messages.SetResponse(timestamp=time.time_ns(), response=answers)

    def _given(self, value: _Message) -> Config:
        own = "json_val" if "JSON_IETF" not in self._switch.make.encodings else "json_ietf_val"
        try:
            given = json.loads(getattr(value, own))
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"no object in {own}")
        return given

    def _port(self, place: Sequence[tuple[str, Mapping[str, str]]]) -> str:
        """The interface whose VLANs are at the path ``place``."""
        names = [name for name, _ in place]
        port = place[1][1].get("name", "") if len(place) > 1 else ""
        if port not in self._switch.places:
            raise _Bad(grpc.StatusCode.NOT_FOUND, f"no interface {port}")
        own = ["interfaces", "interface", self._switch.places[port], "switched-vlan", "config"]
        if names != own:
            raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"not written here: {'/'.join(names)}")
        return port

    def _change(self, wanted: Mapping[str, Config]) -> None:
        """Apply the VLANs of the ports. Raises GoneError if the connection breaks off."""
        faults, vlans = self._faults, self._switch.vlans
        if faults.strikes(FaultKind.REFUSE):
            raise _Bad(grpc.StatusCode.ABORTED, "the command was not carried out")
        if faults.strikes(FaultKind.SILENT):
            return
        self.changes += 1
        killed, merged = faults.strikes(FaultKind.KILL), faults.strikes(FaultKind.MERGE)
        for port, config in wanted.items() if not killed else ():
            before = vlans.get(port, {}).get("trunk-vlans", []) if merged else []
            vlans[port] = {**config, "trunk-vlans": [*before, *config.get("trunk-vlans", [])]}
        if killed or faults.strikes(FaultKind.LOSE_REPLY):
            self.hang_up()

    async def _begin(self, context: _Context) -> None:
        """Check the login, and meet faults."""
        given = dict(context.invocation_metadata())
        if not self.admits(given.get("username", ""), given.get("password", "")):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong user or password")
        try:
            await self.begin()
        except GoneError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection is gone")


def _place(prefix: _Message, path: _Message) -> list[tuple[str, dict[str, str]]]:
    """Nodes of a path, without modules' names, and the nodes' keys."""
    origin = path.origin or prefix.origin
    place = [
        (element.name.rpartition(":")[2], dict(element.key))
        for element in (*prefix.elem, *path.elem)
    ]
    if origin not in _ORIGINS or not place or place[0][0] != "interfaces":
        raise _Bad(grpc.StatusCode.INVALID_ARGUMENT, f"only interfaces are here, not {place}")
    return place


def _with_modules(value: object, module: str, parent: str) -> object:
    """Members, with modules' names where different from the parent's module (RFC 7951)."""
    if isinstance(value, list):
        return [_with_modules(entry, module, parent) for entry in value]
    if not isinstance(value, dict):
        return value
    members = {}
    for name, member in value.items():
        own = _MODULES.get(name, module)
        members[name if own == parent else f"{own}:{name}"] = _with_modules(member, own, own)
    return members


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    parser = command_line("openconfig_tor", __doc__, 6030)
    parser.add_argument("--make", choices=MAKES, default="eos")
    with started(parser, arguments) as (options, directory):
        faults, switch = Faults(), Switch(MAKES[options.make], options.ports)
        server = GnmiServer(directory, switch, faults)
        GnmiTorEmulator(server, faults, switch.up).serve(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
