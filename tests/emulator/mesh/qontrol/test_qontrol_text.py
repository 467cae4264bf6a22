"""The text dialect of the emulated Qontrol chain; golden lines are recorded (docs/sources.md#devices)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lumion_hw.emulator.mesh.qontrol import ChainProfile, HeaterLoad, ModuleSpec
from lumion_hw.errors import ConfigError
from tests.emulator.mesh.qontrol.qontrol_testbench import TWO, Rig

VIP_LINE = re.compile(r"\d+,\d: [+-]\d+\.\d{4} V, [+-]\d+\.\d{4} mA(, +\d+\.\d{4} mW, +\d+ Ohm)?")
LOG_LINE = re.compile(r"#[ \d]{2}\d, E\d\d:\d\d, \d+ [smh] ago")


def test_a_voltage_is_set_acknowledged_driven_and_read_back() -> None:
    rig = Rig()
    assert rig.raw(b"V3=4.5\n") == b"OK\n"
    assert rig.ask("V3?") == ["+4.5000 V"]
    assert rig.ask("I3?") == ["+4.5000 mA"]  # 4.5 V across 1 kOhm
    assert rig.currents_ma == pytest.approx([0, 0, 0, 4.5] + [0] * 12)


def test_a_current_is_set_in_ma_and_gives_the_voltage_of_the_load() -> None:
    rig = Rig(loads=HeaterLoad(300.0))
    assert rig.ask("I9=1.25") == ["OK"]
    assert rig.ask("I9?") == ["+1.2500 mA"]
    assert rig.ask("V9?") == ["+0.3750 V"]


def test_the_last_set_wins_between_voltage_and_current() -> None:
    rig = Rig(loads=HeaterLoad(500.0))
    rig.ask("V0=5")
    rig.ask("I0=2")
    assert rig.ask("V0?") == ["+1.0000 V"]
    rig.ask("V0=5")
    assert rig.ask("I0?") == ["+10.0000 mA"]


@pytest.mark.parametrize("request_text", ["V3?", "v3?", "Vall?", "vipall?", "nUp?", "id?", "firmware?"])
def test_commands_are_case_insensitive(request_text: str) -> None:
    rig = Rig()
    assert rig.ask(request_text) == rig.ask(request_text.upper()) != []


def test_identity_is_that_of_the_recorded_chain() -> None:
    rig = Rig()
    assert rig.ask("ID?") == ["Q8iv-0001"]
    assert rig.ask("ID8?") == ["Q8iv-****"]
    assert rig.ask("IDALL?") == ["Q8iv-0001", "Q8iv-****"]
    assert rig.ask("NUP?") == ["Q8iv-0001: 0"]
    assert rig.ask("NUP8?") == ["Q8iv-****: 1"]
    assert rig.ask("NUPALL?") == ["Q8iv-0001: 0", "Q8iv-****: 1"]
    assert rig.ask("FIRMWARE?") == ["v2.4.1"]
    assert rig.ask("NCHAN?") == ["8"]
    assert rig.ask("NCHANALL?") == ["8", "8"]


@pytest.mark.parametrize(
    ("request_text", "count"), [("NUP=0", 2), ("NUP0=0", 2), ("NUP7=3", 2), ("NUP8=14", 1), ("NUP15=0", 1)]
)
def test_enumeration_is_acknowledged_from_the_addressed_module_to_the_end(request_text: str, count: int) -> None:
    assert Rig().raw(request_text.encode() + b"\n") == b"\x06OK\n" * count


def test_full_scale_and_limits_are_those_of_a_q8iv() -> None:
    rig = Rig()
    assert rig.ask("VFULL?") == ["+12.0000 V"]
    assert rig.ask("IFULL?") == ["+24.0000 mA"]
    assert rig.ask("VFULLALL?") == ["+12.0000 V"] * 2
    assert rig.ask("VMAX3?") == ["+12.0000 V"]
    assert rig.ask("IMAX3?") == ["+24.0000 mA"]
    assert rig.ask("VMAXALL?") == ["+12.0000 V"] * 16


def test_each_module_of_a_mixed_chain_answers_with_its_own_full_scale() -> None:
    rig = Rig((ModuleSpec("Q8iv", 1), ModuleSpec("Q8b", 2), ModuleSpec("Q8a", 0xBEEF)))
    assert rig.ask("IFULLALL?") == ["+24.0000 mA", "+83.3333 mA", "+100.0000 mA"]
    assert rig.ask("IFULL8?") == ["+83.3333 mA"]
    assert rig.ask("ID16?") == ["Q8a-BEEF"]


def test_limits_are_set_and_read() -> None:
    rig = Rig()
    assert rig.ask("VMAX3=5.5") == ["OK"]
    assert rig.ask("IMAX3=7") == ["OK"]
    assert rig.ask("VMAX3?") == ["+5.5000 V"]
    assert rig.ask("IMAX3?") == ["+7.0000 mA"]
    assert rig.ask("VMAX4?") == ["+12.0000 V"]


def test_a_read_of_all_goes_through_the_channels_of_the_chain_in_order() -> None:
    rig = Rig()
    for channel in range(16):
        rig.ask(f"V{channel}={channel / 2}")
    assert rig.ask("VALL?") == [f"+{channel / 2:.4f} V" for channel in range(16)]
    assert rig.ask("IALL?") == [f"+{channel / 2:.4f} mA" for channel in range(16)]


def test_a_write_of_all_is_acknowledged_once_per_module() -> None:
    rig = Rig()
    assert rig.ask("VALL=2") == ["OK", "OK"]
    assert rig.currents_ma == pytest.approx([2.0] * 16)
    assert rig.ask("IALL=1.5") == ["OK", "OK"]
    assert rig.currents_ma == pytest.approx([1.5] * 16)


def test_a_vector_sets_a_module_and_is_acknowledged_once_per_module() -> None:
    rig = Rig()
    assert rig.ask("VVEC0=1,2,3,4,5,6,7,8") == ["OK"]
    assert rig.ask("IVEC8=8,7,6,5,4,3,2,1") == ["OK"]
    assert rig.currents_ma == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1])
    assert rig.ask("VVEC0=" + ",".join(["1"] * 16)) == ["OK", "OK"]
    assert rig.currents_ma == pytest.approx([1.0] * 16)


def test_a_vector_is_driven_in_one_step() -> None:
    rig = Rig()
    before = len(rig.driven)
    rig.ask("VVEC0=1,2,3,4,5,6,7,8")
    assert len(rig.driven) == before + 1


@pytest.mark.parametrize(
    "request_text", ["VVEC0=1,2,3", "VVEC1=1,2,3,4,5,6,7,8", "VVEC8=" + ",".join(["1"] * 16), "VVEC0=", "VVEC0=1,,3"]
)
def test_a_vector_has_to_cover_whole_modules(request_text: str) -> None:
    rig = Rig()
    assert rig.ask(request_text) == ["E11:00"]
    assert rig.currents_ma == pytest.approx([0.0] * 16)


def test_short_vectors_are_taken_by_chains_that_take_them() -> None:
    rig = Rig(short_vectors=True)
    assert rig.ask("VVEC7=3,4") == ["OK", "OK"]
    assert rig.currents_ma == pytest.approx([0] * 7 + [3, 4] + [0] * 7)


def test_vip_lines_name_module_and_channel_and_tell_power_and_resistance_under_load() -> None:
    rig = Rig(loads=[HeaterLoad(1000.0)] * 5 + [HeaterLoad(9.25)] + [HeaterLoad(1000.0)] * 10)
    rig.ask("I5=22.03")
    lines = rig.ask("VIPALL?")
    assert len(lines) == 16
    assert all(VIP_LINE.fullmatch(line) for line in lines)
    assert lines[0] == "0,0: +0.0000 V, +0.0000 mA"
    # 22.03 mA through 9.25 Ohm: 0.2038 V, 4.4892 mW; fields as in the recording "0,5: ...,   4.5130 mW,      9 Ohm"
    assert lines[5] == "0,5: +0.2038 V, +22.0300 mA,   4.4892 mW,      9 Ohm"
    assert lines[15] == "1,7: +0.0000 V, +0.0000 mA"


def test_calibration_words_look_as_recorded_and_can_be_written() -> None:
    rig = Rig()
    assert re.fullmatch(r"[+-]\d+(,[+-]\d+){3}", rig.ask("VCAL3?")[0])
    assert rig.ask("ICAL8?") == ["+1,+0,+0,+0"], "a module without a number is not calibrated"
    assert len(rig.ask("VCALALL?")) == 16
    assert rig.ask("VCAL8=1152,-4448,-75,-6") == ["OK"]
    assert rig.ask("VCAL8?") == ["+1152,-4448,-75,-6"]
    assert rig.ask("VCAL8=1,2,3") == ["E11:00"]


@pytest.mark.parametrize(("name", "value"), [("LED", "1"), ("OK", "1"), ("SAFE", "1"), ("ADCT", "5"), ("ADCN", "2")])
def test_the_integers_whose_meaning_is_not_public_answer_as_recorded(name: str, value: str) -> None:
    rig = Rig()
    assert rig.ask(f"{name}?") == [value]
    assert rig.ask(f"{name}ALL?") == [value, value]
    assert rig.ask(f"{name}8=7") == ["OK"]
    assert rig.ask(f"{name}ALL?") == [value, "7"]
    assert rig.ask(f"{name}ALL=9") == ["OK", "OK"]
    assert rig.ask(f"{name}8?") == ["9"]
    assert rig.ask(f"{name}=x") == ["E11:00"]


def test_operating_time_counts_seconds() -> None:
    rig = Rig()
    assert rig.ask("LIFETIME?") == ["156607 s"]
    rig.clock.sleep(61.5)
    assert rig.ask("LIFETIMEALL?") == ["156668 s", "156668 s"]


def test_the_log_has_64_lines_and_the_newest_stands_in_line_1() -> None:
    rig = Rig()
    rig.ask("nonsense?")
    rig.clock.sleep(16 * 60)
    lines = rig.ask("LOG?")
    assert len(lines) == 64
    assert all(LOG_LINE.fullmatch(line) for line in lines)
    assert lines[1] == "#  1, E10:00, 16 m ago"
    assert lines[63].startswith("# 63, ")
    assert len(rig.ask("LOGALL?")) == 128


def test_the_oldest_log_entry_stands_in_line_0() -> None:
    rig = Rig()
    rig.ask("V99?")
    for _ in range(63):
        rig.ask("nonsense?")
    assert rig.ask("LOG?")[0] == "#  0, E12:99, 0 s ago"
    rig.ask("nonsense?")
    assert rig.ask("LOG?")[0] == "#  0, E10:00, 0 s ago"


def test_the_memory_is_told_in_128_lines_per_module() -> None:
    lines = Rig().ask("NVMALL?")
    assert len(lines) == 256
    assert all(re.fullmatch(r"[0-9A-F]{2} : 0x[0-9A-F]{4},  [0-9A-F]{2} : 0x[0-9A-F]{4}", line) for line in lines)
    assert [lines[0][:5], lines[0][14:19], lines[127][:5], lines[128][:5]] == ["00 : ", "01 : ", "FE : ", "00 : "]


@pytest.mark.parametrize("request_text", ["HELP?", "HELP"])
def test_help_has_26_lines_of_which_the_first_is_empty(request_text: str) -> None:
    lines = Rig().ask(request_text)
    assert len(lines) == 26
    assert lines[:2] == ["", "CORE COMMAND SET."]


@pytest.mark.parametrize("request_text", ["VERR?", "VERR3?", "VERRALL?", "IERR?", "IERRALL?", "ROCOM?", "ROCOMALL?"])
def test_what_is_not_readable_is_answered_by_an_unknown_error(request_text: str) -> None:
    assert Rig().ask(request_text) == ["E00:01"]


@pytest.mark.parametrize(
    "request_text",
    [
        "CCFN?",
        "bogus?",
        "TEMP?",
        "X0?",
        "V",
        "ID",
        "V-1?",
        "V 3?",
        "V3 =1",
        "?",
        "=",
        "V3?4",
        "VALL3?",
        "VVEC=1",
        "ALL?",
    ],
)
def test_what_is_no_command_is_an_unrecognised_command(request_text: str) -> None:
    assert Rig().ask(request_text) == ["E10:00"]


@pytest.mark.parametrize(
    "value", ["-1", "1e-05", "1E3", "nan", "inf", "", "1,2", " 1", "1 ", "0x10", ".5", "5.", "1.0.0", "٣"]
)
def test_what_is_no_plain_number_is_an_unrecognised_parameter(value: str) -> None:
    rig = Rig()
    assert rig.lines(f"V3={value}\n".encode()) == ["E11:00"]
    assert rig.ask("V3?") == ["+0.0000 V"]


def test_numbers_may_have_a_plus_and_leading_zeros() -> None:
    rig = Rig()
    assert rig.ask("V3=+004.50") == ["OK"]
    assert rig.ask("V3?") == ["+4.5000 V"]


def test_chains_that_understand_exponents_and_negatives_can_be_had() -> None:
    rig = Rig(exponents=True, negatives=True)
    assert rig.ask("V3=25e-1") == ["OK"]
    assert rig.ask("V3?") == ["+2.5000 V"]
    assert rig.ask("V3=-2") == ["OK"]
    assert rig.ask("V3?") == ["+0.0000 V"]
    assert rig.ask("V3=nan") == ["E11:00"]


@pytest.mark.parametrize(
    ("request_text", "answer"), [("V16?", "E12:16"), ("V99=1", "E12:99"), ("ID255?", "E12:255"), ("NUP16=0", "E12:16")]
)
def test_a_channel_that_is_not_there_is_named(request_text: str, answer: str) -> None:
    assert Rig().ask(request_text) == [answer]


def test_chains_that_are_silent_on_unknown_channels_can_be_had() -> None:
    rig = Rig(silent_unknown_channels=True)
    assert rig.ask("V16?") == []
    assert rig.ask("V15?") == ["+0.0000 V"]


@pytest.mark.parametrize("request_text", ["V?", "V=1", "VMAX?", "VCAL?"])
def test_a_value_of_a_channel_needs_a_channel(request_text: str) -> None:
    assert Rig().ask(request_text) == ["E11:00"]


@pytest.mark.parametrize(
    "request_text", ["ID=1", "VFULL=3", "LOG=0", "VIP3?", "NVM?", "VERR=1", "LEDVEC0=1", "NUPALL=0"]
)
def test_a_way_that_a_command_does_not_have_is_forbidden(request_text: str) -> None:
    assert Rig().ask(request_text) == ["E13:00"]


def test_empty_lines_are_nothing() -> None:
    rig = Rig()
    assert rig.ask("\n\n") == []
    assert rig.ask("ID?") == ["Q8iv-0001"]


def test_the_86_byte_line_of_the_recordings_overflows_and_repetition_is_suppressed() -> None:
    rig = Rig()
    line = "V0=" + ",".join(["4.50"] * 14 + ["4.500", "4.5000"])
    assert len(line) + 1 == 86
    assert rig.ask(line) == ["E14:00", "E15:00"]
    assert rig.ask(line) == ["E14:00", "E15:00"]
    assert rig.ask(line) == ["E30:00"]
    assert rig.ask(line) == []
    assert rig.ask("ID?") == ["Q8iv-0001"], "the next good line is understood"


@pytest.mark.parametrize("limit", [22, 64, 80])
def test_the_longest_line_has_the_limit_in_bytes_with_its_end(limit: int) -> None:
    rig = Rig(line_limit=limit)
    longest = "V3=" + "0" * (limit - 5) + "4"
    assert len(longest) + 1 == limit
    assert rig.ask(longest) == ["OK"]
    assert rig.ask(longest + "0") == ["E14:00", "E15:00"]


def test_lines_arrive_in_any_pieces() -> None:
    rig = Rig()
    assert [rig.raw(bytes([byte])) for byte in b"V3=4.5\n"] == [b""] * 6 + [b"OK\n"]
    assert rig.lines(b"V3?\nI3?\nID") == ["+4.5000 V", "+4.5000 mA"]
    rig.clock.sleep(3600.0)
    assert rig.lines(b"8?\n") == ["Q8iv-****"], "text has no time-out"


def test_the_older_firmware_echoes_and_sets_powers() -> None:
    rig = Rig(echo=True)
    assert rig.ask("V3=2") == ["V3=2", "OK"]
    assert rig.ask("p4=9") == ["p4=9", "OK"]
    assert rig.currents_ma[4] == pytest.approx(3.0)  # 9 mW in 1 kOhm
    assert rig.ask("p4=1000") == ["p4=1000", "E02:04"]
    assert Rig().ask("p4=9") == ["E10:00"]


def test_two_hosts_each_get_their_own_answers() -> None:
    rig = Rig()
    other = rig.dial()
    other.write(b"ID8?\n", 0.0)
    assert rig.ask("ID?") == ["Q8iv-0001"]
    assert other.read(0.0) == b"Q8iv-****\n"


def test_readings_scatter_by_the_noise_and_offsets_of_the_profile() -> None:
    rig = Rig(profile=ChainProfile(), loads=[HeaterLoad()] * 8 + [HeaterLoad(float("inf"))] * 8, seed=3)
    idle = np.array([float(line.split()[0]) for line in rig.ask("VALL?")])
    assert np.all(np.abs(idle[:8]) < 0.002)
    assert np.all(idle[8:] < 0.202)
    assert idle[8:].max() > 0.02, "outputs without a load float"
    currents = np.array([float(line.split()[0]) for line in rig.ask("IALL?")])
    assert 0.0 < np.abs(currents).max() < 0.012


def test_the_same_seed_gives_the_same_readings() -> None:
    def run(seed: int) -> list[str]:
        rig = Rig(profile=ChainProfile(), seed=seed)
        return rig.ask("VIPALL?") + rig.ask("VCALALL?") + rig.ask("NVMALL?")

    assert run(5) == run(5) != run(6)


@pytest.mark.parametrize("settings", [{"kind": "Q"}, {"kind": "8Q"}, {"kind": "Q0"}, {"number": -1}, {"number": 65536}])
def test_modules_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ModuleSpec(**settings)


@pytest.mark.parametrize("settings", [{"line_limit": 0}, {"baud": 0}, {"supervision_s": (2, 1)}, {"long_form_ma": 0}])
def test_profiles_that_cannot_be_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ChainProfile(**settings)


@pytest.mark.parametrize(("modules", "loads"), [((), None), (TWO, [HeaterLoad()] * 15)])
def test_a_chain_needs_modules_and_a_load_for_each_channel(modules: tuple[ModuleSpec, ...], loads: object) -> None:
    with pytest.raises(ConfigError, match="heaters"):
        Rig(modules, loads=loads)


def test_a_type_outside_the_table_has_the_channels_of_its_name() -> None:
    rig = Rig((ModuleSpec("Q4z", 7, full_scale_v=5.0), ModuleSpec(number=1)))
    assert rig.ask("NUPALL?") == ["Q4z-0007: 0", "Q8iv-0001: 1"]
    assert rig.ask("NCHANALL?") == ["4", "8"]
    assert rig.ask("VFULLALL?") == ["+5.0000 V", "+12.0000 V"]
    assert rig.ask("ID4?") == ["Q8iv-0001"]
