"""Reads identity and capabilities from the identity memory of an SFP module (SFF-8472 clauses 5 to 8)."""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.drivers.transponders.sfp_diagnostics import CalibrationKind, calibration_kind, raw_count
from lumion_hw.interfaces import TransponderIdentity
from lumion_hw.standards.registers import unscaled
from lumion_hw.standards.sff8472.codes import cable_kind, is_copper, technologies
from lumion_hw.standards.sff8472.registers import BITS, FIELDS

IDENTITY_BYTES = FIELDS["cc_ext"].end
"""Length in bytes of the part of A0h that checksums cover."""
SFP_IDENTIFIER = 0x03
"""Identifier of SFP, SFP+ and SFP28 modules (SFF-8024 Table 4-1)."""


@dataclass(frozen=True)
class Capabilities:
    """Capabilities that an SFP module announces.

    Attributes:
        diagnostics: Whether the module has monitors (A0h:92.6).
        rx_power_is_average: Whether the received power is the average, not the modulation amplitude (OMA).
        address_change: Whether the diagnostic memory requires an address change, which the driver does not support.
        soft_tx_disable: Whether software can switch the transmitter.
        soft_tx_fault: Whether the fault bit can be read.
        soft_rx_los: Whether the loss-of-signal bit can be read.
        flags: Whether the module has alarm and warning flags.
        los_inverted: Whether the loss-of-signal bit is set while a signal is present.
        cooled: Whether the laser is cooled and so may need 90 s to start.
    """

    diagnostics: bool
    calibration: CalibrationKind
    rx_power_is_average: bool
    address_change: bool
    soft_tx_disable: bool
    soft_tx_fault: bool
    soft_rx_los: bool
    flags: bool
    los_inverted: bool
    cooled: bool


def is_set(name: str, memory: bytes, start: int = 0) -> bool:
    """Return whether a named bit is set, in memory that begins at ``start``."""
    bit = BITS[name]
    return bool(memory[bit.byte - start] & bit.mask)


def capabilities_of(memory: bytes) -> Capabilities:
    """Return the capabilities announced in the memory A0h."""
    return Capabilities(
        diagnostics=is_set("ddm_implemented", memory),
        calibration=calibration_kind(
            internal=is_set("internally_calibrated", memory), external=is_set("externally_calibrated", memory)
        ),
        rx_power_is_average=is_set("rx_power_is_average", memory),
        address_change=is_set("address_change_required", memory),
        soft_tx_disable=is_set("soft_tx_disable_implemented", memory),
        soft_tx_fault=is_set("soft_tx_fault_implemented", memory),
        soft_rx_los=is_set("soft_rx_los_implemented", memory),
        flags=is_set("flags_implemented", memory),
        los_inverted=is_set("los_inverted", memory) and not is_set("los_implemented", memory),
        cooled=is_set("cooled", memory),
    )


def identity_of(memory: bytes) -> TransponderIdentity:
    """Return the identity in the memory A0h. Unprintable bytes become question marks."""
    fraction_nm = 0.0
    if is_set("tunable", memory):  # otherwise the byte has a different meaning
        fraction_nm = raw_count("wavelength_fraction", memory) * float(FIELDS["wavelength_fraction"].scale)
    return TransponderIdentity(
        vendor=_text("vendor_name", memory),
        part_number=_text("part_number", memory),
        revision=_text("revision", memory),
        serial=_text("serial_number", memory),
        date_code=_text("date_code", memory),
        technology=_technology(memory),
        wavelength_nm=0.0 if is_copper(memory) else raw_count("wavelength", memory) + fraction_nm,
    )


def _technology(memory: bytes) -> str:
    names = technologies(memory)
    if names:
        return " / ".join(names)
    if cable_kind(memory):
        return cable_kind(memory)
    codes = FIELDS["transceiver_codes"]
    return f"unknown (transceiver codes {memory[codes.byte : codes.end].hex()})"


def _text(name: str, memory: bytes) -> str:
    field = FIELDS[name]
    return str(unscaled(field, memory[field.byte : field.end]))
