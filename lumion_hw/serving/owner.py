"""The one process that owns a bench, real or emulated, and all that others may ask of it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lumion_hw.acquisition.settings import Setting
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.controller_faults import clear_faults
from lumion_hw.circuits.lock import BenchLock
from lumion_hw.clock import Clock, SystemClock
from lumion_hw.errors import BusyError, LinkError, LinkLost, LinkTimeout, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.interfaces import Fault
from lumion_hw.serving.calls import Calls
from lumion_hw.serving.circuits_view import served_circuits, served_mesh
from lumion_hw.serving.connections import Connections
from lumion_hw.serving.keeping import BenchKeeper
from lumion_hw.serving.lease import BenchLease, Caller
from lumion_hw.serving.readings import BenchReadings
from lumion_hw.serving.state import (
    MarginSample,
    Point,
    ServedEvent,
    ServedHealth,
    ServedJob,
    ServedLease,
    ServedState,
)

if TYPE_CHECKING:
    from lumion_hw.circuits import CircuitPlan, CircuitRequest
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

MAX_PUBLISH_S = 0.25
"""Longest time between two states."""
_MIN_PUBLISH_S = 0.02
"""Shortest: fifty a second, however much happens."""
_STOP_TIMEOUT_S = 0.5
"""How long a thread of the owner may take to end; one that waits for a device that hangs is left."""
_LEASE_CHECK_PERIOD_S = 0.05
_LOCK_CHECK_PERIOD_S = 1.0
_MARGIN_PERIOD_S = 2.0
_MAX_EVENTS, _MAX_MARGINS = 200, 3600
_MAX_EVENT_BYTES = 64e6
"""Of the file of events, and of the one before it: a program that writes all day fills no disk."""


class Subscription:
    """A place for the newest state: one that is not taken in time is replaced. Use it as a context manager.

    Attributes:
        missed: States that were published and never taken.
    """

    def __init__(self, newest: ServedState, forget: Callable[[Subscription], None]) -> None:
        self.missed = 0
        self._newest: ServedState | None = newest
        self._forget = forget
        self._is_over = False
        self._news = threading.Condition()

    def publish(self, state: ServedState) -> None:
        """Put a new state in the place of the one there."""
        with self._news:
            self.missed += self._newest is not None
            self._newest = state
            self._news.notify()

    def wait(self, timeout_s: float) -> ServedState | None:
        """Return the newest state that was not taken yet; ``None`` if none comes in time, or the server has ended."""
        with self._news:
            self._news.wait_for(lambda: self._newest is not None or self._is_over, timeout_s)
            newest, self._newest = self._newest, None
            return newest

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._is_over

    def close(self) -> None:
        """End it; idempotent."""
        with self._news:
            self._is_over = True
            self._news.notify()
        self._forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BenchOwner:
    """Owns a bench: reads it, keeps circuits and fabric, does what is asked, and publishes what it sees. Thread-safe.

    Args:
        bench: The open bench.
        lock: Its lock, held.
        directory: Its state directory.
        record: Calibration record, if it has one.
        fabric: Whether to keep the jobs of the bench file connected.
        heaters_off_on_loss: Whether heaters that no circuit needs go off when a lease ends without being given back.
        clock: Clock of silence and leases; the wall clock if not given. A bench on a virtual one is kept by
            :meth:`step` alone, on the same clock.
        wall_s: Time of day, in seconds since 1970.

    Attributes:
        bench: The open bench.
        lease: Who may change it.
        calls: Calls of the devices' interfaces.
        ports: TCP ports that clients with connections reach it at.
    """

    def __init__(
        self,
        bench: Bench,
        lock: BenchLock,
        directory: AnyPath,
        record: AnyPath | None = None,
        *,
        fabric: bool = True,
        heaters_off_on_loss: bool = False,
        clock: Clock | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.bench, self._lock, self._off_when_lost = bench, lock, heaters_off_on_loss
        self._clock, self._wall_s = clock or SystemClock(), wall_s
        self._started_s = wall_s()
        self._number = 0
        self._events: deque[ServedEvent] = deque(maxlen=_MAX_EVENTS)
        self._n_events = self._n_changes = 0
        self._margins: deque[MarginSample] = deque(maxlen=_MAX_MARGINS)
        self._subscriptions: list[Subscription] = []
        self._guard = threading.Lock()
        self._stop, self._news = threading.Event(), threading.Event()
        self.failure: LumionError | None = None
        bench.events.add_listener(self._on_event)
        self.ports: set[int] = set()
        self.lease = BenchLease(directory, wall_s, self._clock, self._on_lease_end, lambda: Connections(self.ports))
        self.calls = Calls(
            bench.devices,
            self.lease,
            on_close=self._on_device_close,
            check_change=self._check_not_needed,
            change_context=self._change_device,
        )
        self._driven_by: set[int] = set()
        self._readings = BenchReadings(bench, self._clock, wall_s)
        self._keeper = BenchKeeper(
            bench, lock, directory, record, fabric=fabric, on_change=self._news.set, wall_s=wall_s
        )
        self._state = self._build_state()
        self._threads: list[threading.Thread] = []

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        open_bench: Callable[[], Bench],
        directory: AnyPath,
        *,
        record: AnyPath | None = None,
        take_over: str | None = None,
        fabric: bool = True,
        heaters_off_on_loss: bool = False,
    ) -> Iterator[Self]:
        """Lock and open a bench, read and keep it for the time of a block; then all is left as the bench file says.

        Args:
            open_bench: Opens the bench, once the lock is held.
            directory: State directory of the bench: journals, events, the number of the lease.
            record: Calibration record; without one no circuits can be had until `calibrate` has made it.
            take_over: Name of the program to be replaced that holds the bench.
            fabric: Whether to keep the jobs of the bench file connected, where it has some and there is a record.
            heaters_off_on_loss: Whether to switch unused heaters off when the holder of the lease is lost.

        Raises:
            BusyError: Another program holds the bench.
            LumionError: As of opening, of the record and of the journals.
        """
        with BenchLock(directory, "lumion serve", take_over=take_over) as lock, open_bench() as bench:
            bench.events.write_to(Path(directory) / "events.jsonl", _MAX_EVENT_BYTES)
            owner = cls(bench, lock, directory, record, fabric=fabric, heaters_off_on_loss=heaters_off_on_loss)
            try:
                owner.start()
                yield owner
            finally:
                owner.stop()

    def start(self) -> None:
        """Begin to read, to keep and to publish."""
        self._readings.start()
        self._keeper.start()
        for name, work in (("publish", self._publish), ("lease", self._watch_lease)):
            thread = threading.Thread(target=work, name=f"lumion-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def step(self, keep_s: float) -> None:
        """Do in this thread, one after the other, what :meth:`start` has threads for.

        Do what was asked for, keep circuits or fabric for a time, end the leases of those who are gone, read everything
        once, publish one state. On a virtual clock days of a served bench take minutes.

        Args:
            keep_s: How long circuits or fabric are kept.
        """
        self._keeper.step(keep_s)
        self._end_leases()
        self._readings.update()
        self.publish()

    def stop(self) -> None:
        """End it within some seconds, whatever is under way; the bench itself stays open. Idempotent."""
        self._stop.set()
        self._news.set()
        self.calls.drop()
        self._keeper.stop()
        for thread in self._threads:
            thread.join(_STOP_TIMEOUT_S)
        self._threads.clear()
        self._readings.stop()
        for each in list(self._subscriptions):
            each.close()

    # -- what is seen -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ServedState:
        """What was published last."""
        return self._state

    @property
    def history(self) -> tuple[MarginSample, ...]:
        """Margins of the circuits over time, oldest first: of the last two hours."""
        with self._guard:
            return tuple(self._margins)

    def points(self) -> dict[str, Point]:
        """Return all points as they are now, without waiting for the next state."""
        return self._readings.points()

    def point(self, name: str) -> Point:
        """Return one point as it is now, without waiting for the next state. Raises ``KeyError`` if there is none."""
        found = self._readings.point(name)
        if found is None:
            raise KeyError(name)
        return found

    def subscribe(self) -> Subscription:
        """Return a place for the newest state, which is full at once; a new one comes at least 4 times a second."""
        with self._guard:
            subscription = Subscription(self._state, self._forget)
            self._subscriptions.append(subscription)
            return subscription

    def _forget(self, subscription: Subscription) -> None:
        with self._guard, contextlib.suppress(ValueError):
            self._subscriptions.remove(subscription)

    def _publish(self) -> None:
        while not self._stop.is_set():
            self._news.wait(MAX_PUBLISH_S)
            self._news.clear()
            self.publish()
            self._stop.wait(_MIN_PUBLISH_S)

    def publish(self) -> None:
        """Publish a state of what is known now."""
        state = self._build_state()
        with self._guard:
            self._state = state
            subscriptions = list(self._subscriptions)
            last_s = self._margins[-1].time_s if self._margins else 0.0
            if state.circuits and state.time_s - last_s >= _MARGIN_PERIOD_S:
                margins = {each.name: each.margin_db if each.is_known else None for each in state.circuits}
                self._margins.append(MarginSample(state.time_s, margins))
        for each in subscriptions:
            each.publish(state)

    def _build_state(self) -> ServedState:
        self._number += 1
        points, keeper = self._readings.points(), self._keeper
        silent = self._readings.silent()
        trouble = keeper.trouble if self.failure is None else str(self.failure)
        faults = tuple(map(str, self._readings.faults))
        circuits = served_circuits(keeper.service, keeper.health, silent, trouble, faults, self._wall_s)
        return ServedState(
            number=self._number,
            time_s=self._wall_s(),
            bench=self.bench.model.name,
            points=points,
            mesh=served_mesh(self.bench, keeper.service, keeper.record, _driven_ma(self.bench, points)),
            circuits=circuits,
            events=tuple(self._events),
            recovery=keeper.recovery,
            job=keeper.job,
            lease=self.lease.served(),
            health=ServedHealth(self._started_s, silent, keeper.keeps, trouble, faults),
            record_sha256="" if keeper.record is None else keeper.record.content_sha256,
            is_emulated=self.bench.is_emulated,
        )

    def _on_event(self, event: Mapping[str, Any]) -> None:
        """Take note of an event; each change of a value that succeeds is for the file alone."""
        name = str(event["event"])
        if name == "set" or (name == "set ended" and event.get("outcome") == "done"):
            return
        self._n_events += 1
        data = {key: value for key, value in event.items() if key not in ("event", "bench_s")}
        self._events.append(ServedEvent(self._n_events, self._wall_s(), name, data))
        self._news.set()

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _watch_lease(self) -> None:
        looked_s = self._clock.now()
        while not self._stop.wait(_LEASE_CHECK_PERIOD_S):
            self._end_leases()
            if self._clock.now() - looked_s > _LOCK_CHECK_PERIOD_S:
                looked_s = self._clock.now()
                self._check_lock()

    def _end_leases(self) -> None:
        """End the lease, streams and watches of those who are gone."""
        standing = Connections(self.ports)
        self.lease.expire(standing)
        for connection in self.calls.connections():
            if connection not in standing:
                self.calls.drop(connection)

    def _check_lock(self) -> None:
        """Find out whether another program has taken the bench: then nothing more is changed here."""
        try:
            self._lock.check()
        except BusyError as error:
            self.fail(error)
        except LumionError as error:
            self.bench.events.add("lock not renewed", reason=str(error))

    def fail(self, error: LumionError) -> None:
        """Say why this bench can be served no longer: from now on nothing is changed; whoever opened it ends it."""
        if self.failure is None:
            self.failure = error
            with contextlib.suppress(LumionError):
                self.bench.events.add("server ends", reason=str(error))
            self._news.set()

    def _on_lease_end(self, lease: ServedLease, why: str) -> None:
        self.bench.events.add("lease ended", owner=lease.owner, number=lease.number, why=why)
        if self._off_when_lost and lease.number in self._driven_by:
            try:
                self._heaters_off()
            except LumionError as error:
                self.bench.events.add("heaters not switched off", reason=str(error))

    def _check_not_needed(self, device: str, method: str) -> None:
        """Refuse to drive heaters past the circuits that stand, or while a job runs that needs the mesh alone."""
        if self.failure is not None:
            raise self.failure
        self._keeper.check_free(device, method)

    # -- what is asked ------------------------------------------------------------------------------------------------

    def write(self, name: str, value: object, caller: Caller, *, settled: bool = False) -> None:
        """Set one point, by the code that sets it in process.

        Args:
            name: Name of the point.
            value: What it is to be.
            caller: Who asks.
            settled: Whether to wait until the light follows, and to read anew what sees it.

        Raises:
            BusyError: The caller does not hold the lease; the message says who does.
            ConfigError: It cannot be written, or the value is none of its kind or shape.
            UnknownNameError: There is no such point.
            LimitError: Beyond a limit; nothing was changed.
            LinkError: The device did not answer; the message says whether the value is in force now, if that is known.
            LumionError: As of the device.
        """
        setting = self._readings.setting(name)
        lease = self.lease.check(caller)
        self._check_not_needed(setting.device, "program")
        known: Any = value
        shown = value if np.ndim(known) == 0 else f"{np.size(known)} values"
        with self._log_change(name, shown, lease.owner, lease.number):
            try:
                setting.write(known)
            except LinkError as error:
                raise self._error_after_silence(setting, known, error) from error
            finally:
                self._readings.read_settings(setting.device)
            self._note_driven(setting.device, lease.number)
            if settled:
                setting.wait_settled()
                self._readings.read_light_again()

    @contextlib.contextmanager
    def _log_change(self, name: str, value: object, by: str, lease: int) -> Iterator[None]:
        """Log a change before it is sent, and its outcome afterwards."""
        with self._guard:
            self._n_changes += 1
            number = self._n_changes
        about = {"name": name, "by": by, "lease": lease} | ({} if value is None else {"value": value})
        self.bench.events.add("set", change=number, **about)
        try:
            yield
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
            with contextlib.suppress(LumionError):
                self.bench.events.add("set ended", change=number, outcome=outcome)
            raise
        self.bench.events.add("set ended", change=number, outcome="done")

    def _error_after_silence(self, setting: Setting, wanted: Any, error: LinkError) -> LinkError:
        """Return the error for a write whose device fell silent, with what is in force if the device answers again."""
        failure = self._readings.read_settings(setting.device)
        if failure is not None:
            found = "it does not answer now either, so the value may or may not be in force"
        else:
            value: Any = self._readings.value(setting.name)
            is_in_force = setting.is_equivalent(value, wanted)
            shown = f"{np.size(value)} values" if np.ndim(value) else value
            found = f"asked again, it has {shown}: the write was {'' if is_in_force else 'not '}executed"
        kind = LinkLost if isinstance(error, LinkLost) else LinkTimeout
        return kind(f"{setting.name}: {error.message} Then {found}.", device=error.device, address=error.address)

    def call(
        self, device: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        """Call a method of a device's interface; what only reads needs no lease. Raises as the device."""
        return self.calls.call(device, method, arguments, named, caller)

    @contextlib.contextmanager
    def _change_device(self, device: str, method: str, caller: Caller) -> Iterator[None]:
        """Log a call that may change a device, and ask the device for its settings afterwards."""
        lease = self.lease.served()
        self._note_driven(device, lease.number)
        with self._log_change(f"{device}.{method}()", None, lease.owner or caller.name, lease.number):
            try:
                yield
            finally:
                self._readings.read_settings(device)

    def _note_driven(self, device: str, number: int) -> None:
        section = self.bench.model.mesh
        if section is not None and device == section.controller:
            self._driven_by = {number}

    def _on_device_close(self, device: str, caller: Caller) -> None:
        """A program that has driven the heaters is done: they go off, unless the bench file leaves them on."""
        section = self.bench.model.mesh
        if section is None or device != section.controller or caller.number not in self._driven_by:
            return
        self.lease.check(caller)
        if not getattr(self.bench.model.devices[device], "leave_on_s", 0.0):
            self._heaters_off()

    def _heaters_off(self) -> None:
        self._driven_by.clear()
        self._keeper.switch_heaters_off()
        self._readings.read_settings(self.bench.model.mesh_section.controller)

    def start_job(self, what: str, arguments: Mapping[str, Any], caller: Caller) -> ServedJob:
        """Begin a job and return it at once: its progress and its end are in the state.

        ``connect`` (``circuits``: names such as ``a:b``, or documents of a request), ``disconnect`` (``circuits``; all
        without), ``calibrate`` (``out``, ``seed``), ``recover``, ``fail`` (``unit``, ``because``) and ``repaired``
        (``unit``).

        Raises:
            BusyError: The caller does not hold the lease, or another job runs.
            ConfigError: There is no such job, its arguments are wrong, or the bench has no record.
        """
        lease = self.lease.check(caller)
        if self.failure is not None:
            raise self.failure
        self._driven_by.clear()  # what a job leaves driven is no longer that of the program that was there before
        return self._keeper.start_job(what, arguments, lease.owner)

    def wait(self, job: ServedJob, timeout_s: float | None = None) -> ServedJob:
        """Return a job when it has ended, or as it is after a time. Raises what the job has failed with."""
        return self._keeper.wait(job, timeout_s)

    @property
    def record(self) -> CalibrationRecord | None:
        """The calibration record in use, if there is one."""
        return self._keeper.record

    def plan_circuits(self, requests: Sequence[CircuitRequest]) -> CircuitPlan:
        """Plan circuits beside what stands, touching nothing. Raises as planning, and ConfigError without a record."""
        return self._keeper.require_service().setup.plan_change((), requests)

    def stop_outputs(self, caller: Caller) -> None:
        """Switch all heaters off at once; needs no lease, since it can only make things safe.

        The controller latches a fault, ESTOP, that :meth:`clear_faults` clears. Raises as the device.
        """
        controller = self.bench.mesh.controller
        self.bench.events.add("stopped", by=caller.name)
        try:
            controller.outputs_off()
        finally:
            with contextlib.suppress(LumionError):
                self._readings.read_faults()

    def faults(self) -> tuple[Fault, ...]:
        """Return the latched faults of the mesh controller, read now. Raises as the controller."""
        self._readings.read_faults()
        return self._readings.faults

    def clear_faults(self, name: str, caller: Caller) -> tuple[Fault, ...]:
        """Clear latched faults of the mesh controller by name, or one by its id.

        Circuits that stand are set up again then, by whoever keeps them.

        Raises:
            BusyError: The caller does not hold the lease.
            ConfigError: No latched fault has this name.
            SafetyError: The cause of one is still present.
            LumionError: The controller does not answer.
        """
        lease = self.lease.check(caller)
        try:
            return clear_faults(self.bench, name, lease.owner)
        finally:
            with contextlib.suppress(LumionError):
                self._readings.read_faults()


def _driven_ma(bench: Bench, points: Mapping[str, Point]) -> Any:
    section = bench.model.mesh
    point = None if section is None else points.get(f"{section.controller}.heaters_ma")
    return None if point is None or not isinstance(point.value, np.ndarray) else point.value
