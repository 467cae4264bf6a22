"""A small SCPI instrument and a host to talk to it, shared by the SCPI tests."""

from __future__ import annotations

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    Numeric,
    PendingReply,
    Profile,
    ScpiBlock,
    ScpiCommand,
    ScpiInstrument,
    SuffixRange,
    Text,
    event,
    flag_setting,
    number_setting,
    query,
)
from lumion_hw.emulator.scpi.formats import keysight_float, keysight_int, plain_float, quoted
from lumion_hw.emulator.scpi.units import POWER_W, TIME_S


class Host:
    """One connection, used like a host: send a line, let the device reply."""

    def __init__(self, instrument) -> None:
        self.peer = instrument.connect()

    def raw(self, data: bytes) -> bytes:
        self.peer.receive(data)
        return self.peer.transmit()

    def ask(self, line: str) -> str | None:
        """Send one line; return the reply without its terminator, or None without a reply."""
        reply = self.raw(line.encode("latin-1") + b"\n")
        return reply.decode("latin-1").rstrip("\r\n") if reply else None

    def errors(self) -> list[int]:
        """Drain the error queue."""
        codes = []
        while (code := int(self.ask("SYST:ERR?").split(",")[0])) != 0:
            codes.append(code)
        return codes


DEFAULTS = {
    "wavelength": 1550.0,
    "beam": 3.0,
    "range": 1e-3,
    "averages": 1,
    "auto": True,
    "unit": "W",
    "label": "",
    "blob": b"",
    "atime": 1.0,
}


class Meter:
    """A meter in the style of the Thorlabs family (wavelength in nm), with additions for every parameter kind."""

    def __init__(self, clock: VirtualClock, **profile) -> None:
        self.clock = clock
        self.values = dict(DEFAULTS)
        self.instrument = ScpiInstrument("meter", clock, Profile("Maker,M1,SN1,1.0", **profile), self._reset)
        self.instrument.declare(self._commands(), {"n": SuffixRange(1, 4)})

    def _reset(self) -> None:
        self.values.update(DEFAULTS)

    def _number(self, pattern: str, name: str, parameter: Numeric, reply=plain_float) -> ScpiCommand:
        def write(call: Call, value: float) -> None:
            self.values[name] = value

        return number_setting(pattern, parameter, lambda _: self.values[name], write, reply)

    def _flag(self, pattern: str, name: str, parameter: Boolean) -> ScpiCommand:
        def write(call: Call, value: bool) -> None:
            self.values[name] = value

        return flag_setting(pattern, parameter, lambda _: self.values[name], write, keysight_int)

    def _word(self, pattern: str, name: str, parameter, reply) -> ScpiCommand:
        def write(call: Call) -> None:
            self.values[name] = call.values[0]

        return ScpiCommand(pattern, Form(write, (parameter,)), Form(lambda _: reply(self.values[name])))

    def _commands(self):
        yield self._number("[:SENSe[n]]:CORRection:WAVelength", "wavelength", Numeric(400, 1700, 1310))
        yield self._number("[:SENSe[n]]:CORRection:BEAMdiameter", "beam", Numeric(0.1, 100, 3))
        yield self._number("[:SENSe[n]]:POWer[:DC]:RANGe[:UPPer]", "range", Numeric(1e-9, 1.0, 1e-3, POWER_W))
        yield self._number("[:SENSe[n]]:POWer:ATIMe", "atime", Numeric(1e-6, 10, 1, TIME_S), keysight_float)
        yield self._number(
            "[:SENSe[n]]:AVERage[:COUNt]", "averages", Numeric(1, 300, 1, integer=True), lambda v: f"{int(v):+d}"
        )
        yield self._number("[:SENSe[n]]:GHOSt", "wavelength", Numeric(400, 1700, 1310, silent=True))
        yield self._flag("[:SENSe[n]]:POWer[:DC]:RANGe:AUTO", "auto", Boolean())
        yield self._word("[:SENSe[n]]:POWer[:DC]:UNIT", "unit", Choice(("W", "DBM", "LOGGing")), str)
        yield self._word(":DISPlay:LABel", "label", Text(), quoted)
        yield self._word(":DATA:BLOB", "blob", ScpiBlock(), lambda blob: b"#1" + str(len(blob)).encode() + blob)
        yield query(":MEASure[:SCALar]:VOLTage[:DC]", lambda _: "+1.00000000E+000")
        yield query(":READ", self._read)
        yield event(":ABORt", lambda _: None)
        yield event(":INITiate[:IMMediate]", self._initiate)
        yield event(":WAIT:FOR:EVER", lambda _: (self.instrument.state.begin(None, lambda: None), None)[1])
        yield query(":BUG", self._bug)

    def _read(self, call: Call) -> PendingReply:
        done_s = self.clock.now() + self.values["atime"]
        return PendingReply(lambda: done_s, lambda: "+1.00000000E-003")

    def _initiate(self, call: Call) -> None:
        operation = self.instrument.state.status.operation
        operation.set_bit(9, True)
        self.instrument.state.begin(self.values["atime"], lambda: operation.set_bit(9, False))

    def _bug(self, call: Call) -> str:
        raise ZeroDivisionError("planted")
