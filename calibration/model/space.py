"""The parameters of a mesh as one vector, for fits, covariances and bounds.

Joint phases enter only as the combinations that readings can show, and monitor sensitivities are in dB. All else
is as in :class:`calibration.model.parameters.MeshParameters`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.gauge import illuminated_joint_directions
from calibration.model.illuminated_part import illuminated_part
from calibration.model.parameters import MeshParameters
from calibration.model.physics import ROWS, Physics
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS, CalibrationRecord

_PER_PUC = ("passive_phase_rad", "loss_db", "coupler_common_rad", "coupler_difference_rad")
# Groups that the parameters hold as an array with the same name.
_ARRAYS = (*_PER_PUC, "source_db", "heat_factor", "second_db", "source_detuning_hz")
_NUMBERS = ("delay_s", "differential_slope_rad_per_hz", "coupler_slope_rad_per_hz")
LAW_TERMS = ("rho2", "rho4", "rho6")


class ParameterSpace:
    """Layout of the parameter vector.

    Groups, for E PUCs, S sources and M monitors: ``passive_phase_rad``, ``loss_db``, ``coupler_common_rad`` and
    ``coupler_difference_rad`` (E each), ``rho2``, ``rho4`` and ``rho6`` (2E each), ``loops`` (N_loop), ``source_db``
    (S), ``second_db`` (one per source with a second port; missing if there is none), ``monitor_db`` (M), ``crosstalk``
    (3), ``heat_factor`` (2E), ``source_detuning_hz`` (S), ``delay_s``, ``differential_slope_rad_per_hz`` and
    ``coupler_slope_rad_per_hz`` (1 each); then the included groups of :mod:`calibration.model.physics`.

    All methods that take names of groups raise ``ConfigError`` if a group does not exist.

    Args:
        sources: Ports where light enters, in the order of ``MeshParameters.source_db``.
        seconds: Second port of each source with two ports, by its first port, in the order of
            ``MeshParameters.second_db``.
        physics: Additional physical effects.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        sources: tuple[int, ...],
        monitors: tuple[int, ...],
        seconds: Mapping[int, int] | None = None,
        physics: Physics | None = None,
    ) -> None:
        self.mesh, self.sources, self.monitors = mesh, sources, monitors
        self.physics = physics or Physics()
        self.seconds = {port: seconds[port] for port in sources if port in seconds} if seconds else {}
        self.entries = (*sources, *self.seconds.values())
        self.illuminated = illuminated_part(mesh, self.entries, tuple(monitors))
        self.directions, self.n_illuminated_loops = illuminated_joint_directions(mesh, self.entries, tuple(monitors))
        sizes = dict.fromkeys(_PER_PUC, mesh.n_pucs)
        sizes |= dict.fromkeys(LAW_TERMS, 2 * mesh.n_pucs)
        sizes |= {"loops": self.directions.shape[1], "source_db": len(sources)}
        # There is no empty group: without second ports the vector equals that of older records.
        sizes |= {"second_db": len(self.seconds)} if self.seconds else {}
        sizes |= {"monitor_db": len(monitors)}
        sizes |= {"crosstalk": 3, "heat_factor": 2 * mesh.n_pucs, "source_detuning_hz": len(sources)}
        sizes |= dict.fromkeys(_NUMBERS, 1)
        # Extra physics comes last, so that the positions of all other parameters never change.
        sizes |= {name: self.physics.size(name, mesh, len(sources), len(monitors)) for name in self.physics.names}
        ends = np.cumsum(list(sizes.values()))
        self.groups: dict[str, slice] = {
            name: slice(int(end) - size, int(end)) for (name, size), end in zip(sizes.items(), ends, strict=True)
        }
        self.size = int(ends[-1])

    @property
    def plain(self) -> int:
        """Number of parameters without additional effects."""
        first: list[int] = [self.groups[name].start for name in self.physics.names]
        return min(first, default=self.size)

    def affected_by_source(self, number: int) -> NDArray[np.bool_]:
        """Return the parameters on which the light of a source can depend, shape ``(size,)``."""
        is_affected = np.ones(self.size, dtype=np.bool_)
        for name in self.physics.names:
            if ROWS[name].per == "source and monitor":
                is_source = np.arange(len(self.sources)) == number
                is_affected[self.groups[name]] = np.repeat(is_source, len(self.monitors))
        return is_affected

    def pack(self, parameters: MeshParameters) -> Real:
        """Return mesh parameters as a vector, shape ``(size,)``. Unobservable parts of the joint phases are lost."""
        vector = np.empty(self.size)
        for name in (*_ARRAYS, *_NUMBERS):
            vector[self.group(name)] = getattr(parameters, name)
        for term, name in enumerate(LAW_TERMS):
            vector[self.groups[name]] = parameters.heater_law[:, term]
        # Only observable directions are parameters, so no prior is needed for the gauge.
        vector[self.groups["loops"]] = self.directions.T @ parameters.joint_phase_rad
        # Decibels, like losses and sources: readings then depend on sums only, and the gauges are linear.
        vector[self.groups["monitor_db"]] = 10.0 * np.log10(parameters.monitor_ma_per_mw)
        vector[self.groups["crosstalk"]] = parameters.crosstalk_rad_per_mw
        for name in self.physics.names:
            value = parameters.extra_physics.get(name)
            if value is not None and name == "crosstalk_pairs" and self.physics.pairs:
                value = self.physics.pairs.coefficients(value)
            vector[self.groups[name]] = 0.0 if value is None else value
        return vector

    def unpack(self, vector: Real) -> MeshParameters:
        """Return the mesh parameters in a vector."""

        def part(name: str) -> Real:
            return vector[self.group(name)].copy()

        same: dict[str, Any] = {name: part(name) for name in _ARRAYS}
        same |= {name: float(part(name)[0]) for name in _NUMBERS}
        return MeshParameters(
            **same,
            heater_law=np.stack([part(name) for name in LAW_TERMS], axis=1),
            joint_phase_rad=self.directions @ part("loops"),
            monitor_ma_per_mw=10.0 ** (part("monitor_db") / 10.0),
            crosstalk_rad_per_mw=part("crosstalk"),
            extra_physics=self._extra_physics(vector),
        )

    def _extra_physics(self, vector: Real) -> dict[str, Real]:
        fixed_values = dict(self.physics.fixed_values)
        for name in self.physics.names:
            value = vector[self.groups[name]].copy()
            if name == "crosstalk_pairs" and self.physics.pairs:
                value = self.physics.pairs.deviation_rad_per_mw(value)
            fixed_values[name] = value
        return fixed_values

    def vector(self, values: dict[str, float], otherwise: float = 0.0) -> Real:
        """Return a vector with a given value for each listed group, and ``otherwise`` for the others."""
        result = np.full(self.size, otherwise)
        for name, value in values.items():
            result[self.group(name)] = value
        return result

    def mask(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return which elements of the parameter vector belong to the given groups, shape ``(size,)``."""
        chosen = np.zeros(self.size, dtype=np.bool_)
        for name in names:
            chosen[self.group(name)] = True
        return chosen

    def free(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return the parameters of the given groups that a fit can determine, shape ``(size,)``.

        Excluded are parts of the mesh whose light reaches no monitor, coupler angles of cells without couplers, and
        laws of arms without a heater.
        """
        chosen, mesh = self.mask(names), self.mesh
        exists: dict[str, NDArray[np.bool_]] = {
            "passive_phase_rad": mesh.interferes,
            "loss_db": np.ones(mesh.n_pucs, dtype=np.bool_),
            "coupler_common_rad": np.any(mesh.has_coupler, axis=0),
            "coupler_difference_rad": np.all(mesh.has_coupler, axis=0),
            **dict.fromkeys((*LAW_TERMS, "heat_factor"), mesh.has_heater),
        }
        for name, elements in exists.items():
            chosen[self.groups[name]] &= elements & np.repeat(self.illuminated.pucs, len(elements) // self.mesh.n_pucs)
        chosen[self.groups["loops"].start + self.n_illuminated_loops : self.groups["loops"].stop] = False
        return chosen

    def group(self, name: str) -> slice:
        """Return the slice of a parameter group in the vector; empty for ``second_db`` without second ports."""
        if name == "second_db" and not self.seconds:
            return slice(0, 0)
        if name not in self.groups:
            raise ConfigError(f"there is no parameter group {name!r}", hint="Groups: " + ", ".join(self.groups))
        return self.groups[name]

    def describe(self, index: int) -> str:
        """Return the name of one parameter, such as ``rho4 of PUC 3 lower arm``."""
        for name, where in self.groups.items():
            if where.start <= index < where.stop:
                return f"{name} {self._element(name, index - where.start)}".strip()
        raise IndexError(f"parameter {index} does not exist; there are {self.size}, numbered from 0")

    def _ports_of(self, name: str) -> tuple[int, ...]:
        if name == "second_db":
            return tuple(self.seconds.values())
        if name.startswith("source"):
            return self.sources
        return self.monitors if name in ("monitor_db", "compression_per_ma", "offset_ma") else ()

    def _element(self, name: str, number: int) -> str:
        if name in _PER_PUC or name == "arm_difference_db":
            return f"of PUC {number}"
        if name in (*LAW_TERMS, "heat_factor"):
            return f"of PUC {number // 2} {('upper', 'lower')[number % 2]} arm"
        if ports := self._ports_of(name):
            return f"at port {ports[number]}"
        if name == "crosstalk":
            return ("amplitude", "decay length", "floor")[number]
        return "" if name in _NUMBERS else str(number)


def space_from_record(record: CalibrationRecord) -> ParameterSpace:
    """Return the layout of the parameters of a calibration record."""
    entries = [entry for entry in record.ports if entry.source_dbm is not None]
    sources = tuple(entry.port for entry in entries if entry.lit_with is None)
    seconds = {entry.lit_with: entry.port for entry in entries if entry.lit_with is not None}
    return ParameterSpace(record.mesh, sources, record.monitor_ports, seconds, physics_of(record))


def physics_of(record: CalibrationRecord) -> Physics:
    """Return the additional effects in a record, with pair crosstalk fixed."""
    widths = {entry.name: entry.width for entry in record.physics if entry.name in ROWS}
    fixed_values = record.extra_physics
    if widths.pop(CROSSTALK_PAIRS, None) is None:
        return Physics(widths)
    return Physics(widths, fixed_values={CROSSTALK_PAIRS: fixed_values[CROSSTALK_PAIRS]})
