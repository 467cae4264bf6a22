"""Program a matrix on a mesh of any topology: field at every output for unit light at every input.

A start is computed from a decomposition of the matrix where the mesh has one (:mod:`.interferometer`,
:mod:`.hexagonal_block`), and drawn at random elsewhere. The heater phases are then refined with the calibrated model of
the mesh, by the gradient of the fidelity. This corrects for real couplers, unequal losses and crosstalk, and finds the
nearest matrix if the mesh cannot reach the wanted one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, ConfigError, LimitError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.decomposition import nearest_unitary, unitary_dilation
from lumion_hw.mesh.programming.heater_currents import HeaterLimits, PucTarget, program_pucs, rounded_ma
from lumion_hw.mesh.programming.hexagonal_block import FeedForwardBlock, block_targets, find_block
from lumion_hw.mesh.programming.interferometer import (
    Interferometer,
    StartSetting,
    feed_forward_ports,
    passed_pucs,
    start_settings,
)
from lumion_hw.mesh.programming.prediction import sample_cells
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.waves.adjoint import gradient
from lumion_hw.mesh.waves.scattering import Solver

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

# Two modes converge in about 55 rounds. Four and six modes use all 400; the fidelity is then 3e-8 and 4e-7 below 1.
_ROUNDS = 400
# Enough to tell a good place or start from a bad one.
_TRIAL_ROUNDS = 40
_RANDOM_STARTS = 6
# The places that look best before refinement.
_REFINED_PLACES = 3
# Weight of the heat against the fidelity: among equal settings the coolest, for at most this much fidelity.
_HEAT_WEIGHT = 1e-7
# A search ends when that many rounds leave more than this share of what is missing.
_STALL_ROUNDS = 15
_STALL_SHARE = 0.97
_RANK_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class MatrixSetting:
    """A programmed matrix with its predicted quality.

    Attributes:
        inputs: Port of each column of the matrix.
        outputs: Port of each row of the matrix.
        pucs: PUCs that are used.
        wanted: Shape ``(outputs, inputs)``; the wanted matrix.
        currents_ma: Heater currents, shape ``(2 n_pucs,)``.
        heat_mw: Total heat of all heaters.
        matrix: Shape ``(outputs, inputs)``; predicted field from inputs to outputs, including losses.
        fidelity: Predicted fidelity of ``matrix``; see ``ignores_port_phases``.
        unrefined_fidelity: Predicted fidelity before the currents were refined.
        loss_db: Predicted mean loss, relative to the wanted matrix with a largest singular value of 1.
        ignores_port_phases: Whether phases at inputs and outputs are left as they are and do not count in the fidelity.
            Only a hexagonal mesh, where every mode has heaters at both ends, sets them too.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    pucs: frozenset[int]
    wanted: Complex
    currents_ma: Real
    heat_mw: float
    matrix: Complex
    fidelity: float
    unrefined_fidelity: float
    loss_db: float
    ignores_port_phases: bool


@dataclass(frozen=True, eq=False)
class MatrixPlace:
    """Where a matrix goes.

    Attributes:
        inputs: Port of each column of the matrix.
        outputs: Port of each row of the matrix.
        pucs: PUCs whose heaters are set.
        starts: Settings to start from; without any, random ones.
        ignores_port_phases: Whether phases at the ports do not count in the fidelity.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    pucs: frozenset[int]
    starts: tuple[StartSetting, ...] = ()
    ignores_port_phases: bool = False


def fidelity(wanted: Complex, matrix: Complex) -> float:
    """Return the fidelity |tr U†V|² / (tr U†U · tr V†V) of two matrices U and V; 1 if they are proportional."""
    overlap, power = np.vdot(wanted, matrix), np.vdot(matrix, matrix).real * np.vdot(wanted, wanted).real
    return float(np.abs(overlap) ** 2 / power)


def amplitude_fidelity(wanted: Complex, matrix: Complex) -> float:
    """Return Σ|U||V| / √(Σ|U|² · Σ|V|²) over all elements of U and V, which ignores every phase.

    For unitary matrices it is the mean over the columns that papers often quote. Phase errors change it less than
    :func:`fidelity`.
    """
    sizes = np.vdot(wanted, wanted).real * np.vdot(matrix, matrix).real
    return float((np.abs(wanted) * np.abs(matrix)).sum() / math.sqrt(sizes))


def fidelity_up_to_port_phases(wanted: Complex, matrix: Complex, rounds: int = 200) -> float:
    """Return the fidelity maximised over phases at inputs and outputs, which power meters cannot observe."""
    at_output, at_input = port_phases(wanted, matrix, rounds)
    return fidelity(wanted, at_output[:, None] * matrix * at_input)


def port_phases(wanted: Complex, matrix: Complex, rounds: int = 200) -> tuple[Complex, Complex]:
    """Return the factors e^{jφ} at outputs and inputs that make ``matrix`` most similar to ``wanted``."""
    overlap = wanted.conj() * matrix
    best, chosen = -1.0, (np.ones(len(wanted), np.complex128), np.ones(wanted.shape[1], np.complex128))
    # Optimising input and output phases alternately climbs to the nearest maximum, so start once from every input.
    for start in range(wanted.shape[1]):
        at_output = np.exp(-1j * np.angle(overlap[:, start]))
        # With 30 rounds, up to 8e-6 of the fidelity is missing for four modes; with 200, nothing above rounding.
        for _ in range(rounds):
            at_input = np.exp(-1j * np.angle(at_output @ overlap))
            at_output = np.exp(-1j * np.angle(overlap @ at_input))
        if (value := float(np.abs(at_output @ overlap @ at_input))) > best:
            best, chosen = value, (at_output, at_input)
    return chosen


def program_matrix(
    calibrated: CalibratedMesh,
    matrix: Complex,
    *,
    block: FeedForwardBlock | None = None,
    inputs: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    avoid: Collection[int] = (),
    limits: HeaterLimits | None = None,
    detunings_hz: Mapping[int, float] | None = None,
    refine: bool = True,
    seed: int = 0,
) -> MatrixSetting:
    """Program a matrix on a calibrated mesh.

    A matrix that is not unitary is part of a unitary of twice the size, if the mesh has as many modes; otherwise the
    nearest reachable matrix is searched. On a hexagonal mesh PUCs outside the block are set to bar; elsewhere cells
    that the light does not need stay without heat.

    Args:
        calibrated: The calibrated mesh, which should include phases around closed paths.
        matrix: Shape ``(outputs, inputs)``; field at each output for unit light at each input, up to a factor.
        block: Block of a hexagonal mesh; by default the first one that has no dead heater and no PUC in ``avoid``.
        inputs: Ports of the columns; by default the neighbouring ports where the predicted fidelity is best.
        outputs: Ports of the rows; required with ``inputs`` if the mesh is not feed-forward.
        avoid: PUCs not to use.
        limits: Limits of the controller.
        detunings_hz: By input port, frequency of its light minus that of the record; see :func:`source_detunings_hz`.
        refine: Whether to refine the currents with the calibrated model.
        seed: Seed of random starts, which are used if no decomposition fits the mesh.

    Raises:
        ConfigError: The matrix is empty, has another size than the ports, or no part of the mesh is free.
        CalibrationError: A PUC on the way is not calibrated, or crosstalk cannot be compensated.
        LimitError: A heater cannot reach its phase, or the total heat exceeds the limit.
    """
    limits = limits or HeaterLimits()
    wanted = _checked(matrix)
    if isinstance(calibrated.mesh, HexMesh) and inputs is None:
        places = [_hexagonal_place(calibrated, wanted, block, avoid, limits)]
    else:
        places = _feed_forward_places(calibrated, wanted, inputs, outputs, avoid)
    models = [MatrixModel(calibrated, wanted, place, detunings_hz) for place in places]
    searches = [_Search(model, seed, _RANDOM_STARTS if len(models) == 1 else 1) for model in models]
    # Equal fidelities within 1e-4: then the place with less loss.
    searches.sort(key=lambda search: (round(search.fidelity, 4), search.power), reverse=True)
    for search in searches[:_REFINED_PLACES] if refine else ():
        search.refine()
    best = max(searches[:_REFINED_PLACES], key=lambda search: (round(search.fidelity, 4), search.power))
    return best.model.setting(best.own_rad, limits, best.model.fidelity(best.start_rad))


def source_detunings_hz(record: CalibrationRecord) -> dict[int, float]:
    """Return the frequency of each source minus that of the record, by its port."""
    return {entry.port: entry.source_detuning_hz for entry in record.ports if entry.source_detuning_hz is not None}


def predicted_fidelities(
    calibrated: CalibratedMesh, setting: MatrixSetting, wanted: Complex | None = None, *, draws: int = 64, seed: int = 0
) -> Real:
    """Return random samples of the fidelity, shape ``(draws,)``, drawn from the uncertainty of the record.

    The fidelity ignores phases at inputs and outputs, which power meters cannot observe. ``wanted`` is the matrix to
    compare with, by default that of the setting.
    """
    wanted = setting.wanted if wanted is None else wanted
    cells = sample_cells(calibrated, setting.currents_ma, draws, seed)
    fields = Solver(calibrated.mesh).solve(cells, cells.reference_hz, setting.inputs)
    outputs = list(setting.outputs)
    return np.array([fidelity_up_to_port_phases(wanted, field[outputs]) for field in fields])


def reachable_phases(
    calibrated: CalibratedMesh, inputs: Sequence[int], outputs: Sequence[int], seed: int = 0
) -> tuple[int, int]:
    """Return how many independent phases of an N x N matrix the heaters set, and how many a unitary has.

    Phases at inputs and outputs do not count, so a unitary has (N - 1)².
    """
    rng = np.random.default_rng(seed)
    heaters = np.flatnonzero(calibrated.max_ma > 0.0)
    own = np.zeros(len(calibrated.max_ma))
    own[heaters] = rng.uniform(0.0, calibrated.reach_rad[heaters])
    step = 1e-5 * calibrated.max_ma[heaters]
    n = len(heaters)
    currents = np.repeat(calibrated.currents_ma(own)[None], 2 * n, axis=0)
    currents[np.arange(n), heaters] += step
    currents[np.arange(n, 2 * n), heaters] -= step
    # Without loss, because heaters that dim the light are no phases of a unitary.
    cells = replace(calibrated.cells(currents), loss_db=np.zeros(calibrated.mesh.n_pucs), arm_difference_db=0.0)
    fields = Solver(calibrated.mesh).solve(cells, cells.reference_hz, inputs)[:, list(outputs)]
    slopes = ((fields[:n] - fields[n:]) / step[:, None, None]).reshape(n, -1)
    middle = 0.5 * (fields[0] + fields[n])
    n_out, n_in = len(outputs), len(inputs)
    turned = [1j * np.eye(n_out)[k][:, None] * middle for k in range(n_out)]
    turned += [1j * middle * np.eye(n_in)[k] for k in range(n_in)]
    ports = np.array([matrix.reshape(-1) for matrix in turned])

    def rank(rows: Complex) -> int:
        parts = np.concatenate([rows.real, rows.imag], axis=1)
        parts = parts / np.maximum(np.linalg.norm(parts, axis=1, keepdims=True), 1e-300)
        values = np.linalg.svd(parts, compute_uv=False)
        return int((values > _RANK_TOLERANCE * values[0]).sum())

    moving = slopes[np.linalg.norm(slopes, axis=1) > 1e-9 * np.linalg.norm(slopes, axis=1).max()]
    return rank(np.concatenate([ports, moving])) - rank(ports), (n_out - 1) * (n_in - 1)


def _checked(matrix: Complex) -> Complex:
    wanted = np.array(matrix, dtype=np.complex128)
    if wanted.ndim != 2 or not wanted.size:
        raise ConfigError(
            f"the matrix to program has the shape {wanted.shape}", hint="Give outputs x inputs complex numbers."
        )
    if not np.isfinite(wanted).all():
        raise ConfigError("the matrix to program contains nan or infinity", hint="Give finite complex numbers.")
    if not wanted.any():
        raise ConfigError("the matrix to program is zero everywhere", hint="Give at least one element that is not 0.")
    return wanted


def _hexagonal_place(
    calibrated: CalibratedMesh,
    wanted: Complex,
    block: FeedForwardBlock | None,
    avoid: Collection[int],
    limits: HeaterLimits,
) -> MatrixPlace:
    unitary = unitary_dilation(wanted)
    # Every PUC of a block sets both arms, which takes two working heaters.
    dead = {int(heater) // 2 for heater in np.flatnonzero(calibrated.max_ma == 0.0)}
    unknown = set(np.flatnonzero(np.isnan(calibrated.passive_rad)).tolist())
    block = block or find_block(calibrated.mesh, len(unitary), avoid=dead | unknown | set(avoid))
    targets = _bar_targets_outside(calibrated, block) | block_targets(block, unitary)
    # The design assumes joints without phase, so their phases are cancelled.
    start = program_pucs(calibrated, targets, limits=limits, cancel_joints=block.joints)
    n_out, n_in = wanted.shape
    return MatrixPlace(
        block.inputs[:n_in],
        block.outputs[:n_out],
        block.pucs,
        (StartSetting(start.own_rad, is_exact=True),),
        ignores_port_phases=False,
    )


def _bar_targets_outside(calibrated: CalibratedMesh, block: FeedForwardBlock) -> dict[int, PucTarget]:
    remaining_pucs = range(block.mesh.n_pucs)
    targets: dict[int, PucTarget] = {}
    for puc in remaining_pucs:
        reach = float(calibrated.reach_rad[2 * puc : 2 * puc + 2].max())
        # With a full turn of range, a PUC reaches bar whatever its passive phase is.
        if puc not in block.pucs and not np.isnan(calibrated.passive_rad[puc]) and reach >= 2.0 * math.pi:
            targets[puc] = PucTarget.state("bar")
    return targets


def _feed_forward_places(
    calibrated: CalibratedMesh,
    wanted: Complex,
    inputs: Sequence[int] | None,
    outputs: Sequence[int] | None,
    avoid: Collection[int],
) -> list[MatrixPlace]:
    mesh = calibrated.mesh
    all_inputs, all_outputs = feed_forward_ports(mesh)
    n_out, n_in = wanted.shape
    chosen = _chosen_ports(mesh, wanted, inputs, outputs) if inputs is not None else None
    if chosen is None and not all_inputs:
        raise ConfigError(
            f"light can turn back in mesh {mesh.label!r}, so the ports of the matrix are not clear",
            hint="Give inputs and outputs.",
        )
    if chosen is None and (n_in > len(all_inputs) or n_out > len(all_outputs)):
        raise ConfigError(
            f"the matrix has {n_out} outputs and {n_in} inputs, but mesh {mesh.label!r} has {len(all_outputs)} and "
            f"{len(all_inputs)}",
            hint="Give a smaller matrix.",
        )
    guides = Interferometer(mesh, all_inputs)
    unitary = unitary_dilation(wanted)
    if len(unitary) > len(all_inputs):
        # No room for the unitary of which the matrix is a part: the search starts from the nearest unitary.
        unitary = nearest_unitary(wanted)
    lines_outputs = guides.outputs if guides.passages else all_outputs
    forbidden = set(np.flatnonzero(np.isnan(calibrated.passive_rad)).tolist()) | set(avoid)
    places, blocking = [], set[int]()
    for first in range(max(len(all_inputs) - len(unitary) + 1, 0)):
        ports = all_inputs[first : first + n_in], tuple(lines_outputs[first : first + n_out])
        if chosen is not None and chosen != ports:
            continue
        pucs = guides.pucs(range(first, first + len(unitary))) or passed_pucs(mesh, *ports)
        if pucs & forbidden:
            blocking |= pucs & forbidden
            continue
        starts = start_settings(calibrated, guides, unitary, first)
        places.append(MatrixPlace(*ports, pucs, tuple(starts), ignores_port_phases=True))
    if chosen is not None and not places and not blocking:
        pucs = passed_pucs(mesh, *chosen)
        if pucs & forbidden:
            blocking |= pucs & forbidden
        else:
            places.append(MatrixPlace(*chosen, pucs, (), ignores_port_phases=True))
    if not places:
        raise CalibrationError(
            f"mesh {mesh.label!r} has no free place for a matrix of {n_out} outputs and {n_in} inputs: PUCs "
            f"{', '.join(map(str, sorted(blocking)))} on the way are not calibrated or to be avoided",
            hint="Calibrate these PUCs, or give a smaller matrix.",
        )
    return places


def _chosen_ports(
    mesh: MeshTopology, wanted: Complex, inputs: Sequence[int], outputs: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if outputs is None or (len(outputs), len(inputs)) != wanted.shape:
        raise ConfigError(
            f"a matrix of {wanted.shape[0]} outputs and {wanted.shape[1]} inputs needs as many ports",
            hint="Give one output per row and one input per column.",
        )
    for port in (*inputs, *outputs):
        if not 0 <= port < mesh.n_ports:
            raise ConfigError(f"port {port} does not exist", hint=f"This mesh has ports 0 to {mesh.n_ports - 1}.")
    return tuple(inputs), tuple(outputs)


class _Search:
    """The best start for one place, and what becomes of it."""

    def __init__(self, model: MatrixModel, seed: int, n_random: int) -> None:
        self.model = model
        starts = model.place.starts
        solved = [start.own_rad for start in starts if start.is_exact]
        if solved:
            self.start_rad = self.own_rad = max(solved, key=model.fidelity)
        else:
            rng = np.random.default_rng(seed)
            tried = [*(start.own_rad for start in starts), *(model.random_start(rng) for _ in range(n_random))]
            trials = [(model.refined(own, _TRIAL_ROUNDS), own) for own in tried]
            self.own_rad, self.start_rad = max(trials, key=lambda trial: model.fidelity(trial[0]))
        self._rate()

    def refine(self) -> None:
        """Refine the heater phases with the calibrated model."""
        self.own_rad = self.model.refined(self.own_rad)
        self._rate()

    def _rate(self) -> None:
        matrix = self.model.matrix(self.model.calibrated.currents_ma(self.own_rad))
        self.fidelity, self.power = self.model.fidelity_of(matrix), float(np.linalg.norm(matrix))


class _Stalled:
    """End a search that gains next to nothing, as it does where the mesh cannot reach the matrix."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        self._values.append(float(intermediate_result.fun))
        if len(self._values) > _STALL_ROUNDS and self._values[-1] > _STALL_SHARE * self._values[-1 - _STALL_ROUNDS]:
            raise StopIteration


class MatrixModel:
    """Fidelity of a programmed matrix and its gradient, as functions of the heater phases."""

    def __init__(
        self,
        calibrated: CalibratedMesh,
        wanted: Complex,
        place: MatrixPlace,
        detunings_hz: Mapping[int, float] | None = None,
    ) -> None:
        self.calibrated, self.wanted, self.place = calibrated, wanted, place
        detunings = np.array([(detunings_hz or {}).get(port, 0.0) for port in place.inputs])
        # One frequency is solved once; light of several needs one solution for each input.
        self._detuning_hz = detunings if np.ptp(detunings) else detunings[0]
        self._solver = Solver(calibrated.mesh)
        self._outputs = np.array(place.outputs)
        arms = [2 * puc + arm for puc in sorted(place.pucs) for arm in (0, 1)]
        self._heaters = np.array([heater for heater in arms if calibrated.max_ma[heater] > 0.0], dtype=np.int64)

    def matrix(self, currents_ma: Real) -> Complex:
        """Return the predicted field matrix from the inputs to the outputs."""
        cells = self.calibrated.cells(currents_ma)
        fields = self._solver.solve(cells, cells.reference_hz + self._detuning_hz, self.place.inputs)
        matrix: Complex = self._own_columns(fields)[self._outputs]
        return matrix

    def _own_columns(self, fields: Complex) -> Complex:
        """Return the fields of each input at its own frequency, shape ``(n_ports, inputs)``."""
        if np.ndim(self._detuning_hz) == 0:
            return fields
        each = np.arange(len(self.place.inputs))
        columns: Complex = fields[each, :, each].T
        return columns

    def fidelity_of(self, matrix: Complex) -> float:
        """Return the fidelity of a matrix, without port phases where these do not count."""
        return (fidelity_up_to_port_phases if self.place.ignores_port_phases else fidelity)(self.wanted, matrix)

    def fidelity(self, own_rad: Real) -> float:
        """Return the predicted fidelity at given heater phases, shape ``(2 n_pucs,)``."""
        return self.fidelity_of(self.matrix(self.calibrated.currents_ma(own_rad)))

    def setting(
        self, own_rad: Real, limits: HeaterLimits | None = None, unrefined_fidelity: float = math.nan
    ) -> MatrixSetting:
        """Return the setting with given heater phases, shape ``(2 n_pucs,)``, rounded to the steps of the controller.

        Raises:
            LimitError: The total heat exceeds the limit.
        """
        limits, calibrated, wanted = limits or HeaterLimits(), self.calibrated, self.wanted
        currents = rounded_ma(calibrated.currents_ma(own_rad), calibrated.max_ma, limits.dac_step_ma)
        heat = float(calibrated.heat_mw(calibrated.own_rad(currents)).sum())
        if heat > limits.total_mw:
            raise LimitError(
                "the total heat of all heaters exceeds the limit", requested=heat, limit=limits.total_mw, unit="mW"
            )
        predicted = self.matrix(currents)
        relative = np.vdot(predicted, predicted).real / np.vdot(wanted, wanted).real * np.linalg.norm(wanted, 2) ** 2
        return MatrixSetting(
            self.place.inputs,
            self.place.outputs,
            self.place.pucs,
            wanted,
            currents,
            heat,
            predicted,
            self.fidelity_of(predicted),
            unrefined_fidelity,
            -10.0 * math.log10(relative),
            self.place.ignores_port_phases,
        )

    def random_start(self, rng: np.random.Generator) -> Real:
        """Return random heater phases of less than a turn."""
        own = np.zeros(len(self.calibrated.max_ma))
        reach = np.minimum(self.calibrated.reach_rad[self._heaters], 2.0 * math.pi)
        own[self._heaters] = rng.uniform(0.0, reach)
        return own

    def refined(self, own_rad: Real, rounds: int = _ROUNDS) -> Real:
        """Return the heater phases that maximise the fidelity, starting from ``own_rad``."""
        from scipy.optimize import minimize

        heaters = self._heaters
        reach = self.calibrated.reach_rad[heaters]
        n_out, n_in = self.wanted.shape
        ports = np.zeros(n_out + n_in)
        if self.place.ignores_port_phases:
            at_output, at_input = port_phases(self.wanted, self.matrix(self.calibrated.currents_ma(own_rad)))
            ports = np.angle(np.concatenate([at_output, at_input]))
        heat = self.calibrated.heat_mw_per_rad[heaters]
        per_rad = _HEAT_WEIGHT * heat / max(float(heat @ reach), 1e-300)

        def loss(point: Real) -> tuple[float, Real]:
            """Return 1 minus the fidelity plus the price of heater power, and its slopes by all variables."""
            own = own_rad.copy()
            own[heaters] = point[: len(heaters)]
            turned = point[len(heaters) :] if self.place.ignores_port_phases else ports
            value, slope, by_port = self.fidelity_and_slopes(own, turned[:n_out], turned[n_out:])
            by_port = by_port if self.place.ignores_port_phases else np.zeros(0)
            slopes = np.concatenate([per_rad - slope[heaters], -by_port])
            return 1.0 - value + float(per_rad @ point[: len(heaters)]), slopes

        free = ports if self.place.ignores_port_phases else np.zeros(0)
        bounds = [(0.0, limit) for limit in reach] + [(None, None)] * len(free)
        stalled = _Stalled()
        optimum = minimize(
            loss,
            np.concatenate([own_rad[heaters], free]),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=stalled,
            options={"maxiter": rounds, "ftol": 1e-13, "gtol": 1e-9},
        )
        best = own_rad.copy()
        best[heaters] = np.clip(optimum.x[: len(heaters)], 0.0, reach)
        return best

    def fidelity_and_slopes(
        self, own_rad: Real, at_output_rad: Real | float = 0.0, at_input_rad: Real | float = 0.0
    ) -> tuple[float, Real, Real]:
        """Return the fidelity and its derivatives.

        Args:
            own_rad: Heater phases, shape ``(2 n_pucs,)``.
            at_output_rad: Phases added at the outputs.
            at_input_rad: Phases added at the inputs.

        Returns:
            The fidelity; its derivatives by the heater phases, shape ``(2 n_pucs,)``, and by the phases at the outputs,
            then at the inputs.
        """
        calibrated = self.calibrated
        cells = calibrated.cells(calibrated.currents_ma(own_rad))
        frequency_hz, inputs = cells.reference_hz + self._detuning_hz, self.place.inputs
        fields = self._solver.solve(cells, frequency_hz, inputs)
        field = self._own_columns(fields)
        n_out, n_in = self.wanted.shape
        turns = np.exp(1j * (np.broadcast_to(at_output_rad, n_out)[:, None] + np.broadcast_to(at_input_rad, n_in)))
        matrix = field[self._outputs]
        shared = self.wanted.conj() * turns * matrix
        overlap, power = shared.sum(), np.vdot(matrix, matrix).real
        sizes = power * np.vdot(self.wanted, self.wanted).real
        value = float(np.abs(overlap) ** 2 / sizes)
        cotangent = np.zeros_like(field)
        # Derivative of F = |tr U†V|² / (tr U†U · tr V†V) with respect to V.
        cotangent[self._outputs] = 2.0 * (
            np.conj(overlap) * self.wanted.conj() * turns / sizes - value / power * matrix.conj()
        )
        if fields.ndim == 3:
            each = np.arange(n_in)
            at_own_frequency = np.zeros_like(fields)
            at_own_frequency[each, :, each] = cotangent.T
            cotangent = at_own_frequency
        derivatives = gradient(self._solver, cells, frequency_hz, cotangent, inputs)
        by_upper, by_lower, by_joint = (
            derivative.reshape(-1, derivative.shape[-1]).sum(axis=0)
            for derivative in (derivatives.phase_upper, derivatives.phase_lower, derivatives.joint_phase)
        )
        arms = np.stack([by_upper, by_lower], axis=-1).reshape(-1)
        # A heater acts on its own arm directly, and through its heat on all other arms and joints.
        by_heat = arms @ calibrated.arm_rad_per_mw
        if len(calibrated.joint_rad_per_mw):
            by_heat = by_heat + by_joint @ calibrated.joint_rad_per_mw
        by_element = 2.0 * (np.conj(overlap) * 1j * shared).real / sizes
        by_port = np.concatenate([by_element.sum(axis=1), by_element.sum(axis=0)])
        return value, arms + calibrated.heat_mw_per_rad * by_heat, by_port
