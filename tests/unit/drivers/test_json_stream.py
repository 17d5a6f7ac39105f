"""The JSON stream compared with the standard library."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.codecs.json_stream import JsonStream
from hydra.foreign_json import MOST_LEVELS, TOO_DEEP

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=8,
)
MESSAGES = st.lists(VALUES, max_size=4) | st.dictionaries(st.text(), VALUES, max_size=4)
BAD = ["nonsense", "12", '"text"', "[}", "{]", '{"a" 1}', "[NaN]"]


def parsed(parser, text):
    """(Value, rest of the text) by a parser of this kind."""
    left = text[parser.feed(text) :]
    assert parser.is_done()
    return parser.finish(), left


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.booleans(), st.data())
def test_messages_in_pieces_are_told_apart(messages, ascii_only, data):
    text = " ".join(json.dumps(one, ensure_ascii=ascii_only) for one in messages)
    cuts = data.draw(st.lists(st.integers(0, len(text))))
    stream, found = JsonStream(), []
    for start, end in pairwise(sorted({0, len(text), *cuts})):
        left = text[start:end]
        while left:
            left = left[stream.feed(left) :]
            if stream.is_done():
                found.append(stream.finish())
                stream = JsonStream()
    assert found == messages


@given(MESSAGES)
def test_bytes_one_by_one_give_the_same(message):
    stream = JsonStream()
    for character in json.dumps(message, indent=1):
        assert not stream.is_done()
        assert stream.feed(character) == 1
    assert stream.is_done()
    assert stream.finish() == message


@given(st.text(alphabet='{}[]",:\\a1 \n'))
def test_it_takes_what_the_standard_library_takes(text):
    try:
        value, end = json.JSONDecoder().raw_decode(text.lstrip())
    except ValueError:
        value, end = None, 0
    ours = JsonStream()
    used = ours.feed(text)
    if isinstance(value, dict | list):
        assert ours.is_done()
        assert ours.finish() == value
        assert text[used:] == text.lstrip()[end:]
    else:
        assert not ours.is_done() or isinstance(ours.finish(), str)


def test_an_object_may_stand_for_something_else():
    stream = JsonStream(lambda value: value.get("number", value))
    stream.feed('{"a": [{"number": 5}, {"b": {}}]}')
    assert stream.finish() == {"a": [5, {"b": {}}]}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_message_is_explained(text):
    value, _ = parsed(JsonStream(), text)
    assert isinstance(value, str)
    assert "no JSON" in value


def test_what_is_not_complete_is_said_to_be_so():
    stream = JsonStream()
    stream.feed('{"a": "}')
    assert not stream.is_done()
    assert stream.finish() == "the value is not complete"


def test_more_levels_than_anybody_means_are_refused_before_the_end():
    deepest, _ = parsed(JsonStream(), "[" * MOST_LEVELS + "]" * MOST_LEVELS)
    assert isinstance(deepest, list)
    assert parsed(JsonStream(), "[" * (MOST_LEVELS + 1))[0] == f"no JSON: {TOO_DEEP}"
