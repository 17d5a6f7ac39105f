"""Fibre pairs as veth pairs: light as carrier, and an exact count of frames sent without light.

While the OCS's end of a pair is down, the ToR's end has no carrier and the kernel drops what is
sent there: most of it in the ``noop`` queue that replaces the port's own, some in the veth driver
before that replacement, and, without counting it anywhere, all that waited in the port's shaper.
So the loss is taken as what went in less what came out: a ``clsact`` qdisc counts each frame that
enters the ToR's end, ahead of every queue, and

    lost = entered - transmitted - dropped by the shaper - waiting in the shaper.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

_SYS: Final = Path("/sys/class/net")
_CLSACT_HANDLE: Final = 0xFFFF0000
_CLSACT_EGRESS: Final = 0xFFFFFFF3
_ETH_P_ALL: Final = 0x0003
_TC_H_ROOT: Final = 0xFFFFFFFF
_READ_ATTEMPTS: Final = 8
_CARRIER_TIMEOUT_S: Final = 1.0


class LinkError(Exception):
    """An interface does not exist, or the kernel can't count on it."""


@dataclass(frozen=True, slots=True)
class FibrePair:
    """The two fibres between a ToR port and the OCS, as one duplex veth pair.

    The pair has carrier exactly when ``egress`` is fed with light. A ToR port that only sends can
    therefore not be shown: without light on its receiver, its transmitter has no carrier either.
    """

    ingress: int
    egress: int
    ocs_interface: str
    tor_interface: str


@dataclass(frozen=True, slots=True)
class _Reading:
    entered: int
    shaper_drops: int
    waiting: int


class FibreLinks:
    """Carrier and loss of some fibre pairs; keyed by egress port. One thread at a time."""

    def __init__(self, pairs: Iterable[FibrePair]) -> None:
        self._pairs = {pair.egress: pair for pair in pairs}
        self._ocs_index = {e: _index(p.ocs_interface) for e, p in self._pairs.items()}
        self._tor_index = {e: _index(p.tor_interface) for e, p in self._pairs.items()}
        self._interface_of_ingress = {p.ingress: p.ocs_interface for p in self._pairs.values()}
        self._netlink: Any = None
        self._lost_before: dict[int, int] = dict.fromkeys(self._pairs, 0)
        self._dark_since: dict[int, int] = {}

    def prepare(self, lit: Collection[int]) -> None:
        """Silence both ends of each pair, meter the ToR's, and light exactly these ports."""
        self._netlink = IPRoute()  # here and not before: it belongs to the thread that opens it
        for egress, pair in self._pairs.items():
            _silence(pair.ocs_interface)
            _silence(pair.tor_interface)
            self._meter(egress)
            self._netlink.link("set", index=self._tor_index[egress], state="up")
        self._set_state(self._pairs.keys() - set(lit), "down")
        self._set_state(lit, "up")
        self._dark_since = self._losses(self._pairs.keys() - set(lit))

    def close(self) -> None:
        """Remove the meters; carrier stays as it is."""
        for index in self._tor_index.values():
            try:
                self._netlink.tc("del", "clsact", index)
            except NetlinkError:
                continue  # the interface has gone first
        self._netlink.close()

    def darken(self, egress: Collection[int]) -> None:
        """Take the light off these ports; those that are dark stay so."""
        going = set(egress) - self._dark_since.keys()
        self._dark_since |= self._losses(going)
        self._set_state(going, "down")

    def light(self, egress: Collection[int]) -> None:
        """Give these ports light, and return when their ToR ports have carrier."""
        coming = set(egress) & self._dark_since.keys()
        self._set_state(coming, "up")
        self._await_carrier(coming)
        for port, now in self._losses(coming).items():
            self._lost_before[port] += now - self._dark_since.pop(port)

    def lost_in_the_dark(self) -> Mapping[int, int]:
        """Frames that each ToR port was given to send while it had no light, since prepare()."""
        now = self._losses(self._dark_since.keys())
        return {
            port: lost + now.get(port, 0) - self._dark_since.get(port, 0)
            for port, lost in self._lost_before.items()
        }

    def lit(self) -> frozenset[int]:
        return frozenset(self._pairs.keys() - self._dark_since.keys())

    def received(self, ingress: int) -> int:
        """Frames that came into the OCS at this port."""
        return _statistic(self._interface_of_ingress[ingress], "rx_packets")

    def received_and_sent(self) -> tuple[int, int]:
        """Frames over all OCS ends: (that came in, that went out)."""
        names = [pair.ocs_interface for pair in self._pairs.values()]
        received = sum(_statistic(name, "rx_packets") for name in names)
        return received, sum(_statistic(name, "tx_packets") for name in names)

    # --- inside ---------------------------------------------------------------------------------

    def _meter(self, egress: int) -> None:
        index = self._tor_index[egress]
        try:
            if not self._has_clsact(index):
                self._netlink.tc("add", "clsact", index)
                # Without a filter, frames bypass the qdisc and its counter.
                self._netlink.tc(
                    "add-filter",
                    "u32",
                    index,
                    parent=_CLSACT_EGRESS,
                    protocol=_ETH_P_ALL,
                    target=0x10001,
                    keys=["0x0/0x0+0"],
                )
        except NetlinkError as error:
            raise LinkError(
                f"{self._pairs[egress].tor_interface}: the kernel can't count frames there "
                f"(clsact and u32 are needed): {error}"
            ) from error

    def _has_clsact(self, index: int) -> bool:
        return any(
            message["index"] == index and message["handle"] == _CLSACT_HANDLE
            for message in self._netlink.get_qdiscs()
        )

    def _set_state(self, egress: Iterable[int], state: str) -> None:
        for port in egress:
            self._netlink.link("set", index=self._ocs_index[port], state=state)

    def _await_carrier(self, egress: Iterable[int]) -> None:
        waiting = {self._pairs[port].tor_interface for port in egress}
        deadline = time.monotonic() + _CARRIER_TIMEOUT_S
        while waiting:
            waiting = {name for name in waiting if _operational_state(name) != "up"}
            if waiting and time.monotonic() > deadline:
                raise LinkError(f"{', '.join(sorted(waiting))}: no carrier although lit")

    def _losses(self, egress: Collection[int]) -> dict[int, int]:
        """Frames that went in and never came out, per port, over the life of the interface."""
        losses: dict[int, int] = {}
        todo = set(egress)
        before = self._readings(todo) if todo else {}
        for attempt in range(_READ_ATTEMPTS):
            if not todo:
                break
            sent = {p: _statistic(self._pairs[p].tor_interface, "tx_packets") for p in todo}
            after = self._readings(todo)
            # The counters are read one by one: a frame in between would look lost, or found.
            settled = {
                port
                for port in todo
                if before[port] == after[port] or attempt == _READ_ATTEMPTS - 1
            }
            for port in settled:
                found = after[port]
                losses[port] = found.entered - sent[port] - found.shaper_drops - found.waiting
            todo -= settled
            before = after
        return losses

    def _readings(self, egress: Collection[int]) -> dict[int, _Reading]:
        by_index: dict[int, list[Any]] = {self._tor_index[port]: [] for port in egress}
        for message in self._netlink.get_qdiscs():
            if message["index"] in by_index:
                by_index[message["index"]].append(message)
        return {port: _reading(by_index[self._tor_index[port]]) for port in egress}


def _reading(qdiscs: Sequence[Any]) -> _Reading:
    entered = drops = waiting = 0
    for message in qdiscs:
        stats = message.get_attr("TCA_STATS")
        if message["handle"] == _CLSACT_HANDLE:
            entered = stats["packets"]
        elif message["parent"] == _TC_H_ROOT:
            drops, waiting = stats["drop"], stats["qlen"]
    return _Reading(entered, drops, waiting)


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise LinkError(f"there is no interface {interface}: {error.strerror}") from error


def _silence(interface: str) -> None:
    """No router solicitations or multicast reports when carrier comes back."""
    setting = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
    if setting.exists():
        setting.write_text("1")


def _statistic(interface: str, name: str) -> int:
    return int((_SYS / interface / "statistics" / name).read_text())


def _operational_state(interface: str) -> str:
    return (_SYS / interface / "operstate").read_text().strip()
