"""C-CMIS pages of coherent modules, bank 0, media lane 1: FEC counters (34h), link performance (35h), flags (33h).

Only fields that public sources confirm are listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lumion_hw.standards.cmis.fields import LIMITS, Certainty, Field, bit
from lumion_hw.standards.registers import Access, Array, NumberFormat

COHERENT = "coherent"
"""Support condition: the module is coherent."""

_CHECK = Certainty.CHECK
_RW = Access.RW
_ONE = Fraction(1)
_TENTH = Fraction(1, 10)
_HUNDREDTH = Fraction(1, 100)


@dataclass(frozen=True)
class LinkQuantityField:
    """A quantity of page 35h, with average, minimum and maximum over the module's measurement interval.

    Attributes:
        name: Name; fields are ``pm_<name>_avg``, ``_min`` and ``_max``.
        byte: Address of the average.
        length: Number of bytes of each value.
        kind: ``INT`` or ``UINT``.
        scale: Size of one count, in ``unit``.
        observable: Name of the same quantity in VDM.
        certainty: How certain the definition is.
    """

    name: str
    byte: int
    length: int
    kind: NumberFormat
    scale: Fraction
    unit: str
    observable: str
    certainty: Certainty = Certainty.TWO_SOURCES


LINK_QUANTITIES: tuple[LinkQuantityField, ...] = (
    LinkQuantityField("cd", 128, 4, NumberFormat.INT, _ONE, "ps/nm", "cd_fine"),
    LinkQuantityField("dgd", 140, 2, NumberFormat.UINT, _HUNDREDTH, "ps", "dgd"),
    LinkQuantityField("sopmd_fine", 146, 2, NumberFormat.UINT, _HUNDREDTH, "ps^2", "sopmd_fine"),
    LinkQuantityField("pdl", 152, 2, NumberFormat.UINT, _TENTH, "dB", "pdl"),
    LinkQuantityField("osnr", 158, 2, NumberFormat.UINT, _TENTH, "dB", "osnr"),
    LinkQuantityField("esnr", 164, 2, NumberFormat.UINT, _TENTH, "dB", "esnr"),
    LinkQuantityField("cfo", 170, 2, NumberFormat.INT, _ONE, "MHz", "cfo"),
    LinkQuantityField("evm", 176, 2, NumberFormat.UINT, Fraction(100, 65535), "%", "evm"),
    LinkQuantityField("tx_power", 182, 2, NumberFormat.INT, _HUNDREDTH, "dBm", "tx_power"),
    LinkQuantityField("rx_total_power", 188, 2, NumberFormat.INT, _HUNDREDTH, "dBm", "rx_total_power"),
    LinkQuantityField("rx_signal_power", 194, 2, NumberFormat.INT, _HUNDREDTH, "dBm", "rx_signal_power"),
    LinkQuantityField("sop_rate", 200, 2, NumberFormat.UINT, _ONE, "krad/s", "sop_rate"),
    LinkQuantityField("mer", 206, 2, NumberFormat.UINT, _TENTH, "dB", "mer"),
    LinkQuantityField("clock_recovery", 212, 2, NumberFormat.INT, Fraction(100, 32767), "%", "clock_recovery"),
    LinkQuantityField("sopmd_coarse", 218, 2, NumberFormat.UINT, _ONE, "ps^2", "sopmd_coarse", _CHECK),
    LinkQuantityField("snr_margin", 224, 2, NumberFormat.INT, _TENTH, "dB", "snr_margin"),
    LinkQuantityField("q", 230, 2, NumberFormat.UINT, _TENTH, "dB", "q"),
    LinkQuantityField("q_margin", 236, 2, NumberFormat.INT, _TENTH, "dB", "q_margin"),
)
"""Quantities of page 35h."""


def _link_fields() -> tuple[Field, ...]:
    return tuple(
        Field(
            f"pm_{item.name}_{word}",
            0x35,
            item.byte + index * item.length,
            length=item.length,
            kind=item.kind,
            scale=item.scale,
            unit=item.unit,
            support=COHERENT,
            certainty=item.certainty,
        )
        for item in LINK_QUANTITIES
        for index, word in enumerate(("avg", "min", "max"))
    )


FEC_COUNTERS: tuple[tuple[str, int, int], ...] = (
    ("bits", 128, 8),
    ("bits_sub_interval", 136, 8),
    ("corrected_bits", 144, 8),
    ("corrected_bits_min", 152, 8),
    ("corrected_bits_max", 160, 8),
    ("frames", 168, 4),
    ("frames_sub_interval", 172, 4),
    ("uncorrectable_frames", 176, 4),
    ("uncorrectable_frames_min", 180, 4),
    ("uncorrectable_frames_max", 184, 4),
)
"""Counters of page 34h (media) and 3Ah (host): name, address, bytes."""


def _fec_fields(prefix: str, page: int, certainty: Certainty) -> tuple[Field, ...]:
    return tuple(
        Field(f"{prefix}_{name}", page, byte, length=length, support=COHERENT, certainty=certainty)
        for name, byte, length in FEC_COUNTERS
    )


def _flags(page: int, byte: int, prefix: str, names: dict[int, str]) -> tuple[Field, ...]:
    return tuple(
        bit(f"{prefix}_{name}_flag", page, byte, number, access=Access.COR, support=COHERENT, certainty=_CHECK)
        for number, name in names.items()
    )


def _rx_power_thresholds(prefix: str, byte: int) -> tuple[Field, ...]:
    return tuple(
        Field(
            f"{prefix}_{limit}_threshold",
            0x30,
            byte + 2 * index,
            length=2,
            kind=NumberFormat.INT,
            scale=_HUNDREDTH,
            unit="dBm",
            access=_RW,
            support=COHERENT,
            certainty=_CHECK,
        )
        for index, limit in enumerate(LIMITS)
    )


def _degrade_thresholds(name: str, page: int, byte: int) -> Field:
    return Field(
        name,
        page,
        byte,
        length=2,
        kind=NumberFormat.F16,
        access=_RW,
        array=Array("threshold", 4, 16),
        support=COHERENT,
        certainty=_CHECK,
    )


COHERENT_PAGES: tuple[Field, ...] = (
    *_rx_power_thresholds("rx_total_power", 128),
    *_rx_power_thresholds("rx_signal_power", 136),
    _degrade_thresholds("media_fec_degrade_threshold", 0x30, 160),
    *_flags(
        0x33,
        128,
        "coherent_tx",
        {5: "loa", 4: "ooa", 3: "cmu_lol", 2: "reference_clock_lol", 1: "deskew_lol", 0: "fifo"},
    ),
    *_flags(
        0x33,
        130,
        "coherent_rx",
        {
            7: "lof",
            6: "lom",
            5: "demodulator_lol",
            4: "cd_compensation_lol",
            3: "loa",
            2: "ooa",
            1: "deskew_lol",
            0: "fifo",
        },
    ),
    *_flags(0x33, 131, "media_fec", {1: "excessive_degrade", 0: "detected_degrade"}),
    Field(
        "media_degrade_flags", 0x33, 132, kind=NumberFormat.BYTES, access=Access.COR, support=COHERENT, certainty=_CHECK
    ),
    *_fec_fields("media_fec", 0x34, Certainty.TWO_SOURCES),
    *_link_fields(),
    _degrade_thresholds("host_fec_degrade_threshold", 0x38, 128),
    *_fec_fields("host_fec", 0x3A, _CHECK),
    Field(
        "host_coherent_flags",
        0x3B,
        192,
        length=5,
        kind=NumberFormat.BYTES,
        access=Access.COR,
        support=COHERENT,
        certainty=_CHECK,
    ),
    Field("c_cmis_revision", 0x40, 128, support=COHERENT, certainty=_CHECK, note="major and minor nibble"),
)
"""Fields of pages 30h to 40h."""
