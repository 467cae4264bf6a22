"""Judging a calibration of a faulty emulated bench by the hidden truth: faults named, phases, loops, held-out power.

Judged is everything but what a stuck PUC hides, and of that as much as light can show:

- Its own phase is no phase of the rest. That it has one is asked for, and that the coupling it is named with is right.
- Light shows what it makes of two waves, not which couplers and phase do it: the loops about it are compared as they
  would be with the true ones in its place. (α and -α, with ± 90° on the joints about it, are the same to light.)
- At the very bar or cross it leaves one loop open; so many directions, one for each stuck PUC, may be unknown (the
  record says so by a standard deviation above 20 mrad). One more is a complaint, as is any unknown PUC beside it.

Held-out power is that at every port with a monitor, also where the monitor is dead or saturated: light leaves there
all the same. A source of which the record says that no light goes in is left out. Heaters that the record calls dead
are not driven: a user has no reason to. Predicted is the light of the currents that the drive makes of those asked for:
its steps are known and no error of the record. What drifted is held where it was when the last setting of the fit was
taken. Extinction is that of every PUC that can be set, fidelity that of 4x4 unitaries laid round what is broken; where
the mesh has no room left for one, or never had, there is none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.goals import unitary_fidelity
from calibration.measure.bench_probe import BenchProbe
from calibration.measure.design import IncrementalSettings
from calibration.measure.logbook import Logbook
from calibration.model.gauge import gauge_fixed_difference, loop_basis, wrapped
from calibration.model.mesh_model import MeshModel
from calibration.model.space import space_from_record
from calibration.record.conversion import covariance_from_record, parameters_from_record
from calibration.report.truth_errors import extinctions
from calibration.run.procedure import Calibration
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, ConfigError, LimitError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.waves.cell import BASIC_UNIT_DELAY_S
from tests.calibration.fault_cases import CASES, Moments, Named

Real = NDArray[np.float64]

HEADERS = (
    "fault", "seed", "named", "false alarms", "phases mrad rms", "worst", "loops mrad rms", "not seen",
    "held out dB rms", "extinction short dB", "4x4 fidelity",
    "certified", "settings", "hardware s",
)  # fmt: skip
_PHASE_MRAD, _HELD_OUT_DB = 3.0, 0.1
_EXTINCTION_DB, _FIDELITY = 1.0, 0.995
_SETTINGS, _HARDWARE_S = 5000, 90.0
_UNITARIES = 2
_SEEN_RAD = 0.02
_COUPLING, _COUPLING_SIGMA = 1e-3, 4.0


@dataclass(frozen=True)
class Verdict:
    """How a calibration did."""

    case: str
    seed: int
    expected: list[Named]
    record: CalibrationRecord
    phase_mrad: Real
    loops_mrad: float
    unseen_loops: int
    held_out_db: float
    extinction_short_db: float
    fidelity: float
    complaints: list[str] = field(default_factory=list)

    @property
    def named(self) -> int:
        found = [(defect.kind, defect.element, defect.number) for defect in self.record.defects]
        return sum(found.count(each) == 1 for each in self.expected)

    @property
    def false_alarms(self) -> list[str]:
        known = set(self.expected)
        words = {
            defect.evidence for defect in self.record.defects if (defect.kind, defect.element, defect.number) in known
        }
        # That the wanted uncertainty is out of reach, and why, is no alarm.
        return [fault for fault in self.record.faults if fault not in words and not fault.startswith("wanted ")]

    @property
    def good(self) -> bool:
        return not self.complaints

    def row(self) -> tuple[object, ...]:
        rms = float(np.sqrt((self.phase_mrad**2).mean()))
        quality = self.record.quality
        return (
            self.case, self.seed, f"{self.named} of {len(self.expected)}", len(self.false_alarms), f"{rms:.2f}",
            f"{np.abs(self.phase_mrad).max():.1f}", f"{self.loops_mrad:.2f}", self.unseen_loops,
            f"{self.held_out_db:.3f}", f"{self.extinction_short_db:.2f}", f"{self.fidelity:.5f}",
            "yes" if quality.get("fit_certified") else "NO",
            f"{quality.get('settings', 0):.0f}", f"{quality.get('hardware_s', 0):.0f}",
        )  # fmt: skip


def judged(case: str, seed: int, file: str | Path) -> Verdict:
    """Calibrate a bench with a fault, and judge."""
    with Bench.emulate(file, seed=seed) as bench:
        probe, ends, moments = BenchProbe(bench), [0.0], Moments()

        world, read_s = bench.emulated.world, [0.0]
        seen = world.monitor_ma

        def look(*asked: Any) -> Real:
            read_s.append(bench.clock.now())
            return seen(*asked)

        world.monitor_ma = look

        def note(stage: str, done: int, total: int) -> None:
            moments.reached(stage, done, total)
            if stage == "sources" and done == 1:
                ends.append(read_s[-2])  # the reading before this one was the last that was fitted

        rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(case.encode())]))
        probe.align_all()
        expected = CASES[case].inject(bench, rng, moments)
        run = Calibration(probe, probe.device_under_test(), seed, note)
        record = run.run()
        _hold_still(bench, ends[-1])
        phase, loops, unseen = _phases(bench, record, expected)
        held_out = _held_out_db(bench, record, rng)
        short_db, fidelity = _extinction_short_db(bench, record), _fidelity(bench, record, rng)
        couplings = [_coupling(bench, puc) for puc in range(bench.mesh.topology.n_pucs)]
    verdict = Verdict(case, seed, expected, record, phase, loops, unseen, held_out, short_db, fidelity)
    verdict.complaints.extend((*_complaints(verdict), *_unknown(verdict, couplings)))
    return verdict


def _complaints(verdict: Verdict) -> Iterator[str]:
    if verdict.named != len(verdict.expected):
        found = [(defect.kind, defect.element, defect.number) for defect in verdict.record.defects]
        yield f"expected {verdict.expected}, named {found}"
    yield from (f"false alarm: {words}" for words in verdict.false_alarms)
    certified = bool(verdict.record.quality.get("fit_certified"))
    if certified != CASES[verdict.case].certified:
        yield "certified" if certified else "not certified"
    if not certified:
        return
    rms = float(np.sqrt((verdict.phase_mrad**2).mean()))
    if rms > _PHASE_MRAD:
        yield f"phases {rms:.1f} mrad rms, worst PUC {np.argmax(np.abs(verdict.phase_mrad))}"
    if verdict.loops_mrad > _PHASE_MRAD:
        yield f"loops {verdict.loops_mrad:.1f} mrad rms"
    if verdict.held_out_db > _HELD_OUT_DB:
        yield f"held-out power {verdict.held_out_db:.3f} dB rms"
    if verdict.extinction_short_db > _EXTINCTION_DB:
        yield f"extinction {verdict.extinction_short_db:.2f} dB below what couplers allow"
    if verdict.fidelity < _FIDELITY:
        yield f"4x4 unitaries at a fidelity of {verdict.fidelity:.4f}"
    for name, most in (("settings", _SETTINGS), ("hardware_s", _HARDWARE_S)):
        if verdict.record.quality[name] > most:
            yield f"{name}: {verdict.record.quality[name]:.0f}"


def _unknown(verdict: Verdict, couplings: list[float]) -> Iterator[str]:
    """Yield what the record does not know though light shows it, and where a stuck PUC's coupling is wrong."""
    if not CASES[verdict.case].certified:
        return
    stuck = {number for kind, _, number in verdict.expected if kind == "stuck PUC"}
    for puc, entry in enumerate(verdict.record.pucs):
        if entry.passive_phase_rad is None:
            yield f"nothing known of PUC {puc}"
    if verdict.unseen_loops > len(stuck):
        yield f"{verdict.unseen_loops} loops unknown"
    for defect in verdict.record.defects:
        if defect.kind == "stuck PUC" and defect.coupling is not None:
            off, sigma = defect.coupling - couplings[defect.number], defect.coupling_sigma or 0.0
            if abs(off) > _COUPLING + _COUPLING_SIGMA * sigma:
                yield f"coupling of PUC {defect.number} off by {off:.4f}, {sigma:.4f} stated"


def _coupling(bench: Bench, puc: int) -> float:
    """Return the true coupling of a PUC with its heaters as they are when nothing is driven."""
    truth = bench.emulated.world.truth
    rest_mw = truth.heater_power_mw(np.zeros(2 * bench.mesh.topology.n_pucs))
    rest_rad = np.pi * rest_mw / truth.p_pi_mw + truth.crosstalk.arm_rad_per_mw @ rest_mw
    alpha = truth.passive_phase[puc] + rest_rad[2 * puc] - rest_rad[2 * puc + 1]
    first, second = np.arcsin(np.sqrt([truth.eta_in[puc], truth.eta_out[puc]]))
    least, largest = np.sin(first - second) ** 2, np.sin(first + second) ** 2
    return float(least + (largest - least) * np.cos(alpha / 2.0) ** 2)


def _hold_still(bench: Bench, end_s: float) -> None:
    """Let what drifted stay where it was at the last random setting: there the record has to hold."""
    disturbances = bench.emulated.world.disturbances
    if disturbances.temperature_k is not None:
        kelvin = disturbances.temperature_k(end_s)
        disturbances.temperature_k = lambda _: kelvin
    for port, course in disturbances.power_db.items():
        level = course(end_s)
        disturbances.power_db[port] = lambda _, level=level: level


def _phases(bench: Bench, record: CalibrationRecord, expected: list[Named]) -> tuple[Real, float, int]:
    """Return errors of passive phases in mrad, rms of the loops that can be seen, and how many cannot."""
    world, mesh = bench.emulated.world, bench.mesh.topology
    truth = world.truth
    rest_mw = truth.heater_power_mw(np.zeros(2 * mesh.n_pucs))
    rest_rad = np.pi * rest_mw / truth.p_pi_mw + truth.crosstalk.arm_rad_per_mw @ rest_mw
    at_rest = truth.passive_phase + rest_rad[0::2] - rest_rad[1::2]
    known = [puc for puc, entry in enumerate(record.pucs) if entry.passive_phase_rad is not None]
    found = np.array([record.pucs[puc].passive_phase_rad or 0.0 for puc in known])
    stuck = {number for kind, _, number in expected if kind == "stuck PUC"}
    phase = np.array(
        [error for puc, error in zip(known, wrapped(found - at_rest[known]), strict=True) if puc not in stuck]
    )
    if record.joints is None or "loops" not in dict(record.covariance.groups if record.covariance else ()):
        return 1e3 * phase, float("nan"), 0
    joints = truth.joint_phase + truth.crosstalk.joint_rad_per_mw @ rest_mw
    off = _as_seen(bench, record, stuck, at_rest) - joints
    # A phase common to all PUCs counts as one of all joints: the mean frequency of the sources, the lower arms.
    lower = rest_rad[1::2]
    ends = 0.5 * (lower[mesh.joints[:, 0] // 4] + lower[mesh.joints[:, 1] // 4])
    sources = [(entry.port, entry.source_detuning_hz or 0.0) for entry in record.ports if entry.source_dbm is not None]
    chains = {path.port: chain for path, chain in zip(bench.wiring.inputs, world.chains, strict=True)}
    apart_hz = np.mean([chains[port].frequency_hz - record.reference_hz - found_hz for port, found_hz in sources])
    off = off - ends - 2.0 * np.pi * BASIC_UNIT_DELAY_S * apart_hz
    space, covariance = space_from_record(record), covariance_from_record(record)
    place = space.group("loops")
    values, vectors = np.linalg.eigh(covariance[place, place])
    common = space.directions.T @ np.ones(len(joints))
    seen = vectors[:, np.sqrt(np.maximum(values, 0.0)) < _SEEN_RAD]
    rms = np.inf
    # Nobody measures the mean frequency, and a sixth of a turn per PUC leaves every loop round one cell as it was.
    for sixth in range(6):
        around = space.directions.T @ gauge_fixed_difference(mesh, off + sixth * np.pi / 3.0)
        around = around - common * (around @ common) / (common @ common)
        rms = min(rms, float(np.sqrt(((seen.T @ around) ** 2).sum() / max(seen.shape[1], 1))))
    return 1e3 * phase, 1e3 * rms, len(loop_basis(mesh)) - seen.shape[1]


def _as_seen(bench: Bench, record: CalibrationRecord, stuck: set[int], at_rest: Real) -> Real:
    """Return the joint phases found, as they would be if every stuck PUC were the one that it really is.

    Of a stuck PUC light shows what it makes of two waves, and the joints about it. The same light is that of a PUC with
    other couplers or the opposite phase, and other phases on the joints: outputs turned by x, inputs by y.
    """
    mesh, truth = bench.mesh.topology, bench.emulated.world.truth
    couplers = parameters_from_record(record)
    first = np.pi / 4.0 + couplers.coupler_common_rad + 0.5 * couplers.coupler_difference_rad
    second = np.pi / 4.0 + couplers.coupler_common_rad - 0.5 * couplers.coupler_difference_rad
    joints = np.array(record.joints.phase_rad if record.joints else [])
    for puc in stuck:
        found = _transfer(np.sin(first[puc]) ** 2, np.sin(second[puc]) ** 2, record.pucs[puc].passive_phase_rad or 0.0)
        true = _transfer(truth.eta_in[puc], truth.eta_out[puc], float(at_rest[puc]))
        # true = diag(e^-jx) found diag(e^-jy): the angles of the three largest ratios say x and y, but for a gauge.
        turn = -np.angle(true * found.conj())
        weight = np.abs(true * found)
        least = np.unravel_index(np.argmin(weight), weight.shape)
        rows, columns = [], []
        for out, into in np.ndindex(2, 2):
            if (out, into) != least:
                rows.append([float(out == 0), float(out == 1), float(into == 0), float(into == 1)])
                columns.append(turn[out, into])
        x_l, x_r, y_l, y_r = np.linalg.lstsq(np.array(rows), np.array(columns), rcond=None)[0]
        by_port = {0: y_l, 1: y_r, 2: x_l, 3: x_r}
        for side in (0, 1):
            here = mesh.joints[:, side] // 4 == puc
            # The record has these phases on its joints already; with the true PUC in its place they are not there.
            joints = joints - np.where(here, [by_port[int(port) % 4] for port in mesh.joints[:, side]], 0.0)
    return joints


def _transfer(eta_in: float, eta_out: float, alpha_rad: float) -> NDArray[np.complex128]:
    """Return what a PUC makes of waves at (A, L) and (A, R), losses apart; the lower arm is the reference."""

    def coupler(eta: float) -> NDArray[np.complex128]:
        return np.array([[np.sqrt(1.0 - eta), -1j * np.sqrt(eta)], [-1j * np.sqrt(eta), np.sqrt(1.0 - eta)]])

    transfer: NDArray[np.complex128] = coupler(eta_out) @ np.diag([np.exp(-1j * alpha_rad), 1.0]) @ coupler(eta_in)
    return transfer


def _extinction_short_db(bench: Bench, record: CalibrationRecord) -> float:
    """Return by how much the worst bar or cross state of all PUCs that can be set misses what the couplers allow."""
    try:
        return extinctions(bench, record)["extinction_short_db"]
    except (CalibrationError, LimitError):  # a heater that does not reach: the record says which
        return float("nan")


def _fidelity(bench: Bench, record: CalibrationRecord, rng: np.random.Generator) -> float:
    """Return the least fidelity of some 4x4 unitaries; NaN where there is no room for one."""
    try:
        return min(unitary_fidelity(bench, record, rng) for _ in range(_UNITARIES))
    except ConfigError:
        return float("nan")


def _held_out_db(bench: Bench, record: CalibrationRecord, rng: np.random.Generator, settings: int = 12) -> float:
    """Return the rms error of predicted powers above -40 dBm at all ports with a monitor, dead or not; no noise."""
    world, space, ports = bench.emulated.world, space_from_record(record), tuple(bench.mesh.monitor_ports)
    model = MeshModel(bench.mesh.topology, space.sources, ports, record.heater_ohm)
    most = np.array([heater.law.max_ma if heater.law else 0.0 for e in record.pucs for heater in (e.upper, e.lower)])
    probe, errors = BenchProbe(bench), []
    leaving = replace(parameters_from_record(record), monitor_ma_per_mw=np.ones(len(ports)))
    for source in space.sources:
        walk = IncrementalSettings(most, (source,), ports, changed=len(most), off_share=0.25)
        asked = walk.random(settings, rng)
        plan = replace(asked, currents_ma=Logbook(probe).driven_ma(asked.currents_ma))
        predicted_mw = model.predict(leaving, plan)
        probe.light_only_port(source)
        bench.clock.sleep(2.0)
        for row_mw, currents in zip(predicted_mw, plan.currents_ma, strict=True):
            bench.mesh.program(currents)
            true_mw = 1e3 * world.mesh_output_w()[list(ports)]
            bright = true_mw > 1e-4
            errors += (10.0 * np.log10(np.maximum(row_mw[bright], 1e-12) / true_mw[bright])).tolist()
    probe.switch_everything_off()
    return float(np.sqrt(np.mean(np.square(errors))))
