"""The devices for tests of every ToR driver. A new driver adds an entry here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hydra.model import DatapathId, Login, Rack, RackId, Tor, VlanId
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.catalogue import EMULATORS, Emulator
from mininet_scenarios.emulators.certificate import CA
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.netconfd import Netconfd
from mininet_scenarios.emulators.openconfig_tor import DEVICE, MAKES
from mininet_scenarios.testbed import open_vswitch
from tests.conformance.tor.candidate import TorBench, TorCandidate, TorDeviation
from tests.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]
BRIDGE = "hyKtor"
LOGIN_VARIABLE = "HYDRA_TEST_TOR"
SONIC = EMULATORS["sonic-ocs"]
"""Login accepted by every emulated SONiC switch."""
EMULATED = frozenset(
    {
        FaultKind.REFUSE,
        FaultKind.SILENT,
        FaultKind.MERGE,
        FaultKind.KILL,
        FaultKind.LOSE_REPLY,
        FaultKind.SLOW,
        FaultKind.MUTE,
        FaultKind.DEAD,
        FaultKind.PAGER,
        FaultKind.WRAP,
    }
)


def rack(
    driver: str,
    address: str,
    *,
    bridge: str = "",
    login: Login | None = None,
    options: Mapping[str, object] | None = None,
) -> Rack:
    tor = Tor(driver, address, bridge, DatapathId(1), VlanId(1), login, options or {})
    return Rack(RackId(0), "r1", (), tor, ())


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def open_vswitch_bridge(driver: str, address: str) -> Iterator[TorBench]:
    """A bridge of the machine's Open vSwitch."""
    ports = tuple(f"hyKp{number}" for number in range(4))
    with open_vswitch():
        try:
            for port in ports:
                run("ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}x")
            added = [word for port in ports for word in ("--", "add-port", BRIDGE, port)]
            kind = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev"]
            run("ovs-vsctl", "add-br", BRIDGE, *kind, *added)
            yield TorBench(
                rack(driver, f"unix:/var/run/openvswitch/{address}", bridge=BRIDGE), ports
            )
        finally:
            run("ovs-vsctl", "--if-exists", "del-br", BRIDGE)
            for port in ports:
                subprocess.run(["ip", "link", "del", port], capture_output=True, check=False)


@contextmanager
def netconfd() -> Iterator[TorBench]:
    """A real NETCONF server on HydRA's copies of OpenConfig modules."""
    ports, lag = tuple(f"Ethernet{number}" for number in range(1, 4)), "Port-Channel1"
    with TemporaryDirectory() as directory, Netconfd(Path(directory)) as server:
        server.become_switch(ports, [lag])
        options = {"host_key": server.host_key}
        wanted = rack("openconfig-vlan", server.address, login=server.login, options=options)
        yield TorBench(wanted, (*ports, lag))


@contextmanager
def serving(module: str, *options: str) -> Iterator[list[str]]:
    """Output of an emulator, a separate process, about its listening address."""
    command = [sys.executable, "-m", module, *options]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as server:
        try:
            yield server.stdout.readline().split()
        finally:
            server.terminate()
        assert server.wait(PATIENCE_S) == 0


def admin_client(address: str) -> AdminClient:
    host, _, port = address.rpartition(":")
    return AdminClient(host, int(port))


@contextmanager
def g8264(driver: str, *, console: bool = False) -> Iterator[TorBench]:
    """An emulator behind a real SSH server or pseudo-terminal."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as environment:
        environment.setenv(LOGIN_VARIABLE, "rack and pinion")
        line = str(Path(directory) / "console")
        login = Login("admin", password_env=LOGIN_VARIABLE)
        module = "mininet_scenarios.emulators.g8264"
        with serving(module, "--password-env", LOGIN_VARIABLE, "--serial", line) as said:
            _, _, address, _, admin, _, *key = said
            options: dict[str, object] = {"host_key": " ".join(key)}
            if driver == "ibm-g8264-netconf":
                options["cli_port"] = int(address.rpartition(":")[2])
            if console:
                address, options = f"serial:{line}", {"baud": 115200}
            wanted = rack(driver, address, login=login, options=options)
            yield TorBench(wanted, ("1", "2", "3", "64"), admin=admin_client(admin))


@contextmanager
def gnmi(driver: str, device: Emulator, ports: Sequence[str], *options: str) -> Iterator[TorBench]:
    """A switch without OpenFlow, on gNMI, with its own certificate authorities."""
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as environment:
        environment.setenv(LOGIN_VARIABLE, device.password)
        login = Login(device.user, password_env=LOGIN_VARIABLE)
        ca_file = {"ca_file": f"{directory}/{CA}"}
        with serving(*options, "--directory", directory) as (_, _, address, _, admin):
            wanted = rack(driver, address, login=login, options=ca_file)
            yield TorBench(wanted, tuple(ports), admin=admin_client(admin))


def sonic() -> AbstractContextManager[TorBench]:
    ports = [f"Ethernet{number}" for number in (0, 4, 8, 124)]
    return gnmi("sonic-vlan", SONIC, ports, "mininet_scenarios.emulators.sonic_tor")


def openconfig(make: str) -> AbstractContextManager[TorBench]:
    """A switch with OpenConfig models, in the dialect of a vendor."""
    ports = (*map(MAKES[make].port.format, (1, 2, 32)), MAKES[make].lag.format(1))
    return gnmi("openconfig-vlan-gnmi", DEVICE, ports, DEVICE.path, "--make", make)


SERIAL = {TorDeviation.NO_SECOND_SESSION: "a serial line has one user at a time"}
LABELS_NOT_VLANS = {TorDeviation.NO_VLANS: "paths are labels in the rules that OpenFlow writes"}
CANDIDATES = [
    TorCandidate(
        "ovs-ovsdb", partial(open_vswitch_bridge, "ovs-ovsdb", "db.sock"), marks=(pytest.mark.ovs,)
    ),
    TorCandidate(
        "openflow",
        partial(open_vswitch_bridge, "openflow", f"{BRIDGE}.mgmt"),
        deviations=LABELS_NOT_VLANS,
        marks=(pytest.mark.ovs,),
    ),
    TorCandidate(
        "openconfig-vlan",
        netconfd,
        deviations={TorDeviation.NO_COUNTERS: "a NETCONF server that has no switch behind it"},
    ),
    *(
        TorCandidate(
            "openconfig-vlan-gnmi",
            partial(openconfig, make),
            faults=EMULATED - {FaultKind.PAGER, FaultKind.WRAP},
            variant=make,
        )
        for make in MAKES
    ),
    TorCandidate("ibm-g8264", partial(g8264, "ibm-g8264"), faults=EMULATED),
    TorCandidate(
        "ibm-g8264",
        partial(g8264, "ibm-g8264", console=True),
        faults=EMULATED,
        deviations=SERIAL,
        variant="console",
    ),
    TorCandidate("ibm-g8264-netconf", partial(g8264, "ibm-g8264-netconf"), faults=EMULATED),
    TorCandidate("sonic-vlan", sonic, faults=EMULATED - {FaultKind.PAGER, FaultKind.WRAP}),
]
