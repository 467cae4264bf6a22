"""Writing user files: atomically, regular files only, and never over foreign files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.files.writing import check_target, write_file

NOTES = "my notes about lumion-hw\n"


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_device(path: Path) -> None:
    path.symlink_to("/dev/null")  # a node of its own needs root; a link has to be followed as well


@pytest.mark.parametrize("make", [a_pipe, a_directory, a_device])
@pytest.mark.parametrize("overwrite", ["nothing", "own", "any"])
def test_what_is_no_file_is_left_alone_whatever_was_asked(
    make: Callable[[Path], None], overwrite: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    make(path)
    before = path.stat()
    with pytest.raises(ConfigError, match="not a file"):
        write_file(path, "the record", "{}", overwrite)  # type: ignore[arg-type]
    after = path.stat()
    assert (after.st_ino, stat.S_IFMT(after.st_mode)) == (before.st_ino, stat.S_IFMT(before.st_mode))
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_somebody_else_is_written_over_only_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(NOTES)
    with pytest.raises(ConfigError, match=r"notes\.txt: the existing file is not from this program.*--force"):
        write_file(path, "the record", "new")
    assert path.read_text() == NOTES
    write_file(path, "the record", "new", overwrite="any")
    assert path.read_text() == "new"


def test_a_file_that_is_read_only_is_protected(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    path.write_text("")
    path.chmod(0o444)
    with pytest.raises(ConfigError, match="read-only"):
        write_file(path, "the picture", "new")


def test_an_empty_file_has_nothing_to_lose(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    path.touch()
    write_file(path, "the picture", "new")
    assert path.read_text() == "new"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "there" / "a.json", tmp_path / "latest.json"
    target.parent.mkdir()
    link.symlink_to(target)
    write_file(link, "the record", "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    target.write_text(NOTES)
    with pytest.raises(ConfigError, match="not from this program"):
        write_file(link, "the record", "newer")


def test_a_link_to_a_directory_that_does_not_exist_is_refused_before_any_work(tmp_path: Path) -> None:
    link = tmp_path / "readings.h5"
    link.symlink_to(tmp_path / "disk" / "readings.h5")
    with pytest.raises(ConfigError, match="there is no directory"):
        check_target(link, "the recording")
    (tmp_path / "disk").mkdir()
    assert check_target(link, "the recording") == tmp_path / "disk" / "readings.h5"


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a\0b", "x" * 5000, "x/" * 3000 + "y"])
def test_names_that_no_file_can_have_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot write the record"):
        check_target(Path(name), "the record")
