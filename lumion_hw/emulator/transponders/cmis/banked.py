"""An emulated CMIS module with more than eight lanes: several engines of eight lanes behind one memory.

Lanes 9 to 16 are in bank 1 of the pages from 10h on (CMIS 5.2 clause 8.2). Each engine has its own lanes, data paths
and flags, and all have the same power states. The lower memory and the pages below 10h are those of the first engine;
the flags of the module (00h:8-13) are those of all engines. Pages 9Fh and up (CDB) exist in bank 0 only. All engines
have the same pins, plug and faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.transponders.cmis.module import CmisModule
from lumion_hw.emulator.transponders.cmis.optics import Emit, LaunchedLight, Optics, darkness, ignored
from lumion_hw.emulator.transponders.cmis.profiles import find_profile
from lumion_hw.emulator.transponders.module_fault import FaultPanel
from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.cdb import CDB_PAGE
from lumion_hw.standards.cmis.codes import ModuleState
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES, LANES
from lumion_hw.standards.cmis.lower_memory import BANK_SELECT_BYTE, PAGE_SELECT_BYTE

_OSFP_XD, _CPO = 0x21, 0x80
BANKED_PROFILES: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {"1.6t-2xdr8": ("800g-dr8", 2, _OSFP_XD), "3.2t-4xdr8": ("800g-dr8", 4, _CPO)}
)
"""Modules with several banks: profile of an engine, number of engines, and identifier (SFF-8024 Table 4-1)."""
_BANK_CODES = {2: 1, 4: 2}
_MAX_POWER_W = 63.75  # the largest value of 00h:201
_CONTROL_BYTE, _SOFTWARE_RESET = 26, 0x08
_NACK = "nack"
_SUMMARY_BYTE = 4  # flag summary of bank 0; those of further banks follow
_MODULE_FLAGS = range(8, 14)


class BankedModule:
    """One emulated module of 16 or 32 lanes, an ``I2cDevice`` at address 50h. To be used by one thread at a time.

    Args:
        profile_name: Profile in ``BANKED_PROFILES``, else ``ConfigError``.
        device: Device name; by default that of the profile.
        serial: Serial number, at most 16 ASCII characters, else ``ValueError``.
        optics: Returns the light at the receiver of each media lane.
        emit: Called with the sent light at every change.
    """

    def __init__(
        self,
        profile_name: str,
        clock: Clock,
        *,
        seed: int = 0,
        device: str = "",
        serial: str = "EMU0000001",
        warm: bool = False,
        low_power_pin: bool = True,
        optics: Optics = darkness,
        emit: Emit = ignored,
    ) -> None:
        if profile_name not in BANKED_PROFILES:
            known = ", ".join(BANKED_PROFILES)
            raise ConfigError(f"unknown profile {profile_name!r} with several banks", hint=f"Known profiles: {known}.")
        engine, n_banks, identifier = BANKED_PROFILES[profile_name]
        base = find_profile(engine)
        registers = {
            **base.registers,
            "identifier": identifier,
            "identifier_copy": identifier,
            "part_number": f"EMU-{profile_name.upper()}",
            "max_power": min(float(str(base.registers["max_power"])) * n_banks, _MAX_POWER_W),
            "banks_supported": _BANK_CODES[n_banks],
        }
        profile = replace(base, name=profile_name, registers=registers)
        self.name = device or profile_name
        self.engines = tuple(
            CmisModule(
                profile,
                clock,
                np.random.default_rng(seed + bank),
                name=self.name,
                serial=serial,
                low_power_pin=low_power_pin,
                optics=_optics_of(optics, bank),
                emit=_emit_of(emit, bank),
                warm=warm,
            )
            for bank in range(n_banks)
        )
        self.faults = _EngineFaults([engine.faults for engine in self.engines])
        self._bank = 0
        self._page = 0
        self._pointer = 0

    def light(self, media_lane: int) -> LaunchedLight:
        """Return the light that a media lane sends now; lanes count from 1 over all banks."""
        bank, lane = divmod(media_lane - 1, LANES)
        return replace(self.engines[bank].light(lane + 1), media_lane=media_lane)

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes, within one half of the memory. Raises the errors of ``CmisModule.read``."""
        if offset >= HALF_BYTES:
            return self._mapped().read(offset, length)
        data = bytearray(self.engines[0].read(offset, length))
        for bank, engine in enumerate(self.engines[1:], 1):
            byte = _SUMMARY_BYTE + bank
            if offset <= byte < offset + length:
                data[byte - offset] = engine.read(_SUMMARY_BYTE, 1)[0]
            for flags in range(max(offset, _MODULE_FLAGS.start), min(offset + length, _MODULE_FLAGS.stop)):
                data[flags - offset] |= engine.read(flags, 1)[0]
        if offset <= BANK_SELECT_BYTE < offset + length:
            data[BANK_SELECT_BYTE - offset] = self._bank
        if offset <= PAGE_SELECT_BYTE < offset + length:
            data[PAGE_SELECT_BYTE - offset] = self._mapped().read(PAGE_SELECT_BYTE, 1)[0]
        return bytes(data)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` in one transaction. Raises the errors of ``CmisModule.write``."""
        if offset >= HALF_BYTES:
            self._mapped().write(offset, data)
        elif offset == BANK_SELECT_BYTE and len(data) == 2:
            self._select(*data)
        elif offset == PAGE_SELECT_BYTE:
            self._select(self._bank, data[0])
        else:
            # Power and masks of the module concern every engine.
            for engine in self.engines:
                engine.write(offset, data)
            if offset <= _CONTROL_BYTE < offset + len(data) and data[_CONTROL_BYTE - offset] & _SOFTWARE_RESET:
                self._bank = 0

    # -- byte by byte, for the I2C bus

    def acknowledge(self, operation: str = "access") -> None:
        """Advance all engines to the present. Raises the errors of ``CmisModule.acknowledge``."""
        self.advance()
        self.engines[0].acknowledge(operation)

    def seek(self, offset: int) -> None:
        """Set the address pointer, after :meth:`acknowledge`."""
        self._pointer = offset

    def begin_read(self) -> None:
        """Begin a read at the address pointer, after :meth:`acknowledge`."""
        self._page = self._mapped().read(PAGE_SELECT_BYTE, 1)[0]
        engine = self._at_pointer()
        engine.seek(self._pointer)
        engine.begin_read()

    def next_byte(self) -> int:
        """Return the byte at the address pointer, and advance the pointer."""
        address = self._pointer
        value = self._at_pointer().next_byte()
        self._pointer = address // HALF_BYTES * HALF_BYTES + (address + 1) % HALF_BYTES
        if _SUMMARY_BYTE < address < _SUMMARY_BYTE + len(self.engines):
            return self.engines[address - _SUMMARY_BYTE].read(_SUMMARY_BYTE, 1)[0]
        if address in _MODULE_FLAGS:
            for engine in self.engines[1:]:
                value |= engine.read(address, 1)[0]
        return {BANK_SELECT_BYTE: self._bank, PAGE_SELECT_BYTE: self._page}.get(address, value)

    def write_limit(self, offset: int) -> int:
        """Return the largest number of bytes of a write at ``offset``."""
        return self._mapped().write_limit(offset)

    # -- time, pins and plug

    def advance(self) -> None:
        """Advance all engines to the clock's present time."""
        for engine in self.engines:
            engine.advance()

    @property
    def plugged(self) -> bool:
        """Whether the module is plugged in."""
        return self.engines[0].plugged

    @property
    def state(self) -> ModuleState | None:
        """State of the module; ``None`` while its management interface initialises."""
        return self.engines[0].state

    @property
    def interrupt(self) -> bool:
        """Whether an engine asserts the interrupt pin."""
        asserted = [engine.interrupt for engine in self.engines]  # each also brings its engine to the present
        return any(asserted)

    def set_low_power_pin(self, asserted: bool) -> None:
        """Set the level of the module's low-power pin."""
        for engine in self.engines:
            engine.set_low_power_pin(asserted)

    def set_host_signal(self, lanes: int, pattern: int | None = None) -> None:
        """Set the host lanes of each bank with a good electrical signal, and their test pattern."""
        for engine in self.engines:
            engine.set_host_signal(lanes, pattern)

    def reset(self) -> None:
        """Pulse the reset pin: all volatile state returns to the defaults."""
        self._bank = 0
        for engine in self.engines:
            engine.reset()

    def unplug(self) -> None:
        """Unplug the module: the light goes out at once and the module stops responding."""
        for engine in self.engines:
            engine.unplug()

    def plug(self) -> None:
        """Plug the module in, which starts it."""
        self._bank = 0
        for engine in self.engines:
            engine.plug()

    def _select(self, bank: int, page: int) -> None:
        exists = page < FIRST_BANKED_PAGE or bank == 0 or (bank < len(self.engines) and page < CDB_PAGE)
        self._bank = bank
        if page < FIRST_BANKED_PAGE:
            self._bank = 0
        for engine in self.engines:
            engine.write(BANK_SELECT_BYTE, bytes([0, page if exists else 0]))

    def _at_pointer(self) -> CmisModule:
        return self.engines[0] if self._pointer < HALF_BYTES else self._mapped()

    def _mapped(self) -> CmisModule:
        return self.engines[self._bank if self._bank < len(self.engines) else 0]


class _EngineFaults:
    """The fault panels of all engines of a module, as one panel."""

    def __init__(self, panels: Sequence[FaultPanel]) -> None:
        self._panels = panels

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the active faults."""
        return self._panels[0].active

    def inject(self, name: str, strength: float | None = None, **times_s: Any) -> None:
        """Start a fault in all engines, as ``FaultPanel.inject``."""
        # The first engine acknowledges for the module, so only it counts accesses that are not acknowledged.
        for panel in self._panels[: 1 if name == _NACK else None]:
            panel.inject(name, strength, **times_s)

    def clear(self, name: str) -> None:
        """End a fault, if it is active."""
        for panel in self._panels:
            panel.clear(name)

    def strength(self, name: str) -> float | None:
        """Return the strength of a fault; ``None`` if it is not active."""
        return self._panels[0].strength(name)


def _optics_of(optics: Optics, bank: int) -> Optics:
    return lambda lane, at_s: optics(lane + LANES * bank, at_s)


def _emit_of(emit: Emit, bank: int) -> Emit:
    return lambda light: emit(replace(light, media_lane=light.media_lane + LANES * bank))
