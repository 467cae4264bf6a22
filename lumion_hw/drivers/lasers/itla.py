"""Driver for integrable tunable laser assemblies (OIF-ITLA-MSA-01.2 or 01.3) over a serial line.

The driver sets the first channel frequency (register FCF) and uses Channel 1. A module refuses a change of FCF while it
emits.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

from lumion_hw.clock import Clock, deadline_after
from lumion_hw.drivers.life_cycle import IdentifiedDriver, close_on_error
from lumion_hw.drivers.ranges import check_range
from lumion_hw.errors import (
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LumionError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import LaserCapabilities, LaserRanges, LaserState, LaserSweep, SweepLog
from lumion_hw.links.base import Link
from lumion_hw.links.owner import fork_safe
from lumion_hw.sessions.codecs.itla import (
    ItlaRegister,
    dbm_times_100,
    decode_text,
    join_mhz,
    signed,
    split_mhz,
    unsigned,
)
from lumion_hw.sessions.itla import ItlaSession

PENDING_TIMEOUT_S = 30.0
"""Longest wait for tuning or start-up, in s (the longest time class of the MSA)."""
_POLL_S = 0.05
_ENABLED = 0x0008  # ResEna, SENA
_READY = 0x0010  # NOP, MRDY
# Modules report the dark reading of their detector; no ITLA emits such a low power.
_DARK_DBM = -60.0
_FATAL = "FATAL"
_LATCHED = 0x00FF
"""Value that clears the latched bits of register StatusF."""
_STATUS_BITS = {8: "PWR", 9: "THERM", 10: "FREQ", 11: "VSF"}
_CAPABILITIES = LaserCapabilities(tunes_while_emitting=False, measures_power=True, sweep=False, wavelength_log=False)
_NO_RANGES = LaserRanges((0.0, 0.0), 0.0, None, 0.0)
"""Placeholder for limits that have not been read yet."""


@dataclass(frozen=True)
class ItlaIdentity:
    """Identity strings that a laser module reports."""

    device_type: str
    manufacturer: str
    model: str
    serial: str
    release: str


class ItlaLaser(IdentifiedDriver[ItlaIdentity, ItlaSession]):
    """Driver of one module; implements ``TunableLaser``. Thread-safe; every setting is read back.

    Args:
        link: Serial link; 9600 baud by default.
        clock: Clock of the link.
        expected_serial: Required serial number; any if omitted.
    """

    kind = "laser"

    def __init__(self, link: Link, clock: Clock, *, device: str, expected_serial: str | None = None) -> None:
        self._session = ItlaSession(link, clock, device=device)
        self._clock = clock
        self._device = device
        self._expected_serial = expected_serial
        self._ranges = _NO_RANGES
        self._has_mhz = True
        self._has_channel_h = True
        self._setting = fork_safe(threading.RLock())

    def open(self) -> None:
        """Open the link, check that an ITLA replies, and read its limits. The output stays as it is.

        Raises the errors of :meth:`Driver.open`.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._session.open_link(timeout_s=5.0)
            self._identity = self._checked_identity()
            # FCF3 was added by MSA 01.3; older modules reply that the register does not exist (RNI).
            self._has_mhz = self._has(ItlaRegister.FCF3)
            self._has_channel_h = self._has(ItlaRegister.CHANNEL_H)
            self._ranges = self._read_ranges()

    def close(self) -> None:
        """Release the link; idempotent, never raises. The output stays as it is."""
        self._identity = None
        self._session.close()

    @property
    def capabilities(self) -> LaserCapabilities:
        """Capabilities of an ITLA: measures its power, cannot tune while the output is on, cannot sweep."""
        return _CAPABILITIES

    @property
    def ranges(self) -> LaserRanges:
        """Limits of the module. Frequency steps are 100 MHz in MSA 01.2 and 1 MHz in MSA 01.3."""
        self._check_open()
        return self._ranges

    def set_frequency_thz(self, frequency_thz: float) -> None:
        """Set the laser frequency to the nearest MHz. The output must be off.

        Raises:
            LimitError: The frequency is outside the module's range (LFL to LFH); nothing was changed.
            ConfigError: The module has steps of 100 MHz and the frequency lies between two steps; nothing was changed.
            DeviceError: The output is on, or the module refuses.
            VerifyError: The frequency read back differs.
        """
        check_range("frequency", frequency_thz, self.ranges.frequency_thz, "THz", self._session)
        requested_mhz = round(1e6 * frequency_thz)
        if not self._has_mhz and requested_mhz % 100:
            raise self._session.error(
                ConfigError,
                f"{frequency_thz:.6f} THz is between the module's steps of 100 MHz",
                hint="This module follows MSA 01.2. Nothing was changed.",
            )
        with self._setting:
            self._wait_idle("set_frequency_thz")
            with self._session.transaction():
                self._check_dark()
                before_mhz = self._fcf_mhz()
                try:
                    self._write_frequency(before_mhz, requested_mhz)
                except DeviceError:
                    # Written in part, the three words may give a frequency that was never requested.
                    with contextlib.suppress(LumionError):
                        self._write_frequency(self._fcf_mhz(), before_mhz)
                    raise
            self._wait_idle("set_frequency_thz")
            self._verify("frequency in MHz", requested_mhz, self._frequency_mhz())

    def set_power_dbm(self, power_dbm: float) -> None:
        """Set the output power to the nearest 0.01 dBm. Raises the errors of :meth:`TunableLaser.set_power_dbm`."""
        check_range("output power", power_dbm, self.ranges.power_dbm, "dBm", self._session)
        requested = dbm_times_100(power_dbm)
        with self._setting:
            self._wait_idle("set_power_dbm")
            self._session.write(ItlaRegister.PWR, unsigned(requested))
            self._verify("output power in 0.01 dBm", requested, signed(self._session.read(ItlaRegister.PWR)))

    def enable(self) -> None:
        """Switch the output on. Tuning may take seconds longer: see :meth:`wait_ready`."""
        self._switch("enable", _ENABLED)

    def disable(self) -> None:
        """Switch the output off, wait for the change, and verify that the output is off."""
        self._switch("disable", 0)
        self._wait_idle("disable")

    def wait_ready(self, timeout_s: float) -> LaserState:
        """Wait until the module emits, no operation is pending and its fatal status is clear.

        Clears faults that are latched but no longer present. Raises the errors of :meth:`TunableLaser.wait_ready`.
        """
        deadline = deadline_after(self._clock, timeout_s)
        cleared = False
        while True:
            # A module may report a wrong frequency while it tunes (MCB, alarm during tuning).
            tuning = self._session.read(ItlaRegister.NOP) >> 8 != 0
            state = self.state()
            if state.ready:
                return state
            failed = _FATAL in state.flags and not tuning
            if failed and not cleared and state.flags == (_FATAL,):  # only the latched bit remains
                self._session.write(ItlaRegister.STATUS_F, _LATCHED)
                cleared = True
                continue
            if not state.emitting or failed:
                reason = f"reports {', '.join(state.flags)}" if state.emitting else "has its output off"
                raise self._session.error(
                    DeviceError,
                    f"wait_ready: the module {reason}",
                    command="wait_ready",
                    hint="Call enable() first." if not state.emitting else "Read the status registers of the module.",
                )
            if self._clock.now() >= deadline:
                raise self._timeout_error("wait_ready", f"flags: {', '.join(state.flags) or 'none'}")
            self._clock.sleep(min(_POLL_S, max(deadline - self._clock.now(), 1e-3)))

    def state(self) -> LaserState:
        """Read the status and settings, and the output power if the laser emits."""
        read = self._session.read
        with self._session.transaction():
            nop = read(ItlaRegister.NOP)
            emitting = bool(read(ItlaRegister.RES_ENA) & _ENABLED)
            fatal, warning = read(ItlaRegister.STATUS_F), read(ItlaRegister.STATUS_W)
            failing = [f"F{name}" for bit, name in _STATUS_BITS.items() if fatal >> bit & 1]
            warned = [f"W{name}" for bit, name in _STATUS_BITS.items() if warning >> bit & 1]
            flags = [*failing, *warned, *([_FATAL] if fatal >> 13 & 1 else [])]
            ready = emitting and nop >> 8 == 0 and bool(nop & _READY) and not failing and _FATAL not in flags
            frequency_mhz = self._frequency_mhz()
            power_dbm = signed(read(ItlaRegister.PWR)) / 100.0
            measured_dbm = signed(read(ItlaRegister.OOP)) / 100.0 if emitting else _DARK_DBM
            return LaserState(
                emitting=emitting,
                ready=ready,
                frequency_thz=1e-6 * frequency_mhz,
                power_dbm=power_dbm,
                measured_power_dbm=measured_dbm if measured_dbm > _DARK_DBM else None,
                flags=tuple(flags),
                timestamp_s=self._clock.now(),
            )

    def sweep(self, plan: LaserSweep) -> SweepLog:
        """Raise ``NotSupportedError``: an ITLA cannot sweep."""
        del plan
        self._check_open()
        raise self._session.error(
            NotSupportedError,
            "an ITLA cannot sweep",
            command="sweep",
            hint="Step the frequency with set_frequency_thz().",
        )

    def set_fine_tuning_mhz(self, offset_mhz: int) -> None:
        """Shift the frequency by an offset within the range of register FTFR. The output may be on.

        Raises the errors of :meth:`set_power_dbm`.
        """
        largest_mhz = float(self._session.read(ItlaRegister.FTFR))
        check_range("fine tuning", offset_mhz, (-largest_mhz, largest_mhz), "MHz", self._session)
        with self._setting:
            self._wait_idle("set_fine_tuning_mhz")
            self._session.write(ItlaRegister.FTF, unsigned(offset_mhz))
            self._verify("fine tuning in MHz", offset_mhz, signed(self._session.read(ItlaRegister.FTF)))

    def _checked_identity(self) -> ItlaIdentity:
        strings = (
            ItlaRegister.DEV_TYP,
            ItlaRegister.MFGR,
            ItlaRegister.MODEL,
            ItlaRegister.SER_NO,
            ItlaRegister.RELEASE,
        )
        try:
            # A busy module may answer an earlier host's stray bytes only now, with one CE reply for every four bytes.
            # These can be more replies than a single read discards.
            self._session.first_reply(lambda: self._session.read(ItlaRegister.NOP))
            actual = ItlaIdentity(*(decode_text(self._session.read_string(register)) for register in strings))
        except (FrameError, NotSupportedError) as error:
            raise self._identity_error(f"a different device: {error.message}") from error
        if "ITLA" not in actual.device_type.upper():
            raise self._identity_error(f"the device type {actual.device_type!r}")
        if self._expected_serial not in (None, actual.serial):
            raise self._identity_error(f"{actual.manufacturer} {actual.model}, serial {actual.serial}")
        return actual

    def _identity_error(self, actual: str) -> IdentityError:
        return self._session.error(
            IdentityError,
            f"expected an ITLA, serial {self._expected_serial or 'any'}; found {actual}",
            hint="Check the address, the baud rate (9600 by default) and which device is connected there.",
        )

    def _has(self, register: ItlaRegister) -> bool:
        try:
            self._session.read(register)
        except NotSupportedError:
            return False
        return True

    def _read_ranges(self) -> LaserRanges:
        read = self._session.read
        lowest = join_mhz(read(ItlaRegister.LFL1), read(ItlaRegister.LFL2), self._mhz(ItlaRegister.LFL3))
        highest = join_mhz(read(ItlaRegister.LFH1), read(ItlaRegister.LFH2), self._mhz(ItlaRegister.LFH3))
        powers_dbm = signed(read(ItlaRegister.OPSL)) / 100.0, signed(read(ItlaRegister.OPSH)) / 100.0
        return LaserRanges((1e-6 * lowest, 1e-6 * highest), 1e-6 if self._has_mhz else 1e-4, powers_dbm, 0.01)

    def _mhz(self, register: ItlaRegister) -> int:
        return self._session.read(register) if self._has_mhz else 0

    def _fcf_mhz(self) -> int:
        read = self._session.read
        return join_mhz(read(ItlaRegister.FCF1), read(ItlaRegister.FCF2), self._mhz(ItlaRegister.FCF3))

    def _frequency_mhz(self) -> int:
        read = self._session.read
        with self._session.transaction():
            channel = read(ItlaRegister.CHANNEL) + (read(ItlaRegister.CHANNEL_H) << 16 if self._has_channel_h else 0)
            fcf_mhz = self._fcf_mhz()
            # On channel 1 the grid has no effect, so it is not read.
            if channel == 1:
                return fcf_mhz
            grid_mhz = 100 * signed(read(ItlaRegister.GRID)) + (
                signed(read(ItlaRegister.GRID2)) if self._has_channel_h else 0
            )
            return fcf_mhz + (channel - 1) * grid_mhz

    def _write_frequency(self, before_mhz: int, requested_mhz: int) -> None:
        low_mhz, high_mhz = (round(1e6 * limit) for limit in self.ranges.frequency_thz)
        # The module checks its range after each word. With the old GHz, the new THz may be out of
        # range; then a THz value in the middle of the range is written first.
        thz, ghz_times_10, mhz = split_mhz(requested_mhz)
        between_mhz = requested_mhz - requested_mhz % 1_000_000 + before_mhz % 1_000_000
        first_thz = thz if low_mhz <= between_mhz <= high_mhz else round(5e-7 * (low_mhz + high_mhz) - 0.5)
        self._session.write(ItlaRegister.FCF1, first_thz)
        self._session.write(ItlaRegister.FCF2, ghz_times_10)
        if self._has_mhz:
            self._session.write(ItlaRegister.FCF3, mhz)
        if first_thz != thz:
            self._session.write(ItlaRegister.FCF1, thz)
        self._session.write(ItlaRegister.CHANNEL, 1)
        if self._has_channel_h:
            self._session.write(ItlaRegister.CHANNEL_H, 0)

    def _check_dark(self) -> None:
        if self._session.read(ItlaRegister.RES_ENA) & _ENABLED:
            raise self._session.error(
                DeviceError,
                "an ITLA cannot change its frequency while its output is on",
                command="set_frequency_thz",
                hint="Call disable() first. Nothing was changed.",
            )

    def _switch(self, label: str, requested: int) -> None:
        with self._setting:
            self._wait_idle(label)
            self._session.write(ItlaRegister.RES_ENA, requested)
            self._verify("ResEna, bit 3", requested, self._session.read(ItlaRegister.RES_ENA) & _ENABLED)

    def _wait_idle(self, label: str) -> None:
        deadline = self._clock.now() + PENDING_TIMEOUT_S
        while pending := self._session.read(ItlaRegister.NOP) >> 8:
            if self._clock.now() >= deadline:
                raise self._timeout_error(label, f"operations pending: 0x{pending:02X}")
            self._clock.sleep(_POLL_S)

    def _verify(self, label: str, wrote: int, actual: int) -> None:
        if actual != wrote:
            where = {"device": self._device, "address": self._session.address}
            raise VerifyError(label, wrote=wrote, read=actual, **where, hint="The module holds a different value.")

    def _timeout_error(self, label: str, details: str) -> DeviceTimeoutError:
        return self._session.error(
            DeviceTimeoutError,
            f"{label}: the module responds, but was not ready in time; {details}",
            command=label,
            hint="Lasers tune for seconds, some for more than 30 s after power-on.",
        )
