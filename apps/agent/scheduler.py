"""Weighted sharing of a server's link among the two networks (c-Through, section 4.2).

Racks reached by circuits get one part of the link, all other racks the rest: HTB on the host's own
interface, with u32 filters by destination prefix. The sharing is work-conserving: either class may
use the other's spare rate, up to the whole link. Broadcast and multicast are electrical, and so
belong to the class of the rest.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Final, Self

from hydra.errors import HydraError

OPTICAL_CLASS: Final = "5:10"
OTHER_CLASS: Final = "5:20"
_ROOT: Final = "5:"
_FRAME_BYTES: Final = 1518
_BURST_MS: Final = 10.0
"""Burst at the link's rate; with a shorter burst, a following uplink of equal rate would idle."""
_GROUPS_PRIORITY: Final = 1
_FIRST_PRIORITY: Final = 100
_MOST_PREFIXES: Final = 60_000
"""Most prefixes: each prefix has a separate priority of 16 bits."""
_TIMEOUT_S: Final = 10.0


class SchedulingError(HydraError):
    """The interface can't be scheduled as wanted."""


class OutputScheduler:
    """The queues of an interface; a context manager that restores the kernel's own queues."""

    def __init__(self, interface: str, prefixes: Mapping[str, Sequence[str]]) -> None:
        """``prefixes`` are the racks' by name. Changes nothing yet.

        Raises SchedulingError if the interface has queues of another program.
        """
        self._interface = interface
        self._prefixes = {rack: tuple(some) for rack, some in prefixes.items()}
        every = sorted({prefix for some in self._prefixes.values() for prefix in some})
        if len(every) > _MOST_PREFIXES:
            raise SchedulingError(f"{len(every)} prefixes: {_MOST_PREFIXES} can be told apart")
        self._priority = {prefix: _FIRST_PRIORITY + n for n, prefix in enumerate(every)}
        self._shares: tuple[float, float] | None = None
        self._optical: frozenset[str] = frozenset()
        self._queued = self._are_ours()
        """True if the interface has queues of an agent, perhaps left by a killed agent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.clear()

    def _are_ours(self) -> bool:
        """True if the queues are ours.

        Raises SchedulingError if the interface has queues of another program.
        """
        ours = False
        shown = json.loads(self._tc("-j", "qdisc", "show", "dev", self._interface, "root") or "[]")
        for queue in shown:
            kind, handle = queue["kind"], queue["handle"]
            if (kind, handle) == ("htb", _ROOT):
                ours = True
            elif handle != "0:":  # the kernel's own
                raise SchedulingError(
                    f"{self._interface} has queues of its own ({kind} {handle}): remove them "
                    f"(tc qdisc del dev {self._interface} root), or leave --interface out"
                )
        return ours

    def apply(self, link_mbps: float, optical_share: float, optical: Collection[str]) -> None:
        """Give the racks in ``optical`` the share of the link; 0 is no scheduling.

        Does nothing if already applied. Raises SchedulingError.
        """
        if not optical_share:
            self.clear()
            return
        lines: list[str] = []
        if self._shares != (link_mbps, optical_share):
            lines += self._queues(link_mbps, optical_share)
            self._optical = frozenset()
        wanted = frozenset(rack for rack in optical if rack in self._prefixes)
        lines += self._filters(self._optical - wanted, "del")
        lines += self._filters(wanted - self._optical, "add")
        if lines:
            self._queued = True  # also if some of the lines are refused
            self._tc("-batch", "-", stdin="".join(f"{line}\n" for line in lines))
        self._shares, self._optical = (link_mbps, optical_share), wanted

    def clear(self) -> None:
        """Restore the kernel's own queues."""
        if self._queued:
            if self._are_ours():
                self._tc("qdisc", "del", "dev", self._interface, "root")
            self._queued = False
            self._shares, self._optical = None, frozenset()

    def _queues(self, link_mbps: float, optical_share: float) -> Iterator[str]:
        device = f"dev {self._interface}"
        burst = int(max(2 * _FRAME_BYTES, link_mbps * 125 * _BURST_MS))
        if self._queued:  # HTB's can't be changed, and their filters would stay
            yield f"qdisc del {device} root"
        yield f"qdisc replace {device} root handle {_ROOT} htb default 20"
        classes = (
            (_ROOT, "5:1", 1.0),
            ("5:1", OPTICAL_CLASS, optical_share),
            ("5:1", OTHER_CLASS, 1.0 - optical_share),
        )
        for parent, name, share in classes:
            quantum = max(_FRAME_BYTES, int(10 * _FRAME_BYTES * share))
            yield (
                f"class replace {device} parent {parent} classid {name} htb "
                f"rate {link_mbps * share * 1000:.0f}kbit ceil {link_mbps * 1000:.0f}kbit "
                f"burst {burst} cburst {burst} quantum {quantum}"
            )
        yield (  # the group bit of the destination address, 14 bytes before the IP header
            f"filter add {device} parent {_ROOT} protocol all prio {_GROUPS_PRIORITY} "
            f"u32 match u8 0x01 0x01 at -14 flowid {OTHER_CLASS}"
        )

    def _filters(self, racks: Collection[str], verb: str) -> Iterator[str]:
        for prefix in sorted(prefix for rack in racks for prefix in self._prefixes[rack]):
            protocol, word = ("ip", "ip") if ip_network(prefix).version == 4 else ("ipv6", "ip6")
            line = (
                f"filter {verb} dev {self._interface} parent {_ROOT} protocol {protocol} "
                f"prio {self._priority[prefix]} u32"
            )
            match = f" match {word} dst {prefix} flowid {OPTICAL_CLASS}"
            yield line + (match if verb == "add" else "")

    def _tc(self, *arguments: str, stdin: str | None = None) -> str:
        """Output of tc. Raises SchedulingError, in tc's words."""
        try:
            done = subprocess.run(
                ["tc", *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise SchedulingError("there is no tc: install iproute2") from error
        except subprocess.TimeoutExpired as error:
            raise SchedulingError(f"tc gave no answer for {_TIMEOUT_S:g} s") from error
        if done.returncode:
            raise SchedulingError(f"{self._interface}: {done.stderr.strip()}")
        return done.stdout
