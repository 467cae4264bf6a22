"""The owner of a served bench: the only process that uses the devices, for all clients."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lumion_hw.acquisition.settings import Setting
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.lock import BenchLock
from lumion_hw.clock import Clock, SystemClock
from lumion_hw.errors import BusyError, LinkError, LinkLost, LinkTimeout, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.interfaces import Fault
from lumion_hw.serving.bench_keeper import BenchKeeper
from lumion_hw.serving.calls import Calls
from lumion_hw.serving.circuits_view import served_circuits, served_mesh
from lumion_hw.serving.connections import Connections
from lumion_hw.serving.history import MAX_SAMPLES, PERIOD_S, ReadingHistory
from lumion_hw.serving.lease import BenchLease, Caller
from lumion_hw.serving.ocs.change import OcsSettings
from lumion_hw.serving.readings import BenchReadings
from lumion_hw.serving.state import (
    MarginSample,
    Point,
    ServedCurve,
    ServedEvent,
    ServedHealth,
    ServedJob,
    ServedLease,
    ServedState,
)

if TYPE_CHECKING:
    from lumion_hw.circuits import CircuitPlan, CircuitRequest
    from lumion_hw.joined import JoinedStatus
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

MAX_PUBLISH_S = 0.25
"""Longest time between two published states."""
_MIN_PUBLISH_S = 0.02
"""Shortest time between two published states: at most 50 per second."""
_STOP_TIMEOUT_S = 0.5
"""Time that a thread may take to stop; then it is abandoned."""
_LEASE_CHECK_PERIOD_S = 0.05
_LOCK_CHECK_PERIOD_S = 1.0
_MAX_EVENTS = 200
_MAX_EVENT_BYTES = 64e6
"""Largest size of the event file and of the previous event file."""


class Subscription:
    """Holds the newest published state of a bench for one subscriber, as a context manager.

    ``missed`` counts the published states that the subscriber did not read.
    """

    def __init__(self, newest: ServedState, forget: Callable[[Subscription], None]) -> None:
        self.missed = 0
        self._newest: ServedState | None = newest
        self._forget = forget
        self._is_over = False
        self._news = threading.Condition()

    def publish(self, state: ServedState) -> None:
        """Replace the state by a newer one."""
        with self._news:
            self.missed += self._newest is not None
            self._newest = state
            self._news.notify()

    def wait(self, timeout_s: float) -> ServedState | None:
        """Wait for an unread state and return it; ``None`` after the time-out or when closed."""
        with self._news:
            self._news.wait_for(lambda: self._newest is not None or self._is_over, timeout_s)
            newest, self._newest = self._newest, None
            return newest

    @property
    def is_over(self) -> bool:
        """Whether the subscription is closed."""
        return self._is_over

    def close(self) -> None:
        """Close the subscription; a second call has no effect."""
        with self._news:
            self._is_over = True
            self._news.notify()
        self._forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BenchOwner:
    """Owns a bench: reads the devices, maintains circuits and fabric, runs jobs and publishes states. Thread-safe.

    Args:
        lock: The bench lock; the caller holds it.
        directory: The state directory of the bench.
        record: Calibration record of the mesh, if there is one.
        fabric: Whether to maintain the jobs of the bench file.
        heaters_off_on_loss: Whether to switch unused heaters off when a lease ends without being released.
        clock: Clock for the silence of devices and the leases; by default the wall clock. On a virtual clock, use
            :meth:`step` only.
        wall_s: Returns the time of day, in seconds since 1970.

    Attributes:
        lease: The lease, which a client needs to change the bench.
        readings_history: The last samples of all readings and settings.
        calls: Remote calls of the devices.
        ports: TCP ports of the servers of this bench.
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
        self.bench, self._lock, self._heaters_off_on_loss = bench, lock, heaters_off_on_loss
        self._clock, self._wall_s = clock or SystemClock(), wall_s
        self._started_s = wall_s()
        self._number = 0
        self._events: deque[ServedEvent] = deque(maxlen=_MAX_EVENTS)
        self._n_events = self._n_changes = 0
        self._margins: deque[MarginSample] = deque(maxlen=MAX_SAMPLES)
        self.readings_history = ReadingHistory()
        self._client_job: ServedJob | None = None
        self._joined: JoinedStatus | None = None
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
        self._driving_leases: set[int] = set()
        self._awaited: tuple[int, str, tuple[str, ...]] = (-1, "", ())
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
        """Lock, open and serve a bench during a ``with`` block.

        At the end the bench is closed; the heaters go off, or stay on for ``leave_on_s`` of the bench file.

        Args:
            open_bench: Opens the bench; called while the lock is held.
            directory: State directory of the bench: journals, events and the lease number.
            record: Calibration record; circuits need one, and the job ``calibrate`` makes one.
            take_over: Name of the program from which the bench is taken.
            fabric: Whether to maintain the jobs of the bench file, if a record exists.
            heaters_off_on_loss: Whether to switch unused heaters off when the holder of the lease is lost.

        Raises:
            BusyError: Another program holds the bench.
            LumionError: Opening the bench, the record or a journal failed.
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
        """Start the threads that read devices, maintain circuits and publish states."""
        self._readings.start()
        self._keeper.start()
        for name, work in (("publish", self._publish), ("lease", self._watch_lease)):
            thread = threading.Thread(target=work, name=f"lumion-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def step(self, keep_s: float) -> None:
        """Do one round of all work in this thread, instead of :meth:`start`."""
        self._keeper.step(keep_s)
        self._end_leases()
        self._readings.update()
        self.publish()

    def stop(self) -> None:
        """Stop all threads within some seconds; the bench stays open. A second call has no effect."""
        self._stop.set()
        self._news.set()
        self.calls.drop()
        self._keeper.stop()
        for thread in self._threads:
            thread.join(_STOP_TIMEOUT_S)
        self._threads.clear()
        self._readings.stop()
        for subscription in list(self._subscriptions):
            subscription.close()

    # -- published state ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ServedState:
        """The last published state."""
        return self._state

    @property
    def history(self) -> tuple[MarginSample, ...]:
        """Margins of the circuits over the last two hours, oldest first."""
        with self._guard:
            return tuple(self._margins)

    def points(self) -> dict[str, Point]:
        """Return all points (readings and settings) with their present values."""
        return self._readings.points()

    def point(self, name: str) -> Point:
        """Return one point (reading or setting) with its present value. Raises ``KeyError`` for an unknown name."""
        point = self._readings.point(name)
        if point is None:
            raise KeyError(name)
        return point

    def subscribe(self) -> Subscription:
        """Return a subscription to the published states, which come at least 4 times a second."""
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
            # Changes in this time go into one state, so that a burst of changes does not flood the clients.
            self._stop.wait(_MIN_PUBLISH_S)

    def publish(self) -> None:
        """Publish a state with the present values."""
        state = self._build_state()
        with self._guard:
            self._state = state
            subscriptions = list(self._subscriptions)
            last_s = self._margins[-1].time_s if self._margins else 0.0
            if state.circuits and state.time_s - last_s >= PERIOD_S:
                margins = {circuit.name: circuit.margin_db if circuit.is_known else None for circuit in state.circuits}
                self._margins.append(MarginSample(state.time_s, margins))
        self.readings_history.add(state.time_s, state.points)
        for subscription in subscriptions:
            subscription.publish(state)

    def _build_state(self) -> ServedState:
        self._number += 1
        points, keeper, lease = self._readings.points(), self._keeper, self.lease.served()
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
            job=self._shown_job(lease),
            lease=lease,
            health=ServedHealth(self._started_s, silent, keeper.keeps, trouble, faults),
            record_sha256="" if keeper.record is None else keeper.record.content_sha256,
            is_emulated=self.bench.is_emulated,
            fabric=keeper.fabric,
            joined=self._joined,
        )

    def show_joined(self, status: JoinedStatus) -> None:
        """Show the circuits over several meshes, as last queried by a :class:`~lumion_hw.joined.JoinedWatch`."""
        self._joined = status
        self._news.set()

    def _shown_job(self, lease: ServedLease) -> ServedJob | None:
        """Return the newest job: one of this server, or one that an attached program runs and reports."""
        own, reported = self._keeper.job, self._client_job
        is_held = reported is not None and bool(lease.owner) and reported.number == lease.number
        if reported is not None and not reported.is_over and not is_held:
            error = f"{reported.by} left before the end"
            self._client_job = reported = replace(reported, is_over=True, error=error)
        if own is None or reported is None:
            return own or reported
        return own if not own.is_over or own.begun_s > reported.begun_s else reported

    def _on_event(self, event: Mapping[str, Any]) -> None:
        name = str(event["event"])
        if name == "set" or (name == "set ended" and event.get("outcome") == "done"):
            return
        self._n_events += 1
        data = {key: value for key, value in event.items() if key not in ("event", "bench_s")}
        self._events.append(ServedEvent(self._n_events, self._wall_s(), name, data))
        self._news.set()

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _watch_lease(self) -> None:
        checked_s = self._clock.now()
        while not self._stop.wait(_LEASE_CHECK_PERIOD_S):
            self._end_leases()
            if self._clock.now() - checked_s > _LOCK_CHECK_PERIOD_S:
                checked_s = self._clock.now()
                self._check_lock()

    def _end_leases(self) -> None:
        # A killed client releases nothing; only its connection disappears.
        established = Connections(self.ports)
        self.lease.expire(established)
        for connection in self.calls.connections():
            if connection not in established:
                self.calls.drop(connection)

    def _check_lock(self) -> None:
        try:
            self._lock.check()
        except BusyError as error:
            self.fail(error)
        except LumionError as error:
            self.bench.events.add("lock not renewed", reason=str(error))

    def fail(self, error: LumionError) -> None:
        """Reject all further changes because of ``error``. The program must then stop this owner."""
        if self.failure is None:
            self.failure = error
            with contextlib.suppress(LumionError):
                self.bench.events.add("server ends", reason=str(error))
            self._news.set()

    def _on_lease_end(self, lease: ServedLease, reason: str) -> None:
        self.bench.events.add("lease ended", owner=lease.owner, number=lease.number, why=reason)
        if self._heaters_off_on_loss and lease.number in self._driving_leases:
            try:
                self._heaters_off()
            except LumionError as error:
                self.bench.events.add("heaters not switched off", reason=str(error))

    def _check_not_needed(self, device: str, method: str) -> None:
        if self.failure is not None:
            raise self.failure
        self._keeper.check_free(device, method)

    # -- requests -----------------------------------------------------------------------------------------------------

    def set_awaited(self, text: str, caller: Caller) -> None:
        """Set the readings that a write with ``waits_for_light`` reads again, while the caller holds its lease.

        Args:
            text: Names or patterns of readings, or devices, separated by commas; empty for everything that sees light.
            caller: The client.

        Raises:
            BusyError: The caller does not hold the lease.
            ConfigError: A name matches no reading; the message suggests similar names.
        """
        lease = self.lease.check(caller)
        patterns = [pattern.strip().replace(":", ".") for pattern in text.split(",") if pattern.strip()]
        own = f"{self.bench.model.name}."  # of names of process variables
        names = self._readings.select([pattern.removeprefix(own) for pattern in patterns])
        self._awaited = (lease.number, text, names)

    @property
    def awaited(self) -> str:
        """The text of :meth:`set_awaited` for the present lease; empty without one."""
        lease = self.lease.served()
        return self._awaited[1] if lease.owner and self._awaited[0] == lease.number else ""

    def write(self, name: str, value: object, caller: Caller, *, waits_for_light: bool = False) -> Collection[str]:
        """Write a value to one setting.

        Args:
            name: Name of the setting.
            value: The new value.
            caller: The client.
            waits_for_light: Whether to wait until the light has settled, and then read all light again, or the
                readings of :meth:`set_awaited`.

        Returns:
            Names of the points that were read again after the change.

        Raises:
            BusyError: The caller does not hold the lease; the message names the holder.
            ConfigError: The point is read-only, or the value has the wrong type or shape.
            UnknownNameError: No point has this name.
            LimitError: The value is outside a limit; nothing was changed.
            LinkError: The device did not answer; the message says whether the new value is active, if this is known.
            LumionError: Another error of the device.
        """
        setting = self._readings.setting(name)
        lease = self.lease.check(caller)
        self._check_not_needed(setting.device, "program")
        new_value: Any = value
        value_text = value if np.ndim(new_value) == 0 else f"{np.size(new_value)} values"
        with self._log_change(name, value_text, lease.owner, lease.number):
            try:
                setting.write(new_value)
            except LinkError as error:
                raise self._error_after_silence(setting, new_value, error) from error
            finally:
                self._readings.read_settings(setting.device)
            self._note_driven(setting.device, lease.number)
            if not waits_for_light:
                return ()
            setting.wait_settled()
            number, _, awaited = self._awaited
            return self._readings.refresh(awaited if number == lease.number else ()) or self._readings.refresh_light()

    @contextlib.contextmanager
    def _log_change(self, name: str, value: object, by: str, lease: int) -> Iterator[None]:
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

    def _error_after_silence(self, setting: Setting, requested: Any, error: LinkError) -> LinkError:
        # A lost reply does not show whether the write was executed, but the present value does.
        failure = self._readings.read_settings(setting.device)
        if failure is not None:
            finding = "The device still does not answer, so the value may or may not be active."
        else:
            value: Any = self._readings.value(setting.name)
            is_active = setting.is_equivalent(value, requested)
            value_text = f"{np.size(value)} values" if np.ndim(value) else value
            finding = f"The device now reports {value_text}, so the write was {'' if is_active else 'not '}executed."
        kind = LinkLost if isinstance(error, LinkLost) else LinkTimeout
        return kind(
            f"{setting.name}: {error.message.rstrip('.')}. {finding}", device=error.device, address=error.address
        )

    def call(
        self, device: str, method: str, arguments: Sequence[Any], named: Mapping[str, Any], caller: Caller
    ) -> object:
        """Call a method of a device; a method that only reads needs no lease. Raises the errors of the device."""
        return self.calls.call(device, method, arguments, named, caller)

    @contextlib.contextmanager
    def _change_device(self, device: str, method: str, caller: Caller) -> Iterator[None]:
        lease = self.lease.served()
        self._note_driven(device, lease.number)
        with self._log_change(f"{device}.{method}()", None, lease.owner or caller.name, lease.number):
            try:
                yield
            finally:
                self._readings.read_settings(device)

    def _note_driven(self, device: str, number: int) -> None:
        section = self.bench.model.mesh
        if section is not None and section.is_driven_by(device):
            self._driving_leases = {number}

    def _on_device_close(self, device: str, caller: Caller) -> None:
        """Switch the heaters off when the client that used them closes the controller, unless they are needed."""
        section = self.bench.model.mesh
        if section is None or not section.is_driven_by(device) or caller.number not in self._driving_leases:
            return
        self.lease.check(caller)
        if not getattr(self.bench.model.devices[device], "leave_on_s", 0.0):
            self._heaters_off()

    def _heaters_off(self) -> None:
        self._driving_leases.clear()
        self._keeper.switch_heaters_off()
        self._readings.read_settings(self.bench.model.mesh_section.controller)

    def start_job(self, kind: str, arguments: Mapping[str, Any], caller: Caller) -> ServedJob:
        """Start a job and return at once; the published state shows its progress.

        Jobs and arguments: ``connect`` (``circuits``: names such as ``a:b``, or request documents), ``disconnect``
        (``circuits``; by default all), ``apply`` (``circuits``, ``on_refusal``, ``dry_run``), ``calibrate``
        (``out``, ``seed``), ``recover``, ``fail`` and ``drain`` (``unit``, ``because``), ``repaired`` (``unit``),
        ``clear`` (``fault``), ``cross_connect`` (``change``), ``joined`` (``step`` and its values).

        Raises:
            BusyError: The caller does not hold the lease, or another job is running.
            ConfigError: The job does not exist, its arguments are wrong, or the bench has no calibration record.
        """
        lease = self.lease.check(caller)
        if self.failure is not None:
            raise self.failure
        self._driving_leases.clear()  # currents that a job leaves on belong to no client
        return self._keeper.start_job(kind, arguments, lease.owner)

    def wait(self, job: ServedJob, timeout_s: float | None = None) -> ServedJob:
        """Wait for the end of a job, at most ``timeout_s``, and return the state of the job.

        Raises the error of a failed job.
        """
        return self._keeper.wait(job, timeout_s)

    def report_progress(
        self, kind: str, stage: str, done: int, total: int, error: str, caller: Caller, curve: ServedCurve | None = None
    ) -> None:
        """Show the progress of a task that an attached program runs, such as a scan; an ``error`` ends the task.

        Raises:
            BusyError: The caller does not hold the lease.
        """
        lease, job = self.lease.check(caller), self._client_job
        if job is None or job.is_over or job.number != lease.number:
            job = ServedJob(lease.number, kind, lease.owner, self._wall_s())
        job = job.with_progress(self._wall_s(), stage, done, total)
        self._client_job = replace(job, is_over=bool(error) or done >= total, error=error, curve=curve)
        self._news.set()

    @property
    def record(self) -> CalibrationRecord | None:
        """The calibration record in use; ``None`` without one."""
        return self._keeper.record

    @property
    def ocs(self) -> OcsSettings:
        """Labels, blocked ports and held cross-connects of the bench as an optical circuit switch."""
        return self._keeper.ocs

    def plan_circuits(self, requests: Sequence[CircuitRequest]) -> CircuitPlan:
        """Plan circuits in addition to the active ones, without changing anything.

        Raises:
            ConfigError: The bench has no calibration record.
            LumionError: Planning failed.
        """
        return self._keeper.require_service().setup.plan_change((), requests)

    def plan_difference(self, circuits: Sequence[object]) -> dict[str, Any]:
        """Plan the change of a job ``apply`` without changing anything. Raises ``ConfigError`` as the job."""
        return self._keeper.plan_difference(circuits)

    def plan_joined(self, circuits: Sequence[object], removed: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Plan segments of circuits over several meshes, without changing anything. Raises errors of planning."""
        return self._keeper.plan_joined(circuits, removed)

    def joined_circuits(self) -> dict[str, Any]:
        """Return the active circuits and the prepared change, for a program that joins several benches."""
        return self._keeper.joined_circuits()

    def stop_outputs(self, caller: Caller) -> None:
        """Switch all heaters off immediately; needs no lease.

        The controller latches the fault ESTOP until :meth:`clear_faults`. Raises the errors of the controller.
        """
        controller = self.bench.mesh.controller
        self.bench.events.add("stopped", by=caller.name)
        try:
            controller.outputs_off()
        finally:
            with contextlib.suppress(LumionError):
                self._readings.read_faults()

    def request_emulated_fault(
        self, action: str, device: str, fault: str, arguments: Mapping[str, Any], caller: Caller
    ) -> Any:
        """Inject, clear or list scripted faults of an emulated bench, as by its ``emulated_faults``.

        Needs no lease, because a fault stands for an accident. Every change is logged with the name of the client.

        Raises:
            ConfigError: The bench is real, or a name or an argument is wrong.
            LumionError: The emulator does not respond, or an argument is out of range.
        """
        result = self.bench.emulated_faults.request(action, device, fault, arguments)
        if action in ("inject", "clear"):
            about = {"target": device, "fault": fault, "arguments": dict(arguments), "by": caller.name}
            self.bench.events.add("emulated fault inject" if action == "inject" else "emulated fault clear", **about)
        return result

    def faults(self) -> tuple[Fault, ...]:
        """Read the latched faults of the mesh controller. Raises the errors of the controller."""
        self._readings.read_faults()
        return self._readings.faults

    def clear_faults(self, name: str, caller: Caller) -> list[str]:
        """Clear latched faults of the mesh controller by name, or one fault by id, as the job ``clear``.

        Circuits are then set up again and measured. Returns the faults that were cleared.

        Raises:
            BusyError: The caller does not hold the lease, or another job is running.
            ConfigError: No latched fault has this name or id.
            SafetyError: The cause of a fault is still present, or another fault is latched.
            CircuitError: A circuit carries no light afterwards.
            LumionError: The controller does not answer.
        """
        try:
            cleared: list[str] = self.wait(self.start_job("clear", {"fault": name}, caller)).result
            return cleared
        finally:
            with contextlib.suppress(LumionError):
                self._readings.read_faults()


def _driven_ma(bench: Bench, points: Mapping[str, Point]) -> Any:
    section = bench.model.mesh
    point = None if section is None else points.get(f"{section.controller}.heaters_ma")
    return None if point is None or not isinstance(point.value, np.ndarray) else point.value
