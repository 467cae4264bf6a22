"""The pytest plugin: its fixture, marker and ini option, and no import cost when it is not used."""

import subprocess
import sys
from pathlib import Path

import pytest

from lumion_hw import Bench
from tests.waiting import PATIENCE_S

pytest_plugins = ["pytester"]

OPTIONS = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest")
SMALL = Path(__file__).parents[1] / "data" / "small.yaml"


# -- the fixture itself, in this very run


def test_the_bench_is_emulated_and_on_virtual_time(bench) -> None:
    assert bench.is_emulated
    assert bench.model.name == "lumion-prototype"  # without a marker and an ini option, with seed 0
    with Bench.emulate("lumion-prototype", seed=0) as other:
        assert bench.mesh.monitors_ma().tolist() == other.mesh.monitors_ma().tolist()
    before_s = bench.clock.now()
    bench.clock.sleep(100.0)
    assert bench.clock.now() == before_s + 100.0


@pytest.mark.lumion_bench(SMALL, seed=5)
def test_faults_are_scripted_on_the_bench(bench) -> None:
    assert bench.model.name == "small"
    bench.transponders["sfp-a"].enable()
    bench.emulated.faults.kill_modules(["sfp-a"])
    with pytest.raises(ConnectionError):
        bench.transponders["sfp-a"].status()


# -- as users write it


WRONG_MARKERS = ["3", "sed=3", "seed='x'", "seed=-1", "seed=True", "'a', 'b'"]
AS_USERS_WRITE_IT = {
    "test_ini": """
        import pytest
        from lumion_hw import Bench

        def test_without_a_marker_it_is_that_of_the_ini_option_with_seed_0(bench, request):
            assert bench.model.name == "small"
            with Bench.emulate(request.config.rootpath / "lab.yaml", seed=0) as other:
                assert bench.mesh.monitors_ma().tolist() == other.mesh.monitors_ma().tolist()

        @pytest.mark.lumion_bench("laser-bench")
        def test_the_marker_is_nearer(bench):
            assert bench.model.name == "laser-bench"
        """,
    "test_marked": """
        import numpy as np
        import pytest
        from lumion_hw import Bench

        boards = []

        @pytest.mark.lumion_bench("mine.yaml", seed=3)
        def test_the_seed_counts_and_a_path_is_relative_to_the_test_file(bench, request):
            assert bench.model.name == "small"
            mine = request.path.parent / "mine.yaml"
            with Bench.emulate(mine, seed=3) as same, Bench.emulate(mine, seed=0) as other:
                light = bench.mesh.monitors_ma().tolist()
                assert light == same.mesh.monitors_ma().tolist()
                assert light != other.mesh.monitors_ma().tolist()

        @pytest.mark.lumion_bench("mine.yaml", seed=1)
        class TestMine:
            @pytest.mark.lumion_bench(seed=2)
            def test_a_class_gives_the_bench_and_a_function_the_seed(self, bench, request):
                with Bench.emulate(request.path.parent / "mine.yaml", seed=2) as same:
                    assert bench.mesh.monitors_ma().tolist() == same.mesh.monitors_ma().tolist()

        @pytest.mark.lumion_bench("mine.yaml")
        @pytest.mark.parametrize("round_", [1, 2])
        def test_every_test_has_a_bench_of_its_own(bench, round_):
            assert not bench.mesh.confirmed_currents_ma().any()
            bench.mesh.program(np.ones_like(bench.mesh.confirmed_currents_ma()))
            boards.append(bench.emulated.faults.board("mesh0"))

        @pytest.mark.lumion_bench("mine.yaml")
        def test_failing(bench):
            boards.append(bench.emulated.faults.board("mesh0"))
            bench.mesh.program(np.ones_like(bench.mesh.confirmed_currents_ma()))
            assert not boards[-1].driven_codes.any(), "this fails"

        def test_it_is_closed_behind_each_test_and_behind_one_that_fails():
            assert len({id(board) for board in boards}) == 3
            assert not any(board.driven_codes.any() for board in boards)
        """,
    "test_wrong": "import pytest\n\n"
    + "\n".join(
        f"@pytest.mark.lumion_bench({marker})\ndef test_{number}(bench):\n    pass\n"
        for number, marker in enumerate([*WRONG_MARKERS, "'no-such.yaml'"])
    ),
}
"""Test files by name. One of their tests is to fail, and those of the last are errors."""


def test_fixture_and_marker_as_users_write_them(pytester) -> None:
    """In one process of its own: to load numpy and open a bench in each of many took longer than all the rest."""
    (pytester.path / "mine.yaml").write_text(SMALL.read_text())
    (pytester.path / "lab.yaml").write_text(SMALL.read_text())
    pytester.makeini("[pytest]\nlumion_bench = lab.yaml\n")  # a path relative to the file that says so
    pytester.makepyfile(**AS_USERS_WRITE_IT)
    result = pytester.runpytest_subprocess("-v", "--strict-markers", *OPTIONS)
    result.assert_outcomes(passed=7, failed=1, errors=len(WRONG_MARKERS) + 1)
    result.stdout.fnmatch_lines(["FAILED test_marked.py::test_failing - AssertionError: this fails*"])
    for marker in WRONG_MARKERS:  # each is told in one sentence
        result.stdout.fnmatch_lines_random(
            f"E*ConfigError: marker lumion_bench({marker}): expected lumion_bench(path, [*], seed=0). *"
        )
    result.stdout.fnmatch_lines_random(f"E*ConfigError:*{pytester.path}/no-such.yaml*")


def test_the_marker_is_told_of(pytester) -> None:
    pytester.runpytest_subprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.lumion_bench(path, *, seed=0): *"])


# -- what it costs


def names_printed_by(code: str) -> list[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout.split()


def test_loading_the_plugin_imports_no_room_of_the_package() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import lumion_hw.testing.plugin;"
        "print(*sorted(name for name in set(sys.modules) - before))"
    )
    loaded = names_printed_by(code)
    ours = {name for name in loaded if name.partition(".")[0] in ("lumion_hw", "calibration", "firmware_protocol")}
    assert ours <= {"lumion_hw", "lumion_hw.testing", "lumion_hw.testing.plugin"}
    assert not {"numpy", "scipy"} & set(loaded)


def test_the_suites_know_neither_drivers_nor_the_emulator() -> None:
    code = (
        "import sys, lumion_hw.testing.contracts;"
        "print(*(name for name in sys.modules if name.startswith(('lumion_hw.drivers', 'lumion_hw.emulator'))))"
    )
    assert names_printed_by(code) == []
