"""``make test``: all stages run, and the summary has the command that repeats each failure."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("run_tests", ROOT / "scripts/run_tests.py")
run_tests = importlib.util.module_from_spec(SPEC)
sys.modules["run_tests"] = run_tests  # dataclasses look up the module
SPEC.loader.exec_module(run_tests)

TESTS = """
import pytest

def test_good():
    pass

@pytest.mark.skip(reason="no podman here")
def test_left_out():
    pass

class TestGroup:
    @pytest.mark.parametrize("value", ["a b", "it's"])
    def test_bad(self, value):
        assert value is None

@pytest.fixture
def broken():
    raise OSError("no such device")

def test_without_its_fixture(broken):
    pass
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory with tests, run by this Python."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_these.py").write_text(TESTS)
    (tmp_path / "tests/test_torn.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_tests, "PYTHON", sys.executable)
    run_tests.RESULTS.mkdir(parents=True)
    return tmp_path


@pytest.mark.takes(7)
def test_every_outcome_is_counted_and_every_failure_can_be_repeated(elsewhere):
    stage = run_tests.pytest_stage("tests", "", ["tests"], workers=("-n", "2"))
    result = run_tests.run(stage)
    assert result.status != 0
    assert result.counts == {"passed": 1, "failed": 4, "skipped": 1}
    assert result.skipped == [("tests/test_these.py::test_left_out", "no podman here")]
    assert sorted(result.failed) == [
        "tests/test_these.py::TestGroup::test_bad[a b]",
        "tests/test_these.py::TestGroup::test_bad[it's]",
        "tests/test_these.py::test_without_its_fixture",
        "tests/test_torn.py",
    ]
    said = run_tests.summary([result], 61.0, full=True)
    assert "1 passed, 4 failed, 1 skipped" in said
    assert "   1  no podman here" in said
    repeated = [line for line in said.splitlines() if "it'" in line]
    assert len(repeated) == 1
    again = subprocess.run(["sh", "-c", repeated[0]], capture_output=True, text=True, check=False)
    assert "1 failed" in again.stdout


def test_stages_after_a_failure_run(elsewhere, monkeypatch):
    def stage(name):
        return run_tests.Stage(
            name, (sys.executable, "-c", f"print('{name}'); raise SystemExit(3)")
        )

    monkeypatch.setattr(run_tests, "LINT", {"lint": stage("lint").command})
    monkeypatch.setattr(run_tests, "background_stages", lambda full: [stage("types")])
    monkeypatch.setattr(run_tests, "foreground_stages", lambda *_: [stage("a"), stage("b")])
    monkeypatch.setattr(run_tests, "quiet_stages", lambda *_: [stage("quiet")])
    results = run_tests.run_all(full=True, separate_networks=True)
    assert [result.stage.name for result in results] == ["lint", "a", "b", "types", "quiet"]
    assert [result.status for result in results] == [3] * 5
    said = run_tests.summary(results, 1.0, full=True)
    assert said.count("failed: exit status 3") == 5
    assert said.count("raise SystemExit(3)") == 5


EARLIER = '<testsuite><testcase file="a.py" classname="a" name="test_a"/></testsuite>'


def test_a_stage_that_leaves_no_report_has_failed(elsewhere):
    stage = run_tests.Stage(
        "tests", (sys.executable, "-c", "raise SystemExit(4)"), Path("none.xml")
    )
    stage.report.write_text(EARLIER)
    result = run_tests.run(stage)
    assert (result.status, result.counts.total()) == (4, 0)
    assert list(run_tests.repeating(result)) == [run_tests.shlex.join(stage.command)]


def test_only_a_run_deletes_the_report_of_an_earlier_one(elsewhere):
    report = run_tests.RESULTS / "tests.xml"
    report.write_text(EARLIER)
    stage = run_tests.pytest_stage("tests", "", ["no_such_folder"], workers=())
    assert report.exists()
    job = run_tests.Background(stage)
    assert not report.exists()
    job.kill()


@pytest.mark.parametrize(
    ("marks", "in_core", "in_full"),
    [
        (set(), "tests", "tests"),
        ({"takes"}, None, "tests"),
        ({"takes", "core"}, "tests", "tests"),
        ({"ovs"}, None, "switches"),
        ({"ovs", "takes"}, None, "switches"),
        ({"ovs", "takes", "core"}, "switches", "switches"),
        ({"quiet"}, None, "quiet"),
        ({"ovs", "quiet", "core"}, None, "quiet"),
    ],
)
def test_each_test_runs_in_one_stage_or_is_left_out(marks, in_core, in_full):
    for full, stage_wanted in ((False, in_core), (True, in_full)):
        stages = [*run_tests.foreground_stages(full, True), *run_tests.quiet_stages(full, True)]
        chosen = [
            stage.name
            for stage in stages
            if Expression.compile(stage.selection).evaluate(lambda name, **_: name in marks)
        ]
        assert chosen == ([] if stage_wanted is None else [stage_wanted])


def test_computing_tests_run_in_the_background_alone(monkeypatch):
    monkeypatch.chdir(ROOT)
    computing = next(
        stage for stage in run_tests.background_stages(True) if stage.name == "computing"
    )
    beside = next(iter(run_tests.foreground_stages(True, True)))
    for pattern in run_tests.COMPUTING:
        paths = [str(path) for path in Path().glob(pattern)]
        assert paths, f"no test is named {pattern}"
        assert set(paths) <= set(computing.command)
        assert f"--ignore-glob={pattern}" in beside.command


@pytest.mark.parametrize(
    ("uid", "missing_program", "told"),
    [
        (1000, False, "you are not root"),
        (0, True, "Debian package openvswitch-switch"),
        (0, False, "allows no network namespaces"),
    ],
)
def test_what_is_missing_is_said_in_one_line(monkeypatch, capsys, uid, missing_program, told):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    program = "/nonexistent/ovs-vswitchd" if missing_program else sys.executable
    monkeypatch.setattr(run_tests, "OPEN_VSWITCH", {program: "openvswitch-switch"})
    monkeypatch.setattr(run_tests, "can", lambda *command: False)
    monkeypatch.setattr(run_tests, "run_all", lambda *_, **__: pytest.fail("tests were begun"))
    assert run_tests.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert told in said.err
    assert '-m pytest -m "not ovs"' in said.err
