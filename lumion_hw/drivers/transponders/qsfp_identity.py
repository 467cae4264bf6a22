"""Reads identity and capabilities from the memory of a QSFP module (SFF-8636 page 00h)."""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.interfaces import TransponderIdentity
from lumion_hw.standards.registers import number, unscaled
from lumion_hw.standards.sff8636 import codes
from lumion_hw.standards.sff8636.registers import IDENTITY_PAGE, LANE_MONITORS, find

_FIRST = 128
"""Address of the first byte of a page."""
FIRST_READING, END_OF_READINGS = 22, 58
"""Addresses in the lower memory of the first reading of a monitor and of the byte after the last."""


@dataclass(frozen=True)
class QsfpCapabilities:
    """QsfpCapabilities that a QSFP module announces.

    The attribute names are the values of ``QsfpField.support``: a field is present if its attribute is true.

    Attributes:
        revision: Revision code of the standard (byte 1).
        flat: Whether the module has only page 00h (2.2).
        power_class: Power class, 1 to 8.
        max_power_w: Largest power in W; ``None`` if a module in class 8 does not state it.
        power_class_8: Whether byte 107 contains the largest power.
        copper: Whether the module is a copper cable, active or passive.
        passive: Whether the module is a passive copper cable.
        optical: Whether the module is not a copper cable.
        cable: Whether byte 146 is the length of a cable.
        om4: Whether byte 146 is a reach on OM4 fibre.
        attenuation: Whether bytes 145, 188 and 189 are the attenuation of a copper cable.
        monitor_bits: Whether the revision defines bits 220.5 and 220.4.
        temperature: Whether the module measures its temperature. Modules before revision 2.8 do not say so; see
            :meth:`measures`.
        supply: Whether the module measures its supply voltage; see ``temperature``.
        rx_power: Whether the module measures the received power of each lane. A module that announces no other monitor,
            such as an optical cable without diagnostics, does not.
        rx_power_is_average: Whether the received power is the average, not the modulation amplitude (OMA).
        tx_bias: Whether the module measures the laser current of each lane; see ``rx_power``.
        tx_power: Whether the module measures the launched power of each lane (220.2).
        tx_disable: Whether software can switch each transmitter (195.4).
        rx_los: Whether the module reports loss of the received signal.
        tx_los: Whether the module reports loss of the electrical input signal (195.1).
        tx_fault: Whether the module reports transmitter faults (195.3).
        tx_eq_fault: Whether the module reports faults of its adaptive input equalizer (193.3).
        tx_lol: Whether the module reports loss of lock of the Tx clock recovery (194.5).
        rx_lol: Whether the module reports loss of lock of the Rx clock recovery (194.4).
        tx_cdr: Whether the module has clock recovery in the transmitter (129.3).
        rx_cdr: Whether the module has clock recovery in the receiver (129.2).
        tx_cdr_control: Whether software can switch the Tx clock recovery (129.3 and 194.7).
        rx_cdr_control: Whether software can switch the Rx clock recovery (129.2 and 194.6).
        rate_select: Whether software can select the rate of each lane (195.5).
        software_reset: Whether software can reset the module (221.0).
        initialization_complete: Whether the module has the flag 6.0 (221.4).
        tc_readiness: Whether the module has the flag 6.1 (221.1).
        lp_mode_configurable: Whether the pin LPMode can be made TxDis (193.6).
        int_l_configurable: Whether the pin IntL can be made RxLOSL (193.5).
        rx_squelch_control: Whether software can disable the Rx squelch (194.3).
        tx_squelch_control: Whether software can disable the Tx squelch (194.1).
        rx_output_control: Whether software can switch the electrical outputs off (194.2).
        tx_eq_control: Whether software can switch the adaptive input equalizer (193.3).
        page_01: Whether page 01h exists (195.6).
        page_02: Whether page 02h exists (195.7).
        pages_20_21: Whether pages 20h and 21h exist (195.0).
        cooled: Whether the laser is cooled and so may need longer to start (147.2).
    """

    revision: int
    flat: bool
    power_class: int
    max_power_w: float | None
    power_class_8: bool
    copper: bool
    passive: bool
    optical: bool
    cable: bool
    om4: bool
    attenuation: bool
    monitor_bits: bool
    temperature: bool
    supply: bool
    rx_power: bool
    rx_power_is_average: bool
    tx_bias: bool
    tx_power: bool
    tx_disable: bool
    rx_los: bool
    tx_los: bool
    tx_fault: bool
    tx_eq_fault: bool
    tx_lol: bool
    rx_lol: bool
    tx_cdr: bool
    rx_cdr: bool
    tx_cdr_control: bool
    rx_cdr_control: bool
    rate_select: bool
    software_reset: bool
    initialization_complete: bool
    tc_readiness: bool
    lp_mode_configurable: bool
    int_l_configurable: bool
    rx_squelch_control: bool
    tx_squelch_control: bool
    rx_output_control: bool
    tx_eq_control: bool
    page_01: bool
    page_02: bool
    pages_20_21: bool
    cooled: bool

    def has(self, support: str) -> bool:
        """Return whether the module has the fields with this ``QsfpField.support``."""
        return not support or bool(getattr(self, support))

    def measures(self, monitor: str, readings: bytes) -> bool:
        """Return whether the module has a monitor, also judged by its readings.

        Args:
            monitor: Name of the monitor.
            readings: Bytes 22 to 57 of the lower memory.
        """
        # Modules before revision 2.8 do not announce these monitors. A working supply never reads exactly 0 V.
        supply = readings[26 - FIRST_READING : 28 - FIRST_READING]
        is_silent = not any(readings) if monitor in LANE_MONITORS else not any(supply)
        return self.has(monitor) and (self.monitor_bits or not is_silent)

    def missing_monitors(self) -> frozenset[str]:
        """Return the quantities of ``Monitors`` that the module does not measure."""
        return frozenset(quantity for monitor, quantity in _QUANTITIES.items() if not self.has(monitor))


_QUANTITIES = {
    "temperature": "temperature_c",
    "supply": "supply_v",
    "tx_bias": "tx_bias_ma",
    "tx_power": "tx_power_dbm",
    "rx_power": "rx_power_dbm",
}
_BITS = {
    "rx_power_is_average": "rx_power_is_average",
    "tx_disable": "tx_disable_implemented",
    "tx_los": "tx_los_implemented",
    "tx_fault": "tx_fault_implemented",
    "tx_eq_fault": "tx_eq_adaptive_implemented",
    "tx_lol": "tx_lol_implemented",
    "rx_lol": "rx_lol_implemented",
    "tx_cdr": "tx_cdr_present",
    "rx_cdr": "rx_cdr_present",
    "rate_select": "rate_select_implemented",
    "software_reset": "software_reset_implemented",
    "initialization_complete": "initialization_complete_implemented",
    "tc_readiness": "tc_readiness_implemented",
    "lp_mode_configurable": "lp_mode_configurable",
    "int_l_configurable": "int_l_configurable",
    "rx_squelch_control": "rx_squelch_disable_implemented",
    "tx_squelch_control": "tx_squelch_disable_implemented",
    "rx_output_control": "rx_output_disable_implemented",
    "tx_eq_control": "tx_eq_adaptive_implemented",
    "page_01": "page_01_present",
    "page_02": "page_02_present",
    "pages_20_21": "pages_20_21_present",
    "cooled": "cooled",
}
"""Capability and the bit of page 00h that announces it."""


def is_set(name: str, page: bytes) -> bool:
    """Return whether a named bit is set, in the 128 bytes of page 00h."""
    bit = find(name)
    return bool(page[bit.byte - _FIRST] & bit.mask)


def capabilities_of(lower: bytes, page: bytes) -> QsfpCapabilities:
    """Return the capabilities announced in the lower memory and page 00h, of 128 bytes each."""
    bits = {name: is_set(bit, page) for name, bit in _BITS.items()}
    revision, extended_identifier = lower[1], page[129 - _FIRST]
    copper = codes.is_copper(page)
    monitor_bits = codes.FIRST_WITH_MONITOR_BITS <= revision < codes.UNPROGRAMMED
    has_diagnostics = not monitor_bits or any(
        is_set(name, page) for name in ("temperature_monitored", "supply_monitored", "tx_power_monitored")
    )
    om4 = codes.length_is_om4(page)
    return QsfpCapabilities(
        **bits,
        revision=revision,
        flat=bool(lower[2] & find("flat_memory").mask),
        power_class=codes.power_class(extended_identifier),
        max_power_w=codes.max_power_w(extended_identifier, lower[find("max_power").byte]),
        power_class_8=codes.power_class(extended_identifier) == 8,
        copper=copper,
        passive=codes.is_passive(page),
        optical=not copper,
        cable=not om4,
        om4=om4,
        attenuation=copper and revision >= codes.FIRST_WITH_ATTENUATION,
        monitor_bits=monitor_bits,
        temperature=is_set("temperature_monitored", page) or not monitor_bits,
        supply=is_set("supply_monitored", page) or not monitor_bits,
        rx_power=has_diagnostics and not copper,
        tx_bias=has_diagnostics and not copper,
        tx_power=is_set("tx_power_monitored", page) and not copper,
        rx_los=not codes.is_passive(page),
        tx_cdr_control=bits["tx_cdr"] and is_set("tx_cdr_control_implemented", page),
        rx_cdr_control=bits["rx_cdr"] and is_set("rx_cdr_control_implemented", page),
    )


def identity_of(page: bytes) -> TransponderIdentity:
    """Return the identity in the 128 bytes of page 00h. Unprintable bytes become question marks."""
    texts = {name: str(unscaled(find(name), _cut(name, page))) for name in _TEXTS}
    return TransponderIdentity(
        vendor=texts["vendor_name"],
        part_number=texts["part_number"],
        revision=texts["revision"],
        serial=texts["serial_number"],
        date_code=texts["date_code"],
        technology=_technology(page),
        wavelength_nm=0.0 if codes.is_copper(page) else number(find("wavelength"), _cut("wavelength", page)),
    )


_TEXTS = ("vendor_name", "part_number", "revision", "serial_number", "date_code")


def _technology(page: bytes) -> str:
    names = codes.technologies(page)
    if names:
        return " / ".join(names)
    if codes.is_copper(page):
        return codes.TRANSMITTERS[page[147 - _FIRST] >> 4]
    return f"unknown (compliance codes {_cut('compliance_codes', page).hex()})"


def _cut(name: str, page: bytes) -> bytes:
    field = find(name)
    if field.space != IDENTITY_PAGE:
        raise KeyError(f"{name} is not in page 00h")
    return page[field.byte - _FIRST : field.end - _FIRST]
