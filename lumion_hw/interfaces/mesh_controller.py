"""Interface of a mesh controller, which drives heater currents and reads monitor photodiodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ControllerInfo:
    """Identity and capabilities that the controller reports.

    Attributes:
        n_heaters: Number of heater channels, numbered from 0.
        n_monitors: Number of monitor channels, numbered from 0.
        current_full_scale_ma: Largest current that a channel can be set to.
        current_step_ma: Smallest current step.
        atomic: Whether all channels change at the same instant.
        readback: Whether the present currents can be read back.
        watchdog: Whether the controller switches its outputs off when the host is silent for too long.
        on_board_sweep: Whether the controller can execute sweeps.
        telemetry: Whether the controller can stream monitor readings.
        monitor_full_scale_ma: Photocurrent at which a monitor saturates; 0 if unknown.
        monitor_step_ma: Smallest photocurrent step of a monitor; 0 if unknown.
        readback_tolerance_ma: Largest difference between set and measured current; 0 for controllers that do not
            measure their outputs.
        sweep_points: Number of points that always fit into one sweep; 0 without sweeps.
        watches_light: Whether the controller can report a loss or return of light at a monitor.
        tick_s: Resolution of the controller's time stamps; 0 if unknown.
    """

    model: str
    serial: str
    firmware: str
    n_heaters: int
    n_monitors: int
    current_full_scale_ma: float
    current_step_ma: float
    atomic: bool
    readback: bool
    watchdog: bool
    on_board_sweep: bool
    telemetry: bool = False
    monitor_full_scale_ma: float = 0.0
    monitor_step_ma: float = 0.0
    readback_tolerance_ma: float = 0.0
    sweep_points: int = 0
    watches_light: bool = False
    tick_s: float = 0.0


@dataclass(frozen=True)
class ControllerLimits:
    """Limits and safety settings of a controller.

    Attributes:
        heater_max_ma: Largest current per heater, shape ``(n_heaters,)``; 0 disables the channel.
        heater_ohm: Heater resistance for the calculation of the total power, shape ``(n_heaters,)``.
        total_power_mw: Largest power of all heaters together.
        watchdog_s: Longest silence of the host before the controller switches its outputs off.
    """

    heater_max_ma: NDArray[np.float64]
    heater_ohm: NDArray[np.float64]
    total_power_mw: float
    watchdog_s: float = 2.0


@dataclass(frozen=True)
class Generation:
    """Receipt for one setting of all heater currents.

    Attributes:
        number: Number of the setting, which increases within a session.
        crc32: CRC-32 of the currents (as codes) that the controller confirmed.
        timestamp_s: Host clock when the confirmation arrived.
    """

    number: int
    crc32: int
    timestamp_s: float


@dataclass(frozen=True)
class MonitorReading:
    """One reading of all monitor photodiodes.

    Attributes:
        photocurrent_ma: Shape ``(n_monitors,)``; NaN where ``saturated``.
        saturated: Shape ``(n_monitors,)``; ``True`` where the photocurrent exceeds full scale.
        generation: Number of the setting of heater currents (see :class:`Generation`) during the reading.
        timestamp_s: Host clock when the reading arrived.
    """

    photocurrent_ma: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    generation: int
    timestamp_s: float


@dataclass(frozen=True)
class Fault:
    """One entry in the fault list of a controller.

    Attributes:
        fault_id: Number by which the fault is cleared.
        source: Name of the source, such as ``WATCHDOG``.
        latched: Whether the fault has not been cleared yet.
        present: Whether the cause is still present.
        channel: Channel of the fault; ``None`` if it concerns no single channel.
        value: Measured value, in the unit of the fault source.
        limit: Threshold, in the unit of the fault source.
    """

    fault_id: int
    source: str
    latched: bool
    present: bool
    channel: int | None = None
    value: int = 0
    limit: int = 0
    extra: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the fault as one line of text."""
        candidates = self.extra.get("candidates", ())
        channels = [self.channel] if self.channel is not None else candidates if isinstance(candidates, tuple) else ()
        listed = ", ".join(map(str, channels))
        channel = "" if not listed else f" on {'channel' if len(channels) == 1 else 'one of channels'} {listed}"
        measured = f": {self._quantity(self.value)}, limit {self._quantity(self.limit)}" if self.limit else ""
        controller = f" of {self.extra['controller']}" if "controller" in self.extra else ""
        return f"{self.source}{controller} (id {self.fault_id}){channel}{measured}"

    def _quantity(self, value: int) -> str:
        unit = str(self.extra.get("unit", ""))
        factor, _, name = unit.partition(" ")
        try:
            return f"{value * float(factor):g} {name}"
        except ValueError:
            return f"{value} {unit}".rstrip()


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that the controller executes.

    Attributes:
        start_ma: Currents before the first point, shape ``(n_heaters,)``; ``None`` for the present currents.
        points: For each point, the heaters that change and their currents in mA.
        settle_s: Wait between setting a point and its first reading.
        n_avg: Number of readings averaged per point.
        monitors: Monitor channels to record, ascending; ``None`` for all.
        keep_last: Whether to keep the currents of the last point instead of those before the sweep.
    """

    points: tuple[Mapping[int, float], ...]
    start_ma: NDArray[np.float64] | None = None
    settle_s: float = 1e-3
    n_avg: int = 1
    monitors: tuple[int, ...] | None = None
    keep_last: bool = False


@dataclass(frozen=True)
class SweepResult:
    """Readings that a sweep recorded.

    Attributes:
        photocurrent_ma: Shape ``(n_points, n_monitors)``; NaN where ``saturated``.
        saturated: Shape ``(n_points, n_monitors)``.
        monitors: Monitor channel of each column.
        generation: Number of the sweep, counted together with the settings (:class:`Generation`).
        late: Number of points that took longer than planned.
    """

    photocurrent_ma: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    monitors: tuple[int, ...]
    generation: int
    late: int


@dataclass(frozen=True)
class TelemetrySample:
    """One reading of a stream.

    Attributes:
        reading: Readings of the selected monitors, in ascending order.
        dropped: Number of readings that the controller discarded so far because the host was too slow.
        lost: Number of readings lost on the link so far.
        chip_temperature_c: Temperature of the chip; ``None`` if the controller has no sensor.
    """

    reading: MonitorReading
    dropped: int
    lost: int
    chip_temperature_c: float | None


@dataclass(frozen=True)
class LightThreshold:
    """Photocurrents at which a monitor counts as dark or illuminated.

    Attributes:
        monitor: Monitor number.
        dark_below_ma: Photocurrent below which the monitor becomes dark.
        light_from_ma: Photocurrent from which the monitor becomes illuminated; at least ``dark_below_ma``.
        hold_s: Time for which all readings must agree before the state changes.
    """

    monitor: int
    dark_below_ma: float
    light_from_ma: float
    hold_s: float = 0.0


@dataclass(frozen=True)
class LightState:
    """Monitors that receive no light.

    Attributes:
        dark: Numbers of the dark monitors.
        held_s: Time from the first reading that showed the change to this report; 0 if nothing changed.
        generation: Number of the present setting of heater currents (see :class:`Generation`).
        timestamp_s: Host clock when the report arrived.
    """

    dark: frozenset[int]
    held_s: float
    generation: int
    timestamp_s: float


class LightWatcher(Protocol):
    """Reports loss and return of light at monitors, until it is closed."""

    def change(self, thresholds: Sequence[LightThreshold], period_s: float) -> None:
        """Replace the thresholds and the time between readings. All monitors start as illuminated."""

    def wait(self, timeout_s: float) -> LightState | None:
        """Return the next reported state, or ``None`` if no report arrives within ``timeout_s``."""

    def close(self) -> None:
        """Stop watching for light; idempotent."""


class OutputReadings(Protocol):
    """Voltages and currents at the outputs of a controller."""

    @property
    def voltage_v(self) -> NDArray[np.float64]:
        """Voltage of each channel in V, shape ``(n_heaters,)``."""

    @property
    def current_ma(self) -> NDArray[np.float64]:
        """Current of each channel in mA, shape ``(n_heaters,)``."""


@runtime_checkable
class MeasuresOutputs(Protocol):
    """A mesh controller that measures voltage and current of its outputs."""

    def read_channels(self) -> OutputReadings:
        """Return voltage and current of all channels, as measured."""


class MeshController(Protocol):
    """A controller of heater currents. Thread-safe.

    ``info`` lists the capabilities; unsupported calls raise ``NotSupportedError``.
    """

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities, read when the device is opened."""

    def configure(self, limits: ControllerLimits) -> None:
        """Apply limits and watchdog time. Does nothing if the controller already has these settings."""

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Set all heater currents: simultaneously if ``info.atomic``, otherwise one channel after the other.

        ``currents_ma`` has the shape ``(n_heaters,)``.

        Raises:
            LimitError: A value is outside the limits; the message names the channel. Nothing was changed.
            SafetyError: The controller keeps its outputs off because of latched faults.
            VerifyError: The controller confirmed other currents than those sent.
        """

    def read_back(self) -> NDArray[np.float64]:
        """Return the currents in mA, shape ``(n_heaters,)``, with an error of at most ``info.readback_tolerance_ma``.

        Raises:
            NotSupportedError: ``info.readback`` is false.
        """

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Read all monitors, averaged over ``n_avg`` readings.

        Raises:
            LimitError: ``n_avg`` is out of range.
            NotSupportedError: ``info.n_monitors`` is 0.
        """

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Run a sweep on the controller and return all readings.

        Raises:
            LimitError: A point is outside the limits; nothing was changed.
            ConfigError: The sweep has no points, or names a heater or monitor that does not exist.
            NotSupportedError: ``info.on_board_sweep`` is false.
            DeviceError: The sweep ended early; the message gives the reason and the number of recorded points.
        """

    def telemetry(
        self, period_s: float, *, monitors: tuple[int, ...] | None = None, n_avg: int = 1
    ) -> Iterator[TelemetrySample]:
        """Iterate over monitor readings that the controller streams, until the iterator is closed.

        Raises:
            LimitError: The period or ``n_avg`` is out of range.
            ConfigError: A monitor does not exist.
            NotSupportedError: ``info.telemetry`` is false.
        """

    def watch_light(self, thresholds: Sequence[LightThreshold], *, period_s: float = 1e-3) -> LightWatcher:
        """Let the controller report when light at a monitor is lost or returns.

        Raises:
            LimitError: A threshold, hold time or period is out of range.
            ConfigError: A monitor does not exist, or there are no thresholds.
            BusyError: A watcher is already active.
            NotSupportedError: ``info.watches_light`` is false.
        """

    def faults(self) -> tuple[Fault, ...]:
        """Return the controller's fault list, oldest first."""

    def clear_fault(self, fault_id: int) -> None:
        """Clear only the latched fault with this id. A second call with the same id is not an error.

        Raises:
            BadValueError: No fault has this id; nothing was cleared.
            SafetyError: The cause is still present; nothing was cleared.
        """

    def outputs_off(self) -> None:
        """Switch all outputs off in any state. This latches a fault that must be cleared by its id."""

    def close(self) -> None:
        """Set all outputs to zero without latching a fault and release the link; idempotent."""
