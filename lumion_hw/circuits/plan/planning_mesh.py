"""Data that planning derives from a calibration record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import LimitError
from lumion_hw.interfaces.wiring import InputPath, Wiring
from lumion_hw.mesh.layout.topology import EXIT_XOR, State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.heater_currents import DIFFERENTIAL_RAD, HeaterLimits, PucTarget, program_pucs
from lumion_hw.mesh.programming.inverse import split_phase
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import Path
from lumion_hw.mesh.routing.request import STATES, opposite_state
from lumion_hw.mesh.routing.result import to_wave_path
from lumion_hw.mesh.waves.scattering import Solver
from lumion_hw.quantities import frequency_hz_from_wavelength_m

Real = NDArray[np.float64]

_MIN_LOSS_DB = 0.01
"""Smallest loss of a PUC in planning; a fitted loss may be 0 or negative."""
_TYPICAL_SIGMA_DB = 1.0
"""Spread of losses between fibre and mesh at ports that were not measured (docs/sources.md)."""
_CACHE_SIZE = 4

_cached: list[PlanningMesh] = []


def planning_mesh(record: CalibrationRecord) -> PlanningMesh:
    """Return the planning data of a calibration record; cached."""
    # Records are immutable, so comparing identities suffices.
    match = next((mesh for mesh in _cached if mesh.calibrated.record is record), None)
    mesh = PlanningMesh(record) if match is None else match
    _cached[:] = [mesh, *(other for other in _cached if other is not mesh)][:_CACHE_SIZE]
    return mesh


class PlanningMesh:
    """A calibrated mesh with the data that planning needs."""

    def __init__(self, record: CalibrationRecord) -> None:
        self.calibrated = CalibratedMesh.from_record(record)
        self.puc_loss_db: Real = np.maximum(record.loss_db, _MIN_LOSS_DB)
        self._ports = {entry.port: entry for entry in record.ports}
        allowed = [record.usable_states(puc) for puc in range(len(record.pucs))]
        self._settable = [entry.is_settable for entry in record.pucs]
        self._allowed = allowed
        self.unusable: tuple[tuple[int, State], ...] = tuple(
            (puc, state)
            for puc in range(len(record.pucs))
            for state in STATES
            if state not in allowed[puc] or not _can_reach(record, puc, state)
        )
        entry, factor = record.covariance, record.arrays.get(COVARIANCE_FACTOR)
        rows = None if entry is None else entry.rows_of("loss_db")
        # Without a covariance the losses of PUCs count as independent.
        own = np.diag([puc.loss_sigma_db for puc in record.pucs])
        self._loss_factor: Real = own if factor is None or rows is None else np.asarray(factor[rows], np.float64)

    @cached_property
    def solver(self) -> Solver:
        """Solver for the optical field of the mesh."""
        return Solver(self.calibrated.mesh)

    def input_loss_db(self, wiring: Wiring, entry: InputPath, typical_db: float) -> tuple[float, float]:
        """Return the loss of one polarization from the fibre into the mesh at an input, and its standard error.

        Args:
            wiring: All fibres of the bench.
            entry: The input.
            typical_db: Loss assumed for a port that was not measured.
        """
        port = self._ports.get(entry.port)
        first = port if port is None or port.lit_with is None else self._ports.get(port.lit_with)
        if port is None or first is None or first.input_loss_db is None:
            return typical_db, _TYPICAL_SIGMA_DB
        together = {port.lit_with for port in self._ports.values()}
        if first.port not in together:
            return _loss_or_typical(typical_db, port.input_loss_db, port.input_loss_sigma_db)
        before = next((path for path in wiring.inputs if path.port == first.port), entry)
        if first.source_dbm is None or port.source_dbm is None:
            return typical_db, _TYPICAL_SIGMA_DB
        launched_dbm = first.source_dbm + first.input_loss_db - (before.gain_db - before.fibre_loss_db)
        # Each of the two ports gets half of the module's power.
        half_db = 10.0 * math.log10(2.0)
        loss_db = launched_dbm + entry.gain_db - entry.fibre_loss_db - half_db - port.source_dbm
        return _loss_or_typical(typical_db, loss_db, first.input_loss_sigma_db)

    def output_loss_db(self, port: int, typical_db: float) -> tuple[float, float]:
        """Return the loss from the mesh into the fibre at a port, and its standard error."""
        entry = self._ports.get(port)
        return _loss_or_typical(
            typical_db, *((entry.output_loss_db, entry.output_loss_sigma_db) if entry else (None, None))
        )

    def path_sigma_db(self, pucs: Sequence[int]) -> float:
        """Return the standard error of the total loss of the PUCs of a path, in dB."""
        return float(np.linalg.norm(self._loss_factor[list(pucs)].sum(axis=0)))

    def currents_ma(self, states: Mapping[int, State], couplings: Mapping[int, float], total_mw: float) -> Real:
        """Return the heater currents in mA for PUC states, and for power couplings where given.

        Raises:
            CalibrationError: A PUC is not calibrated.
            LimitError: A heater cannot reach its phase, or the total heat exceeds ``total_mw``.
        """
        targets = {
            puc: PucTarget.state(state)
            for puc, state in states.items()
            # A PUC that is stuck in the desired state is left unheated.
            if self._settable[puc] or state not in self._allowed[puc]
        }
        targets |= {puc: PucTarget.coupling(k, self.calibrated.coupler(puc)) for puc, k in couplings.items()}
        return program_pucs(self.calibrated, targets, limits=HeaterLimits(total_mw)).currents_ma

    def heat_mw(self, currents_ma: Real) -> Real:
        """Return the heat of every heater, shape ``(2 n_pucs,)``."""
        return self.calibrated.heat_mw(self.calibrated.own_rad(currents_ma))

    def fields(self, currents_ma: Real, sources: Mapping[int, float]) -> Mapping[int, NDArray[np.complex128]]:
        """Return the output field at every port for unit light at each source, each of shape ``(n_ports,)``.

        Args:
            currents_ma: Heater currents, shape ``(2 n_pucs,)``.
            sources: Wavelength in nm of the light at each port; ignored if the record is not valid there.
        """
        by_wavelength: dict[float | None, list[int]] = {}
        for port, sent_nm in sources.items():
            # Ports with light of the same wavelength share one solution; None stands for the wavelength of the record.
            by_wavelength.setdefault(sent_nm if self.covers_wavelength(sent_nm) else None, []).append(port)
        fields: dict[int, NDArray[np.complex128]] = {}
        for wavelength_nm, ports in by_wavelength.items():
            hz = None if wavelength_nm is None else frequency_hz_from_wavelength_m(wavelength_nm * 1e-9)
            cells = self.calibrated.cells(currents_ma, hz)
            solved = self.solver.solve(cells, cells.reference_hz if hz is None else hz, ports)
            fields |= {port: solved[:, index] for index, port in enumerate(ports)}
        return fields

    def covers_wavelength(self, wavelength_nm: float) -> bool:
        """Return whether the record is valid at a wavelength and contains the mesh's dependence on it."""
        record = self.calibrated.record
        low, high = record.conditions.wavelength_range_nm or (-math.inf, math.inf)
        return record.dispersion is not None and low <= wavelength_nm <= high

    def power_fractions(self, currents_ma: Real, ports: Sequence[int]) -> Real:
        """Return the fraction of power that travels from each PUC-port to each mesh port.

        Shape ``(4 n_pucs, len(ports))``.
        """
        cells = self.calibrated.cells(currents_ma)
        power: Real = np.abs(self.solver.waves(cells, cells.reference_hz, list(ports))) ** 2
        return power

    def leaking_puc(self, currents_ma: Real, path: Path, port: int) -> int:
        """Return the PUC on a path that sends most stray light to a port."""
        cells = self.calibrated.cells(currents_ma)
        share = np.abs(cells.transfer(cells.reference_hz)) ** 2
        wave_path = to_wave_path(self.calibrated.mesh, path)
        power_at_port, light, worst = self.power_fractions(currents_ma, [port])[:, 0], 1.0, (-1.0, path.pucs[0])
        for wave, state in zip(wave_path.waves, wave_path.states, strict=True):
            same_rail, changed = share[wave // 4, 0, 0], share[wave // 4, 0, 1]  # bar keeps the rail, cross changes it
            guided, stray = (same_rail, changed) if state == "bar" else (changed, same_rail)
            # Light that arrives, times the share that leaves the path, times the fraction of it that reaches the port.
            worst = max(
                worst, (float(light * stray * power_at_port[wave ^ EXIT_XOR[opposite_state(state)]]), wave // 4)
            )
            light *= guided
        return worst[1]


def _loss_or_typical(typical_db: float, loss_db: float | None, sigma_db: float | None) -> tuple[float, float]:
    if loss_db is None:
        return typical_db, _TYPICAL_SIGMA_DB
    return loss_db, _TYPICAL_SIGMA_DB if sigma_db is None or math.isnan(sigma_db) else sigma_db


def _can_reach(record: CalibrationRecord, puc: int, state: State) -> bool:
    entry = record.pucs[puc]
    if entry.passive_phase_rad is None:
        return True
    try:
        split_phase(DIFFERENTIAL_RAD[state], entry.passive_phase_rad, entry.upper.law, entry.lower.law)
    except LimitError:
        return False
    return True
