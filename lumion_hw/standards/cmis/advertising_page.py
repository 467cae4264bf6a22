"""CMIS page 01h: supported functions of the module, and maximum durations."""

from __future__ import annotations

from fractions import Fraction

from lumion_hw.standards.cmis.fields import Certainty, Field, bit
from lumion_hw.standards.cmis.lower_memory import application_fields
from lumion_hw.standards.registers import Array, NumberFormat

_P = 0x01
_CHECK = Certainty.CHECK


def _bits(byte: int, names: dict[int, str]) -> tuple[Field, ...]:
    return tuple(bit(name, _P, byte, number) for number, name in names.items())


def _duration(name: str, byte: int, high: int, low: int) -> Field:
    return Field(name, _P, byte, (high, low), note="duration code: codec.duration_s")


PAGE_01H: tuple[Field, ...] = (
    Field("inactive_firmware_major", _P, 128),
    Field("inactive_firmware_minor", _P, 129),
    Field("hardware_major", _P, 130),
    Field("hardware_minor", _P, 131),
    Field(
        "smf_length_multiplier", _P, 132, (7, 6), note="0.1, 1, 10 km; since CMIS 5.3 code 3: smf_length_multiplier_2"
    ),
    Field("smf_length_base", _P, 132, (5, 0)),
    Field("om5_length", _P, 133, scale=Fraction(2), unit="m", certainty=_CHECK),
    Field("om4_length", _P, 134, scale=Fraction(2), unit="m", certainty=_CHECK),
    Field("om3_length", _P, 135, scale=Fraction(2), unit="m", certainty=_CHECK),
    Field("om2_length", _P, 136, unit="m", certainty=_CHECK),
    Field("smf_length_multiplier_2", _P, 137, (7, 6), note="50, 100, 200, 500 km; CMIS 5.3 and later"),
    Field("nominal_wavelength", _P, 138, length=2, scale=Fraction(1, 20), unit="nm"),
    Field("wavelength_tolerance", _P, 140, length=2, scale=Fraction(1, 200), unit="nm"),
    bit("network_path_pages_supported", _P, 142, 7),
    bit("vdm_supported", _P, 142, 6),
    bit("diagnostic_pages_supported", _P, 142, 5),
    bit(
        "coherent_pages_supported", _P, 142, 4, note="CMIS 5.3 and later; not sufficient to identify a coherent module"
    ),
    bit("page_05h_supported", _P, 142, 3),
    bit("page_03h_supported", _P, 142, 2),
    Field("banks_supported", _P, 142, (1, 0), note="0: bank 0; 1: banks 0-1; 2: banks 0-3"),
    Field("modsel_wait_exponent", _P, 143, (7, 5), note="wait = mantissa * 2**exponent in microseconds"),
    Field("modsel_wait_mantissa", _P, 143, (4, 0)),
    _duration("max_duration_dp_deinit", 144, 7, 4),
    _duration("max_duration_dp_init", 144, 3, 0),
    bit("cooled", _P, 145, 7),
    Field("tx_clocking_groups", _P, 145, (6, 5)),
    bit("epps_supported", _P, 145, 4),
    bit("page_15h_supported", _P, 145, 3),
    bit("aux3_is_supply_2", _P, 145, 2, note="0: laser temperature"),
    bit("aux2_is_tec_current", _P, 145, 1, note="0: laser temperature"),
    bit("aux1_is_tec_current", _P, 145, 0, note="0: custom"),
    Field("module_temperature_max", _P, 146, kind=NumberFormat.INT, unit="degC"),
    Field("module_temperature_min", _P, 147, kind=NumberFormat.INT, unit="degC"),
    Field("propagation_delay", _P, 148, length=2, scale=Fraction(10), unit="ns"),
    Field("min_supply", _P, 150, scale=Fraction(1, 50), unit="V"),
    bit("detector_is_apd", _P, 151, 7),
    Field("rx_output_eq_type", _P, 151, (6, 5)),
    bit("rx_power_is_average", _P, 151, 4, note="0: OMA"),
    bit("rx_los_is_average", _P, 151, 3),
    bit("fast_rx_los", _P, 151, 2),
    bit("fast_tx_disable", _P, 151, 1, certainty=_CHECK),
    bit("module_wide_tx_disable", _P, 151, 0, certainty=_CHECK),
    Field("cdr_power_saved", _P, 152, scale=Fraction(1, 100), unit="W", certainty=_CHECK),
    Field("rx_output_levels", _P, 153, (7, 4)),
    Field("tx_input_eq_max", _P, 153, (3, 0)),
    Field("rx_post_cursor_max", _P, 154, (7, 4)),
    Field("rx_pre_cursor_max", _P, 154, (3, 0)),
    bit("wavelength_controllable", _P, 155, 7),
    bit("transmitter_tunable", _P, 155, 6, note="page 04h and 12h exist"),
    Field("tx_squelch_method", _P, 155, (5, 4), kind=NumberFormat.ENUM, codes="squelch_method"),
    *_bits(
        155,
        {
            3: "tx_forced_squelch_supported",
            2: "tx_auto_squelch_disable_supported",
            1: "tx_disable_supported",
            0: "tx_polarity_flip_supported",
        },
    ),
    *_bits(
        156,
        {
            7: "bank_broadcast_supported",
            2: "rx_auto_squelch_disable_supported",
            1: "rx_output_disable_supported",
            0: "rx_polarity_flip_supported",
        },
    ),
    *_bits(
        157,
        {
            3: "tx_adaptive_eq_fail_flag_supported",
            2: "tx_lol_flag_supported",
            1: "tx_los_flag_supported",
            0: "tx_failure_flag_supported",
        },
    ),
    *_bits(158, {2: "rx_lol_flag_supported", 1: "rx_los_flag_supported"}),
    *_bits(
        159,
        {
            5: "custom_monitor_supported",
            4: "aux3_monitor_supported",
            3: "aux2_monitor_supported",
            2: "aux1_monitor_supported",
            1: "supply_monitor_supported",
            0: "temperature_monitor_supported",
        },
    ),
    Field("bias_scale", _P, 160, (4, 3), note="bias multiplier 1, 2, 4"),
    *_bits(160, {2: "rx_power_monitor_supported", 1: "tx_power_monitor_supported", 0: "tx_bias_monitor_supported"}),
    Field("tx_eq_recall_buffers", _P, 161, (6, 5)),
    *_bits(
        161,
        {
            4: "tx_eq_freeze_supported",
            3: "tx_adaptive_eq_supported",
            2: "tx_fixed_eq_supported",
            1: "tx_cdr_bypass_supported",
            0: "tx_cdr_supported",
        },
    ),
    *_bits(
        162,
        {
            6: "unidirectional_reconfiguration_supported",
            5: "staged_set_1_supported",
            4: "rx_post_cursor_supported",
            3: "rx_pre_cursor_supported",
            2: "rx_amplitude_supported",
            1: "rx_cdr_bypass_supported",
            0: "rx_cdr_supported",
        },
    ),
    Field("cdb_instances", _P, 163, (7, 6)),
    bit("cdb_background_mode", _P, 163, 5),
    bit("cdb_auto_paging", _P, 163, 4),
    Field("cdb_epl_pages", _P, 163, (3, 0), certainty=_CHECK, note="code: codec.EPL_PAGES"),
    Field("cdb_length_extension", _P, 164, scale=Fraction(8), unit="byte", note="on top of 8 bytes per access"),
    bit("cdb_trigger_by_transaction", _P, 165, 7, note="0: single byte 9Fh:129 or two bytes 128-129"),
    Field("cdb_extended_busy", _P, 165, (4, 0), note="max(1, X) * 160 ms"),
    bit("cdb_use_extended_busy", _P, 166, 7),
    Field("cdb_busy", _P, 166, (6, 0), certainty=_CHECK, note="revisions differ: codec.cdb_busy_s"),
    _duration("max_duration_power_down", 167, 7, 4),
    _duration("max_duration_power_up", 167, 3, 0),
    _duration("max_duration_tx_turn_off", 168, 7, 4),
    _duration("max_duration_tx_turn_on", 168, 3, 0),
    Field(
        "application_media_lane_options",
        _P,
        176,
        array=Array("application", 15, 8),
        note="bit k: the application may start on media lane k + 1",
    ),
    Field("vendor_advertising", _P, 191, length=32, kind=NumberFormat.BYTES),
    *application_fields("more_application", _P, 223, 7, 9),
    Field("page_01h_checksum", _P, 255),
)
"""Fields of page 01h."""
