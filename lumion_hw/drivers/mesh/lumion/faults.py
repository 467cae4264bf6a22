"""Faults of the LUMION mesh controller (protocol section 11.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from types import TracebackType

from firmware_protocol import (
    FaultClearRequest,
    FaultListRequest,
    FaultRecord,
    FaultState,
    Feature,
    OutputsState,
    Status,
    has_feature,
)
from lumion_hw.drivers.mesh.lumion.values import call_back, fault_from_record
from lumion_hw.errors import (
    LIST_FAULTS,
    BadValueError,
    FrameError,
    LinkError,
    LinkLost,
    LinkTimeout,
    LumionError,
    SafetyError,
    VerifyError,
)
from lumion_hw.interfaces import Fault
from lumion_hw.sessions.framed.session import FramedSession

_log = logging.getLogger(__name__)

_MAX_FAULTS = 4096  # more than any controller stores, so a longer list is endless
_LAST_RESORT_S = 1.0


class FaultWatch:
    """Reports each new fault of the controller once.

    Args:
        on_fault: Called once per new latched fault; ``None`` to log only.
        expected: Sources of expected faults, which are logged as information and not as errors.
    """

    def __init__(
        self, session: FramedSession, on_fault: Callable[[Fault], None] | None, expected: Collection[str] = ()
    ) -> None:
        self._session = session
        self._expected = expected
        self._on_fault = on_fault
        self._newest_id = 0
        self._pending = False

    def forget(self) -> None:
        """Forget all reported faults, after a restart of the controller."""
        self._newest_id = 0
        self._pending = False

    def read_faults(self) -> tuple[Fault, ...]:
        """Return the controller's fault list, oldest first."""
        records = self._records(0)
        self._announce(records)
        return tuple(fault_from_record(record) for record in records)

    def clear(self, fault_id: int) -> None:
        """Clear one latched fault.

        Raises the errors of :meth:`MeshController.clear_fault`, and ``VerifyError`` if the fault is still latched.
        """
        if not has_feature(self._session.hello.features, Feature.CLEAR_ONE):
            self._check_for_first_edition(fault_id)
        try:
            latched = self._session.request(FaultClearRequest(fault_id)).latched
        except LinkTimeout as error:
            fault = self._find_fault(fault_id)
            if fault is None:
                raise
            # If the fault is still latched, the command was not executed and never will be (section 4.5).
            if fault.latched:
                error.took_effect = False
                error.message += f" Fault {fault_id} is still latched, so it was not cleared."
                raise
            return
        except SafetyError as error:
            fault = self._find_fault(fault_id)
            if fault is None or not fault.present:
                raise
            raise self._session.error(
                SafetyError,
                f"FAULT_CLEAR refused, and nothing was cleared: the cause is still present: {fault}",
                hint="Remove the cause first.",
            ) from error
        # The reply names sources, not ids, so another fault of the same source may be the latched one.
        fault = self._find_fault(fault_id) if latched else None
        if fault is not None and fault.latched:
            raise self._session.error(
                VerifyError,
                f"FAULT_CLEAR of id {fault_id} was confirmed, but the fault is still latched",
                wrote="cleared",
                read=str(fault),
                hint=f"{LIST_FAULTS}.",
            )

    def _check_for_first_edition(self, fault_id: int) -> None:
        listed = {fault.fault_id: fault for fault in self.read_faults()}
        older = [str(fault) for number, fault in listed.items() if fault.latched and number < fault_id]
        if fault_id not in listed:
            raise self._session.error(
                BadValueError,
                f"FAULT_CLEAR: no fault has the id {fault_id}; nothing was sent",
                code=Status.UNKNOWN_FAULT,
                command=FaultClearRequest.command.name,
                hint=f"{LIST_FAULTS}, with their ids.",
            )
        if older:
            raise self._session.error(
                SafetyError,
                f"FAULT_CLEAR of id {fault_id}: this firmware would also clear {'; '.join(older)}. Nothing was sent.",
                hint="Clear the faults one by one, the oldest first.",
            )

    def _find_fault(self, fault_id: int) -> Fault | None:
        try:
            return next((fault for fault in self.read_faults() if fault.fault_id == fault_id), None)
        except LinkError as error:
            _log.warning("the fault of id %d could not be read: %s", fault_id, error)
            return None

    def stop(self, timeout_s: float | None) -> None:
        """Make an emergency stop and verify that the outputs are off. Raises the errors of ``outputs_off``."""
        reply = self._session.emergency_stop(timeout_s)
        if reply.outputs_state is not OutputsState.SAFE:
            raise self._session.error(
                VerifyError,
                "ESTOP was confirmed, but the outputs are not in their safe state",
                wrote=OutputsState.SAFE.name,
                read=reply.outputs_state.name,
                hint="Disconnect the heater supply.",
            )

    def last_resort(self) -> None:
        """Make an emergency stop; never raises."""
        try:
            if self._session.is_open:
                self.stop(_LAST_RESORT_S)
        except LumionError as error:
            _log.error("while closing: the outputs may be on until the watchdog trips: %s", error)

    def poll(self, *, only_if_idle: bool) -> bool:
        """Read and report new faults. With ``only_if_idle``, return ``False`` if the session is busy."""
        request = FaultListRequest(first_id=(self._newest_id + 1) % (1 << 32))
        send = self._session.request_if_idle if only_if_idle else self._session.request
        reply = send(request)
        if reply is None:
            return False
        self._pending = self._session.fault_pending
        self._announce(reply.records)
        return True

    def check(self, *, only_if_idle: bool = False) -> None:
        """Report new faults, and log errors of the link instead of raising them."""
        events = self._session.take_fault_events()
        if not events and self._session.fault_pending is self._pending:
            return
        self._announce(events)
        # Only a rising flag causes the list to be read; otherwise a latched fault would cost a request per call.
        rising = self._session.fault_pending and not self._pending
        self._pending = self._session.fault_pending
        if not rising or not self._session.is_open:
            return
        try:
            self._pending = self.poll(only_if_idle=only_if_idle)
        except LumionError as error:
            self._pending = False  # try again after the next request
            _log.warning("a fault is latched, but the fault list could not be read: %s", error)

    def _records(self, first_id: int) -> list[FaultRecord]:
        records: list[FaultRecord] = []
        with self._session.transaction():
            while len(records) <= _MAX_FAULTS:
                # The list may be longer than a frame, so it is read in parts, each from the last id on.
                first = records[-1].fault_id + 1 if records else first_id
                reply = self._session.request(FaultListRequest(first_id=first))
                records.extend(record for record in reply.records if record.fault_id >= first)
                if not reply.records or not first <= reply.records[-1].fault_id < reply.newest_id:
                    return records
        raise self._session.error(
            FrameError,
            f"FAULT_LIST: the list has more than {_MAX_FAULTS} faults",
            hint="Compare the versions of firmware and lumion-hw.",
        )

    def _announce(self, records: Iterable[FaultRecord]) -> None:
        for record in records:
            # Reported once, although event and lists all contain it.
            if record.fault_id <= self._newest_id or record.fault_state is FaultState.CLEARED:
                continue
            self._newest_id = record.fault_id
            fault = fault_from_record(record)
            level = logging.INFO if fault.source in self._expected else logging.ERROR
            _log.log(level, "%s @ %s: the controller latched %s", self._session.device, self._session.address, fault)
            call_back(self._on_fault, fault)


class WatchedCall:
    """Context manager for one driver call. On exit, it records a lost link and reports new faults.

    Args:
        on_link_lost: Called if the call ended with a lost link.
    """

    __slots__ = ("_on_link_lost", "_watch")

    def __init__(self, watch: FaultWatch, on_link_lost: Callable[[LinkLost], None]) -> None:
        self._watch = watch
        self._on_link_lost = on_link_lost

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, LinkLost):
            self._on_link_lost(error)
        self._watch.check()
