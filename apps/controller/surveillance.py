"""Probes running circuits from end to end, in a separate thread."""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from apps.openflow.fleet import Fleet
from apps.openflow.replies import Reply
from apps.openflow.requests import Answer
from apps.process.metrics import Metrics
from drivers.codecs.openflow.rules import encode_packet_out
from hydra.faults.roll_call import Ends, RollCall
from hydra.faults.server_links import Dead, LinkProbe, ServerLinks, Witness
from hydra.faults.surveillance import LostPath, Surveillance, Way
from hydra.forwarding.frames import PROBE_NONCE_BYTES, probe
from hydra.forwarding.match_action import Port
from hydra.forwarding.substrate import substrate_of
from hydra.model import DatapathId, Fabric, NetworkState, Pair, RackId, Server, VlanId
from hydra.policy import Policy

LOG = logging.getLogger("hydra.prober")
_REFRESH_S: Final = 0.25
_SHORTEST_TICK_S: Final = 0.01
_LONGEST_TICK_S: Final = 0.05
_FAR_WITNESSES: Final = 2
"""Number of servers at the far end of each path asked about a link."""


class Prober:
    """Reports dead paths to ``report``, in the prober's thread."""

    def __init__(
        self,
        *,
        fabric: Fabric,
        policy: Policy,
        fleet: Fleet,
        standing: Callable[[], tuple[NetworkState, Collection[Pair]]],
        able: Callable[[], Collection[DatapathId]],
        report: Callable[[Sequence[LostPath]], None],
        metrics: Metrics | None = None,
        linked: Callable[[], Collection[DatapathId]] = frozenset,
        report_links: Callable[[Dead], None] = lambda _dead: None,
    ) -> None:
        """``standing`` returns the present state and the moving pairs; ``able``: switches that can
        send and receive on circuits; ``linked``: vswitches with carrier on a link to the ToR.
        ``report_links`` is called with the dead directions of such links after each change.
        """
        self._fabric = fabric
        self._substrate = substrate_of(fabric)
        self._interval_s = policy.probe_interval_s
        self._mtu = policy.server_mtu
        self._fleet = fleet
        self._standing = standing
        self._able = able
        self._report = report
        self._metrics = metrics or Metrics()
        interval_s = max(policy.probe_interval_s, _SHORTEST_TICK_S)
        self._roll = RollCall()
        self._questions: dict[DatapathId, tuple[float, Reply[Answer]]] = {}
        """Barriers without an answer yet, with the time of the question."""
        self._surveillance = Surveillance(
            fabric, interval_s=interval_s, timeout_s=policy.timeouts.probe_s, roll=self._roll
        )
        self._linked = linked
        self._report_links = report_links
        self._links = ServerLinks(
            interval_s=interval_s, timeout_s=policy.timeouts.probe_s, roll=self._roll
        )
        self._unknown = 0
        """Unknown probes counted in the metrics so far."""
        self._links_seen: tuple[object, ...] = ()
        self._links_reported: Dead = {}
        self._tick_s = min(
            max(self._surveillance.timeout_s / 10, _SHORTEST_TICK_S), _LONGEST_TICK_S
        )
        self._received: deque[tuple[int, float]] = deque()
        self._restored: deque[Collection[DatapathId]] = deque()
        """Switches that lacked rules while probes were lost."""
        self._nonces = itertools.count(random.SystemRandom().getrandbits(48))
        self._frames: dict[tuple[str, str, VlanId, int, int], tuple[bytes, bytes]] = {}
        self._servers: dict[RackId, list[tuple[Server, DatapathId]]] = {}
        """Servers able to send and receive probes, with their steering switches."""
        self._seen: tuple[NetworkState, Collection[Pair]] | None = None
        self._seen_able: Collection[DatapathId] | None = None
        self._refreshed_s = float("-inf")
        self._echoed_s = self._clock_s = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="prober", daemon=True)
        if self._interval_s > 0:  # else received probes would pile up
            fleet.watch_probes(lambda nonce: self._received.append((nonce, time.monotonic())))

    def start(self) -> None:
        if self._interval_s > 0:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def acquit_links(self, restored: Collection[DatapathId]) -> None:
        """Forget dead server links found while the vswitches ``restored`` lacked rules. For any
        thread.
        """
        self._restored.append(restored)

    def _repeat(self) -> None:
        while not self._stop.wait(self._pause_s()):
            try:
                self.tick(time.monotonic())
            except Exception:
                LOG.exception("a round of probes failed; continuing with the next")

    def _pause_s(self) -> float:
        next_s = min(self._surveillance.next_s(), self._links.next_s())
        remaining_s = next_s - time.monotonic()
        return min(max(remaining_s, self._tick_s), _REFRESH_S)

    def tick(self, now_s: float) -> None:
        """Handle the received probes, and send the due probes."""
        self._refresh(now_s)
        received = 0
        while self._received:
            nonce, at_s = self._received.popleft()
            self._surveillance.probe_received(nonce, at_s)
            self._links.probe_received(nonce, at_s)
            received += 1
        self._metrics.probes(received=received)
        while self._restored:
            self._links.acquit(self._restored.popleft(), now_s)
        self._take_answers()
        # Judged by the hub's clock, a round behind: while the hub is busy, no probe counts as lost.
        self._clock_s = self._echoed_s
        self._fleet.post(lambda: self._echo(now_s))
        ready, lost = self._surveillance.due(self._clock_s)
        if lost:
            self._metrics.probes(lost_paths=len(lost))
            self._report(lost)
        self._send(ready, now_s)
        self._send_along_links(self._links.due(self._clock_s), now_s)
        self._ask(self._clock_s)
        unknown = self._surveillance.unknown + self._links.unknown
        self._metrics.probes(unknown=unknown - self._unknown)
        self._unknown = unknown
        dead = self._links.dead
        if dead != self._links_reported:
            self._links_reported = dead
            self._report_links(dead)

    def _echo(self, now_s: float) -> None:
        self._echoed_s = now_s

    def _take_answers(self) -> None:
        for datapath, (asked_s, reply) in tuple(self._questions.items()):
            if reply.done():
                del self._questions[datapath]
                if isinstance(reply.result(), bytes):  # else the connection has ended
                    self._roll.answered(datapath, asked_s)

    def _ask(self, now_s: float) -> None:
        """Ask switches at the ends of silent probes for a sign of life, one question at a time."""
        asked = self._fleet.ask_barriers(self._roll.take() - self._questions.keys())
        self._questions.update({datapath: (now_s, reply) for datapath, reply in asked.items()})

    def _refresh(self, now_s: float) -> None:
        seen = self._standing()
        if self._seen is None or seen[0] is not self._seen[0] or seen[1] != self._seen[1]:
            self._surveillance.watch(*seen, now_s)
            self._seen = seen
            self._frames.clear()
        if now_s - self._refreshed_s < _REFRESH_S:
            return
        self._refreshed_s = now_s
        self._refresh_links(seen[0], now_s)
        able = self._able()
        if able == self._seen_able:
            return
        self._seen_able = able
        self._servers = {
            rack.id: [
                (server, switch.datapath)
                for switch in self._substrate.steering(rack.id)
                if switch.datapath in able
                for server in switch.servers
            ]
            for rack in self._fabric.racks
        }

    def _refresh_links(self, state: NetworkState, now_s: float) -> None:
        if not self._substrate.retags:
            return  # servers have no vswitch to send a probe
        linked = self._linked()
        if self._links_seen == (linked, state):
            return
        self._links_seen = (linked, state)
        racks = {
            rack.id: [
                server
                for switch in self._substrate.steering(rack.id)
                if switch.datapath in linked
                for server in switch.servers
            ]
            for rack in self._fabric.racks
        }
        witnesses: dict[RackId, list[Witness]] = {}
        for path, vlan in state.vlans.items():
            for rack, other in ((path.src, path.dst), (path.dst, path.src)):
                far = racks[other][:_FAR_WITNESSES]
                witnesses.setdefault(rack, []).extend(Witness(server, vlan) for server in far)
        self._links.watch(racks, witnesses, now_s)

    def _send_along_links(self, probes: Sequence[LinkProbe], now_s: float) -> None:
        frames: dict[DatapathId, list[tuple[int, bytes]]] = {}
        sent = 0
        for link_probe in probes:
            vswitch = link_probe.src.vswitch
            if vswitch is None or not self._fleet.port_number(vswitch.datapath_id, Port.OPTICAL):
                self._links.passed_over(link_probe, now_s)
                continue
            nonces = [next(self._nonces) & 0xFFFF_FFFF_FFFF_FFFF for _ in range(link_probe.copies)]
            frames.setdefault(vswitch.datapath_id, []).extend(
                (
                    Port.OPTICAL,
                    probe(
                        link_probe.src.mac, link_probe.dst.mac, link_probe.vlan, nonce, self._mtu
                    ),
                )
                for nonce in nonces
            )
            self._links.sent(link_probe, nonces)
            sent += len(nonces)
        if frames:
            self._fleet.send_frames(frames)
            self._metrics.probes(sent=sent)

    def _send(self, ways: Sequence[Way], now_s: float) -> None:
        messages: dict[DatapathId, bytearray] = {}
        sent = 0
        for way in ways:
            src_server, dst_server = self._servers[way.src], self._servers[way.dst]
            nonces: list[int] = []
            ends: set[Ends] = set()
            for index in range(
                way.first, way.first + (way.copies if src_server and dst_server else 0)
            ):
                (src, _), (dst, hearer) = (
                    src_server[index % len(src_server)],
                    dst_server[index % len(dst_server)],
                )
                datapath, symbol = self._substrate.launch(src, way.path)
                port = self._fleet.port_number(datapath, symbol)
                if not port:
                    continue
                head, tail = self._frame(src, dst, way, port)
                nonce = next(self._nonces) & 0xFFFF_FFFF_FFFF_FFFF
                nonces.append(nonce)
                ends.add((datapath, hearer))
                packet_out = head + nonce.to_bytes(PROBE_NONCE_BYTES, "big") + tail
                messages.setdefault(datapath, bytearray()).extend(packet_out)
            if nonces:
                self._surveillance.sent(way, nonces, ends, now_s)
                sent += len(nonces)
            else:
                self._surveillance.passed_over(way, now_s)
        if messages:
            self._fleet.send_messages(messages)
            self._metrics.probes(sent=sent)

    def _frame(self, src: Server, dst: Server, way: Way, port: int) -> tuple[bytes, bytes]:
        """The bytes of a packet-out before and after the nonce."""
        mtu = self._mtu if way.full_size else 0
        key = (src.name, dst.name, way.vlan, port, mtu)
        known = self._frames.get(key)
        if known is None:
            mark = b"\xa5" * PROBE_NONCE_BYTES
            frame = probe(src.mac, dst.mac, way.vlan, int.from_bytes(mark, "big"), mtu)
            head, _, tail = encode_packet_out(frame, port, 0).rpartition(mark)
            known = self._frames[key] = (head, tail)
        return known
