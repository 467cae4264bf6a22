"""The mesh controller: drives heater currents, reads port monitors, owns the safe state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ControllerInfo:
    """What the controller says of itself.

    Attributes:
        model: Product name.
        serial: Serial number, checked against the bench file.
        firmware: Firmware version.
        n_heaters: Number of drive channels, numbered from 0.
        n_monitors: Number of monitor channels, numbered from 0.
        current_full_scale_ma: Largest current a channel can express.
        current_step_ma: Smallest current step (one native code).
        atomic: All channels change at one edge.
        readback: The driven table can be read back.
        watchdog: The controller switches off by itself when the host is silent.
        on_board_sweep: Sweeps can be executed on the controller.
        telemetry: Monitors can be streamed.
        monitor_full_scale_ma: Photocurrent at which a monitor saturates; 0 if unknown.
        monitor_step_ma: Smallest photocurrent step of a monitor; 0 if unknown.
        readback_tolerance_ma: How far the table read back may be from the one driven, for controllers that measure
            their outputs; 0 for those that read back what they were told, to one step.
        sweep_points: Points that fit into one sweep whatever they change; 0 if there are no sweeps.
        watches_light: The controller tells by itself when light at a monitor goes or comes.
        tick_s: Step of the times it keeps by itself; 0 if unknown.
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
    """Limits and safety policy applied to a controller before anything is driven.

    Attributes:
        heater_max_ma: Largest current per heater, shape ``(n_heaters,)``; 0 switches a channel off for good.
        heater_ohm: Heater resistance used for the controller's power sum, shape ``(n_heaters,)``.
        total_power_mw: Cap on the computed power of a whole table.
        watchdog_s: Host silence after which the controller switches off.
    """

    heater_max_ma: NDArray[np.float64]
    heater_ohm: NDArray[np.float64]
    total_power_mw: float
    watchdog_s: float = 2.0


@dataclass(frozen=True)
class Generation:
    """Receipt of one atomic programming step.

    Attributes:
        number: Generation number, growing within a session.
        crc32: CRC-32 of the table the controller confirms to drive.
        timestamp_s: Host clock when the confirmation arrived.
    """

    number: int
    crc32: int
    timestamp_s: float


@dataclass(frozen=True)
class MonitorReading:
    """One scan of all monitors.

    Attributes:
        photocurrent_ma: Shape ``(n_monitors,)``; NaN where ``saturated``.
        saturated: Shape ``(n_monitors,)``; the true value is above full scale and unknown.
        generation: Generation that was driven when the scan was taken.
        timestamp_s: Host clock when the reading arrived.
    """

    photocurrent_ma: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    generation: int
    timestamp_s: float


@dataclass(frozen=True)
class Fault:
    """One fault the controller keeps.

    Attributes:
        fault_id: Number by which it is cleared.
        source: Name of the source, such as ``WATCHDOG``.
        latched: Still latched.
        present: The condition is still there.
        channel: Channel concerned, if one is.
        value: What was measured, in the unit of the source.
        limit: The threshold, in the unit of the source.
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
        """Return source, number, channels, and the measured value with its limit."""
        candidates = self.extra.get("candidates", ())
        channels = [self.channel] if self.channel is not None else candidates if isinstance(candidates, tuple) else ()
        listed = ", ".join(map(str, channels))
        channel = "" if not listed else f" on {'channel' if len(channels) == 1 else 'one of channels'} {listed}"
        measured = f": {self._quantity(self.value)}, limit {self._quantity(self.limit)}" if self.limit else ""
        return f"{self.source} (id {self.fault_id}){channel}{measured}"

    def _quantity(self, value: int) -> str:
        """Return a value with its unit, which may have a factor, such as ``0.01 °C``."""
        unit = str(self.extra.get("unit", ""))
        factor, _, name = unit.partition(" ")
        try:
            return f"{value * float(factor):g} {name}"
        except ValueError:
            return f"{value} {unit}".rstrip()


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that the controller executes by itself.

    Attributes:
        start_ma: Table before the first point, shape ``(n_heaters,)``; the one driven now if ``None``.
        points: One mapping of heater to current in mA per point; heaters not named keep the value of the point before.
        settle_s: Wait between the latch of a point and its first scan.
        n_avg: Scans averaged per point.
        monitors: Monitor channels to record, ascending; all if ``None``.
        keep_last: Keep driving the last point; otherwise the table from before the sweep is driven again.
    """

    points: tuple[Mapping[int, float], ...]
    start_ma: NDArray[np.float64] | None = None
    settle_s: float = 1e-3
    n_avg: int = 1
    monitors: tuple[int, ...] | None = None
    keep_last: bool = False


@dataclass(frozen=True)
class SweepResult:
    """What a sweep recorded.

    Attributes:
        photocurrent_ma: Shape ``(n_points, n_monitors)``; NaN where ``saturated``.
        saturated: Shape ``(n_points, n_monitors)``.
        monitors: Monitor channel of each column.
        generation: Generation of the run.
        late: Points that took longer than planned.
    """

    photocurrent_ma: NDArray[np.float64]
    saturated: NDArray[np.bool_]
    monitors: tuple[int, ...]
    generation: int
    late: int


@dataclass(frozen=True)
class TelemetrySample:
    """One record of a monitor stream.

    Attributes:
        reading: The monitors selected, in ascending order.
        dropped: Records the controller has discarded so far, for lack of credit or queue space.
        lost: Records lost on the wire so far.
        chip_temperature_c: Temperature of the chip, ``None`` if the controller has no sensor.
    """

    reading: MonitorReading
    dropped: int
    lost: int
    chip_temperature_c: float | None


@dataclass(frozen=True)
class LightThreshold:
    """When a monitor counts as dark, and when as lit again.

    Attributes:
        monitor: Number of the monitor.
        dark_below_ma: Photocurrent below which it is dark.
        light_from_ma: Photocurrent from which on it is lit again; at least ``dark_below_ma``. Between the two it stays
            what it was.
        hold_s: Time for which readings have to stay so before it counts.
    """

    monitor: int
    dark_below_ma: float
    light_from_ma: float
    hold_s: float = 0.0


@dataclass(frozen=True)
class LightState:
    """Which of the watched monitors are dark.

    Attributes:
        dark: Their numbers.
        held_s: How long before this was decided the first reading showed the change; 0 if nothing changed.
        generation: Generation that was driven.
        timestamp_s: Host clock when it was told.
    """

    dark: frozenset[int]
    held_s: float
    generation: int
    timestamp_s: float


class LightWatcher(Protocol):
    """A watch over monitors; close it when it is no longer needed."""

    def change(self, thresholds: Sequence[LightThreshold], period_s: float) -> None:
        """Watch other monitors, or with other thresholds, from now on; every monitor begins as lit."""

    def wait(self, timeout_s: float) -> LightState | None:
        """Return the next state told, or ``None`` when none has come within ``timeout_s``."""

    def close(self) -> None:
        """End the watch; idempotent."""


class MeshController(Protocol):
    """A controller of heater currents. Thread-safe; every method either holds or raises a ``LumionError``.

    What a controller cannot do it says in ``info``, and the method raises ``NotSupportedError``.
    """

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities, read when the device was opened."""

    def configure(self, limits: ControllerLimits) -> None:
        """Apply limits and watchdog policy. A controller that already has this configuration is left alone."""

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Drive all heaters, at one edge if ``info.atomic``, otherwise each straight from its old to its new current.

        A table that is refused changes nothing.

        Args:
            currents_ma: Shape ``(n_heaters,)``.

        Raises:
            LimitError: A value is outside the limits; the message names the channel.
            SafetyError: The controller is in its safe state with latched faults.
            VerifyError: The controller confirmed another table than the one sent.
        """

    def read_back(self) -> NDArray[np.float64]:
        """Return the driven currents in mA, shape ``(n_heaters,)``, to ``info.readback_tolerance_ma`` or one step.

        Raises:
            NotSupportedError: ``info.readback`` is false.
        """

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Read all monitors, averaging ``n_avg`` scans.

        Raises:
            LimitError: No such average.
            NotSupportedError: ``info.n_monitors`` is 0.
        """

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Run a sweep on the controller and return everything it recorded.

        Raises:
            LimitError: A point is outside the limits; nothing was driven.
            ConfigError: There is no point, or a heater or monitor that does not exist.
            NotSupportedError: ``info.on_board_sweep`` is false.
            DeviceError: The run ended early; the message says why and how many points were recorded.
        """

    def telemetry(
        self, period_s: float, *, monitors: tuple[int, ...] | None = None, n_avg: int = 1
    ) -> Iterator[TelemetrySample]:
        """Iterate over monitor readings that the controller sends by itself, until the iterator is closed.

        Raises:
            LimitError: No such period or average.
            ConfigError: A monitor does not exist.
            NotSupportedError: ``info.telemetry`` is false.
        """

    def watch_light(self, thresholds: Sequence[LightThreshold], *, period_s: float = 1e-3) -> LightWatcher:
        """Let the controller watch monitors by itself and tell when light goes or comes.

        Raises:
            LimitError: A threshold, hold-off or period cannot be expressed.
            ConfigError: A monitor does not exist, or none is given.
            BusyError: It watches already.
            NotSupportedError: ``info.watches_light`` is false.
        """

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults the controller keeps, oldest first."""

    def clear_fault(self, fault_id: int) -> None:
        """Clear the latched fault of this id and no other; one that was cleared before stays so.

        Raises:
            BadValueError: No fault was given this id; nothing was cleared.
            SafetyError: Its cause is still present; nothing was cleared.
        """

    def outputs_off(self) -> None:
        """Switch all outputs off, whatever the state; latches a fault that has to be cleared by its id."""

    def close(self) -> None:
        """Bring the outputs to zero without latching a fault, and release the link; idempotent."""
