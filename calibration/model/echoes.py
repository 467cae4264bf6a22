"""Light that joints and facets send back, on top of the light of a mesh that sends nothing back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

# Echoes from facet to facet that are summed up where they are not inverted: of a tenth of the field, 1e-8 is left out.
_ECHOES = 8


@dataclass(frozen=True, eq=False)
class Echoes:
    """Light with what joints and facets send back, in n settings: p ports, M of them with monitors, k lights.

    Facets exactly: waves leaving are S·x of those entering, and x = source + R·S·x. Joints to first order: light comes
    back from the middle of one (assumed) by ρ, and goes on from there as adjoint light came; what facets send back is
    not sent back by joints once more, and how ρ follows phases is left out of the derivatives.

    Attributes:
        monitors: Shape ``(M,)``; the ports of the monitors.
        from_ports: Shape ``(n, 4E, p)``; waves entering every PUC-port for unit light at each, nothing sent back.
        from_lights: Shape ``(n, 4E, k)``; the same for the lights.
        ends: Shape ``(2J,)``; the PUC-ports that light within joints comes from, of all first ends, then the second.
        back: Shape ``(n, 2J, 1)``; one over what half a joint does to a field.
        among: Shape ``(n, p, p)``; S.
        facet: Shape ``(p,)``; R.
        leaving: Shape ``(n, p, k)``; fields at the ports.
    """

    monitors: NDArray[np.int64]
    from_ports: Complex
    from_lights: Complex
    ends: NDArray[np.int64]
    back: Complex
    among: Complex
    facet: Complex
    leaving: Complex

    @classmethod
    def of(
        cls,
        monitors: NDArray[np.int64],
        ports: tuple[Complex, Complex],
        lights: tuple[Complex, Complex],
        joints: tuple[NDArray[np.int64], Complex],
        facet_parts: Real | None,
        joint_parts: Real | None,
    ) -> Echoes:
        """Return the light of a mesh that sends light back from that of one that does not.

        Args:
            monitors: Shape ``(M,)``; the ports of the monitors.
            ports: For unit light at each port, the waves entering every PUC-port, ``(n, 4E, p)``, and the fields
                leaving the ports, ``(n, p, p)``.
            lights: The same for k lights.
            joints: The PUC-ports they join, ``(J, 2)``, and what they do to a field, ``(J, n)`` or ``(J, 1)``.
            facet_parts: Shape ``(2p,)``; real, then imaginary parts of what facets send back; ``None`` for nothing.
            joint_parts: Shape ``(4J,)``; the same of joints.
        """
        (at_ports, among), (lit, alone), ((u, v), factors) = ports, lights, (joints[0].T, joints[1])
        # Light within a joint has come out of its other end.
        ends, half = np.concatenate([v, u]), 1.0 / np.sqrt(factors.T)
        back = np.broadcast_to(np.concatenate([half, half], axis=1), (len(lit), len(ends)))[..., None]
        if joint_parts is not None:
            sent = np.zeros_like(lit)
            sent[:, ends] = back**2 * _amplitudes(joint_parts)[:, None] * lit[:, ends]
            alone = alone + np.swapaxes(at_ports, 1, 2) @ sent
        facet = _amplitudes(np.zeros(2 * among.shape[1]) if facet_parts is None else facet_parts)
        leaving = alone
        for _ in range(_ECHOES):
            leaving = alone + among @ (facet[:, None] * leaving)
        return cls(monitors, at_ports, lit, ends, back, among, facet, leaving)

    @property
    def field(self) -> Complex:
        """Shape ``(n, M, k)``; fields at the monitors."""
        return self.leaving[:, self.monitors]

    @cached_property
    def adjoint(self) -> Complex:
        """Shape ``(n, 4E, M)``; adjoint light of the monitors."""
        adjoint: Complex = self.from_ports @ np.swapaxes(self._echo, 1, 2)
        return adjoint

    def together(self, amount: Complex) -> Complex:
        """Return the adjoint light of all monitors, each by its amount, ``(n, M)``; shape ``(n, 1, 4E)``."""
        return np.moveaxis(self.from_ports @ self._felt(amount), 2, 1)

    @cached_property
    def lit(self) -> list[Complex]:
        """Per light of a setting, shape ``(n, 4E)``."""
        lit = self.from_lights + self.from_ports @ (self.facet[:, None] * self.leaving)
        return [lit[..., nth] for nth in range(lit.shape[-1])]

    def by_amplitude(self, name: str, nth: int) -> Complex:
        """Return how fields at the monitors follow the field sent back, by element of a row, shape ``(n, M, size)``."""
        if name == "facet_reflection":
            at_facets: Complex = (self._echo @ self.among) * self.leaving[:, None, :, nth]
            return at_facets
        adjoint = self.adjoint[:, self.ends] * self.back
        at_joints: Complex = np.swapaxes(adjoint, 1, 2) * self._within(self.lit[nth])[:, None]
        return at_joints

    def summed(self, name: str, nth: int, amount: Complex) -> Complex:
        """Return the same summed over settings and monitors, each by its amount, ``(n, M)``; shape ``(size,)``."""
        felt = self._felt(amount)
        if name == "facet_reflection":
            at_facets: Complex = ((np.swapaxes(self.among, 1, 2) @ felt)[..., 0] * self.leaving[..., nth]).sum(axis=0)
            return at_facets
        adjoint = self._within((self.from_ports @ felt)[..., 0])
        at_joints: Complex = (adjoint * self._within(self.lit[nth])).sum(axis=0)
        return at_joints

    def _within(self, waves: Complex) -> Complex:
        """Return the light in the middle of the joints, shape ``(n, 2J)``: what comes out there, less half a joint."""
        within: Complex = waves[:, self.ends] * self.back[..., 0]
        return within

    def _felt(self, amount: Complex) -> Complex:
        """Return how what leaves the ports counts if monitors do by their amounts, shape ``(n, p, 1)``."""
        own = np.zeros((*self.among.shape[:2], 1), dtype=np.complex128)
        own[:, self.monitors, 0] = amount
        back = np.swapaxes(self.among, 1, 2)
        felt = own
        for _ in range(_ECHOES):
            felt = own + self.facet[:, None] * (back @ felt)
        return felt

    @cached_property
    def _echo(self) -> Complex:
        """Shape ``(n, M, p)``; what leaves by the monitors' ports, all echoes together, by what would without."""
        whole = np.linalg.inv(np.eye(self.among.shape[1]) - self.among * self.facet)
        return np.asarray(whole[:, self.monitors], np.complex128)


def _amplitudes(reflection: Real) -> Complex:
    """Return fields sent back from their real parts, then imaginary ones."""
    real, imaginary = np.split(reflection, 2)
    amplitude: Complex = real + 1j * imaginary
    return amplitude
