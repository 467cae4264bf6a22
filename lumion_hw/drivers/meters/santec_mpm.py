"""Driver for Santec MPM-210 and MPM-210H: mainframes with up to five four-port power meter modules, TCP port 5000.

Written from the list of commands, without a manual. Logs at external trigger pulses follow a public client
(unverified).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock, Deadline, deadline_after
from lumion_hw.drivers.held_setup import HeldSetting, HeldSetup
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.meters.scpi_meter import ScpiMeter
from lumion_hw.drivers.meters.wire_powers import range_states, reading
from lumion_hw.drivers.scpi import NOT_A_VALUE, is_value
from lumion_hw.errors import (
    BusyError,
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import MeterLimits, MeterSettings, PowerLog, PowerReading, RangeState
from lumion_hw.quantities import w_from_dbm

MODELS = ("MPM-210", "MPM-210H")
PORTS_PER_MODULE = 4
# From the command list; there is no query for limits.
WAVELENGTHS_NM = (1250.0, 1630.0)
AVERAGING_S = (1e-5, 10.0)
LARGEST_LOG = 1_000_000
RANGE_OF_LEVEL_DBM = {1: 10.0, 2: 0.0, 3: -10.0, 4: -20.0, 5: -30.0}
"""Power range of each gain level, in dBm (unverified)."""
LARGEST_W = w_from_dbm(max(RANGE_OF_LEVEL_DBM.values()))
_N_MODULES = 5
_COMMON = 0
"""Key for settings that all channels share."""
_WAVELENGTH_TOLERANCE_NM = 0.006
_AVERAGING_TOLERANCE = 1e-3
_MILLIWATT = 1
_ZERO_S = 3.0  # approximate, from the command list
# Ten times that: the reply to ERR? may wait until zeroing has ended.
_ZERO_TIMEOUT_S = 30.0
_FRESH = 2.0  # the first complete average after a call ends at most two averaging times later
_POLL_S = 0.05
_BASE_TIMEOUT_S = 2.0
_TRIGGER_S = 0.01  # period of the internal trigger for runs at constant wavelength
_SLOWEST_BYTES_PER_S = 50e3


class SantecMpm(ScpiMeter):
    """Driver of one mainframe; implements ``LoggingMeter``. Thread-safe; every setting is read back.

    Channels are numbered from 1, four for each installed module. A reading waits for an average that began after the
    call. Arguments as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
    """

    makers = ("SANTEC",)
    models = MODELS
    terminator = b"\r\n"
    max_samples = LARGEST_LOG
    _modules: tuple[int, ...] = ()
    _averaging_s = 0.0
    _is_running = False
    _setups: dict[int, HeldSetup]

    def open(self) -> None:
        """Open the link, check the identity, detect the modules, and select milliwatts.

        Raises the errors of :meth:`Driver.open`, and ``DeviceError`` if no module is installed.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._modules = self._read_modules()
            self._is_running = False
            # The command list has no way to send several queries in one message.
            self._setups = {key: HeldSetup(self._session, joined=False) for key in (_COMMON, *self.channels)}
            self._set("UNIT", str(_MILLIWATT), "UNIT?", _MILLIWATT, 0.0, "unit (1 is mW)", held_by=_COMMON)
            self._hold_averaging(self._scpi.setting("AVG?"))

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1: four per module."""
        self._check_open()
        return tuple(range(1, PORTS_PER_MODULE * len(self._modules) + 1))

    def module_and_port(self, channel: int) -> tuple[int, int]:
        """Return module (0 to 4) and port (1 to 4) of a channel. Raises ``ConfigError`` for a missing channel."""
        if channel not in self.channels:
            raise self._session.error(
                ConfigError,
                f"there is no channel {channel}",
                hint=f"The modules {self._modules} have the channels 1 to {len(self.channels)}.",
            )
        location, port = divmod(channel - 1, PORTS_PER_MODULE)
        return self._modules[location], port + 1

    def wavelength_nm(self, channel: int) -> float:
        """Return the wavelength for the responsivity, in nm."""
        module, port = self.module_and_port(channel)
        return self._scpi.setting(f"DWAV? {module},{port}")

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength of one channel, 1250 to 1630 nm. Raises ``LimitError`` or ``VerifyError``."""
        module, port = self.module_and_port(channel)
        label = f"wavelength of channel {channel}"
        self._scpi.check_in_range(label, wavelength_nm, *WAVELENGTHS_NM, "nm")
        location = f"{module},{port}"
        self._set(
            "DWAV",
            f"{location},{wavelength_nm:.9g}",
            f"DWAV? {location}",
            wavelength_nm,
            _WAVELENGTH_TOLERANCE_NM,
            f"{label} in nm",
            held_by=channel,
        )

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time of all channels, 10 us to 10 s. Raises ``LimitError`` or ``VerifyError``."""
        self.module_and_port(channel)
        self._scpi.check_in_range("averaging time", averaging_s, *AVERAGING_S, "s")
        self._hold_averaging(self._set_averaging_ms(1e3 * averaging_s))

    def _set_averaging_ms(self, requested_ms: float) -> float:
        tolerance_ms = _AVERAGING_TOLERANCE * requested_ms
        return self._set("AVG", f"{requested_ms:.6g}", "AVG?", requested_ms, tolerance_ms, "averaging time in ms")

    def _hold_averaging(self, averaging_ms: float) -> None:
        self._averaging_s = 1e-3 * averaging_ms
        restore = partial(self._set_averaging_ms, averaging_ms)
        tolerance_ms = _AVERAGING_TOLERANCE * averaging_ms
        self._setups[_COMMON].hold(HeldSetting("AVG?", averaging_ms, "averaging time in ms", restore, tolerance_ms))

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the range of one channel. ``None`` selects automatic ranging of the channel's whole module.

        Raises ``LimitError`` outside -30 to 10 dBm, ``ConfigError`` for a range that the meter does not have, or
        ``VerifyError`` if the gain level read back differs.
        """
        module, _ = self.module_and_port(channel)
        if range_dbm is None:
            self._set("DAUTO", f"{module},1", f"DAUTO? {module}", 1.0, 0.0, f"automatic ranging of module {module}")
            self._setups[channel].also_restore("range", partial(self.set_range_dbm, channel, None))
            return
        ranges = RANGE_OF_LEVEL_DBM.values()
        self._scpi.check_in_range(f"range of channel {channel}", range_dbm, min(ranges), max(ranges), "dBm")
        levels = [level for level, level_dbm in RANGE_OF_LEVEL_DBM.items() if level_dbm == range_dbm]
        if not levels:
            raise self._session.error(
                ConfigError,
                f"a range of {range_dbm:g} dBm does not exist",
                hint=f"Available: {', '.join(f'{range_:g}' for range_ in ranges)} dBm.",
            )
        self.set_gain_level(channel, levels[0])

    def settings(self, channel: int) -> MeterSettings:
        """Return the present settings."""
        module, port = self.module_and_port(channel)
        with self._session.transaction():
            range_dbm = None
            if not self._scpi.setting(f"DAUTO? {module}"):
                level = int(self._scpi.setting(f"DLEV? {module},{port}"))
                if level not in RANGE_OF_LEVEL_DBM:
                    raise self._scpi.wrong_shape("DLEV?", str(level), "a gain level from 1 to 5")
                range_dbm = RANGE_OF_LEVEL_DBM[level]
            return MeterSettings(self.wavelength_nm(channel), 1e-3 * self._scpi.setting("AVG?"), range_dbm)

    def limits(self, channel: int) -> MeterLimits:
        """Return the limits of the settings."""
        self.module_and_port(channel)
        ranges_dbm = RANGE_OF_LEVEL_DBM.values()
        return MeterLimits(WAVELENGTHS_NM, AVERAGING_S, (min(ranges_dbm), max(ranges_dbm)))

    def set_gain_level(self, channel: int, level: int) -> None:
        """Set the gain level of one channel, 1 (most light) to 5 (least). Raises ``LimitError`` or ``VerifyError``.

        Automatic ranging is switched off for the channel's whole module.
        """
        module, port = self.module_and_port(channel)
        levels = RANGE_OF_LEVEL_DBM
        self._scpi.check_in_range(f"gain level of channel {channel}", level, min(levels), max(levels), "")
        with self._session.transaction():
            self._set("DAUTO", f"{module},0", f"DAUTO? {module}", 0.0, 0.0, f"automatic ranging of module {module}")
            location = f"{module},{port}"
            self._set(
                "DLEV", f"{location},{level}", f"DLEV? {location}", level, 0.0, f"gain level of channel {channel}"
            )
            self._setups[channel].also_restore("range", partial(self.set_gain_level, channel, level))

    def zero(self) -> None:
        """Zero all channels, which takes about 3 s. Raises the errors of :meth:`PowerMeter.zero`."""
        self._check_idle("zero")
        with self._session.transaction():
            self.errors()
            self._session.write("ZERO")
            self._clock.sleep(_ZERO_S)
            failures = self._last_error(_ZERO_TIMEOUT_S)
        if failures:
            code, text = failures[0]
            raise self._zeroing_failed([f"{code} {text}"], "ZERO", code)

    def read(self, channel: int) -> PowerReading:
        """Return one power reading, averaged after the call."""
        module, port = self.module_and_port(channel)
        self._check_idle("read")
        return self._merged_setup((channel,)).read_held(lambda: self._read_fresh((module,)))[port - 1]

    def read_all(self) -> tuple[PowerReading, ...]:
        """Return one reading per channel, averaged after the call. Modules are read one after the other."""
        self._check_idle("read_all")
        return self._merged_setup(self.channels).read_held(lambda: self._read_fresh(self._modules))

    def log(self, channels: tuple[int, ...], n_samples: int, timeout_s: float | None = None) -> PowerLog:
        """Log power samples at the meter's internal trigger and wait for the end of the log.

        The samples are 10 ms apart, or the next multiple of 10 ms above the averaging time. Ranging is automatic only
        if it is automatic for all logged modules. Raises the errors of :meth:`fetch`.

        Args:
            channels: Channels to return; the meter logs all channels.
            n_samples: Samples per channel, at most 1 000 000; otherwise ``LimitError`` is raised.
            timeout_s: Longest wait in s, from now; by default 2 s plus 1.2 times the duration of the log.
        """
        # 1e-6 allows for rounding of the quotient: 10 ms of averaging are one period and not two.
        period_s = _TRIGGER_S * max(math.ceil(self._averaging_s / _TRIGGER_S - 1e-6), 1)
        wait_s = _BASE_TIMEOUT_S + 1.2 * n_samples * period_s if timeout_s is None else timeout_s
        return self._start(channels, n_samples, period_s).wait(wait_s)

    def start_triggered_log(
        self, channels: Sequence[int], n_samples: int, averaging_s: float, *, internal_trigger: bool = False
    ) -> MpmRun:
        """Start a log with an averaged sample at each pulse at the trigger input. Gain levels do not change.

        Raises the errors of :meth:`LoggingMeter.start_triggered_log`, and ``NotSupportedError`` if ``internal_trigger``
        is set.
        """
        if internal_trigger:
            raise self._session.error(
                NotSupportedError,
                "this meter has no internal trigger pulses",
                command="start_triggered_log",
                hint="Connect the trigger output of a laser to its trigger input.",
            )
        self._check_samples(n_samples)
        with self._session.transaction():
            self.set_averaging_s(channels[0], averaging_s)
            return self._start(channels, n_samples, None)

    def _start(self, channels: Sequence[int], n_samples: int, period_s: float | None) -> MpmRun:
        locations = [self.module_and_port(channel) for channel in channels]
        self._check_samples(n_samples)
        with self._session.transaction():
            self._merged_setup(channels).restore_changed()
            self._set("LOGN", str(n_samples), "LOGN?", n_samples, 0.0, "length of the log")
            external = int(period_s is None)
            self._set("TRIG", str(external), "TRIG?", external, 0.0, "trigger of runs (0 is internal)")
            modules = sorted({module for module, _ in locations})
            # WMOD CONST2 ranges automatically, CONST1 keeps the gain levels; one setting for all modules.
            automatic = all(self._scpi.setting(f"DAUTO? {module}") == 1.0 for module in modules)
            self._session.write(f"WMOD {'CONST2' if automatic and not external else 'CONST1'}")
            run = MpmRun(self, self._clock, tuple(channels), n_samples, period_s)
            self._is_running = True
            self._session.write("MEAS")
            return run

    def fetch(self, channels: Sequence[int], n_samples: int, timeout_s: float) -> NDArray[np.float64]:
        """Wait for the end of the log; return its samples in watts, one row per channel.

        Raises:
            LimitError: ``timeout_s`` is negative or not a number.
            DeviceTimeoutError: The log did not complete in this time.
            FrameError: A channel returned a different number of samples.
            VerifyError: Another program changed unit, wavelength or averaging time during the log.
        """
        self._wait(deadline_after(self._clock, timeout_s), n_samples)
        locations = [self.module_and_port(channel) for channel in channels]
        values_w = np.stack([self._logged_w(module, port, n_samples) for module, port in locations])
        self._merged_setup(
            channels
        ).check_unchanged()  # a changed setting is an error, because a run cannot be repeated
        return values_w

    def stop_run(self) -> None:
        """Stop the present log."""
        self._is_running = False
        self._session.write("STOP")

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Return the last error, if there is one; the instrument has no error queue."""
        return self._last_error()

    def _last_error(self, timeout_s: float | None = None) -> tuple[tuple[int, str], ...]:
        reply = self._session.query("ERR?", timeout_s)
        code_text, _, text = reply.partition(",")
        try:
            code = int(code_text)
        except ValueError:
            raise self._scpi.wrong_shape("ERR?", reply, "a number and a text") from None
        return ((code, text.strip().strip('"')),) if code else ()

    def _read_modules(self) -> tuple[int, ...]:
        flags = self._scpi.numbers("IDIS?")
        if len(flags) != _N_MODULES or not set(flags) <= {0.0, 1.0}:
            raise self._scpi.wrong_shape("IDIS?", str(flags), "five flags")
        modules = tuple(number for number, flag in enumerate(flags) if flag)
        if not modules:
            raise self._session.error(
                DeviceError,
                "no module is installed",
                command="IDIS?",
                hint="Install a module while the mainframe is switched off.",
            )
        return modules

    def _check_samples(self, n_samples: int) -> None:
        self._scpi.check_in_range("number of samples", n_samples, 1, LARGEST_LOG, "samples")

    def _check_idle(self, label: str) -> None:
        self._check_open()
        if self._is_running:
            raise self._session.error(
                BusyError, f"{label}: a log is in progress", command=label, hint="Wait for the log, or stop it."
            )

    def _set(
        self,
        command: str,
        arguments: str,
        query: str,
        requested: float,
        tolerance: float,
        label: str,
        held_by: int | None = None,
    ) -> float:
        self._check_idle(command)
        with self._session.transaction():
            self._session.write(f"{command} {arguments}")
            actual = self._scpi.setting(query)
            if abs(actual - requested) <= tolerance:
                if held_by is not None:
                    restore = partial(self._set, command, arguments, query, requested, tolerance, label)
                    self._setups[held_by].hold(HeldSetting(query, requested, label, restore, tolerance))
                return actual
            raise self._session.error(
                VerifyError,
                label,
                wrote=requested,
                read=actual,
                hint=f"Last error of the instrument: {self.errors() or 'none'}.",
            )

    def _merged_setup(self, channels: Sequence[int]) -> HeldSetup:
        return HeldSetup.merge(self._setups[key] for key in (_COMMON, *channels))

    def _read_fresh(self, modules: Sequence[int]) -> tuple[PowerReading, ...]:
        self._clock.sleep(_FRESH * self._averaging_s)
        return tuple(reading_ for module in modules for reading_ in self._read_module(module))

    def _read_module(self, module: int) -> tuple[PowerReading, ...]:
        command = f"READ? {module}"
        with self._session.transaction():
            values_mw = self._scpi.numbers(command, _BASE_TIMEOUT_S + self._averaging_s)
            if len(values_mw) != PORTS_PER_MODULE:
                raise self._scpi.wrong_shape(command, str(values_mw), f"{PORTS_PER_MODULE} powers")
            first = 1 + PORTS_PER_MODULE * self._modules.index(module)
            now_s = self._clock.now()
            # Markers such as over-range are not scaled, so that they remain recognizable.
            values_w = enumerate((1e-3 * value if is_value(value) else value for value in values_mw), first)
            return tuple(reading(channel, value_w, now_s, LARGEST_W) for channel, value_w in values_w)

    def _wait(self, deadline: Deadline, n_samples: int) -> None:
        while (state := self._scpi.numbers("STAT?"))[0] != 1.0:
            if state[0] < 0.0 or self._clock.now() >= deadline:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"the log of {n_samples} samples did not complete and was stopped: state {state}",
                    command="STAT?",
                    hint="Check the triggers and the time limit.",
                )
            self._clock.sleep(_POLL_S)

    def _logged_w(self, module: int, port: int, n_samples: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        command = f"LOGG? {module},{port}"
        payload = self._session.query_block(command, _BASE_TIMEOUT_S + 4 * n_samples / _SLOWEST_BYTES_PER_S)
        if len(payload) != 4 * n_samples:
            raise self._scpi.wrong_shape(command, f"{len(payload)} bytes", f"{n_samples} samples of 4 bytes")
        # Markers are not scaled, so that they remain recognizable.
        values_mw = np.frombuffer(payload, "<f4").astype(np.float64)
        return np.where(np.abs(values_mw) < NOT_A_VALUE, 1e-3 * values_mw, values_mw)


class MpmRun:
    """A log in progress; implements ``LogRun``. End it with :meth:`wait` or :meth:`stop`.

    Args:
        meter: Meter that makes the log.
        clock: Clock of the link.
        channels: Channels to return; the meter logs all channels.
        n_samples: Samples per channel.
        period_s: Time between samples; ``None`` for external pulses.
    """

    def __init__(
        self, meter: SantecMpm, clock: Clock, channels: tuple[int, ...], n_samples: int, period_s: float | None
    ) -> None:
        self._meter, self._channels, self._n_samples, self._period_s = meter, channels, n_samples, period_s
        self._started_s = clock.now()
        self._ended = False

    def wait(self, timeout_s: float | None = None) -> PowerLog:
        """Wait for the last sample, stop the log, and return its samples. Raises the errors of :meth:`LogRun.wait`."""
        try:
            wait_s = _BASE_TIMEOUT_S if timeout_s is None else timeout_s
            values_w = self._meter.fetch(self._channels, self._n_samples, wait_s)
        finally:
            self.stop()
        states = range_states(values_w, LARGEST_W)
        values_w[states != RangeState.OK] = np.nan
        return PowerLog(self._channels, values_w, states, self._period_s, self._started_s)

    def stop(self) -> None:
        """End the log; idempotent."""
        if not self._ended:
            self._ended = True
            self._meter.stop_run()
