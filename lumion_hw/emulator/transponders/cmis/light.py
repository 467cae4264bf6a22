"""Passes light between emulated CMIS modules and the bench's optical model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch
from lumion_hw.emulator.optics.demultiplexer import lines_of_lane
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.transponders.cmis import LaunchedLight, ReceivedLight
from lumion_hw.emulator.transponders.cmis.optics import DARK_DBM, DARKNESS, Emit, Optics
from lumion_hw.quantities import (
    dbm_from_w,
    frequency_hz_from_wavelength_m,
    w_from_dbm,
    wavelength_m_from_frequency_hz,
)

RECEIVER_BAND_HZ = 37.5e9
"""Half of the 75 GHz channel that a receiver of about 60 GBd accepts, in Hz."""


class CmisLight:
    """Connects modules of one polarization to the optical model of a bench.

    Light of a module whose media lanes are wired one by one, as ``dr4-a/2``, enters at the port of the lane.
    """

    def __init__(self, world: OpticalWorld) -> None:
        self._world = world
        self._sent: dict[str, LaunchedLight] = {}
        self._sent_lines: dict[tuple[str, float], LaunchedLight] = {}  # by module and frequency in Hz

    def emit_multiplexed(self, transponder: str, wavelengths_nm: Sequence[float]) -> Emit:
        """Return a function like :meth:`emit` for a module whose first lanes share the fibre at these wavelengths.

        Other lanes are not connected.
        """
        launched_w = [0.0] * len(wavelengths_nm)

        def handle(light: LaunchedLight) -> None:
            if light.media_lane <= len(wavelengths_nm):
                wavelength_nm = wavelengths_nm[light.media_lane - 1]
                launched_w[light.media_lane - 1] = _power_w(light)
                self._sent[transponder] = light
                self._sent_lines[transponder, frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)] = light
                self._world.set_lines(
                    transponder, [Light(power_w, nm) for power_w, nm in zip(launched_w, wavelengths_nm, strict=True)]
                )

        return handle

    def optics_demultiplexed(self, transponder: str, wavelengths_nm: Sequence[float]) -> Optics:
        """Return a function that returns the present light at the receiver of one of several wavelengths."""

        def receive(media_lane: int, _at_s: float) -> ReceivedLight:
            """Return the total light of a lane, with the signal properties of its strongest line."""
            if media_lane > len(wavelengths_nm):
                return DARKNESS
            powers_w = lines_of_lane(self._world.received_lines_w(transponder), wavelengths_nm, media_lane)
            if not powers_w:
                return DARKNESS
            strongest = max(powers_w, key=lambda line: powers_w[line])
            total_dbm, sent = _dbm(sum(powers_w.values())), self._sent_lines.get(strongest)
            if sent is None:
                return ReceivedLight(total_power_dbm=total_dbm)
            return ReceivedLight(
                total_power_dbm=total_dbm,
                signal_power_dbm=_dbm(powers_w[strongest]),
                frequency_mhz=sent.frequency_mhz,
                media_interface=sent.media_interface,
                test_pattern=sent.test_pattern,
            )

        return receive

    def emit(self, transponder: str) -> Emit:
        """Return a function that passes the light of a module to the optical model."""

        def handle(light: LaunchedLight) -> None:
            end = self._end(transponder, light.media_lane)
            self._sent[end] = light
            self._launch(end, _power_w(light), light)

        return handle

    def optics(self, transponder: str) -> Optics:
        """Return a function that returns the present light at a module's receiver."""

        def receive(media_lane: int, _at_s: float) -> ReceivedLight:
            return self._received(self._end(transponder, media_lane))

        return receive

    def _end(self, transponder: str, media_lane: int) -> str:
        """Return the name of the end of a fibre in the wiring: that of a lane, or the module for all of its lanes."""
        return f"{transponder}/{media_lane}" if self._world.wiring.has_lanes(transponder) else transponder

    def _launch(self, end: str, power_w: float, light: LaunchedLight) -> None:
        self._world.set_source(end, power_w, wavelength_m_from_frequency_hz(light.frequency_mhz * 1e6) * 1e9)

    def _received(self, end: str) -> ReceivedLight:
        powers_w = self._world.received_by_source_w(end)
        total_dbm = _dbm(self._world.received_w(end))
        sender = max(powers_w, key=lambda source: powers_w[source], default="")
        sent = self._sent.get(sender)
        if sent is None:
            return ReceivedLight(total_power_dbm=total_dbm)
        return ReceivedLight(
            total_power_dbm=total_dbm,
            signal_power_dbm=_dbm(powers_w[sender]),
            frequency_mhz=sent.frequency_mhz,
            media_interface=sent.media_interface,
            test_pattern=sent.test_pattern,
        )


class CoherentLight(CmisLight):
    """Connects dual-polarization modules to the optical model of a bench.

    Args:
        fibre_drift_rad2_per_s: Rate of the random walk of the polarization, for the reported speed of polarization.
    """

    def __init__(self, world: OpticalWorld, fibre_drift_rad2_per_s: float) -> None:
        super().__init__(world)
        # A random walk has no speed; this is its rms distance in one second, over two axes.
        self._sop_rate_krad_per_s = 1e-3 * math.sqrt(2.0 * fibre_drift_rad2_per_s)

    def _launch(self, end: str, power_w: float, light: LaunchedLight) -> None:
        self._world.set_coherent(end, CoherentLaunch(power_w, light.frequency_mhz * 1e6, light.osnr_db))

    def _received(self, end: str) -> ReceivedLight:
        arriving = self._world.received_coherent(end, RECEIVER_BAND_HZ)
        if arriving is None:
            return ReceivedLight(total_power_dbm=_dbm(self._world.received_w(end)))
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


def _power_w(light: LaunchedLight) -> float:
    return w_from_dbm(light.power_dbm) if light.enabled else 0.0


def _dbm(power_w: float) -> float:
    return dbm_from_w(power_w) if power_w > 0.0 else DARK_DBM
