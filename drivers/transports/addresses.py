"""Addresses of devices: ``host:port``, or ``serial:/dev/ttyUSB0``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from pydantic import BaseModel

from drivers.transports.serial_line import SerialOptions, SerialStream
from drivers.transports.stream import Stream
from drivers.transports.tcp import TcpStream
from hydra.config.devices import NoOptions, endpoint_problems, option_problems
from hydra.errors import Problem
from hydra.model import Plane

_SERIAL: Final = "serial:"


def stream_to(plane: Plane) -> Stream:
    """A stream to ``plane``'s device, not connected yet; other options are ignored."""
    path = _serial_path(plane.address)
    if path is None:
        return TcpStream(plane.name, plane.address)
    own = {key: value for key, value in plane.options.items() if key in SerialOptions.model_fields}
    return SerialStream(plane.name, path, SerialOptions.model_validate(own))


def address_problems(
    plane: Plane, at_tcp: type[BaseModel] = NoOptions, at_serial: type[BaseModel] = SerialOptions
) -> Iterator[Problem]:
    """Problems for drivers with both kinds of address, and models of the options at each."""
    path = _serial_path(plane.address)
    if path is None:
        yield from endpoint_problems(plane.address)
        yield from option_problems(at_tcp, plane.options)
        return
    if not PurePosixPath(path).is_absolute():
        yield Problem("address", f"{plane.address!r} is not {_SERIAL}/dev/NAME")
    yield from option_problems(at_serial, plane.options)


def _serial_path(address: str) -> str | None:
    return address.removeprefix(_SERIAL) if address.startswith(_SERIAL) else None
