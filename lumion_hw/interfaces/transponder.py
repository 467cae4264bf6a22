"""The optical transponder or pluggable module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class TransponderIdentity:
    """Who the module says it is.

    Attributes:
        vendor: Vendor name.
        part_number: Part number.
        revision: Revision.
        serial: Serial number.
        date_code: Date code, ``YYMMDD`` plus lot.
        technology: What it is, such as ``10GBASE-ER``.
        wavelength_nm: Nominal wavelength.
    """

    vendor: str
    part_number: str
    revision: str
    serial: str
    date_code: str
    technology: str
    wavelength_nm: float


@dataclass(frozen=True)
class Monitors:
    """Module monitors. Powers are ``None`` below the module's measurable range.

    Attributes:
        temperature_c: Case temperature.
        supply_v: Supply voltage.
        tx_bias_ma: Laser bias.
        tx_power_dbm: Launched power as the module sees it.
        rx_power_dbm: Received power as the module sees it.
        timestamp_s: Host clock when the values were read.
    """

    temperature_c: float
    supply_v: float
    tx_bias_ma: float
    tx_power_dbm: float | None
    rx_power_dbm: float | None
    timestamp_s: float


@dataclass(frozen=True)
class SignalStatus:
    """Live status bits.

    Attributes:
        rx_los: Loss of signal at the receiver.
        tx_fault: The transmitter has shut itself down.
        tx_disabled: Transmitter switched off, by pin or by software.
        data_ready: Monitor values are valid.
        timestamp_s: Host clock when the bits were read.
    """

    rx_los: bool
    tx_fault: bool
    tx_disabled: bool
    data_ready: bool
    timestamp_s: float


class Transponder(Protocol):
    """An optical module. Thread-safe; what a module cannot do raises ``NotSupportedError``."""

    def identify(self) -> TransponderIdentity:
        """Read and check the identity."""

    def enable(self) -> None:
        """Switch the transmitter on and wait until the module reports power in its window.

        Raises:
            DeviceError: The module reports a fault or no power within its start-up time.
        """

    def disable(self) -> None:
        """Switch the transmitter off and verify that it is dark."""

    def monitors(self) -> Monitors:
        """Read the module's monitors."""

    def status(self) -> SignalStatus:
        """Read the module's live status bits."""

    def close(self) -> None:
        """Release the link; idempotent. The transmitter is left as it is."""
