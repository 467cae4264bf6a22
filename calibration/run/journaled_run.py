"""Calibration of a bench with a journal, so that an interrupted run can be resumed without loss of data.

A resumed run first checks that device, plan and light are unchanged.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.heater_fringe import HeaterFit
from calibration.measure.logbook import DARK, LogbookEntry
from calibration.measure.plug_requests import OnPlug, PlugRequest
from calibration.measure.port_survey import ReferenceChange, noise_of, reference_change, reference_readings
from calibration.measure.probe import Probe, check_wavelengths, tune_sources
from calibration.model.device_under_test import DeviceUnderTest
from calibration.model.observations import NoiseModel
from calibration.record.conditions import ConditionsWatch
from calibration.record.joining import join_records
from calibration.record.raw_data import save_raw
from calibration.run.bootstrap import Progress
from calibration.run.by_hand import COMPARED_SETTINGS
from calibration.run.journal import JournalHeader, RunJournal, utc_time
from calibration.run.parts import MeshPart
from calibration.run.planning import Goal
from calibration.run.procedure import Calibration, Residual
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import CalibrationError, LumionError
from lumion_hw.files import AnyPath
from lumion_hw.files.writing import Overwrite, check_target
from lumion_hw.mesh.record.calibration_record import COMMAND_LINE, CalibrationRecord
from lumion_hw.mesh.record.canonical import content_hash
from lumion_hw.polarization import Aligner
from lumion_hw.quantities import frequency_hz_from_wavelength_m
from lumion_hw.storage import load_record, save_record

_PLUG = "plugging requested"
_LAST_SETTINGS = 3
_REPEATED_READINGS = 4
_LOCK_LOSS = "temperature lost"
# Largest change of a source's power that the new polarization alignment explains and that is corrected.
_MAX_POWER_DB = 1.0
# Smaller changes are normal variations of the light.
_MIN_POWER_DB = 0.02
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
    reported_frequencies_hz: Mapping[int, float] | None = None,
    command: str = "",
    heater_tau_s: float | None = None,
) -> JournalHeader:
    """Return the journal header of a run.

    ``dead`` are the ports without light, with reasons; the frequencies are those of the tunable sources, by port.
    """
    from lumion_hw import __version__

    probe, device = run.probe, run.device
    return JournalHeader(
        serial=device.serial,
        model=device.model,
        firmware=device.firmware,
        mesh_sha256=probe.mesh.sha256,
        channel_map_sha256=content_hash([list(device.heater_channels), list(probe.monitors)]),
        plan_sha256=content_hash([_plain(run.plan), _plain(device), list(run.wavelengths_nm), _plain(run.goal)]),
        seed=run.seed,
        software=f"lumion-hw {__version__}",
        wavelength_nm=device.wavelength_nm,
        sources=tuple(probe.sources),
        dead=dict(dead),
        stated_hz=dict(reported_frequencies_hz or {}),
        started_utc=utc_time(),
        command=command,
        heater_tau_s=heater_tau_s,
        emulated_chip=device.emulated_chip,
    )


def _plain(plan: Any) -> Any:
    if not is_dataclass(plan) or isinstance(plan, type):
        return plan
    plain = asdict(plan)
    if isinstance(plan, DeviceUnderTest):  # older journals must still match
        del plain["heater_tau_s"]  # its effect is in settle_s
        del plain["emulated_chip"]  # a field of the header
        for name in ("seconds", "settle_s", "sources_by_hand", "monitors_by_hand"):
            if not plain[name]:
                del plain[name]
    return plain


def check_same(earlier: JournalHeader, current: JournalHeader) -> None:
    """Raise an error if a journal is from another device, plan, seed or software version.

    Raises:
        CalibrationError: The message lists the differences.
    """
    different = [
        f"{descriptions}: {_format_value(getattr(earlier, name))} at the start, "
        f"now {_format_value(getattr(current, name))}"
        for name, descriptions in _SAME
        if getattr(earlier, name) != getattr(current, name)
    ]
    if None not in (earlier.emulated_chip, current.emulated_chip) and earlier.emulated_chip != current.emulated_chip:
        different.append(f"the emulated chip: {earlier.emulated_chip} at the start, now {current.emulated_chip}")
    if different:
        raise CalibrationError(
            f"the run of this journal cannot be resumed here: {'; '.join(different)}",
            hint="Restore these values and resume, or start a new run without --resume.",
        )


def _format_value(value: object) -> str:
    text = str(value)
    return text[:12] if len(text) == 64 else text


@dataclass(frozen=True)
class LightConditions:
    """Change of the light since the run was interrupted.

    Attributes:
        changes: Changes of each compared setting.
        power_db: Power change in dB to correct in new readings, by source.
    """

    changes: tuple[ReferenceChange, ...] = ()
    power_db: Mapping[int, float] = field(default_factory=dict)


def check_light(probe: Probe, entries: Sequence[LogbookEntry]) -> LightConditions:
    """Repeat the reference setting (all heaters off) and the last few settings, and compare with earlier readings.

    A power change of a source is corrected, because the polarization was aligned again. The result is empty if there is
    nothing to compare.

    Raises:
        CalibrationError: The readings changed by more than noise; the message lists the changes.
    """
    noise = noise_of(entries, probe.monitor_step_ma)
    if noise is None:
        return LightConditions()
    tuned_hz = {entry.source: entry.requested_hz for entry in entries if entry.kind == "tuned"}
    for source, frequency_hz in sorted(tuned_hz.items()):
        probe.tune(source, frequency_hz)
    if any(entry.kind in ("laser", "meter") for entry in entries):
        return _check_light_by_hand(probe, entries, noise)
    changes = []
    for (source, frequency_hz), readings in sorted(reference_readings(entries).items()):
        if frequency_hz != tuned_hz.get(source, 0.0):
            continue  # the source was tuned to another frequency since
        probe.light_only_port(source)
        repeats = probe.measure_batch(np.zeros((_REPEATED_READINGS, 2 * probe.mesh.n_pucs)))
        # At the reference setting the power may differ because of the polarization, but the distribution may not.
        changes.append(reference_change(source, np.mean(readings, axis=0), repeats.mean(axis=0), noise))
    number = max(index for index, entry in enumerate(entries) if entry.kind == "settings")
    last, repeated_changes = entries[number], list[ReferenceChange]()
    is_retuned = any(entry.kind == "tuned" and entry.source == last.source for entry in entries[number:])
    if last.source != DARK and not is_retuned:
        probe.light_only_port(last.source)
        repeated = probe.measure_batch(last.currents_ma[-_LAST_SETTINGS:])
        repeated_changes = [
            reference_change(last.source, before, after, noise)
            for before, after in zip(last.answer[-_LAST_SETTINGS:], repeated, strict=True)
        ]
    return _accepted_changes(changes, repeated_changes)


def _check_light_by_hand(probe: Probe, entries: Sequence[LogbookEntry], noise: NoiseModel) -> LightConditions:
    """Repeat settings of the interrupted visit. Raises as :func:`check_light`."""
    visit: list[LogbookEntry] = []
    for entry in entries:
        if entry.kind in ("laser", "meter"):
            probe.assume_plugged(entry.kind, entry.source)
            visit.clear()
        elif entry.kind == "settings" and entry.source != DARK and len(entry.currents_ma) >= COMPARED_SETTINGS:
            visit.append(entry)
    if not visit:
        return LightConditions()
    source, before = visit[0].source, visit[0].answer[:COMPARED_SETTINGS]
    probe.light_only_port(source)
    after = probe.measure_batch(visit[0].currents_ma[:COMPARED_SETTINGS])
    # A single meter sees no distribution over ports, but that over settings.
    return _accepted_changes([reference_change(source, before.ravel(), after.ravel(), noise)])


def _accepted_changes(reference: Sequence[ReferenceChange], other: Sequence[ReferenceChange] = ()) -> LightConditions:
    """Return changes of the light, with the power changes in the reference setting. Raises as :func:`check_light`."""
    changes = (*reference, *other)
    messages = dict.fromkeys(text for change in changes for text in change.descriptions(_MAX_POWER_DB))
    if messages:
        raise CalibrationError(
            f"the bench has changed since the interrupted run: {'; '.join(messages)}",
            hint="Restore the earlier state and resume again, or start a new run without --resume.",
        )
    power_db = {change.source: change.power_db for change in reference if abs(change.power_db) > _MIN_POWER_DB}
    return LightConditions(changes, power_db)


def journal_path(record: Path) -> Path:
    """Return the path of the journal of a record: ``NAME.journal`` next to it."""
    return record.with_suffix(".journal")


def calibrate(
    bench: Bench,
    aligner: Aligner,
    seed: int,
    path: AnyPath,
    progress: Progress = lambda stage, done, total: None,
    *,
    resume: bool = False,
    command: str = "",
    wavelengths_nm: Sequence[float] = (),
    goal: Goal | None = None,
    find_faults: Callable[[CalibrationRecord], Sequence[str]] = lambda record: (),
    overwrite: Overwrite = "own",
    residual: Residual = lambda name, value: None,
    on_plug: OnPlug | None = None,
    part: MeshPart | None = None,
    join: CalibrationRecord | None = None,
) -> CalibrationRecord:
    """Calibrate the mesh of a bench; save record, raw readings and journal.

    An interrupted run leaves an incomplete record and the journal; heaters and sources are off.

    Args:
        bench: The bench.
        aligner: Polarization search.
        seed: Seed of the random settings.
        path: Path of the record. An incomplete record never replaces a complete one; it is saved as
            ``NAME.incomplete.json``.
        progress: Called after every step.
        resume: Whether to continue the run of the journal next to ``path``.
        command: The command line, to be stored in the record.
        wavelengths_nm: Further wavelengths in nm; the record is then valid for the whole range.
        goal: Required accuracy and limits of the effort; by default the usual goal.
        find_faults: Returns problems of the record to be stored in it, one sentence each.
        overwrite: Which existing record may be overwritten.
        residual: Called with name and value of the misfit of each stage.
        on_plug: Called when a fibre has to be moved by hand; returns after the move. Without it, the run stops with an
            error and continues with ``resume`` after the move.
        part: Part of the mesh to calibrate; by default the whole mesh.
        join: Record of the other PUCs, which the result completes.

    Raises:
        CalibrationError: There is no light, or the journal is damaged or from another device, plan, seed or light.
        BusyError: Another process uses the same path.
        ConfigError: There is no journal to resume, the path cannot be written, or no source is tunable for further
            wavelengths.
        LimitError: A source cannot reach one of the wavelengths.
        LumionError: The disk is full.
    """
    path = Path(path)
    check_target(path, "the calibration record", overwrite)
    run = _JournaledRun(
        bench, seed, path, progress, resume, command, wavelengths_nm, goal or Goal(), find_faults, overwrite, residual,
        part, join,
    )  # fmt: skip
    return run.calibrate(BenchProbe(bench, aligner, on_plug))


@dataclass(frozen=True)
class _JournaledRun:
    """One call of :func:`calibrate`; its arguments are described there."""

    bench: Bench
    seed: int
    path: Path
    progress: Progress
    resume: bool
    command: str
    wavelengths_nm: Sequence[float]
    goal: Goal
    find_faults: Callable[[CalibrationRecord], Sequence[str]]
    overwrite: Overwrite
    residual: Residual
    part: MeshPart | None
    join: CalibrationRecord | None

    def calibrate(self, probe: BenchProbe) -> CalibrationRecord:
        """Run the calibration and return the record. An error switches all off and saves an incomplete record."""
        if self.part is not None:
            probe.use_only(self.part.sources, self.part.monitors)
        # Before the alignment of the light, which takes a while.
        check_wavelengths(self.wavelengths_nm, probe.device_under_test())
        begun: Calibration | None = None
        open_journal = RunJournal.resume if self.resume else RunJournal.begin
        with contextlib.closing(open_journal(journal_path(self.path))) as book:
            try:
                # From here on an error leaves an incomplete record.
                begun = self._prepare(probe, book)
                record = self._measure(probe, begun, book)
                save_record(record, self.path, self.overwrite)
                book.note("finished", record=record.content_sha256)
            except BaseException as error:
                probe.switch_everything_off()
                self._save_incomplete_record(begun, book, error)
                raise
        if self.resume:
            self.path.with_suffix(".incomplete.json").unlink(missing_ok=True)
        self.bench.events.add("calibrated", record=str(self.path), faults=list(record.faults), quality=record.quality)
        return record

    def _prepare(self, probe: BenchProbe, book: RunJournal) -> Calibration:
        """Align the light, connect the run to its journal, and return the run before its first reading."""
        mesh = self.bench.mesh
        if self.resume and book.header.heater_tau_s is not None:
            mesh.set_heater_time_constant(book.header.heater_tau_s, "the journal of the run")
        # The light comes first: the header lists the working sources.
        dead, reported_frequencies_hz = _aligned(probe, book.header if self.resume else None, self.progress)
        run = self._run(probe, book.entries)
        run.faults += [f"source at port {port}: {reason}" for port, reason in dead.items()]
        run.left_out = frozenset(range(probe.mesh.n_pucs)) - set(self.part.pucs) if self.part else frozenset()
        header = header_of(run, dead, reported_frequencies_hz, self.command, mesh.heater_tau_s)
        self._connect_journal(run, book, header)
        before = [str(note["lost"]) for note in book.notes if note.get("kind") == _LOCK_LOSS]
        probe.temperature.keep_losses(before, lambda loss: book.note(_LOCK_LOSS, lost=loss))
        probe.keep_plug_requests(
            lambda request: book.note(
                _PLUG, fibre=request.fibre, device=request.device, port=request.port, after=len(run.logbook.entries)
            ),
            _pending_request(book) if self.resume else None,
        )
        return run

    def _measure(self, probe: BenchProbe, run: Calibration, book: RunJournal) -> CalibrationRecord:
        """Return the judged record of a run, joined with the record of the other PUCs if there is one."""
        record = run.run()
        raw = save_raw(self.path, run.logbook.observations(unreached=True))
        resumed = [str(note["utc"]) for note in book.notes if note.get("kind") == "resumed"]
        origin = {
            "plan_sha256": book.header.plan_sha256,
            "journal_sha256": book.sha256(),
            "started_utc": book.header.started_utc,
            "stopped_utc": utc_time(),
            "interruptions": f"{len(resumed)}: resumed {', '.join(resumed)}" if resumed else "0",
        }
        if self.command:
            origin[COMMAND_LINE] = self.command
        faults = (*record.faults, *self.find_faults(record), *probe.temperature.warnings())
        record = replace(record, raw=raw, provenance=record.provenance | origin, faults=faults)
        if self.join is None:
            return record
        return join_records(self.join, record, self.part.pucs if self.part else range(probe.mesh.n_pucs))

    def _run(self, probe: BenchProbe, before: Sequence[LogbookEntry]) -> Calibration:
        squares: list[float] = []

        def on_heater(heater: int, fit: HeaterFit) -> None:
            squares.append(fit.residual_sigma**2)
            self.residual("heater_sweeps_rms_sigma", math.sqrt(sum(squares) / len(squares)))
            rho2 = fit.law.rho2_rad_per_ma2 if fit.law else None
            arm = ("upper", "lower")[heater % 2]
            self.bench.events.add("heater measured", puc=heater // 2, arm=arm, rho2_rad_per_ma2=rho2)

        return Calibration(
            probe,
            probe.device_under_test(),
            self.seed,
            self.progress,
            on_heater,
            goal=self.goal,
            before=before,
            wavelengths_nm=self.wavelengths_nm,
            conditions=ConditionsWatch(self.bench, probe),
            residual=self.residual,
        )

    def _connect_journal(self, run: Calibration, book: RunJournal, header: JournalHeader) -> None:
        """Write the header to a new journal, or check the header of an existing one.

        Raises:
            CalibrationError: Device, plan or light have changed since the interruption.
        """
        if self.resume:
            check_same(book.header, header)
            # After a fibre was moved, there is no earlier light to compare with.
            light = LightConditions() if _pending_request(book) else check_light(run.logbook.probe, book.entries)
            changed_db = {str(change.source): round(change.power_db, 4) for change in light.changes}
            corrected_db = {str(port): round(power_db, 4) for port, power_db in light.power_db.items()}
            book.note("resumed", changed_db=changed_db, corrected_db=corrected_db)
            self.bench.events.add("calibration resumed", entries=len(book.entries), corrected_db=corrected_db)
            run.logbook.light_db = light.power_db
        else:
            book.write_header(header)
        run.logbook.keep = book.add

    def _save_incomplete_record(self, run: Calibration | None, book: RunJournal, error: BaseException) -> None:
        if run is None:
            with contextlib.suppress(LumionError):
                self.bench.events.add("calibration cut short", stage="alignment")
            return
        with contextlib.suppress(LumionError):
            book.note("cut short", reason=f"{type(error).__name__}: {error}")
        # A complete record is more valuable than an incomplete new one.
        target = self.path.with_suffix(".incomplete.json") if _is_complete_record(self.path) else self.path
        with contextlib.suppress(LumionError):
            save_record(replace(run.record(), complete=False), target, self.overwrite if target == self.path else "own")
            self.bench.events.add("calibration cut short", record=str(target))


def _pending_request(book: RunJournal) -> PlugRequest | None:
    pending = [note for note in book.notes if note.get("kind") == _PLUG and note.get("after") == len(book.entries)]
    return PlugRequest(pending[-1]["fibre"], pending[-1]["device"], pending[-1]["port"]) if pending else None


def _aligned(
    probe: BenchProbe, earlier: JournalHeader | None, progress: Progress
) -> tuple[dict[int, str], dict[int, float]]:
    if earlier is None:
        device = probe.device_under_test()
        tune_sources(probe, frequency_hz_from_wavelength_m(device.wavelength_nm * 1e-9), device.tunable_hz)
    else:
        for port, reported_hz in probe.reported_frequencies_hz().items():
            if earlier.stated_hz.get(port, reported_hz) != reported_hz:
                probe.tune(port, earlier.stated_hz[port])
    dead = dict(earlier.dead) if earlier else {}
    reported_frequencies_hz = probe.reported_frequencies_hz()
    return dead | probe.align_all(dead, partial(progress, "alignment")), reported_frequencies_hz


def _is_complete_record(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        return load_record(path).complete
    except LumionError:
        return True
