"""The CMIS register map: every field at its place in CMIS 5.2, no two on the same bits, access by byte."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from lumion_hw.standards.cmis import (
    ALL_FIELDS,
    CONDITIONS,
    FIELDS,
    PAGES,
    Access,
    Array,
    Field,
    NumberFormat,
    byte_access,
    decode_from,
    fields_of,
    flag_bytes,
    is_supported,
    quiet_runs,
)
from lumion_hw.standards.cmis.codes import TABLES

SHARED = Path(os.environ.get("LUMION_SHARED", Path(__file__).parents[3] / "shared"))  # next to the checkout
DUMPS = SHARED / "data" / "cmis_dumps"


def test_every_name_is_unique() -> None:
    repeated = [name for name, count in Counter(field.name for field in ALL_FIELDS).items() if count > 1]
    assert repeated == []


def test_every_field_lies_inside_its_half_of_the_memory() -> None:
    for field in ALL_FIELDS:
        span = field.all_bytes()
        low, high = (0, 127) if field.page is None else (128, 255)
        assert low <= span[0] <= span[-1] <= high, field


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_two_fields_claim_the_same_bit(page: int | None) -> None:
    """Fields that share bytes have their condition in ``view``."""
    owners: dict[tuple[str, int, int], str] = {}
    plain: dict[tuple[int, int], str] = {}
    viewed: dict[tuple[int, int], str] = {}
    for field in fields_of(page):
        for location in field.locations():
            for bit in range(8):
                if not location.mask >> bit & 1:
                    continue
                key = (field.view, location.byte, bit)
                assert key not in owners, f"{field.name} and {owners[key]} share {location.byte}.{bit}"
                owners[key] = field.name
                (viewed if field.view else plain)[location.byte, bit] = field.name
    assert not plain.keys() & viewed.keys()


def test_every_reference_to_a_table_or_an_advertisement_leads_somewhere() -> None:
    for field in ALL_FIELDS:
        assert (field.kind is NumberFormat.ENUM) == bool(field.codes), field.name
        assert not field.codes or field.codes in TABLES, field.codes
        assert not field.support or field.support in FIELDS or field.support in CONDITIONS, (field.name, field.support)


def test_bit_fields_stay_inside_one_byte() -> None:
    for field in ALL_FIELDS:
        if field.bits is None:
            continue
        assert field.length == 1
        for index in [None] if field.array is None else field.array.indices:
            assert field.shift(index) + field.width <= 8, field.name


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("flat_memory", "00h:2.7"),
        ("module_state", "00h:3.3-1"),
        ("temperature_high_alarm_flag", "00h:9.0"),
        ("temperature_low_alarm_flag", "00h:9.1"),
        ("temperature_high_warning_flag", "00h:9.2"),
        ("supply_low_warning_flag", "00h:9.7"),
        ("aux2_high_alarm_flag", "00h:10.4"),
        ("aux3_high_alarm_flag", "00h:11.0"),
        ("temperature", "00h:14-15"),
        ("supply", "00h:16-17"),
        ("low_pwr_allow_request_hw", "00h:26.6"),
        ("low_pwr_request_sw", "00h:26.4"),
        ("software_reset", "00h:26.3"),
        ("temperature_high_alarm_mask", "00h:32.0"),
        ("cdb_status", "00h:37-38"),
        ("fault_cause", "00h:41"),
        ("media_type", "00h:85"),
        ("vendor_name", "00h:129-144"),
        ("serial_number", "00h:166-181"),
        ("media_technology", "00h:212"),
        ("max_duration_dp_init", "01h:144.3-0"),
        ("transmitter_tunable", "01h:155.6"),
        ("max_duration_power_up", "01h:167.3-0"),
        ("max_duration_tx_turn_on", "01h:168.3-0"),
        ("rx_power_low_warning_threshold", "02h:198-199"),
        ("grid_75ghz_low_channel", "04h:158-159"),
        ("grid_100ghz_high_channel", "04h:152-153"),
        ("grid_75ghz_supported", "04h:128.7"),
        ("max_output_power", "04h:200-201"),
        ("data_path_deinit", "10h:128"),
        ("tx_disable", "10h:130"),
        ("staged_0_apply_dp_init", "10h:143"),
        ("staged_0_app_sel", "10h:145-152"),
        ("staged_0_rx_amplitude", "10h:170-173"),
        ("staged_1_apply_dp_init", "10h:178"),
        ("staged_1_app_sel", "10h:180-187"),
        ("staged_1_apply_immediate_rx", "10h:212"),
        ("data_path_state_changed_mask", "10h:213"),
        ("rx_output_changed_mask", "10h:232"),
        ("data_path_state", "11h:128-131"),
        ("data_path_state_changed_flag", "11h:134"),
        ("tx_bias_high_alarm_flag", "11h:143"),
        ("rx_los_flag", "11h:147"),
        ("rx_lol_flag", "11h:148"),
        ("rx_output_changed_flag", "11h:153"),
        ("rx_power", "11h:186-201"),
        ("config_status", "11h:202-205"),
        ("active_app_sel", "11h:206-213"),
        ("active_rx_amplitude", "11h:231-234"),
        ("data_path_init_pending", "11h:235"),
        ("grid", "12h:128-135"),
        ("channel", "12h:136-151"),
        ("fine_tuning_offset", "12h:152-167"),
        ("current_frequency", "12h:168-199"),
        ("target_output_power", "12h:200-215"),
        ("tuning_in_progress", "12h:222-229"),
        ("tuning_complete_flag", "12h:231-238"),
        ("media_output_loopback", "13h:180"),
        ("host_input_loopback", "13h:183"),
        ("checker_lol_media_flag", "14h:139"),
        ("media_ber", "14h:208-223"),
        ("vdm_1_descriptor", "21h:128-255"),
        ("vdm_3_high_alarm_flag", "2Ch:224-255"),
        ("vdm_freeze_request", "2Fh:144.7"),
        ("vdm_freeze_done", "2Fh:145.7"),
        ("media_fec_corrected_bits", "34h:144-151"),
        ("media_fec_uncorrectable_frames_max", "34h:184-187"),
        ("pm_cd_max", "35h:136-139"),
        ("pm_esnr_avg", "35h:164-165"),
        ("pm_q_margin_max", "35h:240-241"),
        ("coherent_rx_lof_flag", "33h:130.7"),
        ("cdb_check_code", "9Fh:133"),
    ],
)
def test_fields_stand_where_the_facts_put_them(name: str, address: str) -> None:
    assert str(FIELDS[name]) == address


def test_a_lane_element_knows_its_byte_and_bits() -> None:
    states = FIELDS["data_path_state"]
    assert [(states.span(lane)[0], states.shift(lane)) for lane in (1, 2, 3, 8)] == [
        (128, 0),
        (128, 4),
        (129, 0),
        (131, 4),
    ]
    disable = FIELDS["tx_disable"]
    assert [(disable.span(lane)[0], disable.shift(lane)) for lane in (1, 8)] == [(130, 0), (130, 7)]
    assert FIELDS["current_frequency"].span(2) == range(172, 176)


def test_vdm_instances_count_from_zero() -> None:
    flags = FIELDS["vdm_0_low_alarm_flag"]
    assert (flags.span(0)[0], flags.shift(0)) == (128, 1)
    assert (flags.span(1)[0], flags.shift(1)) == (128, 5)
    assert FIELDS["vdm_2_sample"].span(63) == range(254, 256)
    assert FIELDS["vdm_0_low_warning_threshold"].span(1) == range(142, 144)


def test_an_element_outside_the_array_is_refused() -> None:
    with pytest.raises(ValueError, match="no host lane 0: give 1 to 8"):
        FIELDS["data_path_state"].span(0)
    with pytest.raises(ValueError, match="element 1 does not exist"):
        FIELDS["temperature"].span(1)


def test_flag_bytes_are_those_the_facts_protect() -> None:
    """Flags: 00h:8-13, 11h:134-153, 12h:231-238, 14h:132-139, 2Ch:128-255, reserved bytes among them included."""
    assert flag_bytes(None) == set(range(8, 14))
    assert flag_bytes(0x11) == set(range(134, 154))
    assert flag_bytes(0x12) == set(range(231, 239))
    assert flag_bytes(0x14) == set(range(132, 140))
    assert flag_bytes(0x33) == set(range(128, 133))
    assert flag_bytes(0x2C) == set(range(128, 256))
    assert flag_bytes(0x10) == frozenset()


def test_a_block_is_read_around_its_flags() -> None:
    assert list(quiet_runs(None, 0, 128)) == [range(8), range(14, 128)]
    assert list(quiet_runs(0x11, 128, 128)) == [range(128, 134), range(154, 256)]
    assert list(quiet_runs(0x2C, 128, 128)) == []
    assert list(quiet_runs(0x10, 130, 4)) == [range(130, 134)]


def test_only_the_control_bits_of_the_lower_memory_can_be_written() -> None:
    access = byte_access(None)
    assert access.writable[26] == 0b1111_1000
    assert access.reads_zero[26] == 0b0000_1000
    assert access.writable[3] == 0
    assert access.clear_on_read[8] == 0b1100_0111
    assert access.writable[118:128] == (0xFF,) * 10
    assert access.reads_zero[118:128] == (0xFF,) * 8 + (0, 0)


def test_apply_registers_are_triggers() -> None:
    access = byte_access(0x10)
    triggers = [128 + offset for offset, mask in enumerate(access.reads_zero) if mask == 0xFF]
    assert triggers == [135, 136, 143, 144, 176, 177, 178, 179, 211, 212]


def test_a_page_that_is_not_described_allows_nothing() -> None:
    assert fields_of(0x77) == ()
    assert set(byte_access(0x77).defined) == {0}


def test_status_pages_are_read_only() -> None:
    for page in (0x00, 0x01, 0x02, 0x04, 0x11, 0x34, 0x35):
        assert set(byte_access(page).writable) == {0}, page


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        ({"flat_memory": False, "transmitter_tunable": True, "fine_tuning_supported": True}, True),
        ({"flat_memory": False, "transmitter_tunable": False, "fine_tuning_supported": True}, False),
        ({"flat_memory": True, "transmitter_tunable": True, "fine_tuning_supported": True}, False),
        ({"flat_memory": False, "transmitter_tunable": True}, None),
    ],
)
def test_support_follows_the_chain_of_advertisements(advertised: dict[str, bool], expected: bool | None) -> None:
    assert is_supported(FIELDS["fine_tuning_offset"], advertised.get) is expected


def test_identity_needs_no_advertisement() -> None:
    assert is_supported(FIELDS["vendor_name"], {}.get) is True


def test_every_access_and_every_kind_is_used() -> None:
    assert {field.access for field in ALL_FIELDS} == set(Access)
    assert {field.kind for field in ALL_FIELDS} == set(NumberFormat) - {NumberFormat.F32}


def test_an_address_of_a_single_bit_array_is_its_byte() -> None:
    assert str(Field("x", 0x10, 130, (0, 0), kind=NumberFormat.BOOL, array=Array("media lane", 8, 1))) == "10h:130"


@pytest.mark.skipif(not DUMPS.is_dir(), reason="memory pages of real modules are not here")
def test_every_field_of_real_modules_decodes() -> None:
    for path in sorted(DUMPS.glob("*.json")):
        dump = json.loads(path.read_text(encoding="utf-8"))
        halves: dict[int | None, bytes] = {int(key, 16): bytes.fromhex(value) for key, value in dump["pages"].items()}
        halves[None] = bytes.fromhex(dump["lower"])
        for page, half in halves.items():
            for field in fields_of(page):
                for index in [None] if field.array is None else field.array.indices:
                    decode_from(field, half, index)
