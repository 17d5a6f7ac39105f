"""Meters of Open vSwitch changed while all servers send at full rate.

``tests/own_network.sh -m benchmarks.meter_changes`` (root). Eight meters share 97 % of a circuit of
40 Mb/s, and are offered 1.5 times their rates. Each second, half of the meters should get 3 % more
and the other half 3 % less, with the same sum. The baseline changes the meters each second; HydRA
changes the meters when the circuit can bear the bursts after a change
(`apps/controller/refills.py`). The rate without changes is measured first.
"""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from apps.controller.refills import Refills, borne
from benchmarks._report import Result, report, run_benchmark
from drivers.codecs.openflow.meters import AddMeter, SetMeter, burst_kbit, encode_meter_changes
from drivers.transports.openflow_session import OpenFlowSession
from drivers.transports.tcp import UnixStream
from hydra.model import Circuit, PlaneId, PortId, RackId
from hydra.sharing.policing import STRICT, USABLE, Aggregate, Link
from mininet_scenarios.testbed import open_vswitch

BRIDGE: Final = "hyMtor"
CIRCUIT_MBPS: Final = 40.0
"""Rate that a busy machine sends and forwards without loss."""
METERS: Final = 8
CHANGE: Final = 0.03
OFFERED: Final = 1.5
SECONDS: Final = 30
FRAME_BYTES: Final = 1400
LINK: Final[Link] = (Circuit(PlaneId(0), PortId(0), PortId(1)), True)
SENDERS: Final = tuple(Aggregate(f"h{number}", RackId(1)) for number in range(1, METERS + 1))
ROUTES: Final = dict.fromkeys(SENDERS, (LINK,))
EVEN_MBPS: Final = USABLE * CIRCUIT_MBPS / METERS


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def bridge() -> Iterator[OpenFlowSession]:
    """A bridge with a port for incoming and a port for outgoing frames."""
    with open_vswitch():
        try:
            for port in ("hyMin", "hyMout"):
                run("ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}x")
                for end in (port, f"{port}x"):
                    run("ip", "link", "set", end, "up")
            ports = [
                word for port in ("hyMin", "hyMout") for word in ("--", "add-port", BRIDGE, port)
            ]
            kind = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
            run("ovs-vsctl", "add-br", BRIDGE, *kind, *ports)
            stream = UnixStream("bridge", f"unix:/var/run/openvswitch/{BRIDGE}.mgmt")
            session = OpenFlowSession("bridge", stream, timeout_s=60.0)
            with closing(session):
                set_meters(session, [AddMeter(n, EVEN_MBPS) for n in range(1, METERS + 1)])
                for number in range(1, METERS + 1):
                    rule = f"in_port=hyMin,udp,tp_dst={number},actions=meter:{number},output:hyMout"
                    run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", BRIDGE, rule)
                yield session
        finally:
            run("ovs-vsctl", "--if-exists", "del-br", BRIDGE)
            for port in ("hyMin", "hyMout"):
                subprocess.run(["ip", "link", "del", port], capture_output=True, check=False)


def set_meters(session: OpenFlowSession, changes: Sequence[AddMeter | SetMeter]) -> None:
    session.write(lambda xid: encode_meter_changes(changes, xid))


def frame(number: int) -> bytes:
    """A UDP datagram to this port, without checksums."""
    size = FRAME_BYTES - 14
    ip = bytes((0x45, 0)) + size.to_bytes(2) + bytes((0, 0, 0x40, 0, 64, 17, 0, 0))
    ip += bytes((10, 0, 0, 1, 10, 0, 0, 2))
    udp = (1).to_bytes(2) + number.to_bytes(2) + (size - 20).to_bytes(2) + bytes(2)
    ethernet = bytes.fromhex("020000000002020000000001 0800")
    return (ethernet + ip + udp).ljust(FRAME_BYTES, b"\0")


class Sender:
    """Sends to all meters in turn, at a steady rate."""

    def __init__(self) -> None:
        self.sent = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        frames = [frame(number) for number in range(1, METERS + 1)]
        every_s = FRAME_BYTES * METERS * 8e-6 / (OFFERED * USABLE * CIRCUIT_MBPS)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
            out.bind(("hyMinx", 0))
            due_s = time.monotonic()
            while not self._ended.is_set():
                for encoded in frames:
                    out.send(encoded)
                self.sent += METERS
                due_s += every_s
                if (early_s := due_s - time.monotonic()) > 0:
                    time.sleep(early_s)
                else:
                    due_s -= early_s / 2  # late datagrams are not all sent at once


def passed_bytes() -> int:
    shown = run("ovs-ofctl", "-O", "OpenFlow13", "dump-ports", BRIDGE, "hyMout")
    found = re.search(r"tx pkts=\d+, bytes=(\d+)", shown)
    if found is None:
        raise RuntimeError(f"no counters in {shown!r}")
    return int(found[1])


def passed(
    session: OpenFlowSession, refills: Refills | None, changes: bool
) -> tuple[float, float, int]:
    """Mbps passed and offered, and the number of changes of a meter."""
    old, changed = dict.fromkeys(SENDERS, EVEN_MBPS), 0
    set_meters(session, [SetMeter(n, EVEN_MBPS) for n in range(1, METERS + 1)])

    def may(aggregate: Aggregate) -> bool:
        return refills is None or refills.bears(ROUTES[aggregate])

    with Sender() as sender:
        time.sleep(2.0)
        began_s, began, sent = time.monotonic(), passed_bytes(), sender.sent
        for second in range(SECONDS):
            time.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
            if not changes:
                continue
            swing = [CHANGE / 2 if (place + second) % 2 else -CHANGE / 2 for place in range(METERS)]
            wanted = {
                aggregate: EVEN_MBPS * (1 + more)
                for aggregate, more in zip(SENDERS, swing, strict=True)
            }
            if refills is not None:
                refills.pass_to(time.monotonic())
            new = borne(old, wanted, ROUTES, may, lambda a, b: a != b)
            if refills is not None:
                for aggregate, mbps in new.items():
                    refills.charge(ROUTES[aggregate], burst_kbit(mbps, STRICT) / 1000)
            set_meters(
                session,
                [SetMeter(SENDERS.index(aggregate) + 1, mbps) for aggregate, mbps in new.items()],
            )
            old |= new
            changed += len(new)
        took_s = time.monotonic() - began_s
        mbit = (passed_bytes() - began) * 8e-6
        return mbit / took_s, (sender.sent - sent) * FRAME_BYTES * 8e-6 / took_s, changed


def main() -> int:
    with bridge() as session:
        alone, offered, _none = passed(session, None, changes=False)
        each, _, often = passed(session, None, changes=True)
        ours, _, seldom = passed(session, Refills(lambda _: CIRCUIT_MBPS), changes=True)
    name = "told each second"
    return report(
        "meter_changes",
        [
            Result(
                "8 meters of 38.8 Mb/s",
                "passes, left alone",
                "Mb/s",
                "lower",
                alone,
                offered,
                "offered",
            ),
            Result(
                "8 meters of 38.8 Mb/s", "passes", "Mb/s", "lower", ours, each, name, CIRCUIT_MBPS
            ),
            Result("8 meters of 38.8 Mb/s", "changes of a meter", "", "lower", seldom, often, name),
        ],
    )


if __name__ == "__main__":
    run_benchmark(main)
