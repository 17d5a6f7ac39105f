import json
import os

import numpy as np
import pytest

from apps.cli import trace as trace_command

from . import DEMO as DEMO_FILE

DEMO = str(DEMO_FILE)
TRACE = "0 1 1000000 0\n1 2 3000000 1\n2 2 500 1\n0 1 2000000 12\n"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return path


def test_show(run, trace):
    result = run("trace", "show", str(trace))
    assert result.exit_code == 0, result.output
    assert "4, 1 of them within a rack" in result.stdout
    document = json.loads(run("trace", "show", str(trace), "--json").stdout)
    assert [window["mbps"] for window in document["windows"]] == pytest.approx([3.2, 1.6])


def test_a_trace_in_nanoseconds_raises_a_doubt_and_one_since_1970_is_told_in_full(run, tmp_path):
    path = tmp_path / "trace.txt"
    path.write_text("a b 1 0\na b 1 10000000000\n")
    result = run("trace", "show", str(path))
    assert result.exit_code == 0
    assert "Warning: " in result.stderr
    assert "lasts 317 years" in result.stderr
    path.write_text("\ufeffa b 1 1700000000\na b 1 1700000010.5\n")
    result = run("trace", "show", str(path))
    assert result.stderr == ""
    assert "1700000000 to 1700000010.5 s" in result.stdout
    assert "e+09" not in result.stdout


def test_without_a_file_the_sample(run):
    assert json.loads(run("trace", "show", "--json").stdout)["flows"] > 1000


def test_conversion_keeps_all_flows(run, tmp_path):
    coflows, flows, again = (tmp_path / name for name in ("coflows.txt", "flows.txt", "again.txt"))
    assert run("trace", "sample", str(coflows), "--racks", "8", "--seed", "3").exit_code == 0
    assert run("trace", "convert", str(coflows), str(flows)).exit_code == 0
    assert run("trace", "convert", str(flows), str(again)).exit_code == 0
    assert flows.read_text() == again.read_text()
    ours, theirs = (
        json.loads(run("trace", "show", str(path), "--json").stdout) for path in (coflows, flows)
    )
    assert ours.pop("trace") != theirs.pop("trace")
    assert ours == theirs


def test_a_link_to_what_is_written_stays_one(run, trace, tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    assert run("trace", "convert", str(trace), str(link)).exit_code == 0
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 4


def test_a_window_is_a_demand_for_plan(run, trace, tmp_path):
    demand = tmp_path / "demand.json"
    result = run(
        "trace", "convert", str(trace), str(demand), "--window", "0", "--size-factor", "10"
    )
    assert result.exit_code == 0, result.output
    planned = run("plan", "--fabric", "3x1@100", "--demand", str(demand), "--json")
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["demand_mbps"] == pytest.approx(32)


def written(run, tmp_path, text):
    """The demand of the first window of a trace, and the result of ``hydra plan`` for it."""
    flows, demand = tmp_path / "flows.txt", tmp_path / "demand.json"
    flows.write_text(text)
    result = run("trace", "convert", str(flows), str(demand), "--window", "0")
    assert result.exit_code == 0, result.output
    planned = run("plan", "--fabric", "4x1@100", "--demand", str(demand), "--json")
    assert planned.exit_code == 0, planned.output
    return [(one["src"], one["dst"]) for one in json.loads(demand.read_text())]


def test_a_window_keeps_the_names_of_racks(run, tmp_path):
    assert written(run, tmp_path, "r4 r2 1000000 0\n") == [("r4", "r2")]
    assert written(run, tmp_path, "r4 r2 1000000 0\n7 r2 1 0\n") == [(0, 1), (2, 1)]
    assert written(run, tmp_path, "4 1\n1 0 1 1 1 3:2\n") == [(1, 3)]


def test_racks_called_as_the_fabrics_are_planned_for_as_these(run, tmp_path, monkeypatch):
    flows, planned_for = tmp_path / "flows.txt", []

    def compare(_fabric, cut, *_rest):
        planned_for.extend(np.argwhere(window.demand_mbps).tolist() for window in cut)
        return []

    monkeypatch.setattr(trace_command, "compare", compare)
    for text in ("r4 r2 1000000 0\n", "x4 r2 1000000 0\n"):
        flows.write_text(text)
        assert run("trace", "plan", str(flows), "--fabric", "4x1@100").exit_code == 0
    assert planned_for == [[[3, 1]], [[1, 0]]]


def test_what_is_read_twice_is_no_pipe(run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments in (("show",), ("plan", "--fabric", "4x1")):
        result = run("trace", *arguments, str(pipe))
        assert (result.exit_code, "can't be read twice" in result.stderr) == (1, True)


def test_plan_all_algorithms(run, trace, tmp_path):
    plot = tmp_path / "windows.png"
    command = ("trace", "plan", str(trace), "--fabric", "3x1@2", "--plot", str(plot))
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "hydra-bfs+" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    document = json.loads(run(*command, "--json", "--windows", "1").stdout)
    assert len(document["windows"]) == 1
    assert {one["algorithm"] for one in document["algorithms"]} >= {"helios", "tms", "static"}


def test_one_algorithm(run, trace):
    result = run("trace", "plan", str(trace), "--fabric", "3x1@2", "--algorithm", "edmonds")
    assert "edmonds" in result.stdout
    assert "helios" not in result.stdout


def test_plans_are_compared_at_the_same_number_of_hops(run, tmp_path):
    """A single plane joins a line of three racks; r1 to r3 goes over r2, unless only one hop is
    allowed.
    """
    path = tmp_path / "line.txt"
    path.write_text("r1 r2 900000 0\nr2 r3 800000 0\nr1 r3 100000 0\n")
    command = ("trace", "plan", str(path), "--fabric", "3x2@10", "--algorithm", "hydra-bfs")
    command += ("--algorithm", "helios")
    hops = {}
    for most in ("1", "3"):
        result = run(*command, "--max-hops", most, "--json")
        assert result.exit_code == 0, result.output
        hops[most] = [one["mean_hops"] for one in json.loads(result.stdout)["algorithms"]]
    assert hops["1"] == [1.0, None]
    assert hops["3"][0] > 1
    shown = run(*command, "--max-hops", "1").stdout
    assert "hops" in shown
    assert "1.00" in shown


def test_errors(run, trace, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_text("a b 1 0\na b\n")
    for command in ("show",), ("convert",), ("plan",):
        arguments = [str(tmp_path / "out")] if command == ("convert",) else []
        arguments += ["--fabric", "4x1"] if command == ("plan",) else []
        result = run("trace", *command, str(bad), *arguments)
        assert result.exit_code == 1
        assert "bad.txt:2" in result.stderr
        assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    small = run("trace", "plan", str(trace), "--fabric", "2x1")
    assert small.exit_code == 1
    assert "the trace has 3 racks" in small.stderr
    assert run("trace", "plan", str(trace), "--fabric", "2x1", "--fold").exit_code == 0
    unknown = run("trace", "plan", str(trace), "--fabric", "3x1", "--algorithm", "bfs")
    assert "no topology algorithm" in unknown.stderr
    same = run("trace", "convert", str(trace), str(trace))
    assert same.exit_code == 1
    assert trace.read_text() == TRACE
    empty = run("trace", "convert", str(trace), str(tmp_path / "x.json"), "--window", "7")
    assert "window 7" in empty.stderr


CSV = "start,src,dst,bytes\n0.5,a,b,1000000\n0.5,a,c,500000\n1.2,b,c,250000\n5,c,a,125000\n"


def recording(run, tmp_path, text, *options):
    """(result, lines of the recording; None if there is none)."""
    flows, to = tmp_path / "flows.csv", tmp_path / "day.trace"
    flows.write_text(text)
    result = run("trace", "convert", str(flows), str(to), "--to", "replay", *options)
    return result, list(map(json.loads, to.read_text().splitlines())) if to.exists() else None


def test_a_csv_becomes_a_recording_with_a_reading_for_each_window(run, tmp_path):
    result, lines = recording(run, tmp_path, CSV, "--fabric", DEMO, "--window-s", "1")
    assert result.exit_code == 0, result.output
    assert "5 readings" in result.stdout
    header, *readings = lines
    assert header == {
        "hydra_trace": 1,
        "fabric": "demo",
        "racks": ["r1", "r2", "r3", "r4"],
        "started_unix_s": 0.0,
    }
    assert readings == [
        {"at_s": 0.0, "mbps": [[0, 1, 8.0], [0, 2, 4.0]]},
        {"at_s": 1.0, "mbps": [[1, 2, 2.0]]},
        {"at_s": 2.0, "mbps": []},
        {"at_s": 5.0, "mbps": [[2, 0, 1.0]]},
        {"at_s": 6.0, "mbps": []},
    ]
    played = run("replay", str(tmp_path / "day.trace"), "--fabric", DEMO, "--json")
    assert played.exit_code == 0, played.output
    (alone, _) = json.loads(played.stdout)["runs"]
    wanted = [(moment["at_s"], moment["wanted_mbps"] > 0) for moment in alone["moments"]]
    assert wanted == [(0.0, True), (1.0, True), (2.0, False), (5.0, True), (6.0, False)]


def test_coflows_and_more_racks_become_a_recording_too(run, tmp_path):
    coflows = "6 2\n1 0 1 0 1 1:1.0\n2 1500 2 4 5 1 0:2.0\n"
    refused, lines = recording(run, tmp_path, coflows, "--fabric", DEMO)
    assert (refused.exit_code, lines) == (1, None)
    assert "the trace has 6 racks, the fabric 4" in refused.stderr
    result, lines = recording(
        run, tmp_path, coflows, "--fabric", DEMO, "--fold", "--window-s", "1", "--size-factor", "2"
    )
    assert result.exit_code == 0, result.output
    assert [line["mbps"] for line in lines[1:]] == [[[0, 1, 16.0]], [[1, 0, 16.0]], []]


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (CSV, (), "add --fabric"),
        (CSV, ("--fabric", DEMO, "--window", "0"), "leave out --window"),
        (CSV, ("--fabric", DEMO, "--window-s", "0.0001"), "counts time in ms"),
        (CSV + "6,a,b\n", ("--fabric", DEMO), "flows.csv:6: 3 fields"),
        ("src,dst,bytes,start\na,a,1,0\n", ("--fabric", DEMO), "no flow between racks"),
    ],
)
def test_a_recording_with_a_mistake_is_not_written(run, tmp_path, text, options, told):
    result, lines = recording(run, tmp_path, text, *options)
    assert (result.exit_code != 0, lines) == (True, None)
    assert told in result.stderr


def test_a_recording_takes_the_place_of_no_file_and_flows_have_no_fabric(run, trace, tmp_path):
    kept = tmp_path / "kept.trace"
    kept.write_text("mine")
    taken = run("trace", "convert", str(trace), str(kept), "--to", "replay", "--fabric", DEMO)
    assert taken.exit_code == 1
    assert "exists: name a new file" in taken.stderr
    assert kept.read_text() == "mine"
    flows = run("trace", "convert", str(trace), str(tmp_path / "x"), "--fabric", DEMO)
    assert "add --to replay" in flows.stderr


def test_each_plan_has_the_time_that_is_given(run, trace, monkeypatch):
    given = []

    def compare(_fabric, _cut, limits, *_rest):
        given.append(limits.seconds)
        return []

    monkeypatch.setattr(trace_command, "compare", compare)
    for budget in ((), ("--budget-ms", "250")):
        assert run("trace", "plan", str(trace), "--fabric", "3x1", *budget).exit_code == 0
    assert given == [float("inf"), 0.25]
