"""Keeps polarizations beside the watch of a fabric, and leaves them alone while circuits are changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lumion_hw.circuits import CircuitMaintenance, CircuitService
from lumion_hw.clock import ClockEvent
from lumion_hw.errors import BusyError, LumionError

_SLICE_S = 0.5
_AGAIN_S = 1.0
"""After an error of a polarization controller."""


@dataclass(frozen=True)
class _Pause:
    """Circuits are being changed.

    Attributes:
        has_begun: Told by whoever keeps polarizations.
        is_over: Told to whoever keeps polarizations.
    """

    has_begun: ClockEvent
    is_over: ClockEvent


class PolarizationKeeper:
    """Follows the light of all circuits that stand, as one of two jobs side by side; the other one changes them.

    Args:
        service: The circuits.
    """

    def __init__(self, service: CircuitService) -> None:
        self._service = service
        self._clock = service.setup.bench.clock
        self.is_keeping = False
        self._pause: _Pause | None = None
        self._depth = 0

    @cached_property
    def maintenance(self) -> CircuitMaintenance:
        """What follows the light, and how the circuits are."""
        return CircuitMaintenance(self._service, starts_tracking=False)  # whoever watches does not wait for it

    def begin(self) -> None:
        """Say that :meth:`keep` is about to run: from now on whoever changes circuits waits for it."""
        self.is_keeping = bool(self.maintenance)

    def keep(self, over: Callable[[], bool]) -> None:
        """Keep polarizations until something is so.

        Raises:
            LumionError: The mesh controller failed, or another program has taken the bench.
        """
        bench, is_new = self._service.setup.bench, True
        try:
            while not over():
                pause = self._pause
                if pause is not None:
                    pause.has_begun.set()
                    pause.is_over.wait()
                    is_new = True
                    continue
                try:
                    if is_new:
                        self.maintenance.resync()
                        is_new = False
                    self.maintenance.track_polarizations(_SLICE_S, lambda: over() or self._pause is not None)
                except LumionError as error:
                    if isinstance(error, BusyError) or error.device == bench.model.mesh_section.controller:
                        raise
                    bench.events.add("not held", reason=str(error))
                    self._clock.sleep(_AGAIN_S)
        finally:
            self.is_keeping = False
            if self._pause is not None:
                self._pause.has_begun.set()

    def measure(self) -> None:
        """Measure all circuits for those who are shown their margins, unless circuits are being changed."""
        if self._pause is None:
            self.maintenance.measure(lambda: self._pause is not None)

    def pause(self) -> None:
        """Leave polarizations as they are from now on; nobody is waited for. :meth:`exclusive` ends it."""
        if self._pause is None and self.is_keeping:
            self._pause = _Pause(self._clock.event(), self._clock.event())

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Change circuits while nobody keeps polarizations; then what stands is taken up anew."""
        self.pause()
        if self._pause is not None and self.is_keeping and not self._depth:
            self._pause.has_begun.wait()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.resume()

    def resume(self) -> None:
        """End what :meth:`pause` has begun."""
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.is_over.set()
