"""A second controller, started by mistake, is refused with a clear error; the first goes on."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from drivers.codecs.openflow.rules import ROLE_MASTER, ROLE_NO_CHANGE, encode_role_request
from drivers.tor.ovs_ovsdb import OvsTor
from hydra.errors import DeviceUnavailable, HeldElsewhere
from hydra.roles import PortVlans
from mininet_scenarios.emulators.ports import free_port
from mininet_scenarios.stage.controller_process import ALL_THERE
from tests.integration.test_ovsdb_tor import BRIDGE, Database
from tests.waiting import PATIENCE_S, accepts

from .live import live, wait_until

pytestmark = [pytest.mark.ovs, pytest.mark.takes(45)]

WANTED = {"p1": PortVlans(frozenset({100}))}


# --- OVSDB: on a database of its own ------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    database = Database(tmp_path)
    yield database
    database.end()


@pytest.fixture
def drivers(database):
    """The sessions of two controllers."""
    first, second = (OvsTor("r1", database.address, BRIDGE, timeout_s=PATIENCE_S) for _ in range(2))
    yield first, second
    first.close()
    second.close()


def test_only_one_holds_a_switch_and_only_it_writes(drivers):
    first, second = drivers
    first.claim()
    with pytest.raises(HeldElsewhere, match=f"another controller holds bridge {BRIDGE}"):
        second.claim()
    with pytest.raises(HeldElsewhere):
        second.set_vlans(WANTED)
    assert "p1" in first.vlans(["p1"])


@pytest.mark.parametrize("earlier", [None, 1 << 28])
def test_a_later_leader_takes_a_bridge_and_the_earlier_one_writes_nothing_more(
    drivers, database, earlier
):
    """And can't take the lock back: a later leader takes it from a paused leader."""
    first, second = drivers
    first.claim(earlier)
    second.claim(2 << 28)
    with pytest.raises(HeldElsewhere):
        first.ask()
    with pytest.raises(HeldElsewhere):
        first.set_vlans(WANTED)
    with pytest.raises(HeldElsewhere):
        first.vlans(["p1"])
    assert "p1" in second.vlans(["p1"])
    third = OvsTor("r1", database.address, BRIDGE, timeout_s=PATIENCE_S)
    with closing(third):
        third.claim(3 << 28)
        with pytest.raises(HeldElsewhere):
            second.set_vlans(WANTED)
        with pytest.raises(HeldElsewhere):
            second.vlans(["p1"])
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[]"


@pytest.fixture
def applying(database):
    """Have every change count as applied: no ovs-vswitchd follows this database."""
    database.vsctl("--no-wait", "set", "Open_vSwitch", ".", "cur_cfg=1000000")


@pytest.mark.parametrize("earlier", [None, 1 << 28])
def test_a_bridge_does_not_go_back_to_the_robbed_when_the_thief_s_session_ends(
    drivers, database, applying, earlier
):
    """ovsdb-server gives a stolen lock back without a request (findings/ovsdb_stolen_lock.sh).

    The robbed controller was paused: it reads that the lock was stolen and given back at once.
    """
    first, second = drivers
    first.claim(earlier)
    second.claim(2 << 28)
    second.close()
    with pytest.raises(HeldElsewhere, match=f"generation {2 << 28}"):
        first.set_vlans(WANTED)
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[]"
    second.set_vlans(WANTED)  # the holder of the bridge, regardless of the lock
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[100]"
    for _ in range(2):
        with pytest.raises(HeldElsewhere, match=f"generation {2 << 28}"):
            first.vlans(["p1"])
    second.set_vlans({"p1": PortVlans(frozenset({101}))})
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[101]"


def test_a_write_that_was_on_its_way_when_the_bridge_was_taken_is_refused(
    drivers, database, applying
):
    """The server reads the request after the later leader's claim, and before the earlier leader
    learns of the claim.
    """
    first, second = drivers
    first.claim(1 << 28)
    first.vlans(["p1"])
    taken = first._hold.is_robbed

    def take_then_look(session):
        first._hold.is_robbed = taken
        second.claim(2 << 28)
        second.close()
        return False

    first._hold.is_robbed = take_then_look
    with pytest.raises(HeldElsewhere, match=f"generation {2 << 28}"):
        first.set_vlans(WANTED)
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[]"


def test_an_earlier_leader_that_connects_late_is_refused(drivers, database):
    first, second = drivers
    second.claim(2 << 28)
    for generation in (1 << 28, 2 << 28):  # the leader of another store may have the same number
        with pytest.raises(HeldElsewhere) as refused:
            first.claim(generation)
        assert refused.value.generation == 2 << 28
    assert "p1" in second.vlans(["p1"])


def test_a_controller_without_a_store_follows_a_leader_that_has_ended(drivers, database, applying):
    first, second = drivers
    first.claim(2 << 28)
    with pytest.raises(HeldElsewhere):
        second.claim()
    first.close()
    second.claim()
    second.set_vlans(WANTED)


def test_what_others_say_of_a_bridge_is_kept_and_a_bridge_made_anew_is_claimed_again(
    drivers, database, applying
):
    first, second = drivers
    database.vsctl("--no-wait", "br-set-external-id", BRIDGE, "owner", "somebody")
    first.claim(1 << 28)
    second.claim(2 << 28)
    assert database.vsctl("br-get-external-id", BRIDGE, "owner").strip() == "somebody"
    holder = database.vsctl("br-get-external-id", BRIDGE, "hydra-controller")
    assert holder.startswith(f"{2 << 28}-")
    again = ["--", "add-br", BRIDGE, "--", "add-port", BRIDGE, "p1"]
    database.vsctl("--no-wait", "del-br", BRIDGE, *again)
    second.set_vlans(WANTED)
    assert database.vsctl("br-get-external-id", BRIDGE, "hydra-controller") == holder
    with pytest.raises(HeldElsewhere):
        first.vlans(["p1"])


def test_it_is_free_when_the_holder_ends_and_not_got_back_by_it(drivers):
    first, second = drivers
    first.claim()
    first.close()
    second.claim()
    with pytest.raises(HeldElsewhere):
        first.vlans(["p1"])


def test_who_has_lost_the_lock_meanwhile_writes_nothing(drivers, database):
    """The server is restarted, and the other controller connects first."""
    first, second = drivers
    first.claim()
    database.end()
    database.start()
    second.claim()
    with pytest.raises(HeldElsewhere):
        first.set_vlans(WANTED)
    assert database.vsctl("get", "Port", "p1", "trunks").strip() == "[]"


def test_whoever_does_not_claim_may_look_and_work_beside(drivers, database):
    first, second = drivers
    first.claim()
    assert second.vlans(["p1"]) == first.vlans(["p1"])


def test_a_silent_switch_is_claimed_when_it_is_back(drivers, database):
    first, second = drivers
    database.end()
    with pytest.raises(DeviceUnavailable):
        first.claim()
    database.start()
    assert "p1" in first.vlans(["p1"])
    with pytest.raises(HeldElsewhere):
        second.claim()


def test_an_idle_session_over_tcp_keeps_its_claim(database):
    """The server drops clients that do not answer its probes, here after twice 3 s."""
    port = free_port()
    manager = ["--id=@m", "create", "Manager", f'target="ptcp:{port}:127.0.0.1"']
    manager += ["inactivity_probe=3000", "--", "set", "Open_vSwitch", ".", "manager_options=@m"]
    database.vsctl("--no-wait", "--", *manager)
    address = f"tcp:127.0.0.1:{port}"
    kept, other = (OvsTor("r1", address, BRIDGE, timeout_s=PATIENCE_S) for _ in range(2))
    with closing(kept), closing(other):
        wait_until(lambda: accepts(port))
        kept.claim()
        for _ in range(80):
            time.sleep(0.1)  # timed: kept for longer than the server's probe waits
            kept.keep()
        with pytest.raises(HeldElsewhere):
            other.claim()
        wait_until(lambda: claims(other))  # no longer kept


def claims(tor):
    try:
        tor.claim()
    except HeldElsewhere:
        return False
    return True


# --- whole controllers ----------------------------------------------------------------------


@pytest.fixture
def network(demo_testbed, tmp_path):
    with live(demo_testbed, tmp_path) as network:
        network.reserve("r1", "r2")
        yield network


def start_another(network, tmp_path: Path, **controller) -> subprocess.CompletedProcess[str]:
    """The same fabric, with other listening addresses and another journal."""
    document = yaml.safe_load(network.process.config.read_text())
    document["controller"].update(controller)
    config = tmp_path / "another.yaml"
    config.write_text(yaml.safe_dump(document, sort_keys=False))
    return subprocess.run(
        [str(Path(sys.executable).with_name("hydra")), "run", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_second_controller_is_refused_with_one_error(network, tmp_path):
    elsewhere = {"openflow": "127.0.0.1:6699", "rest": "127.0.0.1:8099"}
    fresh = {"journal": str(tmp_path / "other.db")}
    attempts = {
        f"(process {network.process.pid}) is at work on the journal": {},
        "can't listen on 127.0.0.1:6653": fresh | {"rest": elsewhere["rest"]},
        "can't listen on 127.0.0.1:8080": fresh | {"openflow": elsewhere["openflow"]},
        "a controller is at work on this fabric already: r1: another controller holds bridge "
        "hytor-r1": fresh | elsewhere,
    }
    for words, changes in attempts.items():
        done = start_another(network, tmp_path, **changes)
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert len([line for line in done.stderr.splitlines() if "another" in line]) <= 1
    assert network.planes_between("r1", "r2") == ("p1",)
    assert network.reserve("r3", "r4")["state"] == "active"
    assert network.everyone_reaches_everyone()


@pytest.mark.parametrize("shipped", ["openflow-only"], indirect=True)
def test_a_second_one_on_another_host_leaves_openflow_tors_to_the_first(network, tmp_path):
    """Only OpenFlow separates the controllers: other addresses, another journal, the same ToRs."""
    port = 6699
    for rack in network.fabric.racks:
        targets = ["tcp:127.0.0.1:6653", f"tcp:127.0.0.1:{port}"]
        subprocess.run(["ovs-vsctl", "set-controller", rack.tor.bridge, *targets], check=True)
    wait_until(lambda: network.api("GET", ALL_THERE).status_code == 200)
    elsewhere = {"openflow": f"127.0.0.1:{port}", "rest": "127.0.0.1:8099"}
    done = start_another(network, tmp_path, journal=str(tmp_path / "other.db"), **elsewhere)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "a controller is at work on this fabric already: r" in last
    assert "another controller commands it" in last
    assert network.planes_between("r1", "r2") == ("p1",)
    assert network.reserve("r3", "r4")["state"] == "active"
    assert network.everyone_reaches_everyone()


@contextmanager
def master_of(network, server):
    """Take a vswitch over as another controller would, on a real connection from the vswitch."""
    bridge = network.fabric.server_by_name[server].vswitch.bridge
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(PATIENCE_S)
        targets = ["tcp:127.0.0.1:6653", f"tcp:127.0.0.1:{listener.getsockname()[1]}"]
        subprocess.run(["ovs-vsctl", "set-controller", bridge, *targets], check=True)
        try:
            connection, _ = listener.accept()
            with closing(connection):
                connection.settimeout(PATIENCE_S)
                connection.sendall(struct.pack("!BBHI", 4, 0, 8, 1))
                connection.sendall(encode_role_request(ROLE_NO_CHANGE, 0, 2))
                generation = role_reply(connection)
                connection.sendall(encode_role_request(ROLE_MASTER, generation + 1, 3))
                assert role_reply(connection) == generation + 1
                yield generation
        finally:
            subprocess.run(["ovs-vsctl", "set-controller", bridge, targets[0]], check=True)


def role_reply(connection):
    """The generation id in the next role reply (type 25)."""
    stream = connection.makefile("rb")
    while True:
        head = stream.read(8)
        _, kind, length, _ = struct.unpack("!BBHI", head)
        body = stream.read(length - 8)
        if kind == 25:
            return struct.unpack("!IxxxxQ", body)[1]


def test_a_switch_that_another_controller_took_is_left_alone_and_named(network):
    with master_of(network, "h31") as generation:
        assert generation < 2**64 - 1, "the first one is its master, too"
        body = {"demand": [{"src": "r3", "dst": "r4", "mbps": 80}]}
        answer = network.api(
            "POST", "/v1/reconfigurations", json=body, headers={"Prefer": "wait=60"}
        ).json()
        assert answer["unconfirmed"] == ["h31"]
        assert "another controller has taken this switch over" in answer["reason"]
        assert network.everyone_reaches_everyone()
    wait_until(lambda: network.api("GET", ALL_THERE).status_code == 200)
    network.change("r3", "r4")
    assert network.planes_between("r3", "r4") != ()
    assert network.everyone_reaches_everyone()
