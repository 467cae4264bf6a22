"""Numbers of CMIS memory against worked examples."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import LimitError
from lumion_hw.standards import registers
from lumion_hw.standards.cmis import (
    ALL_FIELDS,
    CHECKSUMS,
    FIELDS,
    Field,
    NumberFormat,
    cdb,
    codec,
    codes,
    decode,
    decode_from,
    encode,
    firmware,
    interface_ids,
    vdm,
)
from lumion_hw.standards.cmis.codes import Quality


@pytest.mark.parametrize(
    ("page", "byte", "bank", "offset"),
    [
        (None, 3, 0, 3),
        (0x00, 128, 0, 128),
        (0x01, 128, 0, 256),
        (0x10, 128, 0, 2176),
        (0x12, 200, 0, 2504),
        (0x35, 128, 0, 6912),
        (0x9F, 128, 0, 20480),
        (0x10, 128, 1, 34944),
    ],
)
def test_linear_offsets(page: int | None, byte: int, bank: int, offset: int) -> None:
    assert codec.linear_offset(page, byte, bank) == offset


@pytest.mark.parametrize(("page", "byte", "bank"), [(None, 128, 0), (0x10, 127, 0), (0x01, 128, 1), (0x100, 128, 0)])
def test_addresses_that_do_not_exist_have_no_linear_offset(page: int | None, byte: int, bank: int) -> None:
    with pytest.raises(ValueError, match=r"byte|banks"):
        codec.linear_offset(page, byte, bank)


F16_VECTORS = [
    (0.0, 0x0000),
    (1e-24, 0x0001),
    (1e-3, 0x93E8),
    (1.25e-2, 0x9CE2),
    (2.0e-2, 0x9FD0),
    (4.85e-3, 0x99E5),
    (1.0, 0xABE8),
    (2.047e10, 0xFFFF),
]


@pytest.mark.parametrize(("value", "code"), F16_VECTORS)
def test_f16_vectors(value: float, code: int) -> None:
    assert registers.f16_encode(value) == code
    assert registers.f16_decode(code) == value


def test_f16_has_no_negative_and_no_larger_numbers() -> None:
    assert registers.f16_encode(-1.0) == 0
    with pytest.raises(LimitError, match=r"2.047e\+10"):
        registers.f16_encode(2.05e10)
    with pytest.raises(LimitError):
        registers.f16_encode(math.inf)
    with pytest.raises(ValueError, match="NaN"):
        registers.f16_encode(math.nan)


@given(st.floats(1e-20, 2e10))
def test_f16_keeps_three_digits(value: float) -> None:
    """The mantissa is at least 205 unless the exponent is 0, so half a count is below 0.25 %."""
    assert registers.f16_decode(registers.f16_encode(value)) == pytest.approx(value, rel=2.5e-3)


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("temperature", "1980", 25.5),
        ("temperature", "FB00", -5.0),
        ("supply", "80E8", 3.3),
        ("module_state", "A7", 3),
        ("interrupt_deasserted", "A7", True),
        ("target_output_power", "FC18", -10.0),
        ("current_frequency", "0B82 9AA0", 193_108_640),
        ("channel", "FFBB", -69),
        ("nominal_wavelength", "7940", 1552.0),
        ("max_power", "60", 24.0),
        ("vendor_name", "4C554D494F4E20202020202020200000", "LUMION"),
        ("pm_cd_avg", "FFFFFF9C", -100),
        ("pm_evm_avg", "FFFF", 100.0),
        ("host_snr", "0014", 20.0),
        ("vendor_oui", "00 1B 21", b"\x00\x1b\x21"),
    ],
)
def test_fields_decode_to_their_unit(name: str, data: str, value: object) -> None:
    field = FIELDS[name]
    index = None if field.array is None else field.array.first
    assert decode(field, bytes.fromhex(data), index) == value


def test_a_nibble_of_a_lane_is_cut_out_of_its_page() -> None:
    page = bytearray(128)
    page[0:4] = bytes.fromhex("71 42 11 51")
    states = [decode_from(FIELDS["data_path_state"], bytes(page), lane) for lane in range(1, 9)]
    assert states == [1, 7, 2, 4, 1, 1, 1, 5]


def test_text_never_raises() -> None:
    assert registers.text(b"AC\xffME\x07  \x00") == "AC?ME?"


def test_the_wrong_number_of_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"00h:14-15\) has 2 bytes, not 1"):
        decode(FIELDS["temperature"], b"\x19")
    with pytest.raises(ValueError, match="128 bytes"):
        decode_from(FIELDS["temperature"], bytes(100))


def test_encoding_rounds_to_the_nearest_count() -> None:
    power = FIELDS["target_output_power"]
    assert encode(power, -10.0, 1) == bytes.fromhex("FC18")
    assert encode(power, -9.996, 1) == bytes.fromhex("FC18")
    assert encode(power, -0.07, 8) == bytes.fromhex("FFF9")


def test_a_part_of_a_byte_keeps_its_neighbours() -> None:
    request = FIELDS["low_pwr_request_sw"]
    assert encode(request, True, current=b"\x60") == b"\x70"
    assert encode(request, False, current=b"\x70") == b"\x60"
    assert encode(FIELDS["tx_disable"], True, 3, current=b"\x01") == b"\x05"
    assert encode(FIELDS["staged_0_app_sel"], 2, 4, current=b"\x17") == b"\x27"
    with pytest.raises(ValueError, match="current byte"):
        encode(request, True)


def test_limits_refuse() -> None:
    with pytest.raises(LimitError, match=r"limit 327.67 dBm"):
        encode(FIELDS["target_output_power"], 400.0, 1)
    with pytest.raises(LimitError):
        encode(FIELDS["grid"], 16, 1, current=b"\x00")
    with pytest.raises(ValueError, match="does not fit"):
        encode(FIELDS["vendor_name"], "a name that is much too long")
    with pytest.raises(ValueError, match="must be a number"):
        encode(FIELDS["channel"], "3", 1)
    with pytest.raises(ValueError, match="does not fit"):
        encode(FIELDS["target_output_power"], math.nan, 1)


@given(st.data())
def test_what_is_encoded_decodes_to_the_same(data: st.DataObject) -> None:
    """Every raw number of every numeric field survives, and no other bit of its byte changes."""
    field = data.draw(
        st.sampled_from([item for item in ALL_FIELDS if item.kind not in (NumberFormat.ASCII, NumberFormat.BYTES)])
    )
    index = None if field.array is None else data.draw(st.sampled_from(list(field.array.indices)))
    low, high = registers.raw_limits(field)
    count = data.draw(st.integers(low, high))
    if field.kind is NumberFormat.F16:
        count = registers.f16_encode(registers.f16_decode(count))
        value: float = registers.f16_decode(count)
    else:
        value = count if field.scale == 1 else float(count * field.scale)
    current = bytes([data.draw(st.integers(0, 255))]) if field.bits is not None else None
    written = encode(field, value, index, current=current)
    assert registers.raw(field, written, index) == count
    if current is not None:
        mask = ((1 << field.width) - 1) << field.shift(index)
        assert (written[0] ^ current[0]) & ~mask == 0


@pytest.mark.parametrize(
    ("count", "power_dbm", "quality"),
    [
        (0x2710, 0.0, Quality.OK),
        (0x621F, 4.0, Quality.OK),
        (0x0107, -15.8, Quality.OK),
        (1, -40.0, Quality.OK),
        (0, -40.0, Quality.BELOW_RANGE),
        (0xFFFF, 8.16, Quality.ABOVE_RANGE),
    ],
)
def test_optical_power_is_never_minus_infinity(count: int, power_dbm: float, quality: Quality) -> None:
    value, mark = codec.optical_power(count)
    assert value == pytest.approx(power_dbm, abs=0.006)
    assert mark is quality


def test_an_optical_power_register_has_a_floor_and_a_ceiling() -> None:
    assert codec.optical_power_count(0.0) == 0x2710
    assert codec.optical_power_count(-60.0) == 0
    assert codec.optical_power_count(30.0) == 0xFFFF
    assert codec.optical_power_count(math.inf) == 0xFFFF
    assert codec.optical_power_count(-math.inf) == 0


def test_bias_takes_the_advertised_multiplier() -> None:
    assert [codec.multiplied(FIELDS["tx_bias"], 60.0, code) for code in (0, 1, 2)] == [60.0, 120.0, 240.0]
    assert codec.multiplied(FIELDS["tx_bias_low_alarm_threshold"], 10.0, 2) == 40.0
    assert codec.multiplied(FIELDS["tx_bias"], 60.0, 3) is None  # reserved
    assert codec.multiplied(FIELDS["tx_bias"], 60.0, None) is None  # not known
    assert codec.multiplied(FIELDS["tx_power"], 0.1, None) == 0.1


@pytest.mark.parametrize(
    ("table", "code", "words"),
    [
        ("identifier", 0x21, "OSFP-XD with CMIS"),
        ("connector", 0x20, "HSSDC II"),
        ("technology", 0x14, "copper cable, near end linear active equalizers"),
        ("host_interface", 0x2A, "128GFC, 4 lanes"),
        ("host_interface", 0x53, "OTL4.2"),
        ("host_interface", 0x83, "1.6TAUI-8 C2M"),
        ("host_interface", 0xA0, "IB XDR"),
        ("media_interface_smf", 0x26, "128GFC-CWDM4"),
        ("media_interface_smf", 0x2C, "4I1-9D1F"),
        ("media_interface_smf", 0x37, "ZR400-OFEC-8QAM-HA"),
        ("media_interface_smf", 0x56, "800GBASE-DR8"),
        ("media_interface_smf", 0x5E, "ZR100-OFEC-QPSK-HB"),
        ("media_interface_smf", 0x6B, "FLEXO-6-DPO-16QAM"),
        ("media_interface_smf", 0x80, "1.6TBASE-DR8-2"),
        ("media_interface_mmf", 0x1D, "100GBASE-VR1"),
        ("media_interface_copper", 0xBF, "passive loopback module"),
        ("media_interface_copper", 0x02, "0x02 (reserved)"),
        ("media_interface_active", 0xBF, "active loopback module"),
        ("media_interface_base_t", 0x06, "40GBASE-T"),
    ],
)
def test_codes_of_sff_8024(table: str, code: int, words: str) -> None:
    assert codes.describe(table, code) == words


def test_every_oif_and_openzr_medium_is_coherent_and_the_fec_says_how_much_it_corrects() -> None:
    limits = {
        code: interface_ids.FEC_LIMITS.get(code) for code in (0x3E, 0x4D, 0x35, 0x37, 0x46, 0x5E, 0x61, 0x6B, 0x6E)
    }
    assert limits == dict.fromkeys((0x3E, 0x4D), 1.25e-2) | dict.fromkeys(
        (0x35, 0x37, 0x46, 0x5E, 0x61, 0x6B, 0x6E), 2e-2
    )
    assert interface_ids.FEC_LIMITS.keys() | {0x44, 0x7C, 0x7E, 0x81, 0x8E} <= interface_ids.COHERENT_MEDIA
    assert interface_ids.COHERENT_MEDIA.isdisjoint({*range(0x35), 0x38, 0x43, 0x4E, 0x56, 0x72, 0x73, 0x7B, 0x7F, 0x91})


def test_auxiliary_monitors() -> None:
    assert codec.aux_monitor(-32767, "tec") == -100.0
    assert codec.aux_monitor(0x2D80, "temperature") == 45.5
    assert codec.aux_monitor(-0x7F18, "supply") == 3.3
    with pytest.raises(ValueError, match="measures"):
        codec.aux_monitor(0, "custom")


def test_duration_codes() -> None:
    assert [codec.duration_s(code) for code in (0, 5, 9, 0xA, 0xC)] == [1e-3, 0.5, 60.0, 300.0, 3000.0]
    assert [codec.duration_s(code) for code in (0xD, 0xE, 0xF)] == [None, None, None]


@pytest.mark.parametrize(
    ("seconds", "code"), [(0.0, 0), (0.06, 4), (0.1, 4), (18.0, 9), (24.0, 9), (61.0, 0xA), (1e4, 0xD)]
)
def test_the_smallest_duration_code_that_is_long_enough(seconds: float, code: int) -> None:
    assert codec.duration_code(seconds) == code


def test_lengths() -> None:
    assert codec.smf_length_km(1, 10) == 10.0
    assert codec.smf_length_km(2, 12) == 120.0
    assert [codec.smf_length_km(3, 2, code) for code in range(4)] == [100.0, 200.0, 400.0, 1000.0]  # CMIS 5.3 01h:137
    assert codec.smf_length_km(3, 2) is None
    assert codec.cable_length_m(0, 5) == 0.5
    assert codec.cable_length_m(3, 1) == 100.0


def test_cdb_busy_time_is_never_too_short() -> None:
    assert codec.cdb_busy_s(0x1F, 0x80) == pytest.approx(4.96)
    assert codec.cdb_busy_s(0x00, 0x80) == pytest.approx(0.16)
    assert codec.cdb_busy_s(0x00, 0x0A) == pytest.approx(0.07)
    assert codec.cdb_busy_s(0x00, 0x50) == pytest.approx(0.08)


def test_page_checksums_cover_the_bytes_the_standard_names() -> None:
    page = bytes([1]) * 128
    sums = {item.name: codec.checksum_of(item, page) for item in CHECKSUMS}
    assert sums == {"00h:222": 94, "01h:255": 125, "02h:255": 127, "04h:255": 127}
    right = bytearray(page)
    right[222 - 128] = 94
    assert codec.checksum_matches(CHECKSUMS[0], bytes(right))
    assert not codec.checksum_matches(CHECKSUMS[0], page)


@pytest.mark.parametrize(("ber", "q"), [(1.25e-2, 7.01), (1e-3, 9.80), (1e-4, 11.41), (2e-2, 6.25)])
def test_q_of_a_bit_error_ratio(ber: float, q: float) -> None:
    assert codec.q_db(ber) == pytest.approx(q, abs=0.005)


def test_no_errors_and_nothing_but_errors_have_no_q() -> None:
    for ber in (0.0, 0.5):
        with pytest.raises(ValueError, match="Q is not defined"):
            codec.q_db(ber)


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("ber_current_media", "9CE2", 1.25e-2),
        ("laser_temperature", "2D80", 45.5),
        ("laser_frequency_error", "FFFE", -20.0),
        ("tec_current", "8001", -100.0),
        ("cd_coarse", "0064", 2000.0),
        ("dgd", "03E8", 10.0),
        ("osnr", "0168", 36.0),
        ("tx_power", "FC18", -10.0),
        ("esnr_media", "1000", 16.0),
        ("modulator_bias_xi", "FFFF", 100.0),
    ],
)
def test_vdm_samples(name: str, data: str, value: float) -> None:
    observable = vdm.OBSERVABLES_BY_NAME[name]
    assert codec.vdm_value(observable, bytes.fromhex(data)) == value
    assert codec.encode_vdm_value(observable, value) == bytes.fromhex(data)


def test_vdm_types_are_those_of_the_facts() -> None:
    kinds = {code: vdm.OBSERVABLES[code].name for code in (9, 10, 15, 16, 17, 23, 25, 128, 133, 137, 149, 152)}
    assert kinds == {
        9: "ber_min_media",
        10: "ber_min_host",
        15: "ber_current_media",
        16: "ber_current_host",
        17: "errored_frames_min_media",
        23: "errored_frames_current_media",
        25: "ferc_total_media",
        128: "modulator_bias_xi",
        133: "modulator_bias_y_phase",
        137: "sopmd_fine",
        149: "sopmd_coarse",
        152: "q_margin",
    }
    statistics = sorted(code for code, item in vdm.OBSERVABLES.items() if item.statistic)
    assert statistics == [9, 10, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22, 25, 26, 27, 28, 29, 30, 31, 32]


def test_vdm_descriptors() -> None:
    descriptor = vdm.decode_descriptor(bytes.fromhex("218F"))
    assert (descriptor.threshold_set, descriptor.lane, descriptor.code) == (2, 2, 0x8F)
    assert descriptor.observable is vdm.OBSERVABLES_BY_NAME["tx_power"]
    assert vdm.encode_descriptor(descriptor) == bytes.fromhex("218F")
    assert vdm.decode_descriptor(bytes(2)).observable is None
    with pytest.raises(ValueError, match="does not fit"):
        vdm.encode_descriptor(vdm.Descriptor(16, 1, 1))


@pytest.mark.parametrize(
    ("command", "payload", "code"),
    [
        (0x0000, "0010", 0xED),
        (0x0040, "", 0xBF),
        (0x0041, "", 0xBE),
        (0x0100, "", 0xFE),
        (0x0001, "00001011", 0xD9),
    ],
)
def test_cdb_check_codes(command: int, payload: str, code: int) -> None:
    message = cdb.encode_command(command, bytes.fromhex(payload))
    page = (message.command + message.body).ljust(128, b"\x00")
    assert page[5] == code
    assert cdb.command_is_intact(page)
    assert not cdb.command_is_intact(page[:5] + bytes([code ^ 1]) + page[6:])


def test_a_cdb_reply_is_checked() -> None:
    page = bytes(6) + cdb.encode_reply(b"\x01\x02\x03")
    page = page.ljust(128, b"\x00")
    assert cdb.decode_reply(page) == b"\x01\x02\x03"
    with pytest.raises(ValueError, match="corrupt"):
        cdb.decode_reply(page[:8] + b"\x09" + page[9:])
    with pytest.raises(ValueError, match="corrupt"):
        cdb.decode_reply(page[:6] + b"\xff" + page[7:])


def test_a_cdb_message_has_room_for_120_bytes() -> None:
    assert len(cdb.encode_command(0x0100, bytes(120)).body) == 126
    with pytest.raises(ValueError, match="do not fit"):
        cdb.encode_command(0x0100, bytes(121))
    assert len(cdb.encode_reply(bytes(120))) == 122
    with pytest.raises(ValueError, match="at most 120"):
        cdb.encode_reply(bytes(121))
    assert cdb.decode_reply(bytes(6) + cdb.encode_reply(bytes(120))) == bytes(120)
    with pytest.raises(ValueError, match="121 bytes"):
        cdb.decode_reply(bytes(6) + bytes([121, 0xFF]) + bytes(120))


def test_a_cdb_command_and_its_extended_payload_fill_two_bytes_each() -> None:
    message = cdb.encode_command(0xFFFF, epl_length=0xFFFF)
    assert message.command + message.body[:2] == b"\xff" * 4
    for command, length in ((-1, 0), (0x1_0000, 0), (0, -1), (0, 0x1_0000)):
        with pytest.raises(ValueError, match="do not fit"):
            cdb.encode_command(command, epl_length=length)


def test_replies_about_firmware_have_a_least_length() -> None:
    assert firmware.decode_firmware_info(bytes(42)) == (None, None)
    with pytest.raises(ValueError, match="at least 42"):
        firmware.decode_firmware_info(bytes(41))
    assert firmware.decode_firmware_features(bytes(18)).block_bytes == 0
    with pytest.raises(ValueError, match="at least 18"):
        firmware.decode_firmware_features(bytes(17))


def test_the_start_of_a_download_has_112_bytes_of_the_file_at_most() -> None:
    assert len(firmware.encode_start(112, bytes(112))) == 120
    assert firmware.encode_start(0xFFFF_FFFF, b"x") == bytes.fromhex("ffffffff0000000078")
    for n_bytes, beginning in ((113, bytes(113)), (111, bytes(112)), (0, b""), (1 << 32, b"x")):
        with pytest.raises(ValueError, match="a firmware file of"):
            firmware.encode_start(n_bytes, beginning)


@pytest.mark.parametrize(
    ("mechanism", "extension", "pages", "block"),
    [
        (0x01, 255, 16, 116),
        (0x10, 255, 16, 2048),
        (0x10, 254, 16, 2040),
        (0x10, 255, 15, 1920),
        (0x10, 255, 17, 2048),
        (0x10, 0, 1, 8),
        (0x10, 255, 0, 0),
        (0x11, 13, 16, 116),  # 112 bytes at once: a local payload holds more
        (0x11, 14, 16, 120),
        (0x11, 14, 0, 116),
    ],
)
def test_a_block_of_firmware_is_as_long_as_its_pages_and_one_write(
    mechanism: int, extension: int, pages: int, block: int
) -> None:
    reply = bytes([0, 0, 0, 0, extension, mechanism]) + bytes(12)
    assert firmware.decode_firmware_features(reply, pages).block_bytes == block


def test_firmware_images_of_the_firmware_information() -> None:
    payload = bytearray(120)
    payload[0] = 0b0100_0011  # A runs and is committed; B is invalid
    payload[1] = 0b011
    payload[2:6] = bytes([1, 2, 0x01, 0x00])
    payload[38:42] = bytes([0, 9, 0, 7])
    image_a, image_b = firmware.decode_firmware_info(bytes(payload))
    assert image_a == firmware.FirmwareImage(1, 2, 256, running=True, committed=True, valid=True)
    assert image_b == firmware.FirmwareImage(0, 9, 7, running=False, committed=False, valid=False)
    payload[1] = 0
    assert firmware.decode_firmware_info(bytes(payload)) == (None, None)


def test_unknown_codes_are_shown_as_numbers() -> None:
    assert codes.describe("config_status", 3) == "rejected_invalid_appsel"
    assert codes.describe("config_status", 0xD) == "0x0D (vendor-specific)"
    assert codes.describe("data_path_state", 0xD) == "0x0D"
    assert codes.describe("host_interface", 0xC0) == "0xC0 (vendor-specific)"
    assert codes.describe("host_interface", 0x59) == "0x59 (reserved)"
    assert codes.describe("connector", 0x29) == "0x29 (reserved)"
    assert codes.describe_media_interface(2, 0xFF) == "0xFF (vendor-specific)"
    assert codes.describe_media_interface(0, 0) == "undefined"
    assert codes.describe_media_interface(codes.MediaType.SMF, 0x3E) == "400ZR, DWDM, amplified"
    assert codes.describe_media_interface(codes.MediaType.ACTIVE_CABLE, 0x02) == "active cable, BER < 5e-5"
    assert codes.describe_media_interface(77, 0x3E) == "0x3E"


def test_scales_are_exact() -> None:
    assert FIELDS["supply"].scale == Fraction(1, 10_000)
    assert FIELDS["tx_bias"].scale == Fraction(1, 500)
    field = Field("x", None, 0, length=2, scale=Fraction(1, 10))
    assert decode(field, b"\x00\x03") == 0.3


@given(
    count=st.integers(-70_000, 70_000),
    off=st.sampled_from([0.0, 0.5, -0.5, 0.4999999, 0.5000001, 0.25]),
    scale=st.sampled_from([Fraction(1, 256), Fraction(1, 10), Fraction(1, 10_000), Fraction(5, 2), Fraction(1, 3)]),
)
def test_counts_are_rounded_as_exact_fractions_are(count: int, off: float, scale: Fraction) -> None:
    value = (count + off) * float(scale)
    assert registers._nearest_count(value, scale) == round(Fraction(value) / scale)


@given(st.one_of(st.floats(5e-324, 2.0465e10), st.integers(1, 4095).map(lambda half: 0.5 * half * 1e-9)))
def test_f16_takes_the_smallest_exponent_that_holds_the_number(value: float) -> None:
    mantissas = [round(Fraction(value) * Fraction(10) ** (24 - exponent)) for exponent in range(32)]
    exponent = next(exponent for exponent, mantissa in enumerate(mantissas) if mantissa <= 0x7FF)
    assert registers.f16_encode(value) == exponent << 11 | mantissas[exponent]
