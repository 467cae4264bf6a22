"""CMIS pages 10h (lane and data path control), 11h (status, flags, monitors) and 12h (laser tuning)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Unpack

from lumion_hw.standards.cmis.administrative_pages import PER_0_01_DBM, PER_0_1_UW, PER_2_UA
from lumion_hw.standards.cmis.fields import LANES, LIMITS, Certainty, Field, FieldOptions, bit, lane_bits
from lumion_hw.standards.registers import Access, Array, NumberFormat

HOST = "host lane"
"""Meaning of an array element: host lane."""
MEDIA = "media lane"
"""Meaning of an array element: media lane."""

_CONTROL = 0x10
_STATUS = 0x11
_TUNING = 0x12
_RW = Access.RW
_CHECK = Certainty.CHECK

LANE_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("data_path_state_changed", HOST, ""),
    ("tx_failure", MEDIA, "tx_failure_flag_supported"),
    ("tx_los", HOST, "tx_los_flag_supported"),
    ("tx_lol", HOST, "tx_lol_flag_supported"),
    ("tx_adaptive_eq_fail", HOST, "tx_adaptive_eq_fail_flag_supported"),
    *((f"tx_power_{limit}", MEDIA, "tx_power_monitor_supported") for limit in LIMITS),
    *((f"tx_bias_{limit}", MEDIA, "tx_bias_monitor_supported") for limit in LIMITS),
    ("rx_los", MEDIA, "rx_los_flag_supported"),
    ("rx_lol", MEDIA, "rx_lol_flag_supported"),
    *((f"rx_power_{limit}", MEDIA, "rx_power_monitor_supported") for limit in LIMITS),
    ("rx_output_changed", HOST, ""),
)
"""Lane flags in the order of bytes 11h:134-153 and masks 10h:213-232: name, kind of lane, advertising field."""


def _lane_flags(suffix: str, page: int, byte: int, access: Access) -> tuple[Field, ...]:
    return tuple(
        lane_bits(f"{name}_{suffix}", page, byte + offset, of, access=access, support=support)
        for offset, (name, of, support) in enumerate(LANE_FLAGS)
    )


def _nibbles(name: str, page: int, byte: int, access: Access, support: str) -> Field:
    return Field(name, page, byte, (3, 0), access=access, array=Array(HOST, LANES, 4), support=support)


def _control_set(prefix: str, page: int, byte: int, access: Access, support: str) -> tuple[Field, ...]:
    lanes = Array(HOST, LANES, 8)

    def needs(own: str) -> str:
        return support or own

    return (
        Field(f"{prefix}_app_sel", page, byte, (7, 4), access=access, array=lanes, support=support),
        Field(
            f"{prefix}_data_path_id",
            page,
            byte,
            (3, 1),
            access=access,
            array=lanes,
            support=support,
            note="first host lane of the data path - 1",
        ),
        Field(
            f"{prefix}_explicit_control",
            page,
            byte,
            (0, 0),
            kind=NumberFormat.BOOL,
            access=access,
            array=lanes,
            support=support,
            note="use the signal-integrity values of this set",
        ),
        lane_bits(
            f"{prefix}_tx_adaptive_eq", page, byte + 8, HOST, access=access, support=needs("tx_adaptive_eq_supported")
        ),
        Field(
            f"{prefix}_tx_eq_recall",
            page,
            byte + 9,
            (1, 0),
            access=access,
            array=Array(HOST, LANES, 2),
            support=needs("tx_eq_recall_buffers"),
        ),
        _nibbles(f"{prefix}_tx_fixed_eq", page, byte + 11, access, needs("tx_fixed_eq_supported")),
        lane_bits(f"{prefix}_tx_cdr", page, byte + 15, HOST, access=access, support=needs("tx_cdr_bypass_supported")),
        lane_bits(f"{prefix}_rx_cdr", page, byte + 16, HOST, access=access, support=needs("rx_cdr_bypass_supported")),
        _nibbles(f"{prefix}_rx_pre_cursor", page, byte + 17, access, needs("rx_pre_cursor_supported")),
        _nibbles(f"{prefix}_rx_post_cursor", page, byte + 21, access, needs("rx_post_cursor_supported")),
        _nibbles(f"{prefix}_rx_amplitude", page, byte + 25, access, needs("rx_amplitude_supported")),
    )


def _staged_set(number: int, byte: int) -> tuple[Field, ...]:
    prefix, support = f"staged_{number}", "staged_set_1_supported" if number else ""
    unidirectional = "unidirectional_reconfiguration_supported"
    wo = Access.WO
    return (
        lane_bits(f"{prefix}_apply_dp_init", _CONTROL, byte, HOST, access=wo, support=support),
        lane_bits(f"{prefix}_apply_immediate", _CONTROL, byte + 1, HOST, access=wo, support=support),
        *_control_set(prefix, _CONTROL, byte + 2, _RW, support),
        lane_bits(f"{prefix}_apply_immediate_tx", _CONTROL, byte + 33, HOST, access=wo, support=unidirectional),
        lane_bits(f"{prefix}_apply_immediate_rx", _CONTROL, byte + 34, HOST, access=wo, support=unidirectional),
    )


PAGE_10H: tuple[Field, ...] = (
    lane_bits("data_path_deinit", _CONTROL, 128, HOST, access=_RW, note="1: de-initialise; inverted meaning in CMIS 3"),
    lane_bits("tx_polarity_flip", _CONTROL, 129, HOST, access=_RW, support="tx_polarity_flip_supported"),
    lane_bits(
        "tx_disable",
        _CONTROL,
        130,
        MEDIA,
        access=_RW,
        support="tx_disable_supported",
        note="1: off; a module with one carrier uses bit 0",
    ),
    lane_bits("tx_auto_squelch_disable", _CONTROL, 131, MEDIA, access=_RW, support="tx_auto_squelch_disable_supported"),
    lane_bits("tx_forced_squelch", _CONTROL, 132, MEDIA, access=_RW, support="tx_forced_squelch_supported"),
    lane_bits("tx_eq_freeze", _CONTROL, 134, HOST, access=_RW, support="tx_eq_freeze_supported"),
    Field(
        "tx_eq_store",
        _CONTROL,
        135,
        (1, 0),
        access=Access.WO,
        array=Array(HOST, LANES, 2),
        support="tx_eq_recall_buffers",
        certainty=_CHECK,
    ),
    lane_bits("rx_polarity_flip", _CONTROL, 137, HOST, access=_RW, support="rx_polarity_flip_supported"),
    lane_bits("rx_output_disable", _CONTROL, 138, HOST, access=_RW, support="rx_output_disable_supported"),
    lane_bits("rx_auto_squelch_disable", _CONTROL, 139, HOST, access=_RW, support="rx_auto_squelch_disable_supported"),
    *_staged_set(0, 143),
    *_staged_set(1, 178),
    *_lane_flags("mask", _CONTROL, 213, _RW),
)


def _lane_monitor(name: str, byte: int, scale: Fraction, unit: str, note: str = "", multiplier: str = "") -> Field:
    return Field(
        name,
        _STATUS,
        byte,
        length=2,
        scale=scale,
        unit=unit,
        array=Array(MEDIA, LANES, 16),
        multiplier=multiplier,
        support=f"{name}_monitor_supported",
        note=note,
    )


def _mapping(direction: str, byte: int) -> tuple[Field, ...]:
    array = Array(MEDIA, LANES, 8)
    return (
        Field(f"{direction}_lane_wavelength", _STATUS, byte, (7, 4), array=array),
        Field(f"{direction}_lane_fibre", _STATUS, byte, (3, 0), array=array),
    )


PAGE_11H: tuple[Field, ...] = (
    Field(
        "data_path_state",
        _STATUS,
        128,
        (3, 0),
        kind=NumberFormat.ENUM,
        codes="data_path_state",
        array=Array(HOST, LANES, 4),
    ),
    lane_bits("rx_output_valid", _STATUS, 132, HOST),
    lane_bits("tx_output_valid", _STATUS, 133, MEDIA),
    *_lane_flags("flag", _STATUS, 134, Access.COR),
    _lane_monitor("tx_power", 154, PER_0_1_UW, "mW", "raw 0: below range"),
    _lane_monitor("tx_bias", 170, PER_2_UA, "mA", multiplier="bias_scale"),
    _lane_monitor("rx_power", 186, PER_0_1_UW, "mW", "raw 0: below range"),
    Field(
        "config_status",
        _STATUS,
        202,
        (3, 0),
        kind=NumberFormat.ENUM,
        codes="config_status",
        array=Array(HOST, LANES, 4),
    ),
    *_control_set("active", _STATUS, 206, Access.RO, ""),
    lane_bits(
        "data_path_init_pending", _STATUS, 235, HOST, note="only a hint: some firmware clears it early or forgets it"
    ),
    *_mapping("tx", 240),
    *_mapping("rx", 248),
)

TUNING_FLAGS = (
    "tuning_complete",
    "wavelength_unlocked",
    "invalid_channel",
    "tuning_not_accepted",
    "fine_tuning_oor",
    "target_output_power_oor",
)
"""Names of the tuning flags, and of their masks, from bit 0 upwards."""
_TUNABLE = "transmitter_tunable"
_BY_BYTE = Array(MEDIA, LANES, 8)
_BY_WORD = Array(MEDIA, LANES, 16)


def _tuning_bit(name: str, byte: int, number: int, **options: Unpack[FieldOptions]) -> Field:
    return replace(bit(name, _TUNING, byte, number, **options), array=_BY_BYTE)


def _tuning_bits(suffix: str, byte: int, access: Access) -> tuple[Field, ...]:
    return tuple(
        _tuning_bit(f"{name}_{suffix}", byte, number, access=access, support=_TUNABLE)
        for number, name in enumerate(TUNING_FLAGS)
    )


PAGE_12H: tuple[Field, ...] = (
    Field(
        "grid",
        _TUNING,
        128,
        (7, 4),
        kind=NumberFormat.ENUM,
        codes="grid",
        access=_RW,
        array=_BY_BYTE,
        support=_TUNABLE,
    ),
    _tuning_bit("fine_tuning_enable", 128, 0, access=_RW, support="fine_tuning_supported"),
    Field("channel", _TUNING, 136, length=2, kind=NumberFormat.INT, access=_RW, array=_BY_WORD, support=_TUNABLE),
    Field(
        "fine_tuning_offset",
        _TUNING,
        152,
        length=2,
        kind=NumberFormat.INT,
        unit="MHz",
        access=_RW,
        array=_BY_WORD,
        support="fine_tuning_supported",
    ),
    Field("current_frequency", _TUNING, 168, length=4, unit="MHz", array=Array(MEDIA, LANES, 32), support=_TUNABLE),
    Field(
        "target_output_power",
        _TUNING,
        200,
        length=2,
        kind=NumberFormat.INT,
        scale=PER_0_01_DBM,
        unit="dBm",
        access=_RW,
        array=_BY_WORD,
        support="programmable_power_supported",
    ),
    _tuning_bit("tuning_in_progress", 222, 1, support=_TUNABLE),
    _tuning_bit(
        "wavelength_unlocked", 222, 0, support=_TUNABLE, note="present state; wavelength_unlocked_flag is latched"
    ),
    lane_bits("tuning_flag_summary", _TUNING, 230, MEDIA, support=_TUNABLE),
    *_tuning_bits("flag", 231, Access.COR),
    *_tuning_bits("mask", 239, _RW),
)


def _directional_set(direction: str, byte: int) -> tuple[Field, ...]:
    """Return the active data path of each host lane in one direction, in the form of bytes 11h:206-213."""

    def field(name: str, bits: tuple[int, int], kind: NumberFormat = NumberFormat.UINT) -> Field:
        return Field(
            f"{direction}_active_{name}",
            _ACTIVE_BY_DIRECTION,
            byte,
            bits,
            kind=kind,
            array=Array(HOST, LANES, 8),
            support="unidirectional_reconfiguration_supported",
            certainty=_CHECK,
        )

    return (
        field("app_sel", (7, 4)),
        field("data_path_id", (3, 1)),
        field("explicit_control", (0, 0), NumberFormat.BOOL),
    )


_ACTIVE_BY_DIRECTION = 0x19
PAGE_19H: tuple[Field, ...] = (*_directional_set("tx", 128), *_directional_set("rx", 136))
"""Page 19h: active control set by direction, from one public implementation.

Bytes 152 to 207 are not decoded: they hold active settings of the CMIS-VCS supplement, which only CDB commands
describe.
"""
