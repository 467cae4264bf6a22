"""Keysight N7785C polarization stabilizer with feedback from outside: it is told a factor and makes it smaller.

The instrument has six plates of its own and a search of its own, which its maker does not publish. The host measures,
tells what the present polarization is worth, and lets it take a step (docs/polarization.md).
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
"""The N7786C and N7788C stabilize a state that they measure themselves: their ``STAB:SOP`` means something else."""
LARGEST_FACTOR = 100.0
DEFAULT_SETTLE_S = 0.05
"""The maker's loop runs at 10 to 20 Hz."""
_HOLD, _STABILIZE = "STAB:STAB 0", "STAB:STAB 1"


class KeysightN7785C(ScpiDriver):
    """Driver of one instrument; implements ``PolarizationOptimizer``. Thread-safe.

    No command has a documented query form, so what tells that one was taken is the empty error queue behind it.

    Args:
        link: The link to the instrument (raw socket, port 5025, or VISA).
        clock: The link's clock.
        **names: As of :class:`~lumion_hw.drivers.scpi.ScpiDriver`.
        settle_s: Time after a step until the light follows.
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
        """Open the link and check the identity. The polarization stays.

        Raises:
            ConnectError: The link cannot be opened.
            IdentityError: Another instrument answers.
            LinkTimeout: Nothing answers.
        """
        with self._session.transaction(), close_on_error(self.close):
            self._started = False
            self._identify()
            self._scpi.errors()  # what was left by others is not ours

    def close(self) -> None:
        """Release the link; idempotent, never raises. The polarization stays."""
        self._started = False
        super().close()

    @property
    def settle_s(self) -> float:
        """Time after a step until the light follows."""
        return self._settle_s

    def start(self) -> None:
        """Begin a search anew from the present polarization. Raises ``DeviceError`` if the instrument refuses."""
        with self._session.transaction():
            self._check_open()
            self._started = False
            # Switched off first: stabilizing that runs already would go on with the search it has.
            self._scpi.set(_HOLD)
            self._scpi.set(_STABILIZE)
            self._started = True

    def improve(self, factor: float) -> None:
        """Tell what the present polarization is worth, and let the instrument take one step towards a smaller factor.

        Args:
            factor: Above 0 and at most 100; the larger its scale, the faster the steps lead there.

        Raises:
            LimitError: The factor is outside; nothing was sent.
            DeviceError: The search was not started, or the instrument refuses.
        """
        if not 0.0 < factor <= LARGEST_FACTOR:
            raise self._session.error(
                LimitError,
                "factor",
                requested=factor,
                limit=LARGEST_FACTOR if factor > 0.0 or math.isnan(factor) else 0.0,
                unit="",
                hint="Scale it so that its largest value is near 100. Nothing was sent.",
            )
        with self._session.transaction():
            self._check_open()
            if not self._started:
                raise self._session.error(
                    DeviceError,
                    "no search was started, so no step can be taken",
                    command="improve",
                    hint="Call start() first.",
                )
            # In this mode the last number is the factor to be made small;
            # the three before it are a target state, which it does not use.
            self._scpi.set(f"STAB:SOP 0,0,0,{factor:.7g}")
            self._scpi.set("TRIG 1")

    def stop(self) -> None:
        """Hold the polarization as it is. Idempotent."""
        with self._session.transaction():
            self._check_open()
            self._started = False
            self._scpi.set(_HOLD)
