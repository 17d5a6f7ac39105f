"""Files meant to bring the reader down: each ends in an error, in a process of little memory.

Each file is read in a separate process, which may grow by 300 MB and work for five seconds, five
times the intended time: beyond these limits the process is killed, and the test fails.
"""

import json
import os
import subprocess
import sys

import pytest

from apps.process.configuration import load_configuration
from hydra.config.source import MOST_LEVELS, parse_yaml
from hydra.errors import ConfigError

from .conftest import CONFIGS

DEMO = (CONFIGS / "demo.yaml").read_text()
_READ = """
import json, os, resource, sys
from pathlib import Path
from apps.process.configuration import load_configuration
from hydra.errors import ConfigError

load_configuration(Path(sys.argv[1]))  # what is loaded once is no part of what a file costs
for name in sys.argv[2:]:
    child = os.fork()
    if child:
        print(json.dumps([name, os.waitpid(child, 0)[1]]), flush=True)
        continue
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + 300_000_000
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
    try:
        load_configuration(Path(name))
    except ConfigError as error:
        told = [str(problem) for problem in error.problems]
        print(json.dumps([name, told]), flush=True)
        os._exit(0)
    os._exit(3)
"""


def swap(old: str, new: str) -> str:
    assert old in DEMO
    return DEMO.replace(old, new, 1)


def merges(levels: int) -> str:
    """Mappings that each merge the previous mapping nine times."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, levels + 1)]
    return "\n".join(lines)


TEXTS = {
    "100,000 levels": ("racks: " + "[" * 100_000, "more than 64 levels deep"),
    "900 levels": ("racks: " + "[" * 900 + "]" * 900, "more than 64 levels deep"),
    "levels by aliases": (
        "\n".join(
            [f"a0: &a0 {'[' * 40}{']' * 40}", f"a1: &a1 {'[' * 40}*a0{']' * 40}", "racks: *a1"]
        ),
        "more than 64 levels deep",
    ),
    "a list within itself": ("racks: &a [*a]", "stands inside of its own anchor"),
    "many digits": (
        swap("rate_mbps: 10\n", f"rate_mbps: {'1' * 5000}\n"),
        "a number of 5000 digits",
    ),
    "digits of a range": (swap("r[1-4]", f"r[1-{'9' * 5000}]"), "more than 255 characters"),
    "digits of VLANs": (swap("circuits: 100-199", f"circuits: 1-{'9' * 5000}"), "not a range"),
    "a tag that can't be met": (swap("fabric: demo", 'fabric: !!int "zebra"'), "the tag"),
    "a bad time": (swap("fabric: demo", "fabric: !!timestamp x"), "the tag"),
    "an object": (swap("fabric: demo", "fabric: !!python/object:os.system x"), "the tag"),
    "a product of ranges": (
        swap("r[1-4]", f"r[{','.join(['1-65000'] * 10)}]"),
        "stands for 650000 names",
    ),
    "a power of ranges": (swap("r[1-4]", "r" + "[1-65000]" * 20), "the most is 65536"),
    "long names": (swap("r[1-4]", "r[1-65000]" + "x" * 60_000), "more than 255 characters"),
    "racks times servers": (
        swap("r[1-4]", "r[1-4000]").replace("h{rack}[1-2]", "h{rack}-[1-65000]"),
        "more than 65536 servers",
    ),
    "racks times servers times guests": (
        swap("r[1-4]", "r[1-4000]").replace(
            'mac: "', f'guests: [{",".join(["x"] * 1000)}]\n        mac: "'
        ),
        "more than 65536 guests",
    ),
    "racks": (swap("r[1-4]", "r[1-65000]"), "more than 4096 racks"),
    "racks times planes": (
        swap("  - racks: r[1-4]\n", f"  - racks: {['r[1-4]'] * 900}\n").replace(
            "    planes: p[1-2]\n", f"    planes: {['p[1-2]'] * 900}\n"
        ),
        "more than 65536 optical ports",
    ),
    "merged keys": (merges(9), "more than 250000 keys and values"),
    "aliases": (merges(9).replace("{<<: [", "[").replace("]}", "]"), "more than 250000"),
    "many values": ("racks: [" + "1," * 7_000_000 + "1]", "more than 250000 keys and values"),
    "wrong values": ("racks: [" + "1," * 200_000 + "1]", "more problems"),
    "unknown keys": ("\n".join(f"k{n}: 1" for n in range(100_000)), "more problems"),
    "one key": ("k: 1\n" * 100_000, "and 99,998 more of the same kind"),
    "unknown racks": (swap("  - racks: r[1-4]", "  - racks: x[1-32000]"), "there is no rack 'x1'"),
    "a long text": (swap("fabric: demo", f"fabric: {'x' * 10_000_000}"), "65536 characters"),
    "a long template": (
        swap("10.0.{rack}.0/24", "{rack}" * 10_000),
        "template is longer than 4096 characters",
    ),
    "17 MiB": ("#" * (17 << 20), "more than 16777216 bytes"),
    "no text": ("\0" * 1000, "not YAML"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict:
    """By file: the reported problems, and the end of the process that read the file."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (text, _) in TEXTS.items():
        (folder / name).write_text(text)
    os.mkfifo(folder / "a FIFO")
    files = [*(folder / name for name in (*TEXTS, "a FIFO")), "/dev/zero", folder]
    run = subprocess.run(
        [sys.executable, "-c", _READ, CONFIGS / "demo.yaml", *files],
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    found: dict = {str(file).removeprefix(f"{folder}/"): ([], None) for file in files}
    for line in run.stdout.splitlines():
        name, value = json.loads(line)
        name = name.removeprefix(f"{folder}/")
        told, status = found[name]
        found[name] = (value, status) if isinstance(value, list) else (told, value)
    return found | {"a folder": found[str(folder)]}


@pytest.mark.takes(10)
@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_file_is_one_error(outcomes, name):
    told, status = outcomes[name]
    assert status == 0
    assert TEXTS[name][1] in "\n".join(told)
    assert len(told) <= 101
    assert max(map(len, told)) < 1000


@pytest.mark.takes(10)
@pytest.mark.parametrize("name", ["a FIFO", "/dev/zero"])
def test_only_regular_files_are_read(outcomes, name):
    assert outcomes[name] == (
        ["is not a regular file: write the configuration into a regular file"],
        0,
    )


@pytest.mark.takes(10)
def test_a_folder_is_no_configuration(outcomes):
    told, status = outcomes["a folder"]
    assert status == 0
    assert len(told) == 1


def test_what_is_just_within_bounds_is_read():
    levels = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert parse_yaml(levels).data is not None
    repeated = parse_yaml(f"a: &a [{'1,' * 999}]\nb: [{'*a,' * 200}]").data
    assert len(repeated["b"]) == 200


@pytest.mark.parametrize("hidden", ["\\e", "\\x9b", "\\u202e", "\\u2066", "\\u200f", "\\0"])
def test_what_a_terminal_would_obey_is_no_text(tmp_path, hidden):
    path = tmp_path / "fabric.yaml"
    path.write_text(DEMO.replace("fabric: demo", f'fabric: "de{hidden}mo"'))
    with pytest.raises(ConfigError, match=r"the invisible character U\+"):
        load_configuration(path)


@pytest.mark.parametrize("hidden", ["\\n", "\\t", "\\r"])
def test_a_name_is_one_line(tmp_path, hidden):
    path = tmp_path / "fabric.yaml"
    path.write_text(DEMO.replace("names: p[1-2]", f'names: "p{hidden}[1-2]"'))
    with pytest.raises(ConfigError) as refused:
        load_configuration(path)
    told = str(refused.value)
    assert f"planes[0].names: must be one line without tabs, got 'p{hidden}[1-2]'" in told
