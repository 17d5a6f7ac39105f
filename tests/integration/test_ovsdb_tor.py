"""The OVSDB ToR driver against real Open vSwitch."""

from __future__ import annotations

import dataclasses
import itertools
import json
import select
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from drivers.tor.ovs_ovsdb import OvsTor, build, check
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.forwarding.frames import announcement
from hydra.forwarding.pipeline import ANNOUNCE_ETHERTYPE
from hydra.model import MacAddress, VlanId
from hydra.roles import PortVlans
from mininet_scenarios.emulators.certificate import CA, certify
from mininet_scenarios.emulators.ports import free_port
from tests.waiting import HANGS_S, PATIENCE_S, SHORT_S, accepts, wait_until

pytestmark = pytest.mark.ovs

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
ADDRESS = "unix:/var/run/openvswitch/db.sock"
BRIDGE = "hyTtor"
PORTS = [f"hyTp{number}" for number in range(32)]
_MAC = MacAddress("02:00:00:00:01:01")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def vsctl(*arguments: str) -> str:
    return run("ovs-vsctl", "--timeout=120", *arguments)


@pytest.fixture(scope="module")
def bridge(switches):
    for port in PORTS:
        run("ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}x")
    try:
        ports = [word for port in PORTS for word in ("--", "add-port", BRIDGE, port)]
        options = ["--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure"]
        vsctl("add-br", BRIDGE, *options, *ports)
        yield BRIDGE
    finally:
        vsctl("--if-exists", "del-br", BRIDGE)
        for port in PORTS:
            run("ip", "link", "del", port)


@pytest.fixture
def tor(bridge):
    driver = OvsTor("r1", ADDRESS, BRIDGE, timeout_s=PATIENCE_S)
    yield driver
    driver.close()


def columns(port: str) -> dict[str, object]:
    """The port's VLAN columns, as read by ovs-vsctl."""
    text = vsctl("--format=json", "--columns=vlan_mode,tag,trunks", "list", "Port", port)
    answer = json.loads(text)
    return dict(zip(answer["headings"], answer["data"][0], strict=True))


def applied() -> bool:
    """True if ovs-vswitchd has applied the state of the database."""
    return vsctl("get", "Open_vSwitch", ".", "cur_cfg") == vsctl(
        "get", "Open_vSwitch", ".", "next_cfg"
    )


def test_32_ports_in_one_transaction(tor):
    """Duration of the application: see benchmarks/retag."""
    tor.open()
    for vlan in range(100, 106):
        wanted = {port: PortVlans(frozenset({vlan, 4000})) for port in PORTS}
        before = int(vsctl("get", "Open_vSwitch", ".", "next_cfg"))
        tor.set_vlans(wanted)
        assert applied()
        assert int(vsctl("get", "Open_vSwitch", ".", "next_cfg")) == before + 1
        assert tor.vlans(PORTS) == wanted


def test_what_is_written(tor):
    tor.set_vlans(
        {PORTS[0]: PortVlans(frozenset({300, 301})), PORTS[1]: PortVlans(frozenset({300}), 10)}
    )
    assert columns(PORTS[0]) == {
        "vlan_mode": "trunk",
        "tag": ["set", []],
        "trunks": ["set", [300, 301]],
    }
    assert columns(PORTS[1]) == {"vlan_mode": "native-untagged", "tag": 10, "trunks": 300}
    tor.set_vlans({PORTS[1]: PortVlans(frozenset({301}))})
    assert columns(PORTS[1]) == {"vlan_mode": "trunk", "tag": ["set", []], "trunks": 301}


def test_frames_follow_the_vlans(tor):
    """When set_vlans returns, the VLANs are in the data path: the first frame obeys."""
    a, b = PORTS[2], PORTS[3]
    run("ovs-ofctl", "add-flow", BRIDGE, "actions=NORMAL")
    for end in (a, b, f"{a}x", f"{b}x"):
        run("ip", "link", "set", end, "up")
    for vlan in (500, 501):
        tor.set_vlans({a: PortVlans(frozenset({vlan})), b: PortVlans(frozenset({vlan}))})
        trace = run(
            "ovs-appctl",
            "ofproto/trace",
            BRIDGE,
            f"in_port={a},dl_vlan=500,dl_dst=ff:ff:ff:ff:ff:ff",
        )
        assert ("disallowed VLAN" in trace or "not in vlan" in trace.lower()) == (vlan != 500), (
            trace
        )


def test_an_announcement_gets_to_a_port_that_has_joined_the_vlan_since_the_last_one(tor):
    """Even cached flows: a switch behind that port would look for the server elsewhere."""
    here, old, new = PORTS[4:7]
    run("ovs-ofctl", "add-flow", BRIDGE, "actions=NORMAL")
    for end in (here, old, new):
        run("ip", "link", "set", end, "up")
        run("ip", "link", "set", f"{end}x", "up")
    there, elsewhere = PortVlans(frozenset({510})), PortVlans(frozenset({4000}))
    tor.set_vlans({here: there, old: there, new: elsewhere})
    with ExitStack() as stack:
        sender, at_old, at_new = (
            stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) for _ in range(3)
        )
        for end, port in ((sender, here), (at_old, old), (at_new, new)):
            end.bind((f"{port}x", ANNOUNCE_ETHERTYPE))
        numbers = itertools.count()

        def is_heard(listener: socket.socket) -> bool:
            sender.send(announcement(_MAC, VlanId(510), next(numbers)))
            return bool(
                select.select([listener], [], [], 1)[0]
            )  # timed: then the frame is sent again

        wait_until(lambda: is_heard(at_old))  # Open vSwitch knows that its ports are up
        stack.callback(run, "ovs-appctl", "revalidator/resume")
        run("ovs-appctl", "revalidator/pause")
        tor.set_vlans({new: there})
        assert not select.select([at_new], [], [], 0)[0]
        wait_until(lambda: is_heard(at_new))


def test_the_same_again_changes_nothing(tor):
    wanted = {port: PortVlans(frozenset({700})) for port in PORTS}
    tor.set_vlans(wanted)
    number = vsctl("get", "Open_vSwitch", ".", "next_cfg")
    tor.set_vlans(wanted)
    assert vsctl("get", "Open_vSwitch", ".", "next_cfg") == number


@pytest.mark.parametrize("vlan", [0, 4095, 5000, -1])
@pytest.mark.parametrize("native", [False, True])
def test_a_vlan_out_of_range_is_refused_and_nothing_is_written(tor, vlan, native):
    before = tor.vlans(PORTS)
    bad = PortVlans(frozenset({100}), vlan) if native else PortVlans(frozenset({100, vlan}))
    with pytest.raises(DeviceError, match=rf"r1: port {PORTS[1]}: VLAN {vlan} is outside 1..4094"):
        tor.set_vlans({PORTS[0]: PortVlans(frozenset({100})), PORTS[1]: bad})
    assert tor.vlans(PORTS) == before


@pytest.mark.parametrize(
    ("vlans", "message"),
    [
        (PortVlans(frozenset()), "empty trunk would carry all VLANs"),
        (PortVlans(frozenset(), 10), "empty trunk would carry all VLANs"),
        (PortVlans(frozenset({10}), 10), "VLAN 10 can't be both native and tagged"),
    ],
)
def test_meaningless_memberships_are_refused(tor, vlans, message):
    with pytest.raises(DeviceError, match=message):
        tor.set_vlans({PORTS[0]: vlans})


def test_ports_and_bridges_that_do_not_exist_are_named(tor, bridge):
    with pytest.raises(DeviceError, match=f"bridge {BRIDGE} has no port nope"):
        tor.set_vlans({PORTS[0]: PortVlans(frozenset({100})), "nope": PortVlans(frozenset({100}))})
    with pytest.raises(DeviceError, match="has no port nope"):
        tor.link_up(["nope"])
    stranger = OvsTor("r2", ADDRESS, "hyTnone", timeout_s=PATIENCE_S)
    with pytest.raises(DeviceError, match="r2: there is no bridge hyTnone"):
        stranger.open()
    stranger.close()


@pytest.mark.parametrize(
    ("settings", "membership"),
    [
        ("vlan_mode=trunk trunks=5,6", PortVlans(frozenset({5, 6}))),
        ("trunks=5", PortVlans(frozenset({5}))),
        ("tag=9", PortVlans(frozenset(), 9)),
        ("vlan_mode=native-untagged tag=9 trunks=5", PortVlans(frozenset({5}), 9)),
        ("vlan_mode=native-tagged tag=9 trunks=5", PortVlans(frozenset({5, 9}))),
        ("", PortVlans(frozenset(range(1, 4095)))),
    ],
)
def test_what_others_wrote_is_read_at_once(tor, settings, membership):
    tor.open()
    port = PORTS[5]
    vsctl("clear", "Port", port, "vlan_mode", "tag", "trunks")
    if settings:
        vsctl("set", "Port", port, *settings.split())
    assert tor.vlans([port]) == {port: membership}


def test_links(tor):
    port = PORTS[6]
    run("ip", "link", "set", port, "up")
    for state in ("up", "down"):
        run("ip", "link", "set", f"{port}x", state)
        wait_until(lambda state=state: tor.link_up([port]) == {port: state == "up"})


@pytest.mark.parametrize(
    ("told", "age_s"), [("60000", 60.0), ("7500", 7.5), ("1000", 5.0), ("often", 5.0)]
)
def test_counters_are_as_old_as_the_database_says(tor, told, age_s):
    vsctl("set", "Open_vSwitch", ".", f"other_config:stats-update-interval={told}")
    try:
        assert tor.counters([PORTS[0]])
        assert tor.capabilities.counters_age_s == age_s
    finally:
        vsctl("remove", "Open_vSwitch", ".", "other_config", "stats-update-interval")
    assert tor.counters([PORTS[0]])
    assert tor.capabilities.counters_age_s == 5.0


def test_counters_are_those_of_the_database(tor):
    """Updates without a replica: an idle session must not fill up."""
    port = PORTS[10]
    for end in (port, f"{port}x"):
        run("ip", "link", "set", end, "up")
    assert tor.capabilities.counters_age_s == 5.0

    def sent() -> int:
        return tor.counters([port])[port].tx_frames

    wait_until(lambda: tor.counters([port])[port].tx_octets >= 0)
    before = sent()
    run("ovs-ofctl", "packet-out", BRIDGE, f"in_port=controller packet={'ff' * 64} actions={port}")
    wait_until(lambda: sent() > before)
    # Read last: ovs-vswitchd may have written newer counters than the driver's.
    found = tor.counters([port])[port]
    shown = vsctl("get", "Interface", port, "statistics:tx_packets")
    assert found.tx_frames <= int(shown)
    with pytest.raises(DeviceError, match="has no port nope"):
        tor.counters(["nope"])


def test_over_tcp_as_the_configuration_writes_it(bridge, demo):
    """``host:port``, in the form of Open vSwitch ``tcp:host:port``."""
    port = free_port()
    remote = f"ptcp:{port}:127.0.0.1"
    control = ["ovs-appctl", "-t", "ovsdb-server"]
    run(*control, "ovsdb-server/add-remote", remote)
    try:
        wait_until(lambda: accepts(port))  # the reply comes before the effect
        rack = demo.fabric.racks[0]
        tor = dataclasses.replace(rack.tor, address=f"127.0.0.1:{port}", bridge=BRIDGE)
        rack = dataclasses.replace(rack, tor=tor)
        assert list(check(rack)) == []
        driver = build(rack, 5)
        assert set(driver.vlans(PORTS)) == set(PORTS)
        driver.close()
    finally:
        run(*control, "ovsdb-server/remove-remote", remote)


def test_open_and_close_may_be_repeated(tor):
    for _ in range(2):
        tor.open()
    for _ in range(2):
        tor.close()
    assert PORTS[0] in tor.vlans([PORTS[0]])  # the next use connects again


# --- servers that stop, on a database of their own ----------------------------------------------


class Database:
    """An ovsdb-server without a switch, which can be frozen, ended and started."""

    def __init__(self, directory) -> None:
        self.socket = directory / "db.sock"
        self.address = f"unix:{self.socket}"
        self._file = directory / "conf.db"
        self._log = directory / "log"
        run("ovsdb-tool", "create", str(self._file), SCHEMA)
        self.start()
        bridge = ["--", "add-br", BRIDGE, "--", "add-port", BRIDGE, "p1"]
        self.vsctl("--no-wait", "init", *bridge)

    def start(self, *more: str) -> None:
        command = ["ovsdb-server", str(self._file), f"--remote=punix:{self.socket}", *more]
        command.append("--remote=db:Open_vSwitch,Open_vSwitch,manager_options")
        command += ["--unixctl=none", f"--log-file={self._log}", "-vconsole:off"]
        self.process = subprocess.Popen(command)
        wait_until(lambda: accepts(self.socket))

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self.socket.unlink(missing_ok=True)

    def vsctl(self, *arguments: str) -> str:
        return run("ovs-vsctl", f"--db={self.address}", "--timeout=120", *arguments)


@pytest.fixture
def database(tmp_path_factory):
    directory = tmp_path_factory.mktemp("db")
    database = Database(directory)
    yield database
    database.end()
    shutil.rmtree(directory)


@pytest.fixture
def detached(database):
    """A driver for a database without ovs-vswitchd."""
    driver = OvsTor("r1", database.address, BRIDGE, timeout_s=SHORT_S)
    yield driver
    driver.close()


WANTED = {"p1": PortVlans(frozenset({100}))}


def test_a_switch_that_does_not_apply_leaves_the_outcome_unknown(detached, database):
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="ovs-vswitchd has not applied the change"):
        detached.set_vlans(WANTED)
    assert time.monotonic() - started < HANGS_S
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[100]"


def test_a_change_of_more_than_the_socket_takes_at_once_is_sent_whole(database):
    ports = [f"server{number}" for number in range(32)]
    added = [word for port in ports for word in ("--", "add-port", BRIDGE, port)]
    database.vsctl("--no-wait", *added[1:])
    database.vsctl("--no-wait", "set", "Open_vSwitch", ".", "cur_cfg=1000000")
    wanted = dict.fromkeys(ports, PortVlans(frozenset(range(100, 4000)), native=10))
    first, second = (OvsTor("r1", database.address, BRIDGE, timeout_s=60) for _ in range(2))
    try:
        second.open()
        first.set_vlans(wanted)
        assert second.vlans(ports) == wanted
        less = {"server7": PortVlans(frozenset(range(100, 3999)), native=10)}
        first.set_vlans(less)
        assert second.vlans(ports) == wanted | less
    finally:
        first.close()
        second.close()


def test_an_open_session_is_asked_nothing_and_missed_when_it_ends(detached, database):
    detached.open()
    database.process.send_signal(signal.SIGSTOP)
    detached.open()
    database.end()
    with pytest.raises(DeviceUnavailable, match="no OVSDB session"):
        detached.open()
    database.start()
    detached.open()
    assert detached.vlans(["p1"])


def test_a_server_that_hangs_is_unavailable_in_time(detached, database):
    detached.open()
    database.process.send_signal(signal.SIGSTOP)
    for _ in range(2):  # on the old session, and on the new one
        started = time.monotonic()
        with pytest.raises(DeviceUnavailable, match=r"no answer in time"):
            detached.vlans(["p1"])
        assert time.monotonic() - started < HANGS_S
    database.process.send_signal(signal.SIGCONT)
    assert "p1" in detached.vlans(["p1"])


def test_a_server_that_ends_is_unavailable_and_found_again(detached, database):
    detached.open()
    database.end()
    with pytest.raises(DeviceUnavailable):
        detached.set_vlans(WANTED)
    database.start()
    assert "p1" in detached.vlans(["p1"])  # a lost earlier session is no error of this call


def test_what_others_write_is_read_after_the_database_was_converted_to_another_schema(
    detached, database, tmp_path
):
    """As at an update of Open vSwitch: followers of a database get no further messages."""
    detached.open()
    schema = json.loads(Path(SCHEMA).read_text())
    major, _, rest = schema["version"].partition(".")
    schema["version"] = f"{int(major) + 1}.{rest}"
    schema["tables"]["Port"]["columns"]["of_another_release"] = {"type": "integer"}
    converted = tmp_path / "schema"
    converted.write_text(json.dumps(schema))
    run("ovsdb-client", "convert", database.address, str(converted))
    database.vsctl("--no-wait", "set", "Port", "p1", "trunks=777", "vlan_mode=trunk")
    assert detached.vlans(["p1"]) == {"p1": PortVlans(frozenset({777}))}


def test_over_tls_with_a_certificate_of_an_authority_of_the_machine(
    database, tmp_path, monkeypatch
):
    certificate, key = certify(tmp_path, "OVSDB's authority")
    port = free_port()
    files = [f"--certificate={certificate}", f"--private-key={key}", "--ca-cert=none"]
    database.end()
    database.start(f"--remote=pssl:{port}:127.0.0.1", *files)
    wait_until(lambda: accepts(port))
    driver = OvsTor("r1", f"ssl:127.0.0.1:{port}", BRIDGE, timeout_s=PATIENCE_S)
    with closing(driver):
        with pytest.raises(DeviceUnavailable, match=r"(?i)certificate"):
            driver.open()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / CA))
        ports = [f"server{number}" for number in range(8)]
        added = [word for name in ports for word in ("--", "add-port", BRIDGE, name)]
        database.vsctl("--no-wait", *added[1:])
        database.vsctl("--no-wait", "set", "Open_vSwitch", ".", "cur_cfg=1000000")
        wanted = dict.fromkeys(ports, PortVlans(frozenset(range(100, 4000)), native=10))
        driver.set_vlans(wanted)
        assert driver.vlans(ports) == wanted
    stranger = OvsTor("r1", f"ssl:127.0.0.1:{free_port()}", BRIDGE, timeout_s=PATIENCE_S)
    with pytest.raises(DeviceUnavailable, match="refused"):
        stranger.open()


def test_no_server_at_all(tmp_path):
    driver = OvsTor("r1", f"unix:{tmp_path}/none.sock", BRIDGE, timeout_s=PATIENCE_S)
    with pytest.raises(DeviceUnavailable, match=r"none\.sock"):
        driver.open()
    driver.close()
