"""``hydra experiment``: runs experiments, keeps measurements, and draws conclusions."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console
from rich.table import Table as RichTable

from apps.traces.reading import summarise
from hydra.errors import HydraError
from mininet_scenarios.experiments import EXPERIMENTS, load, repetitions
from mininet_scenarios.experiments.directories import held
from mininet_scenarios.experiments.frame import Experiment, Setting, Table
from mininet_scenarios.experiments.repetitions import Begun, Kept
from mininet_scenarios.experiments.scaling import (
    BUSY_SHARE,
    CALIBRATION_S,
    Rates,
    forwarded_mbps,
)
from mininet_scenarios.reporting.narrator import ConsoleNarrator, Narrator
from mininet_scenarios.reporting.table import Row, table
from mininet_scenarios.stage import mpi
from mininet_scenarios.stage.interruption import sigterm_leaves
from mininet_scenarios.stage.stage import ScenarioError

RESULT: Final = "result.json"
_CIRCUMSTANCES: Final = ("command", "finished", "seconds", "forwarded_mbps", "machine")
"""Keys of a result unchanged by conclusions."""
_WIDTH_IN_A_FILE: Final = 150


@dataclass(frozen=True, slots=True)
class Order:
    """An order to run an experiment."""

    name: str
    full: bool
    repeat: int
    """Number of repetitions in all."""
    results: Path
    """The directory with a folder for each experiment."""
    divisor: int | None = None
    """Divisor of the paper's rates, on a data plane; None calibrates."""
    goes_on: bool = False
    """True keeps the repetitions measured by an earlier run, and adds the missing repetitions."""
    trace: Path | None = None
    """Trace, for an experiment with a trace; None: the sample."""
    fabric: Path | None = None
    """Fabric file, for an experiment on any fabric; None: the experiment's own."""

    @property
    def trace_name(self) -> str | None:
        return None if self.trace is None else str(self.trace)

    @property
    def trace_sha256(self) -> str | None:
        return _sha256(self.trace)

    @property
    def fabric_name(self) -> str | None:
        return None if self.fabric is None else str(self.fabric)

    @property
    def fabric_sha256(self) -> str | None:
        return _sha256(self.fabric)

    @property
    def command(self) -> str:
        """Command line for the same order."""
        scale = "" if self.divisor is None else f" --scale 1:{self.divisor}"
        form = "full" if self.full else "short"
        trace = "" if self.trace_name is None else f" --trace {shlex.quote(self.trace_name)}"
        trace += "" if self.fabric_name is None else f" --fabric {shlex.quote(self.fabric_name)}"
        options = f"--scale {form}{scale} --repeat {self.repeat}{trace}"
        return f"hydra experiment run {self.name} {options}"

    def calibrates(self, experiment: Experiment[Any]) -> bool:
        return experiment.needs_data_plane and self.divisor is None


def _sha256(path: Path | None) -> str | None:
    """Digest of a file's present contents. Raises OSError for an unreadable file."""
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def calibrate(console: Console) -> dict[str, float]:
    """Measure the rate that this machine forwards, and the largest rate of experiments, in Mb/s."""
    with (
        TemporaryDirectory(prefix="hydra-calibration-") as work,
        sigterm_leaves(),
        ConsoleNarrator(console, CALIBRATION_S) as narrator,
    ):
        mbps = forwarded_mbps(Path(work) / "calibration", narrator)
    return {"forwarded_mbps": mbps, "carried_mbps": BUSY_SHARE * mbps}


def catalogue() -> list[dict[str, Any]]:
    """All experiments, as JSON types."""
    return [_description(experiment) for experiment in EXPERIMENTS.values()]


def run(order: Order, console: Console) -> dict[str, Any]:
    """Run an experiment and write everything into ``results/NAME``; returns the result.

    Results of an earlier run are replaced once the new run is complete, and not before. Raises
    HydraError for a run that can't be counted; then logs and complete repetitions stay in
    ``NAME.part``.
    """
    experiment = load(order.name)
    if order.trace is not None:
        _check_trace(order.trace, experiment)
    if order.fabric is not None:
        _check_fabric(order.fabric, experiment)
    with _part(order, console) as part:
        earlier = part if repetitions.count(part) else order.results / order.name
        kept = repetitions.read(earlier, experiment) if _continues(order, earlier) else None
        _check_same(order, kept, earlier)
        runs = [] if kept is None else list(kept.runs)
        missing = order.repeat - len(runs)
        calibrates = kept is None and order.calibrates(experiment)
        expected_s = missing * experiment.expected_s(order.full)
        expected_s += CALIBRATION_S if calibrates else 0.0
        began_s = time.monotonic()
        with sigterm_leaves(), ConsoleNarrator(console, expected_s) as narrator:
            if experiment.needs_mpi and missing > 0:
                _check_mpi(part / "work" / "mpi")
            if kept is None:
                rates = _rates(order, calibrates, part, narrator)
                begun = Begun(
                    order.full,
                    rates,
                    0.0,
                    order.trace_name,
                    order.trace_sha256,
                    order.fabric_name,
                    order.fabric_sha256,
                )
            else:
                begun = kept.begun
                narrator.say(f"{_repetitions(len(runs))} measured already")
            earlier_s = begun.seconds
            for seed in range(len(runs) + 1, order.repeat + 1):
                if order.repeat > 1:
                    narrator.say(f"repetition {seed} of {order.repeat}")
                work_dir = part / "work" / str(seed)
                work_dir.mkdir(parents=True)
                setting = Setting(
                    order.full, seed, work_dir, begun.rates, order.trace, order.fabric
                )
                runs.append(experiment.measure(setting, narrator))
                begun = replace(begun, seconds=earlier_s + time.monotonic() - began_s)
                repetitions.write(part, begun, runs)
        repetitions.write(part, begun, runs)
        order = replace(order, repeat=len(runs), divisor=begun.rates.asked)
        return _concluded(experiment, runs, _circumstances(order, begun), part)


def conclude(name: str, results: Path) -> dict[str, Any]:
    """Make figures and plots anew from the raw data in ``results/NAME``; returns the result.

    The record of order, time and machine stays unchanged. Raises ScenarioError, and changes
    nothing, if there are no raw data, or the raw data have a different form than this version's
    measurements.
    """
    directory = results / name
    experiment = load(name)
    earlier = _read_result(directory / RESULT, name)
    if not repetitions.count(directory):
        raise ScenarioError(f"{directory} holds no raw data (raw-1.json): run {name} again")
    kept = repetitions.read(directory, experiment)
    earlier["forwarded_mbps"] = kept.begun.rates.forwarded_mbps
    if missing := [key for key in (*_CIRCUMSTANCES, "plots") if key not in earlier]:
        raise ScenarioError(f"{directory / RESULT} lacks {', '.join(missing)}: run {name} again")
    circumstances = {key: earlier[key] for key in _CIRCUMSTANCES}
    try:
        with TemporaryDirectory(dir=results, prefix=f".{name}-") as made:
            result = _concluded(experiment, kept.runs, circumstances, Path(made))
            for plot in earlier["plots"]:
                (directory / plot).unlink(missing_ok=True)
            for path in Path(made).iterdir():
                path.replace(directory / path.name)
    except OSError as error:
        raise ScenarioError(f"{directory} can't be written: {error.strerror}") from error
    return result


def _concluded(
    experiment: Experiment[Any],
    runs: Sequence[Any],
    circumstances: Mapping[str, Any],
    directory: Path,
) -> dict[str, Any]:
    """The result, written into a directory together with the result's plots."""
    findings = experiment.conclude(runs)
    rows = [_explained(row, experiment) for row in findings.rows]
    result = {
        **_description(experiment),
        **circumstances,
        "rows": [asdict(row) for row in rows],
        "tables": [asdict(table) for table in findings.tables],
        "plots": [path.name for path in experiment.draw(runs, directory)],
    }
    repetitions.write_json(directory / RESULT, result)
    return result


def _explained(row: Row, experiment: Experiment[Any]) -> Row:
    """A row that misses its target has a reason, or a remedy if the experiment knows no reason."""
    if row.met is not False or row.why:
        return row
    remedy = (
        "A busy machine measures other figures: repeat with nothing else running, with --repeat 3, "
        "or at a smaller scale (--scale 1:N)."
        if experiment.needs_data_plane
        else "Other seeds show whether the workload is the reason: --repeat 3."
    )
    return replace(row, why=f'No reason is known for "{row.figure}". {remedy}')


def _check_trace(trace: Path, experiment: Experiment[Any]) -> None:
    """Raise HydraError for an unreadable trace, before anything is built."""
    if not experiment.takes_trace:
        takers = ", ".join(
            name for name, experiment in EXPERIMENTS.items() if experiment.takes_trace
        )
        raise ScenarioError(f"{experiment.name} plays no trace: leave out --trace, or run {takers}")
    summarise(trace)


def _check_fabric(fabric: Path, experiment: Experiment[Any]) -> None:
    """Raise HydraError for a fabric that does not suit, before anything is built."""
    if experiment.takes_fabric is None:
        takers = ", ".join(
            name for name, experiment in EXPERIMENTS.items() if experiment.takes_fabric
        )
        raise ScenarioError(
            f"{experiment.name} has a fabric of its own: leave out --fabric, or run {takers}"
        )
    experiment.takes_fabric(fabric)


def _check_mpi(work_dir: Path) -> None:
    """Raise HydraError if MPI programs can't run, before anything is built."""
    work_dir.mkdir(parents=True)
    mpi.check_installed(work_dir)


def _continues(order: Order, earlier: Path) -> bool:
    return order.goes_on and repetitions.count(earlier) > 0


def _rates(order: Order, calibrates: bool, part: Path, narrator: Narrator) -> Rates:
    if calibrates:
        return Rates(forwarded_mbps=forwarded_mbps(part / "work" / "calibration", narrator))
    return Rates(order.divisor)


def _check_same(order: Order, kept: Kept[Any] | None, earlier: Path) -> None:
    """Raises ScenarioError unless more repetitions would compare with the kept repetitions."""
    if kept is None:
        return
    asked = order.divisor
    if kept.begun.full != order.full or (asked is not None and asked != kept.begun.rates.asked):
        form = "full" if kept.begun.full else "short"
        measured = kept.begun.rates.asked
        scale = "as calibrated" if measured is None else f"1:{measured}"
        raise ScenarioError(
            f"{earlier} holds repetitions of the {form} form, rates {scale}: continue with the "
            "same --scale, or begin anew without --continue"
        )
    if not kept.begun.same_trace(order.trace_name, order.trace_sha256):
        what = "the sample" if kept.begun.trace is None else kept.begun.trace
        changed = "" if kept.begun.trace != order.trace_name else " as it was then"
        raise ScenarioError(
            f"{earlier} holds windows of {what}{changed}: continue with the same --trace, or begin "
            "anew without --continue"
        )
    if kept.begun.fabric_sha256 != order.fabric_sha256:
        what = "the experiment's own fabric" if kept.begun.fabric is None else kept.begun.fabric
        changed = "" if kept.begun.fabric != order.fabric_name else " as it was then"
        raise ScenarioError(
            f"{earlier} holds repetitions on {what}{changed}: continue with the same --fabric, or "
            "begin anew without --continue"
        )


@contextmanager
def _part(order: Order, console: Console) -> Iterator[Path]:
    """A directory that takes the place of ``results/NAME`` at the end of the block.

    If the block fails, complete repetitions stay in the directory, and logs after an error. Raises
    ScenarioError while another run of the experiment writes into the directory.
    """
    final = order.results / order.name
    part = (order.results / f"{order.name}.part").resolve()  # for programs with another directory
    with held(part):
        left = repetitions.count(part)
        if left and not order.goes_on:
            raise ScenarioError(
                f"{part} holds what an interrupted run measured ({_repetitions(left)}): go on with "
                "it (--continue), or remove it"
            )
        for path in [part / "work"] if left else list(part.iterdir()):
            _remove(path)
        with ExitStack() as leaving:
            leaving.callback(_leave_repetitions, part, console)
            try:
                yield part
            except HydraError:
                leaving.pop_all()  # the logs show the reason
                _report_repetitions(part, console)
                _report_logs(part, order, console)
                raise
            leaving.pop_all()
        shutil.rmtree(part / "work", ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        part.replace(final)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _leave_repetitions(part: Path, console: Console) -> None:
    """Remove everything but complete repetitions."""
    _report_repetitions(part, console)
    shutil.rmtree(part / "work" if repetitions.count(part) else part, ignore_errors=True)


def _report_repetitions(part: Path, console: Console) -> None:
    if left := repetitions.count(part):
        console.print(f"{_repetitions(left)} kept in {part}: --continue goes on with them")


def _report_logs(part: Path, order: Order, console: Console) -> None:
    """Name the logs of a run that can't be counted; a run without logs leaves nothing."""
    if any(path.is_file() for path in (part / "work").rglob("*")):
        console.print(
            f"logs are in {part / 'work'}, until the next run of {order.name}", soft_wrap=True
        )
    elif not repetitions.count(part):
        shutil.rmtree(part, ignore_errors=True)


def _repetitions(number: int) -> str:
    return "1 repetition" if number == 1 else f"{number} repetitions"


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
        "needs_mpi": experiment.needs_mpi,
        "expected_short_s": experiment.expected_s(False),
        "expected_full_s": experiment.expected_s(True),
    }


def _circumstances(order: Order, begun: Begun) -> dict[str, Any]:
    return {
        "command": order.command,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": begun.seconds,
        "forwarded_mbps": begun.rates.forwarded_mbps,
        "machine": {
            "kernel": platform.release().partition("-")[0],  # the rest names a build
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
        },
    }


def read_results(results: Path) -> list[dict[str, Any]]:
    """The results of all experiments run so far, in the order of the catalogue.

    Raises ScenarioError without any result, or for an unreadable result.
    """
    found = []
    for name in EXPERIMENTS:
        path = results / name / RESULT
        if path.exists():
            found.append(_read_result(path, name))
    if not found:
        raise ScenarioError(
            f"{results} holds no result: `hydra experiment run NAME` makes one of "
            f"{', '.join(EXPERIMENTS)}"
        )
    return found


def _read_result(path: Path, name: str) -> dict[str, Any]:
    """Read a result. Raises ScenarioError for an unreadable result."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path} can't be read: {error}; run {name} again") from error
    if not isinstance(result, dict):
        raise ScenarioError(f"{path} is no result, but {str(result)[:40]!r}: run {name} again")
    return result


def print_result(result: dict[str, Any], console: Console) -> None:
    """Print a result's tables on the terminal."""
    rows = [Row(**row) for row in result["rows"]]
    console.print(table(rows, f"{result['title']} ({result['source']})"))
    for found in result["tables"]:
        console.print(_rich(Table(found["title"], tuple(found["columns"]), tuple(found["rows"]))))
    for why in dict.fromkeys(row.why for row in rows if row.why):
        console.print(f"- {why}", markup=False, highlight=False)


def _rich(data: Table) -> RichTable:
    rich = RichTable(title=data.title, title_justify="left")
    for number, column in enumerate(data.columns):
        rich.add_column(column, justify="right" if number else "left")
    for row in data.rows:
        rich.add_row(*row)
    return rich


def console_for(*, as_json: bool) -> Console:
    """Console for progress: on stderr if stdout is for JSON."""
    console = Console(stderr=as_json)
    return console if console.is_terminal else Console(stderr=as_json, width=_WIDTH_IN_A_FILE)
