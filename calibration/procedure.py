"""The whole procedure: levels, wavefront, refinement, losses, verification, record.

Everything random comes from one seed: the same bench, seed and readings give the same record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from calibration.knowledge import Knowledge
from calibration.levels import MONITOR_SPREAD_DB, Level, Levels, LossSurvey
from calibration.planning import Planner
from calibration.probe import NoiseModel, Probe
from calibration.refinement import Refinement
from calibration.verification import rms_db, verify
from calibration.wavefront import Wavefront
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record import CalibrationRecord, HeaterEntry, PortEntry, PucEntry

Progress = Callable[[str, int, int], None]
"""Called with the stage, the steps done and the steps in all."""

_NOISE_READINGS = 16
_SURVEY_SETTINGS = 8
_LIVE_SIGMA = 10.0
_PRIOR_LOSS = Level(0.5, 0.03)


@dataclass(frozen=True)
class Subject:
    """Whose calibration this is, and the nominal figures it starts from.

    Attributes:
        serial: Serial number of the controller.
        model: Its model.
        firmware: Its firmware.
        heater_channels: Drive channel of every heater, by 2·PUC + arm.
        wavelength_nm: Wavelength of the light.
        heater_ohm: Nominal heater resistance.
        p_pi_mw: Least and largest heater power per π to expect.
        monitor_ma_per_mw: Nominal responsivity of the monitors.
        monitor_spread_db: How far they may be from that.
    """

    serial: str
    model: str
    firmware: str
    heater_channels: tuple[int, ...]
    wavelength_nm: float
    heater_ohm: float
    p_pi_mw: tuple[float, float]
    monitor_ma_per_mw: float
    monitor_spread_db: float = MONITOR_SPREAD_DB

    @property
    def rho2_range(self) -> tuple[float, float]:
        """Least and largest ρ2 to search, rad/mA², with a margin of a tenth for the resistance."""
        low_mw, high_mw = self.p_pi_mw
        return 0.9 * np.pi * self.heater_ohm * 1e-3 / high_mw, 1.1 * np.pi * self.heater_ohm * 1e-3 / low_mw


@dataclass
class Calibration:
    """One run of the procedure. Call :meth:`run`; after an interruption :meth:`record` holds what was found so far.

    Attributes:
        probe: Access to the mesh.
        subject: Whose calibration this is.
        seed: Seed of everything random.
        progress: Told of every step.
        found: Told of every PUC finished in the wavefront (for a journal).
    """

    probe: Probe
    subject: Subject
    seed: int
    progress: Progress = lambda stage, done, total: None
    found: Callable[[int, Knowledge], None] = lambda puc, knowledge: None
    faults: list[str] = field(default_factory=list)
    quality: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set up the random numbers and an empty knowledge."""
        self.knowledge = Knowledge(self.probe.mesh, self.probe.heater_max_ma)
        self._rng = np.random.default_rng(np.random.SeedSequence([self.seed, 0xCA1B]))
        self._probe = _Counting(self.probe)
        self._levels: Levels | None = None
        self._complete = False

    def run(self) -> CalibrationRecord:
        """Run all stages and return the record; heaters and sources are off afterwards, whatever happens.

        Raises:
            CalibrationError: No source or no monitor is alive.
        """
        began_s, began_cpu_s = self.probe.elapsed_s(), time.process_time()
        try:
            self._stages()
            self._complete = True
        finally:
            self.probe.safe()
            self.quality["settings"] = float(self._probe.settings)
            self.quality["source_changes"] = float(self._probe.source_changes)
            self.quality["bench_s"] = self.probe.elapsed_s() - began_s
            self.quality["cpu_s"] = time.process_time() - began_cpu_s
        return self.record()

    def _stages(self) -> None:
        """Levels, wavefront, refinement, losses, verification."""
        mesh = self.probe.mesh
        noise, sources, monitors = self._survey()
        planner = Planner(mesh, sources, monitors)
        found: set[int] = set()

        def wavefront_done(puc: int) -> None:
            found.add(puc)
            self.found(puc, self.knowledge)
            self.progress("wavefront", len(found), mesh.n_pucs)

        Wavefront(self._probe, planner, self.knowledge, noise, self.subject.rho2_range, self._rng).run(wavefront_done)
        self._name_faults()
        steps = iter(range(1, 10**9))
        expected = 2 * 3 * max(len(self.knowledge.pucs), 1)
        refined = Refinement(self._probe, planner, self.knowledge, self._rng).run(
            lambda puc: self.progress("refinement", min(next(steps), expected), expected)
        )
        self.quality["refinement_passes"] = float(refined)
        lit = iter(range(1, 10**9))
        survey = LossSurvey(
            self._probe,
            self.knowledge,
            sources,
            noise.floor_ma,
            self.subject.monitor_ma_per_mw,
            self._rng,
            self.subject.monitor_spread_db,
        )
        self._levels = survey.run(lambda port: self.progress("losses", next(lit), len(sources)))
        self.quality["loss_residual_rms_db"] = self._levels.residual_db
        self._verify()

    def _survey(self) -> tuple[NoiseModel, tuple[int, ...], tuple[int, ...]]:
        """Measure dark level and noise, and find which sources and monitors are alive."""
        probe, rng = self._probe, self._rng
        probe.light(None)
        dark = np.array([probe.measure(np.zeros(2 * self.probe.mesh.n_pucs)) for _ in range(_NOISE_READINGS)])
        floor_ma = float(np.hypot(np.median(dark.std(axis=0)), probe.monitor_step_ma / np.sqrt(12.0)))
        most = np.zeros(len(probe.monitors))
        alive: list[int] = []
        relative: list[float] = []
        for step, source in enumerate(probe.sources, start=1):
            probe.light(source)
            seen = np.array([probe.measure(self.knowledge.setting({}, rng)) for _ in range(_SURVEY_SETTINGS)])
            brightest = np.nanmax(np.where(np.isnan(seen), np.inf, seen), axis=0)
            if brightest.max() > _LIVE_SIGMA * floor_ma:
                alive.append(source)
                most = np.maximum(most, brightest)
                relative.append(self._relative_noise())
            else:
                self.faults.append(f"source at port {source}: no light reaches any monitor; not used")
            self.progress("survey", step, len(probe.sources))
        monitors = tuple(
            port for port, seen_ma in zip(probe.monitors, most, strict=True) if seen_ma > _LIVE_SIGMA * floor_ma
        )
        for port in sorted(set(probe.monitors) - set(monitors)):
            self.faults.append(f"monitor at port {port}: dark for every source; not used")
        if not alive or not monitors:
            raise CalibrationError(
                f"{len(alive)} of {len(probe.sources)} sources and {len(monitors)} of {len(probe.monitors)} monitors "
                "show light",
                hint="Check that modules are enabled, fibres are plugged and polarization is aligned.",
            )
        self.quality["monitor_noise_relative"] = float(np.median(relative))
        self.quality["monitor_noise_floor_ma"] = floor_ma
        return NoiseModel(float(np.median(relative)), floor_ma), tuple(alive), monitors

    def _relative_noise(self) -> float:
        """Return the relative scatter of the brightest monitor at one fixed setting."""
        setting = self.knowledge.setting({}, np.random.default_rng(self.seed))
        seen = np.array([self._probe.measure(setting) for _ in range(_NOISE_READINGS)])
        brightest = seen[:, int(np.argmax(np.nan_to_num(seen.mean(axis=0))))]
        return float(max(brightest.std(ddof=1) / brightest.mean(), 1e-4))

    def _name_faults(self) -> None:
        """Write down dead heaters and stuck PUCs, and what still works."""
        for puc in range(self.probe.mesh.n_pucs):
            if puc in self.knowledge.stuck:
                channels = " and ".join(map(str, self.subject.heater_channels[2 * puc : 2 * puc + 2]))
                self.faults.append(
                    f"PUC {puc} (channels {channels}): {self.knowledge.stuck[puc]}; it must be routed round"
                )
                continue
            for arm, name in enumerate(("upper", "lower")):
                if self.knowledge.laws.get(2 * puc + arm, ...) is None:
                    channel = self.subject.heater_channels[2 * puc + arm]
                    self.faults.append(
                        f"PUC {puc} {name} heater (channel {channel}): no effect; all couplings are set by the other "
                        "arm, its common phase is not free"
                    )

    def _verify(self) -> None:
        """Compare predicted and measured power on pure states that took no part in any fit."""
        results = verify(
            self._probe, self.record(), self.seed, lambda step, total: self.progress("verification", step, total)
        )
        errors = np.abs([result.error_db for result in results])
        self.quality["held_out_paths"] = float(len(results))
        if results:
            self.quality["held_out_rms_db"] = rms_db(results)
            self.quality["held_out_median_db"] = float(np.median(errors))
            self.quality["held_out_worst_db"] = float(np.max(errors))

    def record(self) -> CalibrationRecord:
        """Return the record of what was found so far; complete only after all stages."""
        mesh, subject = self.probe.mesh, self.subject
        from lumion_hw import __version__

        return CalibrationRecord(
            device_serial=subject.serial,
            device_model=subject.model,
            device_firmware=subject.firmware,
            mesh_label=mesh.label,
            mesh_sha256=mesh.sha256,
            heater_channels=subject.heater_channels,
            monitor_ports=self.probe.monitors,
            wavelength_nm=subject.wavelength_nm,
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            complete=self._complete,
            heater_ohm=subject.heater_ohm,
            pucs=tuple(self._puc_entry(puc) for puc in range(mesh.n_pucs)),
            ports=tuple(self._port_entry(port) for port in mesh.fibre_ports),
            faults=tuple(self.faults),
            quality=dict(self.quality),
            provenance={"software": f"lumion-hw {__version__}", "seed": str(self.seed)},
        )

    def _puc_entry(self, puc: int) -> PucEntry:
        known = self.knowledge.pucs.get(puc)
        loss = self._levels.puc_loss[puc] if self._levels else _PRIOR_LOSS
        note = "" if known else self.knowledge.stuck.get(puc, "not reached before the run ended")
        upper, lower = (self._heater_entry(2 * puc + arm) for arm in (0, 1))
        return PucEntry(
            passive_phase_rad=known.passive_rad if known else None,
            passive_phase_sigma_rad=known.sigma_rad if known else None,
            loss_db=loss.value_db,
            loss_sigma_db=loss.sigma_db,
            upper=upper,
            lower=lower,
            note=note,
        )

    def _heater_entry(self, heater: int) -> HeaterEntry:
        measured = heater in self.knowledge.laws
        law = self.knowledge.laws.get(heater)
        note = "" if law else ("no effect on the light" if measured else "not measured")
        return HeaterEntry(self.subject.heater_channels[heater], law, self.knowledge.residuals.get(heater), note)

    def _port_entry(self, port: int) -> PortEntry:
        levels = self._levels
        into = levels.input_loss.get(port) if levels else None
        out = levels.output_loss.get(port) if levels else None
        return PortEntry(
            port=port,
            input_loss_db=into.value_db if into else None,
            input_loss_sigma_db=into.sigma_db if into else None,
            output_loss_db=out.value_db if out else None,
            output_loss_sigma_db=out.sigma_db if out else None,
            monitor_ma_per_mw=levels.monitor_ma_per_mw.get(port) if levels else None,
        )


class _Counting:
    """A probe that counts settings and changes of source, and does not light what is lit already."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._lit: int | None = None
        self._known = False
        self.settings = 0
        self.source_changes = 0
        self.mesh = probe.mesh
        self.sources = probe.sources
        self.monitors = probe.monitors
        self.heater_max_ma = probe.heater_max_ma
        self.monitor_step_ma = probe.monitor_step_ma

    def light(self, port: int | None) -> None:
        """Light one source, if it is not lit already."""
        if not self._known or port != self._lit:
            self._probe.light(port)
            self._lit, self._known = port, True
            self.source_changes += 1

    def launched_dbm(self, port: int) -> float:
        """Return the launched power of a source."""
        return self._probe.launched_dbm(port)

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Drive, settle and read."""
        self.settings += 1
        return self._probe.measure(currents_ma)

    def fibre_dbm(self) -> dict[int, float]:
        """Return the external meters' powers."""
        return self._probe.fibre_dbm()

    def elapsed_s(self) -> float:
        """Return the bench time."""
        return self._probe.elapsed_s()

    def safe(self) -> None:
        """Make the bench safe."""
        self._probe.safe()
