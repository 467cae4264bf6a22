"""Model of a mesh: predicted photocurrents for every setting, and derivatives by every parameter.

:class:`~calibration.model.heating.Heating` calculates phases from heater currents, and :class:`MeshModel` photocurrents
from phases. All derivatives follow from one solution of the wave equations (docs/calibration.md, 2).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from calibration.model.heating import Heated, Heating, Slopes
from calibration.model.observations import Observations
from calibration.model.parameters import MeshParameters
from calibration.model.physics import LEFT_BY_LAW_TERMS, Physics
from calibration.model.response import DETECTOR_ROWS, Response
from calibration.model.space import ParameterSpace
from calibration.model.work import REWEIGHT_WORK, SLOPE_WORK, FitWork, derivatives_work, pairs_work
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS
from lumion_hw.mesh.waves.cell import UnitCells, excess_phase_rad, with_heat_loss, with_turned_couplers
from lumion_hw.mesh.waves.scattering import Solver

Complex = NDArray[np.complex128]
Waves = NDArray[np.complexfloating[Any, Any]]

REFERENCE_HZ = 193.4145e12
"""1550 nm."""
BATCH = 16
"""Number of settings calculated at once, so that the derivatives fit the caches."""

# Settings per matrix product over all directions of pairs; the directions do not fit into a cache.
_PAIRS_AT_ONCE = 4 * BATCH
_STEP_RAD = 1e-4
_NEPER_PER_DB = math.log(10.0) / 20.0
_LN10_PER_10 = math.log(10.0) / 10.0


@dataclass(frozen=True, eq=False)
class Linearised:
    """Linear model of the readings around a parameter point.

    Attributes:
        settings: Indices of the settings.
        reading_ma: Shape ``(settings, monitors)``; predicted readings.
        jacobian: Shape ``(settings, monitors, size)``; derivatives by all parameters.
    """

    settings: slice
    reading_ma: Real
    jacobian: Slopes


@dataclass(frozen=True, eq=False)
class _SettingLight:
    """Light of n settings from their sources, and adjoint light from all monitors.

    Attributes:
        number: Shape ``(n,)``; index of the source.
        detuning_hz: Shape ``(n, 1)``; frequency of the light minus the reference.
        elements: Shape ``(puc_ports, n)``; elements of the PUC transfer matrices T.
        joints: Shape ``(n, 1, joints)``; transmission of the waveguide joints.
        entering: Shape ``(n, 1, puc_ports)``; waves that enter every PUC.
        linear: Shape ``(n, monitors)``; photocurrents proportional to the light.
        waves: Shape ``(n, puc_ports, k)``; waves that enter every PUC for unit light at k ports.
        monitors: Shape ``(monitors,)``; positions of the monitors among the k ports of ``waves``.
        by_field: Shape ``(n, monitors)``; 2·scale·S* with the field S, the factor of the adjoint light of a monitor.
    """

    number: NDArray[np.int64]
    detuning_hz: Real
    cells: UnitCells
    elements: Complex
    joints: Complex
    heated: Heated
    entering: Complex
    linear: Real
    waves: Complex
    monitors: NDArray[np.int64]
    by_field: Complex

    def adjoint(self, *, precise: bool) -> Waves:
        """Return the adjoint light of every monitor, ``(settings, monitors, puc_ports)``."""
        kind = np.complex128 if precise else np.complex64
        every: Waves = np.ascontiguousarray(np.moveaxis(self.waves.astype(kind), 2, 1))[:, self.monitors]
        every *= self.by_field[..., None].astype(kind)
        return every

    def together(self, weight: Real) -> Complex:
        """Return the weighted sum of the adjoint light of all monitors, ``(settings, 1, puc_ports)``."""
        amount = np.zeros((len(weight), self.waves.shape[2], 1), dtype=np.complex128)
        amount[:, self.monitors, 0] = weight * self.by_field
        return np.moveaxis(self.waves @ amount, 2, 1)


class MeshModel:
    """Predicts the photocurrents of a mesh.

    Methods that take observations raise ``ConfigError`` if a source port is not in the model, or if monitors differ.

    Args:
        mesh: The mesh.
        sources: Ports of the light, in the order of ``MeshParameters.source_db``.
        monitors: Port of every monitor.
        seconds: Second ports of sources; monitors read the sum of both powers.
        heater_ohm: Nominal resistance of a heater.
        channels: Drive channel of every heater; by default channel k drives heater k.
        reference_hz: Frequency at which phases are given.
        compiled: Whether to use the compiled solver; by default if it is available.
        physics: Additional physical effects.
        work: Counter of predictions.
        precise: Whether derivatives are in double precision. Single precision is twice as fast, but makes unobservable
            parameters look observable by some 1e-9 of the usual information.

    Attributes:
        space: Layout of the parameter vector.
        work: Counter of predictions.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        sources: tuple[int, ...],
        monitors: tuple[int, ...],
        heater_ohm: float = 1000.0,
        *,
        seconds: Mapping[int, int] | None = None,
        channels: Sequence[int] | None = None,
        reference_hz: float = REFERENCE_HZ,
        compiled: bool | None = None,
        physics: Physics | None = None,
        work: FitWork | None = None,
        precise: bool = False,
    ) -> None:
        self.mesh, self.work, self._precise = mesh, work or FitWork(), precise
        self.space = ParameterSpace(mesh, sources, monitors, seconds, physics)
        self.heating = Heating(mesh, heater_ohm, channels)
        self._reference_hz, self._has_coupler = reference_hz, mesh.has_coupler
        self._solver = Solver(mesh, compiled=compiled)
        self._monitors = np.array(monitors, dtype=np.int64)
        self._source_number = np.full(mesh.n_ports, -1, dtype=np.int64)
        self._source_number[list(sources)] = np.arange(len(sources))
        self._source_ports = np.array(sources, dtype=np.int64)
        self._second_ports = np.array([self.space.seconds.get(port, port) for port in sources], dtype=np.int64)
        numbers = {port: number for number, port in enumerate(self.space.seconds)}
        self._second_number = np.array([numbers.get(port, -1) for port in sources], dtype=np.int64)
        # A model of the same mesh and light, with other monitors, effects or precision.
        self._with = functools.partial(
            MeshModel, mesh, sources, heater_ohm=heater_ohm, seconds=seconds, channels=channels,
            reference_hz=reference_hz, compiled=compiled, work=self.work,
        )  # fmt: skip

    def with_physics(self, physics: Physics) -> MeshModel:
        """Return a model of the same mesh and light with other additional physical effects."""
        return self._with(self.space.monitors, physics=physics, precise=self._precise)

    def with_double_precision(self) -> MeshModel:
        """Return the same model with derivatives in double precision, to test which parameters are observable."""
        return self._with(self.space.monitors, physics=self.space.physics, precise=True)

    def with_monitors(self, monitors: tuple[int, ...]) -> MeshModel:
        """Return a model of the same mesh and light with monitors at other ports."""
        return self._with(monitors, physics=self.space.physics, precise=self._precise)

    def by_waveguides(self, parameters: MeshParameters, observations: Observations) -> tuple[Slopes, Real]:
        """Return derivatives of readings by waveguide phases, and the heat of every heater, in N settings.

        Shapes are ``(N, M, 2E + J)`` for M monitors, 2E arms and J joints, and ``(N, 2E)``.
        """
        number = self._sources_of(observations)
        self.work.spent += derivatives_work(0) * len(observations) * len(self._monitors)
        lights = self._lights(parameters, observations, number)
        by_phase = [self._by_phase(light, light.adjoint(precise=self._precise)) for light in lights]
        columns: Slopes = functools.reduce(np.add, map(self._by_waveguide, lights, by_phase))
        return self._response(parameters, lights).reading_slopes(columns), lights[0].heated.heat_mw

    def unmodelled_ma2(self, parameters: MeshParameters, observations: Observations) -> Real | None:
        """Return the variance of readings due to effects that are not fitted, ``(settings, monitors)``.

        These are the crosstalk of single heaters to single waveguides, deviations of heater laws from three terms, and
        heaters that changed during the run. ``None`` if the model includes none of them.
        """
        physics = self.space.physics
        if (pairs := physics.pairs) is None and not physics.law_deviation and not physics.unsteady:
            return None
        variance = np.empty((len(observations), len(self._monitors)))
        heaters, waveguides = 2 * self.mesh.n_pucs, 2 * self.mesh.n_pucs + len(self.mesh.joints)
        self.work.spent += REWEIGHT_WORK * pairs_work(heaters, waveguides, len(self._monitors), 0) * variance.size
        heated = self.heating.phases(parameters, observations.currents_ma)
        # The part common to all settings is absorbed by the passive phases.
        heat_mw = heated.heat_mw - heated.heat_mw.mean(axis=0)
        share = np.full(heaters, LEFT_BY_LAW_TERMS * physics.law_deviation)
        share[list(physics.unsteady)] = list(physics.unsteady.values())
        own2 = (share * heated.own_rad) ** 2
        for first in range(0, len(observations), _PAIRS_AT_ONCE):
            part = slice(first, first + _PAIRS_AT_ONCE)
            by_waveguide, _ = self.by_waveguides(parameters, observations[part])
            variance[part] = (by_waveguide[..., :heaters] ** 2 @ own2[part, :, None])[..., 0]
            if pairs is not None:
                unfitted = pairs.unfitted_variance(by_waveguide, heat_mw[part])
                variance[part] += physics.widths[CROSSTALK_PAIRS] ** 2 * unfitted
        return variance

    def predict(self, parameters: MeshParameters, observations: Observations) -> Real:
        """Return predicted readings in mA, shape ``(settings, monitors)``."""
        number = self._sources_of(observations)
        reading = np.empty((len(observations), len(self._monitors)))
        self.work.spent += reading.size
        # Settings of one source need one right-hand side each instead of one per source.
        for source in np.unique(number):
            chosen = np.flatnonzero(number == source)
            part = observations[chosen]
            cells, _ = self._cells(parameters, part, number[chosen])
            ports = [self.space.sources[source]]
            ports += [self.space.seconds[port] for port in ports if port in self.space.seconds]
            field = self._solver.solve(cells, cells.reference_hz, ports)[:, self._monitors]
            shares = self._shares(parameters, number[chosen])
            power = sum(np.abs(field[..., nth]) ** 2 * shares[nth] for nth in range(len(ports)))
            full = self._scale(parameters, number[chosen])
            reading[chosen] = Response.of(parameters.extra_physics, power * full, number[chosen], full).reading_ma
        return reading

    def linearise(self, parameters: MeshParameters, observations: Observations) -> Iterator[Linearised]:
        """Yield predicted readings and derivatives, :data:`BATCH` settings at a time."""
        number, pairs = self._sources_of(observations), self.space.physics.pairs
        for first in range(0, len(observations), BATCH):
            part = slice(first, min(first + BATCH, len(observations)))
            if pairs and first % _PAIRS_AT_ONCE == 0:
                some = observations[first : first + _PAIRS_AT_ONCE]
                by_pair = pairs.phases(self.heating.phases(parameters, some.currents_ma, some.late).heat_mw)
            begin = first % _PAIRS_AT_ONCE
            own = by_pair[begin : begin + BATCH] if pairs else None
            yield self._linearised(parameters, observations[part], number[part], part, own)

    def by_common_phase(self, parameters: MeshParameters, observations: Observations) -> Real:
        """Return the derivatives of all readings by a phase common to all PUCs, shape ``(settings, monitors)``."""
        # A frequency change is a phase 2πτ·δf common to all PUCs. Two predictions are faster than all derivatives.
        step_hz = _STEP_RAD / (2.0 * np.pi * parameters.delay_s)
        forward, behind = (
            self.predict(parameters, replace(observations, detuning_hz=observations.detunings_hz + shift_hz))
            for shift_hz in (step_hz, -step_hz)
        )
        return (forward - behind) / (2.0 * _STEP_RAD)

    def _sources_of(self, observations: Observations) -> NDArray[np.int64]:
        number = self._source_number[observations.source]
        if (number < 0).any() or observations.monitors != self.space.monitors:
            raise ConfigError(
                f"the observations use sources {sorted(set(observations.source.tolist()))} and monitors "
                f"{observations.monitors}, which do not match this model",
                hint=f"The model has sources {self.space.sources} and monitors {self.space.monitors}.",
            )
        return number

    def _scale(self, parameters: MeshParameters, number: NDArray[np.int64]) -> Real:
        launched_mw = 10.0 ** (parameters.source_db[number] / 10.0)
        return launched_mw[:, None] * parameters.monitor_ma_per_mw

    def _shares(self, parameters: MeshParameters, number: NDArray[np.int64]) -> list[Real]:
        first = np.ones((len(number), 1))
        if not self.space.seconds:
            return [first]
        ratio = 10.0 ** (parameters.second_db / 10.0)
        second = self._second_number[number]
        return [first, np.where(second >= 0, ratio[second], 0.0)[:, None]]

    def _detuning_hz(self, parameters: MeshParameters, part: Observations, number: NDArray[np.int64]) -> Real:
        own = np.broadcast_to(np.asarray(parameters.source_detuning_hz), len(self.space.sources))
        detuning: Real = (part.detunings_hz + own[number])[:, None]
        return detuning

    def _cells(
        self, parameters: MeshParameters, part: Observations, number: NDArray[np.int64]
    ) -> tuple[UnitCells, Heated]:
        heated = self.heating.phases(parameters, part.currents_ma, part.late)
        detuning = self._detuning_hz(parameters, part, number)
        common = 2.0 * np.pi * parameters.delay_s * detuning
        half = 0.5 * parameters.differential_slope_rad_per_hz * detuning
        first, second = self._couplers(parameters, detuning)
        # Heat changes an optical path length, so its phase is proportional to the frequency of the light.
        turns = 1.0 + detuning / self._reference_hz
        cells = UnitCells(
            loss_db=parameters.loss_db,
            eta_in=np.sin(first) ** 2,
            eta_out=np.sin(second) ** 2,
            phase_upper=turns * heated.arm_rad[:, 0::2] + parameters.passive_phase_rad + common + half,
            phase_lower=turns * heated.arm_rad[:, 1::2] + common - half,
            joint_phase=turns * heated.joint_rad + parameters.joint_phase_rad,
            arm_difference_db=parameters.extra_physics.get("arm_difference_db", 0.0),
            joint_reflection=_amplitudes(parameters.extra_physics.get("joint_reflection")),
            facet_reflection=_amplitudes(parameters.extra_physics.get("facet_reflection")),
        )
        if (per_mw := parameters.extra_physics.get("heat_loss_db_per_mw")) is not None:
            cells = with_heat_loss(cells, heated.heat_mw * per_mw)
        if (per_rad := parameters.extra_physics.get("coupler_rad_per_rad")) is not None:
            turned_rad = self._warmth_rad(parameters, heated) * per_rad
            cells = with_turned_couplers(cells, turned_rad, self._has_coupler)
        return cells, heated

    def _warmth_rad(self, parameters: MeshParameters, heated: Heated) -> Real:
        """Return the thermal phase that changes the couplers of each PUC, shape ``(settings, pucs)``."""
        return excess_phase_rad(heated.own_rad, parameters.heater_law[:, 0] != 0.0)

    def _couplers(self, parameters: MeshParameters, detuning_hz: Real) -> tuple[Real, Real]:
        """Return the coupler angles at ends A and B, shape ``(pucs,)`` or ``(settings, pucs)``."""
        common, half = parameters.coupler_common_rad, 0.5 * parameters.coupler_difference_rad
        first, second = self.mesh.coupler_angles_rad[0] + common + half, self.mesh.coupler_angles_rad[1] + common - half
        if parameters.coupler_slope_rad_per_hz:
            moved = parameters.coupler_slope_rad_per_hz * detuning_hz
            first, second = first + moved * self._has_coupler[0], second + moved * self._has_coupler[1]
        return first, second

    def slope(self, parameters: MeshParameters, observations: Observations, weight: Real) -> Real:
        """Return the derivatives, ``(size,)``, of a sum of all readings with weights ``(settings, monitors)``.

        This is faster than a weighted sum over :meth:`linearise`.
        """
        number = self._sources_of(observations)
        total, pairs = np.zeros(self.space.size), self.space.physics.pairs
        by_pair = np.zeros((2 * self.mesh.n_pucs + len(self.mesh.joints), 2 * self.mesh.n_pucs))
        self.work.spent += SLOPE_WORK * weight.size * (2 if pairs else 1)
        for first in range(0, len(observations), BATCH):
            part = slice(first, first + BATCH)
            lights = self._lights(parameters, observations[part], number[part])
            response = self._response(parameters, lights)
            light_weights = response.light_weights(weight[part])
            for nth, light in enumerate(lights):
                adjoint = light.together(light_weights)
                by_phase = self._by_phase(light, adjoint)
                total += self._by_parameter(parameters, light, by_phase).sum(axis=(0, 1))
                if pairs:
                    by_pair += self._by_waveguide(light, by_phase)[:, 0].T @ light.heated.heat_mw
                for name, sent in self._by_reflection(light, adjoint):
                    total[self.space.groups[name]] += sent.sum(axis=(0, 1))
                per_db = _LN10_PER_10 * light_weights * light.linear
                for levels, rows in self._levels(light.number, nth):
                    np.add.at(total, levels, per_db[rows].sum(axis=1))
            before = response.light_ma / response.ripple
            total[self.space.groups["monitor_db"]] += (_LN10_PER_10 * light_weights * before).sum(axis=0)
            past = before - sum(light.linear for light in lights)
            sources = self.space.groups["source_db"].start + number[part]
            np.add.at(total, sources, (_LN10_PER_10 * light_weights * past).sum(axis=1))
            for name, columns in self._by_detector(parameters, response, number[part]):
                total[self.space.groups[name]] += np.einsum("nm,nmp->p", weight[part], columns)
        if pairs:
            total[self.space.groups["crosstalk_pairs"]] = pairs.summed(by_pair)
        return total

    # -- derivatives --------------------------------------------------------------------------------------------------

    def _lights(self, parameters: MeshParameters, part: Observations, number: NDArray[np.int64]) -> list[_SettingLight]:
        cells, heated = self._cells(parameters, part, number)
        elements, factors, _ = self._solver.coefficients(cells, cells.reference_hz)
        # Without second ports the second light is omitted, so that results of such benches are bit-identical.
        entries = [self._source_ports[number], self._second_ports[number]][: 2 if self.space.seconds else 1]
        ports, inverse = np.unique(np.concatenate([self._monitors, *entries]), return_inverse=True)
        all_entries = np.arange(4 * self.mesh.n_pucs)
        # The mesh is reciprocal: light sent in at a monitor is the adjoint of its reading. One solution for all ports
        # gives all derivatives, 28 readings by 1006 parameters in 0.7 ms (docs/decisions/0006).
        waves = self._solver.entering(elements, factors, self.mesh.port_puc_port[ports], all_entries)
        monitors, *places = np.split(inverse, len(self._monitors) + len(part) * np.arange(len(entries)))
        scale, lights = self._scale(parameters, number), []
        joints = np.broadcast_to(factors[: len(self.mesh.joints)].T, (len(part), len(self.mesh.joints)))[:, None]
        for place, share in zip(places, self._shares(parameters, number), strict=True):
            light = waves[np.arange(len(part)), :, place]
            feeding = light[:, self._solver.port_feeds, None]
            field = self._solver.leaving(elements, feeding)[:, self._monitors, 0]
            lights.append(
                _SettingLight(
                    number=number,
                    detuning_hz=self._detuning_hz(parameters, part, number),
                    cells=cells,
                    elements=elements,
                    joints=joints,
                    heated=heated,
                    entering=light[:, None],
                    linear=np.abs(field) ** 2 * (scale * share),
                    waves=waves,
                    monitors=monitors,
                    by_field=2.0 * (scale * share) * field.conj(),
                )
            )
        return lights

    def _response(self, parameters: MeshParameters, lights: list[_SettingLight]) -> Response:
        """Return the photocurrents and their derivatives, summed over light that does not interfere."""
        linear = functools.reduce(np.add, [light.linear for light in lights])
        number = lights[0].number
        return Response.of(parameters.extra_physics, linear, number, self._scale(parameters, number))

    def _by_detector(
        self, parameters: MeshParameters, response: Response, number: NDArray[np.int64]
    ) -> Iterator[tuple[str, Real]]:
        """Yield derivatives of readings by detector parameters, by group, each ``(settings, monitors, size)``."""
        for name in self.space.physics.names:
            if name in DETECTOR_ROWS:
                full = self._scale(parameters, number)
                yield name, response.columns(name, number, full, len(self.space.sources))

    def _levels(self, number: NDArray[np.int64], nth: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each parameter for the power at a port, with the settings that depend on it."""
        yield self.space.groups["source_db"].start + number, np.arange(len(number))
        if nth:
            rows = np.flatnonzero(self._second_number[number] >= 0)
            yield self.space.groups["second_db"].start + self._second_number[number][rows], rows

    def _linearised(
        self,
        parameters: MeshParameters,
        part: Observations,
        number: NDArray[np.int64],
        settings: slice,
        by_pair: Single | None,
    ) -> Linearised:
        monitors = np.arange(len(self._monitors))
        parts: list[Slopes] = []
        lights = self._lights(parameters, part, number)
        self.work.spent += derivatives_work(self.space.size) * len(part) * len(monitors)
        for nth, light in enumerate(lights):
            adjoint = light.adjoint(precise=self._precise)
            by_phase = self._by_phase(light, adjoint)
            jacobian = self._by_parameter(parameters, light, by_phase)
            if by_pair is not None:
                by_waveguide = self._by_waveguide(light, by_phase)
                jacobian[..., self.space.groups["crosstalk_pairs"]] = by_waveguide @ by_pair
            per_db = _LN10_PER_10 * light.linear
            for levels, rows in self._levels(light.number, nth):
                jacobian[rows, :, levels] = per_db[rows]
            for name, sent in self._by_reflection(light, adjoint):
                jacobian[..., self.space.groups[name]] = sent
            parts.append(jacobian)
        jacobian, response = functools.reduce(np.add, parts), self._response(parameters, lights)
        before = response.light_ma / response.ripple
        jacobian[:, monitors, self.space.groups["monitor_db"].start + monitors] = _LN10_PER_10 * before
        if "background_share" in parameters.extra_physics:
            linear = functools.reduce(np.add, [light.linear for light in lights])
            past = before - linear
            jacobian[np.arange(len(number)), :, self.space.groups["source_db"].start + number] += _LN10_PER_10 * past
        if any(name in parameters.extra_physics for name in DETECTOR_ROWS):
            jacobian = response.reading_slopes(jacobian)
        for name, columns in self._by_detector(parameters, response, number):
            jacobian[..., self.space.groups[name]] = columns
        return Linearised(settings, response.reading_ma, jacobian)

    def _by_phase(self, light: _SettingLight, adjoint: Waves) -> dict[str, Slopes]:
        """Return derivatives of K numbers per setting by arm and joint phases, coupler angles and losses.

        The shapes are ``(settings, K, E)`` for E PUCs and ``(settings, K, J)`` for J joints. The adjoint light,
        ``(settings, K, 4E)``, contains the factor 2·scale·S* with the field S.
        """
        cells, entering = light.cells, light.entering.astype(adjoint.dtype)
        (a_u, a_l), (b_u, b_l) = _between_couplers(cells, entering)  # light arriving at end A and at end B
        (p_u, p_l), (q_u, q_l) = _between_couplers(cells, adjoint)
        half = 0.5 * np.asarray(cells.arm_difference_db)
        arms = (cells.loss_db + half, cells.phase_upper), (cells.loss_db - half, cells.phase_lower)
        upper, lower = (
            (10.0 ** (-loss_db / 20.0) * np.exp(-1j * phase))[:, None].astype(adjoint.dtype) for loss_db, phase in arms
        )
        # Upper and lower arm; a came in by end A and leaves by end B, b the other way.
        ua, ub, la, lb = upper * a_u, upper * b_u, lower * a_l, lower * b_l
        through_u, through_l = q_u * ua + p_u * ub, q_l * la + p_l * lb
        first = q_u * (upper * a_l) + p_l * ub + q_l * (lower * a_u) + p_u * lb
        second = q_l * ua + p_u * (upper * b_l) + q_u * la + p_l * (lower * b_u)
        u, v = self.mesh.joints.T
        # All light out of a joint has the phase of the joint, including reflected light.
        one, other = self._into_joints(light, adjoint)
        joint = one * entering[..., u] + other * entering[..., v]
        arm = np.stack([through_u.imag, through_l.imag], axis=-1)
        return {
            "arm": arm.reshape(*arm.shape[:2], -1),
            "joint": joint.imag,
            "first": first.imag,
            "second": second.imag,
            "loss_db": -_NEPER_PER_DB * (through_u + through_l).real,
            "arm_difference_db": -0.5 * _NEPER_PER_DB * (through_u - through_l).real,
        }

    def _into_joints(self, light: _SettingLight, waves: Waves) -> tuple[Waves, Waves]:
        joints = light.joints.astype(waves.dtype)
        first_end, other = (waves[..., ends] / joints for ends in self.mesh.joints.T)
        if (sent := light.cells.joint_reflection) is None:
            return other, first_end
        # The wave out of one end is the wave into the other end plus the reflection at this end.
        first, second = np.split(sent.astype(waves.dtype), 2)
        both = 1.0 - first * second
        return (other - second * first_end) / both, (first_end - first * other) / both

    def _by_reflection(self, light: _SettingLight, adjoint: Waves) -> Iterator[tuple[str, Slopes]]:
        """Yield derivatives, ``(settings, K, size)``, by real and imaginary parts of reflections."""
        names, entering = self.space.physics.names, light.entering.astype(adjoint.dtype)
        if "facet_reflection" in names:
            fed = (waves[..., self._solver.port_feeds].astype(np.complex128) for waves in (entering, adjoint))
            incoming, outgoing = (
                np.moveaxis(self._solver.leaving(light.elements, np.moveaxis(waves, 1, 2)), 2, 1) for waves in fed
            )
            yield "facet_reflection", _parts(incoming * outgoing)
        if "joint_reflection" in names:
            ends = zip(self._into_joints(light, entering), self._into_joints(light, adjoint), strict=True)
            first, second = (incoming * outgoing * light.joints.astype(adjoint.dtype) for incoming, outgoing in ends)
            yield "joint_reflection", _parts(np.concatenate([first, second], axis=-1))

    def _by_waveguide(self, light: _SettingLight, by_phase: dict[str, Slopes]) -> Slopes:
        """Return derivatives of K numbers by thermal phases of waveguides, ``(settings, K, waveguides)``."""
        by_waveguide: Slopes = np.concatenate([by_phase["arm"], by_phase["joint"]], axis=-1)
        by_waveguide *= (1.0 + light.detuning_hz / self._reference_hz)[:, None].astype(by_waveguide.dtype)
        return by_waveguide

    def _by_physics(self, by_phase: dict[str, Slopes], heated: Heated) -> dict[str, Slopes]:
        names, slopes = self.space.physics.names, dict[str, Slopes]()
        if "arm_difference_db" in names:
            slopes["arm_difference_db"] = by_phase["arm_difference_db"]
        if "heat_loss_db_per_mw" in names:
            mean, difference = by_phase["loss_db"], by_phase["arm_difference_db"]
            by_upper, by_lower = 0.5 * mean + difference, 0.5 * mean - difference
            heat_mw = heated.heat_mw[:, None].astype(mean.dtype)
            upper, lower = heat_mw[..., 0::2], heat_mw[..., 1::2]
            slopes["heat_loss_db_per_mw"] = (by_upper * upper + by_lower * lower).sum(axis=-1, keepdims=True)
        return slopes

    def _by_parameter(self, parameters: MeshParameters, light: _SettingLight, by_phase: dict[str, Slopes]) -> Slopes:
        """Return derivatives of K numbers by all parameters, ``(settings, K, size)``; 0 for power levels."""
        space, heated, detuning = self.space, light.heated, light.detuning_hz
        arm, joint, first, second = (by_phase[name] for name in ("arm", "joint", "first", "second"))
        jacobian = np.zeros((*arm.shape[:2], space.size), arm.dtype)
        turns = (1.0 + detuning / self._reference_hz)[:, None].astype(arm.dtype)
        columns = self.heating.chain(parameters, heated, arm * turns, joint * turns)
        columns["passive_phase_rad"] = arm[..., 0::2]
        columns["loss_db"] = by_phase["loss_db"]
        if not self._has_coupler.all():
            first, second = first * self._has_coupler[0], second * self._has_coupler[1]
        columns["coupler_common_rad"] = first + second
        columns["coupler_difference_rad"] = 0.5 * (first - second)
        columns["loops"] = joint @ space.directions.astype(arm.dtype)
        columns |= self._by_physics(by_phase, heated)
        if "coupler_rad_per_rad" in space.physics.names:
            warmth_rad = self._warmth_rad(parameters, heated)[:, None].astype(arm.dtype)
            by_warmth = columns["coupler_common_rad"] * warmth_rad
            columns["coupler_rad_per_rad"] = by_warmth.sum(axis=-1, keepdims=True)
        columns |= self.heating.by_rows(space.physics.names, parameters, heated, arm * turns, joint * turns)
        for name, values in columns.items():
            jacobian[..., space.groups[name]] = values
        # The frequency of a source acts through the delay, both slopes, and the thermal path change.
        source = space.groups["source_detuning_hz"].start + light.number
        settings = np.arange(len(source))
        by_common = 2.0 * np.pi * arm.sum(axis=-1)
        by_difference = 0.5 * (arm[..., 0::2] - arm[..., 1::2]).sum(axis=-1)
        by_coupler = columns["coupler_common_rad"].sum(axis=-1)
        for name, values, slope in (
            ("delay_s", by_common, parameters.delay_s),
            ("differential_slope_rad_per_hz", by_difference, parameters.differential_slope_rad_per_hz),
            ("coupler_slope_rad_per_hz", by_coupler, parameters.coupler_slope_rad_per_hz),
        ):
            jacobian[..., space.groups[name].start] = values * detuning
            jacobian[settings, :, source] += values * slope
        own, joined = (turned[..., None].astype(arm.dtype) for turned in (heated.arm_rad, heated.joint_rad))
        by_turns = (arm @ own + joint @ joined)[..., 0]
        jacobian[settings, :, source] += by_turns / self._reference_hz
        return jacobian


def _amplitudes(reflection: Real | None) -> Complex | None:
    if reflection is None:
        return None
    real, imaginary = np.split(reflection, 2)
    return real + 1j * imaginary


def _parts(by_amplitude: Waves) -> Slopes:
    return np.concatenate([by_amplitude.real, -by_amplitude.imag], axis=-1)


def _between_couplers(cells: UnitCells, waves: Waves) -> tuple[tuple[Waves, Waves], tuple[Waves, Waves]]:
    """Return the waves in both arms (upper, lower): those from end A, then those from end B.

    ``waves``, ``(settings, k, puc_ports)``, enter the PUCs.
    """
    result = []
    for end, eta in ((0, cells.eta_in), (2, cells.eta_out)):
        power = eta if eta.ndim == 1 else eta[:, None]
        # Evaluated between the couplers, where each phase and each loss acts on one arm only.
        through, cross = np.sqrt(1.0 - power).astype(waves.real.dtype), (1j * np.sqrt(power)).astype(waves.dtype)
        left, right = waves[..., end::4], waves[..., end + 1 :: 4]
        result.append((through * left - cross * right, through * right - cross * left))
    return result[0], result[1]
