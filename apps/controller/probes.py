"""Probes and markers: frames sent by switches along a path, received at the far end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.openflow.fleet import Fleet
from apps.openflow.replies import Reply
from hydra.errors import NotProbed
from hydra.forwarding.frames import TAGGED_HEADER_BYTES, probe
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric
from hydra.policy import CurrentPolicy
from hydra.reconfiguration.commands import Marker, PassMarkers, ProbePath

_SMALL_SHARE = 0.25
"""Part of a probe's time for small frames where large frames are lost."""
_PROBE_SHARES = (1 / 15, 2 / 15, 4 / 15, 8 / 15)
"""Parts of a path's time-out: the wait of each attempt before the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    """A marker under way, with everything needed to send it again."""

    marker: Marker
    nonce: int
    datapath: DatapathId
    port: int
    frame: bytes
    arrival: Reply[None]
    earlier: tuple[Reply[None], ...] = ()
    """Replies to the marker's earlier sendings."""

    @property
    def has_arrived(self) -> bool:
        """True if an earlier sending has arrived; the present sending is only late."""
        return any(reply.done() for reply in self.earlier)


class Probes:
    """Usable from any thread."""

    def __init__(self, fabric: Fabric, policy: CurrentPolicy, fleet: Fleet) -> None:
        self._substrate = substrate_of(fabric)
        self._policy = policy
        self._fleet = fleet
        self._nonces = itertools.count(random.SystemRandom().getrandbits(48))

    def of_path(self, command: ProbePath) -> tuple[str, ...]:
        """Probe each direction with frames of the servers' largest size.

        Returns the directions in which no frame came through, and marks a direction in which small
        frames pass.
        """
        a, b = command.ends
        ends = ((a, b),) if command.path.one_way else ((a, b), (b, a))
        probes = [
            Marker(path=command.path, vlan=command.vlan, src=src, dst=dst) for src, dst in ends
        ]
        mtu = self._policy.now.server_mtu
        missing = self._pass(probes, command.timeout_s, mtu=mtu)
        small = self._pass(missing, command.timeout_s * _SMALL_SHARE) if missing else ()
        cut_short = f" (small frames pass, and none of {mtu + TAGGED_HEADER_BYTES} bytes: an MTU)"
        return tuple(
            sorted(
                f"{marker.src.name} to {marker.dst.name}{'' if marker in small else cut_short}"
                for marker in missing
            )
        )

    def markers(self, command: PassMarkers) -> tuple[Marker, ...]:
        return self._pass(command.markers, command.timeout_s, last=True)

    def _pass(
        self, markers: Sequence[Marker], timeout_s: float, *, last: bool = False, mtu: int = 0
    ) -> tuple[Marker, ...]:
        """Send markers, each as long as a packet of ``mtu`` bytes; returns the missing markers.

        A frame dropped by a full queue is soon repeated. A late frame still counts; but with
        ``last``, nothing may be under way afterwards, and the last repetition has to arrive. Raises
        NotProbed, without ``last``, if a switch at the end of a missing marker is silent.
        """
        everything = missing = [self._sending(marker, mtu) for marker in markers]
        silent = missing
        for share in _PROBE_SHARES:
            frames: dict[DatapathId, list[tuple[int, bytes]]] = {}
            for sending in silent:
                frames.setdefault(sending.datapath, []).append((sending.port, sending.frame))
            self._fleet.send_frames(frames)
            self._fleet.await_probes([sending.arrival for sending in missing], timeout_s * share)
            missing = silent = [sending for sending in missing if not sending.arrival.done()]
            if not missing:
                break
            if last:
                silent = [
                    self._next_sending(sending) for sending in missing if not sending.has_arrived
                ]
                missing = [*silent, *(sending for sending in missing if sending.has_arrived)]
                everything = [*everything, *silent]
        try:
            if missing and not last:
                self._await_late(missing, timeout_s)
        finally:
            for sending in everything:
                self._fleet.forget_probe(sending.nonce)
        return tuple(sending.marker for sending in missing if not sending.arrival.done())

    def _await_late(self, missing: Sequence[_Sending], timeout_s: float) -> None:
        """Wait until switches at both ends of ``missing`` markers have sent all earlier messages.

        Raises NotProbed if a switch is silent (``hydra/faults/roll_call.py``).
        """
        hearers = {
            switch.datapath
            for marker in missing
            for switch in self._substrate.steering(marker.marker.dst.rack)
            if marker.marker.dst in switch.servers
        }
        asked = {sending.datapath for sending in missing} | hearers
        for failure in self._fleet.silent(asked, timeout_s).values():
            raise NotProbed(failure.subject, f"no probe has come, and {failure}")

    def _next_sending(self, sending: _Sending) -> _Sending:
        return replace(self._sending(sending.marker), earlier=(*sending.earlier, sending.arrival))

    def _sending(self, marker: Marker, mtu: int = 0) -> _Sending:
        nonce = next(self._nonces) & 0xFFFF_FFFF_FFFF_FFFF
        datapath, port = self._substrate.launch(marker.src, marker.path)
        frame = probe(marker.src.mac, marker.dst.mac, marker.vlan, nonce, mtu)
        return _Sending(
            marker=marker,
            nonce=nonce,
            datapath=datapath,
            port=port,
            frame=frame,
            arrival=self._fleet.expect_probe(nonce),
        )
