"""Feed every driver codec many mutated inputs, and count errors that escape.

``python -m benchmarks.fuzz_codecs [INPUTS] [--codec NAME]``. Inputs are mutations of the inputs in
``tests/unit/drivers/corpus``. The codec reads each input at once and byte by byte, with equal
results; accepted inputs are encoded and read again, with equal results; every parser of values
reads each input, too. Anything except an event or the codec's own error is an escape: the input is
printed, and should be added to the corpus.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence

from benchmarks._report import Result, report, run_benchmark
from tests.unit.drivers.codec_inputs import CODECS, Codec

INPUTS = 30_000
SEED = 20261121
LONGEST = 2000


def mutated(chance: random.Random, kept: Sequence[bytes]) -> bytes:
    """Two kept inputs, spliced, with a few bytes changed, deleted or doubled."""
    first, second = chance.choice(kept), chance.choice(kept)
    data = bytearray(first[: chance.randrange(len(first) + 1)])
    data += second[chance.randrange(len(second) + 1) :]
    for _ in range(chance.randrange(6)):
        at = chance.randrange(len(data) + 1)
        end = at + chance.randrange(20)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case _:
                data[at:at] = chance.choice((b'"', b";", b"\r\n", b">\r\n", b"/*", b"*/", b"\\"))
    return bytes(data[:LONGEST])


def fuzz(codec: Codec, inputs: int) -> tuple[int, int, int]:
    """(Number of events, of protocol errors, of escapes)."""
    chance = random.Random(f"{SEED} {codec.name}")
    kept = [path.read_bytes() for path in codec.kept()]
    events = errors = escapes = 0
    for _ in range(inputs):
        data = mutated(chance, kept)
        try:
            outcome = codec.check(data)
        except Exception as escaped:  # the kind of error that the fuzzer looks for
            escapes += 1
            print(f"{codec.name}: {type(escaped).__name__}: {escaped}: {data!r}")
            continue
        events += len(outcome.events)
        errors += outcome.error is not None
    return events, errors, escapes


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_codecs")
    parser.add_argument("inputs", type=int, nargs="?", default=INPUTS, help="for each codec")
    names = [codec.name for codec in CODECS]
    parser.add_argument("--codec", choices=names, action="append", help="this one; repeatable")
    options = parser.parse_args(list(arguments))
    inputs: int = options.inputs
    if inputs < 1:
        parser.error(f"{inputs} inputs: at least 1 is needed")
    results = []
    for codec in (codec for codec in CODECS if codec.name in (options.codec or names)):
        started = time.perf_counter()
        events, errors, escapes = fuzz(codec, inputs)
        case = f"{codec.name}, {inputs} inputs"
        note = f"protocol errors told, {events} events, {time.perf_counter() - started:.0f} s"
        results.append(Result(case, "escapes", "inputs", "lower", escapes, errors, note, 0))
    return report("fuzz_codecs", results)


if __name__ == "__main__":
    run_benchmark(main)
