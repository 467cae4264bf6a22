"""Emulated ITLA: a tunable laser behind four-byte frames on a serial line (OIF-ITLA-MSA-01.2 and 01.3).

Language: section 9 of the instrument facts. Model choices where they leave one: one operation is pending at a time,
in bit 8 of NOP; switching off and resets are never refused for a pending operation; a frequency outside the limits is
refused when the channel is written (RVE) or the output enabled (IVC); reading LstResp gives status and data of the
reply before it; half a frame is forgotten after a tenth of a second of silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.lasers import itla_registers as reg
from lumion_hw.emulator.lasers.itla_frames import (
    DAMAGED,
    ItlaError,
    ItlaRefusal,
    ItlaRequest,
    ResponseStatus,
    decode,
    reply,
)
from lumion_hw.emulator.lasers.itla_laser import ItlaPhysics, ItlaProfile, ItlaSettings
from lumion_hw.emulator.lasers.itla_line import ItlaPeer
from lumion_hw.emulator.lasers.itla_status import ItlaStatus, live_conditions
from lumion_hw.emulator.lasers.itla_tables import EXTENDED, READ, WRITE
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.serial_device import SerialDevice
from lumion_hw.emulator.wires.serial_line import SerialLine

BAUD_RATES = (9600, 19200, 38400, 57600, 115200)
"""By their code in IOCap."""
PENDING_FLAG, READY = 0x0100, 0x0010
_ANSWER_S = 0.5e-3


@dataclass(frozen=True)
class _Operation:
    """An operation under way."""

    end_s: float
    on_end: Callable[[], None]


class Itla(SerialDevice[ItlaPeer]):
    """The module (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        rng: Draws the laser's errors.
        profile: Figures of the module.
        serial: Serial number in register 04.
        warm: Ready at once; otherwise the module starts up as it would.
        paced: Bytes take the time of the line, which begins with 9600 baud.
        emit: Called with the light whenever it has changed.

    Attributes:
        settings: What the host has set.
        enabled: The output is switched on.
        status: Latched bits of StatusF and StatusW.
        extended: What AEA-EAR gives.
        extended_at: How many bytes of it were read.
        extended_mode: What was written to AEA-EAC.
        baud_code: Present line rate, by its code in IOCap.
        tuning: The output is dark because the laser is on its way.
    """

    what = "the module"
    profile: ItlaProfile
    serial: str
    settings: ItlaSettings
    enabled: bool
    status: ItlaStatus
    extended: bytes
    extended_at: int
    extended_mode: int
    baud_code: int
    tuning: bool

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        profile: ItlaProfile | None = None,
        serial: str = "0000000001",
        warm: bool = True,
        paced: bool = True,
        emit: Callable[[Light], None] | None = None,
    ) -> None:
        super().__init__(name, clock)
        self.profile = profile or ItlaProfile()
        self.serial = serial
        self._emit = emit
        self._emitted: Light | None = None
        self._laser = ItlaPhysics(rng, clock.now())
        self._baud = BAUD_RATES[0] if paced else None
        self.baud_code = 0
        self._executing_s: float | None = None
        self._disable_pin = False
        self._defaults = ItlaSettings(stored={code: each.default for code, each in reg.STORED.items()})
        self._restart()
        if warm:
            self._ready_s = clock.now()
            self.status = ItlaStatus()
        self.advance()

    def _restart(self) -> None:
        self.settings = self._defaults.copy()
        self.enabled = False
        self.tuning = False
        self._operation: _Operation | None = None
        self._error = ItlaError.OK
        self._last_reply = reply(ResponseStatus.OK, 0, 0)
        self.extended, self.extended_at, self.extended_mode = b"", 0, 0
        self.status = ItlaStatus(reg.MODULE_RESTARTED, reg.MODULE_RESTARTED)
        self._ready_s = self._instant + self.profile.boot_s
        self._believed_mhz = self.settings.channel_mhz
        self._laser.aim(self.power_dbm, self._instant, lit=False, dark=False)

    # -- the device

    @property
    def _instant(self) -> float:
        """Return when what is being done happens: a frame is executed when it arrived, however late that is noticed."""
        return self._clock.now() if self._executing_s is None else self._executing_s

    def power_cycle(self) -> None:
        """Power off and on: settings are those stored by GenCfg, bytes under way are lost."""
        for peer in self._peers:
            peer.line.clear()
        self._restart()

    def _lose_power(self) -> None:
        self.power_cycle()
        self._watch()

    def pull_disable_pin(self, active: bool) -> None:
        """Drive the hardware pin that switches the output off."""
        self._disable_pin = active
        if active:
            self.switch_off()

    def _new_peer(self) -> ItlaPeer:
        return ItlaPeer(self, SerialLine(self._baud))

    def _follow(self, now: float) -> None:
        """Execute what has arrived, end what is due, and let the light follow."""
        for peer in self._peers:
            while (piece := peer.line.arrived(now)) is not None:
                for frame, at_s in peer.frames(piece[1], piece[0]):
                    self._execute(peer, frame, at_s)
        self._end_due(now)
        self._watch()

    def _execute(self, peer: ItlaPeer, frame: bytes, at_s: float) -> None:
        self._end_due(at_s)
        self._executing_s = at_s
        try:
            peer.line.send(self._answer(frame), at_s + _ANSWER_S)
        finally:
            self._executing_s = None
        self._set_speeds()

    def _end_due(self, now: float) -> None:
        if self._operation is not None and self._operation.end_s <= now + 1e-9:
            ended, self._operation = self._operation, None
            self._executing_s = ended.end_s
            ended.on_end()
            self._executing_s = None

    def _set_speeds(self) -> None:
        if self._baud is not None and self._baud != BAUD_RATES[self.baud_code]:
            self._baud = BAUD_RATES[self.baud_code]
            for peer in self._peers:
                peer.line.set_baud(self._baud)

    # -- frames

    def _answer(self, frame: bytes) -> bytes:
        request = decode(frame)
        if request is None:
            self.status.latch(reg.COMMUNICATION_ERROR)
            return DAMAGED
        if not request.repeat:
            self._last_reply = self._carry_out(request)
        return self._last_reply

    def _carry_out(self, request: ItlaRequest) -> bytes:
        code, data = request.register, request.data
        if code == reg.NOP:
            error, self._error = self._error, ItlaError.OK
            return reply(ResponseStatus.OK, code, PENDING_FLAG * self.pending | READY * self.ready | error)
        try:
            if not self.ready:
                raise ItlaRefusal(ItlaError.INITIALIZING)
            if code in reg.ONLY_IN_013 and self.profile.msa == "01.2":
                raise ItlaRefusal(ItlaError.NOT_IMPLEMENTED)
            answer = self._write(code, data) if request.write else self._read(code)
        except ItlaRefusal as refusal:
            self._error = refusal.code
            self.status.latch(reg.EXECUTION_ERROR)
            return reply(ResponseStatus.EXECUTION_ERROR, code, data if request.write else 0)
        self._error = ItlaError.OK
        return answer

    def _read(self, code: int) -> bytes:
        if code in EXTENDED:
            self.extended, self.extended_at = EXTENDED[code](self), 0
            return reply(ResponseStatus.EXTENDED, code, len(self.extended))
        if code == reg.LST_RESP:
            last = self._last_reply
            return reply(ResponseStatus(last[0] & 0x03), code, last[2] << 8 | last[3])
        if code in READ:
            return reply(ResponseStatus.OK, code, READ[code](self))
        if code in self.settings.stored and self._implemented(code):
            return reply(ResponseStatus.OK, code, self.settings.stored[code])
        raise ItlaRefusal(ItlaError.NOT_IMPLEMENTED)

    def _write(self, code: int, data: int) -> bytes:
        if code in reg.READ_ONLY:
            raise ItlaRefusal(ItlaError.NOT_WRITABLE)
        if self.pending and not (code == reg.RES_ENA and not data & reg.ENABLE):
            raise ItlaRefusal(ItlaError.PENDING)
        if code in WRITE:
            before = self._operation
            WRITE[code](self, data)
            pending = self._operation is not None and self._operation is not before
            return reply(ResponseStatus.PENDING if pending else ResponseStatus.OK, code, data)
        if code not in reg.STORED or not self._implemented(code):
            raise ItlaRefusal(ItlaError.NOT_IMPLEMENTED)
        if not reg.STORED[code].accepts(data):
            raise ItlaRefusal(ItlaError.VALUE_RANGE)
        self.settings.stored[code] = data
        return reply(ResponseStatus.OK, code, data)

    def _implemented(self, code: int) -> bool:
        return code != reg.LOW_NOISE or self.profile.low_noise

    # -- state

    @property
    def pending(self) -> bool:
        """Whether an operation is under way."""
        return self._operation is not None

    @property
    def ready(self) -> bool:
        """Whether the module has started up."""
        return self._instant >= self._ready_s

    @property
    def power_dbm(self) -> float:
        """Power set, in dBm."""
        return self.settings.power_cdbm / 100.0

    @property
    def frequency_mhz(self) -> int:
        """Frequency the module believes to be at, in MHz."""
        return self._believed_mhz if self.enabled else self.settings.channel_mhz + self.settings.fine_mhz

    @property
    def reported_dbm(self) -> float:
        """Power the module reports, in dBm."""
        return self._laser.level_dbm(self._instant)

    def light(self) -> Light:
        """Return the true light now."""
        self.advance()
        return self._laser.light(self.frequency_mhz, self._instant)

    def within_limits(self, mhz: int) -> bool:
        """Return whether a frequency is one the module has."""
        low, high = self.profile.frequency_thz
        return round(low * 1e6) <= mhz <= round(high * 1e6)

    def start(self, duration_s: float, *, dark: bool) -> None:
        """Let the control loops go for the settings; the operation is pending for ``duration_s``."""
        self.tuning = dark

        def finish() -> None:
            self.tuning = False
            self._believed_mhz = self.settings.channel_mhz + self.settings.fine_mhz
            self._laser.aim(self.power_dbm, self._instant, lit=True, dark=False)

        self._operation = _Operation(self._instant + duration_s, finish)
        self._laser.aim(self.power_dbm, self._instant, lit=True, dark=dark)

    def store_defaults(self) -> None:
        """Make the settings those after power-on."""
        self._defaults = self.settings.copy()
        self._operation = _Operation(self._instant + 0.1, lambda: None)

    def switch_on(self) -> None:
        """Enable the output. Raises :class:`ItlaRefusal`."""
        if self._disable_pin:
            raise ItlaRefusal(ItlaError.EXECUTION_FAILURE)
        if not self.within_limits(self.settings.channel_mhz):
            raise ItlaRefusal(ItlaError.INVALID_CONFIGURATION)
        if not self.enabled:
            self.enabled = True
            self._believed_mhz = self.settings.channel_mhz + self.settings.fine_mhz
            self.start(self.profile.enable_s, dark=True)

    def switch_off(self) -> None:
        """Disable the output at once, whatever is under way."""
        self.enabled = self.tuning = False
        self._operation = None
        self._laser.aim(self.power_dbm, self._instant, lit=False, dark=False)

    def reset_module(self) -> None:
        """Start up again with the stored defaults."""
        self._restart()

    def reset_interface(self) -> None:
        """Forget the extended addressing; the light stays."""
        self.extended, self.extended_at = b"", 0
        self.status.latch(reg.COMMUNICATION_RESET)

    # -- status

    def shown(self, *, fatal: bool) -> int:
        """Return what StatusF or StatusW shows: latched, live and summary bits."""
        latched = self.status.fatal if fatal else self.status.warning
        return latched | self._live(fatal=fatal) << reg.LIVE_SHIFT | self._summary()

    def _live(self, *, fatal: bool) -> int:
        if not self.enabled:
            return 0
        deviation_db = abs(self.reported_dbm - self.power_dbm)
        return live_conditions(self.settings.stored, deviation_db, tuning=self.tuning, fatal=fatal)

    def _summary(self) -> int:
        return self.status.summary(self.settings.stored, disabled=self._disable_pin)

    def _watch(self) -> None:
        self.status.fatal |= self._live(fatal=True)
        self.status.warning |= self._live(fatal=False)
        if self.enabled and self._summary() & reg.FATAL and self.settings.stored[reg.MCB] & reg.SHUTDOWN_ON_FATAL:
            self.switch_off()
        if self._emit is not None:
            light = self._laser.light(self.frequency_mhz, self._instant)
            if light != self._emitted:
                self._emitted = light
                self._emit(light)
