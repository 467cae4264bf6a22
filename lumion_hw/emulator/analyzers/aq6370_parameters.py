"""AQ6370 settings that the emulated analyser only stores and replies: display, corrections, types of sweep.

Headers, values and units are those of the public QCoDeS driver of AQ637x analysers. Limits and values after ``*RST``
are unverified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Form,
    Numeric,
    Reply,
    ScpiCommand,
    ScpiError,
    Text,
    Value,
    errors as scpi_errors,
    flag_setting,
    number_setting,
)
from lumion_hw.emulator.scpi.formats import forms, keysight_float, quoted
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.units import RATIO_DB, Suffixes

Stored = MutableMapping[str, float | str]
"""Setting values by command header. A missing header means the value after ``*RST``."""
_DISPLAY = ":DISPlay[:WINDow]"
_Y1, _Y2 = f"{_DISPLAY}:TRACe:Y1[:SCALe]", f"{_DISPLAY}:TRACe:Y2[:SCALe]"
_SETTING = ":SENSe:SETTing"
_NO_MASK = -999.0
_MAX_COUNT = 2**31 - 1
_MAX_LABEL = 56
_KM: Suffixes = {"KM": 0}
_ANY_DB: Suffixes = {**RATIO_DB, "DB/KM": 0}


@dataclass(frozen=True)
class CodedWord:
    """SCPI parameter that accepts a word from a list, or the number of that word."""

    keywords: Mapping[str, int]
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the number of the received word or the received number."""
        if token.kind is TokenKind.WORD:
            for word, number in self.keywords.items():
                if token.text.upper() in forms(word):
                    return number
            raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
        value = Numeric(integer=True).parse(token, call)
        if value not in self.keywords.values():
            raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
        return value


_FLAGS = {
    f"{_DISPLAY}": True,
    f"{_DISPLAY}:SPLit": False,
    f"{_DISPLAY}:SPLit:HOLD:LOWer": False,
    f"{_DISPLAY}:SPLit:HOLD:UPPer": False,
    f"{_DISPLAY}:TRACe:X[:SCALe]:SRANge": False,
    f"{_Y2}:AUTO": False,
    f"{_SETTING}:SMOothing": False,
    ":SENSe:WAVelength:SRANge": False,
}
_WORDS = {
    f"{_DISPLAY}:OVIew:POSition": {"OFF": 0, "LEFT": 1, "RIGHt": 2},
    f"{_DISPLAY}:OVIew:SIZE": {"LARGe": 0, "SMALl": 1},
    f"{_DISPLAY}:TRACe:Y:NMASk:TYPE": {"VERTical": 0, "HORizontal": 1},
    f"{_Y2}:UNIT": {"DB": 0, "LINear": 1, "DB/KM": 2, "%": 3},
    ":SENSe:CHOPper": {"OFF": 0, "SWITch": 2},
    f"{_SETTING}:CORRection": {"OFF": 0, "ON": 1, "MODE1": 1, "MODE2": 2},
    f"{_SETTING}:FCONnector": {"NORMal": 0, "ANGLed": 1},
}
_NUMBERS: Mapping[str, Numeric] = {
    f"{_DISPLAY}:TRACe:Y:NMASk": Numeric(_NO_MASK, 0.0, _NO_MASK, RATIO_DB),
    f"{_Y1}:BLEVel": Numeric(0.0, 1.0, 0.0, {"MW": -3, "UW": -6, "NW": -9, "PW": -12, "W": 0}),
    f"{_Y1}:PDIVision": Numeric(0.1, 10.0, 10.0, RATIO_DB),
    f"{_Y2}:LENGth": Numeric(0.001, 999.999, 1.0, _KM),
    f"{_Y2}:OLEVel": Numeric(-99.99, 99.99, 0.0, _ANY_DB),
    f"{_Y2}:PDIVision": Numeric(0.1, 10.0, 10.0, _ANY_DB),
    f"{_Y2}:SMINimum": Numeric(0.0, 100.0, 0.0, {"%": 0, "PCT": 0}),
}
_COUNTS: Mapping[str, Numeric] = {
    f"{_DISPLAY}:COLor": Numeric(0, 5, 1, integer=True),
    f"{_DISPLAY}:TRACe:Y[:SCALe]:DNUMber": Numeric(8, 12, 10, integer=True),
    f"{_Y2}:RPOSition": Numeric(0, 12, 5, integer=True),
    ":SENSe:SWEep:SEGMent:POINts": Numeric(1, _MAX_COUNT, 1, integer=True),
    ":SENSe:SWEep:TIME:0NM": Numeric(0, _MAX_COUNT, 0, integer=True),
}
_FLAGS_BEFORE_D = {":SENSe:SWEep:TLSSync": False}


def stored_commands(stored: Callable[[], Stored], *, before_d: bool) -> Iterable[ScpiCommand]:
    """Yield the commands of the settings that have no effect.

    Args:
        stored: Returns the present setting values, by command header.
        before_d: Whether the model is an AQ6370C or earlier.
    """
    for header, on in (_FLAGS | (_FLAGS_BEFORE_D if before_d else {})).items():
        yield _flag(stored, header, on)
    for header, keywords in _WORDS.items():
        yield _keyword_setting(stored, header, keywords)
    for header, limits in {**_NUMBERS, **_COUNTS}.items():
        yield _number(stored, header, limits)
    label = f"{_DISPLAY}:TEXT:DATA"

    def write(call: Call) -> Reply:
        if len(call.text()) > _MAX_LABEL:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        stored()[label] = call.text()
        return None

    def clear(_: Call) -> Reply:
        stored().pop(label, None)
        return None

    yield ScpiCommand(label, Form(write, (Text(),)), Form(lambda _: quoted(str(stored().get(label, "")))))
    yield ScpiCommand(f"{_DISPLAY}:TEXT:CLEar", Form(clear))


def _flag(stored: Callable[[], Stored], header: str, on: bool) -> ScpiCommand:
    return flag_setting(
        header,
        Boolean(),
        lambda _: bool(stored().get(header, on)),
        lambda _, value: stored().__setitem__(header, value),
        str,
    )


def _keyword_setting(stored: Callable[[], Stored], header: str, keywords: Mapping[str, int]) -> ScpiCommand:
    def write(call: Call) -> Reply:
        stored()[header] = call.integer()
        return None

    return ScpiCommand(header, Form(write, (CodedWord(keywords),)), Form(lambda _: str(stored().get(header, 0))))


def _number(stored: Callable[[], Stored], header: str, limits: Numeric) -> ScpiCommand:
    def write(_: Call, value: float) -> None:
        if header.endswith("DNUMber") and value not in (8, 10, 12):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        stored()[header] = value

    return number_setting(
        header,
        limits,
        lambda _: float(stored().get(header, limits.default)),  # type: ignore[arg-type]  # no limit is a function here
        write,
        (lambda value: str(round(value))) if limits.integer else keysight_float,
    )
