"""Santec MPM-210 and MPM-210H: mainframes with up to five four-port power meter modules, over TCP port 5000.

ASCII without a SCPI tree: a word, then arguments with commas; CR LF both ways. Wavelengths are nm, averaging is in
milliseconds and common to all ports, powers are mW or dBm. Modules are numbered 0 to 4, ports 1 to 4. Built from the
list of commands, since no manual is at hand; that ``TRIG 1`` and ``WMOD CONST1`` take one sample at each pulse is how a
public client measures spectra with a swept laser (check).
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
from lumion_hw.drivers.meters.wire_powers import reading, states_of
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
# Of the command list; this dialect has no query for limits.
WAVELENGTHS_NM = (1250.0, 1630.0)
AVERAGING_S = (1e-5, 10.0)
LARGEST_LOG = 1_000_000
RANGE_OF_LEVEL_DBM = {1: 10.0, 2: 0.0, 3: -10.0, 4: -20.0, 5: -30.0}
"""Range of each gain level. The command list has the levels only; the powers are recalled and to be confirmed."""
LARGEST_W = w_from_dbm(max(RANGE_OF_LEVEL_DBM.values()))
_N_MODULES = 5
_COMMON = 0
"""Stands for all channels among the numbers of channels."""
_WAVELENGTH_TOLERANCE_NM = 0.006
_AVERAGING_TOLERANCE = 1e-3
_MILLIWATT = 1
_ZERO_S = 3.0  # about, says the list
# Ten times what the list says: the reply to ERR? may wait until zeroing has ended.
_ZERO_TIMEOUT_S = 30.0
_FRESH = 2.0  # a free-running average that begins after a call ends at the latest two averaging times later
_POLL_S = 0.05
_PATIENCE_S = 2.0
_TRIGGER_S = 0.01  # the internal trigger of runs at constant wavelength comes every 10 ms
_SLOWEST_BYTES_PER_S = 50e3


class SantecMpm(ScpiMeter):
    """Driver of one mainframe; implements ``LoggingMeter``. Thread-safe; every set is read back.

    Channels are numbered from 1, four for each module that is plugged in; :meth:`module_and_port` tells which is which.
    The meter free-runs: a reading waits until its whole average was taken after the call. Unit, averaging time and the
    wavelengths that were set are held: each reading is read together with them (:mod:`lumion_hw.drivers.held_setup`).
    Args as in :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
    """

    makers = ("SANTEC",)
    models = MODELS
    terminator = b"\r\n"
    max_samples = LARGEST_LOG
    _modules: tuple[int, ...] = ()
    _averaging_s = 0.0
    _under_way = False
    _setups: dict[int, HeldSetup]

    def open(self) -> None:
        """Open the link, check the identity, find the modules, and set the unit to milliwatts.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Another instrument answers.
            DeviceError: No module is plugged in.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._identify()
            self._modules = self._find_modules()
            self._under_way = False
            # The command list has no way to send several queries in one message.
            self._setups = {each: HeldSetup(self._session, joined=False) for each in (_COMMON, *self.channels)}
            self._set("UNIT", str(_MILLIWATT), "UNIT?", _MILLIWATT, 0.0, "unit (1 is mW)", held_by=_COMMON)
            self._hold_averaging(self._scpi.setting("AVG?"))

    @property
    def channels(self) -> tuple[int, ...]:
        """Channel numbers, from 1: four per module."""
        self._check_open()
        return tuple(range(1, PORTS_PER_MODULE * len(self._modules) + 1))

    def module_and_port(self, channel: int) -> tuple[int, int]:
        """Return module (0 to 4) and port (1 to 4) of a channel. Raises ``ConfigError`` if there is no such channel."""
        if channel not in self.channels:
            raise self._session.error(
                ConfigError,
                f"there is no channel {channel}",
                hint=f"The modules {self._modules} have the channels 1 to {len(self.channels)}.",
            )
        place, port = divmod(channel - 1, PORTS_PER_MODULE)
        return self._modules[place], port + 1

    def wavelength_nm(self, channel: int) -> float:
        """Return the wavelength used for the responsivity, in nm."""
        module, port = self.module_and_port(channel)
        return self._scpi.setting(f"DWAV? {module},{port}")

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        """Set the wavelength of one channel.

        Raises:
            LimitError: Outside 1250 to 1630 nm; nothing was sent.
            VerifyError: The meter keeps another one.
        """
        module, port = self.module_and_port(channel)
        label = f"wavelength of channel {channel}"
        self._scpi.check_within(label, wavelength_nm, *WAVELENGTHS_NM, "nm")
        place = f"{module},{port}"
        self._set(
            "DWAV",
            f"{place},{wavelength_nm:.9g}",
            f"DWAV? {place}",
            wavelength_nm,
            _WAVELENGTH_TOLERANCE_NM,
            f"{label} in nm",
            held_by=channel,
        )

    def set_averaging_s(self, channel: int, averaging_s: float) -> None:
        """Set the averaging time, which is one for all channels.

        Raises:
            LimitError: Outside 10 us to 10 s; nothing was sent.
            VerifyError: The meter keeps another one.
        """
        self.module_and_port(channel)
        self._scpi.check_within("averaging time", averaging_s, *AVERAGING_S, "s")
        self._hold_averaging(self._set_averaging_ms(1e3 * averaging_s))

    def _set_averaging_ms(self, wanted_ms: float) -> float:
        tolerance_ms = _AVERAGING_TOLERANCE * wanted_ms
        return self._set("AVG", f"{wanted_ms:.6g}", "AVG?", wanted_ms, tolerance_ms, "averaging time in ms")

    def _hold_averaging(self, averaging_ms: float) -> None:
        """Hold an averaging time: how long a reading waits for a fresh average depends on it."""
        self._averaging_s = 1e-3 * averaging_ms
        restore = partial(self._set_averaging_ms, averaging_ms)
        tolerance_ms = _AVERAGING_TOLERANCE * averaging_ms
        self._setups[_COMMON].hold(HeldSetting("AVG?", averaging_ms, "averaging time in ms", restore, tolerance_ms))

    def set_range_dbm(self, channel: int, range_dbm: float | None) -> None:
        """Set the range of one channel by its gain level, or automatic ranging of its module with ``None``.

        Raises:
            LimitError: Outside -30 to 10 dBm; nothing was sent.
            ConfigError: No level has this range.
            VerifyError: The meter keeps another level.
        """
        module, _ = self.module_and_port(channel)
        if range_dbm is None:
            self._set("DAUTO", f"{module},1", f"DAUTO? {module}", 1.0, 0.0, f"automatic ranging of module {module}")
            self._setups[channel].also_restore("range", partial(self.set_range_dbm, channel, None))
            return
        ranges = RANGE_OF_LEVEL_DBM.values()
        self._scpi.check_within(f"range of channel {channel}", range_dbm, min(ranges), max(ranges), "dBm")
        levels = [level for level, each_dbm in RANGE_OF_LEVEL_DBM.items() if each_dbm == range_dbm]
        if not levels:
            raise self._session.error(
                ConfigError,
                f"a range of {range_dbm:g} dBm does not exist",
                hint=f"There are {', '.join(f'{range:g}' for range in ranges)} dBm.",
            )
        self.set_gain_level(channel, levels[0])

    def settings(self, channel: int) -> MeterSettings:
        """Ask for the settings in force."""
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
        """Return the limits of the settings, which are those of the command list."""
        self.module_and_port(channel)
        ranges_dbm = RANGE_OF_LEVEL_DBM.values()
        return MeterLimits(WAVELENGTHS_NM, AVERAGING_S, (min(ranges_dbm), max(ranges_dbm)))

    def set_gain_level(self, channel: int, level: int) -> None:
        """Set the gain of one channel, 1 (most light) to 5 (least), with automatic ranging of its module off.

        Raises:
            LimitError: No level from 1 to 5; nothing was sent.
            VerifyError: The meter keeps another level.
        """
        module, port = self.module_and_port(channel)
        levels = RANGE_OF_LEVEL_DBM
        self._scpi.check_within(f"gain level of channel {channel}", level, min(levels), max(levels), "")
        with self._session.transaction():
            self._set("DAUTO", f"{module},0", f"DAUTO? {module}", 0.0, 0.0, f"automatic ranging of module {module}")
            place = f"{module},{port}"
            self._set("DLEV", f"{place},{level}", f"DLEV? {place}", level, 0.0, f"gain level of channel {channel}")
            self._setups[channel].also_restore("range", partial(self.set_gain_level, channel, level))

    def zero(self) -> None:
        """Take the dark as zero on all channels, in about 3 s.

        Raises:
            DeviceError: The meter reports an error, such as with light on.
        """
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
        """Return one reading, averaged after the call."""
        module, port = self.module_and_port(channel)
        self._check_idle("read")
        return self._setup_of((channel,)).read_held(lambda: self._fresh((module,)))[port - 1]

    def read_all(self) -> tuple[PowerReading, ...]:
        """Return one reading per channel, averaged after the call; modules are asked one after the other."""
        self._check_idle("read_all")
        return self._setup_of(self.channels).read_held(lambda: self._fresh(self._modules))

    def log(self, channels: tuple[int, ...], n_samples: int, timeout_s: float | None = None) -> PowerLog:
        """Log samples at the pace of the internal trigger, and wait for them.

        They are 10 ms apart, or the next multiple of it above the averaging time. If all modules asked for range
        automatically, so does the run; otherwise every channel keeps the gain level it was set to.

        Args:
            channels: Channels to fetch; all are logged.
            n_samples: Samples per channel.
            timeout_s: Time from now; by default 2 s and 1.2 times the length of the run.

        Raises:
            LimitError: Not 1 to 1 000 000 samples, or the time is negative or no number; nothing was measured.
            DeviceTimeoutError: The run does not complete; it was stopped.
            FrameError: A channel gave another number of samples.
        """
        # 1e-6 for the quotient of floats: 10 ms of averaging are one period and not two.
        period_s = _TRIGGER_S * max(math.ceil(self._averaging_s / _TRIGGER_S - 1e-6), 1)
        patience_s = _PATIENCE_S + 1.2 * n_samples * period_s if timeout_s is None else timeout_s
        return self._start(channels, n_samples, period_s).wait(patience_s)

    def start_triggered_log(
        self, channels: Sequence[int], n_samples: int, averaging_s: float, *, internal_trigger: bool = False
    ) -> MpmRun:
        """Begin to wait for pulses at the trigger input, and average at each. Every channel keeps its gain level.

        Raises:
            NotSupportedError: ``internal_trigger``: there is no laser in this mainframe.
            LimitError: There are no such samples, or there is no such averaging time; nothing was changed.
            BusyError: A run is under way.
        """
        if internal_trigger:
            raise self._session.error(
                NotSupportedError,
                "this meter has no pulses of its own",
                command="start_triggered_log",
                hint="Lead the trigger output of a laser to its trigger input.",
            )
        self._check_samples(n_samples)
        with self._session.transaction():
            self.set_averaging_s(channels[0], averaging_s)
            return self._start(channels, n_samples, None)

    def _start(self, channels: Sequence[int], n_samples: int, period_s: float | None) -> MpmRun:
        """Start a run at the pace of the internal trigger, or at pulses where there is no period."""
        places = [self.module_and_port(channel) for channel in channels]
        self._check_samples(n_samples)
        with self._session.transaction():
            self._setup_of(channels).restore_changed()
            self._set("LOGN", str(n_samples), "LOGN?", n_samples, 0.0, "length of the log")
            external = int(period_s is None)
            self._set("TRIG", str(external), "TRIG?", external, 0.0, "trigger of runs (0 is internal)")
            modules = sorted({module for module, _ in places})
            # WMOD CONST2 ranges automatically, CONST1 keeps the levels; it is one setting for all modules.
            automatic = all(self._scpi.setting(f"DAUTO? {module}") == 1.0 for module in modules)
            self._session.write(f"WMOD {'CONST2' if automatic and not external else 'CONST1'}")
            run = MpmRun(self, self._clock, tuple(channels), n_samples, period_s)
            self._under_way = True
            self._session.write("MEAS")
            return run

    def fetch(self, channels: Sequence[int], n_samples: int, timeout_s: float) -> NDArray[np.float64]:
        """Wait for the end of the run under way; return its samples in watts, marks included, a row per channel.

        Raises:
            LimitError: The time is negative or no number.
            DeviceTimeoutError: It does not complete in this time from now.
            FrameError: A channel gave another number of samples.
            VerifyError: Somebody else changed unit, wavelength or averaging time during the run.
        """
        self._wait(deadline_after(self._clock, timeout_s), n_samples)
        places = [self.module_and_port(channel) for channel in channels]
        values_w = np.stack([self._logged_w(module, port, n_samples) for module, port in places])
        self._setup_of(channels).check_unchanged()  # the samples of a run cannot be taken again
        return values_w

    def stop_run(self) -> None:
        """End the run under way, and let readings be made again."""
        self._under_way = False
        self._session.write("STOP")

    def errors(self) -> tuple[tuple[int, str], ...]:
        """Return the last error, if there is one; the instrument keeps no queue."""
        return self._last_error()

    def _last_error(self, timeout_s: float | None = None) -> tuple[tuple[int, str], ...]:
        reply = self._session.query("ERR?", timeout_s)
        code_text, _, text = reply.partition(",")
        try:
            code = int(code_text)
        except ValueError:
            raise self._scpi.wrong_shape("ERR?", reply, "a number and a text") from None
        return ((code, text.strip().strip('"')),) if code else ()

    def _find_modules(self) -> tuple[int, ...]:
        flags = self._scpi.numbers("IDIS?")
        if len(flags) != _N_MODULES or not set(flags) <= {0.0, 1.0}:
            raise self._scpi.wrong_shape("IDIS?", str(flags), "five flags")
        modules = tuple(number for number, flag in enumerate(flags) if flag)
        if not modules:
            raise self._session.error(
                DeviceError,
                "no module is plugged in",
                command="IDIS?",
                hint="Plug a module in with the mainframe switched off.",
            )
        return modules

    def _check_samples(self, n_samples: int) -> None:
        self._scpi.check_within("number of samples", n_samples, 1, LARGEST_LOG, "samples")

    def _check_idle(self, label: str) -> None:
        """Refuse a call that would end a run. Raises ``BusyError``."""
        self._check_open()
        if self._under_way:
            raise self._session.error(
                BusyError, f"{label}: a log is under way", command=label, hint="Wait for the run, or stop it."
            )

    def _set(
        self,
        command: str,
        arguments: str,
        query: str,
        wanted: float,
        tolerance: float,
        label: str,
        held_by: int | None = None,
    ) -> float:
        """Send a setting and read it back; ``held_by`` is the channel whose readings depend on it."""
        self._check_idle(command)
        with self._session.transaction():
            self._session.write(f"{command} {arguments}")
            found = self._scpi.setting(query)
            if abs(found - wanted) <= tolerance:
                if held_by is not None:
                    restore = partial(self._set, command, arguments, query, wanted, tolerance, label)
                    self._setups[held_by].hold(HeldSetting(query, wanted, label, restore, tolerance))
                return found
            raise self._session.error(
                VerifyError, label, wrote=wanted, read=found, hint=f"Its last error: {self.errors() or 'none'}."
            )

    def _setup_of(self, channels: Sequence[int]) -> HeldSetup:
        return HeldSetup.merge(self._setups[each] for each in (_COMMON, *channels))

    def _fresh(self, modules: Sequence[int]) -> tuple[PowerReading, ...]:
        """Wait until averages were taken after now, and read modules one after the other."""
        self._clock.sleep(_FRESH * self._averaging_s)
        return tuple(each for module in modules for each in self._read_module(module))

    def _read_module(self, module: int) -> tuple[PowerReading, ...]:
        command = f"READ? {module}"
        with self._session.transaction():
            values_mw = self._scpi.numbers(command, _PATIENCE_S + self._averaging_s)
            if len(values_mw) != PORTS_PER_MODULE:
                raise self._scpi.wrong_shape(command, str(values_mw), f"{PORTS_PER_MODULE} powers")
            first = 1 + PORTS_PER_MODULE * self._modules.index(module)
            now_s = self._clock.now()
            values_w = enumerate(map(_watts, values_mw), first)
            return tuple(reading(channel, value_w, now_s, LARGEST_W) for channel, value_w in values_w)

    def _wait(self, deadline: Deadline, n_samples: int) -> None:
        """Wait until ``STAT?`` says 1; 0 is under way, -1 is stopped."""
        while (state := self._scpi.numbers("STAT?"))[0] != 1.0:
            if state[0] < 0.0 or self._clock.now() >= deadline:
                raise self._session.error(
                    DeviceTimeoutError,
                    f"the log of {n_samples} samples did not complete: state {state}",
                    command="STAT?",
                    hint="It was stopped.",
                )
            self._clock.sleep(_POLL_S)

    def _logged_w(self, module: int, port: int, n_samples: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        command = f"LOGG? {module},{port}"
        payload = self._session.query_block(command, _PATIENCE_S + 4 * n_samples / _SLOWEST_BYTES_PER_S)
        if len(payload) != 4 * n_samples:
            raise self._scpi.wrong_shape(command, f"{len(payload)} bytes", f"{n_samples} samples of 4 bytes")
        # A mark must not become another number by being scaled.
        values_mw = np.frombuffer(payload, "<f4").astype(np.float64)
        return np.where(np.abs(values_mw) < NOT_A_VALUE, 1e-3 * values_mw, values_mw)


def _watts(value_mw: float) -> float:
    """Return a power in watts; a mark stays a mark."""
    return 1e-3 * value_mw if is_value(value_mw) else value_mw


class MpmRun:
    """A run under way; implements ``LogRun``. End it with :meth:`wait` or :meth:`stop`.

    Args:
        meter: The meter, whose run it is.
        clock: Its clock.
        channels: Channels to fetch; all are logged.
        n_samples: Samples per channel.
        period_s: Time between samples; ``None`` if pulses start them.
    """

    def __init__(
        self, meter: SantecMpm, clock: Clock, channels: tuple[int, ...], n_samples: int, period_s: float | None
    ) -> None:
        self._meter, self._channels, self._n_samples, self._period_s = meter, channels, n_samples, period_s
        self._started_s = clock.now()
        self._ended = False

    def wait(self, timeout_s: float | None = None) -> PowerLog:
        """Wait for the last sample, fetch all and stop the run, however it ends. Raises as :meth:`LogRun.wait`."""
        try:
            patience_s = _PATIENCE_S if timeout_s is None else timeout_s
            values_w = self._meter.fetch(self._channels, self._n_samples, patience_s)
        finally:
            self.stop()
        states = states_of(values_w, LARGEST_W)
        values_w[states != RangeState.OK] = np.nan
        return PowerLog(self._channels, values_w, states, self._period_s, self._started_s)

    def stop(self) -> None:
        """End the run; idempotent."""
        if not self._ended:
            self._ended = True
            self._meter.stop_run()
