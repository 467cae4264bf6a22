"""A fibre between emulated modules: what one end sends, the other end gets, weaker and disturbed."""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass, replace

from lumion_hw.emulator.transponders.cmis.module import CmisModule
from lumion_hw.emulator.transponders.cmis.optics import DARKNESS, LaunchedLight, ReceivedLight
from lumion_hw.quantities import db_from_ratio, ratio_from_db

_MEMORY = 256
_NOISE_TO_OSNR_BANDWIDTH = 6.0
"""A receiver's channel of 75 GHz passes so many times the noise in 0.1 nm."""


@dataclass
class Fibre:
    """One direction of a fibre; its members may be changed at any time.

    Attributes:
        loss_db: Loss.
        osnr_db: OSNR that the line would give a perfect transmitter; ``inf`` without amplifiers.
        cd_ps_per_nm: Chromatic dispersion.
        dgd_ps: Differential group delay.
        pdl_db: Polarization-dependent loss.
        sop_rate_krad_per_s: Speed of the state of polarization.
        polarization_rank: 1 if a polarizer is in the way.
        cut: No light passes.
    """

    loss_db: float = 3.0
    osnr_db: float = math.inf
    cd_ps_per_nm: float = 0.0
    dgd_ps: float = 0.0
    pdl_db: float = 0.0
    sop_rate_krad_per_s: float = 0.0
    polarization_rank: int = 2
    cut: bool = False

    def carry(self, sent: LaunchedLight) -> ReceivedLight:
        """Return what arrives of what was sent."""
        if self.cut or not sent.enabled:
            return DARKNESS
        # Noise to signal adds up: that of the transmitter and that of the line.
        noise = 1.0 / ratio_from_db(min(sent.osnr_db, 200.0)) + 1.0 / ratio_from_db(min(self.osnr_db, 200.0))
        signal_dbm = sent.power_dbm - self.loss_db
        return ReceivedLight(
            total_power_dbm=signal_dbm + db_from_ratio(1.0 + _NOISE_TO_OSNR_BANDWIDTH * noise),
            signal_power_dbm=signal_dbm,
            frequency_mhz=sent.frequency_mhz,
            osnr_db=-db_from_ratio(noise),
            cd_ps_per_nm=self.cd_ps_per_nm,
            dgd_ps=self.dgd_ps,
            pdl_db=self.pdl_db,
            sop_rate_krad_per_s=self.sop_rate_krad_per_s,
            polarization_rank=self.polarization_rank,
            media_interface=sent.media_interface,
            test_pattern=sent.test_pattern,
        )


class FibreDirection:
    """From one module to another: remembers what was sent when, so that the past can be asked for."""

    def __init__(self, source: CmisModule, fibre: Fibre) -> None:
        self._source, self._fibre = source, fibre
        self._sent: dict[int, deque[LaunchedLight]] = {}

    def take(self, light: LaunchedLight) -> None:
        """Note what the source sends from now on."""
        self._sent.setdefault(light.media_lane, deque(maxlen=_MEMORY)).append(light)

    def light(self, media_lane: int, at_s: float) -> ReceivedLight:
        """Return what arrives at an instant."""
        self._source.advance(at_s)  # what it sent until then is known only now
        history = self._sent.get(media_lane)
        if not history:
            return DARKNESS
        # What was being sent at that instant, not what is sent now.
        place = bisect.bisect_right([light.at_s for light in history], at_s)
        return self._fibre.carry(history[max(place - 1, 0)])


def join(first: CmisModule, second: CmisModule, there: Fibre, back: Fibre | None = None) -> tuple[Fibre, Fibre]:
    """Join two modules by a pair of fibres.

    Args:
        first: One module.
        second: The other one.
        there: From ``first`` to ``second``.
        back: From ``second`` to ``first``; by default one like ``there``.

    Returns:
        Both fibres; to change one changes the light.
    """
    back = replace(there) if back is None else back
    forward, reverse = FibreDirection(first, there), FibreDirection(second, back)
    first.connect(optics=reverse.light, emit=forward.take)
    second.connect(optics=forward.light, emit=reverse.take)
    return there, back
