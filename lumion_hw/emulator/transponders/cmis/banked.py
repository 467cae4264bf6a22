"""An emulated CMIS module with more than eight lanes: several engines of eight lanes behind one memory.

Lanes 9 to 16 are in bank 1 of the pages from 10h on (CMIS 5.2 clause 8.2). Each engine has its own lanes, data paths
and flags, and all have the same power states. The lower memory and the pages below 10h are those of the first engine.
Pages 9Fh and up (CDB) exist in bank 0 only. Module flags of further engines do not appear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.transponders.cmis.module import CmisModule
from lumion_hw.emulator.transponders.cmis.optics import Emit, LaunchedLight, Optics, darkness, ignored
from lumion_hw.emulator.transponders.cmis.profiles import find_profile
from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.cdb import CDB_PAGE
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES, LANES
from lumion_hw.standards.cmis.lower_memory import BANK_SELECT_BYTE, PAGE_SELECT_BYTE

BANKED_PROFILES: Mapping[str, tuple[str, int]] = MappingProxyType({"1.6t-2xdr8": ("800g-dr8", 2)})
"""Modules with several banks: profile of an engine, and number of engines."""
_BANK_CODES = {2: 1, 4: 2}
_OSFP_XD = 0x21
_SUMMARY_BYTE = 4  # flag summary of bank 0; those of further banks follow


class BankedModule:
    """One emulated module of 16 or 32 lanes, an ``I2cDevice`` at address 50h. To be used by one thread at a time.

    Args:
        name: Profile in ``BANKED_PROFILES``, else ``ConfigError``.
        optics: Returns the light at the receiver of each media lane.
        emit: Called with the sent light at every change.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        seed: int = 0,
        warm: bool = False,
        low_power_pin: bool = True,
        optics: Optics = darkness,
        emit: Emit = ignored,
    ) -> None:
        if name not in BANKED_PROFILES:
            known = ", ".join(BANKED_PROFILES)
            raise ConfigError(f"unknown profile {name!r} with several banks", hint=f"Known profiles: {known}.")
        engine, n_banks = BANKED_PROFILES[name]
        base = find_profile(engine)
        registers = {
            **base.registers,
            "identifier": _OSFP_XD,
            "identifier_copy": _OSFP_XD,
            "part_number": f"EMU-{name.upper()}",
            "max_power": float(str(base.registers["max_power"])) * n_banks,
            "banks_supported": _BANK_CODES[n_banks],
        }
        profile = replace(base, name=name, registers=registers)
        self.name = name
        self.engines = tuple(
            CmisModule(
                profile,
                clock,
                np.random.default_rng(seed + bank),
                low_power_pin=low_power_pin,
                optics=_optics_of(optics, bank),
                emit=_emit_of(emit, bank),
                warm=warm,
            )
            for bank in range(n_banks)
        )
        self._bank = 0

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

    def _select(self, bank: int, page: int) -> None:
        exists = page < FIRST_BANKED_PAGE or bank == 0 or (bank < len(self.engines) and page < CDB_PAGE)
        self._bank = bank
        if page < FIRST_BANKED_PAGE:
            self._bank = 0
        for engine in self.engines:
            engine.write(BANK_SELECT_BYTE, bytes([0, page if exists else 0]))

    def _mapped(self) -> CmisModule:
        return self.engines[self._bank if self._bank < len(self.engines) else 0]


def _optics_of(optics: Optics, bank: int) -> Optics:
    return lambda lane, at_s: optics(lane + LANES * bank, at_s)


def _emit_of(emit: Emit, bank: int) -> Emit:
    return lambda light: emit(replace(light, media_lane=light.media_lane + LANES * bank))
