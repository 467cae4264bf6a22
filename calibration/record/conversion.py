"""Conversion between the parameters of a fit and the calibration record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from calibration.fit.bound import Bound
from calibration.model.arrays import Real
from calibration.model.device_under_test import Device
from calibration.model.gauge import visible_combinations
from calibration.model.heating import Heating
from calibration.model.mesh_model import MeshModel
from calibration.model.parameters import MeshParameters
from calibration.model.physics import PHYSICS
from calibration.model.space import LAW_TERMS, ParameterSpace, space_from_record
from calibration.model.symmetric import root_of
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.programming.chip import ChipParameters
from lumion_hw.mesh.programming.prediction import COVARIANCE_FACTOR, LOOP_DIRECTIONS
from lumion_hw.mesh.record.calibration_record import (
    CROSSTALK_PAIRS,
    HEATER_RESISTANCES,
    CalibrationRecord,
    Conditions,
    CouplerEntry,
    CovarianceEntry,
    CrosstalkEntry,
    CrosstalkKernel,
    Defect,
    Dispersion,
    ExtraPhysics,
    HeaterEntry,
    JointsEntry,
    PortEntry,
    PucEntry,
)
from lumion_hw.mesh.waves.crosstalk import BUL_MM
from lumion_hw.mesh.waves.heater import HeaterLaw

_GRID = 400
# Spread of PUC losses (docs/calibration.md, 1.3), used where readings give no value.
_PRIOR_LOSS_SIGMA_DB = 0.03


# Field of an origin -> field of a record with the same content.
_COPIED = {
    "serial": "device_serial",
    "model": "device_model",
    "firmware": "device_firmware",
    "vendor": "device_vendor",
    **{name: name for name in ("heater_channels", "wavelength_nm", "complete", "heater_ohm", "parent_sha256")},
    **{name: name for name in ("conditions", "faults", "defects")},
}


@dataclass(frozen=True)
class Origin(Device):
    """Contents of a record besides the parameters. Fields of :class:`CalibrationRecord` are described there.

    Attributes:
        heater_max_ma: Largest current for which the heater laws are valid.
        heater_reach_ma: Largest measured current by heater, if below ``heater_max_ma``.
        created_utc: Date and time; by default now.
        unknown_pucs: PUCs without a passive phase, with reasons.
        puc_notes: Problems of other PUCs.
        launched_dbm: Reported launch power by source port; needed for the input loss.
        output_loss_db: Loss from mesh into fibre and its standard error, by port.
        heater_residual_sigma: Rms residual of the sweeps in units of noise, by heater.
        monitor_dark_ma: Monitor readings without light, by port; by default 0.
        monitor_floor_ma: Additive noise of readings; ``None`` if unknown.
        heater_resistances: Rows of heater, current in mA and resistance in Ω; ``None`` if not measured.
        gains: Gain in log evidence by additional effect.
    """

    heater_max_ma: float
    heater_ohm: float = 1000.0
    vendor: str = ""
    complete: bool = True
    created_utc: str = ""
    unknown_pucs: Mapping[int, str] = field(default_factory=dict)
    puc_notes: Mapping[int, str] = field(default_factory=dict)
    heater_reach_ma: Mapping[int, float] = field(default_factory=dict)
    launched_dbm: Mapping[int, float] = field(default_factory=dict)
    output_loss_db: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    heater_residual_sigma: Mapping[int, float] = field(default_factory=dict)
    monitor_dark_ma: Mapping[int, float] = field(default_factory=dict)
    monitor_floor_ma: float | None = None
    heater_resistances: Real | None = None
    conditions: Conditions = field(default_factory=Conditions)
    faults: tuple[str, ...] = ()
    defects: tuple[Defect, ...] = ()
    quality: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    parent_sha256: str | None = None
    gains: Mapping[str, float] = field(default_factory=dict)


def build_record(
    space: ParameterSpace,
    parameters: MeshParameters,
    origin: Origin,
    covariance: Real | None = None,
    bound: Bound | None = None,
) -> CalibrationRecord:
    """Return the calibration record of fitted parameters.

    Args:
        space: Layout of the parameters.
        parameters: Fitted parameters.
        origin: Contents of the record besides the parameters.
        covariance: Shape ``(size, size)``; covariance of the parameters, 0 for fixed ones.
        bound: Supplies the rank, the parameters determined by the prior, and the unobservable combinations.
    """
    variance = np.zeros(space.size) if covariance is None else np.diag(covariance)
    sigma = np.sqrt(np.where(variance > 0.0, variance, np.nan))  # fixed parameters have no standard error
    mesh = space.mesh
    ends = {*mesh.fibre_ports, *space.sources, *space.seconds.values(), *space.monitors}
    writer = _Writer(space, parameters, origin, sigma)
    amplitude, length_mm, floor = parameters.crosstalk_rad_per_mw.tolist()
    if covariance is not None:
        covariance = _recorded_covariance(space, parameters, origin.heater_ohm, covariance)
    return CalibrationRecord(
        **{of_record: getattr(origin, name) for name, of_record in _COPIED.items()},
        mesh_label=mesh.label,
        mesh_sha256=mesh.sha256,
        monitor_ports=space.monitors,
        created_utc=origin.created_utc or datetime.now(UTC).isoformat(timespec="seconds"),
        pucs=tuple(writer.puc(puc) for puc in range(mesh.n_pucs)),
        ports=tuple(writer.port(port) for port in sorted(ends)),
        crosstalk=CrosstalkEntry(kernel=CrosstalkKernel(amplitude, length_mm, floor, BUL_MM)),
        quality=dict(origin.quality),
        provenance=dict(origin.provenance),
        joints=writer.joints(),
        dispersion=Dispersion(
            parameters.delay_s, parameters.differential_slope_rad_per_hz, parameters.coupler_slope_rad_per_hz
        ),
        covariance=_covariance_entry(space, covariance, bound),
        mesh_document=mesh.to_dict(),
        physics=_physics_entries(space, parameters, origin.gains),
        arrays=_arrays(space, parameters, origin, covariance),
    )


def _recorded_covariance(
    space: ParameterSpace, parameters: MeshParameters, heater_ohm: float, covariance: Real
) -> Real:
    """Return the covariance of all parameters except the combinations of pair crosstalk.

    The record stores the resulting crosstalk of pairs. Their combinations have no further use and would take most of
    the space. The light shows a heater's phase as a sum over several waveguides, much better than the phase on any of
    them, so errors of its crosstalk in this sum become errors of its law.
    """
    from scipy.sparse import csr_array

    pairs = space.physics.pairs
    if pairs is None:
        return covariance
    group = space.groups[CROSSTALK_PAIRS]
    weights = visible_combinations(space.mesh, space.entries, space.monitors)
    in_sum = Heating(space.mesh, heater_ohm).law_change(parameters, weights, pairs)
    transform = np.eye(space.size)
    for power, name in enumerate(LAW_TERMS):
        transform[space.groups[name], group] = parameters.heater_law[:, power, None] * in_sum
    kept = csr_array(transform[: group.start])
    return np.asarray(kept @ (kept @ covariance).T)


def _arrays(
    space: ParameterSpace, parameters: MeshParameters, origin: Origin, covariance: Real | None
) -> dict[str, NDArray[np.floating]]:
    arrays: dict[str, NDArray[np.floating]] = {}
    if covariance is not None:
        arrays = {COVARIANCE_FACTOR: root_of(covariance).astype(np.float32), LOOP_DIRECTIONS: space.directions}
    if CROSSTALK_PAIRS in parameters.extra_physics:
        arrays[CROSSTALK_PAIRS] = parameters.extra_physics[CROSSTALK_PAIRS].astype(np.float32)
    if origin.heater_resistances is not None:
        arrays[HEATER_RESISTANCES] = origin.heater_resistances
    return arrays


def parameters_from_record(record: CalibrationRecord) -> MeshParameters:
    """Return the mesh parameters of a record; missing values are zero.

    Sources are the ports with a ``source_dbm``, except second ports; monitors are the ``monitor_ports``.

    Raises:
        CalibrationError: The crosstalk of the record is not a function of distance.
    """
    crosstalk = record.crosstalk
    if crosstalk is not None and crosstalk.differential_rad_per_mw:
        raise CalibrationError(
            "the crosstalk of this record is a matrix, but the mesh model needs a function of distance",
            hint="Calibrate again: records of schema version 1 do not contain this function.",
        )
    space = space_from_record(record)
    sources = [record.port(port) for port in space.sources]
    pairs = [(record.port(first), record.port(second)) for first, second in space.seconds.items()]
    responsivity = [record.port(port).monitor_ma_per_mw for port in record.monitor_ports]
    return MeshParameters(
        **vars(ChipParameters.from_record(record)),
        source_db=np.array([entry.source_dbm for entry in sources], dtype=np.float64),
        monitor_ma_per_mw=np.array([np.nan if value is None else value for value in responsivity]),
        second_db=np.array([(second.source_dbm or 0.0) - (first.source_dbm or 0.0) for first, second in pairs]),
        source_detuning_hz=np.array([entry.source_detuning_hz or 0.0 for entry in sources]),
    )


def dark_by_port_ma(record: CalibrationRecord) -> dict[int, float]:
    """Return the monitor readings without light in a record, by port; 0 where they are unknown."""
    return {entry.port: entry.monitor_dark_ma or 0.0 for entry in record.ports}


def model_of_record(record: CalibrationRecord) -> MeshModel:
    """Return the model of the mesh in a record, with its sources, monitors and additional effects."""
    space = space_from_record(record)
    return MeshModel(
        record.mesh,
        space.sources,
        space.monitors,
        record.heater_ohm,
        seconds=space.seconds,
        channels=record.heater_channels,
        reference_hz=record.reference_hz,
        physics=space.physics,
    )


def covariance_from_record(record: CalibrationRecord) -> Real:
    """Return the covariance of the parameters of a record, shape ``(size, size)``.

    Raises:
        CalibrationError: The record has no covariance.
    """
    factor = record.arrays.get(COVARIANCE_FACTOR)
    if factor is None:
        raise CalibrationError("this calibration record has no covariance", hint="Calibrate again.")
    factor_64 = np.asarray(factor, dtype=np.float64)
    return factor_64 @ factor_64.T


def origin_from_record(record: CalibrationRecord) -> Origin:
    """Return the contents of a record besides parameters and date, for a derived record."""
    heaters = [heater for entry in record.pucs for heater in (entry.upper, entry.lower)]
    residuals = {
        number: entry.residual_sigma for number, entry in enumerate(heaters) if entry.residual_sigma is not None
    }
    max_ma = {number: entry.law.max_ma for number, entry in enumerate(heaters) if entry.law is not None}
    return Origin(
        **{name: getattr(record, of_record) for name, of_record in _COPIED.items()},
        heater_max_ma=max(max_ma.values(), default=0.0),
        unknown_pucs={puc: entry.note for puc, entry in enumerate(record.pucs) if entry.passive_phase_rad is None},
        heater_reach_ma=max_ma,
        launched_dbm={
            port.port: port.source_dbm + port.input_loss_db
            for port in record.ports
            if port.source_dbm is not None and port.input_loss_db is not None
        },
        output_loss_db={
            port.port: (port.output_loss_db, port.output_loss_sigma_db or 0.0)
            for port in record.ports
            if port.output_loss_db is not None
        },
        heater_residual_sigma=residuals,
        heater_resistances=record.arrays.get(HEATER_RESISTANCES),
        quality=record.quality,
        provenance=record.provenance,
        gains={entry.name: entry.gain for entry in record.physics},
    )


class _Writer:
    """Converts fitted parameters and their standard errors into entries of a calibration record."""

    def __init__(self, space: ParameterSpace, parameters: MeshParameters, origin: Origin, sigma: Real) -> None:
        self._space, self._parameters, self._origin, self._sigma = space, parameters, origin, sigma
        n_heaters, n_sources = 2 * space.mesh.n_pucs, len(space.sources)
        self._heat = np.broadcast_to(np.asarray(parameters.heat_factor, dtype=np.float64), n_heaters)
        self._detuning = np.broadcast_to(np.asarray(parameters.source_detuning_hz, dtype=np.float64), n_sources)

    def puc(self, puc: int) -> PucEntry:
        """Return the entry of a PUC; without a passive phase if the PUC is unknown."""
        parameters = self._parameters
        is_known = puc not in self._origin.unknown_pucs
        passive = float((parameters.passive_phase_rad[puc] + np.pi) % (2.0 * np.pi) - np.pi)
        loss_sigma = self._sigma_of("loss_db", puc)
        return PucEntry(
            passive_phase_rad=passive if is_known else None,
            passive_phase_sigma_rad=self._sigma_of("passive_phase_rad", puc) if is_known else None,
            loss_db=float(parameters.loss_db[puc]),
            loss_sigma_db=_PRIOR_LOSS_SIGMA_DB if loss_sigma is None else loss_sigma,
            upper=self._heater(2 * puc),
            lower=self._heater(2 * puc + 1),
            note=self._origin.unknown_pucs.get(puc) or self._origin.puc_notes.get(puc, ""),
            coupler=CouplerEntry(
                float(parameters.coupler_common_rad[puc]),
                float(parameters.coupler_difference_rad[puc]),
                self._sigma_of("coupler_common_rad", puc),
                self._sigma_of("coupler_difference_rad", puc),
            ),
        )

    def _heater(self, heater: int) -> HeaterEntry:
        rho2, rho4, rho6 = (float(value) for value in self._parameters.heater_law[heater])
        max_ma = min(self._origin.heater_max_ma, self._origin.heater_reach_ma.get(heater, np.inf))
        # Only the rising part of the law; beyond it two currents would give the same phase.
        law = HeaterLaw(rho2, rho4, rising_to_ma(rho2, rho4, rho6, max_ma), rho6) if rho2 else None
        channel = self._origin.heater_channels[heater]
        return HeaterEntry(
            channel,
            law,
            self._origin.heater_residual_sigma.get(heater),
            "" if law else "no effect on the light" if channel != NO_CHANNEL else "no heater",
            float(self._heat[heater]),
        )

    def port(self, port: int) -> PortEntry:
        """Return the entry of a fibre port: losses as input and as output, monitor calibration and launched power."""
        space, parameters, origin = self._space, self._parameters, self._origin
        source = space.sources.index(port) if port in space.sources else None
        first = next((source for source, second in space.seconds.items() if second == port), None)
        monitor = space.monitors.index(port) if port in space.monitors else None
        source_dbm = None if source is None else float(parameters.source_db[source])
        if first is not None:
            over_first_db = parameters.second_db[tuple(space.seconds).index(first)]
            # The power at the second port of a source is given relative to the first.
            source_dbm = float(parameters.source_db[space.sources.index(first)] + over_first_db)
        launched = origin.launched_dbm.get(port)
        input_loss_db = None if source_dbm is None or launched is None else launched - source_dbm
        output_loss_db, output_sigma_db = origin.output_loss_db.get(port, (None, None))
        return PortEntry(
            port=port,
            input_loss_db=input_loss_db,
            input_loss_sigma_db=None
            if input_loss_db is None or source is None
            else self._sigma_of("source_db", source),
            output_loss_db=output_loss_db,
            output_loss_sigma_db=output_sigma_db,
            monitor_ma_per_mw=None if monitor is None else float(parameters.monitor_ma_per_mw[monitor]),
            monitor_dark_ma=None if monitor is None else origin.monitor_dark_ma.get(port, 0.0),
            monitor_floor_ma=None if monitor is None else origin.monitor_floor_ma,
            source_dbm=source_dbm,
            source_detuning_hz=None if source is None else float(self._detuning[source]),
            lit_with=first,
        )

    def joints(self) -> JointsEntry:
        """Return the joint phases, with the rms standard error over the loops that receive light."""
        # Loops without light have no error and no meaning.
        sigma = self._sigma[self._space.groups["loops"]][: self._space.n_illuminated_loops]
        rms = None if np.isnan(sigma).any() or not len(sigma) else float(np.sqrt(np.mean(sigma**2)))
        return JointsEntry(tuple(self._parameters.joint_phase_rad.tolist()), loop_sigma_rad=rms)

    def _sigma_of(self, group: str, number: int) -> float | None:
        sigma = float(self._sigma[self._space.groups[group].start + number])
        return None if np.isnan(sigma) else sigma


def rising_to_ma(rho2: float, rho4: float, rho6: float, max_ma: float) -> float:
    """Return the largest current, at most ``max_ma``, up to which the phase increases."""
    square = np.linspace(0.0, max_ma**2, _GRID)
    decreasing = np.flatnonzero(rho2 + square * (2.0 * rho4 + 3.0 * square * rho6) <= 0.0)
    return float(np.sqrt(square[max(decreasing[0] - 1, 0)])) if len(decreasing) else max_ma


def _physics_entries(
    space: ParameterSpace, parameters: MeshParameters, gains: Mapping[str, float]
) -> tuple[ExtraPhysics, ...]:
    pairs, entries = space.physics.pairs, []
    for row in PHYSICS:
        if (values := parameters.extra_physics.get(row.name)) is None:
            continue
        listed = () if row.name == CROSSTALK_PAIRS else tuple(values.tolist())
        count = pairs.count if row.name == CROSSTALK_PAIRS and pairs else values.size
        width, gain = space.physics.widths.get(row.name, 0.0), gains.get(row.name, 0.0)
        entries.append(ExtraPhysics(row.name, row.description, count, width, gain, listed))
    return tuple(entries)


def _covariance_entry(space: ParameterSpace, covariance: Real | None, bound: Bound | None) -> CovarianceEntry | None:
    if covariance is None:
        return None
    fitted = [name for name in space.groups if name != CROSSTALK_PAIRS]
    groups = tuple((name, space.groups[name].stop - space.groups[name].start) for name in fitted)
    free = int((np.diag(covariance) > 0.0).sum())
    if bound is None:
        return CovarianceEntry(groups, free, free)
    by_prior = tuple(space.describe(int(index)) for index in np.flatnonzero(bound.set_by_prior()))
    return CovarianceEntry(groups, bound.rank, max(bound.reachable_rank or 0, bound.rank), by_prior, bound.unseen())
