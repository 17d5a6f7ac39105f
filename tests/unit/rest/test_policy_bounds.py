"""Every key of the policy accepts the same values in the file and over REST: the declared ones."""

import json
import math
from dataclasses import is_dataclass
from enum import Enum
from typing import Literal, get_args, get_origin

import pytest
from annotated_types import BaseMetadata, Ge, Gt, Interval, Le, MinLen

from hydra.config.schema import parse_document
from hydra.policy import Taken, policy_keys

KEYS = {
    f"{key.name}.{inner.name}" if inner else key.name: (key.name, inner, inner or key, key.taken)
    for key in policy_keys()
    for inner in (policy_keys(type(key.default)) if is_dataclass(key.default) else [None])
}
FOREIGN = sorted(
    {
        max((word.value for word in type(key.default)), key=len)
        for key in policy_keys()
        if isinstance(key.default, Enum)
    }
    | {"auto"}
)
"""A single word of each enumeration, to save time: the longest. Keys of other types refuse the
word; a text key accepts it, if not too long.
"""
NUMBERS = (-1, -0.001, 0, 0.001, 0.5, 1, 1.001, 3, 3.0)
ODD = (-math.inf, math.inf, math.nan, None, True, "", "3", "no-such", [], {}, [1], {"no_such": 1})


def limits(kind):
    """Each single limit in an annotation, at any depth."""
    for part in get_args(kind):
        if isinstance(part, Interval):
            yield from part
        elif isinstance(part, BaseMetadata):
            yield part
        else:
            yield from limits(part)


def keeps(limit, value):
    match limit:
        case Gt(gt):
            return value > gt
        case Ge(ge):
            return value >= ge
        case Le(le):
            return value <= le
        case MinLen(length):
            return len(value) >= length
    raise AssertionError(limit)


def words_of(key):
    """Words of an enumeration, or words in place of a number."""
    if isinstance(key.default, Enum):
        return [word.value for word in type(key.default)]
    return [
        word
        for part in get_args(key.type)
        if get_origin(part) is Literal
        for word in get_args(part)
    ]


def is_declared(key, value):
    """True if the key's type and limits permit this value."""
    if value is None:
        return key.null is not None
    if isinstance(key.default, Enum):
        return value in words_of(key)
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return False
    if words_of(key):
        whole = isinstance(value, int) and all(keeps(one, value) for one in limits(key.type))
        return value in words_of(key) or whole
    kinds = (int, float) if isinstance(key.default, float) else type(key.default)
    return isinstance(value, kinds) and all(keeps(one, value) for one in limits(key.type))


def around(key):
    """Values at each limit and on both sides of it."""
    for limit in limits(key.type):
        (edge,) = (getattr(limit, name) for name in limit.__match_args__[:1])
        yield from (edge - 1, edge - 1e-6, edge, edge + 1e-6, edge + 1)


@pytest.mark.parametrize("name", KEYS)
def test_file_and_rest_take_the_declared_values_and_no_others(name, client):
    outer, inner, key, taken = KEYS[name]
    verdicts = set()
    for value in (*NUMBERS, *ODD, *FOREIGN, *words_of(key), *around(key)):
        section = {outer: {inner.name: value} if inner else value}
        declared = is_declared(key, value)
        verdicts.add(declared)
        problems = [
            problem.path
            for problem in parse_document({"policy": section}).problems
            if problem.path[0] == "policy"
        ]
        assert problems == ([] if declared else [("policy", *name.split("."))]), value
        body = json.dumps(section)
        answer = client.patch(
            "/v1/policy", content=body, headers={"Content-Type": "application/json"}
        )
        if taken is Taken.AT_ONCE and declared:
            assert answer.status_code == 200, (value, answer.text)
        else:
            assert answer.status_code == 422, value
            pointer = outer if taken is not Taken.AT_ONCE else name.replace(".", "/")
            assert answer.json()["errors"][0]["pointer"] == f"/{pointer}"
    assert verdicts == {True, False}
