"""The maintenance thread of a served bench, which changes all circuits and runs requested jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.controller_faults import clear_faults, clear_host_silence, find_latched
from lumion_hw.circuits import (
    BenchLock,
    CircuitHealth,
    CircuitJournal,
    CircuitMaintenance,
    CircuitService,
)
from lumion_hw.errors import BusyError, CircuitError, ConfigError, LumionError
from lumion_hw.fabric import (
    FabricJournal,
    FabricManager,
    FabricState,
    FabricStatus,
    last_recovery,
    read_fabric,
)
from lumion_hw.fabric.requests import FabricRequest, RequestBox
from lumion_hw.fabric.status import FabricStatusMemo
from lumion_hw.files import AnyPath
from lumion_hw.files.writing import writing
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner
from lumion_hw.serving.circuit_jobs import CircuitJobs
from lumion_hw.serving.ocs.change import OcsSettings
from lumion_hw.serving.state import ServedJob
from lumion_hw.storage.record_files import load_record

_IDLE_WAIT_S = 0.25
_RETRY_S = 1.0
"""Pause after a failure before the next attempt."""
_MEASURE_PERIOD_S = 1.0
"""Period of measurements of all circuits."""
RECORD_FOLDER = "calibrations"
"""Folder in the state directory for records that jobs write."""
STOP_TIMEOUT_S = 2.0
"""Time that the current step or job may take to end when the server stops."""
_RECORD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}\.json")
_DRIVING_METHODS = ("program", "sweep", "configure", "outputs_off")


class _ServerStopping(BaseException):
    """Ends a job early when the server stops."""


class _WorkIsWaiting(BaseException):
    """Interrupts circuit maintenance so that a job can run."""


class BenchKeeper:
    """Maintains the circuits and the fabric of a bench and runs jobs, all in one thread.

    Args:
        lock: The bench lock; the caller holds it.
        directory: The state directory of the bench.
        path: File of the calibration record; by default the record of the connected circuits.
        fabric: Whether to maintain the jobs of the bench file.
        on_change: Called when the published state has changed.
        wall_s: Returns the time of day, in seconds since 1970.

    Attributes:
        service: The circuits; ``None`` without a calibration record.
        job: The running or last job; ``None`` before the first.
        trouble: Reason why nothing is maintained; empty while all is well.
    """

    def __init__(
        self,
        bench: Bench,
        lock: BenchLock,
        directory: AnyPath,
        path: AnyPath | None,
        *,
        fabric: bool,
        on_change: Callable[[], None],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._bench, self._lock, self._on_change, self._wall_s = bench, lock, on_change, wall_s
        self._directory = Path(directory)
        self._requests = RequestBox(directory)
        self._runs_fabric = fabric and bool(bench.model.fabric.all_jobs)
        self._stack = contextlib.ExitStack()
        self._aligner = Aligner(bench.clock)
        self._journal: CircuitJournal | None = None
        self._maintenance: CircuitMaintenance | None = None
        self._circuit_jobs = CircuitJobs(
            bench, self._directory, self._require_free_circuits, self._report_progress, self._forget_maintenance
        )
        self._manager: FabricManager | None = None
        self._fabric_state, self._recovery = FabricState(), last_recovery(())
        self._status = FabricStatusMemo(bench.model)
        self.service: CircuitService | None = None
        self.job: ServedJob | None = None
        self.trouble = ""
        self._work: Callable[[], Any] | None = None
        self._error: BaseException | None = None
        self._news = threading.Condition()
        self._stop = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="lumion-keep", daemon=True)
        self._open_journals(path)
        # A damaged journal is reported as trouble when the fabric starts.
        with contextlib.suppress(LumionError):
            self._fabric_state, entries = read_fabric(directory)
            self._recovery = last_recovery(entries)

    def _open_journals(self, path: AnyPath | None) -> None:
        if self._bench.model.mesh is None or self._bench.model.mesh.controller in self._bench.mesh_states:
            return
        journal = CircuitJournal(self._directory, self._bench.model.name, self._bench.mesh.topology.sha256)
        self._journal = self._stack.enter_context(journal)
        try:
            record = path or journal.state.record
            if record is not None:
                self._use_record(record)
        except BaseException:
            self._stack.close()
            raise

    def _use_record(self, path: AnyPath) -> None:
        if self._journal is None:
            raise ConfigError("this bench has no mesh with heater currents, so it has no circuits")
        record = load_record(path)
        service = CircuitService(
            self._bench, record, self._journal, self._lock, str(Path(path).resolve()), self._aligner
        )
        service.restore()
        self.service, self._maintenance = service, None

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def record(self) -> CalibrationRecord | None:
        """The calibration record in use."""
        return None if self.service is None else self.service.setup.record

    @property
    def health(self) -> Sequence[CircuitHealth]:
        """Measured health of the maintained circuits."""
        maintenance = self._maintenance
        return () if maintenance is None else maintenance.health

    @property
    def keeps(self) -> str:
        """What is maintained now: ``nothing``, ``circuits`` or ``fabric``."""
        if self._manager is not None:
            return "fabric"
        return "circuits" if self.service is not None and self.service.state.circuits else "nothing"

    @property
    def fabric(self) -> FabricStatus | None:
        """Jobs, servers and spares of the bench file; ``None`` if it has no servers."""
        manager = self._manager
        if manager is not None:
            return manager.status
        circuits = () if self.service is None else self.service.state.circuits
        names = tuple(circuit.name for circuit in circuits)
        return self._status.status(self._fabric_state, names, recovery=self._recovery)

    def require_service(self) -> CircuitService:
        """Return the circuits of the bench. Raises ``ConfigError`` if the bench has no calibration record."""
        if self.service is None:
            raise ConfigError(
                "this bench is served without a calibration record, so it has no circuits",
                hint="Start `lumion serve` with --record RECORD, or run the job calibrate first.",
            )
        return self.service

    def check_free(self, device: str, method: str) -> None:
        """Raise ``BusyError`` if a call would change heaters that circuits or a job need."""
        section = self._bench.model.mesh
        if section is None or not section.is_driven_by(device):
            return
        if method == "watch_light" and self._runs_fabric and self.service is not None:
            raise BusyError(
                "only the fabric manager may watch the light", device=device, hint="Read telemetry instead."
            )
        if method not in _DRIVING_METHODS:
            return
        job = self.job
        if job is not None and not job.is_over:
            raise BusyError(
                f"the job {job.kind} of {job.by} drives the heaters", device=device, hint="Wait until the job ends."
            )
        circuits = () if self.service is None else self.service.state.circuits
        if circuits:
            names = ", ".join(circuit.name for circuit in circuits)
            raise BusyError(
                f"active circuits need the heaters ({names}); nothing was changed",
                device=device,
                hint="Disconnect the circuits first.",
            )

    # -- start and stop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the maintenance thread."""
        self._thread.start()

    def stop(self, patience_s: float = STOP_TIMEOUT_S) -> None:
        """Stop after the current step or job, or after ``patience_s``; a second call has no effect.

        A job that takes longer is abandoned; its journals keep its progress.
        """
        self._stop.set()
        with self._news:
            self._news.notify_all()
        if self._thread.is_alive():
            self._thread.join(patience_s)
        if self._thread.is_alive():
            with contextlib.suppress(LumionError):
                self._bench.events.add("cut short", what="" if self.job is None else self.job.kind)
        else:
            self._circuit_jobs.joined.close()
        self._has_ended = True
        with self._news:
            self._news.notify_all()
        self._stack.close()

    def switch_heaters_off(self) -> None:
        """Switch the heaters off, unless circuits or a job need them. Raises the errors of the controller."""
        job = self.job
        circuits = () if self.service is None else self.service.state.circuits
        if circuits or (job is not None and not job.is_over):
            return
        self._bench.mesh.program(np.zeros(len(self._bench.mesh.heater_channels)))
        self._bench.events.add("heaters off")

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.step():
                with self._news:
                    self._news.wait_for(self._has_work, _RETRY_S)

    def step(self, for_s: float | None = None) -> bool:
        """Run the requested job, then maintain circuits or fabric for a time or until another job is requested.

        Returns:
            Whether maintenance succeeded; otherwise :attr:`trouble` gives the reason.
        """
        try:
            self._run_job()
            if not self._runs_fabric or self.trouble:  # otherwise the fabric serves them soon
                self._requests.serve(self._lock.owner, self._perform)
            self._maintain(for_s)
            self._clear_trouble()
        except Exception as error:  # noqa: BLE001 - serving goes on and the step is repeated: the bench may recover
            if str(error) != self.trouble:
                self.trouble = str(error)
                with contextlib.suppress(LumionError):
                    self._bench.events.add("not kept", reason=self.trouble, error=type(error).__name__)
            self._maintenance = None
            return False
        return True

    def _clear_trouble(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._bench.events.add("kept again")

    def _maintain(self, for_s: float | None) -> None:
        service = self.service
        if service is not None and self._runs_fabric:
            self._maintain_fabric(service, for_s)
        elif service is not None and service.state.circuits and self._circuit_jobs.joined.prepared is None:
            if self._maintenance is None:
                service.restore_after_shutdown()
                self._maintenance = CircuitMaintenance(service)
            with contextlib.suppress(_WorkIsWaiting):
                self._maintenance.run(for_s, on_health=self._after_health_check)
        else:
            self._maintenance = None
            with self._news:
                self._news.wait_for(self._has_work, _IDLE_WAIT_S if for_s is None else 0.0)

    def _after_health_check(self, _held_s: float, _health: Sequence[CircuitHealth]) -> None:
        self._clear_trouble()
        self._on_change()
        if self._has_work():
            raise _WorkIsWaiting

    def _has_work(self) -> bool:
        return self._work is not None or self._stop.is_set()

    def _maintain_fabric(self, service: CircuitService, for_s: float | None) -> None:
        with self._opened_manager(service) as manager:
            manager.begin()
            self._manager, self._maintenance = manager, manager.maintenance
            try:
                with self._measure_in_background(manager) if for_s is None else contextlib.nullcontext():
                    manager.run(
                        for_s,
                        is_over=self._stop.is_set,
                        between_steps=self._between_fabric_steps,
                        max_step_s=_IDLE_WAIT_S,
                    )
                if for_s is not None:
                    manager.measure()
            finally:
                self._fabric_state, self._recovery, self._manager = manager.state, manager.journal.recovery, None

    @contextlib.contextmanager
    def _opened_manager(self, service: CircuitService) -> Iterator[FabricManager]:
        """Yield the running fabric manager, or open one during a ``with`` block."""
        if self._manager is not None:
            yield self._manager
            return
        with (
            FabricJournal(self._directory, self._bench.model.name) as journal,
            FabricManager(service, journal, on_event=self._on_fabric_event) as manager,
        ):
            yield manager

    @contextlib.contextmanager
    def _measure_in_background(self, manager: FabricManager) -> Iterator[None]:
        has_ended = threading.Event()

        def measure() -> None:
            while not has_ended.wait(_MEASURE_PERIOD_S):
                manager.measure()
                self._on_change()

        thread = threading.Thread(target=measure, name="lumion-margins", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()

    def _between_fabric_steps(self) -> None:
        self._clear_trouble()
        self._run_job()
        self._requests.serve(self._lock.owner, self._perform)

    def _perform(self, request: FabricRequest) -> dict[str, Any]:
        if request.action == "status":
            return self._status_document()
        if request.action != "clear":
            return request.perform(self._require_manager())
        clear_faults(self._bench, request.unit, "a request of `lumion fabric clear`")
        self._set_up_again()
        return self._status_document()

    def _status_document(self) -> dict[str, Any]:
        fabric = self.fabric
        return {} if fabric is None else fabric.document()

    def _on_fabric_event(self, event: str, fields: Mapping[str, Any]) -> None:
        if event != "span":
            logged = {key: value for key, value in fields.items() if key != "spans"}
            self._bench.events.add(f"fabric {event}", **logged)
        self._on_change()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def start_job(self, kind: str, arguments: Mapping[str, Any], by: str) -> ServedJob:
        """Start a job; see :meth:`~lumion_hw.serving.owner.BenchOwner.start_job`."""
        jobs: Mapping[str, Callable[..., Callable[[], Any]]] = {
            "connect": self._circuit_jobs.connect,
            "disconnect": self._circuit_jobs.disconnect,
            "apply": self._circuit_jobs.apply,
            "cross_connect": self._circuit_jobs.cross_connect,
            "joined": self._circuit_jobs.joined.job,
            "calibrate": self._calibrate_job,
            "recover": self._recover_job,
            "fail": self._fail_job,
            "drain": self._drain_job,
            "repaired": self._repair_job,
            "clear": self._clear_job,
        }
        if kind not in jobs:
            raise ConfigError(f"there is no job {kind!r}", hint=f"The jobs are {', '.join(jobs)}.")
        if kind != "joined":
            self._circuit_jobs.joined.check_idle()
        try:
            work = jobs[kind](**arguments)
        except TypeError as error:
            raise ConfigError(f"{kind}: {error}", hint="docs/serving.md lists the arguments of each job.") from error
        with self._news:
            if self.job is not None and not self.job.is_over:
                raise BusyError(f"the job {self.job.kind} of {self.job.by} is running", hint="Wait until the job ends.")
            number = 1 if self.job is None else self.job.number + 1
            self.job = ServedJob(number, kind, by, self._wall_s())
            self._work, self._error = work, None
            self._news.notify_all()
        self._bench.events.add("asked", what=kind, by=by)
        return self.job

    def wait(self, job: ServedJob, timeout_s: float | None) -> ServedJob:
        """Wait for the end of a job, at most ``timeout_s``, and return the state of the job.

        Raises the error of a failed job.
        """
        with self._news:
            self._news.wait_for(lambda: self._is_over(job) or self._has_ended, timeout_s)
            if self.job is None or self.job.number != job.number:
                return job
            if self._has_ended and not self.job.is_over:
                raise LumionError(f"the server stopped before the job {job.kind} ended")
            if self._error is not None:
                raise self._error
            return self.job

    def _is_over(self, job: ServedJob) -> bool:
        return self.job is not None and self.job.number == job.number and self.job.is_over

    def _run_job(self) -> None:
        work = self._work
        if work is None:
            return
        result: Any = None
        error: Exception | None = None
        try:
            result = work()
        except _ServerStopping:
            error = LumionError("the server stopped before the job ended")
        except Exception as failure:  # noqa: BLE001 - returned to the client that started the job
            error = failure
        with self._news:
            self._work, self._error = None, error
            if self.job is not None:
                failure_text = "" if error is None else f"{type(error).__name__}: {error}"
                self.job = dataclasses.replace(self.job, is_over=True, error=failure_text, result=result)
                outcome = self.job
            self._news.notify_all()
        self._bench.events.add(
            "job ended",
            what=outcome.kind,
            by=outcome.by,
            error=outcome.error,
            took_s=round(self._wall_s() - outcome.begun_s, 3),
        )
        self._on_change()

    def _report_progress(self, stage: str, done: int = 0, total: int = 0) -> None:
        if self.job is not None:
            self.job = self.job.with_progress(self._wall_s(), stage, done, total)
        self._on_change()
        if self._stop.is_set():
            raise _ServerStopping

    def _report_residual(self, name: str, value: float) -> None:
        if self.job is not None:
            self.job = self.job.with_residual(self._wall_s(), name, value)
            self._on_change()

    def _forget_maintenance(self) -> None:
        self._maintenance = None

    @property
    def ocs(self) -> OcsSettings:
        """Labels, blocked ports and held cross-connects of the bench as an optical circuit switch."""
        return self._circuit_jobs.settings

    def _require_free_circuits(self) -> CircuitService:
        service = self.require_service()
        if self._runs_fabric:  # also while the fabric starts or fails: it would remove circuits of no job
            raise ConfigError(
                "the jobs of the bench file control the circuits of this bench",
                hint="Change the jobs, or serve the bench with --no-fabric.",
            )
        return service

    def plan_difference(self, circuits: Sequence[object]) -> dict[str, Any]:
        """See :meth:`~lumion_hw.serving.owner.BenchOwner.plan_difference`."""
        return self._circuit_jobs.plan_difference(circuits)

    def plan_joined(self, circuits: Sequence[object], removed: Sequence[object]) -> list[dict[str, Any]]:
        """Plan segments of circuits over several meshes, without changing anything."""
        return self._circuit_jobs.joined.plan(circuits, removed)

    def joined_circuits(self) -> dict[str, Any]:
        """Return the active circuits and the prepared change, for a program that joins several benches."""
        return self._circuit_jobs.joined.circuits(self.health, self.trouble)

    def _calibrate_job(self, out: str | None = None, seed: int = 0) -> Callable[[], Any]:
        if self.service is not None and self.service.state.circuits:
            raise BusyError(
                "a calibration needs the whole mesh, but circuits are active", hint="Disconnect all circuits first."
            )
        serial = re.sub(r"[^A-Za-z0-9._-]+", "_", self._bench.mesh.controller.info.serial)
        name = out or f"calibration-{serial}.json"
        if _RECORD_NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{name[:80]!r} is not a valid record name",
                hint=f"Give a file name that ends with .json; the record goes to {self._directory / RECORD_FOLDER}.",
            )
        path, draw = self._directory / RECORD_FOLDER / name, _seed(seed)

        def work() -> dict[str, Any]:
            from calibration.run.journaled_run import calibrate

            clear_host_silence(self._bench, self._lock.program)
            with writing("the calibration record", path):
                path.parent.mkdir(exist_ok=True)
            with self._bench.dark():
                record = calibrate(
                    self._bench, self._aligner, draw, path, self._report_progress, residual=self._report_residual
                )
            self._use_record(path)
            return {"record": str(path), "faults": list(record.faults), "sha256": record.content_sha256}

        return work

    def _require_manager(self) -> FabricManager:
        manager = self._manager
        if manager is not None:
            return manager
        if self._runs_fabric and self.service is not None:
            reason = self.trouble or "its jobs are being connected"
            raise BusyError(f"the fabric accepts no requests now: {reason}", hint="Try again later.")
        raise ConfigError(
            "this bench does not maintain a fabric (jobs and their spares)",
            hint="Put jobs into the bench file, and serve it with a calibration record and without --no-fabric.",
        )

    def _recover_job(self) -> Callable[[], Any]:
        return partial(FabricRequest("recover").perform, self._require_manager())

    def _fail_job(self, unit: str, because: str = "declared by hand") -> Callable[[], Any]:
        return partial(FabricRequest("fail", str(unit), str(because)).perform, self._require_manager())

    def _drain_job(self, unit: str, because: str = "drained by hand") -> Callable[[], Any]:
        return partial(FabricRequest("drain", str(unit), str(because)).perform, self._require_manager())

    def _repair_job(self, unit: str) -> Callable[[], Any]:
        return partial(FabricRequest("repaired", str(unit)).perform, self._require_manager())

    def _clear_job(self, fault: str) -> Callable[[], Any]:
        find_latched(self._bench, str(fault))  # an unknown name is refused before the job starts

        def work() -> list[str]:
            by = self._lock.program if self.job is None else self.job.by
            cleared = clear_faults(self._bench, str(fault), by)
            self._set_up_again()
            return [str(each) for each in cleared]

        return work

    def _set_up_again(self) -> None:
        """Set up the circuits again after faults were cleared, and raise ``CircuitError`` if one is not proven."""
        service = self.service
        if service is None:
            return
        if self._runs_fabric:
            with self._opened_manager(service) as manager:
                FabricRequest("recover").perform(manager)
            return
        self._maintenance = None
        failures = [
            f"{proof.circuit.request.name}: {', '.join(proof.failures)}"
            for proof in service.restore_after_shutdown() or ()
            if not proof.proven
        ]
        if failures:
            raise CircuitError(f"the faults are cleared, but some circuits are not proven: {'; '.join(failures)}")


def _seed(value: object) -> int:
    try:
        if not isinstance(value, bool):
            seed = operator.index(int(value) if isinstance(value, str) else value)  # type: ignore[arg-type] # refused
            if 0 <= seed < 2**32:
                return seed
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"the seed is {str(value)[:40]!r}", hint="Give a whole number from 0 to 4294967295.")
