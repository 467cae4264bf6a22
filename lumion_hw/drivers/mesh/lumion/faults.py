"""Faults of the LUMION mesh controller: listed, cleared by id, announced as soon as they are seen (section 11.3)."""

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

_MOST_FAULTS = 4096  # no controller keeps as many: a list that is longer never ends
_LAST_RESORT_S = 1.0


class FaultWatch:
    """Knows which faults were announced already.

    A FAULT event announces a fault at once; when it was lost, the flag FAULT_PENDING on any later frame leads to the
    list. While the flag stays set the list is asked for instead of a PING, so that no fault behind another is missed.

    Args:
        session: The session.
        on_fault: Called once per new latched fault, outside of exchanges; ``None`` to log only.
        expected: Sources that are no news: they are logged as information, not as errors.
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
        """The controller was restarted: its fault ids begin at 1 again."""
        self._newest_id = 0
        self._pending = False

    def kept(self) -> tuple[Fault, ...]:
        """Return the faults the controller keeps, oldest first. Raises as a request."""
        records = self._records(0)
        self._announce(records)
        return tuple(fault_from_record(record) for record in records)

    def clear(self, fault_id: int) -> None:
        """Clear one latched fault.

        Raises:
            BadValueError: The controller gave no fault this id; nothing was cleared.
            SafetyError: Its cause is still present, and the message names it; nothing was cleared.
            VerifyError: The controller agreed, but the fault is still latched.
        """
        if not has_feature(self._session.hello.features, Feature.CLEAR_ONE):
            self._check_for_first_edition(fault_id)
        try:
            latched = self._session.request(FaultClearRequest(fault_id)).latched
        except LinkTimeout as error:
            fault = self._find(fault_id)
            if fault is None:
                raise
            # A board that still has it latched has not executed the command, and by section 4.5 never will.
            if fault.latched:
                error.took_effect = False
                error.message += f" Asked, the controller still has fault {fault_id} latched: it was not cleared."
                raise
            return
        except SafetyError as error:
            fault = self._find(fault_id)
            if fault is None or not fault.present:
                raise
            raise self._session.error(
                SafetyError,
                f"FAULT_CLEAR refused, nothing was cleared: the cause is still present of {fault}.",
                hint="Remove the cause first.",
            ) from error
        # The reply names sources, not ids: another fault of the same source may be what is latched.
        fault = self._find(fault_id) if latched else None
        if fault is not None and fault.latched:
            raise self._session.error(
                VerifyError,
                f"FAULT_CLEAR of id {fault_id} was answered, but the fault is still latched",
                wrote="cleared",
                read=str(fault),
                hint=f"{LIST_FAULTS}.",
            )

    def _check_for_first_edition(self, fault_id: int) -> None:
        """Keep the rule for a board that clears every fault up to an id, whether it gave the id out or not."""
        listed = {fault.fault_id: fault for fault in self.kept()}
        older = [str(fault) for number, fault in listed.items() if fault.latched and number < fault_id]
        if fault_id not in listed:
            raise self._session.error(
                BadValueError,
                f"FAULT_CLEAR: no fault listed has id {fault_id}, nothing was sent.",
                code=Status.UNKNOWN_FAULT,
                command=FaultClearRequest.command.name,
                hint=f"{LIST_FAULTS}, with the id that clears each.",
            )
        if older:
            raise self._session.error(
                SafetyError,
                f"FAULT_CLEAR of id {fault_id}: this firmware would also clear {'; '.join(older)}. Nothing was sent.",
                hint="Clear the oldest one first, each by its own id.",
            )

    def _find(self, fault_id: int) -> Fault | None:
        try:
            return next((fault for fault in self.kept() if fault.fault_id == fault_id), None)
        except LinkError as error:
            _log.warning("the fault of id %d could not be read: %s", fault_id, error)
            return None

    def stop(self, patience_s: float | None) -> None:
        """Stop in an emergency, and make sure that it did. Raises as ``outputs_off`` of the driver."""
        reply = self._session.emergency_stop(patience_s)
        if reply.outputs_state is not OutputsState.SAFE:
            raise self._session.error(
                VerifyError,
                "ESTOP was answered, but the outputs are not in their safe state",
                wrote=OutputsState.SAFE.name,
                read=reply.outputs_state.name,
                hint="Cut the heater supply by hand.",
            )

    def last_resort(self) -> None:
        """Stop in an emergency because nothing else brought the outputs to zero; never raises."""
        try:
            if self._session.is_open:
                self.stop(_LAST_RESORT_S)
        except LumionError as error:
            _log.error("closing: the outputs may be on until the watchdog trips: %s", error)

    def poll(self, *, only_if_idle: bool) -> bool:
        """Ask for faults newer than those announced; skipped, with ``False``, when busy and ``only_if_idle``."""
        request = FaultListRequest(first_id=(self._newest_id + 1) % (1 << 32))
        ask = self._session.request_if_idle if only_if_idle else self._session.request
        reply = ask(request)
        if reply is None:
            return False
        self._pending = self._session.fault_pending
        self._announce(reply.records)
        return True

    def check(self, *, only_if_idle: bool = False) -> None:
        """Announce what events and flags of the last requests said; never raises because of the link."""
        events = self._session.take_fault_events()
        if not events and self._session.fault_pending is self._pending:
            return
        self._announce(events)
        # Only a flag that rises leads to the list; else a latched fault would cost a request after every call.
        rising = self._session.fault_pending and not self._pending
        self._pending = self._session.fault_pending
        if not rising or not self._session.is_open:
            return
        try:
            self._pending = self.poll(only_if_idle=only_if_idle)
        except LumionError as error:
            self._pending = False  # try again after the next request
            _log.warning("a fault is latched, but the list could not be read: %s", error)

    def _records(self, first_id: int) -> list[FaultRecord]:
        records: list[FaultRecord] = []
        with self._session.transaction():
            while len(records) <= _MOST_FAULTS:
                # The list is longer than a frame: asked for from behind the last id, until the newest one is there.
                first = records[-1].fault_id + 1 if records else first_id
                reply = self._session.request(FaultListRequest(first_id=first))
                records.extend(record for record in reply.records if record.fault_id >= first)
                if not reply.records or not first <= reply.records[-1].fault_id < reply.newest_id:
                    return records
        raise self._session.error(
            FrameError,
            f"FAULT_LIST: more than {_MOST_FAULTS} faults are listed, and no end.",
            hint="Compare the versions of firmware and lumion-hw.",
        )

    def _announce(self, records: Iterable[FaultRecord]) -> None:
        for record in records:
            # Announced once, though event, list and later lists all bring it.
            if record.fault_id <= self._newest_id or record.fault_state is FaultState.CLEARED:
                continue
            self._newest_id = record.fault_id
            fault = fault_from_record(record)
            level = logging.INFO if fault.source in self._expected else logging.ERROR
            _log.log(level, "%s @ %s: latched %s", self._session.device, self._session.address, fault)
            call_back(self._on_fault, fault)


class WatchedCall:
    """One call of the driver: afterwards a lost link is noted and new faults are announced.

    A plain class and no generator, because every table goes through it.

    Args:
        watch: Announces the faults.
        lost: Told when the call ended with a lost link.
    """

    __slots__ = ("_lost", "_watch")

    def __init__(self, watch: FaultWatch, lost: Callable[[LinkLost], None]) -> None:
        self._watch = watch
        self._lost = lost

    def __enter__(self) -> None:
        """Nothing to be done."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, LinkLost):
            self._lost(error)
        self._watch.check()
