"""Driver for Qontrol Q8 modules: chains of eight-channel current sources on a serial line.

The modules are set one after the other (**not atomic**). There is **no watchdog**: the outputs stay on if this process
is killed, so put the supply on an interlock. The modules have no monitors and no sweeps.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock, Ticker
from lumion_hw.drivers.life_cycle import Driver, close_on_error
from lumion_hw.drivers.mesh.qontrol.chain import ModuleChain, read_chain
from lumion_hw.drivers.mesh.qontrol.faults import HOST_IDLE, STOPPED, FaultLatch, LogEntry, read_log
from lumion_hw.drivers.mesh.qontrol.outputs import QontrolOutputs
from lumion_hw.drivers.mesh.qontrol.values import (
    ChannelReadings,
    Compliance,
    Mode,
    check_power,
    checked_column,
    compliance_for,
    step,
)
from lumion_hw.drivers.ranges import check_fault_id
from lumion_hw.errors import (
    LIST_FAULTS,
    BadValueError,
    IdentityError,
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
    LightThreshold,
    LightWatcher,
    MonitorReading,
    SweepPlan,
    SweepResult,
    TelemetrySample,
)
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.codecs.qontrol import codes_from_values
from lumion_hw.sessions.qontrol import WINDOW_BYTES, QontrolSession

_CHECKS_PER_PERIOD = 4


class IdleWatch:
    """Calls an action when no driver call was made for ``idle_s``, and again at every later check.

    Args:
        clock: Clock that runs the checks.
        idle_s: Idle time after which the action is called; ``None`` disables it.
        action: Called with the idle time in seconds.
    """

    def __init__(self, clock: Clock, idle_s: float | None, action: Callable[[float], None]) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._action = action
        self._used_s = clock.now()
        self._ticker: Ticker | None = None

    def used(self) -> None:
        """Restart the idle time after a driver call."""
        self._used_s = self._clock.now()

    def start(self) -> None:
        """Start watching the idle time; does nothing if the watch is already running."""
        self.used()
        if self._ticker is None and self._idle_s is not None:
            self._ticker = self._clock.call_every(self._idle_s / _CHECKS_PER_PERIOD, self._check)

    def stop(self) -> None:
        """Stop watching the idle time; idempotent."""
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.cancel()

    def _check(self) -> None:
        idle_s = self._clock.now() - self._used_s
        if self._idle_s is not None and idle_s >= self._idle_s:
            self._action(idle_s)


_log = logging.getLogger(__name__)

DEFAULT_TOLERANCE_MA = 0.1
"""Largest accepted difference between set and read current, in mA (chosen by this project)."""
DEFAULT_HEADROOM = 1.5
"""Default ratio of the voltage limit to the heater's voltage at its largest current (chosen by this project)."""


class QontrolController(Driver):
    """One chain of Qontrol modules; implements :class:`~lumion_hw.interfaces.MeshController`. Thread-safe.

    Limits are checked before anything is sent, and are also set in the modules (IMAX, VMAX). Only this driver, not the
    modules, supervises the total power and latches faults.

    Args:
        link: Serial link with 115 200 baud, or a TCP link to one.
        clock: Clock of the link.
        expected_serial: Required identities of all modules, such as ``Q8iv-0001,Q8iv-0002``; ``None`` accepts any.
        mode: ``binary`` is short and fast; ``ascii`` can be read on a serial monitor.
        compliance_v: Voltage limit of all channels; by default the voltage that each heater needs, times ``headroom``.
        headroom: Ratio of the voltage limit to the needed voltage.
        tolerance_ma: Largest accepted difference between set and measured current.
        window_bytes: Bytes sent ahead of their replies; 0 waits for every reply.
        idle_off_s: Time without a call after which this process switches the outputs off.
        reenumerate: Whether the modules renumber themselves at :meth:`open`.
        leave_on: Whether the outputs stay on at :meth:`close`.
    """

    def __init__(
        self,
        link: Link,
        clock: Clock,
        *,
        device: str,
        expected_serial: str | None = None,
        mode: Mode = "binary",
        compliance_v: float | None = None,
        headroom: float = DEFAULT_HEADROOM,
        tolerance_ma: float = DEFAULT_TOLERANCE_MA,
        window_bytes: int = WINDOW_BYTES,
        idle_off_s: float | None = None,
        reenumerate: bool = False,
        leave_on: bool = False,
    ) -> None:
        self._clock = clock
        self._session = QontrolSession(link, clock, device=device, window_bytes=window_bytes)
        self._expected_serial = expected_serial
        self._mode: Mode = mode
        self._compliance_v = compliance_v
        self._headroom = headroom
        self._tolerance_ma = tolerance_ma
        self._reenumerate = reenumerate
        self._leave_on = leave_on
        self._lock = fork_safe(threading.RLock())
        self._latch = FaultLatch()
        self._outputs: QontrolOutputs | None = None
        self._is_open = False
        self._limits: ControllerLimits | None = None
        self._max_ma: NDArray[np.float64] = np.zeros(0)
        self._generation = 0
        self._round_trip_s = 0.0
        self._calls = 0
        self._idle = IdleWatch(clock, idle_off_s, self._stop_if_idle)

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities, read by :meth:`open`. Raises ``LinkLost`` before :meth:`open`."""
        chain = self._require_outputs("info").chain
        kinds = sorted({module.kind for module in chain.modules})
        versions = sorted({module.firmware for module in chain.modules})
        return ControllerInfo(
            model=f"Qontrol {len(chain.modules)} x {'/'.join(kinds)}",
            serial=chain.serial,
            firmware=", ".join(versions),
            n_heaters=chain.n_channels,
            n_monitors=0,
            current_full_scale_ma=float(chain.full_scale_ma.min()),
            current_step_ma=float(step(chain.full_scale_ma).max()),
            atomic=False,
            readback=True,
            watchdog=False,
            on_board_sweep=False,
            readback_tolerance_ma=self._tolerance_ma,
        )

    @property
    def chain(self) -> ModuleChain:
        """Modules found by :meth:`open`. Raises ``LinkLost`` before :meth:`open`."""
        return self._require_outputs("chain").chain

    @property
    def session(self) -> QontrolSession:
        """The session, for its counters."""
        return self._session

    @property
    def compliance(self) -> Compliance:
        """Voltage and current limits in the modules, as last read back. Raises ``LinkLost`` before :meth:`open`."""
        return self._require_outputs("compliance").compliance

    @property
    def latch_skew_s(self) -> float:
        """Longest delay in s between the current changes of two modules."""
        outputs = self._require_outputs("latch_skew_s")
        # Before the first table, the estimate is one round trip per module.
        return outputs.setting_s or self._round_trip_s * len(outputs.chain.modules)

    def open(self) -> None:
        """Open the link, detect the modules and read their limits; no output changes.

        Limits that were configured before are applied again. Raises the errors of :meth:`Driver.open` and
        :func:`~lumion_hw.drivers.mesh.qontrol.chain.read_chain`; after an error the link is closed.
        """
        with self._lock, self._session.transaction():
            with close_on_error(self._session.close):
                self._session.open()
                if self._reenumerate:
                    self._session.renumber()
                self._outputs = outputs = self._attach(read_chain(self._session))
            self._is_open = True
            if self._limits is None:
                # Until limits are configured, the present limits of the modules apply.
                self._max_ma = np.minimum(outputs.chain.full_scale_ma, outputs.compliance.current_ma)
            else:
                self.configure(self._limits)
            self._idle.start()

    def configure(self, limits: ControllerLimits) -> None:
        """Set the voltage and current limits of the modules (VMAX, IMAX) and verify them.

        ``watchdog_s`` has no effect: these modules have no watchdog.

        Raises:
            LinkLost: The controller is not open.
            LimitError: A limit is outside the capabilities of the modules, or the present currents exceed it.
            ConfigError: An array does not have one value per channel.
            DeviceError: A module refused the command.
            VerifyError: A limit read back differs.
        """
        with self._call("configure") as outputs:
            requested = self._compliance_for(limits, outputs.chain)
            # The present currents are checked first: a limit below them would trip the output.
            max_ma = np.array(limits.heater_max_ma, dtype=np.float64)
            if outputs.driven_ma is not None:
                label = "present currents, with the new heater_max_ma"
                checked_column(outputs.driven_ma, 0.0, max_ma, label, "mA", self._session)
                check_power(outputs.driven_ma, limits, "present currents, with the new limits", self._session)
            outputs.apply(requested)
            self._limits, self._max_ma = limits, max_ma

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        """Set all channels, module by module in ascending order, and read the currents back.

        Not atomic: see :attr:`latch_skew_s`. After an error, some modules may have the new currents and others the old.

        Args:
            currents_ma: Shape ``(n_heaters,)``, in mA.

        Raises:
            LimitError: A current or the total power exceeds its limit; nothing was sent.
            ConfigError: The number of currents differs from the number of channels.
            SafetyError: Faults are latched; nothing was sent.
            DeviceError: A module refused, or reported over-voltage or over-current; the message names the channels.
            VerifyError: A current read back differs by more than the tolerance.
        """
        with self._call("program") as outputs:
            currents = checked_column(currents_ma, 0.0, self._max_ma, "program", "mA", self._session)
            if self._limits is not None:
                check_power(currents, self._limits, "program", self._session)
            # Reports since the last call belong to the previous currents, not to this table.
            self._session.listen()
            outputs.latch_reports()
            # The modules do not latch faults, so the driver keeps the heaters off until the fault is cleared.
            outputs.refuse_while_latched("program")
            # A module that was powered up again may have lost IMAX and VMAX.
            if outputs.has_lost_limits and self._limits is not None:
                outputs.apply(self._compliance_for(self._limits, outputs.chain))
            self._generation += 1
            outputs.drive(currents)
            codes = codes_from_values(currents, outputs.chain.full_scale_ma)
            return Generation(self._generation, zlib.crc32(codes.astype("<u2").tobytes()), self._clock.now())

    def read_back(self) -> NDArray[np.float64]:
        """Return the currents that the modules measure at their outputs, in mA, shape ``(n_heaters,)``."""
        with self._call("read_back") as outputs:
            return outputs.read_currents()

    def read_channels(self) -> ChannelReadings:
        """Return voltage and current of all channels, as measured by the modules."""
        with self._call("read_channels") as outputs:
            return outputs.read_channels()

    def read_log(self) -> tuple[LogEntry, ...]:
        """Return the logs of the modules, 64 entries each; takes about 0.2 s per module."""
        with self._call("read_log") as outputs:
            return read_log(self._session, outputs.chain)

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Raise ``NotSupportedError``: the modules measure only their own outputs."""
        del n_avg
        self._not_supported("read_monitors", "have no optical monitors", "Read a power meter instead.")

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Raise ``NotSupportedError``: the modules have no sweeps."""
        del plan
        self._not_supported("sweep", "have no sweeps", "Set the points of the sweep one by one with program().")

    def telemetry(
        self, period_s: float, *, monitors: tuple[int, ...] | None = None, n_avg: int = 1
    ) -> Iterator[TelemetrySample]:
        """Raise ``NotSupportedError``: the modules do not stream readings."""
        del period_s, monitors, n_avg
        self._not_supported("telemetry", "do not stream readings", "Call read_channels() instead.")

    def watch_light(self, thresholds: Sequence[LightThreshold], *, period_s: float = 1e-3) -> LightWatcher:
        """Raise ``NotSupportedError``: the modules have no photodiodes."""
        del thresholds, period_s
        self._not_supported("watch_light", "have no photodiodes", "Watch the power meters or the modules' LOS instead.")

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults that the modules have reported, oldest first.

        For over-voltage and over-current faults, ``present`` means that the channel is at its limit now.
        """
        with self._call("faults") as outputs:
            self._session.check_identity()
            outputs.latch_reports()
            outputs.refresh()
            return self._latch.faults

    def clear_fault(self, fault_id: int) -> None:
        """Clear only the latched fault with this id. A second call with the same id is not an error.

        Raises the errors of :meth:`MeshController.clear_fault`. If the channel is still at its limit, first call
        :meth:`outputs_off`.
        """
        check_fault_id(fault_id, self._session.device, self._session.address)
        with self._call("clear_fault") as outputs:
            self._session.check_identity()
            outputs.latch_reports()
            outputs.refresh()
            if not self._latch.was_issued(fault_id):
                raise self._session.error(
                    BadValueError,
                    f"clear_fault: no fault has the id {fault_id}; nothing was cleared",
                    command="clear_fault",
                    hint=f"{LIST_FAULTS}, with their ids.",
                )
            fault = self._latch.find(fault_id)
            if fault is not None and fault.present:
                raise self._session.error(
                    SafetyError,
                    f"clear_fault: the cause is still present: {fault}",
                    hint="Check the heater, or switch off with outputs_off(), then clear the fault again.",
                )
            self._latch.clear(fault_id)

    def outputs_off(self) -> None:
        """Set all currents to zero in any state and verify them; latches an ESTOP fault.

        Raises:
            LinkError: The modules did not confirm in three attempts; the state of the outputs is unknown.
            VerifyError: Currents are still flowing.
        """
        with self._call("outputs_off") as outputs:
            # Latched before zeros are sent, so that heaters stay off even if sending fails.
            self._latch.add(Fault(0, STOPPED, latched=True, present=False))
            outputs.zero()

    def close(self) -> None:
        """Set the outputs to zero, except with ``leave_on``, and close the link; idempotent, never raises."""
        if self._session.belongs_to_other_process:
            self._session.close()
            return
        self._idle.stop()
        with self._lock:
            if self._is_open and not self._leave_on and self._outputs is not None:
                try:
                    self._outputs.zero()
                except LumionError as error:
                    _log.warning("closing, but the outputs may still be on: %s", error)
            self._is_open = False
            self._session.close()

    @contextlib.contextmanager
    def _call(self, operation: str) -> Iterator[QontrolOutputs]:
        with self._lock, self._session.transaction():
            outputs = self._require_outputs(operation)
            if not self._is_open:
                raise self._not_open_error(operation)
            self._calls += 1
            try:
                yield outputs
            finally:
                self._calls -= 1
                self._idle.used()

    def _attach(self, chain: ModuleChain) -> QontrolOutputs:
        expected = self._expected_serial or (self._outputs.chain.serial if self._outputs is not None else None)
        if expected is not None and chain.serial != expected:
            raise self._session.error(
                IdentityError,
                f"expected the modules {expected}, found {chain.serial}",
                hint="Check the cabling and the order of the backplanes, or the serial in the bench file.",
            )
        started_s = self._clock.now()
        self._session.check_identity()
        # Measured, because it depends on the latency timer of the USB bridge (16 ms by default), not on the baud rate.
        self._round_trip_s = self._clock.now() - started_s
        return QontrolOutputs(
            self._session, self._clock, chain, self._latch, mode=self._mode, tolerance_ma=self._tolerance_ma
        )

    def _compliance_for(self, limits: ControllerLimits, chain: ModuleChain) -> Compliance:
        return compliance_for(limits, chain, self._compliance_v, self._headroom, self._session)

    def _require_outputs(self, operation: str) -> QontrolOutputs:
        if self._outputs is None:
            raise self._not_open_error(operation)
        return self._outputs

    def _not_open_error(self, operation: str) -> LinkLost:
        device, address = self._session.device, self._session.address
        return LinkLost(
            f"{operation}: the controller is not open", device=device, address=address, hint="Call open() first."
        )

    def _not_supported(self, operation: str, label: str, hint: str) -> NoReturn:
        if not self._is_open:
            raise self._not_open_error(operation)
        device, address = self._session.device, self._session.address
        description = f"{operation}: Qontrol modules {label}"
        raise NotSupportedError(description, command=operation, device=device, address=address, hint=hint)

    def _stop_if_idle(self, idle_s: float) -> None:
        # A call is in progress, so the host is not idle.
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._is_open and not self._calls and self._require_outputs("idle").may_carry_current:
                with self._call("switching off after idle time") as outputs:
                    self._latch.add(Fault(0, HOST_IDLE, latched=True, present=False, extra={"idle_s": idle_s}))
                    outputs.zero()
        except LumionError as error:
            _log.error("%s: no call for %.3g s, and switching off failed: %s", self._session.device, idle_s, error)
        finally:
            self._lock.release()
