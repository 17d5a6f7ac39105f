"""Name ranges and templates."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra.config.patterns import (
    MAX_NAMES,
    PatternError,
    expand_names,
    parse_template,
    suggest,
)

NAMES = ("rack", "plane")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("r1", ["r1"]),
        ("r[1-3]", ["r1", "r2", "r3"]),
        ("r[9-11]", ["r9", "r10", "r11"]),
        ("r[08-10]", ["r08", "r09", "r10"]),
        ("x[a,c,1-2]y", ["xay", "xcy", "x1y", "x2y"]),
        ("s[1-2]-[a,b]", ["s1-a", "s1-b", "s2-a", "s2-b"]),
        ("r[5-5]", ["r5"]),
        ("[ a , b ]", ["a", "b"]),
    ],
)
def test_ranges(pattern, names):
    assert list(expand_names(pattern)) == names


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("r[2-1]", "backwards"),
        ("r[1-2", "unbalanced"),
        ("r1]", "unbalanced"),
        ("r[[1-2]]", "unbalanced"),
        ("r[]", "empty item"),
        ("r[1,,2]", "empty item"),
        (f"r[1-{MAX_NAMES + 1}]", "the most is"),
        ("r[1-999]-[1-999]", "the most is"),
    ],
)
def test_bad_ranges(pattern, words):
    with pytest.raises(PatternError, match=words):
        expand_names(pattern)


@given(
    st.text(string.ascii_letters, max_size=3),
    st.integers(0, 5000),
    st.integers(0, 300),
    st.integers(0, 6),
)
def test_a_range_is_every_number_once_in_order(prefix, first, count, width):
    start = f"{first:0{width}d}"
    names = expand_names(f"{prefix}[{start}-{first + count}]")
    numbers = [int(name.removeprefix(prefix)) for name in names]
    assert numbers == list(range(first, first + count + 1))
    assert len(set(names)) == len(names)
    assert names[0] == prefix + start


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4), max_size=3))
def test_brackets_multiply_the_last_one_fastest(choices):
    pattern = "-".join(f"[{','.join(choice)}]" for choice in choices)
    expected = [()]
    for choice in choices:
        expected = [(*names, name) for names in expected for name in choice]
    assert expand_names(pattern) == tuple("-".join(names) for names in expected)


@given(st.text())
def test_any_pattern_expands_or_is_refused(pattern):
    try:
        assert expand_names(pattern)
    except PatternError as error:
        assert str(error)


# --- templates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("10.0.{rack}.0/24", "10.0.12.0/24"),
        ("{rack:02x}:{plane:02x}", "0c:03"),
        ("{rack + plane * 2}", "18"),
        ("{(rack + plane) * 2}", "30"),
        ("{0x1000 + rack}", str(0x1000 + 12)),
        ("{rack - plane - 1}", "8"),
        ("{-rack + 20}", "8"),
        ("{rack // 5}.{rack % 5}", "2.2"),
        ("{{rack}}", "{rack}"),
        ("{plane:4d}|{plane:b}", "   3|11"),
        ("", ""),
    ],
)
def test_templates(text, result):
    assert parse_template(text, NAMES).render({"rack": 12, "plane": 3}) == result


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{rak}", "unknown name 'rak'; did you mean 'rack'?"),
        ("{server}", "unknown name 'server'"),
        ("{__import__('os')}", "only whole numbers"),
        ("{rack.__class__}", "only whole numbers"),
        ("{rack ** 9999}", "only whole numbers"),
        ("{rack / 2}", "only whole numbers"),
        ("{rack << 9}", "only whole numbers"),
        ("{1.5}", "only whole numbers"),
        ("{True}", "only whole numbers"),
        ("{'a'}", "only whole numbers"),
        ("{rack if rack else plane}", "only whole numbers"),
        ("{[rack][0]}", "only whole numbers"),
        ("{rack!r}", "not supported"),
        ("{rack:>10}", "format '>10' is not supported"),
        ("{rack:{plane}}", "not supported"),
        ("{rack:999999999d}", "not supported"),
        ("{rack +}", "not an expression"),
        ("{rack plane}", "not an expression"),
        ("{}", "empty braces"),
        ("{ }", "empty braces"),
        ("{rack", "not a template"),
        ("rack}", "not a template"),
        ("{" + "(" * 150 + "1" + ")" * 150 + "}", "longer than 200"),
    ],
)
def test_bad_templates(text, words):
    with pytest.raises(PatternError) as caught:
        parse_template(text, NAMES)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "number"),
    [("{rack}", 12), ("1{plane}", 13), ("0x{plane:x}f", 0x3F), ("{rack - 20}", -8), ("7", 7)],
)
def test_numbers(text, number):
    assert parse_template(text, NAMES).number({"rack": 12, "plane": 3}) == number


def test_what_is_no_number_or_divides_by_zero():
    scope = {"rack": 12, "plane": 0}
    with pytest.raises(PatternError, match="whole number, got 'p12'"):
        parse_template("p{rack}", NAMES).number(scope)
    with pytest.raises(PatternError, match="divides by zero"):
        parse_template("{rack // plane}", NAMES).render(scope)
    with pytest.raises(PatternError, match="divides by zero"):
        parse_template("{rack % plane}", NAMES).number(scope)


EXPRESSIONS = st.recursive(
    st.integers(0, 999).map(str) | st.sampled_from(NAMES),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
    max_leaves=8,
)


@given(EXPRESSIONS, st.integers(1, 500), st.integers(1, 500))
def test_expressions_mean_what_python_means(expression, rack, plane):
    value = eval(expression, {"__builtins__": {}}, {"rack": rack, "plane": plane})  # noqa: S307
    template = parse_template("{" + expression + "}", NAMES)
    assert template.number({"rack": rack, "plane": plane}) == value
    assert template.render({"rack": rack, "plane": plane}) == str(value)


@given(st.text(alphabet=string.printable, max_size=60))
def test_any_text_is_a_template_or_is_refused(text):
    try:
        parse_template(text, NAMES).render({"rack": 1, "plane": 1})
    except PatternError as error:
        assert str(error)


def test_long_lists_of_known_words_are_cut_short():
    hint = suggest("zzz", [f"r{number}" for number in range(300)])
    assert hint.endswith(", …")
    assert len(hint) < 120
