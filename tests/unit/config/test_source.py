"""YAML: errors, lines, and scalars that must stay text."""

import pytest

from hydra.config.source import YamlError, parse_yaml
from hydra.errors import ConfigError

from .conftest import CONFIGS, load_file

DEMO = (CONFIGS / "demo.yaml").read_text()


def line_of(text: str) -> int:
    return DEMO[: DEMO.index(text)].count("\n") + 1


def refusal(load_text, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    return caught.value


def test_problems_point_to_their_line(load_text):
    error = refusal(load_text, DEMO.replace("10.0.{rack}.0/24", "10.0.0.0/24"))
    (problem, *_) = error.problems
    assert problem.line == line_of("prefixes:")
    assert f"fabric.yaml:{problem.line}: racks[0].prefixes[0]: prefix" in str(error)


def test_a_missing_key_points_to_the_mapping_that_lacks_it(load_text):
    (problem,) = refusal(load_text, DEMO.replace("  parking: 4000\n", "")).problems
    assert (problem.path, problem.line) == ("vlans.parking", line_of("vlans:"))


@pytest.mark.parametrize(
    ("text", "line", "indentation"),
    [
        ("  parking:", "  parking:", "1 in line {}, 2 in line {before}"),
        ("  circuits:", "  parking:", "2 in line {}, 1 in line {before}"),
        ("        mac:", "        mac:", "7 in line {}, 8 in line {before}"),
    ],
)
def test_a_blank_too_few_shows_whose_indentation_to_look_at(load_text, text, line, indentation):
    (problem,) = refusal(load_text, DEMO.replace(text, text[1:])).problems
    place = line_of(line)
    words = indentation.format(place, before=place - 1)
    assert problem.line == place
    assert problem.message.endswith(f"; look at the indentation: {words}")


def test_syntax_errors_have_a_line(load_text):
    (problem,) = refusal(load_text, "fabric: demo\nracks: [\nplanes: }\n").problems
    assert problem.line == 3
    assert "not YAML" in problem.message


@pytest.mark.parametrize("indent", ["\t", "  \t"])
def test_tabs_are_called_so(load_text, indent):
    text = DEMO.replace("  openflow:", f"{indent}openflow:")
    (problem,) = refusal(load_text, text).problems
    assert problem.line == line_of("controller:") + 1
    assert "indented by a tab, where YAML wants spaces" in problem.message


def test_duplicate_keys_are_reported_with_everything_else(load_text):
    text = DEMO.replace("fabric: demo\n", "fabric: demo\nfabric: other\n").replace(
        "rate_mbps: 10\n", "rate_mbps: 0\n"
    )
    problems = refusal(load_text, text).problems
    first = line_of("fabric: demo")
    assert [(p.path, p.line) for p in problems] == [
        ("fabric", first + 1),
        ("electrical.rate_mbps", line_of("electrical:") + 2),
    ]
    assert f"stands twice: already on line {first}" in problems[0].message


def test_keys_must_be_text(load_text):
    (problem,) = refusal(load_text, DEMO + "7: seven\n").problems
    assert "must be text" in problem.message
    assert problem.line


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "demo", "null"])
def test_the_file_must_be_a_mapping(load_text, text):
    (problem,) = refusal(load_text, text).problems
    assert "must be a mapping" in problem.message


def test_two_documents_are_refused(load_text):
    (problem,) = refusal(load_text, DEMO + "---\n" + DEMO).problems
    assert "not YAML" in problem.message


def test_python_objects_are_not_made(load_text):
    error = refusal(load_text, "fabric: !!python/object/apply:os.getcwd []\n")
    assert "the tag" in str(error)


def test_a_mapping_that_holds_itself_is_refused(load_text):
    text = DEMO.replace("electrical:\n  rate_mbps: 10\n", "electrical: &loop\n  rate_mbps: *loop\n")
    (problem,) = refusal(load_text, text).problems
    assert problem.line == line_of("electrical:") + 1
    assert problem.message == "*loop stands inside of its own anchor: move the alias out"


def test_files_that_can_not_be_read(tmp_path):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_file(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        load_file(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_file(binary)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10:20:30:40:50:59", "10:20:30:40:50:59"),  # YAML 1.1: a number in base 60
        ("010", "010"),  # YAML 1.1: eight
        ("no", "no"),  # YAML 1.1: false
        ("2001-01-01", "2001-01-01"),  # YAML 1.1: a date
        ("1_000", "1_000"),
        ("0x1F", 31),
        ("-3", -3),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".inf", float("inf")),
        ("true", True),
        ("~", None),
        ("", None),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    assert parse_yaml(f"key: {text}\n").data == {"key": value}


def test_merge_keys_work_and_keep_their_lines():
    document = parse_yaml("a: &a\n  x: 1\n  y: 2\nb:\n  <<: *a\n  x: 3\n")
    assert document.data["b"] == {"x": 3, "y": 2}
    assert document.key_problems == ()
    assert document.line_of(("b", "x")) == 6


def test_yaml_errors_carry_their_line():
    with pytest.raises(YamlError) as caught:
        parse_yaml("a: 1\nb: [")
    assert caught.value.line is not None
