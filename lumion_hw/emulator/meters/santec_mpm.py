"""Emulated Santec MPM-210H: up to five modules of four ports, with one-word commands.

Command language: the maker's command list with error numbers and texts, as public drivers quote it. Modules are
numbered 0 to 4, as in the list and in the maker's samples (``LOGG? 0,1``); some public drivers count from 1. Module 5
means all modules. ``READ?`` ends logging in progress. The gain setting applies to logging without automatic gain, and
to readings without automatic ranging.

Choices where the list is silent: ``ERR?`` reports and deletes the last error. A port reads 9.9E+37 above the range of
its gain, and -9.9E+37 for a power of zero or less in dBm. The gains 1 to 5 reach +10, 0, -10, -20 and -30 dBm. Logging
with automatic gain never overflows. Zeroing with light gives error -300. Logged data are float32, little-endian, in the
selected unit. ``WMOD`` accepts ``FREERUN`` (the list) and ``FREE-RUN`` (the maker's Python class). ``FGSAVG`` (in that
class) and ``ECHO`` have no effect. The address commands (``ADDR GW SUBNET IP``) change only the reported addresses.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.meters.photodiode_head import (
    RESPONSIVITY_A_PER_W,
    RESPONSIVITY_NM,
    ZEROING_S,
    EmulatedHead,
    HeadProfile,
    make_head,
)
from lumion_hw.emulator.meters.sample_runs import MeterRun, MeterRunPlan, RunFunction, RunStart
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import dbm_from_w

_LOG = logging.getLogger(__name__)

N_MODULES, N_PORTS = 5, 4
FACTORY_ADDRESSES = {"ADDR": "16", "GW": "192.168.1.254", "SUBNET": "255.255.255.0", "IP": "192.168.1.161"}
MODES = ("CONST1", "CONST2", "SWEEP1", "SWEEP2", "FREERUN", "FREE-RUN")
MPM_HEAD = HeadProfile(
    wavelength_limits_m=(1.25e-6, 1.63e-6),
    averaging_limits_s=(1e-5, 10.0),
    range_limits_dbm=(-30, 10),
    noise_w_at_1_s=2e-13,
    responsivity_nm=tuple(RESPONSIVITY_NM.tolist()),
    responsivity_a_per_w=tuple(RESPONSIVITY_A_PER_W.tolist()),
    limited_top=False,
    counts=2_000_000,
)
INTERNAL_TRIGGER_S = 0.01
OVER_RANGE, NO_LOGARITHM = 9.9e37, -9.9e37
_MAX_LINE = 256
_NON_PRINTABLE = re.compile(rb"[^\x20-\x7e\t]")


class _MpmPeer:
    """One host connection to an emulated MPM mainframe."""

    def __init__(self, device: EmulatedSantecMpm) -> None:
        self._device = device
        self._line = bytearray()
        self._is_overlong = False
        self._replies: deque[tuple[float, Callable[[], bytes]]] = deque()

    def receive(self, data: bytes) -> None:
        """Execute the complete lines among the received bytes; a line may arrive in several pieces."""
        self._device.advance()
        for text_line in data.splitlines(keepends=True):
            self._line += text_line[: max(_MAX_LINE + 1 - len(self._line), 0)]
            self._is_overlong |= len(self._line) > _MAX_LINE
            # splitlines() also splits at a lone CR; only LF ends a line.
            if text_line.endswith(b"\n"):
                line, overlong = bytes(self._line), self._is_overlong
                self._line, self._is_overlong = bytearray(), False
                reply = self._device.execute(line, overlong=overlong)
                if reply is not None:
                    # A quick reply waits for an earlier slow one.
                    earliest = self._replies[-1][0] if self._replies else reply[0]
                    self._replies.append((max(reply[0], earliest), reply[1]))

    def transmit(self) -> bytes:
        """Return the replies that are due."""
        self._device.advance()
        output = bytearray()
        while self._replies and self._replies[0][0] <= self._device.now() + 1e-9:
            output += self._replies.popleft()[1]()
        return bytes(output)

    def next_event(self) -> float | None:
        """Return the time of the next reply; ``None`` without a pending reply."""
        return self._replies[0][0] if self._replies else None

    def close(self) -> None:
        """Drop the pending replies."""
        self._replies.clear()


class EmulatedSantecMpm(Switchable):
    """Emulated Santec MPM-210H power meter.

    Args:
        light: Returns the light at a module (0 to 4) and port (1 to 4) at a present or past time.
        modules: Numbers of the modules present, 0 to 4, else ``ConfigError``.

    Attributes:
        addresses: Reported GPIB and network addresses, by command word.
        heads: Every port by module and port number.
        gain_level: Gain of every port, 1 to 5.
        automatic: Whether each port is read with automatic ranging.
        in_mw: Whether readings are in mW rather than dBm.
        external: Whether samples at constant wavelength are taken at trigger pulses instead of an internal clock.
        points: Number of samples logged at constant wavelength.
        sweep_nm: Start, stop and step of swept modes.
        speed_nm_per_s: Speed of the laser in swept modes.
        stopped: Whether the last logging was stopped.
        zero_fails: Whether zeroing fails even in the dark.
    """

    description = "the meter"

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        light: Callable[[int, int, float], Light],
        *,
        modules: tuple[int, ...] = (0,),
        serial: str = "00000001",
    ) -> None:
        if not modules or any(not 0 <= module < N_MODULES for module in modules):
            raise ConfigError(f"an MPM-210H has modules 0 to 4, not {modules}", device=name)
        super().__init__(name, clock)
        self.serial = serial
        self.modules = modules
        self.addresses = dict(FACTORY_ADDRESSES)
        self.zero_fails = False
        self._error = 0
        self._zero_end_s: float | None = None
        self._dark: dict[tuple[int, int], bool] = {}
        channels = [(module, port) for module in sorted(modules) for port in range(1, N_PORTS + 1)]
        self.heads = {
            channel: make_head(light, channel, stream, clock, MPM_HEAD)
            for channel, stream in zip(channels, rng.spawn(len(channels)), strict=True)
        }
        for head in self.heads.values():
            head.settings.continuous = False
            head.settings.averaging_s = 5e-3
        self.gain_level = dict.fromkeys(self.heads.values(), 5)
        self.automatic = dict.fromkeys(self.heads.values(), True)
        self.mode = "CONST1"
        self.averaging_ms = self.second_averaging_ms = 5.0
        self.in_mw = False
        self.external = True
        self.points = 1
        self.sweep_nm = (1250.0, 1630.0, 0.005)
        self.speed_nm_per_s = 1.0
        self.run: MeterRun | None = None
        self.stopped = False

    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        return DeviceConnection(self, _MpmPeer(self))

    def _lose_power(self) -> None:
        self.run, self.stopped, self._zero_end_s, self._error = None, False, None, 0

    def advance(self) -> None:
        """Record the samples up to now, and end zeroing when its time is over."""
        try:
            if self.run is not None and not self.stopped:
                self.run.advance(self.now())
        except Exception:  # noqa: BLE001 - the instrument continues
            _LOG.exception("%s: internal error of the emulator; the run stops, the host gets error -300", self._name)
            self._error, self.stopped = -300, True
        if self._zero_end_s is not None and self.now() >= self._zero_end_s - 1e-9:
            self._zero_end_s = None
            zeroed = [
                head.finish_zero(self._dark[channel] and not self.zero_fails) for channel, head in self.heads.items()
            ]
            if not all(zeroed):
                self._error = -300

    def next_due(self) -> float | None:
        """Return the time of the next sample, or of the end of zeroing."""
        run_s = None if self.run is None or self.stopped else self.run.next_update_s()
        return min((at_s for at_s in (run_s, self._zero_end_s) if at_s is not None), default=None)

    def hardware_trigger(self, times_s: NDArray[np.float64] | list[float]) -> None:
        """Receive pulses at the trigger input, given by their times in order. Past times are allowed."""
        if self.run is not None and not self.stopped:
            self.run.trigger(float(at_s) for at_s in times_s)

    # -- lines

    def execute(self, line: bytes, *, overlong: bool) -> tuple[float, Callable[[], bytes]] | None:
        """Execute a command line. Return ``None``, or the time of the reply and a function that returns the reply."""
        text = line.strip(b"\r\n")
        if not text.strip():
            return None
        try:
            if overlong or _NON_PRINTABLE.search(text):
                raise MpmError(-101)
            word, is_query, arguments = parse(text.decode("ascii"))
            command = COMMANDS.get(word + "?" * is_query)
            if command is None:
                raise MpmError(-113)
            if len(arguments) != command.arguments:
                raise MpmError(-108)
            # Settings would change samples that are being recorded.
            if command.setting and self.measuring:
                raise MpmError(-221)
            result = command.run(self, *arguments)
        except MpmError as refusal:
            self._error = refusal.code
            return None
        except Exception:  # noqa: BLE001 - the instrument continues, whatever a host sends
            _LOG.exception("%s: internal error of the emulator; the host gets error -300", self._name)
            self._error = -300
            return None
        if result is None:
            return None
        due_s, value = result if isinstance(result, tuple) else (self.now(), result)
        return due_s, lambda: self._complete(value)

    def _complete(self, value: bytes | Callable[[], bytes]) -> bytes:
        try:
            return (value() if callable(value) else value) + b"\r\n"
        except Exception:  # noqa: BLE001 - invalid light must not close the connection
            _LOG.exception("%s: internal error of the emulator; the host gets error -300", self._name)
            self._error = -300
            return b""

    def pop_error(self) -> bytes:
        """Return and delete number and text of the last error."""
        code, self._error = self._error, 0
        return f"{code},{ERRORS[code]}".encode()

    # -- actions of commands

    @property
    def measuring(self) -> bool:
        """Whether samples are being logged."""
        return self.run is not None and not self.run.complete and not self.stopped

    def channels(self, module: int, port: int | None = None) -> list[tuple[int, int]]:
        """Return the addressed ports. Raises ``MpmError`` -301 for a missing module, -222 for a missing port."""
        if module not in self.modules:
            raise MpmError(-301)
        if port is not None and not 1 <= port <= N_PORTS:
            raise MpmError(-222)
        return [(module, number) for number in range(1, N_PORTS + 1) if port in (None, number)]

    def read(self, module: int) -> tuple[float, Callable[[], bytes]]:
        """Read the four ports of a module once. Logging in progress ends."""
        heads = [self.heads[channel] for channel in self.channels(module)]
        if self.measuring:
            self.stopped = True
        for head in heads:
            # AUTO and LEV apply from the next reading on, not when they are set.
            self._range(head, automatic=self.automatic[head])
        exposures = [head.expose() for head in heads]

        def finish() -> bytes:
            readings = [head.complete(exposure).power_w for head, exposure in zip(heads, exposures, strict=True)]
            return ",".join(self.express(power_w) for power_w in readings).encode()

        return max(exposure.end_s for exposure in exposures), finish

    def set_level(self, head: EmulatedHead, gain_level: int) -> None:
        """Set the gain of a port."""
        self.gain_level[head] = gain_level

    def set_automatic(self, head: EmulatedHead, on: bool) -> None:
        """Switch automatic ranging of a port on or off."""
        self.automatic[head] = on

    def _range(self, head: EmulatedHead, *, automatic: bool) -> None:
        if not automatic:
            head.set_range(20.0 - 10.0 * self.gain_level[head])
        elif not head.settings.automatic:
            head.settings.automatic = True
            head.restart()

    def express(self, power_w: float | None) -> str:
        """Return a reading as text in the selected unit."""
        if power_w is None:
            return f"{OVER_RANGE:.1E}"
        if self.in_mw:
            return f"{power_w * 1e3:.6E}"
        return f"{dbm_from_w(power_w):.3f}" if power_w > 0 else f"{NO_LOGARITHM:.1E}"

    def average(self, averaging_ms: float) -> None:
        """Set the averaging time in ms."""
        self.averaging_ms = averaging_ms
        for head in self.heads.values():
            head.settings.averaging_s = averaging_ms * 1e-3
            head.restart()

    @property
    def run_points(self) -> int:
        """Number of samples to log in the present mode."""
        if not self.mode.startswith("SWEEP"):
            return self.points
        start, stop, step = self.sweep_nm
        return int((stop - start) / step + 1e-6) + 1

    def measure(self) -> None:
        """Start logging."""
        if self.measuring:
            raise MpmError(-221)
        averaging_s = period_s = self.averaging_ms * 1e-3
        start, assumed = RunStart.EACH_SAMPLE, None
        if self.mode in ("FREERUN", "FREE-RUN"):
            start = RunStart.COMPLETE
        elif self.mode.startswith("SWEEP"):
            first, _, step = self.sweep_nm
            # In a sweep, the laser's speed determines the time of a sample, not AVG.
            averaging_s = period_s = step / self.speed_nm_per_s
            assumed = np.asarray(first + step * np.arange(self.run_points), dtype=np.float64)
        elif not self.external:
            start = RunStart.IGNORE  # a pulse of the internal clock starts each sample; pulses during a sample are lost
            period_s = INTERNAL_TRIGGER_S * math.ceil(averaging_s / INTERNAL_TRIGGER_S - 1e-9)
        for head in self.heads.values():
            # Modes ending in 2 have automatic gain, modelled as the range that never overflows.
            head.set_range(
                MPM_HEAD.range_limits_dbm[1] if self.mode.endswith("2") else 20.0 - 10.0 * self.gain_level[head]
            )
        plan = MeterRunPlan(RunFunction.LOGGING, self.run_points, averaging_s, period_s)
        self.stopped = False
        self.run = MeterRun(plan, list(self.heads.values()), start, self.now(), assumed)

    def status(self) -> bytes:
        """Return the state of logging (-1 stopped, 0 in progress, 1 complete) and the number of recorded samples."""
        self.advance()
        if self.run is None:
            return b"1,0"
        # -1, 0 and 1 as in the command list: stopped, in progress, complete.
        state = -1 if self.stopped else int(self.run.complete)
        return f"{state},{self.run.n_recorded}".encode()

    def logged(self, module: int, port: int) -> bytes:
        """Return the samples of a port as a block of little-endian float32 in the selected unit."""
        self.advance()
        (channel,) = self.channels(module, port)
        if self.run is None or self.measuring:
            raise MpmError(-221)
        watts = self.run.result_w(list(self.heads).index(channel))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = watts * 1e3 if self.in_mw else np.where(watts > 0, 10.0 * np.log10(watts * 1e3), NO_LOGARITHM)
        values = np.where(np.isfinite(watts), values, OVER_RANGE)
        payload = values.astype("<f4").tobytes()
        length = str(len(payload))
        return f"#{len(length)}{length}".encode() + payload

    def zero(self) -> None:
        """Start zeroing. Readings wait for the end."""
        if self._zero_end_s is not None or self.measuring:
            raise MpmError(-221)
        self._dark = {channel: head.start_zero() for channel, head in self.heads.items()}
        self._zero_end_s = self.now() + ZEROING_S


ERRORS: Mapping[int, str] = {
    0: "No Error",
    -101: "Invalid character",
    -103: "Invalid separator",
    -104: "Data type error",
    -108: "Parameter not allowed",
    -109: "Missing parameter",
    -110: "Command head error",
    -113: "Undefined Header",
    -221: "Setting conflict",
    -222: "Data out of range",
    -300: "Device specific error",
    -301: "Is not Measurement Module",
}
_MAX_WORD, _MAX_ARGUMENT = 13, 18
_ALL_MODULES = 5

Result = bytes | tuple[float, Callable[[], bytes]] | None
"""Result of a command: the reply; or the time of a later reply and a function that returns this reply; or ``None``."""


class MpmError(Exception):
    """Error reply to a command line."""

    def __init__(self, code: int) -> None:
        super().__init__(ERRORS[code])
        self.code = code


@dataclass(frozen=True)
class MpmCommand:
    """One command of the meter.

    Attributes:
        setting: Whether the command is refused during logging.
    """

    arguments: int
    run: Callable[..., Result]
    setting: bool = False


def parse(text: str) -> tuple[str, bool, list[str]]:
    """Return the command word in upper case, whether it is a query, and the arguments. Raises ``MpmError``."""
    if any(character in text for character in "%&$#~"):
        raise MpmError(-101)
    if any(character in text for character in "`;"):
        raise MpmError(-103)
    head, _, argument_text = text.strip().partition(" ")
    word, is_query = head.removesuffix("?").upper(), head.endswith("?")
    if len(word) > _MAX_WORD:
        raise MpmError(-110)
    arguments = [argument.strip() for argument in argument_text.split(",")] if argument_text.strip() else []
    if any(len(argument) > _MAX_ARGUMENT for argument in arguments):
        raise MpmError(-109)
    return word, is_query, arguments


def _real(text: str, low: float, high: float) -> float:
    try:
        # float() would accept 1_0 as 10.
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        raise MpmError(-104) from None
    if math.isnan(value):
        raise MpmError(-104)
    if not low <= value <= high:
        raise MpmError(-222)
    return value


def _integer(text: str, low: int, high: int) -> int:
    value = _real(text, low, high)
    if value != int(value):
        raise MpmError(-104)
    return int(value)


def _addressed_heads(mpm: EmulatedSantecMpm, module: str, port: str | None = None) -> list[EmulatedHead]:
    """Return the heads of one port, one module, or all modules (number 5)."""
    number = _integer(module, 0, _ALL_MODULES)
    channel = None if port is None else _integer(port, 1, 4)
    if number == _ALL_MODULES:
        return list(mpm.heads.values())
    return [mpm.heads[channel] for channel in mpm.channels(number, channel)]


def _first_head(mpm: EmulatedSantecMpm) -> EmulatedHead:
    return next(iter(mpm.heads.values()))


def _set_level(mpm: EmulatedSantecMpm, heads: list[EmulatedHead], text: str) -> None:
    gain_level = _integer(text, 1, 5)
    for head in heads:
        mpm.set_level(head, gain_level)


def _set_automatic(mpm: EmulatedSantecMpm, heads: list[EmulatedHead], text: str) -> None:
    automatic = bool(_integer(text, 0, 1))
    for head in heads:
        mpm.set_automatic(head, automatic)


def _set_wavelength(heads: list[EmulatedHead], text: str) -> None:
    nm = _real(text, 1250.0, 1630.0)
    for head in heads:
        head.set_wavelength(nm * 1e-9)


def _nm(head: EmulatedHead) -> bytes:
    return _decimal(head.settings.wavelength_m * 1e9)


def _set_mode(mpm: EmulatedSantecMpm, text: str) -> None:
    if text.upper() not in MODES:
        raise MpmError(-222)
    mpm.mode = text.upper()


def _set_sweep(mpm: EmulatedSantecMpm, start: str, stop: str, step: str) -> None:
    first, last = _real(start, 1250.0, 1630.0), _real(stop, 1250.0, 1630.0)
    width = _real(step, 0.001, 10.0)
    if last < first + width:
        raise MpmError(-222)
    mpm.sweep_nm = first, last, width


def _echo(mpm: EmulatedSantecMpm, on: str) -> None:
    del mpm  # without effect: there is no RS-232 line
    _integer(on, 0, 1)


def _stop(mpm: EmulatedSantecMpm) -> None:
    if mpm.measuring:
        mpm.stopped = True


def _set_address(mpm: EmulatedSantecMpm, name: str, text: str) -> None:
    if len(numbers := text.split(".")) != 4:
        raise MpmError(-104)
    mpm.addresses[name] = ".".join(str(_integer(number, 0, 255)) for number in numbers)


def _version(mpm: EmulatedSantecMpm, module: str) -> bytes:
    number = _integer(module, 0, 4)
    mpm.channels(number)
    return f"Santec,MPM-211,{number:08d}M211,Ver1.11".encode()


def _calibration_nm(index: str) -> int:
    """Return the calibration wavelength with a given index in nm: every 20 nm from 1250 nm on."""
    return 1250 + 20 * (_integer(index, 1, 20) - 1)


def _calibration_wavelength(mpm: EmulatedSantecMpm, module: str, index: str) -> bytes:
    mpm.channels(_integer(module, 0, 4))
    return str(_calibration_nm(index)).encode()


def _calibration_factor(mpm: EmulatedSantecMpm, module: str, port: str, index: str) -> bytes:
    (head,) = [mpm.heads[channel] for channel in mpm.channels(_integer(module, 0, 4), _integer(port, 1, 4))]
    table = head.responsivity_table()
    # The table of the head is coarser than 20 nm: the entry below the wavelength applies.
    below = int((table[:, 0] * 1e9 <= _calibration_nm(index) + 1e-6).sum()) - 1
    return f"{10.0 * math.log10(table[max(below, 0), 1]):.6f}".encode()


def _text(value: object) -> bytes:
    return str(value).encode()


def _decimal(*values: float) -> bytes:
    """Format numbers with up to three decimals, without trailing zeros: ``1520,1570,0.05``."""
    return ",".join(f"{value:.3f}".rstrip("0").rstrip(".") for value in values).encode()


COMMANDS: Mapping[str, MpmCommand] = {
    "*IDN?": MpmCommand(0, lambda mpm: f"SANTEC,MPM-210H,{mpm.serial},Ver. 2.00".encode()),
    "ERR?": MpmCommand(0, lambda mpm: mpm.pop_error()),
    "IDIS?": MpmCommand(0, lambda mpm: ",".join(str(int(slot in mpm.modules)) for slot in range(5)).encode()),
    "MMVER?": MpmCommand(1, _version),
    "ADDR": MpmCommand(1, lambda mpm, value: mpm.addresses.update(ADDR=str(_integer(value, 1, 31))), setting=True),
    "ADDR?": MpmCommand(0, lambda mpm: _text(mpm.addresses["ADDR"])),
    "GW": MpmCommand(1, lambda mpm, address: _set_address(mpm, "GW", address), setting=True),
    "GW?": MpmCommand(0, lambda mpm: _text(mpm.addresses["GW"])),
    "SUBNET": MpmCommand(1, lambda mpm, address: _set_address(mpm, "SUBNET", address), setting=True),
    "SUBNET?": MpmCommand(0, lambda mpm: _text(mpm.addresses["SUBNET"])),
    "IP": MpmCommand(1, lambda mpm, address: _set_address(mpm, "IP", address), setting=True),
    "IP?": MpmCommand(0, lambda mpm: _text(mpm.addresses["IP"])),
    "READ?": MpmCommand(1, lambda mpm, module: mpm.read(_integer(module, 0, 4))),
    "AUTO": MpmCommand(1, lambda mpm, on: _set_automatic(mpm, list(mpm.heads.values()), on), setting=True),
    "AUTO?": MpmCommand(0, lambda mpm: _text(int(mpm.automatic[_first_head(mpm)]))),
    "DAUTO": MpmCommand(
        2, lambda mpm, module, on: _set_automatic(mpm, _addressed_heads(mpm, module), on), setting=True
    ),
    "DAUTO?": MpmCommand(1, lambda mpm, module: _text(int(mpm.automatic[_addressed_heads(mpm, module)[0]]))),
    "LEV": MpmCommand(1, lambda mpm, gain: _set_level(mpm, list(mpm.heads.values()), gain), setting=True),
    "LEV?": MpmCommand(0, lambda mpm: _text(mpm.gain_level[_first_head(mpm)])),
    "DLEV": MpmCommand(
        3, lambda mpm, module, port, gain: _set_level(mpm, _addressed_heads(mpm, module, port), gain), setting=True
    ),
    "DLEV?": MpmCommand(2, lambda mpm, module, port: _text(mpm.gain_level[_addressed_heads(mpm, module, port)[0]])),
    "AVG": MpmCommand(1, lambda mpm, time_ms: mpm.average(_real(time_ms, 0.01, 10_000.0)), setting=True),
    "AVG?": MpmCommand(0, lambda mpm: _decimal(mpm.averaging_ms)),
    "FGSAVG": MpmCommand(
        1, lambda mpm, ms: setattr(mpm, "second_averaging_ms", _real(ms, 0.01, 10_000.0)), setting=True
    ),
    "FGSAVG?": MpmCommand(0, lambda mpm: _decimal(mpm.second_averaging_ms)),
    "ECHO": MpmCommand(1, _echo),
    "WAV": MpmCommand(1, lambda mpm, nm: _set_wavelength(list(mpm.heads.values()), nm), setting=True),
    "WAV?": MpmCommand(0, lambda mpm: _nm(_first_head(mpm))),
    "DWAV": MpmCommand(
        3, lambda mpm, module, port, nm: _set_wavelength(_addressed_heads(mpm, module, port), nm), setting=True
    ),
    "DWAV?": MpmCommand(2, lambda mpm, module, port: _nm(_addressed_heads(mpm, module, port)[0])),
    "UNIT": MpmCommand(1, lambda mpm, unit: setattr(mpm, "in_mw", bool(_integer(unit, 0, 1))), setting=True),
    "UNIT?": MpmCommand(0, lambda mpm: _text(int(mpm.in_mw))),
    "WMOD": MpmCommand(1, _set_mode, setting=True),
    "WMOD?": MpmCommand(0, lambda mpm: _text(mpm.mode)),
    "WSET": MpmCommand(3, _set_sweep, setting=True),
    "WSET?": MpmCommand(0, lambda mpm: _decimal(*mpm.sweep_nm)),
    "SPE": MpmCommand(1, lambda mpm, speed: setattr(mpm, "speed_nm_per_s", _real(speed, 0.001, 200.0)), setting=True),
    "SPE?": MpmCommand(0, lambda mpm: _decimal(mpm.speed_nm_per_s)),
    "TRIG": MpmCommand(1, lambda mpm, on: setattr(mpm, "external", bool(_integer(on, 0, 1))), setting=True),
    "TRIG?": MpmCommand(0, lambda mpm: _text(int(mpm.external))),
    "LOGN": MpmCommand(1, lambda mpm, count: setattr(mpm, "points", _integer(count, 1, 1_000_000)), setting=True),
    "LOGN?": MpmCommand(0, lambda mpm: _text(mpm.run_points)),
    "MEAS": MpmCommand(0, lambda mpm: mpm.measure()),
    "STOP": MpmCommand(0, _stop),
    "STAT?": MpmCommand(0, lambda mpm: mpm.status()),
    "LOGG?": MpmCommand(2, lambda mpm, module, port: mpm.logged(_integer(module, 0, 4), _integer(port, 1, 4))),
    "ZERO": MpmCommand(0, lambda mpm: mpm.zero()),
    "CWAV?": MpmCommand(2, _calibration_wavelength),
    "CWAVPO?": MpmCommand(3, _calibration_factor),
}
"""All commands by keyword. Keywords of queries end with ``?``."""
