"""Fibre pairs as veth pairs: light as carrier, and an exact count of frames sent without light.

While the OCS's end of a pair is down, the ToR's end has no carrier, and the kernel drops frames
sent there. Most drops, in the veth driver or in the ``noop`` queue in place of the port's own, are
counted in ``tx_dropped``; frames that waited in the port's shaper when the carrier went are thrown
away without a count. So a ``clsact`` qdisc on the ToR's end counts each frame ahead of every queue,
and

    thrown away = entered - transmitted - tx_dropped - dropped by the shaper - waiting there.

All terms only grow as frames pass, so the terms need not be read at the same moment.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mininet_scenarios.emulators.mirrors import FibrePair, MirrorError
from mininet_scenarios.emulators.rtnetlink import KernelRequests, RequestRefused, request
from mininet_scenarios.patience import PATIENCE_S

_SYS: Final = Path("/sys/class/net")
_CLSACT_HANDLE: Final = 0xFFFF0000
_CLSACT_EGRESS: Final = 0xFFFFFFF3
_ETH_P_ALL: Final = 0x0003
_TC_H_ROOT: Final = 0xFFFFFFFF


class LinkError(MirrorError):
    """An interface does not exist, or the kernel can't count on the interface."""


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Frame counts by egress port, and the underlying kernel counters."""

    dark_drops_before: Mapping[int, int] = field(default_factory=dict)
    drops_when_darkened: Mapping[int, int] = field(default_factory=dict)
    thrown_away_at_start: Mapping[int, int] = field(default_factory=dict)
    thrown_away: Mapping[int, int] = field(default_factory=dict)


class FibreLinks:
    """Carrier and loss of some fibre pairs; keyed by egress port. One thread at a time."""

    def __init__(self, pairs: Iterable[FibrePair]) -> None:
        self._pairs = {pair.egress: pair for pair in pairs}
        self._ocs_index = {e: _index(p.ocs_interface) for e, p in self._pairs.items()}
        self._tor_index = {e: _index(p.tor_interface) for e, p in self._pairs.items()}
        self._netlink: Any = None
        self._requests = KernelRequests()
        self._turn = {
            (port, state): _turning(index, state)
            for port, index in self._ocs_index.items()
            for state in ("up", "down")
        }
        self._dark_drops_before = dict.fromkeys(self._pairs, 0)
        self._drops_when_darkened: dict[int, int] = {}
        self._thrown_away_at_start: dict[int, int] = {}
        self._thrown_away = dict.fromkeys(self._pairs, 0)

    def prepare(self, lit: Collection[int], counts: LinkCounts | None = None) -> None:
        """Silence both ends of each pair, meter the ToR's end, and light exactly the ports ``lit``.

        ``counts``: counts of an earlier process, to be continued.
        """
        metered_anew: set[int] = set()
        self._netlink = IPRoute()  # only here: the connection belongs to the thread that opens it
        for egress, pair in self._pairs.items():
            _silence(pair.ocs_interface)
            _silence(pair.tor_interface)
            if self._meter(egress):
                metered_anew.add(egress)
            self._netlink.link("set", index=self._tor_index[egress], state="up")
        dark = self._pairs.keys() - set(lit)
        self._set_state(dark, "down")
        self._set_state(lit, "up")
        counts = counts or LinkCounts()
        self._drops_when_darkened = {
            port: counts.drops_when_darkened.get(port, self._drops(port)) for port in dark
        }
        self._dark_drops_before |= counts.dark_drops_before
        self._thrown_away |= counts.thrown_away
        self._thrown_away_at_start = {
            port: found - self._thrown_away[port]
            if port in metered_anew
            else counts.thrown_away_at_start.get(port, found)
            for port, found in self._all_thrown_away().items()
        }

    def close(self) -> None:
        """Remove the meters; carrier stays unchanged."""
        for index in self._tor_index.values():
            try:
                self._netlink.tc("del", "clsact", index)
            except NetlinkError:
                continue  # the interface has gone first
        self._netlink.close()
        self._requests.close()

    def darken(self, egress: Collection[int]) -> None:
        """Take the light off the given ports; dark ports stay dark."""
        going = set(egress) - self._drops_when_darkened.keys()
        self._drops_when_darkened |= {port: self._drops(port) for port in going}
        self._set_state(going, "down")

    def light(self, egress: Collection[int]) -> None:
        """Give the ports light, and return once their ToR ports have carrier."""
        coming = set(egress) & self._drops_when_darkened.keys()
        self._set_state(coming, "up")
        self._await_carrier(coming)
        for port in coming:
            dropped = self._drops(port) - self._drops_when_darkened.pop(port)
            self._dark_drops_before[port] += dropped

    def lost_in_the_dark(self) -> Mapping[int, int]:
        """Number of frames handed to each dark ToR port for sending, since :meth:`prepare`.

        While traffic flows, a shaper's loss may show late, but the number is never too high.
        """
        # A frame that passes between the two readings makes the difference too small. A frame that
        # slips in between two counters of a reading makes the difference too large: hence the
        # lesser of two.
        readings = self._all_thrown_away(), self._all_thrown_away()
        for port, start in self._thrown_away_at_start.items():
            found = min(reading[port] for reading in readings) - start
            self._thrown_away[port] = max(self._thrown_away[port], found)
        return {
            port: drops
            + self._thrown_away[port]
            + self._drops(port)
            - self._drops_when_darkened.get(port, self._drops(port))
            for port, drops in self._dark_drops_before.items()
        }

    def lit(self) -> frozenset[int]:
        return frozenset(self._pairs.keys() - self._drops_when_darkened.keys())

    def counts(self) -> LinkCounts:
        """The counts so far, for a successor process."""
        return LinkCounts(
            dict(self._dark_drops_before),
            dict(self._drops_when_darkened),
            dict(self._thrown_away_at_start),
            dict(self._thrown_away),
        )

    def received(self, egress: int) -> int:
        """Frames received by the OCS on the pair, since the interface exists."""
        return _statistic(self._pairs[egress].ocs_interface, "rx_packets")

    def sent(self, egress: int) -> int:
        """Frames sent by the OCS on the pair, since the interface exists."""
        return _statistic(self._pairs[egress].ocs_interface, "tx_packets")

    # --- inside ---------------------------------------------------------------------------------

    def _meter(self, egress: int) -> bool:
        """Put a meter at the ToR's end; False if an earlier process has left a meter."""
        index = self._tor_index[egress]
        try:
            if self._has_clsact(index):
                return False
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
        return True

    def _has_clsact(self, index: int) -> bool:
        return any(
            message["index"] == index and message["handle"] == _CLSACT_HANDLE
            for message in self._netlink.get_qdiscs()
        )

    def _set_state(self, egress: Iterable[int], state: str) -> None:
        try:
            self._requests.make([self._turn[port, state] for port in egress])
        except RequestRefused as error:
            raise LinkError(f"the OCS's ports can't be set {state}: {error}") from error

    def _await_carrier(self, egress: Iterable[int]) -> None:
        waiting = {self._pairs[port].tor_interface for port in egress}
        deadline = time.monotonic() + PATIENCE_S
        while waiting:
            waiting = {name for name in waiting if _operational_state(name) != "up"}
            if waiting and time.monotonic() > deadline:
                raise LinkError(f"{', '.join(sorted(waiting))}: no carrier although lit")

    def _drops(self, egress: int) -> int:
        return _statistic(self._pairs[egress].tor_interface, "tx_dropped")

    def _all_thrown_away(self) -> dict[int, int]:
        """Frames thrown away without a count, per port, since the meters are there."""
        in_queues = self._in_queues()
        return {
            port: in_queues[index]
            - _statistic(self._pairs[port].tor_interface, "tx_packets")
            - self._drops(port)
            for port, index in self._tor_index.items()
        }

    def _in_queues(self) -> dict[int, int]:
        """Frames entered, by interface, less frames dropped or held by the interface's shaper."""
        found = dict.fromkeys(self._tor_index.values(), 0)
        for message in self._netlink.get_qdiscs():
            if message["index"] not in found:
                continue
            stats = message.get_attr("TCA_STATS")
            if message["handle"] == _CLSACT_HANDLE:
                found[message["index"]] += stats["packets"]
            elif message["parent"] == _TC_H_ROOT:
                found[message["index"]] -= stats["drop"] + stats["qlen"]
        return found


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        raise LinkError(f"there is no interface {interface}: {error.strerror}") from error


def _turning(index: int, state: str) -> bytes:
    return request(lambda batch: batch.link("set", index=index, state=state))


def _silence(interface: str) -> None:
    """Keep the interface from sending router solicitations and multicast reports on carrier."""
    setting = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
    if setting.exists():
        setting.write_text("1")


def _statistic(interface: str, name: str) -> int:
    return int((_SYS / interface / "statistics" / name).read_text())


def _operational_state(interface: str) -> str:
    return (_SYS / interface / "operstate").read_text().strip()
