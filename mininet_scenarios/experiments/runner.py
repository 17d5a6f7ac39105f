"""``hydra experiment``: runs experiments, keeps what they measured, and makes the report."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table as RichTable

from hydra.errors import HydraError
from mininet_scenarios import report
from mininet_scenarios.demo import sigterm_leaves
from mininet_scenarios.experiments import NAMES, load
from mininet_scenarios.experiments.frame import Experiment, Findings, Setting, Table
from mininet_scenarios.experiments.scaling import CALIBRATION_S, Rates, forwarded_mbps
from mininet_scenarios.narrator import ConsoleNarrator, Narrator
from mininet_scenarios.stage import ScenarioError

RESULT: Final = "result.json"
_WIDTH_IN_A_FILE: Final = 150


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for."""

    name: str
    full: bool
    repeat: int
    results: Path
    """The directory in which each experiment has one of its own."""
    divisor: int | None = None
    """Of the paper's rates, on a data plane; None calibrates."""

    @property
    def command(self) -> str:
        """What a user types for the same."""
        scale = "" if self.divisor is None else f" --scale 1:{self.divisor}"
        form = "full" if self.full else "short"
        return f"hydra experiment run {self.name} --scale {form}{scale} --repeat {self.repeat}"

    def calibrates(self, experiment: Experiment[Any]) -> bool:
        return experiment.needs_data_plane and self.divisor is None


def catalogue() -> list[dict[str, Any]]:
    """What experiments there are, as JSON types."""
    return [_description(load(name)) for name in NAMES]


def run(order: Order, console: Console) -> dict[str, Any]:
    """Run an experiment and write everything into ``results/NAME``; returns the result.

    What an earlier run left there is replaced once this one is complete, and not before. Raises
    HydraError for a run that can't be counted; logs stay in ``NAME.part`` then.
    """
    experiment = load(order.name)
    expected_s = order.repeat * experiment.expected_s(order.full)
    expected_s += CALIBRATION_S if order.calibrates(experiment) else 0.0
    with _part(order) as part:
        began_s = time.monotonic()
        runs = []
        with sigterm_leaves(), ConsoleNarrator(console, expected_s) as narrator:
            rates = _rates(order, experiment, part / "work" / "calibration", narrator)
            for seed in range(1, order.repeat + 1):
                if order.repeat > 1:
                    narrator.say(f"repetition {seed} of {order.repeat}")
                work_dir = part / "work" / str(seed)
                work_dir.mkdir(parents=True)
                measured = experiment.measure(Setting(order.full, seed, work_dir, rates), narrator)
                runs.append(measured)
                _write_json(part / f"raw-{seed}.json", _plain(measured))
        plots = [path.name for path in experiment.draw(runs, part)]
        seconds = time.monotonic() - began_s
        result = _document(order, experiment, experiment.conclude(runs), plots, seconds)
        _write_json(part / RESULT, result)
    return result


def _rates(order: Order, experiment: Experiment[Any], work_dir: Path, narrator: Narrator) -> Rates:
    if order.calibrates(experiment):
        return Rates(forwarded_mbps=forwarded_mbps(work_dir, narrator))
    return Rates(order.divisor)


@contextmanager
def _part(order: Order) -> Iterator[Path]:
    """A directory that takes the place of ``results/NAME`` at the end of the block."""
    final = order.results / order.name
    part = order.results / f"{order.name}.part"
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    except OSError as error:
        raise ScenarioError(f"{part} can't be made: {error.strerror}") from error
    with ExitStack() as removal:
        removal.callback(shutil.rmtree, part, ignore_errors=True)
        try:
            yield part
        except HydraError:
            removal.pop_all()  # its logs tell why
            raise
        removal.pop_all()
    shutil.rmtree(part / "work", ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    part.replace(final)


def _description(experiment: Experiment[Any]) -> dict[str, Any]:
    return {
        "name": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "topology": experiment.topology,
        "workload": experiment.workload,
        "policy": experiment.policy,
        "measured": experiment.measured,
        "needs_data_plane": experiment.needs_data_plane,
        "expected_short_s": experiment.expected_s(False),
        "expected_full_s": experiment.expected_s(True),
    }


def _document(
    order: Order,
    experiment: Experiment[Any],
    findings: Findings,
    plots: Sequence[str],
    seconds: float,
) -> dict[str, Any]:
    return {
        **_description(experiment),
        "command": order.command,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "machine": {
            "kernel": platform.release().partition("-")[0],  # the rest names a build
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
        },
        "rows": [asdict(row) for row in findings.rows],
        "tables": [asdict(table) for table in findings.tables],
        "plots": list(plots),
    }


def _plain(measured: object) -> dict[str, object]:
    if not is_dataclass(measured) or isinstance(measured, type):
        raise ScenarioError(f"{type(measured).__name__} is no dataclass: it can't be kept as JSON")
    return asdict(measured)


def _write_json(path: Path, document: object) -> None:
    try:
        path.write_text(json.dumps(document, indent=1, default=_as_list) + "\n", encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path} can't be written: {error.strerror}") from error


def _as_list(value: object) -> object:
    """Sets, and mappings that are not dictionaries."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def read_results(results: Path) -> list[dict[str, Any]]:
    """The results of all experiments that were run, in the order of the catalogue.

    Raises ScenarioError where there are none, or one can't be read.
    """
    found = []
    for name in NAMES:
        path = results / name / RESULT
        if not path.exists():
            continue
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise ScenarioError(f"{path} can't be read: {error}; run {name} again") from error
    if not found:
        raise ScenarioError(
            f"{results} holds no result: `hydra experiment run NAME` makes one of "
            f"{', '.join(NAMES)}"
        )
    return found


def print_result(result: dict[str, Any], console: Console) -> None:
    """Tables for the terminal."""
    rows = [report.Row(**row) for row in result["rows"]]
    console.print(report.table(rows, f"{result['title']} ({result['source']})"))
    for table in result["tables"]:
        console.print(_rich(Table(table["title"], tuple(table["columns"]), tuple(table["rows"]))))
    for why in dict.fromkeys(row.why for row in rows if row.why):
        console.print(f"- {why}", markup=False, highlight=False)


def _rich(table: Table) -> RichTable:
    rich = RichTable(title=table.title, title_justify="left")
    for number, column in enumerate(table.columns):
        rich.add_column(column, justify="right" if number else "left")
    for row in table.rows:
        rich.add_row(*row)
    return rich


def console_for(*, as_json: bool) -> Console:
    """Where to tell what is going on: stderr where stdout is for JSON."""
    console = Console(stderr=as_json)
    return console if console.is_terminal else Console(stderr=as_json, width=_WIDTH_IN_A_FILE)
