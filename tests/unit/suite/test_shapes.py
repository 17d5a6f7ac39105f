"""Limits for the sizes of classes, files and constructors."""

from pathlib import Path

import pytest

from .shapes import by_position, look_alike, python_files, too_large

ROOT = Path(__file__).parents[3]
PRODUCT = [ROOT / name for name in ("apps", "hydra", "drivers", "topology", "mininet_scenarios")]
ROOMS = [
    ROOT / name
    for name in ("apps/controller", "apps/demand", "apps/planning", "hydra/reconfiguration")
]
LARGE = {
    "mininet_scenarios/emulators/calient.py:CalientServer": "a method for each TL1 command",
    "mininet_scenarios/emulators/ocs.py:EmulatedOcs": "a method for each thing that a test may do",
}
"""Exceptions, with reasons. The list may only get shorter."""

ALIKE = {
    "apps/prices/pods.py:Figure": "the columns of a table, published beside ours",
    "hydra/reservations/admission.py:Alternative": "a start and an end",
    "hydra/reservations/availability.py:Available": "a start and an end",
    "hydra/reservations/calendar.py:Window": "a start and an end",
    "hydra/reservations/shape_search.py:Alternative": "a start and an end",
    "hydra/reservations/transfers.py:Alternative": "a start and an end",
    "hydra/reservations/transfers.py:Span": "a start and an end",
}
"""Calls with numbers that look alike, by position. The list may only get shorter."""


def found(roots, look):
    return {
        f"{path.relative_to(ROOT)}:{one.name}".rstrip(":"): one.words
        for path in python_files(roots)
        for one in look(path.read_text())
    }


def test_nothing_is_larger_than_one_can_hold_in_one_s_head():
    large = found(PRODUCT, too_large)
    assert {name: words for name, words in large.items() if name not in LARGE} == {}
    assert LARGE.keys() <= large.keys(), "these are small enough by now: take them off the list"


def test_constructors_of_rooms_take_what_looks_alike_by_name():
    some = found(ROOMS, by_position)
    assert some == {}


def test_numbers_that_look_alike_are_given_by_name():
    calls = look_alike(python_files(PRODUCT[:4]), ROOT)
    some = {f"{call.path.relative_to(ROOT)}:{call.name}" for call in calls}
    assert some - ALIKE.keys() == set()
    assert ALIKE.keys() <= some, "these are given by name by now: take them off the list"


def test_numbers_given_by_position_are_seen_where_another_looks_like_them(tmp_path):
    (tmp_path / "parts.py").write_text(
        "class Timer:\n    def __init__(self, name: str, least_s: float, most_s: float): ...\n"
        "@dataclass\nclass Rate:\n    mbps: float\n    share: int\n"
    )
    (tmp_path / "uses.py").write_text(
        "from parts import Timer, Rate\n"
        "Timer('a', 1.0, 2.0)\nTimer('b', 1.0, most_s=2.0)\nRate(1.0, 2)\n"
    )
    found = [*look_alike([tmp_path / "parts.py", tmp_path / "uses.py"], tmp_path)]
    assert [(call.path.name, call.line, call.names) for call in found] == [
        ("uses.py", 2, ["least_s", "most_s"])
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n" * 601, [("", "601 lines")]),
        ("x = 1\n" * 600, []),
        ("class A:\n" + "    x = 1\n" * 350, [("A", "351 lines")]),
        ("class A:\n" + "    x = 1\n" * 349, []),
        ("class A:\n" + "    def f(self): ...\n" * 31, [("A", "31 methods")]),
        ("class A:\n" + "    async def f(self): ...\n" * 30, []),
        (
            "class A:\n    def __init__(self):\n" + "        x = 1\n" * 60,
            [("A.__init__", "61 lines")],
        ),
        ("class A:\n    def f(self):\n" + "        x = 1\n" * 60, []),
    ],
)
def test_what_is_too_large_is_found(source, expected):
    assert list(too_large(source)) == expected


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class A:\n    def __init__(self, a, b, c, d): ...", "a, b, c, d"),
        ("class A:\n    def __init__(self, a, b, c, *, d): ...", None),
        ("@dataclass\nclass A:\n    a: int\n    b: int\n    c: int\n    d: int = 0", "a, b, c, d"),
        (
            "@dataclass(kw_only=True)\nclass A:\n    a: int\n    b: int\n    c: int\n    d: int",
            None,
        ),
        (
            "@dataclass\nclass A:\n    a: int\n    b: int\n    c: int\n    _: KW_ONLY\n    d: int",
            None,
        ),
        (
            "@dataclass\nclass A:\n    a: int\n    b: int\n    c: int\n"
            "    d: int = field(default=0, init=False)",
            None,
        ),
        ("class A:\n    a: int\n    b: int\n    c: int\n    d: int", None),
    ],
)
def test_what_is_given_by_position_is_found(source, names):
    expected = [] if names is None else [("A", f"by position: {names}")]
    assert list(by_position(source)) == expected
