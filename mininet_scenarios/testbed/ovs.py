"""Open vSwitch: the daemons, and many bridges in one transaction."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hydra.model import DatapathId, VlanId
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.testbed.shell import TestbedError, run
from mininet_scenarios.testbed.sysctl import STATE_DIR, send_buffer_bytes

_LOG: Final = logging.getLogger(__name__)
_CTL: Final = "/usr/share/openvswitch/scripts/ovs-ctl"
_RUN: Final = Path("/var/run/openvswitch")
PID_FILE: Final = _RUN / "ovs-vswitchd.pid"
DATABASE: Final = _RUN / "db.sock"
_SCHEDULED: Final = 2
"""CPUCLOCK_SCHED, combined with a process's complemented number as in clock_getcpuclockid(3)."""
_STARTED_BY_US: Final = STATE_DIR / "ovs-started"

MALLOC_TUNABLE: Final = "glibc.malloc.tcache_count=65535"
"""Has ovs-vswitchd's malloc reuse a freed block first for requests of the same size.

While a port's VLANs change, ovs-vswitchd goes on using a freed bitmap
(docs/decisions/0027-freed-vlans-of-open-vswitch.md).
"""

_MENDED_IN: Final = {(2, 17): (2, 17, 8), (3, 0): (3, 0, 5), (3, 1): (3, 1, 3)}
"""First release of a series with "dpif-netdev: Fix dpif_netdev_flow_put"; later series have the
fix.
"""

CONTROLLER_MAX_BACKOFF_MS: Final = 1000
CONTROLLER_INACTIVITY_PROBE_MS: Final = 5000

_HELLO, _ECHO_REQUEST, _ECHO_REPLY = (
    struct.pack("!BBHI", 4, kind, 8, number) for kind, number in ((0, 1), (2, 2), (3, 2))
)
"""Messages of OpenFlow 1.3."""


@dataclass(frozen=True, slots=True)
class PortSpec:
    """A port to create; with ``native`` an access port that also takes ``trunks`` tagged."""

    name: str
    trunks: Collection[VlanId] = ()
    native: VlanId | None = None
    protected: bool = False
    """Frames from a protected port never leave by another protected port."""


@dataclass(frozen=True, slots=True)
class BridgeSpec:
    """A bridge to create, ``fail_mode=secure``; ports get OpenFlow numbers 1, 2, … in order."""

    name: str
    ports: tuple[PortSpec, ...]
    datapath_id: DatapathId | None = None
    controller: str | None = None
    """Controller in OVS's notation, e.g. ``tcp:127.0.0.1:6653``."""
    other_config: Mapping[str, str] = field(default_factory=dict)


def default_datapath() -> str:
    """``system`` if the kernel has Open vSwitch's module, else ``netdev`` (userspace)."""
    module = Path("/sys/module/openvswitch")
    if not module.exists():
        subprocess.run(["modprobe", "openvswitch"], capture_output=True, check=False)
    return "system" if module.exists() else "netdev"


def unread_frames() -> int:
    """Frames lost on a busy machine, because a socket read by Open vSwitch was full."""
    return sum(int(drops) for drops in re.findall(r'"ovs-vswitchd".*?,d(\d+)\)', _sockets()))


def cpu_s() -> float:
    """Processor time of all threads of ovs-vswitchd so far.

    With the ``netdev`` datapath, the time includes all forwarding; the kernel's forwarding is not
    included.
    """
    pid = int(PID_FILE.read_text())
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def ensure_running() -> None:
    """Start ovsdb-server and ovs-vswitchd if they are down; :func:`stop_if_started` stops both
    again.

    Call after the socket buffers are raised (:mod:`mininet_scenarios.testbed.sysctl`). A vswitchd
    started earlier is restarted if no bridge depends on it.
    """
    if not is_running():
        if not Path(_CTL).exists():
            raise TestbedError(f"{_CTL} is missing: install openvswitch-switch (`make bootstrap`)")
        STATE_DIR.mkdir(parents=True, exist_ok=True)
        _STARTED_BY_US.touch()
        _control("start")
    elif _smallest_send_buffer() < send_buffer_bytes():
        # Userspace bridges send for all their ports through one socket, made at the first frame:
        # two queues of 10 ms at 100 Mb/s overflow the default buffer, uncounted.
        if foreign := bridges():
            _LOG.warning(
                "ovs-vswitchd runs with small socket buffers and can't be restarted because of "
                "%s: some frames lost to full queues will not be counted",
                ", ".join(foreign),
            )
        else:
            _control("restart", "--no-ovsdb-server")


def separate_cached_flows() -> None:
    """Make ovs-vswitchd cache only disjoint flows, if the version confuses overlapping flows.

    A cached flow left with the actions of other rules may drop its frames for as long as frames
    arrive. Holds until ovs-vswitchd ends.
    """
    if default_datapath() == "netdev" and confuses_cached_flows(_version()):
        run(["ovs-appctl", "upcall/disable-megaflows"])


def confuses_cached_flows(version: tuple[int, int, int]) -> bool:
    """True for a version whose userspace datapath changes the wrong one of overlapping flows."""
    return version < _MENDED_IN.get(version[:2], min(_MENDED_IN.values()))


def _version() -> tuple[int, int, int]:
    version_text = run(["ovs-vswitchd", "--version"])
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", version_text)
    if found is None:
        raise TestbedError(f"ovs-vswitchd reports no version: {version_text!r}")
    return int(found[1]), int(found[2]), int(found[3])


def apply() -> None:
    """Return once ovs-vswitchd has applied the present database; needed after a start."""
    run(
        [
            "ovs-vsctl",
            f"--timeout={PATIENCE_S:.0f}",
            "set",
            "Open_vSwitch",
            ".",
            f"external_ids:seen={time.time()}",
        ]
    )


def is_ours() -> bool:
    """True if a testbed started the daemons, so that no other program needs the daemons."""
    return _STARTED_BY_US.exists()


def kill(daemon: str) -> None:
    """SIGKILL ``ovsdb-server`` or ``ovs-vswitchd``; :func:`ensure_running` starts the daemon again.

    Raises TestbedError if Open vSwitch ran before the testbed: other programs may need Open
    vSwitch.
    """
    if not is_ours():
        raise TestbedError(f"{daemon} was not started by this testbed, so goes on")
    pid = _pid(daemon)
    os.kill(pid, signal.SIGKILL)
    while _exists(pid):
        time.sleep(0.005)


def pids() -> list[int]:
    """Ids of the running daemons."""
    found = []
    for daemon in ("ovsdb-server", "ovs-vswitchd"):
        with contextlib.suppress(OSError, ValueError):  # the daemon is just being restarted
            found.append(_pid(daemon))
    return found


def _pid(daemon: str) -> int:
    return int((_RUN / f"{daemon}.pid").read_text())


@contextlib.contextmanager
def connected_once(address: tuple[str, int], bridges: int) -> Iterator[None]:
    """Accept connections of ``bridges`` bridges at ``address`` during the block, until the bridges
    heed ``max_backoff``.

    Open vSwitch applies ``max_backoff`` to a standing connection at the next configuration; before
    the first connection, Open vSwitch pauses for up to 8 s between attempts. If a program already
    listens at the address, nothing is done.
    """
    with contextlib.ExitStack() as stack:
        try:
            door = stack.enter_context(socket.create_server(address, backlog=bridges))
        except OSError:
            yield
            return
        door.settimeout(PATIENCE_S)
        with ThreadPoolExecutor(1) as beside:
            heeding = beside.submit(_let_in, door, bridges)
            try:
                yield
                heeding.result()
            except BaseException:  # Ctrl-C, too: the thread would wait for bridges that never come
                door.shutdown(socket.SHUT_RDWR)
                raise


def _let_in(door: socket.socket, bridges: int) -> None:
    """Configure Open vSwitch while many bridges are connected."""
    with contextlib.ExitStack() as stack:
        answered = 0
        while answered < bridges:
            bridge, _ = door.accept()
            stack.enter_context(bridge)
            bridge.settimeout(PATIENCE_S)
            answered += _answers(bridge)
        if bridges:
            apply()


def _answers(bridge: socket.socket) -> bool:
    """Take up OpenFlow; False if the bridge closes the connection to reconnect, as after a new
    identity.
    """
    answer = b""
    with contextlib.suppress(ConnectionError):
        bridge.sendall(_HELLO + _ECHO_REQUEST)
        while more := bridge.recv(4096):
            answer += more
            if _ECHO_REPLY in answer:
                return True
    return False


def _exists(pid: int) -> bool:
    """False once the parent has reaped the process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _control(verb: str, *options: str) -> None:
    command = [_CTL, verb, "--system-id=random", *options]
    tunables = [os.environ.get("GLIBC_TUNABLES"), MALLOC_TUNABLE]
    environment = {**os.environ, "GLIBC_TUNABLES": ":".join(filter(None, tunables))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    # ovs-ctl reports a missing kernel module as failure; userspace bridges need no module.
    if not is_running():
        words = f"{done.stdout}{done.stderr}".strip()
        raise TestbedError(f"{' '.join(command)} left Open vSwitch not running: {words}")


def _smallest_send_buffer() -> int:
    """Bytes of the smallest packet socket of ovs-vswitchd; the default size without a socket."""
    sizes = re.findall(r'"ovs-vswitchd".*?,tb(\d+)', _sockets())
    return min(map(int, sizes), default=send_buffer_bytes())


def _sockets() -> str:
    """All packet sockets, one a line, with owners and memory (ss(8))."""
    return run(["ss", "--packet", "--all", "--memory", "--processes", "--numeric", "--oneline"])


def is_running() -> bool:
    status = subprocess.run([_CTL, "status"], capture_output=True, check=False)
    return status.returncode == 0


def stop_if_started() -> None:
    """Stop the daemons if started by a testbed, in this run or in a killed run."""
    if is_ours():
        run([_CTL, "stop"])
        _STARTED_BY_US.unlink()


def create(bridges: Iterable[BridgeSpec], datapath: str) -> None:
    """Create all bridges in one transaction; returns once ovs-vswitchd has all bridges."""
    arguments: list[str] = []
    for bridge in bridges:
        arguments += _bridge_arguments(bridge, datapath)
        for number, port in enumerate(bridge.ports, start=1):
            arguments += _port_arguments(bridge.name, number, port)
    if arguments:
        _transact(arguments)


def delete(names: Iterable[str]) -> None:
    arguments: list[str] = []
    for name in names:
        arguments += ["--", "--if-exists", "del-br", name]
    if arguments:
        _transact(arguments)


def bridges() -> list[str]:
    return run(["ovs-vsctl", "list-br"]).split()


def set_flows(bridge: str, flows: Iterable[str]) -> None:
    """Replace a bridge's rules, in ``ovs-ofctl`` notation."""
    text = "".join(f"{flow}\n" for flow in flows)
    run(["ovs-ofctl", "-O", "OpenFlow13", "--bundle", "replace-flows", bridge, "-"], stdin=text)


def _transact(arguments: list[str]) -> None:
    # If a port or bridge can't be set up, ovs-vsctl only complains.
    run(["ovs-vsctl", f"--timeout={PATIENCE_S:.0f}", *arguments], complaint_is_failure=True)


def _bridge_arguments(bridge: BridgeSpec, datapath: str) -> list[str]:
    other = {"disable-in-band": "true", **bridge.other_config}
    if bridge.datapath_id is not None:
        other["datapath-id"] = f"{bridge.datapath_id:016x}"
    arguments = ["--", "add-br", bridge.name, "--", "set", "bridge", bridge.name]
    arguments += [
        f"datapath_type={datapath}",
        "fail_mode=secure",
        "protocols=OpenFlow13",
        "stp_enable=false",
        "mcast_snooping_enable=false",
        *(f"other_config:{key}={json.dumps(value)}" for key, value in other.items()),
    ]
    if bridge.controller is not None:
        arguments += _controller_arguments(bridge.name, bridge.controller)
    return arguments


def set_controller(bridge: str, controller: str) -> None:
    """Connect a bridge to ``controller``, given in OVS's notation."""
    _transact(_controller_arguments(bridge, controller))


def set_controllers(bridges: Iterable[str], controllers: Sequence[str]) -> None:
    """Connect each bridge to all controllers at once."""
    arguments: list[str] = []
    for place, bridge in enumerate(bridges):
        names = [f"@c{place}_{number}" for number in range(len(controllers))]
        for name, controller in zip(names, controllers, strict=True):
            arguments += [
                *("--", f"--id={name}", "create", "controller", f"target={json.dumps(controller)}"),
                f"max_backoff={CONTROLLER_MAX_BACKOFF_MS}",
                f"inactivity_probe={CONTROLLER_INACTIVITY_PROBE_MS}",
            ]
        arguments += ["--", "set", "bridge", bridge, f"controller={','.join(names)}"]
    if arguments:
        _transact(arguments)


def _controller_arguments(bridge: str, controller: str) -> list[str]:
    return [
        "--",
        "set-controller",
        bridge,
        controller,
        "--",
        "set",
        "controller",
        bridge,
        f"max_backoff={CONTROLLER_MAX_BACKOFF_MS}",
        f"inactivity_probe={CONTROLLER_INACTIVITY_PROBE_MS}",
    ]


def _port_arguments(bridge: str, number: int, port: PortSpec) -> list[str]:
    arguments = ["--", "add-port", bridge, port.name, f"protected={json.dumps(port.protected)}"]
    if port.trunks:
        mode = "trunk" if port.native is None else "native-untagged"
        arguments += [f"vlan_mode={mode}", f"trunks={','.join(map(str, sorted(port.trunks)))}"]
    if port.native is not None:
        arguments.append(f"tag={port.native}")
    return [*arguments, "--", "set", "interface", port.name, f"ofport_request={number}"]
