"""Start of a calibration report: a verdict, six key figures, missed goals and faults."""

from __future__ import annotations

from dataclasses import dataclass

from calibration.diagnose.element_faults import UNSEEN_PUC
from calibration.report.numbers import Metric, metrics
from lumion_hw.files.escaping import one_line
from lumion_hw.mesh.layout.cells import NO_CHANNEL
from lumion_hw.mesh.record.calibration_record import NOT_CERTIFIED, USES, CalibrationRecord, not_certified_for

_CERTIFICATE = "fit certified"
"""Name of the metric 'certified', which is shown as a key figure only."""
_MAX_NAMED = 12
"""Most channels that are named one by one."""


@dataclass(frozen=True)
class Headline:
    """Verdict, name and value of six key figures, missed goals and faults of one calibration, as sentences."""

    verdict: str
    figures: tuple[tuple[str, str], ...]
    misses: tuple[str, ...]
    faults: tuple[str, ...]

    def text(self) -> str:
        """Return the headline as lines of text."""
        lines = [self.verdict, "", *(f"- {name}: {value}" for name, value in self.figures)]
        lines += [f"- missed: {miss}" for miss in self.misses]
        lines += [f"- fault: {fault}" for fault in self.faults]
        return "\n".join(one_line(line) if line else line for line in lines)


def headline(record: CalibrationRecord) -> Headline:
    """Return verdict, key figures, missed goals and faults of a calibration record."""
    by_name = {metric.name: metric for metric in metrics(record)}
    misses = tuple(
        describe_miss(metric) for name, metric in by_name.items() if metric.ok is False and name != _CERTIFICATE
    )
    certified, reason = _certificate(record)
    doubts = {doubt for use in USES for doubt in record.doubts_for(use)}
    faults = tuple(fault for fault in record.faults if fault not in doubts)
    figures = (
        ("PUCs", _coverage(by_name["PUCs calibrated"], len(record.pucs))),
        ("heaters", _heater_coverage(by_name["heaters calibrated"], record)),
        ("phase error", _phase_error(by_name)),
        ("held-out error", _held_out_error(record)),
        ("certified", f"no: {reason}" if not certified else _certified_uses(record) or "yes"),
        ("effort", _effort(record)),
    )
    return Headline(_verdict(record, certified, reason, len(misses), len(faults)), figures, misses, faults)


def _verdict(record: CalibrationRecord, certified: bool, reason: str, n_misses: int, n_faults: int) -> str:
    if not record.complete:
        return "INCOMPLETE: the run was interrupted. The record cannot be used for routing; resume the calibration."
    if not certified:
        return f"Not certified: {reason}. Do not rely on predicted losses and phases."
    if uses := _certified_uses(record):
        return f"Certified {uses}."
    if not n_misses and not n_faults:
        return "The calibration is certified and meets all its goals. No fault was found."
    limits = [f"{n_misses} {'goal is' if n_misses == 1 else 'goals are'} missed"] * bool(n_misses)
    limits += [f"{n_faults} {'fault was' if n_faults == 1 else 'faults were'} found"] * bool(n_faults)
    return f"The calibration is certified, but {' and '.join(limits)}."


def _certificate(record: CalibrationRecord) -> tuple[bool, str]:
    if record.doubts:
        return False, "; ".join(doubt.removeprefix(NOT_CERTIFIED).rstrip(".") for doubt in record.doubts)
    if not record.complete:
        return False, "the run was interrupted"
    if record.quality.get("fit_certified", 1.0) < 1.0:
        return False, "the fit does not explain all readings"
    return True, ""


def certified_uses(record: CalibrationRecord) -> str:
    """Return the uses for which a record is certified (docs/certificate.md), or ``no use``.

    With PUCs without light, a use of the whole mesh needs them too, so their number is added.
    """
    certified, _ = _certificate(record)
    uses = ", ".join(use for use in USES if not record.doubts_for(use)) if certified else ""
    unseen = sum(defect.kind == UNSEEN_PUC for defect in record.defects)
    if not uses or not unseen:
        return uses or "no use"
    return f"{uses}; without {'the PUC that gets' if unseen == 1 else f'the {unseen} PUCs that get'} no light"


def _certified_uses(record: CalibrationRecord) -> str:
    """Return for which uses a record is certified and for which not, with reasons; empty if for all."""
    doubts = {use: doubts for use in USES if (doubts := record.doubts_for(use))}
    if not doubts:
        return ""
    reasons = (
        f"not for {use}: {'; '.join(doubt.removeprefix(not_certified_for(use)).rstrip('.') for doubt in of_use)}"
        for use, of_use in doubts.items()
    )
    return f"for {' and '.join(use for use in USES if use not in doubts)}; {'; '.join(reasons)}"


def _coverage(metric: Metric, total: int) -> str:
    """Return how many of the elements are calibrated; elements that no light shows are left out."""
    left_out = total - int(metric.goal or 0.0)
    text = f"{metric.value or 0.0:.0f} of {metric.goal or 0.0:.0f} calibrated"
    return f"{text}, {left_out} left out" if left_out > 0 else text


def _heater_coverage(metric: Metric, record: CalibrationRecord) -> str:
    """Return how many of the driven heaters are calibrated, and the channels of those that change no power."""
    heaters = [heater for entry in record.pucs for heater in (entry.upper, entry.lower) if heater.channel != NO_CHANNEL]
    without = [heater.channel for heater in heaters if heater.law is None]
    if len(heaters) - int(metric.goal or 0.0) != len(without):  # some that should have a law have none
        return _coverage(metric, len(heaters))
    text = f"{metric.value or 0.0:.0f} of {len(heaters)} calibrated"
    if not without:
        return text
    named = f"channels {', '.join(map(str, without))}" if 1 < len(without) <= _MAX_NAMED else f"{len(without)} heaters"
    named, verb = (f"channel {without[0]}", "changes") if len(without) == 1 else (named, "change")
    return f"{text}; {named} {verb} no power at a detector"


def _phase_error(by_name: dict[str, Metric]) -> str:
    passive = by_name["passive phases, standard error, rms"]
    loops = by_name["loop phases, standard error, rms per loop"]
    parts = [
        f"{name} {metric.value:.2g} mrad" for name, metric in (("passive", passive), ("loops", loops)) if metric.value
    ]
    return (
        f"{', '.join(parts)} (accepted: at most {passive.goal:g} mrad; a run aims at --sigma-mrad, by default 1)"
        if parts
        else "not stated in this record"
    )


def _held_out_error(record: CalibrationRecord) -> str:
    rms_db, excess_db = (record.quality.get(f"held_out_{name}_db") for name in ("rms", "excess"))
    if rms_db is None:
        return "not measured"
    text = f"{rms_db:.3f} dB rms in settings that took no part in the fit"
    if excess_db is None:
        return text
    if excess_db <= 0.0:
        return f"{text}; reading noise explains all of this (goal: at most 0.1 dB above noise)"
    return f"{text}; {excess_db:.3f} dB remain after subtraction of the reading noise (goal: at most 0.1 dB)"


def _effort(record: CalibrationRecord) -> str:
    settings, hardware_s = record.quality.get("settings"), record.quality.get("hardware_s")
    parts = [f"{settings:.0f} settings"] if settings is not None else []
    parts += [f"{hardware_s:.1f} s of hardware time"] if hardware_s is not None else []
    return ", ".join(parts) or "not recorded"


def describe_miss(metric: Metric) -> str:
    """Return a metric that misses its goal, with the goal, as a sentence without a full stop."""
    value = "unknown" if metric.value is None else _unlike(metric.value, metric.goal)
    limit = f"at {'least' if metric.at_least else 'most'} {metric.goal:g}"
    note = f" ({metric.note})" if metric.note else ""
    unit = f" {metric.unit}" if metric.unit else ""
    return f"{metric.name}{note} is {value}{unit}; the goal is {limit}{unit}"


def _unlike(value: float, goal: float | None) -> str:
    """Return a value with at least three digits, and with as many as distinguish it from a goal that it misses."""
    texts = [f"{value:.{digits}g}" for digits in range(3, 8)]
    return next((text for text in texts if float(text) != goal), texts[0])
