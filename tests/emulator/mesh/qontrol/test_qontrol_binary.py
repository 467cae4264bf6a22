"""The binary dialect of the emulated Qontrol chain; golden bytes follow the official client."""

from __future__ import annotations

import struct

import pytest

from lumion_hw.emulator.mesh.qontrol import HeaterLoad, ModuleSpec
from tests.emulator.mesh.qontrol.qontrol_testbench import Rig

STEP_V = 12.0 / 65535


def vector(code: int, channel: int, words: list[int]) -> bytes:
    return struct.pack(f">BBBHH{len(words)}H", 0x82, code, 0, channel, len(words), *words)


@pytest.mark.parametrize(
    ("request_hex", "reading", "answer"),
    [
        # 0x7891 = 30865: 30865 / 65535 * 12 V = 5.6516 V; 0x8C48 = 35912: 35912 / 65535 * 24 mA = 13.1516 mA
        ("81 00 00 00 02 78 91", "V2?", "+5.6516 V"),
        ("81 01 00 00 00 8c 48", "I0?", "+13.1516 mA"),
        # 1.0 V = int(1 / 12 * 65535) = 5461 = 0x1555; 5461 / 65535 * 12 V = 0.99995 V
        ("81 00 00 00 03 15 55", "V3?", "+1.0000 V"),
        ("81 02 00 00 03 7f ff", "VMAX3?", "+5.9999 V"),
        ("81 03 00 00 0f 7f ff", "IMAX15?", "+11.9998 mA"),
    ],
)
def test_a_word_counts_in_65535ths_of_full_scale(request_hex: str, reading: str, answer: str) -> None:
    rig = Rig(loads=HeaterLoad(500.0))
    assert rig.raw(bytes.fromhex(request_hex)) == b"OK\n"
    assert rig.ask(reading) == [answer]


def test_one_channel_is_read() -> None:
    rig = Rig()
    rig.ask("V1=2.0994")
    assert rig.lines(bytes.fromhex("88 00 00 00 01 00 00")) == ["+2.0994 V"]


def test_the_data_of_a_read_is_ignored() -> None:
    assert Rig().lines(bytes.fromhex("88 00 00 00 01 ff ff")) == ["+0.0000 V"]


def test_all_channels_are_read() -> None:
    rig = Rig()
    rig.ask("V15=3")
    assert rig.lines(bytes.fromhex("a9 00 00 00 00 00 00")) == ["+0.0000 V"] * 15 + ["+3.0000 V"]


def test_a_vector_over_two_modules_is_acknowledged_twice() -> None:
    rig = Rig()
    words = [4096 * channel for channel in range(16)]
    data = vector(0x00, 0, words)
    assert data[:7] == bytes.fromhex("82 00 00 00 00 00 10")
    assert rig.raw(data) == b"OK\nOK\n"
    # 1 kOhm: currents in mA equal voltages in V
    assert rig.currents_ma == pytest.approx([word * STEP_V for word in words])


def test_a_vector_may_begin_at_the_second_module() -> None:
    rig = Rig()
    assert rig.raw(vector(0x01, 8, [0x1000] * 8)) == b"OK\n"
    assert rig.currents_ma == pytest.approx([0.0] * 8 + [0x1000 / 65535 * 24.0] * 8)


def test_all_channels_are_written() -> None:
    rig = Rig()
    assert rig.raw(bytes.fromhex("a0 00 00 00 00 15 55")) == b"OK\nOK\n"
    assert rig.currents_ma == pytest.approx([5461 * STEP_V] * 16)


def test_a_word_is_scaled_by_the_module_that_owns_the_channel() -> None:
    rig = Rig((ModuleSpec("Q8iv", 1), ModuleSpec("Q8b", 2)))
    assert rig.raw(vector(0x01, 0, [0x1000] * 16)) == b"OK\nOK\n"
    assert rig.currents_ma[0] == pytest.approx(0x1000 / 65535 * 24.0)
    assert rig.currents_ma[8] == pytest.approx(0x1000 / 65535 * 83.333333)


def test_enumeration_from_the_second_module() -> None:
    assert Rig().raw(bytes.fromhex("81 32 00 00 08 00 0e")) == b"\x06OK\n"


@pytest.mark.parametrize(
    ("request_hex", "answer"),
    [
        ("88 06 00 00 00 00 00", ["E00:01"]),  # VERR0?
        ("88 24 00 00 08 00 00", ["Q8iv-****"]),  # ID8?
        ("a9 24 00 00 00 00 00", ["Q8iv-0001", "Q8iv-****"]),
        ("88 32 00 00 08 00 00", ["Q8iv-****: 1"]),
        ("a9 20 00 00 00 00 00", ["+12.0000 V", "+12.0000 V"]),
        ("a9 22 00 00 00 00 00", ["8", "8"]),
        ("84 36 00 00 00 00 00", ["OK"]),  # action INTEST
        ("88 35 00 00 00 00 00", ["E10:00"]),  # CCFN: unknown, as in text
        ("81 60 00 00 00 00 00", ["E10:00"]),  # no such code
        ("81 24 00 00 00 00 00", ["E13:00"]),  # ID is read-only
        ("88 0a 00 00 00 00 00", ["E13:00"]),  # VIP can only be read for all channels
        ("c1 00 00 00 00 00 00", ["E15:00"]),  # odd parity
        ("c0 00 00 00 00 00 00", ["E13:00"]),  # broadcast: undocumented
        ("88 00 00 00 10 00 00", ["E12:16"]),
        ("81 00 00 ff ff 00 00", ["E12:65535"]),
    ],
)
def test_requests_and_their_answers(request_hex: str, answer: list[str]) -> None:
    assert Rig().lines(bytes.fromhex(request_hex)) == answer


def test_a_header_with_odd_parity_changes_nothing() -> None:
    rig = Rig()
    assert rig.lines(bytes.fromhex("80 00 00 00 02 78 91")) == ["E15:00"]
    assert rig.ask("V2?") == ["+0.0000 V"]
    assert Rig(check_parity=False).lines(bytes.fromhex("80 00 00 00 02 78 91")) == ["OK"]


def test_a_module_can_be_addressed_by_its_number_and_local_channel() -> None:
    rig = Rig((ModuleSpec(number=0x0001), ModuleSpec(number=0x0A0B)))
    header = 0x80 | 0x10  # parity is even already
    assert rig.lines(bytes([header, 0x00, 0x0A, 0x0B, 0x03, 0x15, 0x55])) == ["OK"]
    assert rig.currents_ma[11] == pytest.approx(5461 * STEP_V)
    assert rig.lines(bytes([header, 0x00, 0x0A, 0x0C, 0x03, 0x15, 0x55])) == ["E12:03"]
    assert rig.lines(bytes([header, 0x00, 0x0A, 0x0B, 0x08, 0x15, 0x55])) == ["E12:08"]


def test_text_and_binary_may_be_mixed_on_one_connection() -> None:
    rig = Rig()
    data = b"V0=1\n" + bytes.fromhex("81 00 00 00 01 15 55") + b"V2=3\n" + vector(0, 8, [0] * 8) + b"VALL?\n"
    expected = ["OK"] * 4 + ["+1.0000 V", "+1.0000 V", "+3.0000 V"] + ["+0.0000 V"] * 13
    assert rig.lines(data) == expected
    one_by_one = Rig()
    assert [line for byte in data for line in one_by_one.lines(bytes([byte]))] == expected


def test_a_line_end_within_binary_data_ends_nothing() -> None:
    rig = Rig()
    assert rig.lines(vector(0, 0, [0x0A0A] * 8)) == ["OK"]
    assert rig.currents_ma[:8] == pytest.approx([0x0A0A * STEP_V] * 8)


@pytest.mark.parametrize("words", [[], [1] * 7, [1] * 9, [1] * 17, [1] * 200])
def test_a_vector_with_a_wrong_count_is_refused_as_a_whole(words: list[int]) -> None:
    rig = Rig()
    assert rig.lines(vector(0, 0, words)) == ["E11:00"]
    assert rig.currents_ma == pytest.approx([0.0] * 16)
    assert rig.ask("ID?") == ["Q8iv-0001"], "the words have been read to their end"


def test_a_lost_byte_shifts_everything() -> None:
    rig = Rig()
    assert rig.lines(bytes.fromhex("81 00 00 00 02 78")) == []  # last byte lost
    assert rig.ask("ID?") == ["OK", "E10:00"]  # 0x7849 has been set, and "D?" is no command
    assert rig.ask("V2?") == ["+5.6385 V"]  # 0x7849 = 30793: 369516 / 65535 V


def test_an_idle_line_ends_an_unfinished_binary_request() -> None:
    rig = Rig()
    rig.lines(bytes.fromhex("81 00 00 00 02 78"))
    rig.clock.sleep(0.050)
    assert rig.ask("ID?") == ["Q8iv-0001"]
    assert rig.ask("V2?") == ["+0.0000 V"]


def test_the_announced_words_of_garbage_are_let_pass_but_not_kept() -> None:
    rig = Rig()
    rig.raw(b"\x82\x00\x00\x00\x00\xff\xff" + b"x" * 1000)
    rig.clock.sleep(0.050)
    assert rig.ask("ID?") == ["Q8iv-0001"]
