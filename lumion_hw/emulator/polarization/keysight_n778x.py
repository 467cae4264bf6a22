"""Emulated Keysight N7785C synchronous scrambler used as a polarization stabilizer with external feedback.

Command language: N778xC Programming Guide. Optics: six endlessly rotatable LiNbO3 plates, λ/4 and λ/2 alternately, each
with a fixed angle offset.

The maker's search algorithm is not published; this is our own. The host sends a factor F, which is smaller for a better
polarization, and ``TRIGger 1`` takes one step towards a smaller F. A step turns one plate by an angle proportional to
√F. A step that lowers F is repeated; otherwise it is undone, and another plate or direction follows.

Unverified choices: the first three values of ``SOP`` must be 0, and F is above 0 and at most 100. A trigger while
stopped gives error -211. A step without a new F uses the previous F. Stopping and ``*RST`` return to the best
polarization so far.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.polarization import HALF, QUARTER, Jones, plates
from lumion_hw.emulator.scpi import (
    Boolean,
    Call,
    Form,
    Numeric,
    Profile,
    Reply,
    ScpiCommand,
    ScpiDevice,
    ScpiError,
    ScpiInstrument,
    errors as scpi_errors,
    event,
    flag_setting,
)
from lumion_hw.emulator.scpi.formats import keysight_float32, keysight_int

RETARDANCES_RAD = (QUARTER, HALF, QUARTER, HALF, QUARTER, HALF)
MAX_FACTOR = 100.0
STEP_RAD = 0.3
"""Rotation of a plate in rad in one step at F = 100."""
_MIN_STEP_RAD = 1e-3
_BEST_FACTOR_GROWTH = 1.02
_MAX_STORED_STEPS = 1000
_ACTIVATION_LOSS_DB = 0.03


class PlateSearch:
    """Polarization search of the stabilizer: sets plate angles from feedback factors."""

    def __init__(self, rng: np.random.Generator, angles_rad: NDArray[np.float64]) -> None:
        self._rng = rng
        self.angles_rad = angles_rad.copy()
        self.start()

    def start(self) -> None:
        """Start the search at the present plate angles."""
        self._best_rad = self.angles_rad.copy()
        self._best = math.inf
        self._plate, self._direction = 0, 1.0

    def step(self, factor: float) -> None:
        """Take one search step, given the factor at the present plate angles."""
        # The step helped: it is kept, and the next one rotates the same plate in the same direction.
        if factor < self._best:
            self._best, self._best_rad = factor, self.angles_rad.copy()
        else:
            # The best factor is increased a little, so that a lucky reading or a moved fibre cannot stop the search.
            self._best *= _BEST_FACTOR_GROWTH
            self._plate = int(self._rng.integers(len(self.angles_rad)))
            self._direction = float(self._rng.choice((-1.0, 1.0)))
        self.angles_rad = self._best_rad.copy()
        # F is of second order in the error on the sphere, so the step is proportional to its root.
        turn_rad = max(STEP_RAD * math.sqrt(min(factor, MAX_FACTOR) / MAX_FACTOR), _MIN_STEP_RAD)
        self.angles_rad[self._plate] = (self.angles_rad[self._plate] + self._direction * turn_rad) % math.tau

    def end(self) -> None:
        """End the search and return to the best plate angles so far."""
        self.angles_rad = self._best_rad.copy()


class EmulatedKeysightN7785C(ScpiDevice):
    """Emulated Keysight N7785C polarization stabilizer.

    Args:
        turn: Called with the Jones matrix of the plates, at construction and after every change.

    Attributes:
        sop_setting: Last setting of ``SOP``.
        steps: Factors received in the last steps, the oldest first.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        rng: np.random.Generator,
        *,
        turn: Callable[[Jones], None],
        serial: str = "DE00000004",
        firmware: str = "1.0.0",
    ) -> None:
        self._turn = turn
        self._offsets_rad = rng.uniform(0.0, math.pi, len(RETARDANCES_RAD))
        self._search = PlateSearch(rng, np.zeros(len(RETARDANCES_RAD)))
        self.stabilizing = False
        self.sop_setting = (0.0, 0.0, 0.0, MAX_FACTOR)
        self.steps: deque[float] = deque(maxlen=_MAX_STORED_STEPS)
        super().__init__(name, clock)
        self._scpi = ScpiInstrument(
            name, clock, Profile(f"Keysight Technologies,N7785C,{serial},{firmware}"), self._reset
        )
        self._scpi.declare(self._commands())
        self._apply()

    def _commands(self) -> Iterable[ScpiCommand]:
        yield flag_setting(
            ":STABilizer:STABilize",
            Boolean(),
            lambda _: self.stabilizing,
            lambda _, on: self._stabilize(on),
            keysight_int,
        )
        target, factor = Numeric(-1.0, 1.0), Numeric(0.0, MAX_FACTOR)
        yield ScpiCommand(
            ":STABilizer:SOP", Form(self._set_sop, (target, target, target, factor)), Form(self._report_sop)
        )
        yield event(":TRIGger", self._trigger, Numeric(1, 1, integer=True))

    def _reset(self) -> None:
        self._stabilize(False)
        self.sop_setting = (0.0, 0.0, 0.0, MAX_FACTOR)

    def _stabilize(self, on: bool) -> None:
        if on and not self.stabilizing:
            self._search.start()
        elif self.stabilizing and not on:
            self._search.end()
            self._apply()
        self.stabilizing = on

    def _set_sop(self, call: Call) -> Reply:
        first, second, third, factor = (call.number(index) for index in range(4))
        # A target on the sphere needs the built-in polarimeter of other models.
        if (first, second, third) != (0.0, 0.0, 0.0):
            raise ScpiError(scpi_errors.SETTINGS_CONFLICT)
        if factor <= 0.0:
            raise ScpiError(scpi_errors.DATA_OUT_OF_RANGE)
        self.sop_setting = (first, second, third, factor)
        return None

    def _report_sop(self, _: Call) -> Reply:
        return ",".join(keysight_float32(value) for value in self.sop_setting)

    def _trigger(self, _: Call) -> Reply:
        if not self.stabilizing:
            raise ScpiError(scpi_errors.TRIGGER_IGNORED)
        self.steps.append(self.sop_setting[3])
        self._search.step(self.sop_setting[3])
        self._apply()
        return None

    def _apply(self) -> None:
        angles_rad = (self._offsets_rad + self._search.angles_rad).tolist()
        self._turn(plates(angles_rad, RETARDANCES_RAD, _ACTIVATION_LOSS_DB))
