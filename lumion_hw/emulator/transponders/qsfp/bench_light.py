"""Connects the lanes of emulated QSFP modules to the optical model of a bench."""

from __future__ import annotations

from collections.abc import Sequence

from lumion_hw.emulator.optics.demultiplexer import lines_of_lane
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.world import OpticalWorld


class LanesLight:
    """The light of one module; implements ``ModuleLight``.

    A module whose lanes are wired one by one, as ``psm4-a/2``, sends each lane into the fibre of the lane. The lanes of
    any other module share one fibre, each at its own wavelength, and the receiver separates them by wavelength.

    Args:
        world: Optical model of the bench.
        module: Name of the module.
        wavelengths_nm: Wavelength of each lane.
    """

    def __init__(self, world: OpticalWorld, module: str, wavelengths_nm: Sequence[float]) -> None:
        self._world, self._module, self._wavelengths_nm = world, module, wavelengths_nm
        self._has_lanes = world.wiring.has_lanes(module)
        self._launched_w = [0.0] * len(wavelengths_nm)

    def emit(self, lane: int, power_w: float) -> None:
        """Pass the launched power of a lane in W to the optical model."""
        if self._has_lanes:
            self._world.set_source(f"{self._module}/{lane}", power_w, self._wavelengths_nm[lane - 1])
            return
        self._launched_w[lane - 1] = power_w
        lanes = zip(self._launched_w, self._wavelengths_nm, strict=True)
        self._world.set_lines(self._module, [Light(launched_w, nm) for launched_w, nm in lanes])

    def received_w(self, lane: int) -> float:
        """Return the optical power at the receiver of a lane in W."""
        if self._has_lanes:
            return self._world.received_w(f"{self._module}/{lane}")
        received_w = self._world.received_lines_w(self._module)
        return sum(lines_of_lane(received_w, self._wavelengths_nm, lane).values())
