"""The process of an emulated optical circuit switch, for any protocol.

The process serves the vendor's protocol on one socket, moves light between interfaces of the kernel
(or only in memory), and takes the experimenter's orders on a second socket. SIGTERM ends the
process; the mirrors stay unchanged, and the next start finds them.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from mininet_scenarios.emulators.admin import AdminError, AdminServer, arm
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.mirrors import FibrePair, MemoryMirrors, MirrorError, Mirrors
from mininet_scenarios.emulators.ocs import EmulatedOcs, StandingAlarm, Timing

_log: Final = logging.getLogger(__name__)
_SEVERITIES: Final = ("CR", "MJ", "MN", "CL")


class DeviceServer(Protocol):
    """The vendor's protocol in front of an emulated switch."""

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve; returns the address, with the chosen port if ``port`` is 0."""

    async def die(self) -> None:
        """Close every connection, and refuse connections until :meth:`revive`."""

    async def revive(self) -> None:
        """Listen again at the same address."""

    async def listen_pty(self, path: str) -> None:
        """Serve a serial line too: ``path`` will point to the client's end of the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """Properties in which emulated devices differ."""

    program: str
    description: str
    protocol: str
    """Name of the protocol in the line with the sockets' addresses."""
    port: int
    """Default port to listen on."""
    serve: Callable[[EmulatedOcs, str], DeviceServer]
    """Makes the server from the switch and the serial number or name."""
    faults: frozenset[FaultKind]
    """Faults that the emulator plays; others are refused."""
    firmwares: Mapping[str, Callable[[EmulatedOcs, str], DeviceServer]] = dataclasses.field(
        default_factory=dict
    )
    """Servers of different firmware, by name for ``--firmware``."""


class OcsEmulator:
    """The device and the control socket."""

    def __init__(
        self, product: Product, name: str, ocs: EmulatedOcs, *, firmware: str | None = None
    ) -> None:
        self._ocs = ocs
        self._protocol = product.protocol
        self._played = product.faults
        serve = product.serve if firmware is None else product.firmwares[firmware]
        self._server = serve(ocs, name)
        self._admin = AdminServer(
            {
                "counters": self._counters,
                "fault": self._fault,
                "clear": self._clear,
                "block-port": self._block_port,
                "unblock": self._unblock,
                "alarm": self._alarm,
                "input-power": self._input_power,
                "shutter": self._shutter,
            }
        )

    async def run(
        self,
        device: tuple[str, int],
        serial: str | None,
        admin: tuple[str, int] | None,
        stop: asyncio.Event,
    ) -> None:
        """Serve until ``stop``; prints the addresses once both are listening."""
        await self._ocs.start()
        addresses = [f"{self._protocol} {_shown(await self._server.listen(*device))}"]
        if serial is not None:
            await self._server.listen_pty(serial)
        if admin is not None:
            addresses.append(f"admin {_shown(await self._admin.listen(*admin))}")
        print("listening", *addresses, flush=True)
        await stop.wait()
        await self._admin.close()
        await self._server.die()
        await self._ocs.close()

    async def _counters(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        counters = await self._ocs.counters()
        return {
            "ports": [dataclasses.asdict(port) for port in counters.ports],
            "lost_inside": counters.lost_inside,
            "moves": self._ocs.moves,
            "cross_connects": len(self._ocs.cross_connects),
        }

    async def _fault(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        kind = arm(self._ocs.faults, request, self._played)
        if kind is FaultKind.DEAD:
            await self._server.die()
        return {}

    async def _clear(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        await self._ocs.clear_faults()
        await self._server.revive()
        return {}

    async def _block_port(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        ingress, egress = self._ocs.block(_port(request))
        await self._ocs.settled()
        return {"ingress": ingress, "egress": egress}

    async def _unblock(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        self._ocs.unblock()
        await self._ocs.settled()
        return {}

    async def _alarm(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        severity, code = request.get("severity"), request.get("code")
        if severity not in _SEVERITIES:
            raise AdminError(f"severity must be one of {', '.join(_SEVERITIES)}, not {severity!r}")
        if not isinstance(code, str) or not code.isalnum():
            raise AdminError(f"code must be letters and digits, not {code!r}")
        text = str(request.get("text", ""))
        self._ocs.raise_alarm(StandingAlarm(_port(request), severity, code, text))
        return {}

    async def _input_power(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        dbm = request.get("dbm")
        if dbm is not None and type(dbm) not in (int, float):
            raise AdminError(f"dbm must be a number or null, not {dbm!r}")
        self._ocs.set_input_power(_port(request), dbm)
        await self._ocs.settled()
        return {}

    async def _shutter(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        closed = request.get("closed")
        if type(closed) is not bool:
            raise AdminError(f"closed must be true or false, not {closed!r}")
        self._ocs.set_enabled([_port(request)], enabled=not closed)
        await self._ocs.settled()
        return {}


def _port(request: Mapping[str, Any]) -> int:
    port = request.get("port")
    if type(port) is not int:
        raise AdminError(f"port must be a number, not {port!r}")
    return port


def run(product: Product, arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    parser = _parser(product)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    outside = [p for p in options.port if not _fits(p, options.ports)]
    if outside:
        n = options.ports
        parser.error(
            f"--port {outside[0].ingress}:{outside[0].egress}: ingress ports are 1..{n}, egress "
            f"ports {n + 1}..{2 * n}"
        )
    try:
        mirrors = MemoryMirrors() if options.backend == "memory" else _kernel_mirrors(options)
        timing = Timing(options.switching_ms / 1000, options.debounce_ms / 1000)
        ocs = EmulatedOcs(options.ports, mirrors, timing)
        emulator = OcsEmulator(product, options.name, ocs, firmware=options.firmware)
        asyncio.run(_serve(emulator, options))
    except (MirrorError, OSError) as error:
        _log.error("%s: %s", options.name, error)
        return 1
    return 0


def _kernel_mirrors(options: argparse.Namespace) -> Mirrors:
    from mininet_scenarios.emulators.kernel_mirrors import (  # noqa: PLC0415 - loads pyroute2
        KernelMirrors,
    )

    return KernelMirrors(options.port, options.counts)


async def _serve(emulator: OcsEmulator, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await emulator.run(options.listen, options.serial, options.admin, stop)


def _parser(product: Product) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=product.program, description=product.description)
    parser.add_argument("--name", default=product.program, help="serial number or name")
    parser.add_argument(
        "--firmware", choices=product.firmwares, help="an older release, with other words"
    )
    listen = ("127.0.0.1", product.port)
    parser.add_argument("--listen", type=endpoint, default=listen, metavar="H:P")
    parser.add_argument("--serial", metavar="PATH", help="a pseudo-terminal, made at PATH, as well")
    parser.add_argument("--admin", type=endpoint, metavar="H:P", help="control socket")
    parser.add_argument("--ports", type=_positive, default=16, help="ports on each side")
    parser.add_argument("--switching-ms", type=_milliseconds, default=25.0)
    parser.add_argument(
        "--debounce-ms", type=_milliseconds, default=0.0, help="from light to carrier at the ToR"
    )
    parser.add_argument(
        "--backend",
        choices=("memory", "kernel"),
        default="memory",
        help="where mirrors move: nowhere, or between the interfaces given by --port (root)",
    )
    parser.add_argument(
        "--counts",
        type=Path,
        metavar="FILE",
        help="file for the counters of the kernel's mirrors, for a later process",
    )
    parser.add_argument(
        "--port",
        type=_fibre_pair,
        action="append",
        default=[],
        metavar="INGRESS:EGRESS:OCS_IFACE:TOR_IFACE",
        help="the veth pair that stands for one ToR port's fibres; repeat for each",
    )
    return parser


def endpoint(text: str) -> tuple[str, int]:
    """``HOST:PORT`` of the command line."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 86_400_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in ms")
    return value


def _fibre_pair(text: str) -> FibrePair:
    fields = text.split(":")
    if len(fields) != 4 or not fields[0].isdigit() or not fields[1].isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not INGRESS:EGRESS:OCS_IFACE:TOR_IFACE")
    return FibrePair(int(fields[0]), int(fields[1]), fields[2], fields[3])


def _fits(pair: FibrePair, size: int) -> bool:
    return 1 <= pair.ingress <= size < pair.egress <= 2 * size


def _shown(endpoint: tuple[str, int]) -> str:
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
