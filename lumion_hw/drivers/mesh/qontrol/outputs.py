"""The outputs of one open Qontrol chain: limits and currents go out, are read back, and trouble is traced."""

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
_READINGS_PER_SET = 6  # a supervision report comes 3 to 40 ms after its cause
# Nothing protects the wire from bit errors; to switch off is worth three attempts.
_STOP_ATTEMPTS = 3
_PRINTED_STEP = 1e-4  # replies have four decimals


class QontrolOutputs:
    """What a driver does with the outputs of a chain. The caller holds the session for every call.

    Args:
        session: The open session.
        clock: Its clock.
        chain: The modules found.
        latch: Where faults are kept.
        mode: How requests are sent.
        tolerance_ma: Largest difference between a current set and read.
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
        self.limits_gone = False
        """A module was powered up since its limits were set."""
        self.driven_ma: NDArray[np.float64] | None = None
        """The table confirmed last; ``None`` while it is not known."""
        self.setting_s = 0.0
        """Time the last table took to set and read."""

    @property
    def may_carry_current(self) -> bool:
        """Whether the outputs are not known to be at zero."""
        return self.driven_ma is None or bool(self.driven_ma.any())

    def apply(self, wanted: Compliance) -> None:
        """Set IMAX and VMAX where they differ, and read them back.

        Raises:
            DeviceError: A module refused.
            VerifyError: A module keeps another limit.
        """
        columns = (
            (Quantity.CURRENT_LIMIT, wanted.current_ma, "mA"),
            (Quantity.VOLTAGE_LIMIT, wanted.voltage_v, "V"),
        )
        self.compliance = self._read_compliance()
        requests = [
            request
            for (quantity, values, _), changed in zip(columns, self._differing(wanted), strict=True)
            for request in set_requests(self._mode, quantity, values, self.chain, changed)
        ]
        if requests:
            self._session.run(requests)
            self.compliance = self._read_compliance()
        found = (self.compliance.current_ma, self.compliance.voltage_v)
        for (quantity, values, unit), seen, wrong in zip(columns, found, self._differing(wanted), strict=True):
            for channel in np.flatnonzero(wrong)[:1]:
                raise self._session.error(
                    VerifyError,
                    f"{quantity.text} of channel {channel}",
                    wrote=f"{values[channel]:.4f} {unit}",
                    read=f"{seen[channel]:.4f} {unit}",
                    hint="The module keeps another limit than it acknowledged; nothing was driven.",
                )
        self.limits_gone = False

    def drive(self, currents_ma: NDArray[np.float64]) -> None:
        """Set all currents and read them back, again and again for 0.1 s if they do not fit at once.

        Raises:
            DeviceError: A module refused, or reported trouble meanwhile.
            VerifyError: A current does not read back within the tolerance.
        """
        self.driven_ma = None
        found_ma = self._set_and_read(currents_ma)
        # An acknowledged current may still run into its voltage limit:
        # the module says OK, and reports it milliseconds later.
        for reading in range(_READINGS_PER_SET):
            if reading:
                self._clock.sleep(_SETTLE_S)
                found_ma = self.read_currents()
            self._raise_reports("program")
            wrong = np.abs(found_ma - currents_ma) > self._tolerance_ma
            if not wrong.any():
                self.driven_ma = currents_ma.copy()
                return
        raise self._not_driven("program", currents_ma, found_ma, wrong, f"{LIST_FAULTS}; check the heater.")

    def zero(self) -> None:
        """Set all currents to zero and read them back, in up to three attempts.

        Raises:
            LinkError: Never confirmed.
            DeviceError: Refused in every attempt.
            VerifyError: Currents are still flowing.
        """
        zeros = np.zeros(self.chain.n_channels)
        self.driven_ma = None
        for attempt in range(_STOP_ATTEMPTS):
            try:
                found_ma = self._set_and_read(zeros)
                break
            # Without a link no attempt can succeed.
            except LinkLost:
                raise
            except LumionError as error:
                if attempt + 1 == _STOP_ATTEMPTS:
                    raise
                _log.warning("switching off, attempt %d: %s", attempt + 1, error)
        for _ in range(_READINGS_PER_SET):
            wrong = np.abs(found_ma) > self._tolerance_ma
            if not wrong.any():
                self.driven_ma = zeros
                return
            self._clock.sleep(_SETTLE_S)
            found_ma = self.read_currents()
        raise self._not_driven("switching off", zeros, found_ma, wrong, "Cut the analog supply by hand.")

    def read_currents(self) -> NDArray[np.float64]:
        """Return the measured currents in mA, shape ``(n_channels,)``."""
        request = read_request(self._mode, Quantity.CURRENT, self.chain)
        return column_from_lines(self._session.ask(request), request, self.chain.full_scale_ma, self._session)

    def latch_reports(self) -> tuple[Fault, ...]:
        """Trace what the modules reported since the last call, and latch it; return the new faults."""
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
            _log.warning("reports could not be traced to channels: %s", error)
        # Reading the channels takes a while, in which further reports may have come.
        reports += self._session.take_reports()
        faults = [*faults_from_reports(reports, self.chain, readings, self.compliance), *faults]
        if any(report.code == POWERED_UP for report in reports):
            self.limits_gone, self.driven_ma = True, None
        return tuple(self._latch.add(fault) for fault in faults)

    def refresh(self) -> None:
        """Say of every latched fault whether its channel is at its limit now."""
        if self._latch.latched:
            self._latch.refresh(self.read_channels(), self.compliance)

    def read_channels(self) -> ChannelReadings:
        """Return measured voltages and currents."""
        return read_channels(self._session, self.chain, self._clock)

    def refuse_while_latched(self, operation: str) -> None:
        """Raise ``SafetyError`` if a fault is latched."""
        latched = self._latch.latched
        if latched:
            raise self._session.error(
                SafetyError,
                f"{operation}: faults are latched, nothing was sent: {'; '.join(map(str, latched))}.",
                hint=CLEAR_FAULTS,
            )

    def _set_and_read(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        """Set and read in one go, so that the reading costs no round trip of its own."""
        sets = set_requests(self._mode, Quantity.CURRENT, currents_ma, self.chain)
        request = read_request(self._mode, Quantity.CURRENT, self.chain)
        began = self._clock.now()
        lines = self._session.run([*sets, request])[-1]
        self.setting_s = self._clock.now() - began
        return column_from_lines(lines, request, self.chain.full_scale_ma, self._session)

    def _raise_reports(self, operation: str) -> None:
        new = self.latch_reports()
        if new:
            code = new[0].extra["code"]
            raise self._session.error(
                DeviceError,
                f"{operation}: the modules report {'; '.join(map(str, new))}.",
                code=code if isinstance(code, int) else None,
                command=operation,
                hint=f"The outputs stay as set, as far as the modules let them. {CLEAR_FAULTS}.",
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

    def _differing(self, wanted: Compliance) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        slack_ma = 1.5 * step(self.chain.full_scale_ma) + _PRINTED_STEP
        slack_v = 1.5 * step(self.chain.full_scale_v) + _PRINTED_STEP
        return (
            np.abs(wanted.current_ma - self.compliance.current_ma) > slack_ma,
            np.abs(wanted.voltage_v - self.compliance.voltage_v) > slack_v,
        )

    def _not_driven(
        self,
        operation: str,
        wanted_ma: NDArray[np.float64],
        found_ma: NDArray[np.float64],
        wrong: NDArray[np.bool_],
        hint: str,
    ) -> VerifyError:
        channels = np.flatnonzero(wrong).tolist()
        first = channels[0]
        return self._session.error(
            VerifyError,
            f"{operation}: current of channel {', '.join(map(str, channels))} does not read back; channel {first}",
            wrote=f"{wanted_ma[first]:.4f} mA",
            read=f"{found_ma[first]:.4f} mA",
            hint=hint,
        )
