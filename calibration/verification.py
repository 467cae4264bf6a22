"""Held-out verification: does the record predict light on settings that took no part in any fit?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from calibration.probe import Probe
from lumion_hw.errors import LimitError
from lumion_hw.mesh.inverse import heater_currents_ma
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.topology import State, Trace

SETTINGS = 40
TOLERANCE_RMS_DB = 0.5
_LEAST_PATH_DB = -30.0
_DARK_MA = 1e-12
_LIVE_STEPS = 10.0
_CANDIDATES = 8
"""Random settings to choose from. Most random paths leave the mesh where they came in; taken as they come, 40 of them
miss up to half of 72 PUCs."""


@dataclass(frozen=True)
class HeldOut:
    """One path of a verification.

    Attributes:
        source: Port where light entered.
        port: Port where it left.
        hops: PUCs passed.
        error_db: Measured minus predicted power; at a monitor that stays dark, its floor minus the prediction.
    """

    source: int
    port: int
    hops: int
    error_db: float


def verify(
    probe: Probe,
    record: CalibrationRecord,
    seed: int,
    done: Callable[[int, int], None] = lambda step, total: None,
    settings: int = SETTINGS,
) -> list[HeldOut]:
    """Program random pure states with a record and compare the light with what it predicts.

    Of a few random settings the one is taken whose path passes the PUCs seen least so far, so that none escapes.

    Args:
        probe: Access to the mesh.
        record: The record to judge.
        seed: Seed of the random states; not that of the calibration.
        done: Told of every setting.
        settings: Number of settings; those whose path ends where nothing is known are left out of the result.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x7E57]))
    sources = [port for port in probe.sources if record.port(port).input_loss_db is not None]
    results: list[HeldOut] = []
    seen: Counter[int] = Counter()
    for step in range(settings if sources else 0):
        path = _least_seen(probe, record, sources[step * len(sources) // settings], seen, rng)
        result = None if path is None else _look(probe, record, path)
        if path is not None and result is not None:
            seen.update(set(path.trace.pucs))
            results.append(result)
        done(step + 1, settings)
    return results


def rms_db(results: list[HeldOut]) -> float:
    """Return the root mean square error in dB. Raises ``ValueError`` without results."""
    if not results:
        raise ValueError("no path could be judged")
    return float(np.sqrt(np.mean([result.error_db**2 for result in results])))


@dataclass(frozen=True)
class _Path:
    """A setting of pure states, and where light from a source goes in it."""

    source: int
    states: dict[int, State]
    trace: Trace


def _least_seen(
    probe: Probe, record: CalibrationRecord, source: int, seen: Mapping[int, int], rng: np.random.Generator
) -> _Path | None:
    """Return the random path to a monitor that shows most of what was seen least; ``None`` if all are blocked."""
    mesh = probe.mesh
    blocked = {puc for puc, _ in record.unusable_states()}
    paths: list[_Path] = []
    for bar in rng.random((_CANDIDATES, mesh.n_pucs)) < 0.5:
        states: dict[int, State] = {puc: ("bar" if bar[puc] else "cross") for puc in range(mesh.n_pucs)}
        trace = mesh.trace(source, states)
        if not blocked & set(trace.pucs) and trace.port in probe.monitors:
            paths.append(_Path(source, {puc: state for puc, state in states.items() if puc not in blocked}, trace))
    return max(paths, key=lambda path: sum(1.0 / (1 + seen[puc]) for puc in set(path.trace.pucs)), default=None)


def _look(probe: Probe, record: CalibrationRecord, path: _Path) -> HeldOut | None:
    """Compare one path; ``None`` where it cannot be judged."""
    source, trace = path.source, path.trace
    entry, into_db = record.port(trace.port), record.port(source).input_loss_db
    path_db = -sum(record.pucs[puc].loss_db for puc in trace.pucs)
    if entry.monitor_ma_per_mw is None or into_db is None or path_db < _LEAST_PATH_DB:
        return None
    try:
        currents = heater_currents_ma(record, path.states)
    except LimitError:
        return None
    probe.light(source)
    predicted_dbm = probe.launched_dbm(source) - into_db + path_db
    smallest_ma = max(probe.monitor_step_ma, record.quality.get("monitor_noise_floor_ma", 0.0), _DARK_MA)
    floor_dbm = 10.0 * np.log10(_LIVE_STEPS * smallest_ma / entry.monitor_ma_per_mw)
    current_ma = float(probe.measure(currents)[probe.monitors.index(trace.port)])
    if predicted_dbm <= floor_dbm or np.isnan(current_ma):
        return None
    # Light that goes elsewhere is the worst error of all: a dark monitor counts, as bright as it may at most be.
    measured_dbm = max(10.0 * np.log10(max(current_ma, _DARK_MA) / entry.monitor_ma_per_mw), floor_dbm)
    return HeldOut(source, trace.port, len(trace.pucs), float(measured_dbm - predicted_dbm))
