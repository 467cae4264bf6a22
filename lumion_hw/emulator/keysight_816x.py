"""Emulated Keysight 8163B/8164B lightwave mainframe with 81635A dual power sensors and, in slot 0, a tunable laser.

Language: sections 3 and 7 of the instrument facts (8163A/B, 8164A/B, 8166A/B programming guide). What differs from the
N77xx: slots and channels, runs are read in W, a sensor's first channel is the master of both, known queries that fail
answer a marker besides the entry in the error queue, and an 8164B wires the laser's pulses to its sensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.keysight_laser import MODULE_SPEEDS_NM_PER_S, LaserModule
from lumion_hw.emulator.keysight_laser_commands import INPUTS, OUTPUTS, laser_commands
from lumion_hw.emulator.keysight_meter import KeysightMeter, MeterTraits, Port
from lumion_hw.emulator.light import Light
from lumion_hw.emulator.n77xx_head import HEAD_81635A, Head
from lumion_hw.emulator.scpi import Call, Choice, Command, Form, Profile, Reply, ScpiError, SuffixRange, query
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.emulator.scpi.spelling import short_form
from lumion_hw.emulator.swept_laser import LaserProfile
from lumion_hw.errors import ConfigError

SLOTS = {"8163A": 2, "8163B": 2, "8164A": 4, "8164B": 4, "8166A": 17, "8166B": 17}
"""Slots of each mainframe, besides slot 0 of the 8164A and 8164B."""
LASER_SLOT = 0


class Keysight816x(KeysightMeter):
    """A mainframe with its modules (:class:`~lumion_hw.emulator.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        rng: Draws the modules' hidden errors and their noise.
        light: Gives the light at a slot and channel at a time of the present or the past.
        model: One of :data:`SLOTS`.
        serial: Serial number in ``*IDN?``.
        firmware: Last field of ``*IDN?``.
        sensors: Slots with a dual sensor 81635A.
        laser: Model of the laser in slot 0 of an 8164; ``None`` for none.
        emit: Called with the laser's light whenever it has changed.

    Raises:
        ConfigError: There is no such mainframe, slot or sensor, or the mainframe takes no laser.
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
        sensors: tuple[int, ...] = (1, 2),
        laser: LaserProfile | None = None,
        emit: Callable[[Light], None] | None = None,
    ) -> None:
        if model not in SLOTS or not sensors or any(not 1 <= slot <= SLOTS[model] for slot in sensors):
            raise ConfigError(
                f"{name}: no {model} has sensors in the slots {sensors}",
                device=name,
                hint="An 8163 has the slots 1 and 2, an 8164 1 to 4, an 8166 1 to 17; give at least one sensor.",
            )
        if laser is not None and not model.startswith("8164"):
            raise ConfigError(f"{name}: an {model} has no slot 0 for a laser", device=name)
        streams = iter(rng.spawn(2 * len(sensors) + 1))
        heads = {
            (slot, channel): _head(light, slot, channel, next(streams), clock)
            for slot in sorted(sensors)
            for channel in (1, 2)
        }
        self.laser: LaserModule | None = None
        self._emit = emit
        self._emitted: Light | None = None
        self._laser_profile = laser
        self._laser_stream = next(streams)
        profile = Profile(f"Agilent Technologies,{model},{serial},{firmware}", scpi_version="1995.0")
        traits = MeterTraits(gain_switch=False, results_in_watts=True, master_only=True)
        super().__init__(name, clock, profile, heads, traits)

    def _commands(self) -> Iterable[Command]:
        if self._laser_profile is None:
            yield from super()._commands()
        else:
            self.laser = LaserModule(
                self._scpi.state,
                self._clock,
                self._laser_stream,
                self._laser_profile,
                MODULE_SPEEDS_NM_PER_S,
                self._laser_pulses,
            )
            slots = self._ranges["n"]
            self._ranges |= {
                "s": SuffixRange(LASER_SLOT, LASER_SLOT, LASER_SLOT),
                "c": SuffixRange(1, 1),
                "n": SuffixRange(LASER_SLOT, slots.last),
            }
            own = {":TRIGger[n][:CHANnel[m]]:INPut": "input", ":TRIGger[n][:CHANnel[m]]:OUTPut": "output"}
            for command in super()._commands():
                yield self._shared(command, own[command.pattern]) if command.pattern in own else command
            yield from laser_commands(self.laser)
        yield query(":SLOT[n][:HEAD[m]]:IDN", self._identify)

    def _shared(self, command: Command, name: str) -> Command:
        """Let the laser answer for its slot in a trigger command of the sensors."""
        words = OUTPUTS if name == "output" else INPUTS
        sensor_set, sensor_query = command.set, command.query
        known = sensor_set.parameters[0] if sensor_set is not None else None
        if sensor_set is None or sensor_query is None or not isinstance(known, Choice):
            return command
        every = Choice(tuple(dict.fromkeys((*words, *known.words))))

        def write(call: Call) -> Reply:
            word, for_laser = call.text(), call.suffix["n"] == LASER_SLOT
            if word not in (words if for_laser else known.words):
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

        return Command(command.pattern, Form(write, (every,)), Form(read))

    def _identify(self, call: Call) -> Reply:
        slot = call.suffix["n"]
        if slot == LASER_SLOT and self.laser is not None:
            return "Agilent Technologies,81600B,DE00000000,V1.0"
        self.port(call)
        return f"Agilent Technologies,81635A,DE{slot:08d},V1.0"

    def _laser_pulses(self, times_s: NDArray[np.float64]) -> None:
        self.hardware_trigger(times_s.tolist())

    def _acquire(self) -> None:
        if self.laser is not None:
            self.laser.advance()
            light = self.laser.laser.light()
            if self._emit is not None and light != self._emitted:
                self._emitted = light
                self._emit(light)
        super()._acquire()

    def _reset(self) -> None:
        super()._reset()
        if self.laser is not None:
            self.laser.reset()

    def light(self) -> Light:
        """Return the laser's true light now. Raises ``ConfigError`` if there is no laser."""
        return self.light_at(self._clock.now())

    def light_at(self, at_s: float) -> Light:
        """Return the laser's true light at a time that has passed. Raises ``ConfigError`` if there is no laser."""
        if self.laser is None:
            raise ConfigError(f"{self.name} has no laser", device=self.name)
        return self.laser.laser.light_at(at_s)


def _head(
    light: Callable[[int, int, float], Light], slot: int, channel: int, rng: np.random.Generator, clock: Clock
) -> Head:
    port: Port = slot, channel

    def light_at(at_s: float) -> Light:
        return light(*port, at_s)

    return Head(
        lambda: light_at(clock.now()).power_w,
        lambda: light_at(clock.now()).wavelength_nm * 1e-9,
        rng,
        clock.now,
        profile=HEAD_81635A,
        light_at=light_at,
    )
