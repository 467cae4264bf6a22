"""Dumps of SFP modules: the forms of their files, their fields, and what a dump says when something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from lumion_hw.drivers.transponders.decoded import DecodedModule
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import Quality
from lumion_hw.standards.sff8472.registers import FIELDS
from tests.drivers.transponders.sfp_memories import A0H, A2H, CONSTANTS, IDENTITY, MONITORS, seal

Memory = dict[int, bytearray]


def memory_of_er() -> Memory:
    return {A0H: bytearray(IDENTITY + bytes(160)), A2H: bytearray(CONSTANTS + MONITORS + bytes(146))}


def decoded(change: Callable[[Memory], object] = lambda _: None, *, sums: bool = True) -> DecodedModule:
    memory = memory_of_er()
    change(memory)
    if sums:
        seal(memory)
    return decode_file(bytes(memory[A0H] + memory[A2H]))


def put(device: int, offset: int, data: str) -> Callable[[Memory], None]:
    """Return a change that writes bytes, given in hexadecimal."""

    def change(memory: Memory) -> None:
        memory[device][offset : offset + len(bytes.fromhex(data))] = bytes.fromhex(data)

    return change


def test_a_sound_module_has_nothing_wrong_with_it() -> None:
    module = decoded()
    assert (module.findings, module.damage) == ((), ())
    assert (module.form_factor, module.standard, module.revision) == ("SFP/SFP+", "SFF-8472", "12.x")
    assert (module.identity.serial, module.identity.technology) == ("EMU0000001", "10GBASE-ER")
    assert module.checksums == {"CC_BASE": True, "CC_EXT": True, "CC_DMI": True}
    assert module.thresholds["rx_power"] == ("0.00 dBm", "-20.00 dBm", "-1.00 dBm", "-15.80 dBm")
    assert module.thresholds["temperature"] == ("75 degC", "-10 degC", "70 degC", "-5 degC")


def test_fields_come_with_values_units_and_words() -> None:
    module = decoded()
    words = {
        "connector": "LC",
        "transceiver_codes": "10GBASE-ER",
        "encoding": "64B/66B",
        "nominal_rate": "10300 MBd",
        "length_smf_km": "40 km",
        "wavelength": "1550 nm",
        "vendor_name": "LUMION EMU",
        "temperature": "45 degC",
        "supply": "3.3 V",
        "tx_bias": "85 mA",
        "tx_power": "1.00 dBm",
        "rx_power": "-10.00 dBm",
        "tx_fault": "no",
        "alarm_rx_power_low": "no",
    }
    assert {name: module.field(name).description for name in words} == words
    assert (module.field("rx_power").value, module.field("rx_power").unit) == (pytest.approx(-10.0), "dBm")
    beyond = module.field("length_smf_100m")
    assert (beyond.value, beyond.description, beyond.quality) == (None, "more than 25.4 km", Quality.ABOVE_RANGE)


def test_external_calibration_is_applied() -> None:
    def change(memory: Memory) -> None:
        put(A0H, 92, "58")(memory)
        put(A2H, 76, "0180 000A")(memory)  # bias: slope 1.5, offset 10 counts of 2 uA

    bias = decoded(change).field("tx_bias")
    assert bias.value == pytest.approx(127.52)
    assert decoded().field("cal_tx_bias_slope").quality is Quality.NOT_SUPPORTED  # internally calibrated


def test_a_power_whose_constants_are_no_numbers_is_none() -> None:
    def change(memory: Memory) -> None:
        put(A0H, 92, "58")(memory)
        put(A2H, 56, "7FC0 0000")(memory)  # received power: no number times the count to the fourth

    module = decoded(change)
    for name in ("rx_power", "rx_power_high_alarm", "cal_rx_power_4"):
        assert (module.field(name).value, module.field(name).quality) == (None, Quality.INCONSISTENT)
    assert [item.address for item in module.damage][:2] == ["A2h:56", "A2h:104"]
    assert "cal_rx_power_4 is nan" in module.damage[0].message


@pytest.mark.parametrize(
    ("offset", "constant", "name", "message"),
    [
        pytest.param(
            68,
            "47C3 5000",
            "rx_power",
            r"rx_power is 1e\+04 mW \(40.0 dBm\), outside the SFF-8472 range .*8.16 dBm",
            id="Rx 1e5",
        ),
        pytest.param(80, "0A00", "tx_power", r"12.59 mW \(11.0 dBm\)", id="Tx power, slope 10"),
        pytest.param(
            84, "0400", "temperature", r"180 degC, outside the SFF-8472 range -128 to 128 degC", id="temperature"
        ),
        pytest.param(88, "0300", "supply", r"9.9 V, outside the SFF-8472 range 0 to 6.554 V", id="supply, slope 3"),
        pytest.param(76, "0200", "tx_bias", r"170 mA, outside the SFF-8472 range 0 to 131.1 mA", id="bias, slope 2"),
    ],
)
def test_an_absurd_constant_is_an_error_and_makes_no_value(offset: int, constant: str, name: str, message: str) -> None:
    """SFF-8472 clause 9.3 gives every externally calibrated monitor the range of the internally calibrated one."""

    def change(memory: Memory) -> None:
        put(A0H, 92, "58")(memory)
        put(A2H, offset, constant)(memory)

    module = decoded(change)
    assert (module.field(name).value, module.field(name).quality) == (None, Quality.INCONSISTENT)
    found = [item for item in module.damage if item.address == f"A2h:{FIELDS[name].byte}"]
    assert [item.kind for item in found] == ["impossible"]
    assert re.search(message, found[0].message)
    sound = "rx_power" if name == "tx_power" else "tx_power"
    assert module.field(sound).quality is Quality.OK


@pytest.mark.parametrize(
    ("device", "offset", "bad", "sound"),
    [
        (A0H, 20, ("vendor_name", "wavelength"), ("serial_number", "tx_power")),
        (A0H, 70, ("serial_number", "tx_power", "temperature_high_alarm", "rx_los"), ("vendor_name",)),
        (A2H, 30, ("tx_power_low_warning",), ("vendor_name", "tx_power")),
    ],
)
def test_a_wrong_check_sum_marks_what_it_covers(
    device: int, offset: int, bad: tuple[str, ...], sound: tuple[str, ...]
) -> None:
    def flip(memory: Memory) -> None:
        memory[device][offset] ^= 1

    module = decoded(flip, sums=False)
    assert [item.kind for item in module.damage] == ["checksum"]
    assert {module.field(name).quality for name in bad} == {Quality.CHECKSUM_WRONG}
    assert {module.field(name).quality for name in sound} == {Quality.OK}


@pytest.mark.parametrize(
    ("change", "where", "kind"),
    [
        (put(A2H, 96, "7FFF"), "A2h:96", "impossible"),
        (put(A2H, 98, "0001"), "A2h:98", "impossible"),
        (put(A2H, 0, "F600 4B00"), "A2h:0", "contradiction"),
        (put(A2H, 100, "FFFE"), "A2h:100", "outside_limits"),
        (put(A0H, 92, "08"), "A0h:92", "contradiction"),
        (put(A0H, 92, "78"), "A0h:92", "contradiction"),
        (put(A0H, 84, "323631333031"), "A0h:84", "impossible"),
        (put(A0H, 40, "01"), "A0h:40", "text"),
    ],
)
def test_what_cannot_be_is_said(change: Callable[[Memory], object], where: str, kind: str) -> None:
    assert (where, kind) in [(item.address, item.kind) for item in decoded(change).findings]


def test_what_a_module_does_not_announce_has_no_value() -> None:
    module = decoded(put(A0H, 92, "08 00"))
    for name in ("temperature", "rx_los", "alarm_rx_power_low"):
        assert (module.field(name).value, module.field(name).quality) == (None, Quality.NOT_SUPPORTED)


def test_a_cable_has_metres_and_no_wavelength() -> None:
    def cable(memory: Memory) -> None:
        put(A0H, 3, "00 00 00 00 00 04")(memory)  # passive
        put(A0H, 18, "03")(memory)

    def base_t(memory: Memory) -> None:
        put(A0H, 2, "22 00")(memory)  # RJ45
        put(A0H, 18, "1e")(memory)
        put(A0H, 36, "1c")(memory)

    module = decoded(base_t)
    assert (module.field("length_om4").description, module.identity.technology) == ("30 m", "10GBASE-T short reach")
    module = decoded(cable)
    assert (module.field("length_om4").value, module.field("length_om4").description) == (3, "3 m")
    assert module.field("wavelength").quality is Quality.NOT_SUPPORTED
    assert (module.identity.technology, module.identity.wavelength_nm) == ("passive cable", 0.0)


def test_all_forms_of_a_file_are_read() -> None:
    memory = memory_of_er()
    a0, a2 = bytes(memory[A0H]), bytes(memory[A2H])
    halves = {"lower": a0[:128].hex(), "pages": {"00": a0[128:].hex()}}
    for data, has_monitors in (
        (a0 + a2, True),
        (json.dumps({"a0": a0.hex(), "a2": a2.hex()}).encode(), True),
        (a0, False),
        (a0 + b"\xff" * 256, False),  # what some drivers show where no device answers
        (json.dumps(halves).encode(), False),
    ):
        module = decode_file(data)
        assert module.identity.serial == "EMU0000001"
        assert any(item.name == "temperature" for item in module.fields) is has_monitors
        assert not module.damage
    assert [item.kind for item in decode_file(a0).findings] == ["missing_page"]


def test_a_file_that_was_cut_is_damaged() -> None:
    data = bytes(memory_of_er()[A0H]) + CONSTANTS + MONITORS[:4]
    module = decode_file(data)
    assert [item.kind for item in module.damage] == ["truncated"]
    assert module.field("supply").value == pytest.approx(3.3)
    with pytest.raises(KeyError):
        module.field("rx_power")
    with pytest.raises(ConfigError, match="only 90 bytes of A0h"):
        decode_file(data[:90])
    with pytest.raises(ConfigError, match="not hexadecimal"):
        decode_file(b'{"a0": "zz"}')


@given(st.binary(min_size=95, max_size=600))
def test_no_bytes_make_the_decoder_fail(data: bytes) -> None:
    for item in decode_file(b"\x03" + data).fields:
        assert item.quality in (Quality.OK, Quality.CHECKSUM_WRONG) or item.value is None
