"""The LUMION mesh controller: heater currents and port monitors over the protocol of ``firmware_protocol``.

Written from the protocol specification, version 1. Tables are set whole and proven by the CRC in the reply; a
keep-alive feeds the controller's watchdog, so that the heaters go off when this process is gone.
"""

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
from lumion_hw.drivers.mesh.lumion.attach import Attacher
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
from lumion_hw.drivers.mesh.lumion.monitors import check_ability, read_all
from lumion_hw.drivers.mesh.lumion.reconnect import Attachment, LinkEvent, LinkState, Reconnector, ReconnectPolicy
from lumion_hw.drivers.mesh.lumion.safety import close_at_exit
from lumion_hw.drivers.mesh.lumion.sweeps import Allowed, SweepRun, planned_sweep
from lumion_hw.drivers.mesh.lumion.telemetry import TelemetryIterator, TelemetryStreams
from lumion_hw.drivers.mesh.lumion.values import board_counters, controller_info
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

    The constructor touches nothing; :meth:`open` attaches, :meth:`configure` has to come before anything is driven.
    After a ``LinkLost`` call :meth:`open` again, or give a ``reconnect`` policy. A controller that was not restarted
    keeps driving what it drives; limits given before are applied again where the controller lost them; tables are
    driven again only with ``resume``. A call that ended in a ``LinkError`` is never repeated by itself.

    Args:
        link: Link to the controller.
        clock: The link's clock; also runs the keep-alive.
        device: Device name of the bench file, for messages.
        expected_serial: Serial number that has to answer; ``None`` accepts any.
        take_over: Replace a live session of another host.
        baud: Speed of the UART to the controller in bit/s, for the time-outs; ``None`` for USB, pty and TCP.
        session_ids: Fixed session ids for a reproducible wire; random when not given.
        on_exit: What :meth:`close` leaves behind: ``off`` drives zeros; ``hold`` leaves the outputs as they are, and
            the controller holds them for at most ``hold_s`` after its watchdog has tripped.
        hold_s: Longest hold after the host is gone, with ``on_exit="hold"``.
        lease_s: Time the application has between two calls before the watchdog is no longer fed; ``None`` for ever.
        reconnect: How to come back after a lost link; ``None`` leaves that to :meth:`open`.
        resume: Drive the table confirmed last again after a reconnection that found another one.
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
        # Whoever leaves outputs on knows that the watchdog trips.
        expected = (FaultSource.WATCHDOG.name,) if on_exit == "hold" else ()
        self._watch = FaultWatch(self._session, on_fault, expected)
        rule = WatchdogRule(WatchdogPolicy.HOLD, hold_s) if on_exit == "hold" else WatchdogRule()
        self._attacher = Attacher(
            self._session,
            clock,
            self._target,
            self._watch,
            rule,
            expected_serial=expected_serial,
            take_over=take_over,
            resume=resume,
        )
        self._tables = self._attacher.tables
        self._keep = KeepAlive(self._session, clock, self._feed, self._come_back, lease_s)
        self._reconnector = Reconnector(
            reconnect, clock, self._attach_again, self._session.close, on_link, self._target
        )
        self._streams = TelemetryStreams(self._session, clock, self._target, self._keep_going, self._lost)
        self._light = LightWatching(self._session, clock, self._target, self._keep_going, self._lost)
        self._closing = False
        self.ended_hold: tuple[Fault, ...] = ()

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities, read by :meth:`open`. Raises ``LinkLost`` before that."""
        return controller_info(self._session.hello)

    @property
    def session(self) -> FramedSession:
        """The conversation: its state, its counters and the FAULT events it saw."""
        return self._session

    @property
    def boot_id(self) -> int:
        """Random number of the controller's last power-up: a change means that everything it held is gone."""
        return self._session.hello.boot_id

    @property
    def link_state(self) -> LinkState:
        """Whether the driver is attached, waits for its next attempt, or is closed."""
        return self._reconnector.state

    @property
    def link_events(self) -> tuple[LinkEvent, ...]:
        """The newest things that happened to the link, oldest first."""
        return tuple(self._reconnector.events)

    def open(self) -> Attachment:
        """Attach: open the link and a session, check the identity; nothing that is driven changes.

        Limits declared before are applied again where the controller lost them. When it fails, the link is closed.

        Returns:
            What was found: a restarted controller, another table, latched faults; and what was brought back.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answered.
            BusyError: Another host holds the controller.
            IdentityError: Another serial number than the expected one answered.
            NotSupportedError: The controller drives voltages, not currents.
        """
        with self._lock:
            self._closing = False
            found = self._attacher.attach()
            self._reconnector.opened()
        # From here on heaters may be on: also sys.exit and an exception nobody catches bring them to their safe state.
        close_at_exit(self)
        self._keep.renew()
        if self._attacher.limits is not None:
            self._keep.start(self._attacher.limits.watchdog_s)
        self._watch.check()
        return found

    def configure(self, limits: ControllerLimits) -> None:
        """Apply limits, power cap and watchdog, and start the keep-alive.

        A controller that has exactly this configuration is left alone: attaching does not switch heaters.

        Raises:
            LinkLost: The session is closed or lost.
            LimitError: A limit the controller cannot express, or one that the table driven now breaks.
            ConfigError: An array does not have one value per heater.
            SafetyError: The controller holds what an earlier program left on; nothing was changed.
            VerifyError: The controller did not take the configuration as it was sent.
        """
        with self._using("configure"), self._lock, self._session.transaction():
            self._session.require_open("CONFIG")  # also where nothing has to be sent
            if self._on_exit != "hold" and self._session.hello.outputs_state is OutputsState.GRACE:
                raise self._target.error(
                    SafetyError,
                    "an earlier program left the outputs on, and the controller holds them",
                    hint="Nothing was changed. Open the bench with leave_on_s to go on from there, or switch all off: "
                    "`lumion disconnect BENCH --all`.",
                )
            self._attacher.declare(limits)
        self._keep.start(limits.watchdog_s)
        if self._closing:  # by another thread, which did not see this keep-alive
            self._keep.stop()

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Drive all heaters at one edge, or change nothing.

        Each current becomes the nearest code, full scale / 65535 apart.

        Args:
            currents_ma: Shape ``(n_heaters,)``, in mA.

        Raises:
            LimitError: A current is outside 0 … its limit or not a number, or the table exceeds the power cap.
            ConfigError: There is not one current per heater.
            SafetyError: Latched faults keep the outputs off.
            VerifyError: The controller confirmed another table than the one sent.
            LinkError: It is not known whether the table was latched; after attaching again
                :attr:`Attachment.in_flight_latched` tells.
        """
        with self._using("program"), self._lock:
            hello = self._session.hello
            currents = checked_currents(currents_ma, self._attacher.max_ma, "program", self._target)
            codes = nearest_codes(currents, hello.dac_full_scale * 1e-3)
            limits = self._attacher.limits
            if limits is not None:
                power_uw = computed_power_uw(codes, load_ohm(limits), hello.dac_full_scale, hello.drive)
                check_power(power_uw, power_cap_uw(limits), "program", self._target)
            # Nothing is driven under limits that the controller refused or lost.
            self._attacher.declare_again()
            return self._tables.drive(codes)

    def read_back(self) -> NDArray[np.float64]:
        """Return the currents driven now in mA, shape ``(n_heaters,)``; zeros after a trip.

        Raises:
            VerifyError: The codes read do not have the checksum the controller gives for them.
        """
        with self._using("read_back"):
            return output_from_code(self._tables.read().codes, self._session.hello.dac_full_scale * 1e-3)

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Read all monitors.

        Args:
            n_avg: Scans averaged by the controller, 1…4096.

        Raises:
            LimitError: ``n_avg`` is out of range.
            NotSupportedError: The controller has no monitors.
        """
        with self._using("read_monitors"):
            return read_all(self._session, self._clock, n_avg, self._target)

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Run a sweep on the controller and return everything it recorded.

        Nothing is sent before every point is checked. Records lost on the way are fetched again. When waiting is
        ended, by an error or by Ctrl-C, the run is aborted and the table from before is driven again.

        Raises:
            LimitError: A point is outside the limits (the message names point and channel), or the sweep is larger
                than the controller's memory.
            ConfigError: There is no point, or a heater or monitor that does not exist.
            NotSupportedError: The controller runs no sweeps.
            SafetyError: Latched faults keep the outputs off.
            DeviceError: The run ended early; the message says why and how many points were recorded.
            VerifyError: Another table is driven after the run than planned.
        """
        with self._using("sweep"), self._lock:
            check_ability(self.info.on_board_sweep, "SWEEP_START", "runs no sweeps", self._target)
            self._attacher.declare_again()
            hello = self._session.hello
            # Read and not remembered: SWEEP_START names the table the host
            # believes driven, and the board refuses another (section 10.3).
            base = self._tables.read()
            allowed = Allowed(self._attacher.max_ma, self._attacher.limits)
            planned = planned_sweep(plan, base.codes, hello, allowed, self._target)
            generation = self._tables.next_generation()
            run = SweepRun(self._session, self._clock, planned, generation, self._keep_going)
            values, late = run.run(base.crc32)
            # A watchdog or fault during the run leaves another table; the values would be taken for those of the plan.
            self._tables.confirm(planned.end)
            photocurrent_ma, saturated = monitor_from_code(values, hello.adc_full_scale * 1e-6)
            return SweepResult(photocurrent_ma, saturated, planned.monitors, generation, late)

    def telemetry(
        self, period_s: float, *, monitors: tuple[int, ...] | None = None, n_avg: int = 1
    ) -> TelemetryIterator:
        """Iterate over monitor readings that the controller sends by itself, until the iterator is closed.

        The subscription begins with this call and ends with ``close()`` of the iterator, or when it is no longer
        referenced. A consumer that is too slow sees ``dropped`` grow, never old readings by the thousand.

        Args:
            period_s: Time between two readings, rounded to the controller's tick.
            monitors: Monitors to read; all if ``None``.
            n_avg: Scans averaged per reading, 1…4096.

        Raises:
            LimitError: Period or average is out of range, or the scans take longer than the period.
            ConfigError: A monitor does not exist.
            NotSupportedError: The controller sends no telemetry.
            BusyError: All streams of the controller are in use.
            LinkLost: From the iterator: the session it was subscribed in is gone.
            LinkTimeout: From the iterator: the controller sends nothing any more.
        """
        with self._using("telemetry"):
            check_ability(self.info.telemetry, "SUBSCRIBE", "sends no telemetry", self._target)
            return self._streams.start(period_s, monitors, n_avg)

    def watch_light(self, thresholds: Sequence[LightThreshold], *, period_s: float = 1e-3) -> WatchedLight:
        """Let the controller watch monitors by itself and tell when light goes or comes, until the watch is closed.

        Args:
            thresholds: One per monitor; thresholds are rounded up to the next code, hold-offs to the next tick.
            period_s: Time between two scans, rounded to the controller's tick.

        Raises:
            LimitError: A threshold, hold-off or period cannot be expressed; nothing was sent.
            ConfigError: A monitor does not exist, or none is given.
            BusyError: It watches already.
            NotSupportedError: This controller does not watch light.
        """
        with self._using("watch_light"):
            return self._light.start(thresholds, period_s)

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults the controller keeps, oldest first."""
        with self._using("faults"):
            return self._watch.kept()

    def clear_fault(self, fault_id: int) -> None:
        """Clear the latched fault of this id and no other; one that was cleared before stays so.

        The outputs stay at zero until no fault is latched and they are programmed.

        Raises:
            BadValueError: The controller gave no fault this id; nothing was cleared.
            SafetyError: Its cause is still present (the message names it); nothing was cleared.
        """
        with self._using("clear_fault"), self._lock:
            self._watch.clear(fault_id)
            # What a fault has ended is not to be resumed by a later reconnection.
            self._tables.check_confirmed()

    def end_hold(self) -> None:
        """Take over outputs that an earlier host left on, which the controller holds for a time (section 11.2).

        The watchdog fault that began the hold is cleared by its id, and the outputs stay as they are: held, or at zero
        if the hold is over. If any other fault is latched, nothing is changed.
        """
        with self._using("end_hold"), self._lock:
            latched = tuple(fault for fault in self._watch.kept() if fault.latched)
            if all(fault.source == FaultSource.WATCHDOG.name for fault in latched):
                for fault in latched:
                    self._watch.clear(fault.fault_id)
                self.ended_hold = latched

    def outputs_off(self, patience_s: float | None = None) -> None:
        """Stop: all outputs to zero at once, in any state; latches an ESTOP fault that has to be cleared by its id.

        Args:
            patience_s: Time after which no answer is an error; ``None`` repeats until it is answered, without limit.

        Raises:
            LinkTimeout: No answer within ``patience_s``; the state of the outputs is unknown to this host.
            LinkLost: The link is gone.
            VerifyError: The controller answered, but its outputs are not in their safe state.
        """
        self._session.check_process()
        self._keep.renew()
        with WatchedCall(self._watch, self._lost):
            try:
                self._watch.stop(patience_s)
            finally:
                self._tables.confirmed = None  # never to be resumed

    def board_counters(self) -> Mapping[str, int]:
        """Return what the controller counted since its power-up, by the names of protocol section 6.3.

        Frames, bytes, each cause of a bad frame, replays, latches, refusals, trips; the host's own side of the link is
        ``session.counters``. They are never reset: subtract.
        """
        with self._using("board_counters"):
            return board_counters(self._session)

    def renew_lease(self) -> None:
        """Tell that the application is alive, without anything to ask; see ``lease_s``. Every other call tells too."""
        self._keep.renew()

    def close(self) -> None:
        """Bring the outputs to what ``on_exit`` says, end the keep-alive and close the link; idempotent, never raises.

        A driver that was never configured has driven nothing, and leaves the outputs as it found them. Also called when
        the interpreter ends. Where zeros cannot be driven an emergency stop is tried, which latches
        its fault; where nothing is answered the controller's watchdog switches off by itself. In a child process that
        did not open it, nothing is sent and the outputs stay as they are.
        """
        if self._session.belongs_to_other_process:  # the parent's heaters are the parent's affair
            self._session.close()
            return
        # Before the lock: calls that wait for events, and attempts to come back, end by it and let the lock go.
        self._closing = True
        self._session.shorten_retries()
        self._keep.stop()
        with self._lock:
            try:
                if self._is_mine and self._on_exit == "off" and not self._tables.drive_zeros():
                    self._watch.last_resort()
            finally:
                self._session.close()
                self._reconnector.closed()

    @property
    def _is_mine(self) -> bool:
        """Whether this driver may have driven the outputs, and can still switch them."""
        return self._session.is_open and self._attacher.limits is not None

    def _using(self, label: str) -> WatchedCall:
        """Around every call: the application lives, the link is there or awaited, new faults are announced."""
        self._session.check_process()
        self._keep.renew()
        if not self._session.is_open:
            self._reconnector.wait(label)
        return WatchedCall(self._watch, self._lost)

    def _lost(self, error: LinkLost) -> None:
        if self._session.state is SessionState.LOST:
            self._reconnector.lost(error, for_good=self._session.loss is Loss.TAKEN_OVER)

    def _come_back(self) -> None:
        """From the ticker while there is no session; never waits for a call that is under way."""
        if not self._session.belongs_to_other_process and self._lock.acquire(blocking=False):
            try:
                self._reconnector.poll()
            finally:
                self._lock.release()

    def _attach_again(self) -> Attachment:
        with self._lock:
            if self._closing:  # while this attempt waited for its turn
                raise self._target.error(LinkLost, "closed while coming back")
            return self._attacher.attach(by_itself=True)

    def _feed(self, only_if_idle: bool) -> None:
        """Send one request; while a fault is latched, the one that tells of further faults."""
        try:
            if self._session.fault_pending:
                asked = self._watch.poll(only_if_idle=only_if_idle)
            else:
                ask = self._session.request_if_idle if only_if_idle else self._session.request
                asked = ask(PingRequest()) is not None
            if asked:
                self._watch.check(only_if_idle=only_if_idle)
        except LinkLost as error:
            self._lost(error)
            raise

    def _keep_going(self) -> float:
        """While a call waits for events: end it when the driver is closed, else feed the watchdog."""
        if self._closing:
            raise self._target.error(LinkLost, "closed while waiting for events")
        self._keep.renew()
        self._watch.check()
        return self._keep.feed_if_due()
