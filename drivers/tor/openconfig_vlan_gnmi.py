"""Switches with OpenConfig VLANs over gNMI, with TLS, user and password.

Interfaces are read whole: switches answer differently to a Get of several containers if some do not
exist. Values are in JSON_IETF, or in JSON if the switch supports nothing else (NX-OS); only in
JSON_IETF, names have their modules' names as prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from drivers.codecs import openconfig as codec
from drivers.codecs.openconfig import Leaves
from drivers.codecs.yang_json import YangJsonError
from drivers.tor import openconfig
from drivers.tor.openconfig import Container, Dialect, OpenconfigTor
from drivers.transports import gnmi_session
from drivers.transports.gnmi_session import GnmiRefusal, GnmiSession, Message
from drivers.transports.tls import TlsOptions
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown, ProtocolError
from hydra.model import Rack
from hydra.roles import TorSwitch

CAPABILITIES: Final = openconfig.CAPABILITIES

_ORIGIN: Final = "openconfig"
_ROOT: Final = "openconfig-interfaces:interfaces"
_PLACES: Final = {
    False: "openconfig-if-ethernet:ethernet",
    True: "openconfig-if-aggregate:aggregation",
}
"""Container of an interface's VLANs; True: a LAG."""
_JSON, _JSON_IETF = 0, 4
"""Numbers of gNMI's encodings."""


def build(rack: Rack, timeout_s: float) -> TorSwitch:
    """The driver of a rack's ToR, not connected yet. Raises DeviceError without a login."""
    tor = rack.tor
    if tor.login is None:
        raise DeviceError(rack.name, "gNMI wants a login")
    options = TlsOptions.model_validate(dict(tor.options))
    return OpenconfigTor(
        rack.name,
        GnmiInterfaces(rack.name, tor.address, tor.login, options, timeout_s=timeout_s),
    )


check: Final = gnmi_session.tor_problems


class GnmiInterfaces(GnmiSession):
    """:class:`~drivers.tor.openconfig.Interfaces` behind a gNMI server."""

    def dialect(self) -> Dialect:
        self.open()
        models = self.capabilities.supported_models
        is_sonic = any(model.name.startswith("sonic-") for model in models)
        return openconfig.SONIC if is_sonic else openconfig.NATIVE

    def names(self) -> tuple[str, ...]:
        return tuple(self._found([self._path()]) or ())

    def read(self, ports: Collection[str], container: Container) -> Mapping[str, Leaves | None]:
        found = self._present(ports)
        return openconfig.leaves_by_port(self._device, found, container)

    def replace(self, wanted: Mapping[str, Leaves], check: Callable[[], None]) -> None:
        ietf, messages = self._speaks_ietf(), self._messages()
        places = {port: codec.is_lag(entry) for port, entry in self._present(wanted).items()}
        updates = []
        for port, leaves in wanted.items():
            text = codec.config_text(leaves, with_modules=ietf)
            value = {"json_ietf_val" if ietf else "json_val": text}
            path = self._path(
                port, _PLACES[places[port]], "openconfig-vlan:switched-vlan", "config"
            )
            updates.append(messages.Update(path=path, val=messages.TypedValue(**value)))
        self.set(messages.SetRequest(replace=updates))
        try:
            check()
        except (DeviceUnavailable, ProtocolError, GnmiRefusal) as error:
            raise OutcomeUnknown(
                self._device, f"VLANs were written and not confirmed: {error}; read the device back"
            ) from error

    def _present(self, ports: Collection[str]) -> dict[str, Any]:
        """The given interfaces by name. Raises DeviceError for interfaces missing on the switch."""
        found = self._found([self._path(port) for port in ports])
        if found is None or not {*ports} <= found.keys():
            openconfig.check_present(self._device, ports, found or self.names())
        if found is None:
            raise ProtocolError(self._device, "a listed interface is reported as missing")
        return {port: found[port] for port in ports}

    def _found(self, paths: Collection[Message]) -> dict[str, Any] | None:
        """Interfaces at the given paths, by name; None: the server says that an interface is
        missing.
        """
        encoding = "JSON_IETF" if self._speaks_ietf() else "JSON"
        updates = self.get(paths, encoding)
        if updates is None:
            return None
        interfaces: dict[str, Any] = {}
        for prefix, update in updates:
            path = [(e.name, dict(e.key)) for e in (*prefix.elem, *update.path.elem)]
            try:
                codec.place(interfaces, path, update.val.json_ietf_val or update.val.json_val)
            except YangJsonError as error:
                raise ProtocolError(self._device, f"interfaces: {error}") from error
        return interfaces

    def _speaks_ietf(self) -> bool:
        self.open()
        encodings = set(self.capabilities.supported_encodings)
        return _JSON_IETF in encodings or _JSON not in encodings

    def _path(self, port: str | None = None, *names: str) -> Message:
        messages, ietf = self._messages(), self._speaks_ietf()
        elements = [
            messages.PathElem(name=name if ietf else name.rpartition(":")[2])
            for name in (_ROOT, *(() if port is None else ("interface",)), *names)
        ]
        if port is not None:
            elements[1].key["name"] = port
        return messages.Path(origin=_ORIGIN, elem=elements)
