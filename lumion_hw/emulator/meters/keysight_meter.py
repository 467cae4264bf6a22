"""Common base of Keysight power meters.

Command language: N774xC and 8163/8164/8166 Programming Guides. Choices where the manuals are silent: a
software-triggered reading always starts a new average. A dark reading in dBm replies the marker value and queues error
-261 (one channel) or -231 (all channels). Setting a range ends automatic ranging. A reading during logging gives error
-221.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lumion_hw.clock import Clock
from lumion_hw.emulator.meters import photodiode_head as physics
from lumion_hw.emulator.meters.keysight_functions import Acquisition, HeadRack, MeterTraits, Port
from lumion_hw.emulator.meters.photodiode_head import EmulatedHead, HeadReading
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Form,
    Numeric,
    PendingReply,
    Profile,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    SuffixRange,
    errors as scpi_errors,
    event,
    flag_setting,
    number_setting,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi.formats import (
    FLOAT32_MAX,
    float32_block,
    keysight_float,
    keysight_float32,
    keysight_int,
    quoted,
    uint16_block,
)
from lumion_hw.emulator.scpi.keysight_slots import POWER_UNIT
from lumion_hw.emulator.scpi.parameters import Limit
from lumion_hw.emulator.scpi.units import LENGTH_M, POWER_DBM, RATIO_DB, TIME_S, Suffixes
from lumion_hw.quantities import dbm_from_w

MARKER = keysight_float32(FLOAT32_MAX)
SENSE = ":SENSe[n][:CHANnel[m]]"
OFFSET = Numeric(-200.0, 200.0, 0.0, RATIO_DB)


class EmulatedKeysightMeter(ScpiDevice):
    """Base class of Keysight meters.

    Args:
        heads: All heads by slot and channel.

    Attributes:
        zero_fails: Whether zeroing fails even in the dark.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        profile: Profile,
        heads: Mapping[Port, EmulatedHead],
        traits: MeterTraits,
        slots: SuffixRange,
    ) -> None:
        super().__init__(name, clock)
        self._rack = HeadRack(heads, traits)
        self.port = self._rack.port
        self._scpi = ScpiInstrument(name, clock, profile, self._reset, self._acquire, self._next_update)
        self.zero_fails = False
        self._zero_codes = dict.fromkeys(heads, 0)
        self._acquisition = Acquisition(self._rack, self._scpi.state, clock)
        self._ranges = {"n": slots, "m": SuffixRange(1, max((channel for _, channel in heads), default=1))}
        self._scpi.declare(self._commands(), self._ranges)

    @property
    def heads(self) -> Mapping[Port, EmulatedHead]:
        """All heads by slot and channel."""
        return self._rack.heads

    def _acquire(self) -> None:
        self._acquisition.advance()

    def _next_update(self) -> float | None:
        return self._acquisition.next_update()

    def hardware_trigger(self, times_s: Iterable[float]) -> None:
        """Receive pulses at the trigger input, given by their times in order. Past times are allowed."""
        self._acquisition.hardware_trigger(times_s)

    def pulses_out(self, times_s: Iterable[float]) -> None:
        """Send pulses to the trigger output, and with loopback also to the trigger input."""
        self._acquisition.pulses_out(times_s)

    def _commands(self) -> Iterable[ScpiCommand]:
        yield from self._settings()
        yield from self._switches()
        yield from self._actions()
        yield from self._acquisition.commands()

    # -- addressing

    def _addressed_head(self, call: Call) -> EmulatedHead:
        return self.heads[self.port(call)]

    def _head_to_change(self, call: Call) -> EmulatedHead:
        self._acquisition.stop(self.port(call)[0])
        return self._addressed_head(call)

    # -- declarations

    def _limited_number(self, limits: str, default: Limit, unit: Suffixes) -> Numeric:
        """Return a numeric SCPI parameter with the limits of the addressed head (profile attribute ``limits``)."""
        low, high = (self._limit(limits, end) for end in range(2))
        return Numeric(low, high, default, unit)

    def _limit(self, limits: str, end: int) -> Callable[[Call], float]:
        return lambda call: float(getattr(self._addressed_head(call).profile, limits)[end])

    def _settings(self) -> Iterable[ScpiCommand]:
        head = self._addressed_head
        wavelength = self._limited_number("wavelength_limits_m", physics.DEFAULT_WAVELENGTH_M, LENGTH_M)
        averaging = self._limited_number("averaging_limits_s", physics.DEFAULT_AVERAGING_S, TIME_S)
        span = self._limited_number("range_limits_dbm", self._limit("range_limits_dbm", 1), POWER_DBM)

        def tune_all(call: Call, wavelength_m: float) -> None:
            self._head_to_change(call)
            for head in self.heads.values():
                head.set_wavelength(wavelength_m)

        def average(call: Call, averaging_s: float) -> None:
            self._head_to_change(call)
            for head in self._rack.group(call):
                head.settings.averaging_s = averaging_s
                head.restart()

        for leaf, tune in (
            ("", lambda c, value: self._head_to_change(c).set_wavelength(value)),
            (":ALL", tune_all),
        ):
            yield number_setting(
                f"{SENSE}:POWer:WAVelength{leaf}",
                wavelength,
                lambda c: head(c).settings.wavelength_m,
                tune,
                keysight_float32,
            )
        yield number_setting(
            f"{SENSE}:POWer:ATIMe", averaging, lambda c: head(c).settings.averaging_s, average, keysight_float
        )
        yield number_setting(
            f"{SENSE}:POWer:RANGe[:UPPer]",
            span,
            lambda c: head(c).present_range(),
            lambda c, value: self._head_to_change(c).set_range(value),
            keysight_float,
        )
        yield number_setting(
            f"{SENSE}:CORRection[:LOSS[:INPut[:MAGNitude]]]",
            OFFSET,
            lambda c: head(c).settings.offset_db,
            lambda c, value: setattr(self._head_to_change(c).settings, "offset_db", value),
            keysight_float,
        )
        yield word_setting(
            f"{SENSE}:POWer:UNIT",
            POWER_UNIT,
            lambda c: keysight_int(int(head(c).settings.watts)),
            lambda c, unit: setattr(self._head_to_change(c).settings, "watts", unit == "W"),
            str,
        )

    def _switches(self) -> Iterable[ScpiCommand]:
        switches = [
            (f"{SENSE}:POWer:RANGe:AUTO", "automatic", True),
            (":INITiate[n][:CHANnel[m]]:CONTinuous", "continuous", True),
            (f"{SENSE}:POWer:REFerence:STATe", "relative", False),
        ]
        if self._rack.traits.gain_switch:
            switches.append((f"{SENSE}:POWer:GAIN:AUTO", "gain_automatic", False))
        for pattern, name, is_shared in switches:
            yield flag_setting(pattern, Boolean(), self._getter(name), self._switch(name, is_shared), keysight_int)

    def _getter(self, name: str) -> Callable[[Call], bool]:
        return lambda call: bool(getattr(self._addressed_head(call).settings, name))

    def _switch(self, name: str, is_shared: bool) -> Callable[[Call, bool], None]:
        def write(call: Call, on: bool) -> None:
            self._head_to_change(call)
            for head in self._rack.group(call) if is_shared else [self._addressed_head(call)]:
                setattr(head.settings, name, on)
                head.restart()

        return write

    def _actions(self) -> Iterable[ScpiCommand]:
        yield query(":READ[n][:CHANnel[m]]:POWer", self._read, marker=MARKER)
        yield query(":FETCh[n][:CHANnel[m]]:POWer", self._fetch)
        yield query(":READ[n][:CHANnel[m]]:POWer:ALL", self._read_all)
        yield query(":FETCh[n][:CHANnel[m]]:POWer:ALL", self._fetch_all)
        yield query(":READ[n][:CHANnel[m]]:POWer:ALL:CONFig", self._configuration)
        yield event(":INITiate[n][:CHANnel[m]][:IMMediate]", self._initiate)
        zero = f"{SENSE}:CORRection:COLLect:ZERO"
        yield ScpiCommand(zero, Form(lambda c: self._zero((self.port(c),))), Form(self._zero_result))
        yield event(f"{zero}:ALL", lambda _: self._zero(tuple(self.heads)))
        yield event(f"{SENSE}:POWer:REFerence:DISPlay", self._store_reference)
        yield query(f"{SENSE}:POWer:REFerence:STATe:RATio", lambda _: "+255,+0")
        yield query(":SLOT[n]:HEAD[m]:TST", lambda call: (self.port(call), f"+0,{quoted('self test OK')}")[1])
        yield query(
            ":SLOT[n]:HEAD[m]:WAVelength:RESPonse",
            lambda call: float32_block(self._addressed_head(call).responsivity_table().ravel().tolist()),
        )

    def _reset(self) -> None:
        for head in self.heads.values():
            head.reset()
        self._acquisition.reset()
        self._scpi.state.status.reset_conditions()

    # -- readings

    def _read(self, call: Call) -> PendingReply:
        port = self.port(call)
        self._acquisition.require_idle(port[0])
        exposure = self.heads[port].expose()

        def finish() -> Reply:
            value = self.express(port, self.heads[port].complete(exposure))
            if value is None:
                raise ScpiError(scpi_errors.MATH_ERROR)
            return keysight_float32(value)

        return PendingReply(lambda: exposure.end_s, finish)

    def _fetch(self, call: Call) -> Reply:
        value = self.express(self.port(call), self._addressed_head(call).fetch())
        return MARKER if value is None else keysight_float32(value)

    def _read_all(self, call: Call) -> PendingReply:
        del call
        for slot, _ in self.heads:
            self._acquisition.require_idle(slot)
        exposures = {port: head.expose() for port, head in self.heads.items()}
        # One block for all heads, sent when the slowest head is done.
        end_s = max(exposure.end_s for exposure in exposures.values())

        def finish() -> Reply:
            return self._block({port: self.heads[port].complete(exposure) for port, exposure in exposures.items()})

        return PendingReply(lambda: end_s, finish)

    def _fetch_all(self, call: Call) -> Reply:
        del call
        return self._block({port: head.fetch() for port, head in self.heads.items()})

    def _block(self, readings: Mapping[Port, HeadReading]) -> Reply:
        values = [self.express(port, reading) for port, reading in readings.items()]
        # One bad channel must not suppress the block of the others.
        if None in values:
            self._scpi.state.report(scpi_errors.DATA_QUESTIONABLE)
        return float32_block(FLOAT32_MAX if value is None else value for value in values)

    def express(self, port: Port, reading: HeadReading) -> float | None:
        """Return a reading in the channel's unit: a marker value for overflow, ``None`` for darkness in dBm."""
        settings = self.heads[port].settings
        power_w, in_watts = reading.power_w, settings.watts and not settings.relative
        # Offset and noise can make the reading of a dark input negative.
        dark = power_w is not None and power_w <= 0 and not in_watts
        self._scpi.state.status.questionable.set_bit(port[0], on=dark or power_w is None)
        if power_w is None:
            return FLOAT32_MAX
        if in_watts:
            return power_w
        if dark:
            return None
        return dbm_from_w(power_w) - (dbm_from_w(settings.reference_w) if settings.relative else 0.0)

    def _store_reference(self, call: Call) -> Reply:
        displayed_w = self._addressed_head(call).fetch().power_w
        if displayed_w is None or displayed_w <= 0:
            raise ScpiError(scpi_errors.DATA_QUESTIONABLE)
        self._addressed_head(call).settings.reference_w = displayed_w
        return None

    def _configuration(self, call: Call) -> Reply:
        del call
        return uint16_block(number for port in self.heads for number in port)

    # -- operations

    def _initiate(self, call: Call) -> Reply:
        port, head = self.port(call), self._addressed_head(call)
        # A head that triggers itself or is measuring ignores INITiate (-213).
        if head.settings.continuous or self._measuring(port):
            raise ScpiError(scpi_errors.INIT_IGNORED)
        exposure = head.expose()
        self.begin((port,), exposure.end_s - self._clock.now(), lambda: head.complete(exposure))
        return None

    def _zero(self, ports: tuple[Port, ...]) -> Reply:
        if any(self._measuring(port) for port in ports):
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        dark = {port: self.heads[port].start_zero() for port in ports}

        def finish() -> None:
            for port in ports:
                succeeded = self.heads[port].finish_zero(dark[port] and not self.zero_fails)
                self._zero_codes[port] = 0 if succeeded else scpi_errors.EXECUTION_ERROR
            if any(self._zero_codes[port] for port in ports):
                self._scpi.state.report(scpi_errors.EXECUTION_ERROR)

        self.begin(ports, physics.ZEROING_S, finish)
        return None

    def _zero_result(self, call: Call) -> PendingReply:
        """Return the result of the last zeroing when it has ended: 0, or an error number."""
        head, port = self._addressed_head(call), self.port(call)
        return PendingReply(
            lambda: max(head.zeroing_until_s, self._clock.now()), lambda: keysight_int(self._zero_codes[port])
        )

    def _measuring(self, port: Port) -> bool:
        return bool(self._scpi.state.status.operation.condition & 1 << port[0])

    def begin(self, ports: tuple[Port, ...], duration_s: float, on_end: Callable[[], object]) -> None:
        """Start an operation, such as zeroing, on some channels. It sets the summary bits of their slots."""
        operation = self._scpi.state.status.operation

        def finish() -> None:
            for slot, _ in ports:
                operation.set_bit(slot, on=False)
            on_end()

        for slot, _ in ports:
            operation.set_bit(slot, on=True)
        self._scpi.state.begin(duration_s, finish)
