"""Optical data of pluggable modules for circuit planning.

Every kind of module provides these data in this form (``optics`` of its model). So planning is independent of kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModuleFormat:
    """A line format of a module.

    Attributes:
        name: Name of the format; both ends of a circuit must use the same.
        rate_gbps: Line rate in Gb/s.
        required_osnr_db: Required OSNR in 0.1 nm at ample power; ``None`` if noise is no limit.
        media_id: Media interface code (SFF-8024) with which a CMIS module selects the format; ``None`` for others.
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
        emits_nm: Wavelength of the transmitter.
        receives_nm: Shortest and longest wavelength of the receiver; a coherent receiver accepts only its own.
        launch_dbm: Transmitter power, the sum of all polarizations.
        sensitivity_dbm: Smallest receiver power.
        overload_dbm: Largest receiver power.
        launch_osnr_db: OSNR in 0.1 nm at the transmitter.
        ample_dbm: Receiver power from which ``required_osnr_db`` of the format suffices.
        clean_osnr_db: Required OSNR in 0.1 nm at the sensitivity; linear in between.
        max_pdl_db: Largest polarization-dependent loss; ``None`` if it is no limit.
        max_dgd_ps: Largest differential group delay; ``None`` if it is no limit.
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

    def required_osnr_db(self, used: ModuleFormat, received_dbm: float) -> float | None:
        """Return the OSNR in 0.1 nm that the receiver needs at a given power; ``None`` if noise is no limit.

        Args:
            used: The line format.
            received_dbm: Power at the receiver.
        """
        ample_osnr_db = used.required_osnr_db
        if ample_osnr_db is None or self.ample_dbm is None or self.clean_osnr_db is None:
            return ample_osnr_db
        if received_dbm >= self.ample_dbm:
            return ample_osnr_db
        deficit = (self.ample_dbm - received_dbm) / (self.ample_dbm - self.sensitivity_dbm)
        return ample_osnr_db + deficit * (max(self.clean_osnr_db, ample_osnr_db) - ample_osnr_db)
