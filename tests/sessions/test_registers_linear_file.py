"""Registers through an optoe-style file: A0h at 0 to 255, A2h at 256 to 511."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConnectError, LinkLost, NotSupportedError
from lumion_hw.sessions.module.linear_file import LinearFile
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError, ShortReadError, split_into_rows


@pytest.fixture
def eeprom(tmp_path: Path) -> Path:
    path = tmp_path / "eeprom"
    path.write_bytes(bytes(range(256)) + bytes(reversed(range(256))))
    return path


@pytest.fixture
def registers(eeprom: Path, clock: VirtualClock) -> LinearFile:
    opened = LinearFile(str(eeprom), clock, device="sfp1")
    opened.open()
    return opened


def test_both_devices_are_in_one_file(registers: LinearFile) -> None:
    assert registers.read(0x50, 20, 3) == bytes([20, 21, 22])
    assert registers.read(0x51, 96, 2) == bytes([255 - 96, 255 - 97])
    registers.close()


def test_a_write_arrives_at_its_place(registers: LinearFile, eeprom: Path) -> None:
    with registers.transaction():
        registers.write(0x51, 110, b"\x40")
    registers.close()
    assert eeprom.read_bytes()[256 + 110] == 0x40


def test_a_saved_memory_that_may_only_be_read_is_read(
    eeprom: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``ethtool -m eth0 raw on > file`` leaves it; root may write everything, so the refusal is made here."""
    opened = os.open

    def refused(path: str, flags: int, *others: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *others)

    monkeypatch.setattr(os, "open", refused)
    registers = LinearFile(str(eeprom), clock, device="sfp1")
    registers.open()
    assert registers.read(0x50, 20, 1) == bytes([20])
    with pytest.raises(NotSupportedError, match="read-only"):
        registers.write(0x51, 110, b"\x40")
    registers.close()


def test_writes_are_cut_into_rows() -> None:
    data = bytes(range(20))
    assert list(split_into_rows(5, data)) == [(5, data[:3]), (8, data[3:11]), (16, data[11:19]), (24, data[19:])]


def test_a_missing_diagnostic_memory_is_a_short_read(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "eeprom"
    path.write_bytes(bytes(256))
    registers = LinearFile(str(path), clock, device="sfp1")
    registers.open()
    with pytest.raises(ShortReadError, match="0 instead of 2 bytes"):
        registers.read(0x51, 96, 2)
    registers.close()


def test_a_missing_file_is_a_connect_error(tmp_path: Path, clock: VirtualClock) -> None:
    with pytest.raises(ConnectError, match="No such file"):
        LinearFile(str(tmp_path / "none"), clock, device="sfp1").open()


def test_a_closed_file_is_lost(registers: LinearFile) -> None:
    registers.open()
    registers.close()
    registers.close()
    with pytest.raises(LinkLost, match="closed"):
        registers.read(0x50, 0, 1)


def refusing(code: int, times: int) -> Callable[[int, int, int], bytes]:
    """A ``pread`` that the bus refuses for a while."""
    left = [times]

    def pread(fd: int, length: int, position: int) -> bytes:
        del fd, position
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code))
        return bytes(length)

    return pread


def test_an_access_refused_for_a_moment_is_repeated(
    registers: LinearFile, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pread", refusing(errno.ENXIO, 3))
    assert registers.read(0x50, 0, 4) == bytes(4)
    assert 0.0 < clock.now() < 0.1
    registers.close()


@pytest.mark.parametrize(
    ("device", "code", "error"),
    [
        (0x50, errno.ENXIO, ModuleAbsentError),
        (0x51, errno.EIO, NotRespondingError),
        (0x50, errno.ENODEV, LinkLost),
    ],
)
def test_a_refusal_that_lasts_says_what_is_missing(
    registers: LinearFile, monkeypatch: pytest.MonkeyPatch, device: int, code: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(os, "pread", refusing(code, 10_000))
    with pytest.raises(error) as caught:
        registers.read(device, 0, 4)
    assert isinstance(caught.value.__cause__, OSError)
    registers.close()
