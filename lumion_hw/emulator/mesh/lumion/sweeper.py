"""The sweeps of the emulated board: its image, its last run, and the events that run sends (section 10)."""

from __future__ import annotations

from firmware_protocol import EndReason, Event, RecordRing, RunFlag, SweepStartRequest, ring_capacity
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.monitors import BoardMonitors
from lumion_hw.emulator.mesh.lumion.sweep_run import BoardSweepRun, RunPlan
from lumion_hw.emulator.mesh.lumion.sweep_store import ImageStore


class Sweeper:
    """Image and last run of one board.

    Args:
        core: Outputs and time.
        monitors: The monitors.

    Attributes:
        store: The image.
        run: The last run; ``None`` before the first one of this boot.
    """

    def __init__(self, core: BoardCore, monitors: BoardMonitors) -> None:
        self._core = core
        self._monitors = monitors
        self.store = ImageStore(core.profile)
        self.run: BoardSweepRun | None = None
        self._done_waits = False
        core.sweep_over = self._over

    def reset(self) -> None:
        """Forget everything: a restart."""
        self.store.clear()
        self.run = None
        self._done_waits = False

    @property
    def running(self) -> BoardSweepRun | None:
        """The run that has not ended, if there is one."""
        return self.run if self.run is not None and self.run.running else None

    def capacity(self, n_selected: int) -> int:
        """Return how many records the result memory holds."""
        return ring_capacity(self._core.profile.sweep_ring, n_selected)

    def begin(self, plan: RunPlan, request: SweepStartRequest, edge: int) -> BoardSweepRun:
        """Start a run at a tick edge, which is now."""
        overwrite = bool(request.run_flags & RunFlag.OVERWRITE)
        ring = RecordRing(self.capacity(len(plan.channels)), request.credit_limit, overwrite=overwrite)
        self._core.enter_sweep(plan.generation)
        self.run = BoardSweepRun(self._core, self._monitors, plan, ring, edge)
        self._done_waits = True
        return self.run

    def finish(self, reason: EndReason, edge: int) -> None:
        """End a running sweep at a tick edge, the base table driven again; nothing if it has ended meanwhile."""
        run = self.running
        if run is not None:
            self._core.leave_sweep(edge, restore=True)
            run.end(reason, self._core.latch_tick)

    def _over(self, reason: EndReason, tick: int) -> None:
        run = self.running
        if run is not None:
            run.end(reason, tick)

    def change_host(self) -> None:
        """A new session begins: the records are gone, image and outcome stay (sections 4.1 and 10.4)."""
        self._done_waits = False
        if self.run is not None:
            self.run.forget_records()

    # -- on the clock -----------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return the next instant at which a point is latched or scanned, or the run ends; ``None`` without a run."""
        return None if self.run is None else self.run.next_due()

    def run_due(self) -> None:
        """Do what is due at that instant."""
        if self.run is not None:
            self.run.run_due()

    def trigger(self, at_s: float) -> None:
        """The external trigger."""
        if self.run is not None:
            self.run.trigger(at_s)

    def shift(self, seconds: float) -> None:
        """The processor stood still for so long."""
        if self.run is not None:
            self.run.shift(seconds)

    # -- events -----------------------------------------------------------------------------------------------------

    def ready_at(self, tx_max: int) -> float | None:
        """Return from when on there is an event to send, or ``None``: SWEEP_DONE follows the last SWEEP_DATA."""
        run = self.run
        if run is None:
            return None
        push_at = run.push_at(tx_max)
        if push_at is None and self._done_waits and not run.running:
            return float("-inf")
        return push_at

    def next_event(self, tx_max: int) -> tuple[Event, bytes]:
        """Take the event that is ready: its code and its payload."""
        run = self.run
        if run is not None and run.push_at(tx_max) is not None:
            return Event.SWEEP_DATA, run.push(tx_max).encode()
        return Event.SWEEP_DONE, self.take_done() or b""

    def take_done(self) -> bytes | None:
        """Take the payload of a SWEEP_DONE that waits, whatever records remain; ``None`` if none does."""
        ending = None if self.run is None else self.run.ending
        if ending is None or not self._done_waits:
            return None
        self._done_waits = False
        return ending.event.encode()
