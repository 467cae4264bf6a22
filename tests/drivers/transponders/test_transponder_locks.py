"""Pluggable modules driven from many threads: each opening, and each change of a module, has the driver to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.sessions.module.linear_file import LinearFile
from tests.drivers.transponders.cmis_peer import Peer
from tests.drivers.transponders.sfp_memories import CONSTANTS, IDENTITY, MONITORS
from tests.one_at_a_time import Interleaved, Yielding


def test_threads_open_it_one_after_the_other(clock: VirtualClock) -> None:
    threads = Interleaved()
    driver = CmisTransponder(Yielding(threads, Peer(clock)), clock=clock, device="zr1")
    threads.run(*[driver.open] * 3)
    threads.assert_one_at_a_time()


def test_it_is_not_opened_anew_while_another_thread_changes_it(clock: VirtualClock) -> None:
    threads = Interleaved()
    driver = CmisTransponder(Yielding(threads, Peer(clock)), clock=clock, device="zr1")
    driver.open()
    threads.run(lambda: driver.set_loopback("media_input", on=True), driver.open)
    threads.assert_one_at_a_time()


def test_the_drivers_of_a_module_and_of_its_paths_change_it_one_after_the_other(clock: VirtualClock) -> None:
    threads = Interleaved()
    driver = CmisTransponder(Yielding(threads, Peer(clock)), clock=clock, device="zr1")
    driver.open()
    path = driver.path(1)
    threads.run(lambda: driver.set_loopback("media_input", on=True), path.disable)
    threads.assert_one_at_a_time()


class YieldingFile(LinearFile):
    """The memory of an SFP in a file, whose accesses let other threads in."""

    def __init__(self, threads: Interleaved, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._threads = threads

    def read(self, device: int, offset: int, length: int) -> bytes:
        self._threads.note((device, offset))
        return super().read(device, offset, length)

    def write(self, device: int, offset: int, data: bytes) -> None:
        self._threads.note((device, offset, data))
        super().write(device, offset, data)


def sfp(threads: Interleaved, clock: VirtualClock, path: Path) -> SfpTransponder:
    diagnostics = bytearray(CONSTANTS + MONITORS + bytes(146))
    diagnostics[112] = 0x80  # temperature high alarm
    path.write_bytes(IDENTITY + bytes(160) + diagnostics)
    driver = SfpTransponder(YieldingFile(threads, str(path), clock, device="sfp1"), clock, device="sfp1")
    driver.open()
    return driver


def test_flags_of_an_sfp_are_confirmed_before_another_thread_reads_them(clock: VirtualClock, tmp_path: Path) -> None:
    threads = Interleaved()
    driver = sfp(threads, clock, tmp_path / "eeprom")
    first, second = threads.run(driver.flags, driver.flags)
    assert [(flag.name, flag.is_alarm) for flag in first] == [("temperature_high", True)]
    assert [flag.first_seen_s for flag in first] == [flag.first_seen_s for flag in second]
    threads.assert_one_at_a_time()


def test_the_control_byte_of_an_sfp_is_changed_in_one_piece(clock: VirtualClock, tmp_path: Path) -> None:
    threads = Interleaved()
    driver = sfp(threads, clock, tmp_path / "eeprom")
    select = driver._memory.select_tx_disable
    threads.run(lambda: select(True), lambda: select(False))
    threads.assert_one_at_a_time()
