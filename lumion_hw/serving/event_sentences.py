"""Events of a bench as sentences."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from lumion_hw.serving.headline import short_reason
from lumion_hw.serving.state import AlarmSeverity

_NONE, _MINOR, _MAJOR = AlarmSeverity.NONE, AlarmSeverity.MINOR, AlarmSeverity.MAJOR
_MAX_LENGTH = 280
"""Longest sentence, in characters."""

_SENTENCES: Mapping[str, tuple[AlarmSeverity, str]] = {
    "opened": (_NONE, "Bench {bench} opened with {devices} devices."),
    "controller lacks": (_MINOR, "{controller} lacks {what}."),
    "read back": (_NONE, "The heaters are driven {verdict}; {pucs} PUCs differ from the record."),
    "programmed": (_NONE, "Heaters programmed for {circuits} circuits with {heat_mw} mW."),
    "aligned": (_NONE, "{controller} aligned with {remaining_loss_db} dB of polarization loss left."),
    "not aligned": (_MINOR, "{controller} not aligned: {reason}."),
    "not held": (_MINOR, "Polarizations are not tracked: {reason}."),
    "not tracked": (_MINOR, "{circuit}: polarization not tracked: {reason}."),
    "connected": (_NONE, "Connected {circuits} in {all_ms} ms."),
    "established": (_NONE, "Set up {circuits} in {all_ms} ms."),
    "disconnected": (_NONE, "Disconnected {circuits}."),
    "taken away": (_NONE, "Removed {circuits}."),
    "adopted": (_NONE, "Continued with active circuits {circuits}."),
    "set up again": (_NONE, "Circuits set up again after a shutdown: {proven}."),
    "lost": (_MAJOR, "Lost {circuits}."),
    "rolled back": (_MINOR, "Change rolled back: {after}."),
    "not rolled back": (_MAJOR, "Change not rolled back: {reason}."),
    "made before break": (_NONE, "{heaters} heaters changed before the old path was released."),
    "another way": (_MINOR, "Searching another path around PUCs {avoiding}: {after}."),
    "diagnosis": (_MINOR, "{source}:{target}, {place}: {detail}."),
    "phase set right": (_NONE, "{circuit}: phase of PUC {puc} corrected by {error_rad} rad."),
    "drift to be measured": (_MINOR, "{circuit} has drifted: run {hint}."),
    "not noted": (_MINOR, "Circuit state not written: {reason}."),
    "transmitter switched on again": (_NONE, "{transmitter} switched on again."),
    "transmitter not rolled back": (_MAJOR, "{transmitter} not switched back after a failed change: {reason}."),
    "transmitter not switched on": (_MINOR, "{transmitter} not switched on: {reason}."),
    "owner died": (_MINOR, "The earlier program {name} ended without releasing the bench."),
    "record not certified": (_MINOR, "The calibration record is not certified: {reasons}."),
    "spare is cold": (_MINOR, "Spare {spare} is cold: {reason}."),
    "spare stands by": (_NONE, "Spare {spare} is warm."),
    "plans ready": (_NONE, "Recovery plans ready for {plans}."),
    "verdict": (_MAJOR, "Failure of {name}: {words}."),
    "draining": (_NONE, "Draining {name}: {words}."),
    "span": (_NONE, "Recovery step {name} took {bench_ms} ms."),
    "replaced": (_NONE, "{failed} replaced by {spare}."),
    "attempt failed": (_MINOR, "Recovery attempt failed: {reason}."),
    "not watched": (_MINOR, "{detector} cannot watch {circuits}."),
    "fabric connected": (_NONE, "Jobs connected by {circuits}."),
    "fabric verdict": (_MAJOR, "Fabric: failure of {name}."),
    "fabric draining": (_NONE, "Fabric: draining {name}."),
    "fabric drained": (_NONE, "{unit} is out of service: {words}."),
    "fabric not drained": (_MINOR, "{unit} stays in service, because no spare can take its place: {words}."),
    "fabric spare": (_NONE, "Fabric: {spare} takes the place of {failed}."),
    "fabric recovered": (_NONE, "Fabric recovered: {spare} serves in place of {failed}."),
    "fabric refused": (_MAJOR, "Jobs {jobs} refused: {words}."),
    "fabric spare lost": (_MINOR, "Spare {unit} lost: {words}."),
    "fabric repaired": (_NONE, "{words}."),
    "fabric fade": (_MINOR, "Light faded and came back, {fades} times so far."),
    "fabric false alarm": (_MINOR, "False alarm, {false_alarms} so far."),
    "fabric searching": (_MINOR, "{words}."),
    "fabric resumed": (_NONE, "Interrupted recovery resumed: {verdict}."),
    "fabric withdrawn": (_NONE, "Recovery withdrawn: {words}."),
    "fabric controller off": (_MAJOR, "{words}."),
    "fabric not confirmed": (_MINOR, "Circuits not confirmed by light."),
    "asked": (_NONE, "{by} started the job {what}."),
    "cut short": (_MINOR, "The server stopped during {what}."),
    "heaters off": (_NONE, "Unused heaters switched off."),
    "heaters not switched off": (_MAJOR, "Heaters not switched off: {reason}."),
    "not kept": (_MAJOR, "Maintenance failed: {reason}."),
    "kept again": (_NONE, "Maintenance works again."),
    "lock not renewed": (_MINOR, "Bench lock not renewed: {reason}."),
    "server ends": (_MAJOR, "The server ends: {reason}."),
    "lease ended": (_NONE, "The lease of {owner} ended: {why}."),
    "set ended": (_MINOR, "Change {change} failed: {outcome}."),
    "stopped": (_MAJOR, "{by} switched all heaters off."),
    "came back with other settings": (_MINOR, "{device} came back with other settings, which were restored."),
    "answers again": (_NONE, "{device} answers again."),
    "silent": (_MAJOR, "{device} does not answer: {reason}."),
    "fault latched": (_MAJOR, "{controller} latched a fault: {fault}."),
    "fault cleared": (_NONE, "{by} cleared the fault {fault}."),
    "calibrated": (_NONE, "Calibration finished: {record}."),
    "calibration resumed": (_NONE, "Calibration resumed after {entries} journal entries."),
    "calibration cut short": (_MINOR, "Calibration interrupted."),
    "emulated fault inject": (_NONE, "{by} injected the fault {fault} at {target}."),
    "emulated fault clear": (_NONE, "{by} cleared the fault {fault} of {target}."),
    "source dark": (_MINOR, "No light at port {port}: {reason}."),
    "plugged": (_NONE, "Fibre {fibre} moved to port {port}."),
    "could not be switched off": (_MAJOR, "Light not switched off after the calibration: {reason}."),
    "heaters timed": (_NONE, "Heaters settle with a time constant of {heater_tau_s} s."),
    "heater measured": (_NONE, "Heater of PUC {puc}, {arm} arm, measured."),
}
"""Severity and sentence of each event; fields in braces come from its data."""


def event_sentence(event: str, data: Mapping[str, Any]) -> tuple[AlarmSeverity, str]:
    """Return severity and sentence of an event. An unknown event becomes its name and its data."""
    if event == "proof":
        return _proof(data)
    if event in ("emulated fault inject", "emulated fault clear") and data.get("arguments"):
        data = {**data, "fault": f"{data.get('fault')} ({_named(data['arguments'])})"}
    if event == "job ended":
        outcome = f"failed: {data['error']}" if data.get("error") else "ended"
        text = f"The job {data.get('what')} of {data.get('by')} {short_reason(outcome)} after {data.get('took_s')} s."
        return (_MAJOR if data.get("error") else _NONE), text
    severity, template = _SENTENCES.get(event, (_NONE, ""))
    try:
        sentence = _Formatter().format(template, **data) if template else _generic(event, data)
    except (KeyError, IndexError, ValueError):
        sentence = _generic(event, data)
    return severity, sentence if len(sentence) <= _MAX_LENGTH else sentence[: _MAX_LENGTH - 1] + "…"


def _proof(data: Mapping[str, Any]) -> tuple[AlarmSeverity, str]:
    name = f"{data.get('source')}:{data.get('target')}"
    loss_db, predicted_db = data.get("measured_loss_db"), data.get("predicted_loss_db")
    loss = "no light" if loss_db is None else f"{_text(loss_db)} dB of loss"
    if data.get("proven"):
        return _NONE, f"{name} proven: {loss}, {_text(predicted_db)} dB predicted."
    return _MAJOR, f"{name} not proven: {loss}, {_text(predicted_db)} dB predicted."


class _Formatter(string.Formatter):
    """Formats values of events: numbers with few digits, lists with commas, reasons without hints."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the text of a value, and its name."""
        return _text(kwargs[field_name]), field_name


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} ({_text(item)})" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return short_reason(str(value))


def _named(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in data.items())


def _generic(event: str, data: Mapping[str, Any]) -> str:
    details = _named(data)
    return f"{event[:1].upper()}{event[1:]}{': ' if details else ''}{details}."
