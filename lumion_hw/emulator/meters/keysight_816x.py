"""Emulated Keysight 8163, 8164 or 8166 mainframe with power sensors and, in slot 0 of an 8164, a tunable laser.

Command language: 8163A/B, 8164A/B, 8166A/B Programming Guide. An omitted slot number means the lowest slot. Settings of
the first channel of a dual sensor apply to both channels. A failed query replies a marker value and queues an error. An
8164 connects the trigger pulses of its laser to its sensors. Figures of the lasers, and of sensors other than the
81635A, are typical values, not checked against the data sheets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.lasers.keysight_laser import INPUTS, OUTPUTS, LaserModule, laser_commands, trigger_commands
from lumion_hw.emulator.lasers.swept_laser import LaserProfile
from lumion_hw.emulator.meters.keysight_functions import MeterTraits
from lumion_hw.emulator.meters.keysight_meter import EmulatedKeysightMeter
from lumion_hw.emulator.meters.photodiode_head import HEAD_81635A, HeadProfile, make_head
from lumion_hw.emulator.optics.light import Light, LightOutlet
from lumion_hw.emulator.scpi import (
    Call,
    Choice,
    Form,
    Profile,
    Reply,
    ScpiCommand,
    ScpiError,
    SuffixRange,
    errors as scpi_errors,
)
from lumion_hw.emulator.scpi.formats import short_form
from lumion_hw.emulator.scpi.keysight_slots import SlotModule, slot_commands
from lumion_hw.errors import ConfigError

SLOTS = {
    "8163A": range(1, 3),
    "8163B": range(1, 3),
    "8164A": range(5),
    "8164B": range(5),
    "8166A": range(1, 18),
    "8166B": range(1, 18),
}
"""Slots of each mainframe. Slot 0 accepts only a tunable laser."""
LASER_SLOT = 0
MODULE_SPEEDS_NM_PER_S = (0.5, 5.0, 10.0, 20.0, 40.0, 80.0)
"""Sweep speeds of the lasers for slot 0, in nm/s."""

DUAL_SENSORS: Mapping[int, str] = {1: "81635A", 2: "81635A"}


@dataclass(frozen=True)
class SlotSensor:
    """One model of plug-in power sensor."""

    channels: int
    head: HeadProfile


def _sensor(
    wavelengths_nm: tuple[float, float],
    ranges_dbm: tuple[int, int],
    noise_w: float,
    shortest_s: float = 100e-6,
    max_points: int = 20_001,
) -> SlotSensor:
    """Return a sensor with one input; ``noise_w`` is the standard deviation of a 1 s average in W."""
    head = HeadProfile(
        wavelength_limits_m=(wavelengths_nm[0] * 1e-9, wavelengths_nm[1] * 1e-9),
        averaging_limits_s=(shortest_s, 10.0),
        range_limits_dbm=ranges_dbm,
        noise_w_at_1_s=noise_w,
        responsivity_nm=HEAD_81635A.responsivity_nm,
        responsivity_a_per_w=HEAD_81635A.responsivity_a_per_w,
        limited_top=False,
        max_points=max_points,
    )
    return SlotSensor(1, head)


SENSORS: Mapping[str, SlotSensor] = {
    "81630B": _sensor((970.0, 1650.0), (-70, 30), 1.7e-9),
    "81634B": _sensor((800.0, 1700.0), (-110, 10), 0.035e-12),
    "81635A": SlotSensor(2, HEAD_81635A),
    "81636B": _sensor((1250.0, 1640.0), (-80, 10), 3.5e-12, shortest_s=25e-6, max_points=100_001),
}

_POWER_DBM = (-15.0, 8.5)
LASERS: Mapping[str, LaserProfile] = {
    "81600B-130": LaserProfile((1260.0, 1375.0), _POWER_DBM),
    "81600B-140": LaserProfile((1370.0, 1495.0), _POWER_DBM),
    "81600B-150": LaserProfile((1450.0, 1590.0), _POWER_DBM),
    "81600B-160": LaserProfile((1495.0, 1640.0), _POWER_DBM),
    "81600B-200": LaserProfile((1440.0, 1640.0), _POWER_DBM),
}
LOW_SSE_LOSS_DB = 5.0
"""Power of the low-SSE output (little spontaneous emission) below that of the other output, in dB."""


def sensor_ports(modules: Mapping[int, str]) -> list[tuple[int, int]]:
    """Return slot and channel of every sensor input of a mainframe, in the order of the slots."""
    return [
        (slot, channel)
        for slot in sorted(modules)
        if slot != LASER_SLOT
        for channel in range(1, SENSORS[modules[slot]].channels + 1)
    ]


def slot_module(slot: int, model: str) -> SlotModule:
    """Return the identity of a plug-in module; ``model`` is one of :data:`SENSORS` or :data:`LASERS`."""
    part, _, option = model.partition("-")
    identity = f"Agilent Technologies,{part},DE{slot:08d},V1.0"
    return SlotModule(part, identity, f"NO CONNECTOR OPTION, #{option}") if option else SlotModule(part, identity)


class EmulatedKeysight816x(EmulatedKeysightMeter):
    """Emulated Keysight 816x mainframe with its modules.

    Args:
        light: Returns the light at a slot and channel at a present or past time.
        model: One of :data:`~lumion_hw.emulator.meters.keysight_816x.SLOTS`.
        modules: Module in each occupied slot: a sensor, or in slot 0 of an 8164 a laser. ``ConfigError`` for no module
            or a module in a wrong slot.
        on_triggers: Called with the times of the laser's pulses at the trigger output.
        emit: Called with the laser's light at every change.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        light: Callable[[int, int, float], Light],
        *,
        model: str = "8164B",
        serial: str = "DE00000003",
        firmware: str = "V5.25(72637)",
        modules: Mapping[int, str] = DUAL_SENSORS,
        on_triggers: Callable[[NDArray[np.float64]], None] | None = None,
        emit: Callable[[Light], None] | None = None,
    ) -> None:
        _check_modules(name, model, modules)
        ports = sensor_ports(modules)
        # A separate stream for each head and the laser, so that a changed module does not affect the others.
        *streams, self._laser_stream = rng.spawn(len(ports) + 1)
        heads = {
            port: make_head(self._light_at, port, stream, clock, SENSORS[modules[port[0]]].head)
            for port, stream in zip(ports, streams, strict=True)
        }
        self.laser: LaserModule | None = None
        self._light = light
        self._on_triggers = on_triggers or (lambda _times: None)
        self._outlet = LightOutlet(emit)
        self._model = model
        self._modules = modules
        identity = f"Agilent Technologies,{model},{serial},{firmware}"
        profile = Profile(identity, scpi_version="1995.0", reports_busy=True)
        traits = MeterTraits(gain_switch=False, results_in_watts=True, master_only=True)
        slots = SLOTS[model]
        super().__init__(name, clock, profile, heads, traits, SuffixRange(slots[0], slots[-1], slots[0]))

    def _commands(self) -> Iterable[ScpiCommand]:
        yield from slot_commands(
            {slot: slot_module(slot, module) for slot, module in self._modules.items()}, SLOTS[self._model]
        )
        if LASER_SLOT not in self._modules:
            yield from super()._commands()
            return
        self.laser = LaserModule(
            self._scpi.state,
            self._clock,
            self._laser_stream,
            LASERS[self._modules[LASER_SLOT]],
            MODULE_SPEEDS_NM_PER_S,
            self._laser_pulses,
            low_sse_loss_db=LOW_SSE_LOSS_DB,
        )
        self._ranges |= {"s": SuffixRange(LASER_SLOT, LASER_SLOT, LASER_SLOT), "c": SuffixRange(1, 1)}
        yield from laser_commands(self.laser)
        if not self.heads:
            yield from trigger_commands(self.laser)
            return
        laser_settings = {":TRIGger[n][:CHANnel[m]]:INPut": "input", ":TRIGger[n][:CHANnel[m]]:OUTPut": "output"}
        for command in super()._commands():
            yield (
                self._with_laser(command, laser_settings[command.pattern])
                if command.pattern in laser_settings
                else command
            )

    def _with_laser(self, command: ScpiCommand, name: str) -> ScpiCommand:
        words = OUTPUTS if name == "output" else INPUTS
        sensor_set, sensor_query = command.set, command.query
        # Sensors and laser accept different words: the parser accepts both sets, and the slot decides which apply.
        sensor_words = sensor_set.parameters[0] if sensor_set is not None else None
        if sensor_set is None or sensor_query is None or not isinstance(sensor_words, Choice):
            return command
        all_words = Choice(tuple(dict.fromkeys((*words, *sensor_words.words))))

        def write(call: Call) -> Reply:
            word, for_laser = call.text(), call.suffix["n"] == LASER_SLOT
            if word not in (words if for_laser else sensor_words.words):
                raise ScpiError(scpi_errors.ILLEGAL_PARAMETER_VALUE)
            if for_laser and self.laser is not None:
                setattr(self.laser.settings, name, word)
                return None
            sensor_set.run(call)
            return None

        def read(call: Call) -> Reply:
            if call.suffix["n"] == LASER_SLOT and self.laser is not None:
                return short_form(str(getattr(self.laser.settings, name)))
            result = sensor_query.run(call)
            return result if isinstance(result, str) else None

        return ScpiCommand(command.pattern, Form(write, (all_words,)), Form(read))

    def _laser_pulses(self, times_s: NDArray[np.float64]) -> None:
        # The pulses appear at the output connector; the sensors receive them if the trigger wiring loops them back.
        self.pulses_out(times_s.tolist())
        self._on_triggers(times_s)

    def _acquire(self) -> None:
        self._update_laser()
        super()._acquire()

    def _update_laser(self) -> None:
        if self.laser is not None:
            self.laser.advance()
            self._outlet.report(self.laser.laser.light)

    def _light_at(self, slot: int, channel: int, at_s: float) -> Light:
        self._update_laser()  # one message may change the laser and then read a sensor
        return self._light(slot, channel, at_s)

    def _next_update(self) -> float | None:
        times = (super()._next_update(), None if self.laser is None else self.laser.laser.next_update_s())
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _reset(self) -> None:
        super()._reset()
        if self.laser is not None:
            self.laser.reset()

    def light(self) -> Light:
        """Return the light that the laser emits now. Raises ``ConfigError`` if there is no laser."""
        return self.light_at(self._clock.now())

    def light_at(self, at_s: float) -> Light:
        """Return the light that the laser emitted at a past time. Raises ``ConfigError`` if there is no laser."""
        if self.laser is None:
            raise ConfigError("this mainframe has no laser", device=self.name)
        return self.laser.laser.light_at(at_s)


def _check_modules(name: str, model: str, modules: Mapping[int, str]) -> None:
    slots = SLOTS.get(model)
    if slots is None:
        raise ConfigError(f"there is no mainframe {model!r}", device=name, hint=f"Use one of {', '.join(SLOTS)}.")
    if not modules:
        raise ConfigError("the mainframe has no modules", device=name, hint="Plug in at least one module.")
    for slot, module in modules.items():
        sensor_words = LASERS if slot == LASER_SLOT else SENSORS
        if slot not in slots or module not in sensor_words:
            raise ConfigError(
                f"a {model} cannot hold a {module} in slot {slot}",
                device=name,
                hint=f"Use slots {slots[0]} to {slots[-1]}; slot 0 holds a laser ({', '.join(LASERS)}), others sensors "
                f"({', '.join(SENSORS)}).",
            )
