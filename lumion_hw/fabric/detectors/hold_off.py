"""Detection of light with hysteresis and hold-off (minimum duration), for controllers that have neither."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.clock import Clock, deadline_after
from lumion_hw.interfaces import LightState, LightThreshold, TelemetrySample


class HoldOff:
    """Hysteresis and hold-off (minimum duration) for light at monitors (docs/protocol.md, 9.3)."""

    def __init__(self, thresholds: Sequence[LightThreshold]) -> None:
        self._thresholds = {threshold.monitor: threshold for threshold in thresholds}
        self._run: dict[int, float] = {}
        self.dark: frozenset[int] = frozenset()

    def update(self, currents_ma: Mapping[int, float], at_s: float) -> float | None:
        """Process one scan; return the age in s of the oldest change that it confirms, or ``None`` without one.

        Args:
            currents_ma: Photocurrent by monitor; NaN for a saturated monitor, which counts as light.
            at_s: Time of the scan.
        """
        changed: list[float] = []
        dark = set(self.dark)
        for monitor, threshold in self._thresholds.items():
            current_ma = currents_ma[monitor]
            if monitor in dark:
                # The negation counts NaN, a saturated monitor, as light.
                against = not current_ma < threshold.light_from_ma
            else:
                against = current_ma < threshold.dark_below_ma
            if not against:
                # A single scan that agrees with the present state starts the hold-off again, so flicker changes
                # nothing.
                self._run.pop(monitor, None)
                continue
            since_s = self._run.setdefault(monitor, at_s)
            # Without the small number, rounding of the times could delay the change by a scan.
            if at_s - since_s >= threshold.hold_s - 1e-9:
                dark ^= {monitor}
                changed.append(since_s)
                del self._run[monitor]
        self.dark = frozenset(dark)
        return at_s - min(changed) if changed else None


class HostWatch:
    """Watches the light at monitors of a mesh, in software on the host.

    Implements :class:`~lumion_hw.interfaces.LightWatcher`.
    """

    def __init__(self, mesh: MeshAccess, clock: Clock) -> None:
        self._mesh, self._clock = mesh, clock
        self._samples: Iterator[TelemetrySample] | None = None
        self._rule = HoldOff(())
        self._period_s = 0.0

    def change(self, thresholds: Sequence[LightThreshold], period_s: float) -> None:
        """Watch the given monitors from now on instead of earlier ones."""
        self.close()
        self._rule, self._period_s = HoldOff(thresholds), period_s
        if self._mesh.controller.info.telemetry:
            self._samples = iter(self._mesh.controller.telemetry(period_s))

    def wait(self, timeout_s: float) -> LightState | None:
        """Return the next change between light and dark at a monitor; ``None`` after the time-out."""
        deadline = deadline_after(self._clock, timeout_s)
        while True:
            reading = (
                next(self._samples).reading if self._samples is not None else self._mesh.controller.read_monitors()
            )
            held_s = self._rule.update(dict(enumerate(reading.photocurrent_ma.tolist())), reading.timestamp_s)
            if held_s is not None:
                return LightState(self._rule.dark, held_s, reading.generation, reading.timestamp_s)
            if self._clock.now() >= deadline:
                return None
            if self._samples is None:
                self._clock.sleep(self._period_s)

    def close(self) -> None:
        """Stop watching the monitors; idempotent."""
        samples, self._samples = self._samples, None
        close = getattr(samples, "close", None)
        if close is not None:
            close()
