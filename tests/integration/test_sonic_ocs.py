"""SONiC's handling of cross-connects, as seen by other clients and by the driver."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import redis
from pygnmi.client import gNMIclient, gNMIException

from drivers.codecs import sonic_ocs
from hydra.errors import DeviceError, DeviceUnavailable, OutcomeUnknown
from hydra.model import CrossConnect, Login
from hydra.roles import Mirrors, Severity
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.netconfd import YANG
from mininet_scenarios.emulators.sonic_databases import NUMBERS, SOCKET
from tests.conformance.candidate import Bench
from tests.conformance.devices import PORTS, sonic
from tests.waiting import PATIENCE_S, SHORT_S, wait_until

LOGIN = (EMULATORS["sonic-ocs"].user, EMULATORS["sonic-ocs"].password)

CONFIGURED = "sonic-db:CONFIG_DB/localhost/OCS_CROSS_CONNECT"
STATES = "sonic-db:STATE_DB/localhost/OCS_CROSS_CONNECT_TABLE"
KINDS = (("gnmi", "working-group"), ("gnmi", "molex"), ("restconf", "molex"))
WORKS = {"working-group": "tuned", "molex": "enabled"}
IN_THE_WAY = {"working-group": "failed", "molex": "invalid"}
PUSHED_ASIDE = {"working-group": "blocked", "molex": "invalid"}


class Stand:
    """A switch, its driver, and other clients."""

    def __init__(self, bench: Bench, protocol: str, dialect: str) -> None:
        self.bench = bench
        self.protocol = protocol
        self.dialect = dialect
        self.ca_file = str(bench.plane.options["ca_file"])
        self.driver = bench.driver(timeout_s=PATIENCE_S)
        socket = str(Path(self.ca_file).parent / SOCKET)
        self.databases = {
            name: redis.Redis(unix_socket_path=socket, db=number, decode_responses=True)
            for name, number in NUMBERS.items()
        }

    def fails(self, words: str) -> None:
        """Have a driver connect 1 to 2, wait in vain, and fail with these words."""
        driver = self.bench.driver(name="hasty", timeout_s=SHORT_S)
        with closing(driver), pytest.raises(DeviceError, match=words):
            driver.change([], [cross(1, 2)])

    def write(self, delete: list[str], add: list[str]) -> None:
        """Write the configuration directly, in one transaction, as the switch's own interfaces
        do.
        """
        with self.databases["CONFIG_DB"].pipeline(transaction=True) as together:
            for key in delete:
                together.delete(f"OCS_CROSS_CONNECT|{key}")
            for key in add:
                a_side, _, b_side = key.partition("-")
                row = {"a_side": a_side, "b_side": b_side}
                together.hset(f"OCS_CROSS_CONNECT|{key}", mapping=row)
            together.execute()

    def words(self) -> dict[str, str]:
        """The state database's row of each cross-connect."""
        found = {}
        client = self.databases["STATE_DB"]
        for name in client.scan_iter("OCS_CROSS_CONNECT_TABLE|*"):
            row = client.hgetall(name)
            sides = {row.get("a_side_status"), row.get("b_side_status")} - {None}
            found[name.partition("|")[2]] = row.get("status") or "/".join(sorted(sides))
        return found

    def wait_for(self, words: dict[str, str]) -> None:
        wait_until(lambda: self.words() == words)

    def client(self) -> gNMIclient:
        host, _, port = self.bench.plane.address.rpartition(":")
        return gNMIclient((host, port), LOGIN[0], LOGIN[1], path_cert=self.ca_file)

    def clean(self) -> None:
        self.bench.admin.clear()
        present = self.driver.cross_connects()
        self.driver.change(present, [])
        self.driver.reports()
        self.wait_for({})


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def running(request) -> Iterator[Stand]:
    with sonic(*request.param)() as bench:
        stand = Stand(bench, *request.param)
        yield stand
        stand.driver.close()
        for client in stand.databases.values():
            client.close()


@pytest.fixture
def stand(running: Stand) -> Iterator[Stand]:
    yield running
    running.clean()


def over(protocol: str) -> pytest.MarkDecorator:
    """For switches with this protocol only."""
    kinds = [kind for kind in KINDS if kind[0] == protocol]
    return pytest.mark.parametrize("running", kinds, ids="-".join, indirect=True, scope="module")


def cross(ingress: int, egress: int) -> CrossConnect:
    return CrossConnect(ingress, PORTS + egress)


# --- the switch's ways --------------------------------------------------------------------------


def test_one_alone_on_a_busy_port_is_taken_and_never_works(stand):
    works = WORKS[stand.dialect]
    stand.write([], ["1A-2B"])
    stand.wait_for({"1A-2B": works})
    stand.write([], ["1A-3B"])
    stand.wait_for({"1A-2B": works, "1A-3B": IN_THE_WAY[stand.dialect]})
    stand.write(["1A-2B"], [])  # this frees the port, and does not make the cross-connect work
    stand.wait_for({"1A-3B": IN_THE_WAY[stand.dialect]})
    assert stand.driver.mirrors() == Mirrors(frozenset({cross(1, 3)}), frozenset({cross(1, 3)}))
    stand.driver.change([], [cross(1, 3)])
    stand.wait_for({"1A-3B": works})


def test_two_push_others_aside_which_stay_listed(stand):
    works = WORKS[stand.dialect]
    stand.write([], ["1A-2B"])
    stand.wait_for({"1A-2B": works})
    stand.write([], ["1A-3B", "4A-4B"])
    aside = PUSHED_ASIDE[stand.dialect]
    stand.wait_for({"1A-2B": aside, "1A-3B": works, "4A-4B": works})
    mirrors = stand.driver.mirrors()
    assert (mirrors.dark, mirrors.lit) == ({cross(1, 2)}, {cross(1, 3), cross(4, 4)})
    with pytest.raises(DeviceError, match=rf"p1: can't connect 5 to {PORTS + 2}: port {PORTS + 2}"):
        stand.driver.change([], [cross(5, 2)])
    stand.driver.change([cross(1, 2)], [cross(5, 2)])
    assert stand.driver.mirrors().lit == {cross(1, 3), cross(4, 4), cross(5, 2)}


def test_a_key_that_is_there_is_skipped_whatever_became_of_it(stand):
    stand.bench.admin.fault(FaultKind.NO_LIGHT, times=1)
    stand.fails("1A-2B")
    moves, words = stand.bench.moves(), stand.words()
    stand.write([], ["1A-2B"])
    stand.write(["1A-2B"], ["1A-2B"])
    stand.write([], ["5A-5B"])  # later requests were processed later
    stand.wait_for({**words, "5A-5B": WORKS[stand.dialect]})
    assert stand.bench.moves() == moves + 1
    stand.driver.change([], [cross(1, 2)])
    assert stand.words()["1A-2B"] == WORKS[stand.dialect]


def test_hardware_fails_after_the_configuration_was_taken(stand):
    stand.bench.admin.fault(FaultKind.NO_LIGHT, times=1)
    word = "failed/failed" if stand.dialect == "working-group" else "disabled"
    told = rf"hasty: the change was not made as asked: 1 to {PORTS + 2} \(1A-2B\) is {word}"
    stand.fails(told)
    assert stand.databases["CONFIG_DB"].exists("OCS_CROSS_CONNECT|1A-2B")
    assert stand.driver.mirrors().dark == {cross(1, 2)}


def test_a_port_that_the_switch_has_not_is_taken_and_named(stand, caplog):
    """The cross-connect is left out: its other port is in use until the row is gone; all others
    stay.
    """
    stand.write([], ["1A-99B"])
    stand.wait_for({"1A-99B": IN_THE_WAY[stand.dialect]})
    stand.driver.change([], [cross(2, 2)])
    assert stand.driver.mirrors() == Mirrors(frozenset({cross(2, 2)}), frozenset())
    (told,) = (line for line in caplog.messages if "left out" in line)
    assert told.endswith("cross-connect 1A-99B uses 99B, no port")
    with pytest.raises(DeviceError, match="port 1 is in use by the invalid cross-connect 1A-99B"):
        stand.driver.change([], [cross(1, 1)])
    stand.driver.change([cross(2, 2)], [])
    stand.write(["1A-99B"], [])
    stand.wait_for({})


def test_one_that_was_never_made_keeps_no_others_from_going(stand):
    works = WORKS[stand.dialect]
    states, row = stand.databases["STATE_DB"], "OCS_CROSS_CONNECT_TABLE|5A-5B"
    states.hset(row, "status", "soon gone")  # so that it is skipped
    stand.write([], ["5A-5B"])
    stand.write([], ["1A-2B", "3A-4B"])
    stand.wait_for({"1A-2B": works, "3A-4B": works, "5A-5B": "soon gone"})
    states.delete(row)
    stand.driver.change([cross(1, 2), cross(5, 5)], [])
    assert stand.words() == {"3A-4B": works}
    assert stand.driver.cross_connects() == {cross(3, 4)}


def test_what_stands_and_is_not_configured_is_seen_and_cleared(stand):
    stand.write([], ["1A-2B"])
    stand.wait_for({"1A-2B": WORKS[stand.dialect]})
    row = stand.databases["STATE_DB"].hgetall("OCS_CROSS_CONNECT_TABLE|1A-2B")
    stand.write(["1A-2B"], [])
    stand.wait_for({})
    stand.databases["STATE_DB"].hset("OCS_CROSS_CONNECT_TABLE|1A-2B", mapping=row)
    assert stand.driver.cross_connects() == {cross(1, 2)}
    stand.driver.change([cross(1, 2)], [])
    assert stand.words() == {}


def test_the_first_and_the_last_of_a_table(stand):
    stand.driver.change([], [cross(1, 2), cross(2, 1)])
    stand.driver.change([cross(1, 2), cross(2, 1)], [cross(3, 3)])
    assert stand.driver.mirrors().lit == {cross(3, 3)}
    stand.driver.change([cross(3, 3)], [])
    assert not stand.databases["CONFIG_DB"].keys("OCS_CROSS_CONNECT|*")


def test_databases_that_can_not_be_read_are_not_empty(stand):
    stand.driver.change([], [cross(1, 2)])
    client = stand.databases["CONFIG_DB"]
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", 1)  # the agent is gone: from now on Redis gives no data
    try:
        for read in (stand.driver.cross_connects, stand.driver.alarms, stand.driver.identity):
            with pytest.raises(DeviceError) as caught:
                read()
            assert isinstance(caught.value, DeviceUnavailable) == (stand.protocol == "gnmi")
    finally:
        client.replicaof("NO", "ONE")
    assert stand.driver.cross_connects() == {cross(1, 2)}


def test_a_write_that_the_database_fails_is_not_taken_for_a_refusal(stand):
    client = stand.databases["CONFIG_DB"]
    client.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(OutcomeUnknown, match=r"read (it|the device) back"):
            stand.driver.change([], [cross(1, 2)])
    finally:
        client.config_set("min-replicas-to-write", 0)


def test_what_the_factory_measured_is_held_against_the_budget(stand):
    molex = "_TABLE" if stand.dialect == "molex" else ""
    table = f"OCS_FACTORY_INSERTION_LOSS{molex}"
    measured = {"1A-2B|229.100|25.00": "4.20", "1A-3B|229.100|25.00": "1.20"}
    with stand.databases["STATE_DB"].pipeline() as together:
        for key, loss_db in measured.items():
            row = {"loss_dB": loss_db, "accuracy_dB": "0.10"}
            together.hset(f"{table}|{key}", mapping=row)
        together.execute()
    options = {**stand.bench.plane.options, "loss_budget_db": 3.0}
    driver = stand.bench.module.build(replace(stand.bench.plane, options=options), 2.0)
    with pytest.raises(DeviceError, match=r"\(1A-2B\) loses 4\.30 dB, more than options"):
        driver.change([], [cross(1, 2), cross(2, 1)])
    assert stand.words() == {}
    driver.change([], [cross(1, 3)])
    driver.close()
    assert stand.words() == {"1A-3B": WORKS[stand.dialect]}


# --- alarms, logins, certificates ---------------------------------------------------------------


@over("gnmi")
def test_alarms_come_without_being_asked_for(stand):
    stand.driver.size()
    stand.bench.admin.alarm(3, "MJ", "LOS", "dark")
    heard = []
    wait_until(lambda: heard.extend(stand.driver.reports()) or heard)
    stand.bench.admin.alarm(3, "CL", "LOS")
    wait_until(lambda: heard.extend(stand.driver.reports()) or len(heard) == 2)
    told = [(alarm.severity, alarm.port, alarm.text) for alarm in heard]
    assert told == [(Severity.MAJOR, 3, "dark"), (Severity.CLEARED, 3, "dark")]


@over("gnmi")
def test_a_connection_given_up_in_a_silence_is_opened_again_with_its_alarms(stand):
    stand.driver.size()
    stand.bench.admin.fault(FaultKind.IDLE_LOGOUT, times=1)
    assert stand.driver.size() == (PORTS, PORTS)
    assert stand.driver.cross_connects() == frozenset()
    stand.bench.admin.alarm(4, "MN", "LOS", "dark")
    heard = []
    wait_until(lambda: heard.extend(stand.driver.reports()) or heard)
    stand.bench.admin.alarm(4, "CL", "LOS")
    assert [alarm.port for alarm in heard] == [4]


def test_a_password_that_is_wrong_is_named_and_not_shown(running, monkeypatch):
    monkeypatch.setenv("WRONG", "opensesame")
    plane = replace(running.bench.plane, login=Login("admin", password_env="WRONG"))
    driver = running.bench.module.build(plane, 2.0)
    with pytest.raises(DeviceError, match="does not let admin in; check login") as caught:
        driver.size()
    assert "opensesame" not in str(caught.value)
    assert not isinstance(caught.value, DeviceUnavailable)
    driver.close()


def test_another_authority_is_not_trusted(running):
    options = {"transport": running.protocol}  # the system's authorities
    driver = running.bench.module.build(replace(running.bench.plane, options=options), 2.0)
    with pytest.raises(DeviceUnavailable, match=r"certificate with options\.ca_file"):
        driver.size()
    driver.close()


def test_another_name_is_trusted_if_the_options_say_so(running):
    named = {**running.bench.plane.options, "server_name": "localhost"}
    driver = running.bench.module.build(replace(running.bench.plane, options=named), 2.0)
    assert driver.size() == (PORTS, PORTS)
    driver.close()
    named["server_name"] = "another"
    driver = running.bench.module.build(replace(running.bench.plane, options=named), 2.0)
    with pytest.raises(DeviceUnavailable, match=r"options\.server_name"):
        driver.size()
    driver.close()


def test_the_working_groups_restconf_changes_nothing_and_says_so():
    with sonic("restconf", "working-group")() as bench:
        driver = bench.driver()
        assert driver.cross_connects() == frozenset()
        with pytest.raises(DeviceError, match=r"bulk-update.*set options\.transport to gnmi"):
            driver.change([], [cross(1, 2)])
        driver.close()


# --- clients by others --------------------------------------------------------------------------


@over("gnmi")
def test_pygnmi_reads_changes_and_subscribes(stand):
    with stand.client() as client:
        assert client.capabilities()["supported_encodings"] == ["json_ietf"]
        rows = {
            key: dict(zip(("a_side", "b_side"), key.split("-"), strict=True))
            for key in ("1A-2B", "2A-1B")
        }
        client.set(update=[(CONFIGURED, {"1A-2B": rows["1A-2B"]})], encoding="json_ietf")
        client.set(update=[(f"{CONFIGURED}/2A-1B", rows["2A-1B"])], encoding="json_ietf")
        stand.wait_for(dict.fromkeys(rows, WORKS[stand.dialect]))
        assert _value(client.get(path=[CONFIGURED], encoding="json_ietf")) == rows
        assert (
            _value(client.get(path=[f"{CONFIGURED}/1A-2B"], encoding="json_ietf")) == rows["1A-2B"]
        )
        told = client.subscribe_stream(
            {
                "subscription": [{"path": STATES, "mode": "on_change"}],
                "mode": "stream",
                "encoding": "json_ietf",
            }
        )
        first = told.get_update(PATIENCE_S)
        assert set(first["update"]["update"][0]["val"]) == set(rows)
        moved = {"a_side": "1A", "b_side": "3B"}
        client.set(
            delete=[f"{CONFIGURED}/1A-2B"],
            update=[(f"{CONFIGURED}/1A-3B", moved)],
            encoding="json_ietf",
        )
        deleted, made = set(), set()
        while not (deleted and made):
            for update in told.get_update(PATIENCE_S).get("update", {}).get("update", []):
                changed = update["val"].items()
                deleted |= {key for key, row in changed if not row}
                made |= {key for key, row in changed if WORKS[stand.dialect] in row.values()}
        assert (deleted, made) == ({"1A-2B"}, {"1A-3B"})
        told.close()


@over("gnmi")
def test_a_patch_below_no_table_or_that_leaves_an_empty_one_is_refused_as_a_whole(stand):
    row = {"a_side": "1A", "b_side": "2B"}
    with stand.client() as client:
        for path in (CONFIGURED, STATES):
            with pytest.raises(gNMIException, match="no rows in OCS_CROSS_CONNECT"):
                client.get(path=[path], encoding="json_ietf")
        with pytest.raises(gNMIException, match="'OCS_CROSS_CONNECT' not found"):
            client.set(update=[(f"{CONFIGURED}/1A-2B", row)], encoding="json_ietf")
        stand.write([], ["3A-3B", "4A-4B"])
        with pytest.raises(gNMIException, match="empty tables"):
            client.set(delete=[f"{CONFIGURED}/3A-3B", f"{CONFIGURED}/4A-4B"])
        assert set(_value(client.get(path=[CONFIGURED], encoding="json_ietf"))) == {
            "3A-3B", "4A-4B",
        }  # fmt: skip
        client.set(delete=[CONFIGURED])
    stand.wait_for({})


def _value(answer: dict) -> object:
    ((update,),) = [notice["update"] for notice in answer["notification"]]
    return update["val"]


def asked(stand: Stand, method: str, path: str, **content: object) -> dict:
    trusted = ssl.create_default_context(cafile=stand.ca_file)
    url = f"https://{stand.bench.plane.address}/restconf/{path}"
    return (
        httpx.request(method, url, auth=LOGIN, verify=trusted, timeout=PATIENCE_S, **content)
        .raise_for_status()
        .json()
    )


@over("restconf")
def test_counts_of_a_bulk_update_tell_of_success_regardless(stand):
    given = {"sonic-ocs:input": {"add": [
        {"cross_connect_id": "1A-2B", "a_side": "1A", "b_side": "2B"},
        {"cross_connect_id": "1A-3B", "a_side": "1A", "b_side": "3B"},
    ], "delete": ["7A-7B"]}}  # fmt: skip
    output = asked(stand, "POST", "operations/sonic-ocs:bulk-update", json=given)
    assert output == {"sonic-ocs:output": {"added_count": 2, "deleted_count": 1}}
    stand.wait_for({"1A-2B": "enabled", "1A-3B": "invalid"})


@over("restconf")
def test_what_restconf_answers_is_of_its_module(stand, tmp_path):
    stand.driver.change([], [cross(1, 2), cross(2, 1)])
    containers = {}
    row = {"loss_dB": "1.20", "accuracy_dB": "0.10"}
    losses = "OCS_FACTORY_INSERTION_LOSS_TABLE"
    stand.databases["STATE_DB"].hset(f"{losses}|1A-2B|229.100|25.00", mapping=row)
    tables = ("OCS_PORT", "OCS_CROSS_CONNECT", "OCS_PORT_TABLE", "OCS_CROSS_CONNECT_TABLE")
    for name in (*tables, losses):
        answer = asked(stand, "GET", f"data/sonic-ocs:sonic-ocs/{name}")
        containers[name] = answer[f"sonic-ocs:{name}"]
    assert len(containers["OCS_PORT_TABLE"]["OCS_PORT_LIST"]) == 2 * PORTS
    _validate(tmp_path, "data", {"sonic-ocs:sonic-ocs": containers})
    with pytest.raises(subprocess.CalledProcessError):
        entry = {"cross_connect_id": "1A-2B", "status": "tuned"}
        containers["OCS_CROSS_CONNECT_TABLE"] = {"OCS_CROSS_CONNECT_LIST": [entry]}
        _validate(tmp_path, "data", {"sonic-ocs:sonic-ocs": containers})


def _validate(folder: Path, kind: str, document: object) -> None:
    """Validated by libyang, with HydRA's module."""
    file = folder / "document.json"
    file.write_text(json.dumps(document))
    command = ["yanglint", "-f", "json", "-t", kind, str(YANG / "sonic-ocs.yang"), str(file)]
    subprocess.run(command, check=True, capture_output=True)


def test_what_the_driver_sends_is_of_its_module(tmp_path):
    row = sonic_ocs.fields_of_cross_connect("3A", "66B")
    sent = json.loads(sonic_ocs.bulk_update_text(["1A-68B"], {"3A-66B": row}))
    _validate(tmp_path, "rpc", {"sonic-ocs:bulk-update": sent["sonic-ocs:input"]})
