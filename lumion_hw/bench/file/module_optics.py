"""Optical data of pluggable modules for circuit planning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModuleFormat:
    """A line format of a module.

    Attributes:
        required_osnr_db: Required OSNR in dB in 0.1 nm at a power of ``ample_dbm`` or more; ``None`` for no limit.
        media_id: Media interface code (SFF-8024) of the format; ``None`` except for CMIS modules.
    """

    name: str
    rate_gbps: float
    required_osnr_db: float | None = None
    media_id: int | None = None


@dataclass(frozen=True)
class ModuleOptics:
    """Transmitter and receiver data of a module.

    Attributes:
        formats: Supported line formats, the preferred one first.
        polarizations: Number of polarizations of the signal: 2 for a coherent module.
        emits_nm: Wavelength of the transmitter; the middle of ``lanes_nm``, if there are any.
        receives_nm: Shortest and longest wavelength of the receiver.
        launch_dbm: Transmitter power, summed over polarizations, and over ``lanes_nm`` like the receiver's powers.
        launch_osnr_db: OSNR in 0.1 nm at the transmitter.
        ample_dbm: Receiver power above which the required OSNR is ``required_osnr_db`` of the format.
        clean_osnr_db: Required OSNR in 0.1 nm at ``sensitivity_dbm``; linear interpolation up to ``ample_dbm``.
        max_pdl_db: Largest allowed polarization-dependent loss; ``None`` for no limit.
        max_dgd_ps: Largest allowed differential group delay; ``None`` for no limit.
        lanes_nm: Wavelength of each lane that shares the fibre, ascending; empty for a single wavelength.
    """

    formats: tuple[ModuleFormat, ...]
    polarizations: Literal[1, 2]
    emits_nm: float
    receives_nm: tuple[float, float]
    launch_dbm: float
    sensitivity_dbm: float
    overload_dbm: float
    launch_osnr_db: float | None = None
    ample_dbm: float | None = None
    clean_osnr_db: float | None = None
    max_pdl_db: float | None = None
    max_dgd_ps: float | None = None
    lanes_nm: tuple[float, ...] = ()

    @property
    def wavelengths_nm(self) -> tuple[float, ...]:
        """All wavelengths of the transmitter."""
        return self.lanes_nm or (self.emits_nm,)

    def required_osnr_db(self, used: ModuleFormat, received_dbm: float) -> float | None:
        """Return the OSNR in dB in 0.1 nm that the receiver needs at this power; ``None`` if there is no limit."""
        ample_osnr_db = used.required_osnr_db
        if ample_osnr_db is None or self.ample_dbm is None or self.clean_osnr_db is None:
            return ample_osnr_db
        if received_dbm >= self.ample_dbm:
            return ample_osnr_db
        deficit = (self.ample_dbm - received_dbm) / (self.ample_dbm - self.sensitivity_dbm)
        return ample_osnr_db + deficit * (max(self.clean_osnr_db, ample_osnr_db) - ample_osnr_db)
