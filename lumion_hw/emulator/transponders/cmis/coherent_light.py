"""Passes light between emulated coherent modules and the bench's optical model."""

from __future__ import annotations

import math

from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.transponders.cmis import LaunchedLight, ReceivedLight
from lumion_hw.emulator.transponders.cmis.optics import DARK_DBM, Emit, Optics
from lumion_hw.quantities import dbm_from_w, w_from_dbm

RECEIVER_BAND_HZ = 37.5e9
"""Half of the 75 GHz channel that a receiver of about 60 GBd accepts, in Hz."""


class CoherentLight:
    """Connects dual-polarization modules to the optical model of a bench.

    Args:
        fibre_drift_rad2_per_s: Rate of the random walk of the polarization, for the reported speed of polarization.
    """

    def __init__(self, world: OpticalWorld, fibre_drift_rad2_per_s: float) -> None:
        self._world = world
        self._sent: dict[str, LaunchedLight] = {}
        # A random walk has no speed; this is its rms distance in one second, over two axes.
        self._sop_rate_krad_per_s = 1e-3 * math.sqrt(2.0 * fibre_drift_rad2_per_s)

    def emit(self, transponder: str) -> Emit:
        """Return a function that passes the light of a module to the optical model."""

        def handle(light: LaunchedLight) -> None:
            self._sent[transponder] = light
            power_w = w_from_dbm(light.power_dbm) if light.enabled else 0.0
            self._world.set_coherent(transponder, CoherentLaunch(power_w, light.frequency_mhz * 1e6, light.osnr_db))

        return handle

    def optics(self, transponder: str) -> Optics:
        """Return a function that returns the present light at a module's receiver."""

        def receive(_media_lane: int, _at_s: float) -> ReceivedLight:
            arriving = self._world.received_coherent(transponder, RECEIVER_BAND_HZ)
            if arriving is None:
                return ReceivedLight(total_power_dbm=_dbm(self._world.received_w(transponder)))
            sender = self._sent[arriving.sender]
            # A path that merges both tributaries has infinite PDL; its rank reports that, and the PDL must be finite.
            has_both = arriving.pair.rank == 2
            return ReceivedLight(
                total_power_dbm=_dbm(arriving.total_w),
                signal_power_dbm=_dbm(arriving.signal_w),
                frequency_mhz=arriving.launch.frequency_hz * 1e-6,
                osnr_db=arriving.osnr_db,
                dgd_ps=arriving.pair.dgd_ps,
                pdl_db=arriving.pair.pdl_db if has_both else 0.0,
                sop_rate_krad_per_s=self._sop_rate_krad_per_s,
                polarization_rank=arriving.pair.rank,
                media_interface=sender.media_interface,
                test_pattern=sender.test_pattern,
            )

        return receive


def _dbm(power_w: float) -> float:
    return dbm_from_w(power_w) if power_w > 0.0 else DARK_DBM
