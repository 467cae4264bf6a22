"""Going on with a run that was cut short: is it the same device, the same plan, the same light?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.measure.entry import DARK, LogbookEntry
from calibration.measure.probe import Probe
from calibration.measure.reference import ReferenceChange, change, noise_of, reference_readings
from calibration.model.device_under_test import Subject
from calibration.run.journal import JournalHeader, now_utc
from calibration.run.procedure import Calibration
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.canonical import content_hash

_LAST_SETTINGS = 3
_LOOKS = 4
_MOST_POWER_DB = 1.0
"""Change of a source's light that is still one of its polarization, searched anew, and can be corrected for."""
_LEAST_POWER_DB = 0.02
"""Smaller ones are no more than light varies anyway."""
_SAME = (
    ("serial", "the serial number of the controller"),
    ("firmware", "its firmware"),
    ("mesh_sha256", "the mesh"),
    ("channel_map_sha256", "the map of heaters and monitors to channels"),
    ("seed", "the seed"),
    ("software", "the software"),
    ("wavelength_nm", "the wavelength in nm"),
    ("sources", "the ports with light"),
    ("plan_sha256", "the plan, or the nominal figures of the bench file"),
)


def header_of(
    run: Calibration,
    dead: Mapping[int, str],
    stated_hz: Mapping[int, float] | None = None,
    command: str = "",
    heater_tau_s: float | None = None,
) -> JournalHeader:
    """Return whose run this is, to be kept in its journal.

    Args:
        run: The run, nothing measured yet.
        dead: Ports whose light does not arrive, and why.
        stated_hz: Frequencies of the sources that can be tuned, by port.
        command: The command line, if it was begun by one.
        heater_tau_s: Thermal time constant of the heaters, if it was seen.
    """
    from lumion_hw import __version__

    probe, subject = run.probe, run.subject
    return JournalHeader(
        serial=subject.serial,
        model=subject.model,
        firmware=subject.firmware,
        mesh_sha256=probe.mesh.sha256,
        channel_map_sha256=content_hash([list(subject.heater_channels), list(probe.monitors)]),
        plan_sha256=content_hash([_plain(run.plan), _plain(subject), list(run.wavelengths_nm), _plain(run.goal)]),
        seed=run.seed,
        software=f"lumion-hw {__version__}",
        wavelength_nm=subject.wavelength_nm,
        sources=tuple(probe.sources),
        dead=dict(dead),
        stated_hz=dict(stated_hz or {}),
        started_utc=now_utc(),
        command=command,
        heater_tau_s=heater_tau_s,
    )


def _plain(plan: Any) -> Any:
    if not dataclasses.is_dataclass(plan) or isinstance(plan, type):
        return plan
    plain = dataclasses.asdict(plan)
    if isinstance(plan, Subject):  # journals from before there were any stay those of the same plan
        del plain["heater_tau_s"]  # what it is for is settle_s
        for name in ("seconds", "settle_s"):
            if not plain[name]:
                del plain[name]
    return plain


def check_same(begun: JournalHeader, now: JournalHeader) -> None:
    """Refuse to go on with the run of another device, plan, seed or software.

    Raises:
        CalibrationError: The message says what differs.
    """
    different = [
        f"{words} was {_shown(getattr(begun, name))}, is {_shown(getattr(now, name))}"
        for name, words in _SAME
        if getattr(begun, name) != getattr(now, name)
    ]
    if different:
        raise CalibrationError(
            f"the run of this journal cannot be gone on with here: {'; '.join(different)}",
            hint="Resume with what it was begun with, or begin anew without --resume.",
        )


def _shown(value: object) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text


@dataclasses.dataclass(frozen=True)
class LightConditions:
    """How the light is now, against before the run was cut short.

    Attributes:
        changes: What was compared.
        power_db: By source, the change that new readings have to be corrected for; none where it is small.
    """

    changes: tuple[ReferenceChange, ...] = ()
    power_db: Mapping[int, float] = dataclasses.field(default_factory=dict)


def check_light(probe: Probe, entries: Sequence[LogbookEntry]) -> LightConditions:
    """Repeat the reference setting of every source and the last few settings, and compare with what was read then.

    Polarization is searched anew when a run goes on, and does not end where it was: the light of a source may have
    become another as a whole. That is no reason to stop, but one to correct for.

    Args:
        probe: Access to the mesh.
        entries: What was read before the run was cut short.

    Returns:
        What changed; nothing if the run was cut short before there was anything to compare.

    Raises:
        CalibrationError: More than noise has changed; the message says what.
    """
    noise = noise_of(entries, probe.monitor_step_ma)
    if noise is None:
        return LightConditions()
    changes, power_db = [], {}
    tuned_hz = {entry.source: entry.asked_hz for entry in entries if entry.kind == "tuned"}
    for source, frequency_hz in sorted(tuned_hz.items()):
        probe.tune(source, frequency_hz)
    for (source, frequency_hz), readings in sorted(reference_readings(entries).items()):
        if frequency_hz != tuned_hz.get(source, 0.0):
            continue  # the light was tuned away from there since
        probe.light(source)
        looks = probe.measure_many(np.zeros((_LOOKS, 2 * probe.mesh.n_pucs)))
        found = change(source, np.mean(readings, axis=0), looks.mean(axis=0), noise)
        changes.append(found)
        if abs(found.power_db) > _LEAST_POWER_DB:
            power_db[source] = found.power_db
    last = next(entry for entry in reversed(entries) if entry.kind == "settings")
    if last.source != DARK:
        probe.light(last.source)
        again = probe.measure_many(last.currents_ma[-_LAST_SETTINGS:])
        changes += [
            change(last.source, before, now, noise)
            for before, now in zip(last.answer[-_LAST_SETTINGS:], again, strict=True)
        ]
    said = dict.fromkeys(words for each in changes for words in each.words(_MOST_POWER_DB))
    if said:
        raise CalibrationError(
            f"the bench is not as the interrupted run has left it: {'; '.join(said)}",
            hint="Put it back and resume again, or begin anew without --resume.",
        )
    return LightConditions(tuple(changes), power_db)
