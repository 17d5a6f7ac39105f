import json

import pytest

from hydra.service import DemandReport, DemandSource

from . import DEMO


@pytest.fixture
def recorded(call, tmp_path, monkeypatch):
    """Readings, ended by a limit of the file's size: their number depends on the machine's load."""
    monkeypatch.setattr("apps.cli.replay._MIB", 300)
    path = tmp_path / "demand.trace"
    result = call("record", str(path), "--interval", "0.1", "--max-mib", "1")
    assert result.exit_code == 0, result.output
    assert f"readings in {path}" in result.stdout
    return path


def test_a_recording_is_replayed_side_by_side(run, recorded, tmp_path):
    plot = tmp_path / "what-if.png"
    result = run(
        *("replay", str(recorded), "--fabric", str(DEMO), "--plot", str(plot)),
        *("--what-if", "algorithm=edmonds", "--what-if", "gain_factor=1,epoch_s=2"),
    )
    assert result.exit_code == 0, result.output
    for variant in ("no circuits", "as configured (hydra-bfs)", "edmonds", "gain_factor=1"):
        assert variant in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_trace_within_an_epoch_is_remarked_on(run, tmp_path, monkeypatch):
    """Each variant then makes a single decision, and the comparison says little about the
    policies.
    """
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "short.trace"
    head = {"hydra_trace": 1, "fabric": "demo", "racks": ["r1", "r2", "r3", "r4"]}
    lines = [head | {"started_unix_s": 0.0}]
    lines += [{"at_s": at_s, "mbps": [[0, 1, 80.0]]} for at_s in range(7)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    replay = ("replay", str(path), "--fabric", str(DEMO), "--what-if", "epoch_s=1")
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in run(*replay).stdout.splitlines()
        if "│" in line
    ]
    remarks = {row[0]: row[-1] for row in rows}
    assert remarks["as configured (hydra-bfs)"] == (
        "one decision: 6 s are within epoch_s=10; shorten by --what-if"
    )
    assert (remarks["no circuits"], remarks["epoch_s=1"]) == ("", "")


def test_a_program_gets_every_moment(run, recorded):
    result = run("replay", str(recorded), "--fabric", str(DEMO), "--json")
    without, configured = json.loads(result.stdout)["runs"]
    assert (without["variant"], without["policy"]) == ("no circuits", None)
    assert configured["policy"]["algorithm"] == "hydra-bfs"
    readings = len(recorded.read_text().splitlines()) - 1  # the first line is the head
    assert len(configured["moments"]) == len(without["moments"]) == readings >= 1
    assert configured["moments"][0]["decision"] in {"change", "keep"}


def test_a_torn_last_line_is_left_out_with_a_word(run, recorded):
    lines = len(recorded.read_text().splitlines())
    with recorded.open("a") as file:
        file.write('{"at_s": 2, "mb\n')
    result = run("replay", str(recorded), "--fabric", str(DEMO))
    assert result.exit_code == 0, result.output
    assert f"line {lines + 1} is incomplete: skipping the line" in result.stderr


def test_readings_that_are_no_demand_are_left_out(call, service, tmp_path, monkeypatch):
    report = service.demand()
    none = DemandReport(
        DemandSource.NONE, report.rate_mbps, report.estimated_mbps, None, report.stale
    )
    monkeypatch.setattr(service, "demand", lambda: none)
    path = tmp_path / "empty.trace"
    result = call("record", str(path), "--interval", "0.1", "--duration", "0.15", "--json")
    assert json.loads(result.stdout) == {"file": str(path), "readings": 0}
    assert len(path.read_text().splitlines()) == 1


def test_a_file_that_exists_is_not_recorded_over(call, recorded):
    before = recorded.read_bytes()
    result = call("record", str(recorded))
    assert result.exit_code == 1
    assert "exists: name a new file" in result.stderr
    assert recorded.read_bytes() == before


@pytest.mark.parametrize(
    ("what_if", "says"), [("epoch=2", "did you mean"), ("algorithm=nonesuch", "nonesuch")]
)
def test_a_policy_that_makes_no_sense(run, recorded, what_if, says):
    result = run("replay", str(recorded), "--fabric", str(DEMO), "--what-if", what_if)
    assert result.exit_code == 1
    assert says in result.stderr


def test_a_file_that_is_not_there(run, tmp_path):
    result = run("replay", str(tmp_path / "none.trace"), "--fabric", str(DEMO))
    assert result.exit_code == 1
    assert "can't be read" in result.stderr


def test_a_recording_ends_before_its_file_is_too_large(call, tmp_path, monkeypatch):
    monkeypatch.setattr("apps.cli.replay._MIB", 300)
    path = tmp_path / "full.trace"
    result = call("record", str(path), "--interval", "0.1", "--max-mib", "1")
    assert result.exit_code == 0
    assert "is full: the last reading is whole" in result.stderr
    assert path.stat().st_size <= 300
