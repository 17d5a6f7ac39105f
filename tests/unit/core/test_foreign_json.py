"""The limit of levels in foreign JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.foreign_json import MOST_LEVELS, TooDeep, loads

TEXTS = st.text(alphabet='{}[]",:\\a1 \n')
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS, lambda some: st.lists(some) | st.dictionaries(TEXTS, some)
)


@given(
    VALUES, st.integers(0, MOST_LEVELS + 10), st.booleans(), st.sampled_from(["utf-8", "utf-16"])
)
def test_only_levels_count_and_no_bracket_of_a_text(value, more, of_objects, encoding):
    levels = more + levels_of(value)
    for _ in range(more):
        value = {"[": value} if of_objects else [value, []]
    for text in (json.dumps(value), json.dumps(value).encode(encoding)):
        if levels > MOST_LEVELS:
            with pytest.raises(TooDeep, match="more than 64 levels"):
                loads(text)
        else:
            assert loads(text) == value


def levels_of(value: object) -> int:
    if not isinstance(value, list | dict):
        return 0
    within = value.values() if isinstance(value, dict) else value
    return 1 + max(map(levels_of, within), default=0)


@given(TEXTS)
def test_other_texts_are_as_the_standard_library_has_them(text):
    try:
        expected = json.loads(text)
    except ValueError as error:
        with pytest.raises(type(error)) as caught:
            loads(text)
        assert str(caught.value) == str(error)
    else:
        assert loads(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 50_000, "more than 64 levels"),
        ('{"a":' * 50_000, "more than 64 levels"),
        ('["' + "[" * 50_000, "Unterminated string"),
    ],
)
def test_a_text_without_end_is_refused_as_what_it_is(text, told):
    with pytest.raises(ValueError, match=told):
        loads(text)


def test_many_values_beside_each_other_are_not_deep():
    assert loads("[" + ",".join(["[[]]"] * 1_000) + "]") == [[[]]] * 1_000
