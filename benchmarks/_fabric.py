"""A whole fabric of simulated switches for a controller, and a check of the switches' tables.

``_fabric.c`` plays the OpenFlow switches, ``_tors.py`` runs an ovsdb-server for each rack, and
``_planes.py`` plays the optical planes.

:func:`wrong_turns` checks the switches' tables by sending packets through the tables. The check
reads racks, servers and addresses from the configuration file by a reader of its own, and shares no
code with the controller.
"""

from __future__ import annotations

import ipaddress
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from mininet_scenarios.emulators.ports import free_port

REPOSITORY: Final = Path(__file__).parents[1]
REFERENCE: Final = REPOSITORY / "configs" / "reference.yaml"
SOURCE: Final = Path(__file__).with_name("_fabric.c")
BUILT: Final = REPOSITORY / "build" / "benchmarks" / "fabric"
PLANE_PORTS: Final = 320
SWITCHING_MS: Final = 25.0
TOR_S: Final = 60.0
"""Time-out of ToRs; longer than usual, since all databases share this machine's processors."""
CONNECTIONS: Final = 512
"""Connections to REST: few, since there are no agents, and the many switches need descriptors."""
HOST, OPTICAL, ELECTRICAL, TO_CONTROLLER = 1, 2, 3, 0xFFFFFFFD
_IPV4, _IPV6, _ARP, _PROBE = 0x0800, 0x86DD, 0x0806, 0x88B5
_PACKET: Final = np.dtype(
    [
        ("datapath", "u8"), ("in_port", "u4"), ("eth_type", "u2"), ("vlan", "u2"), ("mac", "u1", 6),
        ("proto", "u1"), ("icmp6", "u1"), ("src", "u1", 16), ("dst", "u1", 16), ("dscp", "u1"),
        ("version", "u1"), ("from", "u1", 6),
    ]
)  # fmt: skip
_VERDICT: Final = np.dtype([("port", "u4"), ("vlan", "u2"), ("steps", "u2")])


@dataclass(frozen=True, slots=True)
class Size:
    racks: int
    planes: int
    servers: int
    """Number of servers, and of vswitches, in a rack."""

    @property
    def vswitches(self) -> int:
        return self.racks * self.servers

    def __str__(self) -> str:
        return f"{self.racks} racks, {self.planes} planes, {self.vswitches} vswitches"


def compiled() -> Path:
    """The simulator of the switches, compiled again if its source is newer."""
    if not BUILT.exists() or BUILT.stat().st_mtime < SOURCE.stat().st_mtime:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise SystemExit("no C compiler here: install one (apt-get install gcc libc6-dev)")
        BUILT.parent.mkdir(parents=True, exist_ok=True)
        options = ["-std=gnu11", "-O2", "-Wall", "-pthread"]
        subprocess.run([compiler, *options, "-o", BUILT, SOURCE], check=True)
    return BUILT


def reference(size: Size, directory: Path, planes: Sequence[str]) -> dict[str, Any]:
    """``configs/reference.yaml`` with fewer racks and planes, and addresses on this machine."""
    document: dict[str, Any] = yaml.safe_load(REFERENCE.read_text())
    racks, plane, wiring = document["racks"][0], document["planes"][0], document["wiring"][0]
    racks["names"] = wiring["racks"] = f"r[1-{size.racks}]"
    racks["tor"]["address"] = f"unix:{directory}/r{{rack}}.sock"
    racks["servers"][0]["names"] = f"r{{rack}}-h[1-{size.servers}]"
    document["planes"] = [
        {**plane, "names": f"p{number}", "address": address}
        for number, address in enumerate(planes, start=1)
    ]
    wiring["planes"] = f"p[1-{size.planes}]"
    document["policy"]["timeouts"] = {"tor_s": TOR_S}
    document["controller"] = {
        "openflow": f"127.0.0.1:{free_port()}",
        "rest": f"127.0.0.1:{free_port()}",
        "connections": CONNECTIONS,
        "journal": f"{directory}/journal.db",
    }
    return document


@dataclass(frozen=True, slots=True)
class Server:
    """A server as described by the reference file; racks and places count from 0."""

    rack: int
    place: int

    @property
    def datapath(self) -> int:
        return 0x1000000 + (self.rack + 1) * 256 + self.place + 1

    @property
    def mac(self) -> bytes:
        number = self.rack + 1
        return bytes((2, 0, 0, number // 256, number % 256, self.place + 1))

    def address(self, version: int) -> bytes:
        number = self.rack + 1
        if version == 4:
            return bytes((10, number // 256, number % 256, self.place + 1))
        return ipaddress.IPv6Address(f"fd00:10:0:{number:x}::{self.place + 1:x}").packed


class Switches:
    """The running simulator; one command at a time."""

    def __init__(self, size: Size, addresses: str | Sequence[str], directory: Path) -> None:
        """``addresses``: addresses for switches to connect to; consecutive racks use them in
        turn.
        """
        self.size = size
        self.socket = directory / "switches.sock"
        self._walks = directory / "walks"
        places = [addresses] if isinstance(addresses, str) else addresses
        at = ["controller {} {}".format(*place.rsplit(":", 1)) for place in places]
        lines = [f"planes {size.planes} {PLANE_PORTS}"]
        for rack in range(size.racks):
            lines += [at[rack % len(at)], f"tor {0x10000 + rack + 1} {size.servers}"]
        for rack in range(size.racks):
            lines.append(at[rack % len(at)])
            for server in (Server(rack, place) for place in range(size.servers)):
                name = f"vswitch {server.datapath} {server.rack} {server.place}"
                lines.append(f"{name} {server.mac.hex(':')}")
        configuration = directory / "switches.conf"
        configuration.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [compiled(), configuration, self.socket], stdin=subprocess.PIPE
        )
        while True:
            try:
                self._connection = socket.socket(socket.AF_UNIX)
                self._connection.connect(str(self.socket))
                break
            except OSError:
                self._connection.close()
                if self.process.poll() is not None:
                    raise SystemExit("the simulated switches have ended, see above") from None
        self._stream = self._connection.makefile("rw")

    def close(self) -> None:
        self._stream.close()
        self._connection.close()
        self.process.stdin.close()
        self.process.wait()

    def say(self, command: str) -> str:
        self._stream.write(command + "\n")
        self._stream.flush()
        answer = self._stream.readline().strip()
        if not answer or answer.startswith("error"):
            raise RuntimeError(f"{command}: {answer or 'the simulated switches have ended'}")
        return answer

    def counts(self) -> dict[str, int]:
        return {name: int(value) for name, value in _named(self.say("count"))}

    def echoes(self) -> dict[str, float]:
        """Round trips in ms since the last call; an echo reply that is ``due`` counts with its
        age.
        """
        return {name: float(value) for name, value in _named(self.say("echoes"))}

    def be_tardy(self, slow_s: float) -> None:
        """Make one vswitch in 1,000 silent and one in 100 slow."""
        silent, slow = self._tardy
        self.say(f"tardy {silent} {slow} {slow_s * 1000:g}")

    @property
    def _tardy(self) -> tuple[int, int]:
        return max(1, self.size.vswitches // 1000), max(1, self.size.vswitches // 100)

    @property
    def prompt_racks(self) -> set[int]:
        """Racks without a tardy vswitch."""
        silent, slow = self._tardy
        numbers = [4 + n * (self.size.vswitches // silent) for n in range(silent)]
        numbers += [7 + n * (self.size.vswitches // slow) for n in range(slow)]
        return set(range(self.size.racks)) - {number // self.size.servers for number in numbers}

    def be_prompt(self) -> None:
        self.say("tardy 0 0 0")

    def walk(self, packets: np.ndarray) -> np.ndarray:
        """Results of sending these packets through the switches' tables."""
        packets.tofile(self._walks)
        self.say(f"walk {self._walks}")
        return np.fromfile(f"{self._walks}.out", _VERDICT)


def _named(answer: str) -> Iterator[tuple[str, str]]:
    for part in answer.split():
        name, _, value = part.partition("=")
        yield name, value


@contextmanager
def devices(
    size: Size, directory: Path, workers: Sequence[int] = ()
) -> Iterator[tuple[Switches, Path]]:
    """Run switches, ToR databases and planes.

    Yields the switches, not connected yet, and the configuration file for a controller.
    ``workers``: listening ports of workers that hold the switches.
    """
    with ExitStack() as stack:
        port = free_port()
        places = [f"127.0.0.1:{worker}" for worker in workers or (port,)]
        switches = Switches(size, places, directory)
        stack.callback(switches.close)
        socket_path = str(switches.socket)
        planes = _helper("_planes", size.planes, PLANE_PORTS, SWITCHING_MS, socket_path)
        stack.callback(_end, planes)
        addresses = planes.stdout.readline().split()
        tors = _helper("_tors", directory, size.racks, size.servers, size.planes, socket_path)
        stack.callback(_end, tors)
        if not tors.stdout.readline():
            raise SystemExit("the ToRs' databases did not start, see above")
        document = reference(size, directory, addresses)
        document["controller"]["openflow"] = f"127.0.0.1:{port}"
        if workers:
            document["controller"]["workers"] = {"listen": f"127.0.0.1:{free_port()}"}
        configuration = directory / "fabric.yaml"
        configuration.write_text(yaml.safe_dump(document, sort_keys=False))
        yield switches, configuration


def _helper(module: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait()


# -- the reader of the tables ----------------------------------------------------------------------


class _Walks:
    """Packets, each with its expected result."""

    def __init__(self) -> None:
        self._packets: list[tuple[Any, ...]] = []
        self._wanted: list[tuple[int, frozenset[int], str]] = []

    def add(
        self,
        at: Server,
        in_port: int,
        eth_type: int,
        mac: bytes,
        wanted: int,
        what: str,
        *,
        vlans: frozenset[int] = frozenset({0}),
        tag: int = 0,
        proto: int = 0,
        icmp6: int = 0,
        dst: bytes = b"",
        claimed: bytes | None = None,
    ) -> None:
        """``wanted`` is the expected output port (0: none), with one of ``vlans``.

        ``claimed`` is the source address; by default the server's.
        """
        version = 6 if eth_type == _IPV6 else 4
        packet = (
            at.datapath, in_port, eth_type, tag, tuple(mac), proto, icmp6,
            tuple(at.address(version).ljust(16, b"\0")), tuple(dst.ljust(16, b"\0")), 0, version,
            tuple(claimed or at.mac),
        )  # fmt: skip
        self._packets.append(packet)
        self._wanted.append((wanted, vlans, f"switch {at.datapath:#x}: {what}"))

    def __len__(self) -> int:
        return len(self._packets)

    def wrong(self, switches: Switches) -> list[str]:
        verdicts = switches.walk(np.array(self._packets, _PACKET)).tolist()
        return [
            f"{what}: leaves by port {port}, VLAN {vlan}; not by {wanted}, {sorted(vlans)}"
            for (wanted, vlans, what), (port, vlan, _) in zip(self._wanted, verdicts, strict=True)
            if port != wanted or vlan not in vlans
        ]


def wrong_turns(
    switches: Switches, topology: Mapping[str, Any], others: int, seed: int = 1
) -> tuple[int, list[str]]:
    """(Number of packets sent through tables, wrong results) for the topology shown by REST.

    At every vswitch: packets from its server to each rack reached by a circuit, and to ``others``
    further racks, in IPv4 and IPv6; to its own rack and to groups; packets from both uplinks for
    its server, and for other servers. At one vswitch of each rack, packets to every rack.
    """
    size, chance = switches.size, random.Random(seed)
    vlans: dict[tuple[int, int], set[int]] = {}
    for path in topology["paths"]:
        ends = int(path["src"][1:]) - 1, int(path["dst"][1:]) - 1
        for direction in (ends, ends[::-1]):
            vlans.setdefault(direction, set()).add(path["vlan"])
    wrong: list[str] = []
    packets = 0
    for rack in range(size.racks):
        walks = _Walks()
        joined = {to for (src, to) in vlans if src == rack}
        everywhere = chance.randrange(size.servers)
        for place in range(size.servers):
            at = Server(rack, place)
            some = joined | set(chance.sample(range(size.racks), min(others, size.racks)))
            for to in range(size.racks) if place == everywhere else sorted(some):
                target = Server(to, chance.randrange(size.servers))
                _sent(walks, at, target, frozenset(vlans.get((rack, to), ())))
            _groups(walks, at, Server(min(joined, default=rack), 0))
            stranger = Server(rack, (place + 1) % size.servers)
            _false(walks, at, stranger)
            tags = [next(iter(vlans[rack, to])) for to in sorted(joined)[:1]] or [100]
            _received(walks, at, stranger, tags[0])
        wrong += walks.wrong(switches)
        packets += len(walks)
    return packets, wrong


def _sent(walks: _Walks, at: Server, target: Server, vlans: frozenset[int]) -> None:
    what = f"to rack r{target.rack + 1}"
    if target.rack == at.rack:
        leaves, vlans = OPTICAL, frozenset({0})
    elif vlans:
        leaves = OPTICAL
    else:
        leaves, vlans = ELECTRICAL, frozenset({0})
    for version, kind in ((4, _IPV4), (6, _IPV6)):
        walks.add(at, HOST, kind, target.mac, leaves, f"IPv{version} {what}", vlans=vlans,
                  proto=6, dst=target.address(version))  # fmt: skip


def _groups(walks: _Walks, at: Server, target: Server) -> None:
    everybody = b"\xff" * 6
    walks.add(at, HOST, _IPV4, everybody, ELECTRICAL, "a broadcast of IPv4", dst=target.address(4))
    walks.add(at, HOST, _ARP, everybody, ELECTRICAL, "a broadcast")
    walks.add(at, HOST, _ARP, b"\x02" + bytes(5), ELECTRICAL, "ARP to one")
    walks.add(at, HOST, _IPV6, b"\x02" + bytes(5), ELECTRICAL, "neighbour discovery", proto=58,
              icmp6=135)  # fmt: skip
    outside = ipaddress.IPv4Address("192.0.2.1").packed
    walks.add(at, HOST, _IPV4, b"\x02" + bytes(5), ELECTRICAL, "outside every rack", dst=outside)
    walks.add(at, ELECTRICAL, _ARP, everybody, HOST, "a broadcast from the electrical network")


def _false(walks: _Walks, at: Server, stranger: Server) -> None:
    """Packets that no server may send: with a foreign address, or with a tag."""
    walks.add(at, HOST, _IPV4, stranger.mac, 0, "in another's name", claimed=stranger.mac)
    walks.add(at, HOST, _IPV4, stranger.mac, 0, "tagged by a server", tag=100)


def _received(walks: _Walks, at: Server, stranger: Server, tag: int) -> None:
    walks.add(at, OPTICAL, _IPV4, at.mac, HOST, "from a circuit", tag=tag)
    walks.add(at, OPTICAL, _IPV4, at.mac, HOST, "from its own rack")
    walks.add(at, OPTICAL, _PROBE, at.mac, TO_CONTROLLER, "a probe", tag=tag,
              vlans=frozenset({tag}))  # fmt: skip
    walks.add(at, OPTICAL, _IPV4, stranger.mac, 0, "for another, from a circuit", tag=tag)
    walks.add(at, ELECTRICAL, _IPV4, at.mac, HOST, "from the electrical network")
    walks.add(at, ELECTRICAL, _IPV4, stranger.mac, 0, "for another, from the electrical network")
