"""Optical connections of a rehearsal (recovery drill) from an emulated bench.

Virtual time runs no faster than the wall clock. Frames pass between servers while enough emulated light arrives at the
receivers.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.fabric import FabricJournal, FabricManager, find_unit
from lumion_hw.fabric.detectors.light import Photodiodes
from lumion_hw.files import AnyPath
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.quantities import w_from_dbm
from lumion_hw.rehearsal.light import FailureCallback, LightCallback, MilestoneCallback, predecessor_first

_WAIT_S = 60.0
_POLL_INTERVAL_S = 0.02


class PacedClock(VirtualClock):
    """Virtual clock that can run no faster than the wall clock."""

    _ahead_s: float | None = None

    def keep_pace(self) -> None:
        """Run no faster than the wall clock from now on."""
        self._ahead_s = self.now() - time.monotonic()

    def run_freely(self) -> None:
        """Run as fast as possible from now on."""
        self._ahead_s = None

    def sleep(self, duration_s: float) -> None:
        """Advance virtual time; wait for the wall clock if the pace is limited."""
        super().sleep(duration_s)
        if self._ahead_s is not None:
            wait_s = self.now() - self._ahead_s - time.monotonic()
            if wait_s > 0.0:
                time.sleep(wait_s)


class BenchFabric:
    """An emulated bench as the optical fabric of a rehearsal.

    Args:
        path: Path of the bench file, or the name of a built-in bench.
        record: Calibration record of this bench, made with the same ``seed``.
        directory: Directory for the journals of circuits and fabric.
        seed: Random seed of the emulation.
    """

    def __init__(self, path: AnyPath, record: CalibrationRecord, directory: AnyPath, *, seed: int = 0) -> None:
        self._clock = PacedClock()
        self._stack = contextlib.ExitStack()
        self._actions: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._early: list[tuple[str, str]] = []
        self._mark: MilestoneCallback | None = None
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._down: set[str] = set()
        self._suspect = ""
        self._spare_for: dict[str, str] = {}
        try:
            self._bench = self._stack.enter_context(Bench.emulate(str(path), seed=seed, clock=self._clock))
            lock = self._stack.enter_context(BenchLock(directory, "lumion rehearse"))
            model, mesh = self._bench.model, self._bench.mesh
            circuits = self._stack.enter_context(CircuitJournal(directory, model.name, mesh.topology.sha256))
            journal = self._stack.enter_context(FabricJournal(directory, model.name))
            self._bench.events.write_to(Path(directory) / "events.jsonl")
            service = CircuitService(self._bench, record, circuits, lock)
            manager = FabricManager(service, journal, detectors=[Photodiodes()], on_event=self._on_event)
            self._manager = self._stack.enter_context(manager)
            if not manager.jobs:
                raise ConfigError("the bench file has no jobs", hint="Add 'fabric.pairs' or 'fabric.jobs'.")
            manager.begin()
        except BaseException:
            self._stack.close()
            raise
        self._spares = manager.spares

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers of the job, and the spares."""
        return (*self.members, *self._spares)

    @property
    def members(self) -> tuple[str, ...]:
        """Servers of the first job in the bench file, which is the one rehearsed."""
        return self._manager.jobs[0].members

    def emulated(self) -> tuple[str, ...]:
        """Return descriptions of the emulated parts."""
        return (
            "mesh, heaters, photodiodes, controller, modules, fibres and amplifiers: an emulated bench at the pace of "
            "the wall clock; polarizations are aligned but not tracked",
            "network ports: TAP devices or sockets on this machine; accelerators: none",
        )

    def start(self, arrives: LightCallback, failed: FailureCallback) -> None:
        """Start to watch the light in a separate thread."""
        self._arrives, self._failed = arrives, failed
        self._clock.keep_pace()
        self._thread = threading.Thread(target=self._run, name="lumion-fabric", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._report_light()
            while not self._stopping.is_set():
                while not self._actions.empty():
                    self._actions.get()()
                # No tracking in the meantime: fibres hardly turn in a minute, and the cores are needed for training.
                self._manager.step(_POLL_INTERVAL_S)
        except BaseException as error:  # noqa: BLE001 - reported to the waiting thread
            self._failure = error

    def _run_on_bench_thread(self, action: Callable[[], None], *, wait: bool = True) -> None:
        finished = threading.Event()

        def act() -> None:
            try:
                action()
            finally:
                finished.set()

        self._actions.put(act)
        deadline_s = time.monotonic() + _WAIT_S
        while wait and not finished.wait(0.05):
            self._check(deadline_s)

    def _check(self, deadline_s: float) -> None:
        if self._failure is not None:
            raise DeviceError(f"the fabric's manager has failed: {self._failure}") from self._failure
        if time.monotonic() > deadline_s:
            raise DeviceError("the fabric's manager does not answer")

    # -- light --------------------------------------------------------------------------------------------------------

    def _report_light(self) -> None:
        model, world = self._bench.model, self._bench.emulated.world
        owner = {nic: name for name in self.servers for nic in find_unit(model, name).nics}
        arrives: dict[str, set[str]] = {}
        for nic, name in owner.items():
            if name in self._down:
                continue
            sensitivity_w = w_from_dbm(float(getattr(model.devices[nic], "sensitivity_dbm", -20.0)))
            received_w = world.received_by_source_w(nic)
            bright = {source for source, power_w in received_w.items() if power_w >= sensitivity_w}
            senders = {owner[source] for source in bright if source in owner} - {name}
            if len(senders) == 1:
                arrives.setdefault(name, set()).update(senders)
        self._arrives(predecessor_first(self._lit_members(), arrives))

    def _lit_members(self) -> list[str]:
        """Return the members of the job, and a spare from the time at which its circuits are switched."""
        # The manager counts the spare as a member only after the proof of its circuits.
        return [self._spare_for.get(name, name) for name in self._manager.members(self._manager.jobs[0])]

    def cut(self, server: str, on_cut: Callable[[], None]) -> None:
        """Cut the power of all modules of a server."""
        self._run_on_bench_thread(lambda: self._kill_modules(server, on_cut))

    def _kill_modules(self, server: str, on_cut: Callable[[], None]) -> None:
        on_cut()
        self._bench.emulated.faults.kill_modules(find_unit(self._bench.model, server).nics)
        self._down.add(server)
        self._report_light()

    # -- recovery -----------------------------------------------------------------------------------------------------

    def _on_event(self, event: str, details: dict[str, Any]) -> None:
        if event == "verdict" and details["suspect"] == "unit":
            self._suspect = str(details["name"])
            if details["cause"] == "light":
                self._failed(self._suspect, ", ".join(details["detectors"]))
        elif event == "spare":
            self._spare_for[str(details["failed"])] = str(details["spare"])
        elif event == "span":
            if details["name"] in ("programmed", "settled", "proven"):
                self._report_light()
            self._report_span(str(details["name"]), str(details["source"]))
            if details["name"] == "proven":
                self._outcomes.put((self._suspect, event))
        elif event in ("recovered", "refused"):  # no span proves the circuits of a cold spare
            self._report_light()
            self._outcomes.put((self._suspect, event))

    def _report_span(self, name: str, source: str) -> None:
        with self._guard:
            if self._mark is None:
                self._early.append((name, source))
            elif name not in ("detected", "link_up"):
                self._mark(name, source)

    def replace(self, failed: str, mark: MilestoneCallback) -> str:
        """Replace a server by a spare, unless this has begun already."""
        with self._guard:
            self._mark = mark
            for name, source in self._early:
                if name not in ("detected", "link_up"):
                    mark(name, source)
            self._early = []
        if failed not in self._down:
            self._run_on_bench_thread(lambda: self._fail(failed), wait=False)
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            with contextlib.suppress(queue.Empty):
                name, outcome = self._outcomes.get(timeout=0.05)
                if name == failed and outcome == "refused":
                    raise DeviceError(f"no spare can be used: {dict(self._manager.state.refused)}")
                if name == failed:
                    return self._spare_for[failed]
            self._check(deadline_s)

    def _fail(self, failed: str) -> None:
        self._manager.mark_failed(failed, "its process has ended")

    def restore(self) -> None:
        """Repair all failed servers, and return the job to its original servers."""
        if self._thread is not None:
            self._run_on_bench_thread(self._restore)

    def _restore(self) -> None:
        self._clock.run_freely()
        manager = self._manager
        for server in self._down:
            self._bench.emulated.faults.revive_modules(find_unit(self._bench.model, server).nics)
        self._down.clear()
        self._clock.sleep(1.0)
        manager.restore_bench_file_places()
        with self._guard:
            self._mark, self._early = None, []
        self._spare_for.clear()
        while not self._outcomes.empty():
            self._outcomes.get()
        self._clock.keep_pace()
        self._report_light()

    def close(self) -> None:
        """Stop the manager and close the bench; may be called twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_WAIT_S)
            self._thread = None
        self._stack.close()
