"""Link budgets, calculated from the optical field of the whole mesh."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.bench.file.module_optics import ModuleOptics
from lumion_hw.circuits.plan.budget import DARK_DB, LaneBudget, Leakage, LinkBudget
from lumion_hw.circuits.plan.ends import CircuitEnds
from lumion_hw.circuits.plan.planned import ArmTrim, CircuitArm, PlannedCircuit
from lumion_hw.circuits.plan.planning_mesh import PlanningMesh
from lumion_hw.interfaces.wiring import InputPath, OutputPath, Wiring
from lumion_hw.mesh.routing import Path
from lumion_hw.quantities import OSNR_OF_0_DBM_DB, combined_osnr_db

Real = NDArray[np.float64]

_IN_BAND_NM = 0.5
"""Largest wavelength distance at which light of other circuits disturbs a receiver."""
_DARKEST = 10.0 ** (DARK_DB / 10.0)


@dataclass(frozen=True)
class RoutedCircuit:
    """A circuit with its paths, without a link budget.

    Attributes:
        ends: Modules and fibres at both ends.
        trims: Loss added to each arm, or ``None``.
    """

    ends: CircuitEnds
    paths: tuple[Path, ...]
    trims: tuple[ArmTrim | None, ...]


def with_budgets(
    model: BenchModel, wiring: Wiring, planning: PlanningMesh, routed: Sequence[RoutedCircuit], currents_ma: Real
) -> tuple[PlannedCircuit, ...]:
    """Return circuits with their link budgets at the given heater currents."""
    return LinkBudgetSolver(model, wiring, planning, routed, currents_ma).circuits()


class LinkBudgetSolver:
    """Calculates the light of several circuits in one setting of the mesh.

    Args:
        currents_ma: Heater currents of the setting, shape ``(2 n_pucs,)``.
    """

    def __init__(
        self, model: BenchModel, wiring: Wiring, planning: PlanningMesh, routed: Sequence[RoutedCircuit],
        currents_ma: Real,
    ) -> None:  # fmt: skip
        self._typical_db = model.mesh_section.typical.access_loss_db
        self._wiring = wiring
        self._planning = planning
        self._routed = routed
        self._heat_mw = planning.heat_mw(currents_ma)
        # A coherent receiver mixes with its own laser's light, so its transmitter is on even if no circuit uses
        # its light.
        senders = {circuit.ends.request.source for circuit in routed}
        self._unrouted = [
            (circuit.ends.request.target, circuit.ends.receiver, wiring.inputs_of(circuit.ends.request.target))
            for circuit in routed
            if circuit.ends.strategy == "dual" and circuit.ends.request.target not in senders
        ]
        sources = {port: circuit.ends.sender.emits_nm for circuit in routed for port, _ in circuit.ends.pairs}
        sources |= {entry.port: optics.emits_nm for _, optics, entries in self._unrouted for entry in entries}
        self._fields: Mapping[int, NDArray[np.complex128]] = planning.fields(currents_ma, sources)
        # A power of zero has no decibels.
        self._power = {port: np.maximum(np.abs(field) ** 2, _DARKEST) for port, field in self._fields.items()}
        self._lane_power = self._powers_of_lanes(currents_ma)
        # The lanes of a module are launched with equal power.
        self._power |= {port: power.mean(axis=0) for port, power in self._lane_power.items()}
        self._receivers = {
            output.port: output.transponder for output in wiring.outputs if output.transponder is not None
        }
        self._column = {port: index for index, port in enumerate(self._receivers)}
        out_db = [planning.output_loss_db(port, self._typical_db)[0] for port in self._receivers]
        self._behind = 10.0 ** (-np.array(out_db) / 10.0)
        # Power in the fibre behind every receiver's port in mW, one row per circuit.
        self._leaked_mw = np.array(
            [self._fibre_power_mw(circuit.ends.sender, circuit.ends.entries) for circuit in routed]
        )
        self._unrouted_mw = [self._fibre_power_mw(optics, entries) for _, optics, entries in self._unrouted]

    def _powers_of_lanes(self, currents_ma: Real) -> dict[int, Real]:
        """Return the output power of each lane of multiplexed modules by port, each of shape (n_lanes, n_ports)."""
        lanes_nm = {
            port: circuit.ends.sender.lanes_nm
            for circuit in self._routed
            if circuit.ends.sender.lanes_nm
            for port, _ in circuit.ends.pairs
        }
        power: dict[tuple[int, float], Real] = {}
        for wavelength_nm in dict.fromkeys(nm for lanes in lanes_nm.values() for nm in lanes):
            ports = [port for port, lanes in lanes_nm.items() if wavelength_nm in lanes]
            fields = self._fields
            if self._planning.covers_wavelength(wavelength_nm):
                fields = self._planning.fields(currents_ma, dict.fromkeys(ports, wavelength_nm))
            power |= {(port, wavelength_nm): np.maximum(np.abs(fields[port]) ** 2, _DARKEST) for port in ports}
        return {port: np.array([power[port, nm] for nm in lanes]) for port, lanes in lanes_nm.items()}

    def circuits(self) -> tuple[PlannedCircuit, ...]:
        """Return all circuits with their budgets."""
        return tuple(self._circuit(index) for index in range(len(self._routed)))

    def _fibre_power_mw(self, sender: ModuleOptics, entries: Sequence[InputPath]) -> Real:
        power_mw = np.zeros(len(self._column))
        for entry in entries:
            into_db, _ = self._planning.input_loss_db(self._wiring, entry, self._typical_db)
            entering_dbm = sender.launch_dbm + entry.gain_db - entry.loss_db - into_db
            # Each arm of a split signal has half of the power.
            entering_mw = 10.0 ** (entering_dbm / 10.0) / len(entries)
            power_mw += entering_mw * self._power[entry.port][list(self._column)] * self._behind
        return power_mw

    def _arm(self, entry: InputPath, output: OutputPath, path: Path, trim: ArmTrim | None) -> CircuitArm:
        into_db, into_sigma_db = self._planning.input_loss_db(self._wiring, entry, self._typical_db)
        out_db, out_sigma_db = self._planning.output_loss_db(output.port, self._typical_db)
        through_db = -10.0 * math.log10(float(self._power[entry.port][output.port]))
        sigma_db = math.hypot(into_sigma_db, out_sigma_db, self._planning.path_sigma_db(path.pucs))
        shortest = int(self._planning.calibrated.mesh.shortest_hops[path.source, path.target])
        return CircuitArm(entry, output, path, into_db + through_db + out_db, sigma_db, trim, shortest)

    def _circuit(self, index: int) -> PlannedCircuit:
        routed = self._routed[index]
        ends = routed.ends
        arms = tuple(
            self._arm(*parts) for parts in zip(ends.entries, ends.exits, routed.paths, routed.trims, strict=True)
        )
        return PlannedCircuit(ends.request, arms, self._budget(index, arms), ends.strategy, ends.reason)

    def _budget(self, index: int, arms: tuple[CircuitArm, ...]) -> LinkBudget:
        ends = self._routed[index].ends
        ends_db = [arm.total_loss_db for arm in arms]
        gain_db = sum(arm.entry.gain_db for arm in arms) / len(arms)
        mean_fixed_db = sum(arm.fixed_loss_db for arm in arms) / len(arms)
        total_db = _total_loss_db(ends, ends_db)
        received_dbm = ends.sender.launch_dbm - total_db
        crosstalk_db, crosstalk_source = self._crosstalk(index)
        delay_ps = self._planning.calibrated.chip.delay_s * 1e12
        hops = [arm.path.hops for arm in arms]
        return LinkBudget(
            launch_dbm=ends.sender.launch_dbm,
            gain_db=gain_db,
            fixed_loss_db=mean_fixed_db,
            mesh_loss_db=total_db - mean_fixed_db + gain_db,
            received_dbm=received_dbm,
            sensitivity_dbm=ends.receiver.sensitivity_dbm,
            overload_dbm=ends.receiver.overload_dbm,
            # Mean of two independent errors; the larger one where either arm may carry all light.
            loss_sigma_db=max(arm.loss_sigma_db for arm in arms)
            if ends.strategy == "diversity"
            else math.hypot(*(arm.loss_sigma_db for arm in arms)) / len(arms),
            format=ends.format,
            osnr_db=self._osnr_db(ends, crosstalk_db),
            required_osnr_db=ends.receiver.required_osnr_db(ends.format, received_dbm),
            imbalance_db=max(ends_db) - min(ends_db),
            imbalance_sigma_db=math.hypot(*(arm.loss_sigma_db for arm in arms)) if len(arms) > 1 else 0.0,
            pdl_db=self._pdl_db(arms),
            dgd_ps=(max(hops) - min(hops)) * delay_ps,
            max_pdl_db=ends.receiver.max_pdl_db,
            max_dgd_ps=ends.receiver.max_dgd_ps,
            crosstalk_db=crosstalk_db,
            leakage=self._leakage(index),
            heater_mw=sum(float(self._heat_mw[2 * p] + self._heat_mw[2 * p + 1]) for a in arms for p in a.path.pucs),
            lanes=tuple(self._lane_budgets(ends, arms, mean_fixed_db - gain_db)),
            crosstalk_source=crosstalk_source,
        )

    def _lane_budgets(self, ends: CircuitEnds, arms: tuple[CircuitArm, ...], outside_db: float) -> Iterator[LaneBudget]:
        sender, receiver = ends.sender, ends.receiver
        for index, wavelength_nm in enumerate(sender.lanes_nm):
            # The loss of an arm is that of all lanes together.
            ends_db = [
                arm.total_loss_db
                + _db(float(self._power[arm.entry.port][arm.exit.port]))
                - _db(float(self._lane_power[arm.entry.port][index, arm.exit.port]))
                for arm in arms
            ]
            total_db = _total_loss_db(ends, ends_db)
            share_db = 10.0 * math.log10(len(sender.lanes_nm))
            received_dbm = sender.launch_dbm - share_db - total_db
            yield LaneBudget(
                lane=index + 1,
                wavelength_nm=wavelength_nm,
                mesh_loss_db=total_db - outside_db,
                received_dbm=received_dbm,
                margin_db=received_dbm - (receiver.sensitivity_dbm - share_db),
                overload_margin_db=receiver.overload_dbm - share_db - received_dbm,
                is_calibrated=self._planning.covers_wavelength(wavelength_nm),
            )

    def _pdl_db(self, arms: tuple[CircuitArm, ...]) -> float:
        if len(arms) < 2:
            return 0.0
        exits = [arm.path.target for arm in arms]
        through = np.stack([self._fields[arm.path.source][exits] for arm in arms], axis=1)
        before_db = [
            self._planning.input_loss_db(self._wiring, arm.entry, self._typical_db)[0]
            + arm.entry.loss_db
            - arm.entry.gain_db
            for arm in arms
        ]
        # `fixed_loss_db` contains the loss before the mesh, which `before_db` counts already.
        behind_db = [
            self._planning.output_loss_db(arm.path.target, self._typical_db)[0] + arm.fixed_loss_db - arm.entry.loss_db
            for arm in arms
        ]
        # The singular values of the field from both tributaries to both exits are the transmissions of the strongest
        # and the weakest polarization; light that changes arms is an element off the diagonal.
        transmission = 10.0 ** (-np.add.outer(behind_db, before_db) / 20.0) * through
        brightest, dimmest = np.linalg.svd(transmission, compute_uv=False).tolist()
        return _db((brightest / max(dimmest, 1e-12)) ** 2)

    def _receiver_columns(self, index: int) -> list[int]:
        return [self._column[port] for _, port in self._routed[index].ends.pairs]

    def _crosstalk(self, index: int) -> tuple[float, str]:
        """Return the light of other circuits at the end of a circuit in dB, and the module that sends most of it."""
        own_nm = self._routed[index].ends.sender.wavelengths_nm
        interferers = [
            (circuit.ends.request.source, circuit.ends.sender, leaked_mw)
            for circuit, leaked_mw in zip(self._routed, self._leaked_mw, strict=True)
        ]
        del interferers[index]
        interferers += [
            (name, optics, leaked_mw)
            for (name, optics, _), leaked_mw in zip(self._unrouted, self._unrouted_mw, strict=True)
        ]
        columns = self._receiver_columns(index)
        in_band_mw = {
            name: float(leaked_mw[columns].sum())
            for name, sender, leaked_mw in interferers
            if any(abs(other_nm - nm) <= _IN_BAND_NM for other_nm in sender.wavelengths_nm for nm in own_nm)
        }
        crosstalk_db = _db(sum(in_band_mw.values()) / float(self._leaked_mw[index, columns].sum()))
        return crosstalk_db, max(in_band_mw, key=in_band_mw.__getitem__, default="")

    def _leakage(self, index: int) -> tuple[Leakage, ...]:
        own = {port for _, port in self._routed[index].ends.pairs}
        used_ports = {port for circuit in self._routed for _, port in circuit.ends.pairs}
        level = self._leaked_mw[index] / self._leaked_mw[index, self._receiver_columns(index)].sum()
        return tuple(
            Leakage(name, port, _db(float(level[self._column[port]])), port not in used_ports)
            for port, name in self._receivers.items()
            if port not in own
        )

    def _osnr_db(self, ends: CircuitEnds, crosstalk_db: float) -> float | None:
        sent_db, launch_dbm = ends.sender.launch_osnr_db, ends.sender.launch_dbm
        # OSNR of a booster: 58 dB + input power - noise figure. Later losses weaken signal and noise alike.
        boosters = [
            OSNR_OF_0_DBM_DB + launch_dbm - entry.noise_figure_db for entry in ends.entries if entry.gain_db > 0.0
        ]
        parts = [*([] if sent_db is None else [sent_db]), *([min(boosters)] if boosters else [])]
        # Light of other circuits counts as noise.
        if crosstalk_db > DARK_DB:
            parts.append(-crosstalk_db)
        return combined_osnr_db(*parts) if parts else None


def _total_loss_db(ends: CircuitEnds, arms_db: Sequence[float]) -> float:
    """Return the loss from module to module of all arms together."""
    if ends.strategy == "diversity":
        return max(arms_db)  # all light may take the worse arm
    # Each arm carries half of the power, so the transmissions of the arms are averaged.
    return -10.0 * math.log10(sum(10.0 ** (-arm_db / 10.0) for arm_db in arms_db) / len(arms_db))


def _db(ratio: float) -> float:
    return 10.0 * math.log10(ratio) if ratio > _DARKEST else DARK_DB
