"""Top-of-rack databases: ``python -m benchmarks._tors DIRECTORY RACKS SERVERS PLANES SOCKET``.

Each rack has a real ovsdb-server at ``DIRECTORY/rNUMBER.sock``, with a bridge ``tor`` and its
ports. This process takes the role of ovs-vswitchd: after a transaction, it sends the changes to the
simulated switches at SOCKET, and then confirms them in the database (``cur_cfg``); it also asks the
switches for the ports with light, and records these (``link_state``). It prints a line once all
databases listen.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks._teller import Teller, teller

SCHEMA: Final = Path("/usr/share/openvswitch/vswitch.ovsschema")
_DATABASE: Final = "Open_vSwitch"
_CARRIER_S: Final = 0.5


def port_names(servers: int, planes: int) -> list[str]:
    """A ToR's ports; OpenFlow numbers count from 1."""
    return [f"server{n + 1}" for n in range(servers)] + [f"optical{n + 1}" for n in range(planes)]


def make_database(path: Path, ports: Iterable[str]) -> None:
    """A database in the state after Open vSwitch has added a bridge and its ports."""
    operations: list[Any] = []

    def insert(table: str, row: dict[str, Any], name: str) -> list[str]:
        operations.append({"op": "insert", "table": table, "row": row, "uuid-name": name})
        return ["named-uuid", name]

    uuids = []
    for number, name in enumerate(["tor", *ports]):
        link_state = "down" if name.startswith("optical") else "up"
        row = {"name": name, "link_state": link_state}
        interface = insert("Interface", row, f"interface{number}")
        uuids.append(insert("Port", {"name": name, "interfaces": interface}, f"port{number}"))
    bridge = insert("Bridge", {"name": "tor", "ports": ["set", uuids]}, "bridge")
    insert("Open_vSwitch", {"bridges": bridge, "next_cfg": 0, "cur_cfg": 0}, "root")
    subprocess.run(["ovsdb-tool", "create", path, SCHEMA], check=True)
    transaction = json.dumps([_DATABASE, *operations])
    subprocess.run(["ovsdb-tool", "transact", path, transaction], check=True, capture_output=True)


def as_ranges(numbers: Iterable[int]) -> str:
    """``[5, 6, 7, 9]`` as ``5-7,9-9``."""
    ordered = sorted(numbers)
    if ordered and ordered[-1] - ordered[0] + 1 == len(ordered):  # the usual case, and a long list
        return f"{ordered[0]}-{ordered[-1]}"
    ends = [(a, b) for a, b in pairwise(ordered) if b != a + 1]
    first = [*ordered[:1], *(b for _, b in ends)]
    last = [*(a for a, _ in ends), *ordered[-1:]]
    return ",".join(f"{a}-{b}" for a, b in zip(first, last, strict=True))


class Tor:
    """The part of ovs-vswitchd for a rack's VLANs."""

    def __init__(self, rack: int, numbers: dict[str, int], switches: Teller) -> None:
        self._rack = rack
        self._numbers = numbers
        self._switches = switches
        self._names: dict[str, str] = {}
        self._applied = 0
        self._ports = {number: name for name, number in numbers.items()}
        self._lit: set[int] = set()
        self._writer: asyncio.StreamWriter | None = None
        self.ready = asyncio.Event()

    async def run(self, address: Path) -> None:
        reader, writer = await _connected(address)
        self._writer = writer
        columns = {
            "Open_vSwitch": {"columns": ["next_cfg"]},
            "Port": {"columns": ["name", "vlan_mode", "tag", "trunks"]},
        }
        _send(writer, {"method": "monitor", "params": [_DATABASE, None, columns], "id": "monitor"})
        async for message in _messages(reader):
            if message.get("method") == "echo":
                _send(writer, {"result": message["params"], "error": None, "id": message["id"]})
            elif message.get("method") == "update":
                self._apply(message["params"][1], writer)
            elif message.get("id") == "monitor":
                self._apply(message["result"], writer)
                self.ready.set()

    def see(self, lit: set[int]) -> None:
        """Record the ports with light, if changed."""
        changes = [
            {"op": "update", "table": "Interface", "where": [["name", "==", self._ports[number]]],
             "row": {"link_state": "up" if number in lit else "down"}}
            for number in sorted(lit ^ self._lit)
        ]  # fmt: skip
        if changes and self._writer is not None:
            self._lit = lit
            message = {"method": "transact", "params": [_DATABASE, *changes], "id": "carrier"}
            _send(self._writer, message)

    def _apply(self, tables: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        lines = []
        for uuid, change in tables.get("Port", {}).items():
            row = change.get("new", {})
            name = self._names.setdefault(uuid, row.get("name", ""))
            if row and name in self._numbers:
                lines.append(f"vlans {self._rack} {self._numbers[name]} {_carried(row)}")
        for line in lines[:-1]:
            self._switches.send(line)
        then = partial(self._say_applied, tables, writer)
        if lines:
            self._switches.send(lines[-1], then)
        else:
            then()

    def _say_applied(self, tables: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        for change in tables.get("Open_vSwitch", {}).values():
            target = change["new"]["next_cfg"]
            if target != self._applied:
                self._applied = target
                done = {"op": "update", "table": "Open_vSwitch", "where": [],
                        "row": {"cur_cfg": target}}  # fmt: skip
                _send(writer, {"method": "transact", "params": [_DATABASE, done], "id": "done"})


def _carried(row: dict[str, Any]) -> str:
    """Tagged VLANs of a port, by the columns of ovs-vswitchd.conf.db(5)."""
    trunks = row["trunks"][1] if isinstance(row["trunks"], list) else [row["trunks"]]
    mode = row["vlan_mode"] if isinstance(row["vlan_mode"], str) else None
    tag = row["tag"] if isinstance(row["tag"], int) else None
    if mode == "access" or (mode is None and tag is not None):
        return "none"
    return as_ranges(trunks) if trunks else "all"


async def _connected(address: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return once the server listens."""
    while True:
        with suppress(FileNotFoundError, ConnectionRefusedError):
            return await asyncio.open_unix_connection(address)
        await asyncio.sleep(0.01)


def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode())


async def _messages(reader: asyncio.StreamReader):
    """JSON values that follow each other without separators (RFC 7047, 4)."""
    decoder, text = json.JSONDecoder(), ""
    while data := await reader.read(1 << 20):
        text += data.decode()
        if text[-1] != "}":
            continue  # not the end of a message
        while text:
            try:
                message, end = decoder.raw_decode(text)
            except ValueError:
                break
            text = text[end:].lstrip()
            yield message


def _servers(directory: Path, racks: int, template: Path) -> Iterator[subprocess.Popen[bytes]]:
    for rack in range(racks):
        name = directory / f"r{rack + 1}"
        shutil.copy(template, f"{name}.db")
        command = ["ovsdb-server", f"{name}.db", f"--remote=punix:{name}.sock",
                   f"--unixctl={name}.ctl", "--no-chdir", "-vconsole:off"]  # fmt: skip
        yield subprocess.Popen(command, stdin=subprocess.DEVNULL)


async def _watch_carrier(switches: str, tors: Sequence[Tor]) -> None:
    reader, writer = await asyncio.open_unix_connection(switches, limit=1 << 20)
    while True:
        writer.write(b"carrier\n")
        lit: list[set[int]] = [set() for _ in tors]
        for end in (await reader.readline()).split()[1:]:
            rack, _, port = end.partition(b":")
            lit[int(rack)].add(int(port))
        for tor, bits in zip(tors, lit, strict=True):
            tor.see(bits)
        await asyncio.sleep(_CARRIER_S)


async def serve(directory: Path, racks: int, servers: int, planes: int, switches: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ports = port_names(servers, planes)
    template = directory / "template.db"
    make_database(template, ports)
    numbers = {name: number for number, name in enumerate(ports, start=1)}
    sender = await teller(switches)
    started, tors, tasks = [], [], [asyncio.create_task(sender.receive())]
    try:
        for process in _servers(directory, racks, template):
            rack = len(started)
            started.append(process)
            tor = Tor(rack, numbers, sender)
            tors.append(tor)
            tasks.append(asyncio.create_task(tor.run(directory / f"r{rack + 1}.sock")))
        for task in tasks:
            task.add_done_callback(lambda _: stop.set())  # no process ends by itself
        for tor in tors:
            await tor.ready.wait()
        carrier = asyncio.create_task(_watch_carrier(switches, tors))
        carrier.add_done_callback(lambda _: stop.set())
        tasks.append(carrier)
        print("ready", flush=True)
        await stop.wait()
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


if __name__ == "__main__":
    where, *sizes, socket = sys.argv[1:]
    asyncio.run(serve(Path(where), *map(int, sizes), socket))
