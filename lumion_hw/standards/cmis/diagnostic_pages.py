"""CMIS pages 13h (loopbacks, test patterns) and 14h (results)."""

from __future__ import annotations

from fractions import Fraction

from lumion_hw.standards.cmis.fields import LANES, Certainty, Field, FieldOptions, bit, lane_bits
from lumion_hw.standards.cmis.lane_pages import HOST, MEDIA
from lumion_hw.standards.registers import Access, Array, NumberFormat

_CONTROL = 0x13
_RESULTS = 0x14
_RW = Access.RW
_CHECK = Certainty.CHECK
_DIAGNOSTICS = "diagnostic_pages_supported"


def _bits(byte: int, names: dict[int, str]) -> tuple[Field, ...]:
    return tuple(bit(name, _CONTROL, byte, number, support=_DIAGNOSTICS) for number, name in names.items())


def _patterns(name: str, byte: int, support: str) -> Field:
    return Field(
        name,
        _CONTROL,
        byte,
        length=2,
        kind=NumberFormat.UINT_LE,
        support=support,
        certainty=_CHECK,
        note="bit n: codes.Pattern n is supported",
    )


def _pattern_control(prefix: str, of: str, byte: int) -> tuple[Field, ...]:
    def lanes(name: str, offset: int, certainty: Certainty = Certainty.TWO_SOURCES, note: str = "") -> Field:
        return lane_bits(
            f"{prefix}_{name}",
            _CONTROL,
            byte + offset,
            of,
            access=_RW,
            support=_DIAGNOSTICS,
            certainty=certainty,
            note=note,
        )

    return (
        lanes("enable", 0),
        lanes("invert", 1),
        lanes("swap_symbol_bits", 2, _CHECK),
        lanes("fec_side", 3, _CHECK, "generator: before the FEC encoder; checker: after the FEC decoder"),
        Field(
            f"{prefix}_pattern",
            _CONTROL,
            byte + 4,
            (3, 0),
            kind=NumberFormat.ENUM,
            codes="pattern",
            access=_RW,
            array=Array(of, LANES, 4),
            support=_DIAGNOSTICS,
        ),
    )


def _loopback(name: str, byte: int, of: str) -> Field:
    return lane_bits(f"{name}_loopback", _CONTROL, byte, of, access=_RW, support=f"{name}_loopback_supported")


DIAGNOSTIC_FLAGS = (
    ("gating_complete_host", HOST),
    ("gating_complete_media", MEDIA),
    ("generator_lol_host", HOST),
    ("generator_lol_media", MEDIA),
    ("checker_lol_host", HOST),
    ("checker_lol_media", MEDIA),
)
"""Lane flags in the order of bytes 14h:134-139 and of masks 13h:208-213."""


def _diagnostic_flags(
    suffix: str, page: int, byte: int, access: Access, certainty: Certainty = Certainty.TWO_SOURCES
) -> tuple[Field, ...]:
    options = FieldOptions(access=access, support=_DIAGNOSTICS, certainty=certainty)
    return (
        bit(f"reference_clock_lost_{suffix}", page, byte, 7, **options),
        *(
            lane_bits(f"{name}_{suffix}", page, byte + 2 + offset, of, **options)
            for offset, (name, of) in enumerate(DIAGNOSTIC_FLAGS)
        ),
    )


PAGE_13H: tuple[Field, ...] = (
    *_bits(
        128,
        {
            0: "media_output_loopback_supported",
            1: "media_input_loopback_supported",
            2: "host_output_loopback_supported",
            3: "host_input_loopback_supported",
            4: "per_lane_host_loopback",
            5: "per_lane_media_loopback",
            6: "host_and_media_loopback",
        },
    ),
    *_bits(129, {5: "gating_results_supported"}),
    *_bits(
        130,
        {
            7: "media_fec_supported",
            6: "host_fec_supported",
            5: "media_snr_supported",
            4: "host_snr_supported",
            1: "bit_counting_supported",
        },
    ),
    bit("ber_results_supported", _CONTROL, 130, 0, support=_DIAGNOSTICS, certainty=_CHECK),
    _patterns("host_generator_patterns", 132, _DIAGNOSTICS),
    _patterns("media_generator_patterns", 134, _DIAGNOSTICS),
    _patterns("host_checker_patterns", 136, _DIAGNOSTICS),
    _patterns("media_checker_patterns", 138, _DIAGNOSTICS),
    *_pattern_control("host_generator", HOST, 144),
    *_pattern_control("media_generator", MEDIA, 152),
    *_pattern_control("host_checker", HOST, 160),
    *_pattern_control("media_checker", MEDIA, 168),
    bit("reset_error_counters", _CONTROL, 177, 5, access=_RW, support=_DIAGNOSTICS, note="hold 1 to reset, then 0"),
    Field("gate_time", _CONTROL, 177, (3, 1), access=_RW, support=_DIAGNOSTICS, note="code; 0: not gated"),
    bit("update_every_5_s", _CONTROL, 177, 0, access=_RW, support=_DIAGNOSTICS, note="0: every second"),
    _loopback("media_output", 180, MEDIA),
    _loopback("media_input", 181, MEDIA),
    _loopback("host_output", 182, HOST),
    _loopback("host_input", 183, HOST),
    *_diagnostic_flags("mask", _CONTROL, 206, _RW, _CHECK),
    Field(
        "user_pattern",
        _CONTROL,
        224,
        length=32,
        kind=NumberFormat.BYTES,
        access=_RW,
        support=_DIAGNOSTICS,
        certainty=_CHECK,
    ),
)

VIEW_BER = "selector 01h or 11h"
"""Selector codes for which 14h:192-255 contains bit error ratios."""
VIEW_COUNTERS = "selector 02h-05h or 12h-15h"
"""Selector codes for which 14h:192-255 contains the counters of four lanes."""
VIEW_SNR = "selector 06h"
"""Selector code for which 14h:192-255 contains signal-to-noise ratios."""


def _ber(name: str, byte: int, of: str) -> Field:
    return Field(
        name,
        _RESULTS,
        byte,
        length=2,
        kind=NumberFormat.F16,
        array=Array(of, LANES, 16),
        support="ber_results_supported",
        view=VIEW_BER,
    )


def _snr(side: str, byte: int, of: str) -> Field:
    return Field(
        f"{side}_snr",
        _RESULTS,
        byte,
        length=2,
        kind=NumberFormat.UINT_LE,
        scale=Fraction(1, 256),
        unit="dB",
        array=Array(of, LANES, 16),
        support=f"{side}_snr_supported",
        certainty=_CHECK,
        view=VIEW_SNR,
        note="16 bytes earlier in one public decoder",
    )


def _counter(name: str, byte: int, note: str = "") -> Field:
    return Field(
        name,
        _RESULTS,
        byte,
        length=8,
        kind=NumberFormat.UINT_LE,
        array=Array("lane of the four", 4, 128),
        support="bit_counting_supported",
        certainty=_CHECK,
        view=VIEW_COUNTERS,
        note=note,
    )


PAGE_14H: tuple[Field, ...] = (
    Field(
        "diagnostics_selector",
        _RESULTS,
        128,
        kind=NumberFormat.ENUM,
        codes="diagnostics_selector",
        access=_RW,
        support=_DIAGNOSTICS,
        note="results follow 10 to 200 ms later",
    ),
    *_diagnostic_flags("flag", _RESULTS, 132, Access.COR),
    _ber("host_ber", 192, HOST),
    _ber("media_ber", 208, MEDIA),
    _snr("host", 208, HOST),
    _snr("media", 240, MEDIA),
    _counter("error_count", 192),
    _counter("bit_count", 200, "bit 0: pattern synchronisation was lost"),
)
