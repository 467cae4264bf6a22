"""Coherent modules in the optical world: what they send enters the mesh, what comes out is what they receive."""

from __future__ import annotations

import math

from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.transponders.cmis import LaunchedLight, ReceivedLight
from lumion_hw.emulator.transponders.cmis.optics import DARK_DBM, Emit, Optics
from lumion_hw.quantities import dbm_from_w, w_from_dbm

RECEIVER_BAND_HZ = 37.5e9
"""Half the channel of 75 GHz that a receiver of some 60 GBd listens to."""


class CoherentLight:
    """Lets modules of two tributaries into an optical world.

    Args:
        world: The light.
        fibre_drift_rad2_per_s: Rate of the polarization random walk, for what modules report of its speed.
    """

    def __init__(self, world: OpticalWorld, fibre_drift_rad2_per_s: float) -> None:
        self._world = world
        self._sent: dict[str, LaunchedLight] = {}
        # A random walk has no speed; over one second it goes this far: two axes count.
        self._sop_rate_krad_per_s = 1e-3 * math.sqrt(2.0 * fibre_drift_rad2_per_s)

    def emit(self, transponder: str) -> Emit:
        """Return what takes the light that a module sends."""

        def take(light: LaunchedLight) -> None:
            self._sent[transponder] = light
            power_w = w_from_dbm(light.power_dbm) if light.enabled else 0.0
            self._world.set_coherent(transponder, CoherentLaunch(power_w, light.frequency_mhz * 1e6, light.osnr_db))

        return take

    def optics(self, transponder: str) -> Optics:
        """Return what gives the light at a module's receiver; the world knows the present only."""

        def give(_media_lane: int, _at_s: float) -> ReceivedLight:
            arrived = self._world.received_coherent(transponder, RECEIVER_BAND_HZ)
            if arrived is None:
                return ReceivedLight(total_power_dbm=_dbm(self._world.received_w(transponder)))
            sender = self._sent[arrived.sender]
            # PDL of a path that folds both tributaries is infinite; its rank says so, and a number has to be one.
            two = arrived.pair.rank == 2
            return ReceivedLight(
                total_power_dbm=_dbm(arrived.total_w),
                signal_power_dbm=_dbm(arrived.signal_w),
                frequency_mhz=arrived.launch.frequency_hz * 1e-6,
                osnr_db=arrived.osnr_db,
                dgd_ps=arrived.pair.dgd_ps,
                pdl_db=arrived.pair.pdl_db if two else 0.0,
                sop_rate_krad_per_s=self._sop_rate_krad_per_s,
                polarization_rank=arrived.pair.rank,
                media_interface=sender.media_interface,
                test_pattern=sender.test_pattern,
            )

        return give


def _dbm(power_w: float) -> float:
    return dbm_from_w(power_w) if power_w > 0.0 else DARK_DBM
