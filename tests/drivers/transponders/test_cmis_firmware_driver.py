"""Firmware update, password and user memory against a scripted module; bytes from CMIS 5.2 clauses 9.4.2 and 9.7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.errors import DeviceError, LimitError, NotSupportedError, VerifyError
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError
from lumion_hw.standards.cmis.firmware import decode_firmware_features
from tests.drivers.transponders.cmis_peer import LOW_PWR, Peer

BEGINNING = 64
FILE = bytes(i * 7 % 251 for i in range(BEGINNING)) + bytes(i * 5 % 253 for i in range(5000))
START, ABORT, LPL, EPL, COMPLETE, COPY, RUN, COMMIT = 0x101, 0x102, 0x103, 0x104, 0x107, 0x108, 0x109, 0x10A


class FirmwarePeer(Peer):
    """A module of two banks. ``A`` runs and is committed; what is written to ``B`` is kept as bytes.

    Attributes:
        heard: The commands, in order.
        refuse: Status for a command, by its number.
    """

    def __init__(self, clock: VirtualClock, *, mechanism: int = 0x01, unit: int = 1, epl_code: int = 7) -> None:
        super().__init__(clock)
        self.put(1, 163, bytes([0x40 | epl_code]))
        self.epl_bytes = 128 * {5: 8, 6: 12, 7: 16}.get(epl_code, epl_code)
        self.pages |= {page: bytearray(128) for page in (3, *range(0xA0, 0xB0))}
        self.lower[39:41] = b"\x01\x02"
        self.put(1, 142, bytes([0x60 | 0x04]))  # user EEPROM on page 03h
        self.checksum()
        self.mechanism, self.unit = mechanism, unit
        self.flags = 0x03
        self.running, self.committed, self.valid = 0, 0, [True, True]
        self.image = bytearray()
        self.size = 0
        self.heard: list[int] = []
        self.refuse: dict[int, int] = {}
        self.down_until = 0.0
        self.password, self.unlocked = 0x1011, False
        self.boots: Callable[[int], int] = lambda bank: bank

    def _access(self) -> None:
        super()._access()
        if self.clock.now() < self.down_until:
            raise NotRespondingError("restarting")

    def _react(self, page: int | None, byte: int, data: bytes) -> None:
        super()._react(page, byte, data)
        if (page, byte) == (0x9F, 128):
            self._command()
        if page == 3 and not self.unlocked:
            self.put(3, byte, bytes(len(data)))  # protected: taken and ignored

    def _command(self) -> None:
        head = self.get(0x9F, 128, 8)
        number, epl, n_lpl = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big"), head[4]
        payload = self.get(0x9F, 136, n_lpl) if n_lpl else b""
        assert head[5] == 0xFF - (sum(head[:5]) + sum(payload)) % 256
        self.heard.append(number)
        extended = b"".join(self.get(page, 128, 128) for page in range(0xA0, 0xB0))[:epl]
        status = self.refuse.get(number) or self._do(number, payload, extended)
        self.lower[37] = status

    def _reply(self, payload: bytes) -> int:
        self.put(0x9F, 134, bytes([len(payload), 0xFF - sum(payload) % 256]) + payload)
        return 0x01

    def _do(self, number: int, payload: bytes, extended: bytes) -> int:
        self._reply(b"")
        if number == 0x0041:
            times = b"".join(value.to_bytes(2, "big") for value in (5000, 100, 50, 8000, 900))
            return self._reply(bytes([0, self.flags, BEGINNING, 0xFF, self.unit, self.mechanism, 0, 0]) + times)
        if number == 0x0100:
            status = sum(
                ((bank == self.running) | (bank == self.committed) << 1 | (not self.valid[bank]) << 2) << 4 * bank
                for bank in (0, 1)
            )
            banks = (bytes([1, 2, 0, 9]) + bytes(32)), (bytes([1, 3, 1, 0]) + bytes(32))
            return self._reply(bytes([status, 0b011]) + banks[0] + banks[1] + bytes(36))
        if number == START:
            self.size, self.image = int.from_bytes(payload[:4], "big"), bytearray(payload[8:])
            self.valid[1 - self.running] = False
        elif number in (LPL, EPL):
            address = int.from_bytes(payload[:4], "big")
            block = payload[4:] if number == LPL else extended
            assert 0 < len(block) <= (116 if number == LPL else self.epl_bytes)
            if address + len(block) > self.size - BEGINNING:
                return 0x42
            assert address >= len(self.image) - BEGINNING
            self.image += b"\xff" * (address + BEGINNING - len(self.image)) + block
        elif number == COMPLETE:
            self.valid[1 - self.running] = len(self.image) == self.size
        elif number == COPY:
            self.valid[1 if payload == b"\xab" else 0] = True
        elif number == RUN:
            self.running = self.boots(1 - self.running if payload[1] < 2 else self.running)
            delay_s = 1e-3 * int.from_bytes(payload[2:4], "big")
            self.later(delay_s, self._restart)
        elif number == COMMIT:
            self.committed = self.running
        elif number in (1, 2):
            return self._password(number, int.from_bytes(payload, "big"))
        return 0x01

    def _restart(self) -> None:
        self.down_until = self.clock.now() + 12.0
        self.lower[26] = 0x40
        self._module(LOW_PWR)
        self.unlocked = False

    def _password(self, number: int, value: int) -> int:
        if number == 1:
            self.unlocked = value == self.password
        elif self.unlocked:
            self.password = value
        return 0x01 if self.unlocked else 0x46


@pytest.fixture
def peer(clock: VirtualClock) -> FirmwarePeer:
    return FirmwarePeer(clock)


def opened(peer: FirmwarePeer, clock: VirtualClock) -> CmisTransponder:
    module = CmisTransponder(peer, clock, device="zr1")
    module.open()
    return module


@pytest.mark.parametrize(
    ("mechanism", "unit", "command", "n_blocks"),
    [
        (0x01, 0, LPL, 44),
        (0x01, 15, LPL, 44),
        (0x10, 255, EPL, 3),
        (0x11, 255, EPL, 3),
        (0x11, 0, LPL, 44),
        (0x10, 31, EPL, 20),
    ],
)
def test_a_file_arrives_whole_by_every_way(
    clock: VirtualClock, mechanism: int, unit: int, command: int, n_blocks: int
) -> None:
    peer = FirmwarePeer(clock, mechanism=mechanism, unit=unit)
    told: list[tuple[int, int]] = []
    module = opened(peer, clock)
    module.download_firmware(FILE, lambda done, of: told.append((done, of)))
    assert bytes(peer.image) == FILE
    assert peer.heard.count(command) == n_blocks
    assert told[-1] == (len(FILE), len(FILE))
    assert all(len(data) <= max(8 * (1 + unit), 8) for page, _, data in peer.log if page in (0x9F, *range(0xA0, 0xB0)))
    assert (peer.running, peer.valid) == (0, [True, True])


@pytest.mark.parametrize("n_bytes", [1, 115, 116, 117, 127, 128, 129, 231, 232, 233])
@pytest.mark.parametrize(("mechanism", "unit", "block"), [(0x01, 15, 116), (0x10, 15, 128)])
def test_the_last_block_ends_with_the_file(
    clock: VirtualClock, mechanism: int, unit: int, block: int, n_bytes: int
) -> None:
    """On both sides of each block's end: nothing missing, and no block that goes past the image."""
    peer = FirmwarePeer(clock, mechanism=mechanism, unit=unit)
    opened(peer, clock).download_firmware(FILE[: BEGINNING + n_bytes])
    assert bytes(peer.image) == FILE[: BEGINNING + n_bytes]
    assert peer.heard.count(LPL) + peer.heard.count(EPL) == -(-n_bytes // block)


def test_a_file_of_its_beginning_alone_is_refused(peer: FirmwarePeer, clock: VirtualClock) -> None:
    module = opened(peer, clock)
    for n_bytes in (0, BEGINNING - 1, BEGINNING):
        with pytest.raises(DeviceError, match="too short for firmware"):
            module.download_firmware(FILE[:n_bytes])
    assert START not in peer.heard


@pytest.mark.parametrize(
    ("mechanism", "unit", "epl_code", "command", "n_blocks"),
    [
        (0x10, 255, 1, EPL, 40),
        (0x10, 255, 4, EPL, 10),
        (0x10, 255, 5, EPL, 5),
        (0x10, 255, 6, EPL, 4),
        (0x11, 255, 0, LPL, 44),  # pages of which the module has none
        (0x11, 255, 8, LPL, 44),  # a reserved code
    ],
)
def test_a_block_is_no_longer_than_the_pages_the_module_has(
    clock: VirtualClock, mechanism: int, unit: int, epl_code: int, command: int, n_blocks: int
) -> None:
    peer = FirmwarePeer(clock, mechanism=mechanism, unit=unit, epl_code=epl_code)
    opened(peer, clock).download_firmware(FILE)
    assert bytes(peer.image) == FILE
    assert peer.heard.count(command) == n_blocks
    n_pages = peer.epl_bytes // 128
    assert {page for page, _, _ in peer.log if page in range(0xA0, 0xB0)} <= set(range(0xA0, 0xA0 + n_pages))


def test_a_module_that_takes_extended_payloads_only_and_has_no_pages_for_them_takes_none(clock: VirtualClock) -> None:
    peer = FirmwarePeer(clock, mechanism=0x10, epl_code=0)
    with pytest.raises(NotSupportedError, match="firmware over the command data block"):
        opened(peer, clock).download_firmware(FILE)
    assert START not in peer.heard


def test_erased_blocks_are_left_out_where_the_module_says_so(peer: FirmwarePeer, clock: VirtualClock) -> None:
    peer.flags |= 0x04
    file = FILE[:BEGINNING] + b"\xff" * 1160 + b"end" * 100
    opened(peer, clock).download_firmware(file)
    assert bytes(peer.image) == file
    assert peer.heard.count(LPL) == 3


@pytest.mark.parametrize("n_bytes", [231, 232, 233])
def test_the_last_block_is_sent_also_if_it_is_an_erased_one(
    peer: FirmwarePeer, clock: VirtualClock, n_bytes: int
) -> None:
    peer.flags |= 0x04
    file = FILE[:BEGINNING] + b"\xff" * n_bytes
    opened(peer, clock).download_firmware(file)
    assert bytes(peer.image) == file
    assert peer.heard.count(LPL) == 1


def test_an_update_is_downloaded_run_and_committed(peer: FirmwarePeer, clock: VirtualClock) -> None:
    module = opened(peer, clock)
    module.download_firmware(FILE)
    before = clock.now()
    module.run_firmware()
    assert clock.now() - before > 12.0  # it was away
    image_a, image_b = module.firmware()
    assert image_a is not None
    assert image_b is not None
    assert (image_b.version, image_b.running, image_b.committed) == ("1.3.256", True, False)
    assert image_a.committed
    module.commit_firmware()
    assert peer.committed == 1
    module.run_firmware()  # back again
    module.commit_firmware()
    assert (peer.running, peer.committed) == (0, 0)


def test_a_file_that_is_refused_ends_in_an_abort_and_the_running_image_stays(
    peer: FirmwarePeer, clock: VirtualClock
) -> None:
    module = opened(peer, clock)
    peer.refuse[COMPLETE] = 0x60
    with pytest.raises(DeviceError, match="0107h failed") as told:
        module.download_firmware(FILE)
    assert told.value.code == 0x60
    assert peer.heard[-1] == ABORT
    assert (peer.running, peer.valid) == (0, [True, False])
    with pytest.raises(DeviceError, match="image B is not valid"):
        module.run_firmware()
    assert RUN not in peer.heard
    peer.refuse = {}
    module.copy_firmware("A")
    assert peer.valid == [True, True]


def test_ctrl_c_in_a_download_aborts_it(peer: FirmwarePeer, clock: VirtualClock) -> None:
    def impatient(done: int, of: int) -> None:
        if done > 1000:
            raise KeyboardInterrupt

    module = opened(peer, clock)
    with pytest.raises(KeyboardInterrupt):
        module.download_firmware(FILE, impatient)
    assert peer.heard[-1] == ABORT
    module.download_firmware(FILE)
    assert bytes(peer.image) == FILE


def test_a_cable_pulled_in_a_download_is_that_error(peer: FirmwarePeer, clock: VirtualClock) -> None:
    def pulled(done: int, of: int) -> None:
        peer.plugged = False

    with pytest.raises(ModuleAbsentError):
        opened(peer, clock).download_firmware(FILE, pulled)


def test_an_image_the_module_does_not_call_valid_or_does_not_start_is_an_error(
    peer: FirmwarePeer, clock: VirtualClock
) -> None:
    module = opened(peer, clock)
    do = peer._do
    peer._do = lambda number, *rest: 0x01 if number == COMPLETE else do(number, *rest)  # type: ignore[method-assign]
    with pytest.raises(VerifyError, match="firmware image B: wrote valid, read back invalid"):
        module.download_firmware(FILE)
    peer.valid[1] = True
    peer.boots = lambda bank: 0
    with pytest.raises(VerifyError, match="The module started its other image"):
        module.run_firmware()


def test_what_a_module_cannot_do_is_not_tried(peer: FirmwarePeer, clock: VirtualClock) -> None:
    peer.mechanism = 0x00
    module = opened(peer, clock)
    with pytest.raises(NotSupportedError, match="firmware over the command data block"):
        module.download_firmware(FILE)
    with pytest.raises(NotSupportedError, match="without interrupting the traffic"):
        module.run_firmware(hitless=True)
    with pytest.raises(NotSupportedError, match=r"changes the firmware.*download_firmware"):
        module.cdb_command(START)
    peer.flags = 0x01
    with pytest.raises(NotSupportedError, match="copying"):
        module.copy_firmware("A")
    assert not {START, RUN, COPY} & set(peer.heard)
    with pytest.raises(ValueError, match="02h is reserved"):
        decode_firmware_features(bytes([0, 0, 0, 0, 0, 2]) + bytes(12))


def test_the_password_unlocks_the_users_memory(peer: FirmwarePeer, clock: VirtualClock) -> None:
    module = opened(peer, clock)
    with pytest.raises(VerifyError, match="Enter the password first"):
        module.write_user_memory(10, b"rack 7")
    with pytest.raises(DeviceError) as told:
        module.enter_password(0x1234)
    assert told.value.code == 0x46
    module.enter_password(0x1011)
    module.write_user_memory(10, b"rack 7, slot 12 north")
    assert module.user_memory()[10:31] == b"rack 7, slot 12 north"
    assert max(len(data) for page, _, data in peer.log if page == 3) == 8
    module.change_password(0x7FFF_FFFF)
    assert peer.password == 0x7FFF_FFFF
    for wrong in (0x8000_0000, -1):
        with pytest.raises(LimitError, match="host password"):
            module.change_password(wrong)
    for offset, n_bytes in ((-1, 1), (120, 9), (128, 1)):
        with pytest.raises(LimitError, match="user memory"):
            module.write_user_memory(offset, bytes(n_bytes))
    module.write_user_memory(120, b"to the e")
    module.write_user_memory(127, b"E")
    assert module.user_memory()[119:] == b"\0to the E"
