"""The readings of a module: whether each lane transmits and receives, and how well."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from lumion_hw import VirtualClock
from lumion_hw.drivers import CmisTransponder
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import DecodedField, DecodedModule
from lumion_hw.drivers.transponders.dump_decoder import decode_file, decode_memory
from lumion_hw.drivers.transponders.qsfp_decoder import decode_qsfp
from lumion_hw.drivers.transponders.readings import LaneReadings, ModuleReadings, module_readings
from lumion_hw.drivers.transponders.sfp_decoder import decode_sfp
from lumion_hw.emulator import CmisModule, Fibre, join
from lumion_hw.emulator.transponders.cmis.profiles import PROFILES as CMIS_PROFILES
from lumion_hw.interfaces import Quality, Reading, TransponderIdentity
from lumion_hw.standards.cmis import FIELDS
from lumion_hw.standards.cmis.image import LOWER, MemoryImage
from lumion_hw.standards.module_text import image_from_text
from lumion_hw.standards.sff8472.image import SfpImage
from tests.drivers.transponders.qsfp_memories import cable, linear, lr4, sealed
from tests.drivers.transponders.sfp_memories import CONSTANTS, IDENTITY, MONITORS
from tests.standards import module_text_samples as posted


def text_of(module: DecodedModule, flags: tuple[tuple[str, int | None], ...] | None = None) -> list[str]:
    return list(module_readings(module, flags).lines())


def dumped(profile: str, switch_on: bool = True) -> MemoryImage:
    clock = VirtualClock()
    module = CmisModule.from_profile(profile, clock=clock, low_power_pin=False)
    with CmisTransponder(module, clock=clock, device="m") as transponder:
        transponder.power_up()
        if switch_on:
            transponder.enable()
        return transponder.dump()


def test_a_posted_memory_of_an_sfp() -> None:
    image = image_from_text(posted.I2CDUMP_SFP.encode())
    assert image is not None
    assert text_of(decode_memory(image)) == [
        "module: temperature 66.2 °C, supply 3.271 V",
        "lane 1: transmits -3.0 dBm, receives -3.0 dBm, bias 6.0 mA",
        # 0928h, 2710h, 032Ch, 2710h · 0.1 µW
        "limits of the module: transmits -6.3 to 0.0 dBm, receives -10.9 to 0.0 dBm",
    ]


def test_a_posted_memory_of_a_cmis_module() -> None:
    image = image_from_text(posted.SFPUTIL_CMIS.encode())
    assert image is not None
    lines = text_of(decode_memory(image))
    assert lines[0] == "module: ready, data paths activated, temperature 26.24 °C, supply 3.249 V"
    # 2844h and 1F29h · 0.1 µW; the unit of the bias is on page 01h, which is missing
    assert lines[1] == "lane 1: transmits 0.1 dBm, receives -1.0 dBm, bias unknown"
    assert [line[:7] for line in lines[1:]] == ["lane 1:", "lane 2:", "lane 3:", "lane 4:"]


def test_four_lanes_that_receive_nothing() -> None:
    flags = (("rx_los", 2), ("rx_power_low_alarm", 1), ("rx_power_low_alarm", 2), ("module_state_changed", None))
    lines = text_of(decode_image(dumped("400g-dr4")), flags)
    assert lines[0].startswith("module: ready, data paths activated, temperature 38.5")
    assert lines[1].startswith("lane 1: transmits 1.0 dBm, receives nothing, bias 70.")
    assert "receives nothing (LOS)" in lines[2]
    assert lines[-1] == "flags: no light received (lanes 1, 2)"
    assert lines[-2].startswith("limits of the module: transmits -2.9 to 4.0 dBm")
    assert len(lines) == 7


def test_lanes_with_different_powers_in_one_fibre_are_a_warning() -> None:
    lines = text_of(decode_file(linear(lr4())))
    assert [line for line in lines if line.startswith("warning: lane 3 receives -6.0 dBm, 6.0 dB less than lane 1")]


@pytest.mark.parametrize(("profile", "warnings"), [("400g-fr4", 1), ("400g-dr4", 0)])
def test_lanes_of_a_cmis_module_are_compared_if_they_share_a_fibre(profile: str, warnings: int) -> None:
    image = dumped(profile)
    # 11h:154-161: launched 1.2, 1.2, 0.12 and 1.2 mW, in units of 0.1 µW.
    page = bytearray(image.halves[0, 0x11])
    page[154 - 128 : 162 - 128] = bytes.fromhex("2EE02EE004B02EE0")
    halves = {**image.halves, (0, 0x11): bytes(page)}
    lines = text_of(decode_image(replace(image, halves=halves)))
    found = [line for line in lines if line.startswith("warning: lane 3 launches -9.2 dBm, 10.0 dB less than lane 1")]
    assert len(found) == warnings


def test_a_module_that_is_off() -> None:
    lines = text_of(decode_image(dumped("400g-dr4", switch_on=False)))
    assert [line.partition(",")[0] for line in lines[1:5]] == [
        f"lane {lane}: transmits nothing (switched off)" for lane in range(1, 5)
    ]


def test_a_receiver_with_lock_shows_the_quality_of_the_signal() -> None:
    clock = VirtualClock()
    one, other = (CmisModule.from_profile("400zr", clock=clock, seed=seed, low_power_pin=False) for seed in (1, 2))
    join(one, other, Fibre(loss_db=8.0))
    with (
        CmisTransponder(one, clock=clock, device="one") as near,
        CmisTransponder(other, clock=clock, device="other") as far,
    ):
        near.power_up()
        assert module_readings(decode_image(near.dump())).link == {}  # receivers without lock report 0
        far.power_up()
        near.enable()
        far.enable()
        assert near.wait_for_lock(60.0).locked
        lines = text_of(decode_image(near.dump()))
    assert re.match(r"lane 1: transmits -(9\.9|10\.\d) dBm, receives -18\.\d dBm, bias", lines[1])  # 8 dB of loss
    assert lines[2].startswith("link: ")
    assert "BER before error correction" in lines[2]
    assert "OSNR" in lines[2]


def test_a_cable_without_monitors_says_so() -> None:
    module = decode_image(
        MemoryImage({LOWER: bytes([0x18, 0x52, 0x80, *bytes(125)]), (0, 0): bytes([0x18, *bytes(127)])})
    )
    assert "no monitors" in text_of(module)[-1]
    assert text_of(decode_qsfp(MemoryImage({(0, page): bytes(data) for page, data in cable().items()}))) == [
        "passive copper cable, 3 m",
        "no readings: the module has no monitors",
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        # SFF-8636 Table 6-20, byte 147.7-4; byte 146: length in m. 40GBASE-CR4 is bit 131.3, 100GBASE-CR4 byte 192.
        ({147: 0xB0}, "passive copper cable, 3 m"),
        ({147: 0xC0}, "active copper cable, 3 m"),
        ({147: 0xF0, 146: 5}, "active copper cable, 5 m"),
        ({147: 0x00}, "copper cable, 3 m"),  # known from the compliance codes alone
        ({146: 0}, "passive copper cable"),
        ({146: 0xFF}, "passive copper cable"),  # more than 254 m
        ({131: 0, 192: 0}, "passive copper cable, 3 m"),
    ],
)
def test_the_kind_of_a_qsfp_cable(changes: dict[int, int], text: str) -> None:
    pages = cable()
    for at, value in changes.items():
        pages[0][at - 128] = value
    pages[0] = sealed(bytes(pages[0]))
    module = decode_file(linear(pages))
    assert text_of(module)[0] == text
    assert "unknown" not in module.identity.technology
    pages[0][148 - 128] ^= 0xFF  # a wrong checksum makes the kind doubtful
    assert "cable" not in text_of(decode_file(linear(pages)))[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        # SFF-8472 Table 5-3: 8.2 passive, 8.3 active cable; byte 18: length in m; connector 21h: copper pigtail.
        ({8: 0x04, 18: 3}, "passive copper cable, 3 m"),
        ({8: 0x08, 18: 7}, "active cable, 7 m"),
        ({8: 0x08, 18: 7, 36: 0x01}, "active optical cable, 7 m"),
        ({2: 0x21, 3: 0, 18: 2}, "copper cable, 2 m"),
    ],
)
def test_the_kind_of_an_sfp_cable(changes: dict[int, int], text: str) -> None:
    a0 = bytearray(IDENTITY)
    a0[3], a0[92] = 0, 0  # no Ethernet codes, no diagnostics
    for at, value in changes.items():
        a0[at] = value
    for first, last, at in ((0, 62, 63), (64, 94, 95)):
        a0[at] = sum(a0[first : last + 1]) % 256
    module = decode_sfp(SfpImage(bytes(a0).ljust(256, b"\x00"), b""))
    assert text_of(module)[0] == text
    assert "unknown" not in module.identity.technology


@pytest.mark.parametrize(
    ("media_type", "technology", "length", "text"),
    [
        # CMIS 00h:85, 00h:212; 00h:202 is the length: 43h is 3 m, 19h is 25 times 0.1 m.
        (0x03, 0x0A, 0x43, "passive copper cable, 3 m"),
        (0x04, 0x0C, 0x19, "active copper cable, 2.5 m"),
        (0x03, 0x0B, 0x00, "passive copper cable"),
    ],
)
def test_the_kind_of_a_cmis_cable(media_type: int, technology: int, length: int, text: str) -> None:
    lower, page = bytearray([0x18, 0x52, 0x80, *bytes(125)]), bytearray([0x18, *bytes(127)])
    lower[85], page[212 - 128], page[202 - 128] = media_type, technology, length
    page[222 - 128] = sum(page[: 222 - 128]) % 256
    assert text_of(decode_image(MemoryImage({LOWER: bytes(lower), (0, 0): bytes(page)})))[0] == text


def test_a_memory_of_zeros_does_not_say_that_a_module_works() -> None:
    pages = lr4()
    pages[None][1] = 0x03  # before revision 2.8
    pages[None][3:128] = bytes(125)
    assert text_of(decode_file(linear(pages))) == [
        "lanes: unknown, because supply, bias and powers are all 0 in the dump"
    ]
    pages[None][3] = 0x02  # a flag that is set is known
    assert "lane 2: transmitter unknown, receives nothing (LOS)" in text_of(decode_file(linear(pages)))
    pages[None][3:28] = bytes(23) + b"\x80\xe8"  # 3.3 V: the module measures, and has no light
    assert "lane 2: transmits nothing (dark), receives nothing, bias 0.0 mA" in text_of(decode_file(linear(pages)))


def test_a_dump_without_flags_says_so() -> None:
    pages = lr4()
    whole = MemoryImage({(0, page): bytes(data) for page, data in pages.items()})
    line = "flags: not in the dump, because reading clears them"
    assert line not in text_of(decode_memory(whole))
    assert text_of(decode_memory(replace(whole, unknown={LOWER: frozenset(range(3, 22))})))[-1] == line
    assert line in text_of(decode_image(dumped("400g-dr4")))
    assert line not in text_of(decode_image(dumped("400g-dr4")), (("rx_los", 1),))


def test_valid_outputs_show_that_a_cable_receives_a_signal() -> None:
    """A dump has no flags, and an active cable no powers; 11h:132 says that its host outputs are valid."""
    image = dumped("aec")
    halves = {**image.halves}
    for valid, text in ((0xFF, "receives a signal (power not measured)"), (0xFE, "receiver unknown")):
        page = bytearray(image.halves[0, 0x11])
        page[132 - 128] = valid
        halves[0, 0x11] = bytes(page)
        lanes = [line for line in text_of(decode_image(replace(image, halves=halves))) if line.startswith("lane ")]
        assert len(lanes) == 8
        assert all(text in line for line in lanes)


def test_readings_that_are_not_in_the_dump() -> None:
    lower_is_missing = MemoryImage(
        {LOWER: bytes([0x11, *bytes(127)]), (0, 0): bytes(128)}, {LOWER: frozenset(range(1, 128))}, "", ("lower: cut",)
    )
    text = "no readings: the module has no monitors, or they are not in the dump"
    assert text_of(decode_memory(lower_is_missing)) == [text]


def test_lanes_on_pages_that_are_not_in_the_dump() -> None:
    """The first 256 bytes of a module with pages, as many tools save them."""
    image = dumped("400g-dr4")
    first = MemoryImage({half: image.halves[half] for half in (LOWER, (0, 0))})
    lines = text_of(decode_image(first))
    assert lines[0].startswith("module: ready, temperature ")
    assert lines[1:] == [
        "lanes: unknown, because pages 01h, 02h, 10h, 11h are not in the dump, but the module has them"
    ]


def test_a_power_outside_its_limits_is_called_so() -> None:
    limits = {"tx_power": (-4.7, 4.0), "rx_power": (-15.8, -1.0)}
    assert str(LaneReadings(1, dbm(5.0), dbm(-19.7), limits=limits)) == (
        "lane 1: transmits 5.0 dBm (too high), receives -19.7 dBm (too low)"
    )
    assert str(LaneReadings(1, dbm(-4.7), dbm(-1.0), limits=limits)) == "lane 1: transmits -4.7 dBm, receives -1.0 dBm"


def test_flags_of_all_classes_read_alike() -> None:
    flags = (*(("tx_bias_low_alarm", lane) for lane in (1, 2, 3, 4)), ("rx_power_high_warning", 6), ("rx_lol", 2))
    assert text_of(decode_image(dumped("400g-dr4")), flags)[-1] == (
        "flags: tx bias low alarm (lanes 1 to 4), rx power high warning (lane 6)"
    )
    memory = bytearray(CONSTANTS + MONITORS + bytes(146))
    memory[112] = 0x0C  # bias alarms (SFF-8472 Table 9-12)
    sfp = decode_sfp(SfpImage(bytes(IDENTITY + bytes(160)), bytes(memory)))
    assert text_of(sfp)[-1] == "flags: tx bias high alarm, tx bias low alarm"


def test_flags_with_one_cause_are_one_flag() -> None:
    """A lane without light also reports low power and a lost signal; the user needs the cause only."""
    low = [(f"{name}_low_{kind}", lane) for name in ("rx_power", "rx_total_power") for kind in ("alarm", "warning")
           for lane in (1, 2, 3, 4)]  # fmt: skip
    others = (("coherent_rx_lof", None), ("tx_bias_low_alarm", 3))
    lines = text_of(decode_image(dumped("400g-dr4")), (*low, *others))
    assert lines[-1] == "flags: no light received (lanes 1 to 4), tx bias low alarm (lane 3)"
    lines = text_of(decode_image(dumped("400g-dr4", switch_on=False)), (("tx_power_low_alarm", 2), *others))
    assert lines[-1] == "flags: no light sent (lanes 2, 3), no light received"


def test_a_low_power_that_arrives_stays_an_alarm_of_its_own() -> None:
    image = dumped("400g-dr4")
    page = bytearray(image.halves[0, 0x11])
    page[186 - 128 : 188 - 128] = b"\x00\x64"  # 10 µW on lane 1
    halves = {**image.halves, (0, 0x11): bytes(page)}
    lines = text_of(decode_image(replace(image, halves=halves)), (("rx_power_low_alarm", 1), ("rx_power_low_alarm", 2)))
    assert lines[-1] == "flags: rx power low alarm (lane 1), no light received (lane 2)"


def test_a_signal_that_is_lost_in_spite_of_light_is_not_called_dark() -> None:
    table = LaneReadings(1, dbm(1.0), dbm(-3.0), has_signal=False)
    flags = (("rx_power_low_alarm", 1), ("rx_power_low_warning", 1))  # an alarm includes its warning
    assert list(ModuleReadings(lanes=(table,), flags=flags).lines())[-1] == ("flags: rx power low alarm (lane 1)")


def test_an_sfp_without_light_has_one_flag() -> None:
    memory = bytearray(CONSTANTS + MONITORS + bytes(146))
    memory[104:106] = b"\0\0"
    memory[113], memory[117] = 0x40, 0x40  # low alarm and low warning of the received power (SFF-8472 Table 9-12)
    assert text_of(decode_sfp(SfpImage(bytes(IDENTITY + bytes(160)), bytes(memory))))[-1] == "flags: no light received"


def test_many_lanes_are_shown_by_what_they_do() -> None:
    """A module of 32 lanes fits on a screen."""
    dark, lit = dbm(None, Quality.BELOW_RANGE), [dbm(1.0 + lane / 100.0) for lane in range(1, 33)]
    lanes = [LaneReadings(lane, lit[lane - 1], dark if lane in (12, 20, 21) else dbm(-3.0)) for lane in range(1, 33)]
    assert list(ModuleReadings(lanes=tuple(lanes)).lines()) == [
        "lanes 1 to 11, 13 to 19, 22 to 32: transmits 1.0 to 1.3 dBm, receives -3.0 dBm",
        "lanes 12, 20, 21: transmits 1.1 to 1.2 dBm, receives nothing",
    ]


def test_lanes_without_monitors_show_the_signal_that_they_lost() -> None:
    lines = text_of(decode_image(dumped("aec")), (("rx_los", 3), ("rx_lol", 3)))
    assert lines[4] == "lane 3: transmits (power not measured), receives nothing (LOS, LOL)"
    assert lines[5] == "lane 4: transmits (power not measured), receives a signal (power not measured)"
    off = text_of(decode_image(dumped("aec", switch_on=False)), ())
    assert off[2] == "lane 1: transmits nothing (switched off), receiver unknown"
    assert text_of(decode_image(dumped("aec")))[5] == "lane 4: transmits (power not measured), receiver unknown"


def test_inverted_loss_of_signal() -> None:
    a0, a2 = bytearray(IDENTITY + bytes(160)), bytearray(CONSTANTS + MONITORS + bytes(146))
    a0[65] = a0[65] & ~0x02 | 0x04  # 65.2 without 65.1: the bit means that there is a signal
    a2[110] |= 0x02
    assert module_readings(decode_sfp(SfpImage(bytes(a0), bytes(a2)))).lanes[0].has_signal is True
    a0[65] |= 0x02
    assert module_readings(decode_sfp(SfpImage(bytes(a0), bytes(a2)))).lanes[0].has_signal is False


def dbm(value: float | None, quality: Quality = Quality.OK) -> Reading:
    return Reading(value, "dBm", quality, "11h:154")


@pytest.mark.parametrize(
    ("lane", "text"),
    [
        (LaneReadings(2, dbm(-1.2), dbm(None, Quality.BELOW_RANGE), has_signal=False),
         "lane 2: transmits -1.2 dBm, receives nothing (LOS)"),
        (LaneReadings(1, dbm(None, Quality.BELOW_RANGE), dbm(-9.0), is_on=True, has_fault=True, is_locked=False),
         "lane 1: transmits nothing (dark) (fault), receives -9.0 dBm (LOL)"),
        (LaneReadings(1, is_on=True, has_signal=True),
         "lane 1: transmits (power not measured), receives a signal (power not measured)"),
        (LaneReadings(1), "lane 1: transmitter unknown, receiver unknown"),
        (LaneReadings(4, dbm(-0.04), dbm(-40.0), has_signal=False),
         "lane 4: transmits 0.0 dBm, receives nothing (LOS)"),
        (LaneReadings(4, dbm(-40.0), dbm(-3.0), has_signal=False),
         "lane 4: transmits nothing (dark), receives -3.0 dBm (LOS)"),
        (LaneReadings(1, dbm(-1.0, Quality.CHECKSUM_WRONG), dbm(None, Quality.ABOVE_RANGE)),
         "lane 1: transmits -1.0 dBm (checksum wrong), receives above range"),
    ],
)  # fmt: skip
def test_text_of_a_lane(lane: LaneReadings, text: str) -> None:
    assert str(lane) == text


def test_any_standard_with_four_lanes_fits() -> None:
    def item(name: str, lane: int | None, value: float | bool, unit: str = "") -> DecodedField:
        return DecodedField(name, lane, "00h:34", 0, "", value, unit, "", Quality.OK)

    fields = [item("temperature", None, 30.0, "degC"), item("supply", None, 3.3, "V")]
    for lane in range(1, 5):
        fields += [
            item("rx_power", lane, 0.5, "mW"),
            item("tx_power", lane, 0.0, "mW"),
            item("rx_los", lane, lane == 3),
        ]
    identity = TransponderIdentity("V", "P", "", "", "", "", 0.0)
    module = DecodedModule("", "QSFP28", "SFF-8636", "2.10", identity, False, (), {}, {}, tuple(fields), (), ())
    assert text_of(module)[3] == "lane 3: transmits nothing (dark), receives -3.0 dBm (LOS)"
    assert len(text_of(module)) == 5


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 100))])
def test_unknown_bytes_change_no_value_and_cause_no_finding(seed: int) -> None:
    chance = random.Random(seed)
    image = dumped_dr4()
    whole = decode_image(image)
    known = {(item.name, item.index): item.value for item in whole.fields if item.quality is Quality.OK}
    halves, unknown = dict(image.halves), dict(image.unknown)
    for half, data in image.halves.items():
        start = 0 if half == LOWER else 128
        lost = frozenset(chance.sample(range(start, start + 128), chance.choice([0, 1, 5, 60, 128])))
        lost -= {0} if half == LOWER else set()
        halves[half] = bytes(0 if start + at in lost else byte for at, byte in enumerate(data))
        unknown[half] = unknown.get(half, frozenset()) | lost
    module = decode_image(MemoryImage(halves, unknown))
    assert [item for item in module.findings if item.severity.value != "note"] == []
    for item in module.fields:
        if item.quality is Quality.OK and (item.name, item.index) in known:
            assert item.value == known[item.name, item.index]


def test_an_unknown_support_bit_does_not_hide_a_monitor() -> None:
    image = dumped_dr4()
    byte = FIELDS["tx_power_monitor_supported"].byte
    page = bytearray(image.halves[0, 1])
    page[byte - 128] = 0
    halves = {**image.halves, (0, 1): bytes(page)}
    lost = {**image.unknown, (0, 1): frozenset({byte})}
    assert decode_image(MemoryImage(halves, lost)).field("tx_power", 1).quality is Quality.OK


_DR4: list[MemoryImage] = []


def dumped_dr4() -> MemoryImage:
    if not _DR4:
        _DR4.append(dumped("400g-dr4"))
    return _DR4[0]


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 100))])
def test_unknown_bytes_of_an_sfp(seed: int) -> None:
    chance = random.Random(seed)
    memories = {"a0": IDENTITY + bytes(160), "a2": CONSTANTS + MONITORS + bytes(146)}
    whole = decode_sfp(SfpImage(**memories))
    known = {item.name: item.value for item in whole.fields if item.quality is Quality.OK}
    unknown = {key: frozenset(chance.sample(range(1, 256), chance.choice([0, 1, 5, 60, 255]))) for key in memories}
    lost = {
        key: bytes(0 if at in unknown[key] else byte for at, byte in enumerate(data)) for key, data in memories.items()
    }
    module = decode_sfp(SfpImage(**lost, unknown=unknown))
    assert {item.kind for item in module.findings} <= {"unread"}
    for item in module.fields:
        if item.quality is Quality.OK and item.name in known:
            assert item.value == known[item.name]


@pytest.mark.parametrize("profile", list(CMIS_PROFILES))
def test_every_profile_says_in_25_lines_what_each_lane_does(profile: str) -> None:
    lines = text_of(decode_image(dumped(profile)), (("rx_los", 1),))
    assert len(lines) <= 20  # title, warnings, state of the link and laser are added
    lanes = [line for line in lines if line.startswith("lane ")]
    assert lanes
    assert all("transmits " in line and "receives " in line for line in lanes)
