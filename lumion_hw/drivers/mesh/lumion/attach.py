"""Attaching to the LUMION mesh controller: who answers, what is left of before, what is brought back (section 6.1)."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import ConfigReply, Drive, HelloReply, OutputsState, schema_crc32
from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.mesh.lumion.config import BoardConfiguration, WatchdogRule, board_configuration, limit_in_ma
from lumion_hw.drivers.mesh.lumion.faults import FaultWatch
from lumion_hw.drivers.mesh.lumion.reconnect import Attachment
from lumion_hw.drivers.mesh.lumion.tables import Tables
from lumion_hw.errors import (
    DeviceAddress,
    IdentityError,
    LimitError,
    LinkError,
    LumionError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.sessions.framed.errors import sources
from lumion_hw.sessions.framed.session import FramedSession, Loss

_log = logging.getLogger(__name__)

_APPLIED = (OutputsState.READY, OutputsState.SWEEP, OutputsState.GRACE)
"""States that only an applied configuration leads to. In SAFE it may come from flash; applying it again is harmless."""


class Attacher:
    """Opens sessions, declares limits, and knows what was declared and confirmed before.

    Args:
        session: The session.
        clock: Clock of the link.
        target: Device name and address, for messages.
        watch: Announces the faults that are found.
        rule: What a tripped watchdog does.
        expected_serial: Serial number that has to answer; ``None`` accepts any the first time.
        take_over: Replace a live session of another host where the application attaches.
        resume: Drive the table confirmed last again when another one is found.

    Attributes:
        tables: The tables driven and confirmed.
        limits: Limits declared, ``None`` before the first.
        max_ma: Largest current per heater, shape ``(n_heaters,)``.
        boot_id: Boot of the controller seen last, ``None`` before the first.
    """

    def __init__(
        self,
        session: FramedSession,
        clock: Clock,
        target: DeviceAddress,
        watch: FaultWatch,
        rule: WatchdogRule,
        *,
        expected_serial: str | None,
        take_over: bool,
        resume: bool,
    ) -> None:
        self._session = session
        self._target = target
        self._watch = watch
        self._rule = rule
        self._serial = expected_serial
        self._take_over = take_over
        self._resume = resume
        self._active_crc32 = 0
        self.tables = Tables(session, clock, target)
        self.limits: ControllerLimits | None = None
        self.max_ma: NDArray[np.float64] = np.zeros(0)
        self.boot_id: int | None = None

    def attach(self, *, by_itself: bool = False) -> Attachment:
        """Open a session, check the identity, and bring back what was declared; nothing driven changes by itself.

        After a loss of its own link the host comes back under its old session id. The controller takes that for the
        same host unless another one has come in between, so TAKEOVER, which section 4.1 would allow there, is set only
        where the user asked for it: a link that flickers never throws a second host out. When it fails, the link is
        closed; a declared setting that the controller refuses does not make it fail.

        Args:
            by_itself: The driver comes back without being told to: nobody is replaced.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answered.
            BusyError: Another host holds the controller.
            IdentityError: Another serial number answered.
            NotSupportedError: The controller drives voltages, not currents.
        """
        loss = self._session.loss
        with self._session.transaction(), close_on_error(self._session.close):
            hello = self._session.open(
                take_over=self._take_over and not by_itself,
                again=self.boot_id is not None and loss in (None, Loss.LINK),
            )
            self._check_identity(hello)
            return self._look_around(hello)

    def declare(self, limits: ControllerLimits) -> None:
        """Apply limits, power cap and watchdog unless the controller has exactly these. Raises as ``configure``."""
        hello = self._session.hello
        wanted = board_configuration(limits, hello, self._target, self._rule)
        # Applying drops an armed commit (section 7.2); a host that only comes back leaves a running mesh alone.
        if wanted.crc32 != self._active_crc32:
            self._apply(wanted, hello)
        self.limits = limits
        self.max_ma = np.array(limits.heater_max_ma, dtype=np.float64)

    def _apply(self, wanted: BoardConfiguration, hello: HelloReply) -> None:
        """Apply a configuration and have it confirmed; after a link error it is not known which one is active."""
        try:
            reply = self._session.request_all(wanted.requests(hello.fw_rx_max))[-1]
        # An unanswered APPLY may have been executed; 0 is no checksum
        # of a configuration, so the next call applies again.
        except LinkError:
            self._active_crc32 = 0
            raise
        except LimitError as error:
            raise limit_in_ma(error, hello.dac_full_scale * 1e-3, self._target) from error
        self._active_crc32 = reply.config_crc32 if isinstance(reply, ConfigReply) else 0
        if self._active_crc32 != wanted.crc32:
            self._active_crc32 = 0
            raise self._target.error(
                VerifyError,
                "the configuration was not confirmed",
                wrote=f"CRC 0x{wanted.crc32:08X}",
                read=f"{reply}",
                hint="Nothing is driven under limits that are not proven; configure again.",
            )

    def declare_again(self) -> None:
        """Apply the declared limits where the controller refused them before; see :meth:`declare`."""
        if self.limits is not None and not self._active_crc32:
            self.declare(self.limits)

    def _look_around(self, hello: HelloReply) -> Attachment:
        if hello.schema_crc32 != schema_crc32():
            _log.info("%s: firmware %s has another schema than this host", self._target.device, hello.fw_version)
        first, restarted = self.boot_id is None, self.boot_id not in (None, hello.boot_id)
        self._serial, self.boot_id = hello.serial, hello.boot_id
        if restarted:
            # Fault ids count from 1 in each boot (section 11.3).
            self._watch.forget()
        if hello.faults:
            self._watch.kept()
        # Before anything is sent that needs a generation: the board refuses one that is not newer than its own (STALE).
        self.tables.attached(hello)
        driven_crc32 = self.tables.driven_crc32()
        # Before anything is brought back: the checksum has to be that of the table as it was left.
        in_flight = self.tables.settle_in_flight(driven_crc32)
        refusals: list[str] = []
        configuration = self._bring_back_limits(hello, refusals)
        table = self._bring_back_table(driven_crc32, refusals)
        faults = tuple(sources(hello.faults).split(", ")) if hello.faults else ()
        found = Attachment(first, restarted, hello.boot_id, configuration, table, in_flight, faults, tuple(refusals))
        if not first:
            _log.info("%s @ %s: attached again: %s", self._target.device, self._target.address, found)
        return found

    def _check_identity(self, hello: HelloReply) -> None:
        device, address = self._target.device, self._target.address
        if self._serial is not None and hello.serial != self._serial:
            raise IdentityError(
                f"HELLO: serial number {hello.serial!r} answered, {self._serial!r} was expected.",
                device=device,
                address=address,
                hint="Check the cabling, or the serial number in the bench file.",
            )
        if hello.drive is not Drive.CURRENT:
            raise NotSupportedError(
                f"HELLO: controller {hello.serial!r} drives voltages; this driver programs currents.",
                command="HELLO",
                device=device,
                address=address,
                hint="Use a current-drive controller: a current computed from a nominal resistance would be a guess.",
            )

    def _bring_back_limits(self, hello: HelloReply, refusals: list[str]) -> str:
        self._active_crc32 = hello.config_crc32 if hello.outputs_state in _APPLIED else 0
        if self.limits is None:
            self.max_ma = np.full(hello.n_dac, hello.dac_full_scale * 1e-3)
            return "none"
        before = self._active_crc32
        try:
            self.declare(self.limits)
        except LinkError:
            raise
        except LumionError as error:
            self._active_crc32 = 0  # to be declared again before anything is driven
            refusals.append(error.message)
            _log.error("%s @ %s: limits refused: %s", self._target.device, self._target.address, error.message)
            return "refused"
        return "kept" if before == self._active_crc32 else "applied"

    def _bring_back_table(self, driven_crc32: int, refusals: list[str]) -> str:
        confirmed = self.tables.confirmed
        if confirmed is None:
            return "none"
        if confirmed.crc32 == driven_crc32:
            return "same"
        # Left as the board has it: a table that differs was changed by
        # somebody or by a fault, and neither is undone unasked (section 16).
        if not self._resume:
            return "changed"
        try:
            self.declare_again()
            self.tables.drive(confirmed.codes)
        except LinkError:
            raise
        except LumionError as error:
            refusals.append(error.message)
            return "refused"
        return "restored"
