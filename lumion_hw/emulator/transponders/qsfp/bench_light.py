"""Connects the lanes of emulated QSFP modules to the optical model of a bench."""

from __future__ import annotations

from collections.abc import Mapping

from lumion_hw.emulator.optics.world import OpticalWorld

_DARK_W = 1e-12


class QsfpLight:
    """The light of all QSFP modules of a bench.

    A module whose lanes are wired one by one, as ``psm4-a/2``, sends each lane into the fibre of the lane. The lanes of
    any other module share one fibre: the mesh acts on their total light at one wavelength, and the receiver divides
    what arrives as the sender launched it. The multiplexer of a receiver passes no light of other kinds of modules.
    """

    def __init__(self, world: OpticalWorld) -> None:
        self._world = world
        self._launched: dict[str, dict[int, float]] = {}

    def of(self, module: str, wavelengths_nm: Mapping[int, float], shared_nm: float) -> LanesLight:
        """Return the light of one module.

        Args:
            module: Name of the module.
            wavelengths_nm: Wavelength of each lane.
            shared_nm: Wavelength of all lanes in a shared fibre.
        """
        return LanesLight(self._world, self._launched, module, wavelengths_nm, shared_nm)


class LanesLight:
    """The light of one module; implements ``ModuleLight``."""

    def __init__(
        self,
        world: OpticalWorld,
        launched: dict[str, dict[int, float]],
        module: str,
        wavelengths_nm: Mapping[int, float],
        shared_nm: float,
    ) -> None:
        self._world, self._launched, self._module = world, launched, module
        self._wavelengths_nm, self._shared_nm = wavelengths_nm, shared_nm
        self._has_lanes = world.wiring.has_lanes(module)

    def emit(self, lane: int, power_w: float) -> None:
        """Pass the launched power of a lane in W to the optical model."""
        own = self._launched.setdefault(self._module, {})
        own[lane] = power_w
        if self._has_lanes:
            self._world.set_source(f"{self._module}/{lane}", power_w, self._wavelengths_nm[lane])
        else:
            self._world.set_source(self._module, sum(own.values()), self._shared_nm)

    def received_w(self, lane: int) -> float:
        """Return the optical power at the receiver of a lane in W."""
        if self._has_lanes:
            return self._world.received_w(f"{self._module}/{lane}")
        received_w = 0.0
        for sender, power_w in self._world.received_by_source_w(self._module).items():
            lanes = self._launched.get(sender, {})
            total_w = sum(lanes.values())
            if total_w > _DARK_W:
                received_w += power_w * lanes.get(lane, 0.0) / total_w
        return received_w
