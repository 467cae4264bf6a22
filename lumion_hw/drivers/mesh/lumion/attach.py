"""Connects to the LUMION mesh controller and restores its limits and currents (protocol section 6.1)."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import ConfigReply, Drive, HelloReply, OutputsState, schema_crc32
from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.mesh.lumion.config import (
    BoardConfiguration,
    WatchdogRule,
    board_configuration,
    limit_error_in_ma,
)
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
"""Output states that require an active configuration."""


class SessionSetup:
    """Opens sessions with the controller and restores limits and currents.

    Args:
        watch: Object that reports new faults.
        rule: Action of the controller when its watchdog trips.
        expected_serial: Required serial number. ``None`` accepts any controller at first, and later only the same one.
        take_over: Whether to replace the session of another host.
        resume: Whether to restore the last confirmed currents after a reconnection.

    Attributes:
        tables: Heater currents that were set and confirmed.
        limits: Configured limits; ``None`` before the first ``configure``.
        max_ma: Largest current per heater, shape ``(n_heaters,)``.
        boot_id: Random number of the controller's last known power-up; ``None`` before the first session.
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

    def attach(self, *, automatic: bool = False) -> Attachment:
        """Open a session, check the identity, and restore the configured limits. Heater currents do not change.

        Args:
            automatic: Whether this is an automatic reconnection, which never replaces another host.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: There is no reply.
            BusyError: Another host controls the device, and ``take_over`` is false.
            IdentityError: The serial number is not the expected one.
            NotSupportedError: The controller drives voltages, not currents.
        """
        loss = self._session.loss
        with self._session.transaction(), close_on_error(self._session.close):
            hello = self._session.open(
                take_over=self._take_over and not automatic,
                is_reconnect=self.boot_id is not None and loss in (None, Loss.LINK),
            )
            self._check_identity(hello)
            return self._sync_after_connect(hello)

    def apply_limits(self, limits: ControllerLimits) -> None:
        """Apply limits and watchdog unless the controller already has them. Raises the errors of ``configure``."""
        hello = self._session.hello
        requested = board_configuration(limits, hello, self._target, self._rule)
        # Applying drops an armed commit (section 7.2), so a reconnecting host does not apply the same settings again.
        if requested.crc32 != self._active_crc32:
            self._apply(requested, hello)
        self.limits = limits
        self.max_ma = np.array(limits.heater_max_ma, dtype=np.float64)

    def _apply(self, requested: BoardConfiguration, hello: HelloReply) -> None:
        try:
            reply = self._session.request_all(requested.requests(hello.fw_rx_max))[-1]
        # An unanswered APPLY may have been executed. 0 is not the checksum
        # of any configuration, so the next call applies it again.
        except LinkError:
            self._active_crc32 = 0
            raise
        except LimitError as error:
            raise limit_error_in_ma(error, hello.dac_full_scale * 1e-3, self._target) from error
        self._active_crc32 = reply.config_crc32 if isinstance(reply, ConfigReply) else 0
        if self._active_crc32 != requested.crc32:
            self._active_crc32 = 0
            raise self._target.error(
                VerifyError,
                "the configuration was not confirmed",
                wrote=f"CRC 0x{requested.crc32:08X}",
                read=f"{reply}",
                hint="No output is driven with unverified limits. Call configure() again.",
            )

    def reapply_limits(self) -> None:
        """Apply the configured limits again if the controller refused them before.

        Raises the errors of ``configure``.
        """
        if self.limits is not None and not self._active_crc32:
            self.apply_limits(self.limits)

    def _sync_after_connect(self, hello: HelloReply) -> Attachment:
        if hello.schema_crc32 != schema_crc32():
            _log.info(
                "%s: firmware %s has a different protocol schema from this host", self._target.device, hello.fw_version
            )
        first, restarted = self.boot_id is None, self.boot_id not in (None, hello.boot_id)
        self._serial, self.boot_id = hello.serial, hello.boot_id
        if restarted:
            # Fault ids restart at 1 with each boot (section 11.3).
            self._watch.forget()
        if hello.faults:
            self._watch.read_faults()
        # Done before any generation is sent, because the board refuses one that is not newer than its own (STALE).
        self.tables.attached(hello)
        driven_crc32 = self.tables.driven_crc32()
        # Done before anything is restored, so that the checksum is that of the table as found.
        in_flight = self.tables.resolve_in_flight(driven_crc32)
        refusals: list[str] = []
        configuration = self._restore_limits(hello, refusals)
        table = self._restore_table(driven_crc32, refusals)
        faults = tuple(sources(hello.faults).split(", ")) if hello.faults else ()
        attachment = Attachment(
            first, restarted, hello.boot_id, configuration, table, in_flight, faults, tuple(refusals)
        )
        if not first:
            _log.info("%s @ %s: connected again: %s", self._target.device, self._target.address, attachment)
        return attachment

    def _check_identity(self, hello: HelloReply) -> None:
        device, address = self._target.device, self._target.address
        if self._serial is not None and hello.serial != self._serial:
            raise IdentityError(
                f"expected a controller with serial number {self._serial!r}, found {hello.serial!r}",
                device=device,
                address=address,
                hint="Check the cabling, or the serial number in the bench file.",
            )
        if hello.drive is not Drive.CURRENT:
            raise NotSupportedError(
                f"controller {hello.serial!r} drives voltages, but this driver sets currents",
                command="HELLO",
                device=device,
                address=address,
                hint="Use a current-drive controller.",
            )

    def _restore_limits(self, hello: HelloReply, refusals: list[str]) -> str:
        self._active_crc32 = hello.config_crc32 if hello.outputs_state in _APPLIED else 0
        if self.limits is None:
            self.max_ma = np.full(hello.n_dac, hello.dac_full_scale * 1e-3)
            return "none"
        before = self._active_crc32
        try:
            self.apply_limits(self.limits)
        except LinkError:
            raise
        except LumionError as error:
            self._active_crc32 = 0  # applied again before any output is driven
            refusals.append(error.message)
            _log.error("%s @ %s: limits were refused: %s", self._target.device, self._target.address, error.message)
            return "refused"
        return "kept" if before == self._active_crc32 else "applied"

    def _restore_table(self, driven_crc32: int, refusals: list[str]) -> str:
        confirmed = self.tables.confirmed
        if confirmed is None:
            return "none"
        if confirmed.crc32 == driven_crc32:
            return "same"
        # A different table was changed by another program or by
        # a fault; both are undone only on request (section 16).
        if not self._resume:
            return "changed"
        try:
            self.reapply_limits()
            self.tables.drive(confirmed.codes)
        except LinkError:
            raise
        except LumionError as error:
            refusals.append(error.message)
            return "refused"
        return "restored"
