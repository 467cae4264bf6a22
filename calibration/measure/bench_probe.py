"""A bench as a calibration sees it: its own modules and lasers are the light, its own monitors the eyes.

One at a time is switched on; its polarization is aligned once at the start, on the sum of all monitors: whatever
the mesh does with the light, the sum follows the power that was coupled in.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.measure.bench_sources import lit_together, source_of
from calibration.measure.settling import heater_time_constant_s, step_currents_ma
from calibration.model.device_under_test import MONITOR_SPREAD_DB, Subject
from calibration.model.space import space_of
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.mesh_access import SETTLE_S, MeshAccess
from lumion_hw.circuits import Aligner
from lumion_hw.errors import CalibrationError, CircuitError, ConfigError, DeviceError, LumionError
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.topology import HexMesh
from lumion_hw.quantities import wavelength_m_from_frequency_hz

_ALIGN_SCANS = 4
_FACET_SPREAD_DB = 2.0
"""Meters in the fibres see the loss of their facets as well."""


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
        self._seconds = lit_together(bench.wiring.inputs)
        second = set(self._seconds.values())
        self._inputs = {path.port: path for path in bench.wiring.inputs if path.port not in second}
        self._sources = {port: source_of(bench, path) for port, path in self._inputs.items()}
        self._lit: int | None = None
        self._launched_dbm: dict[int, float] = {}
        self._meters_nm: float | None = None
        self._dead: dict[int, str] = {}
        self._timed_with: set[int] = set()
        if not self._inputs:
            raise CalibrationError("no light is wired to the mesh", hint="See 'wiring.inputs' in the bench file.")
        if not bench.mesh.monitor_ports:
            raise CalibrationError(
                f"nothing sees the light: {bench.model.mesh_section.controller} has no monitors, "
                "and no output has a tap",
                hint="Wire power meters to taps, see 'wiring.outputs' in the bench file.",
            )

    @property
    def mesh(self) -> HexMesh:
        """The mesh."""
        return self._bench.mesh.topology

    @property
    def sources(self) -> tuple[int, ...]:
        """Ports fed by a module or laser whose light arrives; of two that are lit together, the first."""
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
    def current_step_ma(self) -> float:
        """Smallest step of a heater current."""
        return self._bench.mesh.controller.info.current_step_ma

    @property
    def monitor_step_ma(self) -> float:
        """Smallest photocurrent step."""
        return self._bench.mesh.monitor_step_ma

    def check_lit_as(self, record: CalibrationRecord) -> None:
        """Refuse to judge by its light a record that was made with other ports lit together.

        Raises:
            ConfigError: A tributary has been wired, or unplugged, since.
        """
        space = space_of(record)
        made, now = _together(space.sources, space.seconds), _together(self._inputs, self._seconds)
        for lit in sorted(map(sorted, now - made)):
            if before := [sorted(ports) for ports in made if ports & set(lit)]:
                raise ConfigError(
                    f"this bench lights {_in_words([lit])}, where the calibration record was made with light at "
                    f"{_in_words(before)}",
                    hint="Use a bench wired as then, or calibrate again: the mesh is as it was found all the same.",
                )

    def subject(self) -> Subject:
        """Return whose calibration this is."""
        mesh, info, typical = self._bench.mesh, self._bench.mesh.controller.info, self._bench.model.mesh_section.typical
        alive = {port: self._sources[port] for port in self.sources}
        tunable = {port: hz for port in alive if (hz := self.tunable_hz(port)) is not None}
        # What can be tuned is tuned to what cannot.
        fixed = [source.frequency_hz() for port, source in alive.items() if port not in tunable]
        stated = fixed or [source.frequency_hz() for source in alive.values()]
        return Subject(
            serial=info.serial,
            model=info.model,
            firmware=info.firmware,
            heater_channels=mesh.heater_channels,
            wavelength_nm=round(wavelength_m_from_frequency_hz(float(np.median(stated))) * 1e9, 9)
            if stated
            else 1550.0,
            heater_ohm=mesh.heater_ohm,
            p_pi_mw=(typical.p_pi_min_mw, typical.p_pi_max_mw),
            monitor_ma_per_mw=mesh.responsivity_a_per_w,
            monitor_spread_db=_FACET_SPREAD_DB if mesh.meters else MONITOR_SPREAD_DB,
            source_spread_hz=max(source.spread_hz for source in alive.values()) if len(alive) > 1 else 0.0,
            tunable_hz=tunable,
            seconds={port: second for port, second in self._seconds.items() if port in alive},
            settle_s=None if mesh.settle_s == SETTLE_S else mesh.settle_s,
            heater_tau_s=mesh.heater_tau_s,
        )

    def tunable_hz(self, port: int) -> tuple[float, float] | None:
        """Return the frequencies to which the source at a port can be tuned; ``None`` if it cannot."""
        return self._sources[port].tunable_hz()

    def tune(self, port: int, frequency_hz: float) -> float:
        """Tune the source at a port as near as it goes; return the frequency it then says it has. A lit one stays lit.

        Raises:
            LimitError: Out of its range; nothing was changed.
            ConfigError: It cannot be tuned.
        """
        lit, self._lit = self._lit, None  # until this ends well, nobody knows
        self._launched_dbm.pop(port, None)
        reached_hz = self._sources[port].tune(frequency_hz)
        self._tell_meters(round(wavelength_m_from_frequency_hz(reached_hz) * 1e9, 3))
        if lit == port:
            self._sources[port].on()
        self._lit = lit
        return reached_hz

    def stated_hz(self) -> dict[int, float]:
        """Return the frequency that every source that can be tuned says it has, by port."""
        return {
            port: source.frequency_hz() for port, source in self._sources.items() if source.tunable_hz() is not None
        }

    def _tell_meters(self, wavelength_nm: float) -> None:
        """Have the meters on the outputs read at the wavelength of the light: their response depends on it."""
        if wavelength_nm != self._meters_nm:
            for meter in self._bench.meters.values():
                for channel in meter.channels:
                    meter.set_wavelength_nm(channel, wavelength_nm)
            self._meters_nm = wavelength_nm

    def align_all(
        self,
        dead: Mapping[int, str] | None = None,
        done: Callable[[int, int], None] = lambda step, total: None,
    ) -> dict[int, str]:
        """Align the polarization at every source in turn; return the ports that stay dark, with reasons.

        How long the heaters take is measured afterwards, where it is not known from a record.

        Args:
            dead: Ports that are dark already, and why: they are not tried.
            done: Told of every source.

        Raises:
            ConfigError: The bench file asks for a wait that is too short for these heaters.
        """
        self._dead |= dead or {}
        self._bench.mesh.program(np.zeros(2 * self.mesh.n_pucs))
        for number, (port, path) in enumerate(self._inputs.items(), start=1):
            done(number, len(self._inputs))
            if path.polarization is None or port in self._dead:
                continue
            try:
                self.light(port)
                controller = self._bench.polarizer(path.polarization)
                alignment = self._aligner.maximise(path.polarization, controller, self._total_ma)
            except (CircuitError, DeviceError) as error:
                self._dead[port] = str(error)
                self._bench.events.add("source dark", port=port, reason=str(error))
                continue
            self._bench.events.add(
                "aligned", controller=path.polarization, reads=alignment.reads, swing_db=round(alignment.swing_db, 2)
            )
        if self._lit not in self.sources and self.sources:
            self.light(self.sources[-1])
        self.time_heaters()
        return dict(self._dead)

    def time_heaters(self) -> None:
        """Measure how long the heaters take with the light where it is, unless that is known; they are off then.

        Raises:
            ConfigError: The bench file asks for a wait that is too short for these heaters.
        """
        mesh, typical, lit = self._bench.mesh, self._bench.model.mesh_section.typical, self._lit
        if mesh.heater_tau_s is not None or lit is None or lit in {-1, *self._timed_with}:
            return
        self._timed_with.add(lit)
        p_pi_mw = math.sqrt(typical.p_pi_min_mw * typical.p_pi_max_mw)
        steps_ma = step_currents_ma(2 * self.mesh.n_pucs, p_pi_mw, mesh.heater_ohm, mesh.heater_max_ma)
        tau_s = heater_time_constant_s(_StepOf(mesh), steps_ma)
        self._bench.events.add("heaters timed", heater_tau_s=tau_s, by_light_at=lit)
        if tau_s is not None:
            mesh.know_heaters(tau_s, "their light")

    def _total_ma(self) -> float:
        """Return the sum of all monitors; a saturated one counts as full scale."""
        seen = self._bench.mesh.monitors_ma(_ALIGN_SCANS)
        full = self._bench.mesh.monitor_full_scale_ma
        return float(np.where(np.isnan(seen), full, seen).sum())

    def light(self, port: int | None) -> None:
        """Switch on the source at one port and all others off."""
        lit, self._lit = self._lit, None  # until this ends well, nobody knows
        for other, source in self._sources.items():
            if other != port and (lit is None or other == lit):
                source.off()
        if port is not None:
            self._sources[port].on()
            if port not in self._launched_dbm:
                self._launched_dbm[port] = self._sources[port].launched_dbm()
        self._lit = port if port is not None else -1

    def launched_dbm(self, port: int) -> float:
        """Return the power at the facet's fibre end: what the source says, plus gain, minus fixed losses."""
        path = self._inputs[port]
        return self._launched_dbm[port] + path.gain_db - path.loss_db

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Drive the heaters, wait for them, read all monitors."""
        self.time_heaters()
        self._bench.mesh.program(currents_ma)
        return self._bench.mesh.monitors_ma()

    def measure_many(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Measure settings one after the other: as one sweep on controllers that can."""
        self.time_heaters()
        return self._bench.mesh.sweep(currents_ma)

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
        actions += [source.off for source in self._sources.values()]
        for action in actions:
            try:
                action()
            except LumionError as error:
                with contextlib.suppress(LumionError):
                    self._bench.events.add("not made safe", reason=str(error))
        self._lit = None


@dataclass(frozen=True)
class _StepOf:
    """The mesh of a bench, read at a chosen time after a setting."""

    mesh: MeshAccess

    def read(self, currents_ma: NDArray[np.float64], wait_s: float) -> NDArray[np.float64]:
        seen: NDArray[np.float64] = self.mesh.sweep(currents_ma[None], wait_s)[0]
        return seen

    def read_again(self, wait_s: float) -> NDArray[np.float64]:
        self.mesh.clock.sleep(wait_s)
        return self.mesh.monitors_ma()


def _together(sources: Iterable[int], seconds: Mapping[int, int]) -> set[frozenset[int]]:
    """Return the ports that every source lights."""
    return {frozenset({port, seconds.get(port, port)}) for port in sources}


def _in_words(lit: Sequence[Sequence[int]]) -> str:
    return ", ".join(
        f"ports {' and '.join(map(str, ports))} together" if len(ports) > 1 else f"port {ports[0]} alone"
        for ports in lit
    )
