"""The mesh of a bench: topology, controller, and channels of heaters and monitors."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.meter_monitors import MeterMonitors
from lumion_hw.clock import Clock
from lumion_hw.errors import LIST_FAULTS, BusyError, CalibrationError, ConfigError, NotSupportedError, VerifyError
from lumion_hw.interfaces import Generation, MeasuresOutputs, MeshController, SweepPlan
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import COMMAND_LINE, EMULATED_CHIP, CalibrationRecord

_TEMPERATURE_PERIOD_S = 0.01
SETTLE_S = 1e-3
"""Default wait after programming, in seconds: ten thermal time constants of an undercut heater."""
MIN_WAIT_TAUS = 5.0
"""Shortest allowed wait, in thermal time constants: 0.7 % of a temperature change remains."""
_DEFAULT_WAIT_TAUS = 10.0
"""Default wait, in measured time constants: phases then change by less than 0.5 mrad."""
_TAU_TOLERANCE = 0.1
"""Relative tolerance of the shortest wait, for the error of measured time constants."""


_MIN_RESISTANCE_MA = 0.2
"""Smallest current at which a resistance is measured; below it the offset of the voltage reading is too large."""


@dataclass
class MeshAccess:
    """A mesh with its controller and its light monitors.

    Attributes:
        heater_channels: Controller channel of every heater, by 2·PUC + arm; ``NO_CHANNEL`` without a heater.
        monitor_ports: Mesh port of every monitor (photodiode of the controller or power meter).
        responsivity_a_per_w: Nominal responsivity of the monitors.
        heater_max_ma: Largest heater current.
        heater_ohm: Nominal heater resistance.
        settle_s: Wait after programming until the heaters have settled.
        meters: Power meters used as monitors if the controller has none.
        settle_fixed: Whether the bench file gives ``settle_s``; otherwise it is calculated from ``heater_tau_s``.
        heater_tau_s: Thermal time constant of the heaters; ``None`` if unknown.
        emulated_chip: Identifier of the chip if it is emulated in this process, otherwise ``None``.
        shares: Channels of each controller if several drive the mesh, otherwise empty.
    """

    topology: MeshTopology
    controller: MeshController
    heater_channels: tuple[int, ...]
    monitor_ports: tuple[int, ...]
    responsivity_a_per_w: float
    heater_max_ma: float
    heater_ohm: float
    settle_s: float
    clock: Clock
    meters: MeterMonitors | None = None
    settle_fixed: bool = False
    heater_tau_s: float | None = None
    emulated_chip: str | None = None
    shares: tuple[slice, ...] = ()
    _programmed_ma: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<MeshAccess to {self.topology!r} over {self.controller.info.model} {self.controller.info.serial}>"

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_picture
        from lumion_hw.mesh.picture.drawing import mesh_svg

        svg = mesh_svg(self.topology, heater_channels=self.heater_channels)
        return html_picture(f"Mesh of {self.controller.info.serial}", svg)

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` if the controller has too few channels for the mesh."""
        self._programmed_ma = np.zeros(len(self.heater_channels))
        info = self.controller.info
        n_heaters = max(self.heater_channels, default=-1) + 1
        for quantity, available, needed in (
            ("heaters", info.n_heaters, n_heaters),
            ("monitors", info.n_monitors, 0 if self.meters else len(self.monitor_ports)),
        ):
            if available < needed:
                raise ConfigError(
                    f"controller {info.serial} has {available} {quantity}, but the bench file needs {needed}",
                    hint="Check 'mesh' in the bench file, or connect the controller of this mesh.",
                )

    def set_heater_time_constant(self, tau_s: float, source: str) -> None:
        """Set the thermal time constant of the heaters, which determines the wait after programming.

        ``source`` says where the value comes from, for error messages.

        Raises:
            ConfigError: ``mesh.settle_s`` in the bench file is shorter than five time constants.
        """
        min_s = MIN_WAIT_TAUS * tau_s
        if self.settle_fixed and self.settle_s < min_s * (1.0 - _TAU_TOLERANCE):
            raise ConfigError(
                f"mesh.settle_s is {self.settle_s:.2g} s, which is too short: the thermal time constant of the heaters "
                f"is {tau_s:.2g} s according to {source}, and at least {MIN_WAIT_TAUS:g} time constants are needed",
                hint=f"Set mesh.settle_s to {min_s:.2g} s or more in the bench file, or leave it out.",
            )
        self.heater_tau_s = tau_s
        if not self.settle_fixed:
            wait_s = _DEFAULT_WAIT_TAUS * tau_s
            self.settle_s = SETTLE_S if wait_s * (1.0 - _TAU_TOLERANCE) <= SETTLE_S else float(f"{wait_s:.2g}")

    def program(self, heater_currents_ma: NDArray[np.float64], settle_s: float | None = None) -> Generation:
        """Set the currents of all heaters and wait until the heaters have settled.

        Args:
            heater_currents_ma: Shape ``(2 n_pucs,)``, index 2·PUC + arm; channels without a heater get 0.
            settle_s: Wait in seconds that replaces :attr:`settle_s`.

        Raises:
            ConfigError: The shape is wrong.
            LumionError: As for :meth:`~lumion_hw.interfaces.MeshController.program`.
        """
        table = self._table(heater_currents_ma)
        generation = self.controller.program(table)
        self._programmed_ma = self._heater_currents(table)
        self.clock.sleep(self.settle_s if settle_s is None else settle_s)
        return generation

    def sweep(self, heater_currents_ma: NDArray[np.float64], settle_s: float | None = None) -> NDArray[np.float64]:
        """Program heater settings one after another and read all monitors at each.

        The last setting stays active.

        Args:
            heater_currents_ma: Shape ``(n, 2 n_pucs)``, index 2·PUC + arm.
            settle_s: Wait in seconds that replaces :attr:`settle_s`.

        Returns:
            Photocurrents in mA in the order of ``monitor_ports``, shape ``(n, n_monitors)``; NaN if saturated.

        Raises:
            ConfigError: The shape is wrong.
            OutOfRangeError: A power meter used as a monitor is overloaded.
            LumionError: As for :meth:`~lumion_hw.interfaces.MeshController.sweep`; some settings may have been active.
        """
        tables = [self._table(currents_ma) for currents_ma in heater_currents_ma]
        read = [np.zeros((0, len(self.monitor_ports)))]
        if self.meters or not self.controller.info.on_board_sweep:
            for currents_ma in heater_currents_ma:
                self.program(currents_ma, settle_s)
                read.append(self.monitors_ma()[None])
        else:
            chunk = max(1, self.controller.info.sweep_points)
            wait_s = self.settle_s if settle_s is None else settle_s
            read += [
                self._sweep_on_board(tables[first : first + chunk], wait_s) for first in range(0, len(tables), chunk)
            ]
        return np.concatenate(read)

    def _sweep_on_board(self, tables: list[NDArray[np.float64]], settle_s: float) -> NDArray[np.float64]:
        # A point lists only the changed channels, so the first one must list all.
        points = [dict(enumerate(tables[0].tolist()))]
        for before, after in pairwise(tables):
            points.append({int(channel): float(after[channel]) for channel in np.flatnonzero(after != before)})
        monitors = tuple(range(len(self.monitor_ports)))
        plan = SweepPlan(tuple(points), settle_s=settle_s, monitors=monitors, keep_last=True)
        result = self.controller.sweep(plan)
        self._programmed_ma = self._heater_currents(tables[-1])
        return result.photocurrent_ma

    def _table(self, heater_currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        if np.shape(heater_currents_ma) != (len(self.heater_channels),):
            raise ConfigError(
                f"{len(self.heater_channels)} heater currents expected, found shape {np.shape(heater_currents_ma)}",
                hint="Give one current per heater, in the order 2·PUC + arm.",
            )
        channels, currents = np.array(self.heater_channels), np.asarray(heater_currents_ma, dtype=np.float64)
        missing = channels == NO_CHANNEL
        if currents[missing].any():
            heater = int(np.flatnonzero(missing & (currents != 0.0))[0])
            raise ConfigError(
                f"the {('upper', 'lower')[heater % 2]} arm of PUC {heater // 2} has no heater, but a current of "
                f"{currents[heater]:g} mA is requested",
                hint="Give 0 for arms without a heater.",
            )
        table = np.zeros(self.controller.info.n_heaters)
        table[channels[~missing]] = currents[~missing]
        return table

    def _heater_currents(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        channels = np.array(self.heater_channels)
        currents: NDArray[np.float64] = np.where(channels == NO_CHANNEL, 0.0, table[np.maximum(channels, 0)])
        return currents

    def confirmed_currents_ma(self) -> NDArray[np.float64]:
        """Return the active heater currents in mA, shape ``(2 n_pucs,)``, as values that can be programmed again.

        If the controller measures its outputs with noise, the result is the currents programmed last, or zeros.

        Raises:
            VerifyError: The measured currents match neither the currents programmed last nor zeros.
        """
        driven = self.read_back_ma()
        tolerance_ma = self.controller.info.readback_tolerance_ma
        if not tolerance_ma:
            return driven
        for expected_ma in (self._programmed_ma, np.zeros(len(driven))):
            if np.all(np.abs(driven - expected_ma) <= tolerance_ma):
                return expected_ma.copy()
        heater = int(np.argmax(np.abs(driven - self._programmed_ma)))
        raise VerifyError(
            f"heater {heater}: measured current does not match the programmed current",
            wrote=f"{self._programmed_ma[heater]:.4f} mA",
            read=f"{driven[heater]:.4f} mA",
            hint=f"Another program is driving this mesh, or the heater is broken. {LIST_FAULTS}.",
        )

    def is_driving(self, heater_currents_ma: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return for each heater whether the controller drives the given current, as a Boolean array.

        ``heater_currents_ma`` has the shape ``(2 n_pucs,)``, index 2·PUC + arm. If all heaters match,
        :meth:`confirmed_currents_ma` accepts these currents from then on.
        """
        expected_ma = self._heater_currents(self._table(heater_currents_ma))
        info = self.controller.info
        # 0.51 instead of 0.5 steps, to allow for floating-point errors.
        tolerance_ma = max(info.readback_tolerance_ma, 0.51 * info.current_step_ma)
        matches: NDArray[np.bool_] = np.abs(self.read_back_ma() - expected_ma) <= tolerance_ma
        if matches.all():
            self._programmed_ma = expected_ma
        return matches

    def is_partly_off(self, heater_currents_ma: NDArray[np.float64]) -> bool:
        """Return whether some of several controllers drive their share of the given currents, and the others nothing.

        This is the case after a power cut of one controller while no program was using the mesh.
        """
        channels = np.array(self.heater_channels)
        matches, is_off = (self.is_driving(given) for given in (heater_currents_ma, np.zeros(len(channels))))
        own = [(channels >= share.start) & (channels < share.stop) for share in self.shares]
        return bool(own) and all(matches[heaters].all() or is_off[heaters].all() for heaters in own)

    def read_back_ma(self) -> NDArray[np.float64]:
        """Return the heater currents that the controller reports, in mA, shape ``(2 n_pucs,)``."""
        return self._heater_currents(self.controller.read_back())

    @property
    def measures_resistances(self) -> bool:
        """Whether the controller measures the resistance of the heaters."""
        return isinstance(self.controller, MeasuresOutputs)

    def heater_resistances_ohm(self) -> NDArray[np.float64]:
        """Return the measured resistance of every heater in ohms, shape ``(2 n_pucs,)``.

        NaN for heaters that are off, and for all heaters if the controller measures no voltages.
        """
        if not isinstance(self.controller, MeasuresOutputs):
            return np.full(len(self.heater_channels), np.nan)
        readings = self.controller.read_channels()
        current_ma = self._heater_currents(readings.current_ma)
        is_on = current_ma > _MIN_RESISTANCE_MA
        voltage_v = self._heater_currents(readings.voltage_v)
        resistance: NDArray[np.float64] = np.where(is_on, 1e3 * voltage_v / np.where(is_on, current_ma, 1.0), np.nan)
        return resistance

    def confirm_driven(self, heater_currents_ma: NDArray[np.float64]) -> None:
        """Verify that the controller drives the given currents; :meth:`confirmed_currents_ma` then accepts them.

        ``heater_currents_ma`` has the shape ``(2 n_pucs,)``, index 2·PUC + arm.

        Raises:
            VerifyError: A current differs; the message gives the first heater with a difference.
        """
        matches = self.is_driving(heater_currents_ma)
        if not matches.all():
            heater = int(np.argmin(matches))
            raise VerifyError(
                f"heater {heater}: the controller drives a current other than expected",
                wrote=f"{heater_currents_ma[heater]:.4f} mA",
                read=f"{self.read_back_ma()[heater]:.4f} mA",
                hint="Another program has changed the currents of this mesh, or the mesh was switched off.",
            )

    @property
    def monitor_step_ma(self) -> float:
        """Resolution of the photocurrents, in mA; 0 if unknown."""
        return 0.0 if self.meters else self.controller.info.monitor_step_ma

    @property
    def monitor_full_scale_ma(self) -> float:
        """Photocurrent in mA at which a monitor saturates; 0 if unknown."""
        return 0.0 if self.meters else self.controller.info.monitor_full_scale_ma

    def monitors_ma(self, n_avg: int = 1) -> NDArray[np.float64]:
        """Return the photocurrents of all monitors in mA, in the order of ``monitor_ports``; NaN if saturated.

        Raises:
            OutOfRangeError: A power meter used as a monitor is overloaded.
        """
        if self.meters:
            return self.meters.photocurrent_ma(n_avg)
        return self.controller.read_monitors(n_avg).photocurrent_ma[: len(self.monitor_ports)]

    def chip_temperature_c(self) -> float | None:
        """Return the chip temperature in °C, or ``None`` if the controller does not report it."""
        try:
            stream = self.controller.telemetry(_TEMPERATURE_PERIOD_S)
        except (NotSupportedError, BusyError):
            return None
        with contextlib.closing(stream):  # type: ignore[type-var] # the iterators of all drivers have close()
            return next(stream).chip_temperature_c

    def check_record(self, record: CalibrationRecord, *, allow_incomplete: bool = False) -> None:
        """Check that a calibration record is complete and belongs to this controller, mesh and channel map.

        The time constant in the record, if any, then determines the wait after programming.

        Args:
            record: The record.
            allow_incomplete: Whether to accept the record of an interrupted run.

        Raises:
            CalibrationError: The record belongs to another device or is incomplete; the message says what differs.
            ConfigError: ``mesh.settle_s`` in the bench file is too short for these heaters.
        """
        record.check_device(self.controller.info.serial, self.topology, self.heater_channels, self.monitor_ports)
        chip = record.provenance.get(EMULATED_CHIP)
        if chip is not None and self.emulated_chip not in (None, chip):
            command = record.provenance.get(COMMAND_LINE)
            made = f"The record was made by `{command}`. " if command else ""
            raise CalibrationError(
                f"the calibration record belongs to emulated chip {chip}, but this bench emulates {self.emulated_chip}",
                hint=f"{made}Use the seed and the physics of the record, or calibrate this chip.",
            )
        record.check_complete(allow_incomplete=allow_incomplete)
        if record.conditions.heater_tau_s is not None:
            self.set_heater_time_constant(record.conditions.heater_tau_s, "the calibration record")
