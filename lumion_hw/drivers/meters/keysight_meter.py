"""Base of the drivers for Keysight (Agilent) power meters."""

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
"""Largest accepted difference between the wavelength set and read back, in nm (the step is 0.01 nm)."""
AVERAGING_TOLERANCE = 1e-3
"""Largest accepted relative difference between the averaging time set and read back."""
# The instrument silently rounds to the nearest multiple of 10 dB (N774xC Programming Guide).
RANGE_STEP_DB = 10.0
_RANGE_TOLERANCE_DB = 0.5
_OFFSET_TOLERANCE_DB = 1e-3
_UNDEFINED_HEADER = -113
# A reading takes its averaging time, up to 10 s, which exceeds the usual time-out of 2 s.
_SHORTEST_TIMEOUT_S = 2.0
_TIMEOUT_FACTOR = 1.2
_ZERO_TIMEOUT_S = 120.0  # eight ports, some seconds each
_ZERO_POLL_S = 0.25


@dataclass(frozen=True)
class Head:
    """SCPI address of one channel.

    Attributes:
        sense: Header of the channel's settings, such as ``SENS2:CHAN2``.
        master: Header of the settings that all channels of the module share: averaging, automatic ranging, logging.
        read: Header of the channel's readings.
        module: Module number, for triggers.
    """

    sense: str
    master: str
    read: str
    module: int


class KeysightMeter(ScpiMeter):
    """Base of Keysight power meter drivers; implements ``PowerMeter``. Thread-safe; every setting is read back.

    Readings are in watts, and every reading triggers a new measurement. Opening switches references off. The link is a
    raw socket (port 5025) or VISA; arguments as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.

    Attributes:
        channel_word: Name of a channel, for messages.
        highest_range_dbm: Highest range of any sensor.
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
    def read_heads(self) -> tuple[Head, ...]:
        """Return the SCPI addresses of the channels. Raises ``IdentityError`` for unexpected channels."""

    def open(self) -> None:
        """Open the link, check the identity, select watts, and switch references off.

        Raises the errors of :meth:`Driver.open`.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._heads = self.read_heads()
            self._averaging_s = {}
            self._run = None
            self.errors()  # discard errors of earlier users
            self._setups = tuple(HeldSetup(self._session) for _ in self._heads)
            for channel in self.channels:
                self._prepare(channel)

    def close(self) -> None:
        """Close the link and let the meter measure continuously; idempotent, never raises."""
        with self._closing:
            identity, self._identity = self._identity, None
            if identity is not None and not self._session.is_out_of_sync:
                try:
                    for module in dict.fromkeys(head.module for head in self._heads):
                        self._session.write(f"INIT{module}:CONT 1")
                except LumionError as error:
                    _log.debug("%s: continuous triggering could not be restored: %s", self._device, error)
            self._session.close()

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers of the power meter, from 1."""
        self._check_open()
        return tuple(range(1, len(self._heads) + 1))

    @property
    def scpi(self) -> StrictScpi:
        """Sends commands to this instrument and checks every reply."""
        return self._scpi

    @property
    def clock(self) -> Clock:
        """Clock of driver and link."""
        return self._clock

    def head(self, channel: int) -> Head:
        """Return the address of a channel. Raises ``ConfigError`` if the channel does not exist."""
        if channel not in self.channels:
            raise self._session.error(
                ConfigError,
                f"there is no {self.channel_word} {channel}",
                hint=f"This {self.model} has the {self.channel_word}s 1 to {len(self.channels)}.",
            )
        return self._heads[channel - 1]

    def wavelength_nm(self, channel: int) -> float:
        """Return the wavelength for the responsivity, in nm."""
        return 1e9 * self._scpi.setting(f"{self.head(channel).sense}:POW:WAV?")

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength for the responsivity. Raises ``LimitError`` or ``VerifyError``."""
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
            actual_nm = self.wavelength_nm(channel)
            self._scpi.verify(f"{label} in nm", wavelength_nm, actual_nm, WAVELENGTH_TOLERANCE_NM)
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
        """Set the averaging time of all channels of the module. Raises ``LimitError`` or ``VerifyError``."""
        header = f"{self.idle_head(channel).master}:POW:ATIM"
        label = f"averaging time of {self.channel_word} {channel}"
        with self._session.transaction():
            self._scpi.check_limits(header, label, averaging_s, 1.0, "s")
            self._scpi.set(f"{header} {averaging_s:.9g}S")
            actual_s = self.averaging_s(channel)
            self._scpi.verify(f"{label} in s", averaging_s, actual_s, AVERAGING_TOLERANCE * averaging_s)
            self.setup(channel).also_restore("averaging", partial(self.set_averaging_s, channel, averaging_s))

    def range_dbm(self, channel: int) -> float | None:
        """Return the power range in dBm, or ``None`` if ranging is automatic."""
        head = self.head(channel)
        with self._session.transaction():
            return None if self._is_automatic(head) else self._scpi.setting(f"{head.sense}:POW:RANG?")

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the power range. ``None`` selects automatic ranging of all channels of the module.

        Raises ``LimitError`` or ``VerifyError``, and ``ConfigError`` for a range that is not a multiple of 10 dB.
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
            actual = self._scpi.setting(f"{automatic_header}?")
            self._scpi.verify(f"automatic ranging of {label} (1 is on)", automatic, actual, 0)
            if range_dbm is not None:
                actual_dbm = self._scpi.setting(f"{header}?")
                self._scpi.verify(f"range of {label} in dBm", range_dbm, actual_dbm, _RANGE_TOLERANCE_DB)
            self.setup(channel).also_restore("range", partial(self.set_range_dbm, channel, range_dbm))

    def settings(self, channel: int) -> MeterSettings:
        """Return the present settings."""
        with self._session.transaction():
            return MeterSettings(self.wavelength_nm(channel), self.averaging_s(channel), self.range_dbm(channel))

    def limits(self, channel: int) -> MeterLimits:
        """Return the limits of the settings."""
        head = self.head(channel)
        with self._session.transaction():
            return MeterLimits(
                wavelength_nm=self._scpi.limits(f"{head.sense}:POW:WAV", 1e9),
                averaging_s=self._scpi.limits(f"{head.master}:POW:ATIM", 1.0),
                range_dbm=self._scpi.limits(f"{head.sense}:POW:RANG", 1.0),
            )

    def zero(self) -> None:
        """Zero all channels; every channel must be dark.

        Raises the errors of :meth:`PowerMeter.zero`, and ``BusyError`` during a log.
        """
        self.check_idle("zero")
        deadline = self._clock.now() + _ZERO_TIMEOUT_S
        self.errors()
        # Polled instead of *OPC?, which would block until all ports are done.
        self._session.write(f"{self.head(1).sense}:CORR:COLL:ZERO:ALL")
        while not self._scpi.are_operations_complete() and self._clock.now() < deadline:
            self._clock.sleep(_ZERO_POLL_S)
        failures = [
            f"{self.channel_word} {channel}: {reasons}"
            for channel in self.channels
            if (reasons := self._zeroing_problem(channel))
        ]
        # Some models do not have the status query; its "undefined header" error is not a failure.
        failures += [f"{code} {text}" for code, text in self.errors() if code != _UNDEFINED_HEADER]
        if failures:
            raise self._zeroing_failed(failures, "CORR:COLL:ZERO:ALL")

    def read(self, channel: int) -> PowerReading:
        """Trigger one power reading and return it. Raises ``BusyError`` during a log."""
        head = self.idle_head(channel)
        with self._session.transaction():
            value_w = self._scpi.number(f"{head.read}:POW?", self._timeout_s((head,)), self.setup(channel))
            return self._reading(channel, value_w)

    def read_all(self) -> tuple[PowerReading, ...]:
        """Trigger all channels together and return one reading per channel."""
        self.check_idle("read_all")
        return self.merged_setup(self.channels).read_held(self._read_block)

    def setup(self, channel: int) -> HeldSetup:
        """Return the settings that are checked at every reading of a channel."""
        return self._setups[channel - 1]

    def merged_setup(self, channels: Sequence[int]) -> HeldSetup:
        """Return the settings that are checked at every reading of these channels."""
        return HeldSetup.merge(self.setup(channel) for channel in channels)

    @property
    def largest_w(self) -> float:
        """Nominal power of the highest range of any sensor, in W."""
        return w_from_dbm(self.highest_range_dbm)

    def check_idle(self, label: str) -> None:
        """Raise ``BusyError`` if a log is in progress."""
        self._check_open()
        if self._run is not None:
            raise self._session.error(
                BusyError, f"{label}: {self._run} is in progress", command=label, hint="Wait for the log, or stop it."
            )

    def mark_run_started(self, label: str) -> None:
        """Record that a log has started. Raises ``BusyError`` if another log is in progress."""
        with self._session.transaction():
            self.check_idle(label)
            self._run = label

    def mark_run_ended(self) -> None:
        """Record that the log has ended."""
        self._run = None

    def idle_head(self, channel: int) -> Head:
        """Return the address of a channel. Raises ``ConfigError`` for a missing channel, ``BusyError`` during a log."""
        head = self.head(channel)
        self.check_idle(f"{self.channel_word} {channel}")
        return head

    def wrong_block(self, command: str, payload: Sized, expected: str) -> FrameError:
        """Return the error for a reply with the wrong number of values."""
        return self._session.error(
            FrameError,
            f"{command} returned {len(payload)} bytes instead of {expected}",
            hint="Close and open the meter again.",
        )

    def _prepare(self, channel: int) -> None:
        head, setup, name = self.head(channel), self.setup(channel), f"{self.channel_word} {channel}"
        for header, value, label in (
            # A reference set at the front panel would make readings ratios in dB.
            (f"{head.sense}:POW:REF:STAT", 0, f"relative readings of {name} (0 is off)"),
            (f"{head.sense}:POW:UNIT", 1, f"unit of {name} (1 is watt)"),
            # With continuous triggering, READ equals FETCH and may return a value from before the call.
            (f"INIT{head.module}:CONT", 0, f"continuous triggering of {name} (0 is off)"),
        ):
            restore = partial(self._scpi.set, f"{header} {value}")
            restore()
            setup.hold(HeldSetting(f"{header}?", value, label, restore))
        self._hold_offset(head, setup, f"calibration offset of {name} in dB")
        setup.restore_changed()
        self.averaging_s(channel)

    def _hold_offset(self, head: Head, setup: HeldSetup, label: str) -> None:
        header = f"{head.sense}:CORR"
        offset_db = self._scpi.setting(f"{header}?")
        restore = partial(
            self._scpi.set_number, header, f"{offset_db:.9g}DB", offset_db, 1.0, _OFFSET_TOLERANCE_DB, label
        )
        setup.hold(HeldSetting(f"{header}?", offset_db, label, restore, _OFFSET_TOLERANCE_DB))

    def _read_block(self) -> tuple[PowerReading, ...]:
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

    def _zeroing_problem(self, channel: int) -> str:
        status, _, _ = self._session.query(f"{self.head(channel).sense}:CORR:COLL:ZERO?;*OPC?").rpartition(";")
        return "" if not status or float(status) == 0 else f"status {status}"

    def _timeout_s(self, heads: Sequence[Head]) -> float:
        longest_s = max(self._averaging_s.get(head.master, 0.0) for head in heads)
        return max(_SHORTEST_TIMEOUT_S, _TIMEOUT_FACTOR * longest_s)
