"""Emulated ITLA: a tunable laser behind four-byte frames on a serial line (OIF-ITLA-MSA-01.2 and 01.3).

Model choices where the agreement leaves one: one operation is pending at a time,
in bit 8 of NOP; switching off and resets are never refused for a pending operation; a frequency outside the limits is
refused when the channel is written (RVE) or the output enabled (IVC); reading LstResp gives status and data of the
reply before it; half a frame is forgotten after a tenth of a second of silence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.lasers.itla import registers as reg
from lumion_hw.emulator.lasers.itla.frames import (
    DAMAGED,
    FRAME_SIZE,
    ItlaError,
    ItlaRefusal,
    ItlaRequest,
    ResponseStatus,
    decode,
    reply,
)
from lumion_hw.emulator.lasers.itla.laser import CASE_C, DIODE_C, ItlaPhysics, ItlaProfile, ItlaSettings
from lumion_hw.emulator.lasers.itla.status import ItlaStatus, live_conditions
from lumion_hw.emulator.optics.light import Light, LightOutlet
from lumion_hw.emulator.wires.serial_device import SerialDevice, SerialPeer
from lumion_hw.emulator.wires.serial_line import SerialLine

_SILENCE_S = 0.1  # model choice: a host that died within a frame must not shift all that follow


class ItlaPeer(SerialPeer):
    """One connection: a line, and the bytes of the present frame."""

    def __init__(self, device: Itla, line: SerialLine) -> None:
        super().__init__(device, line)
        self._frame = bytearray()
        self._received_s = float("-inf")

    def frames(self, data: bytes, end_s: float) -> list[tuple[bytes, float]]:
        """Read on; return the frames that ``data`` completes and when each arrived."""
        start_s = end_s - self.line.byte_s * len(data)
        if start_s > self._received_s + _SILENCE_S:
            self._frame.clear()
        self._received_s = end_s
        complete = []
        for place, byte in enumerate(data, start=1):
            self._frame.append(byte)
            if len(self._frame) == FRAME_SIZE:
                complete.append((bytes(self._frame), start_s + self.line.byte_s * place))
                self._frame.clear()
        return complete


BAUD_RATES = (9600, 19200, 38400, 57600, 115200)
"""By their code in IOCap."""
PENDING_FLAG, READY = 0x0100, 0x0010
_ANSWER_S = 0.5e-3  # model choice


@dataclass(frozen=True)
class ItlaOperation:
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
        self._outlet = LightOutlet(emit)
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
        self._operation: ItlaOperation | None = None
        self._error = ItlaError.OK
        self._last_reply = reply(ResponseStatus.OK, 0, 0)
        self.extended, self.extended_at, self.extended_mode = b"", 0, 0
        # MRL is how a host learns that its settings are gone.
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
        # What ended before the frame arrived is over for it.
        self._end_due(at_s)
        self._executing_s = at_s
        try:
            peer.line.send(self._answer(frame), at_s + _ANSWER_S)
        finally:
            self._executing_s = None
        self._set_speeds()  # after the reply: it leaves at the old rate

    def _end_due(self, now: float) -> None:
        if self._operation is not None and self._operation.end_s <= now + 1e-9:
            ended, self._operation = self._operation, None
            # Its end happens at its own instant, however late it is noticed.
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
        # LstRsp executes nothing: a reply that was damaged on its way is sent again.
        if not request.repeat:
            self._last_reply = self._carry_out(request)
        return self._last_reply

    def _carry_out(self, request: ItlaRequest) -> bytes:
        code, data = request.register, request.data
        # NOP is answered before the module is ready: MRDY in its reply is how a host waits for that.
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
            # Status and data only: its own register and parity belong to this reply.
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
            # CP tells of an operation that this write has begun, not of one that it found.
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

        self._operation = ItlaOperation(self._instant + duration_s, finish)
        self._laser.aim(self.power_dbm, self._instant, lit=True, dark=dark)

    def store_defaults(self) -> None:
        """Make the settings those after power-on."""
        self._defaults = self.settings.copy()
        self._operation = ItlaOperation(self._instant + 0.1, lambda: None)

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
        # Never refused: a host must be able to end the light.
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
        # MCB.SDF: the module switches itself off on a fatal condition.
        if self.enabled and self._summary() & reg.FATAL and self.settings.stored[reg.MCB] & reg.SHUTDOWN_ON_FATAL:
            self.switch_off()
        self._outlet.report(lambda: self._laser.light(self.frequency_mhz, self._instant))


_LARGEST_BAUD_CODE = 4
_COMMUNICATION_BITS = 0x100F


def _require(holds: bool, code: ItlaError = ItlaError.VALUE_RANGE) -> None:
    if not holds:
        raise ItlaRefusal(code)


def _text(of: Callable[[Itla], str]) -> Callable[[Itla], bytes]:
    return lambda itla: of(itla).encode("ascii", "replace") + b"\0"


def _words(*values: float) -> bytes:
    return struct.pack(f">{len(values)}h", *(round(value) for value in values))


def _currents(itla: Itla) -> bytes:
    # Model: 200 mA at 10 dBm; the cooler takes 150 mA.
    diode_ma = 80.0 + 12.0 * itla.power_dbm if itla.enabled else 0.0
    return _words(10.0 * 150.0, 10.0 * diode_ma)


EXTENDED: Mapping[int, Callable[[Itla], bytes]] = {
    reg.DEV_TYP: lambda _: b"CW ITLA\0",
    reg.MFGR: _text(lambda itla: itla.profile.manufacturer),
    reg.MODEL: _text(lambda itla: itla.profile.model),
    reg.SER_NO: _text(lambda itla: itla.serial),
    reg.MFG_DATE: _text(lambda itla: itla.profile.date),
    reg.RELEASE: _text(lambda itla: itla.profile.release),
    reg.REL_BACK: _text(lambda itla: itla.profile.release),
    reg.CURRENTS: _currents,
    reg.TEMPS: lambda _: _words(100.0 * DIODE_C, 100.0 * CASE_C),
}
"""Registers whose content is longer than a frame."""


def _next_word(itla: Itla) -> int:
    at = itla.extended_at
    _require(at < len(itla.extended), ItlaError.EXTENDED_RANGE)
    itla.extended_at = at + 2
    return int.from_bytes(itla.extended[at : at + 2].ljust(2, b"\0"), "big")


def _first(place: int) -> Callable[[Itla], int]:
    return lambda itla: reg.split_mhz(itla.settings.first_mhz)[place]


def _present(place: int) -> Callable[[Itla], int]:
    return lambda itla: reg.split_mhz(itla.frequency_mhz)[place]


def _limit(end: int, place: int) -> Callable[[Itla], int]:
    return lambda itla: reg.split_mhz(round(itla.profile.frequency_thz[end] * 1e6))[place]


READ: Mapping[int, Callable[[Itla], int]] = {
    reg.GEN_CFG: lambda _: 0,
    reg.AEA_EAC: lambda itla: itla.extended_mode,
    reg.AEA_EA: lambda itla: itla.extended_at,
    reg.AEA_EAR: _next_word,
    reg.IO_CAP: lambda itla: _LARGEST_BAUD_CODE << 4 | itla.baud_code,
    reg.DL_STATUS: lambda _: 0,
    reg.STATUS_F: lambda itla: itla.shown(fatal=True),
    reg.STATUS_W: lambda itla: itla.shown(fatal=False),
    reg.CHANNEL: lambda itla: itla.settings.channel & 0xFFFF,
    reg.CHANNEL_H: lambda itla: itla.settings.channel >> 16,
    reg.PWR: lambda itla: itla.settings.power_cdbm,
    reg.RES_ENA: lambda itla: reg.ENABLE * itla.enabled,
    reg.GRID: lambda itla: itla.settings.grid[0],
    reg.GRID2: lambda itla: itla.settings.grid[1],
    **{code: _first(place) for place, code in enumerate((reg.FCF1, reg.FCF2, reg.FCF3))},
    **{code: _present(place) for place, code in enumerate((reg.LF1, reg.LF2, reg.LF3))},
    **{code: _limit(0, place) for place, code in enumerate((reg.LFL1, reg.LFL2, reg.LFL3))},
    **{code: _limit(1, place) for place, code in enumerate((reg.LFH1, reg.LFH2, reg.LFH3))},
    reg.OOP: lambda itla: round(100.0 * itla.reported_dbm),
    reg.C_TEMP: lambda _: round(100.0 * CASE_C),
    reg.FTFR: lambda itla: round(1e3 * itla.profile.fine_tune_ghz),
    reg.OPSL: lambda itla: round(100.0 * itla.profile.power_dbm[0]),
    reg.OPSH: lambda itla: round(100.0 * itla.profile.power_dbm[1]),
    reg.L_GRID: lambda itla: round(1e3 * itla.profile.least_grid_ghz) // 100,
    reg.L_GRID2: lambda itla: round(1e3 * itla.profile.least_grid_ghz) % 100,
    reg.AGE: lambda _: 0,
    reg.FTF: lambda itla: itla.settings.fine_mhz,
}
"""What a register shows; negative numbers become a two's complement in the frame."""


def _set_channel(itla: Itla, channel: int) -> None:
    settings = itla.settings
    _require(channel >= 1 and itla.within_limits(settings.first_mhz + (channel - 1) * settings.grid_mhz))
    # The channel it is on already starts nothing: the reply is OK, not CP.
    changed, settings.channel = channel != settings.channel, channel
    if itla.enabled and changed:
        itla.start(itla.profile.tune_s, dark=True)


def _set_power(itla: Itla, data: int) -> None:
    low, high = (round(100.0 * limit) for limit in itla.profile.power_dbm)
    power = reg.signed(data)
    _require(low <= power <= high)
    changed, itla.settings.power_cdbm = power != itla.settings.power_cdbm, power
    if itla.enabled and changed:
        itla.start(itla.profile.power_s, dark=False)


def _set_reset_enable(itla: Itla, data: int) -> None:
    _require(not data & ~(reg.MODULE_RESET | reg.SOFT_RESET | reg.ENABLE))
    if data & reg.MODULE_RESET:
        itla.reset_module()
        return
    if data & reg.SOFT_RESET:
        itla.reset_interface()
    if data & reg.ENABLE:
        itla.switch_on()
    elif not data & reg.SOFT_RESET:
        itla.switch_off()


def _set_first(place: int) -> Callable[[Itla, int], None]:
    scale = (1_000_000, 100, 1)[place]

    def write(itla: Itla, data: int) -> None:
        _require(not itla.enabled, ItlaError.OUTPUT_ENABLED)
        low, high = (int(limit) for limit in itla.profile.frequency_thz) if place == 0 else (0, (0, 9999, 99)[place])
        _require(low <= data <= high)
        parts = list(reg.split_mhz(itla.settings.first_mhz))
        itla.settings.first_mhz += (data - parts[place]) * scale

    return write


def _set_grid(place: int) -> Callable[[Itla, int], None]:
    def write(itla: Itla, data: int) -> None:
        _require(not itla.enabled, ItlaError.OUTPUT_ENABLED)
        coarse, fine = itla.settings.grid
        coarse, fine = (reg.signed(data), fine) if place == 0 else (coarse, reg.signed(data))
        _require(abs(fine) <= 99 and abs(100 * coarse + fine) >= round(1e3 * itla.profile.least_grid_ghz))
        itla.settings.grid = coarse, fine

    return write


def _set_fine(itla: Itla, data: int) -> None:
    mhz = reg.signed(data)
    _require(abs(mhz) <= round(1e3 * itla.profile.fine_tune_ghz))
    changed, itla.settings.fine_mhz = mhz != itla.settings.fine_mhz, mhz
    if itla.enabled and changed:
        itla.start(itla.profile.fine_tune_s, dark=False)


def _set_general(itla: Itla, data: int) -> None:
    _require(not data & ~reg.STORE_DEFAULTS)
    if data:
        itla.store_defaults()


def _set_communication(itla: Itla, data: int) -> None:
    _require(not data & ~_COMMUNICATION_BITS and data & 0x0F <= _LARGEST_BAUD_CODE)
    itla.baud_code = data & 0x0F


def _clear_fatal(itla: Itla, data: int) -> None:
    itla.status.fatal &= ~(data & 0xFF)


def _clear_warning(itla: Itla, data: int) -> None:
    itla.status.warning &= ~(data & 0xFF)


def _set_mode(itla: Itla, data: int) -> None:
    itla.extended_mode = data


def _set_address(itla: Itla, data: int) -> None:
    _require(data <= len(itla.extended), ItlaError.EXTENDED_RANGE)
    itla.extended_at = data


def _write_extended(itla: Itla, data: int) -> None:
    del itla, data
    raise ItlaRefusal(ItlaError.EXTENDED_READ_ONLY)


WRITE: Mapping[int, Callable[[Itla, int], None]] = {
    reg.GEN_CFG: _set_general,
    reg.AEA_EAC: _set_mode,
    reg.AEA_EA: _set_address,
    reg.AEA_EAR: _write_extended,
    reg.IO_CAP: _set_communication,
    reg.STATUS_F: _clear_fatal,
    reg.STATUS_W: _clear_warning,
    reg.CHANNEL: lambda itla, data: _set_channel(itla, itla.settings.channel & ~0xFFFF | data),
    reg.CHANNEL_H: lambda itla, data: _set_channel(itla, data << 16 | itla.settings.channel & 0xFFFF),
    reg.PWR: _set_power,
    reg.RES_ENA: _set_reset_enable,
    **{code: _set_first(place) for place, code in enumerate((reg.FCF1, reg.FCF2, reg.FCF3))},
    **{code: _set_grid(place) for place, code in enumerate((reg.GRID, reg.GRID2))},
    reg.FTF: _set_fine,
}
"""What writing a register does; those not here keep the value or are read-only."""
