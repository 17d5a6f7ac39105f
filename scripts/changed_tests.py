"""Prints the unit tests of files changed since ``main``, committed or not, one path a line.

For a changed module: the tests of its room, ``tests/unit/<room>``, and the tests that import the
module; for a changed test: the test itself; for any other file: the tests that name the file; for a
document: the tests of documents.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import grimp

PACKAGES = (
    *("hydra", "topology", "drivers", "apps", "mininet_scenarios"),
    "hydra_hybrid_network_client",
)
UNIT = "tests/unit"
MOST_IMPORTERS = 40
"""If more tests import a module, the script prints only a hint at ``make test``."""


def main() -> None:
    changed = changed_files()
    graph = grimp.build_graph(*PACKAGES, "tests", cache_dir=".import_linter_cache")
    found = {test for path in changed for test in tests_of(path, graph)}
    inner = {path for path in found if any(parent in found for parent in parents(path))}
    print("\n".join(sorted(found - inner)))


def changed_files() -> list[str]:
    """Files changed on the branch and in the working tree, with new files and without deleted
    files.
    """
    base = next(
        (name for name in ("main", "origin/main") if git("rev-parse", "-q", "--verify", name)),
        "HEAD",
    )
    fork = git("merge-base", "HEAD", base) or ["HEAD"]
    listed = git("diff", "--name-only", "--relative", fork[0])
    listed += git("ls-files", "--others", "--exclude-standard")
    return [path for path in listed if Path(path).exists()]


def tests_of(path: str, graph: grimp.ImportGraph) -> Iterator[str]:
    if path.startswith(f"{UNIT}/") and PurePosixPath(path).name.startswith("test_"):
        yield path
    elif path.endswith(".py") and module_of(path) in graph.modules:
        yield from room_of(path)
        importers = {name for name in map(file_of, importing(path, graph)) if is_test(name)}
        if len(importers) <= MOST_IMPORTERS:
            yield from importers
        else:
            print(f"{path}: {len(importers)} tests import it; make test runs all", file=sys.stderr)
    else:
        yield from git(
            "grep", "-l", "--fixed-strings", PurePosixPath(path).name, "--", f"{UNIT}/**/test_*.py"
        )
        if path.endswith(".md"):
            yield f"{UNIT}/docs"


def importing(path: str, graph: grimp.ImportGraph) -> set[str]:
    """Modules that import the module, directly or by a helper of tests."""
    direct = graph.find_modules_that_directly_import(module_of(path))
    helpers = {name for name in direct if name.startswith("tests.") and not is_test(file_of(name))}
    return direct.union(*map(graph.find_modules_that_directly_import, helpers))


def room_of(path: str) -> Iterator[str]:
    package, *rest = PurePosixPath(path).with_suffix("").parts
    if package == "tests":
        return
    room = rest[0] if len(rest) > 1 and package not in {"drivers", "topology"} else package
    room = "core" if room == "hydra" else room
    if Path(UNIT, room).is_dir():
        yield f"{UNIT}/{room}"


def is_test(path: str) -> bool:
    return path.startswith(f"{UNIT}/") and "/test_" in path


def module_of(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"


def parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents]


def git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=False
    ).stdout.splitlines()


if __name__ == "__main__":
    main()
