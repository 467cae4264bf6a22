"""Field types of bench files. Unknown keys, implicit conversions and non-finite numbers are rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from lumion_hw.errors import ConfigError

_MAX_ECHOED_CHARS = 60


class StrictModel(BaseModel):
    """Base class of all parts of a bench file: immutable; rejects unknown keys, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def describe(value: object) -> str:
    """Describe a value for a message, such as ``text 'abc'``, ``the number 5`` or ``a list of 3``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 1e30 or isinstance(value, float) else "a very large number"
    if isinstance(value, str):
        text = repr(value)
        return f"text {text}" if len(text) <= _MAX_ECHOED_CHARS else f"text {text[:_MAX_ECHOED_CHARS]}…"
    if isinstance(value, Mapping):
        return "a mapping"
    return f"a list of {len(value)}" if isinstance(value, list | tuple) else type(value).__name__


def checked_version(version: object) -> object:
    """Check the version of a bench file, and return the version unchanged.

    Raises:
        ValueError: The version is not the integer 1; true and 1.0 are rejected too.
    """
    if type(version) is not int or version != 1:
        raise ValueError(f"expected 1, found {describe(version)}")
    return version


def checked_address(address: str) -> str:
    """Check a device address, and return the address unchanged.

    Raises:
        ValueError: The address is invalid.
    """
    from lumion_hw.clock import SystemClock
    from lumion_hw.links.address import open_link

    try:
        open_link(address, SystemClock())
    except ConfigError as error:
        raise ValueError(f"expected an address; {error.message}. {error.hint}") from error
    return address


def checked_serial(serial: str) -> str:
    """Check a serial number, and return the number unchanged.

    Raises:
        ValueError: The serial number has more than 16 characters (HELLO reply, byte 72; SFF-8472, A0h bytes 68-83) or
            contains characters other than ASCII.
    """
    if not (0 < len(serial) <= 16 and serial.isascii() and serial.isprintable() and serial == serial.strip()):
        raise ValueError(f"expected a serial number of 1 to 16 ASCII characters, found {serial!r}")
    return serial


def checked_module(module: str) -> str:
    """Check the identity of a Qontrol module, and return the identity unchanged.

    Raises:
        ValueError: Not an output module such as ``Q8iv-0001``, or ``Q8iv-****`` for a module without a number.
    """
    if re.fullmatch(r"Q[1-9][0-9]{0,2}[a-z]*-([0-9A-F]{4}|\*{4})", module) is None:
        raise ValueError(f"expected a Qontrol output module such as Q8iv-0001 or Q8iv-****, found {module!r}")
    return module


Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
"""A TCP port."""
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
"""A finite number; text that looks like a number is rejected."""

WholeNumber = Annotated[int, Field(strict=True)]
"""An integer; 5.0 and true are rejected."""

Version = Annotated[Literal[1], BeforeValidator(checked_version)]
"""The version of the file format."""

Flag = Annotated[bool, Field(strict=True)]
"""true or false; text such as yes is rejected."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
"""A name: a letter, then letters, digits, ``_``, ``.`` or ``-``."""

ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}(/[1-9][0-9]?)?$")]
"""Name of a module, or of one of its media lanes, such as ``dr4-a/2``."""

ControllerName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}(\+[A-Za-z][A-Za-z0-9_.-]{0,63})*$")]
"""Name of a mesh controller, or of several that drive one mesh together, such as ``mesh0+mesh1``."""

DeviceName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}(/[1-9][0-9]?|(\+[A-Za-z][A-Za-z0-9_.-]{0,63})+)?$"),
]
"""Name of a device, of a media lane of a module, or of several mesh controllers together."""

Serial = Annotated[str, AfterValidator(checked_serial)]
"""A serial number of at most 16 ASCII characters."""

Pin = Annotated[str, Field(pattern=r"^[0-9]{1,8}$")]
"""Code of digits that unlocks an instrument, as text because of leading zeros."""

QontrolModule = Annotated[str, AfterValidator(checked_module)]
"""Type and hexadecimal number of a Qontrol output module."""

Address = Annotated[str, AfterValidator(checked_address)]
"""Address of a device: see :func:`lumion_hw.links.address.open_link`."""
