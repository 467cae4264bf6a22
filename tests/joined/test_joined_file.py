"""Files of joined meshes: mistakes are reported by name."""

from pathlib import Path

import pytest

from lumion_hw.bench import load_bench
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces.wiring import FibreEnds
from lumion_hw.joined import load_joined
from tests.joined.two_racks import FILE, JOINED


def edited(directory: Path, old: str, new: str) -> Path:
    text = JOINED.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = directory / "joined.yaml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return path


def test_the_file_gives_each_bench_its_ports() -> None:
    assert FILE.ends_of("rack0") == FibreEnds((2, 3), (6, 7))
    assert FILE.ends_of("spine") == FibreEnds((0, 1, 2, 3), (4, 5, 6, 7))
    for name in FILE.benches:
        FILE.check_bench(name, load_bench(JOINED.with_name(f"{name}.yaml")))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('to: "spine:1"', 'to: "spin:1"', "expected one of the benches of this file, found 'spin'"),
        ('to: "spine:1"', 'to: "spine:0"', "port spine:0"),
        ('to: "spine:1"', 'to: "spine"', "expected a bench and a port of its mesh, such as rack0:12, found 'spine'"),
        ('to: "spine:1"', 'to: "rack0:1"', "a loop belongs in the bench file"),
        ("bench: spine.yaml, ", "", "expected either 'address' or 'bench'"),
        ("record: spine.json, ", "", "expected 'record'"),
        ("version: 1", "version: 2", "expected 1, found the number 2"),
    ],
)
def test_a_mistake_is_reported(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_joined(edited(tmp_path, old, new))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "bench", "message"),
    [
        ('from: "rack0:6"', 'from: "rack0:5"', "rack0", "port 5 is wired to sfp-b"),
        ('from: "rack0:6"', 'from: "rack0:60"', "rack0", "its mesh has no fibre at port 60"),
        ("mesh: benes 4", "mesh: benes 8", "spine", "its mesh is 'benes 4', and the file says 'benes 8'"),
    ],
)
def test_a_bench_that_does_not_fit_is_reported(tmp_path: Path, old: str, new: str, bench: str, message: str) -> None:
    file = load_joined(edited(tmp_path, old, new))
    with pytest.raises(ConfigError) as raised:
        file.check_bench(bench, load_bench(JOINED.with_name(f"{bench}.yaml")))
    assert message in str(raised.value)


def test_a_bench_under_another_name_is_reported() -> None:
    with pytest.raises(ConfigError, match="it is called rack1"):
        FILE.check_bench("rack0", load_bench(JOINED.with_name("rack1.yaml")))
