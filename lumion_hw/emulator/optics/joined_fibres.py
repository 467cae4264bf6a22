"""Light in the fibres between emulated meshes: steady powers and wavelengths, and the module that they come from.

The time that light takes through a fibre, 5 ns per metre, is shorter than every other time of the emulation, and is
left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.interfaces.wiring import end_name
from lumion_hw.quantities import wavelength_m_from_frequency_hz

_DARKEST_W = 1e-10
"""Weaker light, below -70 dBm, is below the noise of every detector, and is not carried on."""
_CHANGE = 1e-6
"""Relative change of a power below which light counts as the same."""
_HZ_DIGITS = -6
"""Light is carried on with frequencies rounded to a megahertz."""


@dataclass(frozen=True)
class JoinedFibre:
    """A fibre from a port of one emulated mesh to a port of another one."""

    from_bench: str
    from_port: int
    to_bench: str
    to_port: int
    loss_db: float


@dataclass(frozen=True)
class CarriedLight:
    """Light of one wavelength in a fibre.

    Attributes:
        origin: Bench and module that most of it comes from, such as ``rack0:sfp-a``.
    """

    origin: str
    power_w: float
    wavelength_nm: float


class FibreEndLight:
    """Light at the ends of fibres at one emulated mesh.

    Args:
        bench: Name of the bench.
    """

    def __init__(self, bench: str, world: OpticalWorld) -> None:
        self._bench, self._world = bench, world
        self._arriving: dict[int, tuple[CarriedLight, ...]] = {}

    def leaving(self, ports: Sequence[int]) -> dict[int, tuple[CarriedLight, ...]]:
        """Return the light that leaves the mesh at each of these ports, one entry for each wavelength."""
        lines: dict[float, list[tuple[str, NDArray[np.float64]]]] = {}
        for source, frequency_hz, powers_w in self._world.leaving_lines_w():
            lines.setdefault(round(frequency_hz, _HZ_DIGITS), []).append((source, powers_w))
        leaving: dict[int, tuple[CarriedLight, ...]] = dict.fromkeys(ports, ())
        for hertz, sources in lines.items():
            powers_w = np.array([powers_w for _, powers_w in sources])
            nm = wavelength_m_from_frequency_hz(hertz) * 1e9
            for port in ports:
                power_w = float(powers_w[:, port].sum())
                if power_w > _DARKEST_W:
                    strongest = sources[int(powers_w[:, port].argmax())][0]
                    leaving[port] = (*leaving[port], CarriedLight(self._origin(strongest), power_w, nm))
        return leaving

    def _origin(self, source: str) -> str:
        for port, lines in self._arriving.items():
            if source == end_name(port) and lines:
                return max(lines, key=lambda line: line.power_w).origin
        return f"{self._bench}:{source}"

    def arrive(self, port: int, lines: Sequence[CarriedLight]) -> bool:
        """Let light enter the mesh at a port. Returns whether it has changed."""
        if _is_same(self._arriving.get(port, ()), lines):
            return False
        self._arriving[port] = tuple(lines)
        lights = [Light(line.power_w, line.wavelength_nm) for line in lines]
        self._world.set_lines(end_name(port), lights or [Light(0.0)])
        return True

    def arriving(self, port: int) -> tuple[CarriedLight, ...]:
        """Return the light that enters the mesh at a port."""
        return self._arriving.get(port, ())

    def origins(self, receiver: str) -> dict[str, float]:
        """Return the power in W at a module's receiver by origin, such as ``rack0:sfp-a``; for tests."""
        powers_w: dict[str, float] = {}
        for source, power_w in self._world.received_by_source_w(receiver).items():
            origin = self._origin(source)
            powers_w[origin] = powers_w.get(origin, 0.0) + power_w
        return powers_w


class JoinedFibres:
    """The fibres between meshes that are emulated in one process.

    Whenever a device of one bench reads its light, the light of all benches is brought up to date.

    Args:
        worlds: Optical model of each bench, by its name.
        fibres: All fibres.
    """

    def __init__(self, worlds: Mapping[str, OpticalWorld], fibres: Sequence[JoinedFibre]) -> None:
        self.ends = {name: FibreEndLight(name, world) for name, world in worlds.items()}
        self._fibres = tuple(fibres)
        self._unplugged: set[JoinedFibre] = set()
        self._is_updating = False
        for world in worlds.values():
            world.before_reading.append(self.update)

    def unplug(self, bench: str, port: int) -> None:
        """Unplug the fibre at a port of a bench: no light arrives at its other end."""
        self._unplugged |= {
            fibre
            for fibre in self._fibres
            if (bench, port) in ((fibre.from_bench, fibre.from_port), (fibre.to_bench, fibre.to_port))
        }

    def plug(self) -> None:
        """Plug all fibres in again."""
        self._unplugged.clear()

    def update(self) -> None:
        """Carry the present light through all fibres, until no mesh sends other light than before."""
        if self._is_updating:
            return
        with self._updating():
            for _ in range(len(self.ends) + 1):
                changes = [self._carry(bench, light) for bench, light in self.ends.items()]
                if not any(changes):
                    return

    def _carry(self, bench: str, light: FibreEndLight) -> bool:
        """Carry the light that leaves one bench; return whether that of another bench has changed."""
        fibres = [fibre for fibre in self._fibres if fibre.from_bench == bench]
        leaving, changed = light.leaving([fibre.from_port for fibre in fibres]), False
        for fibre in fibres:
            lines = () if fibre in self._unplugged else leaving[fibre.from_port]
            changed |= self.ends[fibre.to_bench].arrive(fibre.to_port, weakened(lines, fibre.loss_db))
        return changed

    @contextlib.contextmanager
    def _updating(self) -> Iterator[None]:
        self._is_updating = True
        try:
            yield
        finally:
            self._is_updating = False


def weakened(lines: Sequence[CarriedLight], loss_db: float) -> tuple[CarriedLight, ...]:
    """Return light behind a loss."""
    return tuple(
        CarriedLight(line.origin, line.power_w * 10.0 ** (-loss_db / 10.0), line.wavelength_nm) for line in lines
    )


def _is_same(before: Sequence[CarriedLight], lines: Sequence[CarriedLight]) -> bool:
    return len(before) == len(lines) and all(
        old.origin == new.origin
        and old.wavelength_nm == new.wavelength_nm
        and abs(old.power_w - new.power_w) <= _CHANGE * old.power_w
        for old, new in zip(before, lines, strict=True)
    )
