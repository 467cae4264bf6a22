"""Outputs of an open Qontrol chain: sets and reads limits and currents."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.drivers.mesh.qontrol.chain import ModuleChain
from lumion_hw.drivers.mesh.qontrol.faults import (
    FaultLatch,
    faults_from_log,
    faults_from_reports,
    read_log,
)
from lumion_hw.drivers.mesh.qontrol.values import (
    ChannelReadings,
    Compliance,
    Mode,
    column_from_lines,
    read_channels,
    read_request,
    set_requests,
    step,
)
from lumion_hw.errors import CLEAR_FAULTS, LIST_FAULTS, DeviceError, LinkLost, LumionError, SafetyError, VerifyError
from lumion_hw.interfaces import Fault
from lumion_hw.sessions.codecs.qontrol import ERRORS_SUPPRESSED, POWERED_UP, Quantity
from lumion_hw.sessions.qontrol import QontrolSession

_log = logging.getLogger(__name__)

_SETTLE_S = 0.02
_READINGS_PER_SET = 6  # a report arrives 3 to 40 ms after its cause
# The serial line has no protection against bit errors, so switching off is tried three times.
_STOP_ATTEMPTS = 3
_PRINTED_STEP = 1e-4  # replies have four decimals


class QontrolOutputs:
    """Controls the outputs of a chain. The caller must lock the session for every call.

    Args:
        clock: Clock of the link.
        chain: Modules of the chain.
        latch: Store of the faults.
        mode: Format of the requests.
        tolerance_ma: Largest accepted difference between set and measured current.
    """

    def __init__(
        self,
        session: QontrolSession,
        clock: Clock,
        chain: ModuleChain,
        latch: FaultLatch,
        *,
        mode: Mode,
        tolerance_ma: float,
    ) -> None:
        self._session = session
        self._clock = clock
        self.chain = chain
        self._latch = latch
        self._mode = mode
        self._tolerance_ma = tolerance_ma
        self.compliance = self._read_compliance()
        self.has_lost_limits = False
        """Whether a module was restarted since its limits were set."""
        self.driven_ma: NDArray[np.float64] | None = None
        """Last confirmed currents; ``None`` if unknown."""
        self.setting_s = 0.0
        """Duration in s of the last setting and reading of all channels."""

    @property
    def may_carry_current(self) -> bool:
        """Whether an output may be on, because its current is not zero or unknown."""
        return self.driven_ma is None or bool(self.driven_ma.any())

    def apply(self, requested: Compliance) -> None:
        """Set and verify the voltage and current limits of the modules (VMAX, IMAX).

        Raises ``DeviceError`` if a module refused the command, and ``VerifyError`` if a limit read back differs.
        """
        columns = (
            (Quantity.CURRENT_LIMIT, requested.current_ma, "mA"),
            (Quantity.VOLTAGE_LIMIT, requested.voltage_v, "V"),
        )
        self.compliance = self._read_compliance()
        requests = [
            request
            for (quantity, values, _), changed in zip(columns, self._find_differences(requested), strict=True)
            for request in set_requests(self._mode, quantity, values, self.chain, changed)
        ]
        if requests:
            self._session.run(requests)
            self.compliance = self._read_compliance()
        actual = (self.compliance.current_ma, self.compliance.voltage_v)
        for (quantity, values, unit), content, differs in zip(
            columns, actual, self._find_differences(requested), strict=True
        ):
            for channel in np.flatnonzero(differs)[:1]:
                raise self._session.error(
                    VerifyError,
                    f"{quantity.text} of channel {channel}",
                    wrote=f"{values[channel]:.4f} {unit}",
                    read=f"{content[channel]:.4f} {unit}",
                    hint="The module acknowledged the limit but uses a different value. No output was changed.",
                )
        self.has_lost_limits = False

    def drive(self, currents_ma: NDArray[np.float64]) -> None:
        """Set and verify all currents. Currents that differ are read again for up to 0.1 s.

        Raises:
            DeviceError: A module refused, or reported a problem meanwhile.
            VerifyError: A current read back differs by more than the tolerance.
        """
        self.driven_ma = None
        actual_ma = self._set_and_read(currents_ma)
        # An acknowledged current may still reach its voltage limit:
        # the module replies OK and reports the limit milliseconds later.
        for reading in range(_READINGS_PER_SET):
            if reading:
                self._clock.sleep(_SETTLE_S)
                actual_ma = self.read_currents()
            self._raise_reports("program")
            differs = np.abs(actual_ma - currents_ma) > self._tolerance_ma
            if not differs.any():
                self.driven_ma = currents_ma.copy()
                return
        raise self._readback_error("program", currents_ma, actual_ma, differs, f"{LIST_FAULTS}; check the heater.")

    def zero(self) -> None:
        """Set all currents to zero and verify the zeros, in up to three attempts.

        Raises:
            LinkError: The modules never confirmed.
            DeviceError: A module refused in every attempt.
            VerifyError: Currents are still flowing.
        """
        zeros = np.zeros(self.chain.n_channels)
        self.driven_ma = None
        for attempt in range(_STOP_ATTEMPTS):
            try:
                actual_ma = self._set_and_read(zeros)
                break
            # Without a link no attempt can succeed.
            except LinkLost:
                raise
            except LumionError as error:
                if attempt + 1 == _STOP_ATTEMPTS:
                    raise
                _log.warning("attempt %d to switch the outputs off failed: %s", attempt + 1, error)
        for _ in range(_READINGS_PER_SET):
            differs = np.abs(actual_ma) > self._tolerance_ma
            if not differs.any():
                self.driven_ma = zeros
                return
            self._clock.sleep(_SETTLE_S)
            actual_ma = self.read_currents()
        raise self._readback_error("switching off", zeros, actual_ma, differs, "Disconnect the analog supply.")

    def read_currents(self) -> NDArray[np.float64]:
        """Return the measured currents in mA, shape ``(n_channels,)``."""
        request = read_request(self._mode, Quantity.CURRENT, self.chain)
        return column_from_lines(self._session.query_lines(request), request, self.chain.full_scale_ma, self._session)

    def latch_reports(self) -> tuple[Fault, ...]:
        """Latch and return the faults that the modules have reported since the last call."""
        reports = list(self._session.take_reports())
        if not reports:
            return ()
        readings = None
        faults: list[Fault] = []
        try:
            readings = read_channels(self._session, self.chain, self._clock)
            if any(report.code == ERRORS_SUPPRESSED for report in reports):
                log = read_log(self._session, self.chain)
                faults += faults_from_log(log, self.chain, readings, self.compliance)
        except LumionError as error:
            _log.warning("error reports of the modules could not be traced to channels: %s", error)
        # More reports may have arrived while the channels were read.
        reports += self._session.take_reports()
        faults = [*faults_from_reports(reports, self.chain, readings, self.compliance), *faults]
        if any(report.code == POWERED_UP for report in reports):
            self.has_lost_limits, self.driven_ma = True, None
        return tuple(self._latch.add(fault) for fault in faults)

    def refresh(self) -> None:
        """Update for every latched fault whether its channel is at its limit now."""
        if self._latch.latched:
            self._latch.refresh(self.read_channels(), self.compliance)

    def read_channels(self) -> ChannelReadings:
        """Return the voltages and currents that the modules measure."""
        return read_channels(self._session, self.chain, self._clock)

    def refuse_while_latched(self, operation: str) -> None:
        """Raise ``SafetyError`` if a fault is latched."""
        latched = self._latch.latched
        if latched:
            raise self._session.error(
                SafetyError,
                f"{operation}: nothing was sent, because faults are latched: {'; '.join(map(str, latched))}",
                hint=CLEAR_FAULTS,
            )

    def _set_and_read(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        sets = set_requests(self._mode, Quantity.CURRENT, currents_ma, self.chain)
        request = read_request(self._mode, Quantity.CURRENT, self.chain)
        started_s = self._clock.now()
        lines = self._session.run([*sets, request])[-1]
        self.setting_s = self._clock.now() - started_s
        return column_from_lines(lines, request, self.chain.full_scale_ma, self._session)

    def _raise_reports(self, operation: str) -> None:
        new = self.latch_reports()
        if new:
            code = new[0].extra["code"]
            raise self._session.error(
                DeviceError,
                f"{operation}: the modules report {'; '.join(map(str, new))}",
                code=code if isinstance(code, int) else None,
                command=operation,
                hint=f"The outputs stay as set, within the limits of the modules. {CLEAR_FAULTS}.",
            )

    def _read_compliance(self) -> Compliance:
        full = {Quantity.CURRENT_LIMIT: self.chain.full_scale_ma, Quantity.VOLTAGE_LIMIT: self.chain.full_scale_v}
        requests = {quantity: read_request(self._mode, quantity, self.chain) for quantity in full}
        replies = self._session.run(list(requests.values()))
        columns = [
            column_from_lines(lines, request, full[quantity], self._session)
            for (quantity, request), lines in zip(requests.items(), replies, strict=True)
        ]
        return Compliance(*columns)

    def _find_differences(self, requested: Compliance) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        slack_ma = 1.5 * step(self.chain.full_scale_ma) + _PRINTED_STEP
        slack_v = 1.5 * step(self.chain.full_scale_v) + _PRINTED_STEP
        return (
            np.abs(requested.current_ma - self.compliance.current_ma) > slack_ma,
            np.abs(requested.voltage_v - self.compliance.voltage_v) > slack_v,
        )

    def _readback_error(
        self,
        operation: str,
        requested_ma: NDArray[np.float64],
        actual_ma: NDArray[np.float64],
        differs: NDArray[np.bool_],
        hint: str,
    ) -> VerifyError:
        channels = np.flatnonzero(differs).tolist()
        first = channels[0]
        return self._session.error(
            VerifyError,
            f"{operation}: wrong current on channels {', '.join(map(str, channels))}; channel {first}",
            wrote=f"{requested_ma[first]:.4f} mA",
            read=f"{actual_ma[first]:.4f} mA",
            hint=hint,
        )
