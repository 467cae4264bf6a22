"""Two simple models of a mostly unknown mesh, for the start of a fit.

:class:`MeanLight` calculates mean intensities, with every PUC splitting evenly.

:class:`AmplitudeModel` calculates amplitudes with balanced couplers, typical loss and no crosstalk
(docs/calibration.md, 2).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from calibration.model.device_under_test import PUC_LOSS_DB
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

Complex = NDArray[np.complex64]

_DARK = 1e-9


@dataclass(frozen=True, eq=False)
class MeanLight:
    """Mean power between all ports, averaged over random settings.

    Attributes:
        entering: Shape ``(pucs, n_ports)``; power that enters each PUC (both ends together) per power into each port.
        power: Shape ``(n_ports, n_ports)``; power out of a port (row) per power into another (column).
        by_bar_share: Shape ``(pucs, n_ports, n_ports)``; derivative of ``power`` by the bar fraction of each PUC.
    """

    entering: Real
    power: Real
    by_bar_share: Real

    @classmethod
    def of(cls, mesh: MeshTopology) -> MeanLight:
        """Return the mean power between all ports if every PUC splits evenly."""
        # A PUC sends half of the power, less its loss, from either input to each output. Others split as designed.
        solver, gain = Solver(mesh), 10.0 ** (-PUC_LOSS_DB * mesh.loss_share / 10.0)
        first, second = mesh.nominal_eta
        cross = first * (1.0 - second) + second * (1.0 - first)
        shares = np.stack([1.0 - cross, cross, cross, 1.0 - cross], axis=1) * gain[:, None]
        elements = shares.reshape(-1, 1).astype(np.complex128)
        factors = np.ones((len(mesh.joints), 1), dtype=np.complex128)
        waves = solver.entering(elements, factors, mesh.port_puc_port, np.arange(4 * mesh.n_pucs))
        power = solver.leaving(elements, waves[:, solver.port_feeds])[0].real
        entering = waves[0].real.reshape(mesh.n_pucs, 2, 2, mesh.n_ports)
        # A larger bar share moves power from the other rail to this one. The mesh is reciprocal, so the light out of a
        # port follows from the light into it.
        tilt = entering[:, :, 0] - entering[:, :, 1]
        change = (gain * mesh.interferes)[:, None, None] * (
            tilt[:, 1, :, None] * tilt[:, 0, None, :] + tilt[:, 0, :, None] * tilt[:, 1, None, :]
        )
        return cls(entering.sum(axis=(1, 2)), power, change)

    def dual_input_ports(self, seconds: Mapping[int, int]) -> MeanLight:
        """Return the mean power with both columns added for sources that feed two ports."""
        first, second = list(seconds), list(seconds.values())
        parts = [part.copy() for part in (self.entering, self.power, self.by_bar_share)]
        for part in parts:
            part[..., first] += part[..., second]
        return MeanLight(*parts)

    def relative_swing(self, sources: Sequence[int], monitors: Sequence[int]) -> Real:
        """Return the derivative of the log of the power by bar fractions, ``(sources, monitors, pucs)``.

        It is 0 where no light of a source reaches a monitor.
        """
        change, power = self.by_bar_share[:, list(monitors)][:, :, list(sources)], self.power[np.ix_(monitors, sources)]
        relative = np.divide(change, power, out=np.zeros(change.shape), where=power > 0.0)
        return relative.transpose(2, 1, 0)


class AmplitudeModel:
    """Predicts amplitudes |S| between ports for an ideal mesh.

    Args:
        sources: Ports where light may enter.
        seconds: Second port of each source with two ports, by its first port; |S| is then the root of the total power.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        sources: tuple[int, ...],
        monitors: tuple[int, ...],
        seconds: Mapping[int, int] | None = None,
    ) -> None:
        self.mesh = mesh
        self._solver = Solver(mesh)
        second = {port: seconds[port] for port in sources if port in seconds} if seconds else {}
        self.has_second = np.array([port in second for port in sources], dtype=np.bool_)
        entries = [*sources, *(second.get(port, port) for port in sources)] if second else list(sources)
        # Ports that are both source and monitor are solved once; `place` gives their position in the solution.
        self._ports, place = np.unique(np.array([*entries, *monitors]), return_inverse=True)
        self._source_entries, self._monitor = place[: len(entries)].reshape(-1, len(sources)), place[len(entries) :]
        self._out = np.array(monitors)
        self._loss_db = PUC_LOSS_DB * mesh.loss_share
        self._gain = 10.0 ** (-self._loss_db / 20.0)

    def predict(
        self,
        upper_rad: Real,
        lower_rad: Real,
        joint_rad: Real,
        source: int,
        monitor: NDArray[np.int64],
        second: Real | None = None,
    ) -> Real:
        """Return the amplitude |S| of n settings at k monitors, shape ``(n, k)``.

        Arguments as for :meth:`linearise`.
        """
        # The couplers stay balanced: their angles deviate by 0.01 rad, far below the precision of a search.
        eta_in, eta_out = self.mesh.nominal_eta
        cells = UnitCells(self._loss_db, eta_in, eta_out, upper_rad, lower_rad, joint_rad)
        field = self._solver.solve(cells, cells.reference_hz, self._ports[self._source_entries[:, source]].tolist())
        amplitude: Real = np.abs(field[np.arange(len(field))[:, None], self._out[monitor]])
        if second is None:
            return amplitude[..., 0]
        # Light with independent data does not interfere in the average of a monitor, so powers add.
        total: Real = np.hypot(amplitude[..., 0], second[source] * amplitude[..., 1])
        return total

    def linearise(
        self,
        upper_rad: Real,
        lower_rad: Real,
        joint_rad: Real,
        source: NDArray[np.int64],
        monitor: NDArray[np.int64],
        second: Real | None = None,
    ) -> tuple[Real, Single]:
        """Return amplitudes |S| and their derivatives for n settings with k monitors each.

        Args:
            upper_rad: Shape ``(n, pucs)``; phases of the upper arms, including the passive phase.
            lower_rad: Shape ``(n, pucs)``; phases of the lower arms.
            joint_rad: Shape ``(n, joints)`` or ``(joints,)``; phases of the joints.
            source: Shape ``(n,)``; index of the source.
            monitor: Shape ``(n, k)``; indices of the monitors.
            second: Shape ``(sources,)``; field at the second port of every source relative to the first, 0 without a
                second port; ``None`` if no source has one.

        Returns:
            |S|, shape ``(n, k)``, and its derivatives by E upper arms and J joints, shape ``(n, k, E + J)``.
            With second ports also by the logarithm of ``second``, ``(n, k, E + J + 1)``.
        """
        eta_in, eta_out = self.mesh.nominal_eta
        cells = UnitCells(self._loss_db, eta_in, eta_out, upper_rad, lower_rad, joint_rad)
        elements, factors, _ = self._solver.coefficients(cells, cells.reference_hz)
        every = np.arange(4 * self.mesh.n_pucs)
        # Only the requested monitors are solved: few common monitors take a fraction of the time of all.
        used = np.concatenate([self._monitor[monitor].ravel(), *self._source_entries[:, source]])
        entries, place = np.unique(used, return_inverse=True)
        firsts = monitor.size + len(source) * np.arange(len(self._source_entries))
        monitor_places, *source_places = np.split(place, firsts)
        waves = self._solver.entering(elements, factors, self.mesh.port_puc_port[self._ports[entries]], every)
        row = np.arange(len(source))
        lights = [waves[row, :, i] for i in source_places]
        fields = [self._solver.leaving(elements, light[:, self._solver.port_feeds, None]) for light in lights]
        fields = [field[row[:, None], self._out[monitor], 0] for field in fields]
        back = waves.astype(np.complex64)[row[:, None], :, monitor_places.reshape(monitor.shape)]
        if second is None:
            lights, fields = lights[:1], fields[:1]
        else:
            lights[1], fields[1] = second[source][:, None] * lights[1], second[source][:, None] * fields[1]
        # Both lights are incoherent, so their powers add: A² = |S₁|² + |S₂|².
        amplitude: Real = functools.reduce(np.hypot, map(np.abs, fields))
        parts: list[Single] = []
        for light, field in zip(lights, fields, strict=True):
            # d|S| is the component of dS along S. A dark field has no direction; the floor suppresses rounding errors.
            direction = (field.conj() / np.maximum(amplitude, _DARK)).astype(np.complex64)
            adjoint = back * direction[..., None]
            parts.append(self._derivatives(light.astype(np.complex64), adjoint, upper_rad, factors.T))
        by_phase: Single = functools.reduce(np.add, parts)
        if second is None:
            return amplitude, by_phase
        by_second = (np.abs(fields[1]) ** 2 / np.maximum(amplitude, _DARK)).astype(np.float32)
        return amplitude, np.concatenate([by_phase, by_second[..., None]], axis=-1)

    def _derivatives(
        self, light: Complex, adjoint: Complex, upper_rad: Real, factors: NDArray[np.complex128]
    ) -> Single:
        n, k, n_pucs = len(light), adjoint.shape[1], self.mesh.n_pucs
        # A balanced coupler sends (L - j·R)/√2 into the upper arm, from either end.
        arm, arm_back = light.reshape(n, n_pucs, 2, 2), adjoint.reshape(n, k, n_pucs, 2, 2)
        arm = arm[..., 0] - 1j * arm[..., 1]
        arm_back = arm_back[..., 0] - 1j * arm_back[..., 1]
        turned = (-0.5j * self._gain * np.exp(-1j * upper_rad)).astype(np.complex64)
        arm = (turned[..., None] * arm)[:, None]
        u, v = self.mesh.joints.T
        back = (-1j / factors).astype(np.complex64)
        joint = (back * light[:, u])[:, None] * adjoint[..., v] + (back * light[:, v])[:, None] * adjoint[..., u]
        result = np.empty((n, k, n_pucs + len(u)), dtype=np.float32)
        result[..., :n_pucs] = (arm[..., 0] * arm_back[..., 1] + arm[..., 1] * arm_back[..., 0]).real
        # The phases of arms that do not interfere are part of the joint phases.
        result[..., :n_pucs] *= self.mesh.interferes
        result[..., n_pucs:] = joint.real
        return result
