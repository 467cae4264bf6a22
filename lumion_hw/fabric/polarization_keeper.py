"""Polarization tracking while a fabric is watched, paused while circuits change."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lumion_hw.circuits import CircuitMaintenance, CircuitService
from lumion_hw.clock import ClockEvent
from lumion_hw.errors import BusyError, LumionError

_SLICE_S = 0.5
_RETRY_INTERVAL_S = 1.0
"""Pause after an error of a polarization controller."""


@dataclass(frozen=True)
class _Pause:
    """A pause of tracking while circuits change.

    Attributes:
        has_begun: Set by the tracking thread once it has paused.
        is_over: Set to let the tracking thread continue.
    """

    has_begun: ClockEvent
    is_over: ClockEvent


class PolarizationKeeper:
    """Tracks the polarization of all circuits in one thread, and pauses while another thread changes circuits."""

    def __init__(self, service: CircuitService) -> None:
        self._service = service
        self._clock = service.setup.bench.clock
        self.is_tracking = False
        self._pause: _Pause | None = None
        self._depth = 0

    @cached_property
    def maintenance(self) -> CircuitMaintenance:
        """Maintenance of the circuits: polarization tracking and health."""
        return CircuitMaintenance(self._service, starts_tracking=False)  # the detectors must not wait for it

    def prepare(self) -> None:
        """Announce that :meth:`run` is about to start; changes of circuits then wait until tracking pauses."""
        self.is_tracking = bool(self.maintenance)

    def run(self, has_ended: Callable[[], bool]) -> None:
        """Track polarizations until ``has_ended`` returns true.

        Raises:
            LumionError: The mesh controller failed, or another program has taken over the bench.
        """
        bench, is_new = self._service.setup.bench, True
        try:
            while not has_ended():
                # Read once, because another job may end the pause at any time.
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
                    self.maintenance.track_polarizations(_SLICE_S, lambda: has_ended() or self._pause is not None)
                except LumionError as error:
                    if isinstance(error, BusyError) or bench.model.mesh_section.is_driven_by(error.device):
                        raise
                    bench.events.add("not held", reason=str(error))
                    self._clock.sleep(_RETRY_INTERVAL_S)
        finally:
            self.is_tracking = False
            # A job that waits for the pause must not wait for tracking that has ended.
            if self._pause is not None:
                self._pause.has_begun.set()

    def measure(self) -> None:
        """Measure the margins of all circuits for a display, unless circuits are being changed."""
        if self._pause is None:
            self.maintenance.measure(lambda: self._pause is not None)

    def pause(self) -> None:
        """Request a pause of tracking, without waiting; :meth:`exclusive` or :meth:`resume` ends the pause."""
        if self._pause is None and self.is_tracking:
            self._pause = _Pause(self._clock.event(), self._clock.event())

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Pause tracking during a ``with`` block, in which the caller changes circuits."""
        self.pause()
        if self._pause is not None and self.is_tracking and not self._depth:
            self._pause.has_begun.wait()
        # Changes may be nested; only the end of the outermost one resumes tracking.
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.resume()

    def resume(self) -> None:
        """End a pause of polarization tracking."""
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.is_over.set()
