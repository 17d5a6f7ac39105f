import json

import numpy as np
import pytest

from apps.offline.recording import TraceFull, TraceWriter, read_trace
from hydra.errors import PlanError
from tests.unit.core.fabrics import small_fabric

FABRIC = small_fabric(racks=4, planes=1, servers=1)
RACKS = [rack.name for rack in FABRIC.racks]
HEADER = {"hydra_trace": 1, "fabric": "small", "racks": RACKS, "started_unix_s": 1000.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "demand.trace"


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_what_was_written_is_read(path):
    with TraceWriter(path, "small", RACKS, 1000.0, 10_000) as writer:
        writer.append(1001.0, [(0, 1, 12.34567), (3, 2, 1e4)])
        writer.append(1002.5, [])
    trace = read_trace(path, FABRIC)
    assert (trace.fabric, trace.started_unix_s) == ("small", 1000.0)
    assert [reading.at_s for reading in trace.readings] == [1.0, 2.5]
    expected = np.zeros((4, 4))
    expected[0, 1], expected[3, 2] = 12.346, 1e4
    assert trace.readings[0].matrix(4) == pytest.approx(expected)
    assert not trace.readings[1].matrix(4).any()


def test_racks_are_known_by_their_names(path):
    write(path, {**HEADER, "racks": ["r4", "r2"]}, {"at_s": 0, "mbps": [[0, 1, 5.0]]})
    (reading,) = read_trace(path, FABRIC).readings
    assert reading.matrix(4)[3, 1] == 5.0


def test_a_file_never_outgrows_its_limit(path):
    with TraceWriter(path, "small", RACKS, 0.0, 400) as writer, pytest.raises(TraceFull):
        for second in range(100):
            writer.append(float(second), [(0, 1, 1.0)])
    assert 350 < path.stat().st_size <= 400
    assert len(read_trace(path, FABRIC).readings) > 3


def test_a_file_that_exists_is_left_alone(path):
    path.write_text("precious")
    with pytest.raises(PlanError, match=r"demand\.trace exists: name a new file"):
        TraceWriter(path, "small", RACKS, 0.0, 400)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    "torn", [b'{"at_s": 2, "mb', b'{"at_s": 2, "mb\n', b"\0\0\0\0", b"\0\0\n", b"\xff\xfe\n", b"\n"]
)
def test_a_line_that_was_being_written_is_left_out(path, torn):
    write(path, HEADER, {"at_s": 1, "mbps": []})
    with path.open("ab") as file:
        file.write(torn)
    trace = read_trace(path, FABRIC)
    assert len(trace.readings) == 1
    assert trace.torn_line == 3


def test_a_line_that_is_no_json_in_the_middle_is_an_error(path):
    write(path, HEADER, {"at_s": 1, "mbps": []})
    with path.open("ab") as file:
        file.write(b'{"at_s": 2, "mb\n{"at_s": 3, "mbps": []}\n')
    with pytest.raises(PlanError, match="line 3 is not JSON"):
        read_trace(path, FABRIC)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "is empty"),
        ([HEADER], "has no reading"),
        ([{"at_s": 1}], "line 1: no header"),
        ([[]], "line 1 is no JSON object"),
        ([{**HEADER, "hydra_trace": 2}], "line 1: no header"),
        ([{**HEADER, "racks": "r1"}], "no list of names"),
        ([{**HEADER, "racks": ["r1", "r1"]}], "names one twice"),
        ([{**HEADER, "racks": ["r11"]}], "rack 'r11' is not in fabric small"),
        ([{**HEADER, "started_unix_s": True}], '"started_unix_s" is no number'),
        ([{**HEADER, "started_unix_s": 10**400}], '"started_unix_s" is no number'),
        ([HEADER, {"at_s": 10**400, "mbps": []}], 'line 2: "at_s" is no number'),
        ([HEADER, {"at_s": 1, "mbps": [[0, 1, 10**400]]}], 'line 2: "mbps" is no list of'),
        ([HEADER, 3], "line 2 is no JSON object"),
        ([HEADER, {"mbps": []}], 'line 2: "at_s" is no number'),
        ([HEADER, {"at_s": float("nan"), "mbps": []}], 'line 2: "at_s" is no number'),
        ([HEADER, {"at_s": 1}], 'line 2: "mbps" is no list'),
        ([HEADER, {"at_s": 1, "mbps": [[1, 2]]}], 'line 2: "mbps" is no list'),
        ([HEADER, {"at_s": 1, "mbps": [["a", 1, 2]]}], 'line 2: "mbps" is no list'),
        ([HEADER, {"at_s": 1, "mbps": [[0, 4, 2]]}], "no position among the 4 racks"),
        ([HEADER, {"at_s": 1, "mbps": [[0.5, 1, 2]]}], "no position among the 4 racks"),
        ([HEADER, {"at_s": 1, "mbps": [[1, 1, 2]]}], "sends to itself"),
        ([HEADER, {"at_s": 1, "mbps": [[0, 1, -2]]}], "negative or not finite"),
        ([HEADER, {"at_s": 1, "mbps": [[0, 1, float("inf")]]}], "negative or not finite"),
        ([HEADER, {"at_s": 1, "mbps": []}, {"at_s": 1, "mbps": []}], "line 3: at_s does not grow"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(path, lines, says):
    write(path, *lines)
    with pytest.raises(PlanError, match="trace") as caught:
        read_trace(path, FABRIC)
    assert says in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"{\n", b"[" * 100_000 + b"\n"])
def test_bytes_that_are_no_trace_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(PlanError):
        read_trace(path, FABRIC)
