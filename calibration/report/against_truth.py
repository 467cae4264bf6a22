"""Judging a record by the emulator's hidden truth. For tests and ``verify --against-truth`` only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.cell import coupling_floors
from lumion_hw.mesh.inverse import heater_currents_ma
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.topology import State

WANTED_EXTINCTION_DB = 30.0


@dataclass(frozen=True)
class TruthReport:
    """How far a record is from the truth.

    Attributes:
        phase_error_rad: Shape ``(n,)``; wrapped error of the passive phases found, against the phase at rest: heaters
            stuck at a current are part of it. Of sources each at a frequency of its own, phases hold at the mean.
        loss_error_db: Shape ``(n_pucs,)``; error of the losses.
        bar_extinction_db: Shape ``(n,)``; extinction reached with all PUCs programmed to bar.
        cross_extinction_db: Shape ``(n,)``; the same for cross.
        bar_allowed_db: Shape ``(n,)``; what the hidden couplers allow.
        cross_allowed_db: Shape ``(n,)``; the same for cross.
    """

    phase_error_rad: NDArray[np.float64]
    loss_error_db: NDArray[np.float64]
    bar_extinction_db: NDArray[np.float64]
    cross_extinction_db: NDArray[np.float64]
    bar_allowed_db: NDArray[np.float64]
    cross_allowed_db: NDArray[np.float64]

    def shortfalls(self) -> int:
        """Return how many states miss 30 dB though the couplers allow it.

        A state is held to 30 dB where the couplers alone would give 31 dB: at 30.0 dB there is no room for any phase.
        """
        missed = 0
        for reached, allowed in (
            (self.bar_extinction_db, self.bar_allowed_db),
            (self.cross_extinction_db, self.cross_allowed_db),
        ):
            missed += int(((allowed >= WANTED_EXTINCTION_DB + 1.0) & (reached < WANTED_EXTINCTION_DB)).sum())
        return missed


def compare(bench: Bench, record: CalibrationRecord) -> TruthReport:
    """Compare a record with the truth of an emulated bench, programming all PUCs to bar and to cross.

    Raises:
        ConfigError: The bench is not emulated.
    """
    world = bench.emulated.world
    truth = world.truth
    found = np.array([puc for puc, entry in enumerate(record.pucs) if entry.settable])
    phases = np.array([record.pucs[puc].passive_phase_rad for puc in found], dtype=np.float64)
    rest_mw = truth.heater_power_mw(np.zeros(len(truth.p_pi_mw)))
    rest_rad = np.pi * rest_mw / truth.p_pi_mw + truth.crosstalk.arm_rad_per_mw @ rest_mw
    slope_per_hz = world.cells().differential_slope_per_hz
    at_rest = truth.passive_phase + rest_rad[0::2] - rest_rad[1::2] + slope_per_hz * reference_offset_hz(bench, record)
    floors = coupling_floors(truth.eta_in[found], truth.eta_out[found])
    return TruthReport(
        phase_error_rad=(phases - at_rest[found] + np.pi) % (2 * np.pi) - np.pi,
        loss_error_db=record.loss_db - truth.loss_db,
        bar_extinction_db=_extinction_db(bench, record, found, "bar"),
        cross_extinction_db=_extinction_db(bench, record, found, "cross"),
        bar_allowed_db=-10 * np.log10(np.maximum(floors.bar_leak, 1e-12) / (1.0 - floors.bar_leak)),
        cross_allowed_db=-10 * np.log10(np.maximum(floors.cross_leak, 1e-12) / (1.0 - floors.cross_leak)),
    )


def reference_offset_hz(bench: Bench, record: CalibrationRecord) -> float:
    """Return how far the frequency at which the phases of a record hold is from that of the hidden truth.

    Several modules tell how far they are apart, not where they are: their mean is taken for what their labels say.
    """
    world = bench.emulated.world
    found = {entry.port: entry.source_detuning_hz for entry in record.ports if entry.source_detuning_hz}
    off = [
        chain.frequency_hz - world.cells().reference_hz - found[path.port]
        for chain, path in zip(world.chains, world.wiring.inputs, strict=True)
        if path.port in found
    ]
    return float(np.mean(off)) if off else 0.0


def _extinction_db(
    bench: Bench, record: CalibrationRecord, found: NDArray[np.int64], state: State
) -> NDArray[np.float64]:
    """Program all PUCs to one state and return the extinction of each, from the true cells."""
    bench.mesh.program(heater_currents_ma(record, dict.fromkeys(found.tolist(), state)))
    cells = bench.emulated.world.cells()
    transfer = cells.transfer(cells.reference_hz)[found]
    bar, cross = np.abs(transfer[:, 0, 0]) ** 2, np.abs(transfer[:, 1, 0]) ** 2
    wanted, other = (bar, cross) if state == "bar" else (cross, bar)
    extinction: NDArray[np.float64] = 10 * np.log10(wanted / np.maximum(other, 1e-15))
    return extinction
