"""The sdist is the whole repository, and the wheel works in an environment that has only what it declares."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta as backend; backend.build_{}({!r})"
C_CODEC = "firmware_protocol/c/"
ONLY_IN_GIT = {".gitignore", ".ci/run"}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the checkout and return what it printed."""
    ended = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def files_of_the_repository() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    return {name for name in listed if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    copy, built, unpacked = (tmp_path_factory.mktemp(name) for name in ("copy", "built", "unpacked"))
    for name in files_of_the_repository():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-c", BUILD.format("sdist", str(built)), cwd=copy)
    (archive,) = built.iterdir()
    with tarfile.open(archive) as sdist:
        sdist.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the sdist as pip makes it."""
    built = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-c", BUILD.format("wheel", str(built)), cwd=source)
    (path,) = built.iterdir()
    return path


def test_the_sdist_holds_every_file_of_the_repository(source: Path) -> None:
    missing = {name for name in files_of_the_repository() - ONLY_IN_GIT if not (source / name).exists()}
    assert missing == set()


def test_tests_of_the_sdist_find_their_data(source: Path) -> None:
    tests = ("tests/storage", "tests/bench/file/test_loader_builtin.py", "tests/calibration/record/test_cli_records.py")
    run(sys.executable, "-m", "pytest", "-q", "-m", "not long", *tests, cwd=source)


def test_the_wheel_holds_every_file_of_the_packages_and_no_test(wheel: Path) -> None:
    packages = ("lumion_hw/", "calibration/", "firmware_protocol/")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {name for name in files_of_the_repository() if name.startswith(packages)}
    assert packed == {name for name in files if not name.startswith(C_CODEC)}  # C is for firmware, from the sdist


def test_the_wheel_alone_checks_a_bench_and_stores_a_record(wheel: Path, tmp_path: Path) -> None:
    """In a new environment: what it needs comes from the index, in the versions of CI."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    run(*pip, "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    assert str(tmp_path) in run(programs / "python", "-c", "import lumion_hw; print(lumion_hw.__file__)", cwd=tmp_path)
    assert "small-bench" in run(programs / "lumion", "bench", "check", "small-bench", cwd=tmp_path)
    record = ROOT / "tests" / "data" / "recorded" / "record.json"
    again = (
        "import sys; from lumion_hw import load_record, save_record; save_record(load_record(sys.argv[1]), 'a.json')"
    )
    run(programs / "python", "-c", again, record, cwd=tmp_path)
    assert "15 PUCs" in run(
        programs / "python", "-c", "import lumion_hw; print(lumion_hw.load_record('a.json'))", cwd=tmp_path
    )
