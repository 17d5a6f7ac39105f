"""Messages of OVSDB, with long sets of numbers looked up instead of parsed."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers.codecs.ovsdb import Messages, OvsdbError, SharedSets

ALL = list(range(100, 4000))
SETS = st.sets(st.integers(0, 4095), max_size=80).map(lambda some: ["set", sorted(some)])
VALUES = (
    st.integers() | st.text() | SETS | st.just(["set", ALL]) | st.just(["set", [["uuid", "a"]]])
)
MESSAGES = st.dictionaries(st.sampled_from(["id", "result", "method"]), VALUES, min_size=1)


def encoded(message):
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def as_read(value):
    """The expected value: a frozen set for a long set, else the value itself."""
    if isinstance(value, list) and len(value[1]) > 40:
        return frozenset(value[1])
    return value


def agrees(read, written):
    """A set of middle length may be either, depending on the length of its text."""
    return (
        read == written
        or read == as_read(written)
        or (isinstance(read, frozenset) and read == frozenset(written[1]))
    )


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_messages_in_pieces_are_told_apart(messages, data):
    stream = b"".join(map(encoded, messages))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    reader, found = Messages(), []
    for start, end in pairwise(sorted({0, len(stream), *cuts})):
        found += reader.receive(stream[start:end])
    assert [one.keys() for one in found] == [one.keys() for one in messages]
    for read, written in zip(found, messages, strict=True):
        assert all(agrees(read[key], written[key]) for key in written)


@settings(max_examples=25)
@given(st.lists(MESSAGES, min_size=1, max_size=2))
def test_bytes_one_by_one_give_the_same(messages):
    stream = b"".join(map(encoded, messages))
    whole, singly = Messages(), Messages()
    found = [one for n in range(len(stream)) for one in singly.receive(stream[n : n + 1])]
    assert found == whole.receive(stream)


def test_a_message_is_there_with_its_last_byte():
    for message in ({"id": ["set", ALL]}, {"id": ["set", [["uuid", "a"]]]}, {"id": '["set",['}):
        assert len(Messages().receive(encoded(message))) == 1


def test_ports_with_the_same_numbers_share_them():
    row = {"trunks": ["set", ALL]}
    (first,) = Messages().receive(encoded({"result": [row, row]}))
    (second,) = Messages().receive(encoded({"result": [row]}))
    one, other = (row["trunks"] for row in first["result"])
    assert one is other is second["result"][0]["trunks"]
    assert one == frozenset(ALL)


@given(st.frozensets(st.integers(0, 4095)))
def test_what_is_written_is_read_back_as_the_same_object(numbers):
    sets = SharedSets()
    text = sets.text(numbers)
    assert text.decode() == ",".join(map(str, sorted(numbers)))
    again = frozenset(list(numbers))
    if len(text) > 128:
        assert sets.numbers(text) is numbers
        assert sets.shared(again) is numbers
    else:
        assert sets.shared(again) == numbers


def test_sets_are_forgotten_before_they_are_too_many():
    sets = SharedSets()
    for first in range(1000):
        sets.text(frozenset(range(first, first + 100)))
    assert len(sets._sets) <= 128
    assert len(sets._texts) <= 128


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"id":["set",[1,1' + b",2" * 80 + b"]]}", "twice"),
        (b'{"id":["set",[1,x' + b",2" * 80 + b"]]}", "an element of a different type"),
        (b'{"id":["set",[1,,' + b",2" * 80 + b"]]}", "an element of a different type"),
        (b'{"id":{"hydra:set":0}}', "no JSON"),
        (b'{"id":{"hydra:set":"x"}}', "no JSON"),
        (b"[]", "no JSON object"),
        (b"nonsense", "no JSON"),
        (b'{"id":"\xff"}', "UTF-8"),
    ],
)
def test_what_is_no_message_is_explained(data, message):
    with pytest.raises(OvsdbError, match=message):
        Messages().receive(data)


def test_a_message_without_an_end_is_not_taken_for_ever():
    reader = Messages()
    with pytest.raises(OvsdbError, match="longer than"):
        for _ in range(100):
            reader.receive(b"[" + b" " * (1 << 20))
