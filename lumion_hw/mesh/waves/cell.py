"""The programmable unit cell (PUC): two couplers and two heated arms, with loss, imbalance, phases and dispersion.

Convention: fields vary as e^{+jωt}; a phase φ > 0 is a delay and multiplies by e^{-jφ}. Arm u (upper) lies on rail L,
arm l (lower) on rail R::

    T = g · C(η2) · diag(e^{-jφu}, e^{-jφl}) · C(η1)        C(η) = [[√(1-η), -j√η], [-j√η, √(1-η)]]

T maps the fields at (A, L), (A, R) to those at (B, L), (B, R). The opposite direction is the transpose of T
(reciprocity). An unheated ideal cell (φu = φl, η = ½) is in the cross state; φu - φl = π is the bar state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError, LimitError

BASIC_UNIT_DELAY_S = 11.25e-12
"""Group delay of one PUC of the SmartLight-class chip (Sánchez-Jácome 2025)."""


Parameter = NDArray[np.float64] | float
Combine = Callable[..., None]
"""Type of :func:`combine_cells`."""
_Number = TypeVar("_Number", bound=np.generic)
_Amplitudes = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class UnitCells:
    """Parameters of all unit cells and joints of a mesh at a reference frequency.

    E is the number of PUCs and J the number of joints (waveguides between PUCs). Every array may have a leading axis of
    N samples: ``(N, E)`` or ``(N, J)``. Arrays without this axis apply to all samples.

    Attributes:
        loss_db: Shape ``(E,)``; insertion loss per PUC, positive.
        eta_in: Shape ``(E,)``; power splitting of the coupler at end A at the reference frequency.
        eta_out: Shape ``(E,)``; power splitting of the coupler at end B at the reference frequency.
        phase_upper: Shape ``(E,)``; phase of arm u in rad, including the phase without heat.
        phase_lower: Shape ``(E,)``; phase of arm l in rad.
        joint_phase: Shape ``(J,)``; phase of each joint in rad, in the order of ``MeshTopology.joints``.
        reference_hz: Frequency to which losses, splittings and phases refer.
        delay_s: Group delay of a PUC; one number or shape ``(E,)``.
        eta_slope_per_hz: Change of both splittings per Hz; one number or shape ``(E,)``.
        differential_slope_per_hz: Change of φu - φl per Hz, in rad; one number or shape ``(E,)``.
        joint_loss_db: Loss of a joint; one number or shape ``(J,)``.
        arm_difference_db: Loss of arm u minus loss of arm l, whose mean is ``loss_db``; one number or shape ``(E,)``.
        joint_reflection: Shape ``(2J,)``, complex; field reflected from the middle of a joint (assumed). First J
            values: into the first PUC-port of each joint; last J values: into the second. No reflection by default.
        facet_reflection: Shape ``(n_ports,)``, complex; field that each port reflects back into the mesh.
    """

    loss_db: NDArray[np.float64]
    eta_in: NDArray[np.float64]
    eta_out: NDArray[np.float64]
    phase_upper: NDArray[np.float64]
    phase_lower: NDArray[np.float64]
    joint_phase: NDArray[np.float64]
    reference_hz: float = 193.4145e12  # 1550 nm
    delay_s: Parameter = BASIC_UNIT_DELAY_S
    eta_slope_per_hz: Parameter = 0.0
    differential_slope_per_hz: Parameter = 0.0
    joint_loss_db: Parameter = 0.0
    arm_difference_db: Parameter = 0.0
    joint_reflection: NDArray[np.complex128] | None = None
    facet_reflection: NDArray[np.complex128] | None = None

    @classmethod
    def ideal(cls, n_pucs: int, n_joints: int, theta: NDArray[np.float64], loss_db: float = 0.0) -> UnitCells:
        """Return cells with balanced couplers, without phases except the phase difference of the arms.

        Args:
            n_pucs: Number of PUCs.
            n_joints: Number of joints (waveguides between PUCs).
            theta: Half the phase difference of the arms in rad (0 cross, π/2 bar), shape ``(n_pucs,)``, or ``(N,
                n_pucs)`` for N samples.
            loss_db: Loss per PUC.
        """
        half = np.full(n_pucs, 0.5)
        return cls(np.full(n_pucs, loss_db), half, half, theta, -theta, np.zeros(n_joints))

    @cached_property
    def n_samples(self) -> int | None:
        """Number of samples N; ``None`` if no parameter has a sample axis.

        Raises:
            ConfigError: Two parameters have different numbers of samples, or a parameter has too many axes.
        """
        parameters = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: np.asarray(value) for name, value in parameters.items() if value is not None}
        counts = {array.shape[0] for array in arrays.values() if array.ndim == 2}
        if len(counts) > 1 or any(array.ndim > 2 for array in arrays.values()):
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if array.ndim > 1)
            raise ConfigError(
                f"cell parameters have different numbers of samples: {shapes}",
                hint="Give shape (n_pucs,) or (samples, n_pucs), with equally many samples everywhere.",
            )
        return counts.pop() if counts else None

    def transfer(self, frequency_hz: ArrayLike) -> NDArray[np.complex128]:
        """Return the transfer matrix T of every PUC, shape ``(n_pucs, 2, 2)`` after the axes of :meth:`batch_shape`.

        Raises:
            LimitError: A splitting is outside 0 … 1 at this frequency.
        """
        return np.ascontiguousarray(np.moveaxis(self.elements(frequency_hz), (0, 1, 2), (-3, -2, -1)))

    def batch_shape(self, frequency_hz: ArrayLike) -> tuple[int, ...]:
        """Return the leading axes of a result: ``(W,)`` for W frequencies, ``(N,)`` for N samples, or both."""
        samples = () if self.n_samples is None else (self.n_samples,)
        return *np.shape(frequency_hz), *samples

    def elements(self, frequency_hz: ArrayLike, combine: Combine | None = None) -> NDArray[np.complex128]:
        """Return the transfer matrices T, shape ``(n_pucs, 2, 2, *batch_shape)``.

        Args:
            frequency_hz: One frequency or an array.
            combine: A faster replacement of :func:`combine_cells`.

        Raises:
            LimitError: A splitting is outside 0 … 1 at one of the frequencies.
        """
        first, second = self._couplers(frequency_hz)
        return self._cell_matrices(first, *self._arms(frequency_hz), second, frequency_hz, combine or combine_cells)

    def element_derivatives(self, frequency_hz: ArrayLike) -> dict[str, NDArray[np.complex128]]:
        """Return the derivatives of :meth:`elements` by splittings and arm phases, by parameter name.

        Derivatives by a splitting are infinite or NaN where it is 0 or 1.
        """
        (through_in, cross_in), (through_out, cross_out) = self._couplers(frequency_hz)
        upper, lower = self._arms(frequency_hz)
        # A scalar is enough: it is broadcast to all PUCs.
        no_arm = np.zeros((), dtype=np.complex128)
        with np.errstate(divide="ignore"):
            by_in, by_out = (
                # Slopes of √(1-η) and √η.
                (-0.5 / through, 0.5 / cross)
                for through, cross in ((through_in, cross_in), (through_out, cross_out))
            )
        # T is linear in each arm: the derivative is T with this arm multiplied by -j and the other arm set to zero.
        first, second = (through_in, cross_in), (through_out, cross_out)
        factors = {
            "eta_in": (by_in, upper, lower, second),
            "eta_out": (first, upper, lower, by_out),
            "phase_upper": (first, -1j * upper, no_arm, second),
            "phase_lower": (first, no_arm, -1j * lower, second),
        }
        with np.errstate(invalid="ignore"):
            return {name: self._cell_matrices(*parts, frequency_hz, combine_cells) for name, parts in factors.items()}

    def _couplers(self, frequency_hz: ArrayLike) -> tuple[_Amplitudes, _Amplitudes]:
        shift = self._eta_shift(frequency_hz)
        first, second = (_coupler(self._spread(eta, frequency_hz) + shift) for eta in (self.eta_in, self.eta_out))
        return first, second

    def _arms(self, frequency_hz: ArrayLike) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
        detuning_hz = self.detuning_hz(frequency_hz)
        # Calculate the delay from the detuning, because 2πfτ itself is 1.4e4 rad and would cost precision.
        half = np.exp(-0.5j * self._spread(self.differential_slope_per_hz, frequency_hz) * detuning_hz)
        delay = np.exp(-2j * np.pi * self._spread(self.delay_s, frequency_hz) * detuning_hz)
        gain = 10.0 ** (-self._spread(self.loss_db, frequency_hz) / 20.0)
        upper = gain * np.exp(-1j * self._spread(self.phase_upper, frequency_hz)) * (delay * half)
        lower = gain * np.exp(-1j * self._spread(self.phase_lower, frequency_hz)) * (delay * half.conj())
        if np.any(self.arm_difference_db):
            # Half of the difference on each arm, and 20 dB per decade of field: 40 in all.
            tilt = 10.0 ** (-self._spread(self.arm_difference_db, frequency_hz) / 40.0)
            return upper * tilt, lower / tilt
        return upper, lower

    def _cell_matrices(
        self,
        first: _Amplitudes,
        upper: NDArray[np.complex128],
        lower: NDArray[np.complex128],
        second: _Amplitudes,
        frequency_hz: ArrayLike,
        combine: Combine,
    ) -> NDArray[np.complex128]:
        n_pucs, batch = np.shape(self.loss_db)[-1], self.batch_shape(frequency_hz)
        result = np.empty((n_pucs, 2, 2, math.prod(batch)), dtype=np.complex128)
        rows = (_rows(part, n_pucs, batch) for part in (*first, upper, lower, *second))
        combine(*rows, result)
        return result.reshape(n_pucs, 2, 2, *batch)

    def joint_factor(self, frequency_hz: ArrayLike) -> NDArray[np.complex128]:
        """Return the factor by which each joint (waveguide between PUCs) multiplies the field.

        Shape ``(n_joints, *batch_shape)``, or axes of length 1.
        """
        phase, loss_db = self._spread(self.joint_phase, frequency_hz), self._spread(self.joint_loss_db, frequency_hz)
        factor: NDArray[np.complex128] = 10.0 ** (-loss_db / 20.0) * np.exp(-1j * phase)
        return factor

    def reflection_coefficients(self, factor: NDArray[np.complex128], n_ports: int) -> NDArray[np.complex128]:
        """Return the reflection coefficients at first ends of joints (waveguides between PUCs), second ends, and ports.

        Args:
            factor: Shape ``(n_joints, n)`` or ``(n_joints, 1)``; factors by which joints multiply the field.
            n_ports: Number of ports of the mesh.

        Returns:
            Shape ``(2 n_joints + n_ports, n)`` or ``(2 n_joints + n_ports, 1)``; no rows if nothing is reflected.
        """
        if self.joint_reflection is None and self.facet_reflection is None:
            return np.empty((0, factor.shape[1]), dtype=np.complex128)
        joints = np.zeros(2 * len(factor)) if self.joint_reflection is None else self.joint_reflection
        facets = np.zeros(n_ports) if self.facet_reflection is None else self.facet_reflection
        # The way to the middle of a joint and back is as long as the joint.
        back = joints[:, None] * np.concatenate([factor, factor])
        return np.concatenate([back, np.broadcast_to(facets[:, None], (n_ports, factor.shape[1]))])

    def detuning_hz(self, frequency_hz: ArrayLike) -> NDArray[np.float64]:
        """Return the frequency offset from the reference in Hz, with axes that broadcast against cell parameters."""
        detuning = np.asarray(frequency_hz, dtype=np.float64) - self.reference_hz
        return detuning if self.n_samples is None else detuning[..., None]

    def _spread(self, parameter: Parameter, frequency_hz: ArrayLike) -> NDArray[np.float64]:
        array = np.asarray(parameter, dtype=np.float64)
        if array.ndim == 0:
            return array
        axes = [array.shape[-1]] + [1] * np.ndim(frequency_hz)
        if self.n_samples is not None:
            axes.append(array.shape[0] if array.ndim == 2 else 1)
        return array.T.reshape(axes)

    def _eta_shift(self, frequency_hz: ArrayLike) -> NDArray[np.float64]:
        shift: NDArray[np.float64] = self._spread(self.eta_slope_per_hz, frequency_hz) * self.detuning_hz(frequency_hz)
        # Without a slope no frequency axis is needed, which saves most of the work.
        return shift if np.any(shift) else np.zeros(())


def with_heat_loss(cells: UnitCells, arm_db: NDArray[np.float64]) -> UnitCells:
    """Return cells with additional arm losses caused by heat.

    Args:
        cells: Unit cells.
        arm_db: Shape ``(…, 2 n_pucs)``; loss per arm, upper arm of PUC 0 first.
    """
    upper, lower = arm_db[..., 0::2], arm_db[..., 1::2]
    # `loss_db` is the mean of both arms, and their difference is stored separately.
    loss_db = cells.loss_db + 0.5 * (upper + lower)
    return replace(cells, loss_db=loss_db, arm_difference_db=cells.arm_difference_db + upper - lower)


def with_turned_couplers(cells: UnitCells, angle_rad: NDArray[np.float64], has_coupler: NDArray[np.bool_]) -> UnitCells:
    """Return cells whose couplers have other angles asin√η.

    Args:
        cells: Unit cells.
        angle_rad: Shape ``(…, n_pucs)``; change of the angles.
        has_coupler: Shape ``(2, n_pucs)``; whether a PUC has a coupler at end A and at end B.
    """
    first, second = (
        np.sin(np.arcsin(np.sqrt(eta)) + angle_rad * is_there) ** 2
        for eta, is_there in zip((cells.eta_in, cells.eta_out), has_coupler, strict=True)
    )
    return replace(cells, eta_in=first, eta_out=second)


def excess_heat_mw(heat_mw: NDArray[np.float64], heat_mw_per_rad: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the heat of each PUC minus that of both its heaters at a phase of π, shape ``(…, n_pucs)``.

    Coupler angles of a calibration refer to this heat. Both arguments have the heaters as their last axis.
    """
    above = heat_mw - np.pi * heat_mw_per_rad
    return above[..., 0::2] + above[..., 1::2]


def combine_cells(
    through_in: NDArray[np.float64],
    cross_in: NDArray[np.float64],
    upper: NDArray[np.complex128],
    lower: NDArray[np.complex128],
    through_out: NDArray[np.float64],
    cross_out: NDArray[np.float64],
    result: NDArray[np.complex128],
) -> None:
    """Write C(out)·diag(upper, lower)·C(in) into ``result``, with C = [[through, -j·cross], [-j·cross, through]].

    All arguments have shape ``(n_pucs, n)`` or ``(n_pucs, 1)``; the result has shape ``(n_pucs, 2, 2, n)``.
    """
    result[:, 0, 0] = through_out * through_in * upper - cross_out * cross_in * lower
    result[:, 1, 1] = through_out * through_in * lower - cross_out * cross_in * upper
    upper, lower = -1j * upper, -1j * lower
    result[:, 0, 1] = through_out * cross_in * upper + cross_out * through_in * lower
    result[:, 1, 0] = cross_out * through_in * upper + through_out * cross_in * lower


def _rows(part: NDArray[_Number], n_pucs: int, batch: tuple[int, ...]) -> NDArray[_Number]:
    if part.size != n_pucs or part.ndim == 0:
        part = np.broadcast_to(part, (n_pucs, *batch) if part.ndim else (n_pucs, 1))
    return np.ascontiguousarray(part.reshape(n_pucs, -1))


def _coupler(eta: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    _check_splitting(eta)
    return np.sqrt(1.0 - eta), np.sqrt(eta)


def _check_splitting(eta: NDArray[np.float64]) -> None:
    outside = ~((eta >= 0.0) & (eta <= 1.0))
    if outside.any():
        splitting = float(eta[outside].flat[0])
        raise LimitError(
            "a coupler splitting must be 0 to 1", requested=splitting, limit=float(splitting > 0.0), unit="of the power"
        )


def _coupler_angle(eta: NDArray[np.float64]) -> NDArray[np.float64]:
    _check_splitting(eta)
    angle: NDArray[np.float64] = np.arcsin(np.sqrt(eta))
    return angle


@dataclass(frozen=True)
class CouplingFloors:
    """Smallest fraction of the power that imperfect couplers leave in the dark output, in bar and in cross."""

    bar_leak: NDArray[np.float64]
    cross_leak: NDArray[np.float64]


def coupling_floors(eta_in: NDArray[np.float64], eta_out: NDArray[np.float64]) -> CouplingFloors:
    """Return the smallest power fractions in the dark output (docs/calibration.md, 2).

    Args:
        eta_in: Power splitting of the coupler at end A; a number or an array.
        eta_out: Power splitting of the coupler at end B; same shape.
    """
    a_in, a_out = _coupler_angle(eta_in), _coupler_angle(eta_out)
    return CouplingFloors(np.sin(a_in - a_out) ** 2, np.cos(a_in + a_out) ** 2)
