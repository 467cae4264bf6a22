"""The mesh of a bench: its topology, its controller, and the map between heaters, monitors and channels."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.meter_monitors import MeterMonitors
from lumion_hw.clock import Clock
from lumion_hw.errors import LIST_FAULTS, BusyError, CalibrationError, ConfigError, NotSupportedError, VerifyError
from lumion_hw.interfaces import Generation, MeshController, SweepPlan
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.record.calibration_record import EMULATED_CHIP, CalibrationRecord

_TEMPERATURE_PERIOD_S = 0.01
SETTLE_S = 1e-3
"""Wait after programming while nothing else is known: ten thermal time constants of an undercut heater."""
MIN_WAIT_TAUS = 5.0
"""Time constants below which a wait is refused: what is left of a change of heat is then 0.7 %."""
_DEFAULT_WAIT_TAUS = 10.0
"""Time constants waited where the bench file leaves the choice: what is left moves no phase by half a milliradian."""
_MEASURED_WITHIN = 0.1
"""A time constant from light is off by a few percent; a wait is not judged by less than this."""


@dataclass
class MeshAccess:
    """A mesh and the way to it.

    Attributes:
        topology: The mesh as a graph.
        controller: Drives the heaters and reads the monitors.
        heater_channels: Drive channel of every heater, by 2·PUC + arm.
        monitor_ports: Port of every monitor: photodiode of the controller, or power meter.
        responsivity_a_per_w: Nominal responsivity of the monitors.
        heater_max_ma: Largest heater current.
        heater_ohm: Nominal heater resistance.
        settle_s: Wait after programming until the heaters have settled.
        clock: The bench's clock.
        meters: Power meters that stand in for the monitors of a controller without any.
        settle_fixed: Whether the bench file says how long to wait; otherwise it follows from the heaters.
        heater_tau_s: Thermal time constant of the heaters, measured or from a record; ``None`` if not known.
        emulated_chip: Name of the chip that is emulated in this process; ``None`` if none is.
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
    _programmed_ma: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return one line."""
        return f"<MeshAccess to {self.topology!r} over {self.controller.info.model} {self.controller.info.serial}>"

    def _repr_html_(self) -> str:
        """Return a picture of the mesh for a notebook."""
        from lumion_hw.files.html import html_picture
        from lumion_hw.mesh.picture.drawing import mesh_svg

        return html_picture(f"Mesh of {self.controller.info.serial}", mesh_svg(self.topology))

    def __post_init__(self) -> None:
        """Refuse a controller with fewer channels than the mesh needs."""
        self._programmed_ma = np.zeros(len(self.heater_channels))
        info = self.controller.info
        needed = max(self.heater_channels, default=-1) + 1
        for what, has, needs in (
            ("heaters", info.n_heaters, needed),
            ("monitors", info.n_monitors, 0 if self.meters else len(self.monitor_ports)),
        ):
            if has < needs:
                raise ConfigError(
                    f"controller {info.serial} has {has} {what}, the bench file needs {needs}",
                    hint="Check 'mesh' in the bench file, or use the controller of this mesh.",
                )

    def set_heater_time_constant(self, tau_s: float, source: str) -> None:
        """From now on wait as long after every setting as heaters of this time constant take.

        Args:
            tau_s: Their thermal time constant.
            source: Where it is from, in words.

        Raises:
            ConfigError: The bench file asks for a wait of less than five time constants.
        """
        least_s = MIN_WAIT_TAUS * tau_s
        if self.settle_fixed and self.settle_s < least_s * (1.0 - _MEASURED_WITHIN):
            raise ConfigError(
                f"mesh.settle_s is {self.settle_s:.2g} s, expected at least {MIN_WAIT_TAUS:g} time constants of the "
                f"heaters: {source} says {tau_s:.2g} s each. Readings would show the setting before",
                hint=f"Set mesh.settle_s to {least_s:.2g} s or more in the bench file, or leave it out.",
            )
        self.heater_tau_s = tau_s
        if not self.settle_fixed:
            own_s = _DEFAULT_WAIT_TAUS * tau_s
            self.settle_s = SETTLE_S if own_s * (1.0 - _MEASURED_WITHIN) <= SETTLE_S else float(f"{own_s:.2g}")

    def program(self, heater_currents_ma: NDArray[np.float64], settle_s: float | None = None) -> Generation:
        """Drive all heaters and wait until they have settled.

        Args:
            heater_currents_ma: Shape ``(2 n_pucs,)``, by 2·PUC + arm; channels without a heater are driven with 0.
            settle_s: Another wait than usual: to see heaters settle.

        Raises:
            ConfigError: There is not one current per heater.
            LumionError: As :meth:`~lumion_hw.interfaces.MeshController.program`.
        """
        table = self._table(heater_currents_ma)
        generation = self.controller.program(table)
        self._programmed_ma = table[list(self.heater_channels)]
        self.clock.sleep(self.settle_s if settle_s is None else settle_s)
        return generation

    def sweep(self, heater_currents_ma: NDArray[np.float64], settle_s: float | None = None) -> NDArray[np.float64]:
        """Drive settings one after the other, let each settle, and read all monitors once at each.

        On controllers that run sweeps by themselves the host does not stand between two settings; elsewhere each is
        programmed and read. The last one stays driven.

        Args:
            heater_currents_ma: Shape ``(n, 2 n_pucs)``, by 2·PUC + arm.
            settle_s: Another wait than usual: to see heaters settle.

        Returns:
            Photocurrents in the order of ``monitor_ports``, shape ``(n, n_monitors)``; NaN where one is saturated.

        Raises:
            ConfigError: There is not one current per heater.
            OutOfRangeError: A power meter that stands in for a monitor is overloaded.
            LumionError: As :meth:`~lumion_hw.interfaces.MeshController.sweep`; settings before the failure may have
                been driven.
        """
        tables = [self._table(currents_ma) for currents_ma in heater_currents_ma]
        read = [np.zeros((0, len(self.monitor_ports)))]
        if self.meters or not self.controller.info.on_board_sweep:
            for currents_ma in heater_currents_ma:
                self.program(currents_ma, settle_s)
                read.append(self.monitors_ma()[None])
        else:
            most = max(1, self.controller.info.sweep_points)
            wait_s = self.settle_s if settle_s is None else settle_s
            read += [
                self._sweep_on_board(tables[first : first + most], wait_s) for first in range(0, len(tables), most)
            ]
        return np.concatenate(read)

    def _sweep_on_board(self, tables: list[NDArray[np.float64]], settle_s: float) -> NDArray[np.float64]:
        """Run tables as one sweep of the controller: the first whole, of the others what changes."""
        points = [dict(enumerate(tables[0].tolist()))]
        for before, after in pairwise(tables):
            points.append({int(channel): float(after[channel]) for channel in np.flatnonzero(after != before)})
        monitors = tuple(range(len(self.monitor_ports)))
        plan = SweepPlan(tuple(points), settle_s=settle_s, monitors=monitors, keep_last=True)
        result = self.controller.sweep(plan)
        self._programmed_ma = tables[-1][list(self.heater_channels)]
        return result.photocurrent_ma

    def _table(self, heater_currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the currents of all channels; those without a heater are off."""
        if np.shape(heater_currents_ma) != (len(self.heater_channels),):
            raise ConfigError(
                f"currents of shape {np.shape(heater_currents_ma)} for {len(self.heater_channels)} heaters",
                hint="Give one current per heater, by 2 PUC + arm.",
            )
        table = np.zeros(self.controller.info.n_heaters)
        table[list(self.heater_channels)] = heater_currents_ma
        return table

    def confirmed_currents_ma(self) -> NDArray[np.float64]:
        """Return the currents driven now, shape ``(2 n_pucs,)``, good to be programmed again.

        What the controller reads back, if it reads back what it was told. A controller that measures its outputs
        confirms what was programmed last, or zeros: its readings are no currents to be programmed.

        Raises:
            VerifyError: A measuring controller drives neither.
        """
        driven = self.read_back_ma()
        tolerance_ma = self.controller.info.readback_tolerance_ma
        if not tolerance_ma:
            return driven
        for known_ma in (self._programmed_ma, np.zeros(len(driven))):
            if np.all(np.abs(driven - known_ma) <= tolerance_ma):
                return known_ma.copy()
        heater = int(np.argmax(np.abs(driven - self._programmed_ma)))
        raise VerifyError(
            f"current of heater {heater}",
            wrote=f"{self._programmed_ma[heater]:.4f} mA",
            read=f"{driven[heater]:.4f} mA",
            hint=f"Somebody else drives this mesh, or a heater is broken. {LIST_FAULTS}.",
        )

    def is_driving(self, heater_currents_ma: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Compare what is driven with currents that somebody has set; if all fit, they count as programmed from here.

        Args:
            heater_currents_ma: Shape ``(2 n_pucs,)``, by 2·PUC + arm.

        Returns:
            Heater by heater, whether it is driven so: within the tolerance of a controller that measures, or half a
            step of one that reads back what it was told.
        """
        wanted = self._table(heater_currents_ma)[list(self.heater_channels)]
        info = self.controller.info
        # Half a step is what rounding costs, and a little of it what a floating-point number does.
        tolerance_ma = max(info.readback_tolerance_ma, 0.51 * info.current_step_ma)
        fits: NDArray[np.bool_] = np.abs(self.read_back_ma() - wanted) <= tolerance_ma
        if fits.all():
            self._programmed_ma = wanted
        return fits

    def read_back_ma(self) -> NDArray[np.float64]:
        """Return the currents as the controller reads them back, shape ``(2 n_pucs,)``; of some these are measured."""
        driven: NDArray[np.float64] = self.controller.read_back()[list(self.heater_channels)]
        return driven

    def confirm_driven(self, heater_currents_ma: NDArray[np.float64]) -> None:
        """Check that these currents are driven, whoever set them; from then on they count as programmed here.

        Args:
            heater_currents_ma: Shape ``(2 n_pucs,)``, by 2·PUC + arm.

        Raises:
            VerifyError: The controller drives something else; the message names the first such heater.
        """
        fits = self.is_driving(heater_currents_ma)
        if not fits.all():
            heater = int(np.argmin(fits))
            raise VerifyError(
                f"current of heater {heater}",
                wrote=f"{heater_currents_ma[heater]:.4f} mA",
                read=f"{self.read_back_ma()[heater]:.4f} mA",
                hint="Somebody else has driven this mesh since, or it was switched off.",
            )

    @property
    def monitor_step_ma(self) -> float:
        """Smallest photocurrent step; 0 if unknown."""
        return 0.0 if self.meters else self.controller.info.monitor_step_ma

    @property
    def monitor_full_scale_ma(self) -> float:
        """Photocurrent at which a monitor saturates; 0 if unknown."""
        return 0.0 if self.meters else self.controller.info.monitor_full_scale_ma

    def monitors_ma(self, n_avg: int = 1) -> NDArray[np.float64]:
        """Return the photocurrents in the order of ``monitor_ports``; NaN where a monitor is saturated.

        Raises:
            OutOfRangeError: A power meter that stands in for a monitor is overloaded.
        """
        if self.meters:
            return self.meters.photocurrent_ma(n_avg)
        return self.controller.read_monitors(n_avg).photocurrent_ma[: len(self.monitor_ports)]

    def chip_temperature_c(self) -> float | None:
        """Return the temperature of the chip; ``None`` if the controller has no sensor, or no stream to tell it by."""
        try:
            stream = self.controller.telemetry(_TEMPERATURE_PERIOD_S)
        except (NotSupportedError, BusyError):
            return None
        with contextlib.closing(stream):  # type: ignore[type-var] # every driver's iterator has close()
            return next(stream).chip_temperature_c

    def check_record(self, record: CalibrationRecord, *, allow_incomplete: bool = False) -> None:
        """Refuse a calibration of another controller, mesh or channel map, or an incomplete one.

        From now on heaters are waited for as long as the record says they take.

        Args:
            record: The record.
            allow_incomplete: Whether the record of an interrupted run will do; only PUCs it knows can then be used.

        Raises:
            CalibrationError: The record does not belong here; the message says what differs.
            ConfigError: The bench file asks for a wait that is too short for these heaters.
        """
        record.check_device(self.controller.info.serial, self.topology, self.heater_channels, self.monitor_ports)
        chip = record.provenance.get(EMULATED_CHIP)
        if chip is not None and self.emulated_chip not in (None, chip):
            raise CalibrationError(
                f"this calibration record is of emulated chip {chip}, and this bench emulates {self.emulated_chip}",
                hint="Emulate with the seed and the physics of the record, or calibrate this chip.",
            )
        record.check_complete(allow_incomplete=allow_incomplete)
        if record.conditions.heater_tau_s is not None:
            self.set_heater_time_constant(record.conditions.heater_tau_s, "the calibration record")
