"""Firmware of the emulated module by CDB: commands byte by byte, power loss at every step (CMIS 5.2, 9.4.2, 9.7).

The host here is written from the layout of the commands; only the image file comes from the emulator.
"""

from __future__ import annotations

import struct

import pytest

from lumion_hw.emulator.transponders.cmis.cdb import MAX_IMAGE_BYTES, firmware_image
from lumion_hw.errors import LumionError
from tests.emulator.transponders.cmis_testbench import Host, lit

DONE, UNKNOWN, PARAMETER, PASSWORD, WRONG_STATE, TASK = 0x01, 0x41, 0x42, 0x46, 0x47, 0x60
FEATURES, INFO, START, ABORT, LPL, EPL = 0x0041, 0x0100, 0x0101, 0x0102, 0x0103, 0x0104
COMPLETE, COPY, RUN, COMMIT = 0x0107, 0x0108, 0x0109, 0x010A
HOST_PASSWORD = b"\x00\x00\x10\x11"
NEW = (2, 0, 7)
OLD_A, OLD_B = (1, 4, 17), (1, 3, 9)
FILE = firmware_image(*NEW, size=1000)
PLUS = "zr-plus-high-power"


class Updater:
    """A host that speaks CDB, with a started module."""

    def __init__(self, profile: str = "400zr", **options) -> None:
        self.host = Host(profile, **options)
        self.host.wait(0.6)

    def send(self, command: int, payload: bytes = b"", epl: int = 0) -> None:
        header = struct.pack(">HHB", command, epl, len(payload))
        code = 0xFF - (sum(header) + sum(payload)) % 256
        body = header[2:] + bytes([code, 0, 0]) + payload
        self.host.select(0x9F)
        for start in range(0, len(body), 120):
            self.host.module.write(130 + start, body[start : start + 120])
        self.host.module.write(128, header[:2])

    def status(self) -> int:
        try:
            return self.host.module.read(37, 1)[0]
        except LumionError:  # a module in the foreground does not acknowledge while it works
            return 0x83

    def run(self, command: int, payload: bytes = b"", epl: int = 0) -> int:
        self.send(command, payload, epl)
        self.host.until(lambda: not self.status() & 0x80, 200.0, 0.005)
        return self.status()

    def ask(self, command: int) -> bytes:
        assert self.run(command) == DONE
        page = self.host.read(0x9F, 128, 128)
        reply = page[8 : 8 + page[6]]
        assert page[7] == 0xFF - sum(reply) % 256
        return reply

    def features(self) -> dict[str, int]:
        names = "_ bits start_size erased extension write read hitless start abort block complete copy"
        return dict(zip(names.split(), struct.unpack(">8B5H", self.ask(FEATURES)), strict=True))

    def images(self) -> dict[str, tuple[str, tuple[int, int, int]]]:
        """Return whether each bank runs, is committed and is valid, and its version."""
        reply = self.ask(INFO)
        assert len(reply) == 110
        found = {}
        for place, bank in enumerate("AB"):
            bits = reply[0] >> 4 * place
            words = ("running " * (bits & 1) + "committed " * (bits >> 1 & 1) + "valid " * (not bits & 4)).strip()
            assert bool(reply[1] >> place & 1) == ("valid" in words)
            found[bank] = (words, struct.unpack_from(">BBH", reply, 2 + 36 * place))
        return found

    def begin(self, file: bytes = FILE) -> int:
        size = self.features()["start_size"]
        return self.run(START, struct.pack(">II", len(file), 0) + file[:size])

    def blocks(self, file: bytes = FILE, length: int = 116) -> list[tuple[int, bytes]]:
        body = file[self.features()["start_size"] :]
        return [(start, body[start : start + length]) for start in range(0, len(body), length)]

    def write(self, address: int, block: bytes) -> int:
        return self.run(LPL, struct.pack(">I", address) + block)

    def download(self, file: bytes = FILE) -> int:
        assert self.begin(file) == DONE
        for address, block in self.blocks(file):
            assert self.write(address, block) == DONE
        return self.run(COMPLETE)

    def start_image(self, mode: int = 0, delay_ms: int = 100) -> int:
        result = self.run(RUN, struct.pack(">BBH", 0, mode, delay_ms))
        self.host.wait(delay_ms * 1e-3 + 0.6)
        return result

    def power_cycle(self) -> None:
        self.host.module.unplug()
        self.host.clock.sleep(1.0)
        self.host.module.plug()
        self.host.wait(0.6)


# A complete update ----------------------------------------------------------------------------------------------------


def test_an_update_runs_is_committed_and_stays() -> None:
    updater = Updater()
    assert updater.images() == {"A": ("running committed valid", OLD_A), "B": ("valid", OLD_B)}
    assert updater.download() == DONE
    assert updater.images()["B"] == ("valid", NEW)
    assert updater.start_image() == DONE
    assert updater.images() == {"A": ("committed valid", OLD_A), "B": ("running valid", NEW)}
    assert tuple(updater.host.read(None, 39, 2)) == NEW[:2]
    assert tuple(updater.host.read(0x01, 128, 2)) == OLD_A[:2]
    assert updater.run(COMMIT) == DONE
    updater.power_cycle()
    assert updater.images() == {"A": ("valid", OLD_A), "B": ("running committed valid", NEW)}


def test_what_is_not_committed_is_rolled_back_by_any_reset() -> None:
    updater = Updater()
    updater.download()
    updater.start_image()
    updater.host.module.reset()
    updater.host.wait(0.6)
    assert updater.images() == {"A": ("running committed valid", OLD_A), "B": ("valid", NEW)}


def test_large_blocks_go_through_the_extended_payload_for_a_host_with_the_password() -> None:
    updater = Updater(PLUS)
    features = updater.features()
    assert features["write"] == 0x11
    file = firmware_image(*NEW, size=5000)
    assert updater.begin(file) == PASSWORD
    assert updater.run(0x0001, HOST_PASSWORD) == DONE
    assert updater.begin(file) == DONE
    for address, block in updater.blocks(file, 2048):
        for page in range(0, len(block), 128):
            updater.host.select(0xA0 + page // 128)
            updater.host.module.write(128, block[page : page + 128])
        assert updater.run(EPL, struct.pack(">I", address), epl=len(block)) == DONE
    assert updater.run(COMPLETE) == DONE
    assert updater.images()["B"] == ("valid", NEW)


def test_a_copy_makes_the_spare_bank_that_of_the_running_one() -> None:
    updater = Updater()
    assert updater.run(COPY, b"\xab") == DONE
    reply = updater.host.read(0x9F, 136, 6)
    assert (int.from_bytes(reply[:4], "big") > 0, reply[4:]) == (True, b"\xab\x00")
    assert updater.images()["B"] == ("valid", OLD_A)
    assert updater.run(COPY, b"\xba") == WRONG_STATE  # into the running image
    assert updater.run(COPY, b"\xaa") == PARAMETER


# Power loss -----------------------------------------------------------------------------------------------------------


def _idle(updater: Updater) -> None:
    del updater


def _erasing(updater: Updater) -> None:
    updater.send(START, struct.pack(">II", len(FILE), 0) + FILE[:64])
    updater.host.wait(1.0)


def _writing(updater: Updater) -> None:
    updater.begin()
    updater.write(*updater.blocks()[0])
    updater.send(LPL, struct.pack(">I", 116) + bytes(116))


def _checking(updater: Updater) -> None:
    updater.begin()
    for address, block in updater.blocks():
        updater.write(address, block)
    updater.send(COMPLETE)
    updater.host.wait(1.0)


def _downloaded(updater: Updater) -> None:
    updater.download()


def _waiting_for_reset(updater: Updater) -> None:
    updater.download()
    assert updater.run(RUN, struct.pack(">BBH", 0, 0, 5000)) == DONE


def _starting(updater: Updater) -> None:
    updater.download()
    updater.run(RUN, bytes(4))
    updater.host.clock.sleep(0.2)


def _running(updater: Updater) -> None:
    updater.download()
    updater.start_image()


def _committing(updater: Updater) -> None:
    _running(updater)
    updater.send(COMMIT)


def _committed(updater: Updater) -> None:
    _running(updater)
    assert updater.run(COMMIT) == DONE


def _aborted(updater: Updater) -> None:
    updater.begin()
    assert updater.run(ABORT) == DONE


def _copying(updater: Updater) -> None:
    updater.send(COPY, b"\xab")
    updater.host.wait(5.0)


AS_BEFORE = {"A": ("running committed valid", OLD_A)}
STEPS = {
    _idle: AS_BEFORE | {"B": ("valid", OLD_B)},
    _erasing: AS_BEFORE | {"B": ("", (0, 0, 0))},
    _writing: AS_BEFORE | {"B": ("", (0, 0, 0))},
    _checking: AS_BEFORE | {"B": ("", (0, 0, 0))},
    _aborted: AS_BEFORE | {"B": ("", (0, 0, 0))},
    _copying: AS_BEFORE | {"B": ("", (0, 0, 0))},
    _downloaded: AS_BEFORE | {"B": ("valid", NEW)},
    _waiting_for_reset: AS_BEFORE | {"B": ("valid", NEW)},
    _starting: AS_BEFORE | {"B": ("valid", NEW)},
    _running: AS_BEFORE | {"B": ("valid", NEW)},
    _committing: AS_BEFORE | {"B": ("valid", NEW)},
    _committed: {"A": ("valid", OLD_A), "B": ("running committed valid", NEW)},
}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_power_lost_at_any_step_leaves_a_module_that_starts_and_can_be_updated(step) -> None:
    updater = Updater()
    step(updater)
    updater.power_cycle()
    assert updater.images() == STEPS[step]
    running = next(version for words, version in STEPS[step].values() if "running" in words)
    assert tuple(updater.host.read(None, 39, 2)) == running[:2]
    assert updater.download() == DONE  # the next attempt succeeds
    spare = "A" if step is _committed else "B"
    assert updater.images()[spare] == ("valid", NEW)


# Refusals -------------------------------------------------------------------------------------------------------------


def test_a_damaged_or_incomplete_image_is_not_kept() -> None:
    updater = Updater()
    damaged = FILE[:-1] + bytes([FILE[-1] ^ 1])
    assert updater.download(damaged) == TASK
    assert updater.images()["B"] == ("", (0, 0, 0))
    assert updater.start_image() == WRONG_STATE
    assert updater.begin() == DONE
    assert updater.run(COMPLETE) == TASK
    assert updater.images()["A"] == ("running committed valid", OLD_A)


def test_a_foreign_image_is_refused_before_anything_is_erased() -> None:
    updater = Updater()
    assert updater.begin(bytes(1000)) == TASK
    assert updater.images()["B"] == ("valid", OLD_B)


@pytest.mark.parametrize("command", [ABORT, COMPLETE])
def test_commands_of_a_download_need_one(command: int) -> None:
    assert Updater().run(command) == WRONG_STATE


def test_blocks_are_checked_and_may_be_repeated() -> None:
    updater = Updater()
    assert updater.write(0, b"x") == WRONG_STATE
    updater.begin()
    assert updater.begin() == WRONG_STATE
    (first, block), (second, other) = updater.blocks()[:2]
    assert updater.write(second, other) == PARAMETER  # a gap, which this module does not accept
    assert updater.write(first, block) == DONE
    assert updater.write(first, block) == DONE
    assert updater.write(len(FILE), b"x") == PARAMETER
    assert updater.run(LPL, bytes(4)) == PARAMETER
    assert updater.run(EPL, bytes(4), epl=8) == UNKNOWN
    assert updater.start_image() == WRONG_STATE
    assert updater.run(COPY, b"\xab") == WRONG_STATE


@pytest.mark.parametrize("length", [104, 116])  # the last block is complete, or shorter
def test_the_last_byte_of_an_image_may_be_written_and_none_behind_it(length: int) -> None:
    updater = Updater()
    updater.begin()
    *blocks, (begin, last) = updater.blocks(length=length)
    for address, block in blocks:
        assert updater.write(address + 1, block[1:]) == PARAMETER  # a gap of one byte
        assert updater.write(address, block) == DONE
    assert updater.write(begin, last + b"x") == PARAMETER
    assert updater.write(begin, last) == DONE
    assert updater.write(begin + len(last), b"x") == PARAMETER
    assert updater.write(begin + len(last) - 1, last[-1:]) == DONE
    assert updater.run(COMPLETE) == DONE
    assert updater.images()["B"] == ("valid", NEW)


def test_where_blocks_may_be_left_out_the_end_of_the_image_is_where_it_is() -> None:
    updater = Updater(PLUS)
    updater.run(0x0001, HOST_PASSWORD)
    updater.begin()
    body = len(FILE) - updater.features()["start_size"]
    assert updater.write(body, b"x") == PARAMETER
    assert updater.write(body - 1, FILE[-1:] + b"x") == PARAMETER
    assert updater.write(body - 1, FILE[-1:]) == DONE
    assert updater.write(0xFFFF_FFFF, b"x") == PARAMETER


def test_an_extended_block_ends_with_the_image_and_with_its_pages() -> None:
    updater = Updater(PLUS)
    updater.run(0x0001, HOST_PASSWORD)
    file = firmware_image(*NEW, size=64 + 2048 + 5)
    assert updater.begin(file) == DONE

    def block(address: int, data: bytes, length: int) -> int:
        for start in range(0, len(data), 128):
            updater.host.select(0xA0 + start // 128)
            updater.host.module.write(128, data[start : start + 128])
        return updater.run(EPL, struct.pack(">I", address), epl=length)

    assert block(0, file[64 : 64 + 2048], 2049) == PARAMETER
    assert block(0, b"", 0) == PARAMETER
    assert block(0, b"", 2048) == DONE
    assert block(2048, file[64 + 2048 :], 6) == PARAMETER
    assert block(2048, b"", 5) == DONE
    assert updater.run(COMPLETE) == DONE
    assert updater.images()["B"] == ("valid", NEW)


def test_an_image_is_longer_than_its_header_and_no_longer_than_a_bank() -> None:
    updater = Updater()
    file = firmware_image(*NEW, size=65)
    assert updater.run(START, struct.pack(">II", 64, 0) + file[:64]) == PARAMETER
    for wrong in (file[:63], file[:64] + b"x"):
        assert updater.run(START, struct.pack(">II", 65, 0) + wrong) == PARAMETER
    assert updater.run(START, struct.pack(">II", MAX_IMAGE_BYTES + 1, 0) + file[:64]) == PARAMETER
    assert updater.run(START, struct.pack(">II", MAX_IMAGE_BYTES, 0) + file[:64]) == TASK  # not the size in its header
    assert updater.images()["B"] == ("valid", OLD_B)
    assert updater.download(file) == DONE
    with pytest.raises(ValueError, match="65 to"):
        firmware_image(*NEW, size=64)
    with pytest.raises(ValueError, match="65 to"):
        firmware_image(*NEW, size=MAX_IMAGE_BYTES + 1)


@pytest.mark.parametrize(
    ("command", "payload"),
    [(LPL, bytes(4)), (COPY, b""), (COPY, b"\xab\x00"), (RUN, bytes(3)), (RUN, bytes(5)), (RUN, b"\0\4\0\0")],
)
def test_payloads_of_a_byte_too_few_or_too_many_are_parameter_errors(command: int, payload: bytes) -> None:
    updater = Updater()
    if command == LPL:
        updater.begin()
    assert updater.run(command, payload) == PARAMETER
    assert updater.images()["A"] == ("running committed valid", OLD_A)


def test_erased_blocks_may_be_left_out_where_the_module_says_so() -> None:
    updater = Updater(PLUS)
    updater.run(0x0001, HOST_PASSWORD)
    assert updater.features()["bits"] & 0b100
    updater.begin()
    assert updater.write(*updater.blocks()[3]) == DONE


# Times, traffic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["400zr", PLUS])
def test_commands_keep_to_the_times_they_advertise_and_tell_that_they_are_busy(profile: str) -> None:
    updater = Updater(profile)
    updater.run(0x0001, HOST_PASSWORD)
    features = updater.features()
    unit_s = 1e-2 if features["bits"] & 0b1000 else 1e-3
    steps = {
        "start": (START, struct.pack(">II", len(FILE), 0) + FILE[:64]),
        "block": (LPL, struct.pack(">I", 0) + updater.blocks()[0][1]),
        "abort": (ABORT, b""),
        "copy": (COPY, b"\xab"),
    }
    for name, (command, payload) in steps.items():
        updater.send(command, payload)
        assert updater.status() & 0x80
        took_s = updater.host.until(lambda: not updater.status() & 0x80, 200.0, 0.002)
        assert updater.status() == DONE
        assert 0.3 * features[name] * unit_s < took_s <= features[name] * unit_s
    assert features["complete"] > 0


def test_a_reset_into_an_image_is_traffic_affecting_unless_the_module_can_do_better() -> None:
    for profile, hitless in (("400zr", False), (PLUS, True)):
        host = lit(profile)
        updater = Updater.__new__(Updater)
        updater.host = host
        updater.run(0x0001, HOST_PASSWORD)
        assert updater.features()["hitless"] == hitless
        assert updater.run(RUN, struct.pack(">BBH", 0, 1, 100)) == DONE
        assert host.states() == [4] * 8
        host.wait(0.8)
        assert (host.states() == [4] * 8) == hitless
        assert updater.images()["B"][0] == "running valid"


# Passwords ------------------------------------------------------------------------------------------------------------


def test_passwords_of_host_and_maker() -> None:
    updater = Updater()
    level = lambda: updater.run(0x0000, b"\x00\x00") == DONE and updater.host.read(0x9F, 137)[0]  # noqa: E731
    assert updater.run(0x0002, b"\x00\x00\x00\x01") == PASSWORD  # locked
    updater.host.write(None, 122, *HOST_PASSWORD)
    assert level() == 0x01
    assert updater.run(0x0002, b"\x80\x00\x00\x01") == PARAMETER  # a host must not set a manufacturer's password
    assert updater.run(0x0002, b"\x12\x34\x56\x78") == DONE
    updater.power_cycle()
    assert level() == 0x00
    updater.host.write(None, 122, *HOST_PASSWORD)
    assert level() == 0x00
    updater.host.write(None, 122, 0x12, 0x34, 0x56, 0x78)
    assert level() == 0x01
    updater.host.write(None, 118, *HOST_PASSWORD)
    updater.host.write(None, 122, 0x80, 0x00, 0x10, 0x11)
    assert level() == 0x80
    assert updater.host.read(None, 118, 8) == bytes(8)


def test_the_user_eeprom_keeps_what_is_written_without_power() -> None:
    updater = Updater()
    updater.host.select(0x03)
    updater.host.module.write(200, b"lumion!!")
    updater.power_cycle()
    assert updater.host.read(0x03, 200, 8) == b"lumion!!"
