"""SONiC's tables as decoded by the codec, and the driver in cases without a server."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc
import pytest
from pygnmi.spec.v080 import gnmi_pb2

from drivers.codecs import sonic_ocs, yang_json
from drivers.codecs.sonic_ocs import CrossConnectState
from drivers.codecs.yang_json import YangJsonError
from drivers.optical.sonic_ocs import SonicOcs
from drivers.registry import OPTICAL, optical_switch
from drivers.transports.gnmi import GnmiDatabases, _Listener
from drivers.transports.tls import TlsOptions
from hydra.errors import DeviceError, OutcomeUnknown, ProtocolError
from hydra.model import CrossConnect, Login, Plane, PlaneId
from hydra.roles import Alarm, DeviceIdentity, Mirrors, PortState, Severity
from tests.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[3]


def rows_of(*updates: tuple[tuple[str, ...], bytes]) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for path, text in updates:
        sonic_ocs.place(rows, path, text)
    return rows


# --- the codec ----------------------------------------------------------------------------------


def test_a_table_comes_whole_by_rows_or_by_fields():
    whole = rows_of(((), b'{"1A-2B": {"a_side": "1A", "b_side": "2B"}}'))
    assert whole == rows_of((("1A-2B",), b'{"a_side": "1A", "b_side": "2B"}'))
    assert whole == rows_of((("1A-2B", "a_side"), b'"1A"'), (("1A-2B", "b_side"), b'"2B"'))


@pytest.mark.parametrize(
    ("path", "text", "told"),
    [
        ((), b"", "not JSON"),
        ((), b"[]", "not an object"),
        ((), b'{"1A-2B": "x"}', "not an object: 'x'"),
        (("1A", "field"), b'{"deeper": 1}', "not a field's value"),
        (("1A", "field", "more"), b"1", "more than a key and a field: '1A/field/more'"),
        ((), b"[" * 30_000 + b"]" * 30_000, "nested more than 64 levels deep"),
    ],
)
def test_other_values_are_refused(path, text, told):
    with pytest.raises(YangJsonError, match=told):
        sonic_ocs.place({}, path, text)


def test_a_text_without_end_is_not_read(monkeypatch):
    monkeypatch.setattr(yang_json, "MAX_JSON_BYTES", 100)
    with pytest.raises(YangJsonError, match="101 bytes of JSON, more than 100"):
        sonic_ocs.parse_bulk_result(b" " * 101)


def test_ports_go_by_their_numbers():
    names = ["10A", "9A", "66B", "65B", "1A"]
    assert sonic_ocs.ports_in_order(names) == (("1A", "9A", "10A"), ("65B", "66B"))


@pytest.mark.parametrize("name", ["0A", "1C", "A", "1A ", "01A", "Ethernet0", "1a", "١A"])
def test_what_is_no_port(name):
    with pytest.raises(YangJsonError, match="not a port such as 1A"):
        sonic_ocs.ports_in_order([name])


def test_a_cross_connect_is_its_key():
    assert sonic_ocs.parse_cross_connect("1A-2B", {}) == ("1A", "2B")
    for key in ("1B-2A", "1A-2A", "1A", "1A-2B-3A", ""):
        with pytest.raises(YangJsonError, match="not a cross-connect such as 1A-2B"):
            sonic_ocs.parse_cross_connect(key, {})
    with pytest.raises(YangJsonError, match="1A-2B has the sides '1A', '3B'"):
        sonic_ocs.parse_cross_connect("1A-2B", {"b_side": "3B"})


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"status": "enabled"}, CrossConnectState(True, "enabled", False)),
        ({"status": "disabled"}, CrossConnectState(False, "disabled", False)),
        ({"status": "invalid"}, CrossConnectState(False, "invalid", True)),
        ({"status": ""}, CrossConnectState(False, "nothing", False)),
        ({"status": "odd"}, CrossConnectState(False, "odd", True)),
        (
            {"a_side_status": "tuned", "b_side_status": "tuned"},
            CrossConnectState(True, "tuned/tuned", False),
        ),
        (
            {"a_side_status": "tuned", "b_side_status": "tuning"},
            CrossConnectState(False, "tuned/tuning", False),
        ),
        (
            {"a_side_status": "failed", "b_side_status": "tuned"},
            CrossConnectState(False, "failed/tuned", True),
        ),
        ({"a_side_status": "tuned"}, CrossConnectState(False, "tuned/nothing", False)),
        ({}, CrossConnectState(False, "nothing/nothing", False)),
    ],
)
def test_states_in_both_sets_of_words(fields, state):
    assert sonic_ocs.parse_state(fields) == state


def test_a_resource_with_and_without_its_modules_name():
    table, entry = sonic_ocs.PORTS, b'[{"simplex_port_id": "1A", "label": "rack 1"}]'
    rows = {"1A": {"simplex_port_id": "1A", "label": "rack 1"}}
    for text in (
        b'{"sonic-ocs:OCS_PORT": {"OCS_PORT_LIST": %s}}' % entry,
        b'{"OCS_PORT": {"sonic-ocs:OCS_PORT_LIST": %s}}' % entry,
    ):
        assert sonic_ocs.parse_resource(table, text) == rows
    assert sonic_ocs.parse_resource(table, b"{}") == {}
    with pytest.raises(YangJsonError, match="no OCS_PORT in 'other'"):
        sonic_ocs.parse_resource(table, b'{"other": {}}')
    with pytest.raises(YangJsonError, match="an entry of OCS_PORT_LIST has no simplex_port_id"):
        sonic_ocs.parse_resource(table, b'{"OCS_PORT": {"OCS_PORT_LIST": [{"label": "x"}]}}')


def test_counts_of_a_bulk_update_are_not_believed():
    told = b'{"sonic-ocs:output": {"added_count": 9, "deleted_count": 9, "failed_keys": ["1A-2B"]}}'
    assert sonic_ocs.parse_bulk_result(told) == ("1A-2B",)
    assert sonic_ocs.parse_bulk_result(b'{"sonic-ocs:output": {"added_count": 0}}') == ()


@pytest.mark.parametrize(
    ("resource", "port"),
    [("1A", "1A"), ("ocs/port/12B", "12B"), ("sensor/2", None), ("21AB", None), ("", None)],
)
def test_the_port_of_an_alarm(resource, port):
    assert sonic_ocs.parse_alarm("7", {"resource": resource}).port == port


def test_the_loss_of_a_cross_connect_by_one_measurement():
    fields = {"loss_dB": "1.20", "accuracy_dB": "0.10"}
    sides, loss_db = sonic_ocs.parse_loss("1A-2B|193.100|25.00", fields)
    assert (sides, loss_db) == (("1A", "2B"), pytest.approx(1.3))
    assert sonic_ocs.parse_loss("2A-2B|229.100|25.00", {}) == (("2A", "2B"), 0.0)
    for key, fields in (("1A|1|2", {}), ("1A-2B|1|2", {"loss_dB": "much"})):
        with pytest.raises(YangJsonError, match="not a "):
            sonic_ocs.parse_loss(key, fields)


def test_ports_that_a_row_names_whatever_else_it_says():
    named = sonic_ocs.ports_named
    assert named("1A-99B", {"a_side": "1A", "b_side": "2B"}) == {"1A", "99B", "2B"}
    assert named("1-3A_4B", {}) == {"3A", "4B"}
    assert named("11AB", {}) == frozenset()


# --- the driver ---------------------------------------------------------------------------------


class Tables:
    """Databases with fixed content, which record writes."""

    def __init__(self, **tables: dict[str, dict[str, str]]) -> None:
        self.tables = tables
        self.written: list[tuple[list[str], list[str]]] = []
        self.lost_after = 99

    def open(self) -> None: ...

    def close(self) -> None: ...

    def read(self, table):
        return self.tables.get(table.name, {})

    def write(self, delete, add) -> None:
        if len(self.written) >= self.lost_after:
            raise DeviceError("p1", "the switch refuses (ABORTED): no")
        self.written.append((list(delete), list(add)))

    def received_alarms(self):
        return ()


ADMIN = Login("admin", password_env="P")
PORTS = {name: {} for name in ("1A", "2A", "3A", "4A", "65B", "66B", "67B", "68B")}
LIT = {"status": "enabled"}


def driver(budget_db: float | None = None, **tables) -> tuple[SonicOcs, Tables]:
    databases = Tables(OCS_PORT_TABLE=PORTS, **tables)
    # timed: tables in memory whose content does not change
    return SonicOcs("p1", databases, timeout_s=0.05, loss_budget_db=budget_db), databases


def test_side_b_may_count_on():
    switch, _ = driver(OCS_CROSS_CONNECT_TABLE={"2A-68B": LIT})
    assert switch.size() == (4, 4)
    assert switch.cross_connects() == {CrossConnect(2, 8)}


def test_half_made_entries_are_no_circuits():
    switch, _ = driver(
        OCS_CROSS_CONNECT={"1A-65B": {}, "2A-66B": {}, "3A-67B": {}},
        OCS_CROSS_CONNECT_TABLE={"1A-65B": LIT, "2A-66B": {"status": "disabled"}, "4A-68B": LIT},
    )
    one, two, three, four = (CrossConnect(n, n + 4) for n in range(1, 5))
    assert switch.mirrors() == Mirrors(frozenset({one, two, three, four}), frozenset({two, three}))


@pytest.mark.parametrize("table", ["OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_TABLE"])
@pytest.mark.parametrize(
    ("row", "told", "taken"),
    [
        ({"1A-2A": {}}, "not a cross-connect such as 1A-2B: '1A-2A'", [1, 2]),
        ({"9A-65B": {}}, "cross-connect 9A-65B uses 9A, no port", [5]),
        ({"1A-9B": {}}, "cross-connect 1A-9B uses 9B, no port", [1]),
        ({"98A-99B": {}}, "cross-connect 98A-99B uses 98A, no port", []),
        (
            {"1A-65B": {"b_side": "66B"}},
            "cross-connect 1A-65B has the sides '1A', '66B'",
            [1, 5, 6],
        ),
    ],
)
def test_a_row_that_makes_no_sense_is_named_and_left_out(table, row, told, taken, caplog):
    """Wired ports in such a row are in use: the switch may have assigned them."""
    tables = {"OCS_CROSS_CONNECT": {"3A-67B": {}}, "OCS_CROSS_CONNECT_TABLE": {"3A-67B": LIT}}
    switch, databases = driver(**tables | {table: tables[table] | row})
    for _ in range(2):
        assert switch.mirrors() == Mirrors(frozenset({CrossConnect(3, 7)}), frozenset())
    assert caplog.messages == [f"p1: left out of the device's cross-connects: {told}"]
    for port in taken:
        wanted = CrossConnect(port, 8) if port < 5 else CrossConnect(4, port)
        with pytest.raises(
            DeviceError, match=f"port {port} is in use by the invalid cross-connect"
        ):
            switch.change([], [wanted])
    assert databases.written == []
    switch.change([], [CrossConnect(3, 7)])  # is in the intended state
    databases.tables[table] = tables[table]
    switch.mirrors()
    databases.tables[table] = tables[table] | row
    switch.mirrors()
    assert len(caplog.messages) == 2, "it came back"


def test_rows_that_name_no_port_hide_none(caplog):
    switch, databases = driver(OCS_PORT={"Ethernet0": {}, "2A": {"config_status": "powered_off"}})
    assert switch.size() == (4, 4)
    assert caplog.messages == [
        "p1: left out of the device's ports: 'Ethernet0' is no port such as 1A"
    ]
    assert switch.port_states([2]) == {2: PortState.DISABLED}
    databases.tables = {"OCS_PORT": {"1-1A": {}, "1-1B": {}}}
    switch.close()
    with pytest.raises(DeviceError, match="no optical ports such as 1A and 1B, but lists '1-1A'"):
        switch.size()


def test_a_port_that_is_configured_and_not_there_moves_no_others_number(caplog):
    """With 65 ingress ports, egress port 1 would be number 66, and all others one more, too."""
    configured = {"5A": {}, "1A": {}}
    databases = Tables(
        OCS_PORT_TABLE=PORTS, OCS_PORT=configured, OCS_CROSS_CONNECT_TABLE={"1A-65B": LIT}
    )
    switch = SonicOcs("p1", databases, timeout_s=PATIENCE_S, ports=4)
    assert switch.cross_connects() == {CrossConnect(1, 5)}
    assert caplog.messages == ["p1: left out of the device's ports: 5A is configured and not there"]
    booting = Tables(OCS_PORT_TABLE={"1A": {}, "65B": {}}, OCS_PORT=PORTS)
    assert SonicOcs("p1", booting, timeout_s=PATIENCE_S, ports=4).size() == (4, 4)


def test_an_alarm_that_makes_no_sense_hides_no_others(caplog):
    switch, databases = driver()
    switch.size()
    row = {"severity": "MINOR", "type-id": "LOS", "resource": "1A"}
    databases.tables["ALARM"] = {"x": row, "7": row}
    for _ in range(2):
        assert switch.alarms() == (Alarm(Severity.MINOR, 1, "LOS", ""),)
    assert caplog.messages == [
        "p1: left out of the device's alarms: not the number of an alarm: 'x'"
    ]


def test_one_request_deletes_and_adds():
    switch, databases = driver(
        OCS_CROSS_CONNECT={"1A-65B": {}}, OCS_CROSS_CONNECT_TABLE={"1A-65B": LIT}
    )
    with pytest.raises(DeviceError, match="not connected: 1 to 6, 2 to 5; still connected: 1 to 5"):
        switch.change([CrossConnect(1, 5)], [CrossConnect(1, 6), CrossConnect(2, 5)])
    assert databases.written == [(["1A-65B"], ["1A-66B", "2A-65B"])]


def test_what_does_not_work_is_gone_before_it_is_made_anew():
    """A deletion and an addition in one request would leave the same configuration, and be
    skipped.
    """
    switch, databases = driver(
        OCS_CROSS_CONNECT={"1A-65B": {}}, OCS_CROSS_CONNECT_TABLE={"1A-65B": {"status": "invalid"}}
    )
    with pytest.raises(DeviceError, match="still connected: 1 to 5"):
        switch.change([], [CrossConnect(1, 5)])
    assert databases.written == [(["1A-65B"], [])]


def test_what_is_not_configured_is_added_to_be_deleted():
    switch, databases = driver(OCS_CROSS_CONNECT_TABLE={"1A-65B": LIT})
    with pytest.raises(DeviceError, match="still connected: 1 to 5"):
        switch.change([CrossConnect(1, 5)], [])
    assert databases.written == [([], ["1A-65B"]), (["1A-65B"], [])]


def test_what_was_never_made_is_deleted_before_the_others():
    switch, databases = driver(
        OCS_CROSS_CONNECT={"1A-65B": {}, "2A-66B": {}}, OCS_CROSS_CONNECT_TABLE={"2A-66B": LIT}
    )
    with pytest.raises(DeviceError, match="still connected: 1 to 5, 2 to 6"):
        switch.change([CrossConnect(1, 5), CrossConnect(2, 6)], [CrossConnect(3, 7)])
    assert databases.written == [(["1A-65B"], []), (["2A-66B"], ["3A-67B"])]
    databases.written.clear()
    with pytest.raises(DeviceError, match="still connected: 1 to 5"):
        switch.change([CrossConnect(2, 6)], [CrossConnect(1, 5)])
    assert databases.written == [(["1A-65B"], []), (["2A-66B"], [])]
    databases.written.clear()
    with pytest.raises(DeviceError, match="still connected: 1 to 5"):
        switch.change([CrossConnect(1, 5)], [])
    assert databases.written == [(["1A-65B"], [])]


def test_a_refusal_half_way_leaves_the_outcome_unknown():
    switch, databases = driver(OCS_CROSS_CONNECT_TABLE={"1A-65B": LIT})
    databases.lost_after = 1
    with pytest.raises(OutcomeUnknown, match="begun and could not be confirmed: p1: the switch"):
        switch.change([CrossConnect(1, 5)], [])


def test_a_refusal_after_the_write_leaves_the_outcome_unknown():
    """Mirrors may have moved, although the switch no longer reports so."""
    switch, databases = driver()
    read = databases.read

    def refuse_after_the_write(table):
        if databases.written:
            raise DeviceError("p1", "the switch refuses (RESOURCE_EXHAUSTED): too many calls")
        return read(table)

    databases.read = refuse_after_the_write
    with pytest.raises(OutcomeUnknown, match="begun and could not be confirmed: p1: the switch"):
        switch.change([], [CrossConnect(1, 5)])


def test_trouble_is_told_in_the_switchs_words():
    switch, databases = driver(OCS_CROSS_CONNECT={}, OCS_CROSS_CONNECT_TABLE={})

    def write(_delete, add) -> None:
        states = ({"a_side_status": "failed", "b_side_status": "tuned"}, {"status": "invalid"})
        databases.tables["OCS_CROSS_CONNECT"] = add
        databases.tables["OCS_CROSS_CONNECT_TABLE"] = dict(zip(add, states, strict=False))

    databases.write = write
    with pytest.raises(
        DeviceError,
        match=r"1 to 5 \(1A-65B\) is failed/tuned; 2 to 6 \(2A-66B\) is invalid; "
        r"3 to 7 \(3A-67B\) is configured and not made",
    ):
        switch.change([], [CrossConnect(n, n + 4) for n in (1, 2, 3)])


def test_a_cross_connect_beyond_the_budget_is_named_before_anything_moves(caplog):
    losses = {
        "1A-65B|193.1|25": {"loss_dB": "3.40", "accuracy_dB": "0.10"},
        "1A-65B|229.1|25": {"loss_dB": "1.90"},
        "3A-65B|229.1|25": {"loss_dB": "?"},
        "9A-65B|229.1|25": {"loss_dB": "9.00"},
    }
    switch, databases = driver(3.0, OCS_FACTORY_INSERTION_LOSS=losses)
    switch.open()
    assert "beyond options.loss_budget_db (3), and not connected: 1 to 5 (1A-65B) loses 3.50" in (
        caplog.text
    )
    with pytest.raises(DeviceError, match=r"1 to 5 \(1A-65B\) loses 3\.50 dB.*nothing was moved"):
        switch.change([], [CrossConnect(1, 5), CrossConnect(2, 6)])
    assert databases.written == []
    with pytest.raises(
        DeviceError, match="2 to 6"
    ):  # sent, and never carried out: the agent is gone
        switch.change([], [CrossConnect(2, 6)])
    assert databases.written == [([], ["2A-66B"])]


def test_losses_that_make_no_sense_keep_no_budget(caplog):
    switch, _ = driver(3.0, OCS_FACTORY_INSERTION_LOSS={"1A-65B|1|2": {"loss_dB": "?"}})
    switch.open()
    assert (
        "left out of the device's factory losses: 1A-65B|1|2: not a loss in dB: '?'" in caplog.text
    )
    assert "no loss budget is kept" in caplog.text


def test_a_switch_without_optical_ports():
    switch = SonicOcs("p1", Tables(), timeout_s=PATIENCE_S)
    with pytest.raises(DeviceError, match="lists no optical ports such as 1A and 1B"):
        switch.size()


def test_who_it_is():
    metadata = {"hwsku": "OCS-V", "mac": "52:54:00:12:34:56"}
    switch, _ = driver(DEVICE_METADATA={"localhost": metadata})
    assert switch.identity() == DeviceIdentity("SONiC", "OCS-V", "52:54:00:12:34:56", "unknown")
    with pytest.raises(ProtocolError, match="neither hwsku nor platform"):
        driver()[0].identity()


def test_port_states_by_the_switch_and_by_hand():
    switch, databases = driver(OCS_PORT={"2A": {"config_status": "force_blocked"}, "3A": {}})
    words = {"1A": "tuned", "2A": "tuned", "3A": "failed", "4A": "sleeping"}
    databases.tables["OCS_PORT_TABLE"] = {
        **PORTS, **{name: {"status": word} for name, word in words.items()},
        "65B": {"oper_status": "connected"},
    }  # fmt: skip
    enabled, disabled = PortState.ENABLED, PortState.DISABLED
    assert switch.port_states(range(1, 7)) == {
        1: enabled, 2: disabled, 3: PortState.FAILED, 4: PortState.UNKNOWN, 5: enabled,
        6: PortState.UNKNOWN,
    }  # fmt: skip


def test_alarms_that_stood_before_are_no_news():
    old = {"severity": "MAJOR", "type-id": "PSU", "text": "one is out", "resource": "psu/2"}
    new = {"severity": "CRITICAL", "type-id": "LOS", "text": "dark", "resource": "2A"}
    switch, databases = driver(ALARM={"9": old})
    stood = Alarm(Severity.MAJOR, None, "PSU", "one is out")
    assert switch.alarms() == (stood,)
    assert switch.reports() == ()
    databases.tables["ALARM"] = {"10": new}
    began = Alarm(Severity.CRITICAL, 2, "LOS", "dark")
    assert switch.alarms() == (began,)
    assert switch.reports() == (Alarm(Severity.CLEARED, None, "PSU", "one is out"), began)


def test_an_alarm_that_a_read_found_ended_does_not_begin_again():
    """The switch's unasked reports may come later than a read."""
    switch, databases = driver()
    row = {"severity": "MINOR", "type-id": "LOS", "resource": "1A", "time-created": "1"}
    switch.size()
    databases.tables["ALARM"] = {"1": row}
    switch.alarms()
    databases.tables["ALARM"] = {}
    switch.alarms()
    databases.received_alarms = lambda: (("1", {"1": row}), ("1", None))
    assert [alarm.severity for alarm in switch.reports()] == [Severity.MINOR, Severity.CLEARED]
    again = {**row, "time-created": "2"}
    databases.received_alarms = lambda: (("1", {"1": again}),)
    assert [alarm.severity for alarm in switch.reports()] == [Severity.MINOR]


class Stream(list):
    def cancel(self) -> None: ...


def test_gnmi_tells_of_an_ended_alarm_by_a_row_without_fields_or_by_deletion():
    def path(*names: str) -> gnmi_pb2.Path:
        table = ("EVENT_DB", "localhost", "ALARM")
        elements = [gnmi_pb2.PathElem(name=name) for name in (*table, *names)]
        return gnmi_pb2.Path(elem=elements)

    def update(text: bytes, *names: str) -> gnmi_pb2.Notification:
        value = gnmi_pb2.TypedValue(json_ietf_val=text)
        return gnmi_pb2.Notification(update=[gnmi_pb2.Update(path=path(*names), val=value)])

    notices = [
        update(b'{"5": {"text": "dark"}}'), update(b'{"5": {}}'), update(b"{}", "6"),
        gnmi_pb2.Notification(delete=[path("7")]),
    ]  # fmt: skip
    stream = Stream([gnmi_pb2.SubscribeResponse(sync_response=True)])
    stream += [gnmi_pb2.SubscribeResponse(update=notice) for notice in notices]
    databases = GnmiDatabases("p1", "127.0.0.1:1", ADMIN, TlsOptions(), timeout_s=PATIENCE_S)
    databases._listener = _Listener("p1", lambda _over: stream)
    databases._listener.stop()
    began = ("5", {"5": {"text": "dark"}})
    assert databases.received_alarms() == (began, ("5", None), ("6", None), ("7", None))


class Refusal(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self.code, self.details = (lambda: code), (lambda: "no such table")


def refusing(code: grpc.StatusCode) -> Iterator[gnmi_pb2.SubscribeResponse]:
    raise Refusal(code)
    yield


class Streams:
    """A device's answers to one subscription after the other."""

    def __init__(self, *streams: Iterable[gnmi_pb2.SubscribeResponse]) -> None:
        self.left, self.overs = [*streams], []
        self.last = threading.Event()

    def subscribe(self, over: threading.Event) -> Answers:
        self.overs.append(over)
        stream = iter(self.left.pop(0)) if self.left else self._until(over)
        return Answers(stream, over)

    def _until(self, over: threading.Event) -> Iterator[gnmi_pb2.SubscribeResponse]:
        yield gnmi_pb2.SubscribeResponse(sync_response=True)
        self.last.set()
        over.wait()


class Answers:
    def __init__(self, stream: Iterator, over: threading.Event) -> None:
        self._stream, self._over = stream, over

    def __iter__(self) -> Iterator:
        return self._stream

    def cancel(self) -> None:
        self._over.set()


@pytest.mark.parametrize("refusal", [grpc.StatusCode.NOT_FOUND, None])
def test_gnmi_subscribes_again_where_the_switch_refuses_or_ends_it_and_says_so_once(
    refusal, caplog
):
    streams = Streams(*([] if refusal is None else refusing(refusal) for _ in range(3)))
    listener = _Listener("p1", streams.subscribe, first_pause_s=0.01)
    assert streams.last.wait(PATIENCE_S)
    assert not listener.lost, "the channel is not opened anew for that"
    assert [over.is_set() for over in streams.overs] == [True, True, True, False]
    listener.stop()
    (line,) = caplog.messages
    assert line.startswith("p1 does not report alarms (")


def test_gnmi_leaves_a_lost_connection_to_the_next_read(caplog):
    streams = Streams(refusing(grpc.StatusCode.UNAVAILABLE))
    listener = _Listener("p1", streams.subscribe, first_pause_s=0.01)
    listener._thread.join(PATIENCE_S)
    assert listener.lost
    assert len(streams.overs) == 1
    assert not caplog.messages


def test_an_error_that_passes_while_the_metadata_are_read_is_no_empty_table(monkeypatch):
    rows = {"1A-65B": {"a_side": "1A", "b_side": "65B"}}
    found = iter([None, {"localhost": {}}, rows])
    databases = GnmiDatabases("p1", "127.0.0.1:1", ADMIN, TlsOptions(), timeout_s=PATIENCE_S)
    monkeypatch.setattr(databases, "_found", lambda _table: next(found))
    assert databases.read(sonic_ocs.CROSS_CONNECTS) == rows


# --- its configuration --------------------------------------------------------------------------


def plane(login: Login | None = ADMIN, **options: object) -> Plane:
    return Plane(PlaneId(0), "p1", "sonic-ocs", "127.0.0.1:8080", 16, 5.0, 100.0, login, options)


def problems(plane: Plane) -> list[str]:
    return [str(problem) for problem in OPTICAL["sonic-ocs"].check(plane)]


def test_options_are_checked_before_anything_connects():
    assert problems(plane(transport="restconf", ca_file="/x.pem", server_name="ocs1")) == []
    (told,) = problems(plane(transport="telnet"))
    assert told.startswith("options.transport: input should be 'gnmi' or 'restconf'")
    (told,) = problems(plane(login=None))
    assert told.startswith("login: is missing")
    with pytest.raises(DeviceError, match="SONiC wants a login"):
        optical_switch(plane(login=None), PATIENCE_S)


@pytest.mark.parametrize("transport", ["gnmi", "restconf"])
def test_a_certificate_that_is_not_there(transport, monkeypatch):
    monkeypatch.setenv("P", "secret")
    switch = optical_switch(plane(transport=transport, ca_file="/no/ca.pem"), PATIENCE_S)
    with pytest.raises(DeviceError, match=r"p1: can't read /no/ca\.pem: No such.*options\.ca_file"):
        switch.open()


@pytest.mark.parametrize("secret", ["Gr\u00fcn-7x!", "open\tsesame", "sesame\n"])
def test_a_password_that_grpc_cant_carry_is_told_and_not_shown(secret, monkeypatch):
    monkeypatch.setenv("P", secret)
    switch = optical_switch(plane(), PATIENCE_S)
    with pytest.raises(DeviceError, match=r"password can't be sent: .* ASCII only") as caught:
        switch.open()
    assert secret not in str(caught.value)


@pytest.mark.parametrize("transport", ["gnmi", "restconf"])
def test_a_certificate_that_is_none(transport, monkeypatch, tmp_path):
    monkeypatch.setenv("P", "secret")
    file = tmp_path / "ca.pem"
    file.write_text("nothing\n")
    switch = optical_switch(plane(transport=transport, ca_file=str(file)), PATIENCE_S)
    with pytest.raises(DeviceError, match=r"options\.ca_file"):
        switch.open()


def test_packages_that_are_missing_are_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    remedy = "pip install 'hydra-hybrid-network[sonic]'"
    (told,) = problems(plane())
    assert told.startswith("driver: gNMI wants the packages of the extra sonic")
    assert told.endswith(f"{remedy}, or set options.transport to restconf")
    assert problems(plane(transport="restconf")) == []
    with pytest.raises(DeviceError, match=f"p1: gNMI wants.*{re.escape(remedy)}"):
        optical_switch(plane(), PATIENCE_S).open()


def test_the_other_drivers_do_without_them():
    program = (
        "import sys\n"
        "sys.modules.update(grpc=None, pygnmi=None, redis=None)\n"
        "from drivers.registry import OPTICAL\n"
        "assert len([*OPTICAL.values()]) > 5\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=REPOSITORY)
