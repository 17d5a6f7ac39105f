import re

import pytest

from apps.cli import output

ID = "7f3a9c41d0be"
COLUMNS = (
    "id",
    "from",
    "to",
    "Mb/s>",
    "there>",
    "back>",
    "state",
    "start",
    "end",
    "path",
    "reason",
)
ROW = (ID, "r1", "r2", "1,040.0", "1,030.0", "12.0", "active", "08:00 UTC", "-", "r1 =p1= r2", "")


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(output, "_WIDTH_OF_A_PIPE", 80)


def cells(line):
    return [cell.strip() for cell in line.strip("│\n").split("│")]


def test_an_id_is_whole_in_a_line_of_a_narrow_table(narrow, capsys):
    output.print_table("Reservations", COLUMNS, [ROW])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(cells(line)[0] == ID for line in lines)


def test_nothing_is_cut_off(narrow, capsys):
    long, longer = "x" * 100, "y" * 150
    output.print_table("Devices", ("device", "detail"), [(long, longer)])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert (shown.count("x"), shown.count("y")) == (100, 150)


def test_sentences_in_the_first_column_are_wrapped(narrow, capsys):
    output.print_table("Variants", ("variant", "remark"), [("as it was before " * 4, "z" * 60)])
    shown = capsys.readouterr().out
    assert len(re.findall("before", shown)) == 4
    assert shown.count("z") == 60
