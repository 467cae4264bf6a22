"""Driver for the LUMION mesh controller (protocol version 1): heater currents and port monitors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    FaultSource,
    OutputsState,
    PingRequest,
    WatchdogPolicy,
    computed_power_uw,
    monitor_from_code,
    output_from_code,
)
from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import Driver
from lumion_hw.drivers.mesh.lumion.attach import SessionSetup
from lumion_hw.drivers.mesh.lumion.config import (
    WatchdogRule,
    check_power,
    checked_currents,
    load_ohm,
    nearest_codes,
    power_cap_uw,
)
from lumion_hw.drivers.mesh.lumion.faults import FaultWatch, WatchedCall
from lumion_hw.drivers.mesh.lumion.keepalive import KeepAlive
from lumion_hw.drivers.mesh.lumion.light import LightWatching, WatchedLight
from lumion_hw.drivers.mesh.lumion.monitors import check_capability, read_all
from lumion_hw.drivers.mesh.lumion.reconnect import Attachment, LinkEvent, LinkState, Reconnector, ReconnectPolicy
from lumion_hw.drivers.mesh.lumion.safety import close_at_exit
from lumion_hw.drivers.mesh.lumion.sweeps import SweepRun, TableLimits, planned_sweep
from lumion_hw.drivers.mesh.lumion.telemetry import TelemetryIterator, TelemetryStreams
from lumion_hw.drivers.mesh.lumion.values import board_counters, controller_info
from lumion_hw.drivers.ranges import check_fault_id
from lumion_hw.errors import DeviceAddress, LinkLost, SafetyError
from lumion_hw.interfaces import (
    ControllerInfo,
    ControllerLimits,
    Fault,
    Generation,
    LightThreshold,
    MonitorReading,
    SweepPlan,
    SweepResult,
)
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.framed.session import FramedSession, Loss, SessionState


class LumionMeshController(Driver):
    """One LUMION mesh controller; implements :class:`~lumion_hw.interfaces.MeshController`. Thread-safe.

    :meth:`configure` must be called before any output is driven. The driver feeds the controller's watchdog, so the
    heaters go off when this process ends. After a ``LinkLost``, call :meth:`open` again, or set a ``reconnect`` policy.
    A call that ended with a ``LinkError`` is never repeated automatically.

    Args:
        link: Link to the controller.
        clock: Clock of the link.
        expected_serial: Required serial number; ``None`` accepts any.
        take_over: Whether to replace the session of another host.
        baud: UART speed of the controller in bit/s; ``None`` for USB, pty and TCP.
        session_ids: Fixed session ids, for reproducible traffic; random by default.
        on_exit: Outputs after :meth:`close`: ``off``, or ``hold`` to leave them on for at most ``hold_s``.
        hold_s: Longest time for which the outputs stay on with ``on_exit="hold"``.
        lease_s: Longest time between two driver calls, after which the watchdog is no longer fed; ``None`` for no
            limit.
        reconnect: How to reconnect after a lost link; ``None`` requires :meth:`open`.
        resume: Whether to restore the last confirmed currents after a reconnection.
        on_link: Called with every :class:`~lumion_hw.drivers.mesh.lumion.reconnect.LinkEvent`.
        on_fault: Called once with every new latched fault.

    Attributes:
        ended_hold: Faults that :meth:`end_hold` has cleared.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        expected_serial: str | None = None,
        take_over: bool = False,
        baud: int | None = None,
        session_ids: Callable[[], int] | None = None,
        on_exit: Literal["off", "hold"] = "off",
        hold_s: float = 60.0,
        lease_s: float | None = None,
        reconnect: ReconnectPolicy | None = None,
        resume: bool = False,
        on_link: Callable[[LinkEvent], None] | None = None,
        on_fault: Callable[[Fault], None] | None = None,
    ) -> None:
        self._clock = clock
        self._target = DeviceAddress(device, link.name)
        self._on_exit = on_exit
        self._session = FramedSession(link, clock, device=device, baud=baud, session_ids=session_ids)
        self._lock = fork_safe(threading.RLock())
        # With on_exit="hold", the trip of the watchdog is expected.
        expected = (FaultSource.WATCHDOG.name,) if on_exit == "hold" else ()
        self._watch = FaultWatch(self._session, on_fault, expected)
        rule = WatchdogRule(WatchdogPolicy.HOLD, hold_s) if on_exit == "hold" else WatchdogRule()
        self._session_setup = SessionSetup(
            self._session,
            clock,
            self._target,
            self._watch,
            rule,
            expected_serial=expected_serial,
            take_over=take_over,
            resume=resume,
        )
        self._tables = self._session_setup.tables
        self._keep = KeepAlive(self._session, clock, self._feed, self._reconnect_if_idle, lease_s)
        self._reconnector = Reconnector(reconnect, clock, self._reattach, self._session.close, on_link, self._target)
        self._streams = TelemetryStreams(self._session, clock, self._target, self._on_wait, self._on_link_lost)
        self._light = LightWatching(self._session, clock, self._target, self._on_wait, self._on_link_lost)
        self._closing = False
        self.ended_hold: tuple[Fault, ...] = ()

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities, read by :meth:`open`. Raises ``LinkLost`` before :meth:`open`."""
        return controller_info(self._session.hello)

    @property
    def session(self) -> FramedSession:
        """The session with the controller, for its state and counters."""
        return self._session

    @property
    def boot_id(self) -> int:
        """Random number of the controller's last power-up.

        It changes when the controller restarts and loses its settings.
        """
        return self._session.hello.boot_id

    @property
    def link_state(self) -> LinkState:
        """State of the connection: attached, waiting for the next attempt, or closed."""
        return self._reconnector.state

    @property
    def link_events(self) -> tuple[LinkEvent, ...]:
        """Latest changes of the link state, oldest first."""
        return tuple(self._reconnector.events)

    def open(self) -> Attachment:
        """Open the link and a session, and check the identity; no output changes.

        Limits that the controller lost are applied again. Raises the errors of
        :meth:`~lumion_hw.drivers.mesh.lumion.attach.SessionSetup.attach`; after an error the link is closed.

        Returns:
            State in which the controller was found, and the settings restored.
        """
        with self._lock:
            self._closing = False
            attachment = self._session_setup.attach()
            self._reconnector.opened()
        # From here on heaters may be on; sys.exit and uncaught exceptions must bring them to their safe state.
        close_at_exit(self)
        self._keep.renew()
        if self._session_setup.limits is not None:
            self._keep.start(self._session_setup.limits.watchdog_s)
        self._watch.check()
        return attachment

    def configure(self, limits: ControllerLimits) -> None:
        """Apply the current limits, power limit and watchdog, and start feeding the watchdog.

        Nothing is sent if the controller already has this configuration.

        Raises:
            LinkLost: The session is closed or lost.
            LimitError: A limit is outside the range of the controller, or the present currents exceed it.
            ConfigError: An array does not have one value per heater.
            SafetyError: The controller holds outputs that an earlier program left on; nothing was changed.
            VerifyError: The controller did not confirm the configuration.
        """
        with self._public_call("configure"), self._lock, self._session.transaction():
            self._session.require_open("CONFIG")  # even if nothing needs to be sent
            if self._on_exit != "hold" and self._session.hello.outputs_state is OutputsState.GRACE:
                raise self._target.error(
                    SafetyError,
                    "an earlier program left the outputs on, and the controller is holding them",
                    hint="Nothing was changed. Open the bench with leave_on_s to keep the outputs, or switch all off:  "
                    "`lumion disconnect BENCH --all`.",
                )
            self._session_setup.apply_limits(limits)
        self._keep.start(limits.watchdog_s)
        if self._closing:  # another thread closed the driver before it could stop this keep-alive
            self._keep.stop()

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Set all heater currents simultaneously, or change nothing.

        Each current is rounded to the nearest multiple of full scale / 65535.

        Args:
            currents_ma: Shape ``(n_heaters,)``, in mA.

        Raises:
            LimitError: A current is out of range or not a number, or the total power exceeds its limit.
            ConfigError: The number of currents differs from the number of heaters.
            SafetyError: Latched faults keep the outputs off.
            VerifyError: The controller confirmed other currents than those sent.
            LinkError: The currents may or may not have been set; see :attr:`Attachment.in_flight_latched`.
        """
        with self._public_call("program"), self._lock:
            hello = self._session.hello
            currents = checked_currents(currents_ma, self._session_setup.max_ma, "program", self._target)
            codes = nearest_codes(currents, hello.dac_full_scale * 1e-3)
            limits = self._session_setup.limits
            if limits is not None:
                power_uw = computed_power_uw(codes, load_ohm(limits), hello.dac_full_scale, hello.drive)
                check_power(power_uw, power_cap_uw(limits), "program", self._target)
            # No output is driven while the controller does not have the configured limits.
            self._session_setup.reapply_limits()
            return self._tables.drive(codes)

    def read_back(self) -> NDArray[np.float64]:
        """Return the present currents in mA, shape ``(n_heaters,)``; zeros after a fault switched the outputs off.

        Raises ``VerifyError`` if the currents do not match the controller's checksum.
        """
        with self._public_call("read_back"):
            return output_from_code(self._tables.read().codes, self._session.hello.dac_full_scale * 1e-3)

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Read all photodiode monitors of the controller. Raises the errors of :meth:`MeshController.read_monitors`.

        Args:
            n_avg: Number of scans to average, 1…4096.
        """
        with self._public_call("read_monitors"):
            return read_all(self._session, self._clock, n_avg, self._target)

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Run a sweep on the controller and return all readings.

        All points are checked before anything is sent. After an error or Ctrl-C the previous currents are restored.

        Raises the errors of :meth:`MeshController.sweep`, ``SafetyError`` if latched faults keep the outputs off, and
        ``VerifyError`` if the currents after the sweep are not the planned ones.
        """
        with self._public_call("sweep"), self._lock:
            check_capability(self.info.on_board_sweep, "SWEEP_START", "has no sweeps", self._target)
            self._session_setup.reapply_limits()
            hello = self._session.hello
            # Read from the board: SWEEP_START names the expected present
            # table, and the board refuses a different one (section 10.3).
            base = self._tables.read()
            allowed = TableLimits(self._session_setup.max_ma, self._session_setup.limits)
            planned = planned_sweep(plan, base.codes, hello, allowed, self._target)
            generation = self._tables.next_generation()
            run = SweepRun(self._session, self._clock, planned, generation, self._on_wait)
            values, late = run.run(base.crc32)
            # A watchdog or fault during the sweep changes the currents; then the readings do not belong to the plan.
            self._tables.confirm(planned.end)
            photocurrent_ma, saturated = monitor_from_code(values, hello.adc_full_scale * 1e-6)
            return SweepResult(photocurrent_ma, saturated, planned.monitors, generation, late)

    def telemetry(
        self, period_s: float, *, monitors: tuple[int, ...] | None = None, n_avg: int = 1
    ) -> TelemetryIterator:
        """Iterate over monitor readings that the controller streams, until the iterator is closed or deleted.

        If the host reads too slowly, the controller discards readings and counts them in ``dropped``. Raises the errors
        of :meth:`MeshController.telemetry`, and ``BusyError`` if all streams of the controller are in use. The iterator
        raises ``LinkLost`` if the link is lost, and ``LinkTimeout`` if the controller stops sending.

        Args:
            period_s: Time between two readings, rounded to the controller's tick.
            monitors: Monitors to read; ``None`` for all.
            n_avg: Number of scans averaged per reading, 1…4096.
        """
        with self._public_call("telemetry"):
            check_capability(self.info.telemetry, "SUBSCRIBE", "has no telemetry", self._target)
            return self._streams.start(period_s, monitors, n_avg)

    def watch_light(self, thresholds: Sequence[LightThreshold], *, period_s: float = 1e-3) -> WatchedLight:
        """Let the controller report when light at a monitor is lost or returns, until the returned watcher is closed.

        Raises the errors of :meth:`MeshController.watch_light`; after an error, nothing was sent.

        Args:
            thresholds: Thresholds and hold time of each monitor, rounded up to the controller's steps.
            period_s: Time between two scans, rounded to the controller's tick.
        """
        with self._public_call("watch_light"):
            return self._light.start(thresholds, period_s)

    def faults(self) -> tuple[Fault, ...]:
        """Return the controller's fault list, oldest first."""
        with self._public_call("faults"):
            return self._watch.read_faults()

    def clear_fault(self, fault_id: int) -> None:
        """Clear only the latched fault with this id. A second call with the same id is not an error.

        The outputs stay at zero until all faults are cleared and currents are set again. Raises the errors of
        :meth:`MeshController.clear_fault`.
        """
        check_fault_id(fault_id, self._session.device, self._session.address)
        with self._public_call("clear_fault"), self._lock:
            self._watch.clear(fault_id)
            # A later reconnection must not restore currents that a fault has switched off.
            self._tables.check_confirmed()

    def end_hold(self) -> None:
        """Take over outputs that an earlier host left on (protocol section 11.2).

        Clears the watchdog fault of that host; the outputs do not change. If any other fault is latched, nothing
        changes.
        """
        with self._public_call("end_hold"), self._lock:
            latched = tuple(fault for fault in self._watch.read_faults() if fault.latched)
            if all(fault.source == FaultSource.WATCHDOG.name for fault in latched):
                for fault in latched:
                    self._watch.clear(fault.fault_id)
                self.ended_hold = latched

    def outputs_off(self, timeout_s: float | None = None) -> None:
        """Set all outputs to zero immediately, in any state. This latches an ESTOP fault; clear it by its id.

        Args:
            timeout_s: Longest wait for the answer; ``None`` repeats without limit.

        Raises:
            LinkTimeout: No answer within ``timeout_s``; the state of the outputs is unknown.
            LinkLost: The link is lost.
            VerifyError: The controller answered, but its outputs are not in their safe state.
        """
        self._session.check_process()
        self._keep.renew()
        with WatchedCall(self._watch, self._on_link_lost):
            try:
                self._watch.stop(timeout_s)
            finally:
                self._tables.confirmed = None  # never to be resumed

    def board_counters(self) -> Mapping[str, int]:
        """Return the controller's counters since its power-up, under the names of protocol section 6.3."""
        with self._public_call("board_counters"):
            return board_counters(self._session)

    def renew_lease(self) -> None:
        """Renew the lease (see ``lease_s``). Every other call renews it too."""
        self._keep.renew()

    def close(self) -> None:
        """Set the outputs as ``on_exit`` defines, and close the link; idempotent, never raises.

        A driver that was never configured leaves the outputs unchanged. If zeros cannot be set, an emergency stop is
        tried; without an answer, the watchdog of the controller switches the outputs off. Also called when the
        interpreter exits.
        """
        if self._session.belongs_to_other_process:  # only the parent may switch its heaters
            self._session.close()
            return
        # Set before locking: it ends calls that wait for events and reconnection attempts, which hold the lock.
        self._closing = True
        self._session.shorten_retries()
        self._keep.stop()
        with self._lock:
            try:
                if self._can_switch_outputs and self._on_exit == "off" and not self._tables.drive_zeros():
                    self._watch.last_resort()
            finally:
                self._session.close()
                self._reconnector.closed()

    @property
    def _can_switch_outputs(self) -> bool:
        return self._session.is_open and self._session_setup.limits is not None

    def _public_call(self, label: str) -> WatchedCall:
        self._session.check_process()
        self._keep.renew()
        if not self._session.is_open:
            self._reconnector.wait(label)
        return WatchedCall(self._watch, self._on_link_lost)

    def _on_link_lost(self, error: LinkLost) -> None:
        if self._session.state is SessionState.LOST:
            self._reconnector.report_loss(error, for_good=self._session.loss is Loss.TAKEN_OVER)

    def _reconnect_if_idle(self) -> None:
        if not self._session.belongs_to_other_process and self._lock.acquire(blocking=False):
            try:
                self._reconnector.poll()
            finally:
                self._lock.release()

    def _reattach(self) -> Attachment:
        with self._lock:
            if self._closing:  # closed while this attempt waited for the lock
                raise self._target.error(LinkLost, "the driver was closed during the reconnection")
            return self._session_setup.attach(automatic=True)

    def _feed(self, only_if_idle: bool) -> None:
        try:
            if self._session.fault_pending:
                has_answered = self._watch.poll(only_if_idle=only_if_idle)
            else:
                send = self._session.request_if_idle if only_if_idle else self._session.request
                has_answered = send(PingRequest()) is not None
            if has_answered:
                self._watch.check(only_if_idle=only_if_idle)
        except LinkLost as error:
            self._on_link_lost(error)
            raise

    def _on_wait(self) -> float:
        if self._closing:
            raise self._target.error(LinkLost, "the driver was closed while waiting for events")
        self._keep.renew()
        self._watch.check()
        return self._keep.feed_if_due()
