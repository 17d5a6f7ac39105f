"""Measure the worth of tests: count the random mutants of a room's code killed by its tests.

    .venv/bin/python scripts/mutants.py hydra/reservations --count 200 --seed 49

mutmut makes the mutants. Each mutant runs in a separate process, forked after pytest has collected
the tests. The tests that call the changed function run, quick tests first, until a test fails.
``build/mutants/ROOM/survivors.diff`` has the mutants on which no test fails, ``results.json`` the
test that killed each other mutant: by this sample, a test without kills could be removed. With
``--resume``, a run continues an earlier run of the same sources; with a larger ``--count``, it adds
to the same sample.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import venv
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest

MUTMUT = "mutmut==3.8.1"
TESTS = {
    "hydra/reconfiguration": ["tests/unit/reconfiguration"],
    "hydra/reservations": ["tests/unit/reservations"],
    "topology": ["tests/unit/topology"],
    "drivers/codecs": ["tests/unit/drivers", "tests/unit/openflow"],
    "apps/openflow": ["tests/unit/openflow"],
}
ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "mutants"
AT_A_TIME = 2
MEMORY_BYTES = 8 << 30  # a mutant may never stop filling a list
SLOW_S = 0.3
LIMIT_S = 5
WAITS_S = 100  # a longer test has failed: the mutant keeps some call waiting
FAILED = "failed"
NOTES = "../notes-{}"
PACKAGES = (
    *("apps", "drivers", "hydra", "hydra_hybrid_network_client", "mininet_scenarios"),
    "topology",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("room", choices=TESTS)
    parser.add_argument("--count", type=int, default=200, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=49)
    parser.add_argument("--long", action="store_true", help="run tests marked `takes`, too")
    parser.add_argument("--tests", nargs="+", help="files or folders, instead of the room's")
    parser.add_argument("--mutants", nargs="+", help="names of mutants, instead of a sample")
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run")
    options = parser.parse_args()
    environment, folder = WORK / "venv", WORK / options.room.replace("/", "-")
    if Path(sys.prefix) == environment:
        measure(options)
        return
    if not (environment / "installed").exists():
        install(environment)
    lay_out(folder, options.room)
    command = [environment / "bin" / "python", ROOT / "scripts" / "mutants.py", *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=folder, check=False).returncode)


def install(folder: Path) -> None:
    """Make a virtual environment with mutmut, and with this environment's packages and programs."""
    venv.create(folder, with_pip=True, clear=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "project.pth").write_text(f"{Path(sys.prefix) / site.relative_to(folder)}\n{ROOT}\n")
    subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", MUTMUT], check=True)
    for program in Path(sys.prefix, "bin").iterdir():
        if not (folder / "bin" / program.name).exists():
            (folder / "bin" / program.name).symlink_to(program)
    (folder / "installed").touch()


def lay_out(folder: Path, room: str) -> None:
    """Link the clone's files into the folder, beside mutmut's settings."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = sorted({line.split("/")[0] for line in listed.stdout.splitlines()})
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(ROOT / name)
    settings = {
        "source_paths": PACKAGES,
        "only_mutate": [f"{room}/*"],
        "also_copy": [name for name in names if name not in PACKAGES],
    }
    lines = ("\n    ".join([f"{key} =", *values]) for key, values in settings.items())
    (folder / "setup.cfg").write_text("\n".join(["[mutmut]", *lines]))


def measure(options: argparse.Namespace) -> None:
    """Run the mutants, and write the results into the working folder."""
    from mutmut import __main__ as mutmut

    made = Path("mutants/made")
    if not made.exists():  # remains of an interrupted run: mutmut would accept a torn file
        shutil.rmtree("mutants", ignore_errors=True)
    made.unlink(missing_ok=True)
    with mutmut.CatchOutput(spinner_title="Making mutants"):
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.create_mutants(AT_A_TIME)
    made.touch()
    found, _ = mutmut.collect_source_file_mutation_data(mutant_names=())
    everything = sorted(name for _, name, _ in found)
    results = Path("results.json").absolute()
    plugin = Mutants(options.mutants or draw(everything, options.count, options.seed), results)
    if options.resume and results.exists():
        plugin.take_over(json.loads(results.read_text()))
    sys.path.insert(0, str(Path("mutants").absolute()))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    marker = "not ovs and not quiet" + ("" if options.long else " and not takes")
    arguments = ["-s", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir=."]
    arguments.append(f"--timeout={WAITS_S}")
    with contextlib.chdir("mutants"):
        pytest.main(
            [*arguments, "-m", marker, *(options.tests or TESTS[options.room])], plugins=[plugin]
        )
    texts = (f"# {name}\n{mutmut.get_diff_for_mutant(name)}\n" for name in plugin.living())
    Path("survivors.diff").write_text("\n".join(texts))
    outcomes = Counter(outcome for outcome, _ in plugin.results.values())
    print(f"{options.room}, seed {options.seed}, of {len(everything)} mutants: {dict(outcomes)}")
    for file, (cpu_s, kills) in sorted(plugin.by_file().items(), key=lambda entry: -entry[1][0]):
        print(f"{cpu_s:8.1f} s, the first to kill {kills:3}: {file}")


def draw(names: list[str], count: int, seed: int) -> list[str]:
    """``count`` of the names, or all if there are fewer."""
    return random.Random(seed).sample(names, min(count, len(names)))


class Mutants:
    """Plugin of pytest that runs the tests once for each mutant, in separate processes."""

    def __init__(self, names: list[str], file: Path) -> None:
        self.names = names
        self.file = file
        self.results: dict[str, tuple[str, str | None]] = {}
        """Mutant -> outcome, and the test that failed or did not end."""
        self.calls: dict[str, list[str]] = {}
        """Test -> functions of the room called by the test, by mutmut's names."""
        self.cpu_s: dict[str, float] = {}
        self.takes: list[str] = []
        """Tests marked `takes`."""
        self.failed = False

    def take_over(self, earlier: Mapping[str, Any]) -> None:
        """Continue with the results of an earlier run."""
        found = {name: tuple(result) for name, result in earlier["results"].items()}
        self.results = {name: found[name] for name in self.names if name in found}
        self.calls, self.cpu_s = earlier["calls"], earlier["cpu_s"]

    def save(self) -> None:
        found = {"results": self.results, "calls": self.calls, "cpu_s": self.cpu_s}
        whole = self.file.with_suffix(".part")
        whole.write_text(json.dumps(found, indent=1))
        whole.replace(self.file)

    def living(self) -> list[str]:
        return sorted(name for name, (_, killer) in self.results.items() if killer is None)

    def by_file(self) -> dict[str, tuple[float, int]]:
        """File -> processor time of its tests in s, and number of mutants that it kills first."""
        kills = Counter(file_of(killer) for _, killer in self.results.values() if killer)
        seconds: Counter[str] = Counter()
        for test, cpu_s in self.cpu_s.items():
            seconds[file_of(test)] += cpu_s
        return {file: (cpu_s, kills[file]) for file, cpu_s in seconds.items()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        from hypothesis.internal.conjecture import engine  # after pytest's plugins

        engine.MAX_SHRINKS = 1  # any failing example will do
        self.takes = [item.nodeid for item in session.items if item.get_closest_marker("takes")]
        if not self.calls:
            fork(lambda notes: self.survey(session.items, notes))
            for test, cpu_s, functions in map(json.loads, ended()[1]):
                self.cpu_s[test], self.calls[test] = cpu_s, functions
            self.save()
        seconds = {file: cpu_s for file, (cpu_s, _) in self.by_file().items()}
        running: dict[int, str] = {}
        for name in [name for name in self.names if name not in self.results]:
            tests = self.tests_of(name, session.items, seconds)
            if len(running) == AT_A_TIME:
                self.judge(running)
            running[fork(partial(self.attack, name, tests))] = name
        while running:
            self.judge(running)
        return True

    def survey(self, items: list[pytest.Item], notes: TextIO) -> None:
        """Run the tests without a mutant: record their time, and the called functions."""
        from mutmut.mutation import trampoline
        from mutmut.state import state

        trampoline._mutant_under_test = "stats"
        for item, following in zip(items, [*items[1:], None], strict=True):
            start_s, self.failed = time.process_time(), False
            state()._stats.clear()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            cpu_s = time.process_time() - start_s
            if not self.failed:  # a failure without a mutant kills nothing
                print(json.dumps((item.nodeid, cpu_s, sorted(state()._stats))), file=notes)

    def tests_of(
        self, name: str, items: list[pytest.Item], seconds: Mapping[str, float]
    ) -> list[pytest.Item]:
        """Tests that call the mutant's function: quick tests first, tests marked `takes` last."""
        function = name.partition("__mutmut_")[0]
        chosen = [item for item in items if function in self.calls.get(item.nodeid, ())]
        return sorted(
            chosen,
            key=lambda item: (
                item.nodeid in self.takes,
                self.cpu_s[item.nodeid] > SLOW_S,
                seconds[file_of(item.nodeid)],
            ),
        )

    def attack(self, name: str, tests: list[pytest.Item], notes: TextIO) -> None:
        """Run the tests with the mutant until a test fails; note each start of a test."""
        from mutmut.mutation.trampoline import set_mutant_under_test

        set_mutant_under_test(name)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            limit_s = LIMIT_S + 10 * self.cpu_s[item.nodeid]
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + limit_s), hard))
            print(item.nodeid, file=notes)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                print(FAILED, file=notes)
                break

    def judge(self, running: dict[int, str]) -> None:
        """Wait for one of the mutants, and record its result."""
        pid, notes, status = ended()
        result: tuple[str, str | None]
        if not notes:
            result = "called by no test", None
        elif status:
            result = "does not end" if status == -signal.SIGXCPU else "crashes", notes[-1]
        else:
            killer = notes[-2] if notes[-1] == FAILED else None
            outcome = "killed by `takes` alone" if killer in self.takes else "killed"
            result = (outcome if killer else "survived", killer)
        self.results[running.pop(pid)] = result
        self.save()
        print(f"\r{len(self.results)} of {len(self.names)}", end="", file=sys.stderr, flush=True)


def file_of(test: str) -> str:
    return test.partition("::")[0]


def fork(work: Callable[[TextIO], None]) -> int:
    """Run the work in a child; returns its process id, and a file for its notes."""
    with warnings.catch_warnings(action="ignore"):  # packages that warn of forks beside threads
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with Path(NOTES.format(os.getpid())).open("w", buffering=1) as notes:
            work(notes)
        status = 0
    finally:
        os._exit(status)


def ended() -> tuple[int, list[str], int]:
    """Wait for a child; returns process id, notes, and exit status (below 0: the signal)."""
    pid, status = os.wait()
    path = Path(NOTES.format(pid))
    notes = path.read_text().splitlines()
    path.unlink()
    return pid, notes, os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
