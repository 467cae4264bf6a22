"""Emulated Thorlabs PM100D, PM100USB and PM400: one SCPI family of single-channel power and energy meters.

Language: section 4 of the instrument facts (PM100D, PM100USB and PM400 manuals). What the sensor plugged in cannot
measure is an undefined header, as on the instrument. Model choices where the manuals are silent: ten places in the
error queue and the texts of the maker's 4000 series; zeroing with light on fails with -200 and keeps the old zero; a
reading without logarithm is 9.91E37; in STATus:OPERation bit 0 is zeroing, 4 measuring, 9 measurement ready; bit 3 of
STATus:QUEStionable is over-range; AUXiliary and MEASurement are groups without conditions, in bits 0 and 1 of the
status byte.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from lumion_hw.clock import Clock
from lumion_hw.emulator.meters import pm100_sensor as physics
from lumion_hw.emulator.meters.pm100_commands import MISSPELLINGS, commands
from lumion_hw.emulator.meters.pm100_sensor import Pm100Sensor, SensorKind, SensorProfile, SensorSample
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.scpi import (
    Later,
    Operation,
    Profile,
    RegisterGroup,
    Reply,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
)
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.emulator.scpi.formats import plain_float
from lumion_hw.errors import ConfigError
from lumion_hw.quantities import ratio_from_db

OVER_RANGE = 9.9e37
NOT_A_NUMBER = 9.91e37
MODELS = ("PM100D", "PM100A", "PM100USB", "PM400", "PM101", "PM160")
INTEGRATED = ("PM160",)
"""Models whose sensor is built in: its name is the device's own (so says pyLabLib, which was tried on one)."""

ZEROING_BIT, MEASURING_BIT, READY_BIT = 0, 4, 9
POWER_BIT = 3
AUXILIARY_BIT, MEASUREMENT_BIT = 0, 1
"""Places of the two extra groups in the status byte."""

QUANTITIES: dict[str, tuple[SensorKind, ...]] = {
    "POW": (SensorKind.PHOTODIODE, SensorKind.THERMOPILE),
    "CURR": (SensorKind.PHOTODIODE,),
    "VOLT": (SensorKind.THERMOPILE, SensorKind.PYRO),
    "ENER": (SensorKind.PYRO,),
    "PDEN": (SensorKind.PHOTODIODE, SensorKind.THERMOPILE),
    "EDEN": (SensorKind.PYRO,),
    "FREQ": (SensorKind.PHOTODIODE, SensorKind.PYRO),
    "TEMP": tuple(SensorKind),
    "RES": tuple(SensorKind),
}
"""What can be measured, by the words of ``CONFigure?``, and with which sensors."""
REFERENCED = ("POW", "CURR", "VOLT", "ENER")
"""Quantities with a range and a reference for relative readings."""


class ThorlabsPm100(ScpiDevice):
    """A console with a sensor (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        rng: Draws the sensors' hidden errors and their noise.
        light: Gives the light at the sensor now.
        sensor: What is plugged in; ``None`` for nothing.
        model: One of :data:`MODELS`.
        serial: Serial number in ``*IDN?``.
        firmware: Last field of ``*IDN?``.
        lenient: Also accept the spellings of :data:`~lumion_hw.emulator.meters.pm100_commands.MISSPELLINGS`, which the
            documented tree does not have.

    Raises:
        ConfigError: There is no such model.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        light: Callable[[], Light],
        *,
        sensor: SensorProfile | None = physics.S154C,
        model: str = "PM100D",
        serial: str = "P0000001",
        firmware: str = "2.4.0",
        lenient: bool = False,
    ) -> None:
        if model not in MODELS:
            raise ConfigError(f"{name}: there is no {model}", device=name, hint=f"Give one of {', '.join(MODELS)}.")
        profile = Profile(
            f"Thorlabs,{model},{serial},{firmware}",
            queue_depth=10,
            integer="{:d}".format,
            error_texts={scpi_errors.QUEUE_OVERFLOW: "Error queue overflow"},
            aliases=MISSPELLINGS if lenient else {},
        )
        self.clock = clock
        self.model = model
        self._rng = rng
        self._light = light
        self._scpi = ScpiInstrument(name, clock, profile, self._reset, self._look, self._next_look)
        self.state = self._scpi.state
        self.auxiliary, self.measurement = RegisterGroup(), RegisterGroup()
        self.state.status.extra.update({AUXILIARY_BIT: self.auxiliary, MEASUREMENT_BIT: self.measurement})
        self._plugged: Pm100Sensor | None = None
        self._pulled = sensor
        self.calendar: dict[str, int] = {}
        self._reset_console()
        self.plug(sensor)
        self._scpi.declare(commands(self))

    def _reset_console(self) -> None:
        self.quantity = "POW"
        self.in_dbm = False
        self.reference = dict.fromkeys(REFERENCED, 0.0)
        self.relative = dict.fromkeys(REFERENCED, False)
        self.console: dict[str, float] = {"brightness": 1.0, "contrast": 0.5, "beeper": 0.0, "line_hz": 50.0}
        self.adapter = "PHOTodiode"
        self._last: SensorSample | None = None
        self._measuring: Operation | None = None
        self._zeroing: Operation | None = None

    def _look(self) -> None:
        due_s = self._next_look()
        if self._plugged is not None and due_s is not None and due_s <= self.clock.now():
            self._plugged.look()

    def advance(self) -> None:
        """Follow the clock; a sensor that is slow to follow sees the light as it is now."""
        if self._plugged is not None and self._plugged.next_look_s() is not None:
            self._plugged.look()
        super().advance()

    def _next_look(self) -> float | None:
        return None if self._plugged is None else self._plugged.next_look_s()

    def plug(self, profile: SensorProfile | None) -> None:
        """Plug in another sensor, or pull out the present one."""
        self._abort_all()
        if profile is not None and self.model in INTEGRATED:
            profile = dataclasses.replace(profile, name=self.model)
        self._plugged = None if profile is None else Pm100Sensor(profile, self._light, self._rng, self.clock.now)
        self.quantity = "ENER" if profile is not None and profile.kind is SensorKind.PYRO else "POW"
        self._last = None

    def pull_sensor(self) -> None:
        """Pull the sensor out; harmless without one."""
        if self._plugged is not None:
            self._pulled = self._plugged.profile
            self.plug(None)

    def put_sensor(self) -> None:
        """Plug in again what was pulled out; harmless with a sensor in place."""
        if self._plugged is None:
            self.plug(self._pulled)

    @property
    def plugged(self) -> Pm100Sensor | None:
        """The sensor plugged in. Its hidden errors are for tests only."""
        return self._plugged

    def sensor(self, *kinds: SensorKind) -> Pm100Sensor:
        """Return the sensor, which has to be of one of ``kinds`` (any if none is given). Raises ``ScpiError`` -113."""
        if self._plugged is None or (kinds and self._plugged.profile.kind not in kinds):
            raise ScpiError(scpi_errors.UNDEFINED_HEADER)
        return self._plugged

    def _reset(self) -> None:
        self._reset_console()
        if self._plugged is not None:
            self._plugged.reset()
            if self._plugged.profile.kind is SensorKind.PYRO:
                self.quantity = "ENER"
        self.state.status.reset_conditions()

    # -- measuring

    def configure(self, quantity: str) -> None:
        """Choose what ``READ?`` measures."""
        self.sensor(*QUANTITIES[quantity])
        self.quantity = quantity

    def initiate(self) -> None:
        """Start one reading in the background. Raises ``ScpiError`` -213 while one is under way."""
        if self._measuring is not None:
            raise ScpiError(scpi_errors.INIT_IGNORED)
        sensor, started, duration_s = self._begin()
        operation = self.state.status.operation

        def finish() -> None:
            self._measuring = None
            self._last = sensor.sample(started)
            operation.set_bit(MEASURING_BIT, False)
            operation.set_bit(READY_BIT, True)

        operation.set_bit(READY_BIT, False)
        operation.set_bit(MEASURING_BIT, True)
        self._measuring = self.state.begin(duration_s, finish)

    def abort(self) -> None:
        """Give up the reading started in the background."""
        if self._measuring is not None:
            self.state.abort(self._measuring)
            self._measuring = None
        self.state.status.operation.set_bit(MEASURING_BIT, False)
        self.state.status.operation.set_bit(READY_BIT, False)

    def read(self) -> Later:
        """Take a new sample and reply it when it is there."""
        self.abort()
        sensor, started, duration_s = self._begin()
        due_s = self.clock.now() + duration_s

        def finish() -> Reply:
            self._last = sensor.sample(started)
            return self._express(sensor, self._last)

        return Later(lambda: due_s, finish)

    def fetch(self) -> Reply:
        """Reply the last sample; the console has one from the moment a sensor is plugged in."""
        sensor = self.sensor(*QUANTITIES[self.quantity])
        if self._last is None:
            started = sensor.look()
            sensor.settle_range()
            self._last = sensor.sample(started)
        return self._express(sensor, self._last)

    def _begin(self) -> tuple[Pm100Sensor, float, float]:
        """Return the sensor, its signal now, and how long a reading will take."""
        sensor = self.sensor(*QUANTITIES[self.quantity])
        started = sensor.look()
        changed = sensor.settle_range()
        waiting_s = max((self._zeroing.end_s or 0.0) - self.clock.now(), 0.0) if self._zeroing else 0.0
        return sensor, started, waiting_s + sensor.averaging_s + physics.RANGE_CHANGE_S * changed

    def _express(self, sensor: Pm100Sensor, sample: SensorSample) -> str:
        """Return a sample in the quantity and unit configured."""
        self.state.status.questionable.set_bit(POWER_BIT, sample.native is None)
        still = {"FREQ": sample.repetition_hz, "TEMP": physics.TEMPERATURE_C, "RES": physics.PRESENCE_OHM}
        if self.quantity in still:
            return plain_float(still[self.quantity])
        if sample.native is None:
            return plain_float(OVER_RANGE)
        return plain_float(self._amount(sensor, sample.native))

    def _amount(self, sensor: Pm100Sensor, native: float) -> float:
        """Return what a signal in A or V means in the quantity and unit configured."""
        if self.quantity in ("CURR", "VOLT"):
            return self._over_reference(native)
        amount = native / sensor.response * ratio_from_db(sensor.settings.loss_db)
        if self.quantity in ("PDEN", "EDEN"):
            return amount / (math.pi * (0.05 * sensor.settings.beam_mm) ** 2)
        if self.quantity == "POW" and self.in_dbm:
            level = self.reference["POW"] if self.relative["POW"] else 1e-3
            return 10.0 * math.log10(amount / level) if amount > 0 < level else NOT_A_NUMBER
        return self._over_reference(amount)

    def _over_reference(self, amount: float) -> float:
        return amount - self.reference[self.quantity] if self.relative[self.quantity] else amount

    # -- zeroing

    @property
    def zeroing(self) -> bool:
        """Whether zeroing is under way."""
        return self._zeroing is not None

    def start_zero(self) -> None:
        """Start zeroing. Raises ``ScpiError`` -221 while it, or a reading, is under way."""
        sensor = self.sensor()
        if self._zeroing is not None or self._measuring is not None:
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        dark = sensor.is_dark()
        operation = self.state.status.operation

        def finish() -> None:
            self._zeroing = None
            operation.set_bit(ZEROING_BIT, False)
            if dark and sensor.is_dark():
                sensor.take_zero()
            else:
                self.state.report(scpi_errors.EXECUTION_ERROR)

        operation.set_bit(ZEROING_BIT, True)
        self._zeroing = self.state.begin(physics.ZEROING_S, finish)

    def abort_zero(self) -> None:
        """Give up zeroing; the old zero stays."""
        if self._zeroing is not None:
            self.state.abort(self._zeroing)
            self._zeroing = None
        self.state.status.operation.set_bit(ZEROING_BIT, False)

    def _abort_all(self) -> None:
        self.abort()
        self.abort_zero()
