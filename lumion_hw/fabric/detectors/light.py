"""Detectors of light: the mesh's photodiodes at the outputs of circuits, and loss of signal at their receivers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from lumion_hw.bench.file.fields import Number
from lumion_hw.errors import LinkError
from lumion_hw.fabric.detectors.hold_off import HostWatch
from lumion_hw.fabric.detectors.kind import DetectorOptions, PollingDetector, WatchTargets
from lumion_hw.fabric.evidence import Evidence
from lumion_hw.fabric.servers import find_unit
from lumion_hw.interfaces import LightState, LightThreshold, LightWatcher

# The reference is an average with a quarter of the noise of one scan.
_LEVEL_SCANS = 16
_SILENT_RETRIES, _SILENT_RETRY_S = 3, 1.0
"""Number of failed reads, and seconds between them, after which a module counts as dead."""
# With the default options, light is then dark below 4 steps and back above 10, clear of a step of noise.
_MIN_LEVEL_STEPS = 40.0
"""Smallest light at an output that is watched, in steps of the analogue-to-digital converter."""


class PhotodiodeOptions(DetectorOptions):
    """Options of :class:`Photodiodes`."""

    period_s: Number = Field(1e-3, ge=1e-4, le=1.0, description="Time between two scans, in seconds.")
    hold_s: Number = Field(2e-3, ge=0.0, le=1.0, description="Time for which light must be gone, in seconds.")
    dark_db: Number = Field(10.0, ge=3.0, le=30.0, description="Drop of the light that counts as dark, in dB.")
    lit_db: Number = Field(
        6.0, ge=1.0, le=29.0, description="Drop that is still allowed when light counts as back, in dB."
    )


class Photodiodes:
    """Detects light that disappears or returns at the outputs of circuits."""

    name = "photodiodes"
    is_blocking = True

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Photodiodes:
        """Return the detector for an entry of a bench file."""
        return cls(PhotodiodeOptions(**options))

    def __init__(self, options: PhotodiodeOptions | None = None) -> None:
        self._options = options or PhotodiodeOptions(detector=self.name)
        self.period_s = self._options.period_s
        self._watcher: LightWatcher | None = None
        self._circuits: dict[int, str] = {}
        self._dark: frozenset[int] = frozenset()
        self.unwatched: tuple[str, ...] = ()

    def start(self, watched: WatchTargets) -> None:
        """Store the present light of every output as reference, and watch for changes."""
        mesh, options = watched.bench.mesh, self._options
        monitor_of = {port: monitor for monitor, port in enumerate(mesh.monitor_ports)} if mesh.meters is None else {}
        levels_ma = mesh.monitors_ma(_LEVEL_SCANS).tolist() if monitor_of and watched.circuits else []
        thresholds, unwatched = [], []
        self._circuits, self._dark = {}, frozenset()
        for circuit in watched.circuits:
            name = circuit.request.name
            monitor = monitor_of.get(circuit.exit.port)
            level_ma = 0.0 if monitor is None else levels_ma[monitor]
            # Too weak to watch, or dark already: the present level must not become the reference.
            dark_ma = watched.budgeted_photocurrent_ma.get(name, 0.0) * 10.0 ** (-options.dark_db / 10.0)
            if monitor is None or level_ma < max(_MIN_LEVEL_STEPS * mesh.monitor_step_ma, dark_ma):
                unwatched.append(name)
                continue
            if math.isnan(level_ma):  # saturated: use the full scale
                level_ma = mesh.monitor_full_scale_ma
            below_ma, from_ma = (
                level_ma * 10.0 ** (-options.dark_db / 10.0),
                level_ma * 10.0 ** (-options.lit_db / 10.0),
            )
            # The options may give lit_db above dark_db; without the maximum, light could then be dark and back at once.
            thresholds.append(LightThreshold(monitor, below_ma, max(below_ma, from_ma), options.hold_s))
            self._circuits[monitor] = name
        self.unwatched = tuple(unwatched)
        if unwatched:
            watched.bench.events.add("not watched", detector=self.name, circuits=unwatched)
        if not thresholds:
            self.close()
        elif self._watcher is not None:
            self._watcher.change(thresholds, options.period_s)
        elif mesh.controller.info.watches_light:
            self._watcher = mesh.controller.watch_light(thresholds, period_s=options.period_s)
        else:
            self._watcher = HostWatch(mesh, watched.bench.clock)
            self._watcher.change(thresholds, options.period_s)
        self._clock = watched.bench.clock

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Wait until light at an output disappears or returns; return the changes."""
        if self._watcher is None:
            self._clock.sleep(timeout_s)
            return ()
        state = self._watcher.wait(timeout_s)
        return () if state is None else self._evidence_from(state)

    def _evidence_from(self, state: LightState) -> list[Evidence]:
        changed, self._dark = state.dark ^ self._dark, state.dark
        # The controller reports after the hold-off. The light changed before, between this scan and the one before it.
        at_s = state.timestamp_s - state.held_s
        return [
            Evidence(
                self.name,
                "dark" if monitor in state.dark else "lit",
                self._circuits[monitor],
                at_s - self.period_s,
                at_s,
                state.timestamp_s,
            )
            for monitor in sorted(changed)
            if monitor in self._circuits
        ]

    def close(self) -> None:
        """Stop watching light; idempotent."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()


class Modules(PollingDetector):
    """Polls receivers for loss of signal, and reports servers whose receivers all stop answering."""

    name = "modules"

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Modules:
        """Return the detector for an entry of a bench file."""
        DetectorOptions(**options)
        return cls()

    def __init__(self) -> None:
        self.period_s = 0.1
        self._watched: WatchTargets | None = None
        self._last_light_s: dict[str, float] = {}
        self._dark: set[str] = set()
        self._silences: dict[str, int] = {}
        self._retry_s: dict[str, float] = {}
        self._silent_units: set[str] = set()

    def start(self, watched: WatchTargets) -> None:
        """Poll the receivers of the given circuits from now on."""
        super().start(watched)
        self._watched, self.period_s = watched, watched.bench.model.fabric.detect_poll_s
        self._last_light_s = dict.fromkeys((circuit.request.name for circuit in watched.circuits), self._clock.now())
        self._dark, self._silences, self._retry_s, self._silent_units = set(), {}, {}, set()

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Read all receivers once, in parallel, and return the changes of their loss-of-signal flags."""
        del timeout_s
        watched = self._watched
        if watched is None:
            return ()
        names = {circuit.request.target: circuit.request.name for circuit in watched.circuits}
        # A silent module is read less often, because its time-out delays the verdict on others.
        due = sorted(target for target in names if self._clock.now() >= self._retry_s.get(target, -math.inf))
        evidence: list[Evidence] = []

        def read(target: str) -> None:
            """Read the loss-of-signal flag of one receiver, and add evidence if the flag has changed."""
            try:
                los = watched.bench.transponders[target].status().rx_los
            except LinkError:
                self._silences[target] = self._silences.get(target, 0) + 1
                self._retry_s[target] = self._clock.now() + _SILENT_RETRY_S
                return
            self._silences.pop(target, None)
            name = names[target]
            was_s = self._last_light_s.get(name)
            if los and name not in self._dark:
                self._dark.add(name)
                evidence.append(self._evidence("dark", name, was_s, f"{target} reports loss of signal"))
            elif not los:
                self._last_light_s[name] = self._clock.now()
                if name in self._dark:
                    self._dark.discard(name)
                    evidence.append(self._evidence("lit", name, was_s))

        watched.bench.run_parallel([(target, partial(read, target)) for target in due])
        return [*evidence, *self._evidence_on_units(watched, names)]

    def _evidence_on_units(self, watched: WatchTargets, receivers: Collection[str]) -> list[Evidence]:
        evidence: list[Evidence] = []
        for unit in watched.units:
            own = [nic for nic in find_unit(watched.bench.model, unit).nics if nic in receivers]
            is_silent = bool(own) and all(self._silences.get(nic, 0) >= _SILENT_RETRIES for nic in own)
            if is_silent and unit not in self._silent_units:
                self._silent_units.add(unit)
                reason = f"{', '.join(own)} did not answer {_SILENT_RETRIES} times in a row"
                evidence.append(self._evidence("gone", unit, reason=reason))
            elif not is_silent and unit in self._silent_units:
                self._silent_units.discard(unit)
                evidence.append(self._evidence("back", unit))
        return evidence
