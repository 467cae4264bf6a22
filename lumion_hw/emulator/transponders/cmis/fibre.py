"""A fibre pair between two emulated modules: each module receives the other's attenuated and impaired light."""

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
"""Noise in a receiver's 75 GHz channel divided by the noise in 0.1 nm."""


@dataclass
class Fibre:
    """One direction of a fibre; the attributes can be changed at any time.

    Attributes:
        osnr_db: OSNR of the line with a perfect transmitter; ``inf`` without amplifiers.
        cd_ps_per_nm: Chromatic dispersion.
        dgd_ps: Differential group delay.
        pdl_db: Polarization-dependent loss.
        sop_rate_krad_per_s: Speed of the state of polarization.
        polarization_rank: 1 with a polarizer in the fibre, else 2.
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
        """Return the light at the end of the fibre."""
        if self.cut or not sent.enabled:
            return DARKNESS
        # Noise-to-signal ratios of transmitter and line add up.
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
    """One direction of a fibre pair, with a record of past light."""

    def __init__(self, source: CmisModule, fibre: Fibre) -> None:
        self._source, self._fibre = source, fibre
        self._sent: dict[int, deque[LaunchedLight]] = {}

    def record(self, light: LaunchedLight) -> None:
        """Record a change of the sent light."""
        self._sent.setdefault(light.media_lane, deque(maxlen=_MEMORY)).append(light)

    def light(self, media_lane: int, at_s: float) -> ReceivedLight:
        """Return the light at the receiving module at a given time."""
        self._source.advance(at_s)  # the light sent up to then is known only after this
        history = self._sent.get(media_lane)
        if not history:
            return DARKNESS
        # The light sent at that instant, not the light sent now.
        index = bisect.bisect_right([light.at_s for light in history], at_s)
        return self._fibre.carry(history[max(index - 1, 0)])


def join(first: CmisModule, second: CmisModule, forward: Fibre, backward: Fibre | None = None) -> tuple[Fibre, Fibre]:
    """Join two modules with a pair of fibres and return both fibres, whose attributes can be changed.

    Args:
        first: One module.
        second: The other module.
        forward: Fibre from ``first`` to ``second``.
        backward: Fibre from ``second`` to ``first``; by default a copy of ``forward``.
    """
    backward = replace(forward) if backward is None else backward
    to_second, to_first = FibreDirection(first, forward), FibreDirection(second, backward)
    first.connect(optics=to_first.light, emit=to_second.record)
    second.connect(optics=to_second.light, emit=to_first.record)
    return forward, backward
