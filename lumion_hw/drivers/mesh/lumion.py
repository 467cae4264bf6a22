"""The LUMION mesh controller: heater currents and port monitors over the protocol of ``firmware_protocol``.

Written from the protocol specification, version 1. Tables are set whole and proven by the CRC in the reply; a
keep-alive feeds the controller's watchdog, so that the heaters go off when this process is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    DRIVEN_TABLE,
    CommitReply,
    CommitRequest,
    Drive,
    FaultClearRequest,
    FaultListRequest,
    FaultRecord,
    HelloReply,
    Message,
    OutputsState,
    PingRequest,
    ReadAdcRequest,
    ReadbackReply,
    ReadbackRequest,
    Request,
    SetRequest,
    StageRequest,
    code_from_output,
    max_payload,
    monitor_from_code,
    next_generation,
    output_from_code,
    table_crc32,
)
from lumion_hw.clock import Clock, Ticker
from lumion_hw.drivers.mesh.lumion_config import (
    BoardConfiguration,
    board_configuration,
    checked_currents,
    limit_in_ma,
)
from lumion_hw.drivers.mesh.lumion_values import controller_info, fault_from_record
from lumion_hw.errors import IdentityError, LimitError, LumionError, NotSupportedError, VerifyError
from lumion_hw.interfaces import ControllerInfo, ControllerLimits, Fault, Generation, MonitorReading
from lumion_hw.links.base import Link
from lumion_hw.sessions.framed import FramedSession, SessionState
from lumion_hw.sessions.framed_errors import Where

_log = logging.getLogger(__name__)

_FEEDS_PER_WATCHDOG = 4  # section 11.2: four chances to feed per period
_LONGEST_AVERAGE = 4096  # section 9
_READBACK_TRIES = 2
_STOP_PATIENCE_S = 3.0
_BANK = 0


class LumionMeshController:
    """One LUMION mesh controller; implements :class:`~lumion_hw.interfaces.MeshController`. Thread-safe.

    The constructor touches nothing; :meth:`open` attaches, :meth:`configure` has to come before anything is driven.
    After a ``LinkLost`` call :meth:`open` again: a controller that was not restarted keeps driving what it drives, and
    limits given before are applied again where the controller lost them.

    Args:
        link: The link to the controller.
        clock: The link's clock; also runs the keep-alive.
        device: Device name of the bench file, for messages.
        expected_serial: Serial number that has to answer; ``None`` accepts any.
        take_over: Replace a live session of another host.
        baud: Speed of the UART to the controller in bit/s, for the time-outs; ``None`` for USB, pty and TCP.
        session_ids: Fixed session ids for a reproducible wire; random when not given.
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
    ) -> None:
        self._clock = clock
        self._where = Where(device, link.name)
        self._expected_serial = expected_serial
        self._take_over = take_over
        self._session = FramedSession(link, clock, device=device, baud=baud, session_ids=session_ids)
        self._lock = threading.RLock()
        self._info: ControllerInfo | None = None
        self._max_ma: NDArray[np.float64] = np.zeros(0)
        self._limits: ControllerLimits | None = None
        self._config_crc32 = 0
        self._watchdog_s = 0.0
        self._generation = 0
        self._bank_generation = 0
        self._ticker: Ticker | None = None

    @property
    def info(self) -> ControllerInfo:
        """Identity and capabilities, read by :meth:`open`. Raises ``LinkLost`` before that."""
        return self._info if self._info is not None else controller_info(self._session.hello)

    @property
    def session(self) -> FramedSession:
        """The conversation: its state, its counters and the FAULT events it saw."""
        return self._session

    @property
    def boot_id(self) -> int:
        """Random number of the controller's last power-up: a change means that everything it held is gone."""
        return self._session.hello.boot_id

    def open(self) -> None:
        """Attach: open the link and a session, check the identity; nothing that is driven changes.

        When it fails, the link is closed.

        Raises:
            ConnectError: The link cannot be opened.
            LinkTimeout: Nothing answered.
            BusyError: Another host holds the controller.
            IdentityError: Another serial number than the expected one answered.
            NotSupportedError: The controller drives voltages, not currents.
        """
        with self._lock, self._session.transaction():
            attached_before = self._info is not None
            try:
                hello = self._session.open(take_over=self._take_over or attached_before)
                self._check_identity(hello)
            except BaseException:  # also Ctrl-C: a port that is held on to is in use for everybody
                self._session.close()
                raise
            self._info = controller_info(hello)
            self._generation = hello.active_generation
            self._bank_generation = 0
            self._config_crc32 = 0 if hello.outputs_state is OutputsState.BOOT else hello.config_crc32
            if self._limits is None:
                self._max_ma = np.full(hello.n_dac, self._info.current_full_scale_ma)
            else:
                self.configure(self._limits)

    def configure(self, limits: ControllerLimits) -> None:
        """Apply limits, power cap and watchdog, and start the keep-alive.

        A controller that has exactly this configuration is left alone: attaching does not switch heaters.

        Raises:
            LinkLost: The session is closed or lost.
            LimitError: A limit the controller cannot express, or one that the table driven now breaks.
            ConfigError: An array does not have one value per heater.
            SafetyError: The watchdog has tripped and its fault has to be cleared first.
            VerifyError: The controller did not take the configuration as it was sent.
        """
        with self._lock, self._session.transaction():
            self._session.require_open("CONFIG")  # also where nothing has to be sent
            hello = self._session.hello
            wanted = board_configuration(limits, hello, self._where)
            if wanted.crc32 != self._config_crc32:
                self._apply(wanted, hello.fw_rx_max)
            self._limits = limits
            self._max_ma = np.array(limits.heater_max_ma, dtype=np.float64)
            self._watchdog_s = limits.watchdog_s
            self._keep_alive(limits.watchdog_s / _FEEDS_PER_WATCHDOG)

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
        """
        with self._lock, self._session.transaction():
            full_scale_ma = self.info.current_full_scale_ma
            currents = checked_currents(currents_ma, self._max_ma, "program", self._where)
            return self._drive(code_from_output(currents, full_scale_ma))

    def read_back(self) -> NDArray[np.float64]:
        """Return the currents driven now in mA, shape ``(n_heaters,)``; zeros after a trip.

        Raises:
            VerifyError: The codes read do not have the checksum the controller gives for them.
        """
        with self._lock, self._session.transaction():
            for _ in range(_READBACK_TRIES):
                codes, said = self._read_codes()
                if {table_crc32(codes)} == said:
                    return output_from_code(codes, self.info.current_full_scale_ma)
            raise VerifyError(
                "READBACK: the codes do not have the checksum given for them",
                wrote=", ".join(f"CRC 0x{crc:08X}" for crc in sorted(said)),
                read=f"CRC 0x{table_crc32(codes):08X}",
                device=self._where.device,
                address=self._where.address,
                hint="The table changed while it was read; read it again.",
            )

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        """Read all monitors.

        Args:
            n_avg: Scans averaged by the controller, 1…4096.

        Raises:
            LimitError: ``n_avg`` is out of range.
            NotSupportedError: The controller has no monitors.
        """
        with self._lock, self._session.transaction():
            hello = self._session.hello
            self._check_scan(n_avg, hello.n_adc)
            per_frame = (max_payload(hello.fw_tx_max) - 12) // 2
            replies = [
                self._session.request(ReadAdcRequest(start, min(per_frame, hello.n_adc - start), n_avg))
                for start in range(0, hello.n_adc, per_frame)
            ]
            adc = np.concatenate([reply.adc for reply in replies])
            photocurrent_ma, saturated = monitor_from_code(adc, hello.adc_full_scale * 1e-6)
            return MonitorReading(photocurrent_ma, saturated, replies[0].generation, self._clock.now())

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults the controller keeps, oldest first."""
        with self._lock, self._session.transaction():
            records: list[FaultRecord] = []
            while True:
                first = records[-1].fault_id + 1 if records else 0
                reply = self._session.request(FaultListRequest(first_id=first))
                records.extend(record for record in reply.records if record.fault_id >= first)
                if not reply.records or not first <= reply.records[-1].fault_id < reply.newest_id:
                    return tuple(fault_from_record(record) for record in records)

    def clear_fault(self, fault_id: int) -> None:
        """Clear latched faults up to and including ``fault_id``; the outputs stay at zero until they are programmed.

        Raises:
            SafetyError: The cause of one of them is still present; nothing was cleared.
        """
        with self._lock, self._session.transaction():
            self._session.request(FaultClearRequest(fault_id))

    def outputs_off(self) -> None:
        """Stop: all outputs to zero at once, in any state; latches an ESTOP fault that has to be cleared by its id.

        Repeated until answered, at most until the controller's own watchdog must have acted.

        Raises:
            LinkTimeout: No answer; the state of the outputs is unknown to this host.
            LinkLost: The link is gone.
        """
        reply = self._session.emergency_stop(max(_STOP_PATIENCE_S, self._watchdog_s + 1.0))
        if reply.outputs_state is not OutputsState.SAFE:
            raise VerifyError(
                "ESTOP was answered, but the outputs are not in their safe state",
                wrote=OutputsState.SAFE.name,
                read=reply.outputs_state.name,
                device=self._where.device,
                address=self._where.address,
                hint="Cut the heater supply by hand.",
            )

    def close(self) -> None:
        """Drive zeros if the controller lets us, end the keep-alive and close the link; idempotent, never raises.

        Where zeros cannot be driven the controller's watchdog switches off by itself.
        """
        ticker, self._ticker = self._ticker, None
        if ticker is not None:
            ticker.cancel()
        with self._lock:
            if self._session.state in (SessionState.OPEN, SessionState.DEGRADED) and self._info is not None:
                try:
                    self._drive(np.zeros(self._info.n_heaters, dtype=np.uint16))
                except LumionError as error:
                    _log.info("closing without driving zeros: %s", error)
            self._session.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_identity(self, hello: HelloReply) -> None:
        if self._expected_serial is not None and hello.serial != self._expected_serial:
            raise IdentityError(
                f"HELLO: serial number {hello.serial!r} answered, {self._expected_serial!r} was expected.",
                device=self._where.device,
                address=self._where.address,
                hint="Check the cabling, or the serial number in the bench file.",
            )
        if hello.drive is not Drive.CURRENT:
            raise NotSupportedError(
                f"HELLO: controller {hello.serial!r} drives voltages; this driver programs currents.",
                command="HELLO",
                device=self._where.device,
                address=self._where.address,
                hint="Use a current-drive controller: a current computed from a nominal resistance would be a guess.",
            )

    def _check_scan(self, n_avg: int, n_adc: int) -> None:
        device, address = self._where.device, self._where.address
        if n_adc == 0:
            raise NotSupportedError(
                "READ_ADC: this controller has no monitors.", command="READ_ADC", device=device, address=address
            )
        if not 1 <= n_avg <= _LONGEST_AVERAGE:
            limit = 1 if n_avg < 1 else _LONGEST_AVERAGE
            raise LimitError(
                "READ_ADC: scans to average", asked=n_avg, limit=limit, unit="scans", device=device, address=address
            )

    def _apply(self, wanted: BoardConfiguration, mtu: int) -> None:
        try:
            self._session.request_all(wanted.requests(mtu))
        except LimitError as error:
            raise limit_in_ma(error, self.info.current_full_scale_ma, self._where) from error
        self._config_crc32 = wanted.crc32

    def _drive(self, codes: NDArray[np.uint16]) -> Generation:
        """Latch a table under a new generation and compare what the controller says it drives."""
        self._generation = generation = next_generation(self._generation)
        crc32 = table_crc32(codes)
        try:
            reply = self._session.request_all(self._table_requests(generation, codes, crc32))[-1]
        except LimitError as error:
            raise limit_in_ma(error, self.info.current_full_scale_ma, self._where) from error
        confirmed = (generation, crc32, True)
        if not isinstance(reply, CommitReply) or (reply.generation, reply.crc32, reply.latched) != confirmed:
            raise VerifyError(
                f"table {generation} was not confirmed",
                wrote=f"CRC 0x{crc32:08X}",
                read=f"{reply}",
                device=self._where.device,
                address=self._where.address,
                hint="Read back what is driven, then program again.",
            )
        return Generation(generation, crc32, self._clock.now())

    def _table_requests(self, generation: int, codes: NDArray[np.uint16], crc32: int) -> list[Request[Message]]:
        """One SET where it fits the frame, else STAGE fragments and a COMMIT (section 8)."""
        room = max_payload(self._session.hello.fw_rx_max)
        if SetRequest.layout.fixed_size + 2 * len(codes) <= room:
            return [SetRequest(generation, codes)]
        self._bank_generation = bank = next_generation(self._bank_generation)
        per_frame = (room - StageRequest.layout.fixed_size) // 2
        stages = [
            StageRequest(bank, _BANK, start, codes[start : start + per_frame])
            for start in range(0, len(codes), per_frame)
        ]
        return [*stages, CommitRequest(generation, bank, crc32, _BANK, len(codes))]

    def _read_codes(self) -> tuple[NDArray[np.uint16], set[int]]:
        """Read the driven table in as many pieces as needed, with every checksum the controller gave for it."""
        hello = self._session.hello
        per_frame = (max_payload(hello.fw_tx_max) - ReadbackReply.layout.fixed_size) // 2
        replies = [
            self._session.request(ReadbackRequest(DRIVEN_TABLE, start=start, count=min(per_frame, hello.n_dac - start)))
            for start in range(0, hello.n_dac, per_frame)
        ]
        return np.concatenate([reply.codes for reply in replies]), {reply.crc32 for reply in replies}

    def _keep_alive(self, period_s: float) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._ticker = self._clock.call_every(period_s, self._feed)

    def _feed(self) -> None:
        """Feed the watchdog; a failed feed is the next request's matter, not that of whoever lets the clock run."""
        try:
            self._session.request_if_idle(PingRequest())
        except LumionError as error:
            _log.warning("keep-alive failed: %s", error)
