"""Power logs and triggers of Keysight power meters. During a log, changes of settings raise ``BusyError``."""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Deadline, deadline_after
from lumion_hw.drivers.meters.keysight_meter import Head, KeysightMeter
from lumion_hw.drivers.meters.wire_powers import range_states
from lumion_hw.errors import ConfigError, DeviceError, DeviceTimeoutError, LimitError
from lumion_hw.interfaces import PowerLog, RangeState

LARGEST_LOG = 1_000_000
"""Largest number of samples per channel that any of these meters can log."""
_POLL_S = 0.05
_TIMEOUT_MARGIN = 1.2
_BASE_TIMEOUT_S = 2.0
_SLOWEST_BYTES_PER_S = 50e3  # a GPIB adapter
# Times are returned as float32, rounded to the instrument's steps.
_TIME_TOLERANCE = 1e-3


class TriggerInput(enum.Enum):
    """Action that an electrical pulse at the trigger input starts."""

    IGNORE = "IGNore"
    ONE_SAMPLE = "SMEasure"
    ENTIRE_RUN = "CMEasure"


class TriggerOutput(enum.Enum):
    """Moment at which the instrument sends a pulse at its trigger output."""

    DISABLED = "DISabled"
    AFTER_AVERAGING = "AVGover"
    BEFORE_AVERAGING = "MEASure"


class TriggerWiring(enum.Enum):
    """Internal connection of the trigger connectors."""

    DISABLED = "DISabled"
    DEFAULT = "DEFault"
    PASS_THROUGH = "PASSthrough"
    LOOP_BACK = "LOOPback"


class LoggingKeysightMeter(KeysightMeter, abc.ABC):
    """Base of the drivers of meters that log; implements ``LoggingMeter``. Arguments as for ``KeysightMeter``."""

    max_samples: ClassVar[int]

    @property
    def functions(self) -> KeysightFunctions:
        """Logging and trigger functions of this meter."""
        return KeysightFunctions(self)

    def start_triggered_log(
        self, channels: Sequence[int], n_samples: int, averaging_s: float, *, internal_trigger: bool = False
    ) -> PowerRun:
        """Start a log with an averaged sample at each trigger pulse.

        Raises the errors of :meth:`KeysightFunctions.start_log`.
        """
        functions = self.functions
        # Pulses of the instrument's output reach its input only if the connectors are looped back.
        functions.set_trigger_wiring(TriggerWiring.LOOP_BACK if internal_trigger else TriggerWiring.DEFAULT)
        return functions.start_log(channels, n_samples, averaging_s, TriggerInput.ONE_SAMPLE)


@dataclass(frozen=True)
class _LogPlan:
    """Settings of a power log, as text for the instrument and as numbers."""

    text: str
    values: tuple[float, ...]
    n_samples: int
    period_s: float | None
    duration_s: float


class KeysightFunctions:
    """Logging and trigger functions of one Keysight power meter."""

    def __init__(self, meter: KeysightMeter) -> None:
        self._meter = meter
        self._scpi = meter.scpi

    def start_log(
        self,
        channels: Sequence[int],
        n_samples: int,
        averaging_s: float,
        trigger: TriggerInput = TriggerInput.IGNORE,
    ) -> PowerRun:
        """Start a log without dead time between samples.

        Raises the errors of :meth:`LoggingMeter.start_triggered_log`, and ``VerifyError`` if a setting read back
        differs.

        Args:
            channels: Channels to log.
            n_samples: Samples per channel.
            averaging_s: Averaging time of one sample.
            trigger: Action that a pulse at the trigger input starts; ``IGNORE`` starts the log immediately.
        """
        self._check_samples(n_samples)
        # With one trigger per sample, the period is that of the triggers.
        period_s = averaging_s if trigger is not TriggerInput.ONE_SAMPLE else None
        plan = _LogPlan(
            text=f"{n_samples},{averaging_s:.9g}S",
            values=(n_samples, averaging_s),
            n_samples=n_samples,
            period_s=period_s,
            duration_s=n_samples * averaging_s,
        )
        return self._start(channels, plan, trigger)

    def log(self, channels: Sequence[int], n_samples: int, averaging_s: float) -> PowerLog:
        """Make a log without triggers and wait for its end.

        Raises the errors of :meth:`start_log` and :meth:`PowerRun.wait`.
        """
        run = self.start_log(channels, n_samples, averaging_s)
        return run.wait()

    def set_trigger_output(self, channel: int, output: TriggerOutput) -> None:
        """Select and verify when the instrument sends a pulse at its trigger output."""
        self._scpi.set_keyword(f"TRIG{self._meter.idle_head(channel).module}:OUTP", output.value)

    def set_trigger_wiring(self, wiring: TriggerWiring) -> None:
        """Select and verify the internal connection of the trigger connectors."""
        self._meter.check_idle("trigger wiring")
        self._scpi.set_keyword("TRIG:CONF", wiring.value)

    def result(self, head: Head, n_samples: int) -> NDArray[np.float64]:
        """Return the logged samples in watts, shape ``(n_samples,)``.

        Raises ``FrameError`` if their number is wrong.
        """
        command = f"{head.sense}:FUNC:RES?"
        payload = self._meter.session.query_block(command, _BASE_TIMEOUT_S + 4 * n_samples / _SLOWEST_BYTES_PER_S)
        if len(payload) != 4 * n_samples:
            raise self._meter.wrong_block(command, payload, f"{n_samples} samples of 4 bytes")
        return np.frombuffer(payload, "<f4").astype(np.float64)

    def _check_samples(self, n_samples: int) -> None:
        if not 1 <= n_samples <= LARGEST_LOG:
            raise self._meter.session.error(
                LimitError,
                "the number of samples is out of range",
                requested=n_samples,
                limit=1 if n_samples < 1 else LARGEST_LOG,
                unit="samples",
                hint="Nothing was changed.",
            )

    def _start(self, channels: Sequence[int], plan: _LogPlan, trigger: TriggerInput) -> PowerRun:
        heads = tuple(self._meter.idle_head(channel) for channel in channels)
        if not heads or len(set(channels)) != len(channels):
            raise ConfigError(
                f"a log needs at least one channel and each channel once, not {tuple(channels)}",
                device=self._meter.session.device,
            )
        self._meter.merged_setup(channels).restore_changed()
        self._meter.mark_run_started("a log")
        run = PowerRun(self._meter, self, tuple(channels), heads, plan)
        try:
            with self._meter.session.transaction():
                # The heads of one module share a log, which is set and started once.
                masters = dict.fromkeys(head.master for head in heads)
                for module in dict.fromkeys(head.module for head in heads):
                    self._scpi.set_keyword(f"TRIG{module}:INP", trigger.value)
                for master in masters:
                    self._set_parameters(master, plan)
                run.started_s = self._meter.clock.now()
                for master in masters:
                    self._scpi.set(f"{master}:FUNC:STAT LOGG,STAR")
        except BaseException:
            run.stop()
            raise
        return run

    def _set_parameters(self, master: str, plan: _LogPlan) -> None:
        header = f"{master}:FUNC:PAR:LOGG"
        self._scpi.set(f"{header} {plan.text}")
        actual = self._scpi.numbers(f"{header}?")
        if len(actual) != len(plan.values):
            raise self._scpi.wrong_shape(f"{header}?", str(actual), f"{len(plan.values)} numbers")
        for wrote, read in zip(plan.values, actual, strict=True):
            self._scpi.verify(f"{header} {plan.text}", wrote, read, _TIME_TOLERANCE * abs(wrote))


class PowerRun:
    """A log in progress, returned by :meth:`KeysightFunctions.start_log`. End it with :meth:`wait` or :meth:`stop`.

    Attributes:
        started_s: Host clock at the start of the log.
    """

    def __init__(
        self,
        meter: KeysightMeter,
        functions: KeysightFunctions,
        channels: tuple[int, ...],
        heads: tuple[Head, ...],
        plan: _LogPlan,
    ) -> None:
        self._meter = meter
        self._functions = functions
        self._channels = channels
        self._heads = heads
        self._plan = plan
        self._ended = False
        self.started_s = meter.clock.now()

    def wait(self, timeout_s: float | None = None) -> PowerLog:
        """Wait for the last sample, stop the log, and return its samples.

        Raises the errors of :meth:`LogRun.wait`, ``LimitError`` if ``timeout_s`` is not a number, and ``VerifyError``
        if another program changed the unit or the wavelength during the log. The log is stopped after every error.

        Args:
            timeout_s: Longest wait in s, from now; by default 2 s plus 1.2 times the duration of the log. Required for
                triggered logs, which do not end if there are too few triggers.
        """
        # With too few triggers a run never ends, so every wait has a deadline.
        wait_s = _BASE_TIMEOUT_S + _TIMEOUT_MARGIN * self._plan.duration_s if timeout_s is None else timeout_s
        try:
            self._wait(deadline_after(self._meter.clock, wait_s))
            values_w = np.stack([self._functions.result(head, self._plan.n_samples) for head in self._heads])
            self._meter.merged_setup(
                self._channels
            ).check_unchanged()  # a changed setting is an error, because a run cannot be repeated
        finally:
            self.stop()
        states = range_states(values_w, self._meter.largest_w)
        values_w[states != RangeState.OK] = np.nan
        return PowerLog(self._channels, values_w, states, self._plan.period_s, self.started_s)

    def stop(self) -> None:
        """Stop the log; idempotent. Later readings trigger a new measurement again.

        Raises ``LinkError`` if the command did not reach the instrument; the log may then continue.
        """
        if self._ended:
            return
        self._ended = True
        scpi = self._meter.scpi
        try:
            with self._meter.session.transaction():
                for master in dict.fromkeys(head.master for head in self._heads):
                    scpi.set(f"{master}:FUNC:STAT LOGG,STOP")
                for module in dict.fromkeys(head.module for head in self._heads):
                    scpi.set_keyword(f"TRIG{module}:INP", TriggerInput.IGNORE.value)
                    scpi.set(f"INIT{module}:CONT 0")
        finally:
            self._meter.mark_run_ended()

    def is_complete(self) -> bool:
        """Return whether every channel has all samples of the log."""
        return all(self._progress(master) == "COMPLETE" for master in dict.fromkeys(h.master for h in self._heads))

    def _wait(self, deadline: Deadline) -> None:
        clock = self._meter.clock
        while not self.is_complete():
            if clock.now() >= deadline:
                raise self._meter.session.error(
                    DeviceTimeoutError,
                    f"the log of {self._plan.n_samples} samples was not complete after "
                    f"{clock.now() - self.started_s:.3g} s and was stopped",
                    command="FUNC:STAT?",
                    hint="There were too few triggers, or the time was too short.",
                )
            clock.sleep(_POLL_S)

    def _progress(self, master: str) -> str:
        command = f"{master}:FUNC:STAT?"
        reply = self._meter.session.query(command).upper()
        # Searched as substrings, like in public drivers: the text before them differs by model and firmware.
        # The reply has two words: without a run, NONE and a state, which may be PROGRESS.
        if "COMPLETE" in reply:
            return "COMPLETE"
        if "NONE" in reply:
            raise self._ended_by_other_error(reply)
        if "PROGRESS" in reply:
            return "PROGRESS"
        raise self._meter.scpi.wrong_shape(command, reply, "a function and its state")

    def _ended_by_other_error(self, reply: str) -> DeviceError:
        return self._meter.session.error(
            DeviceError,
            f"the log was ended by another program: {reply}",
            command="FUNC:STAT?",
            hint="A setting at the panel or by another program ends a log.",
        )
