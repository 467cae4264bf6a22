"""Emulated ITLA: a tunable laser with four-byte frames on a serial line (OIF-ITLA-MSA-01.2 and 01.3).

Choices where the agreement specifies nothing: only one operation is pending at a time, and bit 8 of NOP reports it.
Switching off and reset do not wait for this operation. A frequency outside the limits is refused when the channel is
written (RVE) or the output is enabled (IVC). An incomplete frame is discarded after 0.1 s of silence.
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

_MAX_BYTE_GAP_S = 0.1  # model choice: an incomplete frame of a crashed host must not shift all later frames


class ItlaPeer(SerialPeer):
    """One host connection to the ITLA."""

    def __init__(self, device: Itla, line: SerialLine) -> None:
        super().__init__(device, line)
        self._frame = bytearray()
        self._last_received_s = float("-inf")

    def collect_frames(self, data: bytes, end_s: float) -> list[tuple[bytes, float]]:
        """Return the request frames that the received bytes complete, with arrival times."""
        start_s = end_s - self.line.byte_s * len(data)
        if start_s > self._last_received_s + _MAX_BYTE_GAP_S:
            self._frame.clear()
        self._last_received_s = end_s
        complete = []
        for index, byte in enumerate(data, start=1):
            self._frame.append(byte)
            if len(self._frame) == FRAME_SIZE:
                complete.append((bytes(self._frame), start_s + self.line.byte_s * index))
                self._frame.clear()
        return complete


BAUD_RATES = (9600, 19200, 38400, 57600, 115200)
"""Line rates in baud, indexed by the rate code of register IOCap."""
PENDING_FLAG, READY = 0x0100, 0x0010
_REPLY_DELAY_S = 0.5e-3  # model choice


@dataclass(frozen=True)
class ItlaOperation:
    """An operation of the ITLA in progress, such as tuning."""

    end_s: float
    on_end: Callable[[], None]


class Itla(SerialDevice[ItlaPeer]):
    """Emulated ITLA module.

    Args:
        warm: Whether the module is ready immediately; otherwise it starts up first.
        paced: Whether bytes take their transmission time; otherwise they arrive immediately.
        emit: Called with the new light at every change.

    Attributes:
        status: Latched bits of StatusF and StatusW.
        extended: Bytes that the host reads in pieces from register AEA-EAR.
        extended_position: Number of bytes of ``extended`` that the host has read.
        extended_mode: Value of register AEA-EAC.
        baud_code: Code of the present line rate in register IOCap.
        tuning: Whether the output is dark because the laser is tuning.
    """

    description = "the module"
    profile: ItlaProfile
    serial: str
    settings: ItlaSettings
    enabled: bool
    status: ItlaStatus
    extended: bytes
    extended_position: int
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
        self._event_s: float | None = None
        self._disable_pin = False
        self._defaults = ItlaSettings(stored={code: register.default for code, register in reg.STORED.items()})
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
        self.extended, self.extended_position, self.extended_mode = b"", 0, 0
        # With bit MRL the host learns that its settings are lost.
        self.status = ItlaStatus(reg.MODULE_RESTARTED, reg.MODULE_RESTARTED)
        self._ready_s = self._now_s + self.profile.boot_s
        self._tuned_mhz = self.settings.channel_mhz
        self._laser.set_target(self.power_dbm, self._now_s, emits=False, dark=False)

    # -- the device

    @property
    def _now_s(self) -> float:
        # Frames and operations are processed late, but take effect at their own time.
        return self._clock.now() if self._event_s is None else self._event_s

    def power_cycle(self) -> None:
        """Switch the power off and on. Settings return to those stored by ``GenCfg``."""
        for peer in self._peers:
            peer.line.clear()
        self._restart()

    def _lose_power(self) -> None:
        self.power_cycle()
        self._update_status()

    def pull_disable_pin(self, active: bool) -> None:
        """Set the hardware pin that switches the output off."""
        self._disable_pin = active
        if active:
            self.switch_off()

    def _new_peer(self) -> ItlaPeer:
        return ItlaPeer(self, SerialLine(self._baud))

    def _follow(self, now_s: float) -> None:
        for peer in self._peers:
            while (chunk := peer.line.take_arrived(now_s)) is not None:
                for frame, at_s in peer.collect_frames(chunk[1], chunk[0]):
                    self._process_frame(peer, frame, at_s)
        self._finish_due_operation(now_s)
        self._update_status()

    def _process_frame(self, peer: ItlaPeer, frame: bytes, at_s: float) -> None:
        # An operation that ended before the frame arrived must not make the module refuse it.
        self._finish_due_operation(at_s)
        self._event_s = at_s
        try:
            peer.line.send(self._make_reply(frame), at_s + _REPLY_DELAY_S)
        finally:
            self._event_s = None
        self._update_baud_rates()  # after the reply, which leaves at the old rate

    def _finish_due_operation(self, now_s: float) -> None:
        if self._operation is not None and self._operation.end_s <= now_s + 1e-9:
            operation, self._operation = self._operation, None
            self._event_s = operation.end_s
            operation.on_end()
            self._event_s = None

    def _update_baud_rates(self) -> None:
        if self._baud is not None and self._baud != BAUD_RATES[self.baud_code]:
            self._baud = BAUD_RATES[self.baud_code]
            for peer in self._peers:
                peer.line.set_baud(self._baud)

    # -- frames

    def _make_reply(self, frame: bytes) -> bytes:
        request = decode(frame)
        if request is None:
            self.status.latch(reg.COMMUNICATION_ERROR)
            return DAMAGED
        # LstRsp executes nothing: it repeats a reply that was damaged in transmission.
        if not request.repeat:
            self._last_reply = self._execute_request(request)
        return self._last_reply

    def _execute_request(self, request: ItlaRequest) -> bytes:
        code, data = request.register, request.data
        # NOP is answered before the module is ready: hosts wait for MRDY in its reply.
        if code == reg.NOP:
            error, self._error = self._error, ItlaError.OK
            return reply(ResponseStatus.OK, code, PENDING_FLAG * self.is_pending | READY * self.is_ready | error)
        try:
            if not self.is_ready:
                raise ItlaRefusal(ItlaError.INITIALIZING)
            if code in reg.ONLY_IN_013 and self.profile.msa == "01.2":
                raise ItlaRefusal(ItlaError.NOT_IMPLEMENTED)
            answer = self._write_register(code, data) if request.write else self._read_register(code)
        except ItlaRefusal as refusal:
            self._error = refusal.code
            self.status.latch(reg.EXECUTION_ERROR)
            return reply(ResponseStatus.EXECUTION_ERROR, code, data if request.write else 0)
        self._error = ItlaError.OK
        return answer

    def _read_register(self, code: int) -> bytes:
        if code in EXTENDED_READERS:
            self.extended, self.extended_position = EXTENDED_READERS[code](self), 0
            return reply(ResponseStatus.EXTENDED, code, len(self.extended))
        if code == reg.LST_RESP:
            last_reply = self._last_reply
            # Only status and data are copied: the register number and the parity are those of this reply.
            return reply(ResponseStatus(last_reply[0] & 0x03), code, last_reply[2] << 8 | last_reply[3])
        if code in READERS:
            return reply(ResponseStatus.OK, code, READERS[code](self))
        if code in self.settings.stored and self._is_implemented(code):
            return reply(ResponseStatus.OK, code, self.settings.stored[code])
        raise ItlaRefusal(ItlaError.NOT_IMPLEMENTED)

    def _write_register(self, code: int, data: int) -> bytes:
        if code in reg.READ_ONLY:
            raise ItlaRefusal(ItlaError.NOT_WRITABLE)
        if self.is_pending and not (code == reg.RES_ENA and not data & reg.ENABLE):
            raise ItlaRefusal(ItlaError.PENDING)
        if code in WRITERS:
            # CP reports an operation that this write has started, not an earlier one.
            previous = self._operation
            WRITERS[code](self, data)
            pending = self._operation is not None and self._operation is not previous
            return reply(ResponseStatus.PENDING if pending else ResponseStatus.OK, code, data)
        if code not in reg.STORED or not self._is_implemented(code):
            raise ItlaRefusal(ItlaError.NOT_IMPLEMENTED)
        if not reg.STORED[code].accepts(data):
            raise ItlaRefusal(ItlaError.VALUE_RANGE)
        self.settings.stored[code] = data
        return reply(ResponseStatus.OK, code, data)

    def _is_implemented(self, code: int) -> bool:
        return code != reg.LOW_NOISE or self.profile.low_noise

    # -- state

    @property
    def is_pending(self) -> bool:
        """Whether an operation of the ITLA is in progress."""
        return self._operation is not None

    @property
    def is_ready(self) -> bool:
        """Whether the ITLA has finished starting up."""
        return self._now_s >= self._ready_s

    @property
    def power_dbm(self) -> float:
        """Output power that the host has set, in dBm."""
        return self.settings.power_cdbm / 100.0

    @property
    def frequency_mhz(self) -> int:
        """Frequency that the ITLA reports, in MHz; the true frequency has a fixed error."""
        return self._tuned_mhz if self.enabled else self.settings.channel_mhz + self.settings.fine_mhz

    @property
    def reported_dbm(self) -> float:
        """Output power that the ITLA reports, in dBm."""
        return self._laser.level_dbm(self._now_s)

    def light(self) -> Light:
        """Return the light that the laser emits, with its frequency and power errors."""
        self.advance()
        return self._laser.light(self.frequency_mhz, self._now_s)

    def is_in_limits(self, mhz: int) -> bool:
        """Return whether a frequency is within the ITLA's tuning limits."""
        low, high = self.profile.frequency_thz
        return round(low * 1e6) <= mhz <= round(high * 1e6)

    def start_change(self, duration_s: float, *, dark: bool) -> None:
        """Start an operation that changes the light to the present settings.

        Args:
            duration_s: Time after which the light has the present settings.
            dark: Whether the output is dark until then.
        """
        self.tuning = dark

        def finish() -> None:
            self.tuning = False
            self._tuned_mhz = self.settings.channel_mhz + self.settings.fine_mhz
            self._laser.set_target(self.power_dbm, self._now_s, emits=True, dark=False)

        self._operation = ItlaOperation(self._now_s + duration_s, finish)
        self._laser.set_target(self.power_dbm, self._now_s, emits=True, dark=dark)

    def store_defaults(self) -> None:
        """Store the present settings as the settings after power-on (``GenCfg``)."""
        self._defaults = self.settings.copy()
        self._operation = ItlaOperation(self._now_s + 0.1, lambda: None)

    def switch_on(self) -> None:
        """Enable the laser output. Raises :class:`ItlaRefusal` if the settings or the disable pin forbid it."""
        if self._disable_pin:
            raise ItlaRefusal(ItlaError.EXECUTION_FAILURE)
        if not self.is_in_limits(self.settings.channel_mhz):
            raise ItlaRefusal(ItlaError.INVALID_CONFIGURATION)
        if not self.enabled:
            self.enabled = True
            self._tuned_mhz = self.settings.channel_mhz + self.settings.fine_mhz
            self.start_change(self.profile.enable_s, dark=True)

    def switch_off(self) -> None:
        """Disable the laser output immediately, and cancel a pending operation."""
        # Allowed in every state: a host must always be able to switch the light off.
        self.enabled = self.tuning = False
        self._operation = None
        self._laser.set_target(self.power_dbm, self._now_s, emits=False, dark=False)

    def reset_module(self) -> None:
        """Restart the ITLA with its stored defaults."""
        self._restart()

    def reset_interface(self) -> None:
        """Reset the registers of extended addressing (AEA)."""
        self.extended, self.extended_position = b"", 0
        self.status.latch(reg.COMMUNICATION_RESET)

    # -- status

    def status_value(self, *, fatal: bool) -> int:
        """Return the value of StatusF (``fatal``) or StatusW."""
        latched = self.status.fatal if fatal else self.status.warning
        return latched | self._live_conditions(fatal=fatal) << reg.LIVE_SHIFT | self._summary_bits()

    def _live_conditions(self, *, fatal: bool) -> int:
        if not self.enabled:
            return 0
        deviation_db = abs(self.reported_dbm - self.power_dbm)
        return live_conditions(self.settings.stored, deviation_db, tuning=self.tuning, fatal=fatal)

    def _summary_bits(self) -> int:
        return self.status.summary(self.settings.stored, disabled=self._disable_pin)

    def _update_status(self) -> None:
        self.status.fatal |= self._live_conditions(fatal=True)
        self.status.warning |= self._live_conditions(fatal=False)
        # MCB.SDF: the module switches itself off on a fatal condition.
        if self.enabled and self._summary_bits() & reg.FATAL and self.settings.stored[reg.MCB] & reg.SHUTDOWN_ON_FATAL:
            self.switch_off()
        self._outlet.report(lambda: self._laser.light(self.frequency_mhz, self._now_s))


_MAX_BAUD_CODE = 4
_IO_CAP_BITS = 0x100F


def _require(condition: bool, code: ItlaError = ItlaError.VALUE_RANGE) -> None:
    if not condition:
        raise ItlaRefusal(code)


def _string_reader(attribute: Callable[[Itla], str]) -> Callable[[Itla], bytes]:
    return lambda itla: attribute(itla).encode("ascii", "replace") + b"\0"


def _pack_words(*values: float) -> bytes:
    return struct.pack(f">{len(values)}h", *(round(value) for value in values))


def _pack_currents(itla: Itla) -> bytes:
    # Choice of this emulator: 200 mA at 10 dBm; the cooler takes 150 mA.
    diode_ma = 80.0 + 12.0 * itla.power_dbm if itla.enabled else 0.0
    return _pack_words(10.0 * 150.0, 10.0 * diode_ma)


EXTENDED_READERS: Mapping[int, Callable[[Itla], bytes]] = {
    reg.DEV_TYP: lambda _: b"CW ITLA\0",
    reg.MFGR: _string_reader(lambda itla: itla.profile.manufacturer),
    reg.MODEL: _string_reader(lambda itla: itla.profile.model),
    reg.SER_NO: _string_reader(lambda itla: itla.serial),
    reg.MFG_DATE: _string_reader(lambda itla: itla.profile.date),
    reg.RELEASE: _string_reader(lambda itla: itla.profile.release),
    reg.REL_BACK: _string_reader(lambda itla: itla.profile.release),
    reg.CURRENTS: _pack_currents,
    reg.TEMPS: lambda _: _pack_words(100.0 * DIODE_C, 100.0 * CASE_C),
}
"""Functions that return the content of registers longer than two bytes, by register."""


def _read_extended_word(itla: Itla) -> int:
    position = itla.extended_position
    _require(position < len(itla.extended), ItlaError.EXTENDED_RANGE)
    itla.extended_position = position + 2
    return int.from_bytes(itla.extended[position : position + 2].ljust(2, b"\0"), "big")


def _frequency_readers(codes: tuple[int, int, int], mhz: Callable[[Itla], int]) -> Mapping[int, Callable[[Itla], int]]:
    def part_reader(index: int) -> Callable[[Itla], int]:
        return lambda itla: reg.split_mhz(mhz(itla))[index]

    return {code: part_reader(index) for index, code in enumerate(codes)}


READERS: Mapping[int, Callable[[Itla], int]] = {
    reg.GEN_CFG: lambda _: 0,
    reg.AEA_EAC: lambda itla: itla.extended_mode,
    reg.AEA_EA: lambda itla: itla.extended_position,
    reg.AEA_EAR: _read_extended_word,
    reg.IO_CAP: lambda itla: _MAX_BAUD_CODE << 4 | itla.baud_code,
    reg.DL_STATUS: lambda _: 0,
    reg.STATUS_F: lambda itla: itla.status_value(fatal=True),
    reg.STATUS_W: lambda itla: itla.status_value(fatal=False),
    reg.CHANNEL: lambda itla: itla.settings.channel & 0xFFFF,
    reg.CHANNEL_H: lambda itla: itla.settings.channel >> 16,
    reg.PWR: lambda itla: itla.settings.power_cdbm,
    reg.RES_ENA: lambda itla: reg.ENABLE * itla.enabled,
    reg.GRID: lambda itla: itla.settings.grid[0],
    reg.GRID2: lambda itla: itla.settings.grid[1],
    **_frequency_readers((reg.FCF1, reg.FCF2, reg.FCF3), lambda itla: itla.settings.first_mhz),
    **_frequency_readers((reg.LF1, reg.LF2, reg.LF3), lambda itla: itla.frequency_mhz),
    **_frequency_readers((reg.LFL1, reg.LFL2, reg.LFL3), lambda itla: round(itla.profile.frequency_thz[0] * 1e6)),
    **_frequency_readers((reg.LFH1, reg.LFH2, reg.LFH3), lambda itla: round(itla.profile.frequency_thz[1] * 1e6)),
    reg.OOP: lambda itla: round(100.0 * itla.reported_dbm),
    reg.C_TEMP: lambda _: round(100.0 * CASE_C),
    reg.FTFR: lambda itla: round(1e3 * itla.profile.fine_tune_ghz),
    reg.OPSL: lambda itla: round(100.0 * itla.profile.power_dbm[0]),
    reg.OPSH: lambda itla: round(100.0 * itla.profile.power_dbm[1]),
    reg.L_GRID: lambda itla: round(1e3 * itla.profile.min_grid_ghz) // 100,
    reg.L_GRID2: lambda itla: round(1e3 * itla.profile.min_grid_ghz) % 100,
    reg.AGE: lambda _: 0,
    reg.FTF: lambda itla: itla.settings.fine_mhz,
}
"""Functions that return the value of a register, by register. Stored values are not listed."""


def _set_channel(itla: Itla, channel: int) -> None:
    settings = itla.settings
    _require(channel >= 1 and itla.is_in_limits(settings.first_mhz + (channel - 1) * settings.grid_mhz))
    # Writing the present channel again starts nothing: the reply is OK, not CP.
    changed, settings.channel = channel != settings.channel, channel
    if itla.enabled and changed:
        itla.start_change(itla.profile.tune_s, dark=True)


def _set_power(itla: Itla, data: int) -> None:
    low, high = (round(100.0 * limit) for limit in itla.profile.power_dbm)
    power = reg.signed(data)
    _require(low <= power <= high)
    changed, itla.settings.power_cdbm = power != itla.settings.power_cdbm, power
    if itla.enabled and changed:
        itla.start_change(itla.profile.power_s, dark=False)


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


def _first_frequency_writer(index: int) -> Callable[[Itla, int], None]:
    scale = (1_000_000, 100, 1)[index]

    def write(itla: Itla, data: int) -> None:
        _require(not itla.enabled, ItlaError.OUTPUT_ENABLED)
        low, high = (int(limit) for limit in itla.profile.frequency_thz) if index == 0 else (0, (0, 9999, 99)[index])
        _require(low <= data <= high)
        parts = reg.split_mhz(itla.settings.first_mhz)
        itla.settings.first_mhz += (data - parts[index]) * scale

    return write


def _grid_writer(index: int) -> Callable[[Itla, int], None]:
    def write(itla: Itla, data: int) -> None:
        _require(not itla.enabled, ItlaError.OUTPUT_ENABLED)
        coarse, fine = itla.settings.grid
        coarse, fine = (reg.signed(data), fine) if index == 0 else (coarse, reg.signed(data))
        _require(abs(fine) <= 99 and abs(100 * coarse + fine) >= round(1e3 * itla.profile.min_grid_ghz))
        itla.settings.grid = coarse, fine

    return write


def _set_fine_tuning(itla: Itla, data: int) -> None:
    mhz = reg.signed(data)
    _require(abs(mhz) <= round(1e3 * itla.profile.fine_tune_ghz))
    changed, itla.settings.fine_mhz = mhz != itla.settings.fine_mhz, mhz
    if itla.enabled and changed:
        itla.start_change(itla.profile.fine_tune_s, dark=False)


def _write_general_configuration(itla: Itla, data: int) -> None:
    _require(not data & ~reg.STORE_DEFAULTS)
    if data:
        itla.store_defaults()


def _set_baud_code(itla: Itla, data: int) -> None:
    _require(not data & ~_IO_CAP_BITS and data & 0x0F <= _MAX_BAUD_CODE)
    itla.baud_code = data & 0x0F


def _clear_fatal(itla: Itla, data: int) -> None:
    itla.status.fatal &= ~(data & 0xFF)


def _clear_warning(itla: Itla, data: int) -> None:
    itla.status.warning &= ~(data & 0xFF)


def _set_extended_mode(itla: Itla, data: int) -> None:
    itla.extended_mode = data


def _set_extended_position(itla: Itla, data: int) -> None:
    _require(data <= len(itla.extended), ItlaError.EXTENDED_RANGE)
    itla.extended_position = data


def _reject_extended_write(itla: Itla, data: int) -> None:
    del itla, data
    raise ItlaRefusal(ItlaError.EXTENDED_READ_ONLY)


WRITERS: Mapping[int, Callable[[Itla, int], None]] = {
    reg.GEN_CFG: _write_general_configuration,
    reg.AEA_EAC: _set_extended_mode,
    reg.AEA_EA: _set_extended_position,
    reg.AEA_EAR: _reject_extended_write,
    reg.IO_CAP: _set_baud_code,
    reg.STATUS_F: _clear_fatal,
    reg.STATUS_W: _clear_warning,
    reg.CHANNEL: lambda itla, data: _set_channel(itla, itla.settings.channel & ~0xFFFF | data),
    reg.CHANNEL_H: lambda itla, data: _set_channel(itla, data << 16 | itla.settings.channel & 0xFFFF),
    reg.PWR: _set_power,
    reg.RES_ENA: _set_reset_enable,
    **{code: _first_frequency_writer(index) for index, code in enumerate((reg.FCF1, reg.FCF2, reg.FCF3))},
    **{code: _grid_writer(index) for index, code in enumerate((reg.GRID, reg.GRID2))},
    reg.FTF: _set_fine_tuning,
}
"""Functions that carry out a write, by register. Other registers store the value or are read-only."""
