"""Detects the Qontrol modules on a serial line."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError, NotSupportedError
from lumion_hw.sessions.codecs.qontrol import (
    CHAIN_ENTRY_LINE,
    CURRENT_LINE,
    FIRMWARE_LINE,
    INTEGER_LINE,
    VOLTAGE_LINE,
    encode_text_request,
)
from lumion_hw.sessions.qontrol import QontrolSession

_log = logging.getLogger(__name__)

# From the maker's client (qontrol 1.1.20); for comparison only, because the modules report their values.
_FULL_SCALES = {"Q8iv": (12.0, 24.0), "Q8a": (12.0, 100.0), "Q8b": (12.0, 83.333333), "Q8bi": (12.0, 100.0)}
_UNSUPPORTED_KINDS = {"M": "a motor module", "S": "an input module"}
_MAX_CHANNELS = 8192  # channels; three-byte addresses carry two bytes of channel


@dataclass(frozen=True)
class ChainModule:
    """One Qontrol module of a chain.

    Attributes:
        index: Position in the chain, from 0.
        kind: Type name, such as ``Q8iv``.
        number: Serial number in hexadecimal; ``****`` if none is assigned.
        first_channel: Number, within the chain, of the module's channel 0.
        full_scale_v: Largest voltage that a channel can be set to.
        full_scale_ma: Largest current that a channel can be set to.
    """

    index: int
    kind: str
    number: str
    n_channels: int
    first_channel: int
    full_scale_v: float
    full_scale_ma: float
    firmware: str

    @property
    def name(self) -> str:
        """Identity of the module, such as ``Q8iv-0001``."""
        return f"{self.kind}-{self.number}"

    @property
    def channels(self) -> range:
        """Channel numbers of the module within the chain."""
        return range(self.first_channel, self.first_channel + self.n_channels)


@dataclass(frozen=True)
class ModuleChain:
    """All Qontrol modules of one serial line.

    Attributes:
        modules: Modules in the order of the chain.
    """

    modules: tuple[ChainModule, ...]

    @property
    def n_channels(self) -> int:
        """Number of channels of all modules together."""
        return sum(module.n_channels for module in self.modules)

    @property
    def serial(self) -> str:
        """Identities of all modules, such as ``Q8iv-0001,Q8iv-0002``."""
        return ",".join(module.name for module in self.modules)

    @cached_property
    def full_scale_v(self) -> NDArray[np.float64]:
        """Largest voltage of every channel in V, shape ``(n_channels,)``."""
        return np.array([module.full_scale_v for module in self.modules for _ in module.channels])

    @cached_property
    def full_scale_ma(self) -> NDArray[np.float64]:
        """Largest current of every channel in mA, shape ``(n_channels,)``."""
        return np.array([module.full_scale_ma for module in self.modules for _ in module.channels])

    def candidates(self, local_channel: int) -> tuple[int, ...]:
        """Return all channels of the chain that have this number within their module."""
        return tuple(m.first_channel + local_channel for m in self.modules if local_channel < m.n_channels)

    def channel(self, module: int, local_channel: int) -> int | None:
        """Return a module's channel as numbered in the chain, or ``None`` if the module has no such channel."""
        if module >= len(self.modules) or local_channel >= self.modules[module].n_channels:
            return None
        return self.modules[module].first_channel + local_channel


def read_chain(session: QontrolSession) -> ModuleChain:
    """Read identity and capabilities of all modules; nothing is changed.

    Raises ``DeviceError`` if the replies of the modules are inconsistent, and ``NotSupportedError`` if a module is not
    a current source.
    """
    with session.transaction():
        entries = [
            _fields(CHAIN_ENTRY_LINE, line)
            for line in session.request_list(encode_text_request("NUPALL?", CHAIN_ENTRY_LINE))
        ]
        # If a module was moved or a line was lost, all later channel numbers would be off by eight.
        if [int(index) for _, _, index in entries] != list(range(len(entries))):
            raise _inconsistent_chain_error(session, "NUPALL?", f"the modules {[':'.join(entry) for entry in entries]}")
        for kind, number, _ in entries:
            _check_kind(session, f"{kind}-{number}", kind)
        columns = [
            _column(session, name, pattern, len(entries))
            for name, pattern in (
                ("NCHAN", INTEGER_LINE),
                ("VFULL", VOLTAGE_LINE),
                ("IFULL", CURRENT_LINE),
                ("FIRMWARE", FIRMWARE_LINE),
            )
        ]
    modules: list[ChainModule] = []
    for (kind, number, _), counted, volts, milliamperes, firmware in zip(entries, *columns, strict=True):
        first = modules[-1].channels.stop if modules else 0
        module = ChainModule(
            len(modules), kind, number, int(counted), first, float(volts), float(milliamperes), firmware
        )
        _check(session, module)
        modules.append(module)
    return ModuleChain(tuple(modules))


def _column(session: QontrolSession, name: str, pattern: re.Pattern[str], n_modules: int) -> list[str]:
    lines = session.query_lines(encode_text_request(f"{name}ALL?", pattern, n_modules))
    return [_fields(pattern, line)[0] for line in lines]


def _fields(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    match = pattern.fullmatch(line)
    return match.groups() if match else ()


def _check_kind(session: QontrolSession, name: str, kind: str) -> None:
    if kind[:1] in _UNSUPPORTED_KINDS:
        raise session.error(
            NotSupportedError,
            f"{name} is {_UNSUPPORTED_KINDS[kind[:1]]}; this driver supports only chains of current sources",
            command="NUPALL?",
            hint="Connect this module to a separate serial line.",
        )


def _check(session: QontrolSession, module: ChainModule) -> None:
    digits = re.search(r"\d+", module.kind)
    # The number in the type name is the number of channels (Q8iv has 8), which verifies NCHAN.
    if digits is None or int(digits[0]) != module.n_channels or module.channels.stop > _MAX_CHANNELS:
        raise _inconsistent_chain_error(session, "NCHANALL?", f"{module.n_channels} channels on {module.name}")
    if not (module.full_scale_v > 0 and module.full_scale_ma > 0):
        raise _inconsistent_chain_error(
            session,
            "VFULLALL?",
            f"full scales of {module.full_scale_v} V and {module.full_scale_ma} mA on {module.name}",
        )
    usual = _FULL_SCALES.get(module.kind)
    if usual is not None and not np.allclose((module.full_scale_v, module.full_scale_ma), usual, rtol=1e-4):
        _log.warning(
            "%s: %s has full scales of %g V and %g mA, the usual values of its type are %g V and %g mA",
            session.device,
            module.name,
            module.full_scale_v,
            module.full_scale_ma,
            *usual,
        )


def _inconsistent_chain_error(session: QontrolSession, command: str, actual: str) -> DeviceError:
    return session.error(
        DeviceError,
        f"{command}: the reply of the chain is inconsistent: {actual}",
        command=command,
        hint="Check that the slots are filled without a gap, then open the chain with reenumerate=True.",
    )
