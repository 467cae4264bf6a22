"""Derivatives of any function of the scattering matrix by every parameter of every cell (docs/calibration.md, 2).

The adjoint problem is the same mesh with light entering at its outputs. With ``a`` the fields of the light and ``h``
those of the adjoint light, the derivative by a PUC's transfer matrix T is ``h_B·a_Aᵀ + a_B·h_Aᵀ`` (fields at ends A and
B), and by the factor of a joint between u and v it is ``b_u(h)·b_v(a) + b_v(h)·b_u(a)`` (fields b that leave u and v).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

_NEPER_PER_DB = np.log(10.0) / 20.0

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]


@dataclass(frozen=True, eq=False)
class CellGradient:
    """Derivatives of a real number by the parameters of :class:`UnitCells`.

    Each array has shape ``(E,)`` or ``(J,)`` (E PUCs, J joints), with the leading axes of the scattering matrix
    (wavelengths and samples).

    Attributes:
        loss_db: Derivative by the PUC loss, per dB.
        eta_in: Derivative by the splitting of the coupler at end A; infinite or NaN where the splitting is 0 or 1.
        eta_out: Derivative by the splitting of the coupler at end B; infinite or NaN where the splitting is 0 or 1.
        phase_upper: Derivative by the phase of the upper arm, per rad.
        phase_lower: Derivative by the phase of the lower arm, per rad.
        joint_phase: Derivative by the phase of the joint, per rad.
        joint_loss_db: Derivative by the joint loss, per dB.
        delay_s: Derivative by the group delay of a PUC, per s.
        eta_slope_per_hz: Derivative by the frequency slope of the splittings (1/Hz).
        differential_slope_per_hz: Derivative by the frequency slope of φu - φl (rad/Hz).
    """

    loss_db: Real
    eta_in: Real
    eta_out: Real
    phase_upper: Real
    phase_lower: Real
    joint_phase: Real
    joint_loss_db: Real
    delay_s: Real
    eta_slope_per_hz: Real
    differential_slope_per_hz: Real


def gradient(
    solver: Solver,
    cells: UnitCells,
    frequency_hz: ArrayLike,
    cotangent: Complex,
    inputs: Sequence[int] | None = None,
) -> CellGradient:
    """Return the derivatives of a real number F, given its derivative by the scattering matrix.

    Args:
        solver: Solver of the mesh.
        cells: Unit cells.
        frequency_hz: One frequency or an array.
        cotangent: Derivative c of F by the scattering matrix S, defined by dF = Re Σ c·dS, with the shape of
            ``solver.solve(cells, frequency_hz, inputs)``. For F = Σ w·S·S* it is ``2·w·S.conj()``.
        inputs: Ports where light enters; all ports by default.

    Raises:
        ConfigError: The shape of the cotangent differs from that of the scattering matrix.
        LumionError: As :meth:`Solver.solve`.
    """
    mesh = solver.mesh
    ports = solver.checked_inputs(cells, inputs)
    batch = cells.batch_shape(frequency_hz)
    expected = (*batch, mesh.n_ports, len(ports))
    if np.shape(cotangent) != expected:
        raise ConfigError(
            f"the cotangent (derivative by the scattering matrix) has the wrong shape, {np.shape(cotangent)}",
            hint=f"Give it the shape of the scattering matrix, {expected}.",
        )
    elements, factors, _ = solver.coefficients(cells, frequency_hz)
    all_entries = np.arange(4 * mesh.n_pucs)
    light = solver.entering(elements, factors, mesh.port_puc_port, all_entries)  # (n, 4E, n_ports)
    # The mesh is reciprocal, so the adjoint light is a sum of the same solutions; no further solution is needed.
    adjoint = light @ np.reshape(cotangent, (-1, mesh.n_ports, len(ports)))
    light = light[:, :, ports]
    n = light.shape[0]
    shape = (n, mesh.n_pucs, 2, 2, len(ports))  # (…, end, rail, input)
    a, h = light.reshape(shape), adjoint.reshape(shape)
    weight = np.einsum("nerp,nesp->ners", h[:, :, 1], a[:, :, 0]) + np.einsum("nerp,nesp->ners", a[:, :, 1], h[:, :, 0])
    transfer = elements.T.reshape(n, mesh.n_pucs, 2, 2)
    joint = _joint_weight(solver, transfer, a, h) * np.broadcast_to(factors.T, (n, len(mesh.joints)))
    return _chain_rule(cells, frequency_hz, weight, transfer, joint, batch)


def _joint_weight(solver: Solver, transfer: Complex, a: Complex, h: Complex) -> Complex:
    u, v = solver.mesh.joints.T

    def leaving(waves: Complex) -> Complex:
        to_a = np.einsum("nesr,nesp->nerp", transfer, waves[:, :, 1])
        to_b = np.einsum("ners,nesp->nerp", transfer, waves[:, :, 0])
        return np.stack([to_a, to_b], axis=2).reshape(len(waves), -1, waves.shape[-1])

    forward, backward = leaving(a), leaving(h)
    weight: Complex = (backward[:, u] * forward[:, v] + backward[:, v] * forward[:, u]).sum(axis=2)
    return weight


def _chain_rule(
    cells: UnitCells,
    frequency_hz: ArrayLike,
    weight: Complex,
    transfer: Complex,
    joint: Complex,
    batch: tuple[int, ...],
) -> CellGradient:
    def shaped(values: NDArray[np.generic]) -> Real:
        return np.real(values).reshape(*batch, -1)

    derivatives = cells.element_derivatives(frequency_hz)
    with np.errstate(invalid="ignore"):
        per_parameter = {
            name: shaped(np.einsum("ners,ersn->ne", weight, element.reshape(*element.shape[:3], -1)))
            for name, element in derivatives.items()
        }
    loss = shaped(-_NEPER_PER_DB * np.einsum("ners,ners->ne", weight, transfer))
    # A delay τ at detuning f multiplies T by e^{-2jπfτ}, so its derivative by τ is -2jπf·T.
    turned = shaped(-2j * np.pi * np.einsum("ners,ners->ne", weight, transfer))
    detuning_hz = np.broadcast_to(cells.detuning_hz(frequency_hz), batch)[..., None]
    return CellGradient(
        loss_db=loss,
        **per_parameter,
        joint_phase=shaped(-1j * joint),
        joint_loss_db=shaped(-_NEPER_PER_DB * joint),
        delay_s=turned * detuning_hz,
        eta_slope_per_hz=(per_parameter["eta_in"] + per_parameter["eta_out"]) * detuning_hz,
        # The slope is divided between both arms with opposite sign, as in :meth:`UnitCells._arms`.
        differential_slope_per_hz=0.5 * (per_parameter["phase_upper"] - per_parameter["phase_lower"]) * detuning_hz,
    )
