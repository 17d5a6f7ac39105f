"""Check that no frame sent without light escapes this machine's count.

``python -m mininet_scenarios.testbed.light_check`` (root). Kernels of different versions account
differently for frames at a port without carrier; run the check once before an experiment that
claims zero loss.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyroute2 import IPRoute

from mininet_scenarios.emulators.fibre_links import FibreLinks
from mininet_scenarios.emulators.mirrors import FibrePair
from mininet_scenarios.testbed.links import Cable, lay, limit_rates

_FRAME: Final = bytes.fromhex("0200000000020200000000018888") + bytes(986)
_RATE_MBPS: Final = 10.0
_SETTLE_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the check: frames sent, and counts by place."""

    name: str
    sent: int
    arrived: int
    dropped_by_shaper: int
    lost_in_the_dark: int

    @property
    def exact(self) -> bool:
        return self.sent == self.arrived + self.dropped_by_shaper + self.lost_in_the_dark


def run(prefix: str = "hyst") -> list[Step]:
    """Send while lit, while dark, and while the light goes and comes with a full shaper."""
    pair = FibrePair(1, 2, f"{prefix}-ocs", f"{prefix}-tor")
    with _shaped_pair(pair) as netlink, _sender(pair.tor_interface) as sender:
        links = FibreLinks([pair])
        links.prepare(lit=[2])
        bench = _Bench(netlink, links, sender, socket.if_nametoindex(pair.tor_interface))
        try:
            steps = [bench.step("lit", 500)]
            links.darken([2])
            steps.append(bench.step("dark", 500))
            links.light([2])
            steps.append(bench.step("light goes and comes", 4000, flaps=8))
        finally:
            links.close()
    return steps


class _Bench:
    def __init__(
        self, netlink: IPRoute, links: FibreLinks, sender: socket.socket, tor_index: int
    ) -> None:
        self._netlink = netlink
        self._links = links
        self._sender = sender
        self._tor_index = tor_index

    def step(self, name: str, frames: int, flaps: int = 0) -> Step:
        before = self._seen()
        turns = {frames * (turn + 1) // (2 * flaps + 1): turn for turn in range(2 * flaps)}
        for number in range(frames):
            self._send()
            if number in turns:
                (self._links.light if turns[number] % 2 else self._links.darken)([2])
        time.sleep(_SETTLE_S)  # timed: the last frames arrive
        arrived, shaped, lost = (now - then for now, then in zip(self._seen(), before, strict=True))
        return Step(name, frames, arrived, shaped, lost)

    def _send(self) -> None:
        try:
            self._sender.send(_FRAME)
        except OSError:
            return  # ENOBUFS: dropped on the way, and counted

    def _seen(self) -> tuple[int, int, int]:
        shaped = next(
            message.get_attr("TCA_STATS")["drop"]
            for message in self._netlink.get_qdiscs()
            if message["index"] == self._tor_index and message["parent"] == 0xFFFFFFFF
        )
        return self._links.received(2), shaped, self._links.lost_in_the_dark()[2]


@contextmanager
def _shaped_pair(pair: FibrePair) -> Iterator[IPRoute]:
    cable = Cable(pair.tor_interface, pair.ocs_interface, a_rate_mbps=_RATE_MBPS)
    with IPRoute() as netlink:
        lay([cable])
        try:
            limit_rates([cable])
            yield netlink
        finally:
            netlink.link("del", ifname=pair.tor_interface)


@contextmanager
def _sender(interface: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((interface, 0))
        yield sender


def main() -> int:
    """Print each step; exit status 0 if every frame is accounted for."""
    steps = run()
    for step in steps:
        print(
            f"{'exact' if step.exact else 'WRONG'}  {step.name}: {step.sent} sent, "
            f"{step.arrived} arrived, {step.dropped_by_shaper} dropped by the shaper, "
            f"{step.lost_in_the_dark} lost without light"
        )
    return 0 if all(step.exact for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main())
