"""The testbed: a fabric, built from Mininet hosts, Open vSwitch bridges and veth pairs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from hydra.model import Fabric, Server, VlanId
from hydra.settings import ControllerSettings
from mininet_scenarios.testbed import links, ovs, sweep, sysctl
from mininet_scenarios.testbed.capture import Capture, JointCapture
from mininet_scenarios.testbed.layout import (
    ELECTRICAL_BRIDGE,
    access_interface,
    electrical_interface,
    electrical_interfaces,
    layout,
    server_interface,
    uplink_interfaces,
)
from mininet_scenarios.testbed.links import Cable, QueueCounters
from mininet_scenarios.testbed.lock import testbed_lock
from mininet_scenarios.testbed.ocs import OcsProcess
from mininet_scenarios.testbed.servers import configure, server_host_class
from mininet_scenarios.testbed.shell import TestbedError, ip_batch, require_root, run
from mininet_scenarios.testbed.suitable import check_suitable

if TYPE_CHECKING:
    from mininet_scenarios.testbed.mininet_host import ServerHost

_T = TypeVar("_T")

_VLAN_PRESENT: Final = 0x1000
"""OpenFlow's OFPVID_PRESENT."""
_LEARN: Final = ("priority=0,actions=NORMAL",)
"""Forwarding rules with a controller, without, and during a change of controllers."""
_TERMINATION: Final = (signal.SIGINT, signal.SIGTERM)


class Testbed:
    """The whole emulated data plane of a fabric, for the length of a ``with`` block.

    Needs root, and a fabric that :func:`check_suitable` passes; raises TestbedError otherwise.
    Holds the machine-wide lock, and first removes remains of an earlier, killed run. Leaving the
    block removes everything made, also after an exception, SIGINT or SIGTERM.
    """

    __test__ = False  # not a test class, despite its name

    def __init__(
        self,
        fabric: Fabric,
        settings: ControllerSettings,
        *,
        switching_ms: float | None = None,
        debounce_ms: float = 0.0,
        fdb_age_s: float = 300.0,
        datapath: str | None = None,
        queues: links.QueueSize = links.USUAL_QUEUES,
    ) -> None:
        """Options of the emulation.

        ``switching_ms`` overrides every plane's own; ``debounce_ms`` is the time from light to
        carrier at a ToR; ``datapath`` is OVS's datapath type, by default the kernel's if available;
        ``queues`` are the transmitters'.
        """
        self.fabric = fabric
        self._openflow = settings.openflow_host, settings.openflow_port
        self._controller = f"tcp:{settings.openflow_host}:{settings.openflow_port}"
        self._switching_ms = switching_ms
        self._debounce_ms = debounce_ms
        self._fdb_age_s = fdb_age_s
        self._datapath = datapath or ovs.default_datapath()
        self._queue_size = queues
        self._hosts: dict[str, ServerHost] = {}
        self._ocs: dict[str, OcsProcess] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        require_root()
        server_host = server_host_class()
        check_suitable(self.fabric, layout(self.fabric, self._controller, self._fdb_age_s))
        with contextlib.ExitStack() as stack:
            stack.enter_context(testbed_lock())
            stack.enter_context(_termination_raises())
            sweep.clean_up()
            stack.callback(self._tear_down)
            self._build(server_host)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    # -- parts ---------------------------------------------------------------------------

    def host(self, name: str) -> ServerHost:
        """The Mininet host of a server (``cmd``, ``popen``, ``pexec`` …)."""
        return _find(self._hosts, "server", name)

    def ocs(self, plane: str) -> OcsProcess:
        return _find(self._ocs, "plane", plane)

    def queues(self) -> Mapping[str, QueueCounters]:
        """Counters of every rate-limited transmitter, by interface name."""
        queues = dict(links.queue_counters())
        for server in self.fabric.servers:
            if server.vswitch is None:  # the server's own interface has the rate of its link
                queues |= links.queue_counters(self.host(server.name).pid)
        return queues

    def unread_frames(self) -> int:
        """Frames that Open vSwitch on a busy machine had no time to read; no queue counts them."""
        return ovs.unread_frames()

    def forwarding_cpu_s(self) -> float | None:
        """Processor time of forwarding so far; None if the kernel forwards."""
        return ovs.cpu_s() if self._datapath == "netdev" else None

    def frames_at(
        self, server: str, where: str = "host", *, expression: str = "", direction: str = "inout"
    ) -> Capture | JointCapture:
        """Watch a server's ``host`` interface, or the server's ``optical`` or ``electrical``
        uplink.

        ``circuits`` is the place where the server's traffic on circuits is tagged: the optical
        uplink or, for a plain server, all ports of the rack on planes. ``network`` is the
        electrical network's own end, possibly shared by servers of a rack.
        """
        wanted = self._server(server)
        optical, electrical = uplink_interfaces(self.fabric, wanted)
        ports = {
            "host": (server_interface(wanted), self.host(server).pid),
            "optical": (optical, None),
            "circuits": (optical, None),
            "electrical": (electrical, None),
            "network": (electrical_interface(self.fabric, wanted), None),
        }
        if where == "circuits" and wanted.vswitch is None:
            wired = self.fabric.ports_of(wanted.rack)
            return JointCapture(
                [Capture(p.tor_port, expression=expression, direction=direction) for p in wired]
            )
        interface, pid = _find(ports, "place to watch", where)
        return Capture(interface, namespace_pid=pid, expression=expression, direction=direction)

    # -- baselines -------------------------------------------------------------------------

    def forward_plainly(self, server: str, uplink: str, vlan: VlanId | None = None) -> None:
        """Let a server's vswitch pass all frames between the host and one uplink.

        ``uplink`` is ``electrical``, or ``optical`` with the VLAN of the circuit. One rule each way
        replaces the pipeline, until a controller restores the pipeline.
        """
        wanted = self._server(server)
        if wanted.vswitch is None:
            raise TestbedError(f"{server} has no vswitch whose rules could be replaced")
        optical, electrical = uplink_interfaces(self.fabric, wanted)
        port = _find({"optical": optical, "electrical": electrical}, "uplink", uplink)
        host = access_interface(wanted)
        push = match = pop = ""
        if vlan is not None:
            tag = _VLAN_PRESENT | vlan
            push, pop = f"push_vlan:0x8100,set_field:{tag}->vlan_vid,", "pop_vlan,"
            match = f"vlan_vid={tag},"
        rules = [
            f"in_port={host},actions={push}output:{port}",
            f"in_port={port},{match}actions={pop}output:{host}",
        ]
        ovs.set_flows(wanted.vswitch.bridge, rules)

    # -- faults ----------------------------------------------------------------------------

    def kill_uplink(self, server: str) -> None:
        """Take the light off a server's uplink to the ToR: the server's vswitch loses carrier."""
        links.set_up(self._server(server).tor_port, up=False)

    def restore_uplink(self, server: str) -> None:
        links.set_up(self._server(server).tor_port, up=True)

    def cut_electrical(self, server: str) -> None:
        """Unplug a server, or the rack with a shared uplink, from the electrical network.

        The server's vswitch, or the ToR, loses carrier.
        """
        links.set_up(electrical_interface(self.fabric, self._server(server)), up=False)

    def restore_electrical(self, server: str) -> None:
        links.set_up(electrical_interface(self.fabric, self._server(server)), up=True)

    def make_again(self, bridge: str) -> None:
        """Make a deleted bridge again, in the initial state: without rules except for learning."""
        planned = layout(self.fabric, self._controller, self._fdb_age_s)
        (spec,) = (
            planned_bridge for planned_bridge in planned.bridges if planned_bridge.name == bridge
        )
        ovs.create([spec], self._datapath)
        if bridge in planned.learning:
            ovs.set_flows(bridge, _LEARN)
        names = {port.name for port in spec.ports}
        links.limit_rates_again(
            [cable for cable in planned.fabric_cables if {cable.a, cable.b} & names],
            self._queue_size,
        )

    # -- building ----------------------------------------------------------------------------

    def _build(self, server_host: type[ServerHost]) -> None:
        planned = layout(self.fabric, self._controller, self._fdb_age_s)
        sysctl.apply()  # before ports exist: sockets take the buffer size at creation
        ovs.ensure_running()
        sweep.delete_bridges()
        run(["mnexec", "-n", "true"])  # if no namespace may be made, Mininet waits for ever
        for server in self.fabric.servers:
            self._hosts[server.name] = server_host(server.name)
        host_cables = tuple(map(self._host_cable, self.fabric.servers))
        links.lay((*planned.fabric_cables, *host_cables))
        self._build_electrical()
        held = sum(bridge.controller is not None for bridge in planned.bridges)
        with ovs.connected_once(self._openflow, held):
            ovs.create(planned.bridges, self._datapath)
            links.limit_rates((*planned.fabric_cables, *host_cables), self._queue_size)
            for bridge in planned.learning:
                ovs.set_flows(bridge, _LEARN)
            self._start_ocs()
            for server in self.fabric.servers:
                configure(self._hosts[server.name], server)
        for ocs in self._ocs.values():
            ocs.wait_until_ready()

    def _host_cable(self, server: Server) -> Cable:
        """A plain server's link to the ToR; for other servers, an unlimited link inside the
        server.
        """
        rate_mbps = self.fabric.server_rate_mbps if server.vswitch is None else None
        return Cable(
            access_interface(server),
            server_interface(server),
            rate_mbps,
            rate_mbps,
            b_namespace_pid=self._hosts[server.name].pid,
        )

    def _build_electrical(self) -> None:
        bridge = f"{ELECTRICAL_BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        ends = electrical_interfaces(self.fabric)
        ip_batch(
            [
                f"link add {bridge}",
                f"link set dev {ELECTRICAL_BRIDGE} addrgenmode none",
                f"link set dev {ELECTRICAL_BRIDGE} up",
                *(f"link set dev {end} master {ELECTRICAL_BRIDGE}" for end in ends),
            ]
        )

    def _start_ocs(self) -> None:
        sysctl.STATE_DIR.mkdir(parents=True, exist_ok=True)
        for plane in self.fabric.planes:
            switching_ms = plane.switching_ms if self._switching_ms is None else self._switching_ms
            log = sysctl.STATE_DIR / f"ocs-{plane.name}.log"
            self._ocs[plane.name] = OcsProcess(
                self.fabric, plane, switching_ms, self._debounce_ms, log
            )
            self._ocs[plane.name].start()

    def _tear_down(self) -> None:
        with _termination_ignored():
            sweep.clean_up()
            for host in self._hosts.values():
                host.terminate()  # the shell is gone; this closes the pseudo-terminal
            for ocs in self._ocs.values():
                ocs.kill()
            self._hosts.clear()
            self._ocs.clear()

    def _server(self, name: str) -> Server:
        return _find(self.fabric.server_by_name, "server", name)


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """SIGTERM ends the block by ``SystemExit``, as SIGINT does by ``KeyboardInterrupt``."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _termination_ignored() -> Iterator[None]:
    """Ignore termination signals, also in tools called meanwhile: a second Ctrl-C must not leave
    half a clean-up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in _TERMINATION]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _find(known: Mapping[str, _T], kind: str, name: str) -> _T:
    try:
        return known[name]
    except KeyError:
        raise TestbedError(f"no {kind} {name!r} here; there are {', '.join(known)}") from None
