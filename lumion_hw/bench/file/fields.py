"""What all parts of a bench file have in common: nothing unknown, nothing converted, nothing infinite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lumion_hw.errors import ConfigError

_SHORT = 60


class StrictModel(BaseModel):
    """Base of every part of the bench file: unknown keys are refused, instances do not change, NaN is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def found(value: object) -> str:
    """Return a value as a message says it: ``text 'abc'``, ``the number 5``, ``a list of 3``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 1e30 or isinstance(value, float) else "a very large number"
    if isinstance(value, str):
        text = repr(value)
        return f"text {text}" if len(text) <= _SHORT else f"text {text[:_SHORT]}…"
    if isinstance(value, Mapping):
        return "a mapping"
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else type(value).__name__


def checked_version(version: object) -> object:
    """Return the version of a bench file unchanged.

    Raises:
        ValueError: It is none; Python holds true and 1.0 for 1, a file does not.
    """
    if type(version) is not int or version != 1:
        raise ValueError(f"expected 1, found {found(version)}")
    return version


def checked_address(address: str) -> str:
    """Return a device address unchanged.

    Raises:
        ValueError: No link can be made from it.
    """
    from lumion_hw.clock import SystemClock
    from lumion_hw.links.address import open_link

    try:
        open_link(address, SystemClock())
    except ConfigError as error:
        raise ValueError(f"expected an address; {error.message}. {error.hint}") from error
    return address


def checked_serial(serial: str) -> str:
    """Return a serial number unchanged.

    Raises:
        ValueError: It does not fit the 16 ASCII characters in which mesh controllers and SFP+ modules keep it
            (HELLO reply, byte 72; SFF-8472, A0h bytes 68-83, padded with spaces).
    """
    if not (0 < len(serial) <= 16 and serial.isascii() and serial.isprintable() and serial == serial.strip()):
        raise ValueError(f"expected a serial number of 1 to 16 ASCII characters, found {serial!r}")
    return serial


def checked_module(module: str) -> str:
    """Return the identity of a Qontrol module unchanged.

    Raises:
        ValueError: It is not that of an output module, such as ``Q8iv-0001``; ``Q8iv-****`` has no number yet.
    """
    if re.fullmatch(r"Q[1-9][0-9]{0,2}[a-z]*-([0-9A-F]{4}|\*{4})", module) is None:
        raise ValueError(f"expected a Qontrol output module such as Q8iv-0001 or Q8iv-****, found {module!r}")
    return module


Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
"""A TCP port."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number; text that looks like one is refused."""

Whole = Annotated[int, Field(strict=True)]
"""A whole number; 5.0 and true are refused."""

Version = Annotated[Literal[1], BeforeValidator(checked_version)]
"""The version of the file format."""

Flag = Annotated[bool, Field(strict=True)]
"""true or false; text such as yes is refused."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
"""A name that other parts of the file refer to: a letter, then letters, digits, ``_``, ``.`` or ``-``."""

Serial = Annotated[str, AfterValidator(checked_serial)]
"""A serial number that fits a device's 16 characters."""

Pin = Annotated[str, Field(pattern=r"^[0-9]{1,8}$")]
"""Digits that unlock an instrument, in quotes so that a leading zero stays."""

QontrolModule = Annotated[str, AfterValidator(checked_module)]
"""Type and hexadecimal number of a Qontrol output module."""

Address = Annotated[str, AfterValidator(checked_address)]
"""Where a device is reached: see :func:`lumion_hw.links.address.open_link`."""
