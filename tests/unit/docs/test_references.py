"""Files and names in documents and docstrings exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from .blocks import DOCUMENTS, ROOT

PACKAGES = ("hydra", "topology", "drivers", "apps", "mininet_scenarios", "tests", "benchmarks")
FOLDERS = (*PACKAGES, "configs", "deploy", "docs", "scripts")
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*/]")
BARE_FILE = re.compile(r"`(\w+\.py)`")
MODULE = re.compile(rf"`(?:python -m )?((?:{'|'.join(PACKAGES)})(?:\.[a-zA-Z_]\w*)+)[` ]")
IMPORT = re.compile(rf"\b(?:from|import) ((?:{'|'.join(PACKAGES)})(?:\.\w+)+)")
ROLE = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?([\w.]+)`")
TEXTS = [document for document in DOCUMENTS if "results" not in document.parts]
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NO_MODULES = {
    "benchmarks.NAME",
    "hydra.algorithms",
    "hydra.commands",
    "hydra.drivers",
    "hydra.experiments",
    "hydra.gap",
    "hydra.reconfiguration.id",
    "topology.conf",
    "topology.yaml",
}
"""Any benchmark, groups of entry points, an event and an attribute of spans: names in the same
form.
"""
CHANGES = ROOT / "docs" / "architecture.md"


def missing_files(text: str) -> list[str]:
    """The start of a name suffices: ``docs/decisions/0002``."""
    return [name for name in FILE.findall(text) if not any(ROOT.glob(name.rstrip("/") + "*"))]


@cache
def looked_through(module: Path) -> tuple[str, frozenset[str]]:
    """Its docstrings and comments, and its defined and imported names, at any depth."""
    source = module.read_text()
    strings, names = [], set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name():
                names.add(node.id)
            case ast.Attribute():
                names.add(node.attr)
            case ast.Expr(value=ast.Constant(value=str(string))):
                strings.append(string)
            case ast.arg():
                names.add(node.arg)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.alias():
                names.update(node.name.split("."), [node.asname or ""])
    return "\n".join([*strings, *re.findall(r"#.*", source)]), frozenset(names)


def spoken(module: Path) -> str:
    return looked_through(module)[0]


def names_in(module: Path) -> frozenset[str]:
    return looked_through(module)[1]


def is_there(name: str) -> bool:
    """True if ``name``, from a package of HydRA on, is a module or an attribute of a module."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        rest = parts[count:]
        if place.is_dir() and (not rest or (place / "__init__.py").exists()):
            return not rest or set(rest) <= names_in(place / "__init__.py")
        for file in (place.with_suffix(".py"), place.with_suffix(".pyi")):
            if file.is_file():
                return set(rest) <= names_in(file)
    return False


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: path.name)
def test_documents_name_files_that_exist(document):
    text = document.read_text()
    assert missing_files(text) == []
    named = {path.name for path in SOURCES}
    assert [name for name in BARE_FILE.findall(text) if name not in named] == []


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: path.name)
def test_documents_name_modules_that_exist(document):
    named = set(MODULE.findall(document.read_text())) - NO_MODULES
    assert sorted(name for name in named if not is_there(name)) == []


def test_docstrings_and_comments_name_files_that_exist():
    missing = {
        str(path.relative_to(ROOT)): names
        for path in SOURCES
        if (names := missing_files(spoken(path)))
    }
    assert missing == {}


@pytest.mark.takes(7)
def test_docstrings_refer_to_what_is_there():
    dangling = []
    for path in SOURCES:
        for name in ROLE.findall(spoken(path)):
            first, *rest = name.split(".")
            known = is_there(name) if first in PACKAGES and rest else first in names_in(path)
            if not known:
                dangling.append(f"{path.relative_to(ROOT)}: {name}")
    assert dangling == []


def test_programs_in_strings_import_what_is_there():
    """Tests and benchmarks start small programs, which no linter reads."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in IMPORT.findall(path.read_text())
        if not is_there(name) and "no_such" not in name
    ]
    assert missing == []


def test_where_to_go_is_told_for_each_change():
    """Each row names a file or folder; the test above checks that they exist."""
    text = CHANGES.read_text()
    table = text.partition("## To change X, go to Y\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert 20 < len(rows) <= 25, "what a reader can find by name is not in it"
    for row in rows:
        _, change, places, told, _ = row.split("|")
        assert change.strip()
        assert 0 < len(set(FILE.findall(places))) <= 3, row
        assert "`docs/" in told or told.strip() == "this page", row


def test_what_is_gone_is_found():
    assert missing_files("see `hydra/no_such_room.py` and hydra/model.py") == [
        "hydra/no_such_room.py"
    ]
    assert is_there("hydra.model.Fabric")
    assert not is_there("hydra.model.NoSuchThing")
    assert not is_there("hydra.no_such_room")
