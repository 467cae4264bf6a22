"""YAML read strictly: types of YAML 1.2, places of everything, and what is refused."""

import math

import pytest
from hypothesis import example, given, strategies as st

from lumion_hw.bench.file.yaml_marks import MAX_DEPTH, Document, Place, read_yaml
from tests.effort import examples


def only_fault(text: str) -> tuple[int, int, str]:
    (fault,) = read_yaml(text).faults
    return fault.place.line, fault.place.column, fault.message


# Left: what is written. Right: its value by the core schema of YAML 1.2.2, section 10.3.
CORE_SCALARS = [
    ("true", True),
    ("False", False),
    ("TRUE", True),
    ("null", None),
    ("~", None),
    ("", None),
    ("0", 0),
    ("-19", -19),
    ("+12", 12),
    ("0o7", 7),
    ("0x3A", 58),
    ("017", 17),
    ("1.5", 1.5),
    ("0.", 0.0),
    (".5", 0.5),
    ("-.5e2", -50.0),
    ("1e-3", 1e-3),
    ("1.0e3", 1000.0),
    ("12e03", 12000.0),
    ("-.inf", -math.inf),
    ("+.INF", math.inf),
    ("text", "text"),
]

# What PyYAML, following YAML 1.1, would turn into booleans, sexagesimal numbers, dates and grouped digits.
TRAPS_OF_YAML_1_1 = ["on", "off", "yes", "no", "Y", "12:30", "10:20:30:40:50:11", "2026-01-02", "1_000", "0b11", "="]


@pytest.mark.parametrize(("written", "value"), CORE_SCALARS)
def test_scalars_have_the_type_that_yaml_1_2_gives_them(written: str, value: object) -> None:
    document = read_yaml(f"key: {written}\n")
    assert document.faults == []
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


def test_nan_is_a_float_that_later_checks_can_refuse() -> None:
    data = read_yaml("key: .nan").data
    assert math.isnan(data["key"])


@pytest.mark.parametrize("written", TRAPS_OF_YAML_1_1)
def test_traps_of_yaml_1_1_stay_text(written: str) -> None:
    assert read_yaml(f"key: {written}").data == {"key": written}


@pytest.mark.parametrize("written", ["'5'", '"true"', "'null'", "!!str 5"])
def test_quoted_scalars_are_text(written: str) -> None:
    assert isinstance(read_yaml(f"key: {written}").data["key"], str)


def test_every_key_and_value_has_its_place_counted_from_one() -> None:
    document = read_yaml("a:\n  b: [10, {c: x}]\n  7: y\n")
    assert document.data == {"a": {"b": [10, {"c": "x"}], 7: "y"}}
    assert document.marks[("a",)].key == Place(1, 1)
    assert document.marks[("a", "b")].key == Place(2, 3)
    assert document.marks[("a", "b")].value == Place(2, 6)
    assert document.marks[("a", "b", 0)].value == Place(2, 7)
    assert document.marks[("a", "b", 1, "c")].key == Place(2, 12)
    assert document.marks[("a", "b", 1, "c")].value == Place(2, 15)
    assert document.marks[("a", 7)].key == Place(3, 3)


def test_a_missing_path_has_the_place_of_what_would_hold_it() -> None:
    document = read_yaml("a:\n  b: 1\n")
    assert document.place(("a", "nothing", 3)) == Place(2, 3)
    assert document.place(("a", "b"), key=True) == Place(2, 3)
    assert document.place(("a", "b")) == Place(2, 6)
    assert Document().place(("a",)) == Place(1, 1)


def test_a_key_written_twice_is_refused_naming_both_lines_and_the_first_value_is_kept() -> None:
    document = read_yaml("a: 1\nb: 2\na: 3\n")
    assert document.data == {"a": 1, "b": 2}
    (fault,) = document.faults
    assert fault.path == ("a",)
    assert fault.place == Place(3, 1)
    assert fault.message == "expected every key once, found 'a' again (first in line 1)"


@pytest.mark.parametrize("text", ["{1: a, 0x1: b}", "{a: 1, 'a': 2}", '{a: 1, "\\x61": 2}'])
def test_keys_that_differ_only_in_spelling_are_the_same_key(text: str) -> None:
    assert "expected every key once" in only_fault(text)[2]


def test_duplicates_at_different_levels_are_all_found_at_once() -> None:
    document = read_yaml("a: {x: 1, x: 2}\nb: [{y: 1, y: 2}]\na: 3\n")
    assert [(fault.path, fault.place.line) for fault in document.faults] == [
        (("a", "x"), 1),
        (("b", 0, "y"), 2),
        (("a",), 3),
    ]


def test_merge_keys_are_refused_where_they_stand() -> None:
    line, column, message = only_fault("base: {x: 1}\nother:\n  <<: {x: 2}\n  y: 3\n")
    assert (line, column) == (3, 3)
    assert "merge keys (<<) are not allowed" in message


def test_a_quoted_merge_sign_is_an_ordinary_key() -> None:
    assert read_yaml("'<<': 1").data == {"<<": 1}


def test_aliases_are_refused_where_they_stand() -> None:
    line, column, message = only_fault("a: &x [1]\nb: *x\n")
    assert (line, column) == (2, 4)
    assert message == "aliases (*x) are not allowed in bench files: write the value out"


def test_a_file_that_would_grow_a_billionfold_is_refused_at_its_first_alias() -> None:
    levels = ["a0: &a0 [lol, lol]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    line, _, message = only_fault("\n".join(levels))
    assert line == 2
    assert "aliases" in message


def test_a_value_that_contains_itself_is_refused() -> None:
    assert "aliases" in only_fault("&a [*a]")[2]


def test_nesting_is_bounded() -> None:
    deepest = "[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1)
    assert read_yaml(deepest).faults == []
    assert only_fault(f"[{deepest}]")[2] == f"nested deeper than {MAX_DEPTH} levels"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_file_of_nothing_but_openings_is_refused_without_exhausting_the_stack(opening: str) -> None:
    assert "nested deeper" in only_fault(opening * 20_000)[2]


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system [ls]", "!!python/name:os.system", "!secret x", "!!timestamp 2026-01-02"]
)
def test_tags_are_refused_and_construct_nothing(value: str) -> None:
    _, _, message = only_fault(f"a: {value}")
    assert message.startswith("tags are not allowed in bench files, found '")


def test_a_tag_that_does_not_fit_its_text_is_refused() -> None:
    assert only_fault("a: !!int many")[2] == "expected int, found 'many'"
    assert only_fault("a: !!bool 3")[2] == "expected bool, found '3'"


def test_a_whole_number_of_absurd_length_is_refused() -> None:
    assert only_fault("a: " + "9" * 5000)[2].startswith("expected int, found '999")


def test_a_list_as_key_is_refused() -> None:
    assert only_fault("? [a, b]\n: 1\n")[2] == "expected a name as key, found a list or mapping"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n...\n"])
def test_a_file_without_content_is_refused_or_reads_as_nothing(text: str) -> None:
    document = read_yaml(text)
    assert document.data is None


def test_an_empty_file_says_so() -> None:
    assert only_fault("\n# nothing\n") == (1, 1, "expected a bench file, found no content")


def test_a_second_document_is_refused() -> None:
    line, _, message = only_fault("a: 1\n---\nb: 2\n")
    assert line == 2
    assert "not valid YAML" in message


def test_tabs_as_indentation_are_named() -> None:
    line, column, message = only_fault("a:\n\tb: 1\n")
    assert (line, column) == (2, 1)
    assert message.startswith("expected spaces, found a tab")


def test_a_syntax_error_names_where_it_stands_and_what_was_open() -> None:
    line, column, message = only_fault("a: 1\nb: [1, 2\nc: 3\n")
    assert (line, column) == (3, 2)
    assert "while parsing a flow sequence" in message
    assert "that began in line 2" in message


@pytest.mark.parametrize(("text", "place"), [("a: 1\nb: \x00", (2, 4)), ("\x07", (1, 1)), ("a: \ud800", (1, 4))])
def test_characters_that_are_not_text_are_refused_at_their_place(text: str, place: tuple[int, int]) -> None:
    line, column, message = only_fault(text)
    assert (line, column) == place
    assert f"U+{ord(text[-1]):04X}" in message


def test_line_ends_of_any_system_count_as_one_line() -> None:
    assert read_yaml("a: 1\r\nb: 2\r\n").marks[("b",)].key == Place(2, 1)


yaml_like = st.text(alphabet="ab01 -:[]{},\n\t'\"&*!<>|?#%@.~eE+", max_size=60)


@examples(300)
@given(yaml_like)
@example("&a\n")
@example("? ")
@example("- - -")
@example("%YAML 9.9\n--- a")
def test_no_text_raises_anything(text: str) -> None:
    document = read_yaml(text)
    assert document.marks or document.faults


@pytest.mark.long
@examples(2_000)
@given(st.one_of(yaml_like, st.text(max_size=60)))
def test_no_text_at_all_raises_anything(text: str) -> None:
    document = read_yaml(text)
    assert document.marks or document.faults
