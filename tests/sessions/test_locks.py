"""Locks of sessions and links, each proven needed: with it calls go one at a time, without it they mix every time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lumion_hw.clock import Deadline, SystemClock
from lumion_hw.errors import DeviceAddress, LinkLost
from lumion_hw.links import visa
from lumion_hw.sessions.conversation import _shared_lock
from lumion_hw.sessions.framed.line import Line
from lumion_hw.sessions.framed.session import TurnLock
from lumion_hw.sessions.lines import LineSession
from lumion_hw.sessions.module.adapter_libraries import SmbusAdapter
from lumion_hw.sessions.module.linear_file import LinearFile
from lumion_hw.sessions.module.paged_i2c import PagedI2c
from lumion_hw.sessions.module.pages import ImagePages
from lumion_hw.sessions.scpi import ScpiSession
from tests.one_at_a_time import Interleaved, Yielding, YieldingLink
from tests.sessions.i2c_libraries import Wire, smbus2_on

CLOCK = SystemClock()


class Echo:
    """A link to a device that answers every line with itself, at once."""

    def __init__(self) -> None:
        self.received, self.replies, self.is_open = b"", b"", False

    def open(self, deadline: Deadline) -> None:
        self.is_open = True

    def write(self, data: bytes, deadline: Deadline) -> None:
        if not self.is_open:
            raise LinkLost("closed")
        self.received += data
        *lines, self.received = self.received.split(b"\n")
        self.replies += b"".join(line.strip() + b"\n" for line in lines)

    def read(self, deadline: Deadline) -> bytes:
        found, self.replies = self.replies, b""
        return found

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        return len(self.read(deadline))

    def close(self) -> None:
        self.is_open = False


def test_frames_of_a_line_do_not_mix() -> None:
    threads = Interleaved()
    line = Line(YieldingLink(threads), CLOCK, DeviceAddress("mesh0", "yielding"))
    threads.run(*[partial(line.write, bytes([n] * 4), "test") for n in range(4)])
    threads.assert_one_at_a_time()
    assert line.inbox.counts["tx_bytes"] == 16


def test_queries_of_two_sessions_at_one_address_do_not_mix() -> None:
    threads, device = Interleaved(), Echo()
    sessions = [ScpiSession(YieldingLink(threads, device), CLOCK, device=f"part {n}") for n in range(2)]
    for session in sessions:
        session.open_link(1.0)
    asked = [f"A{n}?" for n in range(4)]
    calls = [partial(sessions[n % 2].query, asked[n]) for n in range(4)]
    assert threads.run(*calls) == asked
    threads.assert_one_at_a_time()


def test_commands_of_a_line_session_do_not_mix() -> None:
    threads = Interleaved()
    session = LineSession(
        YieldingLink(threads, Echo()), CLOCK, device="pol", done="D", failed="E", marker="D", is_marker_reply=bool
    )
    session.open_link(1.0)
    assert threads.run(*[partial(session.command, "D")] * 4) == [()] * 4
    threads.assert_one_at_a_time()


def test_a_transaction_is_not_entered_by_another_thread() -> None:
    threads, device = Interleaved(), Echo()
    session = ScpiSession(YieldingLink(threads, device), CLOCK, device="meter")
    session.open_link(1.0)

    def ask_twice(name: str) -> list[str]:
        with session.transaction():
            return [session.query(f"{name}{n}?") for n in range(2)]

    assert threads.run(*[partial(ask_twice, name) for name in "ABC"]) == [[f"{n}0?", f"{n}1?"] for n in "ABC"]
    threads.assert_one_at_a_time()


def test_an_address_has_one_lock() -> None:
    threads = Interleaved([_shared_lock])
    locks = threads.run(*[partial(_shared_lock, "an address that nobody has")] * 4)
    assert len({id(lock) for lock in locks}) == 1


class Counter:
    """Counts by a read and a write, which another thread can come between."""

    def __init__(self, lock: Any) -> None:
        self.lock, self.count = lock, 0

    def add(self) -> int:
        with self.lock:
            before = self.count
            self.count = before + 1
            return before


def test_the_lock_of_a_framed_session_has_one_owner() -> None:
    counter = Counter(TurnLock())
    assert sorted(Interleaved([TurnLock, Counter]).run(*[counter.add] * 4)) == [0, 1, 2, 3]


class PagedMemory:
    """A module whose upper bytes show the page selected: its number in each."""

    def __init__(self) -> None:
        self.selected = bytearray(2)

    def read(self, byte: int, length: int) -> bytes:
        return bytes(self.selected[:length]) if byte == 126 else bytes([self.selected[1]] * length)

    def write(self, byte: int, data: bytes) -> None:
        self.selected[byte - 126 : byte - 126 + len(data)] = data


def test_a_page_stays_selected_until_it_is_read() -> None:
    threads = Interleaved()
    pages = PagedI2c(Yielding(threads, PagedMemory()), CLOCK, device="qsfp")
    pages.open()
    assert threads.run(*[partial(pages.read_page, page, 200, 2) for page in (0, 1, 2, 3)]) == [
        bytes([page] * 2) for page in (0, 1, 2, 3)
    ]
    threads.assert_one_at_a_time()


def added(module: Any, read: str, write: str, *place: object) -> None:
    """Add one to a byte of a module in one transaction."""
    with module.transaction():
        value = getattr(module, read)(*place[:-1], 1, *place[-1:])[0]
        getattr(module, write)(*place[:-1], bytes([value + 1]), *place[-1:])


def test_an_image_is_held_through_a_transaction() -> None:
    pages = ImagePages(SimpleNamespace(halves={(0, None): bytes(128)}, source="image"), writable=True)  # type: ignore[arg-type]
    Interleaved([added, ImagePages]).run(*[partial(added, pages, "read_page", "write_page", None, 5, 0)] * 4)
    assert pages.read_page(None, 5, 1) == b"\4"


def test_the_file_of_a_module_is_held_through_a_transaction(tmp_path: Path) -> None:
    path = tmp_path / "eeprom"
    path.write_bytes(bytes(256))
    file = LinearFile(path, CLOCK, device="sfp")
    file.open()
    Interleaved([added, LinearFile]).run(*[partial(added, file, "read_at", "write_at", 5, "byte 5")] * 4)
    assert file.read_at(5, 1, "byte 5") == b"\4"
    file.close()


class YieldingWire(Wire):
    """The bus of an adapter, which notes every transfer."""

    def __init__(self, threads: Interleaved) -> None:
        super().__init__(
            x50=SimpleNamespace(read=lambda offset, length: bytes(length), write=lambda offset, data: None)
        )
        self.threads = threads

    def transfer(self, device: int, out: bytes, n_read: int) -> bytes:
        self.threads.note((out, n_read))
        return super().transfer(device, out, n_read)


def test_the_pieces_of_a_read_stay_together_on_an_adapter() -> None:
    threads = Interleaved()
    adapter = SmbusAdapter("i2c://1", device="sfp", largest_read=16, library=smbus2_on(YieldingWire(threads)))
    adapter.open()
    threads.run(*[partial(adapter.read, 0x50, 0, 48)] * 3)
    threads.assert_one_at_a_time()
    assert len(threads.traffic) == 9


def test_a_process_has_one_manager_of_visa_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    pyvisa = pytest.importorskip("pyvisa")
    made: list[str] = []

    def manager(backend: str) -> SimpleNamespace:
        made.append(backend)
        return SimpleNamespace(session=len(made))

    monkeypatch.setattr(pyvisa, "ResourceManager", manager)
    monkeypatch.setattr(visa, "_managers", {})
    found = Interleaved([visa._resource_manager]).run(*[partial(visa._resource_manager, "@py")] * 4)
    assert {each.session for each in found} == {1}
    assert made == ["@py"]
