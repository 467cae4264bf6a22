"""Light: the mesh's own photodiodes at the exits of circuits, and loss of signal at their receivers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from pydantic import Field

from lumion_hw.bench.file.fields import Number
from lumion_hw.errors import LinkError
from lumion_hw.fabric.detectors.hold_off import HostWatch
from lumion_hw.fabric.detectors.kind import DetectorOptions, WatchTargets
from lumion_hw.fabric.evidence import Evidence
from lumion_hw.fabric.servers import find_unit
from lumion_hw.interfaces import LightState, LightThreshold, LightWatcher

_LEVEL_SCANS = 16
_SILENT_ASKS, _SILENT_AGAIN_S = 3, 1.0
"""A module that is silent once may be busy; so often, so far apart, it is dead."""
_FEWEST_STEPS = 40.0
"""Steps of the converter that the light of an exit has to be worth, so that a tenth of it is still four."""


class PhotodiodeOptions(DetectorOptions):
    """Options of :class:`Photodiodes`."""

    period_s: Number = Field(1e-3, ge=1e-4, le=1.0, description="Time between two scans.")
    hold_s: Number = Field(2e-3, ge=0.0, le=1.0, description="Time for which light has to be gone.")
    dark_db: Number = Field(10.0, ge=3.0, le=30.0, description="Fall of the light that counts as dark.")
    lit_db: Number = Field(6.0, ge=1.0, le=29.0, description="What may still be missing when it counts as lit again.")


class Photodiodes:
    """Watches the light at the exits of circuits; the controller does it by itself where it can.

    Args:
        options: The options.
    """

    name = "photodiodes"
    is_blocking = True

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Photodiodes:
        """Return the detector of a bench file's entry."""
        return cls(PhotodiodeOptions(**options))

    def __init__(self, options: PhotodiodeOptions | None = None) -> None:
        self._options = options or PhotodiodeOptions(detector=self.name)
        self.period_s = self._options.period_s
        self._watcher: LightWatcher | None = None
        self._circuits: dict[int, str] = {}
        self._dark: frozenset[int] = frozenset()
        self.unwatched: tuple[str, ...] = ()

    def start(self, watched: WatchTargets) -> None:
        """Take the present light of every exit for its level, and watch it."""
        mesh, options = watched.bench.mesh, self._options
        monitor_of = {port: monitor for monitor, port in enumerate(mesh.monitor_ports)} if mesh.meters is None else {}
        levels_ma = mesh.monitors_ma(_LEVEL_SCANS).tolist() if monitor_of and watched.circuits else []
        thresholds, unwatched = [], []
        self._circuits, self._dark = {}, frozenset()
        for circuit in watched.circuits:
            name = circuit.request.name
            monitor = monitor_of.get(circuit.exit.port)
            level_ma = 0.0 if monitor is None else levels_ma[monitor]
            # Too dim to judge by, or dark already: a level taken now would pass for a good one for ever.
            dark_ma = watched.budgeted_photocurrent_ma.get(name, 0.0) * 10.0 ** (-options.dark_db / 10.0)
            if monitor is None or level_ma < max(_FEWEST_STEPS * mesh.monitor_step_ma, dark_ma):
                unwatched.append(name)
                continue
            if math.isnan(level_ma):  # saturated: as bright as it can tell
                level_ma = mesh.monitor_full_scale_ma
            below_ma, from_ma = (
                level_ma * 10.0 ** (-options.dark_db / 10.0),
                level_ma * 10.0 ** (-options.lit_db / 10.0),
            )
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
        """Wait until light goes or comes."""
        if self._watcher is None:
            self._clock.sleep(timeout_s)
            return ()
        state = self._watcher.wait(timeout_s)
        return () if state is None else self._told(state)

    def _told(self, state: LightState) -> list[Evidence]:
        changed, self._dark = state.dark ^ self._dark, state.dark
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
        """End the watch; idempotent."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()


class Modules:
    """Asks receivers for loss of signal, again and again; a server all of whose receivers stay silent is gone."""

    name = "modules"
    is_blocking = False

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Modules:
        """Return the detector of a bench file's entry."""
        DetectorOptions(**options)
        return cls()

    def __init__(self) -> None:
        self.period_s = 0.1
        self._watched: WatchTargets | None = None
        self._lit_s: dict[str, float] = {}
        self._dark: set[str] = set()
        self._silences: dict[str, int] = {}
        self._ask_again_s: dict[str, float] = {}
        self._gone: set[str] = set()

    def start(self, watched: WatchTargets) -> None:
        """Ask the receivers of these circuits from now on."""
        now_s = watched.bench.clock.now()
        self._watched, self.period_s = watched, watched.bench.model.fabric.detect_poll_s
        self._lit_s = {each.request.name: now_s for each in watched.circuits}
        self._dark, self._silences, self._ask_again_s, self._gone = set(), {}, {}, set()

    def poll(self, timeout_s: float) -> Sequence[Evidence]:
        """Ask all of them once, side by side."""
        del timeout_s
        watched = self._watched
        if watched is None:
            return ()
        clock = watched.bench.clock
        names = {each.request.target: each.request.name for each in watched.circuits}
        # The time-out of a module that does not answer delays the verdict on others: it is asked less often.
        asked = sorted(target for target in names if clock.now() >= self._ask_again_s.get(target, -math.inf))
        found: list[Evidence] = []

        def ask(target: str) -> None:
            try:
                los = watched.bench.transponders[target].status().rx_los
            except LinkError:
                self._silences[target] = self._silences.get(target, 0) + 1
                self._ask_again_s[target] = clock.now() + _SILENT_AGAIN_S
                return
            self._silences.pop(target, None)
            now_s, name = clock.now(), names[target]
            was_s = self._lit_s.get(name, now_s)
            if los and name not in self._dark:
                self._dark.add(name)
                found.append(Evidence(self.name, "dark", name, was_s, now_s, now_s, f"{target} reports loss of signal"))
            elif not los:
                self._lit_s[name] = now_s
                if name in self._dark:
                    self._dark.discard(name)
                    found.append(Evidence(self.name, "lit", name, was_s, now_s, now_s))

        watched.bench.run_parallel([(target, partial(ask, target)) for target in asked])
        return [*found, *self._silent_units(watched, names)]

    def _silent_units(self, watched: WatchTargets, receivers: Collection[str]) -> list[Evidence]:
        now_s, found = watched.bench.clock.now(), list[Evidence]()
        for unit in watched.units:
            own = [nic for nic in find_unit(watched.bench.model, unit).nics if nic in receivers]
            is_gone = bool(own) and all(self._silences.get(nic, 0) >= _SILENT_ASKS for nic in own)
            if is_gone and unit not in self._gone:
                self._gone.add(unit)
                words = f"{', '.join(own)} did not answer {_SILENT_ASKS} times in a row"
                found.append(Evidence(self.name, "gone", unit, now_s, now_s, now_s, words))
            elif not is_gone and unit in self._gone:
                self._gone.discard(unit)
                found.append(Evidence(self.name, "back", unit, now_s, now_s, now_s))
        return found

    def close(self) -> None:
        """Nothing is held."""
