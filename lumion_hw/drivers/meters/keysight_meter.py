"""What the power meters of Keysight (Agilent) have in common: N77xx and the sensors of 816x mainframes.

Commands after the programming guides: bare wavelengths are metres, ranges are dBm in steps of 10 dB, blocks are
little-endian float32, floats on the wire have 32 bits.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.meters.scpi_meter import ScpiMeter
from lumion_hw.drivers.meters.wire_powers import reading
from lumion_hw.drivers.scpi import KEYSIGHT_IGNORABLE_ERRORS, StrictScpi
from lumion_hw.errors import BusyError, ConfigError, FrameError, LumionError
from lumion_hw.interfaces import MeterLimits, MeterSettings, PowerReading
from lumion_hw.quantities import w_from_dbm

_log = logging.getLogger(__name__)

WAVELENGTH_TOLERANCE_NM = 0.006
"""Largest accepted difference between a wavelength set and read back: half a step of 0.01 nm, and float32."""
AVERAGING_TOLERANCE = 1e-3
"""Largest accepted relative difference between an averaging time set and read back."""
# The instrument would round to the nearest multiple of 10 dB and say nothing (N774xC Programming Guide).
RANGE_STEP_DB = 10.0
_RANGE_TOLERANCE_DB = 0.5
_OFFSET_TOLERANCE_DB = 1e-3
_UNDEFINED_HEADER = -113
# A reading takes its averaging time, which may be 10 s; with VISA's usual 2 s such a reading is lost.
_SHORTEST_TIMEOUT_S = 2.0
_TIMEOUT_FACTOR = 1.2
_ZERO_PATIENCE_S = 120.0  # eight ports, some seconds each
_ZERO_POLL_S = 0.25


@dataclass(frozen=True)
class Head:
    """How one channel is addressed.

    Attributes:
        sense: Header of the channel's own settings, such as ``SENS2:CHAN2``.
        master: Header of what acts on all channels of a module: averaging, automatic ranging, logging.
        read: Header of its readings.
        module: Number of its module, for triggers.
    """

    sense: str
    master: str
    read: str
    module: int


class KeysightMeter(ScpiMeter):
    """Base of the drivers; implements ``PowerMeter``. Thread-safe; every set is read back.

    Readings are absolute powers in watts: the driver sets the unit and switches references off when it opens. Channels
    are triggered by each reading, so that a reading is never older than its call. Both, the wavelength that was set and
    the calibration offset found at opening are held: each reading is read together with them
    (:mod:`lumion_hw.drivers.held_setup`). The link is a raw socket (port 5025) or VISA; args as in
    :class:`~lumion_hw.drivers.scpi.ScpiDriver`.

    Attributes:
        channel_word: What a channel is called.
        highest_range_dbm: Highest range of any of its sensors.
    """

    makers: ClassVar[tuple[str, ...]] = ("KEYSIGHT", "AGILENT")
    ignorable_errors = KEYSIGHT_IGNORABLE_ERRORS
    channel_word: ClassVar[str] = "port"
    highest_range_dbm: ClassVar[float]
    _heads: tuple[Head, ...] = ()
    _setups: tuple[HeldSetup, ...] = ()
    _averaging_s: dict[str, float]
    _run: str | None = None

    @abc.abstractmethod
    def find_heads(self) -> tuple[Head, ...]:
        """Return the channels in the order of ``READ:POW:ALL?``. Raises ``IdentityError`` for others than expected."""

    def open(self) -> None:
        """Open the link, check the identity and the channels, and bring the channels into a known state.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Another instrument answers.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._heads = self.find_heads()
            self._averaging_s = {}
            self._run = None
            self.errors()  # what was left by others is not ours
            self._setups = tuple(HeldSetup(self._session) for _ in self._heads)
            for channel in self.channels:
                self._prepare(channel)

    def close(self) -> None:
        """Give the channels back to the front panel as far as possible, and close the link; idempotent, no errors."""
        with self._closing:
            identity, self._identity = self._identity, None
            if identity is not None and not self._session.is_out_of_sync:
                try:
                    for module in dict.fromkeys(head.module for head in self._heads):
                        self._session.write(f"INIT{module}:CONT 1")
                except LumionError as error:
                    _log.debug("%s: not given back to the front panel: %s", self._device, error)
            self._session.close()

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1."""
        self._check_open()
        return tuple(range(1, len(self._heads) + 1))

    @property
    def scpi(self) -> StrictScpi:
        """Settings that do not fail silently."""
        return self._scpi

    @property
    def clock(self) -> Clock:
        """The clock of driver and link."""
        return self._clock

    def head(self, channel: int) -> Head:
        """Return how a channel is addressed. Raises ``ConfigError`` if there is none of this number."""
        if channel not in self.channels:
            raise self._session.error(
                ConfigError,
                f"there is no {self.channel_word} {channel}",
                hint=f"This {self.model} has the {self.channel_word}s 1 to {len(self.channels)}.",
            )
        return self._heads[channel - 1]

    def wavelength_nm(self, channel: int) -> float:
        """Return the wavelength used for the responsivity, in nm."""
        return 1e9 * self._scpi.setting(f"{self.head(channel).sense}:POW:WAV?")

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength used for the responsivity; automatic ranging rests meanwhile, which it would disturb.

        Raises:
            LimitError: Outside the instrument's limits; nothing was sent.
            VerifyError: The instrument keeps a value that differs by more than ``WAVELENGTH_TOLERANCE_NM``.
        """
        head = self.idle_head(channel)
        header = f"{head.sense}:POW:WAV"
        label = f"wavelength of {self.channel_word} {channel}"
        with self._session.transaction():
            self._scpi.check_limits(header, label, wavelength_nm, 1e9, "nm")
            automatic = self._is_automatic(head)
            if automatic:
                self._scpi.set(f"{head.master}:POW:RANG:AUTO 0")
            try:
                self._scpi.set(f"{header} {wavelength_nm:.9g}NM")
            finally:
                if automatic:
                    self._scpi.set(f"{head.master}:POW:RANG:AUTO 1")
            found_nm = self.wavelength_nm(channel)
            self._scpi.verify(f"{label} in nm", wavelength_nm, found_nm, WAVELENGTH_TOLERANCE_NM)
            restore = partial(self.set_wavelength_nm, channel, wavelength_nm)
            tolerance_m = 1e-9 * WAVELENGTH_TOLERANCE_NM
            self.setup(channel).hold(
                HeldSetting(f"{header}?", 1e-9 * wavelength_nm, f"{label} in m", restore, tolerance_m)
            )

    def averaging_s(self, channel: int) -> float:
        """Return the averaging time in seconds."""
        head = self.head(channel)
        value_s = self._scpi.setting(f"{head.master}:POW:ATIM?")
        self._averaging_s[head.master] = value_s
        return value_s

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time, for all channels of the same module.

        Raises:
            LimitError: Outside the instrument's limits; nothing was sent.
            VerifyError: The instrument keeps a value that differs by more than 0.1 %.
        """
        header = f"{self.idle_head(channel).master}:POW:ATIM"
        label = f"averaging time of {self.channel_word} {channel}"
        with self._session.transaction():
            self._scpi.check_limits(header, label, averaging_s, 1.0, "s")
            self._scpi.set(f"{header} {averaging_s:.9g}S")
            found_s = self.averaging_s(channel)
            self._scpi.verify(f"{label} in s", averaging_s, found_s, AVERAGING_TOLERANCE * averaging_s)
            self.setup(channel).also_restore("averaging", partial(self.set_averaging_s, channel, averaging_s))

    def range_dbm(self, channel: int) -> float | None:
        """Return the power range in dBm, or ``None`` while ranging is automatic."""
        head = self.head(channel)
        with self._session.transaction():
            return None if self._is_automatic(head) else self._scpi.setting(f"{head.sense}:POW:RANG?")

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the power range, or automatic ranging with ``None``, which is common to all channels of a module.

        Raises:
            ConfigError: Not a multiple of 10 dB, which the instrument would round.
            LimitError: Outside the instrument's limits; nothing was sent.
            VerifyError: The instrument keeps another range.
        """
        head = self.idle_head(channel)
        header, automatic_header = f"{head.sense}:POW:RANG", f"{head.master}:POW:RANG:AUTO"
        label = f"{self.channel_word} {channel}"
        with self._session.transaction():
            if range_dbm is not None:
                self._scpi.check_limits(header, f"range of {label}", range_dbm, 1.0, "dBm")
                if range_dbm % RANGE_STEP_DB:
                    raise self._session.error(
                        ConfigError,
                        f"a range of {range_dbm:g} dBm does not exist on {label}",
                        hint=f"Ranges are multiples of {RANGE_STEP_DB:g} dBm.",
                    )
            automatic = int(range_dbm is None)
            self._scpi.set(f"{automatic_header} {automatic}")
            if range_dbm is not None:
                self._scpi.set(f"{header} {range_dbm:g}DBM")
            found = self._scpi.setting(f"{automatic_header}?")
            self._scpi.verify(f"automatic ranging of {label} (1 is on)", automatic, found, 0)
            if range_dbm is not None:
                found_dbm = self._scpi.setting(f"{header}?")
                self._scpi.verify(f"range of {label} in dBm", range_dbm, found_dbm, _RANGE_TOLERANCE_DB)
            self.setup(channel).also_restore("range", partial(self.set_range_dbm, channel, range_dbm))

    def settings(self, channel: int) -> MeterSettings:
        """Ask for the settings in force."""
        with self._session.transaction():
            return MeterSettings(self.wavelength_nm(channel), self.averaging_s(channel), self.range_dbm(channel))

    def limits(self, channel: int) -> MeterLimits:
        """Ask for the limits of the settings."""
        head = self.head(channel)
        with self._session.transaction():
            return MeterLimits(
                wavelength_nm=self._scpi.limits(f"{head.sense}:POW:WAV", 1e9),
                averaging_s=self._scpi.limits(f"{head.master}:POW:ATIM", 1.0),
                range_dbm=self._scpi.limits(f"{head.sense}:POW:RANG", 1.0),
            )

    def zero(self) -> None:
        """Take the dark as zero on all channels; every channel has to be dark.

        Raises:
            DeviceError: The instrument says that it failed, such as with light on.
            BusyError: A run is under way.
        """
        self.check_idle("zero")
        deadline = self._clock.now() + _ZERO_PATIENCE_S
        self.errors()
        # Written without waiting for *OPC?, which would hold the line for all ports.
        self._session.write(f"{self.head(1).sense}:CORR:COLL:ZERO:ALL")
        while not self._scpi.operations_done() and self._clock.now() < deadline:
            self._clock.sleep(_ZERO_POLL_S)
        failures = [
            f"{self.channel_word} {channel}: {why}" for channel in self.channels if (why := self._unzero(channel))
        ]
        # The status query is not known to every model; its undefined header is no failure of zeroing.
        failures += [f"{code} {text}" for code, text in self.errors() if code != _UNDEFINED_HEADER]
        if failures:
            raise self._zeroing_failed(failures, "CORR:COLL:ZERO:ALL")

    def read(self, channel: int) -> PowerReading:
        """Trigger and return one reading. Raises ``BusyError`` while a run is under way."""
        head = self.idle_head(channel)
        with self._session.transaction():
            value_w = self._scpi.number(f"{head.read}:POW?", self._timeout_s((head,)), self.setup(channel))
            return self._reading(channel, value_w)

    def read_all(self) -> tuple[PowerReading, ...]:
        """Trigger all channels together and return one reading per channel."""
        self.check_idle("read_all")
        return self.setup_of(self.channels).read_held(self._read_block)

    def setup(self, channel: int) -> HeldSetup:
        """Return the settings that the readings of a channel depend on."""
        return self._setups[channel - 1]

    def setup_of(self, channels: Sequence[int]) -> HeldSetup:
        """Return the settings that the readings of some channels depend on, to be read together."""
        return HeldSetup.merge(self.setup(channel) for channel in channels)

    @property
    def largest_w(self) -> float:
        """Nominal power of the highest range of any of its sensors."""
        return w_from_dbm(self.highest_range_dbm)

    def check_idle(self, label: str) -> None:
        """Refuse a call that would end a run. Raises ``BusyError`` naming both."""
        self._check_open()
        if self._run is not None:
            raise self._session.error(
                BusyError, f"{label}: {self._run} is under way", command=label, hint="Wait for the run, or stop it."
            )

    def begin_run(self, label: str) -> None:
        """Mark a run as under way. Raises ``BusyError`` if there is one."""
        with self._session.transaction():
            self.check_idle(label)
            self._run = label

    def end_run(self) -> None:
        """Mark that no run is under way."""
        self._run = None

    def idle_head(self, channel: int) -> Head:
        """Return how a channel is addressed. Raises ``ConfigError`` if it is not there, ``BusyError`` in a run."""
        head = self.head(channel)
        self.check_idle(f"{self.channel_word} {channel}")
        return head

    def wrong_block(self, command: str, payload: Sized, expected: str) -> FrameError:
        """Return the error of a block of the wrong length."""
        return self._session.error(
            FrameError, f"{command} gave {len(payload)} bytes for {expected}", hint="Close and open the meter again."
        )

    def _prepare(self, channel: int) -> None:
        """Make readings of a channel absolute, in watts, and triggered by the reading; hold this, and its offset."""
        head, setup, name = self.head(channel), self.setup(channel), f"{self.channel_word} {channel}"
        for header, value, label in (
            # Left over from the front panel, a reference would make readings ratios in dB.
            (f"{head.sense}:POW:REF:STAT", 0, f"relative readings of {name} (0 is off)"),
            (f"{head.sense}:POW:UNIT", 1, f"unit of {name} (1 is watt)"),
            # With continuous triggering READ is the same as FETCH, and may give a value from before the call.
            (f"INIT{head.module}:CONT", 0, f"continuous triggering of {name} (0 is off)"),
        ):
            restore = partial(self._scpi.set, f"{header} {value}")
            restore()
            setup.hold(HeldSetting(f"{header}?", value, label, restore))
        self._hold_offset(head, setup, f"calibration offset of {name} in dB")
        setup.restore_changed()
        self.averaging_s(channel)

    def _hold_offset(self, head: Head, setup: HeldSetup, label: str) -> None:
        """Hold the offset that the user of the instrument gave it: readings are corrected by it."""
        header = f"{head.sense}:CORR"
        offset_db = self._scpi.setting(f"{header}?")
        restore = partial(
            self._scpi.set_number, header, f"{offset_db:.9g}DB", offset_db, 1.0, _OFFSET_TOLERANCE_DB, label
        )
        setup.hold(HeldSetting(f"{header}?", offset_db, label, restore, _OFFSET_TOLERANCE_DB))

    def _read_block(self) -> tuple[PowerReading, ...]:
        """Trigger all channels and return their readings, in whatever unit the instrument has now."""
        channels = self.channels
        payload = self._session.query_block("READ:POW:ALL?", self._timeout_s(self._heads))
        if len(payload) != 4 * len(channels):
            raise self.wrong_block("READ:POW:ALL?", payload, f"{len(channels)} {self.channel_word}s of 4 bytes")
        values_w = np.frombuffer(payload, "<f4").tolist()
        return tuple(self._reading(channel, value_w) for channel, value_w in zip(channels, values_w, strict=True))

    def _reading(self, channel: int, value_w: float) -> PowerReading:
        return reading(channel, value_w, self._clock.now(), self.largest_w)

    def _is_automatic(self, head: Head) -> bool:
        return self._scpi.setting(f"{head.master}:POW:RANG:AUTO?") != 0

    def _unzero(self, channel: int) -> str:
        """Return why zeroing a channel failed, or nothing.

        The status query is optional: joined with one that always answers, a unit that lacks it costs no time-out.
        """
        status, _, _ = self._session.query(f"{self.head(channel).sense}:CORR:COLL:ZERO?;*OPC?").rpartition(";")
        return "" if not status or float(status) == 0 else f"status {status}"

    def _timeout_s(self, heads: Sequence[Head]) -> float:
        """Return the time for one reading, from the averaging times last read back."""
        longest_s = max(self._averaging_s.get(head.master, 0.0) for head in heads)
        return max(_SHORTEST_TIMEOUT_S, _TIMEOUT_FACTOR * longest_s)
