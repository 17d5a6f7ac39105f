"""Read mutated fabric files in processes with little memory.

``python -m benchmarks.fuzz_files [--files N] [--first SEED] [--at-a-time N]``. Each file is one of
``configs/``, or two of them spliced, with a few changes: bytes, lines, numbers, names, or values
with past failures. The file is read as by ``hydra check``. Any outcome except a fabric or a
ConfigError is an escape: another exception, the end of the process, more than 1 s of processor
time, or more than 300 MB of additional memory. A fabric larger than the reference fabric has 1 s
for each 10,240 servers, the servers of the reference fabric. The seed of an escape is printed;
``--files 1 --first SEED`` reads the file again, and keeps the file.

An interrupted run continues: results so far are in ``results/benchmarks/fuzz_files.log`` until the
run is complete. Remove the log after a change of the code.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from rich.progress import Progress

from apps.process.configuration import load_configuration
from benchmarks._report import Result, report, run_benchmark
from hydra.errors import ConfigError

CONFIGS: Final = Path(__file__).parents[1] / "configs"
KEPT: Final = Path(__file__).parents[1] / "results" / "benchmarks" / "fuzz_files.log"
FILES: Final = 100_000
MOST_S: Final = 1.0
MOST_MB: Final = 300
SERVERS: Final = 10_240
"""Servers of ``configs/reference.yaml``."""
LONGEST_BYTES: Final = 1 << 20
_BATCH: Final = 200
_PATIENCE_S: Final = 30.0
_FINE: Final = ("a fabric", "a ConfigError")

VALUES: Final = (
    "~", "''", "[]", "{}", "-1", "0", "1e308", "1e-9", ".nan", ".inf", "0x", "9" * 5000, "true",
    "!!int x", "!!binary x", "!!python/object:os.system x", "2026-13-45", "1_0", "x" * 70_000,
    "\u202e", "\x00", "\ud7ff", "&a [*a]", "*a", "<<: *a", "[" * 3000, "{a: " * 500, "- " * 1000,
    "r[1-65000]", "[1-65000]" * 10, "{rack}" * 100, "{rack:9999999}", "{1/0}", "{9**9**9}",
    "10.0.0.0/0", "::/0",
)  # fmt: skip
"""Replacements for values: special cases of YAML, numbers, names, patterns and addresses."""


def mutated(chance: random.Random, kept: Sequence[str]) -> bytes:
    """A kept file with one to six changes."""
    text = chance.choice(kept)
    if chance.random() < 0.1:
        other = chance.choice(kept)
        text = text[: chance.randrange(len(text))] + other[chance.randrange(len(other)) :]
    lines = text.split("\n")
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                del lines[at : at + chance.randint(1, 4)]
                lines = lines or [""]
            case 1:
                lines[at:at] = lines[at : at + chance.randint(1, 30)]
            case 2:
                lines[at] = " " * chance.randrange(12) + lines[at].lstrip()
            case 3 | 4 | 5:
                key, colon, _ = lines[at].partition(":")
                lines[at] = f"{key}{colon} {chance.choice(VALUES)}"
            case 6:
                line = lines[at]
                place = chance.randrange(len(line) + 1)
                lines[at] = line[:place] + chance.choice(VALUES) + line[place:]
            case _:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
    data = bytearray("\n".join(lines).encode("utf-8", "surrogatepass"))
    for _ in range(chance.choice((0, 0, 0, 1, 5)) if data else 0):
        at = chance.randrange(len(data))
        data[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(data[:LONGEST_BYTES])


def file_of(seed: int) -> bytes:
    kept = [path.read_text(encoding="utf-8") for path in sorted(CONFIGS.glob("*.yaml"))]
    return mutated(random.Random(seed), kept)


@dataclass(frozen=True, slots=True)
class Read:
    seed: int
    outcome: str
    """One of ``_FINE``, or the escape."""
    took_s: float
    """Processor time in s."""
    grown_mb: float
    """Growth of the process's peak memory."""
    servers: int = 0
    """Number of servers of the fabric; 0 for a refused file."""

    @property
    def part_of_time(self) -> float:
        """Processor time, as a part of the limit."""
        return self.took_s / (MOST_S * max(1.0, self.servers / SERVERS))


def _used() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def read_all(seeds: Sequence[int], results: Connection) -> None:
    """In a separate process: read files one by one, and report the start and end of each."""
    taken = int(_used()[1]) << 20
    resource.setrlimit(resource.RLIMIT_DATA, (taken + (4 * MOST_MB << 20), resource.RLIM_INFINITY))
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        path = Path(file.name)
        for seed in seeds:
            results.send(seed)
            path.write_bytes(file_of(seed))
            began_s, began_mb = _used()
            servers = 0
            try:
                servers = len(load_configuration(path).fabric.servers)
                outcome = _FINE[0]
            except ConfigError:
                outcome = _FINE[1]
            except Exception as escaped:  # the kind of error that the fuzzer looks for
                outcome = f"{type(escaped).__name__}: {str(escaped)[:100]}"
            ended_s, ended_mb = _used()
            results.send(Read(seed, outcome, ended_s - began_s, ended_mb - began_mb, servers))
    results.send(None)


def run(seeds: Sequence[int]) -> Iterator[Read]:
    """Read all these files; a process that ends at a file is replaced."""
    left = list(seeds)
    while left:
        here, there = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=read_all, args=(left[:_BATCH], there)
        )
        process.start()
        there.close()
        seed = left[0]
        while True:
            try:
                heard = here.recv() if here.poll(_PATIENCE_S) else TimeoutError
            except EOFError:
                heard = EOFError
            if isinstance(heard, int):
                seed = heard
            elif isinstance(heard, Read):
                yield heard
                left.remove(heard.seed)
            else:
                break
        if heard is not None:
            process.kill()
            process.join()
            how = f"no end within {_PATIENCE_S:g} s" if heard is TimeoutError else "process ended"
            yield Read(seed, f"{how}, exit code {process.exitcode}", 0.0, 0.0)
            left.remove(seed)
        process.join()


def read_before() -> dict[int, Read]:
    """Results of an interrupted run, by seed."""
    if not KEPT.exists():
        return {}
    reads = (Read(**json.loads(line)) for line in KEPT.read_text().splitlines())
    return {read.seed: read for read in reads}


def escape_of(read: Read) -> str | None:
    if read.outcome not in _FINE:
        return read.outcome
    if read.part_of_time > 1:
        return f"{read.took_s:.1f} s of processor time"
    return f"{read.grown_mb:.0f} MB" if read.grown_mb > MOST_MB else None


def main(argv: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_files")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--at-a-time", type=int, default=1, metavar="N")
    given = parser.parse_args(argv)
    if given.files == 1:
        path = Path(tempfile.gettempdir()) / f"fabric-{given.first}.yaml"
        path.write_bytes(file_of(given.first))
        print(f"{path}: for hydra check")
    load_configuration(CONFIGS / "demo.yaml")  # imports at the first call do not count for a file
    reads, started_s = read_before(), time.monotonic()
    wanted = range(given.first, given.first + given.files)
    left = [seed for seed in wanted if seed not in reads]
    batches = [left[at : at + _BATCH] for at in range(0, len(left), _BATCH)]
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with (
        Progress(transient=True) as progress,
        KEPT.open("a") as kept,
        ThreadPoolExecutor(given.at_a_time) as pool,
    ):
        bar = progress.add_task("files", total=given.files, completed=given.files - len(left))
        for batch in pool.map(lambda seeds: list(run(seeds)), batches):
            progress.advance(bar, len(batch))
            for read in batch:
                reads[read.seed] = read
                print(json.dumps(asdict(read)), file=kept, flush=True)
                if (escape := escape_of(read)) is not None:
                    progress.console.print(f"seed {read.seed}: {escape}")
    KEPT.unlink()
    told_of = [reads[seed] for seed in wanted]
    outcomes = Counter(read.outcome for read in told_of)
    escapes = sum(escape_of(read) is not None for read in told_of)
    slowest = max(read.part_of_time for read in told_of)
    largest_mb = max(read.grown_mb for read in told_of)
    fabrics, refused = (outcomes[name] for name in _FINE)
    case = f"{given.files} files"
    note = f"refused; {fabrics} fabrics, {time.monotonic() - started_s:.0f} s"
    results = [
        Result(case, "escapes", "files", "lower", escapes, refused, note, 0),
        Result(case, "longest, of its time", "", "lower", slowest, 1.0, "allowed", 1.0),
        Result(case, "most memory for one", "MB", "lower", largest_mb, MOST_MB, "allowed", MOST_MB),
    ]
    return report("fuzz_files", results)


if __name__ == "__main__":
    run_benchmark(main)
