"""Thermal part of the mesh model: from currents to phases of arms and joints, with derivatives."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real, Single
from calibration.model.observations import OWN_TAUS
from calibration.model.parameters import MeshParameters
from calibration.model.physics import (
    BOTH_ARMS,
    BOTH_ARMS_SCATTER,
    LAW_POINTS,
    SLOW_CROSSTALK,
    PairDirections,
    select_test_heaters,
)
from calibration.model.space import LAW_TERMS
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import CROSSTALK_PAIRS
from lumion_hw.mesh.waves.crosstalk import HeaterDistances, ThermalCrosstalk
from lumion_hw.mesh.waves.shared_return import SharedReturns, relative_load

Slopes = NDArray[np.floating[Any]]
"""Derivatives, in single or double precision."""
DIRECTIONAL = ("crosstalk_directions", "crosstalk_sides")
"""Names of the effects that crosstalk depends on the direction: alike in opposite directions, and opposite in them."""
LATE = ("slow_heat_share", SLOW_CROSSTALK)
"""Names of the effects that depend on the heat of earlier settings."""
SAG = "supply_sag_share"
"""Name of the effect that all currents fall with the cube of the total current."""
HEAT_GROUPS = (
    *LAW_TERMS, "heat_factor", "crosstalk", *LATE, "shared_return_per_ma", SAG, BOTH_ARMS, BOTH_ARMS_SCATTER,
    *DIRECTIONAL, CROSSTALK_PAIRS,
)  # fmt: skip
"""Groups of parameters that the phases due to heat depend on."""
_LAW_STEP_RAD = np.pi / 3.0
_MAX_EXPONENT = 30.0


@dataclass(frozen=True, eq=False)
class Heated:
    """Effect of the heaters in N settings on E PUCs and J joints.

    Attributes:
        powers: Shape ``(3, N, 2E)``; second, fourth and sixth power of the currents in mA, after thermal lag.
        bend_ma2: Shape ``(N, 2E)``; phase from the terms ρ4 and ρ6 of the heater law over ρ2.
        heat_mw: Shape ``(N, 2E)``; heat of every heater.
        own_rad: Shape ``(N, 2E)``; phase of every arm due to its own heater.
        by_own: Shape ``(N, 2E)`` or one number; derivative of the arm phase by ``own_rad``.
        both_arms: Shape ``(2E,)``; phase that each heater adds to both arms of its PUC, relative to ``own_rad``;
            ``None`` without this effect.
        arm_rad: Shape ``(N, 2E)``; phase of every arm due to all heaters.
        joint_rad: Shape ``(N, J)``; phase of every joint due to heat.
        driven_ma: Shape ``(N, 2E)``; heater currents as set.
        late: Remaining heat of earlier settings (``Observations.late``), or ``None``.
    """

    powers: Real
    bend_ma2: Real
    heat_mw: Real
    own_rad: Real
    by_own: Real | float
    both_arms: Real | None
    arm_rad: Real
    joint_rad: Real
    driven_ma: Real
    late: Single | None


class Heating:
    """Thermal part of the mesh model.

    Args:
        heater_ohm: Nominal resistance of a heater.
        channels: Drive channel of every heater; by default channel k drives heater k.
    """

    def __init__(self, mesh: MeshTopology, heater_ohm: float = 1000.0, channels: Sequence[int] | None = None) -> None:
        self._distances = HeaterDistances.from_mesh(mesh)
        self._returns = SharedReturns.from_channels(range(2 * mesh.n_pucs) if channels is None else channels)
        self._mw_per_ma2 = heater_ohm * 1e-3
        # Cached: a fit needs the same crosstalk a hundred times at every point, and its shapes at many points.
        self._shapes = functools.lru_cache(maxsize=4)(self._unit_couplings)
        self._crosstalk = functools.lru_cache(maxsize=2)(self._crosstalk_at)
        self._kernel_parts = functools.lru_cache(maxsize=2)(self._directed_parts)

    def crosstalk(self, parameters: MeshParameters) -> ThermalCrosstalk:
        """Return the thermal crosstalk: a function of distance plus deviations of single pairs."""
        return self._crosstalk(parameters)

    def _crosstalk_at(self, parameters: MeshParameters) -> ThermalCrosstalk:
        amplitude, length_mm, floor = parameters.crosstalk_rad_per_mw
        near, _, common = self._shapes(float(length_mm))
        crosstalk = ThermalCrosstalk(
            amplitude * near.arm_rad_per_mw + floor * common.arm_rad_per_mw,
            amplitude * near.joint_rad_per_mw + floor * common.joint_rad_per_mw,
        )
        crosstalk = self._directed(parameters, crosstalk)
        if (pairs := parameters.extra_physics.get("crosstalk_pairs")) is None:
            return crosstalk
        arms = len(crosstalk.arm_rad_per_mw)
        return ThermalCrosstalk(crosstalk.arm_rad_per_mw + pairs[:arms], crosstalk.joint_rad_per_mw + pairs[arms:])

    def phases(self, parameters: MeshParameters, currents_ma: Real, late: Single | None = None) -> Heated:
        """Return the phases of arms and joints in N settings with currents ``(N, heaters)``.

        ``late`` is the heat left by earlier settings (``Observations.late``).
        """
        square = self._flowing_ma(parameters, currents_ma) ** 2
        powers = np.stack([square, square**2, square**3])
        if late is not None and (shares := parameters.extra_physics.get("slow_heat_share")) is not None:
            # The delayed quantity is heat, which follows the whole law; its curvature matters for large currents.
            powers += np.moveaxis(np.tensordot(late[:, :, :OWN_TAUS], shares, axes=(2, 0)), 2, 0)
        rho2, rho4, rho6 = parameters.heater_law.T
        higher_order = rho4 * powers[1] + rho6 * powers[2]
        own = rho2 * powers[0] + higher_order
        # A dead heater has no law: it neither shifts its own arm nor heats the others.
        live = rho2 != 0.0
        bend_ma2 = np.divide(higher_order, rho2, out=np.zeros_like(higher_order), where=live)
        # The resistance rises with heat, and the law bends accordingly, so the own phase is proportional to the heat.
        # With the nominal resistance crosstalk would be wrong by 3 % (docs/decisions/0006).
        heat = self._mw_per_ma2 * (np.where(live, powers[0], 0.0) + bend_ma2) * parameters.heat_factor
        if late is not None and (shares := parameters.extra_physics.get(SLOW_CROSSTALK)) is not None:
            heat = heat + self._late_heat_mw(parameters, late) @ shares
        kernel = self.crosstalk(parameters)
        turned, by_own = _with_law_deviation(own, parameters.extra_physics.get("law_deviation"))
        arm, joint = turned + heat @ kernel.arm_rad_per_mw.T, heat @ kernel.joint_rad_per_mw.T
        mean, scatter = _mean_and_scatter(parameters)
        share = mean * (1.0 + scatter) if mean else None
        if share is not None:
            arm += _sums_of_arms(share * turned)
        return Heated(powers, bend_ma2, heat, own, by_own, share, arm, joint, currents_ma, late)

    def heat_mw_per_rad(self, parameters: MeshParameters) -> Real:
        """Return the heat of every heater per phase of its own arm, shape ``(heaters,)``; 0 for a dead heater."""
        rho2 = parameters.heater_law[:, 0]
        scale = self._mw_per_ma2 * np.broadcast_to(np.asarray(parameters.heat_factor), len(rho2))
        return np.divide(scale, rho2, out=np.zeros_like(rho2), where=rho2 != 0.0)

    def _late_heat_mw(self, parameters: MeshParameters, late: Single) -> Real:
        """Return the heat of every heater that is left by earlier settings, ``(settings, heaters, time constants)``."""
        return _late_own_rad(parameters, late) * self.heat_mw_per_rad(parameters)[:, None]

    def _flowing_ma(self, parameters: MeshParameters, driven_ma: Real) -> Real:
        return self._returns.flowing_ma(driven_ma, parameters.heater_law[:, 0], parameters.extra_physics)

    def chain(self, parameters: MeshParameters, heated: Heated, arm: Slopes, joint: Slopes) -> dict[str, Slopes]:
        """Convert derivatives by phases to derivatives by heater laws, heat factors and crosstalk.

        ``heated`` is the result of :meth:`phases`. ``arm``, ``(N, M, heaters)``, and ``joint``, ``(N, M, joints)``, are
        derivatives of M numbers per setting by phases. The result, by parameter group, has shapes ``(N, M, size)``.
        """
        # One product over all arms and joints gives the derivatives of all readings by the heat of all heaters.
        by_heat, by_own = self._by_heat(parameters, arm, joint), _by_own(arm, heated)
        live, per_rho = parameters.heater_law[:, 0] != 0.0, self.heat_mw_per_rad(parameters)
        result: dict[str, Slopes] = {}
        for power, name in zip(heated.powers, LAW_TERMS, strict=True):
            # The bend is the law divided by ρ2, so a larger ρ2 at the same ρ4 bends less.
            heat = per_rho * (-heated.bend_ma2 if name == LAW_TERMS[0] else power)
            own, other_power = (np.where(live, values, 0.0)[:, None].astype(arm.dtype) for values in (power, heat))
            result[name] = by_own * own + by_heat * other_power
        warmed = np.where(live, heated.powers[0], 0.0) + heated.bend_ma2
        result["heat_factor"] = by_heat * (self._mw_per_ma2 * warmed)[:, None].astype(arm.dtype)
        result["crosstalk"] = self._by_kernel(parameters, heated.heat_mw, arm, joint)
        return result

    def by_rows(
        self, names: Collection[str], parameters: MeshParameters, heated: Heated, arm: Slopes, joint: Slopes
    ) -> dict[str, Slopes]:
        """Return derivatives by the parameters of heat-related effects, by group, ``(settings, monitors, size)``.

        ``names`` are the included effects; see :meth:`chain` for the other arguments.
        """
        own: dict[str, Real] = {}
        if "slow_heat_share" in names and heated.late is not None:
            own["slow_heat_share"] = _late_own_rad(parameters, heated.late[:, :, :OWN_TAUS])
        if "shared_return_per_ma" in names or SAG in names:
            by_loss = -self._own_by_ma(parameters, heated.driven_ma)[..., None]
            driven_ma = heated.driven_ma[..., None]
            other_ma = np.moveaxis(self._returns.others_mean_ma(heated.driven_ma), 0, -1)
            own["shared_return_per_ma"] = by_loss * np.concatenate([other_ma * driven_ma, other_ma], axis=-1)
            load = relative_load(heated.driven_ma, parameters.heater_law[:, 0])
            own[SAG] = by_loss * driven_ma * load[:, None, None] ** 3
            own = {name: slopes for name, slopes in own.items() if name in names}
        by_effect: dict[str, Slopes] = {}
        if own:
            # Heat is proportional to the law.
            per_rad = self.heat_mw_per_rad(parameters).astype(arm.dtype)
            by_own = _by_own(arm, heated) + self._by_heat(parameters, arm, joint) * per_rad
            by_effect = {name: by_own @ slopes.astype(arm.dtype) for name, slopes in own.items()}
        if SLOW_CROSSTALK in names and heated.late is not None:
            late_mw = self._late_heat_mw(parameters, heated.late).astype(arm.dtype)
            by_effect[SLOW_CROSSTALK] = self._by_heat(parameters, arm, joint) @ late_mw
        for name in DIRECTIONAL:
            if name in names:
                by_effect[name] = self._by_direction(name, parameters, heated.heat_mw, arm, joint)
        if BOTH_ARMS in names or BOTH_ARMS_SCATTER in names:
            turned, _ = _with_law_deviation(heated.own_rad, parameters.extra_physics.get("law_deviation"))
            by_share = _sums_of_arms(arm) * turned[:, None].astype(arm.dtype)
            mean, scatter = _mean_and_scatter(parameters)
            if BOTH_ARMS in names:
                by_effect[BOTH_ARMS] = by_share @ (1.0 + scatter).astype(arm.dtype)[:, None]
            if BOTH_ARMS_SCATTER in names:
                by_effect[BOTH_ARMS_SCATTER] = by_share * arm.dtype.type(mean)
        if "law_deviation" in names:
            arm = _by_heaters(arm, heated)
            tested = select_test_heaters(arm.shape[-1])
            own_rad = heated.own_rad[:, tested]
            weights = (own_rad[..., None] * law_point_weights(own_rad)).astype(arm.dtype)
            by_point = arm[..., tested, None] * weights[:, None]
            by_effect["law_deviation"] = by_point.reshape(*by_point.shape[:2], -1)
        return by_effect

    def _own_by_ma(self, parameters: MeshParameters, driven_ma: Real) -> Real:
        flowing = self._flowing_ma(parameters, driven_ma)
        rho2, rho4, rho6 = parameters.heater_law.T
        square = flowing**2
        slopes: Real = 2.0 * flowing * (rho2 + square * (2.0 * rho4 + 3.0 * square * rho6))
        return slopes

    def _by_heat(self, parameters: MeshParameters, arm: Slopes, joint: Slopes) -> Slopes:
        kernel = self.crosstalk(parameters)
        by_heat: Slopes = arm @ kernel.arm_rad_per_mw.astype(arm.dtype)
        by_heat += joint @ kernel.joint_rad_per_mw.astype(arm.dtype)
        return by_heat

    def _by_kernel(self, parameters: MeshParameters, heat_mw: Real, arm: Slopes, joint: Slopes) -> Slopes:
        # The kernel is linear in amplitude and floor; the decay length needs the derivative of the exponential.
        factors = 1.0, parameters.crosstalk_rad_per_mw[0], 1.0
        columns = [
            factor * _by_crosstalk_factor(part, heat_mw, arm, joint)
            for part, factor in zip(self._kernel_parts(parameters), factors, strict=True)
        ]
        return np.stack(columns, axis=-1)

    def _directed_parts(self, parameters: MeshParameters) -> tuple[ThermalCrosstalk, ...]:
        shapes = self._shapes(float(parameters.crosstalk_rad_per_mw[1]))
        return tuple(self._directed(parameters, part) for part in shapes)

    def law_change(self, parameters: MeshParameters, weights: Real, pairs: PairDirections) -> Real:
        """Return the change of each heater's law that light cannot tell from pair crosstalk, ``(heaters, K)``.

        The change is relative to the law, per combination of pairs. ``weights`` are the phases that light shows
        (:func:`calibration.model.gauge.visible_combinations`).
        """
        in_sum = np.einsum("hw,hwk->hk", weights * pairs.curve_rad_per_mw.T, pairs.vectors)
        change: Real = in_sum * self.heat_mw_per_rad(parameters)[:, None]
        return change

    def _directed(self, parameters: MeshParameters, crosstalk: ThermalCrosstalk) -> ThermalCrosstalk:
        rise, sides = (parameters.extra_physics.get(name) for name in DIRECTIONAL)
        return crosstalk if rise is None and sides is None else self._distances.directed(crosstalk, rise, sides)

    def _by_direction(self, name: str, parameters: MeshParameters, heat_mw: Real, arm: Slopes, joint: Slopes) -> Slopes:
        alike, distances = self.crosstalk(replace(parameters, extra_physics={})), self._distances
        angles = distances.arm_turns, distances.joint_turns
        if name == "crosstalk_sides":
            angles = distances.arm_sides, distances.joint_sides
        columns = []
        for on_arm, on_joint in zip(*angles, strict=True):
            directed = ThermalCrosstalk(alike.arm_rad_per_mw * on_arm, alike.joint_rad_per_mw * on_joint)
            columns.append(_by_crosstalk_factor(directed, heat_mw, arm, joint))
        return np.stack(columns, axis=-1)

    def _unit_couplings(self, length_mm: float) -> tuple[ThermalCrosstalk, ...]:
        def falling(mm: Real) -> Real:
            # A trial step of a fit may have a negative decay length; its light must be wrong, but finite.
            return np.exp(np.minimum(-mm / length_mm, _MAX_EXPONENT))

        shapes = (falling, lambda mm: mm / length_mm**2 * falling(mm), np.ones_like)
        return tuple(self._distances.crosstalk(shape) for shape in shapes)


def _mean_and_scatter(parameters: MeshParameters) -> tuple[float, Real]:
    mean = parameters.extra_physics.get(BOTH_ARMS, np.zeros(1))
    scatter = parameters.extra_physics.get(BOTH_ARMS_SCATTER, np.zeros(len(parameters.heater_law)))
    return float(mean[0]), scatter


def _sums_of_arms(by_arm: Slopes) -> Slopes:
    """Return the sum over the two arms of each PUC, for both arms; the last axis has 2E arms."""
    return np.repeat(by_arm[..., 0::2] + by_arm[..., 1::2], 2, axis=-1)


def _by_heaters(arm: Slopes, heated: Heated) -> Slopes:
    """Convert derivatives by arm phases to derivatives by the phases due to the heaters of these arms."""
    return arm if heated.both_arms is None else arm + heated.both_arms.astype(arm.dtype) * _sums_of_arms(arm)


def _by_own(arm: Slopes, heated: Heated) -> Slopes:
    """Convert derivatives by arm phases to those by the part due to own heaters, ``(settings, monitors, heaters)``."""
    slopes, arm = heated.by_own, _by_heaters(arm, heated)
    return arm if isinstance(slopes, float) else arm * slopes[:, None].astype(arm.dtype)


def _late_own_rad(parameters: MeshParameters, late: Single) -> Real:
    """Return the phase of every own arm that is left by earlier settings, ``(settings, heaters, time constants)``."""
    late_rad: Real = np.einsum("nhtk,hk->nht", late, parameters.heater_law)
    return late_rad


def _with_law_deviation(own_rad: Real, deviation: Real | None) -> tuple[Real, Real | float]:
    """Return arm phases with deviations from the three-term heater law, and derivatives.

    The relative deviation is zero without current, linear between the points, and then constant.
    """
    if deviation is None:
        return own_rad, 1.0
    tested = select_test_heaters(own_rad.shape[1])
    own, at_points = own_rad[:, tested], deviation.reshape(len(tested), LAW_POINTS)
    share = (law_point_weights(own) * at_points).sum(axis=-1)
    ends = np.concatenate([np.zeros((len(tested), 1)), at_points, at_points[:, -1:]], axis=1)
    between = np.clip(np.floor(own / _LAW_STEP_RAD), 0, LAW_POINTS).astype(np.int64)
    rise = np.where(own > 0.0, np.diff(ends, axis=1)[np.arange(len(tested)), between], 0.0) / _LAW_STEP_RAD
    turned, by_own = own_rad.copy(), np.ones_like(own_rad)
    turned[:, tested] += own * share
    by_own[:, tested] += share + own * rise
    return turned, by_own


def law_point_weights(own_rad: Real) -> Real:
    """Return the weight of each point of a law deviation (last axis) at given arm phases."""
    steps = np.clip(own_rad / _LAW_STEP_RAD, 0.0, LAW_POINTS)[..., None]
    return np.maximum(1.0 - np.abs(steps - np.arange(1, LAW_POINTS + 1)), 0.0)


def _by_crosstalk_factor(crosstalk: ThermalCrosstalk, heat_mw: Real, arm: Slopes, joint: Slopes) -> Slopes:
    kernels = crosstalk.arm_rad_per_mw, crosstalk.joint_rad_per_mw
    warmed = [(heat_mw @ kernel.T)[:, :, None].astype(arm.dtype) for kernel in kernels]
    return (arm @ warmed[0] + joint @ warmed[1])[..., 0]
