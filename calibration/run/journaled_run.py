"""Calibrating a bench with a journal: what is measured is kept whatever happens, and an interrupted run goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.entry import LogbookEntry
from calibration.measure.heater_fringe import HeaterFit
from calibration.measure.tuning import check_wavelengths, tune_to_reference
from calibration.record.conditions import ConditionsWatch
from calibration.record.raw_data import save_raw
from calibration.run.bootstrap import Progress
from calibration.run.journal import JournalHeader, RunJournal, now_utc
from calibration.run.planning import Goal
from calibration.run.procedure import Calibration
from calibration.run.resumption import check_light, check_same, header_of
from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import Aligner
from lumion_hw.errors import LumionError
from lumion_hw.files.writing import Over, check_target
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.storage import load_record, save_record


def journal_path(record: Path) -> Path:
    """Return where the journal of the run that makes a record lies: ``NAME.journal`` beside it."""
    return record.with_suffix(".journal")


def calibrate(
    bench: Bench,
    aligner: Aligner,
    seed: int,
    path: Path,
    progress: Progress = lambda stage, done, total: None,
    *,
    resume: bool = False,
    command: str = "",
    wavelengths_nm: Sequence[float] = (),
    goal: Goal | None = None,
    judge: Callable[[CalibrationRecord], Sequence[str]] = lambda record: (),
    over: Over = "own",
) -> CalibrationRecord:
    """Calibrate the mesh of a bench and save the record with its raw readings and its journal beside it.

    A run cut short leaves an incomplete record and its journal behind; heaters and sources are off.

    Args:
        bench: The bench.
        aligner: Polarization search.
        seed: Seed of the random settings.
        path: Where the record goes. An incomplete one replaces no complete one: it goes beside it to
            ``NAME.incomplete.json``.
        progress: Told of every step.
        resume: Go on with the run whose journal lies there.
        command: The command line, for the record's provenance.
        wavelengths_nm: Further wavelengths the record is to hold for.
        goal: How well the phases are to be known, and what that may cost; the usual one if not given.
        judge: Says what is wrong with the record, a sentence each, to be kept in it.
        over: What the record may be written over; what belongs to it only over files of this program.

    Raises:
        CalibrationError: No light at all, or the journal is damaged, or of another device, plan, seed or light.
        BusyError: Another process runs a calibration to the same place.
        ConfigError: There is no journal to go on from, nothing can be written there, or further wavelengths are asked
            for and no source can be tuned.
        LimitError: A source cannot make one of the wavelengths.
        LumionError: The disk is full.
    """
    check_target(path, "the calibration record", over)
    probe, begun = BenchProbe(bench, aligner), None
    check_wavelengths(wavelengths_nm, probe.subject())  # before light is aligned, which takes a while
    with contextlib.closing((RunJournal.resume if resume else RunJournal.begin)(journal_path(path))) as book:
        try:
            if resume and book.header.heater_tau_s is not None:
                bench.mesh.know_heaters(book.header.heater_tau_s, "the journal of the run")
            dead, stated_hz = _aligned(probe, book.header if resume else None, progress)
            run = _run(bench, probe, seed, progress, book.entries, wavelengths_nm, goal or Goal())
            run.faults += [f"source at port {port}: {reason}" for port, reason in dead.items()]
            header = header_of(run, dead, stated_hz, command, bench.mesh.heater_tau_s)
            if resume:
                run.logbook.light_db = _check(bench, book, header, probe)
            else:
                book.head(header)
            run.logbook.keep, begun = book.add, run
            record = _finished(run.run(), run, book, path, command, judge)
            save_record(record, path, over)
            book.note("finished", record=record.content_sha256)
        except BaseException as error:
            probe.safe()
            _keep_what_there_is(bench, begun, book, path, over, error)
            raise
    if resume:
        path.with_suffix(".incomplete.json").unlink(missing_ok=True)
    bench.events.add("calibrated", record=str(path), faults=list(record.faults), quality=record.quality)
    return record


def _aligned(
    probe: BenchProbe, begun: JournalHeader | None, progress: Progress
) -> tuple[dict[int, str], dict[int, float]]:
    """Tune and align the light, as it was where a run was begun; return ports that stay dark, and frequencies."""
    if begun is None:
        tune_to_reference(probe, probe.subject())
    else:
        stated_hz = probe.stated_hz()
        for port, frequency_hz in begun.stated_hz.items():
            if port in stated_hz and stated_hz[port] != frequency_hz:
                probe.tune(port, frequency_hz)
    dead = dict(begun.dead) if begun else {}
    stated_hz = probe.stated_hz()
    return dead | probe.align_all(dead, lambda step, total: progress("alignment", step, total)), stated_hz


def _run(
    bench: Bench,
    probe: BenchProbe,
    seed: int,
    progress: Progress,
    before: Sequence[LogbookEntry],
    wavelengths_nm: Sequence[float],
    goal: Goal,
) -> Calibration:
    """Return the procedure, ready to run."""

    def found(heater: int, fit: HeaterFit) -> None:
        rho2 = fit.law.rho2_rad_per_ma2 if fit.law else None
        bench.events.add("heater measured", puc=heater // 2, arm=("upper", "lower")[heater % 2], rho2_rad_per_ma2=rho2)

    watch = ConditionsWatch(bench, probe)
    return Calibration(
        probe,
        probe.subject(),
        seed,
        progress,
        found,
        goal=goal,
        before=before,
        wavelengths_nm=wavelengths_nm,
        conditions=watch,
    )


def _check(bench: Bench, book: RunJournal, header: JournalHeader, probe: BenchProbe) -> Mapping[int, float]:
    """Refuse to go on where device, plan or light are others than when the run was cut short; return its change."""
    check_same(book.header, header)
    light = check_light(probe, book.entries)
    changed_db = {str(each.source): round(each.power_db, 4) for each in light.changes}
    corrected_db = {str(port): round(power_db, 4) for port, power_db in light.power_db.items()}
    book.note("resumed", changed_db=changed_db, corrected_db=corrected_db)
    bench.events.add("calibration resumed", entries=len(book.entries), corrected_db=corrected_db)
    return light.power_db


def _keep_what_there_is(
    bench: Bench, run: Calibration | None, book: RunJournal, path: Path, over: Over, error: BaseException
) -> None:
    """Save an incomplete record of a run that was begun; what cut it short is the news, whatever fails here."""
    if run is None:
        with contextlib.suppress(LumionError):
            bench.events.add("calibration cut short", stage="alignment")
        return
    with contextlib.suppress(LumionError):
        book.note("cut short", reason=f"{type(error).__name__}: {error}")
    kept = path.with_suffix(".incomplete.json") if _is_precious(path) else path
    with contextlib.suppress(LumionError):
        save_record(replace(run.record(), complete=False), kept, over if kept == path else "own")
        bench.events.add("calibration cut short", record=str(kept))


def _is_precious(path: Path) -> bool:
    """Return whether there is something that an incomplete record must not replace."""
    if not path.exists():
        return False
    try:
        return load_record(path).complete
    except LumionError:
        return True


def _finished(
    record: CalibrationRecord,
    run: Calibration,
    book: RunJournal,
    path: Path,
    command: str,
    judge: Callable[[CalibrationRecord], Sequence[str]],
) -> CalibrationRecord:
    """Return the record with its raw readings, where it comes from, and what is wrong with it."""
    raw = save_raw(path, run.logbook.observations())
    resumed = [str(note["utc"]) for note in book.notes if note.get("kind") == "resumed"]
    origin = {
        "plan_sha256": book.header.plan_sha256,
        "journal_sha256": book.sha256(),
        "started_utc": book.header.started_utc,
        "stopped_utc": now_utc(),
        "interruptions": f"{len(resumed)}: resumed {', '.join(resumed)}" if resumed else "0",
    }
    if command:
        origin["command_line"] = command
    faults = (*record.faults, *judge(record))
    return replace(record, raw=raw, provenance=record.provenance | origin, faults=faults)
