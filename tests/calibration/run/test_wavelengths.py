"""A calibration goes on to further wavelengths: group delay and slopes, from light that can be tuned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.logbook import Logbook
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.likelihood import Likelihood, SettingDrift
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.record.conversion import parameters_from_record
from calibration.run.procedure import Calibration
from calibration.run.verification import verify_at
from calibration.run.wavelengths import Extended, WavelengthExtension
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.prediction import predict_path
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.quantities import frequency_hz_from_wavelength_m
from tests.calibration.simulated_bench import SimulatedBench
from tests.calibration.simulated_mesh import FLOOR_MA, FULL_TURN_MA, REFERENCE_HZ, RELATIVE, RESPONSIVITY_MA_PER_MW
from tests.ideal_bench import ideal_bench

PER_HZ = -1550.0 / REFERENCE_HZ
"""nm per Hz."""
DIFFERENTIAL = 15e-3 * PER_HZ
"""15 mrad/nm (docs/sources.md)."""
ETA = 7e-4 * PER_HZ
"""7e-4 per nm (docs/sources.md); of a balanced coupler also the change of its angle: dη = sin 2a · da."""
UNSEEN_NM = 1535.0
MIN_DBM = -40.0


@dataclass
class Tunable:
    """A simulated mesh with tunable light, as a calibration at 1550 nm has found it: to a fraction of a milliradian."""

    bench: SimulatedBench
    reference: MeshParameters
    seed: int

    @classmethod
    def draw(cls, mesh: HexMesh, seed: int, sources: int, delay_off: float, found_rad: float = 3e-4) -> Tunable:
        rng, ports = np.random.default_rng(seed), mesh.fibre_ports
        lit = tuple(ports[number * len(ports) // sources] for number in range(sources))
        bench = SimulatedBench.draw(mesh, seed, lit)
        bench.simulated.eta_slope_per_hz, bench.simulated.differential_slope_per_hz = ETA, DIFFERENTIAL
        bench.simulated.delay_s = 11.25e-12 * (1.0 + delay_off)
        bench.tuning_range_hz = 189e12, 198e12
        bench.frequency_error_hz = {port: 0.4e9 * rng.standard_normal() for port in lit}
        truth, numbers = bench.simulated.parameters(), [ports.index(port) for port in lit]
        turned = np.array([bench.frequency_error_hz[port] for port in lit]) * (1.0 + delay_off)  # seen as phases
        reference = replace(
            truth,
            source_db=truth.source_db[numbers],
            source_detuning_hz=turned,
            passive_phase_rad=truth.passive_phase_rad + found_rad * rng.standard_normal(mesh.n_pucs),
        )
        return cls(bench, reference, seed)

    @property
    def model(self) -> MeshModel:
        return MeshModel(self.bench.mesh, self.bench.sources, self.bench.monitors, reference_hz=REFERENCE_HZ)

    def extend(self, *wavelengths_nm: float) -> Extended:
        nothing = np.zeros((0, len(self.bench.monitors)))
        none = Observations(
            np.zeros((0, 2 * self.bench.mesh.n_pucs)), np.zeros(0, dtype=np.int64), self.bench.monitors, nothing,
            nothing > 0.0,
        )  # fmt: skip
        likelihood = Likelihood(none, NoiseModel(RELATIVE, FLOOR_MA), drift=SettingDrift(power_db=0.02))
        return WavelengthExtension(
            Logbook(self.bench),
            self.model,
            self.reference,
            likelihood,
            np.full(2 * self.bench.mesh.n_pucs, FULL_TURN_MA),
            dict.fromkeys(self.bench.sources, REFERENCE_HZ),
            1550.0,
            self.seed,
            {},
        ).run(wavelengths_nm)

    def rms_db(self, parameters: MeshParameters, wavelength_nm: float, settings: int = 40) -> float:
        """Error of predicted port powers above -40 dBm at settings and a wavelength that no fit has seen."""
        rng, asked_hz = np.random.default_rng(999), frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)
        currents = np.sqrt(rng.uniform(0.0, FULL_TURN_MA**2, (settings, 2 * self.bench.mesh.n_pucs)))
        source = np.resize(np.array(self.bench.sources), settings)
        detuning = np.array([asked_hz - REFERENCE_HZ + self.bench.frequency_error_hz[port] for port in source])
        exact = self.bench.simulated.exact_ma(currents, source, 0.0, detuning)
        plan = Observations(currents, source, self.bench.monitors, exact, exact > np.inf, asked_hz - REFERENCE_HZ)
        return rms_above_db(exact, self.model.predict(parameters, plan))


def rms_above_db(exact_ma: np.ndarray, predicted_ma: np.ndarray) -> float:
    judged = exact_ma > 10.0 ** (MIN_DBM / 10.0) * RESPONSIVITY_MA_PER_MW
    assert judged.sum() > 100
    return float(np.sqrt(np.mean((10.0 * np.log10(exact_ma[judged] / predicted_ma[judged])) ** 2)))


SMALL = HexMesh.columns([2])

# Delay and slopes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_off", [0.08, -0.05, 0.0, 0.02])
def test_the_delay_is_found_from_a_guess_that_is_percents_off(delay_off: float) -> None:
    mesh = Tunable.draw(SMALL, 3, 2, delay_off)
    found = mesh.extend(1540.0, 1560.0)
    # A loop of six PUCs ten nanometres away has turned 85 times; 1e-4 of that is 50 mrad.
    assert found.parameters.delay_s == pytest.approx(mesh.bench.simulated.delay_s, rel=1e-4)
    # Two lasers, each 0.2 GHz off at 1.25 THz on either side: 0.2/1250/√4 of 11.25 ps is 0.9 fs.
    assert np.sqrt(found.covariance[0, 0]) == pytest.approx(0.9e-15, rel=0.5)
    assert found.parameters.differential_slope_rad_per_hz == pytest.approx(DIFFERENTIAL, rel=0.01)
    assert found.parameters.coupler_slope_rad_per_hz == pytest.approx(ETA, rel=0.02)
    assert found.warnings() == ()


def test_light_goes_out_in_steps_no_longer_than_the_delay_allows() -> None:
    found = Tunable.draw(SMALL, 3, 2, 0.03).extend(1530.0, 1551.5)
    reached = [each.wavelength_nm for each in found.results]
    # 5 % of 11.25 ps is 0.56 ps; 0.4 rad of common phase are 113 GHz or 0.91 nm.
    assert reached[0] == pytest.approx(1550.91, abs=0.01)
    assert reached[1:] == [1551.5, 1530.0]
    assert found.wavelengths_nm == (1530.0, 1550.0, 1551.5)


def test_what_a_source_turns_the_mesh_by_at_the_reference_stays_though_the_delay_is_another() -> None:
    mesh = Tunable.draw(SMALL, 4, 2, 0.05)
    found = mesh.extend(1545.0).parameters
    # What light 0.4 GHz away does at the reference is a phase: 2π·τ·δ of the wrong delay and detuning, or of the right.
    before = mesh.reference.delay_s * np.asarray(mesh.reference.source_detuning_hz)
    assert found.delay_s * np.asarray(found.source_detuning_hz) == pytest.approx(before, rel=1e-9)


def test_a_source_that_strays_at_every_wavelength_is_followed() -> None:
    mesh = Tunable.draw(SMALL, 5, 2, 0.03)
    at_1550, strays_hz = mesh.bench.frequency_error_hz, {0: 0.3e9, 8: -0.2e9}
    tune = mesh.bench.tune

    def tune_badly(port: int, frequency_hz: float) -> float:
        away = 0.0 if abs(frequency_hz - REFERENCE_HZ) < 1e9 else strays_hz[port]
        tune(port, frequency_hz + away)
        return frequency_hz

    mesh.bench.tune = tune_badly  # type: ignore[method-assign]
    found = mesh.extend(1530.0)
    last = found.results[-1]
    assert last.tuning_error_hz[0] - last.tuning_error_hz[8] == pytest.approx(0.5e9, rel=0.02)
    # Their mean, 50 MHz of 2.5 THz, is taken for delay: 2e-5 of it, and the standard error says so.
    off_s = abs(found.parameters.delay_s - mesh.bench.simulated.delay_s)
    assert off_s < 3.0 * np.sqrt(found.covariance[0, 0])
    assert at_1550 == mesh.bench.frequency_error_hz


def test_a_mesh_that_does_not_keep_its_phases_is_named() -> None:
    mesh = Tunable.draw(SMALL, 6, 2, 0.0)
    tune, phases = mesh.bench.tune, mesh.bench.simulated.truth.passive_phase
    before = phases.copy()

    def tune_and_turn(port: int, frequency_hz: float) -> float:
        phases[:] = before
        phases[4] += 0.0 if frequency_hz > 193e12 else 0.3
        return tune(port, frequency_hz)

    mesh.bench.tune = tune_and_turn  # type: ignore[method-assign]
    warnings = mesh.extend(1551.0, 1560.0).warnings()
    assert [warning.partition(" the readings")[0] for warning in warnings] == ["at 1560.000 nm"]


def test_sources_end_where_they_began() -> None:
    mesh = Tunable.draw(SMALL, 3, 2, 0.0)
    mesh.extend(1551.0)
    assert list(mesh.bench.now_hz.values()) == pytest.approx([REFERENCE_HZ] * 2, abs=1.0)


def test_light_that_cannot_be_tuned_is_no_help() -> None:
    mesh = Tunable.draw(SMALL, 3, 2, 0.0)
    mesh.bench.sources = ()
    with pytest.raises(CalibrationError, match="no tunable source feeds the mesh"):
        mesh.extend(1551.0)


# Prediction in between -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_72_pucs_are_predicted_at_a_wavelength_never_seen(seed: int) -> None:
    mesh = Tunable.draw(HexMesh.smartlight(), seed, 8, -0.03, found_rad=1e-3)
    assert mesh.rms_db(mesh.reference, 1550.0) < 0.05  # a milliradian, and light 0.4 GHz away
    assert mesh.rms_db(mesh.reference, UNSEEN_NM) > 3.0
    found = mesh.extend(1530.0, 1540.0, 1560.0)
    assert mesh.rms_db(found.parameters, UNSEEN_NM) < 0.15
    assert mesh.rms_db(found.parameters, 1557.0) < 0.15


@pytest.mark.campaign
def test_the_whole_procedure_on_72_pucs_holds_for_30_nm() -> None:
    mesh = Tunable.draw(HexMesh.smartlight(), 1, 7, 0.04)
    bench = mesh.bench
    device = DeviceUnderTest(
        "S", "M", "F", tuple(range(144)), 1550.0, 1000.0, (1.2, 2.0), RESPONSIVITY_MA_PER_MW,
        source_spread_hz=1.25e9, tunable_hz=dict.fromkeys(bench.sources, bench.tuning_range_hz or (0.0, 0.0)),
    )  # fmt: skip
    record = Calibration(bench, device, 1, wavelengths_nm=(1530.0, 1540.0, 1550.0, 1560.0)).run()
    assert record.faults == ()
    assert record.dispersion is not None
    assert record.dispersion.delay_s == pytest.approx(bench.simulated.delay_s, rel=1e-4)
    assert record.quality["unseen_wavelength_nm"] == UNSEEN_NM
    assert record.quality["unseen_wavelength_rms_db"] < 0.15
    assert mesh.rms_db(parameters_from_record(record), UNSEEN_NM) < 0.15


# On a bench ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaserBench:
    bench: Bench
    probe: BenchProbe
    record: CalibrationRecord


@pytest.fixture(scope="module")
def lasers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaserBench]:
    """The built-in bench with two lasers, its chip ideal, calibrated for 20 nm."""
    with Bench.emulate(ideal_bench("laser-bench", tmp_path_factory.mktemp("lasers")), seed=2) as bench:
        for laser in bench.lasers.values():
            laser.set_power_dbm(8.0)
        probe = BenchProbe(bench)
        probe.align_all()
        record = Calibration(probe, probe.device_under_test(), 2, wavelengths_nm=(1540.0, 1550.0, 1560.0)).run()
        yield LaserBench(bench, probe, record)


@pytest.mark.long
def test_a_bench_with_lasers_is_calibrated_for_a_range(lasers: LaserBench) -> None:
    record = lasers.record
    assert record.faults == ()
    assert record.conditions.wavelengths_nm == (1540.0, 1550.0, 1560.0)
    assert record.conditions.wavelength_range_nm == (1540.0, 1560.0)
    assert record.dispersion is not None
    assert record.dispersion.delay_s == pytest.approx(11.25e-12, rel=1e-4)  # Sánchez-Jácome 2025
    assert record.quality["unseen_wavelength_rms_db"] < 0.15
    assert not any(laser.state().emitting for laser in lasers.bench.lasers.values())


@pytest.mark.long
def test_held_out_settings_at_an_unseen_wavelength_are_predicted(lasers: LaserBench) -> None:
    lasers.probe.align_all()
    found = verify_at(lasers.probe, lasers.record, 1553.3, seed=77)
    assert len(found.results) > 100
    assert found.excess_db < 0.15  # beyond the noise of the readings, which near -40 dBm is that of 16 bits
    assert found.chi2 < 1.5
    # The lasers are back where the record has its phases: 1 pm is 125 MHz.
    for laser in lasers.bench.lasers.values():
        assert laser.state().frequency_thz * 1e12 == pytest.approx(lasers.record.reference_hz, abs=1e8)
    lasers.probe.switch_everything_off()


@pytest.mark.long
def test_a_record_for_one_wavelength_does_not_predict_another(lasers: LaserBench) -> None:
    lasers.probe.align_all()
    dispersion = lasers.record.dispersion
    assert dispersion is not None
    wrong = replace(lasers.record, dispersion=replace(dispersion, delay_s=1.001 * dispersion.delay_s))
    assert verify_at(lasers.probe, wrong, 1541.0, seed=77).excess_db > 0.5
    lasers.probe.switch_everything_off()


@pytest.mark.long
def test_the_path_of_a_known_mesh_is_that_of_the_emulated_light(lasers: LaserBench) -> None:
    bench, port, nm = lasers.bench, 1, 1556.0
    currents = np.sqrt(np.random.default_rng(3).uniform(0.0, 3.0, 2 * bench.mesh.topology.n_pucs))
    lasers.probe.align_all()
    lasers.probe.tune(port, frequency_hz_from_wavelength_m(nm * 1e-9))
    lasers.probe.light_only_port(port)
    seen_ma, known = lasers.probe.measure(currents), CalibratedMesh.from_record(lasers.record)
    entry = lasers.record.port(port)
    entering_dbm = entry.source_dbm or 0.0
    # The laser's own error is in the record: where it really is.
    nm = 299792458.0 / (299792458.0 / (nm * 1e-9) + (entry.source_detuning_hz or 0.0)) * 1e9
    for index in np.argsort(-seen_ma)[:4]:
        monitor = lasers.probe.monitors[index]
        ma_per_mw = lasers.record.port(monitor).monitor_ma_per_mw or 0.0
        path = predict_path(known, currents, port, monitor, wavelength_nm=nm)
        assert entering_dbm + path.transmission_db == pytest.approx(
            10.0 * np.log10(seen_ma[index] / ma_per_mw), abs=0.2
        )
    lasers.probe.switch_everything_off()


@pytest.mark.long
@pytest.mark.parametrize("nm", [1539.9, 1560.1])
def test_beyond_its_range_a_record_predicts_nothing(lasers: LaserBench, nm: float) -> None:
    with pytest.raises(LimitError, match="wavelength is outside the range"):
        predict_path(CalibratedMesh.from_record(lasers.record), np.zeros(30), 1, 2, wavelength_nm=nm)
    with pytest.raises(LimitError, match="wavelength is outside the range"):
        verify_at(lasers.probe, lasers.record, nm, seed=1)
