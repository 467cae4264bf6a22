"""Commands of a Santec MPM-210H, as data, and the numbers of its errors (instrument facts, section 5).

Its addresses (``ADDR GW SUBNET IP``, with their defaults) are those of the maker's list as a public driver quotes it;
that driver itself sends ``GR``. Setting them changes what is told, not where the emulator listens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lumion_hw.emulator.meters.n77xx_head import EmulatedHead
    from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm

ERRORS: Mapping[int, str] = {
    0: "No Error",
    -101: "Invalid character",
    -103: "Invalid separator",
    -104: "Data type error",
    -108: "Parameter not allowed",
    -109: "Missing parameter",
    -110: "Command header error",
    -113: "Undefined Header",
    -221: "Setting conflict",
    -222: "Data out of range",
    -300: "Device specific error",
    -301: "Is not Measurement Module",
}
_LONGEST_WORD, _LONGEST_ARGUMENT = 13, 18
_ALL_MODULES = 5
_MODES = ("CONST1", "CONST2", "SWEEP1", "SWEEP2", "FREERUN")

Result = bytes | tuple[float, Callable[[], bytes]] | None
"""A reply, a reply that is ready later, or none."""


class MpmError(Exception):
    """A line that is refused; it never leaves the emulator."""

    def __init__(self, code: int) -> None:
        super().__init__(ERRORS[code])
        self.code = code


@dataclass(frozen=True)
class MpmCommand:
    """One command.

    Attributes:
        arguments: How many it takes.
        run: Carries it out.
        setting: It is refused while a run is under way.
    """

    arguments: int
    run: Callable[..., Result]
    setting: bool = False


def parse(text: str) -> tuple[str, bool, list[str]]:
    """Return the word in upper case, whether it asks, and its arguments. Raises ``MpmError`` for a malformed line."""
    if any(character in text for character in "%&$#~"):
        raise MpmError(-101)
    if any(character in text for character in "`;"):
        raise MpmError(-103)
    head, _, rest = text.strip().partition(" ")
    word, is_query = head.removesuffix("?").upper(), head.endswith("?")
    if len(word) > _LONGEST_WORD:
        raise MpmError(-110)
    arguments = [argument.strip() for argument in rest.split(",")] if rest.strip() else []
    if any(len(argument) > _LONGEST_ARGUMENT for argument in arguments):
        raise MpmError(-109)
    return word, is_query, arguments


def _real(text: str, low: float, high: float) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        raise MpmError(-104) from None
    if math.isnan(value):
        raise MpmError(-104)
    if not low <= value <= high:
        raise MpmError(-222)
    return value


def _whole(text: str, low: int, high: int) -> int:
    value = _real(text, low, high)
    if value != int(value):
        raise MpmError(-104)
    return int(value)


def _heads(mpm: EmulatedSantecMpm, module: str, port: str | None = None) -> list[EmulatedHead]:
    """Return the heads of one port, of one module, or of all modules (number 5)."""
    number = _whole(module, 0, _ALL_MODULES)
    place = None if port is None else _whole(port, 1, 4)
    if number == _ALL_MODULES:
        return list(mpm.heads.values())
    return [mpm.heads[each] for each in mpm.places(number, place)]


def _first(mpm: EmulatedSantecMpm) -> EmulatedHead:
    return next(iter(mpm.heads.values()))


def _set_level(mpm: EmulatedSantecMpm, heads: list[EmulatedHead], text: str) -> None:
    level = _whole(text, 1, 5)
    for head in heads:
        mpm.set_level(head, level)


def _set_automatic(mpm: EmulatedSantecMpm, heads: list[EmulatedHead], text: str) -> None:
    automatic = bool(_whole(text, 0, 1))
    for head in heads:
        mpm.set_automatic(head, automatic)


def _set_wavelength(heads: list[EmulatedHead], text: str) -> None:
    nm = _real(text, 1250.0, 1630.0)
    for head in heads:
        head.set_wavelength(nm * 1e-9)


def _nm(head: EmulatedHead) -> bytes:
    return _plain(head.settings.wavelength_m * 1e9)


def _set_mode(mpm: EmulatedSantecMpm, text: str) -> None:
    if text.upper() not in _MODES:
        raise MpmError(-222)
    mpm.mode = text.upper()


def _set_sweep(mpm: EmulatedSantecMpm, start: str, stop: str, step: str) -> None:
    first, last = _real(start, 1250.0, 1630.0), _real(stop, 1250.0, 1630.0)
    width = _real(step, 0.001, 10.0)
    if last < first + width:
        raise MpmError(-222)
    mpm.sweep_nm = first, last, width


def _stop(mpm: EmulatedSantecMpm) -> None:
    if mpm.measuring:
        mpm.stopped = True


def _set_address(mpm: EmulatedSantecMpm, what: str, text: str) -> None:
    """Keep a network address of four numbers."""
    if len(numbers := text.split(".")) != 4:
        raise MpmError(-104)
    mpm.addresses[what] = ".".join(str(_whole(number, 0, 255)) for number in numbers)


def _version(mpm: EmulatedSantecMpm, module: str) -> bytes:
    number = _whole(module, 0, 4)
    mpm.places(number)
    return f"Santec,MPM-211,{number:08d}M211,Ver1.11".encode()


def _calibrated(index: str) -> int:
    """Number of a calibration wavelength, every 20 nm from 1250 nm."""
    return 1250 + 20 * (_whole(index, 1, 20) - 1)


def _calibration_wavelength(mpm: EmulatedSantecMpm, module: str, index: str) -> bytes:
    mpm.places(_whole(module, 0, 4))
    return str(_calibrated(index)).encode()


def _calibration_factor(mpm: EmulatedSantecMpm, module: str, port: str, index: str) -> bytes:
    """Relative responsivity of a port in dB."""
    (head,) = [mpm.heads[each] for each in mpm.places(_whole(module, 0, 4), _whole(port, 1, 4))]
    table = head.responsivity_table()
    below = int((table[:, 0] * 1e9 <= _calibrated(index) + 1e-6).sum()) - 1
    return f"{10.0 * math.log10(table[max(below, 0), 1]):.6f}".encode()


def _text(value: object) -> bytes:
    return str(value).encode()


def _plain(*values: float) -> bytes:
    """Return numbers with up to three decimals, none of them a zero at the end: ``1520,1570,0.05``."""
    return ",".join(f"{value:.3f}".rstrip("0").rstrip(".") for value in values).encode()


COMMANDS: Mapping[str, MpmCommand] = {
    "*IDN?": MpmCommand(0, lambda mpm: f"SANTEC,MPM-210H,{mpm.serial},Ver. 2.00".encode()),
    "ERR?": MpmCommand(0, lambda mpm: mpm.take_error()),
    "IDIS?": MpmCommand(0, lambda mpm: ",".join(str(int(each in mpm.modules)) for each in range(5)).encode()),
    "MMVER?": MpmCommand(1, _version),
    "ADDR": MpmCommand(1, lambda mpm, value: mpm.addresses.update(ADDR=str(_whole(value, 1, 31))), setting=True),
    "ADDR?": MpmCommand(0, lambda mpm: _text(mpm.addresses["ADDR"])),
    "GW": MpmCommand(1, lambda mpm, address: _set_address(mpm, "GW", address), setting=True),
    "GW?": MpmCommand(0, lambda mpm: _text(mpm.addresses["GW"])),
    "SUBNET": MpmCommand(1, lambda mpm, address: _set_address(mpm, "SUBNET", address), setting=True),
    "SUBNET?": MpmCommand(0, lambda mpm: _text(mpm.addresses["SUBNET"])),
    "IP": MpmCommand(1, lambda mpm, address: _set_address(mpm, "IP", address), setting=True),
    "IP?": MpmCommand(0, lambda mpm: _text(mpm.addresses["IP"])),
    "READ?": MpmCommand(1, lambda mpm, module: mpm.read(_whole(module, 0, 4))),
    "AUTO": MpmCommand(1, lambda mpm, on: _set_automatic(mpm, list(mpm.heads.values()), on), setting=True),
    "AUTO?": MpmCommand(0, lambda mpm: _text(int(mpm.automatic[_first(mpm)]))),
    "DAUTO": MpmCommand(2, lambda mpm, module, on: _set_automatic(mpm, _heads(mpm, module), on), setting=True),
    "DAUTO?": MpmCommand(1, lambda mpm, module: _text(int(mpm.automatic[_heads(mpm, module)[0]]))),
    "LEV": MpmCommand(1, lambda mpm, gain: _set_level(mpm, list(mpm.heads.values()), gain), setting=True),
    "LEV?": MpmCommand(0, lambda mpm: _text(mpm.level[_first(mpm)])),
    "DLEV": MpmCommand(
        3, lambda mpm, module, port, gain: _set_level(mpm, _heads(mpm, module, port), gain), setting=True
    ),
    "DLEV?": MpmCommand(2, lambda mpm, module, port: _text(mpm.level[_heads(mpm, module, port)[0]])),
    "AVG": MpmCommand(1, lambda mpm, time_ms: mpm.average(_real(time_ms, 0.01, 10_000.0)), setting=True),
    "AVG?": MpmCommand(0, lambda mpm: _plain(mpm.averaging_ms)),
    "WAV": MpmCommand(1, lambda mpm, nm: _set_wavelength(list(mpm.heads.values()), nm), setting=True),
    "WAV?": MpmCommand(0, lambda mpm: _nm(_first(mpm))),
    "DWAV": MpmCommand(3, lambda mpm, module, port, nm: _set_wavelength(_heads(mpm, module, port), nm), setting=True),
    "DWAV?": MpmCommand(2, lambda mpm, module, port: _nm(_heads(mpm, module, port)[0])),
    "UNIT": MpmCommand(1, lambda mpm, unit: setattr(mpm, "in_mw", bool(_whole(unit, 0, 1))), setting=True),
    "UNIT?": MpmCommand(0, lambda mpm: _text(int(mpm.in_mw))),
    "WMOD": MpmCommand(1, _set_mode, setting=True),
    "WMOD?": MpmCommand(0, lambda mpm: _text(mpm.mode)),
    "WSET": MpmCommand(3, _set_sweep, setting=True),
    "WSET?": MpmCommand(0, lambda mpm: _plain(*mpm.sweep_nm)),
    "SPE": MpmCommand(1, lambda mpm, speed: setattr(mpm, "speed_nm_per_s", _real(speed, 0.001, 200.0)), setting=True),
    "SPE?": MpmCommand(0, lambda mpm: _plain(mpm.speed_nm_per_s)),
    "TRIG": MpmCommand(1, lambda mpm, on: setattr(mpm, "external", bool(_whole(on, 0, 1))), setting=True),
    "TRIG?": MpmCommand(0, lambda mpm: _text(int(mpm.external))),
    "LOGN": MpmCommand(1, lambda mpm, count: setattr(mpm, "points", _whole(count, 1, 1_000_000)), setting=True),
    "LOGN?": MpmCommand(0, lambda mpm: _text(mpm.run_points)),
    "MEAS": MpmCommand(0, lambda mpm: mpm.measure()),
    "STOP": MpmCommand(0, _stop),
    "STAT?": MpmCommand(0, lambda mpm: mpm.status()),
    "LOGG?": MpmCommand(2, lambda mpm, module, port: mpm.logged(_whole(module, 0, 4), _whole(port, 1, 4))),
    "ZERO": MpmCommand(0, lambda mpm: mpm.zero()),
    "CWAV?": MpmCommand(2, _calibration_wavelength),
    "CWAVPO?": MpmCommand(3, _calibration_factor),
}
"""Every command by its word, with ``?`` if it asks."""
