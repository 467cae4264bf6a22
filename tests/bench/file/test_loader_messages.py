"""What a wrong bench file says: place, path, what was expected, what was found, and the nearest right spelling."""

import pathlib
import random
import re

import pytest

from lumion_hw.bench.file import yaml_marks
from lumion_hw.bench.file.loader import MAX_BYTES, Problem, check_bench, load_bench
from lumion_hw.errors import ConfigError


def edited(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} must stand once in the file"
    return text.replace(old, new)


def only_problem(text: str) -> Problem:
    (problem,) = check_bench("bench.yaml", text=text)
    return problem


# (what is replaced in the small bench, by what, path, message)
ONE_MISTAKE = [
    # keys
    ("serial: A1", "seriall: A1", "devices.mesh0.seriall", "found 'seriall'. Did you mean 'serial'?"),
    ("serial: A1", "zzz: A1", "devices.mesh0.zzz", "expected one of the keys address, emulated_port"),
    ("name: small\n", "name: small\nfabrik: 1\n", "fabrik", "found 'fabrik'. Did you mean 'fabric'?"),
    ("loss_db: 0.5", "loss: 0.5", "wiring.inputs[0].loss", "found 'loss'. Did you mean 'loss_db'?"),
    ("fraction: 0.1", "fraction: 0.1, x: 1", "wiring.outputs[0].tap.x", "expected one of the keys meter, channel"),
    ("  controller: mesh0", "  layout: smartlight", "mesh.controller", "expected this key or controllers, found none"),
    ("version: 1\n", "", "version", "expected this key, found none"),
    ("pol-b: {kind: oz-epc04}", "pol-b: {settle_s: 1}", "devices.pol-b.kind", "expected this key, found none"),
    # types
    (
        "loss_db: 0.5",
        "loss_db: '0.5'",
        "wiring.inputs[0].loss_db",
        "expected a number, found text '0.5'. Write the num",
    ),
    ("loss_db: 0.5", "loss_db: 0.5dB", "wiring.inputs[0].loss_db", "expected a number, found text '0.5dB'. Write the"),
    ("loss_db: 0.5", "loss_db: true", "wiring.inputs[0].loss_db", "expected a number, found true"),
    ("loss_db: 0.5", "loss_db:", "wiring.inputs[0].loss_db", "expected a number, found nothing"),
    ("loss_db: 0.5", "loss_db: [1, 2]", "wiring.inputs[0].loss_db", "expected a number, found a list of 2"),
    ("loss_db: 0.5", "loss_db: .nan", "wiring.inputs[0].loss_db", "expected a finite number, found the number nan"),
    ("loss_db: 0.5", "loss_db: .inf", "wiring.inputs[0].loss_db", "expected a finite number, found the number inf"),
    ("loss_db: 0.5", "loss_db: 1e999", "wiring.inputs[0].loss_db", "expected a finite number, found the number inf"),
    ("port: 0,", "port: 0.0,", "wiring.inputs[0].port", "expected a whole number, found the number 0.0"),
    ("port: 0,", "port: 0:30,", "wiring.inputs[0].port", "expected a whole number, found text '0:30'"),
    ("serial: A1", "serial: 0170", "devices.mesh0.serial", "expected text, found the number 170. Put it in quotes"),
    ("spares: [c]", "spares: c", "fabric.spares", "expected a list, found text 'c'"),
    ("mesh0: {kind: lumion-mesh, serial: A1}", "mesh0: lumion-mesh", "devices.mesh0", "expected a mapping"),
    (
        "name: small\n",
        "name: small\nemulation: {crosstalk: yes}\n",
        "emulation.crosstalk",
        "found text 'yes'. Write true",
    ),
    # limits
    ("loss_db: 0.5", "loss_db: -0.5", "wiring.inputs[0].loss_db", "expected at least 0, found the number -0.5"),
    ("gain_db: 10", "gain_db: 100", "wiring.inputs[0].gain_db", "expected at most 40, found the number 100"),
    ("fraction: 0.1", "fraction: 0", "wiring.outputs[0].tap.fraction", "expected more than 0, found the number 0"),
    ("fraction: 0.1", "fraction: 1", "wiring.outputs[0].tap.fraction", "expected less than 1, found the number 1"),
    ("version: 1", "version: 2", "version", "expected 1, found the number 2"),
    ("model: N7744A", "model: N7746A", "devices.meter0.model", "expected 'N7744A', 'N7745A', 'N7744C' or 'N7745C'"),
    ("pairs: [[a, b]]", "pairs: [[a]]", "fabric.pairs[0][1]", "expected this key, found none"),
    ("nics: [sfp-c]", "nics: []", "servers[2].nics", "expected at least 1 entries, found a list of 0"),
    # kinds, names and addresses
    ("pol-b: {kind: oz-epc04}", "pol-b: {kind: oz-epc4}", "devices.pol-b.kind", "Did you mean 'oz-epc04'?"),
    ("pol-b: {", "5: {", "devices[5]", "expected text, found the number 5. Put it in quotes"),
    ("pol-b: {", "pol b: {", "devices.pol b", "expected a letter followed by letters, digits"),
    (
        "pol-b: {kind: oz-epc04}",
        "pol-b: {kind: oz-epc04, address: 'tcp://host'}",
        "devices.pol-b.address",
        "expected an address; 'tcp://host' needs exactly a host and a port",
    ),
    (
        "sfp-b: {kind: sfp-8472}",
        "sfp-b: {kind: sfp-8472, sensitivity_dbm: 0}",
        "devices.sfp-b",
        "expected sensitivity_dbm below overload_dbm, found 0 and -1",
    ),
    (
        "name: small\n",
        "name: small\nemulation: {p_pi_mw: {min: 3}}\n",
        "emulation.p_pi_mw",
        "expected min <= typical <= max, found 3, 1.34, 2",
    ),
]


@pytest.mark.parametrize(("old", "new", "path", "message"), ONE_MISTAKE, ids=[case[1].strip() for case in ONE_MISTAKE])
def test_one_mistake_gives_one_problem_with_its_path(small: str, old: str, new: str, path: str, message: str) -> None:
    problems = [problem for problem in check_bench("bench.yaml", text=edited(small, old, new)) if problem.path == path]
    assert len(problems) == 1
    assert message in problems[0].message


def test_a_problem_names_file_line_and_column_of_the_value_with_a_caret_below(small: str) -> None:
    problem = only_problem(edited(small, "loss_db: 0.5", "loss_db: high"))
    #          1         2         3         4         5         6         7
    # 1234567890123456789012345678901234567890123456789012345678901234567890
    #     - {transponder: sfp-a, port: 0, polarization: pol-a, loss_db: high, …
    assert (problem.line, problem.column) == (15, 67)
    assert str(problem) == (
        "bench.yaml:15:67: wiring.inputs[0].loss_db: expected a number, found text 'high'\n"
        "        - {transponder: sfp-a, port: 0, polarization: pol-a, loss_db: high, gain_db: 10}\n"
        "                                                                      ^"
    )


def test_an_unknown_key_is_marked_at_the_key(small: str) -> None:
    problem = only_problem(edited(small, "  - {name: b,", "  - {color: red, name: b,"))
    assert problem.source[problem.column - 1 :].startswith("color: red")


def test_a_name_that_is_no_name_is_marked_at_the_key(small: str) -> None:
    problems = check_bench("bench.yaml", text=edited(small, "  pol-b: {", "  pol b: {"))
    assert [(problem.line, problem.column) for problem in problems] == [(10, 3)]


def test_a_missing_key_is_marked_at_the_mapping_that_lacks_it(small: str) -> None:
    problem = only_problem(edited(small, "mesh:\n  controller: mesh0\n", "mesh:\n  layout: smartlight\n"))
    assert problem.source.strip() == "layout: smartlight"


def test_the_caret_of_a_far_column_stays_under_its_word(small: str) -> None:
    text = edited(small, "{name: c, nics: [sfp-c]}", f"{{risk_group: {'x' * 300}, name: c, nics: late}}")
    (problem,) = (problem for problem in check_bench("bench.yaml", text=text) if problem.path == "servers[2].nics")
    lines = str(problem).splitlines()
    assert len(lines[1]) < 130
    assert lines[1][lines[2].index("^") :].startswith("late")


def test_the_caret_follows_tabs(small: str) -> None:
    problem = Problem("f", 1, 4, "a", "m", "a:\t\tx")
    assert str(problem).splitlines()[-1] == "      \t^"


def test_a_tab_is_named_where_it_stands(small: str) -> None:
    problem = only_problem(edited(small, "loss_db: 0.5", "loss_db:\tx"))
    assert problem.source[problem.column - 1] == "\t"
    assert "found a tab" in problem.message


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(small: str) -> None:
    text = small.replace("version: 1", "version: 2").replace(
        "kind: oz-epc04}\n  pol-b", "kind: oz-epc04, x: 1}\n  pol-b"
    )
    text = (
        text.replace("port: 1}", "port: 0}")
        .replace("spares: [c]", "spares: [d]")
        .replace("name: small\n", "name: a\nname: b\n")
    )
    with pytest.raises(ConfigError) as caught:
        load_bench("bench.yaml", text=text)
    message = str(caught.value)
    assert message.startswith("5 mistakes in bench file bench.yaml:\n")
    paths = re.findall(r"^bench\.yaml:\d+:\d+: ([^:]+):", message, flags=re.MULTILINE)
    assert paths == ["version", "name", "devices.pol-a.x", "wiring.inputs[1].port", "fabric.spares[0]"]


def test_a_very_wrong_file_lists_fifty_mistakes_and_counts_the_rest(small: str) -> None:
    text = small + "".join(f"extra{i}: 1\n" for i in range(60))
    with pytest.raises(ConfigError, match=r"60 mistakes") as caught:
        load_bench("bench.yaml", text=text)
    assert str(caught.value).endswith("… and 10 more")
    assert len(check_bench("bench.yaml", text=text)) == 60


def test_a_duplicate_key_names_both_lines(small: str) -> None:
    problem = only_problem(edited(small, "name: small\n", "name: small\nversion: 1\n"))
    assert (problem.line, problem.column, problem.path) == (3, 1, "version")
    assert problem.message == "expected every key once, found 'version' again (first in line 1)"


def test_a_clash_names_the_line_of_the_other_place(small: str) -> None:
    problem = only_problem(edited(small, "port: 4,", "port: 3,"))
    assert problem.message == "expected port 3 to be used once, but it is also used by wiring.outputs[0].port (line 19)"
    assert problem.line == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a bench file, found no content"),
        ("just text", "expected a mapping with the keys of a bench file, found text 'just text'"),
        ("- a\n- b\n", "expected a mapping with the keys of a bench file, found a list of 2"),
        ("null", "expected a mapping with the keys of a bench file, found nothing"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_bench_at_all_says_so(text: str, message: str) -> None:
    assert message in only_problem(text).message


def test_a_path_that_does_not_exist_names_the_built_in_benches() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file .*lumion-prototype"):
        load_bench("nowhere.yaml")


def test_a_directory_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="it is a directory, not a file"):
        load_bench(tmp_path)


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot read bench file"):
        load_bench("a\0b")


def test_a_file_that_is_not_utf_8_names_the_byte_and_its_place(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"version: 1\nname: m\xfcller\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2:8: expected UTF-8 text, found the byte 0xfc"):
        load_bench(path)


def test_a_byte_order_mark_is_harmless(tmp_path: pathlib.Path, small: str) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + small.encode())
    assert load_bench(path).name == "small"


def test_a_file_beyond_the_size_cap_is_refused_unread(tmp_path: pathlib.Path, small: str) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(small + "#" * MAX_BYTES)
    with pytest.raises(ConfigError, match="is larger than 1024 KiB"):
        load_bench(path)
    with pytest.raises(ConfigError, match="is larger than 1024 KiB"):
        load_bench("text", text=small + "#" * MAX_BYTES)


def test_a_file_just_within_the_size_cap_is_read(tmp_path: pathlib.Path, small: str) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(small + "#" + "x" * (MAX_BYTES - len(small) - 2) + "\n")
    assert load_bench(path).name == "small"


WORDS = [
    "sfp-a",
    "pol-a",
    "mesh0",
    "a",
    "zzz",
    "-1",
    "7",
    "99999999999999999999",
    "1e400",
    "true",
    "~",
    "[]",
    "{}",
    "x: y",
]


def mutated(text: str, rng: random.Random) -> str:
    tokens = re.split(r"(\s+|[\[\]{},:])", text)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(tokens))
        tokens[at] = rng.choice([*WORDS, "", tokens[rng.randrange(len(tokens))]])
    return "".join(tokens)


def assert_every_mutation_is_read_or_explained(text: str, seeds: range) -> None:
    for seed in seeds:
        wrong = mutated(text, random.Random(seed))
        for problem in check_bench("bench.yaml", text=wrong):
            assert problem.line >= 1, f"seed {seed}"
            assert problem.column >= 1, f"seed {seed}"
            assert problem.message, f"seed {seed}"


def test_mutated_files_are_read_or_explained_and_never_crash(small: str) -> None:
    assert_every_mutation_is_read_or_explained(small, range(150))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(150, 1200), marks=pytest.mark.long),
        pytest.param(range(1200, 6000), marks=pytest.mark.campaign),
    ],
    ids=["long", "campaign"],
)
def test_thousands_of_mutated_files_are_read_or_explained_and_never_crash(small: str, seeds: range) -> None:
    assert_every_mutation_is_read_or_explained(small, seeds)


@pytest.mark.parametrize("version", ["true", "1.0", "2", "'1'", ".nan"])
def test_the_version_is_the_whole_number_1(small: str, version: str) -> None:
    problem = only_problem(edited(small, "version: 1", f"version: {version}"))
    assert problem.message.startswith("expected 1, found ")


@pytest.mark.parametrize("text", ["1" * 400, ".nan", "-.inf", "1e999"])
def test_no_key_takes_a_number_that_is_none_or_infinite(small: str, text: str) -> None:
    places = list(re.finditer(r"(?<=: )\d+(\.\d+)?(?=[,}\n])", small))
    assert len(places) > 10
    for place in places:
        assert check_bench("x", text=small[: place.start()] + text + small[place.end() :]), place


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("".join(f"k{number}: 1\n" for number in range(330)), "more than 300 keys"),
        ("x: [" + "1, " * 800 + "1]\n", "more than 700 keys and values"),
    ],
    ids=["keys", "values"],
)
def test_a_file_of_far_too_many_keys_is_refused_where_they_are_too_many(
    small: str, more: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (yaml_marks.MAX_KEYS, yaml_marks.MAX_VALUES) == (10_000, 40_000)
    monkeypatch.setattr(yaml_marks, "MAX_KEYS", 300)  # so many as there are it takes seconds to write and to read
    monkeypatch.setattr(yaml_marks, "MAX_VALUES", 700)
    problem = only_problem(f"{small}\n{more}")
    assert words in problem.message
    assert problem.line > len(small.splitlines())
