"""An emulated RackSwitch G8264: ``python -m mininet_scenarios.emulators.g8264``.

An SSH server offers the command line (shell) and the NETCONF text mode (subsystem), and an optional
pseudo-terminal the serial console; a second socket takes the experimenter's orders. The password is
read from the environment variable named by ``--password-env``. The host key is new at each start,
and printed in the first line.

``--firmware 6.8`` has the older command line, with tagged ports as members of VLANs.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncssh

from mininet_scenarios.emulators.admin import AdminError, AdminServer, arm
from mininet_scenarios.emulators.faults import OF_TORS, FaultKind
from mininet_scenarios.emulators.g8264_cli import CommandLine, HungUpError
from mininet_scenarios.emulators.g8264_switch import G8264, OldG8264
from mininet_scenarios.emulators.netconf_text import Locks, TextNetconf
from mininet_scenarios.emulators.process import endpoint
from mininet_scenarios.emulators.sessions import ReplyLostError, SessionServer

_log: Final = logging.getLogger(__name__)
_READ_BYTES: Final = 65536
FAULTS: Final = OF_TORS | {FaultKind.PAGER, FaultKind.WRAP}


class Console(SessionServer):
    """The serial console: a single session, continued across clients."""

    def __init__(self, switch: G8264, credentials: tuple[str, str]) -> None:
        super().__init__()
        self._switch = switch
        self._credentials = credentials

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = CommandLine(
            self._switch, lambda: reader.read(_READ_BYTES), writer.write, self._credentials
        )
        try:
            await session.run()
        except HungUpError as error:
            raise ReplyLostError from error


class G8264Emulator:
    """The device together with its control socket."""

    def __init__(self, username: str, password: str, switch: G8264 | None = None) -> None:
        self._switch = switch or G8264()
        self._locks = Locks()
        self._credentials = (username, password)
        self._console = Console(self._switch, self._credentials)
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._sessions = 0
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._server: asyncssh.SSHAcceptor | None = None
        self._endpoint = ("", 0)
        self._admin = AdminServer(
            {
                "commands": self._commands,
                "fault": self._fault,
                "clear": self._clear,
                "link": self._link,
            }
        )

    async def run(
        self,
        listen: tuple[str, int],
        admin: tuple[str, int] | None,
        stop: asyncio.Event,
        *,
        serial: str | None = None,
    ) -> None:
        """Serve until ``stop``; prints addresses and host key once all are listening."""
        self._endpoint = listen
        if serial is not None:
            await self._console.listen_pty(serial)
        await self._revive()
        words = [f"ssh {self._endpoint[0]}:{self._endpoint[1]}"]
        if admin is not None:
            words.append("admin {}:{}".format(*await self._admin.listen(*admin)))
        key = self._key.export_public_key().decode().split()
        print("listening", *words, "key", *key[:2], flush=True)
        await stop.wait()
        await self._admin.close()
        await self._die()

    async def _revive(self) -> None:
        await self._console.revive()
        if self._server is None:
            self._server = await asyncssh.create_server(
                lambda: _Gate(self._connections, self._credentials),
                *self._endpoint,
                server_host_keys=[self._key],
                process_factory=self._converse,
                encoding=None,
                line_editor=False,
            )
            self._endpoint = self._server.sockets[0].getsockname()[:2]

    async def _die(self) -> None:
        await self._console.die()
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()

    async def _converse(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        async def read() -> bytes:
            try:
                return await process.stdin.read(_READ_BYTES)
            except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                return await read()

        self._sessions += 1
        connection = process.get_extra_info("connection")
        write = process.stdout.write
        session: CommandLine | TextNetconf
        if process.subsystem == "netconf":
            session = TextNetconf(self._switch, self._locks, self._sessions, read, write)
        else:
            session = CommandLine(self._switch, read, write)
        try:
            await session.run()
            process.exit(0)
        except (HungUpError, ConnectionError, asyncssh.Error):
            connection.abort()
        except Exception:  # the device goes on without the session
            _log.exception("a session failed")
            connection.abort()

    # --- the experimenter's orders --------------------------------------------------------------

    async def _commands(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        return {"commands": self._switch.changes}

    async def _fault(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        kind = arm(self._switch.faults, request, FAULTS)
        if kind is FaultKind.DEAD:
            await self._die()
        return {}

    async def _clear(self, _request: Mapping[str, Any]) -> Mapping[str, object]:
        self._switch.faults.clear()
        await self._revive()
        return {}

    async def _link(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        port, up = request.get("port"), request.get("up")
        if port not in self._switch.ports or type(up) is not bool:
            raise AdminError(f"no port {port!r}, or up {up!r} is neither true nor false")
        self._switch.ports[port].up = up
        return {}


class _Gate(asyncssh.SSHServer):
    """Server-side check of logins."""

    def __init__(
        self, connections: set[asyncssh.SSHServerConnection], credentials: tuple[str, str]
    ) -> None:
        self._connections = connections
        self._credentials = credentials
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._connection is not None:
            self._connections.discard(self._connection)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == self._credentials


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="g8264", description=__doc__)
    parser.add_argument("--listen", type=endpoint, default=("127.0.0.1", 2222), metavar="H:P")
    parser.add_argument("--serial", metavar="PATH", help="a pseudo-terminal, made at PATH, as well")
    parser.add_argument("--admin", type=endpoint, metavar="H:P", help="control socket")
    parser.add_argument("--firmware", choices=("6.8",), help="an older release, with other words")
    parser.add_argument("--username", default="admin")
    parser.add_argument("--password-env", default="G8264_PASSWORD", metavar="VARIABLE")
    options = parser.parse_args(arguments)
    password = os.environ.get(options.password_env)
    if not password:
        parser.error(f"the environment variable {options.password_env} holds no password")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.ERROR)
    try:
        switch = G8264() if options.firmware is None else OldG8264()
        asyncio.run(_serve(G8264Emulator(options.username, password, switch), options))
    except OSError as error:
        _log.error("%s", error)
        return 1
    return 0


async def _serve(emulator: G8264Emulator, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await emulator.run(options.listen, options.admin, stop, serial=options.serial)


if __name__ == "__main__":
    sys.exit(main())
