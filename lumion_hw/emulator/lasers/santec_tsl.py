"""Emulated Santec TSL-510, TSL-550, TSL-570 and TSL-710 tunable lasers.

Language: section 8 of the instrument facts; beyond it what public clients quote of the maker's manual: the maker's own
samples (santec-corporation/python-samples), QMI (qmi/instruments/santec/tsl_570.py and its tests) and a QCoDeS driver
with the manual's list of 62 commands. A carriage return ends messages both ways (manual 7.1.3; the samples read up to
it); LF and CR LF are taken too. Errors are those of the maker's table, ``0,"No error"`` when there is none; without
trouble ``SYSTem:ALERt?`` is ``No alerts.``. With no light the monitor says less than -99 dBm, and it sits before the
shutter (measured on a TSL-775: a full log behind a closed shutter). Nothing follows a logged block.

Model choices where they leave one: tuning and sweeps are overlapped operations; a cycle of a two-way sweep goes and
comes back, and both are counted and logged; zero cycles are one; a sweep waits when ``TRIGger:INPut:EXTernal`` or
``:STANdby`` is on, until its software trigger or a pulse comes; after ``*RST`` the trigger output is off, and what is
logged is the wavelength at every pulse of the trigger output, so that without pulses the log is empty (the TSL-775 does
so); fine tuning, offset, attenuator, modulation and coherence control are kept and told, without effect on the light;
``TRIGger:OUTPut:SETTing`` is without effect too, as the emulated sweep is even in wavelength and time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.lasers.santec_tsl_commands import LEGACY, commands
from lumion_hw.emulator.lasers.swept_laser import (
    MOST_TRIGGERS,
    ArmedSweep,
    LaserProfile,
    Pulses,
    SweepState,
    SweptLaser,
)
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.scpi import Operation, Profile, ScpiDevice, ScpiError, ScpiInstrument
from lumion_hw.emulator.scpi import errors as scpi_errors
from lumion_hw.errors import ConfigError

MODELS = ("TSL-510", "TSL-550", "TSL-570", "TSL-710")
SPEEDS_NM_PER_S = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
SLOW_SPEEDS_NM_PER_S = (0.5, 100.0)
"""The older models take any speed between these, in tenths."""
FIRMWARE = "0026.0026.0011"
_DEFAULT_NM = 1550.0
_PULSES = (Pulses.NONE, Pulses.STOP, Pulses.START, Pulses.STEP)
"""By the number of ``TRIGger:OUTPut``."""
_STATES = {
    SweepState.STOPPED: 0,
    SweepState.RUNNING: 1,
    SweepState.PAUSED: 1,
    SweepState.WAITING: 3,
    SweepState.PREPARING: 4,
}


@dataclass
class TslSettings:
    """What the host has set; the defaults are those after ``*RST``.

    Attributes:
        start_nm: Where a sweep begins.
        stop_nm: Where it ends.
        step_nm: Step of a stepped sweep.
        step_thz: Step in frequency; kept, without effect on the model.
        speed_nm_per_s: Speed of continuous sweeps.
        dwell_s: Rest on every step.
        delay_s: Rest between passes.
        cycles: Sweeps in a row.
        mode: Bit 0 continuous, bit 1 two-way.
        in_mw: Powers in mW rather than dBm.
        external: A sweep waits for a pulse.
        standby: A sweep waits for the software trigger.
        output: Number of the timing of the trigger output.
        output_step_nm: Distance of its pulses in a continuous sweep.
        kept: Settings without effect on the model, by the name of their command.
    """

    start_nm: float
    stop_nm: float
    step_nm: float = 0.1
    step_thz: float = 0.01
    speed_nm_per_s: float = 10.0
    dwell_s: float = 0.0
    delay_s: float = 0.0
    cycles: float = 1
    mode: float = 1
    in_mw: bool = False
    external: bool = False
    standby: bool = False
    output: float = 0
    output_step_nm: float = 0.1
    kept: dict[str, float] = field(default_factory=dict)


class EmulatedSantecTsl(ScpiDevice):
    """The laser (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`).

    Args:
        name: Device name of the bench file.
        clock: The injected clock.
        rng: Draws the laser's errors.
        model: One of :data:`MODELS`; only the TSL-570 has two command sets.
        serial: Third field of ``*IDN?``.
        profile: Model of the laser.
        terminator: Ends every reply.
        on_triggers: Called with the times of the pulses at its trigger output.
        emit: Called with the light whenever it has changed.

    Attributes:
        profile: Model of the laser.
        slow: This is an older model, not a TSL-570.
        firmware: Its firmware, the last field of ``*IDN?``.
        code: Command set in force.
        settings: What the host has set.
        laser: The light. Its hidden errors are for tests only.
        diode: The laser diode is on.
        shut: The shutter is closed.

    Raises:
        ConfigError: There is no such model.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        model: str = "TSL-570",
        serial: str = "00000001",
        profile: LaserProfile | None = None,
        terminator: bytes = b"\r",
        on_triggers: Callable[[NDArray[np.float64]], None] | None = None,
        emit: Callable[[Light], None] | None = None,
    ) -> None:
        if model not in MODELS:
            raise ConfigError(f"{name}: there is no {model}", device=name, hint=f"Give one of {', '.join(MODELS)}.")
        self.slow = model != "TSL-570"
        self.firmware = FIRMWARE
        self.profile = profile or LaserProfile((1480.0, 1640.0), power_dbm=(-15.0, 13.0))
        self._emit = emit
        self._emitted: Light | None = None
        identity = Profile(
            f"SANTEC,{model},{serial},{FIRMWARE}",
            terminator=terminator,
            cr_ends=True,
            terminated_blocks=False,
            error_number="{:d}".format,
            scpi_version=None,
        )
        self._scpi = ScpiInstrument(name, clock, identity, self._default, self._follow, self._next_look)
        self.code = LEGACY
        self.laser = SweptLaser(self.profile, clock, rng, on_triggers or (lambda _times: None))
        self._operation: Operation | None = None
        self._default()
        self._scpi.declare(commands(self))

    def _default(self) -> None:
        self.settings = TslSettings(*self.profile.limits_nm)
        self._repeating = False
        self._operation = None
        self.diode, self.shut = False, self.slow
        self._shutter = (-math.inf, self.shut)
        self.laser.switch(False)
        self.laser.tune(_DEFAULT_NM)
        self.laser.set_power(0.0)

    def light(self) -> Light:
        """Return the true light now."""
        return self.light_at(self._scpi.state.clock.now())

    def light_at(self, at_s: float) -> Light:
        """Return the true light at a time that has passed."""
        light = self.laser.light_at(at_s)
        moved_s, before = self._shutter
        return Light(0.0, light.wavelength_nm) if (self.shut if at_s >= moved_s else before) else light

    def trigger(self) -> None:
        """A pulse at the trigger input."""
        if self.settings.external:
            self.laser.trigger()

    def _follow(self) -> None:
        self.laser.advance()
        if self._repeating and self.laser.state is SweepState.STOPPED:
            self._again()
        if self._operation is not None:
            self._operation.end_s = None if self._repeating else self.laser.end_s
        if self._emit is not None and (light := self.light()) != self._emitted:
            self._emitted = light
            self._emit(light)

    def _next_look(self) -> float | None:
        """A sweep that repeats begins anew when it is over."""
        return self.laser.end_s if self._repeating else None

    def _again(self) -> None:
        try:
            self._begin()
        except ScpiError as refusal:  # settings were changed meanwhile
            self.stop()
            self._scpi.state.report(refusal.code)

    # -- what commands do

    def switch_diode(self, on: bool) -> None:
        """Switch the laser diode."""
        self.diode = on
        self.laser.switch(on)

    def move_shutter(self, shut: bool) -> None:
        """Close or open the shutter."""
        self._shutter, self.shut = (self._scpi.state.clock.now(), self.shut), shut

    def monitored_w(self) -> float:
        """Power that the built-in monitor sees before the shutter, in W."""
        return self.laser.light().power_w

    def tune(self, wavelength_nm: float) -> None:
        """Go to a wavelength; a sweep ends."""
        self.stop()
        self._operation = self._scpi.state.begin(self.laser.tune(wavelength_nm), self._finished)

    def set_speed(self, speed_nm_per_s: float) -> None:
        """Choose the speed of continuous sweeps. Raises ``ScpiError`` -222 for one the laser does not have."""
        speed = round(speed_nm_per_s, 1) if self.slow else speed_nm_per_s
        low, high = SLOW_SPEEDS_NM_PER_S
        if not (low <= speed <= high if self.slow else speed in SPEEDS_NM_PER_S):
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        self.settings.speed_nm_per_s = speed

    @property
    def sweep_number(self) -> int:
        """Reply of the sweep's query: 0 stopped, 1 running, 3 waiting for a trigger, 4 getting ready."""
        return _STATES[self.laser.state]

    def start_sweep(self, *, repeat: bool) -> None:
        """Start the sweeps set, or sweep until stopped. Raises ``ScpiError`` -200 when they cannot be."""
        self.stop()
        self._begin()
        self._repeating = repeat
        self._operation = self._scpi.state.begin(None, self._finished)
        self._follow()

    def _begin(self) -> None:
        settings = self.settings
        continuous, two_way = bool(int(settings.mode) & 1), bool(int(settings.mode) & 2)
        plan = ArmedSweep(
            settings.start_nm,
            settings.stop_nm,
            settings.output_step_nm if continuous else settings.step_nm,
            settings.speed_nm_per_s,
            continuous=continuous,
            two_way=two_way,
            cycles=max(int(settings.cycles), 1) * (2 if two_way else 1),
            dwell_s=settings.dwell_s,
            delay_s=settings.delay_s,
            pulses=_PULSES[int(settings.output)],
        )
        if plan.stop_nm <= plan.start_nm or (plan.steps + 1) * plan.cycles > MOST_TRIGGERS:
            raise ScpiError(scpi_errors.EXECUTION_ERROR)
        self.laser.sweep(plan, wait=settings.external or settings.standby)

    def stop(self) -> None:
        """End the sweep or the tuning under way, where it is."""
        self._repeating = False
        self.laser.stop()
        if self._operation is not None:
            self._scpi.state.abort(self._operation)
            self._operation = None

    def _finished(self) -> None:
        self._operation = None

    def soft_trigger(self) -> None:
        """Begin the sweep that waits. Raises ``ScpiError`` -200 when none does."""
        if not self.laser.trigger():
            raise ScpiError(scpi_errors.EXECUTION_ERROR)
