"""What reading and writing each register of an ITLA does, as tables over the module."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lumion_hw.emulator.lasers import itla_registers as reg
from lumion_hw.emulator.lasers.itla_frames import ItlaError, ItlaRefusal
from lumion_hw.emulator.lasers.itla_laser import CASE_C, DIODE_C

if TYPE_CHECKING:
    from lumion_hw.emulator.lasers.itla import Itla

_LARGEST_BAUD_CODE = 4
_COMMUNICATION_BITS = 0x100F


def _require(holds: bool, code: ItlaError = ItlaError.VALUE_RANGE) -> None:
    if not holds:
        raise ItlaRefusal(code)


def _text(of: Callable[[Itla], str]) -> Callable[[Itla], bytes]:
    return lambda itla: of(itla).encode("ascii", "replace") + b"\0"


def _words(*values: float) -> bytes:
    return struct.pack(f">{len(values)}h", *(round(value) for value in values))


def _currents(itla: Itla) -> bytes:
    diode_ma = 80.0 + 12.0 * itla.power_dbm if itla.enabled else 0.0
    return _words(10.0 * 150.0, 10.0 * diode_ma)


EXTENDED: Mapping[int, Callable[[Itla], bytes]] = {
    reg.DEV_TYP: lambda _: b"CW ITLA\0",
    reg.MFGR: _text(lambda itla: itla.profile.manufacturer),
    reg.MODEL: _text(lambda itla: itla.profile.model),
    reg.SER_NO: _text(lambda itla: itla.serial),
    reg.MFG_DATE: _text(lambda itla: itla.profile.date),
    reg.RELEASE: _text(lambda itla: itla.profile.release),
    reg.REL_BACK: _text(lambda itla: itla.profile.release),
    reg.CURRENTS: _currents,
    reg.TEMPS: lambda _: _words(100.0 * DIODE_C, 100.0 * CASE_C),
}
"""Registers whose content is longer than a frame."""


def _next_word(itla: Itla) -> int:
    at = itla.extended_at
    _require(at < len(itla.extended), ItlaError.EXTENDED_RANGE)
    itla.extended_at = at + 2
    return int.from_bytes(itla.extended[at : at + 2].ljust(2, b"\0"), "big")


def _first(place: int) -> Callable[[Itla], int]:
    return lambda itla: reg.split_mhz(itla.settings.first_mhz)[place]


def _present(place: int) -> Callable[[Itla], int]:
    return lambda itla: reg.split_mhz(itla.frequency_mhz)[place]


def _limit(end: int, place: int) -> Callable[[Itla], int]:
    return lambda itla: reg.split_mhz(round(itla.profile.frequency_thz[end] * 1e6))[place]


READ: Mapping[int, Callable[[Itla], int]] = {
    reg.GEN_CFG: lambda _: 0,
    reg.AEA_EAC: lambda itla: itla.extended_mode,
    reg.AEA_EA: lambda itla: itla.extended_at,
    reg.AEA_EAR: _next_word,
    reg.IO_CAP: lambda itla: _LARGEST_BAUD_CODE << 4 | itla.baud_code,
    reg.DL_STATUS: lambda _: 0,
    reg.STATUS_F: lambda itla: itla.shown(fatal=True),
    reg.STATUS_W: lambda itla: itla.shown(fatal=False),
    reg.CHANNEL: lambda itla: itla.settings.channel & 0xFFFF,
    reg.CHANNEL_H: lambda itla: itla.settings.channel >> 16,
    reg.PWR: lambda itla: itla.settings.power_cdbm,
    reg.RES_ENA: lambda itla: reg.ENABLE * itla.enabled,
    reg.GRID: lambda itla: itla.settings.grid[0],
    reg.GRID2: lambda itla: itla.settings.grid[1],
    **{code: _first(place) for place, code in enumerate((reg.FCF1, reg.FCF2, reg.FCF3))},
    **{code: _present(place) for place, code in enumerate((reg.LF1, reg.LF2, reg.LF3))},
    **{code: _limit(0, place) for place, code in enumerate((reg.LFL1, reg.LFL2, reg.LFL3))},
    **{code: _limit(1, place) for place, code in enumerate((reg.LFH1, reg.LFH2, reg.LFH3))},
    reg.OOP: lambda itla: round(100.0 * itla.reported_dbm),
    reg.C_TEMP: lambda _: round(100.0 * CASE_C),
    reg.FTFR: lambda itla: round(1e3 * itla.profile.fine_tune_ghz),
    reg.OPSL: lambda itla: round(100.0 * itla.profile.power_dbm[0]),
    reg.OPSH: lambda itla: round(100.0 * itla.profile.power_dbm[1]),
    reg.L_GRID: lambda itla: round(1e3 * itla.profile.least_grid_ghz) // 100,
    reg.L_GRID2: lambda itla: round(1e3 * itla.profile.least_grid_ghz) % 100,
    reg.AGE: lambda _: 0,
    reg.FTF: lambda itla: itla.settings.fine_mhz,
}
"""What a register shows; negative numbers become a two's complement in the frame."""


def _set_channel(itla: Itla, channel: int) -> None:
    settings = itla.settings
    _require(channel >= 1 and itla.within_limits(settings.first_mhz + (channel - 1) * settings.grid_mhz))
    changed, settings.channel = channel != settings.channel, channel
    if itla.enabled and changed:
        itla.start(itla.profile.tune_s, dark=True)


def _set_power(itla: Itla, data: int) -> None:
    low, high = (round(100.0 * limit) for limit in itla.profile.power_dbm)
    power = reg.signed(data)
    _require(low <= power <= high)
    changed, itla.settings.power_cdbm = power != itla.settings.power_cdbm, power
    if itla.enabled and changed:
        itla.start(itla.profile.power_s, dark=False)


def _set_reset_enable(itla: Itla, data: int) -> None:
    _require(not data & ~(reg.MODULE_RESET | reg.SOFT_RESET | reg.ENABLE))
    if data & reg.MODULE_RESET:
        itla.reset_module()
        return
    if data & reg.SOFT_RESET:
        itla.reset_interface()
    if data & reg.ENABLE:
        itla.switch_on()
    elif not data & reg.SOFT_RESET:
        itla.switch_off()


def _set_first(place: int) -> Callable[[Itla, int], None]:
    scale = (1_000_000, 100, 1)[place]

    def write(itla: Itla, data: int) -> None:
        _require(not itla.enabled, ItlaError.OUTPUT_ENABLED)
        low, high = (int(limit) for limit in itla.profile.frequency_thz) if place == 0 else (0, (0, 9999, 99)[place])
        _require(low <= data <= high)
        parts = list(reg.split_mhz(itla.settings.first_mhz))
        itla.settings.first_mhz += (data - parts[place]) * scale

    return write


def _set_grid(place: int) -> Callable[[Itla, int], None]:
    def write(itla: Itla, data: int) -> None:
        _require(not itla.enabled, ItlaError.OUTPUT_ENABLED)
        coarse, fine = itla.settings.grid
        coarse, fine = (reg.signed(data), fine) if place == 0 else (coarse, reg.signed(data))
        _require(abs(fine) <= 99 and abs(100 * coarse + fine) >= round(1e3 * itla.profile.least_grid_ghz))
        itla.settings.grid = coarse, fine

    return write


def _set_fine(itla: Itla, data: int) -> None:
    mhz = reg.signed(data)
    _require(abs(mhz) <= round(1e3 * itla.profile.fine_tune_ghz))
    changed, itla.settings.fine_mhz = mhz != itla.settings.fine_mhz, mhz
    if itla.enabled and changed:
        itla.start(itla.profile.fine_tune_s, dark=False)


def _set_general(itla: Itla, data: int) -> None:
    _require(not data & ~reg.STORE_DEFAULTS)
    if data:
        itla.store_defaults()


def _set_communication(itla: Itla, data: int) -> None:
    _require(not data & ~_COMMUNICATION_BITS and data & 0x0F <= _LARGEST_BAUD_CODE)
    itla.baud_code = data & 0x0F


def _clear_fatal(itla: Itla, data: int) -> None:
    itla.status.fatal &= ~(data & 0xFF)


def _clear_warning(itla: Itla, data: int) -> None:
    itla.status.warning &= ~(data & 0xFF)


def _set_mode(itla: Itla, data: int) -> None:
    itla.extended_mode = data


def _set_address(itla: Itla, data: int) -> None:
    _require(data <= len(itla.extended), ItlaError.EXTENDED_RANGE)
    itla.extended_at = data


def _write_extended(itla: Itla, data: int) -> None:
    del itla, data
    raise ItlaRefusal(ItlaError.EXTENDED_READ_ONLY)


WRITE: Mapping[int, Callable[[Itla, int], None]] = {
    reg.GEN_CFG: _set_general,
    reg.AEA_EAC: _set_mode,
    reg.AEA_EA: _set_address,
    reg.AEA_EAR: _write_extended,
    reg.IO_CAP: _set_communication,
    reg.STATUS_F: _clear_fatal,
    reg.STATUS_W: _clear_warning,
    reg.CHANNEL: lambda itla, data: _set_channel(itla, itla.settings.channel & ~0xFFFF | data),
    reg.CHANNEL_H: lambda itla, data: _set_channel(itla, data << 16 | itla.settings.channel & 0xFFFF),
    reg.PWR: _set_power,
    reg.RES_ENA: _set_reset_enable,
    **{code: _set_first(place) for place, code in enumerate((reg.FCF1, reg.FCF2, reg.FCF3))},
    **{code: _set_grid(place) for place, code in enumerate((reg.GRID, reg.GRID2))},
    reg.FTF: _set_fine,
}
"""What writing a register does; those not here keep the value or are read-only."""
