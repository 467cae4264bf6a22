"""Stand-in for a pluggable module that does not answer when its bench is opened."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, cast

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkError
from lumion_hw.interfaces import LanedTransponder, Monitors, SignalStatus, Transponder, TransponderIdentity

RETRY_S = 1.0
"""Least time between two attempts to open the module, each of which waits seconds for its bus."""


class AbsentModule:
    """A module that did not answer; implements ``Transponder``.

    A call first tries to open the module again, unless an attempt has failed in the last :data:`RETRY_S`; it raises the
    ``LinkError`` of the last attempt. A module that answers is used like any other; only then has this object the
    further methods of its kind.

    Args:
        open_module: Opens the module. Raises ``LinkError`` if it does not answer.
        error: Error of the first attempt.
    """

    def __init__(self, open_module: Callable[[], Transponder], error: LinkError, clock: Clock) -> None:
        self._open_module, self._clock = open_module, clock
        self._module: Transponder | None = None
        self._error, self._next_s = error, clock.now() + RETRY_S
        self._guard = threading.Lock()

    def opened(self) -> Transponder:
        """Return the module. Raises ``LinkError`` if it does not answer."""
        with self._guard:
            if self._module is not None:
                return self._module
            if self._clock.now() < self._next_s:
                raise self._error
            self._next_s = math.inf  # no other thread tries meanwhile
        # Not under the lock: on a virtual clock, no other thread may wait for a lock during a wait.
        try:
            self._module = self._open_module()
        except LinkError as error:
            self._error = error
            raise
        finally:
            self._next_s = self._clock.now() + RETRY_S
        return self._module

    def __getattr__(self, name: str) -> Any:
        # Only for names that this class does not have. Without the module, its kind counts as the simplest.
        module = self.__dict__.get("_module")
        if module is None:
            raise AttributeError(f"the module does not answer, so that its {name} is unknown")
        return getattr(module, name)

    def open(self) -> None:
        """Open the module, also again after its connection was lost. Raises ``LinkError`` if it does not answer."""
        if self._module is None:
            self.opened()
        else:
            cast("Any", self._module).open()

    def media_lane_later(self, number: int) -> AbsentModule:
        """Return a stand-in for one lane of the module."""

        def media_lane() -> Transponder:
            return cast("LanedTransponder", self.opened()).media_lane(number)

        return AbsentModule(media_lane, self._error, self._clock)

    def identify(self) -> TransponderIdentity:
        """Read the identity of the module."""
        return self.opened().identify()

    def can_switch(self) -> bool:
        """Return whether software can switch the transmitter; true while the module does not answer."""
        return self._module is None or self._module.can_switch()

    def enable(self) -> None:
        """Switch the transmitter on."""
        self.opened().enable()

    def disable(self) -> None:
        """Switch the transmitter off."""
        self.opened().disable()

    def monitors(self) -> Monitors:
        """Read the monitors of the module."""
        return self.opened().monitors()

    def status(self) -> SignalStatus:
        """Read the live status."""
        return self.opened().status()

    def close(self) -> None:
        """Release the module if it is open; idempotent."""
        if self._module is not None:
            self._module.close()
