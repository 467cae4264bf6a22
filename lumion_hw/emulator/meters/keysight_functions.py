"""Commands ``FUNCtion`` and ``TRIGger`` of Keysight power meters (N774xC and 816x guides).

Choices where the manuals are silent: a slot without a measurement replies ``NONE,PROGRESS``. Reading incomplete results
gives error -221. A sample above the input limit, or a dark sample in dBm, reads as the largest float32. Pulses during
the averaging of a sample are lost. The trigger output is a setting without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.meters.photodiode_head import EmulatedHead
from lumion_hw.emulator.meters.sample_runs import MeterRun, MeterRunPlan, RunFunction, RunStart
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Choice,
    Form,
    InstrumentState,
    Numeric,
    Operation,
    Reply,
    ScpiCommand,
    ScpiError,
    Value,
    errors as scpi_errors,
    event,
    flag_setting,
    query,
    word_setting,
)
from lumion_hw.emulator.scpi.formats import FLOAT32_MAX, definite_block, keysight_float, keysight_int, short_form
from lumion_hw.emulator.scpi.keysight_slots import TRIGGER_WIRINGS
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.units import TIME_S

Port = tuple[int, int]
"""Slot and channel."""

_FUNCTIONS = tuple(function.value for function in RunFunction)
_STARTS = tuple(start.value for start in RunStart)
_OUTPUTS = ("DISabled", "AVGover", "MEASure")
_WINDOWS = ("CONTinuous", "WINDow", "REFResh")
_MAX_TIME_S = 360_000.0


@dataclass(frozen=True)
class MeterTraits:
    """Differences between the families of Keysight power meters.

    Attributes:
        gain_switch: Whether the meter has the command ``POWer:GAIN:AUTO`` (N77xx).
        results_in_watts: Whether logged samples are always read in W (816x); otherwise in the selected unit.
        master_only: Whether averaging, automatic ranging, triggers and logging are set on channel 1 for the whole slot.
    """

    gain_switch: bool = True
    results_in_watts: bool = False
    master_only: bool = False


@dataclass(frozen=True)
class HeadRack:
    """The optical heads of a meter by slot and channel."""

    heads: Mapping[Port, EmulatedHead]
    traits: MeterTraits

    def port(self, call: Call) -> Port:
        """Return the addressed slot and channel. Raises ``ScpiError`` -114 if there is no head."""
        port = call.suffix["n"], call.suffix.get("m", 1)
        if port not in self.heads:
            raise ScpiError(scpi_errors.SUFFIX_OUT_OF_RANGE)
        return port

    def group(self, call: Call) -> list[EmulatedHead]:
        """Return the heads to which a setting applies: one head, or both heads of a dual sensor."""
        slot, channel = self.port(call)
        if not self.traits.master_only:
            return [self.heads[slot, channel]]
        if channel != 1:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        return self.slot_heads(slot)

    def slot_heads(self, slot: int) -> list[EmulatedHead]:
        """Return the heads in a slot, in the order of channels."""
        return [head for (head_slot, _), head in self.heads.items() if head_slot == slot]


@dataclass
class _SlotState:
    """Recording functions of one slot: their plans and the present run."""

    plans: dict[RunFunction, MeterRunPlan] = field(
        default_factory=lambda: {
            RunFunction.LOGGING: MeterRunPlan(RunFunction.LOGGING, 100, 0.1, 0.1),
            RunFunction.STABILITY: MeterRunPlan(RunFunction.STABILITY, 10, 0.1, 1.0),
            RunFunction.MINMAX: MeterRunPlan(RunFunction.MINMAX, 100, 0.1, 0.1, "CONTinuous"),
        }
    )
    start: RunStart = RunStart.IGNORE
    output: str = "DISabled"
    input_rearm: bool = True
    output_rearm: bool = True
    armed: bool = True
    run: MeterRun | None = None
    operation: Operation | None = None


class Acquisition:
    """Logging, stability and min/max measurements of a meter, and triggered readings."""

    def __init__(self, rack: HeadRack, state: InstrumentState, clock: Clock) -> None:
        self._rack = rack
        self._state = state
        self._clock = clock
        self._wiring = "DEFault"
        self._slots = {slot: _SlotState() for slot, _ in rack.heads}

    def reset(self) -> None:
        """Stop all measurements and reset their parameters (``*RST``)."""
        self._wiring = "DEFault"
        self._slots = {slot: _SlotState() for slot in self._slots}

    # -- operation

    def advance(self) -> None:
        """Record the samples up to now, and end complete measurements."""
        for slot, state in self._slots.items():
            run = state.run
            if run is None:
                continue
            try:
                is_complete = run.advance(self._clock.now())
            # A light source without a valid power ends the run, not the meter: the caller queues -310.
            except Exception:
                self.stop(slot)
                raise
            if is_complete and state.operation is not None:
                self._state.end(state.operation)
            elif state.operation is not None:
                state.operation.end_s = run.end_s()

    def next_update(self) -> float | None:
        """Return the time at which a measurement next has samples to record."""
        times = (state.run.next_update_s() for state in self._slots.values() if state.run is not None)
        return min((at_s for at_s in times if at_s is not None), default=None)

    def require_idle(self, slot: int) -> None:
        """Raise ``ScpiError`` -221 while the slot is measuring."""
        run = self._slots[slot].run
        if run is not None and not run.complete:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)

    def stop(self, slot: int) -> None:
        """Stop and delete the measurement of a slot."""
        state = self._slots[slot]
        if state.operation is not None:
            self._state.abort(state.operation)
        if state.run is not None:
            self._state.status.operation.set_bit(slot, on=False)
        state.run = state.operation = None

    def pulses_out(self, times_s: Iterable[float]) -> None:
        """Send pulses to the trigger output, and with ``LOOPback`` also to the input (816x guide p. 214)."""
        if self._wiring == "LOOPback":
            self.hardware_trigger(times_s)

    def hardware_trigger(self, times_s: Iterable[float]) -> None:
        """Process pulses at the trigger input."""
        times = list(times_s)
        if self._wiring == "DISabled" or not times:
            return
        for slot, state in self._slots.items():
            if state.run is not None:
                state.run.trigger(times)
            elif state.start is not RunStart.IGNORE and state.armed:
                # Without rearming, a single reading accepts the first pulse only; a logging run still accepts all.
                state.armed = state.input_rearm
                for (head_slot, _), head in self._rack.heads.items():
                    if head_slot == slot:
                        head.complete(head.expose())

    # -- commands

    def commands(self) -> Iterable[ScpiCommand]:
        """Return the SCPI commands for measurements and triggers."""
        root = ":SENSe[n][:CHANnel[m]]:FUNCtion"
        time, count = Numeric(1e-6, _MAX_TIME_S, 0.1, TIME_S), Numeric(1, self._max_points(), 100, integer=True)
        yield ScpiCommand(f"{root}:PARameter:LOGGing", Form(self._set_logging, (count, time)), Form(self._logging))
        yield ScpiCommand(f"{root}:PARameter:STABility", Form(self._set_stability, (time,) * 3), Form(self._stability))
        window = Form(self._set_minmax, (Choice(_WINDOWS), count))
        yield ScpiCommand(f"{root}:PARameter:MINMax", window, Form(self._minmax))
        words = (Choice(_FUNCTIONS), Choice(("STARt", "STOP")))
        yield ScpiCommand(f"{root}:STATe", Form(self._control, words), Form(self._report))
        yield query(f"{root}:RESult", self._result, marker=b"#10" if self._rack.traits.results_in_watts else None)
        yield self._word_setting(
            ":TRIGger[n][:CHANnel[m]]:INPut", _STARTS, self._set_start, lambda slot: slot.start.value
        )
        yield self._word_setting(
            ":TRIGger[n][:CHANnel[m]]:OUTPut",
            _OUTPUTS,
            lambda slot, word: setattr(slot, "output", word),
            lambda slot: slot.output,
        )
        for leaf, name in (("INPut", "input_rearm"), ("OUTPut", "output_rearm")):
            yield flag_setting(
                f":TRIGger[n][:CHANnel[m]]:{leaf}:REARm",
                Boolean(),
                lambda call, name=name: bool(getattr(self._slot(call), name)),  # type: ignore[misc]
                self._rearm(name),
                keysight_int,
            )
        yield event(":TRIGger", self._software_trigger, TriggerNode())

        yield word_setting(
            ":TRIGger:CONFiguration",
            TRIGGER_WIRINGS,
            lambda _: self._wiring,
            lambda _, word: setattr(self, "_wiring", word),
        )

    def _max_points(self) -> int:
        return max(head.profile.max_points for head in self._rack.heads.values())

    def _slot(self, call: Call) -> _SlotState:
        return self._slots[self._rack.port(call)[0]]

    def _word_setting(
        self,
        pattern: str,
        words: tuple[str, ...],
        write: Callable[[_SlotState, str], None],
        read: Callable[[_SlotState], str],
    ) -> ScpiCommand:
        def change(call: Call, word: str) -> None:
            self._rack.group(call)
            self.stop(self._rack.port(call)[0])
            write(self._slot(call), word)

        return word_setting(pattern, Choice(words), lambda call: read(self._slot(call)), change)

    @staticmethod
    def _set_start(slot: _SlotState, word: str) -> None:
        slot.start, slot.armed = RunStart(word), True

    def _rearm(self, name: str) -> Callable[[Call, bool], None]:
        def write(call: Call, on: bool) -> None:
            setattr(self._slot(call), name, on)
            self._slot(call).armed = True

        return write

    def _software_trigger(self, call: Call) -> Reply:
        """Process a software trigger at node A (input connector) or B (output connector) (816x guide p. 209)."""
        (self.hardware_trigger if call.number() == 1 else self.pulses_out)([self._clock.now()])
        return None

    # -- parameters

    def _plan(self, call: Call, *plans: MeterRunPlan) -> Reply:
        heads = self._rack.group(call)
        shortest_s = max(head.profile.averaging_limits_s[0] for head in heads)
        max_points = min(head.profile.max_points for head in heads)
        if any(plan.averaging_s < shortest_s or plan.points > max_points for plan in plans):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        self.stop(self._rack.port(call)[0])
        for plan in plans:
            self._slot(call).plans[plan.function] = plan
        return None

    def _set_logging(self, call: Call) -> Reply:
        averaging_s = call.number(1)
        return self._plan(call, MeterRunPlan(RunFunction.LOGGING, call.integer(0), averaging_s, averaging_s))

    def _set_stability(self, call: Call) -> Reply:
        """Set total time, period and averaging time of a stability measurement, which all measurement types share."""
        total_s, period_s, averaging_s = (call.number(index) for index in range(3))
        if not total_s >= period_s >= averaging_s:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        points = int(total_s / period_s + 1e-9)  # 0.3 s in steps of 0.1 s are three points
        window = self._slot(call).plans[RunFunction.MINMAX].window
        return self._plan(
            call,
            MeterRunPlan(RunFunction.STABILITY, points, averaging_s, period_s),
            MeterRunPlan(RunFunction.LOGGING, points, averaging_s, averaging_s),
            MeterRunPlan(RunFunction.MINMAX, points, averaging_s, averaging_s, window),
        )

    def _set_minmax(self, call: Call) -> Reply:
        averaging_s = self._rack.group(call)[0].settings.averaging_s
        return self._plan(
            call, MeterRunPlan(RunFunction.MINMAX, call.integer(1), averaging_s, averaging_s, call.text(0))
        )

    def _logging(self, call: Call) -> Reply:
        plan = self._slot(call).plans[RunFunction.LOGGING]
        return f"{keysight_int(plan.points)},{keysight_float(plan.averaging_s)}"

    def _stability(self, call: Call) -> Reply:
        plan = self._slot(call).plans[RunFunction.STABILITY]
        total_s = plan.points * plan.period_s
        return f"{total_s:+.5f},{keysight_float(plan.period_s)},{keysight_float(plan.averaging_s)}"

    def _minmax(self, call: Call) -> Reply:
        plan = self._slot(call).plans[RunFunction.MINMAX]
        return f"{short_form(plan.window)},{keysight_int(plan.points)}"

    # -- runs

    def _control(self, call: Call) -> Reply:
        function, heads = RunFunction(call.text(0)), self._rack.group(call)
        number, slot = self._rack.port(call)[0], self._slot(call)
        self.stop(number)
        if call.text(1) == "STOP":
            return None
        plan = slot.plans[function]
        if function is RunFunction.MINMAX:
            averaging_s = heads[0].settings.averaging_s
            plan = MeterRunPlan(function, plan.points, averaging_s, averaging_s, plan.window)
        for head in heads:
            # The run owns the trigger; clients send INITiate:CONTinuous 1 afterwards.
            head.settings.continuous = False
        slot.run = MeterRun(plan, heads, slot.start, self._clock.now())
        self._state.status.operation.set_bit(number, on=True)
        if function is not RunFunction.MINMAX:  # a min/max run never ends by itself, so nothing may wait for it
            slot.operation = self._state.begin(None, lambda: self._finish(number))
            slot.operation.end_s = slot.run.end_s()
        return None

    def _finish(self, number: int) -> None:
        slot = self._slots[number]
        slot.operation = None
        self._state.status.operation.set_bit(number, on=False)
        if slot.run is not None:
            # The operation ends by the clock, but samples are recorded on update: now is the last chance.
            slot.run.advance(self._clock.now())

    def _report(self, call: Call) -> Reply:
        self.advance()
        run = self._slot(call).run
        if run is None:
            return "NONE,PROGRESS"
        name = "MINMAX" if run.plan.function is RunFunction.MINMAX else "LOGGING_STABILITY"
        return f"{name},{'COMPLETE' if run.complete else 'PROGRESS'}"

    def _result(self, call: Call) -> Reply:
        self.advance()
        slot, port = self._slot(call), self._rack.port(call)
        run = slot.run
        if run is None or not (run.complete or run.plan.function is RunFunction.MINMAX):
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        heads = self._rack.slot_heads(port[0])
        head = self._rack.heads[port]
        index = heads.index(head) if self._rack.traits.master_only else 0
        in_watts = self._rack.traits.results_in_watts or head.settings.watts
        return definite_block(_float32(run.result_w(index), in_watts=in_watts))


def _float32(watts: NDArray[np.float64], *, in_watts: bool) -> bytes:
    """Return values as little-endian float32. Infinity and NaN become the largest float32."""
    values = watts
    if not in_watts:
        # A dark sample has no logarithm; like a sample above the range, it becomes the largest float.
        is_bright = np.isfinite(watts) & (watts > 0)
        values = np.full(len(watts), np.inf)
        values[is_bright] = 10.0 * np.log10(watts[is_bright] * 1e3)
    return np.where(np.isfinite(values), values, FLOAT32_MAX).astype("<f4").tobytes()


@dataclass(frozen=True)
class TriggerNode:
    """SCPI parameter for a trigger node: ``1`` or ``NODEA``, ``2`` or ``NODEB``."""

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the number of the received trigger node, 1 or 2."""
        if token.kind is TokenKind.WORD:
            return 1 if Choice(("NODEA", "NODEB")).parse(token, call) == "NODEA" else 2
        return Numeric(1, 2, integer=True).parse(token, call)
