"""Light that a module sends and receives, for each media lane and time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

DARK_DBM = -math.inf
"""Power without light, in dBm."""


@dataclass(frozen=True)
class ReceivedLight:
    """Light at the receiver of one media lane; the default is darkness.

    Attributes:
        total_power_dbm: All light on the detector, in dBm; ``-inf`` is none.
        signal_power_dbm: Light of the wanted carrier, in dBm.
        frequency_mhz: Carrier frequency; ``None`` means the receiver's own frequency.
        osnr_db: Optical signal-to-noise ratio in 0.1 nm, noise in both polarizations; ``inf`` is noise-free.
        cd_ps_per_nm: Chromatic dispersion.
        dgd_ps: Differential group delay.
        sopmd_ps2: Second-order polarization mode dispersion.
        pdl_db: Polarization-dependent loss.
        sop_rate_krad_per_s: Speed of the state of polarization on the Poincaré sphere.
        polarization_rank: 2 if both polarizations arrive separately, 1 if they merge into one field.
        media_interface: Media interface id of the sender; ``None`` means the receiver's own.
        test_pattern: Pattern code on the lane (``codes.Pattern``); ``None`` is traffic.
    """

    total_power_dbm: float = DARK_DBM
    signal_power_dbm: float = DARK_DBM
    frequency_mhz: float | None = None
    osnr_db: float = math.inf
    cd_ps_per_nm: float = 0.0
    dgd_ps: float = 0.0
    sopmd_ps2: float = 0.0
    pdl_db: float = 0.0
    sop_rate_krad_per_s: float = 0.0
    polarization_rank: int = 2
    media_interface: int | None = None
    test_pattern: int | None = None

    def __post_init__(self) -> None:
        numbers = (self.total_power_dbm, self.signal_power_dbm, self.osnr_db, self.cd_ps_per_nm, self.dgd_ps)
        if any(math.isnan(number) for number in (*numbers, self.sopmd_ps2, self.pdl_db, self.sop_rate_krad_per_s)):
            raise ValueError(f"{self} contains a value that is not a number")


DARKNESS = ReceivedLight()
"""Light at an unconnected receiver."""


@dataclass(frozen=True)
class LaunchedLight:
    """Light that one media lane sends from ``at_s`` on.

    Attributes:
        media_lane: Lane, from 1.
        power_dbm: True launch power; ``-inf`` when the lane does not send.
        osnr_db: The transmitter's own OSNR in 0.1 nm.
        media_interface: Media interface id of the application.
        test_pattern: Pattern code, ``None`` for traffic.
    """

    media_lane: int
    at_s: float
    enabled: bool
    power_dbm: float
    frequency_mhz: float
    osnr_db: float = math.inf
    media_interface: int | None = None
    test_pattern: int | None = None


Optics = Callable[[int, float], ReceivedLight]
"""Function that returns the light at a media lane's receiver at a time, at most the clock's present time."""

Emit = Callable[[LaunchedLight], None]
"""Function that is called with the sent light at every change, in order of time."""


def darkness(media_lane: int, at_s: float) -> ReceivedLight:
    """Return zero light, for a module whose receiver is not connected."""
    return DARKNESS


def ignored(light: LaunchedLight) -> None:
    """Discard the sent light, for a module whose output is not connected."""
