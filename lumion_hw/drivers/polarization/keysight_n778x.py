"""Driver for the Keysight N7785C polarization stabilizer with external feedback.

The host measures a figure of merit and reports it; the instrument then changes the polarization to reduce this figure
(docs/polarization.md).
"""

from __future__ import annotations

import math
from typing import Unpack

from lumion_hw.clock import Clock
from lumion_hw.drivers.life_cycle import close_on_error
from lumion_hw.drivers.scpi import DeviceNames, ScpiDriver
from lumion_hw.errors import DeviceError, LimitError
from lumion_hw.links.base import Link

MODELS = ("N7785C",)
"""Supported models. In N7786C and N7788C the same commands have a different function."""
LARGEST_FACTOR = 100.0
DEFAULT_SETTLE_S = 0.05
"""Default settling time of the light after a step, in s (the maker's own control loop runs at 10 to 20 Hz)."""
_HOLD, _STABILIZE = "STAB:STAB 0", "STAB:STAB 1"


class KeysightN7785C(ScpiDriver):
    """Driver of one instrument; implements ``PolarizationOptimizer``. Thread-safe.

    No setting can be read back; a command counts as executed if the instrument reports no error.

    Args:
        link: Link to the instrument (raw socket, port 5025, or VISA).
        clock: Clock of the link.
        **names: Device name and expected identity, as for :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        settle_s: Settling time of the light after a step.
    """

    makers = ("KEYSIGHT", "AGILENT")
    models = MODELS

    def __init__(
        self, link: Link, clock: Clock, *, settle_s: float = DEFAULT_SETTLE_S, **names: Unpack[DeviceNames]
    ) -> None:
        super().__init__(link, clock, **names)
        self._settle_s = settle_s
        self._started = False

    def open(self) -> None:
        """Open the link and check the identity. The polarization stays. Raises the errors of :meth:`Driver.open`."""
        with self._session.transaction(), close_on_error(self.close):
            self._started = False
            self._identify()
            self._scpi.errors()  # discard errors of earlier users

    def close(self) -> None:
        """Release the link; idempotent, never raises. The polarization stays."""
        self._started = False
        super().close()

    @property
    def settle_s(self) -> float:
        """Settling time of the light after a step."""
        return self._settle_s

    def start(self) -> None:
        """Start a new search from the present polarization. Raises ``DeviceError`` if the instrument refuses."""
        with self._session.transaction():
            self._check_open()
            self._started = False
            # Switched off first; otherwise a running stabilizer would continue its present search.
            self._scpi.set(_HOLD)
            self._scpi.set(_STABILIZE)
            self._started = True

    def improve(self, factor: float) -> None:
        """Report the figure of merit of the present polarization.

        The instrument then makes one step to reduce this figure.

        Raises ``DeviceError`` if no search was started or the instrument refuses, and ``LimitError`` if ``factor`` is
        out of range.

        Args:
            factor: Figure of merit, above 0 and at most 100. Scale its largest value to about 100 for fast convergence.
        """
        if not 0.0 < factor <= LARGEST_FACTOR:
            raise self._session.error(
                LimitError,
                "factor",
                requested=factor,
                limit=LARGEST_FACTOR if factor > 0.0 or math.isnan(factor) else 0.0,
                unit="",
                hint="Scale the figure of merit to a largest value near 100. Nothing was sent.",
            )
        with self._session.transaction():
            self._check_open()
            if not self._started:
                raise self._session.error(
                    DeviceError,
                    "no search was started",
                    command="improve",
                    hint="Call start() first.",
                )
            # In this mode the last number is the factor to be minimized;
            # the three numbers before it are an unused target state.
            self._scpi.set(f"STAB:SOP 0,0,0,{factor:.7g}")
            self._scpi.set("TRIG 1")

    def stop(self) -> None:
        """Stop the search and hold the present polarization; idempotent."""
        with self._session.transaction():
            self._check_open()
            self._started = False
            self._scpi.set(_HOLD)
