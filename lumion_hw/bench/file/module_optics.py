"""What a pluggable module's optical ends are, as far as circuits are planned with them.

Every kind of module says it in this one form (``optics`` of its model), so that planning asks no model for its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ModuleFormat:
    """One way in which a module sends and receives.

    Attributes:
        name: Line format in words; both ends have to speak the same.
        rate_gbps: Bits per second of the light, in Gb/s.
        required_osnr_db: Least signal to noise in 0.1 nm at ample power; ``None`` where noise is no limit.
        media_id: Code of the media interface (SFF-8024), by which a CMIS module selects it; ``None`` for others.
    """

    name: str
    rate_gbps: float
    required_osnr_db: float | None = None
    media_id: int | None = None


@dataclass(frozen=True)
class ModuleOptics:
    """Both ends of a module: what it sends, and what it can receive.

    Attributes:
        formats: Line formats it speaks, the preferred one first.
        polarizations: Polarizations that its signal takes: 2 for a coherent module.
        emits_nm: Wavelength it is set to.
        receives_nm: Shortest and longest wavelength that its receiver takes; a coherent one takes its own alone.
        launch_dbm: Power it sends, all polarizations together.
        sensitivity_dbm: Least power that counts as a link.
        overload_dbm: Largest power that counts as a link.
        launch_osnr_db: Signal to noise in 0.1 nm as sent.
        ample_dbm: Power from which on ``required_osnr_db`` of the format is enough.
        clean_osnr_db: Signal to noise in 0.1 nm needed at the sensitivity; between the two it goes in proportion.
        max_pdl_db: Largest polarization-dependent loss; ``None`` where it is no limit.
        max_dgd_ps: Largest delay between two polarizations; ``None`` where it is no limit.
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
        """Return the signal to noise in 0.1 nm that the receiver needs at a power; ``None`` if it needs none.

        Args:
            used: One of its formats.
            received_dbm: Power at the receiver.
        """
        least_db = used.required_osnr_db
        if least_db is None or self.ample_dbm is None or self.clean_osnr_db is None or received_dbm >= self.ample_dbm:
            return least_db
        short = (self.ample_dbm - received_dbm) / (self.ample_dbm - self.sensitivity_dbm)
        return least_db + short * (max(self.clean_osnr_db, least_db) - least_db)
