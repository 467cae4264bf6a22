"""Several mesh controllers that drive one mesh, used as one controller."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import accumulate, pairwise
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock, deadline_after, results_of, run_to_future
from lumion_hw.drivers.life_cycle import Driver
from lumion_hw.drivers.mesh.lumion.config import check_power, checked_currents
from lumion_hw.drivers.mesh.lumion.monitors import checked_monitors
from lumion_hw.drivers.ranges import check_fault_id, numbers_per_channel
from lumion_hw.errors import (
    LIST_FAULTS,
    BadValueError,
    ConfigError,
    ConnectError,
    DeviceAddress,
    LinkError,
    LinkLost,
    LumionError,
    NotSupportedError,
    SafetyError,
)
from lumion_hw.interfaces import (
    ControllerInfo,
    ControllerLimits,
    Fault,
    Generation,
    LightState,
    LightThreshold,
    LightWatcher,
    MeasuresOutputs,
    MeshController,
    MonitorReading,
    OutputReadings,
    SweepPlan,
    SweepResult,
    TelemetrySample,
)
from lumion_hw.links.owner import fork_safe

_log = logging.getLogger(__name__)

T = TypeVar("T")
_ID_STEP = 100
"""Fault 3 of the second controller has the id 302; a bench file lists at most 16 controllers."""
_LIGHT_SLICE_S = 2e-3
"""Time for which a watch for light waits for one controller before it looks at the next."""
_MEASURED = "voltage_v", "current_ma"
_IN_DOUBT = " This controller may drive the new currents."


class OpenableController(MeshController, Protocol):
    """A mesh controller that can be opened again after a lost link."""

    def open(self) -> object:
        """Connect to the controller."""


@dataclasses.dataclass(eq=False)
class _OneController:
    """One of the controllers.

    Attributes:
        number: Its position, from 0.
        heaters: Its share of the heaters.
        monitors: Its share of the monitors.
        driven_ma: Currents that it drives as far as known, shape ``(heaters,)``.
    """

    name: str
    number: int
    controller: OpenableController
    info: ControllerInfo
    limits: ControllerLimits
    heaters: slice
    monitors: slice
    driven_ma: NDArray[np.float64] = dataclasses.field(default_factory=lambda: np.zeros(0))

    def check_power(self, currents_ma: NDArray[np.float64]) -> None:
        """Raise ``LimitError`` if the power of these currents exceeds the limit of this controller."""
        target = DeviceAddress(self.name, "")
        check_power(
            round(float(currents_ma**2 @ self.limits.heater_ohm)), 1e3 * self.limits.total_power_mw, "program", target
        )

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Set the currents of this controller."""
        generation = self.controller.program(currents_ma)
        self.driven_ma = currents_ma
        return generation

    def is_off(self, read_ma: NDArray[np.float64]) -> bool:
        """Return whether these currents, as read back, are all 0."""
        return bool(np.all(read_ma <= self.info.readback_tolerance_ma))

    def has_stopped(self, read_ma: NDArray[np.float64]) -> bool:
        """Return whether the controller has switched its outputs off, with these currents read back."""
        return bool(self.driven_ma.any()) and self.is_off(read_ma)

    def read_driven(self) -> NDArray[np.float64]:
        """Return the present currents as values that can be programmed: 0 within the tolerance of the reading."""
        read_ma = self.controller.read_back()
        return np.where(read_ma <= self.info.readback_tolerance_ma, 0.0, np.minimum(read_ma, self.limits.heater_max_ma))


@dataclasses.dataclass(frozen=True)
class _JoinedOutputs:
    """Voltages and currents at the outputs of several controllers."""

    voltage_v: NDArray[np.float64]
    current_ma: NDArray[np.float64]


class CombinedController(Driver):
    """Several controllers that drive one mesh; implements :class:`~lumion_hw.interfaces.MeshController`. Thread-safe.

    Heaters and monitors are numbered through the controllers in their order. All controllers change within one
    exchange, but not at the same instant. If one of them switches its outputs off, :meth:`faults`, :meth:`read_back`
    and :meth:`program` switch the others off too, so that the mesh is driven completely or not at all.

    Args:
        parts: The open controllers by name, in the order of their heaters.
        limits: The limits with which each of them is configured.
        clock: Clock of their links.
        device: Name of the combination, for messages.
    """

    def __init__(
        self,
        parts: Mapping[str, OpenableController],
        limits: Sequence[ControllerLimits],
        clock: Clock,
        *,
        device: str,
    ) -> None:
        self._clock, self._device = clock, device
        self._target = DeviceAddress(device, f"{len(parts)} controllers")
        self._lock = fork_safe(threading.RLock())
        infos = [controller.info for controller in parts.values()]
        heaters, monitors = (_shares([getattr(info, key) for info in infos]) for key in ("n_heaters", "n_monitors"))
        self._parts = tuple(
            _OneController(name, number, parts[name], infos[number], limits[number], heaters[number], monitors[number])
            for number, name in enumerate(parts)
        )
        for part, driven_ma in zip(self._parts, self._run([part.read_driven for part in self._parts]), strict=True):
            part.driven_ma = driven_ma
        self._sensing = tuple(part for part in self._parts if part.info.n_monitors)
        self._info = _combined_info(infos, [part.info for part in self._sensing])
        self._generation, self._part_generations = 0, dict.fromkeys(parts, 0)
        if all(isinstance(controller, MeasuresOutputs) for controller in parts.values()):
            self.read_channels: Callable[[], OutputReadings] = self._read_channels

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities of all controllers together, read when they were opened."""
        return self._info

    @property
    def parts(self) -> dict[str, OpenableController]:
        """The controllers by name, in the order of their heaters."""
        return {part.name: part.controller for part in self._parts}

    @property
    def heater_shares(self) -> tuple[slice, ...]:
        """Heaters of each controller."""
        return tuple(part.heaters for part in self._parts)

    @property
    def ended_hold(self) -> tuple[Fault, ...]:
        """Faults of earlier programs that were cleared when the controllers were opened."""
        return tuple(
            _own_fault(part, fault) for part in self._parts for fault in getattr(part.controller, "ended_hold", ())
        )

    def open(self) -> None:
        """Open the controllers whose link was lost again, and read what all of them can do.

        If one of them has switched its outputs off, all others are switched off.
        """
        with self._lock:
            for part in self._parts:
                try:
                    part.controller.read_back()
                except (LinkLost, ConnectError):
                    part.controller.open()
                part.info = part.controller.info
            self._info = _combined_info([part.info for part in self._parts], [part.info for part in self._sensing])
        self.read_back()

    def configure(self, limits: ControllerLimits) -> None:
        """Apply limits and watchdog time to all controllers; each gets its present share of the total power."""
        with self._lock:
            budget_mw = sum(part.limits.total_power_mw for part in self._parts)
            columns = [
                self._split(values, label)
                for values, label in ((limits.heater_max_ma, "heater_max_ma"), (limits.heater_ohm, "heater_ohm"))
            ]
            own = [
                ControllerLimits(
                    max_ma, ohm, limits.total_power_mw * part.limits.total_power_mw / budget_mw, limits.watchdog_s
                )
                for part, max_ma, ohm in zip(self._parts, *columns, strict=True)
            ]
            self._run([partial(part.controller.configure, new) for part, new in zip(self._parts, own, strict=True)])
            for part, new in zip(self._parts, own, strict=True):
                part.limits = new

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Set all heater currents, the controllers at the same time but not at the same instant.

        All currents are checked first. If a controller fails, the others drive their former currents again, or are
        switched off if a fault keeps the outputs of the failed one off.

        Raises the errors of :meth:`MeshController.program`. The error names the controller, and says what the others
        drive.
        """
        tables = self._split(currents_ma, "program")
        with self._lock:
            max_ma = np.concatenate([part.limits.heater_max_ma for part in self._parts])
            checked_currents(np.concatenate(tables), max_ma, "program", self._target)
            for part, table in zip(self._parts, tables, strict=True):
                part.check_power(table)
            former_ma = [part.driven_ma for part in self._parts]
            outcomes = self._attempt(
                [partial(part.program, table) for part, table in zip(self._parts, tables, strict=True)]
            )
            if any(outcome.exception() is not None for outcome in outcomes):
                # If everything is to be switched off, nothing is switched on again.
                self._take_back(outcomes, former_ma if currents_ma.any() else tables)
            receipts = results_of(outcomes)
            self._generation += 1
            self._part_generations = {
                part.name: receipt.number for part, receipt in zip(self._parts, receipts, strict=True)
            }
            crcs = b"".join(receipt.crc32.to_bytes(4, "little") for receipt in receipts)
            return Generation(self._generation, zlib.crc32(crcs), self._clock.now())

    def read_back(self) -> NDArray[np.float64]:
        """Return the present currents of all controllers in mA, shape ``(n_heaters,)``.

        If a controller has switched its outputs off, the others are switched off first.
        """
        read = [part.controller.read_back for part in self._parts]
        tables_ma = self._run(read)
        if any(part.has_stopped(table) for part, table in zip(self._parts, tables_ma, strict=True)):
            with self._lock:  # read again, because another thread may have changed the currents
                self._follow_switched_off(
                    [part for part in self._parts if part.has_stopped(part.controller.read_back())]
                )
                tables_ma = self._run(read)
        return np.concatenate(tables_ma)

    def _read_channels(self) -> OutputReadings:
        """Return voltage and current of all channels; only for controllers that all measure them."""
        read = self._run([c.read_channels for c in self.parts.values() if isinstance(c, MeasuresOutputs)])
        return _JoinedOutputs(*(np.concatenate([getattr(each, key) for each in read]) for key in _MEASURED))

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Read the monitors of all controllers, at the same time but not at the same instant."""
        if not self._sensing:
            raise self._not_supported("read_monitors", "have no monitors", "Read a power meter instead.")
        readings = self._run([partial(part.controller.read_monitors, n_avg) for part in self._sensing])
        return self._joined_reading(self._sensing, readings)

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Raise ``NotSupportedError``: the controllers cannot step together."""
        del plan
        hint = "Set the points one by one with program(), as bench.mesh.sweep() does."
        raise self._not_supported("sweep", "cannot sweep together", hint)

    def telemetry(
        self, period_s: float, *, monitors: tuple[int, ...] | None = None, n_avg: int = 1
    ) -> Iterator[TelemetrySample]:
        """Iterate over readings that the controllers stream, until the iterator is closed.

        Raises the errors of :meth:`MeshController.telemetry`.
        """
        if not self._info.telemetry:
            raise self._not_supported("telemetry", "do not all stream readings", "Call read_monitors() instead.")
        chosen = range(self._info.n_monitors) if monitors is None else monitors
        by_part: dict[_OneController, list[int]] = {}
        for part, monitor in self._located(chosen, "telemetry"):
            by_part.setdefault(part, []).append(monitor)
        streams: list[Iterator[TelemetrySample]] = []
        try:
            for part, own in by_part.items():
                streams.append(part.controller.telemetry(period_s, monitors=tuple(own), n_avg=n_avg))
        except BaseException:
            _close(streams)
            raise
        return _Telemetry(streams, partial(self._joined_reading, list(by_part)))

    def watch_light(self, thresholds: Sequence[LightThreshold], *, period_s: float = 1e-3) -> LightWatcher:
        """Let the controllers report when light at a monitor is lost or returns.

        Raises the errors of :meth:`MeshController.watch_light`.
        """
        if not self._info.watches_light:
            raise self._not_supported("watch_light", "cannot all watch light", "Read the monitors instead.")
        watch = _Watch(self._clock, self._located, lambda: self._generation)
        watch.change(thresholds, period_s)
        return watch

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults of all controllers, each controller's oldest first.

        A fault names its controller, and its id is 100 times the controller's own plus the position of the controller
        from 1. If a controller has switched its outputs off, the others are switched off too.
        """
        lists = self._run([part.controller.faults for part in self._parts])
        faults = tuple(_own_fault(part, fault) for part, own in zip(self._parts, lists, strict=True) for fault in own)
        tripped = [part for part, own in zip(self._parts, lists, strict=True) if any(fault.latched for fault in own)]
        with self._lock:
            if len(tripped) < len(self._parts) and any(part.driven_ma.any() for part in self._parts):
                self._follow_switched_off([part for part in tripped if part.is_off(part.controller.read_back())])
        return faults

    def clear_fault(self, fault_id: int) -> None:
        """Clear only the latched fault with this id. Raises the errors of :meth:`MeshController.clear_fault`."""
        check_fault_id(fault_id, self._device, self._target.address)
        own_id, position = divmod(fault_id, _ID_STEP)
        unknown = self._target.error(
            BadValueError,
            f"no fault has the id {fault_id}; nothing was cleared",
            hint=f"{LIST_FAULTS}, with their ids.",
        )
        if not 1 <= position <= len(self._parts) or own_id < 0:
            raise unknown
        try:
            self._parts[position - 1].controller.clear_fault(own_id)
        except BadValueError as error:  # it names the controller's own id
            raise unknown from error

    def outputs_off(self) -> None:
        """Switch the outputs of all controllers off, even if some fail. Raises the errors of those that fail."""
        outcomes = self._attempt([part.controller.outputs_off for part in self._parts])
        for part, outcome in zip(self._parts, outcomes, strict=True):
            if outcome.exception() is None:
                part.driven_ma = np.zeros(part.info.n_heaters)
        results_of(outcomes)

    def close(self) -> None:
        """Close all controllers, which sets their outputs to zero; idempotent, never raises."""
        with contextlib.suppress(RuntimeError):  # while the interpreter exits no thread starts, and each closes itself
            self._attempt([part.controller.close for part in self._parts])

    # -- several controllers ------------------------------------------------------------------------------------------

    def _attempt(self, jobs: Sequence[Callable[[], T]]) -> list[Future[T]]:
        """Run one job per controller at the same time, and return the outcomes."""
        return self._clock.run_parallel([partial(run_to_future, job) for job in jobs])

    def _run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        return results_of(self._attempt(jobs))

    def _not_supported(self, call: str, reason: str, hint: str) -> NotSupportedError:
        text = f"{call}: the controllers of this mesh {reason}"
        return self._target.error(NotSupportedError, text, command=call, hint=hint)

    def _split(self, values: NDArray[np.float64], label: str) -> list[NDArray[np.float64]]:
        n = self._info.n_heaters
        column = numbers_per_channel(
            values, n, label, f"the controllers have {n} heaters", device=self._device, address=self._target.address
        )
        return [column[part.heaters].copy() for part in self._parts]

    def _take_back(self, outcomes: Sequence[Future[Generation]], tables: Sequence[NDArray[np.float64]]) -> None:
        """Program ``tables`` after a failure, or zeros if a fault switched a controller off; add this to the errors."""
        errors = [outcome.exception() for outcome in outcomes]
        tripped = [part for part, error in zip(self._parts, errors, strict=True) if isinstance(error, SafetyError)]
        lost = [part for part, error in zip(self._parts, errors, strict=True) if isinstance(error, LinkError)]
        others = [part for part in self._parts if part not in tripped and part not in lost]
        is_off = bool(tripped) or not any(table.any() for table in tables)
        for part in tripped:
            part.driven_ma = np.zeros(part.info.n_heaters)
        attempts = self._attempt(
            [partial(part.program, np.zeros(part.info.n_heaters) if is_off else tables[part.number]) for part in others]
        )
        left = "are switched off" if is_off else "drive their former currents"
        text = f" The other controllers {left}." if others else ""
        failed = {
            part.name: reason for part, outcome in zip(others, attempts, strict=True) if (reason := outcome.exception())
        }
        if failed:
            self._attempt(
                [part.controller.outputs_off for part in others if not isinstance(failed.get(part.name), LinkError)]
            )
            text = (
                f" {', '.join(failed)} could not be set back ({'; '.join(map(str, failed.values()))}), so all outputs "
                "within reach were switched off, and the others go off when their watchdogs trip."
            )
        for error in errors:
            if isinstance(error, LumionError):
                doubt = isinstance(error, LinkError) and getattr(error, "took_effect", None) is not False
                error.message = f"{error.message.rstrip('.')}.{_IN_DOUBT if doubt else ''}{text}"

    def _follow_switched_off(self, off: Sequence[_OneController]) -> None:
        """Switch the other controllers off if some have switched their outputs off."""
        if not off:
            return
        for part in off:
            part.driven_ma = np.zeros(part.info.n_heaters)
        lit = [part for part in self._parts if part.driven_ma.any()]
        for part, outcome in zip(
            lit,
            self._attempt([partial(part.program, np.zeros(part.info.n_heaters)) for part in lit]),
            strict=True,
        ):
            names = ", ".join(each.name for each in off)
            if (error := outcome.exception()) is not None:
                _log.error("%s: %s is off, but this controller could not be switched off: %s", part.name, names, error)
            else:
                _log.warning("%s: switched off, because %s has switched its outputs off", part.name, names)

    def _joined_reading(self, parts: Sequence[_OneController], readings: Sequence[MonitorReading]) -> MonitorReading:
        is_present = all(
            reading.generation == self._part_generations[part.name]
            for part, reading in zip(parts, readings, strict=True)
        )
        return MonitorReading(
            np.concatenate([reading.photocurrent_ma for reading in readings]),
            np.concatenate([reading.saturated for reading in readings]),
            self._generation if is_present else max(self._generation - 1, 0),
            max(reading.timestamp_s for reading in readings),
        )

    def _located(self, monitors: Iterable[int], label: str) -> list[tuple[_OneController, int]]:
        """Return the controller of each monitor in ascending order, and the monitor's number there.

        Raises ``ConfigError`` if a monitor does not exist, or none is given.
        """
        chosen = checked_monitors(tuple(monitors), self._info.n_monitors, label, self._target)
        return [
            (part, monitor - part.monitors.start)
            for monitor in chosen
            for part in self._sensing
            if part.monitors.start <= monitor < part.monitors.stop
        ]


class _Telemetry:
    """Readings of several streams side by side."""

    def __init__(
        self,
        streams: Sequence[Iterator[TelemetrySample]],
        join: Callable[[Sequence[MonitorReading]], MonitorReading],
    ) -> None:
        self._streams, self._join = streams, join

    def __iter__(self) -> Iterator[TelemetrySample]:
        return self

    def __next__(self) -> TelemetrySample:
        try:
            samples = [next(stream) for stream in self._streams]
        except BaseException:
            self.close()
            raise
        temperatures_c = [sample.chip_temperature_c for sample in samples if sample.chip_temperature_c is not None]
        return TelemetrySample(
            self._join([sample.reading for sample in samples]),
            sum(sample.dropped for sample in samples),
            sum(sample.lost for sample in samples),
            max(temperatures_c, default=None),
        )

    def close(self) -> None:
        """End all streams; idempotent."""
        _close(self._streams)


class _Watch:
    """Watches of several controllers for light; implements :class:`~lumion_hw.interfaces.LightWatcher`."""

    def __init__(
        self,
        clock: Clock,
        locate: Callable[[Iterable[int], str], list[tuple[_OneController, int]]],
        generation: Callable[[], int],
    ) -> None:
        self._clock, self._locate, self._generation = clock, locate, generation
        self._watchers: dict[_OneController, LightWatcher] = {}
        self._dark: dict[_OneController, frozenset[int]] = {}

    def change(self, thresholds: Sequence[LightThreshold], period_s: float) -> None:
        """Replace the thresholds and the time between readings. Raises the errors of ``watch_light``."""
        ordered = sorted(thresholds, key=lambda threshold: threshold.monitor)
        located = self._locate([threshold.monitor for threshold in ordered], "watch_light")
        if len(located) != len(ordered):
            raise ConfigError("watch_light: a monitor has two thresholds")
        by_part: dict[_OneController, list[LightThreshold]] = {}
        for (part, monitor), threshold in zip(located, ordered, strict=True):
            by_part.setdefault(part, []).append(dataclasses.replace(threshold, monitor=monitor))
        self._dark = {}
        for part in self._watchers.keys() - by_part.keys():
            self._watchers.pop(part).close()
        try:
            for part, own in by_part.items():
                if part in self._watchers:
                    self._watchers[part].change(own, period_s)
                else:
                    self._watchers[part] = part.controller.watch_light(own, period_s=period_s)
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float) -> LightState | None:
        """Return the next reported state, or ``None`` if no report arrives within ``timeout_s``."""
        deadline = deadline_after(self._clock, timeout_s)
        while True:
            for part, watcher in tuple(self._watchers.items()):
                left_s = max(deadline - self._clock.now(), 0.0)
                state = watcher.wait(left_s if len(self._watchers) == 1 else min(left_s, _LIGHT_SLICE_S))
                if state is not None:
                    self._dark[part] = frozenset(part.monitors.start + monitor for monitor in state.dark)
                    dark = frozenset[int]().union(*self._dark.values())
                    return LightState(dark, state.held_s, self._generation(), state.timestamp_s)
            if self._clock.now() >= deadline:
                return None

    def close(self) -> None:
        """Stop watching for light; idempotent."""
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers.values():
            watcher.close()


def _close(streams: Sequence[Iterator[TelemetrySample]]) -> None:
    for stream in streams:
        stream.close()  # type: ignore[attr-defined] # the iterators of all drivers have close()


def _shares(counts: Sequence[int]) -> list[slice]:
    return [slice(start, stop) for start, stop in pairwise(accumulate(counts, initial=0))]


def _own_fault(part: _OneController, fault: Fault) -> Fault:
    """Return a fault of one controller with an id and a channel that hold for all."""
    first = part.heaters.start
    extra = {**fault.extra, "controller": part.name}
    if isinstance(candidates := extra.get("candidates"), tuple):
        extra["candidates"] = tuple(first + channel for channel in candidates)
    channel = None if fault.channel is None else first + fault.channel
    return dataclasses.replace(
        fault, fault_id=_ID_STEP * fault.fault_id + part.number + 1, channel=channel, extra=extra
    )


def _combined_info(infos: Sequence[ControllerInfo], sensing: Sequence[ControllerInfo]) -> ControllerInfo:
    """Return the abilities that all controllers have, and the strictest of their limits."""
    return ControllerInfo(
        model=" + ".join(dict.fromkeys(info.model for info in infos)),
        serial="+".join(info.serial for info in infos),
        firmware=", ".join(dict.fromkeys(info.firmware for info in infos)),
        n_heaters=sum(info.n_heaters for info in infos),
        n_monitors=sum(info.n_monitors for info in infos),
        current_full_scale_ma=min(info.current_full_scale_ma for info in infos),
        current_step_ma=max(info.current_step_ma for info in infos),
        atomic=False,
        readback=all(info.readback for info in infos),
        watchdog=all(info.watchdog for info in infos),
        on_board_sweep=False,
        telemetry=bool(sensing) and all(info.telemetry for info in sensing),
        monitor_full_scale_ma=min((info.monitor_full_scale_ma for info in sensing), default=0.0),
        monitor_step_ma=max((info.monitor_step_ma for info in sensing), default=0.0),
        readback_tolerance_ma=max(info.readback_tolerance_ma for info in infos),
        watches_light=bool(sensing) and all(info.watches_light for info in sensing),
        tick_s=max(info.tick_s for info in infos),
    )
