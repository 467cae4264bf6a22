"""Light that modules and lasers launch into the inputs of the mesh and into fibres that bypass it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.moved_fibres import MovedFibres
from lumion_hw.emulator.optics.truth import ChainTruth
from lumion_hw.interfaces.wiring import Wiring
from lumion_hw.quantities import frequency_hz_from_wavelength_m


@dataclass
class SourceLine:
    """Light of one source at one frequency."""

    power_w: float
    frequency_hz: float


class LightSources:
    """Power and frequency of the light of all sources.

    Lines are ordered: the first line of each input, the light of each bypassing fibre, then all further lines.

    Args:
        chains: True parameters of each input, in wiring order; they hold the frequency of the first line.
        moved: Fibres that are moved by hand; an input whose fibre is not plugged in gets no light.
        frequency_hz: Initial frequency in bypassing fibres.

    Attributes:
        coherent: Dual-polarization light by module.
        inputs_w: Power in W of the first line at each input.
    """

    def __init__(self, wiring: Wiring, chains: list[ChainTruth], moved: MovedFibres, frequency_hz: float) -> None:
        self._wiring, self._chains, self._moved = wiring, chains, moved
        self._inputs_by_source: dict[str, list[int]] = {}
        for index, path in enumerate(wiring.inputs):
            self._inputs_by_source.setdefault(path.source, []).append(index)
        self._emitted_w: dict[str, float] = {}
        # Light of a source beyond its first line: only modules with wavelength multiplexing have any.
        self._further_lines: dict[str, tuple[SourceLine, ...]] = {}
        self._bypassing = {fibre.source: SourceLine(0.0, frequency_hz) for fibre in wiring.fibres}
        self.inputs_w = np.zeros(len(wiring.inputs))
        self.coherent: dict[str, CoherentLaunch] = {}

    def set_power(self, source: str, power_w: float) -> None:
        """Set the power in W that a module or laser launches at its present frequency."""
        self._further_lines.pop(source, None)
        self._launch(source, power_w)

    def set_lines(self, source: str, lines: Sequence[Light]) -> None:
        """Set the light that a module or laser launches; at least one line, dark or not."""
        first, *further = [line for line in lines if line.power_w > 0.0] or lines[:1]
        self._further_lines.pop(source, None)
        if further and (source in self._inputs_by_source or source in self._bypassing):
            self._further_lines[source] = tuple(SourceLine(line.power_w, _frequency_hz(line)) for line in further)
        self._launch(source, first.power_w)
        self._tune(source, _frequency_hz(first))

    def set_coherent(self, transponder: str, launch: CoherentLaunch) -> None:
        """Set the dual-polarization light that a module launches."""
        self.coherent[transponder] = launch
        self.set_power(transponder, launch.power_w)
        self._tune(transponder, launch.frequency_hz)

    def follow_plug(self, source: str) -> None:
        """Launch the light of a source again, after its fibre was plugged in elsewhere."""
        if source in self._emitted_w:
            self._launch(source, self._emitted_w[source])

    def _launch(self, source: str, power_w: float) -> None:
        self._emitted_w[source] = power_w
        for index in self.inputs_of(source):
            self.inputs_w[index] = power_w if self._moved.is_plugged(self._wiring.inputs[index]) else 0.0
        if source in self._bypassing:
            self._bypassing[source].power_w = power_w

    def _tune(self, source: str, frequency_hz: float) -> None:
        for index in self.inputs_of(source):
            self._chains[index].frequency_hz = frequency_hz
        if source in self._bypassing:
            self._bypassing[source].frequency_hz = frequency_hz

    def inputs_of(self, source: str) -> Sequence[int]:
        """Return the indices of the inputs that a source feeds, in wiring order."""
        return self._inputs_by_source.get(source, ())

    @property
    def further_lines(self) -> list[tuple[str, int, SourceLine]]:
        """Source, number among the lines of the source (from 1), and light of every line beyond the first."""
        return [
            (source, number, line)
            for source, lines in self._further_lines.items()
            for number, line in enumerate(lines, 1)
        ]

    @property
    def names(self) -> list[str]:
        """Source of each line."""
        further = [source for source, _, _ in self.further_lines]
        return [path.source for path in self._wiring.inputs] + list(self._bypassing) + further

    @property
    def frequencies_hz(self) -> list[float]:
        """Frequency of each line."""
        bypassing = [line.frequency_hz for line in self._bypassing.values()]
        further = [line.frequency_hz for _, _, line in self.further_lines]
        return [chain.frequency_hz for chain in self._chains] + bypassing + further

    def frequency_hz(self, index: int, line: int) -> float:
        """Return the frequency of one line of the source of an input; line 0 is the first."""
        if line == 0:
            return self._chains[index].frequency_hz
        return self._further_lines[self._wiring.inputs[index].source][line - 1].frequency_hz

    def at_input_w(self, index: int) -> NDArray[np.float64]:
        """Return the power in W at one input of each line of its source."""
        path, launched_w = self._wiring.inputs[index], self.inputs_w[index : index + 1]
        further = self._further_lines.get(path.source)
        if further is not None:
            is_plugged = self._moved.is_plugged(path)
            launched_w = np.append(launched_w, [line.power_w if is_plugged else 0.0 for line in further])
        return launched_w

    def bypassing_w(self, source: str) -> NDArray[np.float64]:
        """Return the power in W of each line in the bypassing fibre of a source."""
        further = self.further_lines
        powers_w = np.zeros(len(self._chains) + len(self._bypassing) + len(further))
        powers_w[len(self._chains) + list(self._bypassing).index(source)] = self._bypassing[source].power_w
        n_first = len(powers_w) - len(further)
        powers_w[n_first:] = [line.power_w if name == source else 0.0 for name, _, line in further]
        return powers_w

    def state(self) -> tuple[object, ...]:
        """Return a value that changes with every power in the fibres before the mesh and with every further line."""
        # The lines of a source are replaced, never changed.
        return self.inputs_w.tobytes(), tuple(self._further_lines.items())


def _frequency_hz(light: Light) -> float:
    return frequency_hz_from_wavelength_m(light.wavelength_nm * 1e-9)
