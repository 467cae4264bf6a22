"""CMIS versatile diagnostics monitoring (VDM), pages 20h to 2Fh: descriptors, samples, thresholds, flags, freeze.

A module lists up to 64 instances (a quantity on one lane) in each of four groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from lumion_hw.standards.cmis.fields import LIMITS, Certainty, Field, bit
from lumion_hw.standards.registers import Access, Array, NumberFormat

GROUPS = 4
INSTANCES = 64
"""Number of instances in a group."""
THRESHOLD_SETS = 16
"""Number of threshold sets in a group."""
DESCRIPTOR_PAGE = 0x20
"""Page with the descriptors of the first group."""
SAMPLE_PAGE = 0x24
"""Page with the samples of the first group."""
THRESHOLD_PAGE = 0x28
"""Page with the thresholds of the first group."""
FLAG_PAGE = 0x2C
"""Page with the flags of all groups."""
MASK_PAGE = 0x2D
"""Page with the flag masks of all groups."""
CONTROL_PAGE = 0x2F
"""Page with the number of groups, the freeze request and its status."""

_VDM = "vdm_supported"
_CHECK = Certainty.CHECK


@dataclass(frozen=True)
class Observable:
    """Quantity that a VDM sample measures.

    Attributes:
        code: Type code of the descriptor.
        name: Unique name.
        kind: Number format of sample and thresholds: ``UINT``, ``INT`` or ``F16``.
        scale: Size of one count, in ``unit``.
        unit: Unit of the scaled value.
        statistic: Whether the value is a minimum, maximum, average or total over the interval.
        certainty: How certain the definition is.
    """

    code: int
    name: str
    kind: NumberFormat
    scale: Fraction = Fraction(1)
    unit: str = ""
    statistic: bool = False
    certainty: Certainty = Certainty.TWO_SOURCES

    @property
    def is_ratio(self) -> bool:
        """Whether the quantity is an error ratio, at most 1."""
        return self.kind is NumberFormat.F16


def _db(code: int, name: str, kind: NumberFormat, per: int, unit: str = "dB", *, check: bool = False) -> Observable:
    certainty = _CHECK if check else Certainty.TWO_SOURCES
    return Observable(code, name, kind, Fraction(1, per), unit, certainty=certainty)


def _fec(first: int, quantity: str, kind: NumberFormat = NumberFormat.F16, unit: str = "") -> tuple[Observable, ...]:
    return tuple(
        Observable(first + 2 * row + column, f"{quantity}_{word}_{side}", kind, unit=unit, statistic=word != "current")
        for row, word in enumerate(("min", "max", "avg", "current"))
        for column, side in enumerate(("media", "host"))
    )


_PERCENT_S16 = Fraction(100, 32767)
_PERCENT_U16 = Fraction(100, 65535)
_RAILS = ("2v6", "1v8", "1v2", "0v9", "0v7_a", "0v7_b")
_BIAS = ("bias_xi", "bias_xq", "bias_yi", "bias_yq", "bias_x_phase", "bias_y_phase")

OBSERVABLES: Mapping[int, Observable] = MappingProxyType(
    {
        item.code: item
        for item in (
            Observable(1, "laser_age", NumberFormat.UINT, unit="%"),
            Observable(2, "tec_current", NumberFormat.INT, _PERCENT_S16, "%"),
            Observable(3, "laser_frequency_error", NumberFormat.INT, Fraction(10), "MHz"),
            Observable(4, "laser_temperature", NumberFormat.INT, Fraction(1, 256), "degC"),
            _db(5, "esnr_media", NumberFormat.UINT, 256),
            _db(6, "esnr_host", NumberFormat.UINT, 256),
            _db(7, "pam4_ltp_media", NumberFormat.UINT, 256),
            _db(8, "pam4_ltp_host", NumberFormat.UINT, 256),
            *_fec(9, "ber"),
            *_fec(17, "errored_frames"),
            Observable(25, "ferc_total_media", NumberFormat.F16, statistic=True),
            Observable(26, "ferc_total_host", NumberFormat.F16, statistic=True),
            *_fec(
                27, "sewmax", NumberFormat.UINT, "symbols"
            ),  # highest number of symbol errors in one code word; CMIS 5.3
            *(
                Observable(77 + k, f"supply_{name}", NumberFormat.UINT, Fraction(1, 10_000), "V")
                for k, name in enumerate(_RAILS)
            ),
            Observable(83, "supply_12v", NumberFormat.UINT, Fraction(1, 4000), "V"),
            _db(84, "els_input_power", NumberFormat.INT, 100, "dBm"),
            *(
                Observable(128 + k, f"modulator_{name}", NumberFormat.UINT, _PERCENT_U16, "%")
                for k, name in enumerate(_BIAS)
            ),
            Observable(134, "cd_fine", NumberFormat.INT, Fraction(1), "ps/nm"),
            Observable(135, "cd_coarse", NumberFormat.INT, Fraction(20), "ps/nm"),
            Observable(136, "dgd", NumberFormat.UINT, Fraction(1, 100), "ps"),
            Observable(137, "sopmd_fine", NumberFormat.UINT, Fraction(1, 100), "ps^2"),
            _db(138, "pdl", NumberFormat.UINT, 10),
            _db(139, "osnr", NumberFormat.UINT, 10),
            _db(140, "esnr", NumberFormat.UINT, 10),
            Observable(141, "cfo", NumberFormat.INT, Fraction(1), "MHz"),
            Observable(142, "evm", NumberFormat.UINT, _PERCENT_U16, "%"),
            _db(143, "tx_power", NumberFormat.INT, 100, "dBm"),
            _db(144, "rx_total_power", NumberFormat.INT, 100, "dBm"),
            _db(145, "rx_signal_power", NumberFormat.INT, 100, "dBm"),
            Observable(146, "sop_rate", NumberFormat.UINT, Fraction(1), "krad/s"),
            _db(147, "mer", NumberFormat.UINT, 10),
            Observable(148, "clock_recovery", NumberFormat.INT, _PERCENT_S16, "%", certainty=_CHECK),
            Observable(149, "sopmd_coarse", NumberFormat.UINT, Fraction(1), "ps^2"),
            _db(150, "snr_margin", NumberFormat.INT, 10, check=True),
            _db(151, "q", NumberFormat.UINT, 10, check=True),
            _db(152, "q_margin", NumberFormat.INT, 10, check=True),
        )
    }
)
"""Quantities by type code (CMIS 5.3 Table 8-122, C-CMIS)."""

CUSTOM_TYPES = range(100, 128)
"""Type codes whose meaning the vendor defines."""
MODULE_RESOURCE = 16
"""Value of ``Descriptor.lane`` for a quantity of the whole module."""

OBSERVABLES_BY_NAME: Mapping[str, Observable] = MappingProxyType({item.name: item for item in OBSERVABLES.values()})


@dataclass(frozen=True)
class Descriptor:
    """Description of an instance: threshold set 0 to 15, lane 1 to 15 (16: module), type code (0: unused)."""

    threshold_set: int
    lane: int
    code: int

    @property
    def observable(self) -> Observable | None:
        """Quantity that the instance measures; ``None`` for an unused instance or an unknown type."""
        return OBSERVABLES.get(self.code)


def decode_descriptor(data: bytes) -> Descriptor:
    """Return the descriptor in two bytes. Raises ``ValueError`` for another number of bytes."""
    if len(data) != 2:
        raise ValueError(f"a VDM descriptor has 2 bytes, not {len(data)}")
    return Descriptor(data[0] >> 4, (data[0] & 0x0F) + 1, data[1])


def encode_descriptor(descriptor: Descriptor) -> bytes:
    """Return the two bytes of a descriptor. Raises ``ValueError`` for numbers that do not fit."""
    if not (0 <= descriptor.threshold_set < 16 and 1 <= descriptor.lane <= 16 and 0 <= descriptor.code < 256):
        raise ValueError(f"{descriptor} does not fit into two bytes")
    return bytes([descriptor.threshold_set << 4 | (descriptor.lane - 1), descriptor.code])


def _two_bytes(name: str, page: int, byte: int, array: Array, note: str) -> Field:
    return Field(name, page, byte, length=2, kind=NumberFormat.BYTES, array=array, support=_VDM, note=note)


def _group_fields(group: int) -> tuple[Field, ...]:
    instances = Array("instance", INSTANCES, 16, 0)
    sets = Array("threshold set", THRESHOLD_SETS, 64, 0)
    note = "in the format of the observable"
    return (
        _two_bytes(f"vdm_{group}_descriptor", DESCRIPTOR_PAGE + group, 128, instances, "decode_descriptor"),
        _two_bytes(f"vdm_{group}_sample", SAMPLE_PAGE + group, 128, instances, "codec.vdm_value"),
        *(
            _two_bytes(f"vdm_{group}_{limit}_threshold", THRESHOLD_PAGE + group, 128 + 2 * offset, sets, note)
            for offset, limit in enumerate(LIMITS)
        ),
    )


def _flag_fields(suffix: str, page: int, access: Access) -> tuple[Field, ...]:
    return tuple(
        Field(
            f"vdm_{group}_{limit}_{suffix}",
            page,
            128 + 32 * group,
            (number, number),
            kind=NumberFormat.BOOL,
            access=access,
            array=Array("instance", INSTANCES, 4, 0),
            support=_VDM,
        )
        for group in range(GROUPS)
        for number, limit in enumerate(LIMITS)
    )


VDM_PAGES: tuple[Field, ...] = (
    *(field for group in range(GROUPS) for field in _group_fields(group)),
    *_flag_fields("flag", FLAG_PAGE, Access.COR),
    *_flag_fields("mask", MASK_PAGE, Access.RW),
    Field("vdm_groups", CONTROL_PAGE, 128, (1, 0), support=_VDM, note="number of groups - 1"),
    Field(
        "vdm_fine_interval",
        CONTROL_PAGE,
        129,
        length=2,
        scale=Fraction(1, 10),
        unit="ms",
        support=_VDM,
        certainty=_CHECK,
        note="0.1 ms in three public register maps",
    ),
    bit("vdm_freeze_request", CONTROL_PAGE, 144, 7, access=Access.RW, support=_VDM),
    bit("vdm_power_saving", CONTROL_PAGE, 144, 6, access=Access.RW, support=_VDM, certainty=_CHECK),
    bit("vdm_freeze_done", CONTROL_PAGE, 145, 7, support=_VDM),
    bit("vdm_unfreeze_done", CONTROL_PAGE, 145, 6, support=_VDM),
)
"""Fields of pages 20h to 2Fh; group 0 is the standard's group 1."""
