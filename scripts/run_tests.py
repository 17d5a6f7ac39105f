"""Run the stages of ``make test`` and print one summary at the end.

A failed stage does not stop the stages after it. The summary counts tests of each stage, lists
skipped tests with their reasons, and names for each failure the command that repeats the failure.
The exit status is 0 if everything passed, 1 if something failed, and 2 if this machine can't run
tests on Open vSwitch.

Without ``--full``, tests marked ``takes`` or ``ovs`` run only if they are marked ``core``, and
tests marked ``quiet`` do not run. CONTRIBUTING.md lists the tests left out.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from lxml import etree

RESULTS = Path("build/tests")
PYTHON = ".venv/bin/python"
OWN_NETWORK = "tests/own_network.sh"
OPEN_VSWITCH = {"/usr/sbin/ovs-vswitchd": "openvswitch-switch", "/usr/bin/mnexec": "mininet"}

AT_A_TIME = 4
"""pytest workers without Open vSwitch: more than processors, since tests wait for devices."""
NETWORKS = 5
QUIET = 2
BACKGROUND_NICENESS = 10
"""Stages in the background leave the processors to tests that wait for packets."""

COMPUTING = (
    "tests/unit/demo",
    "tests/unit/experiments",
    "tests/unit/forwarding",
    "tests/unit/offline",
    "tests/unit/reconfiguration",
    "tests/unit/reservations",
    "tests/unit/sharing",
    "tests/unit/topology",
    "tests/unit/traces",
    "tests/unit/config/test_patterns.py",
    "tests/unit/controller/test_requested_beside.py",
    "tests/unit/controller/test_early_stages.py",
    "tests/unit/docs/test_references.py",
    "tests/unit/drivers/test_*codec*.py",
    "tests/unit/drivers/test_json_stream.py",
    "tests/unit/openflow/test_rule_bytes.py",
)
"""Paths of tests that compute and never wait: they run in the background."""

LINT = {
    "format": (PYTHON, "-m", "ruff", "format", "--check", "."),
    "lint": (PYTHON, "-m", "ruff", "check", "."),
    "imports": (".venv/bin/lint-imports",),
}
TYPES = (PYTHON, "-m", "mypy", "--strict")


@dataclass(frozen=True, slots=True)
class Stage:
    """A command; for pytest, ``report`` is the JUnit file that pytest writes."""

    name: str
    command: Sequence[str]
    report: Path | None = None
    selection: str = ""
    """pytest's expression of markers."""
    repeat: Sequence[str] = ()
    """The command that repeats one test, without the test's id."""

    def forget_report(self) -> None:
        """Delete the report of an earlier run."""
        if self.report is not None:
            self.report.unlink(missing_ok=True)


@dataclass(slots=True)
class Result:
    """How a stage ended: exit status, duration in seconds, tests by outcome."""

    stage: Stage
    status: int
    took_s: float
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    """Ids of failed tests."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Ids of skipped tests, each with the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="the stages of make test")
    parser.add_argument("--full", action="store_true", help="all tests, not only the core")
    full = parser.parse_args(arguments).full
    obstacle = what_is_missing()
    if obstacle:
        print(
            f"make test: {obstacle}; tests without Open vSwitch run by: "
            f'{PYTHON} -m pytest -m "not ovs"',
            file=sys.stderr,
        )
        return 2
    began_s = time.monotonic()
    results = run_all(full, separate_networks=can(OWN_NETWORK, "-c", ""))
    print(summary(results, time.monotonic() - began_s, full=full), flush=True)
    return 0 if all(result.status == 0 for result in results) else 1


def what_is_missing() -> str:
    """Missing requirements of tests on Open vSwitch on this machine, in a few words; empty if
    none.
    """
    if os.geteuid() != 0:
        return "you are not root, and tests on Open vSwitch and Mininet need root"
    for program, package in OPEN_VSWITCH.items():
        if not Path(program).exists():
            return f"{program} is missing (Debian package {package})"
    if not can("unshare", "--net", "true"):
        return "this machine allows no network namespaces, which Mininet needs"
    return ""


def can(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run_all(full: bool, *, separate_networks: bool) -> list[Result]:
    """Run all stages: lint first, then types and computing tests beside the other tests."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = [run(Stage(name, command)) for name, command in LINT.items()]
    if not separate_networks:
        print("make test: no network namespaces with mounts of their own: one test at a time")
    background = [Background(stage) for stage in background_stages(full)]
    try:
        results += [run(stage) for stage in foreground_stages(full, separate_networks)]
        for job in background:
            job.hurry()
        for job in background:
            results.append(job.finish())
        # Quiet tests measure the machine: no other test may run at the same time.
        results += [run(stage) for stage in quiet_stages(full, separate_networks)]
    finally:
        for job in background:
            job.kill()
    return results


def background_stages(full: bool) -> Iterator[Stage]:
    yield Stage("types", TYPES)
    paths = [str(path) for pattern in COMPUTING for path in sorted(Path().glob(pattern))]
    yield pytest_stage(
        "computing", f"not ovs and not quiet{core(full)}", paths, workers=("-n", "2")
    )


def foreground_stages(full: bool, separate_networks: bool) -> Iterator[Stage]:
    elsewhere = [f"--ignore-glob={pattern}" for pattern in COMPUTING]
    yield pytest_stage(
        "tests", f"not ovs and not quiet{core(full)}", elsewhere, workers=("-n", str(AT_A_TIME))
    )
    yield pytest_stage(
        "switches",
        f"ovs and not quiet{'' if full else ' and core'}",
        ["tests/integration", "tests/conformance"],
        workers=networks(NETWORKS, separate_networks),
        repeat=(OWN_NETWORK, "-m", "pytest") if separate_networks else (),
    )


def quiet_stages(full: bool, separate_networks: bool) -> Iterator[Stage]:
    if full:
        yield pytest_stage(
            "quiet",
            "quiet",
            [],
            workers=networks(QUIET, separate_networks),
            repeat=(OWN_NETWORK, "-m", "pytest") if separate_networks else (),
        )


def core(full: bool) -> str:
    return "" if full else " and (core or not takes)"


def networks(number: int, separate_networks: bool) -> tuple[str, ...]:
    """Options of xdist for workers that each have a network and an Open vSwitch of their own."""
    return ("--tx", f"{number}*popen//python={OWN_NETWORK}") if separate_networks else ()


def pytest_stage(
    name: str,
    selection: str,
    paths: Sequence[str],
    *,
    workers: Sequence[str],
    repeat: Sequence[str] = (),
) -> Stage:
    # xdist begins with the files with most tests; tests/conftest.py has a better order.
    by_file = ("--dist", "loadfile", "--no-loadscope-reorder") if workers else ()
    report = RESULTS / f"{name}.xml"
    command = (
        *(PYTHON, "-m", "pytest", "-q", "-m", selection, *workers, *by_file),
        *("--durations", "25", "--durations-min", "2"),
        *("-o", "junit_family=xunit1", f"--junit-xml={report}"),  # with each test's file
        *paths,
    )
    return Stage(name, command, report, selection, repeat or (PYTHON, "-m", "pytest"))


def run(stage: Stage) -> Result:
    """Run a stage in the foreground; its output goes to the terminal."""
    print(f"\n== {stage.name}: {shlex.join(stage.command)}", flush=True)
    stage.forget_report()
    began_s = time.monotonic()
    status = subprocess.run(stage.command, check=False).returncode
    return result_of(stage, status, time.monotonic() - began_s)


class Background:
    """A stage that runs beside others with little priority; its output is printed at its end."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.forget_report()
        self._began_s = time.monotonic()
        self._output: IO[bytes] = (RESULTS / f"{stage.name}.log").open("w+b")
        # A separate process group: priority and signals then reach pytest's workers, too.
        self._process = subprocess.Popen(
            ("nice", "-n", str(BACKGROUND_NICENESS), *stage.command),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def hurry(self) -> None:
        """Give the stage the usual priority, if still running and if this user may do so."""
        try:
            os.setpriority(os.PRIO_PGRP, self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return

    def finish(self) -> Result:
        status = self._process.wait()
        took_s = time.monotonic() - self._began_s
        print(f"\n== {self.stage.name}: {shlex.join(self.stage.command)}", flush=True)
        self._output.seek(0)
        sys.stdout.buffer.write(self._output.read())
        sys.stdout.flush()
        return result_of(self.stage, status, took_s)

    def kill(self) -> None:
        """End the stage, if a signal or an error ended the other stages."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._output.close()


def result_of(stage: Stage, status: int, took_s: float) -> Result:
    result = Result(stage, status, took_s)
    if stage.report is not None:
        read_report(stage.report, result)
        # pytest's 5: a selection without tests.
        if status == 5 and not result.failed:
            result.status = 0
    return result


def read_report(path: Path, result: Result) -> None:
    """Fill in outcomes of tests. A missing or torn report leaves only the exit status."""
    try:
        cases = list(etree.parse(path).iter("testcase"))
    except (OSError, etree.ParseError):
        return
    for case in cases:
        name = test_id(case)
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            result.counts["failed"] += 1
            if name not in result.failed:
                result.failed.append(name)
        elif skipped is not None:
            result.counts["skipped"] += 1
            result.skipped.append((name, skipped.get("message", "")))
        else:
            result.counts["passed"] += 1


def test_id(case: etree._Element) -> str:
    """Id of a test in pytest, from JUnit's file, class and name."""
    file, name = case.get("file", ""), case.get("name", "")
    module = file.removesuffix(".py").replace("/", ".")
    if name == module:  # a file that could not be collected
        return file
    inner = case.get("classname", "").removeprefix(module).strip(".")
    return "::".join(filter(None, (file, *inner.split("."), name)))


def summary(results: Sequence[Result], took_s: float, *, full: bool) -> str:
    """The last lines of a run."""
    lines = ["", f"== {'all tests' if full else 'core'}, {minutes(took_s)}"]
    lines += [f"{result.stage.name:>10}  {said_of(result)}" for result in results]
    reasons = Counter(reason for result in results for _, reason in result.skipped)
    if reasons:
        lines += ["", "skipped:"]
        lines += [f"{count:>4}  {reason}" for reason, count in sorted(reasons.items())]
    failures = [command for result in results for command in repeating(result)]
    if failures:
        lines += ["", "failed; each line repeats one failure:", *failures]
    elif not full:
        lines += ["", "passed; make test FULL=1 runs what the core leaves out (CONTRIBUTING.md)"]
    else:
        lines += ["", "passed"]
    return "\n".join(lines)


def said_of(result: Result) -> str:
    counted = ", ".join(
        f"{result.counts[outcome]:,} {outcome}"
        for outcome in ("passed", "failed", "skipped")
        if result.counts[outcome]
    )
    if result.status != 0 and not result.failed:
        counted = ", ".join(filter(None, (counted, f"failed: exit status {result.status}")))
    return f"{counted or 'passed'}  ({minutes(result.took_s)})"


def repeating(result: Result) -> Iterator[str]:
    """The command that repeats each failure of a stage."""
    if result.status == 0:
        return
    for test in result.failed:
        yield shlex.join((*result.stage.repeat, test))
    if not result.failed:
        yield shlex.join(result.stage.command)


def minutes(seconds: float) -> str:
    whole, rest = divmod(round(seconds), 60)
    return f"{whole} min {rest} s" if whole else f"{rest} s"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
