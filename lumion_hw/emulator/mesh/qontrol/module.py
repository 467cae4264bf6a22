"""One emulated Qontrol module: channels with limits, and an error log."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lumion_hw.emulator.mesh.qontrol.errors import (
    OVER_CURRENT,
    OVER_VOLTAGE,
    POWERED_UP,
    ErrorLimiter,
    Refused,
    error_line,
)
from lumion_hw.emulator.mesh.qontrol.load import HeaterLoad, Limited, Output, settle
from lumion_hw.emulator.mesh.qontrol.profile import ChainProfile, ModuleSpec, OverLimit

LOG_ENTRIES = 64
NVM_WORDS = 256

_CODE_OF_LIMIT = {Limited.VOLTAGE: OVER_VOLTAGE, Limited.CURRENT: OVER_CURRENT}


@dataclass
class OutputChannel:
    """One output channel of a module.

    Attributes:
        setpoint: Set value, in V or mA.
        offset_v: Error of the voltage readings.
        offset_ma: Error of the current readings.
        floating_v: Output voltage without a load.
    """

    load: HeaterLoad
    vmax_v: float
    imax_ma: float
    offset_v: float
    offset_ma: float
    floating_v: float
    setpoint: float = 0.0
    is_current: bool = False
    output: Output = Output(0.0, 0.0, Limited.NONE)  # noqa: RUF009 - frozen

    def settle(self) -> None:
        """Compute the steady state of the output."""
        self.output = settle(
            self.load, setpoint=self.setpoint, is_current=self.is_current, vmax_v=self.vmax_v, imax_ma=self.imax_ma
        )


class EmulatedQ8:
    """One emulated Qontrol output module.

    Args:
        first: Index of the first channel among all channels of the chain.

    Attributes:
        numbers: Values of ``LED`` and similar commands, whose meaning is not public.
        calibration: Words of ``VCAL`` and ``ICAL`` per channel, without effect.
        nvm: Words of the module's memory, read by ``NVM``.
    """

    def __init__(
        self,
        spec: ModuleSpec,
        profile: ChainProfile,
        loads: Sequence[HeaterLoad],
        first: int,
        rng: np.random.Generator,
        at_s: float,
    ) -> None:
        self.spec = spec
        self.first = first
        self._profile = profile
        self._rng = rng
        self.n_channels = len(loads)
        self._start_s = at_s
        self._due_s: dict[int, float] = {}
        self._limiter = ErrorLimiter(profile.burst_lines, profile.burst_window_s)
        noise = profile.readback
        self.channels = [
            OutputChannel(
                load,
                spec.vfull_v,
                spec.ifull_ma,
                offset_v=float(rng.uniform(-noise.offset_v, noise.offset_v)),
                offset_ma=float(rng.uniform(-noise.offset_ma, noise.offset_ma)),
                floating_v=float(rng.uniform(0.0, noise.floating_v)),
            )
            for load in loads
        ]
        self.numbers = {"LED": 1, "OK": 1, "SAFE": 1, "ADCT": 5, "ADCN": 2, "ROCOM": 0}
        self.calibration = {name: [self._draw_calibration() for _ in loads] for name in ("VCAL", "ICAL")}
        self.nvm = [int(word) for word in rng.integers(0, 1 << 16, NVM_WORDS)]
        # Full from the start: LOG? of real modules has 64 lines (recorded).
        ages_s = np.sort(rng.uniform(60.0, 86_400.0, LOG_ENTRIES))[::-1]
        self._log = deque(((POWERED_UP, 0, at_s - float(age)) for age in ages_s), maxlen=LOG_ENTRIES)

    def _draw_calibration(self) -> tuple[int, ...]:
        if self.spec.number is None:
            return (1, 0, 0, 0)
        return tuple(int(value) for value in self._rng.integers(-5000, 5000, 4))

    # -- outputs

    def limit(self, quantity: str, local: int) -> float:
        """Return the largest allowed voltage or current of a channel, in V or mA."""
        channel = self.channels[local]
        return {
            "V": min(channel.vmax_v, self.spec.vfull_v),
            "I": min(channel.imax_ma, self.spec.ifull_ma),
            "VMAX": self.spec.vfull_v,
            "IMAX": self.spec.ifull_ma,
        }[quantity]

    def check(self, quantity: str, local: int, value: float) -> None:
        """Raise ``Refused`` for a value above the limit, unless the profile limits the output instead."""
        if value > self.limit(quantity, local) and self._profile.over_limit is OverLimit.REFUSE:
            raise Refused(OVER_VOLTAGE if quantity.startswith("V") else OVER_CURRENT, local)

    def set(self, quantity: str, local: int, value: float, at_s: float) -> None:
        """Set voltage, current, or one of the limits of a channel."""
        channel = self.channels[local]
        if quantity == "VMAX":
            channel.vmax_v = min(value, self.spec.vfull_v)
        elif quantity == "IMAX":
            channel.imax_ma = min(value, self.spec.ifull_ma)
        else:
            channel.setpoint, channel.is_current = value, quantity == "I"
        self.settle_output(local, at_s)

    def settle_output(self, local: int, at_s: float) -> None:
        """Compute the new state of a channel. An exceeded limit is reported later."""
        channel = self.channels[local]
        channel.settle()
        # A new set value cancels the error that the old one would have caused.
        self._due_s.pop(local, None)
        if channel.output.limited is not Limited.NONE:
            self._due_s[local] = at_s + float(self._rng.uniform(*self._profile.supervision_s))

    def power_cycle(self, at_s: float) -> str:
        """Restart the module with outputs at 0. Return the line that it sends."""
        self._due_s.clear()
        for channel in self.channels:
            channel.setpoint, channel.is_current = 0.0, False
            if not self._profile.limits_survive:
                channel.vmax_v, channel.imax_ma = self.spec.vfull_v, self.spec.ifull_ma
            channel.settle()
        self._limiter = ErrorLimiter(self._profile.burst_lines, self._profile.burst_window_s)
        self.log_error(POWERED_UP, 0, at_s)
        return error_line(POWERED_UP)

    def read_v(self, local: int) -> float:
        """Return a voltage reading of a channel, with offset and noise."""
        channel = self.channels[local]
        floating = channel.floating_v if channel.load.is_open and channel.setpoint == 0.0 else 0.0
        noise = self._profile.readback.noise_v * float(self._rng.standard_normal())
        return channel.output.voltage_v + floating + channel.offset_v + noise

    def read_ma(self, local: int) -> float:
        """Return a current reading of a channel, with offset and noise."""
        channel = self.channels[local]
        noise = self._profile.readback.noise_ma * float(self._rng.standard_normal())
        return channel.output.current_ma + channel.offset_ma + noise

    # -- errors

    def next_error_s(self) -> float | None:
        """Return the time at which the module next reports an exceeded limit."""
        return min(self._due_s.values(), default=None)

    def supervise(self, until_s: float) -> list[tuple[float, str]]:
        """Return the due error reports, in order."""
        lines: list[tuple[float, str]] = []
        for at_s, local in sorted((at_s, local) for local, at_s in self._due_s.items() if at_s <= until_s):
            del self._due_s[local]
            line = self.report(_CODE_OF_LIMIT[self.channels[local].output.limited], local, at_s)
            if line is not None:
                lines.append((at_s, line))
        return lines

    def report(self, code: int, channel: int, at_s: float) -> str | None:
        """Log an unsolicited error. Return the line to send, if any."""
        self.log_error(code, channel, at_s)
        return self._limiter.admit(error_line(code, channel), at_s)

    def log_error(self, code: int, channel: int, at_s: float) -> None:
        """Write an error into the module's error log."""
        self._log.append((code, channel, at_s))

    def log_lines(self, at_s: float) -> list[str]:
        """Return the lines of ``LOG?``: the oldest entry, then the other entries from the newest on."""
        newest_first = list(self._log)[::-1]
        # As recorded: the oldest entry comes before the newest.
        entries = newest_first[-1:] + newest_first[:-1]
        return [
            f"#{index:3d}, {error_line(code, channel)}, {_age(at_s - since_s)} ago"
            for index, (code, channel, since_s) in enumerate(entries)
        ]

    def lifetime_s(self, at_s: float) -> int:
        """Return the module's operating time in whole seconds."""
        return self.spec.lifetime_s + int(at_s - self._start_s)


def _age(age_s: float) -> str:
    for limit_s, unit_s, unit in ((60.0, 1.0, "s"), (3600.0, 60.0, "m")):
        if age_s < limit_s:
            return f"{int(age_s / unit_s)} {unit}"
    return f"{int(age_s / 3600.0)} h"
