"""A bench as a calibration sees it: its own modules are the light, its own monitors the eyes.

One module at a time is switched on; its polarization is aligned once at the start, on the sum of all monitors (whatever
the mesh does with the light, the sum follows the power that was coupled in).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibration.levels import MONITOR_SPREAD_DB
from calibration.procedure import Subject
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import Aligner
from lumion_hw.errors import CalibrationError, CircuitError, DeviceError, LumionError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.topology import HexMesh

_ALIGN_SCANS = 4
_FACET_SPREAD_DB = 2.0
"""Meters in the fibres see the loss of their facets as well."""
_P_PI_MW = (1.2, 2.0)
"""Published least and largest heater power per π (mesh.md b.4)."""


class BenchProbe:
    """Access to the mesh of an open bench.

    Args:
        bench: The bench.
        aligner: Polarization search.
    """

    def __init__(self, bench: Bench, aligner: Aligner | None = None) -> None:
        self._bench = bench
        self._aligner = aligner or Aligner(bench.clock)
        self._began_s = bench.clock.now()
        self._inputs = {path.port: path for path in bench.wiring.inputs}
        self._lit: int | None = None
        self._launched_dbm: dict[int, float] = {}
        self._dead: dict[int, str] = {}
        if not self._inputs:
            raise CalibrationError("no transponder is wired to the mesh", hint="See 'wiring.inputs' in the bench file.")
        if not bench.mesh.monitor_ports:
            raise CalibrationError(
                f"nothing sees the light: {bench.model.mesh.controller} has no monitors, and no output has a tap",
                hint="Wire power meters to taps, see 'wiring.outputs' in the bench file.",
            )

    @property
    def mesh(self) -> HexMesh:
        """The mesh."""
        return self._bench.mesh.topology

    @property
    def sources(self) -> tuple[int, ...]:
        """Ports fed by a transponder whose light arrives."""
        return tuple(port for port in self._inputs if port not in self._dead)

    @property
    def monitors(self) -> tuple[int, ...]:
        """Port of every monitor."""
        return self._bench.mesh.monitor_ports

    @property
    def heater_max_ma(self) -> float:
        """Largest heater current."""
        return self._bench.mesh.heater_max_ma

    @property
    def monitor_step_ma(self) -> float:
        """Smallest photocurrent step."""
        return self._bench.mesh.monitor_step_ma

    def subject(self) -> Subject:
        """Return whose calibration this is."""
        mesh, info = self._bench.mesh, self._bench.mesh.controller.info
        wavelengths = [self._bench.transponders[path.transponder].identify().wavelength_nm for path in self._alive()]
        return Subject(
            serial=info.serial,
            model=info.model,
            firmware=info.firmware,
            heater_channels=mesh.heater_channels,
            wavelength_nm=float(np.median(wavelengths)) if wavelengths else 1550.0,
            heater_ohm=mesh.heater_ohm,
            p_pi_mw=_P_PI_MW,
            monitor_ma_per_mw=mesh.responsivity_a_per_w,
            monitor_spread_db=_FACET_SPREAD_DB if mesh.meters else MONITOR_SPREAD_DB,
        )

    def _alive(self) -> list[InputPath]:
        return [path for port, path in self._inputs.items() if port not in self._dead]

    def align_all(self) -> dict[int, str]:
        """Align the polarization at every source in turn; return the ports that stay dark, with reasons."""
        self._bench.mesh.program(np.zeros(2 * self.mesh.n_pucs))
        for port, path in self._inputs.items():
            if path.polarization is None:
                continue
            try:
                self.light(port)
                controller = self._bench.polarization[path.polarization]
                alignment = self._aligner.maximise(path.polarization, controller, self._total_ma)
            except (CircuitError, DeviceError) as error:
                self._dead[port] = str(error)
                self._bench.events.add("source dark", port=port, reason=str(error))
                continue
            self._bench.events.add(
                "aligned", controller=path.polarization, reads=alignment.reads, swing_db=round(alignment.swing_db, 2)
            )
        return dict(self._dead)

    def _total_ma(self) -> float:
        """Return the sum of all monitors; a saturated one counts as full scale."""
        seen = self._bench.mesh.monitors_ma(_ALIGN_SCANS)
        full = self._bench.mesh.monitor_full_scale_ma
        return float(np.where(np.isnan(seen), full, seen).sum())

    def light(self, port: int | None) -> None:
        """Switch on the module at one port and all others off."""
        transponders = self._bench.transponders
        lit, self._lit = self._lit, None  # until this ends well, nobody knows
        for other, path in self._inputs.items():
            if other != port and (lit is None or other == lit):
                transponders[path.transponder].disable()
        if port is not None:
            module = transponders[self._inputs[port].transponder]
            module.enable()
            if port not in self._launched_dbm:
                power_dbm = module.monitors().tx_power_dbm
                if power_dbm is None:
                    raise DeviceError("the module reports no launch power", device=self._inputs[port].transponder)
                self._launched_dbm[port] = power_dbm
        self._lit = port if port is not None else -1

    def launched_dbm(self, port: int) -> float:
        """Return the power at the facet's fibre end: what the module reports, plus gain, minus fixed losses."""
        path = self._inputs[port]
        return self._launched_dbm[port] + path.gain_db - path.loss_db

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Drive the heaters, wait for them, read all monitors."""
        self._bench.mesh.program(currents_ma)
        return self._bench.mesh.monitors_ma()

    def fibre_dbm(self) -> dict[int, float]:
        """Return the power leaving each tapped port into its fibre, by the external meters."""
        readings = {
            (name, reading.channel): reading
            for name, meter in self._bench.meters.items()
            for reading in meter.read_all()
        }
        powers: dict[int, float] = {}
        for out in self._bench.wiring.outputs:
            reading = readings.get((out.meter, out.meter_channel)) if out.meter and out.meter_channel else None
            if reading is None:
                continue
            try:
                level_dbm = reading.power_dbm
            except DeviceError:
                continue
            powers[out.port] = level_dbm - 10.0 * math.log10(out.tap_fraction) + out.loss_db
        return powers

    def elapsed_s(self) -> float:
        """Return the bench time since this probe was made."""
        return self._bench.clock.now() - self._began_s

    def safe(self) -> None:
        """Switch heaters and sources off; what fails is logged, the rest is switched off all the same."""
        actions: list[Callable[[], object]] = [lambda: self._bench.mesh.program(np.zeros(2 * self.mesh.n_pucs))]
        actions += [self._bench.transponders[path.transponder].disable for path in self._inputs.values()]
        for action in actions:
            try:
                action()
            except LumionError as error:
                self._bench.events.add("not made safe", reason=str(error))
        self._lit = None
