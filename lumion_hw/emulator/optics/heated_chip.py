"""The emulated chip and its heat: from heater currents to the fields at all ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.chip.cell import ChipCells
from lumion_hw.emulator.chip.chip import Chip, ChipSlopes
from lumion_hw.emulator.optics.disturbances import Disturbances
from lumion_hw.emulator.optics.heat import Heat
from lumion_hw.emulator.optics.loops import Loops
from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.truth import MeshTruth
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.quantities import frequency_hz_from_wavelength_m

_MAX_FIELD_VECTORS = 256  # bounds the memory: a sweeping laser adds a vector at every frequency


class HeatedChip:
    """The emulated chip at the latest time passed to :meth:`follow`. At the initial time all heaters are cold.

    Args:
        truth: True parameters, which faults and time change.
        nominal_nm: Wavelength in nm for which the parameters are specified.
        loops: Fibres that feed light back into the mesh.
        at_s: Initial time.

    Attributes:
        state: Value that differs whenever the fields do.
        driven_ma: Present current of each heater, at index 2·PUC + arm.
        swapped_heaters: Pairs of heaters with swapped wires (a fault), for the next currents.
        shared_channels: Pairs of heaters in parallel on the channel of the first (a fault), for the next currents.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        truth: MeshTruth,
        physics: PhysicsParameters,
        nominal_nm: float,
        loops: Loops,
        disturbances: Disturbances,
        at_s: float,
    ) -> None:
        n_heaters = 2 * mesh.n_pucs
        self._truth, self._loops, self._disturbances = truth, loops, disturbances
        self._has_tm = physics.effects.tm_path > 0.0
        self._chip = Chip(mesh, truth.variations, _chip_slopes(nominal_nm, physics))
        slow = physics.effects.slow_heat_share, physics.slow_heat_tau_s
        self._heat = Heat(n_heaters, truth.thermal_tau_s, at_s, *slow)
        self.driven_ma: NDArray[np.float64] = np.zeros(n_heaters)
        self.swapped_heaters: list[tuple[int, int]] = []
        self.shared_channels: list[tuple[int, int]] = []
        self._truth_state = truth.state()
        self._warming_rad = 0.0
        self.state: tuple[object, ...] = ()
        self._fields: dict[tuple[int, float, bool], NDArray[np.complex128]] = {}  # by port, frequency, TM

    def drive(self, currents_ma: NDArray[np.float64], at_s: float) -> None:
        """Apply the heater currents from ``at_s`` on, at index 2·PUC + arm."""
        self.driven_ma = currents_ma.copy()
        # Two swapped wires (a fault): each channel drives the heater of the other.
        for first, second in self.swapped_heaters:
            self.driven_ma[[first, second]] = self.driven_ma[[second, first]]
        # One channel feeds two heaters in parallel (a fault): its current splits by their conductances.
        for heater, other in self.shared_channels:
            total_ma, ohm = self.driven_ma[heater], self._truth.heater_ohm
            self.driven_ma[heater] = total_ma * ohm[other] / (ohm[heater] + ohm[other])
            self.driven_ma[other] = total_ma - self.driven_ma[heater]
        self._aim(at_s)

    def disturb(self, at_s: float) -> None:
        """Make the heat respond to a change of the true parameters from ``at_s`` on."""
        self._aim(at_s)
        self._truth_state = self._truth.state()

    def follow(self, at_s: float) -> None:
        """Bring heat and state to a time. A change without :meth:`disturb` counts from the previous time on."""
        truth_state = self._truth.state()
        if truth_state != self._truth_state:
            self._truth_state = truth_state
            self._aim(self._heat.followed_s)
        self._heat.follow(at_s)
        self._warming_rad = self._disturbances.common_phase_rad(at_s)
        state = truth_state, self._heat.present_mw.tobytes(), self._warming_rad
        if state != self.state:
            self._fields.clear()
        self.state = state

    def _aim(self, at_s: float) -> None:
        self._heat.aim(self._truth.heater_power_mw(self.driven_ma), at_s)

    @property
    def slopes(self) -> ChipSlopes:
        """Frequency dependence of the chip."""
        return self._chip.slopes

    def cells(self, frequency_hz: float | NDArray[np.float64] | None = None) -> ChipCells:
        """Return the parameters of the chip's PUCs and joints (waveguides between PUCs).

        Args:
            frequency_hz: Frequency of the light; by default the reference frequency.
        """
        common_rad = self._truth.common_phase_rad + self._warming_rad
        return self._chip.cells(self._truth.chip_parameters, self._heat.present_mw, common_rad, frequency_hz)

    def fields(
        self, port: int, frequency_hz: float, *, tm: bool, soon_needed: Callable[[], Sequence[tuple[int, float]]]
    ) -> NDArray[np.complex128]:
        """Return the fields at all ports for light of unit power into one port, shape ``(n_ports,)``.

        Args:
            port: Port where the light enters.
            frequency_hz: Frequency of the light.
            tm: Whether the light is TM.
            soon_needed: Returns further ports and frequencies, which are solved together with this one to save time.
        """
        if len(self._fields) >= _MAX_FIELD_VECTORS:
            self._fields.clear()
        if (port, frequency_hz, tm) not in self._fields:
            others = [line for line in soon_needed() if (*line, False) not in self._fields]
            self._solve(list(dict.fromkeys([(port, frequency_hz), *others])))
        return self._fields[port, frequency_hz, tm]

    def _solve(self, lines: Sequence[tuple[int, float]]) -> None:
        ports, hertz = np.array([port for port, _ in lines]), [frequency_hz for _, frequency_hz in lines]
        cells = self.cells(np.array(hertz))
        solutions: tuple[NDArray[np.complex128], ...]
        if self._has_tm:
            solutions = self._chip.output_fields_with_tm(cells, ports)
        else:
            solutions = (self._chip.output_fields(cells, ports),)
        if self._loops.ports:
            solutions = (self._with_loops(solutions[0], hertz), *solutions[1:])
        for tm, vectors in enumerate(solutions):
            for line, vector in zip(lines, vectors, strict=True):
                self._fields[*line, bool(tm)] = vector

    def _with_loops(self, fields: NDArray[np.complex128], hertz: Sequence[float]) -> NDArray[np.complex128]:
        """Return the fields with the light that fibre loops feed back; each row has a frequency in ``hertz``."""
        ports = np.array(self._loops.ports)
        by_hertz = {f: self._chip.output_fields(self.cells(np.full(len(ports), f)), ports) for f in set(hertz)}
        rows = [
            self._loops.with_feedback(row, by_hertz[f], f, self._truth.access_loss_db)
            for row, f in zip(fields, hertz, strict=True)
        ]
        return np.array(rows)

    def fields_without_loops(self, port: int, frequency_hz: float) -> NDArray[np.complex128]:
        """Return the TE fields at all ports for unit power into one port, without the light that loops feed back."""
        fields: NDArray[np.complex128] = self._chip.output_fields(self.cells(frequency_hz), np.array([port]))[0]
        return fields


def _chip_slopes(nominal_nm: float, physics: PhysicsParameters) -> ChipSlopes:
    """Return the slopes over frequency of the couplers' splitting and of the phase difference between two arms."""
    reference_hz = frequency_hz_from_wavelength_m(nominal_nm * 1e-9)
    return ChipSlopes(
        reference_hz,
        -nominal_nm / reference_hz,  # dλ/df in nm per Hz
        physics.eta_slope_per_nm,
        physics.differential_slope_per_nm,
    )
