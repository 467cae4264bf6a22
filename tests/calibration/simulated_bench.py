"""A simulated mesh as a bench: what the stages of a calibration measure on, with faults to be found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import LimitError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.waves.scattering import Solver
from tests.calibration.simulated_mesh import FLOOR_MA, REFERENCE_HZ, RELATIVE, RESPONSIVITY_MA_PER_MW, SimulatedMesh

MAX_MA = 2.5
FULL_SCALE_MA = 10.0


@dataclass
class SimulatedBench:
    """Access to a simulated mesh, direct and without wires.

    Attributes:
        simulated: The mesh; light of 0 dBm ± 1 dB enters at every lit port.
        sources: Ports where light can be injected.
        dead_sources: Those that stay dark all the same.
        dead_monitors: Ports whose monitors see nothing.
        full_scale_ma: By port, where a monitor saturates.
        dark_ma: By port, what a monitor reads without light.
        swapped: Pairs of heaters whose channels are exchanged.
        source_common_rad: By source, the phase its wavelength adds to every PUC.
        tuning_range_hz: Lowest and highest frequency of sources that can be tuned.
        frequency_error_hz: By source, how far its light is from what it says.
        now_hz: By source, what it says; 1550 nm at first.
    """

    simulated: SimulatedMesh
    sources: tuple[int, ...]
    dead_sources: set[int] = field(default_factory=set)
    dead_monitors: set[int] = field(default_factory=set)
    full_scale_ma: dict[int, float] = field(default_factory=dict)
    dark_ma: dict[int, float] = field(default_factory=dict)
    swapped: list[tuple[int, int]] = field(default_factory=list)
    source_common_rad: dict[int, float] = field(default_factory=dict)
    heater_max_ma: float = MAX_MA
    monitor_step_ma: float = 1e-9
    current_step_ma: float = 0.0
    tuning_range_hz: tuple[float, float] | None = None
    frequency_error_hz: dict[int, float] = field(default_factory=dict)
    now_hz: dict[int, float] = field(default_factory=dict)
    lit: int | None = None
    is_safe: bool = False
    second_ports: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._solver = Solver(self.simulated.mesh)

    @classmethod
    def draw(cls, mesh: MeshTopology, seed: int, sources: tuple[int, ...] | None = None) -> SimulatedBench:
        """Draw a bench; every fibre port is a source unless told otherwise."""
        return cls(SimulatedMesh.draw(mesh, seed), mesh.fibre_ports if sources is None else sources)

    @property
    def mesh(self) -> MeshTopology:
        return self.simulated.mesh

    @property
    def monitors(self) -> tuple[int, ...]:
        return self.simulated.ports

    def light_only_port(self, port: int | None) -> None:
        self.lit, self.is_safe = port, False

    def tunable_hz(self, port: int) -> tuple[float, float] | None:
        return self.tuning_range_hz

    def tune(self, port: int, frequency_hz: float) -> float:
        low_hz, high_hz = self.tuning_range_hz or (0.0, 0.0)
        if not low_hz <= frequency_hz <= high_hz:
            raise LimitError("frequency", requested=frequency_hz, limit=high_hz, unit="Hz")
        self.now_hz[port] = frequency_hz
        return frequency_hz

    def detuning_hz(self, port: int) -> float:
        """How far the light of a source is from 1550 nm."""
        return self.now_hz.get(port, REFERENCE_HZ) - REFERENCE_HZ + self.frequency_error_hz.get(port, 0.0)

    def launched_dbm(self, port: int) -> float:
        return 6.85

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        driven = currents_ma.copy()
        for one, other in self.swapped:
            driven[[one, other]] = currents_ma[[other, one]]
        exact = np.zeros(len(self.monitors))
        if self.lit is not None and self.lit not in self.dead_sources:
            exact = self._exact_ma(driven, self.lit)
        noise = np.hypot(RELATIVE * exact, FLOOR_MA) * self.simulated.rng.standard_normal(len(exact))
        reading = exact + noise + [self.dark_ma.get(port, 0.0) for port in self.monitors]
        for index, port in enumerate(self.monitors):
            if port in self.dead_monitors:
                reading[index] = 0.0
            if reading[index] >= self.full_scale_ma.get(port, FULL_SCALE_MA):
                reading[index] = np.nan
        return np.where(np.isnan(reading), np.nan, np.maximum(reading, 0.0))

    def measure_batch(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([self.measure(setting) for setting in currents_ma]).reshape(-1, len(self.monitors))

    def _exact_ma(self, currents_ma: NDArray[np.float64], source: int) -> NDArray[np.float64]:
        """As ``SimulatedMesh.exact_ma``, with one solver for all settings."""
        cells = self.simulated.detuned_cells(currents_ma[None], self.detuning_hz(source))
        common = self.source_common_rad.get(source, 0.0)
        cells = replace(cells, phase_upper=cells.phase_upper + common, phase_lower=cells.phase_lower + common)
        ports = np.array(self.monitors)
        power = np.abs(self._solver.solve(cells, cells.reference_hz, [source])[0, ports, 0]) ** 2
        entering_mw = 10.0 ** (self.simulated.source_db[source] / 10.0)
        exact: NDArray[np.float64] = (
            RESPONSIVITY_MA_PER_MW * entering_mw * power * self.simulated.truth.monitor_scale[ports]
        )
        return exact

    measures_resistances = False

    def heater_resistances_ohm(self) -> NDArray[np.float64]:
        return np.full(2 * self.mesh.n_pucs, np.nan)

    def fibre_dbm(self) -> dict[int, float]:
        return {}

    def elapsed_s(self) -> float:
        return 0.0

    def rest(self, duration_s: float) -> None:
        pass

    def switch_everything_off(self) -> None:
        self.lit, self.is_safe = None, True
