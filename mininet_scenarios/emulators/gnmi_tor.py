"""Emulated ToR switches on gNMI: common control socket, command line and process."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mininet_scenarios.emulators.admin import AdminError, AdminServer, arm
from mininet_scenarios.emulators.certificate import new_directory
from mininet_scenarios.emulators.faults import OF_TORS, FaultKind, Faults
from mininet_scenarios.emulators.process import endpoint


class Server(Protocol):
    """A gNMI server that the experimenter can end and revive."""

    changes: int
    """Sets of the configuration so far."""

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Serve; returns the address, with the chosen port if ``port`` is 0."""

    async def die(self) -> None:
        """End every session, and take none."""

    async def revive(self) -> None:
        """Take sessions again."""


class GnmiTorEmulator:
    """The device and the control socket; ``up``: link states by port name; ``more``: faults that
    the device plays in addition to those of all ToR switches.
    """

    def __init__(
        self,
        server: Server,
        faults: Faults,
        up: dict[str, bool],
        more: frozenset[FaultKind] = frozenset(),
    ) -> None:
        self._server = server
        self._faults = faults
        self._played = OF_TORS | more | {FaultKind.IDLE_LOGOUT}
        self._up = up
        self._admin = AdminServer(
            {
                "commands": self._commands,
                "fault": self._fault,
                "clear": self._clear,
                "link": self._link,
            }
        )

    def serve(self, options: argparse.Namespace) -> None:
        """Serve at the addresses of the command line until SIGTERM or SIGINT."""
        asyncio.run(self._serve(options.listen, options.admin))

    async def _serve(self, listen: tuple[str, int], admin: tuple[str, int] | None) -> None:
        """Print the addresses once both are listening."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        words = ["gnmi {}:{}".format(*await self._server.listen(*listen))]
        if admin is not None:
            words.append("admin {}:{}".format(*await self._admin.listen(*admin)))
        print("listening", *words, flush=True)
        await stop.wait()
        await self._admin.close()
        await self._server.die()

    async def _commands(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        return {"commands": self._server.changes}

    async def _fault(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        kind = arm(self._faults, request, self._played)
        if kind is FaultKind.DEAD:
            await self._server.die()
        return {}

    async def _clear(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        self._faults.clear()
        await self._server.revive()
        return {}

    async def _link(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        port, up = request.get("port"), request.get("up")
        if port not in self._up or type(up) is not bool:
            raise AdminError(f"no port {port!r}, or up {up!r} is neither true nor false")
        self._up[port] = up
        return {}


def command_line(program: str, description: str | None, port: int) -> argparse.ArgumentParser:
    """Common arguments of gNMI emulators; ``port``: the default port to listen on."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    listen = ("127.0.0.1", port)
    parser.add_argument("--listen", type=endpoint, default=listen, metavar="H:P")
    parser.add_argument("--admin", type=endpoint, metavar="H:P", help="control socket")
    parser.add_argument("--directory", type=Path, help="for its files; new")
    parser.add_argument("--ports", type=int, default=32)
    return parser


@contextmanager
def started(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> Iterator[tuple[argparse.Namespace, Path]]:
    """The options, and a directory for the emulator's files; a temporary directory is removed at
    the end.
    """
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with new_directory(parser, options.directory) as directory:
        yield options, directory
