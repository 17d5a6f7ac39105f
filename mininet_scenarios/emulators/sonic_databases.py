"""Databases of an emulated SONiC: a real Redis server, on a separate Unix socket."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import redis
import redis.asyncio

from mininet_scenarios.patience import PATIENCE_S

NUMBERS: Final = {"CONFIG_DB": 4, "STATE_DB": 6, "EVENT_DB": 19}
SOCKET: Final = "redis.sock"
_PROGRAM: Final = "/usr/bin/redis-server"
_POLL_S: Final = 0.02
_ROWS: Final = """
local found = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1] .. '|*')) do
  found[#found + 1] = {name, redis.call('HGETALL', name)}
end
return found
"""
"""Names and rows of a table."""

Row = Mapping[str, str]
PubSub = redis.asyncio.client.PubSub


class DatabaseError(OSError):
    """The server can't be started."""


class Databases:
    """The server and its tables, as a context manager; keys are ``TABLE|key``, rows are hashes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, redis.Redis] = {}

    def __enter__(self) -> Databases:
        if not Path(_PROGRAM).exists():
            raise DatabaseError(f"{_PROGRAM} is missing: apt-get install redis-server")
        socket = str(self._directory / SOCKET)
        settings = {
            "--port": "0",
            "--unixsocket": socket,
            "--dir": str(self._directory),
            "--databases": "32",
            "--save": "",
            "--notify-keyspace-events": "KA",
            "--logfile": str(self._directory / "redis.log"),
        }
        # A killed emulator takes the database server along.
        command = ["setpriv", "--pdeathsig", "TERM", _PROGRAM]
        command += [word for setting in settings.items() for word in setting]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._clients = {
            name: redis.Redis(unix_socket_path=socket, db=number, decode_responses=True)
            for name, number in NUMBERS.items()
        }
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > deadline:
                self._end()
                raise DatabaseError(f"redis-server does not start: see {self._directory}/redis.log")
            time.sleep(_POLL_S)
        return self

    def __exit__(self, *_exception: object) -> None:
        for client in self._clients.values():
            client.close()
        self._end()

    def rows(self, database: str, table: str) -> dict[str, dict[str, str]]:
        """All rows by key, read at one time."""
        found = self._clients[database].eval(_ROWS, 0, table)
        return {
            name.partition("|")[2]: _fields(dict(zip(row[::2], row[1::2], strict=True)))
            for name, row in sorted(found)
        }

    def row(self, database: str, table: str, key: str) -> dict[str, str] | None:
        """A row; None if the table has no such key."""
        with self._clients[database].pipeline() as alone:
            alone.hgetall(f"{table}|{key}")
            (found,) = alone.execute()
        return _fields(found) if found else None

    def keys(self, database: str, table: str) -> set[str]:
        found = self._clients[database].keys(f"{table}|*")
        return {str(name).partition("|")[2] for name in found}

    def write(
        self, database: str, table: str, delete: Collection[str], put: Mapping[str, Row]
    ) -> None:
        """Delete rows, then write whole rows, in one transaction."""
        with self._clients[database].pipeline(transaction=True) as together:
            for key in delete:
                together.delete(f"{table}|{key}")
            for key, row in put.items():
                together.delete(f"{table}|{key}")
                together.hset(f"{table}|{key}", items=_flat(row or {"NULL": "NULL"}))
            together.execute()

    async def changes(self, database: str, table: str) -> PubSub:
        """A subscription to changes of a table's keys; the caller closes the subscription."""
        number = NUMBERS[database]
        client = redis.asyncio.Redis(
            unix_socket_path=str(self._directory / SOCKET), db=number, decode_responses=True
        )
        notices = client.pubsub(ignore_subscribe_messages=True)
        await notices.psubscribe(f"__keyspace@{number}__:{table}|*")
        return notices

    def _answers(self) -> bool:
        try:
            return bool(self._clients["CONFIG_DB"].ping())
        except redis.ConnectionError:
            return False

    def _end(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()


def _fields(row: Row) -> dict[str, str]:
    """A row as written: for a row without fields, the database has a field NULL, since Redis has no
    empty hashes.
    """
    return {field: value for field, value in row.items() if field != "NULL"}


def _flat(row: Row) -> list[str]:
    return [text for field in row.items() for text in field]
